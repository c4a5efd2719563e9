"""Reads without copying (QUIRE_ZREAD) and the world around a program: limits, leases, process groups, children of all kinds, devices, sandboxes.

Relies on zread.py beside this file, and on what it relies on; on being root for guards of files.
"""

import os
import signal
import subprocess
import sys
import time

import zread

import harness

# A lease that is given back late is taken after `/proc/sys/fs/lease-break-time`, 45 s.
SOON_S = 20


def guest():
    binary = os.path.join(zread.SCRATCH, "zread_world")
    if not os.path.exists(binary):
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "zread_world.c")
        subprocess.run(["cc", "-O1", "-w", "-pthread", "-o", binary, source], check=True)
    return binary


def part(name, *more, folder=None, **settings):
    path = os.path.join(folder or zread.SCRATCH, f"world-{name}.data")
    try:
        ours = zread.same([guest(), name, path, *more], **settings)
    finally:
        if os.path.exists(path):
            os.remove(path)
    return ours[-1].split("zread: ")[-1] if ours else None


def threads_that_are_cancelled(_):
    return part("cancellation")


def limits_of_addresses_and_data(_):
    told = part("limits")
    # Those that were set before.
    path = os.path.join(zread.SCRATCH, "limited.data")
    for limit in ("-v 4000000", "-d 1000000"):
        words = ["sh", "-c", f"ulimit {limit}; exec {guest()} numbers {path}"]
        zread.same(words, shall_remap=False)
    # A shell whose library has begun before.
    words = ["bash", "-c", f"ulimit -v 4000000; {guest()} numbers {path}; echo $?"]
    zread.same(words, shall_remap=False)
    return told


def limits_that_another_program_sets(_):
    with waiting_guest() as program:
        program.until(b"read")
        subprocess.run(["prlimit", "--pid", str(program.pid), "--as=2000000000"], check=True)
        time.sleep(1.5)
        program.go()
        program.until(b"read again")
        with open(f"/proc/{program.pid}/status") as status:
            size_kib = next(int(line.split()[1]) for line in status if line.startswith("VmSize:"))
        assert size_kib < 2000000, size_kib
        program.go()
        program.end()


def all_memory_locked(_):
    return part("locked")


def memory_that_is_freed(_):
    return part("freed")


def children_that_no_handler_sees(_):
    return part("children")


def signals_to_the_process_group(_):
    ours = zread.same([guest(), "group", os.path.join(zread.SCRATCH, "group.data")])
    assert sum("reads remapped" in line for line in ours) == 1, ours


class Guest:
    """A program that reads, says so and waits for a line."""

    def __init__(self):
        self.path = os.path.join(zread.SCRATCH, "waits.data")
        self.process = subprocess.Popen(
            [guest(), "waits", self.path],
            env=zread.environment(LD_PRELOAD=zread.LIBRARY, **zread.EAGER),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.killpg(self.pid, signal.SIGCONT)
            self.process.kill()
        self.process.wait()

    def until(self, words):
        line = self.process.stdout.readline()
        assert line.strip() == words, (line, words)

    def go(self):
        self.process.stdin.write(b"go\n")
        self.process.stdin.flush()

    def lease_process(self):
        for name in os.listdir("/proc"):
            try:
                with open(f"/proc/{name}/stat") as stat:
                    fields = stat.read().split(") ")
                if "quire-preload" in fields[0] and int(fields[1].split()[1]) == self.pid:
                    return int(name)
            except (OSError, IndexError, ValueError):
                pass
        return None

    def end(self):
        out, errors = self.process.communicate(timeout=60)
        assert out == b"stays\n" and self.process.returncode == 0, (out, errors)


def waiting_guest():
    return Guest()


def write_soon(path):
    """Another program writes the file anew; it doesn't wait for the end of a lease."""
    begun = time.monotonic()
    subprocess.run([guest(), "write", path, "2"], check=True)
    took_s = time.monotonic() - begun
    assert took_s < SOON_S, took_s


def a_program_that_is_stopped(_):
    with waiting_guest() as program:
        program.until(b"read")
        os.killpg(program.pid, signal.SIGSTOP)
        write_soon(program.path)
        os.killpg(program.pid, signal.SIGCONT)
        program.go()
        program.until(b"read again")
        program.go()
        program.end()


def a_lease_process_that_is_killed(_):
    with waiting_guest() as program:
        program.until(b"read")
        process = program.lease_process()
        assert process is not None or not zread.REMAPS
        if process is not None:
            os.kill(process, signal.SIGKILL)
        # The next one takes over what was remapped.
        program.go()
        program.until(b"read again")
        write_soon(program.path)
        program.go()
        program.end()


def files_that_are_opened_without_waiting(_):
    return part("not-waiting")


def leases_of_the_program_s_own(_):
    return part("own-leases")


def a_sandbox_that_forbids_the_library_s_calls(_):
    return part("sandbox", shall_remap=False)


def transfers_of_memory_in_place(_):
    devices = [path for path in ("/dev/fuse", "/dev/kvm", "/dev/net/tun", "/dev/rtc0", "/dev/hpet") if os.path.exists(path)]
    for how in ("uring", "fault", *devices[:1]):
        part("frames", how)
    ours = zread.same([guest(), "frames", os.path.join(zread.SCRATCH, "frames.data"), "uring"])
    return ours[-1].split("zread: ")[-1]


@harness.for_root
def files_whose_reads_are_refused(_):
    return part("guarded")


def changes_that_the_program_makes(_):
    told = part("own-changes")
    if os.access("/dev/shm", os.W_OK):
        told += "; on tmpfs: " + part("own-changes", folder="/dev/shm")
    return told


def memory_that_another_process_reads(_):
    return part("looked-at")


def handlers_on_small_stacks_and_handlers_that_jump(_):
    return part("handlers")


def descriptors_that_stand_for_something_else(_):
    return part("numbers")


WRAPPER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
ssize_t pread64(int file, void *buffer, size_t len, off_t at) {
    static ssize_t (*real)(int, void *, size_t, off_t);
    if (!real)
        real = dlsym(RTLD_NEXT, "pread64");
    ssize_t count = real(file, buffer, len, at);
    for (ssize_t i = 0; i < count; i++)
        ((char *)buffer)[i] ^= 1;
    return count;
}
ssize_t pread(int file, void *buffer, size_t len, off_t at) { return pread64(file, buffer, len, at); }
"""


def a_library_behind_that_changes_what_is_read(_):
    source, wrapper = os.path.join(zread.SCRATCH, "wrapper.c"), os.path.join(zread.SCRATCH, "wrapper.so")
    with open(source, "w") as file:
        file.write(WRAPPER)
    subprocess.run(["cc", "-O1", "-w", "-shared", "-fPIC", "-o", wrapper, source, "-ldl"], check=True)
    script = (
        "import os,sys,hashlib,time\nfile = os.open(sys.argv[1], os.O_RDONLY)\n"
        "print(len({hashlib.sha256(os.pread(file, 1 << 20, 0)).hexdigest() for _ in range(40) if not time.sleep(0.01)}))\n"
        "print(hashlib.sha256(os.pread(file, 1 << 20, 0)).hexdigest())"
    )
    words = [sys.executable, "-S", "-c", script, zread.data("wrapped")]
    plain = zread.run(words, zread.environment(LD_PRELOAD=wrapper))
    with_it = zread.run(words, zread.environment(LD_PRELOAD=f"{zread.LIBRARY}:{wrapper}", **zread.EAGER))
    assert plain.returncode == with_it.returncode == 0 and plain.stdout == with_it.stdout, (plain, with_it)


if __name__ == "__main__":
    zread.main(
        __doc__,
        [
            threads_that_are_cancelled,
            limits_of_addresses_and_data,
            limits_that_another_program_sets,
            all_memory_locked,
            memory_that_is_freed,
            children_that_no_handler_sees,
            signals_to_the_process_group,
            a_program_that_is_stopped,
            a_lease_process_that_is_killed,
            files_that_are_opened_without_waiting,
            leases_of_the_program_s_own,
            a_sandbox_that_forbids_the_library_s_calls,
            transfers_of_memory_in_place,
            files_whose_reads_are_refused,
            changes_that_the_program_makes,
            memory_that_another_process_reads,
            handlers_on_small_stacks_and_handlers_that_jump,
            descriptors_that_stand_for_something_else,
            a_library_behind_that_changes_what_is_read,
        ],
        zread.look_whether_it_remaps,
    )
