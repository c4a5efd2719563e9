"""kill -9 of processes that work on one database, by libquire_sqlite.so and by SQLite's own VFS: every commit that was reported is
there, no transaction is there in part, and no reader ever sees a page that is not of its transaction.

Each worker owns rows that it alone changes, in transactions whose effects follow from their numbers. With the rows it writes
the number and a digest of all that it owns, so whatever process reads them together can tell whether they belong together. A
worker has two connections, one by each VFS, pages in place, small caches, transactions that spill, checkpoints, and rollbacks. A killed worker is begun
anew while the others go on; `--rounds` counts the kills. After each one SQLite's own VFS says whether the database is sound.
"""

import contextlib
import hashlib
import itertools
import os
import random
import select
import signal
import sqlite3
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness
from _connect import connect, load

MODES = ("DELETE", "WAL", "TRUNCATE", "WAL", "PERSIST", "WAL")
VFS = ("quire", "unix")
WORKERS = 3
# A worker's keys.
KEYS = 60
# More pages are dropped with the rows, and the database is made anew.
MOST_BYTES = 32 << 20
# Errors that say that another connection was faster.
FASTER = ("locked", "busy", "schema has changed")


def digest(rows):
    """Of the rows, in the order of their keys."""
    sum_ = hashlib.blake2b(digest_size=16)
    for key, value in rows:
        sum_.update(b"%d:%d:" % (key, len(value)))
        sum_.update(value)
    return sum_.hexdigest()


def effects(owner, number):
    """What transaction `number` of `owner` changes: keys, and their new values or None."""
    dice = random.Random(f"{owner}/{number}")
    # One in eight is more than any cache holds, and goes to the file before its commit.
    sizes = (1000, 9000, 40_000) if dice.randrange(8) == 0 else (1, 30, 700, 5000)
    return [
        (dice.randrange(KEYS), dice.randbytes(dice.choice(sizes)) if dice.randrange(4) else None)
        for _ in range(dice.randrange(1, 12))
    ]


def make(path, dice, mode):
    for suffix in ("", "-journal", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.remove(path + suffix)
    with contextlib.closing(connect(path, "unix")) as plain:
        plain.execute(f"PRAGMA page_size = {dice.choice((4096, 4096, 4096, 1024, 16384, 65536))}")
        plain.execute(f"PRAGMA auto_vacuum = {dice.choice(('NONE', 'FULL', 'INCREMENTAL'))}")
        plain.execute(f"PRAGMA journal_mode = {mode}")
        plain.execute("CREATE TABLE item(owner INTEGER, key INTEGER, value BLOB, PRIMARY KEY(owner, key))")
        plain.execute("CREATE INDEX item_value ON item(substr(value, 1, 200))")
        plain.execute("CREATE TABLE progress(owner INTEGER PRIMARY KEY, number INTEGER, sum TEXT)")
        for owner in range(WORKERS):
            plain.execute("INSERT INTO progress VALUES(?, 0, ?)", (owner, digest([])))


def read(connection, owner):
    """The rows of an owner and the number of its last transaction, which must belong together."""
    connection.execute("BEGIN")
    try:
        number, sum_ = connection.execute("SELECT number, sum FROM progress WHERE owner = ?", (owner,)).fetchone()
        rows = connection.execute("SELECT key, value FROM item WHERE owner = ? ORDER BY key", (owner,)).fetchall()
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    assert digest(rows) == sum_, f"owner {owner}: {len(rows)} rows are not those of transaction {number}"
    return number, dict(rows)


class Worker:
    """What another process does until it is killed."""

    def __init__(self, path, owner, mode, vfs, seed):
        self.path, self.owner, self.mode, self.vfs = path, owner, mode, vfs.split(",")
        self.dice = random.Random(seed)
        self.seen = [0] * WORKERS
        self.connections = [self.open(vfs) for vfs in self.vfs]
        self.number, self.rows = self.patiently(lambda: read(self.connections[0], owner))

    def open(self, vfs):
        connection = connect(self.path, vfs, 0.2)
        # Pages in place, read, or both. SQLite's own VFS would have processes share a mapped file while it is cut off.
        in_place = self.dice.choice((0, 16_384, 1 << 30)) if vfs == "quire" else 0
        self.patiently(lambda: connection.execute(f"PRAGMA mmap_size = {in_place}"))
        self.patiently(lambda: connection.execute(f"PRAGMA cache_size = {self.dice.choice((1, 5, 50, 2000))}"))
        self.patiently(lambda: connection.execute(f"PRAGMA synchronous = {self.dice.choice(('OFF', 'NORMAL', 'FULL'))}"))
        self.patiently(lambda: connection.execute(f"PRAGMA wal_autocheckpoint = {self.dice.choice((0, 1, 20, 1000))}"))
        if self.mode != "WAL":
            # Each process as it likes: DELETE, TRUNCATE and PERSIST are no matter of the file.
            mode = self.dice.choice(("DELETE", "TRUNCATE", "PERSIST"))
            self.patiently(lambda: connection.execute(f"PRAGMA journal_mode = {mode}").fetchall())
        return connection

    @staticmethod
    def patiently(work):
        """`work` until no other connection is in its way."""
        while True:
            try:
                return work()
            except sqlite3.OperationalError as error:
                if not any(word in str(error) for word in FASTER):
                    raise

    def change(self, connection):
        """The next transaction, or one that is given up."""
        number, after = self.number + 1, dict(self.rows)
        gives_up = self.dice.randrange(6) == 0
        connection.execute("BEGIN" if self.dice.randrange(3) == 0 else "BEGIN IMMEDIATE")
        for key, value in effects(self.owner, number + 1_000_000 * gives_up):
            if value is None:
                connection.execute("DELETE FROM item WHERE owner = ? AND key = ?", (self.owner, key))
                after.pop(key, None)
            else:
                connection.execute("INSERT OR REPLACE INTO item VALUES(?, ?, ?)", (self.owner, key, value))
                after[key] = value
        sum_ = digest(sorted(after.items()))
        connection.execute("UPDATE progress SET number = ?, sum = ? WHERE owner = ?", (number, sum_, self.owner))
        if self.dice.randrange(4) == 0:
            # Reads what went to the file already.
            rows = connection.execute("SELECT key, value FROM item WHERE owner = ? ORDER BY key", (self.owner,)).fetchall()
            assert digest(rows) == sum_, f"owner {self.owner} does not see what transaction {number} has written"
        if gives_up:
            connection.execute("ROLLBACK")
            return
        connection.execute("COMMIT")
        self.number, self.rows = number, after
        print(number, flush=True)

    def look(self, connection):
        """Any owner's rows belong together, and no transaction that was seen is gone."""
        owner = self.dice.randrange(WORKERS)
        number, rows = read(connection, owner)
        assert number >= self.seen[owner], f"owner {owner}: transaction {self.seen[owner]} was there, now {number} is the last"
        self.seen[owner] = number
        if owner == self.owner:
            assert (number, rows) == (self.number, self.rows), f"owner {owner} does not see its own transaction {self.number}"

    def tidy(self, connection):
        kind = self.dice.randrange(12)
        if kind == 0:
            connection.execute("VACUUM")
        elif kind < 4:
            connection.execute("PRAGMA incremental_vacuum(20)").fetchall()
        elif kind < 9 and self.mode == "WAL":
            connection.execute(f"PRAGMA wal_checkpoint({self.dice.choice(('PASSIVE', 'FULL', 'RESTART', 'TRUNCATE'))})").fetchall()
        else:
            index = self.dice.randrange(len(self.connections))
            self.connections[index].close()
            self.connections[index] = self.open(self.dice.choice(self.vfs))

    def run(self):
        while True:
            connection = self.dice.choice(self.connections)
            step = self.dice.choices((self.change, self.look, self.tidy), (10, 8, 1))[0]
            try:
                step(connection)
            except sqlite3.OperationalError as error:
                if not any(word in str(error) for word in FASTER):
                    raise
            finally:
                for each in self.connections:
                    if each.in_transaction:
                        each.execute("ROLLBACK")


class Child:
    """A worker's process, and what it has reported."""

    def __init__(self, options, path, owner, mode, least, dice):
        words = [sys.executable, "-B", os.path.abspath(__file__), "--quire", options.quire, "--worker", path, str(owner)]
        words += [mode, options.vfs, str(dice.random())]
        environment = dict(os.environ, QUIRE_SQLITE_POOL=dice.choice(("1MiB", "128MiB")))
        self.owner, self.least, self.text = owner, least, b""
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)

    def hear(self):
        """Takes what it has reported so far."""
        while select.select([self.process.stdout], [], [], 0)[0]:
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            assert more, f"worker {self.owner} has failed:\n{self.process.stderr.read().decode()}"
            self.note(more)

    def note(self, text):
        *lines, self.text = (self.text + text).split(b"\n")
        if lines:
            self.least = int(lines[-1])

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        code = self.process.wait()
        self.note(self.process.stdout.read())
        errors = self.process.stderr.read().decode()
        self.process.stdout.close()
        self.process.stderr.close()
        assert code == -signal.SIGKILL, f"worker {self.owner} has failed:\n{errors}"


def check(path, least, dice):
    """The database as it is now, after some kill: sound, and with every commit that `least` names."""
    with contextlib.closing(connect(path, "unix")) as plain:
        if dice.randrange(2):
            # Not always SQLite's own VFS is the first to find a hot journal.
            with contextlib.closing(connect(path, "quire")) as ours:
                ours.execute("SELECT count(*) FROM progress").fetchall()
        verdict = [row[0] for row in plain.execute("PRAGMA integrity_check")]
        assert verdict == ["ok"], verdict[:5]
    for vfs in dice.sample(VFS, 2):
        with contextlib.closing(connect(path, vfs)) as connection:
            for owner, number in least.items():
                found, _ = read(connection, owner)
                assert number <= found, f"owner {owner}: {number} was reported, {found} is the last one there ({vfs})"


def kill_9_loses_and_tears_nothing(options):
    load(options)
    dice = random.Random(options.seed)
    kills, reported, modes = 0, 0, {}
    with harness.scratch() as directory:
        path = os.path.join(directory, "test.db")
        for mode in itertools.cycle(MODES):
            if kills == options.rounds:
                break
            make(path, dice, mode)
            modes[mode] = modes.get(mode, 0)
            least = dict.fromkeys(range(WORKERS), 0)
            begin = lambda owner: Child(options, path, owner, mode, least[owner], dice)
            children = [begin(owner) for owner in range(WORKERS)]
            try:
                for _ in range(min(options.kills, options.rounds - kills)):
                    end = time.monotonic() + dice.uniform(0.02, options.seconds)
                    begun = dict(least)
                    limit = time.monotonic() + 120
                    # At a moment drawn by lot, but not before some worker has got something done.
                    while time.monotonic() < end or all(child.least == begun[child.owner] for child in children):
                        for child in children:
                            child.hear()
                        assert time.monotonic() < limit, "no worker commits"
                        time.sleep(0.005)
                    victims = dice.sample(children, dice.choice((1, 1, 2, WORKERS)))
                    for child in victims:
                        child.kill()
                    for child in children:
                        if child not in victims:
                            child.hear()
                        reported += child.least - least[child.owner]
                        least[child.owner] = child.least
                    check(path, least, dice)
                    kills += 1
                    modes[mode] += 1
                    for child in victims:
                        children[child.owner] = begin(child.owner)
                    if os.path.getsize(path) > MOST_BYTES:
                        break
                for child in children:
                    child.kill()
            finally:
                for child in children:
                    child.process.kill()
                    child.process.wait()
    return f"{kills} kills, {reported} commits reported, {modes}, seed {options.seed}"


def more_arguments(parser):
    parser.add_argument("--rounds", type=int, default=18, help="kills")
    parser.add_argument("--kills", type=int, default=3, help="kills before the database is made anew")
    parser.add_argument("--seconds", type=float, default=0.6, help="longest time between two kills")
    parser.add_argument("--vfs", default="quire,unix", help="what the workers' connections go by")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="repeats a run as far as timing allows")


if __name__ == "__main__":
    if "--worker" in sys.argv:
        WORDS = sys.argv[1:]
        load(type("Options", (), {"quire": WORDS[WORDS.index("--quire") + 1]}))
        PATH, OWNER, MODE, NAMES, SEED = WORDS[WORDS.index("--worker") + 1 :]
        Worker(PATH, int(OWNER), MODE, NAMES, SEED).run()
    harness.run([kill_9_loses_and_tears_nothing], harness.arguments(__doc__, more_arguments))
