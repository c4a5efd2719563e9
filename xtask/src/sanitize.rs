//! `sanitize`: the snapshot mechanisms under Miri and the sanitizers, and dumps, restores and saves of a store that is written meanwhile
//! under ThreadSanitizer.
//!
//! Relies on a nightly toolchain. Each tool that is missing is named with the command that installs it, and left out: the
//! stable toolchain alone has to be enough for all other checks. What each tool can and can't see is in
//! `docs/design/checks.md`.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::bail;

use crate::steps;

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Parts of the snapshot crate that make no system call: Miri knows none of mappings, signals and children.
const MIRI: &[&str] =
    &["copy_state::", "page_state::", "ring::", "racy::", "mechanism::", "coverage::", "runs_are_found"];
/// The tests of the snapshot crate that the sanitizers run.
const SNAPSHOT: &[&str] = &["--lib", "--test", "cut", "--test", "suite", "--test", "stress"];
/// Without `fork`: its children are made by the system call, past ThreadSanitizer, one of whose locks another thread may hold at that moment. The
/// child then waits for it for ever. Parent and child share no memory in which they could race.
#[rustfmt::skip] // a line each
const SNAPSHOT_BUT_FORK: &[&str] = &[
    "--lib", "--test", "cut", "--test", "suite", "--test", "stress", "--", "--skip", "fork::",
    // Of every mechanism these have `fork` before or after it.
    "--skip", "what_the_mechanism_before_has_left", "--skip", "the_range_is_free_for_others",
];
const LIMIT: Duration = Duration::from_secs(3600);

/// A way to look for faults that tests don't show.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tool {
    Miri,
    Address,
    Thread,
}

impl Tool {
    const ALL: [Self; 3] = [Self::Miri, Self::Address, Self::Thread];

    fn name(self) -> &'static str {
        match self {
            Self::Miri => "miri",
            Self::Address => "address",
            Self::Thread => "thread",
        }
    }

    /// What has to be installed for it.
    fn advice(self) -> &'static str {
        match self {
            Self::Miri => "rustup toolchain install nightly --component miri,rust-src",
            Self::Address => "rustup toolchain install nightly",
            Self::Thread => "rustup toolchain install nightly --component rust-src",
        }
    }

    fn is_there(self) -> bool {
        match self {
            Self::Miri => output(nightly().args(["miri", "--version"])).is_some(),
            Self::Address => output(nightly().arg("--version")).is_some(),
            Self::Thread => {
                let mut rustc = Command::new("rustc");
                let root = output(rustc.env_remove("RUSTUP_TOOLCHAIN").args(["+nightly", "--print", "sysroot"]));
                let library = |root: String| Path::new(root.trim()).join("lib/rustlib/src/rust/library").is_dir();
                root.is_some_and(library)
            }
        }
    }

    /// What it runs, one command for each crate.
    fn commands(self, seconds: u64) -> anyhow::Result<Vec<Command>> {
        match self {
            Self::Miri => {
                let mut command = self.nightly_in_own_folder()?;
                command.args(["miri", "test", "--package", "quire-snapshot", "--lib", "--"]).args(MIRI);
                Ok(vec![command])
            }
            Self::Address => Ok(vec![self.sanitized("quire-snapshot", SNAPSHOT, seconds)?]),
            // Of images: dumps while a thread writes, and mapped restores; of the store: saves by the dumper thread while the engine thread writes.
            Self::Thread => Ok(vec![
                self.sanitized("quire-snapshot", SNAPSHOT_BUT_FORK, seconds)?,
                self.sanitized("quire-checkpoint", &["--test", "integration", "--", "roundtrip::", "map::"], seconds)?,
                self.sanitized("quire-store", &["--test", "integration", "saves::"], seconds)?,
            ]),
        }
    }

    fn nightly_in_own_folder(self) -> anyhow::Result<Command> {
        let mut command = nightly();
        command.env("CARGO_TARGET_DIR", steps::target_dir()?.join(format!("sanitize-{}", self.name())));
        Ok(command)
    }

    fn sanitized(self, package: &str, tests: &[&str], seconds: u64) -> anyhow::Result<Command> {
        let mut command = self.nightly_in_own_folder()?;
        command.args(["test", "--no-fail-fast", "--target", TARGET, "--package", package]);
        // Through the C library the sanitizers see mappings come and go; direct system calls are invisible to them.
        command.env("RUSTFLAGS", format!("-Zsanitizer={} --cfg=rustix_use_libc", self.name()));
        command.env("QUIRE_STRESS_SECONDS", seconds.to_string());
        // The mechanisms have their own handlers of SIGBUS, and a test sees a program end by its default.
        let handlers = "handle_sigbus=0";
        if self == Self::Thread {
            // Without it the standard library's own synchronisation is invisible and every channel looks like a race.
            command.arg("-Zbuild-std");
            let meant = std::env::current_dir()?.join("crates/snapshot/tests/thread-sanitizer.txt");
            // A child that a test forks may start threads: the fork is the C library's.
            let options = format!("{handlers}:die_after_fork=0:suppressions={}", meant.display());
            command.env("TSAN_OPTIONS", options).env("QUIRE_STRESS_WITHOUT", "fork");
        } else {
            command.env("ASAN_OPTIONS", handlers);
        }
        command.args(tests);
        Ok(command)
    }
}

fn nightly() -> Command {
    let mut command = Command::new("cargo");
    // The toolchain that cargo set for us would override +nightly.
    command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").arg("+nightly");
    command
}

/// What `command` prints, if it succeeds.
fn output(command: &mut Command) -> Option<String> {
    let output = command.stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs all tools that are there, or the one called `only`, with `seconds` of stress each.
pub fn run(only: Option<&str>, seconds: u64) -> anyhow::Result<()> {
    if let Some(only) = only
        && !Tool::ALL.iter().any(|tool| tool.name() == only)
    {
        bail!("no tool is called {only}: there are miri, address and thread");
    }
    let (mut failed, mut ran) = (Vec::new(), 0);
    for tool in Tool::ALL.into_iter().filter(|tool| only.is_none_or(|only| only == tool.name())) {
        if !tool.is_there() {
            println!("sanitize: no {} here: {}", tool.name(), tool.advice());
            continue;
        }
        ran += 1;
        println!("\n=== {}", tool.name());
        let mut faults = 0;
        for command in tool.commands(seconds)? {
            faults += steps::run(command, LIMIT)?.failed;
        }
        if faults > 0 {
            failed.push(tool.name());
        }
    }
    if ran == 0 {
        bail!("none of the tools is there");
    }
    if failed.is_empty() { Ok(()) } else { bail!("faults under {}", failed.join(", ")) }
}
