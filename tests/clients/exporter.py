"""redis_exporter, which asks a server by INFO, CONFIG, SLOWLOG, LATENCY and their kin, and tells Prometheus: those that run it for Redis may keep it.

Relies on Debian's prometheus-redis-exporter and python3-prometheus-client.
"""

import contextlib
import os
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from prometheus_client.parser import text_string_to_metric_families

import harness

LIMIT_S = 60


@contextlib.contextmanager
def exporter(server):
    """The address of an exporter of the server."""
    port = harness.free_port()
    words = ["prometheus-redis-exporter", "-redis.addr", f"redis://127.0.0.1:{server.port}", "-web.listen-address", f"127.0.0.1:{port}"]
    with open(os.path.join(server.dir, "exporter.log"), "wb") as log:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield f"http://127.0.0.1:{port}/metrics"
    finally:
        process.kill()
        process.wait()


def scrape(address):
    """The samples by name, each with its labels and its value."""
    end = time.monotonic() + LIMIT_S
    while True:
        try:
            with urllib.request.urlopen(address, timeout=LIMIT_S) as answer:
                text = answer.read().decode()
            break
        except OSError:
            assert time.monotonic() < end, f"no exporter answers after {LIMIT_S} s"
            time.sleep(0.05)
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def the_exporter_finds_what_it_asks_for(options):
    with harness.scratch() as folder, harness.Quire(options.quire, folder) as server:
        client = server.ready()
        for number in range(20):
            client.call("SET", f"key:{number}", "value")
        client.call("SAVE")
        with exporter(server) as address:
            found = scrape(address)
        one = {name: samples[0][1] for name, samples in found.items()}
        assert one["redis_up"] == 1 and one["redis_exporter_last_scrape_error"] == 0, one
        for name in ("redis_memory_used_bytes", "redis_connected_clients", "redis_config_maxclients", "redis_commands_processed_total"):
            assert one[name] > 0, (name, one.get(name))
        assert one["redis_rdb_last_bgsave_status"] == 1 and one["redis_rdb_changes_since_last_save"] == 0, one
        keys = {labels["db"]: value for labels, value in found["redis_db_keys"]}
        assert keys["db0"] == 20, keys
        calls = {labels["cmd"]: value for labels, value in found["redis_commands_total"]}
        assert calls["set"] == 20 and calls["save"] == 1, calls
        client.close()
        return f"{sum(len(samples) for samples in found.values())} samples"


if __name__ == "__main__":
    harness.run([the_exporter_finds_what_it_asks_for], harness.arguments(__doc__))
