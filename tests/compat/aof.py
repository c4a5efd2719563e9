"""Append-only files of redis-server become an image of Quire, compared by DEBUG DIGEST-VALUE of every key.

The files are those of a real server that was killed: several with a manifest, or one as older versions write it; with an RDB file as
their base or with commands; rewritten midway; with transactions, functions, keys that expire, and a tail that was cut off.
Relies on Debian's redis-server 7.0.15 and on the data that `rdb` makes.
"""

import os
import random
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import harness
from _pair import Redis
from rdb import DATABASES, SEED, assert_same, contents, fill, run_quire, starts_with

LIBRARY = "#!lua name=lib\nredis.register_function('put', function(keys) return redis.call('set', keys[1], 'by a function') end)"
FILES = "appendonlydir"
NAME = "appendonly.aof"


def change(connection, random_):
    """Commands of which Redis logs the effects: what is drawn, what depends on the clock, scripts, transactions, functions."""
    for db in DATABASES:
        connection.call("SELECT", db)
        for _ in range(20):
            connection.call("SPOP", "many:set", 7)
        connection.call("INCRBYFLOAT", "float", "0.1")
        connection.call("SET", "soon", "gone", "PX", 1)
        connection.call("SET", "later", "here", "EX", 5000)
        connection.call("EXPIRE", "many:hash", 5000)
        connection.call("XADD", "stream", "*", "field", "value")
        connection.call("XGROUP", "CREATE", "stream", "group", "0")
        connection.call("XREADGROUP", "GROUP", "group", "consumer", "STREAMS", "stream", ">")
        connection.call("EVAL", "for i = 1, 50 do redis.call('rpush', KEYS[1], math.random(1000)) end", 1, "drawn")
        connection.call("MULTI")
        connection.call("SET", "multi", "one")
        connection.call("APPEND", "multi", " two")
        connection.call("EXEC")
        for number in range(200):
            connection.call("HSET", "hash:0", f"f{random_.randrange(50)}", random_.randrange(10**6))
            connection.call("ZINCRBY", "zset:0", random_.randrange(100), f"m{number % 40}")
    connection.call("FUNCTION", "LOAD", "REPLACE", LIBRARY)
    connection.call("FCALL", "put", 1, "put")
    time.sleep(0.01)


def rewritten(connection):
    connection.call("BGREWRITEAOF")
    end = time.monotonic() + 60
    while connection.info("persistence")["aof_rewrite_in_progress"] != "0":
        assert time.monotonic() < end, "the rewrite does not end"
        time.sleep(0.01)


def logged_by_redis(directory, *settings, rewrites=0):
    """Has redis-server write append-only files to `directory`, and kills it; what it held."""
    with Redis(directory, "--appendonly", "yes", "--appendfsync", "no", *settings) as redis:
        connection = harness.Raw(redis.port)
        fill(connection, SEED)
        for round_ in range(rewrites + 1):
            change(connection, random.Random(SEED + round_)) if round_ == 0 else connection.call("INCR", "rounds")
            if round_ < rewrites:
                rewritten(connection)
        found = contents(connection)
        connection.close()
    return found


def import_aof(options, source, directory):
    """What the import says of an image in `directory`, on both of its outputs."""
    words = [options.quire, "image", "import", "--aof", source, os.path.join(directory, "dump.quire")]
    done = subprocess.run(words, capture_output=True, timeout=250, check=False)
    return done.returncode, done.stdout.decode() + done.stderr.decode()


def files_of_all_forms_are_imported(options):
    forms = {
        "commands alone": ((), 0),
        "an RDB base": ((), 2),
        "a base of commands": (("--aof-use-rdb-preamble", "no"), 1),
        "annotated with times": (("--aof-timestamp-enabled", "yes"), 1),
    }
    for name, (settings, rewrites) in forms.items():
        with harness.scratch() as directory:
            new = os.path.join(directory, "new")
            os.mkdir(new)
            wanted = logged_by_redis(directory, *settings, rewrites=rewrites)
            status, said = import_aof(options, os.path.join(directory, FILES), new)
            assert status == 0 and f"imported {len(wanted)} keys and a library of functions" in said, (name, said)
            assert "not whole" not in said, (name, said)
            starts_with(options, new, wanted)
            with harness.Quire(options.quire, new) as server:
                connection = server.ready()
                assert connection.call("FCALL", "put", 1, "put") == "OK", name
                connection.close()
    return f"{len(forms)} forms"


def a_single_file_of_an_older_version_is_imported(options):
    with harness.scratch() as directory:
        new = os.path.join(directory, "new")
        os.mkdir(new)
        wanted = logged_by_redis(directory, rewrites=1)
        files = os.path.join(directory, FILES)
        parts = sorted(os.listdir(files), key=lambda name: (not name.endswith(".base.rdb"), name))
        single = os.path.join(directory, NAME)
        with open(single, "wb") as out:
            for part in parts:
                if not part.endswith(".manifest"):
                    with open(os.path.join(files, part), "rb") as file:
                        out.write(file.read())
        status, said = import_aof(options, single, new)
        assert status == 0 and f"imported {len(wanted)} keys" in said, said
        starts_with(options, new, wanted)


def tails_that_were_cut_off_are_told_and_damage_is_refused(options):
    with harness.scratch() as directory:
        logged_by_redis(directory, rewrites=1)
        files = os.path.join(directory, FILES)
        last = os.path.join(files, sorted(name for name in os.listdir(files) if name.endswith(".incr.aof"))[-1])
        with open(last, "rb") as file:
            whole = file.read()
        for number, cut in enumerate((1, 3, 17)):
            new = os.path.join(directory, f"new{number}")
            os.mkdir(new)
            with open(last, "wb") as file:
                file.write(whole[:-cut])
            status, said = import_aof(options, files, new)
            assert status == 0 and "ends in a command that is not whole" in said, said
        with open(last, "wb") as file:
            file.write(whole + b"\0" * 100)
        status, said = import_aof(options, files, new + "x")
        assert status == 1, said
        os.mkdir(new + "x")
        status, said = import_aof(options, files, new + "x")
        assert status == 1 and f"at byte {len(whole)}: no command begins here" in said, said
        assert not os.path.exists(os.path.join(new + "x", "dump.quire"))
        os.remove(last)
        status, said = import_aof(options, files, new + "x")
        assert status == 1 and os.path.basename(last) in said, said
        assert "imported" in run_quire(options, "image", "import", "--rdb", base_of(files), os.path.join(new + "x", "dump.quire"))


def base_of(files):
    return os.path.join(files, next(name for name in os.listdir(files) if name.endswith(".base.rdb")))


if __name__ == "__main__":
    harness.run(
        [
            files_of_all_forms_are_imported,
            a_single_file_of_an_older_version_is_imported,
            tails_that_were_cut_off_are_told_and_damage_is_refused,
        ],
        harness.arguments(__doc__.splitlines()[0]),
    )
