//! What of a small run counts: a ratio that means what a full run's means, within a fifth. Others are left out.
//!
//! And how long it may take, which is a promise like others.
//!
//! Relies on each experiment naming the figures that its small scale cannot tell. Of the others a ratio stays only if the
//! rounds of the run agree: rounds that differ by more would make any ratio of it.

use std::time::Duration;

use crate::report::{BetterDirection, Figure, Report};

/// How far a round may be from the median of all.
const MOST: f64 = 1.2;

/// A small run ends within so many seconds.
const MOST_S: f64 = 180.0;

/// Says how long a small run took, beside what was promised. A figure that misses its goal is no error.
pub fn judge_time(report: &mut Report, took: Duration) {
    let figure = Figure::new("quick_run_s", took.as_secs_f64(), "s", BetterDirection::Lower).goal(MOST_S);
    report.info.push(figure.note("from the start of the experiment to its last measurement"));
}

/// Leaves out of `report` the figures whose names begin as those of `beyond` do, and the ratios whose rounds disagree.
pub fn leave_out(report: &mut Report, beyond: &[(&'static str, String)]) {
    for figure in report.results.iter_mut().chain(&mut report.info) {
        // What could not be measured has said why.
        if figure.value.is_nan() {
            continue;
        }
        let named = beyond.iter().find(|(name, _)| figure.name.starts_with(name));
        if let Some((_, reason)) = named {
            figure.leave_out(reason);
        } else if let Some(reason) = disagreement(figure) {
            figure.leave_out(&reason);
        }
    }
}

/// What keeps the rounds of a ratio from telling it.
fn disagreement(figure: &Figure) -> Option<String> {
    let [least, most] = figure.spread.filter(|_| figure.unit == "x")?;
    let differs = most > figure.value * MOST || least * MOST < figure.value;
    differs.then(|| format!("its rounds differ by more than a fifth ({least} … {most})"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Spread;
    use serde_json::Map;

    fn ratio(name: &str, values: [f64; 3], unit: &'static str) -> Figure {
        let spread = Spread::of(&values).unwrap();
        Figure::new(name, spread.median, unit, BetterDirection::Higher).goal(1.0).spread(spread)
    }

    #[test]
    fn ratios_stay_only_where_rounds_agree_within_a_fifth() {
        let mut report = Report::new("server", Map::new());
        report.results = vec![
            ratio("agrees", [1.0, 1.1, 1.3], "x"),
            ratio("above", [1.0, 1.1, 1.33], "x"),
            ratio("below", [0.8, 1.0, 1.1], "x"),
            ratio("a_time", [1.0, 5.0, 9.0], "us"),
            Figure::new("alone", 3.0, "x", BetterDirection::Lower),
        ];
        leave_out(&mut report, &[]);
        let left: Vec<bool> = report.results.iter().map(|figure| figure.left_out).collect();
        assert_eq!(left, [false, true, true, false, false]);
        assert!(report.results[1].note.contains("1 … 1.33"), "{:?}", report.results[1]);
    }

    #[test]
    fn a_small_run_that_takes_too_long_has_missed_its_promise() {
        let reached = |seconds| {
            let mut report = Report::new("server", Map::new());
            judge_time(&mut report, Duration::from_secs(seconds));
            report.info[0].reached()
        };
        assert_eq!((reached(180), reached(181)), (Some(true), Some(false)));
    }

    #[test]
    fn what_the_scale_cannot_tell_is_left_out_by_its_name_and_what_was_not_measured_keeps_its_reason() {
        let mut report = Report::new("fastmap", Map::new());
        report.results = vec![ratio("bfs_guard_vs_mmap", [1.0; 3], "x"), ratio("hit_cost_ns", [1.0; 3], "ns")];
        report.info = vec![Figure::new("bfs_old", f64::NAN, "x", BetterDirection::Higher).note("not measured: gone")];
        leave_out(&mut report, &[("bfs_", "the graph is too small".into())]);
        assert_eq!(report.results[0].reached(), None);
        assert!(report.results[0].note.contains("the graph is too small"));
        assert_eq!(report.results[1].reached(), Some(true));
        assert_eq!(report.info[0].note, "not measured: gone");
    }
}
