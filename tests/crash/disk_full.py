"""Saves that cannot be written: a full disk, an unwritable directory, a device that fails, a file size limit.

In each the save fails with its reason in INFO and in the log, the old image stays as it was, and writes stop or go on as
stop-writes-on-bgsave-error says. Relies on root for mounts (tmpfs, and ext4 on a loop device); without root only the
file size limit and the unwritable directory are tried, and the rest is named as skipped.
"""

import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness

# With rules, as stop-writes-on-bgsave-error only holds for a server that is meant to save; far off, so none fires.
RULES = ("--save", "86400 1000000000")
MIB = 1 << 20


def command(*words):
    done = subprocess.run(words, capture_output=True, timeout=60)
    assert done.returncode == 0, (words, done.stderr.decode())
    return done.stdout.decode().strip()


@contextlib.contextmanager
def mounted(*words):
    """A file system on a directory of its own, unmounted afterwards."""
    point = tempfile.mkdtemp(prefix="quire-mount-")
    command("mount", *words, point)
    try:
        yield point
    finally:
        command("umount", "-l", point)
        os.rmdir(point)


def make_read_only(point):
    """The kernel refuses it while a file there is open for writing, as the last image may be for a moment after its save."""
    end = time.monotonic() + 30
    while subprocess.run(["mount", "-o", "remount,ro", point], capture_output=True, timeout=60).returncode != 0:
        assert time.monotonic() < end, f"{point} cannot be made read-only"
        time.sleep(0.02)


@contextlib.contextmanager
def loop_device(backing, size, file_system):
    with open(backing, "wb") as file:
        file.truncate(size)
    device = command("losetup", "--find", "--show", backing)
    try:
        command(*file_system, device)
        yield device
    finally:
        subprocess.run(["losetup", "-d", device], capture_output=True, timeout=60)


@contextlib.contextmanager
def log_elsewhere():
    with tempfile.TemporaryDirectory(prefix="quire-log-") as directory:
        yield os.path.join(directory, "server.log")


def fill(connection, name, mebibytes):
    """Values of 64 KiB that nothing can compress or share."""
    for number in range(mebibytes * 16):
        connection.call("SET", f"{name}:{number}", os.urandom(MIB // 16))


def identity(path):
    stat = os.stat(path)
    return (stat.st_ino, stat.st_mtime_ns, stat.st_size)


def save(connection):
    connection.call("BGSAVE")
    return connection.wait_saved()


def refused(connection):
    """Whether a write is refused as it is after a failed save."""
    try:
        connection.call("SET", "probe", "1")
        return False
    except harness.ReplyError as error:
        assert str(error).startswith("MISCONF"), error
        return True


def failed_save(server, connection, path, reasons):
    """One save that has to fail, and all that has to hold afterwards."""
    before = identity(path)
    last_save = connection.call("LASTSAVE")
    # It counts seconds: a failed save in the same second would not show in it.
    while int(connection.call("TIME")[0]) <= last_save:
        time.sleep(0.05)
    info = save(connection)
    assert info["rdb_last_bgsave_status"] == "err", info
    assert connection.call("LASTSAVE") == last_save, "a failed save counts as the last one"
    told = "\n".join(f"{name}:{value}" for name, value in connection.info("persistence").items())
    assert any(reason in told for reason in reasons), f"INFO does not tell the reason:\n{told}"
    assert any(reason in server.log_text() for reason in reasons), f"the log does not tell the reason:\n{server.log_text()[-2000:]}"
    assert identity(path) == before, "the old image was touched"
    assert not [name for name in os.listdir(server.dir) if ".tmp" in name] or "Read-only" in reasons, os.listdir(server.dir)
    assert refused(connection), "writes go on although stop-writes-on-bgsave-error is yes"
    assert connection.call("GET", "no-such-key") is None
    connection.call("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
    assert not refused(connection), "writes stop although stop-writes-on-bgsave-error is no"
    connection.call("CONFIG", "SET", "stop-writes-on-bgsave-error", "yes")
    assert refused(connection)


def working_save(connection):
    """One save that has to work again, after which writes go on."""
    info = save(connection)
    assert info["rdb_last_bgsave_status"] == "ok", info
    assert not refused(connection)


def restart_gives(quire, directory, log, digest):
    with harness.Quire(quire, directory, log=log) as server:
        assert server.ready().digest() == digest


def first_image(connection):
    fill(connection, "base", 8)
    working_save(connection)
    connection.call("DEL", "probe")
    working_save_digest = save(connection)
    assert working_save_digest["rdb_last_bgsave_status"] == "ok"
    return connection.digest()


def disk_full_case(quire, directory, log, more_mebibytes):
    """Grows the data over the room that `directory` has, fails, then makes room again."""
    with harness.Quire(quire, directory, *RULES, log=log) as server:
        connection = server.ready()
        digest = first_image(connection)
        fill(connection, "more", more_mebibytes)
        path = harness.image_path(server)
        failed_save(server, connection, path, ["No space left", "ENOSPC"])
        server.kill9()
    restart_gives(quire, directory, log, digest)
    with harness.Quire(quire, directory, *RULES, log=log) as server:
        connection = server.ready()
        fill(connection, "more", more_mebibytes)
        failed_save(server, connection, harness.image_path(server), ["No space left", "ENOSPC"])
        connection.call("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
        connection.call("DEL", *[f"more:{number}" for number in range(more_mebibytes * 16)])
        connection.call("FLUSHDB")
        connection.call("SET", "small", "again")
        # Freed memory goes back in steps; until then its pages are in the image.
        connection.call("MEMORY", "PURGE")
        connection.call("CONFIG", "SET", "stop-writes-on-bgsave-error", "yes")
        working_save(connection)


@harness.for_root
def full_tmpfs(options):
    with log_elsewhere() as log, mounted("-t", "tmpfs", "-o", "size=64m", "quire-test") as directory:
        disk_full_case(options.quire, directory, log, 80)


@harness.for_root
def full_ext4(options):
    with harness.scratch() as where, log_elsewhere() as log:
        backing = os.path.join(where, "disk")
        with loop_device(backing, 96 * MIB, ["mkfs.ext4", "-q", "-m", "0"]) as device, mounted(device) as directory:
            disk_full_case(options.quire, directory, log, 120)


def unwritable_directory(options):
    with log_elsewhere() as log, mounted("-t", "tmpfs", "-o", "size=256m", "quire-test") as directory:
        with harness.Quire(options.quire, directory, *RULES, log=log) as server:
            connection = server.ready()
            digest = first_image(connection)
            connection.call("SET", "later", "1")
            make_read_only(directory)
            failed_save(server, connection, harness.image_path(server), ["Read-only", "EROFS"])
            command("mount", "-o", "remount,rw", directory)
            connection.call("BGSAVE")
            connection.wait_saved()
            assert not refused(connection)
            server.kill9()
        assert digest


def unwritable_directory_as_user(options):
    with harness.scratch() as directory, log_elsewhere() as log:
        with harness.Quire(options.quire, directory, *RULES, log=log) as server:
            connection = server.ready()
            first_image(connection)
            path = harness.image_path(server)
            os.chmod(directory, 0o500)
            try:
                failed_save(server, connection, path, ["Permission denied", "EACCES"])
            finally:
                os.chmod(directory, 0o700)
            working_save(connection)


@harness.for_root
def failing_device(options):
    """ext4 on a loop device whose own backing runs out of room: the device answers writes with an I/O error."""
    with log_elsewhere() as log, mounted("-t", "tmpfs", "-o", "size=80m", "quire-test") as where:
        backing = os.path.join(where, "disk")
        # No journal: a failed journal write would take the whole file system away, which is another test.
        make = ["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", "-E", "nodiscard"]
        with loop_device(backing, 400 * MIB, make) as device, mounted("-o", "errors=continue", device) as directory:
            with harness.Quire(options.quire, directory, *RULES, log=log) as server:
                connection = server.ready()
                digest = first_image(connection)
                fill(connection, "more", 100)
                failed_save(server, connection, harness.image_path(server), ["Input/output", "EIO", "No space left"])
                server.kill9()
            restart_gives(options.quire, directory, log, digest)


def file_size_limit(options):
    """A limit on file sizes stands for a quota: every write past it is refused, as root or not."""
    with harness.scratch() as directory, log_elsewhere() as log:
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (32 * MIB, 32 * MIB))
        # Python ignores SIGXFSZ; the server inherits that, so that it sees the error instead of dying.
        popen = {"preexec_fn": limit, "restore_signals": False}
        with harness.Quire(options.quire, directory, *RULES, log=log, **popen) as server:
            connection = server.ready()
            digest = first_image(connection)
            fill(connection, "more", 40)
            failed_save(server, connection, harness.image_path(server), ["File too large", "EFBIG"])
            server.kill9()
        restart_gives(options.quire, directory, log, digest)


if __name__ == "__main__":
    OPTIONS = harness.arguments(__doc__)
    UNWRITABLE = unwritable_directory if os.geteuid() == 0 else unwritable_directory_as_user
    harness.run([full_tmpfs, full_ext4, UNWRITABLE, failing_device, file_size_limit], OPTIONS)
