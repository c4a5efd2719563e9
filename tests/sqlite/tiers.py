"""The memory of libquire_sqlite.so: its two tiers, the pragmas that tell and set their sizes, what it does where memory or addresses are
short, and files that other programs cut off.

Each connection's own cache is one page, so that what it asks for comes from the pool or from beneath it.
"""

import contextlib
import os
import random
import resource
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness
from _connect import beside, connect, database, is_sound, load, rewrite_elsewhere, stats

MIB = 1 << 20
ROWS = 4000
# A row takes most of a page, and compresses to a small part of it.
FILLER = 3000


def text(number, version):
    return f"{number}/{version}/".ljust(FILLER, "quire"[version % 5])


def make_rows(path, mode="DELETE"):
    with contextlib.closing(connect(path, "unix")) as plain:
        plain.execute(f"PRAGMA journal_mode = {mode}")
        plain.execute("CREATE TABLE t(k INTEGER PRIMARY KEY, v TEXT)")
        plain.execute("BEGIN")
        plain.executemany("INSERT INTO t VALUES(?, ?)", ((number, text(number, 0)) for number in range(ROWS)))
        plain.execute("COMMIT")
        if mode == "WAL":
            plain.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def small_cache(path, **more):
    connection = connect(path, "quire", **more)
    connection.execute("PRAGMA cache_size = 1")
    return connection


def pragma(connection, name, value=None):
    row = connection.execute(f"PRAGMA {name}" + ("" if value is None else f" = '{value}'")).fetchone()
    return None if row is None else int(row[0])


def check(connection, numbers, version=0):
    for number in numbers:
        found = connection.execute("SELECT v FROM t WHERE k = ?", (number,)).fetchone()[0]
        assert found == text(number, version), (number, version, found[:20])


def drawn(dice, count):
    return [dice.randrange(ROWS) for _ in range(count)]


def use_tier(connection, dice, version=0):
    """Reads rows until some have come from the second tier: how many victims it takes depends on what the machine does besides."""
    before = stats(connection)["read_tier"]
    for _ in range(50):
        check(connection, drawn(dice, ROWS // 2), version)
        if stats(connection)["read_tier"] > before:
            return
    raise AssertionError(f"nothing came from the second tier: {stats(connection)}")


def what_the_pool_evicts_comes_from_the_second_tier(options):
    load(options)
    dice = random.Random(1)
    with database() as path:
        make_rows(path)
        connection = small_cache(path)
        pragma(connection, "quire_pool_bytes", 2 * MIB)
        assert pragma(connection, "quire_tier_bytes", 64 * MIB) > 0
        use_tier(connection, dice)
        after = stats(connection)
        assert after["evict_clean"] > 0 and after["tier_held_bytes"] > 0, after
        # What came back from the tier is in the pool, and a few copies are in the tier still.
        assert 0 < after["tier_twice_bytes"] <= after["tier_held_bytes"], after
        assert after["pool_resident_bytes"] <= 2 * MIB, after
        # Of all that was asked of the pool, and of what it did not have.
        hits, misses = after["pool_hits"], after["pool_misses"]
        assert 0 < after["pool_hit_ratio"] < 1 and abs(after["pool_hit_ratio"] - hits / (hits + misses)) < 0.0002, after
        assert 0 < after["tier_hit_ratio"] <= 1 and abs(after["tier_hit_ratio"] - after["read_tier"] / misses) < 0.0002, after
        assert pragma(connection, "quire_tier_bytes", "off") == 0
        off = stats(connection)
        assert off["tier_held_bytes"] == off["tier_twice_bytes"] == 0, off
        taken = stats(connection)["read_tier"]
        check(connection, drawn(dice, 1000))
        assert stats(connection)["read_tier"] == taken
        connection.close()
        assert is_sound(path)


def sizes_are_told_and_set_and_what_is_no_size_is_refused(options):
    load(options)
    with database() as path:
        connection = connect(path, "quire")
        connection.execute("CREATE TABLE t(v)")
        for size, bytes_ in (("8MiB", 8 * MIB), (str(3 * MIB), 3 * MIB), ("4mb", 4 * MIB)):
            assert pragma(connection, "quire_pool_bytes", size) == bytes_
            assert pragma(connection, "Quire_Pool_Bytes") == bytes_ == stats(connection)["pool_budget_bytes"]
        # A number and a word need no quotes.
        assert connection.execute(f"PRAGMA quire_pool_bytes = {4 * MIB}").fetchone()[0] == str(4 * MIB)
        # A part of the pool's bytes, from the first eviction on.
        assert int(connection.execute("PRAGMA quire_tier_bytes = auto").fetchone()[0]) == 0
        assert stats(connection)["tier_is_in_budget"] == 1
        assert 0 < pragma(connection, "quire_tier_bytes", "3MiB") <= 3 * MIB
        assert 0 < pragma(connection, "quire_tier_bytes") <= 3 * MIB
        assert 0 < pragma(connection, "quire_tier_bytes", "50%") <= 2 * MIB
        assert stats(connection)["tier_is_in_budget"] == 0
        assert pragma(connection, "quire_tier_bytes", 0) == 0
        for name in ("quire_pool_bytes", "quire_tier_bytes"):
            for wrong in ("much", "-1", "1000", "99999999999999999999", "", "%", "-5%"):
                try:
                    pragma(connection, name, wrong)
                    raise AssertionError(f"{name} = {wrong!r} was taken")
                except sqlite3.OperationalError as error:
                    assert name in str(error) and "no size" in str(error) or "none of" in str(error), error
        assert pragma(connection, "quire_pool_bytes") == 4 * MIB
        connection.close()


def is_within(connection, size_bytes):
    """Whether both tiers together keep to so many bytes. The two are read one after the other, and memory may go from one to the other meanwhile."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        now = stats(connection)
        if now["pool_limit_bytes"] + now["tier_limit_bytes"] <= size_bytes:
            return True
    return False


def a_pool_whose_bytes_both_tiers_share_keeps_to_them(options):
    load(options)
    for mode in ("DELETE", "WAL"):
        dice = random.Random(mode)
        with database() as path:
            make_rows(path, mode)
            connection = small_cache(path)
            assert pragma(connection, "quire_tier_bytes", "off") == 0
            assert pragma(connection, "quire_pool_bytes", 4 * MIB) == 4 * MIB
            pragma(connection, "quire_tier_bytes", "auto")
            use_tier(connection, dice)
            assert stats(connection)["tier_limit_bytes"] > 0
            for size in (4, 2, 3):
                assert pragma(connection, "quire_pool_bytes", size * MIB) == size * MIB
                check(connection, drawn(dice, 2000))
                now = stats(connection)
                assert now["pool_budget_bytes"] == size * MIB, now
                assert is_within(connection, size * MIB), stats(connection)
            rewrite_elsewhere(path, ((text(number, 1), number) for number in range(ROWS)))
            check(connection, drawn(dice, ROWS), 1)
            pragma(connection, "quire_tier_bytes", "off")
            assert stats(connection)["pool_limit_bytes"] == 3 * MIB
            connection.close()
            assert is_sound(path)


def sizes_of_the_uri_are_those_of_the_pool_and_wrong_ones_are_told(options):
    load(options)
    with database() as path:
        make_rows(path)

        def opened(parameters):
            uri = f"file:{urllib.parse.quote(path)}?vfs=quire&{parameters}"
            return contextlib.closing(sqlite3.connect(uri, uri=True, isolation_level=None))

        with opened("quire_pool=8MiB&quire_tier=auto") as connection:
            assert pragma(connection, "quire_pool_bytes") == 8 * MIB
            assert stats(connection)["tier_is_in_budget"] == 1
            with opened("quire_tier=50%25"):
                assert stats(connection)["tier_is_in_budget"] == 0
                assert 0 < pragma(connection, "quire_tier_bytes") <= 4 * MIB
            # Those that say nothing change nothing.
            with opened("cache=private"):
                assert pragma(connection, "quire_pool_bytes") == 8 * MIB
        # As the first database of a process, and with a size that is none.
        words = [sys.executable, "-B", os.path.abspath(__file__), "--quire", options.quire, "--opened", path]
        for parameters, variables, expected, is_told in (
            ("quire_pool=5MiB&quire_tier=auto", {}, [5 * MIB, 1], False),
            ("quire_pool=5MiB&quire_tier=off", {"QUIRE_SQLITE_TIER": "auto"}, [5 * MIB, 0], False),
            ("cache=private", {"QUIRE_SQLITE_TIER": "auto", "QUIRE_SQLITE_POOL": "6MiB"}, [6 * MIB, 1], False),
            ("cache=private", {"QUIRE_SQLITE_TIER": "25%", "QUIRE_SQLITE_COMPRESSION": "zstd"}, [None, 0], False),
            ("quire_pool=most&quire_tier=auto", {"QUIRE_SQLITE_POOL": "6MiB"}, [6 * MIB, 1], True),
            ("quire_pool=5MiB&quire_tier=half", {"QUIRE_SQLITE_TIER": "off"}, [5 * MIB, 0], True),
            ("quire_pool=5MiB&quire_tier=auto", {"QUIRE_SQLITE_COMPRESSION": "gzip"}, [5 * MIB, 1], True),
        ):
            environment = dict(os.environ, **variables)
            done = subprocess.run([*words, parameters], capture_output=True, text=True, timeout=120, env=environment)
            assert done.returncode == 0, done
            found = [int(word) for word in done.stdout.split()]
            assert found[1] == expected[1] and expected[0] in (found[0], None), (parameters, done)
            assert ("it has no effect" in done.stderr) == is_told, (parameters, done)


def opened_first(path, parameters):
    """What this file does as a child of that test."""
    uri = f"file:{urllib.parse.quote(path)}?vfs=quire&{parameters}"
    with contextlib.closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
        check(connection, range(0, ROWS, 50))
        print(pragma(connection, "quire_pool_bytes"), stats(connection)["tier_is_in_budget"])


def bytes_that_are_held_twice_are_told(options):
    load(options)
    with database() as path:
        make_rows(path)
        connection = small_cache(path)
        pragma(connection, "quire_pool_bytes", 64 * MIB)
        check(connection, range(ROWS))
        before = pragma(connection, "quire_held_twice_bytes")
        harness.skip_unless(before is not None, "this kernel doesn't say what its page cache holds")
        with open(path, "rb") as file:
            size = len(file.read())
        after = pragma(connection, "quire_held_twice_bytes")
        assert before <= after and size // 2 < after <= size + 4096, (before, after, size)
        connection.close()


def what_other_processes_commit_is_not_served_from_either_tier(options):
    load(options)
    for mode in ("DELETE", "WAL"):
        dice = random.Random(mode)
        with database() as path:
            make_rows(path, mode)
            connection = small_cache(path)
            pragma(connection, "quire_pool_bytes", 2 * MIB)
            pragma(connection, "quire_tier_bytes", 64 * MIB)
            use_tier(connection, dice)
            for version in range(1, 5):
                rewrite_elsewhere(path, ((text(number, version), number) for number in range(ROWS)))
                use_tier(connection, dice, version)
                check(connection, drawn(dice, 500), version)
            connection.close()
            assert is_sound(path)


def sizes_change_while_threads_read_and_write(options):
    load(options)
    for mode in ("DELETE", "WAL"):
        with database() as path:
            make_rows(path, mode)

            def read(seed):
                dice, own = random.Random(seed), small_cache(path)
                for _ in range(30):
                    check(own, (number for number in drawn(dice, 100) if number % 7))
                own.close()

            dice, connection = random.Random(mode), small_cache(path)
            with beside(read, 3) as threads:
                while any(thread.is_alive() for thread in threads):
                    pragma(connection, "quire_pool_bytes", dice.randrange(1, 9) * MIB)
                    pragma(connection, "quire_tier_bytes", dice.choice(("off", "auto", "80%", 2 * MIB, 32 * MIB)))
                    with contextlib.suppress(sqlite3.OperationalError):
                        connection.execute("UPDATE t SET v = 'changed' WHERE k = ?", (7 * dice.randrange(ROWS // 7),))
            connection.close()
            assert is_sound(path)


def a_wal_that_a_connection_of_this_process_begins_anew_leaves_the_pool_as_it_is(options):
    load(options)
    with database() as path:
        make_rows(path, "WAL")
        pool = small_cache(path)
        pragma(pool, "quire_pool_bytes", 64 * MIB)
        writer = small_cache(path)
        writer.execute("PRAGMA synchronous = OFF")
        check(pool, range(ROWS))
        before, resident = stats(pool)["invalidations"], stats(pool)["database_resident_bytes"]
        begun_anew = 0
        for number in range(60):
            # All is written back, so the next commit begins the WAL anew.
            row = writer.execute("PRAGMA wal_checkpoint").fetchone()
            begun_anew += row[1] == row[2]
            # The transaction is more than its connection's cache holds, so it writes to the WAL before its end.
            writer.execute("BEGIN IMMEDIATE")
            writer.execute("UPDATE t SET v = ? WHERE k >= ?", (text(number, 1), ROWS - 50))
            check(pool, [number, ROWS // 2])
            writer.execute("COMMIT")
            check(pool, [number, ROWS // 2])
        assert begun_anew > 50, begun_anew
        after = stats(pool)
        assert after["invalidations"] == before, (before, after)
        assert after["database_resident_bytes"] >= resident // 2, (resident, after)
        pool.close()
        writer.close()


def a_database_that_is_immutable_is_cached_until_it_is_opened_anew(options):
    load(options)
    with database() as path:
        make_rows(path)

        def immutable():
            uri = f"file:{urllib.parse.quote(path)}?vfs=quire&immutable=1"
            connection = sqlite3.connect(uri, uri=True, isolation_level=None)
            connection.execute("PRAGMA cache_size = 1")
            return connection

        first = immutable()
        pragma(first, "quire_pool_bytes", 64 * MIB)
        check(first, range(ROWS))
        before = stats(first)
        check(first, range(ROWS))
        after = stats(first)
        assert after["pool_misses"] == before["pool_misses"] and after["pool_hits"] > before["pool_hits"], (before, after)
        first.close()
        with contextlib.closing(connect(path, "unix")) as plain:
            plain.execute("BEGIN")
            plain.executemany("UPDATE t SET v = ? WHERE k = ?", ((text(number, 1), number) for number in range(100)))
            plain.execute("COMMIT")
        with contextlib.closing(immutable()) as second:
            check(second, range(100), 1)
            with contextlib.closing(small_cache(path)) as other:
                other.execute("UPDATE t SET v = ? WHERE k = 1", (text(1, 2),))
                check(other, [1], 2)


def a_database_that_another_program_cuts_off_is_not_served_from_the_pool(options):
    load(options)
    for mode in ("DELETE", "WAL"):
        with database() as path:
            make_rows(path, mode)
            connection = small_cache(path)
            pragma(connection, "quire_pool_bytes", 64 * MIB)
            check(connection, range(ROWS))
            # With a frame in the WAL SQLite goes by that for the number of pages, not by the file's length.
            connection.execute("UPDATE t SET v = ? WHERE k = 0", (text(0, 1),))
            with open(path, "rb") as file:
                whole = file.read()
            os.truncate(path, 5 * 4096)
            try:
                check(connection, [ROWS - 1])
                raise AssertionError(f"{mode}: a row came back that the file has no more")
            except sqlite3.DatabaseError:
                pass
            with open(path, "r+b") as file:
                file.write(whole)
            check(connection, range(1, ROWS, 9))
            connection.close()
            assert is_sound(path)


def a_database_that_is_cut_off_and_restored_again_and_again_ends_no_reader(options):
    load(options)
    for mode in ("DELETE", "WAL"):
        with database() as path:
            make_rows(path, mode)
            with open(path, "rb") as file:
                whole = file.read()
            reader, ended = small_cache(path), threading.Event()

            def cut():
                dice = random.Random(2)
                with open(path, "r+b", buffering=0) as file:
                    while not ended.is_set():
                        size = dice.randrange(len(whole))
                        file.truncate(size)
                        file.seek(size)
                        file.write(whole[size:])

            cutter = threading.Thread(target=cut)
            cutter.start()
            dice, right = random.Random(3), 0
            for number in drawn(dice, 3000):
                with contextlib.suppress(sqlite3.DatabaseError, TypeError):
                    found = reader.execute("SELECT v FROM t WHERE k = ?", (number,)).fetchone()[0]
                    assert found == text(number, 0), found[:20]
                    right += 1
            ended.set()
            cutter.join()
            reader.close()
            with contextlib.closing(small_cache(path)) as later:
                check(later, range(0, ROWS, 5))
            assert is_sound(path), (mode, right)


def where_addresses_are_limited_a_pool_fits_them_or_the_user_is_told(options):
    """ulimit -v."""
    load(options)
    with database() as path:
        make_rows(path)
        for limit, is_told in ((1 << 30, False), (40 * MIB, True)):
            # Addresses that the program has already come on top of the small limit.
            words = [sys.executable, "-B", os.path.abspath(__file__), "--quire", options.quire, "--limited", path, str(limit)]
            done = subprocess.run(words, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done
            assert ("ulimit -v" in done.stderr) == is_told, (limit, done.stderr)
            assert done.stdout.split()[0] == str(ROWS), done
            assert (int(done.stdout.split()[1]) > 0) != is_told, done


def limited(path, limit):
    """What this file does as a child of that test."""
    with open("/proc/self/statm", encoding="ascii") as file:
        own = int(file.read().split()[0]) * resource.getpagesize()
    if limit < 1 << 30:
        # The library takes a quarter of all addresses at most for a file.
        limit = min(limit + own, 4 * os.path.getsize(path) - 4096)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    connection = small_cache(path)
    rows = connection.execute("SELECT count(DISTINCT v) FROM t").fetchone()[0]
    text_ = connection.execute("PRAGMA quire_stats").fetchone()
    resident = 0 if text_ is None else stats(connection)["database_resident_bytes"]
    print(rows, resident)


if __name__ == "__main__":
    if "--limited" in sys.argv:
        load(type("Options", (), {"quire": sys.argv[sys.argv.index("--quire") + 1]}))
        limited(sys.argv[-2], int(sys.argv[-1]))
        sys.exit(0)
    if "--opened" in sys.argv:
        load(type("Options", (), {"quire": sys.argv[sys.argv.index("--quire") + 1]}))
        opened_first(sys.argv[-2], sys.argv[-1])
        sys.exit(0)
    TESTS = [
        what_the_pool_evicts_comes_from_the_second_tier,
        sizes_are_told_and_set_and_what_is_no_size_is_refused,
        a_pool_whose_bytes_both_tiers_share_keeps_to_them,
        sizes_of_the_uri_are_those_of_the_pool_and_wrong_ones_are_told,
        bytes_that_are_held_twice_are_told,
        what_other_processes_commit_is_not_served_from_either_tier,
        sizes_change_while_threads_read_and_write,
        a_wal_that_a_connection_of_this_process_begins_anew_leaves_the_pool_as_it_is,
        a_database_that_is_immutable_is_cached_until_it_is_opened_anew,
        a_database_that_another_program_cuts_off_is_not_served_from_the_pool,
        a_database_that_is_cut_off_and_restored_again_and_again_ends_no_reader,
        where_addresses_are_limited_a_pool_fits_them_or_the_user_is_told,
    ]
    harness.run(TESTS, harness.arguments(__doc__))
