//! From trials to the figures that have goals.
//!
//! Relies on [`Found`] for ratios. Cached writes are counted for each transaction or request, so that a policy under
//! which less was done doesn't look thrifty.

use super::cells::Work;
use super::found::{Found, Row};
use super::lab::stage::Fast;
use super::parts::{commits, overhead};
use super::policy::Policy;
use super::scale::Scale;
use super::tally::{EVERYTHING, Tally};
use super::ycsb::records::Workload;
use crate::report::{Better, Figure};
use crate::stats::Spread;

const OURS: Policy = Policy::CpPiIoi;

/// Names, units, goals and directions of a part's figures, for when it can't be run.
type Promise = (&'static str, &'static str, Option<f64>, Better);

const DATABASE: [Promise; 6] = [
    ("pg_small_cache_vs_all", "x", Some(1.8), Better::Higher),
    ("pg_large_cache_vs_all", "x", Some(0.97), Better::Higher),
    ("pg_congested_vs_all", "x", Some(2.2), Better::Higher),
    ("pg_cached_writes_saved", "of 1", Some(0.72), Better::Higher),
    ("pi_gain_over_cp", "x", None, Better::Higher),
    ("ioi_gain_over_pi", "x", None, Better::Higher),
];
const KEY_VALUES: [Promise; 3] = [
    ("redis_vs_all", "x", Some(1.3), Better::Higher),
    ("redis_cached_writes_saved", "of 1", Some(0.84), Better::Higher),
    ("redis_p999_ms", "ms", Some(100.0), Better::Lower),
];
const COMMITS: [Promise; 3] = [
    (commits::NAME, "x", Some(commits::GOAL), Better::Higher),
    ("log_commit_vs_redis_aof_c1", "x", Some(commits::GOAL), Better::Higher),
    ("log_commit_vs_redis_aof_c50", "x", Some(commits::GOAL), Better::Higher),
];
const MOUNT: [Promise; 1] = [(overhead::NAME, "x", Some(overhead::GOAL), Better::Lower)];

/// What a part would have told, with the reason why it doesn't.
pub fn not_run(part: &str, reason: &str) -> Vec<Figure> {
    let promises: &[Promise] = match part {
        "pg" => &DATABASE,
        "redis" => &KEY_VALUES,
        "log" => &COMMITS,
        _ => &MOUNT,
    };
    promises.iter().map(|promise| without_value(*promise, &format!("not_run: {reason}"))).collect()
}

fn without_value((name, unit, goal, better): Promise, note: &str) -> Figure {
    Figure { goal, ..Figure::new(name, f64::NAN, unit, better).note(note) }
}

fn with_value((name, unit, goal, better): Promise, value: f64) -> Figure {
    Figure { goal, ..Figure::new(name, value, unit, better) }
}

fn per_s(tally: &Tally) -> Option<f64> {
    Some(tally.per_s())
}

/// The database's figures.
pub fn of_database(found: &Found, scale: &Scale) -> Vec<Figure> {
    let [small, large, congested, saved, pi, ioi] = DATABASE;
    let row = |fast, capacity_mib| Row { work: Work::Tpcc, fast, capacity_mib };
    let scarce = row(Fast::Ram, scale.least_mib());
    let ample = row(Fast::Ram, scale.most_mib());
    vec![
        gain(found, small, scarce, OURS, Policy::All),
        gain(found, large, ample, OURS, Policy::All),
        gain(found, congested, row(Fast::Ssd, scale.most_mib()), OURS, Policy::All),
        saving(found, saved, &[ample]),
        gain(found, pi, scarce, Policy::CpPi, Policy::Cp),
        gain(found, ioi, scarce, OURS, Policy::CpPi),
    ]
}

/// The key-value store's figures: on the SSD, as the paper's, and the worse of its workloads.
pub fn of_key_values(found: &Found, scale: &Scale) -> Vec<Figure> {
    let [faster, saved, tail] = KEY_VALUES;
    let rows: Vec<Row> = [Workload::A, Workload::B]
        .map(|workload| Row { work: Work::Ycsb(workload), fast: Fast::Ssd, capacity_mib: scale.most_mib() })
        .into_iter()
        .filter(|row| found.rows().contains(row))
        .collect();
    let gains: Vec<Figure> = rows.iter().map(|row| gain(found, faster, *row, OURS, Policy::All)).collect();
    let gain = worst(gains, false).unwrap_or_else(|| without_value(faster, "not measured: it was not run"));
    vec![gain, saving(found, saved, &rows), tails(found, tail, &rows)]
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
fn gain(found: &Found, promise: Promise, row: Row, ours: Policy, theirs: Policy) -> Figure {
    let Some(ratio) = found.ratio(row, ours, theirs, per_s) else {
        return without_value(promise, &format!("not measured: {}", found.reason(row)));
    };
    let mut figure = with_value(promise, ratio.median).spread(ratio);
    for policy in Policy::EVERY {
        let (unit, factor) = if row.work == Work::Tpcc { ("tpmC", 60.0) } else { ("/s", 1.0) };
        if let Some(rate) = found.median(row.cell(policy), per_s) {
            figure = figure.peer(&format!("{} {unit}", policy.name()), rate * factor);
        }
    }
    figure.note(format!("{} over {}, {}", ours.name(), theirs.name(), row.name()))
}

/// The share of ALL's cached writes that we save, the least of `rows`.
fn saving(found: &Found, promise: Promise, rows: &[Row]) -> Figure {
    let figures = rows.iter().map(|&row| {
        let Some(ratio) = found.ratio(row, OURS, Policy::All, Tally::cached_bytes_per_op) else {
            return without_value(promise, &format!("not measured: {}", found.reason(row)));
        };
        let saved = Spread { median: 1.0 - ratio.median, least: 1.0 - ratio.most, most: 1.0 - ratio.least };
        let mut figure = with_value(promise, saved.median).spread(saved);
        for policy in Policy::EVERY {
            if let Some(bytes) = found.median(row.cell(policy), Tally::cached_bytes_per_op) {
                figure = figure.peer(&format!("{} KiB/op", policy.name()), bytes / 1024.0);
            }
        }
        figure.note(format!("1 - cached bytes per operation of {} over ALL's, {}", OURS.name(), row.name()))
    });
    worst(figures.collect(), false).unwrap_or_else(|| without_value(promise, "not measured: it was not run"))
}

/// The worst 99.9th percentile of `rows` under our policy.
fn tails(found: &Found, promise: Promise, rows: &[Row]) -> Figure {
    let p999_ms = |tally: &Tally| tally.latency_ns(EVERYTHING, 99.9).map(|ns| ns / 1e6);
    let figures = rows.iter().map(|&row| {
        let Some(spread) = found.spread(row.cell(OURS), p999_ms) else {
            return without_value(promise, &format!("not measured: {}", found.reason(row)));
        };
        let mut figure = with_value(promise, spread.median).spread(spread);
        for policy in Policy::EVERY {
            if let Some(ms) = found.median(row.cell(policy), p999_ms) {
                figure = figure.peer(&format!("{} ms", policy.name()), ms);
            }
        }
        figure.note(format!("99.9th percentile of all requests, {}, {}", OURS.name(), row.name()))
    });
    worst(figures.collect(), true).unwrap_or_else(|| without_value(promise, "not measured: it was not run"))
}

#[cfg(test)]
mod tests {
    use super::super::found::Trial;
    use super::super::found::tests::{SMALL, trial};
    use super::super::scale::tests::scale;
    use super::*;

    fn found() -> Found {
        let mut found = Found::default();
        let large = Row { capacity_mib: 4096, ..SMALL };
        for (row, policy, ops, cached) in [
            (SMALL, Policy::All, 100, 1000),
            (SMALL, Policy::Cp, 120, 1000),
            (SMALL, Policy::CpPi, 150, 1000),
            (SMALL, OURS, 200, 1000),
            (large, Policy::All, 200, 8000),
            (large, OURS, 200, 2000),
        ] {
            found.trials.push(trial(row, policy, 0, ops, cached));
        }
        found
    }

    #[test]
    fn figures_compare_what_the_paper_compares() {
        let figures = of_database(&found(), &scale("").unwrap());
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
        let row = |workload| Row { work: Work::Ycsb(workload), fast: Fast::Ssd, capacity_mib: 4096 };
        let (a, b) = (row(Workload::A), row(Workload::B));
        let mut found = Found::default();
        for (row, policy, ops) in [(a, Policy::All, 10), (a, OURS, 30), (b, Policy::All, 10), (b, OURS, 20)] {
            found.trials.push(trial(row, policy, 0, ops, 100));
        }
        let figures = of_key_values(&found, &scale);
        assert_eq!((figures[0].value, figures[1].value), (2.0, 0.5));
        assert_eq!(figures[2].value, 1.998);
        found.trials.retain(|trial| trial.cell != b.cell(OURS));
        found.trials.push(Trial { outcome: Err("gone".into()), ..trial(b, OURS, 0, 1, 1) });
        let figures = of_key_values(&found, &scale);
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
