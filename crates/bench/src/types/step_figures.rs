//! The figures and charts of part `steps`.
//!
//! Relies on what the machine makes a client wait having been measured beside it: a longest wait is also what else the processors do.

use super::steps::{Operation, OperationWaits, StepResults, StepRow};
use crate::chart::{Axis, AxisScale, Chart, ChartKind, Series};
use crate::load::small_commands::Waits;
use crate::report::{BetterDirection, Figure, Report};
use crate::server::setup::PEER;

/// No command waits longer, in milliseconds.
const GOAL_MS: f64 = 1.0;

/// Adds the longest waits and percentiles.
pub fn figures(found: &StepResults, report: &mut Report) {
    report.scale.insert("steps_elements".into(), found.elements.into());
    report.scale.insert("steps_rounds".into(), found.rounds.into());
    let idle = idle_of(found);
    let idle_ms = idle.as_ref().map_or(f64::NAN, Waits::longest_ms);
    report.results.extend(worst(found, idle_ms));
    for row in rows(found) {
        let bound = match row.operation {
            Operation::Created => ("two clients and a server that does nothing", found.null.longest_ms()),
            _ => ("the same client beside the idle server", idle_ms),
        };
        report.results.push(longest_wait(row).bound(bound.0, bound.1));
        report.info.push(percentile(row));
    }
    let empty = Figure::new("steps_empty_loop_longest_pause_ms", found.empty_loop_ms, "ms", BetterDirection::Lower);
    report.info.push(empty.note("a loop that looks at the clock only, nothing beside it"));
    if let Some(idle) = idle {
        let figure = Figure::new("steps_idle_p999_us", idle.p999_us(), "us", BetterDirection::Lower);
        report.info.push(figure.note(format!("the client beside the idle server, {} commands", idle.commands())));
    }
}

/// What is done, with what is found of it.
fn rows(found: &StepResults) -> impl Iterator<Item = &StepRow> {
    found.rows.iter().filter(|row| row.operation != Operation::Idle && !row.found.is_empty())
}

/// What the client met beside our idle servers.
fn idle_of(found: &StepResults) -> Option<Waits> {
    let idle = found.rows.iter().filter(|row| row.operation == Operation::Idle).filter_map(|row| row.found.first());
    idle.map(|of| of.waits.clone()).reduce(|mut all, waits| {
        all.merge(&waits);
        all
    })
}

fn of_program<'a>(row: &'a StepRow, name: &str) -> Option<&'a OperationWaits> {
    row.found.iter().find(|of| of.program == name)
}

/// The longest wait of all, beside the peer's longest.
fn worst(found: &StepResults, idle_ms: f64) -> Option<Figure> {
    let longest = |row: &&StepRow| row.found[0].waits.longest_ms();
    let worst = rows(found).max_by(|a, b| longest(a).total_cmp(&longest(b)))?;
    let theirs = rows(found).filter_map(|row| of_program(row, PEER)).map(|of| of.waits.longest_ms());
    let figure = Figure::new("steps_longest_wait_ms", longest(&worst), "ms", BetterDirection::Lower);
    Some(
        figure
            .goal(GOAL_MS)
            .peer(PEER, theirs.fold(f64::NAN, f64::max))
            .bound("the same client beside the idle server", idle_ms)
            .note(format!("a {} {}, {} elements", worst.type_name, worst.operation.name(), found.elements)),
    )
}

fn longest_wait(row: &StepRow) -> Figure {
    let ours = &row.found[0];
    let name = format!("steps_{}_{}_longest_wait_ms", row.type_name, row.operation.name());
    let took = row.found.iter().map(|of| format!("{} {:.2} s", of.program, of.took.as_secs_f64()));
    let mut figure = Figure::new(name, ours.waits.longest_ms(), "ms", BetterDirection::Lower)
        .goal(GOAL_MS)
        .note(format!("the operation took {}", took.collect::<Vec<_>>().join(", ")));
    for other in &row.found[1..] {
        figure = figure.peer(&other.program, other.waits.longest_ms());
    }
    figure
}

fn percentile(row: &StepRow) -> Figure {
    let ours = &row.found[0].waits;
    let name = format!("steps_{}_{}_p999_us", row.type_name, row.operation.name());
    let mut figure = Figure::new(name, ours.p999_us(), "us", BetterDirection::Lower)
        .note(format!("of {} small commands", ours.commands()));
    for other in &row.found[1..] {
        figure = figure.peer(&other.program, other.waits.p999_us());
    }
    figure
}

/// The longest waits by operation, a chart for each server with the same height and a line for each type.
pub fn charts(found: &StepResults) -> Vec<Chart> {
    let Some(first) = found.rows.first() else { return Vec::new() };
    let all = || rows(found).flat_map(|row| &row.found).map(|of| of.waits.longest_ms());
    let operations: Vec<Operation> = Operation::ALL.into_iter().filter(|kind| *kind != Operation::Idle).collect();
    let names: Vec<String> =
        operations.iter().enumerate().map(|(at, kind)| format!("{} {}", at + 1, kind.name())).collect();
    let chart = |program: &str| Chart {
        file: format!("types-steps-{program}"),
        title: format!("{program}: longest wait of a small command beside work on {} elements", found.elements),
        x: Axis::new(names.join(", "), "operation", AxisScale::Linear),
        y: Axis {
            reach: all().fold(f64::NAN, f64::max),
            levels: vec![("goal".into(), GOAL_MS)],
            ..Axis::new("milliseconds", "longest_wait_ms", AxisScale::PowersOfTen)
        },
        body: ChartKind::Lines { marks: true, shaded: Vec::new() },
        series: series_of(found, program, &operations),
    };
    first.found.iter().map(|of| chart(&of.program)).collect()
}

/// A line for each type; a place across for each operation, from 1 on.
fn series_of(found: &StepResults, program: &str, operations: &[Operation]) -> Vec<Series> {
    let mut series = Vec::<Series>::new();
    for row in rows(found) {
        let (Some(of), Some(at)) =
            (of_program(row, program), operations.iter().position(|operation| *operation == row.operation))
        else {
            continue;
        };
        let point = ((at + 1) as f64, of.waits.longest_ms());
        match series.iter_mut().find(|known| known.name == row.type_name) {
            Some(known) => known.points.push(point),
            None => series.push(Series { name: row.type_name.into(), points: vec![point] }),
        }
    }
    series
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::small_commands::beside_small_commands;
    use crate::null_server::NullServer;
    use serde_json::Map;
    use std::time::Duration;

    fn waits() -> Waits {
        let server = NullServer::start(b"+OK\r\n").unwrap();
        beside_small_commands(server.port(), || Ok(())).unwrap().2
    }

    fn found() -> StepResults {
        let of = |program: &str| OperationWaits { program: program.into(), waits: waits(), took: Duration::ZERO };
        let row = |type_name, operation| StepRow { type_name, operation, found: vec![of("quire"), of(PEER)] };
        let operations = [Operation::Idle, Operation::Created, Operation::Expired];
        let rows = ["set", "zset"].into_iter().flat_map(|name| operations.map(|operation| row(name, operation)));
        StepResults { elements: 100, rounds: 1, rows: rows.collect(), null: waits(), empty_loop_ms: 0.5 }
    }

    #[test]
    fn each_type_and_operation_has_its_wait_with_goal_bound_and_peer() {
        let found = found();
        let mut report = Report::new("types", Map::new());
        figures(&found, &mut report);
        let names: Vec<&str> = report.results.iter().map(|figure| figure.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "steps_longest_wait_ms",
                "steps_set_created_longest_wait_ms",
                "steps_set_expired_longest_wait_ms",
                "steps_zset_created_longest_wait_ms",
                "steps_zset_expired_longest_wait_ms"
            ]
        );
        let has_all = |figure: &Figure| figure.goal == Some(1.0) && figure.peer.contains_key(PEER);
        assert!(report.results.iter().all(|figure| has_all(figure) && figure.bound.is_some()));
        let most = report.results[1..].iter().map(|figure| figure.value).fold(0.0, f64::max);
        assert_eq!(report.results[0].value, most);
        assert!(report.info.iter().any(|figure| figure.name == "steps_zset_expired_p999_us"));
    }

    #[test]
    fn charts_have_a_line_for_each_type_and_the_same_height() {
        let found = found();
        let charts = charts(&found);
        assert_eq!(
            (charts[0].file.as_str(), charts[1].file.as_str()),
            ("types-steps-quire", "types-steps-redis-server")
        );
        assert_eq!(charts[0].y.reach, charts[1].y.reach);
        assert_eq!(charts[0].series.len(), 2);
        let places: Vec<f64> = charts[1].series[0].points.iter().map(|point| point.0).collect();
        assert_eq!(places, [1.0, 7.0]);
    }
}
