"""The Python client (redis-py) against Quire: what an application would do.

Relies on Debian's python3-redis. One server serves all tests but those that restart it.
"""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import redis

import harness

SERVER = None


def client(**options):
    made = redis.Redis(port=SERVER.port, socket_timeout=30, **options)
    made.flushall()
    return made


def strings(_):
    r = client()
    assert r.set("a", "1") is True and r.get("a") == b"1"
    assert r.set("a", "2", nx=True) is None and r.set("b", "2", xx=True) is None
    assert r.set("a", "3", get=True) == b"1"
    assert r.incr("a") == 4 and r.incrby("a", 10) == 14 and r.decr("a", 4) == 10
    assert r.incrbyfloat("f", 1.5) == 1.5
    assert r.append("s", "hello") == 5 and r.append("s", " world") == 11
    assert r.getrange("s", 0, 4) == b"hello" and r.setrange("s", 6, "quire") == 11 and r.get("s") == b"hello quire"
    assert r.mset({"x": 1, "y": 2}) and r.mget("x", "no", "y") == [b"1", None, b"2"]
    assert r.msetnx({"x": 5, "z": 6}) is False and r.get("z") is None
    assert r.getdel("x") == b"1" and r.exists("x", "y") == 1
    big = os.urandom(3_000_000)
    assert r.set("big", big) and r.get("big") == big and r.strlen("big") == len(big)
    assert r.setbit("bits", 7, 1) == 0 and r.getbit("bits", 7) == 1 and r.bitcount("bits") == 1
    try:
        r.set("s", "word")
        r.incr("s")
        raise AssertionError("INCR of a word passed")
    except redis.ResponseError as error:
        assert str(error) == "value is not an integer or out of range", error


def hashes(_):
    r = client()
    assert r.hset("h", mapping={"a": 1, "b": 2}) == 2 and r.hset("h", "a", 3) == 0
    assert r.hgetall("h") == {b"a": b"3", b"b": b"2"} and r.hlen("h") == 2
    assert r.hmget("h", "a", "no") == [b"3", None] and r.hexists("h", "b") and r.hdel("h", "b", "no") == 1
    assert r.hincrby("h", "n", 5) == 5 and r.hincrbyfloat("h", "f", 0.5) == 0.5 and r.hsetnx("h", "n", 1) == 0
    fields = {f"field-{n}": f"value-{n}" for n in range(5000)}
    r.hset("large", mapping=fields)
    assert r.object("encoding", "large") in (b"hashtable", "hashtable")
    assert {k.decode(): v.decode() for k, v in r.hgetall("large").items()} == fields
    assert {k.decode() for k, _ in r.hscan_iter("large", count=100)} == set(fields)
    try:
        r.get("h")
        raise AssertionError("GET of a hash passed")
    except redis.ResponseError as error:
        assert str(error).startswith("WRONGTYPE"), error


def transactions(_):
    r, other = client(), redis.Redis(port=SERVER.port)
    pipe = r.pipeline(transaction=True)
    assert pipe.set("a", 1).incr("a").get("a").execute() == [True, 2, b"2"]
    with r.pipeline() as pipe:
        pipe.watch("a")
        other.set("a", 100)
        pipe.multi()
        pipe.incr("a")
        try:
            pipe.execute()
            raise AssertionError("a touched WATCH let EXEC pass")
        except redis.WatchError:
            pass
    assert r.get("a") == b"100"
    r.transaction(lambda pipe: pipe.multi() or pipe.incr("a"), "a")
    assert r.get("a") == b"101"


def pipelines(_):
    r = client()
    pipe = r.pipeline(transaction=False)
    for n in range(20_000):
        pipe.set(f"key:{n}", n)
    assert all(pipe.execute()) and r.dbsize() == 20_000
    for n in range(20_000):
        pipe.get(f"key:{n}")
    assert pipe.execute() == [str(n).encode() for n in range(20_000)]


def resp3(_):
    client()
    raw = harness.Raw(SERVER.port)
    raw.send(raw.encode("HELLO", "3"))
    head = raw.input.readline()
    assert head.startswith(b"%"), head
    for _ in range(2 * int(head[1:-2])):
        line = raw.input.readline()
        if line.startswith(b"$"):
            raw.input.read(int(line[1:-2]) + 2)
    raw.send(raw.encode("HSET", "h", "a", "1") + raw.encode("HGETALL", "h") + raw.encode("GET", "none"))
    assert raw.input.readline() == b":1\r\n"
    assert [raw.input.readline() for _ in range(5)] == [b"%1\r\n", b"$1\r\n", b"a\r\n", b"$1\r\n", b"1\r\n"]
    assert raw.input.readline() == b"_\r\n"
    raw.close()


def scan_returns_every_key(_):
    r = client()
    keys = {f"k{n}".encode() for n in range(10_000)}
    r.mset({key: 1 for key in keys})
    seen, cursor, turn = set(), None, 0
    while cursor != 0:
        cursor, part = r.scan(cursor or 0, count=100)
        seen.update(part)
        # The table grows and shrinks under the scan.
        r.mset({f"new-{turn}-{n}": 1 for n in range(200)})
        r.delete(*[f"new-{turn - 1}-{n}" for n in range(200)])
        turn += 1
    assert keys <= seen, len(keys - seen)
    assert set(r.scan_iter(match="k123*", count=500)) == {key for key in keys if key.startswith(b"k123")}
    assert r.keys("k999?") == [] or set(r.keys("k999?")) == {b"k999%d" % n for n in range(10)}


def expiry(_):
    r = client()
    # On a machine that stalls, a key that lives for a moment may be gone before it is looked at.
    r.set("a", 1, px=60_000)
    r.set("b", 1, ex=100)
    assert 0 < r.pttl("a") <= 60_000 and 0 < r.ttl("b") <= 100 and r.ttl("none") == -2
    r.set("a", 1, px=60)
    time.sleep(0.1)
    assert r.get("a") is None and r.exists("a") == 0
    assert r.persist("b") == 1 and r.ttl("b") == -1
    # No client reads these: the server must find them by itself.
    pipe = r.pipeline(transaction=False)
    for n in range(3000):
        pipe.set(f"gone:{n}", 1, px=50)
    pipe.execute()
    end = time.monotonic() + 20
    while r.dbsize() > 1 and time.monotonic() < end:
        time.sleep(0.05)
    assert r.dbsize() == 1, r.dbsize()


def many_databases(_):
    r = client()
    other = redis.Redis(port=SERVER.port, db=7)
    other.set("a", "seven")
    assert r.get("a") is None and r.set("a", "zero") and r.swapdb(0, 7) and r.get("a") == b"seven"
    assert r.move("a", 3) == 1 and redis.Redis(port=SERVER.port, db=3).get("a") == b"seven"


def two_thousand_connections(_):
    r = client()
    held = [harness.Raw(SERVER.port) for _ in range(2000)]
    for number, connection in enumerate(held):
        connection.send(connection.encode("SET", f"c{number}", number))
    assert all(connection.reply() == "OK" for connection in held)
    assert r.dbsize() == 2000 and int(r.info("clients")["connected_clients"]) >= 2000
    for connection in held:
        connection.close()


def restart_keeps_everything(options):
    with harness.scratch() as directory:
        with harness.Quire(options.quire, directory) as server:
            server.ready().close()
            r = redis.Redis(port=server.port)
            pipe = r.pipeline(transaction=False)
            for n in range(20_000):
                pipe.set(f"key:{n}", os.urandom(n % 300))
            pipe.hset("large", mapping={f"f{n}": n for n in range(2000)})
            pipe.hset("small", mapping={"a": 1})
            pipe.set("expiring", 1, ex=1000)
            pipe.execute()
            redis.Redis(port=server.port, db=5).set("other", "db")
            digest = r.execute_command("DEBUG", "DIGEST")
            assert r.bgsave()
            raw = harness.Raw(server.port)
            info = raw.wait_saved()
            assert info["rdb_last_bgsave_status"] == "ok", info
            # What comes after the save is not in the image.
            r.set("late", 1)
            assert r.execute_command("DEBUG", "DIGEST") != digest
            server.kill9()
        with harness.Quire(options.quire, directory) as server:
            server.ready().close()
            r = redis.Redis(port=server.port)
            assert r.execute_command("DEBUG", "DIGEST") == digest
            assert r.dbsize() == 20_003 and 900 < r.ttl("expiring") <= 1000 and r.get("late") is None
            assert r.hget("large", "f1999") == b"1999"
            r.set("late", 2)
            digest = r.execute_command("DEBUG", "DIGEST")
            r.shutdown(save=True)
            assert server.process.wait(60) == 0
        with harness.Quire(options.quire, directory) as server:
            server.ready().close()
            assert redis.Redis(port=server.port).execute_command("DEBUG", "DIGEST") == digest


def sigterm_saves_when_there_are_rules(options):
    with harness.scratch() as directory:
        with harness.Quire(options.quire, directory, "--save", "3600 1") as server:
            server.ready().call("SET", "kept", "yes")
            assert server.terminate() == 0
        with harness.Quire(options.quire, directory) as server:
            assert server.ready().call("GET", "kept") == b"yes"
            server.ready().call("SET", "lost", "yes")
            assert server.terminate() == 0
        with harness.Quire(options.quire, directory) as server:
            assert server.ready().call("GET", "lost") is None


def a_damaged_image_is_refused(options):
    with harness.scratch() as directory:
        with harness.Quire(options.quire, directory) as server:
            connection = server.ready()
            for n in range(2000):
                connection.call("SET", f"k{n}", os.urandom(500))
            connection.call("SAVE")
            path = harness.image_path(server)
        with open(path, "r+b") as file:
            file.truncate(os.path.getsize(path) - 5000)
        with harness.Quire(options.quire, directory) as server:
            assert server.process.wait(120) not in (0, None)
            assert os.path.basename(path) in server.log_text(), server.log_text()


if __name__ == "__main__":
    OPTIONS = harness.arguments(__doc__)
    with harness.scratch() as DIRECTORY, harness.Quire(OPTIONS.quire, DIRECTORY) as SERVER:
        SERVER.ready().close()
        harness.run(
            [
                strings,
                hashes,
                transactions,
                pipelines,
                resp3,
                scan_returns_every_key,
                expiry,
                many_databases,
                two_thousand_connections,
                restart_keeps_everything,
                sigterm_saves_when_there_are_rules,
                a_damaged_image_is_refused,
            ],
            OPTIONS,
        )
