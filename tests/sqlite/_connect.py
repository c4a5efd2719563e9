"""What the tests of libquire_sqlite.so share: loading it, connections by either VFS, and the verdict of SQLite's own."""

import contextlib
import os
import sqlite3
import sys
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness


def library(options):
    return os.path.join(os.path.dirname(options.quire), "libquire_sqlite.so")


def load(options):
    """Registers the VFS in this process."""
    harness.skip_unless(hasattr(sqlite3.Connection, "enable_load_extension"), "this Python loads no SQLite extensions")
    connection = sqlite3.connect(":memory:")
    connection.enable_load_extension(True)
    connection.load_extension(library(options))
    connection.close()


def connect(path, vfs, timeout=60, **more):
    """A connection by `quire`, or by SQLite's own VFS."""
    uri = f"file:{urllib.parse.quote(path)}?vfs={vfs}"
    return sqlite3.connect(uri, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False, **more)


@contextlib.contextmanager
def database():
    with harness.scratch() as directory:
        yield os.path.join(directory, "test.db")


def is_sound(path):
    """The verdict of SQLite's own VFS."""
    with contextlib.closing(connect(path, "unix")) as plain:
        return [row[0] for row in plain.execute("PRAGMA integrity_check")] == ["ok"]


def stats(connection):
    """What `PRAGMA quire_stats` says."""
    text = connection.execute("PRAGMA quire_stats").fetchone()[0]
    return {name: int(value) for name, value in (line.split("=") for line in text.split())}
