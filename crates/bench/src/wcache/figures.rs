//! From trials to the figures that have goals.
//!
//! Relies on [`TrialResults`] for ratios. Cached writes are counted for each transaction or request, so that a policy under
//! which less was done doesn't look thrifty.

use super::cache_policy::CachePolicy;
use super::parts::{log_commits, mount_overhead};
use super::scale::WcacheScale;
use super::scenarios::Workload;
use super::testbed::storage_stack::FastDevice;
use super::trial_results::{ScenarioGroup, TrialResults};
use super::trial_stats::{EVERYTHING, TrialStats};
use super::ycsb::records::YcsbWorkload;
use crate::report::{BetterDirection, Figure};
use crate::stats::Spread;

const OURS: CachePolicy = CachePolicy::CpPiIoi;

/// Names, units, goals and directions of a part's figures, for when it can't be run.
type PlannedFigures = (&'static str, &'static str, Option<f64>, BetterDirection);

const DATABASE: [PlannedFigures; 6] = [
    ("pg_small_cache_vs_all", "x", Some(1.8), BetterDirection::Higher),
    ("pg_large_cache_vs_all", "x", Some(0.97), BetterDirection::Higher),
    ("pg_congested_vs_all", "x", Some(2.2), BetterDirection::Higher),
    ("pg_cached_writes_saved", "of 1", Some(0.72), BetterDirection::Higher),
    ("pi_gain_over_cp", "x", None, BetterDirection::Higher),
    ("ioi_gain_over_pi", "x", None, BetterDirection::Higher),
];
const KEY_VALUES: [PlannedFigures; 3] = [
    ("redis_vs_all", "x", Some(1.3), BetterDirection::Higher),
    ("redis_cached_writes_saved", "of 1", Some(0.84), BetterDirection::Higher),
    ("redis_p999_ms", "ms", Some(100.0), BetterDirection::Lower),
];
const COMMITS: [PlannedFigures; 3] = [
    (log_commits::NAME, "x", Some(log_commits::GOAL), BetterDirection::Higher),
    ("log_commit_vs_redis_aof_c1", "x", Some(log_commits::GOAL), BetterDirection::Higher),
    ("log_commit_vs_redis_aof_c50", "x", Some(log_commits::GOAL), BetterDirection::Higher),
];
const MOUNT: [PlannedFigures; 1] = [(mount_overhead::NAME, "x", Some(mount_overhead::GOAL), BetterDirection::Lower)];

/// The goal of a figure.
pub fn goal_of(name: &str) -> Option<f64> {
    DATABASE.iter().chain(&KEY_VALUES).find(|figure| figure.0 == name)?.2
}

/// What a part would have told, with the reason why it doesn't.
pub fn not_run(part: &str, reason: &str) -> Vec<Figure> {
    let promises: &[PlannedFigures] = match part {
        "pg" => &DATABASE,
        "redis" => &KEY_VALUES,
        "log" => &COMMITS,
        _ => &MOUNT,
    };
    promises.iter().map(|promise| without_value(*promise, &format!("not_run: {reason}"))).collect()
}

fn without_value((name, unit, goal, better): PlannedFigures, note: &str) -> Figure {
    Figure { goal, ..Figure::new(name, f64::NAN, unit, better).note(note) }
}

fn with_value((name, unit, goal, better): PlannedFigures, value: f64) -> Figure {
    Figure { goal, ..Figure::new(name, value, unit, better) }
}

fn per_s(stats: &TrialStats) -> Option<f64> {
    Some(stats.per_s())
}

/// The database's figures.
pub fn of_database(results: &TrialResults, scale: &WcacheScale) -> Vec<Figure> {
    let [small, large, congested, saved, pi, ioi] = DATABASE;
    let group = |fast, capacity_mib| ScenarioGroup { work: Workload::Tpcc, fast, capacity_mib };
    let scarce = group(FastDevice::Ram, scale.least_mib());
    let ample = group(FastDevice::Ram, scale.most_mib());
    vec![
        gain(results, small, scarce, OURS, CachePolicy::All),
        gain(results, large, ample, OURS, CachePolicy::All),
        gain(results, congested, group(FastDevice::Ssd, scale.most_mib()), OURS, CachePolicy::All),
        saving(results, saved, &[ample]),
        gain(results, pi, scarce, CachePolicy::CpPi, CachePolicy::Cp),
        gain(results, ioi, scarce, OURS, CachePolicy::CpPi),
    ]
}

/// The key-value store's figures: on the SSD, as the paper's, and the worse of its workloads.
pub fn of_key_values(results: &TrialResults, scale: &WcacheScale) -> Vec<Figure> {
    let [faster, saved, tail] = KEY_VALUES;
    let groups: Vec<ScenarioGroup> = [YcsbWorkload::A, YcsbWorkload::B]
        .map(|workload| ScenarioGroup {
            work: Workload::Ycsb(workload),
            fast: FastDevice::Ssd,
            capacity_mib: scale.most_mib(),
        })
        .into_iter()
        .filter(|group| results.groups().contains(group))
        .collect();
    let gains: Vec<Figure> = groups.iter().map(|group| gain(results, faster, *group, OURS, CachePolicy::All)).collect();
    let gain = worst(gains, false).unwrap_or_else(|| without_value(faster, "not measured: it was not run"));
    vec![gain, saving(results, saved, &groups), tails(results, tail, &groups)]
}

/// The figure with the smallest value, or the largest; one without a value before all.
fn worst(figures: Vec<Figure>, is_high_worse: bool) -> Option<Figure> {
    let badness = |figure: &Figure| match figure.value {
        value if value.is_nan() => f64::INFINITY,
        value if is_high_worse => value,
        value => -value,
    };
    figures.into_iter().max_by(|one, other| badness(one).total_cmp(&badness(other)))
}

/// Throughput of `ours` over that of `theirs`.
fn gain(
    results: &TrialResults,
    promise: PlannedFigures,
    group: ScenarioGroup,
    ours: CachePolicy,
    theirs: CachePolicy,
) -> Figure {
    let Some(ratio) = results.ratio(group, ours, theirs, per_s) else {
        return without_value(promise, &format!("not measured: {}", results.reason(group)));
    };
    let mut figure = with_value(promise, ratio.median).spread(ratio);
    for policy in CachePolicy::EVERY {
        let (unit, factor) = if group.work == Workload::Tpcc { ("tpmC", 60.0) } else { ("/s", 1.0) };
        if let Some(rate) = results.median(group.scenario(policy), per_s) {
            figure = figure.peer(&format!("{} {unit}", policy.name()), rate * factor);
        }
    }
    figure.note(format!("{} over {}, {}", ours.name(), theirs.name(), group.name()))
}

/// The share of ALL's cached writes that we save, the least of `groups`.
fn saving(results: &TrialResults, promise: PlannedFigures, groups: &[ScenarioGroup]) -> Figure {
    let figures = groups.iter().map(|&group| {
        let Some(ratio) = results.ratio(group, OURS, CachePolicy::All, TrialStats::cached_bytes_per_op) else {
            return without_value(promise, &format!("not measured: {}", results.reason(group)));
        };
        let saved = Spread { median: 1.0 - ratio.median, least: 1.0 - ratio.most, most: 1.0 - ratio.least };
        let mut figure = with_value(promise, saved.median).spread(saved).bound("nothing cached", 1.0);
        for policy in CachePolicy::EVERY {
            if let Some(bytes) = results.median(group.scenario(policy), TrialStats::cached_bytes_per_op) {
                figure = figure.peer(&format!("{} KiB/op", policy.name()), bytes / 1024.0);
            }
        }
        figure.note(format!("1 - cached bytes per operation of {} over ALL's, {}", OURS.name(), group.name()))
    });
    worst(figures.collect(), false).unwrap_or_else(|| without_value(promise, "not measured: it was not run"))
}

/// The worst 99.9th percentile of `groups` under our policy.
fn tails(results: &TrialResults, promise: PlannedFigures, groups: &[ScenarioGroup]) -> Figure {
    let p999_ms = |stats: &TrialStats| stats.latency_ns(EVERYTHING, 99.9).map(|ns| ns / 1e6);
    let figures = groups.iter().map(|&group| {
        let Some(spread) = results.spread(group.scenario(OURS), p999_ms) else {
            return without_value(promise, &format!("not measured: {}", results.reason(group)));
        };
        let mut figure = with_value(promise, spread.median).spread(spread);
        for policy in CachePolicy::EVERY {
            if let Some(ms) = results.median(group.scenario(policy), p999_ms) {
                figure = figure.peer(&format!("{} ms", policy.name()), ms);
            }
        }
        figure.note(format!("99.9th percentile of all requests, {}, {}", OURS.name(), group.name()))
    });
    worst(figures.collect(), true).unwrap_or_else(|| without_value(promise, "not measured: it was not run"))
}

#[cfg(test)]
mod tests {
    use super::super::scale::tests::scale;
    use super::super::trial_results::TrialResult;
    use super::super::trial_results::tests::{SMALL, trial};
    use super::*;

    fn results() -> TrialResults {
        let mut results = TrialResults::default();
        let large = ScenarioGroup { capacity_mib: 4096, ..SMALL };
        for (group, policy, ops, cached) in [
            (SMALL, CachePolicy::All, 100, 1000),
            (SMALL, CachePolicy::Cp, 120, 1000),
            (SMALL, CachePolicy::CpPi, 150, 1000),
            (SMALL, OURS, 200, 1000),
            (large, CachePolicy::All, 200, 8000),
            (large, OURS, 200, 2000),
        ] {
            results.trials.push(trial(group, policy, 0, ops, cached));
        }
        results
    }

    #[test]
    fn figures_compare_what_the_paper_compares() {
        let figures = of_database(&results(), &scale("").unwrap());
        let value = |name: &str| figures.iter().find(|figure| figure.name == name).unwrap();
        assert_eq!((value("pg_small_cache_vs_all").value, value("pg_small_cache_vs_all").reached()), (2.0, Some(true)));
        assert_eq!(value("pg_large_cache_vs_all").value, 1.0);
        assert_eq!((value("pg_cached_writes_saved").value, value("pi_gain_over_cp").value), (0.75, 1.25));
        assert!(value("pg_congested_vs_all").value.is_nan());
        assert!(value("pg_congested_vs_all").note.starts_with("not measured"));
        assert_eq!(value("pg_small_cache_vs_all").peer["CP tpmC"], 7200.0);
    }

    #[test]
    fn the_worse_workload_counts_and_a_failed_one_leaves_no_value() {
        let scale = scale("").unwrap();
        let group =
            |workload| ScenarioGroup { work: Workload::Ycsb(workload), fast: FastDevice::Ssd, capacity_mib: 4096 };
        let (a, b) = (group(YcsbWorkload::A), group(YcsbWorkload::B));
        let mut results = TrialResults::default();
        for (group, policy, ops) in [(a, CachePolicy::All, 10), (a, OURS, 30), (b, CachePolicy::All, 10), (b, OURS, 20)]
        {
            results.trials.push(trial(group, policy, 0, ops, 100));
        }
        let figures = of_key_values(&results, &scale);
        assert_eq!((figures[0].value, figures[1].value), (2.0, 0.5));
        assert_eq!(figures[2].value, 1.998);
        results.trials.retain(|trial| trial.scenario != b.scenario(OURS));
        results.trials.push(TrialResult { outcome: Err("gone".into()), ..trial(b, OURS, 0, 1, 1) });
        let figures = of_key_values(&results, &scale);
        assert!(figures[0].value.is_nan() && figures[0].note.contains("gone"), "{:?}", figures[0]);
    }

    #[test]
    fn a_part_that_is_not_run_says_why_in_each_of_its_figures() {
        for (part, count) in [("pg", 6), ("redis", 3), ("log", 3), ("mount", 1)] {
            let figures = not_run(part, "no FUSE");
            assert_eq!(figures.len(), count);
            assert!(figures.iter().all(|figure| figure.note == "not_run: no FUSE" && figure.value.is_nan()));
        }
    }
}
