"""Unmodified programs under a memory limit of a quarter of their heap, or less, with the heap on a file.

Relies on libquire_preload.so beside the quire binary, on cc, sort, perl and python3, and, for the limit, on a cgroup v1 that may be
made; where it may not, the programs run without a limit and count as skipped. `--mib 1024` makes the heaps larger than the usual
24 MiB:

    python3 tests/preload/heap.py --quire target/release/quire --mib 1024
"""

import contextlib
import os
import random
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import harness

LIBRARY = None
SCRATCH = None
MEMORY_CGROUPS = "/sys/fs/cgroup/memory"
# What a program has in memory besides its heap: itself, libraries, the library's own tables, page tables.
BESIDES_MIB = 48


def clean_environment(**more):
    return {**{name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")}, **more}


def with_heap(heap_mib, pool_mib, **more):
    place = os.path.join(SCRATCH, "heaps")
    os.makedirs(place, exist_ok=True)
    return clean_environment(
        LD_PRELOAD=LIBRARY, QUIRE_PRELOAD_LOG="1", QUIRE_HEAP=f"{place}:{heap_mib}M:{pool_mib}M", **more
    )


def why_no_limit():
    """What keeps this process from making a cgroup; None where it can."""
    try:
        with limit(64):
            return None
    except OSError as error:
        return str(error)


def write_to(group, name, number):
    with open(os.path.join(group, name), "w") as file:
        file.write(str(number))


@contextlib.contextmanager
def limit(mib):
    """A function that puts the calling process under a limit."""
    group = os.path.join(MEMORY_CGROUPS, f"quire-heap-{os.getpid()}")
    os.mkdir(group)
    try:
        write_to(group, "memory.limit_in_bytes", mib << 20)
        # Swap would hide what the limit is there to show. Kernels that don't account it have no such file.
        with contextlib.suppress(OSError):
            write_to(group, "memory.memsw.limit_in_bytes", mib << 20)
        yield lambda: write_to(group, "cgroup.procs", os.getpid())
    finally:
        for _ in range(100):
            with contextlib.suppress(OSError):
                os.rmdir(group)
                break
            time.sleep(0.1)


def run(words, env, mib=None):
    """Runs `words`, under a limit of `mib` if one is given; returns what it printed and its peak."""
    begun = time.monotonic()
    with limit(mib) if mib else contextlib.nullcontext() as enter:
        process = subprocess.Popen(
            words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=enter
        )
        out, err = process.communicate(timeout=1800)
    return process.returncode, out, err.decode(errors="replace"), time.monotonic() - begun


def compare(words, heap_mib, pool_mib, **more):
    """The same with the heap on a file, under a limit, as without."""
    code, out, err, plain_s = run(words, clean_environment(**more))
    assert code == 0, err
    limit_mib = pool_mib + BESIDES_MIB
    refusal = why_no_limit()
    code, with_out, with_err, with_s = run(
        words, with_heap(4 * heap_mib, pool_mib, **more), None if refusal else limit_mib
    )
    assert code == 0, (code, with_err)
    assert with_out == out, (out[-2000:], with_out[-2000:], with_err)
    assert "quire-preload: heap: " in with_err, with_err
    # Programs that close standard error before their end, as sort does, get no figures.
    figures = re.search(r"(\d+) pages of (\d+) KiB brought in, (\d+) evicted", with_err)
    assert figures is None or int(figures.group(3)) > 0, with_err
    harness.skip_unless(refusal is None, f"it does the same, but no memory limit can be set: {refusal}")
    moved = f", {int(figures.group(1)) * int(figures.group(2)) >> 10} MiB brought in" if figures else ""
    return f"{plain_s:.1f} s without; {with_s:.1f} s under {limit_mib} MiB{moved}"


def sort(options):
    lines = os.path.join(SCRATCH, "lines")
    generator = random.Random(3)
    with open(lines, "w") as file:
        for _ in range(options.mib << 20 >> 7):
            file.write(f"{generator.getrandbits(96):030d} {generator.randrange(1000)} some words to sort along\n")
    # It keeps all in memory: lines, and a record for each.
    return compare(["sort", "-S", f"{options.mib}M", "--parallel=2", lines], options.mib, options.mib // 4, LC_ALL="C")


SCRIPT = """
import random, sys
random.seed(7)
mib = int(sys.argv[1])
table = {}
for i in range(mib * 1000):
    table[i] = bytes([i % 251]) * random.randrange(1, 1500)
for _ in range(mib * 500):
    i = random.randrange(mib * 1000)
    table[i] = table[i][:700] + b"x"
print(len(table), sum(len(value) for value in table.values()), hash(tuple(table[i][-1] for i in range(0, mib * 1000, 3))))
"""


def python(options):
    words = [sys.executable, "-S", "-c", SCRIPT, str(options.mib)]
    return compare(words, options.mib, options.mib // 4, PYTHONMALLOC="malloc", PYTHONHASHSEED="0")


PERL = """
my ($mib, %table) = ($ARGV[0]);
$table{$_} = chr(97 + $_ % 26) x ($_ * 7919 % 1500) for 0 .. $mib * 800;
for my $turn (1 .. $mib * 400) {
  my $key = $turn * 104729 % ($mib * 800);
  $table{$key} = substr($table{$key}, 0, 700) . "x";
}
my $sum = 0;
$sum = ($sum * 31 + length($table{$_})) % 1000003 for sort { $a <=> $b } keys %table;
print scalar(keys %table), " $sum\\n";
"""


def perl(options):
    words = ["perl", "-e", PERL, str(options.mib)]
    return compare(words, options.mib, options.mib // 4, PERL_HASH_SEED="0")


def xz(options):
    """Its tables are read and written at random, so that most bytes of the input bring pages in: the input is small."""
    harness.skip_unless(shutil.which("xz"), "takes xz (apt-get install xz-utils)")
    plain = os.path.join(SCRATCH, "to pack")
    with open(plain, "wb") as file:
        file.write(random.Random(5).randbytes(options.mib << 12))
    # The tables take ten times the dictionary.
    packing = f"--lzma2=preset=6,dict={max(options.mib // 12, 1)}MiB"
    return compare(["xz", "--stdout", "--threads=1", packing, plain], options.mib, options.mib // 8)


def guest():
    binary = os.path.join(SCRATCH, "heap")
    if not os.path.exists(binary):
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "heap.c")
        subprocess.run(["cc", "-O1", "-w", "-pthread", "-o", binary, source], check=True)
    return binary


def blocks_of_all_sizes(options):
    return compare([guest(), "walk", str(options.mib)], options.mib, options.mib // 4)


def forked_children(options):
    return compare([guest(), "forks", str(options.mib // 4)], options.mib, options.mib // 4)


def a_program_in_another(options):
    """What a program starts has a heap of its own, on the same place."""
    script = "sort -S 1M %s | uniq -c | tail -1; echo $?" % os.path.abspath(__file__)
    plain = run(["sh", "-c", script], clean_environment(LC_ALL="C"))
    with_it = run(["sh", "-c", script], with_heap(64, 4, LC_ALL="C"))
    assert plain[:2] == with_it[:2], with_it
    assert with_it[2].count("quire-preload: heap: 64 MiB on ") == 4, with_it[2]


if __name__ == "__main__":
    OPTIONS = harness.arguments(
        __doc__, lambda parser: parser.add_argument("--mib", type=int, default=24, help="MiB that programs use")
    )
    LIBRARY = os.path.join(os.path.dirname(OPTIONS.quire), "libquire_preload.so")
    if not os.path.exists(LIBRARY):
        sys.exit(f"{LIBRARY} is not there: cargo build --release")
    with harness.scratch() as SCRATCH:
        probe = run(["true"], with_heap(64, 4))
        if "can't be had" in probe[2] or "userfaultfd" in probe[2]:

            def no_heap_on_a_file_can_be_had(_):
                raise harness.Skipped(probe[2].strip())

            harness.run([no_heap_on_a_file_can_be_had], OPTIONS)
        harness.run([sort, python, perl, xz, blocks_of_all_sizes, forked_children, a_program_in_another], OPTIONS)
