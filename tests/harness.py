"""What every peer test shares: starting and ending Quire, raw requests, and a small runner.

Relies on the release binary given by --quire. Every server started here is ended here, by its own process id.
"""

import argparse
import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback


SCRATCH_PARENT = None


# Names that say which ports this process has been given.
CLAIMS = []


def free_port():
    """A port above 20000 on which no program listens. Until this process ends no other one that runs tests is given it: a server that has
    not begun to listen yet would be taken for the other's. Nor does the system give it to a connection meanwhile: it lies below
    those that it chooses from."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        end = int(file.read().split()[0])
    for port in range(20001, end):
        claim = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError), socket.socket() as probe:
            claim.bind(f"\0quire-test-port-{port}")
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
            CLAIMS.append(claim)
            return port
        claim.close()
    raise AssertionError(f"no port from 20001 to {end} is free")


class ReplyError(Exception):
    """An error reply."""


class Skipped(Exception):
    """A test that can't be done here, and why. In CI, which is to have everything, it is a failure."""


def is_ci():
    return os.environ.get("CI") == "true"


class Raw:
    """A connection that speaks RESP2 without a library, for loads and for asking a bare server."""

    def __init__(self, port, timeout=120):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.input = self.sock.makefile("rb", buffering=1 << 18)

    @staticmethod
    def encode(*words):
        parts = [b"*%d\r\n" % len(words)]
        for word in words:
            word = word if isinstance(word, bytes) else str(word).encode()
            parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
        return b"".join(parts)

    def send(self, data):
        self.sock.sendall(data)

    def reply(self):
        line = self.input.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            return ReplyError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            if rest == b"-1":
                return None
            data = self.input.read(int(rest) + 2)
            if len(data) != int(rest) + 2:
                raise ConnectionError("the server closed the connection")
            return data[:-2]
        if kind == b"*":
            return None if rest == b"-1" else [self.reply() for _ in range(int(rest))]
        raise ConnectionError(f"unknown reply {line!r}")

    def call(self, *words):
        """One command; an error reply is raised."""
        self.send(self.encode(*words))
        answer = self.reply()
        if isinstance(answer, ReplyError):
            raise answer
        return answer

    def info(self, section="everything"):
        text = self.call("INFO", section).decode()
        return dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)

    def digest(self):
        # A digest of millions of keys takes minutes where other programs have the processors.
        self.sock.settimeout(900)
        answer = self.call("DEBUG", "DIGEST")
        return answer if isinstance(answer, str) else answer.decode()

    def wait_saved(self, limit_s=300):
        """Waits for the background save; returns the persistence fields."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            info = self.info("persistence")
            # A save that waits for a restore to be verified has not begun.
            if info["rdb_bgsave_in_progress"] == "0" and info.get("rdb_bgsave_scheduled", "0") == "0":
                return info
            time.sleep(0.005)
        raise AssertionError(f"the save is not done after {limit_s} s")

    def wait_restored(self, limit_s=300):
        """Waits until the image that the server started from is verified: saves begin only then."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if self.info("persistence")["restore_in_progress"] == "0":
                return
            time.sleep(0.005)
        raise AssertionError(f"the restore is not done after {limit_s} s")

    def close(self):
        self.input.close()
        self.sock.close()


# With these active defragmentation moves whatever there is to move, as fast as it may, once it is on.
EAGER_DEFRAG = [
    *["--active-defrag-ignore-bytes", "1", "--active-defrag-threshold-lower", "0"],
    *["--active-defrag-cycle-min", "50", "--active-defrag-cycle-max", "90"],
]


class Quire:
    """A running `quire serve`."""

    def __init__(self, binary, directory, *args, port=None, log=None, **popen):
        self.binary = binary
        self.dir = str(directory)
        self.port = port or free_port()
        self.log = log or os.path.join(self.dir, "test-server.log")
        words = [binary, "serve", "--port", str(self.port), "--dir", self.dir]
        if "--save" not in args:
            words += ["--save", ""]
        if "--enable-debug-command" not in args:
            words += ["--enable-debug-command", "local"]
        with open(self.log, "ab") as out:
            self.process = subprocess.Popen(
                words + list(args), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, **popen
            )

    def ready(self, limit_s=120):
        """A connection, once the server answers reads."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise AssertionError(f"quire ended with {self.process.returncode}:\n{self.log_text()[-2000:]}")
            connection = None
            with contextlib.suppress(OSError, ReplyError):
                connection = Raw(self.port)
                connection.call("GET", "no-such-key")
                return connection
            # An error keeps the frame that raised it, and so the connection: a client that tests do not know of.
            if connection:
                connection.close()
            time.sleep(0.005)
        raise AssertionError("quire does not answer")

    def log_text(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def kill9(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def terminate(self, limit_s=60):
        """SIGTERM, as an init system would; returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(limit_s)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill9()


@contextlib.contextmanager
def scratch():
    """A directory that is gone afterwards. It lies beside the binary under test, so on a real disk and ignored by git."""
    parent = os.environ.get("QUIRE_TEST_DIR") or SCRATCH_PARENT or os.getcwd()
    path = tempfile.mkdtemp(prefix="quire-test-", dir=parent if os.access(parent, os.W_OK) else None)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def image_path(server):
    """Where the server's image lies."""
    connection = Raw(server.port)
    name = connection.call("CONFIG", "GET", "dbfilename")[1].decode()
    connection.close()
    return os.path.join(server.dir, name)


def arguments(description, extend=lambda parser: None):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quire", "--binary", dest="quire", required=True, help="the quire binary")
    parser.add_argument("--only", default="", help="only the tests whose name contains this")
    extend(parser)
    options = parser.parse_args()
    options.quire = os.path.abspath(options.quire)
    global SCRATCH_PARENT
    SCRATCH_PARENT = os.path.dirname(options.quire)
    return options


def skip_unless(possible, reason):
    if not possible:
        raise Skipped(reason)


def for_root(test):
    """A test that only root can do."""

    @functools.wraps(test)
    def run_as_root(options):
        skip_unless(os.geteuid() == 0, "takes root")
        return test(options)

    return run_as_root


def run(tests, options):
    """Runs the functions, says how each ended, closes with the count, and exits."""
    passed = failed = skipped = 0
    for test in tests:
        if options.only not in test.__name__:
            continue
        try:
            note = test(options)
            passed += 1
            print(f"ok   {test.__name__}{'  ' + note if note else ''}", flush=True)
        except Skipped as reason:
            if is_ci():
                failed += 1
                print(f"FAIL {test.__name__}\n  skipped, but nothing may be skipped where CI=true: {reason}", flush=True)
            else:
                skipped += 1
                print(f"skip {test.__name__}  {reason}", flush=True)
        except Exception:
            failed += 1
            print(f"FAIL {test.__name__}", flush=True)
            traceback.print_exc(file=sys.stdout)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed else 0)
