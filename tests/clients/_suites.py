#!/usr/bin/env python3
"""Runs the test suite of a client library (redis-py or go-redis) against Quire and against redis-server, and tells which tests end differently.

The suites are not part of this repository: the second argument is the unpacked source of a release, which is copied and not changed.
They look for servers at fixed ports, 6379 among them, so everything runs in a network namespace of its own. What a suite wants of a
cluster, of Sentinel or of a module is left out by the suite's own marks, or answered by redis-server on both sides.

    tests/clients/_suites.py redis-py CHECKOUT [--quire PATH] [--protocol 2|3] [--python PATH] [--only WORDS] [--json FILE]
    tests/clients/_suites.py go-redis CHECKOUT [--quire PATH] [--only WORDS] [--json FILE]

Relies on Debian's redis-server as the peer, on unshare and ip, and on openssl for the certificates of redis-py's suite. The Python that is
named by --python needs what that suite imports: pytest, pytest-asyncio, pytest-timeout, packaging, ujson, numpy, mock and cachetools. The
modules that go-redis needs must have been downloaded, since the namespace reaches nothing outside.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

SIDES = ("quire", "redis")
INSIDE = "QUIRE_SUITES_INSIDE"
LIMIT_S = 1800

# What redis-py keeps beside its source and does not put into its releases.
PYTEST_INI = """[pytest]
asyncio_mode = auto
timeout = 30
markers =
    redismod: needs a module
    pipeline: pipelines
    onlycluster: needs a cluster
    onlynoncluster: needs a server alone
    ssl: needs TLS
    asyncio: asynchronous
    replica: needs a replica
    experimental: of what may change
"""

# Stands where go-redis has the server that it builds: nodes of a cluster, of Sentinel and replicas are redis-server on both sides.
GO_SERVER = """#!/bin/sh
conf=$1
shift
case " $* " in
*" --port 6379 "* | *" --port 6380 "* | *" --port 639"[0-9]" "*)
    port=$2 dir=$4
    if [ "$SIDE" = quire ]; then exec "$QUIRE" serve "$conf" --port "$port" --dir "$dir"; fi ;;
esac
exec redis-server "$conf" "$@"
"""


def is_ready(port):
    """Whether the server answers commands; while it is still loading it answers them with an error."""
    with socket.create_connection(("127.0.0.1", port), 1) as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(64).startswith(b"+PONG")


class Server:
    """One side's server at a port; ended by its process id."""

    def __init__(self, options, side, port, directory, *more):
        self.dir = pathlib.Path(directory, f"{side}-{port}")
        self.dir.mkdir()
        words = [options.quire, "serve"] if side == "quire" else ["redis-server"]
        words += ["--enable-module-command", "yes"] if side == "redis" else []
        words += ["--port", str(port), "--dir", str(self.dir), "--save", "", "--enable-debug-command", "yes", *more]
        with open(self.dir / "log", "wb") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + 30
        while time.monotonic() < end and self.process.poll() is None:
            with contextlib.suppress(OSError):
                if is_ready(port):
                    return
            time.sleep(0.05)
        sys.exit(f"{words[0]} does not serve: {(self.dir / 'log').read_text(errors='replace')[-500:]}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        ended = self.process.poll()
        if ended is not None:
            print(f"the server had ended with {ended}: {(self.dir / 'log').read_text(errors='replace')[-1000:]}")
            return
        self.process.kill()
        self.process.wait()


def from_junit(path):
    """What became of each test of a report, and the first line that says why."""
    found = {}
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        outcome, why = "passed", ""
        for part in case:
            if part.tag in ("failure", "error", "skipped"):
                outcome = "skipped" if part.tag == "skipped" else "failed"
                why = part.get("message") or (part.text or "").strip()
        # A test that fails, and then its clean-up, too, is told twice.
        name = f"{case.get('classname')} {case.get('name')}"
        if found.get(name, ("",))[0] != "failed":
            found[name] = (outcome, " ".join(why.split())[:300])
    return found


def from_go(text):
    """What became of the plain Go tests and examples; the suite of Ginkgo has its own report."""
    words = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}
    found = re.findall(r"^\s*--- (PASS|FAIL|SKIP): (\S+)", text, re.MULTILINE)
    return {f"(none) {name}": (words[outcome], "") for outcome, name in found if name != "TestGinkgoSuite"}


def run(words, log, **popen):
    """A program whose output goes into a file; says if it took too long."""
    with open(log, "wb") as out:
        try:
            subprocess.run(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=LIMIT_S, check=False, **popen)
        except subprocess.TimeoutExpired:
            print(f"{words[0]} was ended after {LIMIT_S} s")
    return pathlib.Path(log).read_text(errors="replace")


class RedisPy:
    """redis-py's tests, synchronous and asynchronous."""

    def __init__(self, options, scratch):
        self.options, self.scratch = options, scratch
        self.checkout = pathlib.Path(scratch, "redis-py")
        shutil.copytree(options.checkout, self.checkout, ignore=shutil.ignore_patterns(".git"))
        (self.checkout / "pytest.ini").write_text(PYTEST_INI)
        self.keys = self.checkout / "dockers" / "stunnel" / "keys"
        self.keys.mkdir(parents=True, exist_ok=True)
        self.certificates()

    def certificates(self):
        """An authority and what it has signed, under the names that the tests look for."""

        def openssl(*words):
            subprocess.run(["openssl", *words], cwd=self.keys, check=True, capture_output=True)

        new = ("req", "-new", "-newkey", "rsa:2048", "-nodes")
        openssl(*new, "-x509", "-days", "30", "-subj", "/CN=authority", "-keyout", "ca-key.pem", "-out", "ca-cert.pem")
        (self.keys / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        for name in ("server", "client"):
            openssl(*new, "-subj", "/CN=localhost", "-keyout", f"{name}-key.pem", "-out", f"{name}.csr")
            signed = ("-CA", "ca-cert.pem", "-CAkey", "ca-key.pem", "-CAcreateserial", "-extfile", "names", "-days", "30")
            openssl("x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}-cert.pem")

    def outcomes(self, side):
        report = pathlib.Path(self.scratch, f"{side}.xml")
        more = ["--tls-port", "6666", "--tls-auth-clients", "optional", "--tls-ca-cert-file", str(self.keys / "ca-cert.pem")]
        more += ["--tls-cert-file", str(self.keys / "server-cert.pem"), "--tls-key-file", str(self.keys / "server-key.pem")]
        words = [self.options.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={report}", "tests"]
        # By any other name than the default, so that the suite looks for no second server with modules.
        words += ["-m", "not onlycluster and not redismod", f"--protocol={self.options.protocol}"]
        words += ["--redis-url=redis://127.0.0.1:6379/0"]
        words += ["-k", self.options.only] if self.options.only else []
        with Server(self.options, side, 6379, self.scratch, *more):
            text = run(words, pathlib.Path(self.scratch, f"{side}.log"), cwd=self.checkout)
        if not report.exists():
            sys.exit(f"the suite made no report:\n{text[-3000:]}")
        return from_junit(report)

    @staticmethod
    def group(name):
        """The file of a test."""
        return next((part for part in name.split(" ")[0].split(".")[::-1] if part.startswith("test_")), name)


class GoRedis:
    """go-redis's tests, less those of a cluster, of Sentinel and of modules."""

    LEFT_OUT = ("osscluster", "cluster", "sentinel", "gears", "json", "probabilistic", "search", "timeseries", "bench")

    def __init__(self, options, scratch):
        self.options, self.scratch = options, scratch
        self.checkout = pathlib.Path(scratch, "go-redis")
        shutil.copytree(options.checkout, self.checkout, ignore=shutil.ignore_patterns(".git"))
        subprocess.run(["chmod", "-R", "u+w", self.checkout], check=True)
        place = self.checkout / "testdata" / "redis"
        (place / "src").mkdir(parents=True)
        (place / "redis.conf").write_text('save ""\nappendonly no\nenable-debug-command yes\n')
        (place / "src" / "redis-server").write_text(GO_SERVER)
        (place / "src" / "redis-server").chmod(0o755)
        build = ["go", "test", "-c", "-vet=off", "-o", "suite.test", "."]
        subprocess.run(build, cwd=self.checkout, check=True, env={**os.environ, "GOFLAGS": "-mod=mod", "GOPROXY": "off"})

    def outcomes(self, side):
        report = pathlib.Path(self.scratch, f"{side}.xml")
        words = ["./suite.test", "-test.v", f"-test.timeout={LIMIT_S}s", f"--ginkgo.junit-report={report}", "--ginkgo.no-color"]
        words += [f"--ginkgo.skip-file=/{name}_(commands_)?test.go" for name in self.LEFT_OUT]
        words += [f"--ginkgo.focus={self.options.only}"] if self.options.only else []
        env = {**os.environ, "SIDE": side, "QUIRE": self.options.quire}
        # The examples look for a server where one is by default.
        with Server(self.options, side, 6379, self.scratch):
            text = run(words, pathlib.Path(self.scratch, f"{side}.log"), cwd=self.checkout, env=env)
        if not report.exists():
            sys.exit(f"the suite made no report:\n{text[-3000:]}")
        found = from_junit(report) | from_go(text)
        return {name: outcome for name, outcome in found.items() if "Suite]" not in name}

    @staticmethod
    def group(name):
        """The first word of a test's outermost block."""
        return name.removeprefix("go-redis ").removeprefix("[It] ").split(" ")[0]


def table(suite, results):
    """How many tests of each file passed, failed and were skipped on both sides."""
    counts = {}
    for side in SIDES:
        for name, (outcome, _) in results[side].items():
            for group in (suite.group(name), "all"):
                counts.setdefault(group, {}).setdefault(side, dict.fromkeys(("passed", "failed", "skipped"), 0))[outcome] += 1
    print("| file | quire: passed | failed | skipped | redis-server: passed | failed | skipped |\n|---|---|---|---|---|---|---|")
    for group in sorted(counts, key=lambda group: (group == "all", group)):
        cells = [counts[group].get(side, {}).get(kind, 0) for side in SIDES for kind in ("passed", "failed", "skipped")]
        print(f"| {group} | " + " | ".join(map(str, cells)) + " |")


def differences(results):
    """The tests that fail on Quire and pass on redis-server, or fail on Quire and are not run there, or the other way round."""
    ours, theirs = (results[side] for side in SIDES)
    missing = ("not run", "")
    kinds = {}
    for name in sorted(ours.keys() | theirs.keys()):
        mine, other = ours.get(name, missing), theirs.get(name, missing)
        if mine[0] != other[0] or mine[0] == "failed":
            kinds.setdefault((mine[0], other[0]), []).append((name, mine[1] or other[1]))
    for (mine, other), tests in sorted(kinds.items()):
        print(f"\nquire {mine}, redis-server {other}: {len(tests)}")
        for name, why in tests:
            print(f"  {name}: {why}")
    return sum(len(tests) for (mine, other), tests in kinds.items() if mine != "passed" and other == "passed")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=("redis-py", "go-redis"))
    parser.add_argument("checkout", help="the unpacked source of a release")
    parser.add_argument("--quire", default="target/release/quire", help="the quire binary")
    parser.add_argument("--protocol", default="2", choices=("2", "3"), help="of redis-py's connections")
    parser.add_argument("--python", default=sys.executable, help="the Python with what redis-py's suite imports")
    parser.add_argument("--only", default="", help="only these tests, in the words of pytest's -k, or Ginkgo's focus")
    parser.add_argument("--json", help="a file for all results")
    options = parser.parse_args()
    options.quire = os.path.abspath(options.quire)
    if "/" in options.python:
        # Not resolved: a link in a virtual environment says which one it is.
        options.python = os.path.abspath(options.python)
    return options


def main():
    options = arguments()
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        inside = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, "-B", *sys.argv]
        os.execvp("unshare", ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"]), *inside])
    with tempfile.TemporaryDirectory(prefix="suites-") as scratch:
        suite = {"redis-py": RedisPy, "go-redis": GoRedis}[options.library](options, scratch)
        results = {side: suite.outcomes(side) for side in SIDES}
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1))
    table(suite, results)
    sys.exit(1 if differences(results) else 0)


if __name__ == "__main__":
    main()
