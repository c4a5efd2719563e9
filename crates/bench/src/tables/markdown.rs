//! The tables of a report as Markdown, made from its JSON, for `docs/results`.
//!
//! Relies on the contract in [`crate::report`]. Times are written in the unit that suits them, everything else as it is.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::format::format_with_unit;
use crate::list::EXPERIMENTS;

/// The tables of `report`; nothing if it is none.
pub fn of(report: &Value) -> Option<String> {
    let mut text = String::new();
    let machine = &report["machine"];
    let word = |name: &str| machine[name].as_str().map_or_else(|| machine[name].to_string(), str::to_owned);
    let experiment = report["experiment"].as_str()?;
    // `quire measure` writes such a report, too.
    if let Some(entry) = EXPERIMENTS.iter().find(|entry| entry.name == experiment) {
        let _ = write!(text, "`quire bench {experiment}`: {}. ", entry.about);
    }
    let _ = writeln!(
        text,
        "On {} cores of {}, {} MiB, Linux {}.\n",
        word("cores"),
        word("processor"),
        word("memory_mib"),
        word("kernel")
    );
    text.push_str("| figure | value | goal | | behind it |\n|---|---|---|---|---|\n");
    for figure in report["results"].as_array()? {
        goal_row(&mut text, figure);
    }
    for group in groups(report["info"].as_array()?) {
        text.push('\n');
        group_table(&mut text, &group);
    }
    Some(text)
}

fn name(figure: &Value) -> &str {
    figure["name"].as_str().unwrap_or_default()
}

fn goal_row(text: &mut String, figure: &Value) {
    let unit = figure["unit"].as_str().unwrap_or_default();
    let (value, goal) = (figure["value"].as_f64(), figure["goal"].as_f64());
    let higher = figure["better"] == "higher";
    let verdict = match (value, goal) {
        (Some(value), Some(goal)) if (value >= goal) == higher || value == goal => "reached",
        (_, Some(_)) if figure["left_out"] != true => "missed",
        _ => "",
    };
    let goal = goal
        .map_or(String::new(), |goal| format!("{} {}", if higher { "≥" } else { "≤" }, format_with_unit(goal, unit)));
    let peers = figure["peer"].as_object().into_iter().flatten();
    let mut behind: Vec<String> = peers.map(|(name, value)| format!("{} {}", words(name), cell(name, value))).collect();
    if let (Some(bound), Some(what)) = (figure["bound"]["value"].as_f64(), figure["bound"]["name"].as_str()) {
        behind.push(format!("bound {} ({what})", format_with_unit(bound, unit)));
    }
    if let Some(why) = figure["no_bound"].as_str() {
        behind.push(format!("no bound: {why}"));
    }
    if let Some(note) = figure["note"].as_str() {
        behind.push(note.to_owned());
    }
    let missing = if figure["left_out"] == true { "left out" } else { "not measured" };
    let value = value.map_or(missing.into(), |value| format_with_unit(value, unit));
    let _ = writeln!(text, "| `{}` | {value} | {goal} | {verdict} | {} |", name(figure), behind.join("; "));
}

/// Neighbouring figures with the same peers make one table.
fn groups(figures: &[Value]) -> Vec<Vec<&Value>> {
    let keys = |figure: &Value| -> Vec<String> { peers(figure).keys().cloned().collect() };
    let mut groups: Vec<Vec<&Value>> = Vec::new();
    for figure in figures {
        match groups.iter_mut().find(|group| keys(group[0]) == keys(figure)) {
            Some(group) => group.push(figure),
            None => groups.push(vec![figure]),
        }
    }
    groups
}

fn peers(figure: &Value) -> Map<String, Value> {
    figure["peer"].as_object().cloned().unwrap_or_default()
}

fn group_table(text: &mut String, group: &[&Value]) {
    let columns: Vec<String> = peers(group[0]).keys().cloned().collect();
    let heads: String = columns.iter().map(|name| format!(" {} |", words(name))).collect();
    let _ = writeln!(text, "| | value |{heads} |\n|---|{}---|", "---|".repeat(columns.len() + 1));
    for figure in group {
        let unit = figure["unit"].as_str().unwrap_or_default();
        let value = figure["value"].as_f64().map_or("–".into(), |value| format_with_unit(value, unit));
        let peers = peers(figure);
        let cells: String = columns.iter().map(|name| format!(" {} |", cell(name, &peers[name]))).collect();
        let note = figure["note"].as_str().unwrap_or_default();
        let _ = writeln!(text, "| {} | {value} |{cells} {note} |", name(figure));
    }
}

/// A peer's name in words; what its ending says of the unit is said by the value.
fn words(name: &str) -> String {
    name.strip_suffix("_ns").unwrap_or(name).replace('_', " ")
}

fn cell(name: &str, value: &Value) -> String {
    match value.as_f64() {
        Some(value) => format_with_unit(value, if name.ends_with("_ns") { "ns" } else { "" }),
        None => "–".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{BetterDirection, Figure, Report};

    #[test]
    fn figures_with_goals_come_first_and_the_others_by_their_columns() {
        let info = |name: &str| {
            Figure::new(name, 27e6, "ns", BetterDirection::Lower).peer("release_ns", 1234.0).peer("cuts", 20.0)
        };
        let report = Report {
            results: vec![Figure::new("barrier_stall_ns", 900.0, "ns", BetterDirection::Lower).goal(10_000.0)],
            info: vec![
                info("fork_256_huge"),
                info("fork_256_small"),
                Figure::new("other", 2_734_567.0, "1/s", BetterDirection::Higher),
            ],
            ..Report::new("snapshot", Map::new())
        };
        let text = of(&serde_json::from_str(&report.json()).unwrap()).unwrap();
        assert!(text.starts_with("`quire bench snapshot`: "), "{text}");
        assert!(text.contains("| `barrier_stall_ns` | 900 ns | ≤ 10.0 µs | reached |"), "{text}");
        assert!(text.contains("| | value | release | cuts | |\n|---|---|---|---|---|\n"), "{text}");
        assert!(text.contains("| fork_256_small | 27.0 ms | 1.23 µs | 20 |"), "{text}");
        assert!(text.contains("| other | 2,734,567 1/s |"), "{text}");
        assert_eq!(of(&Value::from(3)), None);
    }
}
