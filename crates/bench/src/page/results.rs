//! What a folder of results holds: runs, plots, and files that are left out of the page.
//!
//! Relies on nothing of the files: each is read within a limit, and what is no run or no plot is named with the reason.

use std::io::Read as _;
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::{Map, Value};

use super::figure::FigureRecord;
use super::plot::Plot;

/// Larger files are no results.
const MOST_BYTES: u64 = 16 << 20;
/// More files than any run writes.
const MOST_FILES: usize = 2000;

/// A run of an experiment.
#[derive(Debug, Default)]
pub struct Run {
    /// The file that tells it.
    pub file: String,
    /// The experiment.
    pub experiment: String,
    /// Where it ran.
    pub machine: Map<String, Value>,
    /// At what size.
    pub scale: Map<String, Value>,
    /// What was called, if the run says it.
    pub command: String,
    /// Figures with goals.
    pub figures: Vec<FigureRecord>,
    /// Figures for information.
    pub info: Vec<FigureRecord>,
}

impl Run {
    fn read(file: &str, text: &str) -> Result<Self, String> {
        let json: Value = serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}"))?;
        let experiment = json["experiment"].as_str().filter(|name| !name.is_empty());
        let (Some(experiment), true) = (experiment, json["results"].is_array()) else {
            return Err("it is no report of `quire bench`".into());
        };
        let map = |name: &str| json[name].as_object().cloned().unwrap_or_default();
        Ok(Self {
            file: file.to_owned(),
            experiment: experiment.to_owned(),
            machine: map("machine"),
            scale: map("scale"),
            command: json["command"].as_str().unwrap_or_default().to_owned(),
            figures: FigureRecord::read_all(&json["results"]),
            info: FigureRecord::read_all(&json["info"]),
        })
    }

    /// Whether it was a small run.
    pub fn is_quick(&self) -> bool {
        self.scale.get("quick").is_some_and(|quick| *quick == true)
    }

    /// When it ran, in seconds since 1970; 0 if it does not say.
    pub fn unix_time_s(&self) -> i64 {
        self.machine.get("unix_time_s").and_then(Value::as_i64).unwrap_or(0)
    }

    /// The day it ran (UTC).
    pub fn day(&self) -> String {
        match time::OffsetDateTime::from_unix_timestamp(self.unix_time_s()) {
            Ok(time) if self.unix_time_s() > 0 => time.date().to_string(),
            _ => "no date".to_owned(),
        }
    }

    /// What to call to measure the same again.
    pub fn called(&self) -> String {
        if !self.command.is_empty() {
            return self.command.clone();
        }
        let quick = if self.is_quick() { " --quick" } else { "" };
        format!("quire bench {}{quick}", self.experiment)
    }

    /// The machine in a line.
    pub fn place(&self) -> String {
        let word = |name: &str| match self.machine.get(name) {
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
            None => "?".to_owned(),
        };
        format!(
            "{} cores of {}, {} MiB, Linux {}, {} on {}",
            word("cores"),
            word("processor"),
            word("memory_mib"),
            word("kernel"),
            word("data_file_system"),
            word("data_device")
        )
    }
}

/// All of a folder.
#[derive(Debug, Default)]
pub struct Results {
    /// The runs, in the order of their files' names.
    pub runs: Vec<Run>,
    /// The plots, in the order of their files' names.
    pub plots: Vec<Plot>,
    /// Files that are neither, and why.
    pub left_out: Vec<(String, String)>,
}

impl Results {
    /// Reads `folder`, without the folders in it.
    pub fn read(folder: &Path) -> anyhow::Result<Self> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder).with_context(|| {
            format!("reading {} (--from names a folder with files of `quire bench NAME --json FILE`)", folder.display())
        })? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.ends_with(".json") || name.ends_with(".svg") {
                names.push(name);
            }
            if names.len() > MOST_FILES {
                bail!("{} has more than {MOST_FILES} files; name a folder of results", folder.display());
            }
        }
        names.sort();
        let mut results = Self::default();
        for name in names {
            results.add(&folder.join(&name), &name);
        }
        if results.runs.is_empty() {
            bail!("{} holds no run; `quire bench server --json FILE` writes one", folder.display());
        }
        Ok(results)
    }

    fn add(&mut self, path: &Path, name: &str) {
        let added = content(path).and_then(|text| match name.strip_suffix(".svg") {
            Some(stem) => Plot::read(stem, &text).map(|plot| self.plots.push(plot)),
            None => Run::read(name, &text).map(|run| self.runs.push(run)),
        });
        if let Err(why) = added {
            self.left_out.push((name.to_owned(), why));
        }
    }
}

/// A file's text, if it is a regular file of a sensible size.
fn content(path: &Path) -> Result<String, String> {
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    if !file.metadata().is_ok_and(|found| found.is_file()) {
        return Err("it is no file".into());
    }
    let mut text = String::new();
    let read = file.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if read as u64 > MOST_BYTES {
        return Err(format!("it is larger than {} MiB", MOST_BYTES >> 20));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = r#"{"experiment": "server", "machine": {"cores": 2, "unix_time_s": 1795481090},
        "scale": {"quick": true}, "results": [{"name": "a", "value": 1.0}], "info": []}"#;

    #[test]
    fn a_run_says_when_where_and_by_what_it_was_made() {
        let run = Run::read("a.json", RUN).unwrap();
        assert_eq!((run.day().as_str(), run.called().as_str()), ("2026-11-24", "quire bench server --quick"));
        assert!(run.place().starts_with("2 cores of ?, ? MiB"), "{}", run.place());
        let told = Run { command: "quire bench server --keys 5".into(), ..Run::default() };
        assert_eq!((told.called().as_str(), told.day().as_str()), ("quire bench server --keys 5", "no date"));
    }

    #[test]
    fn what_is_neither_run_nor_plot_is_named_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let deep = "[".repeat(100_000);
        let files = [
            ("run.json", RUN),
            ("list.json", "[]"),
            ("torn.json", "{"),
            ("deep.json", &deep),
            ("plot.svg", "<p/>"),
            ("n.txt", ""),
        ];
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        std::fs::create_dir(dir.path().join("folder.json")).unwrap();
        let results = Results::read(dir.path()).unwrap();
        assert_eq!((results.runs.len(), results.plots.len()), (1, 0));
        let names: Vec<&str> = results.left_out.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["deep.json", "folder.json", "list.json", "plot.svg", "torn.json"]);
    }
}
