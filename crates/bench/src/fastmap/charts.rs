//! Operations a second over the number of threads, a chart for each workload and device.
//!
//! Relies on [`TrialResults`] for medians over the rounds.

use super::phase_stats::PhaseStats;
use super::testbed::DeviceKind;
use super::trial_results::{Scenario, TrialResults};
use crate::chart::{Axis, AxisScale, Chart, ChartKind, Series};

/// The charts of the microbenchmark.
pub fn of(results: &TrialResults) -> Vec<Chart> {
    let mut kinds: Vec<(&str, DeviceKind)> = Vec::new();
    for scenario in results.scenarios().into_iter().filter(|scenario| matches!(scenario.work, "read" | "write")) {
        if !kinds.contains(&(scenario.work, scenario.device)) {
            kinds.push((scenario.work, scenario.device));
        }
    }
    let chart = |(work, device): (&str, DeviceKind)| Chart {
        file: format!("fastmap-{work}-{}", device.name()),
        title: format!("random {work}s, data out of memory, {}", device.name()),
        x: Axis::new("threads", "threads", AxisScale::PowersOfTwo),
        y: Axis { unit: 1e3, ..Axis::new("thousand operations a second", "operations_per_second", AxisScale::Linear) },
        body: ChartKind::Lines { marks: true, shaded: Vec::new() },
        series: series(results, work, device),
    };
    kinds.into_iter().map(chart).collect()
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
    use super::super::candidate::Candidate;
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
        let charts = of(&TrialResults { trials: trials.concat() });
        assert_eq!((charts.len(), charts[0].file.as_str()), (1, "fastmap-read-disk"));
        let [mmap, guards] = charts[0].series.as_slice() else { panic!("{charts:?}") };
        assert_eq!((mmap.name.as_str(), mmap.points[2]), ("mmap", (16.0, 4000.0)));
        assert_eq!((guards.name.as_str(), guards.points[1]), ("guards", (2.0, 4000.0)));
    }
}
