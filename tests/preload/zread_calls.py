"""What QUIRE_ZREAD costs where it gains nothing: system calls that the library adds to a program that opens, reads and closes files.

Relies on zread.py beside this file, on cc, and on tracing a child (ptrace). Calls are counted, not timed: a count is the same on a busy machine.
"""

import os
import subprocess

import zread

# Files that are opened, each of which is read by two calls: one for its bytes, one for its end.
TIMES = 2000
FILES = 50
# A buffer that a look might pay for, and one that is too small for that.
LARGE = 1 << 20
SMALL = 16 << 10
# After a look in vain at least so many reads are copied without one, but for the first few.
LEAST_SKIPPED = 16
FIRST_LOOKS = 16


def program():
    binary = os.path.join(zread.SCRATCH, "zread_calls")
    if not os.path.exists(binary):
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "zread_calls.c")
        subprocess.run(["cc", "-O1", "-w", "-o", binary, source], check=True)
    return binary


def folder(file_bytes):
    path = os.path.join(zread.SCRATCH, f"calls-{file_bytes}")
    if not os.path.exists(path):
        os.mkdir(path)
        for number in range(FILES):
            with open(os.path.join(path, str(number)), "wb") as file:
                file.write(b"x" * file_bytes)
    return path


def calls(file_bytes, buffer_bytes, flags=os.O_RDONLY, **settings):
    """How often the program makes which system call, by number."""
    words = [program(), "count", program(), "read", folder(file_bytes), FILES, TIMES, buffer_bytes, flags]
    done = zread.run([str(word) for word in words], zread.environment(**settings))
    assert done.returncode == 0, (done, settings)
    return {int(number): int(count) for number, count in (line.split() for line in done.stdout.splitlines())}


def with_library(file_bytes, buffer_bytes, flags=os.O_RDONLY, **settings):
    """The calls without the library, and how many it adds."""
    plain = calls(file_bytes, buffer_bytes, flags)
    added = calls(file_bytes, buffer_bytes, flags, QUIRE_TEST_PRELOAD=zread.LIBRARY, **settings)
    assert all(added.get(number, 0) >= count for number, count in plain.items()), (plain, added)
    return sum(plain.values()), sum(added.values()) - sum(plain.values())


def bound(each):
    """Calls of looks in vain, of which each takes so many."""
    return each * (2 * TIMES // LEAST_SKIPPED + FIRST_LOOKS)


def without_settings_the_library_adds_none(_):
    plain, added = with_library(SMALL, LARGE)
    assert plain == 4 * TIMES and added == 0, (plain, added)


def reads_by_small_buffers_add_none(_):
    plain, added = with_library(SMALL, SMALL, QUIRE_ZREAD="on")
    assert plain == 4 * TIMES and added == 0, (plain, added)


def small_files_and_large_buffers_add_few(_):
    _, added = with_library(SMALL, LARGE, QUIRE_ZREAD="on")
    # Which descriptor, and which file.
    assert added <= bound(2), added
    return f"{added} calls for {TIMES} files"


def files_that_are_open_for_writing_add_few(_):
    _, added = with_library(LARGE // 4, LARGE, os.O_RDWR, QUIRE_ZREAD="on")
    # Which descriptor.
    assert added <= bound(1), added
    return f"{added} calls for {TIMES} files"


def files_that_are_not_asked_for_add_few(_):
    _, added = with_library(LARGE // 4, LARGE, QUIRE_ZREAD="/no/such/folder")
    # And the stack that it runs on, and the path.
    assert added <= bound(4), added
    return f"{added} calls for {TIMES} files"


if __name__ == "__main__":
    zread.main(
        __doc__,
        [
            without_settings_the_library_adds_none,
            reads_by_small_buffers_add_none,
            small_files_and_large_buffers_add_few,
            files_that_are_open_for_writing_add_few,
            files_that_are_not_asked_for_add_few,
        ],
    )
