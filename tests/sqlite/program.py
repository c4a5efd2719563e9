"""libquire_sqlite.so in programs that are not made for it: what they lend it, where they write to, and what others do to their files."""

import contextlib
import os
import resource
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness
from _connect import connect, database, library, load
from _upstream import Failure, check_sizes, environment, outcome


def a_file_that_another_was_copied_over_is_read_anew(options):
    """In place, while no connection uses it; the headers of the two files are the same."""
    load(options)
    with harness.scratch() as directory:
        paths = [os.path.join(directory, name) for name in ("one.db", "other.db")]
        for path, text in zip(paths, "ab"):
            with contextlib.closing(connect(path, "unix")) as plain:
                plain.execute("CREATE TABLE t(v TEXT)")
                with plain:
                    plain.executemany("INSERT INTO t VALUES(?)", [(text + "x" * 3000,)] * 50)
        with open(paths[0], "rb") as one, open(paths[1], "rb") as other:
            assert one.read(100) == other.read(100), "this was to have equal headers"
        stays = connect(paths[0], "quire")
        query = "SELECT group_concat(DISTINCT substr(v, 1, 1)) FROM t"
        assert stays.execute(query).fetchone()[0] == "a"
        shutil.copyfile(paths[1], paths[0])
        with contextlib.closing(connect(paths[0], "quire")) as comes:
            assert comes.execute(query).fetchone()[0] == "b"
        stays.close()


def messages_that_can_not_be_written_end_no_program(options):
    load(options)
    with harness.scratch() as directory, open("/dev/full", "w") as full:
        # Two messages: a size that is none, and a name that the pool does not take.
        words = [sys.executable, "-B", os.path.abspath(__file__), "--quire", options.quire, "--open"]
        environment = dict(os.environ, QUIRE_SQLITE_POOL="much")
        for name in (b"test.db", b"test\xff.db"):
            path = os.path.join(os.fsencode(directory), name)
            done = subprocess.run(
                [*map(os.fsencode, words), path],
                stdout=subprocess.PIPE,
                stderr=full,
                env=environment,
            )
            assert (done.returncode, done.stdout) == (0, b"[(0,)]\n"), (name, done)


def a_default_vfs_without_a_wal_index_has_no_wal(options):
    harness.skip_unless(shutil.which("sqlite3"), "there is no sqlite3")
    script = "PRAGMA journal_mode = WAL;\nCREATE TABLE t(v);\nINSERT INTO t VALUES(7);\nSELECT v FROM t;\n"
    for vfs in ("unix-dotfile", "unix-none", "unix"):
        for ours in (True, False):
            with database() as path:
                by = f"?vfs={'quire' if ours else vfs}"
                words = ["sqlite3", "-bail", "-vfs", vfs, ":memory:", "-cmd", f".load {library(options)}", "-cmd", f".open file:{path}{by}"]
                done = subprocess.run(words, input=script, capture_output=True, text=True, timeout=60)
                mode = "wal" if vfs == "unix" else "delete"
                assert done.stdout == f"{mode}\n7\n", (vfs, ours, done)


def databases_that_were_opened_leave_descriptors_to_the_program(options):
    """Their descriptors stay open, or locks would go: but a quarter of those that the process may have at most."""
    load(options)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + 64, limit[1]))
    try:
        with harness.scratch() as directory:
            for number in range(60):
                with contextlib.closing(connect(os.path.join(directory, f"{number}.db"), "quire")) as connection:
                    connection.execute("CREATE TABLE t(v)")
                    assert connection.execute("SELECT count(*) FROM t").fetchone()[0] == 0
            parked = len(os.listdir("/proc/self/fd")) - before
            assert 0 < parked <= (before + 64) // 4, parked
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)


def a_program_of_sqlites_that_tells_nothing_by_either_vfs_has_not_passed(_):
    """Of the comparison in _upstream.py."""
    assert outcome("0 errors", "0 errors") == "ok"
    assert outcome("1 errors", "0 errors") == outcome(None, "0 errors") == "FAILED"
    assert outcome(None, None) == outcome("0 errors", None) == "untold"


def programs_of_sqlites_get_the_sizes_that_were_asked_for(options):
    """By _upstream.py; sizes that the library doesn't take end it."""
    load(options)
    chosen = environment(library(options), ("2MiB", "50%"))
    assert (chosen["QUIRE_SQLITE_POOL"], chosen["QUIRE_SQLITE_TIER"]) == ("2MiB", "50%")
    assert not any(name.startswith("QUIRE_") for name in environment(library(options), None))
    check_sizes(library(options), ("2MiB", "auto"))
    for sizes in (("2MiB", "much"), ("half", "off")):
        try:
            check_sizes(library(options), sizes)
            raise AssertionError(f"{sizes} were taken")
        except Failure as failure:
            assert "it has no effect" in str(failure), failure


if __name__ == "__main__":
    if "--open" in sys.argv:
        load(type("Options", (), {"quire": sys.argv[sys.argv.index("--quire") + 1]}))
        CONNECTION = connect(os.fsencode(sys.argv[-1]), "quire")
        CONNECTION.execute("CREATE TABLE t(v)")
        print(CONNECTION.execute("SELECT count(*) FROM t").fetchall())
        sys.exit(0)
    TESTS = [
        a_file_that_another_was_copied_over_is_read_anew,
        messages_that_can_not_be_written_end_no_program,
        a_default_vfs_without_a_wal_index_has_no_wal,
        databases_that_were_opened_leave_descriptors_to_the_program,
        a_program_of_sqlites_that_tells_nothing_by_either_vfs_has_not_passed,
        programs_of_sqlites_get_the_sizes_that_were_asked_for,
    ]
    harness.run(TESTS, harness.arguments(__doc__))
