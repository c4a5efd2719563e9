"""The process that libquire_preload.so works in: programs that count their threads, leave namespaces, confine themselves,
become daemons or other programs must not notice it, and it must not outlive them.

Relies on the library beside the quire binary, on cc, and on being root for users and namespaces.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import harness
import preload


def guest():
    binary = os.path.join(preload.SCRATCH, "process-guest")
    if not os.path.exists(binary):
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "process.c")
        subprocess.run(["cc", "-O1", "-Wno-unused-result", "-pthread", "-o", binary, source], check=True)
    return binary


def same(what, **more):
    """Runs a part of the guest without and with the library; the same must come of it. Returns the library's lines."""
    plain = preload.run([guest(), what], preload.environment())
    with_it = preload.run([guest(), what], preload.preloaded(**{**preload.EAGER, **more}))
    ours, others = preload.split(with_it.stderr)
    assert (with_it.returncode, with_it.stdout) == (plain.returncode, plain.stdout), (plain, with_it)
    assert plain.returncode == 0 and others == preload.split(plain.stderr)[1], (plain, others)
    assert not any("gives up" in line for line in ours), ours
    return ours


def a_program_that_forks_has_as_many_threads_as_without(_):
    preload.at_work(lambda: same("counts"), " active in ")


@harness.for_root
def namespaces_may_be_left_while_a_child_lives(_):
    # A worker in the namespace of the children would have the program wait for ever, depending on who ends first.
    for _ in range(5):
        same("namespaces")


def wait_finds_only_the_program_s_children_and_no_zombie_stays(_):
    preload.at_work(lambda: same("waits"), " active in ")


def a_sandbox_on_all_threads_is_no_longer_met_by_our_calls(_):
    told = preload.at_work(lambda: same("filters"), " active in ")
    assert not any("killed" in line for line in told), told


def a_program_that_becomes_another_frees_its_memory(_):
    same("becomes")


def a_program_that_becomes_another_gets_no_signal_and_no_zombie_of_ours(_):
    preload.at_work(lambda: same("again"), lambda told: sum(" active in " in line for line in told) == 3)


def what_a_program_gives_up_its_worker_does_not_keep(_):
    if os.geteuid() != 0:
        raise harness.Skipped("only root can become another user")
    preload.at_work(lambda: same("gives_up"), " active in ")


def workers_of_a_prefork_server_go_on_sharing_memory(_):
    preload.at_work(lambda: same("prefork", QUIRE_PRELOAD_THRESHOLD="90"), ": epoch ")


def threads_that_fork_may_end_before_their_children(_):
    same("forkers")


def daemons_that_close_everything_and_change_user_and_root(_):
    same("daemon")


def a_program_without_address_space_goes_on(_):
    same("room")


def other_ways_to_make_children(_):
    same("ways")


def children_of(pid):
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    return []


def name_of(pid):
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
            return file.read().strip()
    return None


def until(what, limit_s=60):
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(0.005)
    raise AssertionError("it did not happen")


def a_killed_program_takes_our_process_with_it(_):
    env = preload.preloaded(**preload.EAGER)
    with subprocess.Popen([guest(), "stays"], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as program:
        child = int(program.stdout.readline())
        ours = until(lambda: [pid for pid in children_of(program.pid) if pid != child and name_of(pid) == "quire-preload"])
        program.send_signal(signal.SIGKILL)
        program.wait()
        until(lambda: all(name_of(pid) != "quire-preload" for pid in ours))


def our_process_may_be_killed(_):
    env = preload.preloaded(**preload.EAGER)
    with subprocess.Popen([guest(), "stays"], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as program:
        child = int(program.stdout.readline())
        ours = until(lambda: [pid for pid in children_of(program.pid) if pid != child and name_of(pid) == "quire-preload"])
        os.kill(ours[0], signal.SIGKILL)
        time.sleep(0.1)
        assert program.poll() is None
        program.kill()


if __name__ == "__main__":
    OPTIONS = harness.arguments(__doc__)
    preload.LIBRARY = os.path.join(os.path.dirname(OPTIONS.quire), "libquire_preload.so")
    if not os.path.exists(preload.LIBRARY):
        sys.exit(f"{preload.LIBRARY} is not there: cargo build --release")
    with harness.scratch() as preload.SCRATCH:
        tests = [
            a_program_that_forks_has_as_many_threads_as_without,
            namespaces_may_be_left_while_a_child_lives,
            wait_finds_only_the_program_s_children_and_no_zombie_stays,
            a_sandbox_on_all_threads_is_no_longer_met_by_our_calls,
            a_program_that_becomes_another_frees_its_memory,
            a_program_that_becomes_another_gets_no_signal_and_no_zombie_of_ours,
            what_a_program_gives_up_its_worker_does_not_keep,
            workers_of_a_prefork_server_go_on_sharing_memory,
            threads_that_fork_may_end_before_their_children,
            daemons_that_close_everything_and_change_user_and_root,
            a_program_without_address_space_goes_on,
            other_ways_to_make_children,
            a_killed_program_takes_our_process_with_it,
            our_process_may_be_killed,
        ]
        harness.run(tests, OPTIONS)
