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
    let words = ["perl", "-e", script];
    let (plain, with) = (run(&words, None), run(&words, Some(library())));
    assert_eq!((plain.status, &plain.stdout), (with.status, &with.stdout));
    assert!(lines(&with, true)[0].contains("active in perl"), "{:?}", lines(&with, true));
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
    let words = [dir.to_str().unwrap(), "snapshots"];
    let (plain, with) = (run(&words, None), run(&words, Some(library())));
    let told = lines(&with, true);
    assert_eq!((plain.status, &plain.stdout), (with.status, &with.stdout), "{told:?}");
    assert!(told[0].starts_with("quire-preload: active in preloaded-guest (pid "), "{told:?}");
    assert!(told.iter().any(|line| line.contains("seen at its end")), "{told:?}");
}
