//! The runs of a suite in one call: a summary of each, and a table of all.
//!
//! Relies on each step having told its tests; [`crate::history`] keeps the runs.

use std::fmt::Write as _;
use std::time::Duration;

use crate::origin::Origin;
use crate::steps::Tally;

/// How a step ended and what it took.
pub struct Outcome {
    /// The step.
    pub name: String,
    /// Its tests.
    pub tally: Tally,
    /// Its time.
    pub took: Duration,
}

impl Outcome {
    /// One line of a summary.
    pub fn line(&self) -> String {
        let Self { name, tally: Tally { passed, failed, skipped, .. }, took } = self;
        let verdict = if *failed == 0 { "ok    " } else { "FAILED" };
        format!(
            "{verdict} {name:<40} {passed:>5} passed {failed:>4} failed {skipped:>3} skipped {:>7.1} s",
            took.as_secs_f64()
        )
    }
}

/// One run of the suite.
pub struct Round {
    /// The sources and the machine.
    pub origin: Origin,
    /// Which part of the suite it was; `None` if it was all.
    pub part: Option<String>,
    /// Other threads took all processors meanwhile.
    pub is_loaded: bool,
    /// Of each step.
    pub outcomes: Vec<Outcome>,
    /// In all.
    pub took: Duration,
}

impl Round {
    /// The tests of all steps.
    pub fn tally(&self) -> Tally {
        self.outcomes.iter().map(|outcome| outcome.tally.clone()).sum()
    }

    /// Step and test of every failure; the step alone where no test was named.
    fn failures(&self) -> Vec<(&str, &str)> {
        let named = |outcome: &Outcome| outcome.tally.failed > 0 && outcome.tally.failures.is_empty();
        let of = |outcome: &'_ Outcome| named(outcome).then_some("");
        self.outcomes
            .iter()
            .flat_map(|outcome| {
                let tests = outcome.tally.failures.iter().map(String::as_str).chain(of(outcome));
                tests.map(|test| (outcome.name.as_str(), test)).collect::<Vec<_>>()
            })
            .collect()
    }

    /// Prints what each step did and took.
    pub fn print(&self) {
        println!("\n=== summary");
        self.outcomes.iter().for_each(|outcome| println!("{}", outcome.line()));
        let tally = self.tally();
        println!("{}, {:.1} min", tally.line(), self.took.as_secs_f64() / 60.0);
        for outcome in self.outcomes.iter().filter(|outcome| !outcome.tally.excerpt.is_empty()) {
            println!("\n=== what {} printed around its failures", outcome.name);
            outcome.tally.excerpt.iter().for_each(|line| println!("{line}"));
        }
        for (step, test) in self.failures() {
            println!("failed: {step}: {test}");
        }
    }
}

/// All runs so far.
#[derive(Default)]
pub struct Rounds {
    rounds: Vec<Round>,
}

impl Rounds {
    /// Adds a run.
    pub fn push(&mut self, round: Round) {
        self.rounds.push(round);
    }

    /// The tests of all runs.
    pub fn total(&self) -> Tally {
        self.rounds.iter().map(Round::tally).sum()
    }

    /// A table of the runs, and a list of what failed, as markdown.
    pub fn table(&self) -> String {
        let mut text =
            String::from("| run | load | passed | failed | skipped | minutes |\n|---|---|---|---|---|---|\n");
        for (round, number) in self.rounds.iter().zip(1..) {
            let (tally, minutes) = (round.tally(), round.took.as_secs_f64() / 60.0);
            let load = if round.is_loaded { "all processors taken" } else { "none" };
            // Writing to a string can't fail.
            let Tally { passed, failed, skipped, .. } = tally;
            let _ = writeln!(text, "| {number} | {load} | {passed} | {failed} | {skipped} | {minutes:.1} |");
        }
        for (round, number) in self.rounds.iter().zip(1..) {
            for (step, test) in round.failures() {
                let _ = writeln!(text, "\nRun {number}: {step}: `{test}` failed.");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds() -> Rounds {
        let outcome = |name: &str, tally| Outcome { name: name.into(), tally, took: Duration::from_secs(90) };
        let mut rounds = Rounds::default();
        for (is_loaded, tally) in [
            (false, Tally { passed: 7, ..Tally::default() }),
            (true, Tally { passed: 6, failed: 1, failures: vec!["a_test".into()], ..Tally::default() }),
            (true, Tally { passed: 6, failed: 1, skipped: 2, ..Tally::default() }),
        ] {
            let outcomes = vec![outcome("layers", Tally::one()), outcome("cargo test", tally)];
            let took = Duration::from_secs(180);
            rounds.push(Round { origin: Origin::default(), part: None, is_loaded, outcomes, took });
        }
        rounds
    }

    #[test]
    fn the_table_has_a_row_for_each_run_and_a_line_for_each_failure() {
        let table = rounds().table();
        assert!(table.contains("| 1 | none | 8 | 0 | 0 | 3.0 |"), "{table}");
        assert!(table.contains("| 2 | all processors taken | 7 | 1 | 0 | 3.0 |"), "{table}");
        assert!(table.contains("| 3 | all processors taken | 7 | 1 | 2 | 3.0 |"), "{table}");
        assert!(table.contains("Run 2: cargo test: `a_test` failed."), "{table}");
        assert!(table.contains("Run 3: cargo test: `` failed."), "{table}");
    }
}
