//! `test`: everything that has to pass, on a machine that has nothing but Rust; once, or many times in a row.
//!
//! Relies on the steps being independent: one that fails does not stop those that can still tell something. The last
//! line is `N passed, N failed, N skipped`.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::history::History;
use crate::load::Load;
use crate::origin::Origin;
use crate::output;
use crate::plan::{self, Step, Worker, World};
use crate::rounds::{Outcome, Round, Rounds};
use crate::steps::{self, Tally};

/// The load of a round ends by itself after so long.
const LONGEST_LOAD: Duration = Duration::from_secs(4 * 3600);
/// Limits are so many times longer under load: the tests get a half of each processor or less.
const PATIENCE_UNDER_LOAD: u32 = 4;

/// What to run, and how often.
#[derive(clap::Args)]
pub struct Choice {
    /// Only the steps whose name contains this; may be given several times
    #[arg(long)]
    only: Vec<String>,
    /// Not the steps whose name contains this; may be given several times
    #[arg(long)]
    skip: Vec<String>,
    /// List the steps and end
    #[arg(long)]
    list: bool,
    /// Run the suite so many times in a row; checks of the source and builds are made once
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Take all processors by busy threads in the last N of these runs; in all of them without a number
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "4294967295")]
    loaded: Option<u32>,
    /// Add the runs to those in FOLDER/suite.json and suite.md, each under its commit
    #[arg(long, value_name = "FOLDER")]
    write: Option<PathBuf>,
}

impl Choice {
    fn wants(&self, step: &Step) -> bool {
        let names = |parts: &[String]| parts.iter().any(|part| step.name.contains(part));
        (self.only.is_empty() || names(&self.only)) && !names(&self.skip)
    }

    fn is_loaded(&self, round: u32) -> bool {
        round > self.repeat.saturating_sub(self.loaded.unwrap_or(0))
    }

    /// Which part of the suite it is, in words; `None` if it is all.
    fn part(&self) -> Option<String> {
        let words = [("only", &self.only), ("without", &self.skip)];
        let parts = words.into_iter().filter(|(_, names)| !names.is_empty());
        let parts: Vec<String> = parts.map(|(word, names)| format!("{word} {}", names.join(", "))).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// Runs the chosen steps as often as was asked.
pub fn run(choice: &Choice) -> anyhow::Result<()> {
    let mut steps = plan::steps()?;
    steps.retain(|step| choice.wants(step));
    if choice.list {
        steps.iter().for_each(|step| println!("{}", step.name));
        return Ok(());
    }
    if steps.is_empty() {
        bail!("no step has such a name; `--list` shows them");
    }
    let mut history = choice.write.as_deref().map(History::open).transpose()?;
    let runs_before = history.as_ref().map_or(0, History::count) as u64;
    let (mut world, mut rounds) = (World::default(), Rounds::default());
    for number in 1..=choice.repeat {
        let wanted: Vec<&Step> = steps.iter().filter(|step| number == 1 || !step.is_static).collect();
        let is_loaded = choice.is_loaded(number);
        world.seed = runs_before + u64::from(number);
        if choice.repeat > 1 || is_loaded {
            println!("\n##### run {number} of {}{}", choice.repeat, if is_loaded { ", under load" } else { "" });
        }
        let round = Round { part: choice.part(), ..one_round(&wanted, &mut world, is_loaded) };
        round.print();
        // After every run, so that what was found is there if a later one is ended from outside.
        if let Some(history) = &mut history {
            history.push(&round);
            history.write()?;
        }
        rounds.push(round);
    }
    if choice.repeat > 1 {
        println!("\n{}", rounds.table());
    }
    let total = rounds.total();
    println!("\n{}", total.line());
    if total.failed == 0 { Ok(()) } else { bail!("{} failed", total.failed) }
}

/// How far a round is.
struct Progress {
    began: Instant,
    steps: usize,
    ended: AtomicUsize,
}

impl Progress {
    fn print(&self, outcome: &Outcome) {
        let ended = self.ended.fetch_add(1, Ordering::Relaxed) + 1;
        println!(
            "--- {}; {ended} of {}, {} s since the start",
            outcome.line(),
            self.steps,
            self.began.elapsed().as_secs()
        );
    }
}

fn one_round(steps: &[&Step], world: &mut World, is_loaded: bool) -> Round {
    let origin = Origin::now();
    let progress = Progress { began: Instant::now(), steps: steps.len(), ended: AtomicUsize::new(0) };
    let mut outcomes = Vec::new();
    let mut rest = steps;
    while let Some(step) = rest.first() {
        // Builds and checks of the source are the same under load, only slower.
        let _load = (is_loaded && !step.is_static).then(|| {
            steps::set_patience(PATIENCE_UNDER_LOAD);
            Load::start(LONGEST_LOAD)
        });
        let together = rest.iter().take_while(|step| step.worker.is_some()).count();
        if together == 0 {
            outcomes.push(one_step(step, world, &progress));
        } else {
            outcomes.extend(side_by_side(&rest[..together], world, &progress));
        }
        rest = &rest[together.max(1)..];
        steps::set_patience(1);
    }
    Round { origin, part: None, is_loaded, outcomes, took: progress.began.elapsed() }
}

/// Each worker runs its steps in their order, beside the others. The outcomes come in the order of the steps.
fn side_by_side(steps: &[&Step], world: &World, progress: &Progress) -> Vec<Outcome> {
    let mut outcomes: Vec<(usize, Outcome)> = std::thread::scope(|scope| {
        let work = |worker: Worker| {
            let mut world = world.clone();
            let own = steps.iter().enumerate().filter(move |(_, step)| step.worker == Some(worker));
            own.map(|(at, step)| {
                output::name_lines(&step.name);
                (at, one_step(step, &mut world, progress))
            })
            .collect::<Vec<_>>()
        };
        let workers = Worker::ALL.map(|worker| scope.spawn(move || work(worker)));
        workers.into_iter().flat_map(|worker| worker.join().expect("a step's panic is the suite's")).collect()
    });
    outcomes.sort_by_key(|(at, _)| *at);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

fn one_step(step: &Step, world: &mut World, progress: &Progress) -> Outcome {
    println!("\n=== {}", step.name);
    let started = Instant::now();
    let tally = step.run(world);
    let outcome = Outcome { name: step.name.clone(), tally, took: started.elapsed() };
    progress.print(&outcome);
    outcome
}

impl std::iter::Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), |mut total, tally| {
            total += tally;
            total
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(repeat: u32, loaded: Option<u32>) -> Choice {
        Choice { only: vec![], skip: vec![], list: false, repeat, loaded, write: None }
    }

    #[test]
    fn a_part_of_the_suite_is_named() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let part = |only, skip| Choice { only: names(only), skip: names(skip), ..choice(1, None) }.part();
        assert_eq!(part(&[], &[]), None);
        assert_eq!(part(&[], &["bench", "fuzz"]).unwrap(), "without bench, fuzz");
        assert_eq!(part(&["cargo test"], &["loom"]).unwrap(), "only cargo test; without loom");
    }

    #[test]
    fn the_last_runs_are_those_under_load() {
        let loaded = |choice: Choice| (1..=choice.repeat).filter(|&round| choice.is_loaded(round)).collect::<Vec<_>>();
        assert_eq!(loaded(choice(5, Some(2))), [4, 5]);
        assert_eq!(loaded(choice(2, Some(u32::MAX))), [1, 2]);
        assert!(loaded(choice(3, None)).is_empty());
    }
}
