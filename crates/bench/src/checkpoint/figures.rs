//! From trials to figures.
//!
//! Relies on the first load being the one that goals are stated for, under which a fork should duplicate 0.77 of the data.

use super::program::SaveMethod;
use super::trial::{RestoreResult, SaveResult};
use super::{LOADS, TrialResults};
use crate::format::mebibytes;
use crate::report::{BetterDirection, Figure, Report};
use crate::stats::Spread;

/// Extra memory during a save that ours should stay below, of the data.
pub(super) const GROWTH_GOAL: f64 = 0.3;

/// Adds all figures.
pub(super) fn add(results: &TrialResults, report: &mut Report) {
    let load = LOADS[0].name;
    report.results.push(growth(results, load, "mdc_fork_memory_growth").goal(GROWTH_GOAL));
    report.info.push(time_ratio(results, load));
    report.info.push(restore_ratio(results));
    report.info.push(size_ratio(results, load));
    for load in &LOADS {
        if results.trials.iter().any(|trial| trial.load == load.name) {
            report.info.push(growth(results, load.name, &format!("mdc_fork_memory_growth_{}", load.name)));
            for method in [SaveMethod::Stdio, SaveMethod::Mdc] {
                report.info.push(cell(results, method, load.name));
            }
        }
    }
}

fn of_trials(results: &TrialResults, method: SaveMethod, load: &str, value: impl Fn(&SaveResult) -> f64) -> Vec<f64> {
    results.trials.iter().filter(|trial| trial.method == method && trial.load == load).map(value).collect()
}

fn of_restores(results: &TrialResults, method: SaveMethod, value: impl Fn(&RestoreResult) -> f64) -> Vec<f64> {
    results.restores.iter().filter(|restored| restored.method == method).map(value).collect()
}

fn growth(results: &TrialResults, load: &str, name: &str) -> Figure {
    let of = |method| Spread::or_nan(&of_trials(results, method, load, |trial| trial.growth));
    let (ours, forks) = (of(SaveMethod::Mdc), of(SaveMethod::Stdio));
    Figure::new(name, ours.median, "of the data", BetterDirection::Lower)
        .spread(ours)
        .peer("fork_memory_growth", forks.median)
        .note(format!("extra memory at its peak during a save; load {load}"))
}

fn time_ratio(results: &TrialResults, load: &str) -> Figure {
    let times = |method| of_trials(results, method, load, |trial| trial.save_s);
    let (ours, forks) = (times(SaveMethod::Mdc), times(SaveMethod::Stdio));
    let ratio = Spread::of_ratios(&ours, &forks);
    let bytes = of_trials(results, SaveMethod::Mdc, load, |trial| trial.file_bytes as f64);
    let raw_s = Spread::or_nan(&bytes).median / Spread::or_nan(&results.raw_write_bytes_per_s).median;
    Figure::new("mdc_fork_checkpoint_time_ratio", ratio.median, "x", BetterDirection::Lower)
        .spread(ratio)
        .peer("mdc_fork_s", Spread::or_nan(&ours).median)
        .peer("fork_s", Spread::or_nan(&forks).median)
        .bound("a raw write of the same bytes", raw_s / Spread::or_nan(&forks).median)
        .note(format!("time of a save, over stdio's; load {load}"))
}

fn restore_ratio(results: &TrialResults) -> Figure {
    let times = |method| of_restores(results, method, |restored| restored.all_s);
    let (ours, forks) = (times(SaveMethod::Mdc), times(SaveMethod::Stdio));
    let ratio = Spread::of_ratios(&forks, &ours);
    let raw_s = Spread::or_nan(&of_restores(results, SaveMethod::Mdc, |restored| restored.raw_read_s)).median;
    Figure::new("mdc_fork_restore_time_ratio", ratio.median, "x", BetterDirection::Higher)
        .spread(ratio)
        .bound("a direct read of our file", Spread::or_nan(&forks).median / raw_s)
        .peer("mdc_fork_s", Spread::or_nan(&ours).median)
        .peer("fork_s", Spread::or_nan(&forks).median)
        .peer(
            "mdc_fork_first_ms",
            Spread::or_nan(&of_restores(results, SaveMethod::Mdc, |restored| restored.first_ms)).median,
        )
        .note("stdio's time of a restore from the disk, over ours")
}

fn size_ratio(results: &TrialResults, load: &str) -> Figure {
    let sizes = |method| of_trials(results, method, load, |trial| trial.file_bytes as f64);
    let (ours, forks) = (sizes(SaveMethod::Mdc), sizes(SaveMethod::Stdio));
    Figure::new("mdc_fork_file_size_ratio", Spread::of_ratios(&ours, &forks).median, "x", BetterDirection::Lower)
        .peer("mdc_fork_mib", mebibytes(Spread::or_nan(&ours).median as u64))
        .peer("fork_mib", mebibytes(Spread::or_nan(&forks).median as u64))
        .note("the dump has the allocator's bytes, too")
}

fn cell(results: &TrialResults, method: SaveMethod, load: &str) -> Figure {
    let of = |value: fn(&SaveResult) -> f64| Spread::or_nan(&of_trials(results, method, load, value));
    let time = of(|trial| trial.save_s);
    let raw_s = of(|trial| trial.file_bytes as f64).median / Spread::or_nan(&results.raw_write_bytes_per_s).median;
    Figure::new(format!("{}_{load}", method.name()), time.median, "s", BetterDirection::Lower)
        .spread(time)
        .bound("a raw write of the same bytes", raw_s)
        .peer("memory_growth", of(|trial| trial.growth).median)
        .peer("fork_ms", of(|trial| trial.fork_ms).median)
        .peer("longest_update_ms", of(|trial| trial.longest_update_ms).median)
        .peer("updates", of(|trial| trial.updates as f64).median)
        .note("time of a save")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(method: SaveMethod, growth: f64, save_s: f64) -> SaveResult {
        SaveResult {
            method,
            load: LOADS[0].name,
            round: 0,
            growth,
            curve: vec![(0.0, 0.0), (0.1, growth)],
            save_s,
            fork_ms: 1.0,
            longest_update_ms: 1.0,
            ops: 10,
            updates: 10,
            file_bytes: 1 << 20,
            sum: 1,
        }
    }

    #[test]
    fn growth_is_the_median_and_times_are_compared_round_by_round() {
        let mut results = TrialResults { raw_write_bytes_per_s: vec![1e6], ..TrialResults::default() };
        for (growth, save_s) in [(0.2, 2.0), (0.3, 4.0), (0.25, 6.0)] {
            results.trials.push(trial(SaveMethod::Stdio, 3.0 * growth, save_s));
            results.trials.push(trial(SaveMethod::Mdc, growth, save_s / 2.0));
        }
        let mut report = crate::experiment::tests::report::<crate::checkpoint::CheckpointArgs>();
        add(&results, &mut report);
        assert_eq!((report.results[0].value, report.results[0].reached()), (0.25, Some(true)));
        assert_eq!(report.info[0].value, 0.5);
        assert!(report.info[1].value.is_nan(), "there was no restore");
    }

    #[test]
    fn times_are_bounded_by_the_disk_and_a_restore_that_was_not_measured_by_nothing() {
        let mut results = TrialResults { raw_write_bytes_per_s: vec![f64::from(1 << 20)], ..TrialResults::default() };
        results.trials.extend([trial(SaveMethod::Stdio, 0.6, 4.0), trial(SaveMethod::Mdc, 0.2, 2.0)]);
        let bounds = |results: &TrialResults| {
            let mut report = crate::experiment::tests::report::<crate::checkpoint::CheckpointArgs>();
            add(results, &mut report);
            let of =
                |name: &str| report.info.iter().find(|figure| figure.name.starts_with(name)).unwrap().bound.clone();
            ["mdc_fork_checkpoint", "mdc_fork_restore"].map(|name| of(name).map(|bound| bound.value))
        };
        assert_eq!(bounds(&results), [Some(0.25), None]);
        for (method, all_s, raw_read_s) in [(SaveMethod::Stdio, 6.0, 1.0), (SaveMethod::Mdc, 3.0, 2.0)] {
            results.restores.push(RestoreResult { method, first_ms: 1.0, all_s, raw_read_s });
        }
        assert_eq!(bounds(&results), [Some(0.25), Some(3.0)]);
    }
}
