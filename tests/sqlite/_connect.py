"""What the tests of libquire_sqlite.so share: loading it, connections by either VFS, and the verdict of SQLite's own."""

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import threading
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
    return {name: float(value) if "." in value else int(value) for name, value in (line.split("=") for line in text.split())}


def run_elsewhere(path, statements):
    """Another process runs statements, each with a list of rows to bind or with none, by SQLite's own VFS."""
    script = (
        "import json, sqlite3, sys; c = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)\n"
        "for words, rows in json.load(sys.stdin): c.executemany(words, rows) if rows else c.execute(words).fetchall()\n"
        "c.close()"
    )
    words = [sys.executable, "-B", "-c", script, path]
    subprocess.run(words, input=json.dumps(statements), text=True, check=True)


def rewrite_elsewhere(path, rows):
    """Another process gives rows of `t` other values, `(v, k)` each, and begins a checkpoint."""
    change = ("UPDATE t SET v = ? WHERE k = ?", list(rows))
    run_elsewhere(path, [("BEGIN", None), change, ("COMMIT", None), ("PRAGMA wal_checkpoint", None)])


@contextlib.contextmanager
def beside(work, count):
    """Runs `work(seed)` in `count` threads while the block runs; what one of them raises is raised behind it."""
    failures = []

    def run(seed):
        try:
            work(seed)
        except BaseException as failure:  # The test's thread raises it again.
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield threads
    finally:
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
