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
    assert "Sampled 1000 keys" in cli("--memkeys")


def hot_keys(_):
    cli("flushall")
    cli("config", "set", "maxmemory-policy", "allkeys-lfu")
    cli("debug", "populate", "100")
    cli(stdin=b"get key:7\n" * 2000)
    told = cli("--hotkeys")
    cli("config", "set", "maxmemory-policy", "noeviction")
    hottest = next(line for line in told.splitlines() if line.startswith("hot key found"))
    assert "Sampled 100 keys" in told and hottest.endswith('"key:7"'), told


def first_commands_of_redis_insight(_):
    """What it asks a server that is added, before it shows a key."""
    cli("flushall")
    cli(stdin=b"set a 1\nhset h f v\n")
    assert cli("client", "setname", "redisinsight-browser-1") == "OK"
    assert "redis_version:" in cli("info") and "redis_mode:standalone" in cli("info", "server")
    assert cli("module", "list") == "" and cli("config", "get", "databases").split() == ["databases", "16"]
    assert cli("acl", "whoami") == "default" and cli("dbsize") == "2"
    assert int(cli("command", "count")) > 90 and "get" in cli("command").split()
    assert cli("cluster", "info").startswith("ERR This instance has cluster support disabled")
    assert cli("ft._list").startswith("ERR unknown command 'ft._list'")
    assert sorted(cli("scan", "0", "match", "*", "count", "10000").split()) == ["0", "a", "h"]
    assert cli("scan", "0", "match", "*", "count", "500", "type", "hash").split() == ["0", "h"]
    assert cli("type", "h") == "hash" and cli("ttl", "h") == "-1" and int(cli("memory", "usage", "h", "samples", "0")) > 0


def data_as_a_file(_):
    """Over TCP and over the Unix socket, to a file and to standard output."""
    cli("flushall")
    cli("debug", "populate", "1000")
    for way in (["-p", str(SERVER.port)], ["-s", os.path.join(SERVER.dir, "socket")]):
        done = subprocess.run(["redis-cli", *way, "--rdb", "-"], capture_output=True, timeout=60, check=True)
        assert done.stdout.startswith(b"REDIS0010") and done.stdout.count(b"key:") == 1000, done.stdout[:100]
        assert done.stderr.splitlines() == [
            b"sending REPLCONF capa eof",
            b"sending REPLCONF rdb-only 1",
            b"SYNC sent to master, writing bytes of bulk transfer until EOF marker to '-'",
            # The mark that ends it goes to standard output, too.
            b"Transfer finished with success after %d bytes" % (len(done.stdout) - 40),
        ], done.stderr
    refused = subprocess.run(["redis-cli", "-p", str(SERVER.port), "--replica"], capture_output=True, timeout=60, check=False)
    assert refused.returncode == 1 and b"SYNC with master failed: -ERR Quire has no replicas yet" in refused.stderr, refused


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


def benchmark_with_its_defaults(_):
    done = subprocess.run(["redis-benchmark", "-p", str(SERVER.port), "-n", "2000", "-q"], capture_output=True, timeout=120, check=True)
    told = done.stdout.decode()
    for test in ("PING_MBULK", "LPOP", "SADD", "HSET", "SPOP", "ZADD", "ZPOPMIN", "LRANGE_600 (first 600 elements)", "MSET (10 keys)"):
        assert f"{test}: " in told, f"{test}: {told}"
    assert "requests per second" in told and "Error" not in told and not done.stderr.strip(), done


if __name__ == "__main__":
    OPTIONS = harness.arguments(__doc__)
    with harness.scratch() as DIRECTORY, harness.Quire(OPTIONS.quire, DIRECTORY, "--unixsocket", os.path.join(DIRECTORY, "socket")) as SERVER:
        SERVER.ready().close()
        tests = [commands, resp3_mode, piped_input, scanning, hot_keys, data_as_a_file, transaction_over_lines, command_docs]
        tests += [first_commands_of_redis_insight, benchmark, benchmark_with_its_defaults]
        harness.run(tests, OPTIONS)
