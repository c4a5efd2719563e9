"""The examples in Python, run on the library that was built beside the binary."""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "python")


def run(name, *words):
    return subprocess.run([sys.executable, "-B", os.path.join(EXAMPLES, name), *words], capture_output=True, timeout=120, check=False)


def a_snapshot_and_a_mapped_file(options):
    library = os.path.join(os.path.dirname(os.path.abspath(options.quire)), "libquire.so")
    harness.skip_unless(os.path.exists(library), f"{library} is not built")
    done = run("snapshot.py", library)
    printed = done.stdout.decode()
    assert done.returncode == 0, printed + done.stderr.decode()
    assert "now 0, in the snapshot 4999950000" in printed, printed
    return "the file was left out" if "left out" in printed else None


def a_library_that_is_not_there_is_named(_):
    done = run("snapshot.py", "/no/such/libquire.so")
    assert done.returncode != 0 and b"/no/such/libquire.so" in done.stderr, done.stderr


if __name__ == "__main__":
    harness.run([a_snapshot_and_a_mapped_file, a_library_that_is_not_there_is_named], harness.arguments(__doc__))
