"""The log of writes on a disk that is full: writes are refused with the reason, reads go on, what was
acknowledged is there after a kill, and on a disk that has room again writes go on.

Relies on root for mounts (tmpfs, and ext4 on a loop device); without it nothing is tried.
"""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness
from disk_full import MIB, log_elsewhere, loop_device, mounted

LOGGING = ("--appendonly", "yes", "--appendfsync", "always", "--log-segment-bytes", "1mb")
# So often the log looks whether there is room again.
RETRY_S = 1.0


class Keys:
    """Writes keys in turn, and knows what was acknowledged."""

    def __init__(self, connection):
        self.connection, self.known, self.unsure, self.number = connection, {}, {}, 0

    def write(self):
        """One write; the error if it is refused."""
        self.number += 1
        key, value = f"key:{self.number % 8}", f"{self.number}:{'x' * 30_000}"
        try:
            self.connection.call("SET", key, value)
        except harness.ReplyError as error:
            return str(error)
        except ConnectionError:
            # The write that met the failure: it may be there or not.
            self.unsure[key] = value
            self.connection = harness.Raw(self.connection.sock.getpeername()[1])
            return None
        self.known[key] = value
        return None

    def until_refused(self, ahead=lambda: None):
        """Writes until a write is refused; calls `ahead` before each one."""
        for _ in range(10_000):
            ahead()
            error = self.write()
            if error:
                return error
        raise AssertionError("the disk does not become full")

    def check(self, connection):
        for key, value in self.known.items():
            found = connection.call("GET", key).decode()
            told = f"{key} is {found[:9]}, {value[:9]} was acknowledged, {self.unsure.get(key, str())[:9]} is unsure"
            assert found in (value, self.unsure.get(key)), told


def eventually(what, holds):
    end = time.monotonic() + 30 * RETRY_S
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def filled_up(directory, leave):
    """Takes all room but so many bytes; returns the file that does."""
    path = os.path.join(directory, "filler")
    with open(path, "wb") as file:
        space = os.statvfs(directory)
        while space.f_bavail * space.f_frsize > leave:
            file.write(bytes(min(MIB, space.f_bavail * space.f_frsize - leave)))
            file.flush()
            os.fsync(file.fileno())
            space = os.statvfs(directory)
    return path


def full_disk_case(quire, directory, log):
    with harness.Quire(quire, directory, *LOGGING, log=log) as server:
        connection = server.ready()
        keys = Keys(connection)
        assert keys.write() is None
        filler = filled_up(directory, 3 * MIB + MIB // 2)
        # The log's next file is made, or known to be impossible, before the client goes on: only then the shortage comes first.
        next_segment = lambda: connection.info("persistence")["log_next_segment"]
        error = keys.until_refused(lambda: eventually("the next file is known", lambda: next_segment() != "preallocating"))
        assert error.startswith("MISCONF The log has no room to go on") and "No space left" in error, error
        keys.check(connection)
        assert "No space left" in connection.info("persistence")["log_last_error"]
        # The log looks for room once a second, so it may find some before it is asked.
        eventually("INFO shows it", lambda: connection.info("persistence")["aof_last_write_status"] == "err")
        assert "No space left" in server.log_text()
        os.remove(filler)
        eventually("writes go on when there is room", lambda: keys.write() is None)
        for _ in range(100):
            error = keys.write()
            assert error is None, error
        filled_up(directory, MIB // 2)
        keys.until_refused()
        server.kill9()
    os.remove(filler)
    with harness.Quire(quire, directory, *LOGGING, log=log) as server:
        connection = server.ready()
        keys.check(connection)
        keys.connection = connection
        # A file system may take a while to give the room back.
        eventually("writes go on after the restart", lambda: keys.write() is None)


@harness.for_root
def log_on_a_full_tmpfs(options):
    with log_elsewhere() as log, mounted("-t", "tmpfs", "-o", "size=48m", "quire-test") as directory:
        full_disk_case(options.quire, directory, log)


@harness.for_root
def log_on_a_full_ext4(options):
    with harness.scratch() as where, log_elsewhere() as log:
        backing = os.path.join(where, "disk")
        with loop_device(backing, 64 * MIB, ["mkfs.ext4", "-q", "-m", "0"]) as device, mounted(device) as directory:
            full_disk_case(options.quire, directory, log)


if __name__ == "__main__":
    OPTIONS = harness.arguments(__doc__)
    harness.run([log_on_a_full_tmpfs, log_on_a_full_ext4], OPTIONS)
