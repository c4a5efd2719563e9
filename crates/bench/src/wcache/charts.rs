//! The paper's figures as charts: 4 and 7 as lines over the capacity, 5 and 9 as columns for each policy.
//!
//! Relies on [`TrialResults`] for medians and ratios.

use super::cache_policy::CachePolicy;
use super::detail_figures::wait_causes;
use super::figures::goal_of;
use super::scenarios::Workload;
use super::testbed::storage_stack::FastDevice;
use super::trial_results::{ScenarioGroup, TrialResults};
use super::trial_stats::TrialStats;
use super::ycsb::records::YcsbWorkload;
use crate::chart::{Axis, AxisScale, Chart, ChartKind, Mark, Series};

/// Goals are stated for our policy.
const GOAL: &str = "goal of CP+PI+IOI";

/// All charts.
pub fn of(results: &TrialResults) -> Vec<Chart> {
    let per_minute = |stats: &TrialStats| Some(stats.per_s() * 60.0);
    let per_block = |stats: &TrialStats| Some(stats.ops as f64 / (stats.cache.cached_bytes()? / 4096.0));
    let (minute, block) = ("new orders a minute", "new orders for each cached block");
    let mut charts = vec![
        over_capacity(results, FastDevice::Ram, "wcache-figure-4a", minute, &per_minute),
        over_capacity(results, FastDevice::Ssd, "wcache-figure-4b", minute, &per_minute),
        over_capacity(results, FastDevice::Ram, "wcache-figure-7", block, &per_block),
    ];
    let factor = |name: &str| goal_of(name).unwrap_or(f64::NAN);
    let (small, large) = (factor("pg_small_cache_vs_all"), factor("pg_large_cache_vs_all"));
    charts[0].y.marks = goals(&charts[0], Some(small), large);
    charts[1].y.marks = goals(&charts[1], None, factor("pg_congested_vs_all"));
    // Who saves so much of the cached blocks does so many times the work for each.
    charts[2].y.marks = goals(&charts[2], None, 1.0 / (1.0 - factor("pg_cached_writes_saved")));
    charts.extend(waits(results));
    charts.push(ycsb(results));
    charts
}

fn columns(file: &str, title: String, y: &str, names: Vec<String>, is_stacked: bool, series: Vec<Series>) -> Chart {
    Chart {
        file: file.into(),
        title,
        x: Axis::new("", "column", AxisScale::Linear),
        y: Axis::new(y, "value", AxisScale::Linear),
        body: ChartKind::Columns { names, is_stacked },
        series,
    }
}

fn over_capacity(
    results: &TrialResults,
    fast: FastDevice,
    file: &str,
    y: &str,
    pick: &dyn Fn(&TrialStats) -> Option<f64>,
) -> Chart {
    let groups: Vec<ScenarioGroup> =
        results.groups().into_iter().filter(|group| group.work == Workload::Tpcc && group.fast == fast).collect();
    let points = |policy: CachePolicy| {
        let point =
            |group: &ScenarioGroup| Some((group.capacity_mib as f64, results.median(group.scenario(policy), pick)?));
        let mut points: Vec<(f64, f64)> = groups.iter().filter_map(point).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        points
    };
    let title = match fast {
        FastDevice::Ram => "TPC-C, cache in memory",
        FastDevice::Ssd => "TPC-C, cache on the congested SSD",
    };
    let series = CachePolicy::EVERY.map(|policy| Series { name: policy.name().to_owned(), points: points(policy) });
    Chart {
        file: file.into(),
        title: title.into(),
        x: Axis::new("capacity in MiB", "capacity_mib", AxisScale::PowersOfTwo),
        y: Axis::new(y, "value", AxisScale::Linear),
        body: ChartKind::Lines { marks: true, shaded: Vec::new() },
        series: series.to_vec(),
    }
}

/// Goals of ours at the least and at the largest capacity, as times of what ALL does there.
fn goals(chart: &Chart, least: Option<f64>, largest: f64) -> Vec<Mark> {
    let all = chart.series.iter().find(|series| series.name == CachePolicy::All.name());
    let points = all.map(|series| series.points.as_slice()).unwrap_or_default();
    let mark = |factor: f64, &(x, y): &(f64, f64)| Mark { name: GOAL.into(), x, y: factor * y };
    let first = points.first().zip(least).map(|(point, factor)| mark(factor, point));
    first.into_iter().chain(points.last().map(|point| mark(largest, point))).collect()
}

/// Figure 5: critical waits by cause, columns of policies, at the scarcest capacity.
fn waits(results: &TrialResults) -> Option<Chart> {
    let groups =
        results.groups().into_iter().filter(|group| group.work == Workload::Tpcc && group.fast == FastDevice::Ram);
    let group = groups.min_by_key(|group| group.capacity_mib)?;
    let mut series: Vec<Series> = Vec::new();
    for (column, policy) in CachePolicy::EVERY.into_iter().enumerate() {
        for (cause, ns) in wait_causes(results, group.scenario(policy)) {
            let point = (column as f64, ns / 1e6);
            match series.iter_mut().find(|series| series.name == cause) {
                Some(series) => series.points.push(point),
                None => series.push(Series { name: cause, points: vec![point] }),
            }
        }
    }
    let title = format!("TPC-C, cache in memory, {} MiB: waits of critical tasks", group.capacity_mib);
    let names = CachePolicy::EVERY.map(|policy| policy.name().to_owned()).to_vec();
    Some(columns("wcache-figure-5", title, "milliseconds of all clients in each second", names, true, series))
}

/// Figure 9: YCSB's throughput over ALL's.
fn ycsb(results: &TrialResults) -> Chart {
    let mut groups: Vec<ScenarioGroup> = results.groups();
    groups.retain(|group| matches!(group.work, Workload::Ycsb(YcsbWorkload::A | YcsbWorkload::B)));
    let series = CachePolicy::EVERY.map(|policy| {
        let point = |(column, group): (usize, &ScenarioGroup)| {
            let ratio = results.ratio(*group, policy, CachePolicy::All, |stats| Some(stats.per_s()))?;
            Some((column as f64, ratio.median))
        };
        Series { name: policy.name().to_owned(), points: groups.iter().enumerate().filter_map(point).collect() }
    });
    let names = groups.iter().map(|group| format!("{} {}", group.work.name(), group.fast.name())).collect();
    let title = "YCSB on redis-server".to_owned();
    let mut chart = columns("wcache-figure-9", title, "requests a second over ALL's", names, false, series.to_vec());
    chart.y.levels.extend(goal_of("redis_vs_all").map(|goal| (GOAL.to_owned(), goal)));
    chart
}

#[cfg(test)]
mod tests {
    use super::super::trial_results::tests::{SMALL, trial};
    use super::*;

    #[test]
    fn charts_and_their_numbers_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let large = ScenarioGroup { capacity_mib: 4096, ..SMALL };
        let ycsb = ScenarioGroup { work: Workload::Ycsb(YcsbWorkload::A), fast: FastDevice::Ssd, ..large };
        let mut results = TrialResults::default();
        for group in [SMALL, large, ycsb] {
            results.trials.push(trial(group, CachePolicy::All, 0, 100, 8192));
            results.trials.push(trial(group, CachePolicy::CpPiIoi, 0, 200, 4096));
        }
        of(&results).iter().for_each(|chart| chart.draw(dir.path()).unwrap());
        let text = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(text("wcache-figure-4a.svg").contains("<polyline"));
        assert!(text("wcache-figure-4a.csv").contains("CP+PI+IOI,4096,12000\n"));
        assert!(
            text("wcache-figure-4a.csv").contains("mark 32 10800 goal of CP+PI+IOI, mark 4096 5820 goal of CP+PI+IOI)")
        );
        assert!(text("wcache-figure-9.csv").contains("level 1.3 goal of CP+PI+IOI)"));
        assert!(text("wcache-figure-7.csv").contains("ALL,32,50\n"));
        assert!(text("wcache-figure-5.csv").contains("log_room,ALL,7\n"));
        assert!(text("wcache-figure-9.csv").contains("CP+PI+IOI,ycsb_a ssd,2\n"));
        assert!(!dir.path().join("wcache-figure-4b.svg").exists());
    }
}
