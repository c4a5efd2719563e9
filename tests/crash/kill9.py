"""kill -9 at random instants during saves: a restart gives exactly the last complete image.

Each round restarts the server on what the round before left, checks the digest, then has four clients update keys
while a save runs, and kills the server at a random instant. The digest is recorded in the same transaction as the cut,
so that it describes the image and nothing else; what a stream's groups have delivered, which no digest tells, is recorded with it. Which image counts is not asked of the server: the file has a new
identity exactly when the rename of the new image has happened. With incremental saves the same holds of the newest delta. In every fourth
round the kill falls into, or after, the full save that takes the place of a full chain. In every other round most keys of a part of the data are deleted
first, and active defragmentation moves what is left, before and after the cut.
"""

import hashlib
import os
import random
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness

BATCH = 64
MOST_DELTAS = 3
INCREMENTAL = ["--checkpoint-incremental", "yes", "--checkpoint-max-deltas", str(MOST_DELTAS)]
# So many keys change between two incremental saves.
CHANGED_KEYS = 200
# Consumers of the stream's group, and so many of their pending entries are compared.
CONSUMERS = 6
COMPARED_PENDING = 300
# Holes are made in a range of so many keys.
MOST_DELETED = 50_000
# What tells the data: all of it, and what the groups of the stream have delivered to whom.
STATE = (["DEBUG", "DIGEST"], ["XINFO", "STREAM", "stream", "FULL", "COUNT", COMPARED_PENDING])
# So many rounds more than asked for are tried to have a kill fall into a save.
MORE_ROUNDS = 20


class Values:
    """Random values, cut from a pool: making one costs a slice."""

    def __init__(self, size, seed):
        self.size = size
        self.dice = random.Random(seed)
        self.pool = self.dice.randbytes((1 << 20) + size)

    def pick(self):
        start = self.dice.randrange(1 << 20)
        return self.pool[start : start + self.size]


def request(key, value):
    return b"*3\r\n$3\r\nSET\r\n$16\r\nkey:%012d\r\n$%d\r\n%s\r\n" % (key, len(value), value)


def load(port, keys, values):
    connection = harness.Raw(port)
    for first in range(0, keys, 500):
        count = min(500, keys - first)
        connection.send(b"".join(request(key, values.pick()) for key in range(first, first + count)))
        for _ in range(count):
            assert connection.reply() == "OK"
    # A hash, a list, a set, a stream and a sorted set much larger than a page, places, visitors, bits, and expiring keys and fields that outlive the test.
    for first in range(0, 20_000, 1000):
        fields = [word for n in range(first, first + 1000) for word in (f"field-{n}", values.pick()[:20])]
        connection.call("HSET", "large", *fields)
        some = fields[::20]
        connection.call("HPEXPIREAT", "large", 30_000_000_000_000 + first, "FIELDS", len(some), *some)
        connection.call("RPUSH", "list", *fields[1::2])
        connection.call("SADD", "set", *fields[1::2])
        connection.send(b"".join(harness.Raw.encode("XADD", "stream", f"{n}-1", "field", "value") for n in range(first + 1, first + 1001)))
        for _ in range(1000):
            connection.reply()
        connection.call("ZADD", "ranks", *[word for n in range(first, first + 1000) for word in (n * 7919 % 10_007, f"member-{n}")])
        connection.call("PFADD", "visitors", *fields[1::2])
    for n in range(500):
        connection.call("GEOADD", "places", n % 170, n % 83, f"place-{n}")
    connection.call("SETBIT", "bits", 16 * 5000, 1)
    connection.call("XGROUP", "CREATE", "stream", "group", 0)
    connection.call("SET", "expiring", "later", "EX", "100000")
    connection.close()


def changes(dice, keys, values):
    """A change of each other kind: fields, elements, members, scores, places, bits, entries, and what is pending."""
    consumer = f"consumer-{dice.randrange(CONSUMERS)}"
    delivered = [f"{dice.randrange(20_000)}-1" for _ in range(5)]
    return [
        ("DEL", "key:%012d" % dice.randrange(keys)),
        ("HSET", "large", f"field-{dice.randrange(min(keys, 20_000))}", values.pick()[:30]),
        ("HEXPIRE", "large", dice.choice([0, 10**9]), "FIELDS", 1, f"field-{dice.randrange(20_000)}"),
        ("LMOVE", "list", "list", *dice.choice([("LEFT", "RIGHT"), ("RIGHT", "LEFT")])),
        ("LSET", "list", dice.randrange(10_000), values.pick()[:30]),
        ("ZADD", "ranks", dice.randrange(10_000), f"member-{dice.randrange(30_000)}"),
        ("ZREMRANGEBYRANK", "ranks", *[dice.randrange(10_000)] * 2),
        ("ZRANGESTORE", "best", "ranks", 0, 9),
        # A large one is new memory each time: were it stored in each batch, no delta would be small.
        ("ZUNIONSTORE", "sums", 2, "best", "places" if dice.random() < 0.01 else "best", "WEIGHTS", 2, 1),
        ("SADD", "set", f"member-{dice.randrange(CHANGED_KEYS)}"),
        ("SREM", "set", f"member-{dice.randrange(CHANGED_KEYS)}"),
        ("PFADD", "visitors", values.pick()[:8]),
        ("GEOADD", "places", dice.randrange(180), dice.randrange(85), f"place-{dice.randrange(600)}"),
        ("BITFIELD", "bits", "SET", "u16", f"#{dice.randrange(5000)}", dice.randrange(65_536), "INCRBY", "i7", dice.randrange(9000), 5),
        ("XADD", "stream", "MAXLEN", "~", "20000", "*", "field", values.pick()[:30]),
        ("XREADGROUP", "GROUP", "group", consumer, "COUNT", 3, "STREAMS", "stream", ">"),
        ("XACK", "stream", "group", *delivered),
        dice.choice([
            ("XAUTOCLAIM", "stream", "group", consumer, 0, delivered[0], "COUNT", 3),
            ("XCLAIM", "stream", "group", consumer, 0, *delivered, "RETRYCOUNT", 7),
            ("XGROUP", "DELCONSUMER", "stream", "group", f"consumer-{CONSUMERS}"),
            ("XREADGROUP", "GROUP", "group", f"consumer-{CONSUMERS}", "COUNT", 1, "NOACK", "STREAMS", "stream", ">"),
        ]),
    ]  # fmt: skip


def move_some(connection, keys, dice):
    """Deletes three of four keys of a part of the data, and has active defragmentation begin to move what is left."""
    count = min(keys // 2, MOST_DELETED)
    first = dice.randrange(keys - count)
    for start in range(first, first + count, 500):
        connection.call("DEL", *["key:%012d" % key for key in range(start, start + 500) if key % 4])
    connection.call("CONFIG", "SET", "activedefrag", "yes")
    end = time.monotonic() + 60
    while connection.info("stats")["active_defrag_hits"] == "0":
        assert time.monotonic() < end, "active defragmentation moves nothing"
        time.sleep(0.005)


def update(port, keys, values, stop, refused):
    """Overwrites keys, sometimes with another length, and changes the other types, until killed. Replies that are errors go to `refused`: what is
    refused is not under test."""
    try:
        connection = harness.Raw(port)
        dice = values.dice
        while not stop.is_set():
            batch = [harness.Raw.encode(*words) for words in changes(dice, keys, values)]
            while len(batch) < BATCH:
                value = values.pick()
                batch.append(request(dice.randrange(keys), value if dice.random() < 0.9 else value[: dice.randrange(len(value))]))
            connection.send(b"".join(batch))
            refused += [answer for answer in (connection.reply() for _ in range(BATCH)) if isinstance(answer, harness.ReplyError)]
    except (ConnectionError, OSError, ValueError):
        pass  # The server was killed: that is the test.


def identity(path):
    try:
        stat = os.stat(path)
        return (stat.st_ino, stat.st_mtime_ns, stat.st_size)
    except FileNotFoundError:
        return None


def links(path):
    """What tells the image and each of its deltas from other files, by name."""
    directory, name = os.path.split(path)
    names = [each for each in os.listdir(directory) if each == name or each.startswith(name + ".delta-")]
    return {each: identity(os.path.join(directory, each)) for each in names if ".tmp" not in each}


def deltas(path):
    return len(links(path)) - 1


def is_published(path, before):
    """Whether there is an image or a delta that was not there. A delta that is gone was replaced by an image."""
    return any(before.get(name) != found for name, found in links(path).items() if found is not None)


def has_temporary(directory):
    return any(".tmp" in name for name in os.listdir(directory))


def wait_for_a_file(directory, path, before, limit_s=120):
    """Until a save has begun its file, or is over already."""
    end = time.monotonic() + limit_s
    while not has_temporary(directory) and not is_published(path, before):
        assert time.monotonic() < end, "the save begins no file"
        time.sleep(0.001)


def told(digest, stream):
    """What was told of the data, in short."""
    digest = digest if isinstance(digest, str) else digest.decode()
    return f"{digest} {hashlib.sha1(repr(stream).encode()).hexdigest()}"


def cut_with_digest(connection):
    """Digest and cut in one transaction; returns the digest."""
    for words in (["MULTI"], *STATE, ["BGSAVE"]):
        connection.call(*words)
    *state, started = connection.call("EXEC")
    assert not any(isinstance(answer, harness.ReplyError) for answer in [*state, started]), (state, started)
    return told(*state)


def digest_of(connection):
    """The digest of what is there."""
    # A digest of millions of keys takes minutes where other programs have the processors.
    connection.sock.settimeout(900)
    return told(*(connection.call(*words) for words in STATE))


def time_of_a_save(connection):
    began = time.monotonic()
    connection.call("BGSAVE")
    info = connection.wait_saved()
    assert info["rdb_last_bgsave_status"] == "ok", info
    return time.monotonic() - began


def campaign(options, keys, incremental_share):
    """Rounds on `keys` keys, of which so large a share runs with incremental saves."""
    dice = random.Random(options.seed)
    outcome = {"old image": 0, "new image": 0, "save still running": 0, "with deltas": 0, "instead of a chain": 0, "objects moved": 0}
    with harness.scratch() as directory:
        with harness.Quire(options.quire, directory) as server:
            connection = server.ready()
            load(server.port, keys, Values(options.value_bytes, options.seed))
            save_s = time_of_a_save(connection)
            path = harness.image_path(server)
            expected = digest_of(connection)
            server.kill9()
        number = 0
        while number < options.rounds or number < options.rounds + MORE_ROUNDS and not outcome["save still running"]:
            replaces_chain = number % 4 == 1 and incremental_share > 0
            # The first one is incremental if any is: its saves leave deltas for sure.
            incremental = dice.random() < incremental_share or replaces_chain or number == 0 < incremental_share
            saves = saves_before_kill(dice, number, incremental, replaces_chain)
            expected, kind, running, is_chain_full, moved = one_round(options, directory, path, expected, save_s, dice, number, keys, saves)
            outcome[kind] += 1
            outcome["objects moved"] += moved
            outcome["save still running"] += running
            outcome["with deltas"] += deltas(path) > 0
            outcome["instead of a chain"] += is_chain_full
            number += 1
        with harness.Quire(options.quire, directory) as server:
            check(server.ready(), expected, "after the last round")
        leftovers = [name for name in os.listdir(directory) if ".tmp" in name]
        assert not leftovers, f"temporary files stay: {leftovers}"
        verify(options.quire, path)
    assert outcome["save still running"] > 0, f"no kill fell into a save: {outcome}"
    assert incremental_share == 0 or outcome["with deltas"] > 0, f"no kill left a delta: {outcome}"
    assert incremental_share == 0 or outcome["instead of a chain"] > 0, f"no save took the place of a full chain: {outcome}"
    return f"{number} rounds of {keys} keys: {outcome}, a save takes {save_s:.2f} s, seed {options.seed}"


def check(connection, expected, when):
    digest = digest_of(connection)
    assert digest == expected, f"{when}: digest {digest}, the image's is {expected}"


def saves_before_kill(dice, number, incremental, replaces_chain):
    """How many saves there are before the one that is killed; None if they are not incremental, -1 for as many as fill the chain."""
    if replaces_chain:
        return -1
    # An image comes first where there is none that deltas may follow.
    return (dice.randrange(1, 4) if number else 3) if incremental else None


def saved_before_kill(connection, path, saves):
    """The digests of the saves before the one that is killed."""
    # An image, and all deltas that may be over it.
    most = saves if saves >= 0 else MOST_DELTAS + 1
    while most > 0 and (saves >= 0 or deltas(path) < MOST_DELTAS):
        connection.call("SET", "a change", most)
        yield cut_with_digest(connection)
        info = connection.wait_saved()
        assert info["rdb_last_bgsave_status"] == "ok", info
        most -= 1


def one_round(options, directory, path, expected, save_s, dice, number, keys, saves):
    changed_keys = keys if saves is None else min(keys, CHANGED_KEYS)
    settings = [] if saves is None else [*INCREMENTAL, "--restore-mode", dice.choice(["map", "load"])]
    # Deltas that follow one another are small only where little is moved.
    defragments = number % 2 == 1 and (saves is None or saves >= 0) or number == 2
    settings += harness.EAGER_DEFRAG if defragments else []
    with harness.Quire(options.quire, directory, *settings) as server:
        connection = server.ready()
        check(connection, expected, f"round {number}")
        # Before that the cut would be put off, and hold later writes, too.
        connection.wait_restored()
        fills_chain = saves is not None and saves < 0
        if fills_chain:
            # Without writers: what they change may be too much for a delta.
            for digest in saved_before_kill(connection, path, saves):
                expected = digest
        if defragments:
            move_some(connection, keys, dice)
        stop, refused = threading.Event(), []
        writers = [
            threading.Thread(target=update, args=(server.port, changed_keys, Values(options.value_bytes, number * 10 + n), stop, refused))
            for n in range(4)
        ]
        for writer in writers:
            writer.start()
        try:
            time.sleep(dice.uniform(0.05, 0.3))
            for digest in saved_before_kill(connection, path, 0 if fills_chain else saves or 0):
                expected = digest
            before = links(path)
            is_chain_full = len(before) - 1 == MOST_DELTAS
            at_cut = cut_with_digest(connection)
            # With four writers a save takes longer than at rest, as a rule: on a machine that stalls for a while, any save may take
            # longer than all others. So every third kill waits for the save's file, not for a time.
            if number % 3:
                time.sleep(dice.uniform(0.0, 2.5) * save_s)
            else:
                wait_for_a_file(directory, path, before)
            moved = int(harness.Raw(server.port).info("stats")["active_defrag_hits"])
            server.kill9()
        finally:
            stop.set()
            for writer in writers:
                writer.join(30)
        assert not refused, refused[:3]
        published = is_published(path, before)
        temporary = has_temporary(directory)
    if published:
        return at_cut, "new image", 0, is_chain_full, moved
    return expected, "old image", int(temporary), is_chain_full, moved


def verify(quire, path):
    done = subprocess.run([quire, "image", "verify", path], capture_output=True, timeout=600)
    assert done.returncode == 0, done


def kill_9_during_saves(options):
    return campaign(options, options.keys, 0)


def kill_9_during_incremental_saves(options):
    return campaign(options, max(1, options.keys // 10), 0.8)


def more_arguments(parser):
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keys", type=int, default=150_000)
    parser.add_argument("--value-bytes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="repeats a run as far as timing allows")


if __name__ == "__main__":
    harness.run([kill_9_during_saves, kill_9_during_incremental_saves], harness.arguments(__doc__, more_arguments))
