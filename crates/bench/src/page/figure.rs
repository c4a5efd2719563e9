//! A figure as a run's JSON tells it, and whether it reached its goal.
//!
//! Relies on nothing of the JSON: what is missing or of another type is absent.

use serde_json::Value;

use crate::format::format_with_unit;

/// What became of a figure's goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was reached.
    Reached,
    /// It was missed.
    Missed,
    /// A small run could not tell.
    LeftOut,
    /// There is no value.
    NotMeasured,
    /// There is no goal.
    NoGoal,
}

impl Verdict {
    /// The words on the page.
    pub fn words(self) -> &'static str {
        match self {
            Self::Reached => "✓ goal reached",
            Self::Missed => "✗ goal missed",
            Self::LeftOut => "left out of a quick run",
            Self::NotMeasured => "not measured",
            Self::NoGoal => "no goal",
        }
    }

    /// The style's name.
    pub fn class(self) -> &'static str {
        match self {
            Self::Reached => "reached",
            Self::Missed => "missed",
            Self::LeftOut | Self::NotMeasured | Self::NoGoal => "open",
        }
    }
}

/// A figure.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FigureRecord {
    /// Its stable name.
    pub name: String,
    /// What was measured.
    pub value: Option<f64>,
    /// Its unit.
    pub unit: String,
    /// What it should reach.
    pub goal: Option<f64>,
    /// Whether larger values are better.
    pub is_higher_better: bool,
    /// The values behind it, by name.
    pub peers: Vec<(String, Option<f64>)>,
    /// What the machine itself reaches, and its value.
    pub bound: Option<(String, f64)>,
    /// Why nothing physical bounds it.
    pub no_bound: String,
    /// Least and most of its measurements.
    pub spread: Option<[f64; 2]>,
    /// How it was measured.
    pub note: String,
    /// A small run could not tell it.
    pub is_left_out: bool,
}

impl FigureRecord {
    /// The figure in `json`; nothing if it has no name.
    pub fn read(json: &Value) -> Option<Self> {
        let text = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
        let name = json["name"].as_str().filter(|name| !name.is_empty())?.to_owned();
        let peers = json["peer"].as_object().into_iter().flatten();
        let bound = json["bound"]["value"].as_f64().zip(json["bound"]["name"].as_str());
        Some(Self {
            name,
            value: json["value"].as_f64(),
            unit: text("unit"),
            goal: json["goal"].as_f64(),
            is_higher_better: json["better"] == "higher",
            peers: peers.map(|(name, value)| (name.clone(), value.as_f64())).collect(),
            bound: bound.map(|(value, name)| (name.to_owned(), value)),
            no_bound: text("no_bound"),
            spread: json["spread"][0].as_f64().zip(json["spread"][1].as_f64()).map(|(least, most)| [least, most]),
            note: text("note"),
            is_left_out: json["left_out"] == true,
        })
    }

    /// All figures in a list.
    pub fn read_all(list: &Value) -> Vec<Self> {
        list.as_array().into_iter().flatten().filter_map(Self::read).collect()
    }

    /// What became of its goal.
    pub fn verdict(&self) -> Verdict {
        match (self.value, self.goal) {
            (None, _) if self.is_left_out => Verdict::LeftOut,
            (None, _) => Verdict::NotMeasured,
            (Some(_), None) => Verdict::NoGoal,
            (Some(value), Some(goal)) if value == goal || (value > goal) == self.is_higher_better => Verdict::Reached,
            (Some(_), Some(_)) => Verdict::Missed,
        }
    }

    /// `value` in this figure's unit.
    pub fn in_unit(&self, value: f64) -> String {
        match self.unit.as_str() {
            "x" => format!("{} ×", format_with_unit(value, "")),
            "us" => format_with_unit(value * 1e3, "ns"),
            unit => format_with_unit(value, unit),
        }
    }

    /// The goal with its sign.
    pub fn goal_words(&self) -> Option<String> {
        let sign = if self.is_higher_better { "≥" } else { "≤" };
        self.goal.map(|goal| format!("{sign} {}", self.in_unit(goal)))
    }

    /// The name in words.
    pub fn title(&self) -> String {
        self.name.replace('_', " ")
    }
}

/// The name of a value behind a figure, and the value; what the name's ending says of the unit is said by the value.
pub fn peer_words((name, value): &(String, Option<f64>)) -> (String, String) {
    let unit = if name.ends_with("_ns") { "ns" } else { "" };
    let shown = value.map_or_else(|| "–".to_owned(), |value| format_with_unit(value, unit));
    (name.strip_suffix("_ns").unwrap_or(name).replace('_', " "), shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_verdict_goes_by_the_better_direction_and_by_what_there_is() {
        let verdict = |value: Value, goal: Value, better: &str| {
            FigureRecord::read(&json!({"name": "a", "value": value, "goal": goal, "better": better})).unwrap().verdict()
        };
        assert_eq!(verdict(json!(2), json!(1), "higher"), Verdict::Reached);
        assert_eq!(verdict(json!(2), json!(1), "lower"), Verdict::Missed);
        assert_eq!(verdict(json!(1), json!(1), "lower"), Verdict::Reached);
        assert_eq!(verdict(json!(1), Value::Null, "lower"), Verdict::NoGoal);
        assert_eq!(verdict(Value::Null, json!(1), "lower"), Verdict::NotMeasured);
        let left_out = json!({"name": "a", "value": null, "goal": 1, "left_out": true});
        assert_eq!(FigureRecord::read(&left_out).unwrap().verdict(), Verdict::LeftOut);
    }

    #[test]
    fn what_is_of_another_type_is_absent() {
        let odd = json!({"name": "a", "value": "1", "unit": 3, "peer": [1], "bound": 7, "spread": ["x"], "note": {}});
        assert_eq!(FigureRecord::read(&odd), Some(FigureRecord { name: "a".into(), ..FigureRecord::default() }));
        assert_eq!(FigureRecord::read(&json!({"name": ""})), None);
        assert_eq!(FigureRecord::read_all(&json!({"a": 1})), []);
    }

    #[test]
    fn values_and_goals_are_told_in_their_unit() {
        let figure =
            FigureRecord { unit: "x".into(), goal: Some(1.2), is_higher_better: true, ..FigureRecord::default() };
        assert_eq!(figure.goal_words().unwrap(), "≥ 1.2 ×");
        let figure = FigureRecord { unit: "ns".into(), goal: Some(10_000.0), ..FigureRecord::default() };
        assert_eq!(figure.goal_words().unwrap(), "≤ 10.0 µs");
        let figure = FigureRecord { unit: "us".into(), goal: Some(146_600.0), ..FigureRecord::default() };
        assert_eq!(figure.goal_words().unwrap(), "≤ 147 ms");
        assert_eq!(peer_words(&("fork_longest_ns".into(), Some(1234.0))), ("fork longest".into(), "1.23 µs".into()));
    }
}
