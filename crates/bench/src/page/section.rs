//! What a page tells of one experiment: of each figure the newest value, and what came before.
//!
//! Relies on runs of one experiment naming a figure alike. A full run goes before a quick one, a value before none.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::figure::{FigureRecord, Verdict};
use super::plot::Plot;
use super::results::{Results, Run};
use crate::list::EXPERIMENTS;

/// Plots whose names do not begin with their experiment's.
const PLOTS: &[(&str, &str)] = &[("latency", "server"), ("types", "types")];

/// A figure and the run that it is of.
pub type Measured<'a> = (&'a Run, &'a FigureRecord);

/// An experiment's part of the page.
#[derive(Debug)]
pub struct Section<'a> {
    /// The experiment.
    pub name: &'a str,
    /// What it sets beside what; empty if no such experiment is known.
    pub about: &'static str,
    /// Its runs, the most telling first.
    pub runs: Vec<&'a Run>,
    /// The best known value of each figure.
    pub figures: Vec<Measured<'a>>,
    /// Other values of these figures.
    pub others: Vec<Measured<'a>>,
    /// Its plots.
    pub plots: Vec<&'a Plot>,
}

impl<'a> Section<'a> {
    /// All sections, in the order of `quire bench list`.
    pub fn all(results: &'a Results) -> Vec<Self> {
        let mut by_name: BTreeMap<(usize, &str), Vec<&Run>> = BTreeMap::new();
        for run in &results.runs {
            let name = run.experiment.as_str();
            let place = EXPERIMENTS.iter().position(|entry| entry.name == name).unwrap_or(EXPERIMENTS.len());
            by_name.entry((place, name)).or_default().push(run);
        }
        by_name.into_iter().map(|((_, name), runs)| Self::new(name, runs, &results.plots)).collect()
    }

    fn new(name: &'a str, mut runs: Vec<&'a Run>, plots: &'a [Plot]) -> Self {
        runs.sort_by_key(|run| (run.is_quick(), Reverse(run.unix_time_s())));
        let (mut places, mut figures, mut others) = (BTreeMap::new(), Vec::<Measured>::new(), Vec::new());
        for (run, figure) in runs.iter().flat_map(|run| run.figures.iter().map(|figure| (*run, figure))) {
            match places.get(figure.name.as_str()) {
                None => {
                    places.insert(figure.name.as_str(), figures.len());
                    figures.push((run, figure));
                }
                Some(&place) if figures[place].1.value.is_none() && figure.value.is_some() => {
                    others.push(std::mem::replace(&mut figures[place], (run, figure)));
                }
                Some(_) => others.push((run, figure)),
            }
        }
        Self {
            name,
            about: EXPERIMENTS.iter().find(|entry| entry.name == name).map_or("", |entry| entry.about),
            runs,
            figures,
            others,
            plots: plots.iter().filter(|plot| is_plot_of(&plot.name, name)).collect(),
        }
    }

    /// How many of its figures have the verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.figures.iter().filter(|(_, figure)| figure.verdict() == verdict).count()
    }
}

/// Plots of no section.
pub fn other_plots<'a>(results: &'a Results, sections: &[Section]) -> Vec<&'a Plot> {
    let is_shown = |plot: &&Plot| sections.iter().any(|section| is_plot_of(&plot.name, section.name));
    results.plots.iter().filter(|plot| !is_shown(plot)).collect()
}

fn is_plot_of(plot: &str, experiment: &str) -> bool {
    let begins = |word: &str| plot.strip_prefix(word).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
    begins(experiment) || PLOTS.iter().any(|(word, owner)| *owner == experiment && begins(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, json};

    fn run(file: &str, quick: bool, time: i64, figures: &[(&str, Option<f64>)]) -> Run {
        let map = |value: serde_json::Value| value.as_object().cloned().unwrap_or_else(Map::new);
        let figure =
            |&(name, value): &(&str, Option<f64>)| FigureRecord { name: name.into(), value, ..FigureRecord::default() };
        Run {
            file: file.into(),
            experiment: "server".into(),
            machine: map(json!({"unix_time_s": time})),
            scale: map(json!({"quick": quick})),
            figures: figures.iter().map(figure).collect(),
            ..Run::default()
        }
    }

    #[test]
    fn of_each_figure_the_newest_value_of_a_full_run_is_shown() {
        let runs = vec![
            run("old", false, 1, &[("a", Some(1.0)), ("b", Some(1.0))]),
            run("recent", false, 2, &[("a", Some(2.0)), ("b", None)]),
            run("quick", true, 3, &[("a", Some(3.0)), ("c", Some(3.0))]),
        ];
        let results = Results { runs, ..Results::default() };
        let sections = Section::all(&results);
        let shown: Vec<_> =
            sections[0].figures.iter().map(|(run, figure)| (figure.name.as_str(), run.file.as_str())).collect();
        assert_eq!(shown, [("a", "recent"), ("b", "old"), ("c", "quick")]);
        assert_eq!(sections[0].others.len(), 3);
        assert_eq!(sections[0].count(Verdict::NoGoal), 3);
    }

    #[test]
    fn a_plot_belongs_to_the_experiment_that_its_name_begins_with() {
        assert!(
            is_plot_of("ccow-throughput", "ccow")
                && is_plot_of("latency-quire", "server")
                && is_plot_of("latency", "server")
        );
        assert!(!is_plot_of("ccowx", "ccow") && !is_plot_of("latency", "ccow"));
    }
}
