"""redis-cli and redis-benchmark against Quire: what an operator would do first.

Relies on Debian's redis-tools.
"""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness

SERVER = None


def cli(*words, stdin=None):
    done = subprocess.run(
        ["redis-cli", "-p", str(SERVER.port), *words], input=stdin, capture_output=True, timeout=60, check=True
    )
    return done.stdout.decode().strip()


def commands(_):
    cli("flushall")
    assert cli("ping") == "PONG" and cli("set", "a", "1") == "OK" and cli("get", "a") == "1"
    assert cli("hset", "h", "f", "v", "g", "w") == "2" and cli("hgetall", "h").split() == ["f", "v", "g", "w"]
    assert cli("--no-raw", "get", "none") == "(nil)" and cli("--no-raw", "incr", "a") == "(integer) 2"
    assert cli("nosuch", "x").startswith("ERR unknown command 'nosuch'")
    assert cli("get").startswith("ERR wrong number of arguments for 'get' command")


def resp3_mode(_):
    cli("flushall")
    cli("hset", "h", "f", "v")
    assert cli("-3", "--no-raw", "hgetall", "h") == '1# "f" => "v"'


def piped_input(_):
    cli("flushall")
    requests = b"".join(harness.Raw.encode("SET", f"k{n}", n) for n in range(50_000))
    assert "errors: 0, replies: 50000" in cli("--pipe", stdin=requests)
    assert cli("dbsize") == "50000"


def scanning(_):
    cli("flushall")
    cli("debug", "populate", "1000")
    assert len(cli("--scan").split()) == 1000
    assert "Sampled 1000 keys" in cli("--bigkeys")


def transaction_over_lines(_):
    cli("flushall")
    assert cli(stdin=b"multi\nset a 1\nincr a\nexec\n").split() == ["OK", "QUEUED", "QUEUED", "OK", "2"]


def command_docs(_):
    assert int(cli("command", "count")) > 90
    assert "summary" in cli("command", "docs", "get")


def benchmark(_):
    words = ["redis-benchmark", "-p", str(SERVER.port), "-n", "20000", "-r", "1000", "--csv"]
    for more in (["-t", "ping,set,get,incr,mset,hset"], ["-t", "set,get", "-P", "16"]):
        done = subprocess.run(words + more, capture_output=True, timeout=120, check=True)
        lines = done.stdout.decode().strip().splitlines()
        assert len(lines) > 2 and not done.stderr.strip(), done


if __name__ == "__main__":
    OPTIONS = harness.arguments(__doc__)
    with harness.scratch() as DIRECTORY, harness.Quire(OPTIONS.quire, DIRECTORY) as SERVER:
        SERVER.ready().close()
        tests = [commands, resp3_mode, piped_input, scanning, transaction_over_lines, command_docs, benchmark]
        harness.run(tests, OPTIONS)
