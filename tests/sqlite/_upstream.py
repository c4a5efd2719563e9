#!/usr/bin/env python3
"""SQLite's own tests on libquire_sqlite.so, from Debian's source package: what they say by the VFS `quire` beside what they say by SQLite's own.

    _upstream.py --quire target/release/quire [--cache DIR] [--only speedtest1,threadtest3,mptest,tcl,python] [--tcl PATTERN,...]
                 [--pool SIZE] [--tier SIZE]

The package is fetched by `apt-get source` with lists of sources of its own; nothing of the machine's is changed. SQLite is compiled with a
hook that loads the library before the first database is opened, so each of its programs uses `quire` as the default VFS where the
environment says so, and SQLite's own where it doesn't. A file of tests counts as failed only if it fails by `quire` and passes by SQLite's
own VFS. Not part of the suite: it compiles for minutes, and all Tcl files take an hour. Needs apt, dpkg-dev, gcc, make, tcl and tcl-dev.
"""

import argparse
import fnmatch
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "crates" / "bench" / "peers" / "redis-mdc"))

from build import Apt, Failure, folder, installed, newest_of, run

# Loads the library that the environment names, which then makes its VFS the default one (QUIRE_SQLITE_DEFAULT=1).
HOOK = """
#include <stdio.h>
#include <stdlib.h>
int quire_extra_init(const char *unused) {
  const char *library = getenv("QUIRE_TEST_EXTENSION");
  sqlite3 *db = 0;
  char *message = 0;
  int rc;
  (void)unused;
  if (!library) return SQLITE_OK;
  rc = sqlite3_open_v2(":memory:", &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, "unix");
  if (rc == SQLITE_OK) rc = sqlite3_enable_load_extension(db, 1);
  if (rc == SQLITE_OK) rc = sqlite3_load_extension(db, library, 0, &message);
  if (rc != SQLITE_OK) fprintf(stderr, "loading %s: %s\\n", library, message ? message : sqlite3_errstr(rc));
  sqlite3_close(db);
  return rc;
}
"""
FLAGS = ["-O1", "-DSQLITE_EXTRA_INIT=quire_extra_init", "-DSQLITE_THREADSAFE=1"]
LIBRARIES = ["-lpthread", "-ldl", "-lm"]
# The crash and corruption tests, and those of what a VFS has to do with: files, locks, journals, the WAL.
TCL = [
    "crash*", "corrupt*", "wal*", "walcrash*", "lock*", "pager*", "journal*", "backup*", "io*", "exclusive*", "shared*",
    "vacuum*", "incrvacuum*", "savepoint*", "rollback*", "tempdb*", "memdb*", "nolock*", "attach*", "busy*", "trans*",
]
THREADS = ["walthread1", "walthread2", "walthread3", "walthread4", "walthread5", "create_drop_index_1", "vacuum1", "stress1", "stress2"]
SCRIPTS = ["crash01.test", "crash02.subtest", "multiwrite01.test", "config01.test", "config02.test"]
HOUR = 3600
# The outcome of a program that compares nothing.
UNTOLD = "untold"


def environment(library, sizes):
    """Of a program that is to use `quire` with a pool and a second tier of these sizes, or SQLite's own VFS if there are none."""
    chosen = {name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")}
    if sizes:
        pool, tier = sizes
        chosen.update(QUIRE_TEST_EXTENSION=str(library), QUIRE_SQLITE_DEFAULT="1", QUIRE_SQLITE_POOL=pool, QUIRE_SQLITE_TIER=tier)
    return chosen


def outcome(ours, theirs):
    """What two verdicts mean. Where SQLite's own VFS has no verdict the program doesn't run here, or not in time: no test of `quire`."""
    if theirs is None:
        return UNTOLD
    return "ok" if ours == theirs else "FAILED"


class Tests:
    """SQLite's programs, each run by either VFS."""

    def __init__(self, source, build, library, sizes):
        self.source, self.build, self.library, self.sizes = source, build, library, sizes
        # Names by outcome.
        self.outcomes = {}

    def call(self, command, is_ours, cwd, limit_s):
        """What a program prints, and whether it ended well."""
        try:
            done = subprocess.run(
                [str(word) for word in command], cwd=cwd, env=environment(self.library, self.sizes if is_ours else None), text=True, errors="replace",
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit_s,
            )
        except subprocess.TimeoutExpired as stuck:
            printed = stuck.stdout or b""
            return (printed.decode(errors="replace") if isinstance(printed, bytes) else printed) + "\nnot done in time", False
        return done.stdout, done.returncode == 0

    def compare(self, name, command, judge, limit_s=600):
        """Runs a program by either VFS; `judge` makes a verdict of what it printed and whether it ended well, None where it tells nothing."""
        verdicts = []
        for is_ours in (True, False):
            with tempfile.TemporaryDirectory(dir=self.build) as directory:
                printed, is_well = self.call(command, is_ours, directory, limit_s)
                verdicts.append(judge(printed, is_well))
                if is_ours:
                    (self.build / f"{name}.log").write_text(printed)
        ours, theirs = verdicts
        result = outcome(ours, theirs)
        print(f"{result:<7}{name}: quire {ours}, unix {theirs}", flush=True)
        self.outcomes.setdefault(result, []).append(name)

    def program(self, name, *sources):
        """Compiles a program with SQLite in it."""
        target = self.build / name
        if not target.exists():
            includes = ["-I", self.build, "-I", self.source / "test", "-I", self.source / "src"]
            library = self.build / "sqlite3-with-hook.o"
            if not library.exists():
                run(["gcc", *FLAGS, "-c", "-o", library, self.build / "sqlite3.c"])
            run(["gcc", *FLAGS, *includes, "-o", target, *sources, library, *LIBRARIES], cwd=self.source)
        return target

    def speedtest1(self):
        program = self.program("speedtest1", self.source / "test" / "speedtest1.c")

        def digest(printed, is_well):
            found = re.search(r"Verification Hash: .*", printed)
            return found.group(0) if found and is_well else None

        for mode in ("delete", "wal"):
            words = [program, "--verify", "--size", "20", "--journal", mode, "speed.db"]
            self.compare(f"speedtest1-{mode}", words, digest)

    def threadtest3(self):
        program = self.program(
            "threadtest3", self.source / "test" / "threadtest3.c", self.source / "src" / "test_multiplex.c"
        )
        for test in THREADS:
            def verdict(printed, is_well):
                return "0 errors" if is_well and re.search(r"\b0 errors?\b|^0$|0 from", printed, re.MULTILINE) else None

            self.compare(f"threadtest3-{test}", [program, test], verdict)

    def mptest(self):
        program = self.program("mptester", self.source / "mptest" / "mptest.c")
        for script in SCRIPTS:
            path = self.source / "mptest" / script
            if path.exists():
                for journal in ("DELETE", "WAL"):
                    words = [program, "test.db", "--journalmode", journal, "--timeout", "60000", path]
                    well = lambda printed, is_well: "well" if is_well else None
                    self.compare(f"mptest-{script}-{journal}", words, well)

    def tcl(self, patterns):
        fixture = self.build / "testfixture"
        if not fixture.exists():
            run(["make", "testfixture"], cwd=self.build)
        names = {path.name for path in (self.source / "test").glob("*.test")}
        chosen = sorted(name for name in names if any(fnmatch.fnmatch(name, pattern + ".test") for pattern in patterns))

        def errors(printed, _):
            found = re.search(r"(\d+) errors out of (\d+) tests", printed)
            return f"{found.group(1)} errors" if found else None

        for name in chosen:
            self.compare(f"tcl-{name}", [fixture, self.source / "test" / name], errors, limit_s=1200)

    def python(self):
        """Python's own tests, which use the SQLite of the machine: every connection loads the library and uses its VFS."""
        script = (
            "import os, sqlite3, sys, unittest\n"
            "library = os.environ.get('QUIRE_TEST_EXTENSION')\n"
            "if library:\n"
            "    first = sqlite3.connect(':memory:')\n"
            "    first.enable_load_extension(True)\n"
            "    first.load_extension(library)\n"
            "    first.close()\n"
            "from test import test_sqlite3\n"
            "found = unittest.defaultTestLoader.loadTestsFromName('test.test_sqlite3')\n"
            "done = unittest.TextTestRunner(verbosity=0).run(found)\n"
            "print(len(done.errors) + len(done.failures), 'errors of', done.testsRun)\n"
        )

        def errors(printed, _):
            found = re.search(r"(\d+ errors of \d+)", printed)
            return found.group(1) if found else None

        self.compare("python", [sys.executable, "-c", script], errors, limit_s=HOUR)


def fetch(cache):
    """The unpacked source package: of the version that is installed, if the mirror has it."""
    own = installed("libsqlite3-0")
    if own and (folder(cache, own) / "sqlite").is_dir():
        return folder(cache, own) / "sqlite"
    apt = Apt(cache / "apt")
    apt.get("update", "--error-on=any")
    versions = apt.versions("sqlite3")
    if not versions:
        raise Failure("the mirror has no source package of sqlite3")
    version = own if own in versions else newest_of(versions)
    place = folder(cache, version)
    if not (place / "sqlite").is_dir():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        apt.get("--download-only", "source", f"sqlite3={version}", cwd=place)
        run(["dpkg-source", "--no-check", "-x", next(place.glob("*.dsc")).name, "unpacked"], cwd=place)
        (place / "unpacked").rename(place / "sqlite")
    return place / "sqlite"


def check_sizes(library, sizes):
    """A size that the library doesn't take would have no effect, and the run would be of another pool."""
    if not hasattr(sqlite3.Connection, "enable_load_extension"):
        # This Python loads no extensions, so it can't be asked here. Other programs will say so.
        return
    script = (
        "import os, sqlite3\n"
        "first = sqlite3.connect(':memory:')\n"
        "first.enable_load_extension(True)\n"
        "first.load_extension(os.environ['QUIRE_TEST_EXTENSION'])\n"
        "sqlite3.connect('test.db').execute('CREATE TABLE t(v)')\n"
    )
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=directory, env=environment(library, sizes), capture_output=True, text=True, check=False
        )
    if done.returncode != 0 or done.stderr:
        raise Failure(f"a pool of {sizes[0]} with a second tier of {sizes[1]}: {done.stderr.strip()}")


def prepare(source, build):
    """SQLite in one file, with the hook at its end, in a folder that `make testfixture` works in, too."""
    if (build / "sqlite3.c").exists() and "quire_extra_init(const char" in (build / "sqlite3.c").read_text():
        return
    build.mkdir(parents=True, exist_ok=True)
    options = "CFLAGS=" + " ".join(FLAGS)
    run([source / "configure", "--enable-load-extension", "--disable-editline", options], cwd=build)
    run(["make", "sqlite3.c"], cwd=build)
    with (build / "sqlite3.c").open("a") as text:
        text.write(HOOK)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quire", required=True, type=pathlib.Path, help="the program quire, beside which the library is")
    parser.add_argument("--cache", type=pathlib.Path, default=pathlib.Path("target/sqlite-upstream"))
    parser.add_argument("--only", default="speedtest1,threadtest3,mptest,tcl,python", help="parts, comma separated")
    parser.add_argument("--pool", default="16MiB", help="memory of the pool (16MiB)")
    parser.add_argument("--tier", default="off", help="second tier: off, auto, a size, or a share of the pool such as 200%% (off)")
    parser.add_argument("--tcl", default=",".join(TCL), help="names of Tcl files without .test, as patterns, comma separated")
    options = parser.parse_args()
    library = options.quire.resolve().parent / "libquire_sqlite.so"
    if not library.is_file():
        raise Failure(f"{library} is not there: cargo build --release")
    cache = options.cache.resolve()
    source = fetch(cache)
    build = cache / "build"
    prepare(source, build)
    check_sizes(library, (options.pool, options.tier))
    tests = Tests(source, build, library, (options.pool, options.tier))
    for part in options.only.split(","):
        if part == "tcl":
            tests.tcl(options.tcl.split(","))
        else:
            getattr(tests, part)()
    passed, failed, untold = (tests.outcomes.get(result, []) for result in ("ok", "FAILED", UNTOLD))
    version = (source / "VERSION").read_text().strip()
    print(f"SQLite {version}, pool {options.pool}, second tier {options.tier}")
    print(f"{len(passed)} ok, {len(failed)} failed by quire alone" + "".join(f"\n  {name}" for name in failed))
    print(f"{len(untold)} told nothing by SQLite's own VFS either" + "".join(f"\n  {name}" for name in untold))
    # A run in which no program told anything is no run.
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(f"_upstream.py: {failure}")
