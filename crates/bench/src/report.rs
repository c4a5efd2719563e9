//! Figures with their goals: the table for people and the JSON that is the contract for every experiment.
//!
//! Relies on [`Figure`] names being stable: other tools find figures by name. Contract:
//! `{"experiment", "machine": {…}, "results": [{"name", "value", "unit", "goal", "better", "peer": {name: value}}]}`;
//! what goes beyond it (`spread`, `bound`, `no_bound`, `left_out`, `note`, `command`, `scale`, `info`) may change. A value is null where something can't be measured here, or where a small run can't tell it (`left_out`).

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::format::rounded;
use crate::stats::Spread;

/// Which direction is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BetterDirection {
    /// Larger values are better.
    Higher,
    /// Smaller values are better.
    Lower,
}

/// One figure.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    /// Its stable name.
    pub name: String,
    /// What was measured.
    pub value: f64,
    /// The unit, `x` for ratios.
    pub unit: &'static str,
    /// What it should reach; absent for figures that only inform.
    pub goal: Option<f64>,
    /// Which direction is good.
    pub better: BetterDirection,
    /// The peers' values behind it, and ours where `value` is a ratio.
    pub peer: Map<String, Value>,
    /// Least and most of the repeated measurements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<[f64; 2]>,
    /// What the machine itself can do of the same, measured in the same run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    /// Why nothing physical bounds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_bound: Option<&'static str>,
    /// How it was measured, where that is not plain.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// A small run cannot tell it, so it has no value and neither reaches nor misses its goal.
    #[serde(skip_serializing_if = "is_false")]
    pub left_out: bool,
}

/// A physical bound of a figure, in the figure's unit: what the device by itself, or an empty loop, reaches.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bound {
    /// What sets it.
    pub name: String,
    /// Its value.
    pub value: f64,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Figure {
    /// A figure without goal, peers or note.
    pub fn new(name: impl Into<String>, value: f64, unit: &'static str, better: BetterDirection) -> Self {
        Self {
            name: name.into(),
            value: rounded(value),
            unit,
            goal: None,
            better,
            peer: Map::new(),
            spread: None,
            bound: None,
            no_bound: None,
            note: String::new(),
            left_out: false,
        }
    }

    /// The figure with a goal.
    pub fn goal(mut self, goal: f64) -> Self {
        self.goal = Some(goal);
        self
    }

    /// The figure with one more named value behind it.
    pub fn peer(mut self, name: &str, value: f64) -> Self {
        self.peer.insert(name.to_owned(), Value::from(rounded(value)));
        self
    }

    /// The figure with the spread of its measurements.
    pub fn spread(mut self, spread: Spread) -> Self {
        self.spread = Some([rounded(spread.least), rounded(spread.most)]);
        self
    }

    /// The figure with a remark.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// The figure with its physical bound: `value` is what `name` reached in the same run. What was not measured bounds nothing.
    pub fn bound(mut self, name: impl Into<String>, value: f64) -> Self {
        self.bound = value.is_finite().then(|| Bound { name: name.into(), value: rounded(value) });
        self
    }

    /// The figure without its value, and why a small run cannot tell it. What is behind it stays.
    pub fn leave_out(&mut self, reason: &str) {
        self.left_out = true;
        self.value = f64::NAN;
        self.spread = None;
        let own = if self.note.is_empty() { String::new() } else { format!("; {}", self.note) };
        self.note = format!("left out of a quick run: {reason}{own}");
    }

    /// Whether the goal is reached; `None` without a goal, and for a figure that a small run left out.
    pub fn reached(&self) -> Option<bool> {
        self.goal.filter(|_| !self.left_out).map(|goal| match self.better {
            BetterDirection::Higher => self.value >= goal,
            BetterDirection::Lower => self.value <= goal,
        })
    }
}

/// All results of one run of an experiment.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The experiment's name.
    pub experiment: &'static str,
    /// Where it ran.
    pub machine: Map<String, Value>,
    /// What was called; empty for what no command line began.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// At what size it ran.
    pub scale: Map<String, Value>,
    /// The figures with goals.
    pub results: Vec<Figure>,
    /// Further figures, to understand the others by.
    pub info: Vec<Figure>,
}

impl Report {
    /// A report of `experiment` without figures.
    pub fn new(experiment: &'static str, machine: Map<String, Value>) -> Self {
        Self { experiment, machine, command: String::new(), scale: Map::new(), results: Vec::new(), info: Vec::new() }
    }

    /// The JSON form, ending in a newline.
    pub fn json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("names are strings and values numbers");
        text.push('\n');
        text
    }

    /// The table for people.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let scale: Vec<String> = self.scale.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let _ = writeln!(text, "\nquire bench {}   {}", self.experiment, scale.join(" "));
        let _ = writeln!(text, "{:<34} {:>12} {:<6} {:>10}  {:<6} behind it", "figure", "value", "unit", "goal", "");
        for figure in &self.results {
            write_row(&mut text, figure);
        }
        if !self.info.is_empty() {
            let _ = writeln!(text, "for information");
        }
        for figure in &self.info {
            write_row(&mut text, figure);
        }
        let reached = self.results.iter().filter(|figure| figure.reached() == Some(true)).count();
        let with_goal = self.results.iter().filter(|figure| figure.reached().is_some()).count();
        let _ = writeln!(text, "{reached} of {with_goal} goals reached");
        let left_out = self.results.iter().filter(|figure| figure.left_out).count();
        if left_out > 0 {
            let _ = writeln!(text, "{left_out} figures left out: a run without --quick tells them");
        }
        text
    }
}

fn write_row(text: &mut String, figure: &Figure) {
    let value = match figure.value {
        _ if figure.left_out => "left out".to_owned(),
        value if value.is_nan() => "none".to_owned(),
        value => value.to_string(),
    };
    let sign = if figure.better == BetterDirection::Higher { "≥" } else { "≤" };
    let goal = figure.goal.map_or(String::new(), |goal| format!("{sign} {goal}"));
    let verdict = match figure.reached() {
        Some(true) => "ok",
        Some(false) => "MISSED",
        None => "",
    };
    let mut behind: Vec<String> = figure.peer.iter().map(|(name, value)| format!("{name} {value}")).collect();
    if let Some(Bound { name, value }) = &figure.bound {
        behind.push(format!("bound {value} {} ({name})", figure.unit));
    }
    if let Some(why) = figure.no_bound {
        behind.push(format!("(no bound: {why})"));
    }
    if let Some([least, most]) = figure.spread {
        behind.push(format!("({least} … {most})"));
    }
    if !figure.note.is_empty() {
        behind.push(format!("[{}]", figure.note));
    }
    let _ = writeln!(
        text,
        "{:<34} {:>12} {:<6} {goal:>10}  {verdict:<6} {}",
        figure.name,
        value,
        figure.unit,
        behind.join("  ")
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let ratio =
            Figure::new("set_p1_ratio", 1.23456, "x", BetterDirection::Higher).goal(1.0).peer("redis-server", 85_000.0);
        let stall = Figure::new("cut_stall_us", 250.0, "µs", BetterDirection::Lower).goal(200.0);
        Report { results: vec![ratio, stall], ..Report::new("server", Map::new()) }
    }

    #[test]
    fn the_json_keeps_the_contract() {
        let value: Value = serde_json::from_str(&report().json()).unwrap();
        assert_eq!(value["experiment"], "server");
        assert!(value["machine"].is_object());
        let first = &value["results"][0];
        assert_eq!(first["name"], "set_p1_ratio");
        assert_eq!(first["value"], 1.235);
        assert_eq!((first["unit"].as_str(), first["better"].as_str()), (Some("x"), Some("higher")));
        assert_eq!((first["goal"].as_f64(), first["peer"]["redis-server"].as_f64()), (Some(1.0), Some(85_000.0)));
    }

    #[test]
    fn the_table_says_what_was_missed() {
        let table = report().table();
        assert!(table.contains("MISSED") && table.contains("1 of 2 goals reached"), "{table}");
    }

    #[test]
    fn a_figure_that_is_left_out_has_no_value_and_no_verdict_but_its_reason() {
        let mut report = report();
        report.results[1].leave_out("too little data");
        assert_eq!(report.results[1].reached(), None);
        let table = report.table();
        assert!(table.contains("left out of a quick run: too little data"), "{table}");
        assert!(table.contains("1 of 1 goals reached") && table.contains("1 figures left out"), "{table}");
        assert!(!table.contains("MISSED"), "{table}");
        let value: Value = serde_json::from_str(&report.json()).unwrap();
        assert!(value["results"][1]["value"].is_null() && value["results"][1]["left_out"] == true);
        assert!(value["results"][0].get("left_out").is_none());
    }

    #[test]
    fn a_bound_is_shown_beside_its_figure() {
        let mut report = report();
        report.results[0] = report.results[0].clone().bound("device at depth 64", 2.34567);
        assert!(report.table().contains("bound 2.346 x (device at depth 64)"), "{}", report.table());
        let value: Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(value["results"][0]["bound"]["value"], 2.346);
        assert_eq!(report.results[1].clone().bound("not measured", f64::NAN).bound, None);
    }
}
