"""Active defragmentation beside a server without it: the same commands give the same replies and the same digest, through saves, kill -9 and restarts.

Each round has both servers change data of all types and delete most of a part of it, while the first one moves what it can as fast as it may.
Saves, exchanges of databases and reloads come at moments that are drawn. Nothing expires meanwhile, and no command draws anything: what the
servers differ in is an error.
"""

import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness

BATCH = 80
NEVER_MS = 40_000_000_000_000
# So many keys of a kind that has many, and of one whose values are large.
MANY, FEW = 6000, 5
MEMBERS = 3000


class Words:
    """Random commands."""

    def __init__(self, dice):
        self.dice = dice
        self.pool = dice.randbytes(1 << 17)
        self.entries = 0

    def value(self, most=1500):
        size = self.dice.choice([8, 30, 60, 100, 200, self.dice.randrange(1, most)])
        # One in fifty lies in an object of its own.
        size = self.dice.randrange(9000, 60_000) if most > 1000 and self.dice.random() < 0.02 else size
        start = self.dice.randrange(len(self.pool) - size)
        return self.pool[start : start + size]

    @staticmethod
    def key(kind, number):
        name = f"{kind}:{number}"
        return name.ljust(8200 + number, "k") if number % 97 == 3 else name

    def names(self, prefix, count):
        return [f"{prefix}-{self.dice.randrange(MEMBERS)}-{'x' * (number * 30)}" for number in range(count)]

    def of_strings(self):
        keys = [self.key("s", self.dice.randrange(MANY)) for _ in range(6)]
        writes = [("SET", keys[0], self.value()), ("SET", keys[1], self.value(), "PXAT", NEVER_MS), ("APPEND", keys[0], self.value(200))]
        others = [("DEL", *keys), ("UNLINK", keys[0]), ("GET", keys[0]), ("PERSIST", keys[0]), ("COPY", *keys[:2], "REPLACE")]
        return self.dice.choice(writes * 2 + others)

    def of_small(self):
        kind, number = self.dice.choice("hlzt"), self.dice.randrange(MANY // 4)
        key = self.key(kind, number)
        adds = {
            "h": ("HSET", key, "f", self.value(300), "g", number),
            "l": ("RPUSH", key, self.value(300)),
            "z": ("ZADD", key, number, "m", 3, "n"),
            "t": ("SADD", key, number, "m"),
        }[kind]
        return self.dice.choice([adds, adds, ("DEL", key), ("RENAME", key, self.key(kind, self.dice.randrange(MANY // 4)))])

    def of_large(self):
        self.entries += 1
        number = self.dice.randrange(FEW)
        names = self.names("m", 5)
        fields = [word for name in names for word in (name, self.value(500))]
        scored = [word for name in names for word in (self.dice.randrange(1000), name)]
        return self.dice.choice([
            ("HSET", f"H:{number}", *fields), ("HDEL", f"H:{number}", *names),
            ("SADD", f"S:{number}", *names), ("SREM", f"S:{number}", *names),
            ("HSET", f"T:{number}", *fields), ("HPEXPIREAT", f"T:{number}", NEVER_MS, "FIELDS", 5, *names), ("HDEL", f"T:{number}", *names),
            ("ZADD", f"Z:{number}", *scored), ("ZREMRANGEBYRANK", f"Z:{number}", 3, 6), ("ZRANGE", f"Z:{number}", 0, 9, "WITHSCORES"),
            ("RPUSH", f"L:{number}", *fields), ("LPOP", f"L:{number}", 9), ("LRANGE", f"L:{number}", 50, 53), ("LTRIM", f"L:{number}", 0, 2000),
            ("XADD", f"X:{number}", f"{self.entries}-1", "field", self.value(500)), ("XTRIM", f"X:{number}", "MAXLEN", 500),
            ("XRANGE", f"X:{number}", "-", "+", "COUNT", 3), ("XGROUP", "CREATE", f"X:{number}", "group", 0, "MKSTREAM"),
            ("XREADGROUP", "GROUP", "group", "me", "COUNT", 5, "STREAMS", f"X:{number}", ">"),
            ("XACK", f"X:{number}", "group", f"{self.entries // 2}-1"), ("PFADD", f"P:{number}", *names), ("SETBIT", f"B:{number}", self.entries * 7 % 99_991, 1),
        ])  # fmt: skip

    def batch(self):
        kinds = [self.of_strings, self.of_small, self.of_large, self.of_large]
        return [self.dice.choice(kinds)() for _ in range(BATCH)]

    def deletions(self):
        """Most keys of a kind."""
        kind = self.dice.choice("shlzt")
        keys = [self.key(kind, number) for number in range(MANY) if self.dice.random() < 0.7]
        return [("DEL", *keys[start : start + 400]) for start in range(0, len(keys), 400)]


def both(connections, requests):
    """Sends requests to both; their replies must be the same."""
    for connection in connections:
        connection.send(b"".join(connection.encode(*words) for words in requests))
    for words in requests:
        first, second = (repr(connection.reply()) for connection in connections)
        assert first == second, f"{[str(word)[:50] for word in words]}: {first[:300]}, without: {second[:300]}"


def end_a_rest(connection, dice):
    """Switches moving off for as long as the server needs to notice that, and on again."""
    for setting in ("no", "yes"):
        connection.call("CONFIG", "SET", "activedefrag", setting)
        time.sleep(dice.uniform(0.1, 0.2))


def something_else(connections, dice):
    """What comes between commands, to both or to the first alone."""
    kind, moves = dice.randrange(6), connections[0]
    if kind == 0:
        moves.send(moves.encode("BGSAVE"))
        moves.reply()
    elif kind == 1:
        both(connections, [dice.choice([("SWAPDB", 0, 1), ("FLUSHDB", "ASYNC"), ("SWAPDB", 1, 2)])])
    elif kind == 2:
        both(connections, [("COPY", f"{name}:0", f"{name}:1", "REPLACE") for name in "HSTZLX"])
    elif kind == 3:
        moves.wait_saved()
        both(connections, [("DEBUG", "RELOAD")])


def one_round(options, directories, dice, words, expected, number):
    settings = dice.choice([[], ["--checkpoint-incremental", "yes"], ["--appendonly", "yes", "--appendfsync", "no"]] if number else [[]])
    defrag = ["--activedefrag", "yes", *harness.EAGER_DEFRAG]
    with (
        harness.Quire(options.quire, directories[0], *settings, *defrag) as first,
        harness.Quire(options.quire, directories[1], *settings) as second,
    ):
        connections = [server.ready() for server in (first, second)]
        for connection in connections:
            connection.wait_restored()
            assert expected in (None, connection.digest()), f"round {number} begins with something else"
        end = time.monotonic() + options.seconds
        while time.monotonic() < end:
            for _ in range(dice.randrange(5, 40)):
                both(connections, words.batch())
            both(connections, words.deletions())
            if dice.random() < 0.7:
                end_a_rest(connections[0], dice)
            something_else(connections, dice)
        digest = connections[1].digest()
        assert connections[0].digest() == digest, f"round {number}: the data differs"
        moved = int(connections[0].info("stats")["active_defrag_hits"])
        for connection in connections:
            connection.wait_saved()
            connection.call("SAVE")
        for server in (first, second):
            server.kill9()
        for server in (first, second):
            wrong = [line for line in server.log_text().splitlines() if " ERROR " in line or "panicked" in line]
            assert not wrong, wrong[:3]
    return digest, moved


def what_moves_stays_what_it_is(options):
    dice = random.Random(options.seed)
    words, expected, moved = Words(dice), None, 0
    with harness.scratch() as directory:
        directories = [os.path.join(directory, name) for name in ("moves", "does-not")]
        for each in directories:
            os.mkdir(each)
        for number in range(options.rounds):
            expected, more = one_round(options, directories, dice, words, expected, number)
            moved += more
    assert moved > 0, "nothing was moved"
    return f"{options.rounds} rounds, {moved} objects moved, seed {options.seed}"


def more_arguments(parser):
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=4.0, help="how long a round writes")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="repeats a run as far as timing allows")


if __name__ == "__main__":
    harness.run([what_moves_stays_what_it_is], harness.arguments(__doc__, more_arguments))
