"""Programs that confine themselves (seccomp): with libquire_preload.so they must end and print as without it.

Relies on the library beside the quire binary, on cc, and on the kernel's seccomp.
"""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import harness
import preload


def guest():
    binary = os.path.join(preload.SCRATCH, "confined-guest")
    if not os.path.exists(binary):
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "confined.c")
        subprocess.run(["cc", "-O1", "-Wno-unused-result", "-pthread", "-o", binary, source], check=True)
    return binary


def same(*words):
    """Runs a part of the guest without and with the library; the same must come of it. Returns the library's lines."""
    plain = preload.run([guest(), *words], preload.environment())
    with_it = preload.run([guest(), *words], preload.preloaded(**preload.EAGER))
    ours, others = preload.split(with_it.stderr)
    assert (with_it.returncode, with_it.stdout) == (plain.returncode, plain.stdout), (plain, with_it)
    assert plain.returncode == 0 and others == preload.split(plain.stderr)[1], (plain, others)
    assert not any("gives up" in line for line in ours), ours
    return ours


def told_after(marker, *words):
    """The library's lines behind the guest's own `marker`; what the guest does is the same as without the library."""
    same(*words)
    lines = preload.run([guest(), *words], preload.preloaded(**preload.EAGER)).stderr.decode().splitlines()
    return lines[lines.index(marker) + 1 :]


def quiet(*words):
    """The same comes of it, and the library, which was at work before, falls silent without a word."""
    told = preload.at_work(lambda: same(*words), " active in ")
    assert not any("killed" in line or "not active" in line for line in told), told


def a_filter_that_kills_for_our_calls_finds_none(_):
    for how in ("prctl", "syscall"):
        quiet("filters", how, "kill")


def a_filter_that_refuses_our_calls_changes_nothing(_):
    for how in ("prctl", "syscall", "raw"):
        quiet("filters", how, "refuse")


def a_filter_past_the_c_library_is_noticed_by_the_worker(_):
    quiet("filters", "raw", "kill")


def a_worker_that_is_born_with_a_filter_may_be_killed(_):
    preload.at_work(lambda: same("first"), "was killed 3 times")


def strict_mode_allows_what_it_does_without_us(_):
    quiet("strict")


def a_watched_child_in_strict_mode_ends_as_without_us(_):
    quiet("child")


def a_thread_in_strict_mode_ends_as_without_us(_):
    quiet("thread")


def a_child_by_vfork_confines_itself_and_not_its_parent(_):
    preload.at_work(lambda: told_after("the parent goes on", "vfork"), ": epoch ")


def a_refusal_of_the_kernel_does_not_switch_the_library_off(_):
    preload.at_work(lambda: told_after("the kernel has refused", "refusals"), ": epoch ")


def a_program_that_is_started_under_a_filter_goes_on(_):
    for what in ("refuse", "kill"):
        same("started", what)


if __name__ == "__main__":
    OPTIONS = harness.arguments(__doc__)
    preload.LIBRARY = os.path.join(os.path.dirname(OPTIONS.quire), "libquire_preload.so")
    if not os.path.exists(preload.LIBRARY):
        sys.exit(f"{preload.LIBRARY} is not there: cargo build --release")
    with harness.scratch() as preload.SCRATCH:
        tests = [
            a_filter_that_kills_for_our_calls_finds_none,
            a_filter_that_refuses_our_calls_changes_nothing,
            a_filter_past_the_c_library_is_noticed_by_the_worker,
            a_worker_that_is_born_with_a_filter_may_be_killed,
            strict_mode_allows_what_it_does_without_us,
            a_watched_child_in_strict_mode_ends_as_without_us,
            a_thread_in_strict_mode_ends_as_without_us,
            a_child_by_vfork_confines_itself_and_not_its_parent,
            a_refusal_of_the_kernel_does_not_switch_the_library_off,
            a_program_that_is_started_under_a_filter_goes_on,
        ]
        harness.run(tests, OPTIONS)
