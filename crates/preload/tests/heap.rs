//! Programs whose heap lies on a file: they must print the same as without, and stay within the pool's memory.
//!
//! Relies on cargo having built the library beside this test, on `cc` for a program that uses its heap in every way, and on
//! userfaultfd for faults of system calls. Where one is missing the tests say so and do nothing. Larger runs, under a memory
//! limit, are in `tests/preload/heap.py`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use quire_rng::SplitMix64;
use quire_sys::probe::{self, FeatureState};

/// What a program of this size has in memory besides its heap, and what the library has besides the pool.
const BESIDES_MIB: u64 = 16;
const POOL_MIB: u64 = 2;

fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let deps = own.parent().unwrap();
    let places = [deps.join("libquire_preload.so"), deps.join("../libquire_preload.so")];
    places.iter().find(|path| path.is_file()).unwrap_or_else(|| panic!("none of {places:?} is there")).clone()
}

fn can_serve() -> bool {
    let feature = probe::faults_of_calls();
    if feature.state != FeatureState::Works {
        quire_sys::testing::skipped(format!("{} {}: {}", feature.name, feature.detail, feature.advice));
    }
    feature.state == FeatureState::Works
}

/// The program in C, compiled once.
fn guest() -> Option<&'static Path> {
    static GUEST: OnceLock<Option<PathBuf>> = OnceLock::new();
    let compile = || {
        let program = std::env::current_exe().unwrap().with_file_name("heap-guest");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/preload/heap.c");
        let built = Command::new("cc").args(["-O1", "-w", "-pthread", "-o"]).arg(&program).arg(source).status();
        let built = built.ok()?;
        assert!(built.success(), "{source} is not compiled");
        Some(program)
    };
    let found = GUEST.get_or_init(compile).as_deref();
    if found.is_none() {
        quire_sys::testing::skipped("no C compiler");
    }
    found
}

/// `command` with a heap of `heap_mib` on a file of a directory of the test's own, and a pool.
fn with_heap(command: &mut Command, heap_mib: u64, pool_mib: u64) -> Output {
    let folder = tempfile::tempdir().unwrap();
    command.env("LD_PRELOAD", library()).env("QUIRE_PRELOAD_LOG", "1");
    command.env("QUIRE_HEAP", format!("{}:{heap_mib}M:{pool_mib}M", folder.path().display()));
    let output = command.output().unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the file has no name");
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The number before or behind a word in what a program said.
fn number_before(told: &str, words: &str) -> u64 {
    let before = |line: &str| line.split_once(words)?.0.rsplit(' ').next()?.parse().ok();
    // `python3` may be a script that starts others first: each has a heap, and the largest is the one that is meant.
    let largest = told.lines().filter_map(before).max();
    largest.unwrap_or_else(|| panic!("no number before {words:?} in {told}"))
}

/// Runs a part of the program with and without; the same must come of it. What it told with is returned.
fn same(words: &[&str], heap_mib: u64) -> Option<String> {
    let guest = guest().filter(|_| can_serve())?;
    let plain = Command::new(guest).args(words).output().unwrap();
    let with = with_heap(Command::new(guest).args(words), heap_mib, POOL_MIB);
    let told = text(&with.stderr);
    assert_eq!((with.status, text(&with.stdout)), (plain.status, text(&plain.stdout)), "{told}");
    assert!(plain.status.success(), "{}", text(&plain.stdout));
    assert!(told.contains(&format!("quire-preload: heap: {heap_mib} MiB on ")), "{told}");
    Some(told)
}

#[test]
fn a_heap_of_four_times_the_pool_holds_what_was_put_there() {
    let Some(told) = same(&["walk", "8"], 256) else { return };
    let peak_mib = number_before(&told, " KiB") >> 10;
    assert!(peak_mib <= POOL_MIB + BESIDES_MIB, "{peak_mib} MiB: {told}");
    assert!(number_before(&told, " evicted") > 1536, "{told}");
}

#[test]
fn threads_hand_memory_to_each_other() {
    same(&["threads", "4"], 512);
}

#[test]
fn a_heap_that_is_used_up_gives_null_and_says_so_once() {
    let Some(guest) = guest().filter(|_| can_serve()) else { return };
    let output = with_heap(Command::new(guest).arg("exhaust"), 64, POOL_MIB);
    let told = text(&output.stderr);
    assert_eq!(text(&output.stdout), "exhausted\n", "{told}");
    assert_eq!(told.matches("ask for more in QUIRE_HEAP").count(), 1, "{told}");
}

#[test]
fn every_function_of_the_allocator_does_what_it_does_elsewhere() {
    same(&["functions"], 256);
}

#[test]
fn system_calls_reach_pages_that_are_not_in_memory() {
    same(&["calls", "4"], 256);
}

#[test]
fn a_forked_child_has_the_heap_as_it_was_and_may_become_another_program() {
    same(&["forks", "6"], 256);
}

#[test]
fn several_threads_may_fork_at_a_time() {
    same(&["fork-threads"], 256);
}

#[test]
fn sort_sorts_in_a_heap_larger_than_its_pool() {
    if !can_serve() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let lines = folder.path().join("lines");
    let mut file = std::io::BufWriter::new(std::fs::File::create(&lines).unwrap());
    let mut rng = SplitMix64::new(0);
    for _ in 0..50_000 {
        let random = rng.next_u64();
        writeln!(file, "{random:020} some more words for the line {}", random % 1000).unwrap();
    }
    file.into_inner().unwrap();
    let sort = || {
        let mut command = Command::new("sort");
        command.args(["-S", "20M", "--parallel=2"]).arg(&lines).env("LC_ALL", "C");
        command
    };
    let (plain, with) = (sort().output().unwrap(), with_heap(&mut sort(), 256, POOL_MIB));
    let told = text(&with.stderr);
    assert!(with.status.success() && plain.stdout == with.stdout, "{told}");
    // It closes standard error before its end, and so gets no figures.
    assert!(told.contains("quire-preload: heap: 256 MiB on "), "{told}");
}

const SCRIPT: &str = r#"
import os, random, subprocess, threading
random.seed(7)
table = {i: bytearray(bytes([i % 251]) * random.randrange(1, 900)) for i in range(12000)}
words = sorted(("%09d" % random.randrange(10**9)) for _ in range(15000))
large = bytearray(3 << 20)
large[::4096] = bytes(i % 256 for i in range(len(large) // 4096))
done = []
def work(part):
    done.append(sum(sum(table[i][:3]) for i in range(part, 12000, 4)))
threads = [threading.Thread(target=work, args=(part,)) for part in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(sum(len(value) for value in table.values()), hash(tuple(map(int, words))), sum(large), sorted(done))
print(subprocess.run(["echo", "another program"], capture_output=True).stdout)
pid = os.fork()
if pid == 0:
    os._exit(sum(table[i][0] for i in range(0, 12000, 7)) % 97)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), sum(table[i][0] for i in range(0, 12000, 7)) % 97)
"#;

#[test]
fn python_computes_in_a_heap_larger_than_its_pool() {
    let python = || {
        let mut command = Command::new("python3");
        // Otherwise it takes memory for small objects from the system, past malloc.
        command.args(["-S", "-c", SCRIPT]).env("PYTHONMALLOC", "malloc").env("PYTHONHASHSEED", "0");
        command
    };
    if !can_serve() {
        return;
    }
    if python().stdout(Stdio::null()).status().is_err() {
        return quire_sys::testing::skipped("no python3");
    }
    let (plain, with) = (python().output().unwrap(), with_heap(&mut python(), 256, 2 * POOL_MIB));
    let told = text(&with.stderr);
    assert_eq!((with.status, text(&with.stdout)), (plain.status, text(&plain.stdout)), "{told}");
    assert!(plain.status.success() && number_before(&told, " evicted") > 1000, "{told}");
}

/// A program made of a few lines of C.
fn compiled(name: &str, flags: &[&str], source: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().unwrap().with_file_name(name);
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-w", "-x", "c", "-", "-o"]).arg(&program).args(flags).stdin(Stdio::piped());
    let Ok(mut cc) = cc.spawn() else {
        quire_sys::testing::skipped("no C compiler");
        return None;
    };
    cc.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    assert!(cc.wait().unwrap().success());
    Some(program)
}

#[test]
fn a_program_at_a_fixed_address_that_stands_for_malloc_itself_has_its_heap_on_a_file() {
    const SOURCE: &str = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n
        void *(*take)(size_t) = malloc;
        int main(void) { char *p = take(8 << 20); memset(p, 7, 8 << 20); return puts(p[5 << 20] == 7 ? \"7\" : \"?\") < 0; }";
    let Some(program) = compiled("heap-fixed", &["-fno-pie", "-no-pie"], SOURCE).filter(|_| can_serve()) else {
        return;
    };
    let output = with_heap(&mut Command::new(program), 64, POOL_MIB);
    let told = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "7\n"), "{told}");
    assert!(number_before(&told, " evicted") > 1000, "{told}");
}

#[test]
fn a_program_with_an_allocator_of_its_own_is_not_started() {
    const SOURCE: &str = "#include <stddef.h>\nint puts(const char *);\nstatic char room[1 << 24]; static size_t used;
        void *malloc(size_t n) { void *p = room + used; used += (n + 31) & ~(size_t)15; return p; }
        void free(void *p) {} void *calloc(size_t a, size_t b) { return malloc(a * b); }
        void *realloc(void *p, size_t n) { return malloc(n); }
        int main(void) { return puts(malloc(5) ? \"started\" : \"?\") < 0; }";
    let Some(program) = compiled("heap-own", &["-fno-builtin"], SOURCE).filter(|_| can_serve()) else { return };
    let output = with_heap(&mut Command::new(program), 64, POOL_MIB);
    let told = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(125), ""), "{told}");
    assert!(told.contains("an allocator of its own"), "{told}");
}

/// What a program says that doesn't get its heap.
fn refused(setting: &str) -> String {
    let mut command = Command::new("echo");
    command.arg("started").env("LD_PRELOAD", library()).env("QUIRE_HEAP", setting);
    let output = command.output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(125), String::new()), "{setting}");
    text(&output.stderr)
}

#[test]
fn a_program_that_cannot_have_its_heap_is_not_started_and_says_why() {
    assert!(refused("much").contains("write PATH:SIZE:POOL, such as /var/tmp:16G:512M"));
    assert!(refused("/tmp:1G:5").contains("the pool is 5 B"));
    let there = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(there.path(), "mine").unwrap();
    if can_serve() {
        assert!(refused("/no/such/place:1G:64M").contains("/no/such"));
        assert!(refused("/tmp:900000T:64M").contains("ask for less"));
        let told = refused(&format!("{}:64M:8M", there.path().display()));
        assert!(told.contains("is there already, and is left alone"), "{told}");
    }
    assert_eq!(std::fs::read(there.path()).unwrap(), b"mine");
}

#[test]
fn without_the_setting_nothing_is_different() {
    for setting in [None, Some("")] {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $(echo a); ls /proc/self/task | wc -l"]).env("LD_PRELOAD", library());
        command.env_remove("QUIRE_HEAP").envs(setting.map(|value| ("QUIRE_HEAP", value)));
        let output = command.output().unwrap();
        assert_eq!((text(&output.stdout), text(&output.stderr)), ("a\n1\n".into(), String::new()));
    }
}
