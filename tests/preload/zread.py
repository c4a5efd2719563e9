"""Reads without copying (QUIRE_ZREAD) in unmodified programs: they must read, print and keep the same as without it.

Relies on libquire_preload.so beside the quire binary, on cc, python3, cp, tar, dd and, where they are there, redis-server and the SQLite of
Python. Without leases or userfaultfd for system calls everything is copied; then only that is checked.
"""

import hashlib
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness

LIBRARY = None
SCRATCH = None
# Whether this machine remaps at all.
REMAPS = True
# Every page that may be remapped is.
EAGER = {"QUIRE_ZREAD": "on", "QUIRE_ZREAD_MIN": "8k", "QUIRE_ZREAD_MODEL": "off", "QUIRE_ZREAD_STATS": "on"}


def environment(**more):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")}
    return {**clean, **more}


def run(words, env, limit_s=200, **more):
    return subprocess.run(words, env=env, capture_output=True, timeout=limit_s, stdin=subprocess.DEVNULL, **more)


def split(text):
    lines = text.decode(errors="replace").splitlines()
    ours = [line for line in lines if line.startswith("quire-preload: ")]
    return ours, [line for line in lines if line not in ours]


def remapped(lines):
    return sum(int(number) for line in lines for number in re.findall(r"zread: (\d+) reads remapped", line))


def same(words, prepare=lambda: None, shall_remap=True, **settings):
    """Runs `words` without and with the library; returns its lines. A short program may end before its file is leased."""
    prepare()
    plain = run(words, environment())
    end = time.monotonic() + 60
    while True:
        prepare()
        with_it = run(words, environment(LD_PRELOAD=LIBRARY, **{**EAGER, **settings}))
        ours, others = split(with_it.stderr)
        assert with_it.returncode == plain.returncode, (with_it.returncode, plain, with_it.stdout[-500:], with_it.stderr)
        assert with_it.stdout == plain.stdout, (plain.stdout[-500:], with_it.stdout[-500:], with_it.stderr)
        assert others == split(plain.stderr)[1], (others, plain.stderr)
        assert all(" 0 pages lost" in line for line in ours if "reads remapped" in line), ours
        if not shall_remap or not REMAPS or remapped(ours) > 0:
            return ours
        assert time.monotonic() < end, ours


def guest():
    binary = os.path.join(SCRATCH, "zread")
    if not os.path.exists(binary):
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "zread.c")
        subprocess.run(["cc", "-O1", "-w", "-pthread", "-o", binary, source], check=True)
    return binary


def part(name, **settings):
    """A part of the guest says that it is done, and the library that it has remapped."""
    ours = same([guest(), name, os.path.join(SCRATCH, f"{name}.data")], **settings)
    return ours[-1].split("zread: ")[-1] if ours else None


def every_call_length_and_alignment(_):
    return part("semantics")


def files_that_other_processes_change(_):
    return part("changes")


def files_that_the_program_changes(_):
    return part("own-writes")


def forked_children(_):
    return part("forks")


def stores_while_sharing_is_broken(_):
    return part("stores")


def memory_that_the_program_advises_protects_and_moves(_):
    return part("memory")


def descriptors_and_locks(_):
    return part("descriptors")


def threads_that_share_a_position(_):
    return part("positions")


def many_ranges(_):
    return part("many")


def signals_and_cancelled_threads(_):
    return part("signals")


def a_program_that_becomes_another(_):
    return part("replaced")


def threads_under_writers_that_truncate_and_rename(_):
    return part("load") + "; with the loss model: " + part("load", shall_remap=False, QUIRE_ZREAD_MODEL="on")


def data(name, mib=6):
    path = os.path.join(SCRATCH, name)
    if not os.path.exists(path):
        with open(path, "wb") as file:
            for at in range(mib << 8):
                file.write(hashlib.sha256(f"{name}{at}".encode()).digest() * 128)
    return path


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def only_what_is_asked_for(_):
    path = data("asked")
    words = ["dd", f"if={path}", "of=/dev/null", "bs=1M", "status=none"]
    ours = same(words, shall_remap=False, QUIRE_ZREAD="/no/such/folder:*.other")
    assert remapped(ours) == 0, ours
    ours = same(words, shall_remap=False, QUIRE_ZREAD="off")
    assert not ours, ours


def other_programs(_):
    path, copy = data("program"), os.path.join(SCRATCH, "copy")
    for words in (
        ["dd", f"if={path}", f"of={copy}", "bs=1M", "status=none"],
        ["cp", "--reflink=never", path, copy],
        ["tar", "-b", "2048", "-cf", copy, "-C", SCRATCH, "program"],
        ["sh", "-c", f"cat {path} | sha256sum; dd if={path} bs=512k status=none | tee {copy} | cksum"],
    ):
        same(words, shall_remap=False)
        if "tar" not in words:
            assert digest(copy) == digest(path), words


PYTHON = """
import hashlib, os, sys
path = sys.argv[1]
file = open(path, "rb", buffering=0)
buffer = bytearray(1 << 20)
view = memoryview(buffer)
total = hashlib.sha256()
for turn in range(400):
    file.seek(0)
    while count := file.readinto(buffer):
        if turn in (0, 399):
            total.update(view[:count])
        else:
            buffer[turn] = turn % 256
print(total.hexdigest(), len(open(path, "rb").read()))
pid = os.fork()
if pid == 0:
    file.seek(0)
    print(file.readinto(buffer), hashlib.sha256(buffer).hexdigest(), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
"""


def python(_):
    return same([sys.executable, "-S", "-c", PYTHON, data("python")])[-1]


SQLITE = """
import sqlite3, sys, os
path = sys.argv[1]
for name in (path, path + "-wal", path + "-journal"):
    if os.path.exists(name):
        os.remove(name)
base = sqlite3.connect(path)
base.execute("pragma page_size=65536")
base.execute("create table t (a integer primary key, b blob)")
with base:
    base.executemany("insert into t values (?, ?)", ((i, bytes([i % 251]) * 300000) for i in range(20)))
other = sqlite3.connect(path)
print(other.execute("select count(*), sum(length(b)) from t").fetchall(), base.execute("pragma integrity_check").fetchall())
"""


def sqlite(_):
    same([sys.executable, "-c", SQLITE, os.path.join(SCRATCH, "base")], shall_remap=False)


def redis_server(_):
    directory = os.path.join(SCRATCH, "redis")
    for extra in ({}, {"LD_PRELOAD": LIBRARY, **EAGER}):
        os.makedirs(directory, exist_ok=True)
        values = []
        for _ in range(2):
            port = harness.free_port()
            words = ["redis-server", "--port", str(port), "--dir", directory, "--save", "", "--appendonly", "yes"]
            server = subprocess.Popen(words, env=environment(**extra), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                end = time.monotonic() + 60
                while True:
                    try:
                        client = harness.Raw(port)
                        client.call("PING")
                        break
                    except (OSError, harness.ReplyError):
                        assert time.monotonic() < end
                        time.sleep(0.02)
                for number in range(20):
                    client.call("SET", f"key{number}", "v%d" % number * 100000)
                client.call("BGREWRITEAOF")
                values.append(hashlib.sha256(b"".join(client.call("GET", f"key{n}") for n in range(20))).hexdigest())
                while client.info("persistence")["aof_rewrite_in_progress"] != "0":
                    time.sleep(0.02)
            finally:
                server.terminate()
                assert server.wait(60) == 0
        assert len(set(values)) == 1
        subprocess.run(["rm", "-rf", directory], check=True)


def confined_programs(_):
    """A program that confines itself: its buffers stay, and no call of the library's is met by its filter."""
    binary = os.path.join(SCRATCH, "zread-confined")
    source = os.path.join(SCRATCH, "zread-confined.c")
    with open(source, "w") as file:
        file.write(CONFINED)
    subprocess.run(["cc", "-O1", "-w", "-o", binary, source], check=True)
    path = os.path.join(SCRATCH, "confined.data")

    def prepare():
        with open(path, "wb") as file:
            file.write(b"a" * (4 << 20))

    same([binary, path], prepare, shall_remap=False)


CONFINED = r"""
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int main(int count, char **words) {
    int file = open(words[1], O_RDONLY), pipes[2];
    char *buffer = malloc(1 << 20), byte;
    for (int i = 0; i < 30; i++) {
        struct timespec time = {0, 15000000};
        if (pread(file, buffer, 1 << 20, 0) != 1 << 20)
            return 1;
        nanosleep(&time, 0);
    }
    pipe(pipes);
    if (fork() == 0) {
        read(pipes[0], &byte, 1);
        int other = open(words[1], O_WRONLY | O_TRUNC);
        write(other, "b", 1);
        _exit(0);
    }
    if (prctl(PR_SET_SECCOMP, 1, 0, 0, 0) != 0)
        return 2;
    write(pipes[1], "x", 1);
    for (volatile long i = 0; i < 300000000; i++)
        ;
    for (int i = 0; i < 1 << 20; i++)
        if (buffer[i] != 'a')
            write(1, "changed\n", 8), syscall(SYS_exit, 3);
    if (read(file, buffer, 1 << 20) < 0)
        syscall(SYS_exit, 4);
    write(1, "stays\n", 6);
    syscall(SYS_exit, 0);
}
"""


if __name__ == "__main__":
    OPTIONS = harness.arguments(__doc__)
    LIBRARY = os.path.join(os.path.dirname(OPTIONS.quire), "libquire_preload.so")
    if not os.path.exists(LIBRARY):
        sys.exit(f"{LIBRARY} is not there: cargo build --release")
    with harness.scratch() as SCRATCH:
        probe = run([guest(), "own-writes", os.path.join(SCRATCH, "probe")], environment(LD_PRELOAD=LIBRARY, **EAGER))
        if remapped(split(probe.stderr)[0]) == 0:
            assert probe.returncode == 0, probe
            print(f"     everything is copied here: {probe.stderr.decode(errors='replace').strip()}")
            REMAPS = False
        harness.run(
            [
                every_call_length_and_alignment,
                files_that_other_processes_change,
                files_that_the_program_changes,
                forked_children,
                stores_while_sharing_is_broken,
                memory_that_the_program_advises_protects_and_moves,
                descriptors_and_locks,
                threads_that_share_a_position,
                many_ranges,
                signals_and_cancelled_threads,
                a_program_that_becomes_another,
                threads_under_writers_that_truncate_and_rename,
                only_what_is_asked_for,
                other_programs,
                python,
                sqlite,
                redis_server,
                confined_programs,
            ],
            OPTIONS,
        )
