"""Programs that load, start and become others in unusual ways: with libquire_preload.so they must do as without it.

Relies on the library beside the quire binary and on cc; on being root for programs that change the user, and on the C library's
archive for static ones.
"""

import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import harness
import preload


def build(name, *options, source="starts.c"):
    path = os.path.join(preload.SCRATCH, name)
    if not os.path.exists(path):
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), source)
        subprocess.run(["cc", "-O1", "-Wno-unused-result", "-o", path, source, *options], check=True)
    return path


def guest():
    return build("starts-guest", "-ldl")


def same(words, with_words=None, expected=0, **more):
    """Runs a part of the guest without and with the library; the same must come of it. Returns the library's lines."""
    plain = preload.run([guest(), *words], preload.environment(QUIRE_TEST="kept", **more))
    with_it = preload.run([guest(), *(with_words or words)], preload.preloaded(QUIRE_TEST="kept", **preload.EAGER, **more))
    ours, others = preload.split(with_it.stderr)
    assert (with_it.returncode, with_it.stdout) == (plain.returncode, plain.stdout), (plain, with_it)
    assert plain.returncode == expected and others == preload.split(plain.stderr)[1], (plain, others)
    assert not any("gives up" in line for line in ours), ours
    return ours


def a_plugin_that_forks_is_loaded_and_unloaded(_):
    plugin = build("plugin.so", "-DPLUGIN", "-shared", "-fPIC")
    preload.at_work(lambda: same(["plugins", plugin]), " active in ")


def the_library_loaded_late_does_nothing_and_can_be_unloaded(_):
    for more in ({}, {"QUIRE_HEAP": f"{preload.SCRATCH}:1G:16M"}):
        plain = preload.run([guest(), "late", preload.LIBRARY], preload.environment())
        with_it = preload.run([guest(), "late", preload.LIBRARY], preload.environment(**preload.EAGER, **more))
        assert (with_it.returncode, with_it.stdout, with_it.stderr) == (0, plain.stdout, plain.stderr), with_it
        assert b"child: 5\nclosed: 0\nchild: 5\n" in plain.stdout, plain.stdout


def a_static_program_keeps_its_environment(_):
    try:
        static = build("static", "-static", "-Wl,--no-warnings")
    except subprocess.CalledProcessError as error:
        raise harness.Skipped("no archive of the C library") from error
    same(["starts", static, ""], ["starts", static, preload.LIBRARY])


def a_program_that_changes_the_user_runs_without_us(_):
    harness.skip_unless(os.geteuid() == 0, "takes root")
    other = os.path.join(preload.SCRATCH, "other-user")
    if not os.path.exists(other):
        shutil.copy(guest(), other)
        os.chown(other, 65534, 65534)
        os.chmod(other, 0o6755)
    # What the dynamic linker takes out of the environment of such a program is its own affair.
    same(["starts", other, ""])


def a_program_that_becomes_another_again_and_again(_):
    same(["becomes"])


def a_program_that_closes_all_descriptors(_):
    same(["closes"], expected=4)


def daemons_fork_twice(_):
    same(["daemons"])


def a_library_behind_ours_is_called_by_the_names_that_the_program_calls(_):
    program = build("names", source="names.c")
    behind = build("behind.so", "-DBEHIND", "-shared", "-fPIC", source="names.c")
    plain = preload.run([program], preload.environment(LD_PRELOAD=behind))
    with_it = preload.run([program], preload.environment(LD_PRELOAD=f"{preload.LIBRARY} {behind}"))
    assert b"fcntl64: 0 0, seen 9\n" in plain.stdout, plain
    assert (with_it.returncode, with_it.stdout, with_it.stderr) == (0, plain.stdout, b""), (plain, with_it)


def nothing_is_looked_up_once_the_program_has_begun(_):
    # That takes the dynamic linker's lock: a thread would hang whose end the opening function of a plugin waits for.
    program = build("lookups", "-DLOOKUPS", "-rdynamic", "-ldl", source="names.c")
    plain = preload.run([program], preload.environment())
    assert plain.stdout.endswith(b"looked up: 0\n"), plain
    for more in ({}, {"QUIRE_ZREAD": "on"}):
        with_it = preload.run([program], preload.preloaded(**more))
        assert (with_it.returncode, with_it.stdout) == (0, plain.stdout), (plain, with_it)


if __name__ == "__main__":
    OPTIONS = harness.arguments(__doc__)
    preload.LIBRARY = os.path.join(os.path.dirname(OPTIONS.quire), "libquire_preload.so")
    if not os.path.exists(preload.LIBRARY):
        sys.exit(f"{preload.LIBRARY} is not there: cargo build --release")
    with harness.scratch() as preload.SCRATCH:
        tests = [
            a_plugin_that_forks_is_loaded_and_unloaded,
            the_library_loaded_late_does_nothing_and_can_be_unloaded,
            a_static_program_keeps_its_environment,
            a_program_that_changes_the_user_runs_without_us,
            a_program_that_becomes_another_again_and_again,
            a_program_that_closes_all_descriptors,
            daemons_fork_twice,
            a_library_behind_ours_is_called_by_the_names_that_the_program_calls,
            nothing_is_looked_up_once_the_program_has_begun,
        ]
        harness.run(tests, OPTIONS)
