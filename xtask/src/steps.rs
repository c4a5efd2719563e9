//! Steps of a task: a command with a name and a time limit, whose output is shown and whose tests are counted.
//!
//! Relies on test programs closing with `test result: … N passed; N failed` (cargo) or `N passed, N failed[, N skipped]`; any
//! other command counts as one test. Tests in Rust that cannot run pass, but print `skipped: TEST: WHY`. A command that runs past its limit is ended with all that it started.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::ops::AddAssign;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::output;
use crate::transcript::Transcript;

/// A command that prints nothing for so long is said to be running still.
const SILENCE: Duration = Duration::from_secs(30);
/// So long, after a command's end, its next line is waited for where another process holds its output still. On a busy machine the
/// thread that reads may not run for a while, and the line that says what failed is among the last.
const LAST_LINES: Duration = Duration::from_secs(10);
/// Most names of failed tests that a tally keeps.
const MOST_NAMES: usize = 50;

/// Every limit of time is multiplied by this.
static PATIENCE: AtomicU32 = AtomicU32::new(1);

/// Multiplies every limit of time from now on, for a machine that is busy with something else.
pub fn set_patience(factor: u32) {
    PATIENCE.store(factor, Ordering::Relaxed);
}

/// How the tests of a step ended.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Tally {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Tests that could not run here, or not all of them.
    pub skipped: u64,
    /// Names of those that failed, as far as they were printed.
    pub failures: Vec<String>,
    /// What was printed around the failures.
    pub excerpt: Vec<String>,
}

impl Tally {
    /// One test that passed.
    pub fn one() -> Self {
        Self { passed: 1, ..Self::default() }
    }

    /// One test that failed.
    pub fn one_failure(name: &str) -> Self {
        Self { failed: 1, failures: vec![name.to_owned()], ..Self::default() }
    }

    /// One test that cannot run here, which is said.
    pub fn one_skip(name: &str, why: &str) -> Self {
        output::line(format_args!("skipped: {name}: {why}"));
        Self { skipped: 1, ..Self::default() }
    }

    /// The figures, as a test program closes with them.
    pub fn line(&self) -> String {
        format!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }

    fn is_empty(&self) -> bool {
        self.passed + self.failed + self.skipped == 0
    }

    /// Takes in what a line of a test program says; `skips` are the tests that it has skipped so far.
    fn note(&mut self, line: &str, skips: &mut HashSet<String>) {
        if let Some(Counts { passed, failed, skipped }) = counted(line) {
            let unsaid = (skips.drain().count() as u64).min(passed);
            self.passed += passed - unsaid;
            self.failed += failed;
            self.skipped += skipped + unsaid;
        } else if let Some(name) = skipped_name(line) {
            skips.insert(name.to_owned());
        } else if let Some(name) = failed_name(line)
            && self.failures.len() < MOST_NAMES
        {
            self.failures.push(name.to_owned());
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.failures.extend(other.failures);
        self.excerpt.extend(other.excerpt);
    }
}

/// The cargo that started us.
pub fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs `command` for at most `limit`, shows what it prints and counts its tests.
pub fn run(mut command: Command, limit: Duration) -> anyhow::Result<Tally> {
    // One pipe for both, so that the lines keep their order.
    let (output, input) = std::io::pipe().context("making a pipe")?;
    command.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input).process_group(0);
    let mut child = command.spawn().with_context(|| format!("starting {:?}", command.get_program()))?;
    // It holds the pipe's writing side.
    drop(command);
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                break;
            }
        }
    });
    let (mut tally, mut skips, mut transcript) = (Tally::default(), HashSet::new(), Transcript::default());
    let limit = limit * PATIENCE.load(Ordering::Relaxed);
    let mut note = |line: &str| {
        output::line(line);
        tally.note(line, &mut skips);
        transcript.push(line);
    };
    let succeeded = wait(&mut child, limit, &lines, &mut note)?;
    // A process that still holds the pipe after the child's end must not hold this one for long: what has come until then counts.
    while let Ok(line) = lines.recv_timeout(LAST_LINES) {
        note(&line);
    }
    if succeeded && tally.is_empty() {
        tally.passed = 1;
    }
    if !succeeded && tally.failed == 0 {
        tally.failed = 1;
    }
    if tally.failed > 0 {
        tally.excerpt = transcript.into_lines();
    }
    Ok(tally)
}

/// Waits for the child's end, takes in its lines, and says when there are none for long. Whether it succeeded.
fn wait(
    child: &mut Child,
    limit: Duration,
    lines: &mpsc::Receiver<String>,
    mut note: impl FnMut(&str),
) -> anyhow::Result<bool> {
    let started = Instant::now();
    let mut told = started;
    loop {
        while let Ok(line) = lines.try_recv() {
            note(&line);
            told = Instant::now();
        }
        if let Some(status) = child.try_wait()? {
            if !status.success() {
                note(&format!("the command ended with {status}"));
            }
            return Ok(status.success());
        }
        if started.elapsed() > limit {
            note(&format!("the command took more than {} s and is ended", limit.as_secs()));
            // The group is the child's own, so this reaches only what it started.
            let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).status();
            let _ = child.wait();
            return Ok(false);
        }
        if told.elapsed() > SILENCE {
            let (so_far_s, limit_s) = (started.elapsed().as_secs(), limit.as_secs());
            output::line(format_args!("... running for {so_far_s} s, at most {limit_s} s"));
            told = Instant::now();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What a closing line of a test program says.
#[derive(Debug, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

/// The figures, if this is a closing line of a test program.
fn counted(line: &str) -> Option<Counts> {
    let line = line.trim();
    let figures = match line.strip_prefix("test result: ") {
        Some(rest) => rest.split_once(". ")?.1,
        None if line.starts_with(|first: char| first.is_ascii_digit()) => line,
        None => return None,
    };
    let mut words = figures.split([' ', ',', ';']).filter(|word| !word.is_empty());
    let passed = words.next()?.parse().ok()?;
    let (word, failed) = (words.next()?, words.next()?.parse().ok()?);
    if word != "passed" || words.next()? != "failed" {
        return None;
    }
    let third = words.next().and_then(|figure| figure.parse().ok()).unwrap_or(0);
    let skipped = if words.next() == Some("skipped") { third } else { 0 };
    Some(Counts { passed, failed, skipped })
}

/// The test in Rust of which this line says that it cannot run. With one thread cargo begins the line with the test.
fn skipped_name(line: &str) -> Option<&str> {
    let said = line.strip_prefix("test ").and_then(|rest| Some(rest.split_once(" ... ")?.1)).unwrap_or(line);
    Some(said.strip_prefix("skipped: ")?.split_once(": ")?.0)
}

/// The name of the test that this line says has failed: `test NAME ... FAILED` (cargo) or `FAIL NAME`.
fn failed_name(line: &str) -> Option<&str> {
    if let Some(rest) = line.strip_prefix("test ") {
        let (name, verdict) = rest.split_once(" ... ")?;
        return verdict.starts_with("FAILED").then_some(name);
    }
    line.trim_start().strip_prefix("FAIL ").map(str::trim)
}

/// What the steps need of the release build: the binary, the preload library, the C API, the SQLite extension and the fuzz loop. One build for
/// all, since what a build of fewer packages asks of their dependencies may differ, and these are then built twice.
const RELEASED: [&str; 5] = ["quire", "quire-preload", "quire-capi", "quire-sqlite", "quire-fuzz"];

/// Makes the release build and returns the binary's path.
pub fn release_binary() -> anyhow::Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "--release"]);
    for package in RELEASED {
        command.args(["--package", package]);
    }
    if !command.status()?.success() {
        bail!("the release build failed");
    }
    binary()
}

/// The binary of the last release build.
pub fn binary() -> anyhow::Result<PathBuf> {
    released("quire")
}

/// The fuzz loop of the last release build.
pub fn smoke_binary() -> anyhow::Result<PathBuf> {
    released("smoke")
}

fn released(name: &str) -> anyhow::Result<PathBuf> {
    let path = target_dir()?.join("release").join(name);
    if path.is_file() { Ok(path) } else { bail!("{} is not built: `--only 'release build'` makes it", path.display()) }
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
        let counts = |passed, failed, skipped| Some(Counts { passed, failed, skipped });
        assert_eq!(counted(cargo), counts(17, 0, 0));
        assert_eq!(counted("12 passed, 3 failed"), counts(12, 3, 0));
        assert_eq!(counted("12 passed, 3 failed, 2 skipped"), counts(12, 3, 2));
        assert_eq!(counted("12 passed"), None);
        assert_eq!(counted("all 12 passed, 3 failed"), None);
    }

    #[test]
    fn failed_tests_are_known_by_name() {
        assert_eq!(failed_name("test a::b ... FAILED"), Some("a::b"));
        assert_eq!(failed_name("FAIL  the log is whole"), Some("the log is whole"));
        assert_eq!((failed_name("test a::b ... ok"), failed_name("no FAIL here")), (None, None));
    }

    #[test]
    fn a_command_without_tests_counts_as_one() {
        let ends = |code: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", code]);
            run(command, Duration::from_secs(20)).unwrap()
        };
        assert_eq!(ends("exit 0"), Tally::one());
        let told = "echo 'test slow ... FAILED'; echo why >&2; echo 2 passed, 1 failed; exit 1";
        let failed = ends(told);
        assert_eq!((failed.passed, failed.failed, failed.failures), (2, 1, vec!["slow".into()]));
        assert!(failed.excerpt.contains(&"why".into()), "{:?}", failed.excerpt);
        let told = "echo 'skipped: a: no'; echo 'test b ... skipped: b: no'; echo 'skipped: a: no, again'; \
                    echo 'test result: ok. 3 passed; 0 failed; 0 ignored'; echo 1 passed, 0 failed, 1 skipped";
        assert_eq!(ends(told), Tally { passed: 2, skipped: 3, ..Tally::default() });
        assert_eq!(ends("echo 0 passed, 0 failed, 1 skipped"), Tally { skipped: 1, ..Tally::default() });
        assert_eq!(ends("exit 1").failed, 1);
    }

    #[test]
    fn a_command_past_its_limit_is_ended_with_its_children() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & sleep 60"]);
        let began = Instant::now();
        assert_eq!(run(command, Duration::from_millis(100)).unwrap().failed, 1);
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
