"""Publish/subscribe and keyspace notifications, on Quire and on redis-server.

Directed scenarios: a step is a command on one of several connections, after which everything that any connection has been sent is
compared. Then random commands from the generator of `differential.py`, on a listener to all notifications: after every step both
servers must have told the same events in the same order. Relies on Debian's redis-server 7.0.15; that what a client sends itself
follows the reply, as in 7.2, is left to the Rust tests.
"""

import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import harness
from _generate import BRIEF_MS, KEYS, Generator, called, consumers_of
from _pair import Connection, Redis, play

SERVERS = None
CLIENTS = 4
ENDS = (b"$11\r\nEND-OF-STEP\r\n", b"*2\r\n$4\r\npong\r\n$11\r\nEND-OF-STEP\r\n")
# What happens by chance, or a moment earlier on one side than on the other.
UNEQUAL = {b"SPOP", b"RANDOMKEY", b"SRANDMEMBER", b"HRANDFIELD", b"DEBUG", b"SCAN", b"FLUSHALL", b"FLUSHDB", b"SWAPDB", b"SELECT"}
UNEQUAL |= {b"MULTI", b"EXEC", b"DISCARD", b"WATCH", b"UNWATCH", b"RESET", b"CLIENT", b"HELLO", b"CONFIG"}

DIRECTED = {
    "names, patterns and shards": [
        (0, "SUBSCRIBE", "a", "b", "a"),
        (0, "PSUBSCRIBE", "a*", "*"),
        (1, "SSUBSCRIBE", "a", "c"),
        (2, "PUBLISH", "a", "1"),
        (2, "PUBLISH", "", ""),
        (2, "PUBLISH", "abc", "\x00\r\n"),
        (2, "SPUBLISH", "a", "2"),
        (2, "SPUBLISH", "b", "2"),
        (2, "PUBSUB", "NUMSUB", "a", "b", "c"),
        (2, "PUBSUB", "NUMSUB"),
        (2, "PUBSUB", "SHARDNUMSUB", "a", "b"),
        (2, "PUBSUB", "CHANNELS", "a*"),
        (2, "PUBSUB", "SHARDCHANNELS", "c*"),
        (2, "PUBSUB", "NUMPAT"),
        (0, "UNSUBSCRIBE", "a", "x"),
        (0, "PUNSUBSCRIBE", "*", "x"),
        (0, "PUNSUBSCRIBE"),
        (0, "PUNSUBSCRIBE"),
        (1, "SUNSUBSCRIBE", "c", "x"),
        (1, "SUNSUBSCRIBE"),
        (1, "SUNSUBSCRIBE"),
        (0, "UNSUBSCRIBE"),
        (0, "UNSUBSCRIBE"),
        (2, "PUBLISH", "a", "1"),
    ],
    "what a client that listens may send": [
        (0, "SUBSCRIBE", "a"),
        (0, "GET", "x"),
        (0, "PING"),
        (0, "PING", "x"),
        (0, "PING", "x", "y"),
        (0, "NOSUCH"),
        (0, "GET"),
        (0, "MULTI"),
        (0, "PUBLISH", "a", "1"),
        (0, "SPUBLISH", "a", "1"),
        (0, "PUBSUB", "NUMPAT"),
        (0, "RESET"),
        (0, "GET", "x"),
        (1, "SSUBSCRIBE", "a"),
        (1, "GET", "x"),
        (1, "SUNSUBSCRIBE", "a"),
        (1, "GET", "x"),
    ],
    "transactions": [
        (0, "MULTI"),
        (0, "SUBSCRIBE", "a"),
        (0, "PSUBSCRIBE", "b"),
        (0, "SSUBSCRIBE", "c"),
        (0, "EXEC"),
        (0, "PING"),
        (1, "MULTI"),
        (1, "PUBLISH", "a", "1"),
        (1, "PUBLISH", "b", "2"),
        (1, "MONITOR"),
        (1, "EXEC"),
        (1, "WATCH", "k"),
        (1, "SUBSCRIBE", "x"),
        (2, "SET", "k", "1"),
        (1, "UNSUBSCRIBE", "x"),
        (1, "MULTI"),
        (1, "GET", "k"),
        (1, "EXEC"),
    ],
    "arguments": [
        (2, "SUBSCRIBE"),
        (2, "PSUBSCRIBE"),
        (2, "SSUBSCRIBE"),
        (2, "PUBLISH", "a"),
        (2, "PUBLISH", "a", "b", "c"),
        (2, "SPUBLISH", "a"),
        (2, "PUBSUB"),
        (2, "PUBSUB", "NOSUCH"),
        (2, "PUBSUB", "NUMPAT", "x"),
        (2, "PUBSUB", "CHANNELS", "x", "y"),
        (2, "PUBSUB", "SHARDCHANNELS", "x", "y"),
        (2, "CONFIG", "SET", "notify-keyspace-events", "Kq"),
        (2, "CONFIG", "SET", "notify-keyspace-events", "KEA"),
        (2, "CONFIG", "GET", "notify-keyspace-events"),
        (2, "CONFIG", "SET", "notify-keyspace-events", "Ex$lgd"),
        (2, "CONFIG", "GET", "notify-keyspace-events"),
        (2, "CONFIG", "SET", "notify-keyspace-events", "mKA"),
        (2, "CONFIG", "GET", "notify-keyspace-events"),
        (2, "CONFIG", "SET", "notify-keyspace-events", "KEnm"),
        (2, "CONFIG", "GET", "notify-keyspace-events"),
        (2, "CONFIG", "SET", "notify-keyspace-events", ""),
        (2, "COMMAND", "GETKEYS", "SPUBLISH", "a", "b"),
        (2, "CLIENT", "LIST", "TYPE", "pubsubs"),
    ],
}


class Side:
    """One server with its connections."""

    def __init__(self, port, resp3):
        self.clients = [Connection(port) for _ in range(CLIENTS)]
        for client in self.clients:
            if resp3:
                client.call("HELLO", "3")
        self.queueing = set()

    def step(self, client, words):
        """Sends a request; everything that the connections are sent until each has said that it goes on."""
        self.clients[client].send(harness.Raw.encode(*words))
        if words[0] in ("MULTI", "EXEC"):
            (self.queueing.add if words[0] == "MULTI" else self.queueing.discard)(client)
        said = []
        for index, connection in enumerate(self.clients):
            # It is answered whatever the connection is doing; in a transaction it is queued, which has one reply for each request.
            connection.send(harness.Raw.encode("PING", "END-OF-STEP"))
            if index in self.queueing:
                said += [(index, connection.reply().raw) for _ in range(2 if index == client else 1)]
                continue
            while (raw := connection.reply().raw) not in ENDS:
                said.append((index, raw))
        return said

    def close(self):
        for client in self.clients:
            client.close()


def directed(_):
    for name, steps in DIRECTED.items():
        for resp3 in (False, True):
            # What a client sends itself comes in another order in 7.0.
            own = resp3 and name == "what a client that listens may send"
            kept = [step for step in steps if not (own and step[1] in ("PUBLISH", "SPUBLISH"))]
            # In which order a message is told by several patterns is not promised; `play` does not compare it.
            play(name, [Side(server.port, resp3) for server in SERVERS], kept, resp3)
    return f"{len(DIRECTED)} scenarios in both protocols"


def notifications(options):
    """The events of random commands."""
    seed, steps = options.seed, options.steps
    generator = Generator(random.Random(seed))
    admins = [Connection(server.port) for server in SERVERS]
    listeners = [Connection(server.port) for server in SERVERS]
    for admin, listener in zip(admins, listeners):
        admin.call("FLUSHALL")
        admin.call("CONFIG", "SET", "notify-keyspace-events", "KEAnm")
        listener.call("PSUBSCRIBE", "__key*", "end")
        listener.reply()
    counted, done, commands = 0, [], []
    for _ in range(steps):
        generator.brief = False
        if not commands:
            words = generator.command()
            commands = [*consumers_of(words), words]
        words = commands.pop(0)
        inner = called(words) or words
        if not inner or bytes(inner[0]).upper() in UNEQUAL:
            continue
        if b"FAIL" in words:
            # Redis does not tell of a string that BITFIELD has made longer, if no field was changed.
            continue
        done = [*done[-30:], words]
        replies, told = [], []
        for admin, listener in zip(admins, listeners):
            replies.append(admin.call(*words).raw)
            admin.call("PUBLISH", "end", "x")
            told.append(events(listener))
        if generator.brief:
            # A key is about to expire: both sides are given that moment, and then look.
            time.sleep(2 * BRIEF_MS / 1000)
            for admin in admins:
                admin.call("EXISTS", *KEYS)
        # When a key expires is for each server's clock to say.
        told = [[one for one in new if one[1] != b"expired" and b":expired" not in one[0]] for new in told]
        if replies[1].startswith(b"-"):
            # What a command has looked for before it is refused is not promised.
            told = [[one for one in new if one[1] != b"keymiss" and b":keymiss" not in one[0]] for new in told]
        if inner[0].upper() in (b"SORT", b"SORT_RO"):
            # It looks in each server's own order for what belongs to the members of a set or a sorted set.
            told = [sorted(new) for new in told]
        history = "\n".join(f"    {one}" for one in done)
        assert told[0] == told[1], f"seed {seed}\n  quire: {told[0]}\n  redis: {told[1]}\n  replies {replies}\n  after\n{history}"
        counted += len(told[0])
    assert counted > steps // 10, f"only {counted} events"
    for connection in [*admins, *listeners]:
        connection.close()
    return f"{counted} events of {steps} commands, seed {seed}"


def events(listener):
    told = []
    while True:
        message = [part[1] for part in listener.reply().tree[1]]
        if message[2] == b"end":
            return told
        told.append((message[2], message[3]))


def more_arguments(parser):
    parser.add_argument("--steps", type=int, default=4000, help="how many random commands are sent")
    parser.add_argument("--seed", default="1", help="of the random commands")


if __name__ == "__main__":
    OPTIONS = harness.arguments(__doc__, more_arguments)
    with harness.scratch() as DIRECTORY, Redis(DIRECTORY) as PEER, harness.Quire(OPTIONS.quire, DIRECTORY) as SERVER:
        SERVER.ready().close()
        SERVERS = (SERVER, PEER)
        harness.run([directed, notifications], OPTIONS)
