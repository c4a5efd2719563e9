//! `crash`: the campaigns of crashes at full size. The same ones run in small with `cargo xtask test`.
//!
//! Relies on the Python files of `tests/crash` and `tests/sqlite` and on `crates/fuse/tests/power`, which take how long to go on from their
//! arguments and from the environment.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::bail;

use crate::packages::PYTHON;
use crate::steps::{self, cargo};

const LIMIT: Duration = Duration::from_secs(4 * 3600);

/// How often each campaign crashes what it is about.
pub struct Rounds {
    /// The server with images of 3M keys of 1000 B; and as often with incremental saves of 300,000.
    pub saves: u32,
    /// The server with the log of writes.
    pub log: u32,
    /// A mount's daemon, and programs that work on it.
    pub mount: u32,
    /// Processes that share an SQLite database.
    pub sqlite: u32,
}

/// Runs the campaigns whose name contains `only`.
pub fn run(quire: &Path, only: Option<&str>, rounds: &Rounds) -> anyhow::Result<()> {
    let with = |file: &str, rounds: u32, words: &[&str]| (rounds > 0).then(|| python(quire, file, rounds, words));
    let campaigns = [
        ("log", with("tests/crash/kill9_log.py", rounds.log, &["--seconds", "3"])),
        ("mount", with("tests/crash/kill9_mount.py", rounds.mount, &["--seconds", "3", "--scale", "5"])),
        ("power", Some(power())),
        ("saves", with("tests/crash/kill9.py", rounds.saves, &["--keys", "3000000", "--value-bytes", "1000"])),
        ("sqlite", with("tests/sqlite/kill9.py", rounds.sqlite, &["--seconds", "2"])),
    ];
    if let Some(part) = only
        && !campaigns.iter().any(|(name, _)| name.contains(part))
    {
        bail!("no campaign is called {part}: there are log, mount, power, saves and sqlite");
    }
    let mut failed = Vec::new();
    for (name, command) in campaigns {
        let Some(command) = command.filter(|_| only.is_none_or(|part| name.contains(part))) else { continue };
        println!("\n=== {name}");
        if steps::run(command, LIMIT)?.failed > 0 {
            failed.push(name);
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("these campaigns failed: {}", failed.join(", ")) }
}

fn python(quire: &Path, file: &str, rounds: u32, words: &[&str]) -> Command {
    let mut command = Command::new(PYTHON);
    command.args(["-B", file, "--quire"]).arg(quire).args(["--rounds", &rounds.to_string()]).args(words);
    command
}

/// Power cuts before and after every flush of both devices under a mount.
fn power() -> Command {
    let mut command = cargo();
    command.args(["test", "--release", "--package", "quire-fuse", "--test", "power", "--", "--nocapture"]);
    command.env("QUIRE_POWER_CUTS", "all");
    command
}
