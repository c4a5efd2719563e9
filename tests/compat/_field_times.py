"""Hashes whose fields have times to live, on Quire and on a redis-server of 7.4: random commands to both, what they hold compared field by field, and
payloads and files both ways.

    python3 tests/compat/_field_times.py --quire target/release/quire --peer REDIS/src/redis-server

Debian's redis-server is 7.0 and knows no such fields, so the peer is one that was built from Redis's sources, and CI does not run this. Replies may
differ as docs/design/field-expiry.md says, and by the time between the two servers where a time to live is told.
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
from _pair import Connection

KEYS = [b"small", b"large", b"wide", b"gone", b"text"]
FIELDS = [b"f%d" % number for number in range(12)] + [b"", b"\x00\xff", b"x" * 80]
# So that nothing expires while two replies are compared.
FAR_S = 100_000
EXPIRING = [b"HEXPIRE", b"HPEXPIRE", b"HEXPIREAT", b"HPEXPIREAT"]
TELLING = [b"HTTL", b"HPTTL", b"HEXPIRETIME", b"HPEXPIRETIME"]
NONSENSE = [b"", b"x", b"1.5", b"-1", b"0", b"9223372036854775807", b"9223372036854775808", b"-9223372036854775808", b"281474976710655", b"281474976710656"]
# How far apart two times to live may be that were given and told one after the other.
APART_MS = 3000


class Peer:
    """A redis-server of 7.4."""

    def __init__(self, program, directory):
        self.directory, self.port = directory, harness.free_port()
        words = [program, "--port", str(self.port), "--dir", directory, "--save", "", "--bind", "127.0.0.1", "--daemonize", "no"]
        words += ["--enable-debug-command", "yes", "--hash-max-listpack-entries", "128", "--logfile", os.path.join(directory, "peer.log")]
        self.process = subprocess.Popen(words)

    def __enter__(self):
        end = time.monotonic() + 30
        while time.monotonic() < end:
            try:
                connection = harness.Raw(self.port)
                if connection.info("persistence")["loading"] == "0":
                    version = connection.info("server")["redis_version"]
                    connection.close()
                    assert version.startswith("7.4"), f"the peer is {version}"
                    return self
                connection.close()
            except OSError:
                pass
            time.sleep(0.01)
        raise AssertionError("the peer does not answer")

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def a_time(random_, command):
    """A time for a command that gives fields times to live: most are far away, some past, some no times."""
    kind = random_.random()
    if kind < 0.08:
        return random_.choice(NONSENSE)
    factor = 1000 if command in (b"HPEXPIRE", b"HPEXPIREAT") else 1
    start = int(time.time()) if command.endswith(b"AT") else 0
    if kind < 0.16:
        return b"%d" % (random_.choice([0, 1, start - 1000 if start else 0]) * factor)
    return b"%d" % ((start + FAR_S + random_.randrange(10) * 1000) * factor)


def fields_of(random_):
    """FIELDS, a number and names; at times the number is another one."""
    names = random_.sample(FIELDS, random_.choice([1, 1, 2, 3])) + random_.choices(FIELDS, k=random_.random() < 0.1)
    number = b"%d" % (len(names) + (random_.choice([-1, 1]) if random_.random() < 0.04 else 0))
    return [random_.choice([b"FIELDS", b"FIELDS", b"FIELDS", b"fields", b"FIELD"][: 4 + (random_.random() < 0.05)]), number, *names]


def a_command(random_):
    key = random_.choice(KEYS)
    kind = random_.randrange(22)
    if kind < 7:
        name = random_.choice(EXPIRING)
        condition = [random_.choice([b"NX", b"XX", b"GT", b"LT", b"gt", b"ZZ"])] if random_.random() < 0.4 else []
        return [name, key, a_time(random_, name), *condition, *fields_of(random_)]
    if kind < 9:
        return [random_.choice(TELLING), key, *fields_of(random_)]
    if kind == 9:
        return [b"HPERSIST", key, *fields_of(random_)]
    if kind < 13:
        return [b"HSET", key, *(word for name in random_.sample(FIELDS, random_.choice([1, 2, 6])) for word in (name, b"%d" % random_.randrange(99)))]
    field = random_.choice(FIELDS)
    return random_.choice(
        [
            [b"HSETNX", key, field, b"7"],
            [b"HGET", key, field],
            [b"HMGET", key, field, random_.choice(FIELDS)],
            [b"HDEL", key, field, random_.choice(FIELDS)],
            [b"HLEN", key],
            [b"HEXISTS", key, field],
            [b"HSTRLEN", key, field],
            [b"HINCRBY", key, field, b"3"],
            [b"HINCRBYFLOAT", key, field, b"0.5"],
            [b"HGETALL", key],
            [b"HKEYS", key],
            [b"HVALS", key],
            [b"HSCAN", key, b"0", b"COUNT", b"1000"],
            [b"HSCAN", key, b"0", b"COUNT", b"1000", b"NOVALUES"],
            [b"COPY", key, random_.choice(KEYS[:4]), b"REPLACE"],
            [b"RENAME", key, random_.choice(KEYS[:4])],
            [b"EXISTS", key],
            [b"TYPE", key],
            [b"HEXPIRE", key],
            [b"HEXPIRE", key, b"10", b"FIELDS"],
            [b"HTTL", key, b"FIELDS", b"0"],
            [b"HPERSIST", key, b"x", b"1", field],
        ]
    )


def same(name, ours, theirs):
    """Whether two replies say the same."""
    if ours.raw == theirs.raw:
        return True
    (mark, left), (other, right) = ours.tree, theirs.tree
    if mark != other or not isinstance(left, list) or not isinstance(right, list) or len(left) != len(right):
        return False
    if name in (b"HKEYS", b"HVALS"):
        return sorted(left) == sorted(right)
    if name == b"HGETALL":
        return sorted(zip(left[::2], left[1::2])) == sorted(zip(right[::2], right[1::2]))
    if name == b"HSCAN":
        return sorted(left[1][1]) == sorted(right[1][1])
    if name in TELLING:
        factor = 1 if name in (b"HPTTL", b"HPEXPIRETIME") else 1000
        near = lambda one, two: one == two or min(one, two) > 0 and abs(one - two) * factor <= APART_MS
        return all(one[0] == two[0] == ":" and near(one[1], two[1]) for one, two in zip(left, right))
    return False


def held(connection, key):
    """What a hash holds: values and expiries of its fields."""
    if connection.call("TYPE", key) != "hash":
        return connection.call("TYPE", key)
    words = connection.call("HGETALL", key)
    expiries = connection.call("HPEXPIRETIME", key, "FIELDS", len(words) // 2, *words[::2])
    return {name: (value, expiry) for name, value, expiry in zip(words[::2], words[1::2], expiries)}


def everything(connection):
    return {key: held(connection, key) for key in sorted(connection.call("KEYS", "*"))}


def assert_near(ours, theirs, where):
    assert ours.keys() == theirs.keys(), f"{where}: {ours.keys() ^ theirs.keys()}"
    for key, left in ours.items():
        right = theirs[key]
        if isinstance(left, str):
            assert left == right, f"{where}: {key} is {left} and {right}"
            continue
        assert left.keys() == right.keys(), f"{where}: {key}: {left.keys() ^ right.keys()}"
        for field, (value, expiry) in left.items():
            other, at = right[field]
            near = expiry == at or min(expiry, at) > 0 and abs(expiry - at) <= APART_MS
            assert value == other and near, f"{where}: {key} {field}: {value} {expiry} and {other} {at}"


def random_commands_get_the_same_replies(options):
    seen = 0
    with harness.scratch() as directory, Peer(options.peer, directory) as peer, harness.Quire(options.quire, directory) as quire:
        quire.ready().close()
        sides = [Connection(quire.port), Connection(peer.port)]
        looks = [harness.Raw(quire.port), harness.Raw(peer.port)]
        for episode in range(options.episodes):
            random_ = random.Random(options.seed * 1000 + episode)
            many = [word for number in range(300) for word in (b"w%d" % number, b"%d" % number)]
            done = []
            for words in ([b"FLUSHALL"], [b"SET", b"text", b"7"], [b"HSET", b"wide", *many]):
                [side.call(*words) for side in sides]
            for step in range(400):
                words = a_command(random_)
                done.append(words)
                ours, theirs = [side.call(*words) for side in sides]
                assert same(words[0], ours, theirs), (
                    f"episode {episode} of seed {options.seed}, step {step}: {words}\n    quire: {ours}\n    redis: {theirs}\n  after {done[-25:]}"
                )
                seen += 1
                if step % 50 == 49:
                    assert_near(*map(everything, looks), f"episode {episode}, step {step}")
    return f"{seen} commands"


def fill(connection, random_):
    """Hashes of all sizes whose fields have no, far, or near times to live."""
    for number in range(60):
        size = random_.choice([1, 2, 7, 60, 128, 129, 400, 3000])
        names = [b"field %d" % one if random_.random() < 0.5 else b"%d" % one for one in range(size)]
        key = b"hash %d" % number
        for start in range(0, size, 500):
            connection.call(b"HSET", key, *(word for name in names[start : start + 500] for word in (name, random_.randbytes(random_.choice([0, 3, 70])))))
        for share in (0.3, 0.3):
            some = [name for name in names if random_.random() < share]
            if some and number % 4:
                connection.call(b"HPEXPIRE", key, (FAR_S + random_.randrange(10**6)) * 1000, b"FIELDS", len(some), *some)
        if number % 7 == 0:
            connection.call(b"PEXPIRE", key, FAR_S * 1000 + number)


def payloads_go_both_ways(options):
    with harness.scratch() as directory, Peer(options.peer, directory) as peer, harness.Quire(options.quire, directory) as quire:
        ours, theirs, count = quire.ready(), harness.Raw(peer.port), 0
        for source, target in ((theirs, ours), (ours, theirs)):
            for connection in (source, target):
                connection.call("FLUSHALL")
            fill(source, random.Random(options.seed))
            for key in source.call("KEYS", "*"):
                target.call("RESTORE", key, 0, source.call("DUMP", key))
                assert held(source, key) == held(target, key), key
                count += 1
    return f"{count} payloads"


def files_go_both_ways(options):
    with harness.scratch() as directory, harness.scratch() as other:
        with Peer(options.peer, directory) as peer:
            connection = harness.Raw(peer.port)
            fill(connection, random.Random(options.seed + 1))
            wanted = everything(connection)
            connection.call("SAVE")
        with harness.Quire(options.quire, directory) as quire:
            connection = quire.ready()
            assert everything(connection) == wanted
            connection.call("SAVE")
        with harness.Quire(options.quire, directory) as quire:
            connection = quire.ready()
            connection.wait_restored()
            assert everything(connection) == wanted
            subprocess.run(
                ["redis-cli", "-p", str(quire.port), "--rdb", os.path.join(other, "dump.rdb")], check=True, capture_output=True, timeout=120
            )
        with Peer(options.peer, other) as peer:
            assert everything(harness.Raw(peer.port)) == wanted
    return f"{len(wanted)} hashes"


def fields_expire_on_both(options):
    """Hashes whose fields expire within a second: what is left is the same."""
    with harness.scratch() as directory, Peer(options.peer, directory) as peer, harness.Quire(options.quire, directory) as quire:
        sides = [quire.ready(), harness.Raw(peer.port)]
        random_ = random.Random(options.seed + 2)
        for number in range(40):
            names = [b"%d" % one for one in range(random_.choice([1, 5, 100, 500]))]
            brief = names if number % 5 == 0 else [name for name in names if random_.random() < 0.4]
            for side in sides:
                side.call(b"HSET", b"h%d" % number, *(word for name in names for word in (name, name)))
                if brief:
                    side.call(b"HPEXPIRE", b"h%d" % number, 300, b"FIELDS", len(brief), *brief)
        time.sleep(0.4)
        for side in sides:
            end = time.monotonic() + 20
            while any(side.call("EXISTS", b"h%d" % number) for number in range(0, 40, 5)):
                assert time.monotonic() < end, "an expired hash stays"
                time.sleep(0.05)
        ours, theirs = map(everything, sides)
        assert ours == theirs and ours, (len(ours), len(theirs))
    return f"{len(ours)} hashes left"


def main():
    def extend(parser):
        parser.add_argument("--peer", required=True, help="a redis-server of 7.4")
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--episodes", type=int, default=20)

    options = harness.arguments(__doc__, extend)
    options.peer = shutil.which(options.peer) or sys.exit(f"{options.peer} is no program")
    harness.run(
        [random_commands_get_the_same_replies, payloads_go_both_ways, files_go_both_ways, fields_expire_on_both],
        options,
    )


if __name__ == "__main__":
    main()
