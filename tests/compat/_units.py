#!/usr/bin/env python3
"""Runs the unit files of a public test suite of servers like Redis (Valkey's `tests/`) against a server, and counts.

The suite is not part of this repository: the first argument is a checkout of it. It needs tclsh. Each file gets a fresh
server, which is ended after it, and a time; what it leaves of that is told. A test of a file can end in one of these ways:

    ok        passed
    err       failed
    skipped   left out by a tag, since it needs replication, a server that the suite starts, or the like
    lost      never run, since something before it, outside a test, failed (told as `stopped`), hung or took the file's time

    tests/compat/_units.py CHECKOUT [--program PATH] [--peer] [--deny TAG]… [--skip TEST]… [--json FILE] [UNIT]…

With `--peer` it runs redis-server instead, which shows what the suite asks of a server that it has not started itself.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness

UNITS = (
    "type/string type/incr type/list type/list-2 type/list-3 type/set type/zset type/hash type/stream type/stream-cgroups "
    "keyspace expire scan multi quit pubsub scripting functions bitops bitfield geo hyperloglog sort dump protocol querybuf "
    "latency-monitor slowlog info info-command introspection introspection-2 lazyfree maxmemory memefficiency other pause "
    "tracking acl acl-v2 auth violations replybufsize networking limits obuf-limits pubsubshard client-eviction aofrw shutdown "
    "oom-score-adj tls wait"
).split()
COLOR = re.compile(r"\x1b\[[0-9;]*m")
LINE = re.compile(r"^\[(ok|err|ignore|skip|exception|TIMEOUT)\]: (.*)$")


def is_ready(port):
    """Whether the server answers commands; while it is still loading it answers them with an error."""
    with socket.create_connection(("127.0.0.1", port), 1) as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(64).startswith(b"+PONG")


class Server:
    """A server on a free port, its data in a directory of its own."""

    def __init__(self, options):
        self.dir, self.port = tempfile.mkdtemp(prefix="units-"), harness.free_port()
        words = [shutil.which("redis-server")] if options.peer else [options.program, "serve"]
        words += ["--port", str(self.port), "--dir", self.dir, "--save", ""]
        words += ["--enable-debug-command", "yes", "--enable-protected-configs", "yes"]
        self.log = open(pathlib.Path(self.dir, "log"), "wb")
        self.process = subprocess.Popen(words, stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if is_ready(self.port):
                    return
            except OSError:
                pass
            time.sleep(0.1)
        sys.exit(f"{words[0]} does not serve: {pathlib.Path(self.dir, 'log').read_text(errors='replace')[-500:]}")

    def end(self):
        """How it ended, if it had ended by itself."""
        status = self.process.poll()
        if status is None:
            self.process.kill()
            self.process.wait()
        tail = pathlib.Path(self.dir, "log").read_text(errors="replace")[-2000:]
        self.log.close()
        shutil.rmtree(self.dir, ignore_errors=True)
        return None if status is None else f"ended with {status}: {tail}"


def run_unit(options, unit):
    """The lines of the suite for a file, whether its time was over, and how the server ended if it did."""
    server = Server(options)
    words = ["tclsh", "tests/test_helper.tcl", "--host", "127.0.0.1", "--port", str(server.port), "--durable", "--baseport", str(server.port + 40)]
    words += ["--single", f"unit/{unit}", "--tags", " ".join(f"-{tag}" for tag in options.deny), "--timeout", "60"]
    for test in options.skip:
        words += ["--skiptest", test]
    suite = subprocess.Popen(
        words, cwd=options.checkout, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        text, is_over = suite.communicate(timeout=options.seconds)[0], False
    except subprocess.TimeoutExpired:
        os.killpg(suite.pid, signal.SIGKILL)
        text, is_over = suite.communicate()[0], True
    return COLOR.sub("", text.decode(errors="replace")).splitlines(), is_over, server.end()


def summary(lines):
    """What became of the tests of a file."""
    found = {"ok": [], "err": [], "skipped": [], "stopped": []}
    for at, line in enumerate(lines):
        match = LINE.match(line)
        if not match:
            continue
        kind, rest = match.groups()
        if kind == "ok":
            found["ok"].append(rest.rsplit(" (", 1)[0])
        elif kind == "err" and " in tests/unit/" in rest:
            found["err"].append([re.split(r" in tests/unit/", rest)[0], " ".join(lines[at + 1 : at + 4])[:300]])
        elif kind in ("err", "exception", "TIMEOUT"):
            found["stopped"].append(" ".join([rest, *lines[at + 1 : at + 4]])[:400])
        elif kind in ("ignore", "skip"):
            found["skipped"].append(rest)
    return found


def named(options, unit):
    """How many tests a file has in its text; loops make more of them."""
    text = pathlib.Path(options.checkout, "tests", "unit", f"{unit}.tcl").read_text(errors="replace")
    return len(re.findall(r"^\s*test\s", text, re.MULTILINE))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout")
    parser.add_argument("--program", default="target/release/quire")
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--deny", action="append", default=[], help="a tag whose tests are left out")
    parser.add_argument("--skip", action="append", default=[], help="a test that is left out, by its name")
    parser.add_argument("--seconds", type=int, default=120, help="the time of a file")
    parser.add_argument("--json", help="a file for all results")
    parser.add_argument("units", nargs="*")
    options = parser.parse_intermixed_args()
    options.program = str(pathlib.Path(options.program).resolve())
    if not shutil.which("tclsh"):
        sys.exit("tclsh is missing: apt-get install tcl")
    results, failed = {}, False
    print("| file | passed | failed | skipped | stopped |\n|---|---|---|---|---|")
    for unit in options.units or UNITS:
        lines, is_over, ended = run_unit(options, unit)
        found = summary(lines)
        if not is_over and not any("The End" in line for line in lines):
            found["stopped"].append("the suite ended early: " + " ".join(lines[-4:])[-400:])
        if is_over:
            found["stopped"].append(f"the {options.seconds} seconds are over")
        if ended:
            found["stopped"].append(f"the server {ended}")
        results[unit] = found | {"named": named(options, unit)}
        failed |= bool(found["err"] or found["stopped"])
        counts = [len(found[kind]) for kind in ("ok", "err", "skipped", "stopped")]
        print(f"| {unit} | " + " | ".join(map(str, counts)) + " |", flush=True)
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps(results, indent=1))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
