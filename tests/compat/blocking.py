"""Commands that wait for lists, sorted sets and streams, on Quire and on redis-server: several connections each, every reply compared, and who is blocked
after every step.

Directed scenarios first, then random ones from a seed. A step is a command on one of the connections; after it both servers are asked
which connections are blocked, and connections that were and are not any more must have been given the same reply. Relies on
Debian's redis-server 7.0.15: what only 7.2 does is left to the Rust tests. It runs the request of a client that is woken again, so that
an earlier key that became another type ends the waiting, a client that waits in a group's name is told of the end of the group, or of the
stream, as one that asks for it then, and of several keys that became ready together the first in the client's
order is taken, not the one that was written first. Timeouts beyond its integers are out of range, where 7.0 calls them negative. A sorted set that ZUNIONSTORE and its kin put in the place of
another value wakes no client there, and in Quire does.
"""

import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import harness
from _pair import Connection, Redis

CLIENTS = 5
LIMIT_S = 60
# What a client is told until 7.2 whose group, or whose stream, is gone.
GONE = (b"-UNBLOCKED the stream key no longer exists\r\n", b"-NOGROUP the consumer group this client was blocked on no longer exists\r\n")
SERVERS = None


class Side:
    """One server with its connections; each calls itself after its number."""

    def __init__(self, port):
        self.admin = Connection(port)
        self.port = port
        self.clients = []

    def reset(self):
        for client in self.clients:
            client.close()
        end = time.monotonic() + LIMIT_S
        while self.names(only_blocked=False):
            assert time.monotonic() < end, "closed connections do not go"
        self.admin.call("FLUSHALL")
        self.clients = [Connection(self.port) for _ in range(CLIENTS)]
        for number, client in enumerate(self.clients):
            client.call("CLIENT", "SETNAME", f"client-{number}")
            client.id = client.call("CLIENT", "ID").tree[1]

    def names(self, only_blocked):
        """The numbers of the connections that are there, or of those of them that are blocked."""
        numbers = set()
        for line in self.admin.call("CLIENT", "LIST").tree[1].decode().splitlines():
            facts = dict(word.split("=", 1) for word in line.split(" ") if "=" in word)
            if facts["name"].startswith("client-") and ("b" in facts["flags"] or not only_blocked):
                numbers.add(int(facts["name"].removeprefix("client-")))
        return numbers


class Scenario:
    """Plays steps on both servers; an AssertionError tells the first difference, and the steps that led to it."""

    def __init__(self):
        self.sides = [Side(server.port) for server in SERVERS]
        self.steps = []

    def begin(self):
        self.steps = []
        for side in self.sides:
            side.reset()
        self.blocked = set()

    def close(self):
        for side in self.sides:
            for connection in [*side.clients, side.admin]:
                connection.close()

    def same(self, what, ours, theirs):
        if ours != theirs:
            steps = "\n".join(f"    {client}: {' '.join(map(str, words))}" for client, words in self.steps)
            raise AssertionError(f"{what}\n    quire: {ours}\n    redis: {theirs}\n  after\n{steps}")

    def blocked_at(self, side, client, data):
        """Sends a request that may wait; whether it does. Its reply is not read."""
        side.clients[client].send(data)
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            if client in side.names(only_blocked=True):
                return True
            side.clients[client].sock.settimeout(0.002)
            try:
                if side.clients[client].input.peek(1):
                    return False
            except (TimeoutError, OSError):
                # The file object must not be used after a timeout of its own; another one is laid over the socket.
                side.clients[client].input = side.clients[client].sock.makefile("rb", buffering=1 << 16)
            finally:
                side.clients[client].sock.settimeout(LIMIT_S)
        raise AssertionError(f"neither blocked nor answered: {data!r}")

    def step(self, client, *words):
        """A command of a client that is not blocked."""
        self.steps.append((client, words))
        replies = []
        if is_blocking(words):
            data = harness.Raw.encode(*words)
            waits = [self.blocked_at(side, client, data) for side in self.sides]
            self.same("whether it waits", *waits)
            if not waits[0]:
                replies = [side.clients[client].reply().raw for side in self.sides]
        else:
            replies = [side.clients[client].call(*words).raw for side in self.sides]
        if replies:
            self.same("the reply", *replies)
        self.settle()

    def settle(self):
        """Compares who is blocked, and what those were told who are not any more."""
        now = [side.names(only_blocked=True) for side in self.sides]
        self.same("who is blocked", *now)
        for client in sorted(self.blocked - now[0]):
            self.read(client)
        self.blocked = now[0]
        self.same("how many are blocked", *[counted(side) for side in self.sides])

    def read(self, client):
        """The reply of a client that was blocked."""
        ours, theirs = [side.clients[client].reply().raw for side in self.sides]
        if theirs not in GONE or not ours.startswith(b"-NOGROUP No such key '"):
            self.same(f"the reply to client {client}", ours, theirs)

    def unblock(self, by, client, *how):
        self.steps.append((by, ["CLIENT", "UNBLOCK", f"client {client}", *how]))
        replies = [side.clients[by].call("CLIENT", "UNBLOCK", side.clients[client].id, *how).raw for side in self.sides]
        self.same("the reply", *replies)
        end = time.monotonic() + LIMIT_S
        while any(client in side.names(only_blocked=True) for side in self.sides):
            assert time.monotonic() < end, "it stays blocked"
        self.settle()

    def leave(self, client):
        """A blocked client goes."""
        self.steps.append((client, ["leaves"]))
        for side in self.sides:
            side.clients[client].close()
        end = time.monotonic() + LIMIT_S
        while any(client in side.names(only_blocked=False) for side in self.sides):
            assert time.monotonic() < end, "it stays"
        self.blocked.discard(client)
        self.settle()

    def finish(self):
        self.same("the data", *[side.admin.call("DEBUG", "DIGEST").tree[1] for side in self.sides])


def counted(side):
    lines = side.admin.call("INFO", "clients").tree[1].decode().splitlines()
    return next(line for line in lines if line.startswith("blocked_clients"))


def is_blocking(words):
    name = str(words[0]).upper()
    return name.startswith("B") and name not in ("BITCOUNT", "BITOP") or name.startswith("XREAD") and "BLOCK" in words


DIRECTED = {
    "entries go to all who read, and to one consumer of each group": [
        (3, "XADD", "a", "1-1", "f", "v"),
        (3, "XGROUP", "CREATE", "a", "g", "$"),
        (3, "XGROUP", "CREATE", "a", "h", "$"),
        (0, "XREAD", "BLOCK", 0, "STREAMS", "a", "$"),
        (1, "XREADGROUP", "GROUP", "g", "x", "BLOCK", 0, "STREAMS", "a", ">"),
        (2, "XREADGROUP", "GROUP", "g", "y", "BLOCK", 0, "COUNT", 1, "STREAMS", "b", "a", ">", ">"),
        (2, "XREADGROUP", "GROUP", "g", "y", "BLOCK", 0, "COUNT", 1, "STREAMS", "a", ">"),
        (4, "XREADGROUP", "GROUP", "h", "z", "NOACK", "BLOCK", 0, "STREAMS", "a", ">"),
        (3, "XADD", "a", "2-1", "f", "v"),
        (3, "XADD", "a", "2-2", "f", "v"),
        (3, "XPENDING", "a", "g"),
        (3, "XPENDING", "a", "h"),
        (1, "XREADGROUP", "GROUP", "g", "x", "BLOCK", 0, "STREAMS", "a", "0"),
        (0, "XREAD", "BLOCK", 0, "STREAMS", "a", "b", "1-1", "$"),
        (0, "XREAD", "BLOCK", 0, "STREAMS", "a", "b", "9", "$"),
        (3, "XADD", "a", "3-1", "f", "v"),
        (3, "XADD", "b", "0-1", "f", "v"),
    ],
    "a stream that comes in a transaction, and one that goes": [
        (0, "XREAD", "BLOCK", 0, "STREAMS", "a", "$"),
        (3, "MULTI"),
        (3, "XADD", "a", "1-1", "f", "v"),
        (3, "XADD", "a", "1-2", "f", "v"),
        (3, "EXEC"),
        (0, "XREAD", "BLOCK", 0, "STREAMS", "a", "$"),
        (3, "DEL", "a"),
        (3, "SET", "a", "string"),
        (3, "DEL", "a"),
        (3, "XADD", "a", "9-1", "f", "v"),
        (0, "XREAD", "BLOCK", 0, "STREAMS", "c", 0),
        (3, "XGROUP", "CREATE", "c", "g", "0", "MKSTREAM"),
        (3, "XADD", "c", "1-1", "f", "v"),
    ],
    "the end of a group and of its stream": [
        (3, "XGROUP", "CREATE", "a", "g", "0", "MKSTREAM"),
        (0, "XREADGROUP", "GROUP", "g", "x", "BLOCK", 0, "STREAMS", "a", ">"),
        (3, "XGROUP", "DESTROY", "a", "g"),
        (3, "XGROUP", "CREATE", "a", "g", "0", "MKSTREAM"),
        (0, "XREADGROUP", "GROUP", "g", "x", "BLOCK", 0, "STREAMS", "a", ">"),
        (1, "XREAD", "BLOCK", 0, "STREAMS", "a", "$"),
        (3, "DEL", "a"),
        (3, "XGROUP", "CREATE", "a", "g", "0", "MKSTREAM"),
        (0, "XREADGROUP", "GROUP", "g", "x", "BLOCK", 0, "STREAMS", "a", ">"),
        (3, "RENAME", "a", "b"),
        (3, "XADD", "a", "1-1", "f", "v"),
    ],
    "an element goes to who came first": [
        (0, "BLPOP", "a", 0),
        (1, "BRPOP", "a", 0),
        (2, "BLPOP", "a", 0),
        (3, "RPUSH", "a", 1, 2),
        (3, "LRANGE", "a", 0, -1),
        (3, "LPUSH", "a", 3, 4, 5),
        (3, "LRANGE", "a", 0, -1),
    ],
    "several keys": [
        (0, "BLPOP", "a", "b", "c", "a", 0),
        (1, "BLPOP", "c", "b", 0),
        (3, "RPUSH", "b", 1),
        (3, "RPUSH", "c", 2),
        (0, "BLPOP", "b", "c", 0),
        (3, "MULTI"),
        (3, "RPUSH", "b", 4),
        (3, "RPUSH", "c", 3),
        (3, "EXEC"),
        (3, "LRANGE", "b", 0, -1),
        (3, "LRANGE", "c", 0, -1),
    ],
    "what is there is taken at once": [
        (3, "RPUSH", "b", 1, 2, 3),
        (0, "BLPOP", "a", "b", 0),
        (0, "BRPOP", "a", "b", 0),
        (0, "BLMPOP", 0, 2, "a", "b", "LEFT", "COUNT", 5),
        (0, "BLPOP", "b", 0),
        (3, "RPUSH", "b", 4),
    ],
    "a transaction gives what is left of it": [
        (0, "BLPOP", "a", 0),
        (1, "BLPOP", "a", 0),
        (3, "MULTI"),
        (3, "RPUSH", "a", 1, 2, 3),
        (3, "LPOP", "a"),
        (3, "DEL", "a"),
        (3, "RPUSH", "a", 4),
        (3, "EXEC"),
        (3, "MULTI"),
        (3, "RPUSH", "a", 5),
        (3, "DEL", "a"),
        (3, "EXEC"),
        (3, "RPUSH", "a", 6),
    ],
    "a transaction does not wait": [
        (0, "MULTI"),
        (0, "BLPOP", "a", 0),
        (0, "BRPOP", "a", "b", 1),
        (0, "BLMOVE", "a", "b", "LEFT", "LEFT", 0),
        (0, "BRPOPLPUSH", "a", "b", 0),
        (0, "BLMPOP", 0, 1, "a", "LEFT"),
        (0, "RPUSH", "a", 1, 2, 3, 4),
        (0, "BLPOP", "a", 0),
        (0, "BLMOVE", "a", "b", "LEFT", "LEFT", 0),
        (0, "BRPOPLPUSH", "a", "b", 0),
        (0, "BLMPOP", 0, 1, "a", "LEFT"),
        (0, "EXEC"),
    ],
    "every way in which a list comes": [
        (0, "BLPOP", "a", 0),
        (3, "RPUSH", "x", 1, 2, 3, 4, 5, 6, 7, 8),
        (3, "LMOVE", "x", "a", "LEFT", "RIGHT"),
        (0, "BLPOP", "a", 0),
        (3, "RPOPLPUSH", "x", "a"),
        (0, "BLPOP", "a", 0),
        (3, "COPY", "x", "a"),
        (3, "DEL", "a"),
        (0, "BLPOP", "a", 0),
        (3, "RENAME", "x", "a"),
        (3, "RENAME", "a", "x"),
        (0, "BLPOP", "a", 0),
        (3, "RENAMENX", "x", "a"),
        (3, "SELECT", 1),
        (3, "RPUSH", "b", 1, 2),
        (1, "BLPOP", "b", 0),
        (3, "MOVE", "b", 0),
        (0, "DEL", "b"),
        (1, "BLPOP", "b", 0),
        (3, "RPUSH", "b", 5, 6),
        (3, "SWAPDB", 0, 1),
        (3, "LPUSHX", "b", 9),
        (3, "SELECT", 0),
        (3, "RPUSH", "b", 7),
    ],
    "keys of another type": [
        (3, "SET", "s", 1),
        (0, "BLPOP", "s", 0),
        (0, "BLPOP", "a", "s", 0),
        (0, "BLMOVE", "s", "a", "LEFT", "LEFT", 0),
        (0, "BRPOPLPUSH", "s", "a", 0),
        (0, "BLMPOP", 0, 2, "a", "s", "LEFT"),
        (0, "BLPOP", "a", 0),
        (3, "SET", "a", 1),
        (3, "DEL", "a"),
        (3, "SADD", "a", 1),
        (3, "DEL", "a"),
        (3, "RPUSH", "a", 1),
        (0, "BLMOVE", "a", "s", "LEFT", "LEFT", 0),
        (1, "BLPOP", "a", 0),
        (3, "RPUSH", "a", 2),
        (3, "EXISTS", "a", "s"),
    ],
    "elements that are moved wake others": [
        (0, "BLMOVE", "a", "b", "LEFT", "RIGHT", 0),
        (1, "BLMOVE", "b", "c", "RIGHT", "LEFT", 0),
        (2, "BRPOPLPUSH", "c", "d", 0),
        (4, "BLMPOP", 0, 2, "e", "d", "RIGHT", "COUNT", 2),
        (3, "RPUSH", "a", 1, 2),
        (3, "LRANGE", "a", 0, -1),
        (0, "BLMOVE", "x", "x", "LEFT", "RIGHT", 0),
        (3, "RPUSH", "x", 1, 2),
        (3, "LRANGE", "x", 0, -1),
    ],
    "times": [
        (0, "BLPOP", "a", "x"),
        (0, "BLPOP", "a", -1),
        (0, "BLPOP", "a", "-0.002"),
        (0, "BLPOP", "a", "-1e300"),
        (0, "BLPOP", "a", "nan"),
        (0, "BLPOP", "a", ""),
        (0, "BLPOP", "a", " 1"),
        (0, "BLPOP", "a", "9223372036"),
        (3, "RPUSH", "a", 1),
        (0, "BLMOVE", "a", "b", "LEFT", "UP", "x"),
        (0, "BLMOVE", "a", "b", "LEFT", "LEFT", "x"),
        (0, "BRPOPLPUSH", "a", "b", "x"),
        (0, "BLMPOP", "x", 0, "a", "UP"),
        (0, "BLMPOP", 0, 0, "a", "UP"),
        (0, "BLMPOP", 0, 1, "a", "UP"),
        (0, "BLMPOP", 0, 1, "a", "LEFT", "COUNT", 0),
        (0, "BLMPOP", 0, 1, "a", "LEFT", "COUNT", 1, "COUNT", 1),
        (0, "BLMPOP", 0, 3, "a", "LEFT"),
        (0, "BLMPOP", 0, 1, "a", "LEFT", "JUNK"),
        (0, "BLPOP", "a"),
        (0, "BLPOP"),
        (0, "BLMOVE", "a", "b", "LEFT", "LEFT"),
        (0, "BRPOPLPUSH", "a", "b"),
        (0, "BLMPOP", 0, 1, "a"),
        (0, "BLPOP", "a", "-0.0001"),
        (3, "RPUSH", "a", 1),
    ],
    "a member goes to who came first": [
        (0, "BZPOPMIN", "a", 0),
        (1, "BZPOPMAX", "a", "b", 0),
        (2, "BZMPOP", 0, 2, "b", "a", "MIN", "COUNT", 2),
        (3, "ZADD", "a", 1, "x", 2, "y"),
        (3, "ZRANGE", "a", 0, -1),
        (3, "ZADD", "a", 3, "x", 4, "y", 5, "z"),
        (3, "ZRANGE", "a", 0, -1, "WITHSCORES"),
        (0, "BZMPOP", 0, 1, "a", "MAX", "COUNT", 10),
        (0, "BZPOPMIN", "b", "a", 0),
        (3, "ZADD", "b", 0.5, "w", "inf", "v"),
        (0, "BZPOPMAX", "a", "b", 0),
        (0, "BZPOPMAX", "a", "b", 0),
        (3, "ZADD", "a", "-inf", "x"),
    ],
    "every way in which a sorted set comes": [
        (3, "ZADD", "x", 1, "m", 2, "n", 3, "o"),
        (0, "BZPOPMIN", "a", 0),
        (3, "ZINCRBY", "a", 5, "m"),
        (0, "BZPOPMIN", "a", 0),
        (3, "ZADD", "a", "INCR", 5, "m"),
        (0, "BZPOPMIN", "a", 0),
        (3, "ZUNIONSTORE", "a", 2, "x", "none"),
        (3, "DEL", "a"),
        (0, "BZPOPMAX", "a", 0),
        (3, "ZINTERSTORE", "a", 1, "x", "WEIGHTS", 2),
        (3, "DEL", "a"),
        (0, "BZPOPMAX", "a", 0),
        (3, "ZDIFFSTORE", "a", 1, "x"),
        (3, "DEL", "a"),
        (0, "BZMPOP", 0, 1, "a", "MAX"),
        (3, "ZRANGESTORE", "a", "x", 1, 1),
        (0, "BZPOPMIN", "a", 0),
        (3, "ZUNIONSTORE", "a", 1, "none"),
        (3, "COPY", "x", "a"),
        (3, "DEL", "a"),
        (0, "BZPOPMIN", "a", 0),
        (3, "RENAME", "x", "a"),
        (3, "RENAME", "a", "x"),
        (0, "BZPOPMIN", "a", 0),
        (3, "RENAMENX", "x", "a"),
        (3, "SELECT", 1),
        (3, "ZADD", "b", 1, "m", 2, "n"),
        (1, "BZPOPMIN", "b", 0),
        (3, "MOVE", "b", 0),
        (0, "DEL", "b"),
        (1, "BZPOPMIN", "b", 0),
        (3, "ZADD", "b", 1, "m", 2, "n"),
        (3, "SWAPDB", 0, 1),
        (3, "SELECT", 0),
        (3, "ZADD", "b", 7, "m"),
    ],
    "lists and sorted sets at one key": [
        (0, "BZPOPMIN", "a", 0),
        (1, "BLPOP", "a", 0),
        (2, "BZPOPMAX", "a", 0),
        (3, "RPUSH", "a", 1),
        (3, "SET", "a", 1),
        (3, "DEL", "a"),
        (3, "SADD", "a", 1),
        (3, "DEL", "a"),
        (1, "BLMOVE", "a", "b", "LEFT", "LEFT", 0),
        (3, "ZADD", "a", 1, "x", 2, "y", 3, "z"),
        (3, "ZRANGE", "a", 0, -1),
        (3, "MULTI"),
        (3, "DEL", "a"),
        (3, "RPUSH", "a", 2, 3),
        (3, "DEL", "a"),
        (3, "ZADD", "a", 3, "z"),
        (3, "EXEC"),
        (0, "BZPOPMIN", "a", 0),
        (0, "BZPOPMIN", "a", 0),
        (3, "MULTI"),
        (3, "ZADD", "a", 3, "z"),
        (3, "DEL", "a"),
        (3, "RPUSH", "a", 5),
        (3, "EXEC"),
        (3, "LRANGE", "b", 0, -1),
        (3, "RPUSH", "a", 6),
        (3, "RENAME", "a", "c"),
        (3, "ZADD", "a", 1, "x"),
    ],
    "keys of another type for sorted sets": [
        (3, "SET", "s", 1),
        (3, "RPUSH", "l", 1),
        (0, "BZPOPMIN", "s", 0),
        (0, "BZPOPMAX", "a", "l", 0),
        (0, "BZMPOP", 0, 2, "a", "s", "MIN"),
        (0, "BZMPOP", "x", 2, "l", "s", "MIN"),
        (3, "ZADD", "z", 1, "x"),
        (0, "BLPOP", "z", 0),
        (0, "BLMOVE", "l", "z", "LEFT", "LEFT", 0),
        (0, "BZPOPMIN", "z", "s", 0),
        (0, "BZPOPMIN", "z", "s", 0),
    ],
    "a transaction does not wait for a sorted set": [
        (0, "MULTI"),
        (0, "BZPOPMIN", "a", 0),
        (0, "BZPOPMAX", "a", "b", 1),
        (0, "BZMPOP", 0, 1, "a", "MIN"),
        (0, "ZADD", "a", 1, "x", 2, "y", 3, "z"),
        (0, "BZPOPMIN", "b", "a", 0),
        (0, "BZPOPMAX", "a", 0),
        (0, "BZMPOP", 0, 1, "a", "MIN"),
        (0, "EXEC"),
    ],
    "words of commands that wait for sorted sets": [
        (0, "BZPOPMIN", "a", "x"),
        (0, "BZPOPMAX", "a", -1),
        (0, "BZPOPMIN", "a", "nan"),
        (0, "BZPOPMIN", "a"),
        (0, "BZPOPMAX"),
        (0, "BZMPOP", "x", 0, "a", "UP"),
        (0, "BZMPOP", 0, 0, "a", "UP"),
        (0, "BZMPOP", 0, -1, "a", "MIN"),
        (0, "BZMPOP", 0, 1, "a", "UP"),
        (0, "BZMPOP", 0, 1, "a", "MIN", "COUNT", 0),
        (0, "BZMPOP", 0, 1, "a", "MIN", "COUNT", -1),
        (0, "BZMPOP", 0, 1, "a", "MIN", "COUNT", 1, "COUNT", 1),
        (0, "BZMPOP", 0, 1, "a", "MIN", "COUNT"),
        (0, "BZMPOP", 0, 3, "a", "MIN"),
        (0, "BZMPOP", 0, 1, "a", "MIN", "JUNK"),
        (0, "BZMPOP", 0, 1, "a"),
        (0, "BZMPOP", "-0.1", 1, "a", "MIN"),
        (0, "BZMPOP", 0, 2, "a", "b", "max", "count", 2),
        (3, "ZADD", "b", 1, "x", 2, "y", 3, "z"),
    ],
}


def directed(_):
    scenario = Scenario()
    failures = []
    for name, steps in DIRECTED.items():
        scenario.begin()
        try:
            for client, *words in steps:
                scenario.step(client, *words)
            scenario.finish()
        except AssertionError as error:
            failures.append(f"{name}: {error}")
    scenario.close()
    assert not failures, f"{len(failures)} differences\n" + "\n".join(failures)
    return f"{len(DIRECTED)} scenarios"


def time_is_up(_):
    """The replies of those whose time is up. The timeouts are short; nothing is measured."""
    scenario = Scenario()
    scenario.begin()
    requests = [
        ("BLPOP", "a", "b", "0.01"),
        ("BRPOP", "a", "0.001"),
        ("BLMOVE", "a", "b", "LEFT", "RIGHT", "0.02"),
        ("BRPOPLPUSH", "a", "b", "1e-2"),
        ("BLMPOP", "0.01", 2, "a", "b", "LEFT", "COUNT", 3),
        ("BZPOPMIN", "a", "b", "0.01"),
        ("BZPOPMAX", "a", "0.001"),
        ("BZMPOP", "0.01", 2, "a", "b", "MIN", "COUNT", 3),
    ]
    for words in requests:
        for protocol in (2, 3):
            for side in scenario.sides:
                side.clients[0].call("HELLO", protocol)
            scenario.steps.append((0, list(words)))
            replies = [side.clients[0].call(*words).raw for side in scenario.sides]
            scenario.same(f"the reply in protocol {protocol}", *replies)
    scenario.settle()
    scenario.step(1, "RPUSH", "a", 1)
    scenario.step(1, "LRANGE", "a", 0, -1)
    scenario.finish()
    scenario.close()


def others_end_the_waiting(_):
    scenario = Scenario()
    element, member = ("RPUSH", "a", 1), ("ZADD", "a", 1, "x")
    for words, coming in (
        (("BLPOP", "a", 0), element),
        (("BLMOVE", "a", "b", "LEFT", "LEFT", 0), element),
        (("BLMPOP", 0, 1, "a", "LEFT"), element),
        (("BRPOPLPUSH", "a", "b", 100), element),
        (("BZPOPMIN", "a", 0), member),
        (("BZMPOP", 0, 1, "a", "MAX"), member),
    ):
        scenario.begin()
        for how in ([], ["TIMEOUT"], ["ERROR"], ["error"]):
            scenario.step(0, *words)
            scenario.step(1, *words)
            scenario.unblock(3, 0, *how)
            scenario.step(3, *coming)
            scenario.unblock(3, 1, *how)
        scenario.step(0, *words)
        scenario.step(1, *words)
        scenario.leave(0)
        scenario.step(3, *coming)
        scenario.finish()
    scenario.close()


def pipelines(_):
    """Requests behind one that waits, and behind one that wakes another client."""
    scenario = Scenario()
    encode = harness.Raw.encode
    for pushed, waiter in (
        ([("RPUSH", "a", 1), ("LPOP", "a"), ("RPUSH", "a", 2, 3), ("LRANGE", "a", 0, -1)], [("BLPOP", "a", 0)]),
        ([("RPUSH", "a", 1, 2, 3), ("LLEN", "a")], [("BLPOP", "a", 0), ("LPOP", "a"), ("LLEN", "a")]),
        ([("RPUSH", "a", 1), ("RPUSH", "a", 2), ("RPUSH", "a", 3)], [("BLPOP", "a", 0), ("BLPOP", "a", 0), ("PING",)]),
        ([("MULTI",), ("RPUSH", "a", 1), ("EXEC",), ("LLEN", "a")], [("BLPOP", "a", 0), ("SET", "x", 1)]),
    ):
        scenario.begin()
        for side in scenario.sides:
            for number, words in ((0, waiter), (1, [("BLPOP", "a", 0)])):
                side.clients[number].send(b"".join(encode(*each) for each in words))
                end = time.monotonic() + LIMIT_S
                while number not in side.names(only_blocked=True):
                    assert time.monotonic() < end
            side.clients[2].send(b"".join(encode(*each) for each in pushed))
        scenario.steps = [(0, waiter), (2, pushed)]
        scenario.same("the replies", *[[side.clients[2].reply().raw for _ in pushed] for side in scenario.sides])
        scenario.same("who is blocked", *[side.names(only_blocked=True) for side in scenario.sides])
        # Those who still wait get enough.
        for side in scenario.sides:
            for _ in range(4):
                side.admin.call("RPUSH", "a", "more")
        scenario.same("the other's reply", *[side.clients[1].reply().raw for side in scenario.sides])
        scenario.same("the waiter's replies", *[[side.clients[0].reply().raw for _ in waiter] for side in scenario.sides])
        scenario.finish()
    scenario.close()


class Generator:
    """Random steps of some clients on few keys. In some episodes clients wait on several keys each, and then nothing makes two keys ready
    in one step, and all values are of one type: 7.0 and 7.2 would take elements from different ones. Where clients wait on one key each, some
    episodes have lists and sorted sets."""

    KEYS = ["a", "b", "c"]

    def __init__(self, dice):
        self.dice = dice
        self.several = dice.random() < 0.5
        self.types = dice.choice([["list"], ["zset"]] if self.several else [["list"], ["zset"], ["list", "zset"]])
        # All that a transaction makes ready, if clients wait on several keys.
        self.only = None

    def key(self):
        return self.only or self.dice.choice(self.KEYS)

    def end(self):
        return self.dice.choice(["LEFT", "RIGHT"])

    def waiting(self):
        keys = [self.key() for _ in range(self.dice.randrange(1, 4) if self.several else 1)]
        if self.dice.choice(self.types) == "zset":
            return self.dice.choice([
                ["BZPOPMIN", *keys, 0],
                ["BZPOPMAX", *keys, 0],
                ["BZMPOP", 0, len(keys), *keys, self.dice.choice(["MIN", "MAX"]), "COUNT", self.dice.randrange(1, 4)],
            ])  # fmt: skip
        pops = [
            ["BLPOP", *keys, 0],
            ["BRPOP", *keys, 0],
            ["BLMPOP", 0, len(keys), *keys, self.end(), "COUNT", self.dice.randrange(1, 4)],
        ]
        moves = [
            ["BLMOVE", self.key(), self.key(), self.end(), self.end(), 0],
            ["BRPOPLPUSH", self.key(), self.key(), 0],
        ]
        return self.dice.choice(pops if self.several else pops + moves)

    def other(self):
        choices = [
            (1, ["RENAME", self.key(), self.key()]),
            (1, ["COPY", self.key(), self.key(), "REPLACE"]),
            (1, ["DEL", self.key()]),
            (1, ["MULTI"]),
            (1, ["MOVE", self.key(), 1]),
        ]
        choices += self.list_steps() if self.dice.choice(self.types) == "list" else self.zset_steps()
        return self.dice.choices([words for _, words in choices], [weight for weight, _ in choices])[0]

    def list_steps(self):
        number = self.dice.randrange(100)
        return [
            (5, ["RPUSH", self.key(), *range(number, number + self.dice.randrange(1, 4))]),
            (5, ["LPUSH", self.key(), *range(number, number + self.dice.randrange(1, 4))]),
            (1, ["LPUSHX", self.key(), number]),
            (2, ["LMOVE", self.key(), self.key(), self.end(), self.end()]),
            (1, ["LTRIM", self.key(), 1, -1]),
            (1, ["LPOP", self.key(), 2]),
            (1, ["LRANGE", self.key(), 0, -1]),
        ]

    def zset_steps(self):
        members = [word for _ in range(self.dice.randrange(1, 4)) for word in (self.dice.randrange(-9, 9), f"m{self.dice.randrange(9)}")]
        steps = [
            (9, ["ZADD", self.key(), *members]),
            (2, ["ZINCRBY", self.key(), *members[:2]]),
            (1, ["ZREM", self.key(), *members[1::2]]),
            (1, ["ZPOPMAX", self.key(), 2]),
            (1, ["ZREMRANGEBYRANK", self.key(), 0, 0]),
            (1, ["ZRANGE", self.key(), 0, -1, "WITHSCORES"]),
        ]
        # In the place of a list what these make wakes clients of Quire alone.
        if len(self.types) == 1:
            steps.append((1, ["ZUNIONSTORE", self.key(), 2, self.key(), self.key()]))
            steps.append((1, ["ZINTERSTORE", self.key(), 1, self.key()]))
            steps.append((1, ["ZRANGESTORE", self.key(), self.key(), 0, 1]))
        return steps


def random_scenarios(options):
    scenario = Scenario()
    end = time.monotonic() + options.seconds
    episodes = steps = 0
    while time.monotonic() < end:
        dice = random.Random(f"{options.seed}:{episodes}")
        generator = Generator(dice)
        scenario.begin()
        for _ in range(60):
            free = sorted(set(range(CLIENTS)) - scenario.blocked)
            steps += 1
            # One client never waits, so that there is always one that can go on.
            if scenario.blocked and dice.random() < 0.03:
                scenario.unblock(CLIENTS - 1, dice.choice(sorted(scenario.blocked)), dice.choice(["TIMEOUT", "ERROR"]))
                continue
            client = dice.choice(free)
            if client != CLIENTS - 1 and dice.random() < 0.5:
                scenario.step(client, *generator.waiting())
                continue
            words = generator.other()
            scenario.step(client, *words)
            if words == ["MULTI"]:
                generator.only = generator.key() if generator.several else None
                for _ in range(dice.randrange(1, 4)):
                    inner = generator.other()
                    scenario.step(client, *(inner if inner != ["MULTI"] else ["PING"]))
                generator.only = None
                scenario.step(client, "EXEC")
        scenario.finish()
        episodes += 1
    scenario.close()
    return f"{steps} steps in {episodes} episodes"


def more_arguments(parser):
    parser.add_argument("--seconds", type=float, default=15, help="how long random commands are sent")
    parser.add_argument("--seed", default="1", help="of the random commands")


if __name__ == "__main__":
    OPTIONS = harness.arguments(__doc__, more_arguments)
    with harness.scratch() as DIRECTORY, Redis(DIRECTORY) as PEER, harness.Quire(OPTIONS.quire, DIRECTORY) as SERVER:
        SERVER.ready().close()
        SERVERS = (SERVER, PEER)
        harness.run([directed, time_is_up, others_end_the_waiting, pipelines, random_scenarios], OPTIONS)
