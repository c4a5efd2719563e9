//! Steps of a task: a command with a name and a time limit, whose output is shown and whose tests are counted.
//!
//! Relies on test programs closing with `test result: … N passed; N failed` (cargo) or `N passed, N failed`; any other
//! command counts as one test. A command that runs past its limit is ended with all that it started.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// How the tests of a step ended.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
}

/// The cargo that started us.
pub fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs `command` for at most `limit`, shows what it prints and counts its tests.
pub fn run(mut command: Command, limit: Duration) -> anyhow::Result<Tally> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    let mut child = command.spawn().with_context(|| format!("starting {:?}", command.get_program()))?;
    let output = child.stdout.take().context("the output is piped")?;
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            println!("{line}");
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let status = wait(&mut child, limit)?;
    let mut tally = Tally::default();
    // Whoever still holds the pipe after the child's end must not hold us: take what has come until then.
    while let Ok(line) = lines.recv_timeout(Duration::from_millis(500)) {
        if let Some(counted) = counted(&line) {
            tally.passed += counted.passed;
            tally.failed += counted.failed;
        }
    }
    if status && tally == Tally::default() {
        tally.passed = 1;
    }
    if !status && tally.failed == 0 {
        tally.failed = 1;
    }
    Ok(tally)
}

fn wait(child: &mut Child, limit: Duration) -> anyhow::Result<bool> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            if !status.success() {
                println!("the command ended with {status}");
            }
            return Ok(status.success());
        }
        if started.elapsed() > limit {
            println!("the command took more than {} s and is ended", limit.as_secs());
            // The group is the child's own, so this reaches only what it started.
            let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).status();
            let _ = child.wait();
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn counted(line: &str) -> Option<Tally> {
    let line = line.trim();
    let figures = match line.strip_prefix("test result: ") {
        Some(rest) => rest.split_once(". ")?.1,
        None if line.starts_with(|first: char| first.is_ascii_digit()) => line,
        None => return None,
    };
    let mut words = figures.split([' ', ',', ';']).filter(|word| !word.is_empty());
    let passed = words.next()?.parse().ok()?;
    let (word, failed) = (words.next()?, words.next()?.parse().ok()?);
    (word == "passed" && words.next()? == "failed").then_some(Tally { passed, failed })
}

/// Builds the release binary, and beside it the preload library, and returns the binary's path.
pub fn release_binary() -> anyhow::Result<PathBuf> {
    let status =
        cargo().args(["build", "--quiet", "--release", "--package", "quire", "--package", "quire-preload"]).status()?;
    if !status.success() {
        bail!("the release build failed");
    }
    let binary = target_dir()?.join("release/quire");
    if binary.is_file() { Ok(binary) } else { bail!("{} was not built", binary.display()) }
}

/// Where cargo puts what it builds.
pub fn target_dir() -> anyhow::Result<PathBuf> {
    let output = cargo().args(["metadata", "--format-version", "1", "--no-deps"]).output()?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).context("reading cargo metadata")?;
    let dir = metadata["target_directory"].as_str().context("cargo metadata names no target directory")?;
    Ok(PathBuf::from(dir))
}

/// Runs `quire bench` with `args`.
pub fn bench(quire: &Path, args: &[String]) -> anyhow::Result<()> {
    let status = Command::new(quire).arg("bench").args(args).status().context("starting quire bench")?;
    if status.success() { Ok(()) } else { bail!("quire bench ended with {status}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_of_test_programs_are_counted() {
        let cargo = "test result: ok. 17 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(counted(cargo), Some(Tally { passed: 17, failed: 0 }));
        assert_eq!(counted("12 passed, 3 failed"), Some(Tally { passed: 12, failed: 3 }));
        assert_eq!(counted("12 passed"), None);
        assert_eq!(counted("all 12 passed, 3 failed"), None);
    }

    #[test]
    fn a_command_without_tests_counts_as_one() {
        let ends = |code: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", code]);
            run(command, Duration::from_secs(20)).unwrap()
        };
        assert_eq!(ends("exit 0"), Tally { passed: 1, failed: 0 });
        assert_eq!(ends("echo 2 passed, 0 failed; exit 1"), Tally { passed: 2, failed: 1 });
    }

    #[test]
    fn a_command_past_its_limit_is_ended_with_its_children() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & sleep 60"]);
        let began = Instant::now();
        assert_eq!(run(command, Duration::from_millis(100)).unwrap(), Tally { passed: 0, failed: 1 });
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
