//! Operations a second over the number of threads, a chart for each workload and device.
//!
//! Relies on [`Found`] for medians over the rounds.

use super::found::{Found, Task};
use super::tally::Tally;
use super::testbed::Kind;
use crate::chart::{Axis, Body, Chart, Scale, Series};

/// The charts of the microbenchmark.
pub fn of(found: &Found) -> Vec<Chart> {
    let mut kinds: Vec<(&str, Kind)> = Vec::new();
    for task in found.tasks().into_iter().filter(|task| matches!(task.work, "read" | "write")) {
        if !kinds.contains(&(task.work, task.device)) {
            kinds.push((task.work, task.device));
        }
    }
    let chart = |(work, device): (&str, Kind)| Chart {
        file: format!("fastmap-{work}-{}", device.name()),
        title: format!("random {work}s, data out of memory, {}", device.name()),
        x: Axis::new("threads", "threads", Scale::PowersOfTwo),
        y: Axis { unit: 1e3, ..Axis::new("thousand operations a second", "operations_per_second", Scale::Linear) },
        body: Body::Lines { marks: true, shaded: Vec::new() },
        series: series(found, work, device),
    };
    kinds.into_iter().map(chart).collect()
}

fn series(found: &Found, work: &str, device: Kind) -> Vec<Series> {
    let tasks: Vec<Task> =
        found.tasks().into_iter().filter(|task| task.work == work && task.device == device).collect();
    let mut candidates: Vec<_> = tasks.iter().flat_map(|&task| found.candidates(task)).collect();
    candidates.sort_unstable();
    candidates.dedup();
    let points = |candidate| {
        let point = |task: &Task| Some((task.threads as f64, found.median(*task, candidate, task.work, Tally::per_s)?));
        let mut points: Vec<_> = tasks.iter().filter_map(point).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        points
    };
    candidates
        .into_iter()
        .map(|candidate| Series { name: candidate.name().to_owned(), points: points(candidate) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::candidate::Candidate;
    use super::super::found::tests::{READ, trial};
    use super::*;

    #[test]
    fn every_candidate_has_a_line_over_the_threads() {
        let task = |threads| Task { threads, ..READ };
        let trials = [(16, 4000), (1, 1000), (2, 2000)].map(|(threads, per_s)| {
            [
                trial(task(threads), Candidate::Mmap, 0, "read", per_s),
                trial(task(threads), Candidate::Guards, 0, "read", 2 * per_s),
            ]
        });
        let charts = of(&Found { trials: trials.concat() });
        assert_eq!((charts.len(), charts[0].file.as_str()), (1, "fastmap-read-disk"));
        let [mmap, guards] = charts[0].series.as_slice() else { panic!("{charts:?}") };
        assert_eq!((mmap.name.as_str(), mmap.points[2]), ("mmap", (16.0, 4000.0)));
        assert_eq!((guards.name.as_str(), guards.points[1]), ("guards", (2.0, 4000.0)));
    }
}
