//! From the rounds to figures.
//!
//! Relies on the rate of updates being one at which redis-server, as it is, duplicates the share that goals are stated for.

use serde_json::{Map, Value, json};

use super::server::StoreFormat;
use super::trial::{RestoreResult, SaveResult};
use super::{FORK_GROWTH, RedisResults};
use crate::format::mebibytes;
use crate::report::{BetterDirection, Figure, Report};
use crate::stats::Spread;

const GROWTH: &str = "mdc_redis_memory_growth";
const GROWTH_GOAL: f64 = 0.3;

/// The figure that the part is for, where it could not be run.
pub fn not_measured(reason: &str, report: &mut Report) {
    let figure = Figure::new(GROWTH, f64::NAN, "of the memory", BetterDirection::Lower);
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
    let restores = |format, value: fn(&RestoreResult) -> f64| -> Vec<f64> {
        results.restores.iter().filter(|restored| restored.format == format).map(value).collect()
    };
    let both = |value| [StoreFormat::Mdc, StoreFormat::Rdb].map(|format| saves(format, value));
    let [growth, fork_growth] = both(|save| save.growth).map(|values| Spread::or_nan(&values));
    let [updates, fork_updates] =
        both(|save| save.updates as f64 / save.save_s).map(|values| Spread::or_nan(&values).median);
    report.results.push(
        Figure::new(GROWTH, growth.median, "of the memory", BetterDirection::Lower)
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
    let [bytes, fork_bytes] = both(|save| save.file_bytes as f64);
    let raw_write_s = Spread::or_nan(&bytes).median / Spread::or_nan(&results.raw_write_bytes_per_s).median;
    let ratio = Figure::new(
        "mdc_redis_checkpoint_time_ratio",
        Spread::of_ratios(&save_s, &fork_s).median,
        "x",
        BetterDirection::Lower,
    )
    .spread(Spread::of_ratios(&save_s, &fork_s))
    .bound("a raw write of the same bytes", raw_write_s / Spread::or_nan(&fork_s).median)
    .peer("redis_mdc_s", Spread::or_nan(&save_s).median)
    .peer("redis_fork_s", Spread::or_nan(&fork_s).median)
    .peer("redis_mdc_logged_s", Spread::or_nan(&saves(StoreFormat::Mdc, |save| save.logged_s)).median)
    .peer("redis_fork_fork_ms", Spread::or_nan(&saves(StoreFormat::Rdb, |save| save.fork_ms)).median)
    .note("time of a save under these updates, over redis-server's");
    report.info.push(ratio);
    let [ours, forks] = [StoreFormat::Mdc, StoreFormat::Rdb].map(|format| restores(format, |restored| restored.took_s));
    let raw_read_s = Spread::or_nan(&restores(StoreFormat::Mdc, |restored| restored.raw_read_s)).median;
    report.info.push(
        Figure::new(
            "mdc_redis_restore_time_ratio",
            Spread::of_ratios(&forks, &ours).median,
            "x",
            BetterDirection::Higher,
        )
        .spread(Spread::of_ratios(&forks, &ours))
        .bound("a direct read of our file", Spread::or_nan(&forks).median / raw_read_s)
        .peer("redis_mdc_s", Spread::or_nan(&ours).median)
        .peer("redis_fork_s", Spread::or_nan(&forks).median)
        .note("redis-server's time of a restart from the disk, over ours"),
    );
    report.info.push(size_ratio(&bytes, &fork_bytes));
}

fn size_ratio(bytes: &[f64], fork_bytes: &[f64]) -> Figure {
    Figure::new("mdc_redis_file_size_ratio", Spread::of_ratios(bytes, fork_bytes).median, "x", BetterDirection::Lower)
        .peer("redis_mdc_mib", mebibytes(Spread::or_nan(bytes).median as u64))
        .peer("redis_fork_mib", mebibytes(Spread::or_nan(fork_bytes).median as u64))
        .note("the dump has all of the allocator's memory; rdbcompression no")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_the_median_and_a_part_that_could_not_run_says_why() {
        let raw_write_bytes_per_s = vec![f64::from(2 << 20)];
        let mut results = RedisResults { raw_write_bytes_per_s, ..RedisResults::default() };
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
        let mut report = crate::experiment::tests::report::<crate::checkpoint::CheckpointArgs>();
        add(&results, &mut report);
        assert_eq!((report.results[0].value, report.results[0].reached()), (0.25, Some(true)));
        assert!((report.info[0].value - 1.0 / 3.0).abs() < 0.001, "{}", report.info[0].value);
        assert!((report.info[0].bound.as_ref().unwrap().value - 0.5 / 9.0).abs() < 0.001, "{:?}", report.info[0]);
        assert!(report.info[1].value.is_nan() && report.info[1].bound.is_none(), "there was no restore");
        let mut report = crate::experiment::tests::report::<crate::checkpoint::CheckpointArgs>();
        not_measured("no mirror", &mut report);
        assert!(report.results[0].note.contains("no mirror") && report.results[0].reached().is_none());
    }
}
