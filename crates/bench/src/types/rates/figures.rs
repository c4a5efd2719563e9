//! The figures of the part `rates`: the mean and the worst of each client's ratios, and all of them.
//!
//! Relies on the ratios of a client all having a bound.

use super::{BOUND, RateResults};
use crate::report::{BetterDirection, Figure, Report};
use crate::types::summary;

/// Adds the ratios.
pub fn figures(found: &RateResults, report: &mut Report) {
    let [mean, worst] = bounded("types_p16", &found.pipelined);
    report.results.push(mean.goal(1.5));
    report.results.push(worst.goal(1.0));
    report.info.extend(bounded("types_p16_redis_benchmark", &found.redis_benchmark));
    report.info.extend(summary("types_p1", BetterDirection::Higher, &ratios(&found.alone)));
    report.info.extend(summary("types_p16_cpu", BetterDirection::Higher, &ratios(&found.cpu)));
    report.info.push(client_busy(&found.client_busy));
    let all = found.pipelined.iter().chain(&found.cpu).chain(&found.redis_benchmark).chain(&found.alone);
    report.info.extend(all.cloned());
}

fn ratios(figures: &[Figure]) -> Vec<(String, f64)> {
    figures.iter().map(|figure| (figure.name.clone(), figure.value)).collect()
}

/// The mean and the worst ratio; their bounds are the mean and the worst bound.
fn bounded(name: &str, figures: &[Figure]) -> [Figure; 2] {
    let bounds: Vec<(String, f64)> =
        figures.iter().filter_map(|figure| Some((figure.name.clone(), figure.bound.as_ref()?.value))).collect();
    let [mean, worst] = summary(name, BetterDirection::Higher, &ratios(figures));
    let [mean_bound, worst_bound] = summary("bound", BetterDirection::Higher, &bounds);
    [mean.bound(BOUND, mean_bound.value), worst.bound(BOUND, worst_bound.value)]
}

/// The load at which our own client was busiest. Where that is near 1, the rates are the client's.
fn client_busy(by_load: &[(String, f64)]) -> Figure {
    let busiest = by_load.iter().max_by(|one, other| one.1.total_cmp(&other.1));
    let (load, share) = busiest.map_or(("nothing", f64::NAN), |(load, share)| (load.as_str(), *share));
    let note = format!("with {load}; the client is the limit near 1");
    let figure = Figure::new("types_p16_client_busy_share", share, "of its time", BetterDirection::Lower).note(note);
    by_load.iter().fold(figure, |figure, (load, share)| figure.peer(load, *share))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Map;

    fn ratio(name: &str, value: f64, bound: f64) -> Figure {
        Figure::new(name, value, "x", BetterDirection::Higher).bound(BOUND, bound)
    }

    #[test]
    fn each_client_has_its_own_bound_and_only_our_own_client_s_ratios_have_goals() {
        let found = RateResults {
            pipelined: vec![ratio("incr_p16_ratio", 2.0, 8.0), ratio("zadd_p16_ratio", 0.5, 2.0)],
            redis_benchmark: vec![ratio("incr_p16_redis_benchmark_ratio", 1.0, 1.0)],
            client_busy: vec![("incr".into(), 0.5), ("zadd".into(), 0.25)],
            ..RateResults::default()
        };
        let mut report = Report::new("types", Map::new());
        figures(&found, &mut report);
        let told =
            |figure: &Figure| (figure.name.clone(), figure.value, figure.bound.as_ref().map(|bound| bound.value));
        let results: Vec<_> = report.results.iter().map(told).collect();
        assert_eq!(
            results,
            [
                ("types_p16_geomean_vs_redis".into(), 1.0, Some(4.0)),
                ("types_p16_worst_vs_redis".into(), 0.5, Some(2.0)),
            ]
        );
        let named = |name: &str| report.info.iter().find(|figure| figure.name == name).unwrap();
        let tool = named("types_p16_redis_benchmark_geomean_vs_redis");
        assert_eq!((tool.goal, told(tool).2), (None, Some(1.0)));
        let busy = named("types_p16_client_busy_share");
        assert_eq!((busy.value, busy.note.starts_with("with incr")), (0.5, true));
    }
}
