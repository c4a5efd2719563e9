"""Pages in place (`PRAGMA mmap_size`) by libquire_sqlite.so: statements give what they give by SQLite's own VFS, whatever becomes of the file
while SQLite has pages of it in place, and no more memory is pinned than was allowed.

SQLite asks for pages in place (xFetch) when a statement reads, so cursors are kept open while pages are written, cut off and given up.
"""

import contextlib
import hashlib
import itertools
import os
import random
import sqlite3
import subprocess
import sys
import threading
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness
from _connect import beside, connect, database, is_sound, load, rewrite_elsewhere, run_elsewhere, stats
from vfs import MODES, dump, statements

MIB = 1 << 20
ROWS = 600
# What SQLite says when another connection is in the way.
FASTER = ("locked", "busy", "schema has changed")


def in_place(path, vfs="quire", limit=64 * MIB, **more):
    """A connection that asks for pages in place."""
    connection = connect(path, vfs, **more)
    assert connection.execute(f"PRAGMA mmap_size = {limit}").fetchone()[0] == limit
    return connection


def value(number, version):
    """What a row has: more than a page, or less."""
    return f"{number}/{version}/".ljust(random.Random(number).choice((100, 900, 3000, 9000)), "quire"[version % 5])


def make_rows(path, mode="DELETE", version=0, page_bytes=4096):
    with contextlib.closing(connect(path, "unix")) as plain:
        plain.execute(f"PRAGMA page_size = {page_bytes}")
        plain.execute("PRAGMA auto_vacuum = INCREMENTAL")
        plain.execute(f"PRAGMA journal_mode = {mode}")
        plain.execute("CREATE TABLE t(k INTEGER PRIMARY KEY, v TEXT)")
        plain.execute("CREATE INDEX tv ON t(substr(v, 1, 60))")
        plain.execute("BEGIN")
        plain.executemany("INSERT INTO t VALUES(?, ?)", ((number, value(number, version)) for number in range(ROWS)))
        plain.execute("COMMIT")
        if mode == "WAL":
            plain.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def outcome(connection, statement):
    """The rows of a statement, or what is wrong with it."""
    try:
        return connection.execute(statement).fetchall()
    except sqlite3.Error as error:
        return str(error)


def the_same_statements_and_open_cursors_give_the_same_rows(options):
    """Beside SQLite's own VFS with its own mapped pages. Cursors stay open over changes by their own connection, and go on afterwards."""
    load(options)
    for mode, page_bytes in itertools.product(MODES, (1024, 4096, 32768)):
        with harness.scratch() as directory:
            paths = [os.path.join(directory, name) for name in ("ours.db", "theirs.db")]
            both = [in_place(path, vfs) for path, vfs in zip(paths, ("quire", "unix"))]
            for one in both:
                one.execute(f"PRAGMA page_size = {page_bytes}")
                one.execute("PRAGMA auto_vacuum = INCREMENTAL")
                one.execute(f"PRAGMA journal_mode = {mode}").fetchall()
                one.execute("PRAGMA synchronous = OFF")
            dice, cursors = random.Random(f"{mode}{page_bytes}"), []
            for number, statement in enumerate(statements(f"{mode}{page_bytes}", 150)):
                ours, theirs = (outcome(one, statement) for one in both)
                assert ours == theirs, (mode, page_bytes, number, statement, ours, theirs)
                if number > 10 and dice.randrange(2):
                    query = dice.choice(("SELECT * FROM a", "SELECT * FROM b ORDER BY v", "SELECT k, v FROM a ORDER BY k DESC"))
                    cursors.append([one.execute(query) for one in both])
                    assert cursors[-1][0].fetchmany(3) == cursors[-1][1].fetchmany(3), (mode, page_bytes, number)
                if cursors and (len(cursors) > 3 or dice.randrange(2)):
                    ours, theirs = (cursor.fetchall() for cursor in cursors.pop(dice.randrange(len(cursors))))
                    assert ours == theirs, (mode, page_bytes, number)
            for pair in cursors:
                assert pair[0].fetchall() == pair[1].fetchall(), (mode, page_bytes)
            assert dump(both[0]) == dump(both[1]), (mode, page_bytes)
            served = stats(both[0])["fetches_served"]
            # Smaller pages than the pool's are never in place.
            assert (served > 100) == (page_bytes >= 4096), (mode, page_bytes, stats(both[0]))
            for one in both:
                one.close()
            assert is_sound(paths[0]), (mode, page_bytes)


def the_limit_is_told_and_kept(options):
    load(options)
    with database() as path:
        make_rows(path)
        connection = connect(path, "quire")
        limit = lambda text="": connection.execute("PRAGMA mmap_size" + text).fetchone()[0]
        served = lambda: stats(connection)["fetches_served"]
        read = lambda: connection.execute("SELECT sum(length(v)) FROM t").fetchone()[0]
        # The default is that of SQLite, which has none as Debian compiles it.
        with contextlib.closing(connect(path, "unix")) as plain:
            assert limit() == plain.execute("PRAGMA mmap_size").fetchone()[0]
            for asked in (0, 5 * MIB, 1 << 60, 0x7FFFFFFF, 0):
                theirs = plain.execute(f"PRAGMA mmap_size = {asked}").fetchone()[0]
                assert limit(f" = {asked}") == limit() == theirs, asked
        total, before = read(), served()
        assert limit(" = 8192") == 8192
        # Three rows of different pages are open at a time; two pages are allowed.
        cursors = [connection.execute("SELECT k, v FROM t WHERE k >= ?", (start,)) for start in (0, 200, 400)]
        assert [cursor.fetchone()[0] for cursor in cursors] == [0, 200, 400]
        assert limit(" = 1000000") == 8192, "not while SQLite has pages in place"
        assert stats(connection)["pool_leased_bytes"] <= 8192
        assert stats(connection)["fetches_declined"] > 0 and served() > before, stats(connection)
        for start, cursor in zip((0, 200, 400), cursors):
            assert cursor.fetchall() == [(number, value(number, 0)) for number in range(start + 1, ROWS)]
        assert stats(connection)["pool_leased_bytes"] == 0
        assert limit(" = 0") == 0
        before = served()
        assert read() == total and served() == before
        connection.close()


def what_the_pool_may_not_pin_is_read(options):
    """Many connections, each with an open cursor, on a pool of which leases may have 256 KiB."""
    load(options)
    with database() as path:
        make_rows(path)
        with contextlib.closing(connect(path, "quire")) as first:
            # Before any statement has taken memory of the pool.
            first.execute("PRAGMA quire_pool_bytes = '1MiB'").fetchall()
            connections = [in_place(path) for _ in range(80)]
            cursors = []
            for index, connection in enumerate(connections):
                connection.execute("PRAGMA cache_size = 1")
                start = index * ROWS // len(connections)
                cursors.append((start, connection.execute("SELECT k, v FROM t WHERE k >= ? ORDER BY k", (start,))))
                assert cursors[-1][1].fetchone() == (start, value(start, 0))
                now = stats(first)
                assert now["pool_leased_bytes"] <= now["pool_lease_limit_bytes"] <= MIB // 4, now
            after = stats(first)
            assert after["pool_leased_bytes"] > 0 and after["fetches_declined"] > 0, after
            for start, cursor in cursors:
                assert cursor.fetchall() == [(number, value(number, 0)) for number in range(start + 1, ROWS)]
            assert stats(first)["pool_leased_bytes"] == 0, stats(first)
            for connection in connections:
                connection.close()


def digest(rows):
    return hashlib.blake2b("".join(f"{key}:{text};" for key, text in rows).encode()).hexdigest()


def make_versions(path, mode):
    make_rows(path, mode)
    with contextlib.closing(connect(path, "unix")) as plain:
        plain.execute("CREATE TABLE version(number INTEGER, sum TEXT)")
        plain.execute("INSERT INTO version VALUES(0, ?)", (digest(plain.execute("SELECT * FROM t ORDER BY k")),))


def patiently(work):
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            assert any(word in str(error) for word in FASTER), error


def write_versions(path, vfs, mode, seed, count):
    """What another process does: each transaction leaves a digest of all rows. Between them the file gets shorter, longer, is checkpointed."""
    dice = random.Random(seed)
    connection = in_place(path, vfs, timeout=0.05)
    patiently(lambda: connection.execute(f"PRAGMA cache_size = {dice.choice((5, 2000))}"))
    patiently(lambda: connection.execute("PRAGMA synchronous = OFF"))

    def change():
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: connection.in_transaction and connection.execute("ROLLBACK"))
            connection.execute("BEGIN IMMEDIATE")
            number = connection.execute("SELECT number FROM version").fetchone()[0] + 1
            first, many = dice.randrange(ROWS), dice.choice((1, 5, 200))
            connection.execute("DELETE FROM t WHERE k BETWEEN ? AND ?", (first, first + many))
            rows = ((key, value(key, number)) for key in range(first, first + dice.choice((0, many))))
            connection.executemany("INSERT OR REPLACE INTO t VALUES(?, ?)", rows)
            rows = connection.execute("SELECT * FROM t ORDER BY k").fetchall()
            connection.execute("UPDATE version SET number = ?, sum = ?", (number, digest(rows)))
            connection.execute("COMMIT" if dice.randrange(8) else "ROLLBACK")

    def tidy():
        kind = dice.randrange(6)
        if kind == 0:
            connection.execute("VACUUM")
        elif kind < 3:
            connection.execute("PRAGMA incremental_vacuum(50)").fetchall()
        elif mode == "WAL":
            connection.execute(f"PRAGMA wal_checkpoint({dice.choice(('PASSIVE', 'RESTART', 'TRUNCATE'))})").fetchall()

    for _ in range(count):
        patiently(change)
        if dice.randrange(3) == 0:
            patiently(tidy)
    connection.close()


def see_version(connection, dice, seen):
    """The rows that a transaction reads are those of one version, by cursors that stay open together."""
    connection.execute("BEGIN")
    try:
        number, sum_ = connection.execute("SELECT number, sum FROM version").fetchone()
        cursors = [connection.execute(f"SELECT k, v FROM t ORDER BY {order}") for order in ("k", "k", "substr(v, 1, 60), k")]
        found = [[] for _ in cursors]
        going = list(range(len(cursors)))
        while going:
            index = dice.choice(going)
            rows = cursors[index].fetchmany(dice.choice((1, 7, 100)))
            found[index] += rows
            if not rows:
                going.remove(index)
        for rows in found:
            assert digest(sorted(rows)) == sum_, f"{len(rows)} rows are not those of version {number}"
        assert number >= seen, (number, seen)
        return number
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def a_reader_with_open_cursors_sees_one_version_while_other_processes_write(options):
    load(options)
    for mode in ("DELETE", "WAL"):
        with database() as path:
            make_versions(path, mode)
            dice, seen, looks, count = random.Random(mode), 0, 0, 40
            readers = [in_place(path, timeout=0.05) for _ in range(2)]
            for reader in readers:
                reader.execute("PRAGMA cache_size = 1")
                assert see_version(reader, dice, seen) == 0
            own = [os.path.abspath(__file__), "--quire", options.quire, "--write", path]
            writers = [
                subprocess.Popen([sys.executable, "-B", *own, vfs, mode, str(seed), str(count)], stderr=subprocess.PIPE, text=True)
                for seed, vfs in enumerate(("unix", "quire"))
            ]
            while any(writer.poll() is None for writer in writers) or looks < 10:
                reader = dice.choice(readers)
                seen = patiently(lambda: see_version(reader, dice, seen))
                looks += 1
            for writer in writers:
                errors = writer.communicate()[1]
                assert writer.returncode == 0, (mode, errors)
            assert patiently(lambda: see_version(readers[0], dice, seen)) >= count, seen
            now = stats(readers[0])
            assert now["fetches_served"] > 100 and now["invalidations"] > 0 and now["pool_leased_bytes"] == 0, now
            for reader in readers:
                reader.close()
            assert is_sound(path), mode


def threads_with_open_cursors_see_one_version_while_their_own_process_writes(options):
    load(options)
    for mode in ("DELETE", "WAL"):
        with database() as path:
            make_versions(path, mode)
            ended = threading.Event()

            def look(seed):
                dice, seen = random.Random(seed), 0
                with contextlib.closing(in_place(path, timeout=0.05)) as reader:
                    while not ended.is_set():
                        seen = patiently(lambda: see_version(reader, dice, seen))

            with beside(look, 2):
                try:
                    write_versions(path, "quire", mode, 9, 40)
                finally:
                    ended.set()
            assert is_sound(path), mode


def a_file_that_is_cut_off_under_an_open_cursor_ends_no_process(options):
    """SQLite's own VFS would have it end by SIGBUS, since its pages are those of the file."""
    load(options)
    for mode in ("DELETE", "WAL"):
        with database() as path:
            make_rows(path, mode)
            with open(path, "rb") as file:
                whole = file.read()
            connection = in_place(path)
            cursors = [connection.execute("SELECT k, v FROM t WHERE k >= ?", (start,)) for start in range(0, ROWS, 100)]
            for start, cursor in zip(range(0, ROWS, 100), cursors):
                assert cursor.fetchone() == (start, value(start, 0))
            os.truncate(path, 3 * 4096)
            for start, cursor in zip(range(0, ROWS, 100), cursors):
                expected = [(number, value(number, 0)) for number in range(start + 1, ROWS)]
                rows = []
                with contextlib.suppress(sqlite3.DatabaseError):
                    for row in cursor:
                        rows.append(row)
                assert rows == expected[: len(rows)], (mode, start)
            connection.close()
            with open(path, "wb") as file:
                file.write(whole)
            with contextlib.closing(in_place(path)) as later:
                assert later.execute("SELECT count(*) FROM t").fetchone()[0] == ROWS
            assert is_sound(path)


def damaged_pages_give_what_they_give_by_sqlite_s_own_vfs(options):
    """A damaged page may have SQLite read a little beyond its end."""
    load(options)
    dice = random.Random(4)
    with harness.scratch() as directory:
        whole = os.path.join(directory, "whole.db")
        make_rows(whole)
        with open(whole, "rb") as file:
            sound = file.read()
        for round_ in range(60):
            damaged = bytearray(sound)
            for _ in range(dice.choice((1, 20, 400))):
                # Headers and pointers of pages are at their start.
                page = dice.randrange(1, len(sound) // 4096)
                damaged[page * 4096 + dice.choice((dice.randrange(12), dice.randrange(4096)))] = dice.randrange(256)
            path = os.path.join(directory, f"{round_}.db")
            with open(path, "wb") as file:
                file.write(damaged)
            found = []
            for vfs, limit in (("quire", 64 * MIB), ("unix", 0)):
                uri = f"file:{urllib.parse.quote(path)}?vfs={vfs}&mode=ro"
                with contextlib.closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
                    connection.text_factory = bytes
                    connection.execute(f"PRAGMA mmap_size = {limit}").fetchall()
                    queries = ("SELECT * FROM t", "SELECT k FROM t ORDER BY substr(v, 1, 60)", "SELECT sum(length(v)) FROM t")
                    found.append([outcome(connection, query) for query in queries])
            assert found[0] == found[1], round_
            os.remove(path)


def a_forked_child_leaves_its_parent_s_pages_alone(options):
    load(options)
    with database() as path:
        make_rows(path)
        connection = in_place(path)
        cursor = connection.execute("SELECT k, v FROM t")
        assert cursor.fetchone() == (0, value(0, 0))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with contextlib.suppress(sqlite3.Error):
                    cursor.fetchall()
                cursor.close()
                with contextlib.closing(in_place(path)) as own:
                    is_right = own.execute("SELECT * FROM t").fetchall() == [(n, value(n, 0)) for n in range(ROWS)]
                    code = 0 if is_right and stats(own)["fetches_served"] > 0 else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert cursor.fetchall() == [(number, value(number, 0)) for number in range(1, ROWS)]
        assert stats(connection)["pool_leased_bytes"] == 0
        connection.close()


def an_open_cursor_keeps_no_page_but_its_own_of_what_others_have_changed(options):
    load(options)
    with database() as path:
        make_rows(path, "WAL")
        reader, connection = in_place(path), in_place(path)

        def write(*more):
            run_elsewhere(path, [(words, None) for words in ("UPDATE t SET v = v || 'x' WHERE k < 9", *more)])

        write()
        cursor = reader.execute("SELECT k, v FROM t WHERE k > 99")
        assert cursor.fetchone() == (100, value(100, 0))
        assert len(connection.execute("SELECT * FROM t").fetchall()) == ROWS
        before = stats(connection)
        write("PRAGMA wal_checkpoint(PASSIVE)")
        assert connection.execute("SELECT v FROM t WHERE k = 5").fetchone() == (value(5, 0) + "xx",)
        now = stats(connection)
        assert now["invalidations"] > before["invalidations"] and now["pool_leased_bytes"] > 0, (before, now)
        assert now["pool_resident_bytes"] < before["pool_resident_bytes"] // 2, (before, now)
        assert cursor.fetchall() == [(number, value(number, 0)) for number in range(101, ROWS)]
        reader.close()
        connection.close()
        assert is_sound(path)


def what_others_write_comes_in_place_with_the_next_statement(options):
    """Turn by turn with another process, without a cache of the connection's own in between."""
    load(options)
    for mode in ("DELETE", "WAL"):
        with database() as path:
            make_rows(path, mode)
            connection = in_place(path)
            for version in range(1, 6):
                rewrite_elsewhere(path, ((value(number, version), number) for number in range(ROWS)))
                before = stats(connection)["fetches_served"]
                rows = connection.execute("SELECT * FROM t").fetchall()
                assert rows == [(number, value(number, version)) for number in range(ROWS)], (mode, version)
                assert stats(connection)["fetches_served"] > before + 100, stats(connection)
            connection.close()
            assert is_sound(path)


if __name__ == "__main__":
    if "--write" in sys.argv:
        WORDS = sys.argv[1:]
        load(type("Options", (), {"quire": WORDS[WORDS.index("--quire") + 1]}))
        PATH, VFS, MODE, SEED, COUNT = WORDS[WORDS.index("--write") + 1 :]
        write_versions(PATH, VFS, MODE, int(SEED), int(COUNT))
        sys.exit(0)
    TESTS = [
        the_same_statements_and_open_cursors_give_the_same_rows,
        the_limit_is_told_and_kept,
        what_the_pool_may_not_pin_is_read,
        a_reader_with_open_cursors_sees_one_version_while_other_processes_write,
        threads_with_open_cursors_see_one_version_while_their_own_process_writes,
        a_file_that_is_cut_off_under_an_open_cursor_ends_no_process,
        damaged_pages_give_what_they_give_by_sqlite_s_own_vfs,
        a_forked_child_leaves_its_parent_s_pages_alone,
        an_open_cursor_keeps_no_page_but_its_own_of_what_others_have_changed,
        what_others_write_comes_in_place_with_the_next_statement,
    ]
    harness.run(TESTS, harness.arguments(__doc__))
