"""kill -9 under `quire mount`: of the daemon that serves it, and of PostgreSQL and redis-server that work on it.

PostgreSQL: initdb on the mount, then in each round clients insert numbered rows and remember what was acknowledged, beside
pgbench and checkpoints, until the daemon or all of PostgreSQL or both are killed. PostgreSQL then has to start by itself,
every acknowledged row has to be there and nothing that was never sent, pgbench's sums have to agree, and pg_amcheck has
to find nothing. In the end everything is brought to the directory, and the same holds without any mount.

redis-server: `appendfsync always`, rewrites and snapshots while clients count; every acknowledged count has to be there.

Relies on /dev/fuse; what is missing is named, and its test skipped. As root PostgreSQL runs as the user `postgres`.
"""

import contextlib
import glob
import os
import pwd
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness

POLICIES = ["cp+pi+ioi", "all", "sync", "cp"]
KILLS = ["daemon", "both", "programs"]
CLIENTS = 3
PORT = "24531"
# What a server that starts after a crash may not say. A client that gave up waiting for it is no fault of its files.
BAD_WORDS = re.compile(
    r"PANIC|invalid page|page verification failed|corrupt|could not (?!send data to client)|FATAL:  (?!the database system is)"
)
IS_ROOT = os.geteuid() == 0


def call(*words, limit_s=120, **popen):
    done = subprocess.run(words, capture_output=True, text=True, timeout=limit_s, **popen)
    assert done.returncode == 0, f"{words}: {done.stdout[-1500:]}{done.stderr[-1500:]}"
    return done.stdout.strip()


def wait_until(holds, what, limit_s=60):
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end, f"{what}: not within {limit_s} s"
        time.sleep(0.01)


class Mount:
    """A directory, a log, and the daemon that serves them."""

    def __init__(self, options, directory):
        self.quire, self.process = options.quire, None
        self.slow, self.point, self.log = (os.path.join(directory, name) for name in ("slow", "mnt", "log"))
        os.mkdir(self.slow)
        os.mkdir(self.point)
        self.told = os.path.join(directory, "mount.log")

    def start(self, policy, *words):
        words = [self.slow, self.point, "--log", self.log, "--capacity", "32MiB", "--policy", policy, *words]
        words += ["--log-file", self.told] + ["--allow-other"] * IS_ROOT
        self.process = subprocess.Popen([self.quire, "mount", *words], stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert line.startswith("mounted "), (line, self.words())
        assert "bytes whose file is gone" not in self.words(), self.words()
        return line

    def words(self):
        with contextlib.suppress(FileNotFoundError), open(self.told, encoding="utf-8") as file:
            return file.read()[-3000:]
        return ""

    def kill9(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process = None

    def end(self):
        call(self.quire, "unmount", self.point)
        assert self.process.wait(60) == 0, self.words()
        self.process.stdout.close()
        self.process = None

    def close(self):
        if self.process is not None:
            self.kill9()
        subprocess.run(["umount", "-l", self.point], capture_output=True, timeout=60)


@contextlib.contextmanager
def place(options, user=None):
    """A directory that `user` gets at; on the disk under test if that is possible."""
    harness.skip_unless(os.access("/dev/fuse", os.R_OK | os.W_OK), "/dev/fuse can't be used here")
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(harness.scratch())
        os.chmod(directory, 0o755)
        if user and subprocess.run(["test", "-x", directory], **user).returncode != 0:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="quire-test-"))
            os.chmod(directory, 0o755)
        yield directory


class Postgres:
    """A cluster, and what runs of it."""

    def __init__(self, directory, user):
        found = [path for path in glob.glob("/usr/lib/postgresql/*/bin") if os.path.exists(f"{path}/initdb")]
        on_path = shutil.which("initdb")
        if not found and not on_path:
            raise harness.Skipped("PostgreSQL is missing")
        self.programs = sorted(found)[-1] if found else os.path.dirname(os.path.realpath(on_path))
        self.user, self.process, self.data = user, None, None
        self.sockets = os.path.join(directory, "sockets")
        self.log = os.path.join(directory, "postgres.log")
        os.mkdir(self.sockets)
        if IS_ROOT:
            shutil.chown(self.sockets, user["user"], user["group"])

    def words(self, name, *words):
        return [os.path.join(self.programs, name), "-h", self.sockets, "-p", PORT, "-U", "quire", *words]

    def call(self, name, *words, **popen):
        return call(*self.words(name, *words), cwd="/", **self.user, **popen)

    def ask(self, query):
        return self.call("psql", "-XqAt", "-c", query, "postgres")

    def init(self, data):
        # Small segments of the log: many are made, renamed and recycled.
        words = ["-D", data, "-U", "quire", "-A", "trust", "-E", "UTF8", "--locale=C", "-k", "--wal-segsize=1"]
        call(os.path.join(self.programs, "initdb"), *words, cwd="/", **self.user)

    def start(self, data):
        """Starts it, and says no if it complains of what it finds."""
        words = [os.path.join(self.programs, "postgres"), "-D", data, "-c", "listen_addresses=", "-c", f"port={PORT}"]
        words += ["-c", f"unix_socket_directories={self.sockets}", "-c", "max_wal_size=8MB", "-c", "min_wal_size=2MB"]
        words += ["-c", "shared_buffers=16MB", "-c", "wal_writer_delay=20ms"]
        with open(self.log, "wb") as out:
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd="/", **self.user
            )
        ready = self.words("pg_isready", "-q", "-d", "postgres")

        def is_ready():
            assert self.process.poll() is None, f"postgres ended: {self.told()}"
            return subprocess.run(ready, cwd="/", timeout=60).returncode == 0

        wait_until(is_ready, "postgres takes connections", 120)

    def told(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()[-6000:]

    def is_content(self):
        bad = BAD_WORDS.search(self.told())
        assert bad is None, f"{bad.group(0)!r} in {self.told()}"

    def tree(self):
        """Its processes, the first one first."""
        found = [self.process.pid]
        for path in glob.glob("/proc/[0-9]*/stat"):
            with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
                number, rest = file.read().split(" (", 1)
                if int(rest.rsplit(")", 1)[1].split()[1]) == self.process.pid:
                    found.append(int(number))
        return found

    def kill9(self):
        """All of them by their numbers, without a chance to say goodbye."""
        tree = self.tree()
        for number in tree:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        self.process.wait()
        # A process that is left over is no child of ours: it has to be gone before the next start.
        wait_until(lambda: not any(self.is_postgres(number) for number in tree[1:]), "the end of postgres")
        self.process = None

    @staticmethod
    def is_postgres(number):
        with contextlib.suppress(OSError), open(f"/proc/{number}/stat", encoding="utf-8", errors="replace") as file:
            text = file.read()
            return "(postgres)" in text and text.rsplit(")", 1)[1].split()[0] != "Z"
        return False

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(120) == 0, self.told()
        self.process = None

    def close(self):
        if self.process is not None:
            self.kill9()


class Inserter(threading.Thread):
    """A client that inserts numbered rows, each a transaction, and remembers the last that was acknowledged."""

    def __init__(self, postgres, index, first):
        super().__init__()
        self.index, self.sent, self.acknowledged = index, first - 1, first - 1
        words = postgres.words("psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "postgres")
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd="/"
        )

    def run(self):
        with contextlib.suppress(BrokenPipeError, ValueError):
            while True:
                self.sent += 1
                note = "x" * (self.sent * 37 % 900)
                self.process.stdin.write(
                    f"INSERT INTO told VALUES ({self.index}, {self.sent}, '{note}') RETURNING number;\n"
                )
                self.process.stdin.flush()
                if int(self.process.stdout.readline()) != self.sent:
                    raise AssertionError("another answer than to what was asked")
                self.acknowledged = self.sent
        self.process.kill()
        self.process.wait()


def check_postgres(postgres, known, when):
    """Whether all that was acknowledged is there and the rest makes sense; returns the last row of each client."""
    postgres.is_content()
    rows = postgres.ask("SELECT client, max(number), count(*) FROM told GROUP BY client")
    found = {int(client): (int(last), int(count)) for client, last, count in (row.split("|") for row in rows.split())}
    for client, (acknowledged, sent) in known.items():
        last, count = found.get(client, (0, 0))
        state = f"{when}, client {client}: {count} rows up to {last}, {acknowledged} acknowledged, {sent} sent"
        assert acknowledged <= last <= sent and last == count, state
    sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(tbalance) FROM pgbench_tellers),"
    sums += " (SELECT sum(bbalance) FROM pgbench_branches), (SELECT coalesce(sum(delta), 0) FROM pgbench_history)"
    sums = postgres.ask(sums)
    assert len(set(sums.split("|"))) == 1, f"{when}: half a transaction of pgbench: {sums}"
    postgres.call("pg_amcheck", "--all", "--install-missing", "--heapallindexed", "--parent-check")
    return {client: found.get(client, (0, 0))[0] for client in known}


def load_postgres(postgres, known, seconds, dice):
    """Work until the harness kills what it works on; returns those that work."""
    inserters = [Inserter(postgres, client, last + 1) for client, (last, _) in known.items()]
    for inserter in inserters:
        inserter.start()
    bench = subprocess.Popen(
        postgres.words("pgbench", "-n", "-c", "3", "-T", "3600", "postgres"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
    )
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(dice.uniform(0.0, seconds / 3))
        postgres.ask(dice.choice(["CHECKPOINT", "SELECT pg_switch_wal()", "VACUUM told"]))
    return inserters, bench


def round_of_postgres(mount, postgres, known, kill, seconds, dice):
    inserters, bench = load_postgres(postgres, known, seconds, dice)
    if kill != "programs":
        mount.kill9()
        time.sleep(dice.choice([0.0, 0.2]))
    postgres.kill9()
    bench.kill()
    bench.wait()
    for inserter in inserters:
        inserter.join(60)
        known[inserter.index] = (inserter.acknowledged, inserter.sent)


def postgres_user():
    if not IS_ROOT:
        return {}
    try:
        entry = pwd.getpwnam("postgres")
    except KeyError:
        raise harness.Skipped("there is no user postgres") from None
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def postgresql_on_a_mount(options):
    dice = random.Random(options.seed)
    user = postgres_user()
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(place(options, user))
        mount = Mount(options, directory)
        stack.callback(mount.close)
        postgres = Postgres(directory, user)
        stack.callback(postgres.close)
        mount.start(POLICIES[0])
        data = os.path.join(mount.point, "data")
        os.mkdir(data, 0o700)
        if IS_ROOT:
            os.chown(data, user["user"], user["group"])
        postgres.init(data)
        postgres.start(data)
        postgres.call("pgbench", "-i", "-q", "-s", str(options.scale), "postgres")
        postgres.ask("CREATE TABLE told (client int, number int, note text, PRIMARY KEY (client, number))")
        known = {client: (0, 0) for client in range(CLIENTS)}
        acknowledged = 0
        for index in range(options.rounds):
            kill = KILLS[index % len(KILLS)]
            before = {client: last for client, (last, _) in known.items()}
            round_of_postgres(mount, postgres, known, kill, options.seconds, dice)
            acknowledged += sum(known[client][0] - before[client] for client in known)
            if kill != "programs":
                mount.start(POLICIES[(index + 1) % len(POLICIES)])
            postgres.start(data)
            last = check_postgres(postgres, known, f"round {index}, {kill} killed")
            known = {client: (last[client], last[client]) for client in known}
        postgres.stop()
        mount.end()
        mount.start(POLICIES[0], "--drain")
        mount.end()
        postgres.start(os.path.join(mount.slow, "data"))
        check_postgres(postgres, known, "without the mount")
        postgres.stop()
    return f"{options.rounds} rounds, {acknowledged} transactions acknowledged, pg_amcheck content, seed {options.seed}"


class Counter(threading.Thread):
    """A client that counts, and remembers what was acknowledged."""

    def __init__(self, port, index, first):
        super().__init__()
        self.connection = harness.Raw(port)
        self.index, self.sent, self.acknowledged = index, first - 1, first - 1

    def run(self):
        with contextlib.suppress(ConnectionError, OSError, harness.ReplyError):
            while True:
                self.sent += 1
                self.connection.call("SET", f"count:{self.index}", f"{self.sent}:{'y' * (self.sent * 31 % 2000)}")
                self.acknowledged = self.sent


def start_redis(directory, data, port):
    log = open(os.path.join(directory, "redis.log"), "ab")
    words = ["--port", str(port), "--dir", data, "--appendonly", "yes", "--appendfsync", "always", "--save", ""]
    words += ["--auto-aof-rewrite-min-size", "1mb"]
    process = subprocess.Popen(["redis-server", *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    log.close()
    end = time.monotonic() + 60
    while True:
        assert process.poll() is None and time.monotonic() < end, f"redis-server does not start in {directory}"
        with contextlib.suppress(OSError, harness.ReplyError):
            connection = harness.Raw(port)
            connection.call("GET", "x")
            return process, connection
        time.sleep(0.01)


def check_redis(connection, known, when):
    for index, (acknowledged, sent) in known.items():
        value = connection.call("GET", f"count:{index}")
        number, rest = (value or b"0:").decode().split(":")
        state = f"{when}, client {index}: {number} found, {acknowledged} acknowledged, {sent} sent"
        assert acknowledged <= int(number) <= sent and len(rest) == int(number) * 31 % 2000, state
        known[index] = (int(number), int(number))


def redis_on_a_mount(options):
    harness.skip_unless(shutil.which("redis-server"), "redis-server is missing")
    dice = random.Random(options.seed)
    known = {index: (0, 0) for index in range(5)}
    acknowledged = 0
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(place(options))
        mount = Mount(options, directory)
        stack.callback(mount.close)
        for index in range(options.rounds + 1):
            if mount.process is None:
                mount.start(POLICIES[index % len(POLICIES)])
            process, connection = start_redis(directory, mount.point, harness.free_port())
            stack.callback(process.kill)
            check_redis(connection, known, f"round {index}")
            if index == options.rounds:
                break
            counters = [Counter(connection.sock.getpeername()[1], key, known[key][0] + 1) for key in known]
            for counter in counters:
                counter.start()
            for _ in range(3):
                time.sleep(dice.uniform(0.0, options.seconds / 3))
                connection.send(connection.encode(dice.choice(["BGREWRITEAOF", "BGSAVE"])))
                connection.reply()
            if KILLS[index % len(KILLS)] != "programs":
                mount.kill9()
            process.kill()
            process.wait()
            for counter in counters:
                counter.join(60)
                acknowledged += counter.acknowledged - known[counter.index][0]
                known[counter.index] = (counter.acknowledged, counter.sent)
            # A child that saves outlives its parent; it ends by itself.
        process.terminate()
        process.wait(60)
        mount.end()
    return f"{options.rounds} rounds, {acknowledged} writes acknowledged, seed {options.seed}"


def more_arguments(parser):
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.8, help="a round's shortest time of work")
    parser.add_argument("--scale", type=int, default=1, help="pgbench's")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="repeats a run as far as timing allows")


if __name__ == "__main__":
    harness.run([postgresql_on_a_mount, redis_on_a_mount], harness.arguments(__doc__, more_arguments))
