"""Quire against redis-server: the same commands to both, every reply compared byte for byte.

Directed cases first (_cases.py), then random commands from a seed (_generate.py), a number of episodes; at intervals
DEBUG DIGEST of both. A difference is shrunk to the fewest steps that show it and printed. What may differ is listed in
_compare.py. Relies on Debian's redis-server and on ../harness.py.
"""

import concurrent.futures
import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import _cases
import _facts
import _generate
import harness
from _compare import DRAWN, FREE, TIMES, UNORDERED, is_transaction_end, known_difference, name_of, same
from _pair import Connection, Pair, Redis

PAIR = None
KNOWN_SEEN = {}
STEPS_PER_EPISODE = 250
DIGEST_EVERY = 25
MOST_PER_CASE = 10
# Where a step takes longer, one server may find a key expired that the other one still had: what differs then is looked at again.
SLOW_S = _generate.BRIEF_MS / 4 / 1000
# So often; a difference that has not to do with time is there each time.
MOST_REPEATS = 5


class Difference(Exception):
    """Two replies that differ."""

    def __init__(self, where, ours, theirs):
        super().__init__(f"{where}\n    quire: {ours}\n    redis: {theirs}")


class Player:
    """Plays steps on both servers; raises a Difference."""

    def __init__(self, pair, resp3):
        self.pair = pair
        pair.reset(resp3)
        # Per connection: the commands that wait for EXEC, and whether one of them lets a key expire soon.
        self.queued = [[] for _ in range(Pair.CONNECTIONS)]
        self.brief = [False] * Pair.CONNECTIONS
        self.keys = set(_generate.KEYS)
        # The longest time from the end of one step to the replies of the next.
        self.slowest_s, self.stepped_at = 0.0, time.monotonic()

    def play(self, connection, requests, brief):
        data = b"".join(harness.Raw.encode(*map(self.payload, words)) for words in requests)
        ended = False
        self.alone = len(requests) == 1
        replies = self.pair.send(connection, data, len(requests))
        self.slowest_s = max(self.slowest_s, time.monotonic() - self.stepped_at)
        for words, (ours, theirs) in zip(requests, replies):
            self.check(connection, words, ours, theirs)
            ended |= is_transaction_end(words)
        self.brief[connection] |= brief
        if brief:
            # A word changed at random may have made another key of it.
            self.keys.update(word for words in requests for word in words[1:2])
        if self.brief[connection] and (not self.queued[connection] or ended):
            self.brief[connection] = bool(self.queued[connection])
            self.settle(2 * _generate.BRIEF_MS / 1000)
        self.stepped_at = time.monotonic()

    def payload(self, word):
        """What a side dumps of a key now, for a word that stands for that; other words as they are."""
        if not word.startswith(_generate.DUMPED):
            return word
        side, is_damaged, *key = word[len(_generate.DUMPED) :]
        admin = self.pair.admin[side - ord("0")]
        admin.call("SELECT", "0")
        payload = bytearray(admin.call("DUMP", bytes(key)).tree[1] or b"")
        if is_damaged == ord("1") and payload:
            payload[len(payload) // 2] ^= 4
        return bytes(payload)

    def settle(self, pause_s=0.0):
        self.pair.settle(_generate.DATABASES, sorted(self.keys), pause_s)

    def check(self, connection, words, ours, theirs):
        queue = self.queued[connection]
        if ours.raw != theirs.raw and not self.close_enough(connection, words, ours, theirs, queue):
            raise Difference(f"{connection}: {show(words)}", ours, theirs)
        if theirs.raw == b"+QUEUED\r\n":
            queue.append(words)
        elif is_transaction_end(words):
            queue.clear()

    def close_enough(self, connection, words, ours, theirs, queue):
        what = known_difference(words, ours.tree, theirs.tree)
        if what:
            KNOWN_SEEN[what] = KNOWN_SEEN.get(what, 0) + 1
            return True
        if not same(words, ours.tree, theirs.tree, queue):
            if name_of(words) not in ("SCAN", "HSCAN", "SSCAN", "ZSCAN") or ours.tree[0] != "*" or theirs.tree[0] != "*":
                return False
            # Both began; what counts is what has been seen when both are through.
            at = 1 if name_of(words) == "SCAN" else 2
            return self.scan(0, connection, words, at, ours) == self.scan(1, connection, words, at, theirs)
        # Small hashes keep the order in which their fields came, on both sides. In a pipeline it is too late to ask.
        if self.alone and name_of(words) in ("HGETALL", "HKEYS", "HVALS") and words[0] and len(words) == 2:
            encoding = self.ask(1, connection, b"OBJECT", b"ENCODING", words[1])
            return encoding.tree != ("$", b"listpack")
        return True

    def ask(self, side, connection, *words):
        return self.pair.open[side][connection].call(*words)

    def scan(self, side, connection, words, at, reply):
        """Everything that a scan returns from its first reply on."""
        seen = set()
        for _ in range(100_000):
            cursor, items = reply.tree[1]
            items = [item[1] for item in items[1]]
            pairs = zip(items[::2], items[1::2])
            if name_of(words) == "ZSCAN":
                # Scores have other digits before 7.2.
                pairs = ((member, float(score)) for member, score in pairs)
            seen.update(pairs if name_of(words) in ("HSCAN", "ZSCAN") else items)
            if cursor[1] == b"0":
                return seen
            reply = self.ask(side, connection, *words[:at], cursor[1], *words[at + 1 :])
        return None

    def compare_digests(self):
        self.settle()
        ours, theirs = self.pair.digests()
        if ours != theirs:
            raise Difference("DEBUG DIGEST", ours, theirs)


def show(words):
    """A command as Python bytes that can be pasted into a case."""
    text = " ".join(repr(word)[1:] for word in words)
    return text if len(text) <= 2000 else text[:2000] + " ..."


def unless_slow(play, resp3):
    """What `play` finds with a player. If a server was slow, what was found must be found again."""
    for _ in range(MOST_REPEATS):
        player = Player(PAIR, resp3)
        found = play(player)
        if not found or player.slowest_s < SLOW_S:
            break
    return found


def play_all(steps, resp3):
    """The first difference in steps, and where it is; None if there is none."""
    return unless_slow(lambda player: first_difference(player, steps), resp3)


def first_difference(player, steps):
    at = 0
    try:
        for at, step in enumerate(steps):
            player.play(*step)
            if at % DIGEST_EVERY == 0:
                player.compare_digests()
        player.compare_digests()
    except Difference as difference:
        return at, difference
    except (ConnectionError, TimeoutError) as error:
        return at, Difference("the connection", repr(error), "-")
    return None


def shrink(steps, resp3, limit_s):
    """As few of the steps as show a difference."""
    steps = [(connection, [words], brief) for connection, requests, brief in steps for words in requests]
    end = time.monotonic() + limit_s
    found = play_all(steps, resp3)
    if not found:
        return None
    steps = steps[: found[0] + 1]
    size = max(1, len(steps) // 2)
    while time.monotonic() < end:
        at, shorter = 0, False
        while at < len(steps) and time.monotonic() < end:
            candidate = steps[:at] + steps[at + size :]
            again = play_all(candidate, resp3) if candidate else None
            if again:
                steps, found, shorter = candidate[: again[0] + 1], again, True
            else:
                at += size
        if size == 1 and not shorter:
            break
        size = max(1, size // 2)
    return steps, found[1]


def explain(steps, resp3, difference, name, limit_s):
    """The text of a difference, with the fewest steps that show it."""
    shrunk = shrink(steps, resp3, limit_s)
    lines = [f"{name}, RESP{3 if resp3 else 2}:"]
    if shrunk:
        steps, difference = shrunk
        lines += [f"  {connection}: {show(words)}" for connection, requests, _ in steps for words in requests]
    else:
        lines.append("  (not seen again when the steps were repeated one by one)")
    return "\n".join([*lines, f"  differs at {difference}"])


def directed(_):
    """The cases of _cases.py in both protocols."""
    failures = []
    for resp3 in (False, True):
        for name, steps in _cases.all_cases():
            found = unless_slow(lambda player, steps=steps: play_case(player, steps), resp3)
            failures += [f"{name}, RESP{3 if resp3 else 2}: {text}" for text in found]
    assert not failures, f"{len(failures)} differences\n" + "\n".join(failures)
    return f"{len(list(_cases.all_cases()))} cases"


def play_case(player, steps):
    """The differences in a case; it goes on after one, as most do not depend on each other."""
    failures = []
    for at, (kind, content) in enumerate([*steps, ("digest", None)]):
        try:
            if kind == "sleep":
                pause_s, keys = content
                PAIR.settle(_generate.DATABASES, keys, pause_s)
            elif kind == "digest":
                player.compare_digests()
            else:
                player.play(*content)
        except Difference as difference:
            failures.append(f"step {at} differs at {difference}")
        except (ConnectionError, TimeoutError) as error:
            return [*failures, f"{content}: {error!r}"]
        if len(failures) == MOST_PER_CASE:
            break
    return failures


def raw_input(_):
    """Bytes that are no proper requests: inline commands, protocol errors, requests in pieces."""
    failures = []
    for data in _cases.RAW:
        said = []
        for port in PAIR.ports:
            connection = Connection(port)
            said.append(connection.exchange(data))
            connection.close()
        if said[0] != said[1]:
            failures.append(f"{data[:200]!r}\n    quire: {said[0][:300]!r}\n    redis: {said[1][:300]!r}")
    assert not failures, f"{len(failures)} differences\n" + "\n".join(failures)


def in_pieces(options):
    """The same requests as bytes that come in pieces cut anywhere."""
    chance = random.Random(f"{options.seed}:pieces")
    generator = _generate.Generator(chance)
    steps = [generator.step() for _ in range(100)]
    requests = [words for _, requests, brief in steps for words in requests if not brief and is_repeatable(words)]
    data = b"".join(harness.Raw.encode(*words) for words in requests)
    cuts = sorted(chance.randrange(len(data)) for _ in range(300))
    said = both_say(data, cuts)
    assert said[0] == said[1], f"the replies to {len(requests)} requests in {len(cuts)} pieces: {bytes_that_differ(*said)}"
    return f"{len(requests)} requests in {len(cuts) + 1} pieces"


def bytes_that_differ(ours, theirs):
    """What both say around the first byte that differs."""
    at = next((n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    return f"at byte {at}: {ours[max(at - 200, 0) : at + 80]!r} and {theirs[max(at - 200, 0) : at + 80]!r}"


def large_pipeline(_):
    """More requests than any buffer holds, sent without reading a reply."""
    value = b"v" * 3000
    requests = [
        harness.Raw.encode(*words)
        for n in range(20_000)
        for words in ((b"SET", b"key:%d" % (n % 500), value), (b"GET", b"key:%d" % (n % 700)), (b"INCR", b"n"))
    ]
    said = both_say(b"".join(requests))
    assert said[0] == said[1], f"{len(said[0])} and {len(said[1])} bytes of replies"
    return f"{len(requests)} requests, {len(said[0]) >> 20} MiB of replies"


def is_repeatable(words):
    """Whether a reply does not depend on the moment, on chance or on the layout of a table."""
    free = {"SCAN", "HSCAN", "SSCAN", "ZSCAN", "OBJECT ENCODING", "HELLO", "MULTI", *UNORDERED, *DRAWN, *TIMES, *FREE}
    name = name_of(words)
    # What a script says of its command is not looked at here, and who a user is and what one side dumps is known only then.
    if name.split()[:1] and name.split()[0] in ("EVAL", "EVAL_RO", "FCALL", "FCALL_RO", "FUNCTION", "RESTORE", "CLIENT", "CONFIG", "ACL"):
        return False
    return name not in free and not name.startswith("NOSUCH") and not shows_scores(words) and not goes_by_the_clock(name, words)


def goes_by_the_clock(name, words):
    """Whether a reply has a time, an ID made of one, or what has been idle for so long."""
    return name.startswith("XINFO") or name in ("XPENDING", "XCLAIM", "XAUTOCLAIM") or name == "XADD" and any(b"*" in word for word in words)


def shows_scores(words):
    """Whether a reply may have a score, whose digits are others before 7.2."""
    always = ("ZSCORE", "ZMSCORE", "ZINCRBY", "ZPOPMIN", "ZPOPMAX", "ZMPOP")
    return name_of(words).startswith("Z") and (name_of(words) in always or any(word.upper() in (b"WITHSCORES", b"INCR") for word in words))


def both_say(data, cuts=()):
    """All that each server says to bytes sent in pieces; reading goes on beside the sending."""
    PAIR.reset()
    said = []
    for port in PAIR.ports:
        connection = Connection(port)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            sent = pool.submit(connection.send_pieces, data, cuts)
            said.append(connection.input.read())
            sent.result()
        connection.close()
    return said


def facts(_):
    """COMMAND INFO and COMMAND DOCS of every command that Quire has, and the names of INFO's fields."""
    differences, compared = _facts.compare(PAIR)
    assert not differences, f"{len(differences)} differences\n" + "\n".join(differences)
    lacking, fields = _facts.compare_info(PAIR)
    assert not lacking, "\n".join(lacking)
    return f"{compared} commands, {fields} fields of INFO"


def random_commands(options):
    end = time.monotonic() + (options.seconds or float("inf"))
    episode = commands = 0
    failures = []
    # By their number, unless time is asked for: what a slow machine finds a fast one finds.
    while (episode < options.episodes or options.seconds) and time.monotonic() < end and len(failures) < options.most:
        name = f"seed {options.seed}, episode {episode}"
        resp3 = bool(episode % 2)
        generator = _generate.Generator(random.Random(f"{options.seed}:{episode}"))
        steps = [generator.step() for _ in range(STEPS_PER_EPISODE)]
        found = play_all(steps, resp3)
        if found:
            failures.append(explain(steps, resp3, found[1], name, options.shrink))
        commands += sum(len(requests) for _, requests, _ in steps)
        episode += 1
    assert not failures, f"{len(failures)} differences\n" + "\n".join(failures)
    meant = ", ".join(f"{what} ({count} times)" for what, count in sorted(KNOWN_SEEN.items())) or "none"
    return f"{commands} commands in {episode} episodes; meant differences: {meant}"


def more_arguments(parser):
    parser.add_argument("--episodes", type=int, default=30, help="how many times random commands are sent, on a data set each")
    parser.add_argument("--seconds", type=float, help="how long random commands are sent, however many that are")
    parser.add_argument("--seed", default="1", help="of the random commands")
    parser.add_argument("--shrink", type=float, default=20, help="seconds spent on making a difference small")
    parser.add_argument("--most", type=int, default=3, help="ends after so many differences")


if __name__ == "__main__":
    OPTIONS = harness.arguments(__doc__, more_arguments)
    with harness.scratch() as DIRECTORY, Redis(DIRECTORY) as PEER, harness.Quire(OPTIONS.quire, DIRECTORY) as SERVER:
        SERVER.ready().close()
        PAIR = Pair(SERVER.port, PEER.port)
        harness.run([facts, raw_input, directed, in_pieces, large_pipeline, random_commands], OPTIONS)
