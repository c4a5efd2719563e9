//! `fuzz`: every fuzz target for a while.
//!
//! Relies on cargo-fuzz and a nightly toolchain for coverage-guided runs. Without them the targets run in the plain
//! mutation loop of `fuzz/src/smoke.rs`, which is also what `cargo test` and CI do for a moment.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};

use crate::steps::{self, cargo};

/// The targets: the files of `fuzz/fuzz_targets`.
fn targets() -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir("fuzz/fuzz_targets").context("listing fuzz/fuzz_targets")? {
        names.extend(entry?.path().file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

/// Runs each target for `seconds`.
pub fn run(seconds: u64) -> anyhow::Result<()> {
    let guided_here = coverage_guided();
    let mut failed = Vec::new();
    for target in targets()? {
        let command = if guided_here { guided(&target, seconds)? } else { plain(&target, seconds) };
        let limit = Duration::from_secs(seconds + 900);
        if steps::run(command, limit).with_context(|| format!("fuzzing {target}"))?.failed > 0 {
            failed.push(target);
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("fuzzing found faults in {}", failed.join(", ")) }
}

fn coverage_guided() -> bool {
    let mut probe = Command::new("cargo");
    probe
        .env_remove("RUSTUP_TOOLCHAIN")
        .args(["+nightly", "fuzz", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let works = probe.status().is_ok_and(|status| status.success());
    if !works {
        println!("fuzz: no cargo-fuzz with a nightly toolchain here (cargo install cargo-fuzz): the plain loop it is");
    }
    works
}

fn guided(target: &str, seconds: u64) -> anyhow::Result<Command> {
    let mut seeds = smoke(target);
    seeds.args(["--write-seeds", &format!("fuzz/corpus/{target}")]);
    if !seeds.status().context("writing the seeds")?.success() {
        bail!("the seeds of {target} could not be written");
    }
    let mut command = Command::new("cargo");
    // The toolchain that cargo set for us would override +nightly.
    command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
    command.args(["+nightly", "fuzz", "run", "--features", "libfuzzer", target, "--"]);
    command.args([format!("-max_total_time={seconds}"), "-timeout=20".into(), "-detect_leaks=0".into()]);
    Ok(command)
}

fn plain(target: &str, seconds: u64) -> Command {
    let mut command = smoke(target);
    command.args(["--seconds", &seconds.to_string()]);
    command
}

fn smoke(target: &str) -> Command {
    let mut command = cargo();
    command.args(["run", "--quiet", "--release", "--package", "quire-fuzz", "--bin", "smoke", "--", target]);
    command
}
