"""Client-side caching (CLIENT TRACKING) on Quire and on redis-server.

Directed scenarios: a step is a command on one of several connections, after which everything that any connection has been sent is
compared, in both protocols. Then random steps from a seed: commands that read and write a few keys, and changes of what is tracked how.
Last a client library that keeps a cache of its own. Relies on Debian's redis-server and, for the last, on Debian's redis-py.
"""

import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import harness
from _pair import Connection, Redis, play

SERVERS = None
CLIENTS = 4
END = "END-OF-STEP"
ENDS = (b"$11\r\nEND-OF-STEP\r\n", b"*2\r\n$4\r\npong\r\n$11\r\nEND-OF-STEP\r\n")
ON = ("CLIENT", "TRACKING", "ON")
OFF = ("CLIENT", "TRACKING", "OFF")
INFO = ("CLIENT", "TRACKINGINFO")
LISTEN = ("SUBSCRIBE", "__redis__:invalidate")

# "@2" stands for the number of connection 2.
DIRECTED = {
    "what is read is told once": [
        (0, *ON),
        (0, "GET", "a"),
        (1, "SET", "a", "1"),
        (1, "SET", "a", "2"),
        (0, "MGET", "a", "b", "a"),
        (1, "MSET", "a", "3", "b", "1", "c", "1"),
        (0, "STRLEN", "a"),
        (0, "SET", "a", "4"),
        (0, "HGETALL", "a"),
        (1, "RENAME", "a", "d"),
        (0, "EXISTS", "d", "e"),
        (1, "COPY", "d", "e"),
        (0, "TYPE", "e"),
        (1, "SELECT", "1"),
        (1, "SET", "e", "1"),
        (0, "ZRANGE", "z", "0", "-1"),
        (1, "ZADD", "z", "1", "m"),
        (0, "SINTERCARD", "2", "s", "t"),
        (1, "SADD", "t", "m"),
        (1, "SADD", "t", "m"),
        (0, "XREAD", "STREAMS", "x", "y", "0", "0"),
        (1, "XADD", "y", "1-1", "f", "v"),
        (0, "OBJECT", "ENCODING", "z"),
        (1, "DEL", "z", "none"),
        (0, "GETEX", "d"),
        (0, "GETDEL", "d"),
        (1, "SET", "d", "1"),
        (0, "GET", "w"),
        (1, "GET", "w"),
        (0, *OFF),
        (1, "SET", "w", "1"),
        (0, *INFO),
    ],
    "redirection": [
        (1, *LISTEN),
        (0, *ON, "REDIRECT", "@1"),
        (0, *INFO),
        (0, "CLIENT", "GETREDIR"),
        (2, "CLIENT", "GETREDIR"),
        (0, "GET", "a"),
        (2, "SET", "a", "1"),
        (0, "GET", "a"),
        (0, "SET", "a", "2"),
        (2, *ON, "REDIRECT", "@1"),
        (0, "GET", "a"),
        (2, "GET", "a"),
        (3, "SET", "a", "3"),
        (2, "FLUSHDB"),
        (3, "FLUSHALL"),
        (0, *ON, "REDIRECT", "@0"),
        (0, "GET", "a"),
        (3, "SET", "a", "3"),
        (0, *ON, "REDIRECT", "@3"),
        (0, "GET", "a"),
        (2, "SET", "a", "3"),
        (0, "GET", "a"),
        (3, "RESET"),
        (2, "SET", "a", "3"),
    ],
    "a redirection that is broken": [
        (0, *ON, "REDIRECT", "@3"),
        (0, "GET", "a"),
        (3, "QUIT"),
        (1, "SET", "a", "1"),
        (0, *INFO),
        (0, "GET", "a"),
        (0, "SET", "a", "2"),
        (1, "FLUSHALL"),
        (0, *ON),
        (0, *INFO),
    ],
    "broadcast": [
        (0, *ON, "BCAST", "PREFIX", "a", "PREFIX", "bc"),
        (1, *ON, "BCAST"),
        (2, *ON, "BCAST", "NOLOOP", "PREFIX", "a"),
        (0, *INFO),
        (1, *INFO),
        (2, *INFO),
        (3, "SET", "a", "1"),
        (3, "MSET", "b", "1", "bc", "1", "bcd", "1", "a", "1"),
        (2, "MSET", "a1", "1", "a2", "1", "c", "1"),
        (2, "MULTI"),
        (2, "SET", "a", "1"),
        (2, "SET", "ab", "1"),
        (2, "EXEC"),
        (0, "GET", "a"),
        (3, "FLUSHALL"),
        (0, *ON, "BCAST", "PREFIX", "x"),
        (0, *INFO),
        (3, "SET", "xy", "1"),
        (0, *ON, "BCAST", "REDIRECT", "@3"),
        (3, "SET", "xy", "1"),
        (3, *LISTEN),
        (2, "SET", "xy", "1"),
        (0, *OFF),
        (2, "SET", "xy", "1"),
    ],
    "choices": [
        (0, *ON, "OPTIN"),
        (1, *ON, "OPTOUT"),
        (0, "GET", "a"),
        (1, "GET", "a"),
        (2, "SET", "a", "1"),
        (0, "CLIENT", "CACHING", "YES"),
        (0, *INFO),
        (0, "GET", "a"),
        (0, *INFO),
        (0, "GET", "b"),
        (1, "CLIENT", "CACHING", "NO"),
        (1, *INFO),
        (1, "GET", "a"),
        (1, "GET", "b"),
        (2, "MSET", "a", "1", "b", "1"),
        (0, "CLIENT", "CACHING", "YES"),
        (0, "MULTI"),
        (0, "GET", "a"),
        (0, "GET", "b"),
        (0, "EXEC"),
        (0, "GET", "c"),
        (2, "MSET", "a", "1", "b", "1", "c", "1"),
        (0, "CLIENT", "CACHING", "YES"),
        (0, "CLIENT", "ID", "x"),
        (0, "GET"),
        (0, "GET", "a"),
        (2, "SET", "a", "1"),
    ],
    "own changes": [
        (0, *ON),
        (0, "MGET", "a", "b"),
        (0, "MSET", "b", "1", "a", "1"),
        (0, "MGET", "a", "b"),
        (0, "MULTI"),
        (0, "SET", "b", "1"),
        (0, "GET", "c"),
        (0, "DEL", "a"),
        (0, "EXEC"),
        (0, "FLUSHALL"),
        (0, *ON, "NOLOOP"),
        (0, "MGET", "a", "b"),
        (0, "SET", "a", "1"),
        (1, "SET", "b", "1"),
        (0, "FLUSHDB"),
        # Until 7.2 all keys are tracked that a script which reads is called with.
        (0, "EVAL", "return redis.call('mget', KEYS[1], KEYS[2])", "2", "a", "b"),
        (1, "EVAL", "redis.call('set', KEYS[1], 1) return redis.call('set', KEYS[2], 1)", "2", "a", "b"),
        (0, "EVAL", "return redis.call('set', KEYS[1], 1)", "2", "a", "b"),
        (1, "SET", "b", "1"),
        (0, "EVAL_RO", "return 1", "1", "a"),
        (1, "SET", "a", "1"),
        (0, "MULTI"),
        (0, "EVAL", "return redis.call('exists', KEYS[1])", "1", "a"),
        (0, "EXEC"),
        (1, "MSET", "a", "1", "x", "1"),
    ],
    "arguments": [
        (0, "CLIENT", "TRACKING"),
        (0, "CLIENT", "TRACKING", "YES"),
        (0, *ON, "NOSUCH"),
        (0, "CLIENT", "TRACKING", "YES", "NOSUCH"),
        (0, *ON, "REDIRECT"),
        (0, *ON, "REDIRECT", "x"),
        (0, *ON, "REDIRECT", "0"),
        (0, *ON, "REDIRECT", "-1"),
        (0, *ON, "REDIRECT", "99999999"),
        (0, *ON, "REDIRECT", "@1", "REDIRECT", "@2"),
        (0, *ON, "PREFIX"),
        (0, *ON, "PREFIX", "a"),
        (0, *ON, "BCAST", "OPTIN"),
        (0, *ON, "BCAST", "OPTOUT"),
        (0, *ON, "OPTIN", "OPTOUT"),
        (0, *ON, "BCAST", "PREFIX", "ab", "PREFIX", "x", "PREFIX", "a"),
        (0, *INFO),
        (0, *ON, "OPTIN"),
        (0, *ON, "OPTOUT"),
        (0, *ON, "BCAST"),
        (0, *ON, "OPTIN"),
        (0, *ON),
        (0, *INFO),
        (0, *OFF, "BCAST", "PREFIX", "a"),
        (0, *OFF),
        (0, *ON, "BCAST", "PREFIX", "foo", "PREFIX", "bar"),
        (0, *ON),
        (0, *ON, "BCAST", "PREFIX", "fo"),
        (0, *ON, "BCAST", "PREFIX", "bar"),
        (0, *ON, "BCAST", "PREFIX", "barn"),
        (0, *ON, "BCAST", "PREFIX", ""),
        (0, *INFO),
        (0, "CLIENT", "CACHING"),
        (0, "CLIENT", "CACHING", "YES"),
        (0, *OFF),
        (0, "CLIENT", "CACHING", "YES"),
        (0, "CLIENT", "CACHING", "NO"),
        (0, "CLIENT", "CACHING", "MAYBE"),
        (0, *ON, "OPTOUT"),
        (0, "CLIENT", "CACHING", "YES"),
        (0, "CLIENT", "CACHING", "MAYBE"),
        (0, "CLIENT", "GETREDIR", "x"),
        (0, "CLIENT", "TRACKINGINFO", "x"),
        (1, "MULTI"),
        (1, *ON),
        (1, *INFO),
        (1, "EXEC"),
        (2, "EVAL", "return redis.call('client', 'tracking', 'on')", "0"),
        (2, "CONFIG", "GET", "tracking-table-max-keys"),
        (2, "CONFIG", "SET", "tracking-table-max-keys", "-1"),
        (2, "CONFIG", "SET", "tracking-table-max-keys", "x"),
    ],
}


class Side:
    """One server with its connections."""

    def __init__(self, port, resp3):
        self.clients = [Connection(port) for _ in range(CLIENTS)]
        self.clients[0].call("FLUSHALL")
        self.ids = [client.call("CLIENT", "ID").tree[1] for client in self.clients]
        if resp3:
            for client in self.clients:
                client.call("HELLO", "3")
        # Redis keeps what clients may have when none tracks any more, so one always does.
        self.keeper = Connection(port)
        self.keeper.call(*ON, "OPTIN")
        self.queueing = set()

    def step(self, client, words):
        """Sends a request; everything that the connections are sent until each has said that it goes on."""
        words = [str(self.ids[int(word[1:])]) if word[:1] == "@" else word for word in words]
        connection = self.clients[client]
        connection.send(harness.Raw.encode(*words))
        asks = words[0] == "CLIENT" and words[1] in ("GETREDIR", "TRACKINGINFO")
        raw = connection.reply().raw
        said = [(client, self.named(raw) if asks else raw)]
        if words[0] in ("MULTI", "EXEC"):
            (self.queueing.add if words[0] == "MULTI" else self.queueing.discard)(client)
        if words[0] == "QUIT":
            connection.close()
            self.clients[client] = None
        for index, connection in enumerate(self.clients):
            # What is told at the end of a turn has been sent before the next request is read.
            if connection is None or index in self.queueing:
                continue
            connection.send(harness.Raw.encode("PING", END))
            while (raw := connection.reply().raw) not in ENDS:
                said.append((index, self.named(raw) if b"tracking-redir-broken" in raw else raw))
        return said

    def named(self, raw):
        """The connections' numbers, which differ between the servers, by their places."""
        for place, number in enumerate(self.ids):
            raw = raw.replace(b":%d\r\n" % number, b":@%d\r\n" % place)
        return raw

    def close(self):
        for client in filter(None, [*self.clients, self.keeper]):
            client.close()


def sides(resp3):
    """What `play` drives. One that knows of both of its tables has no order for the clients of a key."""
    return [Side(server.port, resp3) for server in SERVERS]


def directed(_):
    for name, steps in DIRECTED.items():
        for resp3 in (False, True):
            play(name, sides(resp3), steps, resp3)
    return f"{len(DIRECTED)} scenarios in both protocols"


def random_steps(options):
    """Commands on a few keys, by clients that track in all the ways."""
    draw = random.Random(options.seed)
    keys = ["a", "ab", "b", "bc", "c"]

    def step():
        client, key, other = draw.randrange(CLIENTS), draw.choice(keys), draw.choice(keys)
        words = draw.choice(
            [
                ("GET", key),
                ("GET", key),
                ("MGET", key, other),
                ("EXISTS", key, other),
                ("STRLEN", key),
                ("TYPE", key),
                ("SET", key, "1"),
                ("SET", key, "1"),
                ("MSET", key, "1", other, "2"),
                ("DEL", key, other),
                ("RENAME", key, other),
                ("EXPIRE", key, "1000"),
                ("PERSIST", key),
                ("SETRANGE", key, "0", ""),
                ("APPEND", key, "x"),
                ("COPY", key, other, "REPLACE"),
                ("SUNIONSTORE", key, "none"),
                ("EVAL", "return redis.call('get', KEYS[1])", "1", key),
                ("EVAL", "return redis.call('set', KEYS[1], 1)", "1", key),
                ("FLUSHDB",),
                ON,
                (*ON, "NOLOOP"),
                (*ON, "OPTIN"),
                (*ON, "OPTOUT", "NOLOOP"),
                (*ON, "BCAST", "PREFIX", key),
                (*ON, "BCAST", "NOLOOP"),
                (*ON, "REDIRECT", f"@{draw.randrange(CLIENTS)}"),
                ("CLIENT", "CACHING", draw.choice(["YES", "NO"])),
                OFF,
                INFO,
                ("CLIENT", "GETREDIR"),
            ]
        )
        return (client, *words)

    for episode in range(options.episodes):
        resp3 = episode % 2 == 1
        play(f"episode {episode} of seed {options.seed}", sides(resp3), [step() for _ in range(150)], resp3)
    return f"{options.episodes} episodes of 150 steps, seed {options.seed}"


def bounded(_):
    """Of which keys clients are told when there are too many is drawn; at which places among the replies is not."""
    told = []
    for server in SERVERS:
        client = Connection(server.port)
        client.call("HELLO", "3")
        client.call("FLUSHALL")
        client.call(*ON)
        client.call("MGET", *(f"key:{number}" for number in range(10)))
        requests = [
            ("CONFIG", "SET", "tracking-table-max-keys", "4"),
            ("PING", "1"),
            ("GET", "key:10"),
            ("GET", "key:11"),
            ("MULTI",),
            ("MGET", "key:12", "key:13", "key:14"),
            ("EXEC",),
            ("CONFIG", "SET", "tracking-table-max-keys", "1"),
            ("MULTI",),
            ("GET", "key:15"),
            ("EXEC",),
            ("EVAL", "return {redis.call('get', KEYS[1]), redis.call('get', KEYS[2])}", "2", "key:16", "key:17"),
            ("CONFIG", "SET", "tracking-table-max-keys", "1000000"),
            ("PING", END),
        ]
        client.send(b"".join(harness.Raw.encode(*words) for words in requests))
        said = []
        while not said or said[-1] not in ENDS:
            raw = client.reply().raw
            said.append(b"invalidate" if raw.startswith(b">2\r\n$10\r\ninvalidate") else raw)
        told.append(said)
        client.close()
    assert told[0] == told[1], f"\n  quire {told[0]}\n  redis {told[1]}"
    return f"{told[0].count(b'invalidate')} keys"


def figures(_):
    """What INFO and CLIENT LIST tell."""
    told = []
    for server in SERVERS:
        clients = [Connection(server.port) for _ in range(3)]
        clients[0].call("FLUSHALL")
        clients[0].call(*ON)
        clients[1].call(*ON, "BCAST", "PREFIX", "a", "PREFIX", "b")
        clients[0].call("MGET", "a", "b", "c")
        clients[2].call(*ON, "REDIRECT", str(clients[0].call("CLIENT", "ID").tree[1]))
        clients[2].call("GET", "a")
        lines = clients[0].call("INFO", "everything").tree[1].decode().split("\r\n")
        one = [line for line in lines if line.startswith("tracking_") and not line.startswith("tracking_memory_bytes")]
        one += [clients[at].call("CLIENT", "INFO").tree[1].split(b" flags=")[1].split()[0] for at in range(3)]
        one.append(b" redir=-1 " not in clients[0].call("CLIENT", "INFO").tree[1])
        told.append(one)
        for client in clients:
            client.close()
    assert told[0] == told[1], f"\n  quire {told[0]}\n  redis {told[1]}"
    return f"{len(told[0])} figures"


def library(_):
    """A client of redis-py that keeps what it has read until it is told that it is not valid."""
    import redis

    server = SERVERS[0]
    cache = {}
    listener = redis.Redis(port=server.port)
    told = listener.pubsub()
    told.subscribe("__redis__:invalidate")
    assert told.get_message(timeout=10)["type"] == "subscribe"
    number = [one["id"] for one in listener.client_list() if one["sub"] == "1"][0]
    reader = redis.Redis(port=server.port, single_connection_client=True)
    reader.execute_command("CLIENT", "TRACKING", "ON", "REDIRECT", number)
    writer = redis.Redis(port=server.port)
    writer.flushall()
    assert told.get_message(timeout=10)["data"] is None, "all keys are gone"
    draw = random.Random(7)
    for turn in range(300):
        key = b"key:%d" % draw.randrange(10)
        if draw.random() < 0.3:
            writer.set(key, turn)
            while key in cache:
                for name in told.get_message(timeout=10)["data"]:
                    cache.pop(name, None)
        elif key in cache:
            assert cache[key] == writer.get(key), key
        else:
            cache[key] = reader.get(key)
    told.close()
    return "300 turns of a cache"


def more_arguments(parser):
    parser.add_argument("--episodes", type=int, default=20, help="how many random ones are played")
    parser.add_argument("--seed", default="1", help="of the random steps")


if __name__ == "__main__":
    OPTIONS = harness.arguments(__doc__, more_arguments)
    with harness.scratch() as DIRECTORY, Redis(DIRECTORY) as PEER, harness.Quire(OPTIONS.quire, DIRECTORY) as SERVER:
        SERVER.ready().close()
        SERVERS = (SERVER, PEER)
        harness.run([directed, random_steps, bounded, figures, library], OPTIONS)
