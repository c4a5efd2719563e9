//! Operations a second, and the hit ratio of what is behind the pool, over the size of the pool: a chart for each load and each size
//! of the data.
//!
//! Relies on [`TrialResults`] for medians over the rounds.

use super::candidate::Candidate;
use super::counters;
use super::figures::{self, LEAST_READS};
use super::results::{ResultCell, TrialResults};
use super::scale::DbioScale;
use super::trial::{LOADS, phase_name};
use crate::chart::{Axis, AxisScale, Chart, ChartKind, Series};
use crate::fastmap::kv::ycsb::YcsbWorkload;
use crate::fastmap::phase_stats::PhaseStats;

/// All charts.
pub fn of(results: &TrialResults, scale: &DbioScale) -> Vec<Chart> {
    let loads = scale.data.iter().flat_map(|&data| LOADS.map(|load| (data, load)));
    loads.flat_map(|(data, load)| [throughput(results, scale, data, load), hits(results, scale, data, load)]).collect()
}

fn throughput(results: &TrialResults, scale: &DbioScale, data: f64, load: YcsbWorkload) -> Chart {
    let y = Axis {
        unit: 1e3,
        levels: if data == scale.goal_data() { levels(results, scale, load) } else { Vec::new() },
        ..Axis::new("thousand operations a second", "operations_per_second", AxisScale::Linear)
    };
    chart(results, scale, (data, load), ("throughput", y), PhaseStats::per_s)
}

/// The goals of ours at its best over each peer at its best, and what the disk's reads allow there.
fn levels(results: &TrialResults, scale: &DbioScale, load: YcsbWorkload) -> Vec<(String, f64)> {
    let (data, phase) = (scale.goal_data(), phase_name(load, scale.goal_clients()));
    let of = |pool_twelfths, candidate, pick: fn(&PhaseStats) -> f64| {
        results.median(ResultCell { data, pool_twelfths }, candidate, &phase, pick).unwrap_or(f64::NAN)
    };
    let (mut levels, mut best) = (Vec::new(), None);
    for peer in [Candidate::Buffered, Candidate::Direct] {
        let Some(found) = results.best_vs_best(Candidate::TwoTiers, &[peer], data, &phase) else { continue };
        let [ours, theirs] = found.pool_twelfths;
        let goal = figures::goals(load, peer, scale.values).1;
        levels.push((format!("goal: {goal} × {}", peer.name()), goal * of(theirs, peer, PhaseStats::per_s)));
        best = Some(ours);
    }
    let disk = results.disk_reads_per_s(data, scale.goal_clients());
    if let (Some(pool_twelfths), Some(disk)) = (best, disk) {
        let each = of(pool_twelfths, Candidate::TwoTiers, |stats| stats.per_op(counters::disk_reads(stats)));
        // Without reads the disk bounds nothing.
        if each > LEAST_READS {
            levels.push(("bound: the disk's reads".to_owned(), disk.median / each));
        }
    }
    levels
}

fn hits(results: &TrialResults, scale: &DbioScale, data: f64, load: YcsbWorkload) -> Chart {
    let y = Axis {
        levels: vec![("bound: all".into(), 1.0)],
        ..Axis::new("misses of the pool served from memory", "hit_ratio", AxisScale::Linear)
    };
    chart(results, scale, (data, load), ("hits", y), counters::second_hit_ratio)
}

fn chart(
    results: &TrialResults,
    scale: &DbioScale,
    (data, load): (f64, YcsbWorkload),
    (what, y): (&str, Axis),
    pick: fn(&PhaseStats) -> f64,
) -> Chart {
    let (clients, phase) = (scale.goal_clients(), phase_name(load, scale.goal_clients()));
    let series = |candidate: Candidate| {
        let point = |&pool_twelfths: &u64| {
            let value = results.median(ResultCell { data, pool_twelfths }, candidate, &phase, pick)?;
            Some((pool_twelfths as f64, value))
        };
        Series { name: candidate.name().to_owned(), points: scale.pools_for(data).iter().filter_map(point).collect() }
    };
    Chart {
        file: format!("dbio-{what}-{}-data-{data}", load.name()),
        title: format!("YCSB {}, data {data} of the memory, {clients} clients", load.name().to_uppercase()),
        x: Axis::new("size of the pool in twelfths of the memory", "pool_twelfths", AxisScale::Linear),
        y,
        body: ChartKind::Lines { marks: true, shaded: Vec::new() },
        series: Candidate::SWEPT.into_iter().chain([Candidate::PageCacheTier]).map(series).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::DbioArgs;
    use super::super::results::tests::trial;
    use super::*;
    use crate::experiment::tests::parse;

    #[test]
    fn every_load_has_its_charts_with_a_line_for_each_candidate() {
        let scale = DbioScale::new(&parse::<DbioArgs>("--data 0.83 --pools 1,6 --clients 2"));
        let mut results = TrialResults::default();
        for (pool_twelfths, per_s) in [(1, 100.0), (6, 200.0)] {
            let cell = ResultCell { data: 0.83, pool_twelfths };
            results.trials.push(trial(cell, Candidate::TwoTiers, 0, "b_c2", per_s));
        }
        let charts = of(&results, &scale);
        assert_eq!(charts.len(), 4);
        assert_eq!(charts[0].file, "dbio-throughput-b-data-0.83");
        let lines: Vec<_> = charts[0].series.iter().map(|series| (series.name.as_str(), series.points.len())).collect();
        assert_eq!(lines, [("buffered", 0), ("direct", 0), ("two_tiers", 2), ("page_cache_tier", 0)]);
        assert_eq!(charts[0].series[2].points[1], (6.0, 200.0));
    }
}
