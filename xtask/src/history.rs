//! The runs of the suite that are kept, of many calls and days: `suite.json` has all of them, `suite.md` tells them to people.
//!
//! Relies on `suite.json` being as this module wrote it. A run is kept with the commit that it was of, and counts for no other.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::rounds::{Outcome, Round};
use crate::steps::Tally;

/// So many runs in a row without a failure are the goal, and so many of them under load.
const GOAL: usize = 10;
const GOAL_UNDER_LOAD: usize = 4;
const COUNTED: &str = "runs are counted, and more of them can always be made";

/// The runs that a folder keeps.
pub struct History {
    folder: PathBuf,
    runs: Vec<Value>,
}

/// The latest runs, without a failure among them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Streak {
    runs: usize,
    under_load: usize,
    /// Commits with the number of their runs, the latest first.
    commits: Vec<(String, usize)>,
}

impl History {
    /// The runs that `folder` has so far; none if it has no file of runs.
    pub fn open(folder: &Path) -> anyhow::Result<Self> {
        let path = folder.join("suite.json");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self { folder: folder.to_owned(), runs: Vec::new() });
            }
            Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
        };
        let report: Value = serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
        match (report["experiment"].as_str(), report["runs"].as_array()) {
            (Some("suite"), Some(runs)) => Ok(Self { folder: folder.to_owned(), runs: runs.clone() }),
            _ => bail!("{} has no runs of the suite: move it away, or name another folder", path.display()),
        }
    }

    /// Runs so far.
    pub fn count(&self) -> usize {
        self.runs.len()
    }

    /// Adds a run.
    pub fn push(&mut self, round: &Round) {
        self.runs.push(json_of(round));
    }

    /// Writes both files. The new ones take the old ones' places whole: a call that is ended meanwhile costs no run of another.
    pub fn write(&self) -> anyhow::Result<()> {
        for (name, text) in [("suite.json", format!("{:#}\n", self.report())), ("suite.md", self.page())] {
            let (path, new) = (self.folder.join(name), self.folder.join(format!("{name}.tmp")));
            std::fs::write(&new, text).with_context(|| format!("writing {}", new.display()))?;
            std::fs::rename(&new, &path).with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(())
    }

    /// The latest runs up to one that failed. Runs of a part of the suite, and those of sources that are in no commit, prove nothing
    /// of a commit: they are passed over.
    fn streak(&self) -> Streak {
        let mut streak = Streak::default();
        for run in self.runs.iter().rev().take_while(|run| run["failed"] == 0) {
            let Some(commit) = run["commit"].as_str().filter(|_| is_whole(run) && run["uncommitted"] == false) else {
                continue;
            };
            streak.runs += 1;
            streak.under_load += usize::from(run["loaded"] == true);
            match streak.commits.iter_mut().find(|(known, _)| known == commit) {
                Some((_, runs)) => *runs += 1,
                None => streak.commits.push((commit.to_owned(), 1)),
            }
        }
        streak
    }

    /// As `quire report` reads it, with all runs besides.
    fn report(&self) -> Value {
        let (streak, last) = (self.streak(), self.runs.last().unwrap_or(&Value::Null));
        let figure = |name: &str, runs: usize, goal: usize| {
            let value = (!self.runs.is_empty()).then_some(runs);
            json!({ "name": name, "value": value, "unit": "runs", "goal": goal, "better": "higher", "no_bound": COUNTED })
        };
        json!({
            "experiment": "suite",
            "command": "cargo xtask test --write docs/results",
            "machine": {
                "processor": last["processor"],
                "cores": last["processors"],
                "kernel": last["kernel"],
                "unix_time_s": last["unix_time_s"],
            },
            "results": [
                figure("runs_in_a_row", streak.runs, GOAL),
                figure("runs_in_a_row_under_load", streak.under_load, GOAL_UNDER_LOAD),
            ],
            "runs": self.runs,
        })
    }

    fn page(&self) -> String {
        let Streak { runs, under_load, commits } = self.streak();
        let commits: Vec<String> = commits.iter().map(|(commit, runs)| format!("{runs} of `{commit}`")).collect();
        let of = if commits.is_empty() { String::new() } else { format!(": {}", commits.join(", ")) };
        let told = match runs {
            0 if self.runs.is_empty() => "No run is kept yet.".to_owned(),
            0 => "No run of the whole suite since the latest failure.".to_owned(),
            _ => {
                format!("The last {runs} runs of the whole suite had no failure, {under_load} of them under load{of}.")
            }
        };
        let mut text = format!(
            "# Runs of the suite\n\n\
             Each run of `cargo xtask test --write docs/results` adds its row, under the commit that it was of. With `--loaded` busy threads take all processors meanwhile. \
             All steps with their times, and the machine, are in `suite.json`.\n\n\
             **{told}** The goal is {GOAL} in a row, {GOAL_UNDER_LOAD} of them under load. \
             Runs of a part of the suite, or of sources with changes that are in no commit, stand in the table and do not count.\n\n\
             | run | began (UTC) | commit | what | load | passed | failed | skipped | minutes |\n|---|---|---|---|---|---|---|---|---|\n"
        );
        self.runs.iter().zip(1..).for_each(|(run, number)| text += &row(number, run));
        self.runs.iter().zip(1..).for_each(|(run, number)| text += &failures(number, run));
        text
    }
}

fn is_whole(run: &Value) -> bool {
    run["part"].is_null()
}

fn row(number: usize, run: &Value) -> String {
    let commit = match (run["commit"].as_str(), run["uncommitted"] == true) {
        (None, _) => "unknown".to_owned(),
        (Some(commit), false) => format!("`{commit}`"),
        (Some(commit), true) => format!("`{commit}` and changes"),
    };
    let text = |name: &str, missing: &'static str| run[name].as_str().unwrap_or(missing).to_owned();
    let load = if run["loaded"] == true { "all processors taken" } else { "none" };
    format!(
        "| {number} | {} | {commit} | {} | {load} | {} | {} | {} | {:.1} |\n",
        text("began", "unknown"),
        text("part", "all"),
        run["passed"],
        run["failed"],
        run["skipped"],
        run["took_s"].as_f64().unwrap_or(0.0) / 60.0
    )
}

fn failures(number: usize, run: &Value) -> String {
    let mut text = String::new();
    for step in run["steps"].as_array().into_iter().flatten().filter(|step| step["failed"] != 0) {
        let name = step["name"].as_str().unwrap_or_default();
        let tests: Vec<&str> = step["failures"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if tests.is_empty() {
            text += &format!("\nRun {number}: {name} failed.\n");
        }
        tests.iter().for_each(|test| text += &format!("\nRun {number}: {name}: `{test}` failed.\n"));
    }
    text
}

/// Seconds with one digit behind the point: a number of so few digits is written as it was read.
fn tenths(took: Duration) -> f64 {
    (took.as_secs_f64() * 10.0).round() / 10.0
}

fn json_of(round: &Round) -> Value {
    let steps: Vec<Value> = round
        .outcomes
        .iter()
        .map(|Outcome { name, tally: Tally { passed, failed, skipped, failures, .. }, took }| {
            json!({ "name": name, "passed": passed, "failed": failed, "skipped": skipped, "failures": failures, "took_s": tenths(*took) })
        })
        .collect();
    let (tally, origin) = (round.tally(), &round.origin);
    json!({
        "began": origin.began,
        "unix_time_s": origin.unix_time_s,
        "commit": origin.commit,
        "uncommitted": origin.has_changes,
        "processors": origin.processors,
        "processor": origin.processor,
        "kernel": origin.kernel,
        "part": round.part,
        "loaded": round.is_loaded,
        "passed": tally.passed,
        "failed": tally.failed,
        "skipped": tally.skipped,
        "took_s": tenths(round.took),
        "steps": steps,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::Origin;

    fn round(commit: &str, is_loaded: bool, tally: Tally) -> Round {
        let outcome =
            |name: &str, tally| Outcome { name: name.into(), tally, took: Duration::from_nanos(90_123_456_789) };
        let origin =
            Origin { commit: Some(commit.into()), began: Some("2026-11-28 09:45".into()), ..Origin::default() };
        let outcomes = vec![outcome("layers", Tally::one()), outcome("cargo test", tally)];
        Round { origin, part: None, is_loaded, outcomes, took: Duration::from_secs(180) }
    }

    fn sound(commit: &str) -> Round {
        round(commit, false, Tally { passed: 7, ..Tally::default() })
    }

    fn failing(commit: &str) -> Round {
        round(commit, false, Tally { passed: 6, failed: 1, failures: vec!["a_test".into()], ..Tally::default() })
    }

    /// Adds runs as one call does.
    fn call(folder: &Path, rounds: &[Round]) -> History {
        let mut history = History::open(folder).unwrap();
        for round in rounds {
            history.push(round);
            history.write().unwrap();
        }
        history
    }

    fn streak(runs: usize, under_load: usize, commits: &[(&str, usize)]) -> Streak {
        Streak { runs, under_load, commits: commits.iter().map(|&(name, runs)| (name.to_owned(), runs)).collect() }
    }

    #[test]
    fn runs_of_a_later_call_are_added_and_each_counts_for_its_commit() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(History::open(folder.path()).unwrap().streak(), streak(0, 0, &[]));
        call(folder.path(), &[sound("aaa"), failing("aaa"), sound("bbb")]);
        let loaded = round("ccc", true, Tally { passed: 7, skipped: 2, ..Tally::default() });
        let history = call(folder.path(), &[sound("ccc"), loaded]);
        assert_eq!((history.count(), history.streak()), (5, streak(3, 1, &[("ccc", 2), ("bbb", 1)])));
        let page = std::fs::read_to_string(folder.path().join("suite.md")).unwrap();
        assert!(
            page.contains(
                "**The last 3 runs of the whole suite had no failure, 1 of them under load: 2 of `ccc`, 1 of `bbb`.**"
            ),
            "{page}"
        );
        for row in [
            "| 1 | 2026-11-28 09:45 | `aaa` | all | none | 8 | 0 | 0 | 3.0 |\n",
            "| 2 | 2026-11-28 09:45 | `aaa` | all | none | 7 | 1 | 0 | 3.0 |\n",
            "| 5 | 2026-11-28 09:45 | `ccc` | all | all processors taken | 8 | 0 | 2 | 3.0 |\n",
            "\nRun 2: cargo test: `a_test` failed.\n",
        ] {
            assert!(page.contains(row), "{row}{page}");
        }
        let kept = std::fs::read(folder.path().join("suite.json")).unwrap();
        call(folder.path(), &[]).write().unwrap();
        assert!(std::fs::read(folder.path().join("suite.json")).unwrap() == kept, "no run changes by being kept");
        let history = call(folder.path(), &[failing("ccc")]);
        assert_eq!(history.streak(), streak(0, 0, &[]));
        assert!(history.page().contains("**No run of the whole suite since the latest failure.**"));
    }

    #[test]
    fn a_part_of_the_suite_and_changes_in_no_commit_do_not_count_and_end_a_row_only_if_they_fail() {
        let folder = tempfile::tempdir().unwrap();
        let part = |round: Round| Round { part: Some("without bench".into()), ..round };
        let changed = |mut round: Round| {
            round.origin.has_changes = true;
            round
        };
        let nameless = Round { origin: Origin::default(), ..sound("") };
        let runs = [sound("aaa"), part(sound("aaa")), changed(sound("aaa")), nameless, sound("aaa")];
        assert_eq!(call(folder.path(), &runs).streak(), streak(2, 0, &[("aaa", 2)]));
        let page = std::fs::read_to_string(folder.path().join("suite.md")).unwrap();
        assert!(page.contains("| `aaa` | without bench |") && page.contains("| `aaa` and changes | all |"), "{page}");
        let history = call(folder.path(), &[part(failing("aaa")), sound("bbb")]);
        assert_eq!(history.streak(), streak(1, 0, &[("bbb", 1)]));
    }

    #[test]
    fn a_file_that_has_no_runs_of_the_suite_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        for text in ["{\"experiment\": \"server\", \"runs\": []}", "{\"experiment\": \"suite\"}", "no JSON"] {
            std::fs::write(folder.path().join("suite.json"), text).unwrap();
            let refusal = History::open(folder.path()).err().unwrap();
            assert!(format!("{refusal:#}").contains("suite.json"), "{refusal:#}");
        }
        assert!(History::open(Path::new("/no/such/folder")).unwrap().write().is_err());
    }

    #[test]
    fn the_page_that_is_kept_is_made_of_the_runs_that_are_kept() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/results");
        let history = History::open(&folder).unwrap();
        assert_eq!(std::fs::read_to_string(folder.join("suite.md")).unwrap(), history.page());
        assert_eq!(
            std::fs::read_to_string(folder.join("suite.json")).unwrap(),
            format!("{:#}\n", history.report()),
            "the runs' own fields stay, the rest follows from them"
        );
    }

    #[test]
    fn the_report_tells_its_goals_and_no_value_before_the_first_run() {
        let folder = tempfile::tempdir().unwrap();
        let empty = History::open(folder.path()).unwrap().report();
        assert_eq!((&empty["results"][0]["value"], &empty["results"][1]["goal"]), (&Value::Null, &json!(4)));
        let report = call(folder.path(), &[sound("aaa")]).report();
        assert_eq!((&report["results"][0]["value"], &report["results"][1]["value"]), (&json!(1), &json!(0)));
    }
}
