//! From the rounds to figures.
//!
//! Relies on the rate of updates being one at which redis-server, as it is, duplicates the share that goals are stated for.

use serde_json::{Map, Value, json};

use super::server::StoreFormat;
use super::trial::{RestoreResult, SaveResult};
use super::{FORK_GROWTH, RedisResults};
use crate::format::mebibytes;
use crate::report::{Better, Figure, Report};
use crate::stats::Spread;

const GROWTH: &str = "mdc_redis_memory_growth";
const GROWTH_GOAL: f64 = 0.3;

/// The figure that the part is for, where it could not be run.
pub fn not_measured(reason: &str, report: &mut Report) {
    let figure = Figure::new(GROWTH, f64::NAN, "of the memory", Better::Lower);
    report.results.push(figure.note(format!("not measured: {reason}")));
}

/// The facts of its scale.
pub fn facts(results: &RedisResults) -> Map<String, Value> {
    let mut facts = Map::new();
    facts.insert("redis_keys".into(), json!(results.keys));
    facts.insert("redis_version".into(), json!(results.version));
    facts.insert("redis_updates_per_s".into(), json!(results.updates_per_s.round()));
    facts
}

/// Adds all figures.
pub fn add(results: &RedisResults, report: &mut Report) {
    let saves = |format, value: fn(&SaveResult) -> f64| -> Vec<f64> {
        results.saves.iter().filter(|save| save.format == format).map(value).collect()
    };
    let restores = |format| -> Vec<f64> {
        let took_s = |restored: &RestoreResult| restored.took_s;
        results.restores.iter().filter(|restored| restored.format == format).map(took_s).collect()
    };
    let both = |value| [StoreFormat::Mdc, StoreFormat::Rdb].map(|format| saves(format, value));
    let [growth, fork_growth] = both(|save| save.growth).map(|values| spread(&values));
    let [updates, fork_updates] = both(|save| save.updates as f64 / save.save_s).map(|values| spread(&values).median);
    report.results.push(
        Figure::new(GROWTH, growth.median, "of the memory", Better::Lower)
            .goal(GROWTH_GOAL)
            .spread(growth)
            .peer("redis_fork_memory_growth", fork_growth.median)
            .peer("updates_per_s", updates)
            .peer("redis_fork_updates_per_s", fork_updates)
            .note(format!(
                "redis-server's extra memory at its peak during a save, over its memory before; updates at a rate at which it duplicates {FORK_GROWTH}"
            )),
    );
    let [save_s, fork_s] = both(|save| save.save_s);
    let ratio = Figure::new("mdc_redis_checkpoint_time_ratio", ratios(&save_s, &fork_s).median, "x", Better::Lower)
        .spread(ratios(&save_s, &fork_s))
        .peer("redis_mdc_s", spread(&save_s).median)
        .peer("redis_fork_s", spread(&fork_s).median)
        .peer("redis_mdc_logged_s", spread(&saves(StoreFormat::Mdc, |save| save.logged_s)).median)
        .peer("redis_fork_fork_ms", spread(&saves(StoreFormat::Rdb, |save| save.fork_ms)).median)
        .note("time of a save under these updates, over redis-server's");
    report.info.push(ratio);
    let [ours, forks] = [StoreFormat::Mdc, StoreFormat::Rdb].map(restores);
    report.info.push(
        Figure::new("mdc_redis_restore_time_ratio", ratios(&forks, &ours).median, "x", Better::Higher)
            .spread(ratios(&forks, &ours))
            .peer("redis_mdc_s", spread(&ours).median)
            .peer("redis_fork_s", spread(&forks).median)
            .note("redis-server's time of a restart from the disk, over ours"),
    );
    let [bytes, fork_bytes] = both(|save| save.file_bytes as f64);
    report.info.push(
        Figure::new("mdc_redis_file_size_ratio", ratios(&bytes, &fork_bytes).median, "x", Better::Lower)
            .peer("redis_mdc_mib", mebibytes(spread(&bytes).median as u64))
            .peer("redis_fork_mib", mebibytes(spread(&fork_bytes).median as u64))
            .note("the dump has all of the allocator's memory; rdbcompression no"),
    );
}

fn spread(values: &[f64]) -> Spread {
    Spread::of(values).unwrap_or(Spread { median: f64::NAN, least: f64::NAN, most: f64::NAN })
}

/// Ratios of each round, `over` by `under`.
fn ratios(over: &[f64], under: &[f64]) -> Spread {
    spread(&over.iter().zip(under).map(|(over, under)| over / under).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_the_median_and_a_part_that_could_not_run_says_why() {
        let mut results = RedisResults::default();
        for (growth, save_s) in [(0.2, 2.0), (0.4, 3.0), (0.25, 4.0)] {
            for (format, factor) in [(StoreFormat::Rdb, 3.0), (StoreFormat::Mdc, 1.0)] {
                results.saves.push(SaveResult {
                    format,
                    growth: growth * factor,
                    save_s: save_s * factor,
                    logged_s: 0.1,
                    fork_ms: 1.0,
                    updates: 100,
                    file_bytes: 1 << 20,
                });
            }
        }
        let mut report = crate::experiment::tests::report::<crate::checkpoint::Args>();
        add(&results, &mut report);
        assert_eq!((report.results[0].value, report.results[0].reached()), (0.25, Some(true)));
        assert!((report.info[0].value - 1.0 / 3.0).abs() < 0.001, "{}", report.info[0].value);
        assert!(report.info[1].value.is_nan(), "there was no restore");
        let mut report = crate::experiment::tests::report::<crate::checkpoint::Args>();
        not_measured("no mirror", &mut report);
        assert!(report.results[0].note.contains("no mirror") && report.results[0].reached().is_none());
    }
}
