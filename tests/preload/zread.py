"""Reads without copying (QUIRE_ZREAD) in unmodified programs: they must read, print and keep the same as without it.

Relies on libquire_preload.so beside the quire binary, on cc, python3, cp, tar, dd, sqlite3, redis-server, nginx and fio. Without leases or userfaultfd for system calls everything is copied; then only that is checked.
"""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

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


def mappings_that_are_used_up(_):
    return part("maps-used-up")


def many_pieces_of_a_large_buffer(_):
    return part("pieces")


def streams_of_the_c_library(_):
    return part("streams")


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


def sqlite_s_shell(_):
    path = os.path.join(SCRATCH, "shell.db")
    text = (
        "create table t (a integer primary key, b blob);"
        "with recursive n(i) as (select 1 union all select i + 1 from n where i < 40)"
        " insert into t select i, zeroblob(i * 10000) from n;"
        "update t set b = cast('x' || a as blob) || b where a % 3 = 0;"
        "pragma integrity_check; select a, length(b), hex(substr(b, 1, 3)) from t; vacuum; select count(*) from t;"
    )

    def prepare():
        for name in (path, path + "-journal"):
            if os.path.exists(name):
                os.remove(name)

    same(["sqlite3", path, "pragma page_size = 65536", text], prepare, shall_remap=False)


NGINX = """
daemon off; {mode}
{user}
pid {scratch}/nginx.pid; error_log stderr warn;
events {{ worker_connections 64; }}
http {{
    access_log off; sendfile off; output_buffers 1 1m; default_type application/octet-stream;
    client_body_temp_path {scratch}/body; proxy_temp_path {scratch}/proxy; fastcgi_temp_path {scratch}/fastcgi;
    uwsgi_temp_path {scratch}/uwsgi; scgi_temp_path {scratch}/scgi;
    server {{ listen 127.0.0.1:{port}; location / {{ root {scratch}; }} }}
}}
"""


def fetch(port, name, headers):
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{name}", headers=headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.status, hashlib.sha256(answer.read()).hexdigest()


def serve_by_nginx(extra, mode):
    """What nginx answers, while another process writes and renames what it serves; and its lines."""
    binary = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
    if binary is None:
        raise harness.Skipped("nginx is not installed")
    port = harness.free_port()
    user = "user root;" if os.geteuid() == 0 and "off" not in mode else ""
    config = os.path.join(SCRATCH, "nginx.conf")
    with open(config, "w") as file:
        file.write(NGINX.format(mode=mode, scratch=SCRATCH, port=port, user=user))
    path, other = data("served"), data("served-too")
    current = os.path.join(SCRATCH, "current")
    shutil.copyfile(path, current)
    server = subprocess.Popen([binary, "-c", config, "-e", "stderr"], env=environment(**extra), stderr=subprocess.PIPE)
    answers = []
    try:
        end = time.monotonic() + 60
        while True:
            try:
                fetch(port, "served", {})
                break
            except OSError:
                assert time.monotonic() < end and server.poll() is None
                time.sleep(0.02)
        for turn in range(60):
            answers.append(fetch(port, "served", {"Range": "bytes=4096-3000000"} if turn % 3 == 1 else {}))
            answers.append(fetch(port, "current", {}))
            if turn % 20 == 19:
                # In place, and by another file of the name.
                with open(current, "r+b") as file, open(other if turn == 19 else path, "rb") as source:
                    file.write(source.read())
                    file.truncate(5 << 20)
            if turn % 20 == 9:
                shutil.copyfile(other, current + ".new")
                os.rename(current + ".new", current)
    finally:
        server.send_signal(signal.SIGQUIT)
        _, errors = server.communicate(timeout=60)
    assert server.returncode == 0, errors
    return answers, split(errors)[0]


def nginx(_):
    told = []
    for mode in ("master_process off;", "worker_processes 1;"):
        plain, _lines = serve_by_nginx({}, mode)
        end = time.monotonic() + 60
        while True:
            with_it, lines = serve_by_nginx({"LD_PRELOAD": LIBRARY, **EAGER}, mode)
            assert with_it == plain, mode
            assert all(" 0 pages lost" in line for line in lines if "reads remapped" in line), lines
            if not REMAPS or remapped(lines) > 0:
                break
            assert time.monotonic() < end, lines
        told.append(str(remapped(lines)))
    return "reads remapped: " + " and ".join(told)


def fio(_):
    """Blocks that fio has written with check sums are read and checked by threads; a block that is damaged is found."""
    path = os.path.join(SCRATCH, "fio.data")
    words = ["fio", "--name=job", f"--filename={path}", "--bs=256k", "--size=8m", "--ioengine=psync", "--verify=crc32c"]
    words += ["--verify_fatal=1", "--thread", "--allow_file_create=1"]

    def checked(extra, seconds):
        job = run([*words, "--rw=read", "--time_based", f"--runtime={seconds}"], environment(**extra), cwd=SCRATCH)
        return job.returncode, split(job.stderr)[0]

    preloaded = {"LD_PRELOAD": LIBRARY, **EAGER}
    assert run([*words, "--rw=write", "--do_verify=0"], environment(), cwd=SCRATCH).returncode == 0
    assert checked({}, 1)[0] == 0
    end = time.monotonic() + 60
    while True:
        status, lines = checked(preloaded, 2)
        assert status == 0, lines
        if not REMAPS or remapped(lines) > 0:
            break
        assert time.monotonic() < end, lines
    # It writes under the library as well, with reads between.
    mixed = run([*words, "--rw=randrw", "--rwmixread=50", "--loops=2"], environment(**preloaded), cwd=SCRATCH)
    assert mixed.returncode == 0, mixed
    assert checked({}, 1)[0] == 0
    with open(path, "r+b") as file:
        file.seek(5 << 20)
        file.write(b"damage")
    assert checked({}, 1)[0] != 0 and checked(preloaded, 2)[0] != 0
    return f"{remapped(lines)} reads remapped"


OLD_LINKER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
/* As before glibc 2.34: dlsym allocates; and as some allocators do: memory comes from mmap, in its own call. */
static void *take(size_t size) {
    size_t *block = mmap(0, size + 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED)
        return 0;
    *block = size;
    return block + 2;
}
static void *take_array(size_t count, size_t size) { return take(count * size); }
static void leave(void *block) { (void)block; }
static void *take_more(void *old, size_t size) {
    void *block = take(size);
    if (old && block)
        memcpy(block, old, ((size_t *)old)[-2] < size ? ((size_t *)old)[-2] : size);
    return block;
}
void *dlsym(void *handle, const char *name) {
    static void *(*real)(void *, const char *);
    void *own[] = {take_array, take, leave, take_more};
    const char *names[] = {"calloc", "malloc", "free", "realloc"};
    free(calloc(1, 32)); /* The program's, as the dynamic linker's are. */
    for (int i = 0; i < 4; i++)
        if (strcmp(name, names[i]) == 0)
            return own[i];
    if (!real)
        real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    return real ? real(handle, name) : 0;
}
"""


def an_allocator_behind_an_old_dynamic_linker(_):
    source, shim = os.path.join(SCRATCH, "old-linker.c"), os.path.join(SCRATCH, "old-linker.so")
    with open(source, "w") as file:
        file.write(OLD_LINKER)
    built = run(["cc", "-O1", "-fno-builtin", "-w", "-shared", "-fPIC", "-o", shim, source, "-ldl"], environment())
    assert built.returncode == 0, built
    words = [guest(), "own-writes", os.path.join(SCRATCH, "linker.data")]
    if run(words, environment(LD_PRELOAD=shim), limit_s=60).returncode != 0:
        raise harness.Skipped("this dynamic linker has no such function")
    for extra in ({}, EAGER):
        done = run(words, environment(LD_PRELOAD=f"{LIBRARY}:{shim}", **extra), limit_s=60)
        assert done.returncode == 0 and done.stdout == b"own writes\n", done


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


def look_whether_it_remaps():
    global REMAPS
    probe = run([guest(), "own-writes", os.path.join(SCRATCH, "probe")], environment(LD_PRELOAD=LIBRARY, **EAGER))
    if remapped(split(probe.stderr)[0]) == 0:
        assert probe.returncode == 0, probe
        print(f"     everything is copied here: {probe.stderr.decode(errors='replace').strip()}")
        REMAPS = False


def main(doc, tests, before=lambda: None):
    """Runs tests with the library beside the program, in a folder of their own."""
    global LIBRARY, SCRATCH
    options = harness.arguments(doc)
    LIBRARY = os.path.join(os.path.dirname(options.quire), "libquire_preload.so")
    if not os.path.exists(LIBRARY):
        sys.exit(f"{LIBRARY} is not there: cargo build --release")
    with harness.scratch() as SCRATCH:
        before()
        harness.run(tests, options)


if __name__ == "__main__":
    main(
        __doc__,
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
            mappings_that_are_used_up,
            many_pieces_of_a_large_buffer,
            streams_of_the_c_library,
            signals_and_cancelled_threads,
            a_program_that_becomes_another,
            threads_under_writers_that_truncate_and_rename,
            only_what_is_asked_for,
            other_programs,
            python,
            sqlite,
            sqlite_s_shell,
            redis_server,
            nginx,
            fio,
            an_allocator_behind_an_old_dynamic_linker,
            confined_programs,
        ],
        look_whether_it_remaps,
    )
