"""The metrics of a server, read by the parser that Prometheus' own Python client has, and what is made from them: the dashboard for Grafana
and the alert rules ask for metrics that there are.

Relies on Debian's python3-prometheus-client.
"""

import json
import os
import re
import sys
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from prometheus_client.openmetrics.parser import text_string_to_metric_families

import harness

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
MONITORING = os.path.join(ROOT, "packaging", "monitoring")
SERVER = None
PORT = None


def scrape():
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=30) as answer:
        kind = answer.headers["Content-Type"]
        assert kind.startswith("application/openmetrics-text"), kind
        return list(text_string_to_metric_families(answer.read().decode()))


def parsed(_):
    raw = harness.Raw(SERVER.port)
    for _ in range(100):
        raw.call("SET", "k", "v")
    families = {family.name: family for family in scrape()}
    assert len(families) > 50, sorted(families)
    for family in families.values():
        assert family.documentation and family.type in ("counter", "gauge", "histogram"), family
    calls = {sample.labels["command"]: sample.value for sample in families["quire_command_calls"].samples}
    assert calls["set"] >= 100, calls
    buckets = [s for s in families["quire_command_duration_seconds"].samples if s.labels.get("command") == "set"]
    infinite = [s.value for s in buckets if s.labels.get("le") == "+Inf"]
    assert infinite and infinite[0] >= 100, buckets


def names_in_use(_):
    served = set()
    for family in scrape():
        served.update(sample.name for sample in family.samples)
        served.add(family.name)
    # A counter or a histogram without samples yet.
    served.update({"quire_errors_total", "quire_command_duration_seconds_bucket", "quire_db_keys"})
    # Mounts serve metrics of their own; the page of metrics, which is made from the code, has them.
    with open(os.path.join(ROOT, "docs", "metrics.md"), encoding="utf-8") as opened:
        for name, kind in re.findall(r"^\| `(quire_mount_[a-z_]+)` \| (\w+)", opened.read(), re.MULTILINE):
            served.add(f"{name}_total" if kind == "counter" else name)
    files = sorted(os.listdir(MONITORING))
    assert len(files) == 3, files
    for file in files:
        with open(os.path.join(MONITORING, file), encoding="utf-8") as opened:
            asked = set(re.findall(r"\bquire_[a-z_]+", opened.read()))
        assert asked, file
        assert asked <= served, f"{file} asks for what is not served: {sorted(asked - served)}"


def dashboards(_):
    """Each panel has a place of its own, an unlike number, and a question; labels of legends are labels that the question leaves."""
    for file in ("grafana-dashboard.json", "grafana-dashboard-mount.json"):
        with open(os.path.join(MONITORING, file), encoding="utf-8") as opened:
            panels = json.load(opened)["panels"]
        ids = [panel["id"] for panel in panels]
        assert len(set(ids)) == len(ids), (file, ids)
        taken = set()
        for panel in panels:
            place = panel["gridPos"]
            cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
            assert not cells & taken and place["x"] + place["w"] <= 24, (file, panel["title"])
            taken |= cells
            assert panel["type"] == "row" or panel["targets"], (file, panel["title"])
            for target in panel.get("targets", []):
                for label in re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")):
                    assert label == "instance" or re.search(rf"by \([^)]*\b{label}\b", target["expr"]), (file, panel["title"], label)


def other_requests(_):
    for path, status in (("/", 200), ("/nothing", 404)):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}{path}", timeout=30) as answer:
                found = answer.status
        except urllib.error.HTTPError as error:
            found = error.code
        assert found == status, (path, found)


if __name__ == "__main__":
    OPTIONS = harness.arguments(__doc__)
    PORT = harness.free_port()
    FLAGS = ["--metrics-port", str(PORT), "--appendonly", "yes"]
    with harness.scratch() as DIRECTORY, harness.Quire(OPTIONS.quire, DIRECTORY, *FLAGS) as SERVER:
        SERVER.ready().close()
        harness.run([parsed, names_in_use, dashboards, other_requests], OPTIONS)
