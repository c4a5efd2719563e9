"""redis-server with checkpoints by libquire: what it saves is what it loads, whatever happens to it.

    check.py --server REDIS-SERVER

Relies on a server that build.py has made, which takes a network and a minute or two: so this is no step of `cargo xtask test`. What a
server holds is compared by DEBUG DIGEST, the times of expiry and the function libraries, before and after a restart. The test of a full
disk takes root, for a small tmpfs.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "..", "tests"))

import harness

FILE = "dump.mdc"
MIB = 1 << 20
FUNCTIONS = """#!lua name=mylib
redis.register_function('f', function(keys, args) return 'hello' end)
"""


class Server:
    """A redis-server of its own port in a directory that others may have used before."""

    def __init__(self, binary, directory, *words, name=FILE, **popen):
        self.dir, self.port, self.path = directory, harness.free_port(), os.path.join(directory, name)
        self.log = tempfile.NamedTemporaryFile(prefix="quire-redis-mdc-", suffix=".log")
        words = [binary, "--port", self.port, "--dir", directory, "--dbfilename", name, "--save", "", *words]
        words += ["--enable-debug-command", "local", "--enable-protected-configs", "local", "--rdbcompression", "no"]
        words = [str(word) for word in words]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, **popen)

    def ready(self, limit_s=60):
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            assert self.process.poll() is None, self.log_text()[-2000:]
            with contextlib.suppress(OSError, harness.ReplyError):
                connection = harness.Raw(self.port)
                connection.call("GET", "no-such-key")
                return connection
            time.sleep(0.01)
        raise AssertionError("redis-server does not answer")

    def log_text(self):
        with open(self.log.name, encoding="utf-8", errors="replace") as file:
            return file.read()

    def children(self):
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]

    def kill9(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill9()
        self.log.close()


def fill_types(connection, seed):
    """All types and encodings, of random sizes, in two databases, with and without times of expiry."""
    rng = random.Random(seed)

    def text(most):
        length = rng.choice([rng.randint(1, 30), rng.randint(1, most)])
        return rng.randbytes(length) if rng.random() < 0.5 else bytes([65 + rng.randint(0, 25)]) * length

    for database in (0, 3):
        connection.call("SELECT", database)
        for number in range(150):
            key = f"{database}:{number}:" + "k" * rng.randint(0, 60)
            connection.call("SET", "int" + key, rng.randint(-(1 << 62), 1 << 62))
            connection.call("SET", "string" + key, text(20_000))
            connection.call("APPEND", "appended" + key, text(300))
            few, many = rng.randint(1, 20), rng.randint(150, 400)
            for length, size in ((few, 40), (many, 60), (few, 9000)):
                items = [text(size) for _ in range(length)]
                name = f"{length}:{size}:{key}"
                connection.call("RPUSH", "list" + name, *items)
                connection.call("SADD", "set" + name, *items)
                connection.call("HSET", "hash" + name, *[word for item in items for word in (item, text(size))])
                connection.call("ZADD", "zset" + name, *[word for item in items for word in (rng.random(), item)])
            connection.call("SADD", "intset" + key, *[rng.randint(0, 1 << 40) for _ in range(few)])
            connection.call("PFADD", "hll" + key, *[rng.random() for _ in range(few)])
            if number % 10 == 0:
                for entry in range(rng.randint(1, 200)):
                    connection.call("XADD", "stream" + key, f"{entry + 1}-1", "field", text(100))
                connection.call("XGROUP", "CREATE", "stream" + key, "group", "0")
                connection.call("XREADGROUP", "GROUP", "group", "reader", "COUNT", 3, "STREAMS", "stream" + key, ">")
            for kind in ("int", "string", "appended", "intset", "hll"):
                if rng.random() < 0.4:
                    connection.call("PEXPIRE", kind + key, rng.randint(3_600_000, 9_000_000_000))
    connection.call("CONFIG", "SET", "list-compress-depth", 1)
    connection.call("RPUSH", "compressed", *["x" * 3000 for _ in range(40)])
    connection.call("CONFIG", "SET", "list-compress-depth", 0)
    connection.call("FUNCTION", "LOAD", "REPLACE", FUNCTIONS)
    connection.call("SELECT", 0)


def fill_bulk(connection, mebibytes, value=b"v"):
    """Strings of 1000 bytes, so that a save takes a while."""
    count = mebibytes * 1000
    for first in range(0, count, 1000):
        words = [connection.encode("SET", f"bulk:{number}", value * 1000) for number in range(first, first + 1000)]
        connection.send(b"".join(words))
        for _ in words:
            assert connection.reply() == "OK"


def contents(connection):
    """What a server holds."""
    times = []
    for database in (0, 3):
        connection.call("SELECT", database)
        names = sorted(connection.call("KEYS", "*")) if connection.call("DBSIZE") < 50_000 else []
        times += [(name, connection.call("PEXPIRETIME", name)) for name in names]
    connection.call("SELECT", 0)
    return connection.digest(), times, connection.call("FUNCTION", "LIST", "WITHCODE")


def is_running(pid):
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    return False


def bgsave(connection):
    connection.call("BGSAVE")
    return connection.wait_saved()["rdb_last_bgsave_status"]


def magic(server):
    with open(server.path, "rb") as file:
        return file.read(8)


def a_restart_brings_all_types_and_encodings_back(options):
    for seed, save in ((1, "BGSAVE"), (2, "SAVE"), (3, "BGSAVE")):
        with harness.scratch() as directory:
            with Server(options.server, directory) as server:
                connection = server.ready()
                fill_types(connection, seed)
                before = contents(connection)
                if save == "SAVE":
                    connection.call("SAVE")
                else:
                    assert bgsave(connection) == "ok", server.log_text()
                assert magic(server) == b"QUIREMDC" and contents(connection) == before
                server.kill9()
            with Server(options.server, directory) as server:
                assert contents(server.ready()) == before
                assert server.ready().call("FCALL", "f", "0") == b"hello"


def a_checkpoint_of_one_server_is_loaded_by_one_with_other_addresses_and_as_rdb_too(options):
    with harness.scratch() as directory:
        with Server(options.server, directory) as server:
            connection = server.ready()
            fill_types(connection, 4)
            before = contents(connection)
            assert bgsave(connection) == "ok"
            connection.call("DEBUG", "RELOAD")
            assert contents(connection) == before
            connection.call("CONFIG", "SET", "dbfilename", "dump.rdb")
            assert bgsave(connection) == "ok"
            server.kill9()
        for name in (FILE, "dump.rdb"):
            with Server(options.server, directory, name=name) as server:
                assert contents(server.ready()) == before, name
        # An RDB file that has the name of a checkpoint is loaded as what it is.
        os.replace(os.path.join(directory, "dump.rdb"), os.path.join(directory, FILE))
        with Server(options.server, directory) as server:
            assert contents(server.ready()) == before


def a_save_has_the_data_of_its_fork_while_writes_go_on(options):
    with harness.scratch() as directory:
        with Server(options.server, directory) as server:
            connection = server.ready()
            fill_types(connection, 5)
            fill_bulk(connection, 120)
            connection.send(connection.encode("DEBUG", "DIGEST") + connection.encode("BGSAVE"))
            digest, started = connection.reply(), connection.reply()
            assert started == "Background saving started", started
            stop = threading.Event()

            def write(seed):
                rng, own = random.Random(seed), harness.Raw(server.port)
                while not stop.is_set():
                    number = rng.randrange(120_000)
                    own.call("SET", f"bulk:{number}", rng.randbytes(rng.choice([10, 1000, 1000, 5000])))
                    own.call("DEL", f"bulk:{rng.randrange(120_000)}")
                    own.call("RPUSH", f"new:{number % 100}", rng.randbytes(500))

            writers = [threading.Thread(target=write, args=(seed,)) for seed in range(2)]
            for writer in writers:
                writer.start()
            status = connection.wait_saved()["rdb_last_bgsave_status"]
            stop.set()
            for writer in writers:
                writer.join()
            assert status == "ok", server.log_text()
            assert connection.digest() != digest
            server.kill9()
        with Server(options.server, directory) as server:
            assert server.ready().digest() == digest


def a_killed_child_leaves_the_old_file_and_says_so(options):
    with harness.scratch() as directory:
        with Server(options.server, directory) as server:
            connection = server.ready()
            fill_bulk(connection, 120)
            old = connection.digest()
            assert bgsave(connection) == "ok"
            rng, killed = random.Random(6), 0
            for _ in range(6):
                connection.call("SET", "changed", rng.random())
                connection.call("BGSAVE")
                time.sleep(rng.random() * 0.15)
                for child in server.children():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child, signal.SIGKILL)
                        killed += 1
                info = connection.wait_saved()
                if info["rdb_last_bgsave_status"] == "ok":
                    old = connection.digest()
            assert killed > 0
            connection.call("BGSAVE")
            for child in server.children():
                os.kill(child, signal.SIGKILL)
            assert connection.wait_saved()["rdb_last_bgsave_status"] == "err"
            server.kill9()
        with Server(options.server, directory) as server:
            connection = server.ready()
            assert connection.digest() == old
            assert bgsave(connection) == "ok" and os.listdir(directory) == [FILE]


def a_killed_server_starts_from_the_old_file_or_the_new_one(options):
    with harness.scratch() as directory:
        possible, rng = set(), random.Random(7)
        for turn in range(8):
            with Server(options.server, directory) as server:
                connection = server.ready()
                if turn == 0:
                    fill_bulk(connection, 60)
                    assert bgsave(connection) == "ok"
                else:
                    assert connection.digest() in possible
                possible = {connection.digest()}
                connection.call("SET", "turn", turn)
                possible.add(connection.digest())
                connection.call("BGSAVE")
                time.sleep(rng.random() * 0.15)
                children = server.children()
                server.kill9()
                # Without its parent a child goes on, and puts its file in place, perhaps when the next server has started.
                for child in children:
                    if turn % 2:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(child, signal.SIGKILL)
                    while is_running(child):
                        time.sleep(0.01)


def a_shutdown_saves_and_one_during_a_save_too(options):
    with harness.scratch() as directory:
        with Server(options.server, directory) as server:
            connection = server.ready()
            fill_bulk(connection, 60)
            connection.call("BGSAVE")
            connection.call("SET", "last", "word")
            digest = connection.digest()
            connection.send(connection.encode("SHUTDOWN", "SAVE"))
            assert server.process.wait(60) == 0, server.log_text()
        with Server(options.server, directory) as server:
            assert server.ready().digest() == digest


def a_full_disk_fails_the_save_and_leaves_the_old_file(options):
    harness.skip_unless(os.geteuid() == 0, "takes root")
    point = tempfile.mkdtemp(prefix="quire-mount-")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", point], check=True, timeout=60)
    try:
        with Server(options.server, point) as server:
            connection = server.ready()
            fill_bulk(connection, 10)
            digest = connection.digest()
            assert bgsave(connection) == "ok"
            fill_bulk(connection, 60, b"w")
            assert bgsave(connection) == "err"
            assert "No space left on device" in server.log_text(), server.log_text()
            try:
                connection.call("SAVE")
                raise AssertionError("a save found room")
            except harness.ReplyError:
                pass
            server.kill9()
        with Server(options.server, point) as server:
            connection = server.ready()
            assert connection.digest() == digest
            assert bgsave(connection) == "ok"
    finally:
        subprocess.run(["umount", "-l", point], check=True, timeout=60)
        os.rmdir(point)


def a_damaged_file_is_refused_by_name(options):
    with harness.scratch() as directory:
        with Server(options.server, directory) as server:
            connection = server.ready()
            fill_types(connection, 8)
            before = contents(connection)
            assert bgsave(connection) == "ok"
            server.kill9()
            path = server.path
        with open(path, "rb") as file:
            whole = file.read()
        rng, refused = random.Random(9), []
        offsets = [0, 9, 100, 5000, len(whole) - 1, len(whole) - 5000] + [rng.randrange(len(whole)) for _ in range(6)]
        for offset in offsets:
            damaged = bytearray(whole)
            damaged[offset] ^= 1
            with open(path, "wb") as file:
                file.write(damaged)
            with Server(options.server, directory) as server:
                try:
                    status = server.process.wait(20)
                except subprocess.TimeoutExpired:
                    # A byte between the pages that are in the table is read by no object, so nothing differs for it.
                    assert contents(server.ready()) == before, offset
                    continue
                text = server.log_text()
                assert status == 1 and "checkpoint" in text and path.rsplit("/", 1)[1] in text, (offset, status, text)
                refused.append(offset)
        # What says what the file holds is never a gap, and most of the file is pages.
        assert {0, 9} <= set(refused) and len(refused) > len(offsets) // 2, refused
        with open(path, "wb") as file:
            file.write(whole)
        with Server(options.server, directory) as server:
            assert contents(server.ready()) == before, "the file itself is sound"
        for length in (0, 7, 4096, len(whole) // 2, len(whole) - 1):
            with open(path, "wb") as file:
                file.write(whole[:length])
            with Server(options.server, directory) as server:
                assert server.process.wait(20) == 1 and "checkpoint" in server.log_text(), (length, server.log_text())


def a_replica_gets_an_rdb_file_though_its_master_saves_checkpoints(options):
    with harness.scratch() as directory, harness.scratch() as other:
        with Server(options.server, directory, "--repl-diskless-sync", "no") as master:
            connection = master.ready()
            fill_types(connection, 10)
            with Server(options.server, other, "--replicaof", f"127.0.0.1 {master.port}") as replica:
                end = time.monotonic() + 60
                while replica.ready().info("replication").get("master_link_status") != "up":
                    assert time.monotonic() < end, replica.log_text()
                    time.sleep(0.1)
                assert replica.ready().digest() == connection.digest()


TESTS = [
    a_restart_brings_all_types_and_encodings_back,
    a_checkpoint_of_one_server_is_loaded_by_one_with_other_addresses_and_as_rdb_too,
    a_save_has_the_data_of_its_fork_while_writes_go_on,
    a_killed_child_leaves_the_old_file_and_says_so,
    a_killed_server_starts_from_the_old_file_or_the_new_one,
    a_shutdown_saves_and_one_during_a_save_too,
    a_full_disk_fails_the_save_and_leaves_the_old_file,
    a_damaged_file_is_refused_by_name,
    a_replica_gets_an_rdb_file_though_its_master_saves_checkpoints,
]


def main():
    parser = harness.argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True, help="redis-server as build.py has made it")
    parser.add_argument("--only", default="", help="only the tests whose name contains this")
    options = parser.parse_args()
    options.server = os.path.abspath(options.server)
    harness.run(TESTS, options)


if __name__ == "__main__":
    main()
