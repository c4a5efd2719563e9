"""Data moves between Quire and redis-server, both ways: whole files and single payloads, compared by DEBUG DIGEST-VALUE of every key.

Each type is there small and large, with elements that are numbers, text, binary, long, and such that compress; keys expire, and lie in
several databases. Relies on Debian's redis-server 7.0.15, whose settings of encodings are varied, so that all forms that it writes are read.
"""

import os
import random
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import harness
from _pair import Connection, Redis

SEED = int(os.environ.get("QUIRE_TEST_SEED", "2026"))
DATABASES = (0, 3, 15)
# Elements of a value: within all limits of packed values, beyond one of them, and many.
SIZES = (1, 5, 120, 600)
MANY = 20_000
BATCH = 500


def element(random_, number):
    """Some bytes that differ for each number."""
    kind = random_.randrange(8)
    tag = str(number).encode()
    if kind == 0:
        return str(number - 300).encode()
    if kind == 1:
        return str((number + 1) * random_.choice((10**4, 10**9, 2**40, -(2**33)))).encode()
    if kind == 2:
        return bytes(random_.randrange(256) for _ in range(random_.randrange(30))) + b"\x00" + tag
    if kind == 3:
        return tag + b"abc" * random_.randrange(30, 200)
    if kind == 4:
        return tag + bytes(random_.randrange(256) for _ in range(random_.choice((63, 64, 65, 300))))
    return b"element:" + tag


def elements(random_, count):
    return list(dict.fromkeys(element(random_, number) for number in range(count)))


def score(random_):
    # Minus zero is zero in Quire.
    return random_.choice((b"0", b"1.5", b"-inf", b"inf", b"1e300", b"3", b"0.1", b"-2147483649", b"17179869184.25"))


def commands(random_):
    """Commands that make keys of all types."""
    strings = [b"", b"0", b"-1", b"127", b"128", b"-32769", b"2147483647", b"2147483648", b"9223372036854775807", b"01", b"-0", b"1.5"]
    strings += [b"x" * 20, b"x" * 21, b"ab" * 5000, bytes(range(256)) * 3, random_.randbytes(70_000), b"\xff" * 17000]
    for number, value in enumerate(strings):
        yield b"SET", b"string:%d" % number, value
    yield b"SET", b"string \x00\r\n\xff", b"a key of bytes"
    yield b"SET", b"k" * 20_000, b"a long key"
    for number, size in enumerate(SIZES):
        some = elements(random_, size)
        yield b"RPUSH", b"list:%d" % number, *some
        yield b"SADD", b"set:%d" % number, *some
        yield b"HSET", b"hash:%d" % number, *(word for pair in zip(some, reversed(some)) for word in pair)
        yield b"ZADD", b"zset:%d" % number, *(word for one in some for word in (score(random_), one))
        yield b"SADD", b"ints:%d" % number, *(str(one * 7 - 99) for one in range(size))
        yield b"SADD", b"long ints:%d" % number, *(str(one * 2**31) for one in range(size))
        yield b"RPUSH", b"small list:%d" % number, *(str(one) for one in range(size))
        yield b"HSET", b"small hash:%d" % number, *(word for one in range(size) for word in (f"f{one}", one))
        yield b"ZADD", b"small zset:%d" % number, *(word for one in range(size) for word in (one / 4, f"m{one}"))
    yield b"RPUSH", b"list of long ones", *(random_.randbytes(9000) for _ in range(5)), b"z" * 30_000, b"short"
    yield b"HSET", b"hash of long ones", b"f" * 5000, b"v" * 70_000, b"f", b""
    yield b"SADD", b"set of long ones", b"s" * 70_000, b""
    for start in range(0, MANY, BATCH):
        numbers = range(start, start + BATCH)
        yield b"RPUSH", b"many:list", *(f"element {one}" for one in numbers)
        yield b"SADD", b"many:set", *(f"member {one}" for one in numbers)
        yield b"HSET", b"many:hash", *(word for one in numbers for word in (f"field {one}", f"value {one}"))
        yield b"ZADD", b"many:zset", *(word for one in numbers for word in (one * 1.25, f"member {one}"))
    for number in range(20):
        yield b"SET", b"mortal:%d" % number, b"%d" % number
        yield b"PEXPIRE", b"mortal:%d" % number, 3_600_000 + number
    yield b"PEXPIRE", b"list:2", 7_200_000
    yield b"PEXPIRE", b"many:zset", 7_200_000


def fill(connection, seed, databases=DATABASES):
    for db in databases:
        connection.call("SELECT", db)
        for command in commands(random.Random(seed * 100 + db)):
            connection.call(*command)


def contents(connection, databases=DATABASES):
    """Digest and end of every key of every database."""
    found = {}
    for db in databases:
        connection.call("SELECT", db)
        keys = sorted(connection.call("KEYS", "*"))
        digests = connection.call("DEBUG", "DIGEST-VALUE", *keys) if keys else []
        for key, digest in zip(keys, digests):
            digest = digest if isinstance(digest, str) else digest.decode()
            found[db, key] = digest, connection.call("PEXPIRETIME", key)
    return found


def loaded(redis):
    """A connection to redis-server, once it has loaded its file."""
    connection = harness.Raw(redis.port)
    end = time.monotonic() + 60
    while connection.info("persistence")["loading"] != "0":
        assert time.monotonic() < end, "redis-server is still loading"
        time.sleep(0.01)
    return connection


def assert_same(found, wanted):
    """The same keys, with the same values and ends."""
    if found != wanted:
        lacking, extra = wanted.keys() - found.keys(), found.keys() - wanted.keys()
        differing = [key for key in wanted.keys() & found.keys() if wanted[key] != found[key]]
        raise AssertionError(f"lacking {sorted(lacking)[:5]}, extra {sorted(extra)[:5]}, differing {sorted(differing)[:5]}")
    assert len(found) > 80, len(found)


def saved_by_redis(directory, settings=(), more=()):
    """Has redis-server save data to `directory`; its contents."""
    with Redis(directory) as redis:
        connection = harness.Raw(redis.port)
        for name, value in settings:
            connection.call("CONFIG", "SET", name, value)
        fill(connection, SEED)
        connection.call("SELECT", 0)
        for command in more:
            connection.call(*command)
        connection.call("SAVE")
        found = contents(connection)
        connection.close()
    return found


def starts_with(options, directory, wanted, *args):
    """Quire, started in `directory`, has these contents; what it logged."""
    with harness.Quire(options.quire, directory, *args) as server:
        connection = server.ready()
        assert_same(contents(connection), wanted)
        connection.close()
        return server.log_text()


def a_server_without_an_image_starts_from_dump_rdb(options):
    with harness.scratch() as directory:
        wanted = saved_by_redis(directory)
        log = starts_with(options, directory, wanted)
        assert "there is no image yet, so the data of Redis is used" in log and "dump.rdb" in log, log[-2000:]
        # And once there is an image, from that.
        with harness.Quire(options.quire, directory) as server:
            connection = server.ready()
            connection.call("SAVE")
            connection.call("SELECT", 0)
            connection.call("SET", "after", "the save")
            connection.call("SAVE")
            wanted = contents(connection)
            connection.close()
        assert_same(contents_of_start(options, directory), wanted)
        assert os.path.exists(os.path.join(directory, "dump.rdb"))


def contents_of_start(options, directory, *args):
    with harness.Quire(options.quire, directory, *args) as server:
        connection = server.ready()
        found = contents(connection)
        connection.close()
        return found


def all_forms_of_redis_are_read(options):
    forms = {
        "all plain": [
            ("rdbcompression", "no"),
            ("hash-max-listpack-entries", "0"),
            ("zset-max-listpack-entries", "0"),
            ("set-max-intset-entries", "0"),
            ("list-max-listpack-size", "1"),
        ],
        "all packed": [
            ("hash-max-listpack-entries", "100000"),
            ("hash-max-listpack-value", "1000000"),
            ("zset-max-listpack-entries", "100000"),
            ("zset-max-listpack-value", "1000000"),
            ("set-max-intset-entries", "100000"),
            ("list-max-listpack-size", "-5"),
        ],
        "compressed lists, no checksum, LRU": [("list-compress-depth", "1"), ("maxmemory-policy", "allkeys-lru")],
        "LFU": [("maxmemory-policy", "allkeys-lfu")],
    }
    for settings in forms.values():
        with harness.scratch() as directory:
            threshold = [("DEBUG", "QUICKLIST-PACKED-THRESHOLD", "100b")] if len(settings) == 5 else []
            wanted = saved_by_redis(directory, settings, threshold)
            starts_with(options, directory, wanted)
    return f"{len(forms)} settings"


def what_is_left_out_is_told(options):
    with harness.scratch() as directory:
        # The key is in the file: redis-server only forgets one whose time has come when it finds it.
        more = [("DEBUG", "SET-ACTIVE-EXPIRE", "0"), ("SET", "gone", "1", "PX", "1")]
        wanted = saved_by_redis(directory, (), more)
        wanted.pop((0, b"gone"), None)
        # Its time has come when the file is read, too.
        time.sleep(0.01)
        log = starts_with(options, directory, wanted)
        assert "1 keys whose time has come left out" in log, log[-2000:]


LIBRARIES = [
    f"#!lua name=lib{number}\nredis.register_function('f{number}', function(keys) return redis.call('get', keys[1]) .. {number} end)\n"
    + "-- a long comment that compresses\n" * number * 40
    for number in range(3)
]


def libraries_of(connection):
    """The code of each library, and what its function gives."""
    connection.call("SET", "key", "value:")
    found = {}
    for library in connection.call("FUNCTION", "LIST", "WITHCODE"):
        fields = dict(zip(library[::2], library[1::2]))
        functions = [dict(zip(function[::2], function[1::2]))[b"name"] for function in fields[b"functions"]]
        found[fields[b"library_code"]] = [connection.call("FCALL", name, 1, "key") for name in functions]
    return found


def libraries_move_both_ways(options):
    wanted = {text.encode(): [b"value:%d" % number] for number, text in enumerate(LIBRARIES)}
    with harness.scratch() as directory:
        old, new, back = (os.path.join(directory, name) for name in ("old", "new", "back"))
        for name in (old, new, back):
            os.mkdir(name)
        with Redis(old) as redis:
            connection = harness.Raw(redis.port)
            for text in LIBRARIES:
                connection.call("FUNCTION", "LOAD", text)
            connection.call("SAVE")
            dumped = connection.call("FUNCTION", "DUMP")
            connection.close()
        image = os.path.join(new, "dump.quire")
        said = run_quire(options, "image", "import", "--rdb", os.path.join(old, "dump.rdb"), image)
        assert "and 3 libraries of functions" in said, said
        said = run_quire(options, "image", "export", "--rdb", os.path.join(back, "dump.rdb"), image)
        assert "and 3 libraries of functions" in said, said
        with harness.Quire(options.quire, old) as server:
            connection = server.ready()
            assert libraries_of(connection) == wanted, "from dump.rdb"
            connection.close()
        with harness.Quire(options.quire, new) as server, Redis(back) as redis:
            sides = [server.ready(), loaded(redis)]
            assert [libraries_of(side) for side in sides] == [wanted, wanted], "from an image, and exported from it"
            payloads = [sides[0].call("FUNCTION", "DUMP"), dumped]
            for side, payload in zip(sides, reversed(payloads)):
                side.call("FUNCTION", "FLUSH")
                side.call("FUNCTION", "RESTORE", payload)
                assert libraries_of(side) == wanted, "from the other one's FUNCTION DUMP"
                side.close()


def damaged_files_are_refused(options):
    with harness.scratch() as directory:
        saved_by_redis(directory)
        path = os.path.join(directory, "dump.rdb")
        with open(path, "rb") as file:
            whole = file.read()
        random_ = random.Random(SEED)
        damaged = [whole[: random_.randrange(9, len(whole))] for _ in range(3)]
        for _ in range(3):
            place = random_.randrange(9, len(whole))
            damaged.append(whole[:place] + bytes([whole[place] ^ 1 << random_.randrange(8)]) + whole[place + 1 :])
        for content in damaged:
            with open(path, "wb") as file:
                file.write(content)
            words = [options.quire, "serve", "--port", str(harness.free_port()), "--dir", directory]
            ended = subprocess.run(words, capture_output=True, timeout=60, check=False)
            assert ended.returncode == 1 and b"at byte" in ended.stderr, ended
            with open(path, "rb") as file:
                assert file.read() == content


def redis_cli(server, *words):
    done = subprocess.run(["redis-cli", "-p", str(server.port), *words], capture_output=True, timeout=250, check=False)
    assert done.returncode == 0 and b"success" in done.stderr, done
    return done.stderr.decode()


def a_running_server_gives_its_data_to_redis_cli(options):
    """`redis-cli --rdb`: redis-server finds in the file what the server had. Writes meanwhile are in `server/tests/transfers.rs`."""
    with harness.scratch() as directory:
        ours, theirs = (os.path.join(directory, name) for name in ("quire", "redis"))
        for name in (ours, theirs):
            os.mkdir(name)
        with harness.Quire(options.quire, ours) as server:
            connection = server.ready()
            fill(connection, SEED)
            connection.call("SELECT", 0)
            connection.call("XADD", "stream", "1-1", "field", "value")
            connection.call("XGROUP", "CREATE", "stream", "group", "0")
            connection.call("XREADGROUP", "GROUP", "group", "consumer", "STREAMS", "stream", ">")
            connection.call("FUNCTION", "LOAD", LIBRARIES[0])
            wanted = contents(connection)
            told = redis_cli(server, "--rdb", os.path.join(theirs, "dump.rdb"))
            assert "until EOF marker" in told, told
            with Redis(theirs) as redis:
                other = loaded(redis)
                assert_same(contents(other), wanted)
                assert other.call("FUNCTION", "LIST") == connection.call("FUNCTION", "LIST")
                other.close()
            # Libraries alone, over the same file.
            redis_cli(server, "--functions-rdb", os.path.join(theirs, "dump.rdb"))
            with Redis(theirs) as redis:
                other = loaded(redis)
                assert other.call("DBSIZE") == 0 and libraries_of(other) == {LIBRARIES[0].encode(): [b"value:0"]}
                other.close()
            # And Quire reads what it gives.
            os.remove(os.path.join(theirs, "dump.rdb"))
            redis_cli(server, "--rdb", os.path.join(theirs, "dump.rdb"))
            starts_with(options, theirs, wanted)
            assert sorted(os.listdir(ours)) == [".dump.quire.lock", "test-server.log"], os.listdir(ours)
            connection.close()
    return f"{len(wanted)} keys"


def a_replica_of_redis_is_told_that_there_is_no_replication(options):
    with harness.scratch() as directory:
        ours, theirs = (os.path.join(directory, name) for name in ("quire", "redis"))
        for name in (ours, theirs):
            os.mkdir(name)
        with harness.Quire(options.quire, ours) as server, Redis(theirs) as redis:
            connection, other = server.ready(), harness.Raw(redis.port)
            connection.call("SET", "key", "value")
            other.call("REPLICAOF", "127.0.0.1", server.port)
            end = time.monotonic() + 60
            while connection.info("commandstats").get("cmdstat_sync", "calls=0").startswith("calls=0"):
                assert time.monotonic() < end, "it never asked"
                time.sleep(0.02)
            told = other.info("replication")
            assert told["master_link_status"] == "down" and other.call("DBSIZE") == 0, told
            assert connection.info("replication")["connected_slaves"] == "0"
            # It asked by PSYNC before, and has logged what it was told.
            with open(os.path.join(theirs, "peer.log"), encoding="utf-8") as log:
                text = log.read()
            assert "Quire has no replicas yet" in text, text
            other.call("REPLICAOF", "NO", "ONE")
            for one in (connection, other):
                one.close()


def run_quire(options, *words):
    done = subprocess.run([options.quire, *words], capture_output=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def images_are_imported_and_exported(options):
    with harness.scratch() as directory:
        old, new, back = (os.path.join(directory, name) for name in ("old", "new", "back"))
        for name in (old, new, back):
            os.mkdir(name)
        wanted = saved_by_redis(old)
        rdb, image = os.path.join(old, "dump.rdb"), os.path.join(new, "dump.quire")
        said = run_quire(options, "image", "import", "--rdb", rdb, image)
        assert f"imported {len(wanted)} keys" in said and "7.0.15" in said, said
        starts_with(options, new, wanted)
        again = subprocess.run([options.quire, "image", "import", "--rdb", rdb, image], capture_output=True, check=False)
        assert again.returncode == 1 and b"exists" in again.stderr, again
        exported = os.path.join(back, "dump.rdb")
        said = run_quire(options, "image", "export", "--rdb", exported, image)
        assert f"exported {len(wanted)} keys" in said, said
        assert os.listdir(back) == ["dump.rdb"]
        checked = subprocess.run(["redis-check-rdb", exported], capture_output=True, check=False)
        assert checked.returncode == 0, checked.stdout
        with Redis(back) as redis:
            connection = loaded(redis)
            assert_same(contents(connection), wanted)
            connection.close()


def what_quire_made_itself_is_exported_while_it_runs(options):
    with harness.scratch() as directory:
        with harness.Quire(options.quire, directory) as server:
            connection = server.ready()
            fill(connection, SEED + 1)
            connection.call("SAVE")
            wanted = contents(connection)
            target = os.path.join(directory, "there")
            os.mkdir(target)
            image = os.path.join(directory, "dump.quire")
            run_quire(options, "image", "export", "--rdb", os.path.join(target, "dump.rdb"), image)
            connection.call("SET", "still", "here")
            connection.close()
        with Redis(target) as redis:
            connection = loaded(redis)
            assert_same(contents(connection), wanted)
            connection.close()


def ends_of_fields(connection):
    """When the fields of the hashes below expire."""
    return [connection.call("HPEXPIRETIME", key, "FIELDS", 3, "f0", "f1", "f299") for key in ("small", "large")]


def fields_keep_their_ends(options):
    with harness.scratch() as directory:
        old, new, back = (os.path.join(directory, name) for name in ("old", "new", "back"))
        for name in (old, new, back):
            os.mkdir(name)
        with harness.Quire(options.quire, old) as server:
            connection = server.ready()
            for key, count in (("small", 5), ("large", 300)):
                connection.call("HSET", key, *(word for one in range(count) for word in (f"f{one}", f"v{one}")))
                for one in range(0, count, 2):
                    connection.call("HPEXPIREAT", key, 30_000_000_000_000 + one, "FIELDS", 1, f"f{one}")
            ends, digests = ends_of_fields(connection), contents(connection, (0,))
            assert ends == [[30_000_000_000_000, -1, -2], [30_000_000_000_000, -1, -1]], ends
            connection.call("SAVE")
            connection.close()
        exported = os.path.join(back, "dump.rdb")
        run_quire(options, "image", "export", "--rdb", exported, os.path.join(old, "dump.quire"))
        with open(exported, "rb") as file:
            assert file.read(9) == b"REDIS0012", "older servers refuse the file by its version"
        run_quire(options, "image", "import", "--rdb", exported, os.path.join(new, "dump.quire"))
        with harness.Quire(options.quire, new) as server:
            connection = server.ready()
            assert (ends_of_fields(connection), contents(connection, (0,))) == (ends, digests)
            # Without the last end the data is as any other.
            for key, count in (("small", 5), ("large", 300)):
                connection.call("HPERSIST", key, "FIELDS", count, *(f"f{one}" for one in range(count)))
            connection.call("SAVE")
            connection.close()
        os.remove(exported)
        run_quire(options, "image", "export", "--rdb", exported, os.path.join(new, "dump.quire"))
        with Redis(back) as redis:
            connection = loaded(redis)
            assert [connection.call("HLEN", key) for key in ("small", "large")] == [5, 300]
            connection.close()


def payloads_go_both_ways(options):
    with harness.scratch() as directory, Redis(directory) as redis, harness.Quire(options.quire, directory) as server:
        server.ready().close()
        sides = [harness.Raw(server.port), harness.Raw(redis.port)]
        fill(sides[0], SEED + 2, (0,))
        wanted = contents(sides[0], (0,))
        for source, target in (sides, reversed(sides)):
            target.call("FLUSHALL")
            for _, key in wanted:
                end = source.call("PEXPIRETIME", key)
                target.call("RESTORE", key, max(end, 0), source.call("DUMP", key), "ABSTTL")
            assert_same(contents(target, (0,)), wanted)
        # Encodings follow the target's thresholds; both have the same, but every list of 7.0 is a quicklist, and no set of it a listpack.
        for _, key in (name for name in wanted if b"list" not in name[1] and not name[1].startswith(b"set:")):
            assert sides[0].call("OBJECT", "ENCODING", key) == sides[1].call("OBJECT", "ENCODING", key), key
        for side in sides:
            side.close()
    return f"{len(wanted)} keys"


def words_of_restore(payload):
    """Requests, of which replies and errors must be equal."""
    damaged = payload[:-1] + bytes([payload[-1] ^ 1])
    yield from (("DUMP",), ("DUMP", "none"), ("DUMP", "a", "b"), ("RESTORE", "a", "0"), ("RESTORE", "a", "x", payload))
    for ttl in ("0", "-1", "100000", "9223372036854775808"):
        for form in (payload, damaged, b"", b"x" * 9, b"x" * 20, payload[:-10]):
            yield "RESTORE", "a", ttl, form, "REPLACE"
    yield from (("RESTORE", "a", "0", payload), ("RESTORE", "a", "x", payload), ("RESTORE", "a", "0", damaged))
    for words in (
        ("REPLACE", "REPLACE"),
        ("ABSTTL",),
        ("REPLACE", "ABSTTL"),
        ("IDLETIME",),
        ("REPLACE", "IDLETIME", "-1"),
        ("REPLACE", "IDLETIME", "x"),
        ("REPLACE", "IDLETIME", "1000"),
        ("replace", "freq", "256"),
        ("REPLACE", "FREQ", "-1"),
        ("REPLACE", "FREQ", "10", "IDLETIME", "1"),
        ("REPLACE", "IDLETIME", "1", "FREQ", "10"),
        ("REPLACE", "FREQ", "x"),
        ("NX",),
    ):
        yield "RESTORE", "a", "0", payload, *words
        yield "TTL", "a"
    yield "OBJECT", "IDLETIME", "a"
    # An end that has passed takes away what was there, and makes nothing.
    yield from (("RESTORE", "a", "1", payload, "ABSTTL", "REPLACE"), ("EXISTS", "a"), ("RESTORE", "a", "1", payload, "ABSTTL"))
    yield from (("EXISTS", "a"), ("SET", "a", "1"), ("RESTORE", "a", "1", payload, "ABSTTL"), ("GET", "a"))


def replies_and_errors_are_those_of_redis(options):
    count = 0
    with harness.scratch() as directory, Redis(directory) as redis, harness.Quire(options.quire, directory) as server:
        server.ready().close()
        sides = [Connection(server.port), Connection(redis.port)]
        made = [("SET", "v", "abc"), ("RPUSH", "v", "a", "b"), ("SADD", "v", "1"), ("HSET", "v", "f", "v"), ("ZADD", "v", "1", "m")]
        for command in made:
            for side in sides:
                side.call("FLUSHALL")
                side.call(*command)
            payload = sides[1].call("DUMP", "v").tree[1]
            for words in words_of_restore(payload):
                quire, redis_ = (side.call(*words) for side in sides)
                if words[:2] == ("OBJECT", "IDLETIME"):
                    # A second can begin between what is restored and what is asked.
                    assert {quire.tree[1], redis_.tree[1]} <= {1000, 1001, 1002}, (words, str(quire), str(redis_))
                    continue
                assert quire.raw == redis_.raw, (words, str(quire), str(redis_))
                count += 1
        for side in sides:
            side.close()
    return f"{count} replies"


def an_rdb_file_under_the_name_of_the_image_is_kept(options):
    with harness.scratch() as directory:
        wanted = saved_by_redis(directory)
        copy = os.path.join(directory, "copy")
        shutil.copy(os.path.join(directory, "dump.rdb"), copy)
        named = ("--dbfilename", "dump.rdb")
        with harness.Quire(options.quire, directory, *named) as server:
            connection = server.ready()
            connection.call("SAVE")
            connection.close()
        assert_same(contents_of_start(options, directory, *named), wanted)
        kept = [name for name in os.listdir(directory) if name.startswith("dump.rdb.foreign-")]
        with open(copy, "rb") as before, open(os.path.join(directory, kept[0]), "rb") as after:
            assert before.read() == after.read()


if __name__ == "__main__":
    harness.run(
        [
            a_server_without_an_image_starts_from_dump_rdb,
            all_forms_of_redis_are_read,
            what_is_left_out_is_told,
            libraries_move_both_ways,
            damaged_files_are_refused,
            images_are_imported_and_exported,
            what_quire_made_itself_is_exported_while_it_runs,
            a_running_server_gives_its_data_to_redis_cli,
            a_replica_of_redis_is_told_that_there_is_no_replication,
            fields_keep_their_ends,
            payloads_go_both_ways,
            replies_and_errors_are_those_of_redis,
            an_rdb_file_under_the_name_of_the_image_is_kept,
        ],
        harness.arguments(__doc__.splitlines()[0]),
    )
