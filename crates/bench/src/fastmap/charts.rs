//! Operations a second over the number of threads, a chart for each workload and device.
//!
//! Relies on [`TrialResults`] for medians over the rounds.

use super::candidate::Candidate;
use super::figures::{self, RANDOM_GOAL};
use super::phase_stats::PhaseStats;
use super::testbed::DeviceKind;
use super::trial_results::{Scenario, TrialResults};
use crate::chart::{Axis, AxisScale, Chart, ChartKind, Mark, Series};

/// The charts of the microbenchmark, of whose pages the share `missing` is not in memory.
pub fn of(results: &TrialResults, missing: f64) -> Vec<Chart> {
    let mut kinds: Vec<(&'static str, DeviceKind)> = Vec::new();
    for scenario in results.scenarios().into_iter().filter(|scenario| matches!(scenario.work, "read" | "write")) {
        if !kinds.contains(&(scenario.work, scenario.device)) {
            kinds.push((scenario.work, scenario.device));
        }
    }
    let chart = |(work, device): (&'static str, DeviceKind)| Chart {
        file: format!("fastmap-{work}-{}", device.name()),
        title: format!("random {work}s, data out of memory, {}", device.name()),
        x: Axis::new("threads", "threads", AxisScale::PowersOfTwo),
        y: Axis {
            unit: 1e3,
            levels: bound(results, work, device, missing).into_iter().collect(),
            marks: goal(results, work, device).into_iter().collect(),
            ..Axis::new("thousand operations a second", "operations_per_second", AxisScale::Linear)
        },
        body: ChartKind::Lines { marks: true, shaded: Vec::new() },
        series: series(results, work, device),
    };
    kinds.into_iter().map(chart).collect()
}

/// What the disk does of such reads by itself. Stores have none: pages may be written back together.
fn bound(results: &TrialResults, work: &str, device: DeviceKind, missing: f64) -> Option<(String, f64)> {
    let is_bounded = work == "read" && device == DeviceKind::Disk;
    let per_s = figures::bound(results, device, "read_depth_64", PhaseStats::per_s).filter(|_| is_bounded)?;
    Some(("bound: the disk by itself".to_owned(), per_s / missing))
}

/// The goal, which is stated for the disk: of reads for one thread, of stores for 16.
fn goal(results: &TrialResults, work: &'static str, device: DeviceKind) -> Option<Mark> {
    let (threads, name) = if work == "read" { (1, "goal of 1 thread") } else { (16, "goal of 16 threads") };
    let scenario = Scenario { work, device, threads };
    let of = |peer: Candidate| results.median(scenario, peer, work, PhaseStats::per_s);
    let best = Candidate::PEERS.into_iter().filter_map(of).reduce(f64::max)?;
    (device == DeviceKind::Disk).then(|| Mark { name: name.into(), x: threads as f64, y: RANDOM_GOAL * best })
}

fn series(results: &TrialResults, work: &str, device: DeviceKind) -> Vec<Series> {
    let scenarios: Vec<Scenario> =
        results.scenarios().into_iter().filter(|scenario| scenario.work == work && scenario.device == device).collect();
    let mut candidates: Vec<_> = scenarios.iter().flat_map(|&scenario| results.candidates(scenario)).collect();
    candidates.sort_unstable();
    candidates.dedup();
    let points = |candidate| {
        let point = |scenario: &Scenario| {
            Some((scenario.threads as f64, results.median(*scenario, candidate, scenario.work, PhaseStats::per_s)?))
        };
        let mut points: Vec<_> = scenarios.iter().filter_map(point).collect();
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
    use super::super::trial_results::tests::{READ, trial};
    use super::*;

    #[test]
    fn every_candidate_has_a_line_over_the_threads() {
        let scenario = |threads| Scenario { threads, ..READ };
        let trials = [(16, 4000), (1, 1000), (2, 2000)].map(|(threads, per_s)| {
            [
                trial(scenario(threads), Candidate::Mmap, 0, "read", per_s),
                trial(scenario(threads), Candidate::Guards, 0, "read", 2 * per_s),
            ]
        });
        let charts = of(&TrialResults { trials: trials.concat() }, 0.875);
        assert_eq!((charts.len(), charts[0].file.as_str()), (1, "fastmap-read-disk"));
        let [mmap, guards] = charts[0].series.as_slice() else { panic!("{charts:?}") };
        assert_eq!((mmap.name.as_str(), mmap.points[2]), ("mmap", (16.0, 4000.0)));
        assert_eq!((guards.name.as_str(), guards.points[1]), ("guards", (2.0, 4000.0)));
        let [goal] = charts[0].y.marks.as_slice() else { panic!("{charts:?}") };
        assert_eq!((goal.x, goal.y), (1.0, 3000.0));
        assert!(charts[0].y.levels.is_empty(), "the disk by itself was not measured");
    }
}
