"""kill -9 at random instants with the log of writes on: what was acknowledged is there, transactions are whole, and what
is there is a beginning of what was sent, nothing twice.

Each round restarts the server on what the round before left, compares, then has clients write while images come and go,
and kills the server at a random instant, sometimes while it starts. With `always` every reply is an acknowledgement; with
`everysec` WAITAOF is, and what was written long before the end. While the log is switched off and on again all the time, what WAITAOF
has once said to be durable is there after the kill. Libraries of functions are held to the same. In half of the rounds active defragmentation moves what it can.
A restart to which the system gives too little memory ends, rather than leave anything out.
"""

import os
import random
import resource
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness

CLIENTS = [1, 2, 5, 10, 25, 50]
# Everysec: a second between flushes, two for a stalled disk, and the disk's own time.
LONGEST_LOSS_S = 5.0
# Of each client's list, the last of those that were moved to it: enough for some nodes.
KEPT_ELEMENTS = 700
# Of each client's stream, the last: enough for some nodes.
KEPT_ENTRIES = 400
# Of each client's sorted set, those with the highest scores: enough for some leaves.
KEPT_MEMBERS = 300
# The first of these, as another sorted set has them.
STORED_MEMBERS = 10
# The numbers that each client's places and fields of bits go through.
PLACES = 50
BIT_FIELDS = 64
# Of the entries that a client's group was given, those of every so many rounds stay pending, for so many rounds.
PENDING_EVERY = 5
PENDING_ROUNDS = 100
AREA = ("FROMLONLAT", 10, 45, "BYRADIUS", 300, "km")


def element(number):
    return b"%040d" % number


def member(number):
    """Members whose order is not that of their scores."""
    return b"%d:%d" % (number % 7, number)


def place(number):
    """Longitude, latitude and name."""
    return f"{number * 7 % 180}.25", f"{number * 11 % 85}.5", f"place-{number % PLACES}"


def acknowledged_in(number):
    """The entries that are acknowledged in a round: the one before it, or an old one that was left pending."""
    numbers = [max(number - PENDING_ROUNDS, 0)]
    return [f"{at}-1" for at in numbers + [number - 1] * ((number - 1) % PENDING_EVERY != 0)]


def pending_after(done):
    """(entry, consumer, deliveries) of what is pending after a round."""
    kept = [at for at in range(max(1, done - PENDING_ROUNDS + 1), done) if at % PENDING_EVERY == 0]
    last = [(b"%d-1" % done, b"c%d" % (done % 3), 1)] if done else []
    return [(b"%d-1" % at, b"claimer", 2) for at in kept] + last


def bits_after(done):
    """The fields that rounds have set, the last one counted on by each of them."""
    if not done:
        return None
    fields = [0] * BIT_FIELDS + [done]
    for number in range(max(1, done - BIT_FIELDS + 1), done + 1):
        fields[number % BIT_FIELDS] = number
    return b"".join(field.to_bytes(4, "big") for field in fields)


class Writer(threading.Thread):
    """One client: numbered rounds of writes, the next one when the last is answered."""

    def __init__(self, port, index, first, always, seed):
        super().__init__()
        self.connection = harness.Raw(port)
        self.index, self.number, self.always = index, first, always
        self.dice = random.Random(seed)
        self.acknowledged = first - 1
        self.sent = first - 1
        self.told = []
        self.wrong = None

    def run(self):
        try:
            # An error says that it is there already.
            self.connection.send(harness.Raw.encode("XGROUP", "CREATE", f"x:{self.index}", "group", 0, "MKSTREAM"))
            self.connection.reply()
            while True:
                self.play(self.number)
                self.number += 1
        except (ConnectionError, OSError, ValueError):
            pass  # The server was killed: that is the test.
        except Exception as error:
            self.wrong = error

    def delivered(self, number):
        """What a round does with the group of the stream: one entry is read, others are acknowledged or claimed."""
        stream, before = f"x:{self.index}", number - 1
        claims = before > 0 and before % PENDING_EVERY == 0
        return [
            ("XREADGROUP", "GROUP", "group", f"c{number % 3}", "COUNT", 1, "STREAMS", stream, ">"),
            ("XACK", stream, "group", *acknowledged_in(number)),
        ] + [("XCLAIM", stream, "group", "claimer", 0, f"{before}-1")] * claims

    def play(self, number):
        key, encode = self.index, harness.Raw.encode
        waits = not self.always and self.dice.random() < 0.05
        words = [
            ("SET", f"w:{key}", number),
            ("APPEND", f"l:{key}", "x"),
            ("SET", f"t:{key}:{number}", "v", "PX", self.dice.randrange(1, 30)),
            ("MULTI",),
            ("INCR", f"a:{key}"),
            ("INCRBYFLOAT", f"f:{key}", "0.5"),
            ("HSET", f"h:{key}", number, b"y" * self.dice.randrange(2000)),
            ("RPUSH", f"q:{key}", element(number)),
            ("LMOVE", f"q:{key}", f"r:{key}", "LEFT", "RIGHT"),
            ("LTRIM", f"r:{key}", -KEPT_ELEMENTS, -1),
            ("ZADD", f"z:{key}", number, member(number)),
            ("ZINCRBY", f"z:{key}", "0.5", member(number)),
            ("ZADD", f"z:{key}", -1, "first"),
            ("BZPOPMIN", "none", f"z:{key}", 0),
            ("ZREMRANGEBYRANK", f"z:{key}", 0, -KEPT_MEMBERS - 1),
            ("SADD", f"s:{key}", number, member(number)),
            ("SREM", f"s:{key}", member(number - 1)),
            ("XADD", f"x:{key}", "MAXLEN", KEPT_ENTRIES, f"{number}-1", "field", element(number)),
            *self.delivered(number),
            ("ZRANGESTORE", f"y:{key}", f"z:{key}", 0, STORED_MEMBERS - 1),
            ("ZUNIONSTORE", f"u:{key}", 2, f"y:{key}", f"y:{key}", "WEIGHTS", 1, 2),
            ("PFADD", f"p:{key}", number),
            ("GEOADD", f"g:{key}", *place(number)),
            ("GEOSEARCHSTORE", f"n:{key}", f"g:{key}", *AREA),
            ("BITFIELD", f"i:{key}", "SET", "u32", f"#{number % BIT_FIELDS}", number, "INCRBY", "u32", f"#{BIT_FIELDS}", 1),
            ("INCR", f"b:{key}"),
            ("EXEC",),
        ] + [("WAITAOF", 1, 0, 0)] * waits
        self.sent = number
        self.connection.send(b"".join(encode(*each) for each in words))
        for each in words:
            answer = self.connection.reply()
            wrong = [part for part in (answer if each == ("EXEC",) else [answer]) if isinstance(part, harness.ReplyError)]
            if wrong:
                raise AssertionError(f"{each}: {wrong}")
        self.told.append((time.monotonic(), number))
        if self.always or waits:
            self.acknowledged = number

    def least(self, killed_at):
        """The last round that must be there."""
        old = [number for when, number in self.told if when < killed_at - LONGEST_LOSS_S]
        return max(self.acknowledged, old[-1] if old else 0)


def compare(connection, index, least, sent, when):
    """Looks whether what is there is a beginning of what was sent; returns the next round's number."""
    found = {name: float(connection.call("GET", f"{name}:{index}") or 0) for name in "wabf"}
    found["l"] = connection.call("STRLEN", f"l:{index}")
    found["h"] = connection.call("HLEN", f"h:{index}")
    state = f"{when}, client {index}: {found}, {least} to {sent} expected"
    done = int(found["a"])
    assert least <= done <= sent, state
    assert done == found["b"] == found["h"] == 2 * found["f"], f"half a transaction: {state}"
    kept = connection.call("LRANGE", f"r:{index}", 0, -1)
    expected = [element(number) for number in range(max(1, done - KEPT_ELEMENTS + 1), done + 1)]
    assert kept == expected and connection.call("EXISTS", f"q:{index}") == 0, f"half a list: {state}: {kept}"
    kept = connection.call("ZRANGE", f"z:{index}", 0, -1, "WITHSCORES")
    numbers = range(max(1, done - KEPT_MEMBERS + 1), done + 1)
    expected = [word for number in numbers for word in (member(number), b"%d.5" % number)]
    assert kept == expected, f"half a sorted set: {state}: {kept}"
    kept = set(connection.call("SMEMBERS", f"s:{index}"))
    expected = {b"%d" % number for number in range(1, done + 1)} | ({member(done)} if done else set())
    assert kept == expected, f"half a set: {state}: {kept ^ expected}"
    kept = connection.call("XRANGE", f"x:{index}", "-", "+")
    numbers = range(max(1, done - KEPT_ENTRIES + 1), done + 1)
    expected = [[b"%d-1" % number, [b"field", element(number)]] for number in numbers]
    assert kept == expected, f"half a stream: {state}: {kept}"
    compare_groups_and_stores(connection, index, done, state)
    assert done <= found["l"] <= found["w"] <= done + 1 and found["w"] <= sent, f"out of order: {state}"
    # What the next round counts on.
    if found["w"] > done:
        connection.call("SET", f"w:{index}", done)
    if found["l"] > done:
        connection.call("SET", f"l:{index}", "x" * done)
    return done + 1


def compare_groups_and_stores(connection, index, done, state):
    """What is pending, what was stored of other keys, and what only the same commands make again."""
    found = connection.call("XPENDING", f"x:{index}", "group", "-", "+", 10 * PENDING_ROUNDS) if done else []
    assert [(entry, consumer, count) for entry, consumer, _, count in found] == pending_after(done), f"half a group: {state}: {found}"
    first = range(max(1, done - KEPT_MEMBERS + 1), done + 1)[:STORED_MEMBERS]
    for name, times in [("y", 1), ("u", 3)]:
        found = connection.call("ZRANGE", f"{name}:{index}", 0, -1, "WITHSCORES")
        found = [(word, float(score)) for word, score in zip(found[::2], found[1::2])]
        assert found == [(member(number), times * (number + 0.5)) for number in first], f"half a store: {state}: {found}"
    assert connection.call("GET", f"i:{index}") == bits_after(done), f"other bits: {state}"
    if done:
        again = "again"
        connection.call("PFADD", again, *range(1, done + 1))
        assert connection.call("PFCOUNT", again) == connection.call("PFCOUNT", f"p:{index}"), f"other visitors: {state}"
        connection.call("DEL", again)
        for number in range(max(1, done - PLACES + 1), done + 1):
            connection.call("GEOADD", again, *place(number))
        ranges = [connection.call("ZRANGE", key, 0, -1, "WITHSCORES") for key in (again, f"g:{index}")]
        assert ranges[0] == ranges[1], f"other places: {state}: {ranges}"
        connection.call("GEOSEARCHSTORE", again, f"g:{index}", *AREA)
        ranges = [connection.call("ZRANGE", key, 0, -1, "WITHSCORES") for key in (again, f"n:{index}")]
        assert ranges[0] == ranges[1], f"other places near: {state}: {ranges}"
        connection.call("DEL", again)


def start(options, directory, fsync, *more):
    words = ["--appendonly", "yes", "--appendfsync", fsync, "--log-segment-bytes", "1mb", "--log-max-bytes", "8mb", *more]
    return harness.Quire(options.quire, directory, *words)


def verify(options, directory):
    done = subprocess.run([options.quire, "log", "verify", directory], capture_output=True, timeout=600)
    assert done.returncode == 0, done


def save_now_and_then(connection, dice, seconds):
    """For a while that is drawn, images and rewrites of the log begin at moments that are drawn."""
    end = time.monotonic() + dice.uniform(0.05, seconds)
    while time.monotonic() < end:
        time.sleep(dice.uniform(0.0, seconds / 4))
        if dice.random() < 0.5:
            connection.send(connection.encode(dice.choice(["BGREWRITEAOF", "BGSAVE"])))
            connection.reply()


def one_round(options, directory, dice, known, index):
    """`known` has for each client what must and what may be there."""
    fsync = dice.choice(["always", "always", "everysec"])
    if dice.random() < 0.2:
        # While it replays and begins a new segment.
        with start(options, directory, fsync) as server:
            time.sleep(dice.uniform(0.0, 0.05))
            server.kill9()
    with start(options, directory, fsync, *(["--activedefrag", "yes", *harness.EAGER_DEFRAG] if index % 2 else [])) as server:
        connection = server.ready()
        firsts = [compare(connection, key, *known[key], f"round {index}, {fsync}") for key in range(len(known))]
        connection.call("WAITAOF", 1, 0, 0)
        active = dice.choice(CLIENTS)
        writers = [Writer(server.port, key, firsts[key], fsync == "always", dice.random()) for key in range(active)]
        for writer in writers:
            writer.start()
        save_now_and_then(connection, dice, options.seconds)
        moved = int(connection.info("stats")["active_defrag_hits"])
        killed_at = time.monotonic()
        server.kill9()
        for writer in writers:
            writer.join(30)
            assert writer.wrong is None, writer.wrong
    for key, first in enumerate(firsts):
        known[key] = (writers[key].least(killed_at), writers[key].sent) if key < active else (first - 1, first - 1)
    return fsync, moved, sum(len(writer.told) for writer in writers)


def kill_9_with_a_log(options):
    dice = random.Random(options.seed)
    known = [(0, 0)] * max(CLIENTS)
    rounds = {}
    answered = moved = 0
    with harness.scratch() as directory:
        for index in range(options.rounds):
            fsync, moved_now, count = one_round(options, directory, dice, known, index)
            rounds[fsync] = rounds.get(fsync, 0) + 1
            answered += count
            moved += moved_now
            verify(options, directory)
        with start(options, directory, "always") as server:
            connection = server.ready()
            for key, state in enumerate(known):
                compare(connection, key, *state, "after the last round")
    return f"{options.rounds} rounds {rounds}, {answered} rounds of writes answered, {moved} objects moved, seed {options.seed}"


class Counter(threading.Thread):
    """One client that counts, two keys in a transaction, and asks after each time whether that is durable."""

    def __init__(self, port, index, first):
        super().__init__()
        self.connection, self.index = harness.Raw(port), index
        self.acknowledged = self.sent = first
        self.asked = 0
        self.wrong = None

    def run(self):
        encode = harness.Raw.encode
        words = [("MULTI",), ("INCR", f"a:{self.index}"), ("INCR", f"b:{self.index}"), ("EXEC",), ("WAITAOF", 1, 0, 0)]
        request = b"".join(encode(*each) for each in words)
        try:
            while True:
                self.sent += 1
                self.connection.send(request)
                answers = [self.connection.reply() for _ in words]
                assert answers[3] == [self.sent, self.sent], answers
                # An error says that there is no log now: then this one may be lost, but no earlier one.
                if answers[4] == [1, 0]:
                    self.acknowledged = self.sent
                    self.asked += 1
                else:
                    assert "appendonly" in str(answers[4]), answers
        except (ConnectionError, OSError, ValueError):
            pass  # The server was killed: that is the test.
        except Exception as error:
            self.wrong = error


def on_and_off(connection, dice, until):
    """Switches the log off and on; returns how often."""
    switched = 0
    while time.monotonic() < until:
        for setting, longest_s in [("no", 0.02), ("yes", 0.15)]:
            connection.call("CONFIG", "SET", "appendonly", setting)
            # Now and then not even its first image is complete.
            time.sleep(dice.uniform(0.0, longest_s))
        if dice.random() < 0.2:
            connection.send(connection.encode("BGSAVE"))
            connection.reply()
        switched += 1
    return switched


def kill_9_while_the_log_goes_on_and_off(options):
    dice = random.Random(options.seed)
    known = [(0, 0)] * 4
    asked = switched = 0
    with harness.scratch() as directory:
        for index in range(options.switches + 1):
            with start(options, directory, "always") as server:
                connection = server.ready()
                counters = []
                for key, (least, most) in enumerate(known):
                    a, b = (int(connection.call("GET", f"{name}:{key}") or 0) for name in "ab")
                    assert least <= a <= most and a == b, f"round {index}, client {key}: {a}, {b}, {least} to {most} expected"
                    counters.append(Counter(server.port, key, a))
                # What was found is to be there next time, too.
                assert connection.call("WAITAOF", 1, 0, 0) == [1, 0]
                for counter in counters:
                    counter.start()
                end = time.monotonic() + 60
                while any(counter.asked == 0 and counter.is_alive() for counter in counters):
                    assert time.monotonic() < end, "no write becomes durable"
                    time.sleep(0.005)
                switched += on_and_off(connection, dice, time.monotonic() + dice.uniform(0.05, 2 * options.seconds))
                server.kill9()
                for counter in counters:
                    counter.join(30)
                    assert counter.wrong is None, counter.wrong
                known = [(counter.acknowledged, counter.sent) for counter in counters]
                asked += sum(counter.asked for counter in counters)
            verify(options, directory)
    return f"{options.switches} rounds, {switched} times off and on, {asked} writes said to be durable, seed {options.seed}"


LIBRARIES = 4


def library(index, number):
    return b"#!lua name=lib%d\nredis.register_function('f%d', function() return %d end)" % (index, index, number)


def change_of_functions(dice, number, before):
    """A change of the libraries, which are a number each or none, and what they are after it."""
    index, kind = dice.randrange(LIBRARIES), dice.random()
    if kind < 0.1:
        return ("FUNCTION", "FLUSH"), (None,) * LIBRARIES
    kept = [None if kind < 0.3 else number if at == index else known for at, known in enumerate(before)]
    if kind >= 0.3:
        return ("FUNCTION", "LOAD", "REPLACE", library(index, number)), tuple(kept)
    there = [at for at, known in enumerate(before) if known is not None]
    if not there:
        return change_of_functions(dice, number, before)
    gone = dice.choice(there)
    return ("FUNCTION", "DELETE", f"lib{gone}"), tuple(None if at == gone else known for at, known in enumerate(before))


def functions_of(connection):
    """What each function of the libraries says, as after a change."""
    found = []
    for index in range(LIBRARIES):
        connection.send(connection.encode("FCALL", f"f{index}", 0))
        answer = connection.reply()
        found.append(None if isinstance(answer, harness.ReplyError) else answer)
    return tuple(found)


class Librarian(threading.Thread):
    """One client that loads, replaces and deletes libraries; it keeps what they are after each change."""

    def __init__(self, port, first, found, always, seed):
        super().__init__()
        self.connection, self.number, self.states = harness.Raw(port), first, [found]
        self.always, self.dice = always, random.Random(seed)
        # The change that must be there, by its place in the states.
        self.acknowledged = 0
        self.wrong = None

    def run(self):
        try:
            while True:
                self.number += 1
                words, after = change_of_functions(self.dice, self.number, self.states[-1])
                self.states.append(after)
                self.connection.call(*words)
                if self.always:
                    self.acknowledged = len(self.states) - 1
                elif self.dice.random() < 0.1:
                    assert self.connection.call("WAITAOF", 1, 0, 0) == [1, 0]
                    self.acknowledged = len(self.states) - 1
        except (ConnectionError, OSError, ValueError):
            pass  # The server was killed: that is the test.
        except Exception as error:
            self.wrong = error


def kill_9_while_functions_change(options):
    """Every library is as some change has left it that is none before the last which must be there."""
    dice = random.Random(options.seed)
    states, changes, number = [(None,) * LIBRARIES], 0, 0
    with harness.scratch() as directory:
        for index in range(options.rounds + 1):
            fsync = "everysec" if index % 3 == 2 else "always"
            with start(options, directory, fsync) as server:
                connection = server.ready()
                found = functions_of(connection)
                assert found in states, f"round {index}: {found} is none of {states}"
                # What was found is to be there next time, too.
                assert connection.call("WAITAOF", 1, 0, 0) == [1, 0]
                librarian = Librarian(server.port, number, found, fsync == "always", dice.random())
                librarian.start()
                save_now_and_then(connection, dice, options.seconds)
                server.kill9()
                librarian.join(30)
                assert librarian.wrong is None, librarian.wrong
                states, number = librarian.states[librarian.acknowledged :], librarian.number
                changes += len(librarian.states) - 1
            verify(options, directory)
    return f"{options.rounds + 1} rounds, {changes} changes of libraries, seed {options.seed}"


def a_restart_with_too_little_memory_leaves_nothing_out(options):
    refused = 0
    with harness.scratch() as directory:
        with harness.Quire(options.quire, directory, "--appendonly", "yes", "--appendfsync", "always") as server:
            connection = server.ready()
            for number in range(5):
                # A short record, and much memory.
                connection.call("SETRANGE", f"large:{number}", 60 << 20, "x")
                connection.call("SET", f"small:{number}", "x")
            server.kill9()
        for limit in range(300 << 20, 1000 << 20, 50 << 20):
            lower = lambda limit=limit: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
            with harness.Quire(options.quire, directory, "--appendonly", "yes", preexec_fn=lower) as server:
                try:
                    connection = server.ready()
                except AssertionError:
                    assert "memory" in server.log_text(), server.log_text()
                    refused += 1
                    continue
                keys = connection.call("DBSIZE")
                assert keys == 10, f"{keys} of 10 keys with {limit} bytes"
                server.kill9()
    return f"{refused} restarts refused"


def more_arguments(parser):
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--switches", type=int, default=5, help="rounds in which the log goes on and off")
    parser.add_argument("--seconds", type=float, default=0.6, help="a round's longest time")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="repeats a run as far as timing allows")


if __name__ == "__main__":
    harness.run(
        [kill_9_with_a_log, kill_9_while_the_log_goes_on_and_off, kill_9_while_functions_change, a_restart_with_too_little_memory_leaves_nothing_out],
        harness.arguments(__doc__, more_arguments),
    )
