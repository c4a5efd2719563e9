"""libquire_preload.so in programs of other people: they must print and keep the same as without it.

Relies on the library beside the quire binary, on cc (Rust's linker), bash, python3 and Debian's redis-server.
"""

import os
import re
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness

LIBRARY = None
SCRATCH = None
# Everything is worth copying and nothing is too small, so that tests that are short see the library at work.
EAGER = {"QUIRE_PRELOAD_MIN": "0", "QUIRE_PRELOAD_THRESHOLD": "10", "QUIRE_PRELOAD_LOG": "2", "QUIRE_PRELOAD_RATE": "32g", "QUIRE_PRELOAD_BUSY": "100"}


def environment(**more):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("QUIRE_PRELOAD")}
    return {**clean, **more}


def preloaded(**more):
    return environment(LD_PRELOAD=LIBRARY, **more)


def run(words, env, limit_s=120):
    return subprocess.run(words, env=env, capture_output=True, timeout=limit_s, stdin=subprocess.DEVNULL)


def split(text):
    """The library's lines, and the others."""
    lines = text.decode(errors="replace").splitlines()
    ours = [line for line in lines if line.startswith("quire-preload: ")]
    return ours, [line for line in lines if line not in ours]


def same(words, active=True, limit_s=120):
    """Runs `words` without and with the library, in small and in huge pages; returns the library's lines."""
    plain = run(words, environment(), limit_s)

    def told_with(extra):
        with_it = run(words, preloaded(**EAGER, **extra), limit_s)
        ours, others = split(with_it.stderr)
        assert with_it.returncode == plain.returncode, (with_it.returncode, plain.returncode, with_it.stderr)
        assert with_it.stdout == plain.stdout, (plain.stdout, with_it.stdout, with_it.stderr)
        assert others == split(plain.stderr)[1], (others, plain.stderr)
        assert not any("gives up" in line for line in ours), ours
        return ours

    told = []
    for extra in ({}, {"QUIRE_PRELOAD_HUGE": "off"}, {"QUIRE_PRELOAD_HUGE": "off", "QUIRE_PRELOAD_REGION": "64k"}):
        told += at_work(lambda: told_with(extra), " active in ") if active else told_with(extra)
    return told


def at_work(lines_of, shows, limit_s=60):
    """Lines of the library that show it at work: words that one of them has, or a function of all. On a loaded machine its worker
    may come too late for a short program, and then another try is made. What the program does is checked by `lines_of` each time."""
    shown = shows if callable(shows) else lambda told: any(shows in line for line in told)
    end = time.monotonic() + limit_s
    while True:
        told = lines_of()
        if shown(told):
            return told
        if time.monotonic() > end:
            raise AssertionError(f"nothing said {shows!r} in {limit_s} s: {told}")


def guest():
    binary = os.path.join(SCRATCH, "guest")
    if not os.path.exists(binary):
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "guest.c")
        subprocess.run(["cc", "-O1", "-Wno-unused-result", "-pthread", "-o", binary, source], check=True)
    return binary


def precopied(lines):
    return sum(int(number) for line in lines for number in re.findall(r"(\d+) precopied", line))


def snapshots_stay_what_they_were(_):
    told = at_work(
        lambda: same([guest(), "snapshots"]), lambda told: precopied(told) > 0 and any("seen at its end" in line for line in told)
    )
    return f"{precopied(told)} pages copied ahead"


def threads_that_write_and_fork(_):
    same([guest(), "threads"])


def every_way_to_end(_):
    same([guest(), "ends"])


def no_traces_in_errno_and_descriptors(_):
    same([guest(), "traces"])


def forks_in_signal_handlers(_):
    same([guest(), "handlers"], limit_s=60)


def a_program_whose_first_thread_leaves(_):
    # It may have ended before the library comes to say that it is active.
    same([guest(), "leaves"], active=False, limit_s=20)


def shells(_):
    script = "echo a; (echo b; exit 3); echo $?; for i in 1 2 3; do echo $(echo $i | tr 1-3 x-z); done; ls / | wc -l; false"
    # A shell lives in forks that soon become other programs.
    for shell in (["bash", "-c"], ["sh", "-c"]):
        same([*shell, script], active=False)
    quiet = run(["bash", "-c", script], preloaded())
    assert split(quiet.stderr)[0] == [], quiet.stderr


PYTHON = """
import os, threading, time, hashlib
memory = bytearray(os.urandom(4096) * 15000)
stop = False
def write():
    turn = 0
    while not stop:
        turn += 1
        for at in range(0, len(memory), 4096):
            memory[at] = turn & 255
for turn in range(6):
    stop = False
    before = hashlib.sha1(memory).hexdigest()
    pid = os.fork()
    if pid == 0:
        time.sleep(0.1)
        os._exit(0 if hashlib.sha1(memory).hexdigest() == before else 1)
    writer = threading.Thread(target=write)
    writer.start()
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    stop = True
    writer.join()
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(3) as pool:
        print(pool.map(abs, range(-5, 5)))
    import subprocess
    print(subprocess.run(["echo", "done"], capture_output=True).stdout)
"""


def python_with_threads(_):
    path = os.path.join(SCRATCH, "program.py")
    with open(path, "w", encoding="ascii") as file:
        file.write(PYTHON)
    same([sys.executable, path])


def switched_off_and_misread(_):
    off = run([guest(), "snapshots"], preloaded(QUIRE_PRELOAD="off", QUIRE_PRELOAD_MIN="0"))
    assert split(off.stderr)[0] == [], off.stderr

    def told_with(**more):
        return split(run([guest(), "snapshots"], preloaded(**more)).stderr)[0]

    told = at_work(lambda: told_with(QUIRE_PRELOAD_MIN="0", QUIRE_PRELOAD_RATE="fast"), " active in guest (pid ")
    assert len(told) == 2 and "QUIRE_PRELOAD_RATE" in told[0] and " active in guest (pid " in told[1], told
    nothing = at_work(lambda: told_with(**{**EAGER, "QUIRE_PRELOAD_MEMORY": "0"}), "memory is short")
    assert precopied(nothing) == 0, nothing
    limited = at_work(lambda: told_with(**EAGER, QUIRE_PRELOAD_MEMORY="4m"), lambda told: precopied(told) > 0)
    assert precopied(limited) <= 8 * 1024, limited


class Redis:
    """redis-server from Debian's package."""

    def __init__(self, name, env):
        self.dir = os.path.join(SCRATCH, name)
        os.makedirs(self.dir, exist_ok=True)
        self.port = harness.free_port()
        words = ["redis-server", "--port", str(self.port), "--dir", self.dir, "--save", "", "--enable-debug-command", "local"]
        with open(os.path.join(self.dir, "log"), "ab") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)

    def ready(self):
        for _ in range(2000):
            try:
                connection = harness.Raw(self.port)
                connection.call("GET", "none")
                return connection
            except (OSError, harness.ReplyError):
                time.sleep(0.01)
        raise AssertionError("redis-server does not answer")

    def log(self):
        with open(os.path.join(self.dir, "log"), "rb") as file:
            return file.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def load(port, stop, keys):
    """Updates in batches; both counters of a transaction always change together."""
    connection = harness.Raw(port)
    turn = 0
    while not stop.is_set():
        batch = b"".join(
            harness.Raw.encode("SET", f"key:{turn * 7919 % keys + at * 13 % 97}", f"{turn}-{at}" * 60) for at in range(64)
        )
        batch += b"".join(harness.Raw.encode(*words) for words in (["MULTI"], ["INCR", "one"], ["INCR", "two"], ["EXEC"]))
        connection.send(batch)
        for _ in range(64 + 3):
            connection.reply()
        connection.reply()
        turn += 1
    connection.close()


def redis_saves_under_load(_):
    """Snapshots are consistent, and what is saved at rest is what was there."""
    keys, least, most = 100_000, 5, 40
    with Redis("redis", preloaded(QUIRE_PRELOAD_LOG="1", QUIRE_PRELOAD_THRESHOLD="20", QUIRE_PRELOAD_MIN="0", QUIRE_PRELOAD_BUSY="100")) as server:
        control = server.ready()
        control.call("DEBUG", "POPULATE", keys, "key", 600)
        stop = threading.Event()
        writer = threading.Thread(target=load, args=(server.port, stop, keys))
        writer.start()
        while control.call("GET", "two") is None:
            time.sleep(0.01)
        saves = 0

        def save():
            nonlocal saves
            control.call("BGSAVE")
            assert control.wait_saved()["rdb_last_bgsave_status"] == "ok"
            os.rename(os.path.join(server.dir, "dump.rdb"), os.path.join(SCRATCH, f"dump-{saves}.rdb"))
            saves += 1

        # A busy machine may let the worker miss a child; it learns from the next.
        while saves < least or (saves < most and precopied(split(server.log())[0]) == 0):
            time.sleep(0.2)
            save()
        stop.set()
        writer.join()
        digest = control.digest()
        save()
        ours, _ = split(server.log())
        assert any("active in redis-server" in line for line in ours), ours
        pages = precopied(ours)
    assert pages > 0, ours
    for turn in [*range(least), saves - 1]:
        directory = os.path.join(SCRATCH, f"plain-{turn}")
        os.makedirs(directory)
        os.rename(os.path.join(SCRATCH, f"dump-{turn}.rdb"), os.path.join(directory, "dump.rdb"))
        with Redis(f"plain-{turn}", environment()) as plain:
            connection = plain.ready()
            one, two = connection.call("GET", "one"), connection.call("GET", "two")
            assert one == two and one is not None, (turn, one, two)
            assert connection.call("DBSIZE") >= keys
            if turn == saves - 1:
                assert connection.digest() == digest
    return f"{pages} pages copied ahead in {saves} saves"


def same_commands_same_digest(_):
    """The same commands, with saves at the same places, lead to the same data with the library and without."""
    digests = []
    for name, env in (("with", preloaded(**EAGER)), ("without", environment())):
        with Redis(f"digest-{name}", env) as server:
            connection = server.ready()
            connection.call("DEBUG", "POPULATE", 50_000, "key", 500)
            for turn in range(4):
                connection.call("BGSAVE")
                connection.send(
                    b"".join(harness.Raw.encode("APPEND", f"key:{at * 31 % 50_000}", f"{turn}.{at}") for at in range(20_000))
                )
                for _ in range(20_000):
                    connection.reply()
                connection.wait_saved()
            digests.append(connection.digest())
    assert digests[0] == digests[1], digests


if __name__ == "__main__":
    OPTIONS = harness.arguments(__doc__)
    LIBRARY = os.path.join(os.path.dirname(OPTIONS.quire), "libquire_preload.so")
    if not os.path.exists(LIBRARY):
        sys.exit(f"{LIBRARY} is not there: cargo build --release")
    with harness.scratch() as SCRATCH:
        tests = [
            snapshots_stay_what_they_were,
            threads_that_write_and_fork,
            every_way_to_end,
            no_traces_in_errno_and_descriptors,
            forks_in_signal_handlers,
            a_program_whose_first_thread_leaves,
            shells,
            python_with_threads,
            switched_off_and_misread,
            redis_saves_under_load,
            same_commands_same_digest,
        ]
        harness.run(tests, OPTIONS)
