//! The runs of a suite: a summary of each, a table of all, and both as JSON and markdown.
//!
//! Relies on `git` and `/proc` for what the results come from; what they don't tell is left out.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::load::processors;
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
    /// Other threads took all processors meanwhile.
    pub is_loaded: bool,
    /// Of each step.
    pub outcomes: Vec<Outcome>,
    /// In all.
    pub took: Duration,
}

impl Round {
    fn tally(&self) -> Tally {
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

    /// Writes `suite.json` and `suite.md` into `folder`.
    pub fn write(&self, folder: &Path) -> std::io::Result<()> {
        let (origin, words) = (origin(), std::env::args().skip(1).collect::<Vec<_>>().join(" "));
        let rounds: Vec<Value> = self.rounds.iter().map(json_of).collect();
        let report = json!({ "experiment": "suite", "command": words, "origin": origin, "runs": rounds });
        std::fs::write(folder.join("suite.json"), format!("{report:#}\n"))?;
        let text = format!(
            "# The suite, many times in a row\n\n`cargo xtask {words}`: {} runs, {} of them while busy threads took all \
             processors. Commit {}, {} processors, Linux {}. All steps with their times are in `suite.json`.\n\n{}",
            self.rounds.len(),
            self.rounds.iter().filter(|round| round.is_loaded).count(),
            text_of(&origin["commit"]),
            origin["processors"],
            text_of(&origin["kernel"]),
            self.table()
        );
        std::fs::write(folder.join("suite.md"), text)
    }
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or("unknown")
}

fn json_of(round: &Round) -> Value {
    let steps: Vec<Value> = round
        .outcomes
        .iter()
        .map(|Outcome { name, tally: Tally { passed, failed, skipped, failures, .. }, took }| {
            json!({ "name": name, "passed": passed, "failed": failed, "skipped": skipped, "failures": failures, "took_s": took.as_secs_f64() })
        })
        .collect();
    let tally = round.tally();
    json!({
        "loaded": round.is_loaded,
        "passed": tally.passed,
        "failed": tally.failed,
        "skipped": tally.skipped,
        "took_s": round.took.as_secs_f64(),
        "steps": steps,
    })
}

/// What was run where.
fn origin() -> Value {
    let output = Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output().ok();
    let commit = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|text| text.trim().to_owned());
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name));
    json!({ "commit": commit, "processors": processors(), "processor": model, "kernel": kernel })
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
            rounds.push(Round { is_loaded, outcomes, took: Duration::from_secs(180) });
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

    #[test]
    fn what_is_written_can_be_read_by_a_program() {
        let folder = std::env::temp_dir().join(format!("quire-xtask-rounds-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        rounds().write(&folder).unwrap();
        let report: Value = serde_json::from_str(&std::fs::read_to_string(folder.join("suite.json")).unwrap()).unwrap();
        assert_eq!((report["runs"].as_array().unwrap().len(), &report["runs"][1]["failed"]), (3, &json!(1)));
        assert!(std::fs::read_to_string(folder.join("suite.md")).unwrap().contains("3 runs, 2 of them"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
