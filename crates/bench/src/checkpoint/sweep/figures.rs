//! From the rounds of a sweep to figures: one for each point and way to save.

use super::{PointResult, SweepPoint, SweepResults};
use crate::checkpoint::program::SaveMethod;
use crate::format::mebibytes;
use crate::report::{BetterDirection, Figure, Report};
use crate::stats::Spread;

/// Both ways to save.
pub(super) const METHODS: [SaveMethod; 2] = [SaveMethod::Stdio, SaveMethod::Mdc];

/// Adds all figures.
pub fn add(results: &SweepResults, report: &mut Report) {
    for point in results.points() {
        report.info.extend(METHODS.map(|method| cell(results, point, method)));
    }
}

impl SweepResults {
    /// All points that were measured, each once.
    pub(super) fn points(&self) -> Vec<SweepPoint> {
        let mut points = Vec::new();
        for result in &self.results {
            if !points.contains(&result.point) {
                points.push(result.point);
            }
        }
        points
    }

    /// A value of each round at a point.
    pub(super) fn of(&self, point: SweepPoint, method: SaveMethod, value: impl Fn(&PointResult) -> f64) -> Spread {
        let found = self.results.iter().filter(|result| result.point == point && result.method == method);
        Spread::or_nan(&found.map(value).collect::<Vec<_>>())
    }
}

fn cell(results: &SweepResults, point: SweepPoint, method: SaveMethod) -> Figure {
    let of = |value: fn(&PointResult) -> f64| results.of(point, method, value);
    let growth = of(|result| result.growth);
    let name = format!(
        "{}_{}_mib_{}_updates_{}_instances",
        method.name(),
        point.mib,
        (point.share * 100.0).round(),
        point.instances
    );
    let figure = Figure::new(name, growth.median, "of the data", BetterDirection::Lower)
        .spread(growth)
        .peer("save_s", of(|result| result.save_s).median)
        .peer("ops_per_s", of(|result| result.ops_per_s).median)
        .peer("file_mib", mebibytes(of(|result| result.file_bytes as f64).median as u64))
        .note("extra memory at its peak during a save");
    let restore_s = of(|result| result.restore_s.unwrap_or(f64::NAN)).median;
    if restore_s.is_finite() { figure.peer("restore_s", restore_s) } else { figure }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::checkpoint::CheckpointArgs;

    /// Two rounds of two sizes, three shares and two numbers of programs.
    pub fn swept() -> SweepResults {
        let mut results = SweepResults::default();
        for (mib, share, instances) in [(200, 0.25, 1), (200, 0.5, 1), (200, 1.0, 1), (100, 0.5, 1), (200, 0.5, 2)] {
            for (method, factor) in [(SaveMethod::Stdio, 4.0), (SaveMethod::Mdc, 1.0)] {
                for round in [1.0, 3.0] {
                    results.results.push(PointResult {
                        point: SweepPoint { mib, share, instances },
                        method,
                        growth: 0.1 * factor * share,
                        save_s: round * factor,
                        ops_per_s: 100.0,
                        file_bytes: mib << 20,
                        restore_s: (share == 0.5 && instances == 1).then_some(2.0),
                    });
                }
            }
        }
        results
    }

    #[test]
    fn every_point_has_a_figure_for_either_way_with_what_is_behind_it() {
        let mut report = crate::experiment::tests::report::<CheckpointArgs>();
        add(&swept(), &mut report);
        assert_eq!(report.info.len(), 10);
        let found = |name: &str| report.info.iter().find(|figure| figure.name == name).unwrap();
        let usual = found("mdc_fork_100_mib_50_updates_1_instances");
        assert_eq!((usual.value, &usual.peer["save_s"], &usual.peer["restore_s"]), (0.05, &2.0.into(), &2.0.into()));
        let shared = found("fork_200_mib_100_updates_1_instances");
        assert!(shared.value == 0.4 && !shared.peer.contains_key("restore_s"), "{shared:?}");
    }
}
