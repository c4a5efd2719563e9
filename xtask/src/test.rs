//! `test`: everything that has to pass, on a machine that has nothing but Rust.
//!
//! Relies on the steps being independent: one that fails does not stop those that can still tell something. The last
//! line is `N passed, N failed`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::steps::{self, Tally, cargo};
use crate::{c_api, docs, layers, packages, peers, tidy};

/// How a step ended and what it took.
struct Outcome {
    name: String,
    tally: Tally,
    took: Duration,
}

/// Runs the steps one after the other and keeps the score.
struct Score {
    only: Option<String>,
    outcomes: Vec<Outcome>,
}

const MINUTE: Duration = Duration::from_secs(60);

/// Runs all steps, or those whose name contains `only`.
pub fn run(only: Option<&str>) -> anyhow::Result<()> {
    let mut score = Score { only: only.map(str::to_owned), outcomes: Vec::new() };
    let peers_there = score.check("packages", packages::ensure);
    score.command("format", cargo_with(&["fmt", "--all", "--check"]), MINUTE);
    let clippy = ["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"];
    score.command("clippy", cargo_with(&clippy), 15 * MINUTE);
    score.check("layers", layers::run);
    score.check("tidy", tidy::run);
    score.command("cargo test", cargo_with(&["test", "--workspace", "--no-fail-fast"]), 20 * MINUTE);
    for (package, models) in loom_models()? {
        score.command(&format!("loom {package}"), loom(&package, &models)?, 15 * MINUTE);
    }
    score.step("C API", c_api::run);
    let mut quire = None;
    score.check("release build", || {
        quire = Some(steps::release_binary()?);
        Ok(())
    });
    match (quire.or_else(built_before), peers_there) {
        (Some(quire), true) => with_binary(&mut score, &quire)?,
        _ => {
            score.check("peer tests", || bail!("not run: they need the packages and the release binary"));
        }
    }
    score.finish()
}

fn with_binary(score: &mut Score, quire: &Path) -> anyhow::Result<()> {
    score.check("docs --check", || docs::run(true));
    let folders = [
        ("tests/clients", 3 * MINUTE),
        ("tests/compat", 5 * MINUTE),
        ("tests/crash", 5 * MINUTE),
        ("tests/preload", 5 * MINUTE),
    ];
    for (folder, limit) in folders {
        for file in peers::python_files(folder)? {
            score.step(&file.display().to_string(), || peers::python(&file, quire, limit));
        }
    }
    score.step("measure", || peers::measure(quire));
    for experiment in peers::EXPERIMENTS {
        score.step(&format!("bench {} --quick", experiment.name), || peers::bench_shape(quire, experiment));
    }
    let mut fuzz = cargo_with(&["run", "--quiet", "--release", "--package", "quire-fuzz", "--bin", "smoke"]);
    fuzz.args(["--", "all", "--seconds", "10"]);
    score.command("fuzz smoke", fuzz, 10 * MINUTE);
    Ok(())
}

/// The binary of an earlier build, for runs with `--only`.
fn built_before() -> Option<PathBuf> {
    steps::target_dir().ok().map(|dir| dir.join("release/quire")).filter(|path| path.is_file())
}

fn cargo_with(words: &[&str]) -> Command {
    let mut command = cargo();
    command.args(words);
    command
}

/// Crates with model checks, and those: the tests whose files begin with `loom`.
fn loom_models() -> anyhow::Result<Vec<(String, Vec<String>)>> {
    let mut found = Vec::new();
    for folder in std::fs::read_dir("crates")? {
        let folder = folder?;
        let Ok(files) = std::fs::read_dir(folder.path().join("tests")) else { continue };
        let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
        let mut models: Vec<String> = names
            .filter_map(|name| name.strip_suffix(".rs").map(str::to_owned))
            .filter(|name| name.starts_with("loom"))
            .collect();
        models.sort();
        if !models.is_empty() {
            found.push((format!("quire-{}", folder.file_name().display()), models));
        }
    }
    found.sort();
    Ok(found)
}

/// The model checks of one crate; their own folder keeps the other builds warm.
fn loom(package: &str, models: &[String]) -> anyhow::Result<Command> {
    let mut command = cargo_with(&["test", "--quiet", "--release", "--package", package]);
    for model in models {
        command.args(["--test", model]);
    }
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", steps::target_dir()?.join("loom"));
    Ok(command)
}

impl Score {
    fn wants(&self, name: &str) -> bool {
        self.only.as_deref().is_none_or(|part| name.contains(part))
    }

    /// A step that passes or fails as one; true when it passed or was not wanted.
    fn check(&mut self, name: &str, work: impl FnOnce() -> anyhow::Result<()>) -> bool {
        self.step(name, || work().map(|()| Tally { passed: 1, failed: 0 }))
    }

    fn command(&mut self, name: &str, command: Command, limit: Duration) -> bool {
        self.step(name, || steps::run(command, limit))
    }

    fn step(&mut self, name: &str, work: impl FnOnce() -> anyhow::Result<Tally>) -> bool {
        if !self.wants(name) {
            return true;
        }
        println!("\n=== {name}");
        let started = Instant::now();
        let tally = work().unwrap_or_else(|error| {
            println!("{error:#}");
            Tally { passed: 0, failed: 1 }
        });
        self.outcomes.push(Outcome { name: name.to_owned(), tally, took: started.elapsed() });
        tally.failed == 0
    }

    fn finish(self) -> anyhow::Result<()> {
        println!("\n=== summary");
        let mut total = Tally::default();
        for Outcome { name, tally, took } in &self.outcomes {
            let verdict = if tally.failed == 0 { "ok    " } else { "FAILED" };
            let Tally { passed, failed } = tally;
            println!("{verdict} {name:<36} {passed:>5} passed {failed:>4} failed {:>7.1} s", took.as_secs_f64());
            total.passed += passed;
            total.failed += failed;
        }
        println!("\n{} passed, {} failed", total.passed, total.failed);
        if total.failed == 0 { Ok(()) } else { bail!("{} failed", total.failed) }
    }
}
