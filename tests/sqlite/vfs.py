"""SQLite on libquire_sqlite.so: databases must hold what SQLite's own VFS would have put there, whichever process reads and writes them.

Peers are Python's sqlite3 with SQLite's own VFS, in the same process and in others, on the same files.
"""

import contextlib
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness
from _connect import beside, connect, database, is_sound, load, stats

MODES = ("DELETE", "TRUNCATE", "PERSIST", "WAL")
ACCOUNTS = 200


def dump(connection):
    return [row for table in ("a", "b") for row in connection.execute(f"SELECT * FROM {table} ORDER BY 1")]


def statements(seed, count):
    """Changes of all kinds, the same for the same seed."""
    dice = random.Random(seed)
    yield "CREATE TABLE a(k INTEGER PRIMARY KEY, v BLOB); "
    yield "CREATE TABLE b(k INTEGER PRIMARY KEY, v TEXT)"
    yield "CREATE INDEX bv ON b(v)"
    for number in range(count):
        key, size = dice.randrange(2000), dice.choice((10, 200, 3000, 20_000))
        kind = dice.randrange(20)
        if kind < 8:
            yield f"INSERT OR REPLACE INTO a VALUES({key}, zeroblob({size}) || '{number}')"
        elif kind < 12:
            yield f"INSERT OR REPLACE INTO b VALUES({key}, '{dice.random()}')"
        elif kind < 14:
            yield f"DELETE FROM a WHERE k BETWEEN {key} AND {key + dice.randrange(200)}"
        elif kind < 16:
            yield f"UPDATE b SET v = v || '{number}' WHERE k % 17 = {key % 17}"
        elif kind == 16:
            yield "BEGIN"
            yield f"INSERT OR REPLACE INTO a VALUES({key}, zeroblob({10 * size}))"
            yield f"DELETE FROM b WHERE k % 3 = {key % 3}"
            yield dice.choice(("COMMIT", "ROLLBACK"))
        elif kind == 17:
            yield "VACUUM" if dice.randrange(4) == 0 else "PRAGMA incremental_vacuum"
        elif kind == 18:
            yield f"PRAGMA wal_checkpoint({dice.choice(('PASSIVE', 'FULL', 'RESTART', 'TRUNCATE'))})"
        else:
            yield f"PRAGMA cache_size = {dice.choice((5, 100, 2000))}"


def the_same_statements_leave_the_same_tables(options):
    """Beside SQLite's own VFS, in every journal mode and with pages of every size."""
    load(options)
    for mode in MODES:
        for page_bytes in (512, 4096, 65536):
            with harness.scratch() as directory:
                paths = [os.path.join(directory, name) for name in ("ours.db", "theirs.db")]
                both = [connect(paths[0], "quire"), connect(paths[1], "unix")]
                for one in both:
                    one.execute(f"PRAGMA page_size = {page_bytes}")
                    one.execute("PRAGMA auto_vacuum = INCREMENTAL" if page_bytes == 4096 else "PRAGMA user_version")
                    assert one.execute(f"PRAGMA journal_mode = {mode}").fetchone()[0] == mode.lower()
                    one.execute("PRAGMA synchronous = NORMAL")
                for statement in statements(f"{mode}{page_bytes}", 150):
                    for one in both:
                        one.execute(statement).fetchall()
                assert dump(both[0]) == dump(both[1]), (mode, page_bytes)
                stats = both[0].execute("PRAGMA quire_stats").fetchone()[0]
                assert "pool_misses" in stats, stats
                for one in both:
                    one.close()
                assert is_sound(paths[0]), (mode, page_bytes)
                with contextlib.closing(connect(paths[0], "unix")) as ours:
                    with contextlib.closing(connect(paths[1], "unix")) as theirs:
                        assert dump(ours) == dump(theirs), (mode, page_bytes)


def transfer(connection, dice):
    """Moves money, so that the sum stays; sees that it does."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        giver, taker, amount = dice.randrange(ACCOUNTS), dice.randrange(ACCOUNTS), dice.randrange(100)
        connection.execute("UPDATE account SET sum = sum - ? WHERE id = ?", (amount, giver))
        connection.execute("UPDATE account SET sum = sum + ? WHERE id = ?", (amount, taker))
        connection.execute("UPDATE counter SET done = done + 1")
        connection.execute("COMMIT")
    except sqlite3.OperationalError:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def check_sum(connection):
    # One statement: it sees one state.
    total, count = connection.execute("SELECT sum(sum), count(*) FROM account").fetchone()
    assert (total, count) == (1000 * ACCOUNTS, ACCOUNTS), (total, count)


def make_accounts(path, mode):
    with contextlib.closing(connect(path, "unix")) as plain:
        plain.execute(f"PRAGMA journal_mode = {mode}")
        plain.execute("CREATE TABLE account(id INTEGER PRIMARY KEY, sum INTEGER, rest TEXT)")
        plain.execute("CREATE TABLE counter(done INTEGER)")
        plain.execute("INSERT INTO counter VALUES(0)")
        with plain:
            rows = ((number, 1000, "x" * 500) for number in range(ACCOUNTS))
            plain.executemany("INSERT INTO account VALUES(?, ?, ?)", rows)


def work(path, vfs, seed, count, mode):
    """What another process does: transfers and checks; prints how many transfers were made."""
    dice = random.Random(seed)
    connection = connect(path, vfs)
    connection.execute("PRAGMA synchronous = NORMAL")
    if mode == "WAL":
        connection.execute(f"PRAGMA wal_autocheckpoint = {dice.choice((1, 10, 1000))}")
    done = 0
    while done < count:
        try:
            transfer(connection, dice)
            done += 1
            check_sum(connection)
            if mode == "WAL" and dice.randrange(20) == 0:
                connection.execute(f"PRAGMA wal_checkpoint({dice.choice(('PASSIVE', 'RESTART', 'TRUNCATE'))})")
            if dice.randrange(30) == 0:
                connection.close()
                connection = connect(path, vfs)
        except sqlite3.OperationalError as error:
            assert "locked" in str(error) or "busy" in str(error), error
    connection.close()
    print(done)


def other_process(options, *words):
    return subprocess.Popen(
        [sys.executable, os.path.abspath(__file__), "--quire", options.quire, "--work", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def processes_with_both_vfs_see_each_others_commits(options):
    """Two processes by each VFS on one database: no transfer is lost, no reader sees half of one."""
    load(options)
    for mode in ("DELETE", "WAL"):
        with database() as path:
            make_accounts(path, mode)
            count = 40
            others = [
                other_process(options, path, vfs, seed, count, mode)
                for seed, vfs in enumerate(("quire", "unix", "quire", "unix"))
            ]
            for other in others:
                out, errors = other.communicate(timeout=240)
                assert other.returncode == 0, (mode, errors.decode())
                assert int(out) == count
            for vfs in ("quire", "unix"):
                with contextlib.closing(connect(path, vfs)) as connection:
                    check_sum(connection)
                    assert connection.execute("SELECT done FROM counter").fetchone()[0] == 4 * count, (mode, vfs)
            assert is_sound(path), mode


def echo(options, path, vfs):
    """A process that answers statements."""
    return subprocess.Popen(
        [sys.executable, os.path.abspath(__file__), "--quire", options.quire, "--echo", path, vfs],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def ask(process, query):
    process.stdin.write(query + "\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def threads_of_one_process_share_the_database(options):
    load(options)
    for mode in ("DELETE", "WAL"):
        with database() as path:
            make_accounts(path, mode)
            def run(seed):
                dice, done = random.Random(seed), 0
                with contextlib.closing(connect(path, "quire")) as connection:
                    while done < 40:
                        try:
                            transfer(connection, dice)
                            done += 1
                            check_sum(connection)
                        except sqlite3.OperationalError as error:
                            assert "locked" in str(error), error

            with beside(run, 4):
                pass
            with contextlib.closing(connect(path, "unix")) as plain:
                check_sum(plain)
                assert plain.execute("SELECT done FROM counter").fetchone()[0] == 160, mode
            assert is_sound(path), mode


def a_reader_sees_what_another_process_has_just_committed(options):
    """Turn by turn: whatever was committed by the other VFS, checkpoints included, is what the next statement reads."""
    load(options)
    for mode in ("DELETE", "WAL"):
        with database() as path:
            make_accounts(path, mode)
            child = echo(options, path, "unix")
            dice = random.Random(mode)
            with contextlib.closing(connect(path, "quire")) as ours:
                for number in range(200):
                    statement = f"UPDATE account SET sum = {number} WHERE id % {dice.randrange(1, 9)} = 0"
                    if dice.randrange(2):
                        child.stdin.write(statement + "\n")
                        if mode == "WAL" and dice.randrange(3) == 0:
                            child.stdin.write("PRAGMA wal_checkpoint(TRUNCATE)\n")
                        child.stdin.write("SELECT group_concat(sum) FROM account\n")
                    else:
                        ours.execute(statement)
                        child.stdin.write("SELECT group_concat(sum) FROM account\n")
                    child.stdin.flush()
                    theirs = child.stdout.readline().strip()
                    assert ours.execute("SELECT group_concat(sum) FROM account").fetchone()[0] == theirs, (mode, number)
            child.stdin.close()
            child.wait(30)


def a_checkpoint_that_a_reader_keeps_short_is_seen_by_others_at_once(options):
    """A reader holds the WAL's end; a checkpoint by quire writes the rest; another process must read that from the file."""
    load(options)
    with database() as path:
        make_accounts(path, "WAL")
        other = echo(options, path, "unix")
        ours, holder = connect(path, "quire"), connect(path, "unix")
        ours.execute("PRAGMA wal_autocheckpoint = 0")
        for number in range(60):
            ours.execute("UPDATE account SET sum = ?, rest = hex(randomblob(900))", (number,))
            holder.execute("BEGIN")
            holder.execute("SELECT count(*) FROM account").fetchall()
            ours.execute("UPDATE account SET sum = sum + 1 WHERE id % 5 = 0")
            busy, frames, done = ours.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            assert not busy and done < frames, (busy, frames, done)
            expected = ours.execute("SELECT group_concat(sum || rest) FROM account").fetchone()[0]
            assert ask(other, "SELECT group_concat(sum || rest) FROM account") == expected, number
            holder.execute("COMMIT")
            if number % 7 == 0:
                ours.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        ours.close()
        holder.close()
        other.stdin.close()
        other.wait(30)
        assert is_sound(path)


def a_reader_that_may_not_write_the_index_sees_checkpoints(options):
    """Another user may only read the database and its WAL index."""
    load(options)
    harness.skip_unless(os.geteuid() == 0, "another user takes root")
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        for name in ("quire", "libquire_sqlite.so"):
            shutil.copy(os.path.join(os.path.dirname(options.quire), name), directory)
        for name in ("tests/sqlite/vfs.py", "tests/sqlite/_connect.py", "tests/harness.py"):
            os.makedirs(os.path.join(directory, os.path.dirname(name)), exist_ok=True)
            shutil.copy(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..", name), os.path.join(directory, name))
        path = os.path.join(directory, "test.db")
        make_accounts(path, "WAL")
        writer = connect(path, "unix")
        writer.execute("UPDATE counter SET done = 0")
        script = os.path.join(directory, "tests/sqlite/vfs.py")
        words = [sys.executable, "-B", script, "--quire", os.path.join(directory, "quire"), "--echo", path, "quire"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        reader = subprocess.Popen(words, user=65534, group=65534, extra_groups=[], **pipes)
        for number in range(30):
            writer.execute("UPDATE account SET sum = ?", (number,))
            if number % 2:
                writer.execute(f"PRAGMA wal_checkpoint({'TRUNCATE' if number % 4 == 1 else 'PASSIVE'})")
            assert ask(reader, "SELECT group_concat(DISTINCT sum) FROM account") == str(number)
        reader.stdin.close()
        reader.wait(30)
        writer.close()


def a_failed_transaction_that_another_process_rolls_back_is_not_seen(options):
    """Its pages were spilled and read again when the file may grow no more; its journal stays hot for the other process."""
    load(options)
    with database() as path:
        make_accounts(path, "DELETE")
        ours = connect(path, "quire")
        ours.execute("PRAGMA cache_size = 5")
        ours.execute("BEGIN")
        ours.execute("UPDATE account SET sum = 0, rest = hex(randomblob(250))")
        assert ours.execute("SELECT sum(sum) FROM account").fetchone()[0] == 0
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        # The journal does not grow by new pages, so it is the database that meets the limit.
        most = max(os.path.getsize(path), os.path.getsize(path + "-journal")) + 100_000
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, limit[1]))
        try:
            while True:
                ours.execute("INSERT INTO account(sum, rest) VALUES(5, hex(randomblob(20000)))")
        except sqlite3.OperationalError as error:
            assert "full" in str(error) or "I/O" in str(error), error
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        assert os.path.exists(path + "-journal"), "this was to leave a hot journal"
        other = echo(options, path, "unix")
        right = str(1000 * ACCOUNTS)
        assert ask(other, "SELECT sum(sum) FROM account") == right
        if ours.in_transaction:
            ours.execute("ROLLBACK")
        assert str(ours.execute("SELECT sum(sum) FROM account").fetchone()[0]) == right
        ours.close()
        other.stdin.close()
        other.wait(30)
        assert is_sound(path)


def a_database_that_leaves_wal_mode_shows_what_was_written_in_it(options):
    load(options)
    for exclusive in (True, False):
        with database() as path:
            make_accounts(path, "DELETE" if exclusive else "WAL")
            stays = connect(path, "quire")
            check_sum(stays)
            other = connect(path, "quire")
            if not exclusive:
                check_sum(other)
            script = "PRAGMA journal_mode = WAL; UPDATE account SET sum = 3; PRAGMA wal_checkpoint;"
            if exclusive:
                stays.execute("SELECT 1")
            else:
                stays.close()
            code = f"import sqlite3; c = sqlite3.connect({path!r}); c.executescript({script!r}); c.close()"
            subprocess.run([sys.executable, "-c", code], check=True)
            if exclusive:
                other.execute("PRAGMA locking_mode = EXCLUSIVE")
            assert other.execute("PRAGMA journal_mode = DELETE").fetchone()[0] == "delete"
            if exclusive:
                other.close()
                readers = [stays, connect(path, "quire")]
            else:
                # The connection itself keeps what its own cache has, as with SQLite's own VFS.
                readers = [connect(path, "quire")]
            for reader in readers:
                assert reader.execute("SELECT sum(sum) FROM account").fetchone()[0] == 3 * ACCOUNTS, exclusive
                reader.close()


def the_pool_serves_what_was_read_before(options):
    load(options)
    with database() as path:
        early = connect(path, "quire")
        make_accounts(path, "DELETE")
        connection = connect(path, "quire")
        connection.execute("PRAGMA cache_size = 1")
        check_sum(connection)
        before, pages = stats(connection), os.path.getsize(path) // 4096
        # Also of a file that had no bytes when it was opened.
        assert before["database_resident_bytes"] >= 4096 * pages // 2, (before, pages)
        for _ in range(50):
            check_sum(connection)
        after = stats(connection)
        assert after["pool_misses"] == before["pool_misses"], (before, after)
        assert after["pool_hits"] > before["pool_hits"], (before, after)
        for number in range(20):
            connection.execute("UPDATE counter SET done = ?", (number,))
            assert early.execute("SELECT done FROM counter").fetchone()[0] == number
        assert stats(connection)["invalidations"] == before["invalidations"], "its own commits are no reason"
        connection.close()
        early.close()


def unwritten(options, path):
    """Bytes of a file that the kernel has in memory and not on the device; None where it doesn't say."""
    done = subprocess.run([options.quire, "doctor", "--file", path, "--json"], check=True, capture_output=True, text=True)
    told = json.loads(done.stdout)
    return None if told["dirty_bytes"] is None else told["dirty_bytes"] + told["writeback_bytes"]


def what_is_committed_has_been_synced(options):
    """The kernel has no dirty page of the database when COMMIT, or a checkpoint, returns. A kill would not tell: it needs no fsync."""
    load(options)
    with database() as path:
        connection = connect(path, "quire")
        connection.execute("CREATE TABLE t(k INTEGER PRIMARY KEY, v BLOB)")

        def left(end):
            """What is left to be written after a transaction and `end`."""
            connection.execute("BEGIN")
            connection.executemany("INSERT OR REPLACE INTO t VALUES(?, randomblob(3000))", ((key,) for key in range(200)))
            connection.execute("COMMIT")
            for words in end:
                connection.execute(words).fetchall()
            return unwritten(options, path)

        harness.skip_unless(unwritten(options, path) is not None, "this kernel has no cachestat")
        for mode, end in (("DELETE", ()), ("PERSIST", ()), ("WAL", ("PRAGMA wal_checkpoint(FULL)",))):
            connection.execute(f"PRAGMA journal_mode = {mode}")
            # Without syncs something is left, but where the kernel writes at once or the file system has no device.
            connection.execute("PRAGMA synchronous = OFF")
            harness.skip_unless(any(left(end) for _ in range(20)), "this file system leaves no page dirty")
            connection.execute("PRAGMA synchronous = FULL")
            for _ in range(5):
                assert left(end) == 0, mode
        connection.close()


def a_killed_process_loses_no_commit(options):
    """kill -9 at any time, while another process keeps the database open: each transfer that was reported is there, and the database is
    sound. Without syncs too: they matter to power cuts only."""
    load(options)
    for mode, synchronous in (("DELETE", "FULL"), ("DELETE", "OFF"), ("WAL", "FULL"), ("WAL", "OFF")):
        for round_ in range(4):
            with database() as path:
                make_accounts(path, mode)
                stays = connect(path, "unix")
                check_sum(stays)
                with contextlib.closing(connect(path, "unix")) as plain:
                    plain.execute("CREATE TABLE log(n INTEGER PRIMARY KEY, filler TEXT)")
                child = subprocess.Popen(
                    [sys.executable, os.path.abspath(__file__), "--quire", options.quire, "--append", path, synchronous],
                    stdout=subprocess.PIPE,
                    text=True,
                )
                # Killed at another moment each time, after so many commits were reported.
                for _ in range(20 + 37 * round_):
                    last = int(child.stdout.readline())
                child.send_signal(signal.SIGKILL)
                reported = [int(line) for line in child.stdout]
                child.wait()
                last = max([last, *reported])
                check_sum(stays)
                stays.close()
                for vfs in ("quire", "unix") if round_ % 2 else ("unix", "quire"):
                    with contextlib.closing(connect(path, vfs)) as connection:
                        found = connection.execute("SELECT max(n), count(*) FROM log").fetchone()
                        assert found[0] in (last, last + 1) and found[1] == found[0], (mode, vfs, found, last)
                        check_sum(connection)
                assert is_sound(path), mode


def a_full_disk_fails_the_transaction_and_not_the_database(options):
    load(options)
    harness.skip_unless(os.geteuid() == 0, "a file system of its own takes root")
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", directory], check=True)
        try:
            for mode in ("DELETE", "WAL"):
                ballast = os.path.join(directory, "ballast")
                with open(ballast, "wb") as file:
                    file.write(bytes(2 << 20))
                path = os.path.join(directory, f"{mode}.db")
                connection = connect(path, "quire")
                connection.execute(f"PRAGMA journal_mode = {mode}")
                connection.execute("CREATE TABLE t(v BLOB)")
                connection.execute("INSERT INTO t VALUES('kept')")
                try:
                    while True:
                        connection.execute("INSERT INTO t VALUES(zeroblob(300000))")
                except sqlite3.Error as error:
                    assert "full" in str(error) or "I/O" in str(error), error
                assert connection.execute("SELECT v FROM t LIMIT 1").fetchone()[0] == "kept"
                os.remove(ballast)
                connection.execute("DELETE FROM t WHERE rowid = 2")
                connection.close()
                assert is_sound(path)
                for name in os.listdir(directory):
                    os.remove(os.path.join(directory, name))
        finally:
            subprocess.run(["umount", "-l", directory], check=True)


def a_database_that_can_only_be_read_is_read(options):
    load(options)
    with database() as path:
        make_accounts(path, "DELETE")
        for query in ("mode=ro", "immutable=1"):
            uri = f"file:{urllib.parse.quote(path)}?vfs=quire&{query}"
            with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
                check_sum(connection)
                try:
                    connection.execute("DELETE FROM account")
                    raise AssertionError("it was changed")
                except sqlite3.OperationalError as error:
                    assert "readonly" in str(error), error


def a_forked_child_has_a_pool_of_its_own(options):
    load(options)
    with database() as path:
        make_accounts(path, "DELETE")
        parent = connect(path, "quire")
        check_sum(parent)
        child = os.fork()
        if child == 0:
            code = 1
            with contextlib.suppress(BaseException):
                own = connect(path, "quire")
                check_sum(own)
                own.execute("UPDATE account SET rest = 'child'")
                own.close()
                with contextlib.suppress(sqlite3.Error):
                    parent.execute("SELECT * FROM account").fetchall()
                    os._exit(2)
                code = 0
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert parent.execute("SELECT count(*) FROM account WHERE rest = 'child'").fetchone()[0] == ACCOUNTS
        parent.close()
        assert is_sound(path)


def in_other_process():
    """What this file does as a child of a test."""
    words = sys.argv[1:]
    quire = words[words.index("--quire") + 1]
    load(type("Options", (), {"quire": quire}))
    if "--work" in words:
        path, vfs, seed, count, mode = words[words.index("--work") + 1 :]
        work(path, vfs, int(seed), int(count), mode)
    elif "--echo" in words:
        connection = connect(*words[words.index("--echo") + 1 :])
        for line in sys.stdin:
            rows = connection.execute(line).fetchall()
            if line.startswith("SELECT"):
                print(rows[0][0], flush=True)
    else:
        path, synchronous = words[words.index("--append") + 1 :]
        connection, dice = connect(path, "quire"), random.Random(6)
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute("PRAGMA wal_autocheckpoint = 5")
        connection.execute("PRAGMA cache_size = 10")
        for number in range(1, 100_000):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO log VALUES(?, ?)", (number, "y" * dice.randrange(3000)))
            giver, taker = dice.randrange(ACCOUNTS), dice.randrange(ACCOUNTS)
            connection.execute("UPDATE account SET sum = sum - 1 WHERE id = ?", (giver,))
            connection.execute("UPDATE account SET sum = sum + 1 WHERE id = ?", (taker,))
            connection.execute("COMMIT")
            print(number, flush=True)


if __name__ == "__main__":
    if {"--work", "--echo", "--append"} & set(sys.argv):
        in_other_process()
        sys.exit(0)
    TESTS = [
        the_same_statements_leave_the_same_tables,
        processes_with_both_vfs_see_each_others_commits,
        threads_of_one_process_share_the_database,
        a_reader_sees_what_another_process_has_just_committed,
        a_checkpoint_that_a_reader_keeps_short_is_seen_by_others_at_once,
        a_reader_that_may_not_write_the_index_sees_checkpoints,
        a_failed_transaction_that_another_process_rolls_back_is_not_seen,
        a_database_that_leaves_wal_mode_shows_what_was_written_in_it,
        the_pool_serves_what_was_read_before,
        what_is_committed_has_been_synced,
        a_killed_process_loses_no_commit,
        a_full_disk_fails_the_transaction_and_not_the_database,
        a_database_that_can_only_be_read_is_read,
        a_forked_child_has_a_pool_of_its_own,
    ]
    harness.run(TESTS, harness.arguments(__doc__))
