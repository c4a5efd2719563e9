//! What an experiment is: its own arguments, a run, and the figures and charts that are made of what the run measured.
//!
//! Relies on clap for the arguments. Which experiments there are is said in [`crate::list`] only.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, bail};
use clap::{ArgMatches, Command};

use crate::bounds;
use crate::chart::Chart;
use crate::cleanup_list;
use crate::machine;
use crate::quick;
use crate::report::Report;

/// The flag by which the supervisor starts the process that measures.
pub const WORKER: &str = "supervised";

/// The arguments that every experiment takes.
#[derive(Debug, Clone, clap::Args)]
pub struct CommonArgs {
    /// A smaller data set and fewer rounds: ends within three minutes
    #[arg(long)]
    pub quick: bool,
    /// Write the figures to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Draw into this directory (SVG), and write the numbers beside each chart (CSV)
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
    /// Where the experiment keeps its files; the disk under it is the one that is measured [default: a directory in ./]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Rounds of everything that is repeated [default: that of the experiment]
    #[arg(long)]
    pub rounds: Option<usize>,
}

impl CommonArgs {
    /// The directory under which files are kept.
    pub fn dir(&self) -> &Path {
        self.dir.as_deref().unwrap_or(Path::new("."))
    }

    /// A directory of this run's own, removed when dropped.
    ///
    /// # Errors
    /// When it can't be made.
    pub fn make_dir(&self) -> anyhow::Result<tempfile::TempDir> {
        let parent = self.dir();
        let made = tempfile::Builder::new().prefix("quire-bench-").tempdir_in(parent);
        let dir = made.with_context(|| format!("making a directory in {}", parent.display()))?;
        cleanup_list::note(dir.path());
        Ok(dir)
    }

    /// `full`, or `small` in a small run.
    pub fn pick<T>(&self, full: T, small: T) -> T {
        if self.quick { small } else { full }
    }

    /// The rounds that were asked for, or `full`, or `small` in a small run; at least one.
    pub fn rounds(&self, full: usize, small: usize) -> usize {
        self.rounds.unwrap_or(self.pick(full, small)).max(1)
    }
}

/// The argument of experiments that start this program again.
#[derive(Debug, Clone, clap::Args)]
pub struct BinaryArgs {
    /// The Quire binary to start [default: this one]
    #[arg(long, value_name = "FILE", env = "QUIRE_BENCH_BINARY")]
    pub quire: Option<PathBuf>,
}

impl BinaryArgs {
    /// The binary's path.
    ///
    /// # Errors
    /// When the system does not tell the path of this program.
    pub fn path(&self) -> anyhow::Result<PathBuf> {
        match &self.quire {
            Some(path) => Ok(path.clone()),
            None => std::env::current_exe().context("finding this program"),
        }
    }
}

/// Whether `part` is among the `parts` that were asked for; all are when none was named.
pub fn wants(parts: &[String], part: &str) -> bool {
    parts.is_empty() || parts.iter().any(|wanted| wanted == part)
}

/// An experiment, by its arguments.
pub trait Experiment: clap::Args {
    /// What a run measured.
    type Results;

    /// Its name: `quire bench NAME`.
    const NAME: &'static str;
    /// What it sets beside what, in a line.
    const ABOUT: &'static str;
    /// What `--plot` draws; nothing for most.
    const DRAWS: Option<&'static str> = None;

    /// The arguments that all experiments share.
    fn common(&self) -> &CommonArgs;

    /// Measures.
    ///
    /// # Errors
    /// When it can't be carried out. A figure that misses its goal is no error.
    fn run(&self) -> anyhow::Result<Self::Results>;

    /// Adds the figures of `results`, and the facts of its scale, to `report`.
    fn figures(&self, results: &Self::Results, report: &mut Report);

    /// What a small run with these arguments cannot tell: how the names of such figures begin, and why.
    fn beyond_quick(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// The charts of `results`.
    fn plots(&self, _outcome: &Self::Results) -> Vec<Chart> {
        Vec::new()
    }
}

/// The command of an experiment, with its own options.
pub fn command<E: Experiment>() -> Command {
    let command = E::augment_args(Command::new(E::NAME)).about(E::ABOUT);
    match E::DRAWS {
        Some(what) => command.mut_arg("plot", |arg| {
            arg.help(format!("Draw {what} into this directory (SVG), and write the numbers beside each chart (CSV)"))
        }),
        None => command.mut_arg("plot", |arg| arg.hide(true)),
    }
}

/// Runs the experiment that `matches` are for, prints its table and writes what was asked for.
///
/// # Errors
/// When it can't be carried out, or a file can't be written.
pub fn run<E: Experiment>(matches: &ArgMatches) -> anyhow::Result<()> {
    let experiment = E::from_arg_matches(matches)?;
    let common = experiment.common();
    if common.plot.is_some() && E::DRAWS.is_none() {
        bail!("`quire bench {}` draws nothing; leave --plot out", E::NAME);
    }
    let mut report = Report::new(E::NAME, machine::facts(common.dir()));
    report.command = called(std::env::args().skip(1));
    report.scale.insert("quick".into(), common.quick.into());
    let started = Instant::now();
    let results = experiment.run()?;
    experiment.figures(&results, &mut report);
    bounds::explain(&mut report);
    if common.quick {
        quick::leave_out(&mut report, &experiment.beyond_quick());
        quick::judge_time(&mut report, started.elapsed());
    }
    quire_sys::out!("{}", report.table())?;
    if let Some(path) = &common.json {
        std::fs::write(path, report.json()).with_context(|| format!("writing the figures to {}", path.display()))?;
    }
    if let Some(dir) = &common.plot {
        experiment.plots(&results).iter().try_for_each(|chart| chart.draw(dir))?;
    }
    Ok(())
}

/// What the user called, from the arguments of the process that the supervisor started for it.
fn called(arguments: impl Iterator<Item = String>) -> String {
    let worker = format!("--{WORKER}");
    let own = arguments.filter(|word| *word != worker);
    own.fold("quire".to_owned(), |called, word| match word.contains(char::is_whitespace) || word.is_empty() {
        true => format!("{called} {word:?}"),
        false => format!("{called} {word}"),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The arguments that `words` are to an experiment.
    pub fn parse<E: Experiment>(words: &str) -> E {
        let words = [E::NAME].into_iter().chain(words.split_ascii_whitespace());
        E::from_arg_matches(&command::<E>().get_matches_from(words)).unwrap()
    }

    #[test]
    fn a_report_tells_what_the_user_called() {
        let words = ["bench", "--supervised", "server", "--dir", "my data", "--quick"].map(str::to_owned);
        assert_eq!(called(words.into_iter()), "quire bench server --dir \"my data\" --quick");
    }

    /// An empty report of an experiment.
    pub fn report<E: Experiment>() -> Report {
        Report::new(E::NAME, serde_json::Map::new())
    }
}
