"""Pipelines of heavy commands whose client sends no more, leaves, or is cut off, beside redis-server.

Everything that a client sent before it closed its sending side is executed and answered. Relies on Debian's redis-server.
"""

import contextlib
import os
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness
from _pair import Redis

HEAVY = 200
encode = harness.Raw.encode


def connect(port):
    sock = socket.create_connection(("127.0.0.1", port), 60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def connect_unix(path):
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(60)
    sock.connect(path)
    return sock


def all_of(sock):
    """Everything that the server says until it closes the connection."""
    parts = []
    while data := sock.recv(1 << 18):
        parts.append(data)
    sock.close()
    return b"".join(parts)


def half_closed(sock, data):
    """Sends data, says that nothing follows, and returns everything that is answered."""
    sock.sendall(data)
    sock.shutdown(socket.SHUT_WR)
    return all_of(sock)


def eventually(what, holds, limit_s=60):
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end, f"not after {limit_s} s: {what}"
        time.sleep(0.01)


def others(control):
    """How many clients are connected beside this one."""
    return int(control.info("clients")["connected_clients"]) - 1


def with_requests(control):
    """The lines of the other clients whose requests wait."""
    lines = control.call("CLIENT", "LIST").splitlines()
    return [line for line in lines if b" qbuf=0 " not in line and b" cmd=client|list " not in line]


@contextlib.contextmanager
def both(options, *settings):
    """The ports of Quire and redis-server with a large value in each, and Quire's server."""
    with harness.scratch() as directory, Redis(directory) as redis:
        with harness.Quire(options.quire, directory, *settings) as quire:
            quire.ready().close()
            for port in (quire.port, redis.port):
                control = harness.Raw(port)
                control.call("SETRANGE", "big", 1 << 20, "x")
                control.close()
            yield quire, redis


@contextlib.contextmanager
def alone(options, *settings):
    """Quire with a large value, and a connection to it."""
    with harness.scratch() as directory, harness.Quire(options.quire, directory, *settings) as quire:
        control = quire.ready()
        control.call("SETRANGE", "big", 1 << 20, "x")
        yield quire, control
        # Nothing that a test did to its clients keeps a connection.
        eventually("all connections are closed", lambda: others(control) == 0)
        control.close()


def heavy(count=HEAVY):
    return (encode("BITCOUNT", "big") + encode("INCR", "counter")) * count


def everything_before_the_end_is_answered(options):
    with both(options) as (quire, redis):
        got = [half_closed(connect(server.port), heavy()) for server in (quire, redis)]
        assert got[0] == got[1], f"{got[0].count(b':')} replies, redis-server {got[1].count(b':')}"
        assert got[0].count(b":") == 2 * HEAVY


def everything_is_answered_over_a_unix_socket(options):
    with harness.scratch() as directory:
        path = os.path.join(directory, "sock")
        with harness.Quire(options.quire, directory, "--unixsocket", path) as quire:
            control = quire.ready()
            control.call("SETRANGE", "big", 1 << 20, "x")
            assert half_closed(connect_unix(path), heavy()).count(b":") == 2 * HEAVY
            silent = connect_unix(path)
            silent.sendall(encode("CLIENT", "REPLY", "OFF") + heavy())
            silent.close()
            eventually("all is executed", lambda: control.call("GET", "counter") == b"%d" % (2 * HEAVY))
            eventually("all connections are closed", lambda: others(control) == 0)


def requests_in_many_pieces_are_answered(options):
    requests = heavy(100) + encode("SET", "large", b"y" * 700_000) + heavy(100) + encode("STRLEN", "large")
    with both(options) as (quire, redis):
        got = []
        for server in (quire, redis):
            sock = connect(server.port)
            for start in range(0, len(requests), 9973):
                sock.sendall(requests[start : start + 9973])
            sock.shutdown(socket.SHUT_WR)
            got.append(all_of(sock))
        assert got[0] == got[1]
        assert got[0].endswith(b":700000\r\n")


def an_incomplete_request_ends_the_connection(options):
    requests = heavy(50) + encode("INCR", "counter")[:-4]
    with both(options) as (quire, redis):
        got = [half_closed(connect(server.port), requests) for server in (quire, redis)]
        assert got[0] == got[1] and got[0].count(b":") == 100


def quit_ends_a_pipeline(options):
    requests = heavy(100) + encode("QUIT") + encode("INCR", "counter") * 10
    with both(options) as (quire, redis):
        got = [half_closed(connect(server.port), requests) for server in (quire, redis)]
        assert got[0] == got[1] and got[0].endswith(b":100\r\n+OK\r\n"), [one[-30:] for one in got]
        for server in (quire, redis):
            control = harness.Raw(server.port)
            assert control.call("GET", "counter") == b"100"
            control.close()


def a_protocol_error_ends_a_pipeline(options):
    requests = heavy(100) + b"*1\r\n!bad\r\n" + encode("INCR", "counter")
    with both(options) as (quire, redis):
        got = [half_closed(connect(server.port), requests) for server in (quire, redis)]
        assert got[0] == got[1] and b"-ERR Protocol error" in got[0], [one[-60:] for one in got]


def a_client_without_replies_is_executed_to_its_end(options):
    requests = encode("CLIENT", "REPLY", "OFF") + heavy()
    with both(options) as (quire, redis):
        for server in (quire, redis):
            control = harness.Raw(server.port)
            sock = connect(server.port)
            sock.sendall(requests)
            sock.close()
            eventually("all is executed", lambda control=control: control.call("GET", "counter") == b"%d" % HEAVY)
            eventually("its connection is closed", lambda control=control: others(control) == 0)
            control.close()


def an_aborted_pipeline_is_executed_up_to_a_point(options):
    pairs = (encode("BITCOUNT", "big") + encode("INCR", "first") + encode("INCR", "second")) * HEAVY
    with alone(options) as (quire, control):
        for pause_s in (0, 0.001, 0.005, 0.02, 0.05):
            sock = connect(quire.port)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.sendall(pairs)
            time.sleep(pause_s)
            sock.close()
        eventually("all connections are closed", lambda: others(control) == 0)
        first, second = (int(value or 0) for value in control.call("MGET", "first", "second"))
        assert 0 <= first - second <= 5, (first, second)


def paused_requests_are_answered_after_the_end(options):
    with alone(options) as (quire, control):
        control.call("CLIENT", "PAUSE", 300, "ALL")
        assert half_closed(connect(quire.port), heavy(50)).count(b":") == 100
        control.call("CLIENT", "PAUSE", 300, "WRITE")
        assert half_closed(connect(quire.port), heavy(50)).count(b":") == 100


def replies_held_by_the_log_are_sent_after_the_end(options):
    with alone(options, "--appendonly", "yes", "--appendfsync", "always") as (quire, _):
        assert half_closed(connect(quire.port), heavy()).count(b":") == 2 * HEAVY
        waits = heavy(20) + encode("WAITAOF", 1, 0, 0) + encode("INCR", "counter")
        assert half_closed(connect(quire.port), waits).endswith(b"*2\r\n:1\r\n:0\r\n:%d\r\n" % (HEAVY + 21))


def a_wait_for_replicas_ends_with_its_client(options):
    with alone(options, "--appendonly", "yes") as (quire, _):
        late = encode("WAITAOF", 0, 1, 50) + encode("INCR", "counter")
        assert half_closed(connect(quire.port), late) == b"*2\r\n:1\r\n:0\r\n:1\r\n"
        assert half_closed(connect(quire.port), encode("WAITAOF", 0, 1, 0) + encode("INCR", "counter")) == b""


def a_slow_reader_gets_everything_after_its_end(options):
    requests = (encode("GET", "big") + encode("INCR", "counter")) * 100
    with alone(options) as (quire, control):
        sock = connect(quire.port)
        sock.sendall(requests)
        sock.shutdown(socket.SHUT_WR)
        # Until the server has no more room for replies, and makes the client wait.
        eventually("its requests wait", lambda: int(control.info("clients")["paused_clients"]) == 1)
        assert len(all_of(sock)) > 100 << 20
        assert control.call("GET", "counter") == b"100"


def a_limit_closes_a_slow_reader_after_its_end(options):
    with alone(options, "--client-output-buffer-limit", "normal 4mb 0 0") as (quire, control):
        sock = connect(quire.port)
        sock.sendall(encode("GET", "big") * 100)
        sock.shutdown(socket.SHUT_WR)
        eventually("it is closed", lambda: others(control) == 0)
        with contextlib.suppress(ConnectionError):
            assert len(all_of(sock)) < 100 << 20


def clients_that_are_killed_after_their_end_are_gone(options):
    with alone(options) as (quire, control):
        control.call("CLIENT", "PAUSE", 60_000, "ALL")
        socks = []
        for _ in range(20):
            socks.append(connect(quire.port))
            socks[-1].sendall(heavy(10))
            socks[-1].shutdown(socket.SHUT_WR)
        # INFO would wait, too.
        eventually("all wait", lambda: len(with_requests(control)) == 20)
        assert control.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") == 20
        control.call("CLIENT", "UNPAUSE")
        for sock in socks:
            with contextlib.suppress(ConnectionError):
                assert all_of(sock) == b""


TESTS = [
    everything_before_the_end_is_answered,
    everything_is_answered_over_a_unix_socket,
    requests_in_many_pieces_are_answered,
    an_incomplete_request_ends_the_connection,
    quit_ends_a_pipeline,
    a_protocol_error_ends_a_pipeline,
    a_client_without_replies_is_executed_to_its_end,
    an_aborted_pipeline_is_executed_up_to_a_point,
    paused_requests_are_answered_after_the_end,
    replies_held_by_the_log_are_sent_after_the_end,
    a_wait_for_replicas_ends_with_its_client,
    a_slow_reader_gets_everything_after_its_end,
    a_limit_closes_a_slow_reader_after_its_end,
    clients_that_are_killed_after_their_end_are_gone,
]

if __name__ == "__main__":
    harness.run(TESTS, harness.arguments(__doc__))
