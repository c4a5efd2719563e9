//! One table of two runs of an experiment: what was before, what is after, and their ratio.
//!
//! Relies on figures keeping their names. A change counts as one only where the spreads of both runs leave no doubt.

use std::fmt::Write as _;

use serde_json::Value;

use crate::format::format_with_unit;

/// The table of `before` and `after`; nothing if one of them is no report.
pub fn of(before: &Value, after: &Value) -> Option<String> {
    let mut text = format!("`quire bench {}`, before and after.\n\n", before["experiment"].as_str()?);
    text.push_str("| figure | before | after | after / before | before, least … most | after, least … most | |\n");
    text.push_str("|---|---|---|---|---|---|---|\n");
    for group in ["results", "info"] {
        let (old, new) = (before[group].as_array()?, after[group].as_array()?);
        for figure in old {
            row(&mut text, figure, new.iter().find(|other| other["name"] == figure["name"]));
        }
        for figure in new.iter().filter(|figure| old.iter().all(|other| other["name"] != figure["name"])) {
            let _ = writeln!(text, "| `{}` | – | {} | | | {} | new |", name(figure), value(figure), spread(figure));
        }
    }
    Some(text)
}

fn row(text: &mut String, before: &Value, after: Option<&Value>) {
    let Some(after) = after else {
        let _ = writeln!(text, "| `{}` | {} | – | | {} | | gone |", name(before), value(before), spread(before));
        return;
    };
    let ratio = match (before["value"].as_f64(), after["value"].as_f64()) {
        (Some(before), Some(after)) if before != 0.0 => format!("{:.3}", after / before),
        _ => "–".into(),
    };
    let _ = writeln!(
        text,
        "| `{}` | {} | {} | {ratio} | {} | {} | {} |",
        name(before),
        value(before),
        value(after),
        spread(before),
        spread(after),
        verdict(before, after).unwrap_or_default()
    );
}

/// What became of a figure: `better` or `worse` when no measurement of one run lies among those of the other.
fn verdict(before: &Value, after: &Value) -> Option<&'static str> {
    let ([least, most], [new_least, new_most]) = (ends(before)?, ends(after)?);
    let is_higher = new_least > most;
    if !is_higher && new_most >= least {
        return Some("within the spread");
    }
    Some(if is_higher == (before["better"] == "higher") { "better" } else { "worse" })
}

/// Least and most of a figure's measurements, if there were several.
fn ends(figure: &Value) -> Option<[f64; 2]> {
    Some([figure["spread"][0].as_f64()?, figure["spread"][1].as_f64()?])
}

fn name(figure: &Value) -> &str {
    figure["name"].as_str().unwrap_or_default()
}

fn unit(figure: &Value) -> &str {
    figure["unit"].as_str().unwrap_or_default()
}

fn value(figure: &Value) -> String {
    figure["value"].as_f64().map_or("–".into(), |value| format_with_unit(value, unit(figure)))
}

fn spread(figure: &Value) -> String {
    let Some(ends) = ends(figure) else { return String::new() };
    let [least, most] = ends.map(|end| format_with_unit(end, unit(figure)));
    format!("{least} … {most}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{BetterDirection, Figure, Report};
    use crate::stats::Spread;
    use serde_json::Map;

    fn report(figures: Vec<Figure>) -> Value {
        let report = Report { results: figures, ..Report::new("server", Map::new()) };
        serde_json::from_str(&report.json()).unwrap()
    }

    fn figure(name: &str, values: [f64; 3], better: BetterDirection) -> Figure {
        let spread = Spread::of(&values).unwrap();
        Figure::new(name, spread.median, "x", better).spread(spread)
    }

    #[test]
    fn a_change_beyond_the_spread_is_better_or_worse_and_others_are_within_it() {
        let before = report(vec![
            figure("faster", [1.0, 1.1, 1.2], BetterDirection::Higher),
            figure("slower", [1.0, 1.1, 1.2], BetterDirection::Lower),
            figure("same", [1.0, 1.1, 1.2], BetterDirection::Higher),
            Figure::new("old", 1.0, "x", BetterDirection::Higher),
        ]);
        let after = report(vec![
            figure("faster", [1.3, 2.2, 2.3], BetterDirection::Higher),
            figure("slower", [1.3, 1.4, 1.5], BetterDirection::Lower),
            figure("same", [0.9, 1.0, 1.1], BetterDirection::Higher),
            Figure::new("recent", f64::NAN, "x", BetterDirection::Higher),
        ]);
        let text = of(&before, &after).unwrap();
        for row in [
            "| `faster` | 1.1 x | 2.2 x | 2.000 | 1 x … 1.2 x | 1.3 x … 2.3 x | better |",
            "| `slower` | 1.1 x | 1.4 x | 1.273 | 1 x … 1.2 x | 1.3 x … 1.5 x | worse |",
            "| `same` | 1.1 x | 1 x | 0.909 | 1 x … 1.2 x | 0.9 x … 1.1 x | within the spread |",
            "| `old` | 1 x | – | |  | | gone |",
            "| `recent` | – | – | | |  | new |",
        ] {
            assert!(text.contains(row), "{row} is not in\n{text}");
        }
    }

    #[test]
    fn without_a_spread_no_change_is_claimed() {
        let one = |value| report(vec![Figure::new("a", value, "ns", BetterDirection::Lower)]);
        assert!(of(&one(1000.0), &one(1500.0)).unwrap().contains("| `a` | 1.00 µs | 1.50 µs | 1.500 |  |  |  |"));
        assert_eq!(of(&Value::Null, &Value::Null), None);
    }
}
