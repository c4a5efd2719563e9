//! Operations a second over the number of threads, a chart for each workload and device.
//!
//! Relies on [`Found`] for medians over the rounds.

use super::found::{Found, Task};
use super::place::Kind;
use super::tally::Tally;
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
    let mut subjects: Vec<_> = tasks.iter().flat_map(|&task| found.subjects(task)).collect();
    subjects.sort_unstable();
    subjects.dedup();
    let points = |subject| {
        let point = |task: &Task| Some((task.threads as f64, found.median(*task, subject, task.work, Tally::per_s)?));
        let mut points: Vec<_> = tasks.iter().filter_map(point).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        points
    };
    subjects.into_iter().map(|subject| Series { name: subject.name().to_owned(), points: points(subject) }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::found::tests::{READ, visit};
    use super::super::subject::Subject;
    use super::*;

    #[test]
    fn every_subject_has_a_line_over_the_threads() {
        let task = |threads| Task { threads, ..READ };
        let visits = [(16, 4000), (1, 1000), (2, 2000)].map(|(threads, per_s)| {
            [
                visit(task(threads), Subject::Mmap, 0, "read", per_s),
                visit(task(threads), Subject::Guards, 0, "read", 2 * per_s),
            ]
        });
        let charts = of(&Found { visits: visits.concat() });
        assert_eq!((charts.len(), charts[0].file.as_str()), (1, "fastmap-read-disk"));
        let [mmap, guards] = charts[0].series.as_slice() else { panic!("{charts:?}") };
        assert_eq!((mmap.name.as_str(), mmap.points[2]), ("mmap", (16.0, 4000.0)));
        assert_eq!((guards.name.as_str(), guards.points[1]), ("guards", (2.0, 4000.0)));
    }
}
