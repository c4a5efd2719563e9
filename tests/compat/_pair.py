"""Quire and redis-server side by side: connections that keep the raw bytes of every reply.

Relies on Debian's redis-server as the peer. Both servers are ended here, by their own process ids.
"""

import contextlib
import os
import socket
import subprocess
import time

import harness
from _generate import USERS


class Reply:
    """One reply: its bytes, and its tree of (marker, content)."""

    def __init__(self, raw, tree):
        self.raw = raw
        self.tree = tree

    def __str__(self):
        return repr(self.raw if len(self.raw) <= 300 else self.raw[:300] + b"...(%d bytes)" % len(self.raw))


class Connection:
    """A connection that speaks RESP2 and RESP3."""

    def __init__(self, port):
        self.sock = socket.create_connection(("127.0.0.1", port), 30)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.input = self.sock.makefile("rb", buffering=1 << 16)

    def send(self, data):
        self.sock.sendall(data)

    def reply(self):
        parts = []
        tree = self._read(parts)
        return Reply(b"".join(parts), tree)

    def call(self, *words):
        self.send(harness.Raw.encode(*words))
        return self.reply()

    def _read(self, parts):
        line = self.input.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the connection was closed")
        parts.append(line)
        marker, rest = chr(line[0]), line[1:-2]
        if marker == ":":
            return marker, int(rest)
        if marker in "+-,#_(":
            return marker, rest
        if marker not in "$=*~>%":
            raise ConnectionError(f"unknown reply {line!r}")
        count = int(rest)
        if count < 0:
            return marker, None
        if marker in "$=":
            data = self.input.read(count + 2)
            if len(data) != count + 2:
                raise ConnectionError("the connection was closed")
            parts.append(data)
            return marker, data[:-2]
        if marker == "%":
            return marker, [(self._read(parts), self._read(parts)) for _ in range(count)]
        return marker, [self._read(parts) for _ in range(count)]

    def send_pieces(self, data, cuts):
        """Sends data cut at some places, then says that nothing follows."""
        for start, end in zip([0, *cuts], [*cuts, len(data)]):
            self.sock.sendall(data[start:end])
            if cuts:
                time.sleep(0.0005)
        # Redis drops what it has not yet said to a client that is gone, so QUIT ends the conversation.
        self.sock.sendall(harness.Raw.encode("QUIT"))

    def exchange(self, data, pause_s=0.05):
        """Everything that the server has to say to `data` until it closes the connection."""
        self.send(data)
        time.sleep(pause_s)
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)
        said = b""
        with contextlib.suppress(OSError):
            said = self.input.read()
        return said

    def close(self):
        self.input.close()
        self.sock.close()


class Redis:
    """A running redis-server without persistence, unless more settings ask for it."""

    def __init__(self, directory, *more):
        self.port = harness.free_port()
        words = ["redis-server", "--port", str(self.port), "--dir", directory, "--save", "", "--appendonly", "no"]
        words += ["--enable-debug-command", "yes", "--bind", "127.0.0.1", "--daemonize", "no"]
        # Quire's default, so that encodings change at the same size.
        words += ["--hash-max-listpack-entries", "128", *more]
        with open(os.path.join(directory, "peer.log"), "ab") as out:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)

    def __enter__(self):
        end = time.monotonic() + 30
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                Connection(self.port).close()
                return self
            time.sleep(0.01)
        raise AssertionError("redis-server does not answer")

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def play(name, sides, steps, resp3):
    """Takes the same steps on Quire's side and on Redis's, which must be sent the same after each, in whatever order, and closes them.

    A step is the number of a connection and a command; what a side does with it is its own `step`."""
    done = []
    for client, *words in steps:
        done.append((client, words))
        ours, theirs = [side.step(client, words) for side in sides]
        assert sorted(ours) == sorted(theirs), (
            f"{name}, RESP{3 if resp3 else 2}\n    quire: {ours}\n    redis: {theirs}\n  after {done[-40:]}"
        )
    for side in sides:
        side.close()


class Pair:
    """The two servers, each with the same few connections."""

    CONNECTIONS = 2
    SIDES = ("quire", "redis")

    def __init__(self, quire_port, redis_port):
        self.ports = (quire_port, redis_port)
        self.admin = [Connection(port) for port in self.ports]
        self.open = []

    def reset(self, resp3=False):
        """Empty databases, no scripts, functions and users, and new connections."""
        for side in self.open:
            for connection in side:
                connection.close()
        for words in (["FLUSHALL"], ["FUNCTION", "FLUSH"], ["SCRIPT", "FLUSH"], ["ACL", "DELUSER", *USERS]):
            self.both(*words)
        self.open = [[Connection(port) for _ in range(self.CONNECTIONS)] for port in self.ports]
        if resp3:
            for side in self.open:
                for connection in side:
                    connection.call("HELLO", "3")

    def both(self, *words):
        """One command on a connection of its own; both replies."""
        for admin in self.admin:
            admin.send(harness.Raw.encode(*words))
        return [admin.reply() for admin in self.admin]

    def send(self, index, data, count):
        """The same bytes on connection `index` of both; `count` pairs of replies."""
        for side in self.open:
            side[index].send(data)
        replies = [[side[index].reply() for _ in range(count)] for side in self.open]
        return list(zip(*replies))

    def settle(self, databases, keys, pause_s=0.0):
        """Lets keys expire on both sides: waits, then looks at each of them."""
        time.sleep(pause_s)
        for database in databases:
            self.both("SELECT", database)
            self.both("EXISTS", *keys)

    def digests(self):
        return [reply.tree[1] for reply in self.both("DEBUG", "DIGEST")]

    def close(self):
        for connection in [*self.admin, *(one for side in self.open for one in side)]:
            connection.close()
