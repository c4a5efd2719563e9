//! The processes that trials run in: the same program without the preload library, with it, and with it and no loss model. They live for the whole
//! run and take turns.
//!
//! Relies on [`super::trial`] for what they do, and on the library's line of figures at their end to know whether it remapped anything.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, bail};

use super::spec::{TrialCounts, TrialSpec};
use super::trial::CHILD;
use crate::forkers::library;
use crate::stats::Spread;

/// How the program that reads is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// By itself.
    Read,
    /// With the library, as it is by default.
    Zread,
    /// With the library, which remaps from 4 KiB on whatever the loss model says: the paper's z-READ without its model.
    Eager,
}

impl ReadMode {
    const ALL: [Self; 3] = [Self::Read, Self::Zread, Self::Eager];
}

/// A process that waits for trials.
#[derive(Debug)]
pub struct WorkerProcess {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    complaints: ChildStderr,
}

impl WorkerProcess {
    /// Starts `program` so that reads of files in `dir` are served as `mode` says.
    ///
    /// # Errors
    /// It can't be started, or the library is not there.
    pub fn start(program: &Path, dir: &Path, mode: ReadMode) -> anyhow::Result<Self> {
        let mut command = Command::new(program);
        command.args(["bench", CHILD]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        set_environment(&mut command, dir, mode)?;
        let mut child = command.spawn().with_context(|| format!("starting {}", program.display()))?;
        let (Some(input), Some(output), Some(complaints)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            bail!("a process without its pipes");
        };
        Ok(Self { child, input: Some(input), output: BufReader::new(output), complaints })
    }

    /// Has a trial begin; [`WorkerProcess::counts`] waits for its end.
    ///
    /// # Errors
    /// The process has ended.
    pub fn begin(&mut self, spec: &TrialSpec) -> anyhow::Result<()> {
        let line = format!("{}\n", serde_json::to_string(spec)?);
        self.input
            .as_mut()
            .context("a process that was ended")?
            .write_all(line.as_bytes())
            .context("telling a process what to do")
    }

    /// What the trial that was begun has counted.
    ///
    /// # Errors
    /// It has failed.
    pub fn counts(&mut self) -> anyhow::Result<TrialCounts> {
        let mut line = String::new();
        if self.output.read_line(&mut line).context("waiting for a trial")? == 0 {
            bail!("a trial failed: {}", self.end().trim_end());
        }
        serde_json::from_str(&line).with_context(|| format!("an answer that can't be read: {line}"))
    }

    /// Carries a trial out.
    ///
    /// # Errors
    /// It fails.
    pub fn run(&mut self, spec: &TrialSpec) -> anyhow::Result<TrialCounts> {
        self.begin(spec)?;
        self.counts()
    }

    /// Ends the process; what it has said on standard error.
    pub fn end(&mut self) -> String {
        // Without input there are no more trials.
        self.input = None;
        let mut said = String::new();
        let _ = self.complaints.read_to_string(&mut said);
        let _ = self.child.wait();
        said
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // Both fail only when the process has already ended and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Has `command` read files in `dir` as `mode` says.
///
/// # Errors
/// The library is not there.
pub fn set_environment(command: &mut Command, dir: &Path, mode: ReadMode) -> anyhow::Result<()> {
    for name in ["LD_PRELOAD", "QUIRE_ZREAD", "QUIRE_ZREAD_MIN", "QUIRE_ZREAD_MODEL", "QUIRE_ZREAD_STATS", "QUIRE_HEAP"]
    {
        command.env_remove(name);
    }
    if mode == ReadMode::Read {
        return Ok(());
    }
    let library =
        library::find().with_context(|| format!("{} is not there: {}", library::NAME, library::HOW_TO_BUILD))?;
    command.env("LD_PRELOAD", library).env("QUIRE_ZREAD", dir).env("QUIRE_ZREAD_STATS", "on");
    if mode == ReadMode::Eager {
        command.env("QUIRE_ZREAD_MIN", "4k").env("QUIRE_ZREAD_MODEL", "off");
    }
    Ok(())
}

/// Reads that the library has remapped, by its line; `None` without such a line.
pub fn remapped(said: &str) -> Option<u64> {
    let (_, rest) = said.rsplit_once("zread: ").filter(|(_, rest)| rest.contains("reads remapped"))?;
    rest.split(' ').next()?.parse().ok()
}

/// The same trial by two processes in turns, one value a round.
#[derive(Clone, Debug, Default)]
pub struct TrialPair {
    /// By `read` alone.
    pub read: Vec<TrialCounts>,
    /// With the library.
    pub zread: Vec<TrialCounts>,
}

impl TrialPair {
    /// How many times as much a second the library gives, round by round.
    pub fn gain(&self) -> Spread {
        let per_s = |counts: &[TrialCounts]| counts.iter().map(TrialCounts::per_s).collect::<Vec<f64>>();
        Spread::of_ratios(&per_s(&self.zread), &per_s(&self.read))
    }

    /// Medians in MiB a second: by `read`, and with the library.
    pub fn mib_per_s(&self) -> (f64, f64) {
        let median = |counts: &[TrialCounts]| {
            let rates: Vec<f64> = counts.iter().map(|counts| counts.bytes_per_s() / f64::from(1 << 20)).collect();
            Spread::or_nan(&rates).median
        };
        (median(&self.read), median(&self.zread))
    }
}

/// All processes.
#[derive(Debug)]
pub struct Workers {
    processes: Vec<WorkerProcess>,
}

impl Workers {
    /// Starts them.
    ///
    /// # Errors
    /// As [`WorkerProcess::start`].
    pub fn start(program: &Path, dir: &Path) -> anyhow::Result<Self> {
        let start = |mode| WorkerProcess::start(program, dir, mode);
        Ok(Self { processes: ReadMode::ALL.into_iter().map(start).collect::<anyhow::Result<_>>()? })
    }

    /// One of them.
    pub fn of(&mut self, mode: ReadMode) -> &mut WorkerProcess {
        &mut self.processes[mode as usize]
    }

    /// Carries a trial out `rounds` times without the library and with it, in turns.
    ///
    /// # Errors
    /// One of them fails.
    pub fn alternate(&mut self, spec: &TrialSpec, rounds: usize, mode: ReadMode) -> anyhow::Result<TrialPair> {
        let mut pair = TrialPair::default();
        for round in 0..rounds {
            let spec = TrialSpec { seed: spec.seed + round as u64, ..spec.clone() };
            // Who goes first changes, so that neither always finds the other's leftovers.
            if round.is_multiple_of(2) {
                pair.read.push(self.of(ReadMode::Read).run(&spec)?);
                pair.zread.push(self.of(mode).run(&spec)?);
            } else {
                pair.zread.push(self.of(mode).run(&spec)?);
                pair.read.push(self.of(ReadMode::Read).run(&spec)?);
            }
        }
        Ok(pair)
    }

    /// Ends them; reads remapped by default and without the model, and the last line of the first as it is.
    pub fn end(mut self) -> (Option<u64>, Option<u64>, String) {
        let [_, zread, eager] = ReadMode::ALL.map(|mode| self.of(mode).end());
        (remapped(&zread), remapped(&eager), zread.lines().last().unwrap_or_default().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_s_line_tells_how_many_reads_were_remapped() {
        let line = "quire-preload: zread: 12 reads remapped, 12.0 MiB; copied: 3 no lease; 1 leases, 0 broken";
        assert_eq!(remapped(&format!("quire-preload: zread: something\n{line}\n")), Some(12));
        assert_eq!(remapped("quire-preload: zread: all reads are copied: no userfaultfd"), None);
        assert_eq!(remapped(""), None);
    }

    #[test]
    fn a_gain_is_of_the_rounds_that_belong_together() {
        let counts = |operations| TrialCounts { operations, bytes: operations << 20, seconds: 2.0 };
        let pair = TrialPair { read: vec![counts(10), counts(20)], zread: vec![counts(30), counts(20)] };
        assert_eq!(pair.gain(), Spread { median: 2.0, least: 1.0, most: 3.0 });
        assert_eq!(pair.mib_per_s(), (7.5, 12.5));
    }
}
