"""The log of writes on a disk that is full: writes are refused with the reason, reads go on, and when the disk has room again
writes go on by themselves, without a restart. Whatever was acknowledged is there after a kill -9 or SIGTERM at any of these
moments.

Relies on root for mounts (tmpfs, and ext4 on a loop device); without it nothing is tried.
"""

import os
import select
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness
from disk_full import MIB, log_elsewhere, loop_device, mounted

LOGGING = ("--appendonly", "yes", "--log-segment-bytes", "1mb")
# So often the log looks whether there is room again.
RETRY_S = 1.0
NO_ROOM = "MISCONF The log has no room to go on"
# A segment of 1 MiB that is a quarter full has no room for it.
LARGE_BYTES = 900_000
# Of the 64 MiB of a disk.
MOST_WAITING_BYTES = 4 * MIB


class Keys:
    """Writes keys in turn, and knows what was acknowledged: by each reply under `always`, otherwise by WAITAOF."""

    def __init__(self, port, fsync):
        self.port, self.always, self.number = port, fsync == "always", 0
        # What must be there, and what may be there instead.
        self.known, self.unsure = {}, {}
        self.connect(port)

    def connect(self, port):
        self.port, self.connection, self.waiting = port, harness.Raw(port), None

    def acknowledged(self, key, value):
        if self.always:
            self.known[key] = value
            self.unsure.pop(key, None)

    def write(self, key=None, size=30_000):
        """One write; why it is refused, or "waits" if its reply waits for room."""
        self.number += 1
        key = key or f"key:{self.number % 8}"
        value = f"{self.number}:{'x' * size}"
        self.connection.send(harness.Raw.encode("SET", key, value))
        while not self.is_replied_to(0.05):
            # The server has come to this write when it answers the second time, and would have refused it by then.
            if all(next_segment(self.port) == "awaited" for _ in range(2)) and not self.is_replied_to(0):
                self.unsure.setdefault(key, []).append(value)
                self.waiting = (key, value)
                return "waits"
        reply = self.connection.reply()
        if isinstance(reply, harness.ReplyError):
            return str(reply)
        self.unsure.setdefault(key, []).append(value)
        self.acknowledged(key, value)
        return None

    def is_replied_to(self, within_s):
        return bool(select.select([self.connection.sock], [], [], within_s)[0])

    def settle(self):
        """The write that waits is replied to, and everything is durable."""
        if self.waiting:
            assert self.connection.reply() == "OK"
            self.acknowledged(*self.waiting)
            self.waiting = None
        assert self.connection.call("WAITAOF", 1, 0, 0) == [1, 0]
        self.known.update({key: values[-1] for key, values in self.unsure.items()})
        self.unsure = {}

    def until_refused(self):
        for _ in range(10_000):
            error = self.write()
            if error:
                return error
            self.keep_pace()
        raise AssertionError("the disk does not become full")

    def keep_pace(self):
        """The log thread writes once a second. What is taken until then has to find room in the disk that is given back."""
        while True:
            known = persistence(self.port)
            if int(known["aof_buffer_length"]) <= MOST_WAITING_BYTES or known["log_next_segment"] == "awaited":
                return
            time.sleep(0.01)

    def check(self, connection):
        for key in self.known | self.unsure:
            found, known, unsure = connection.call("GET", key), self.known.get(key), self.unsure.get(key, [])
            found = found and found.decode()
            heads = [value and value[:9] for value in (found, known, *unsure)]
            assert found == known or found in unsure, f"{key}: found, acknowledged, perhaps: {heads}"
            self.known[key] = found
        self.unsure = {}


def persistence(port):
    connection = harness.Raw(port)
    try:
        return connection.info("persistence")
    finally:
        connection.close()


def next_segment(port):
    return persistence(port)["log_next_segment"]


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


def stand_still(directory, keys):
    """A record comes for which there is no room, although none was refused before it; returns what fills the disk."""
    def write(until):
        while not until():
            assert keys.write() is None
            keys.settle()

    write(lambda: next_segment(keys.port) != "not-needed")
    write(lambda: next_segment(keys.port) == "not-needed")
    # A segment was just begun; then a fifth of it.
    end = keys.number + 7
    write(lambda: keys.number == end)
    filler = filled_up(directory, MIB // 16)
    for number in range(3):
        error = keys.write(f"large:{number}", LARGE_BYTES)
        if error:
            break
    eventually("the log stands still", lambda: next_segment(keys.port) == "awaited")
    # Under `always` the client waits; otherwise it was told, and the next write is refused.
    assert error == "waits" if keys.always else error is None or error.startswith(NO_ROOM), error
    if not keys.always:
        # Clients rely on what is in memory only, so an image is tried, for which there is no room either.
        eventually("an image is tried", lambda: persistence(keys.port)["aof_last_bgrewrite_status"] == "err")
    return filler


def is_refused(server, keys):
    """Writes are refused, everything says so, and reads go on."""
    connection = harness.Raw(server.port)
    try:
        connection.call("SET", "probe", "1")
        raise AssertionError("a write is taken although there is no room for it")
    except harness.ReplyError as error:
        assert str(error).startswith(NO_ROOM) and "No space left" in str(error), error
    known = connection.info("persistence")
    assert known["aof_last_write_status"] == "err" and "No space left" in known["log_last_error"], known
    assert "No space left" in server.log_text()
    assert connection.call("GET", "key:1") is not None
    connection.close()


def goes_on(keys, filler):
    """There is room: the same server takes writes again, and has all that it took before."""
    os.remove(filler)
    probe = harness.Raw(keys.port)

    def is_taken():
        try:
            return probe.call("SET", "probe", "1") == "OK"
        except harness.ReplyError:
            return False

    eventually("writes go on when there is room", is_taken)
    keys.settle()
    for _ in range(60):
        error = keys.write()
        assert error is None, error
    keys.settle()
    assert persistence(keys.port)["aof_last_write_status"] == "ok"
    keys.check(probe)


def restarted(server, start, keys, filler=None):
    """On the full disk no log can begin, which is told at once; with room everything that was acknowledged is there."""
    if filler:
        before = len(server.log_text())
        with start() as server:
            assert server.process.wait(60) != 0
            assert "No space left" in server.log_text()[before:], server.log_text()[before:]
        os.remove(filler)
    server = start()
    try:
        keys.check(server.ready())
        keys.connect(server.port)
        for _ in range(20):
            assert keys.write() is None
        keys.settle()
    except BaseException:
        server.kill9()
        raise
    return server


def ended(server, keys, filler):
    """SIGTERM while there are records without room; returns what fills the disk then."""
    if keys.always:
        # None of them was acknowledged.
        assert server.terminate() == 0
        assert "for which there was no room" in server.log_text()
        return filler
    # They were, and there is no room for an image either: the server stays, says so, and ends when it can.
    server.process.terminate()
    eventually("it stays", lambda: "so the server stays" in server.log_text())
    assert "in memory only" in server.log_text()
    is_refused(server, keys)
    goes_on(keys, filler)
    assert server.terminate() == 0
    return None


def full_disk_case(quire, directory, log, fsync):
    start = lambda: harness.Quire(quire, directory, *LOGGING, "--appendfsync", fsync, log=log)
    server = start()
    try:
        server.ready()
        keys = Keys(server.port, fsync)
        assert keys.write() is None
        # Mostly it is known at half of a segment that the next one can't be made, and all that was taken has room.
        filler = filled_up(directory, 3 * MIB + MIB // 2)
        error = keys.until_refused()
        assert error == "waits" or error.startswith(NO_ROOM), error
        is_refused(server, keys)
        goes_on(keys, filler)
        # Once more, with a record that finds no room.
        filler = stand_still(directory, keys)
        is_refused(server, keys)
        goes_on(keys, filler)
        server.kill9()
        server = restarted(server, start, keys)
        # Killed while it has no room.
        filler = stand_still(directory, keys)
        is_refused(server, keys)
        server.kill9()
        server = restarted(server, start, keys, filler)
        # Ended while it has none.
        server = restarted(server, start, keys, ended(server, keys, stand_still(directory, keys)))
    finally:
        server.kill9()


def on_tmpfs(options, fsync):
    with log_elsewhere() as log, mounted("-t", "tmpfs", "-o", "size=48m", "quire-test") as directory:
        full_disk_case(options.quire, directory, log, fsync)


def on_ext4(options, fsync):
    with harness.scratch() as where, log_elsewhere() as log:
        backing = os.path.join(where, "disk")
        with loop_device(backing, 64 * MIB, ["mkfs.ext4", "-q", "-m", "0"]) as device, mounted(device) as directory:
            full_disk_case(options.quire, directory, log, fsync)


@harness.for_root
def log_on_a_full_tmpfs(options):
    on_tmpfs(options, "always")


@harness.for_root
def log_on_a_full_tmpfs_everysec(options):
    on_tmpfs(options, "everysec")


@harness.for_root
def log_on_a_full_ext4(options):
    on_ext4(options, "always")


@harness.for_root
def log_on_a_full_ext4_everysec(options):
    on_ext4(options, "everysec")


if __name__ == "__main__":
    OPTIONS = harness.arguments(__doc__)
    harness.run(
        [log_on_a_full_tmpfs, log_on_a_full_tmpfs_everysec, log_on_a_full_ext4, log_on_a_full_ext4_everysec], OPTIONS
    )
