//! The shared library in programs that every Debian has: they must print the same as without it.
//!
//! Relies on cargo having built the library beside this test. More programs (C, Python, redis-server) are in
//! `tests/preload`, which `cargo xtask test` runs.

use std::path::PathBuf;
use std::process::{Command, Output};

fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let deps = own.parent().unwrap();
    let places = [deps.join("libquire_preload.so"), deps.join("../libquire_preload.so")];
    places.iter().find(|path| path.is_file()).unwrap_or_else(|| panic!("none of {places:?} is there")).clone()
}

fn run(words: &[&str], library: Option<PathBuf>) -> Output {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    if let Some(library) = library {
        command.env("LD_PRELOAD", library);
        command.env("QUIRE_PRELOAD_MIN", "0").env("QUIRE_PRELOAD_THRESHOLD", "10").env("QUIRE_PRELOAD_LOG", "1");
    }
    command.output().unwrap()
}

fn lines(output: &Output, ours: bool) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines().filter(|line| line.starts_with("quire-preload: ") == ours).map(str::to_owned).collect()
}

/// Runs `words` without and with the library, which must not be seen in what they print, until the library's lines show it at work:
/// on a loaded machine its worker may come too late for a short program.
fn at_work(words: &[&str], shows: impl Fn(&[String]) -> bool) {
    let plain = run(words, None);
    let mut told = Vec::new();
    for _ in 0..30 {
        let with = run(words, Some(library()));
        told = lines(&with, true);
        assert_eq!((plain.status, &plain.stdout), (with.status, &with.stdout), "{told:?}");
        if shows(&told) {
            return;
        }
    }
    panic!("the library was not seen at work: {told:?}");
}

#[test]
fn a_shell_behaves_as_ever() {
    let script =
        "echo a; (echo b; exit 3); echo $?; for i in 1 2 3; do echo $(echo $i | tr 1-3 x-z); done; nosuch; exit 5";
    let words = ["sh", "-c", script];
    let (plain, with) = (run(&words, None), run(&words, Some(library())));
    assert_eq!((plain.status, &plain.stdout), (with.status, &with.stdout));
    assert_eq!(lines(&plain, false), lines(&with, false));
}

#[test]
fn a_program_that_blocks_signals_around_a_fork_behaves_as_ever() {
    // Perl does, and is in every Debian.
    let script = r#"
        my $m = "x" x (32 << 20);
        my $pid = fork();
        if (!$pid) { select(undef, undef, undef, 0.05); exit(unpack("%32C*", $m) & 63); }
        substr($m, 0, 9999999) = "y" x 9999999;
        waitpid($pid, 0);
        print $? >> 8, " ", unpack("%32C*", $m), "\n";
    "#;
    at_work(&["perl", "-e", script], |told| told.iter().any(|line| line.contains("active in perl")));
}

#[test]
fn a_program_that_forks_and_writes_keeps_both_sides_of_its_memory() {
    let dir = std::env::current_exe().unwrap().with_file_name("preloaded-guest");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/preload/guest.c");
    let built = Command::new("cc").args(["-O1", "-w", "-pthread", "-o"]).arg(&dir).arg(source).status();
    let Ok(built) = built else {
        return quire_sys::testing::skipped("no C compiler");
    };
    assert!(built.success(), "{source} is not compiled");
    at_work(&[dir.to_str().unwrap(), "snapshots"], |told| {
        let says = |words: &str| told.iter().any(|line| line.contains(words));
        says("quire-preload: active in preloaded-guest (pid ") && says("seen at its end")
    });
}
