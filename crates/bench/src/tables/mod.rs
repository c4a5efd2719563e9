//! `quire bench tables`: the documents of results, made from the JSON of earlier runs.
//!
//! Relies on the contract in [`crate::report`], and on the list of experiments for their order and what they are.

mod compare;
mod markdown;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::list::EXPERIMENTS;

/// What the command does, in a line.
pub const ABOUT: &str = "The figures of earlier runs as Markdown, or the change from one run to another";

/// Which runs.
#[derive(Debug, Clone, clap::Args)]
pub struct TablesArgs {
    /// The JSON of a run; given several times, the runs come in the order of `quire bench list`
    #[arg(long, value_name = "FILE", required = true)]
    pub from: Vec<PathBuf>,
    /// The JSON of a later run of the same experiment: one table of what was before and is after, with their ratio
    #[arg(long, value_name = "FILE")]
    pub beside: Option<PathBuf>,
}

/// Prints the tables that `args` ask for.
///
/// # Errors
/// When a file can't be read or is no report, or when two runs are of different experiments.
pub fn run(args: &TablesArgs) -> anyhow::Result<()> {
    quire_sys::out!("{}", text(args)?)?;
    Ok(())
}

fn text(args: &TablesArgs) -> anyhow::Result<String> {
    let no_report = |file: &Path| format!("{} is no report of `quire bench`", file.display());
    if let Some(beside) = &args.beside {
        let [from] = args.from.as_slice() else { bail!("--beside compares two runs: give one --from") };
        let (before, after) = (read(from)?, read(beside)?);
        let (one, other) = (&before["experiment"], &after["experiment"]);
        if one != other {
            bail!(
                "{} is a run of {one} and {} one of {other}; compare runs of one experiment",
                from.display(),
                beside.display()
            );
        }
        return compare::of(&before, &after).with_context(|| no_report(from));
    }
    let mut reports = args.from.iter().map(|file| Ok((file, read(file)?))).collect::<anyhow::Result<Vec<_>>>()?;
    reports.sort_by_key(|(_, report)| {
        EXPERIMENTS.iter().position(|entry| report["experiment"] == entry.name).unwrap_or(EXPERIMENTS.len())
    });
    let tables = reports.iter().map(|(file, report)| markdown::of(report).with_context(|| no_report(file)));
    Ok(tables.collect::<anyhow::Result<Vec<_>>>()?.join("\n"))
}

fn read(file: &Path) -> anyhow::Result<Value> {
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not JSON", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{BetterDirection, Figure, Report};
    use serde_json::Map;

    fn written(dir: &Path, experiment: &'static str, value: f64) -> PathBuf {
        let path = dir.join(format!("{experiment}-{value}.json"));
        let results = vec![Figure::new("a_ratio", value, "x", BetterDirection::Higher)];
        std::fs::write(&path, Report { results, ..Report::new(experiment, Map::new()) }.json()).unwrap();
        path
    }

    #[test]
    fn several_runs_come_in_the_order_of_the_list() {
        let dir = tempfile::tempdir().unwrap();
        let from = ["wcache", "server", "ccow"].map(|name| written(dir.path(), name, 1.0)).to_vec();
        let text = text(&TablesArgs { from, beside: None }).unwrap();
        let place = |name: &str| text.find(&format!("`quire bench {name}`: ")).unwrap();
        assert!(place("server") < place("ccow") && place("ccow") < place("wcache"), "{text}");
    }

    #[test]
    fn runs_of_different_experiments_are_not_compared() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (written(dir.path(), "server", 1.0), written(dir.path(), "ccow", 1.0));
        let compared = |from: Vec<PathBuf>, beside: &PathBuf| text(&TablesArgs { from, beside: Some(beside.clone()) });
        assert!(compared(vec![one.clone()], &two).unwrap_err().to_string().contains("one experiment"));
        assert!(compared(vec![one.clone(), two], &one).unwrap_err().to_string().contains("one --from"));
        let later = written(dir.path(), "server", 2.0);
        assert!(compared(vec![one], &later).unwrap().contains("| `a_ratio` | 1 x | 2 x | 2.000 |"));
    }

    #[test]
    fn a_file_that_is_no_report_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("other.json");
        std::fs::write(&path, "{\"a\": 1}").unwrap();
        let refused = text(&TablesArgs { from: vec![path], beside: None }).unwrap_err().to_string();
        assert!(refused.contains("other.json") && refused.contains("no report"), "{refused}");
    }
}
