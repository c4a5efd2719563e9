//! The parent process of a trial: starts the process, puts it under its limit, tells it what to do, waits. Other experiments under a
//! memory limit (`dbio`) use it as well.
//!
//! Relies on the process being this very program again, which waits for its line. A trial that fails or takes too long is a
//! result, too; an interrupt ends everything in order, so that the device is reset and no group stays behind.

use std::cell::Cell;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::candidate::Candidate;
use super::memory_limit::MemoryLimit;
use super::phase_stats::PhaseStats;
use super::trial::{TrialSpec, Workload};
use crate::memory;

/// The name under which a child is started; not for people.
pub const CHILD: &str = "fastmap-trial";

/// What a trial came to: the statistics of its phases, or why there are none.
pub type TrialOutcome = Result<Vec<PhaseStats>, String>;

/// A process of a trial.
#[derive(Clone, Copy, Debug)]
pub struct ChildSpec<'a> {
    /// It is started as `quire bench NAME`.
    pub name: &'a str,
    /// What it is told, on one line.
    pub line: &'a str,
    /// Variables that its environment has besides those of this process.
    pub environment: &'a [(&'a str, String)],
    /// All its memory, page cache included.
    pub limit_bytes: u64,
    /// How long it may take.
    pub time_limit: Duration,
}

/// Starts trials, one at a time.
#[derive(Debug)]
pub struct TrialRunner {
    program: PathBuf,
    interrupted: Arc<AtomicBool>,
    started: Cell<u32>,
}

impl TrialRunner {
    /// A runner that starts `program`. From now on an interrupt is noted instead of ending this process.
    ///
    /// # Errors
    /// Where memory can't be limited, or signals can't be had.
    pub fn new(program: PathBuf) -> anyhow::Result<Self> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&interrupted)).context("waiting for interrupts")?;
        }
        let runner = Self { program, interrupted, started: Cell::new(0) };
        drop(runner.memory_limit(64 << 20)?);
        Ok(runner)
    }

    fn memory_limit(&self, limit_bytes: u64) -> anyhow::Result<MemoryLimit> {
        let number = self.started.get();
        self.started.set(number + 1);
        MemoryLimit::new(&format!("quire-bench-{}-{number}", std::process::id()), limit_bytes)
    }

    /// Ends the experiment if a signal asked for that.
    ///
    /// # Errors
    /// When there was an interrupt.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.interrupted.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Ok(())
    }

    /// Runs a trial. Pages of its testbed are out of the page cache when it begins.
    ///
    /// # Errors
    /// The trial could not be started, or there was an interrupt. What goes wrong in the trial itself is an outcome.
    pub fn run(&self, spec: &TrialSpec) -> anyhow::Result<TrialOutcome> {
        // A directory is for a database that is new with each trial.
        if !spec.testbed.path.is_dir() {
            spec.testbed.drop_cache()?;
        }
        self.run_child(&ChildSpec {
            name: CHILD,
            line: &serde_json::to_string(spec)?,
            environment: &[],
            limit_bytes: spec.limit_bytes(),
            time_limit: time_limit(spec),
        })
    }

    /// Starts this program again, tells it what to do, and waits for its answer.
    ///
    /// # Errors
    /// As [`TrialRunner::run`].
    pub fn run_child(&self, spec: &ChildSpec<'_>) -> anyhow::Result<TrialOutcome> {
        let &ChildSpec { name, line, environment, limit_bytes, time_limit } = spec;
        self.check()?;
        memory::warm(limit_bytes);
        let limit = self.memory_limit(limit_bytes)?;
        let mut command = Command::new(&self.program);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        command.args(["bench", name]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().with_context(|| format!("starting {}", self.program.display()))?;
        let mut child = RunningTrial(child);
        limit.admit(child.0.id())?;
        let line = format!("{line}\n");
        child.0.stdin.take().context("the child's input")?.write_all(line.as_bytes()).context("telling the child")?;
        let outcome = self.wait(&mut child, time_limit)?;
        let outcome = outcome.map(|mut phases| {
            if let (Some(stats), Some(peak)) = (phases.last_mut(), limit.peak_bytes()) {
                stats.counters.insert("peak_mib".into(), peak as f64 / f64::from(1 << 20));
            }
            phases
        });
        drop(child);
        Ok(outcome)
    }

    fn wait(&self, child: &mut RunningTrial, limit: Duration) -> anyhow::Result<TrialOutcome> {
        let began = Instant::now();
        let status = loop {
            if let Some(status) = child.0.try_wait().context("waiting for a trial")? {
                break status;
            }
            self.check()?;
            if began.elapsed() > limit {
                return Ok(Err(format!("not done after {} s", limit.as_secs())));
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        self.check()?;
        let (mut answer, mut complaint) = (String::new(), String::new());
        if let (Some(out), Some(err)) = (&mut child.0.stdout, &mut child.0.stderr) {
            out.read_to_string(&mut answer).context("a trial's answer")?;
            err.read_to_string(&mut complaint).context("a trial's complaint")?;
        }
        if !status.success() {
            let last = complaint.lines().last().unwrap_or("no complaint; the memory limit may have ended it");
            return Ok(Err(format!("{status}: {last}")));
        }
        Ok(serde_json::from_str(&answer).map_err(|error| format!("an answer that can't be read: {error}")))
    }
}

/// How long a trial may take before it counts as hung. With the kernel's read-around what goes through pages in random order
/// would take hours: it gets the time in which every other candidate is done.
fn time_limit(spec: &TrialSpec) -> Duration {
    Duration::from_secs(match (&spec.work, spec.candidate) {
        (Workload::Microbenchmark(_) | Workload::HitCost(_) | Workload::DeviceBounds(_), _) => 60,
        (Workload::Bfs(_) | Workload::Ycsb(_), Candidate::Mmap) => 60,
        (Workload::Bfs(_) | Workload::Ycsb(_), _) => 900,
    })
}

/// A process that ends with this.
struct RunningTrial(Child);

impl Drop for RunningTrial {
    fn drop(&mut self) {
        // Both fail only when the process has already ended and been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
