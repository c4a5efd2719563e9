//! From trials to figures.
//!
//! Relies on the first load being the one that goals are stated for, under which a fork should duplicate 0.77 of the data.

use super::program::SaveMethod;
use super::trial::{RestoreResult, SaveResult};
use super::{LOADS, TrialResults};
use crate::format::mebibytes;
use crate::report::{Better, Figure, Report};
use crate::stats::Spread;

/// Adds all figures.
pub(super) fn add(results: &TrialResults, report: &mut Report) {
    let load = LOADS[0].name;
    report.results.push(growth(results, load, "mdc_fork_memory_growth").goal(0.3));
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

fn spread(values: &[f64]) -> Spread {
    Spread::of(values).unwrap_or(Spread { median: f64::NAN, least: f64::NAN, most: f64::NAN })
}

fn of_trials(results: &TrialResults, method: SaveMethod, load: &str, value: impl Fn(&SaveResult) -> f64) -> Vec<f64> {
    results.trials.iter().filter(|trial| trial.method == method && trial.load == load).map(value).collect()
}

fn of_restores(results: &TrialResults, method: SaveMethod, value: impl Fn(&RestoreResult) -> f64) -> Vec<f64> {
    results.restores.iter().filter(|restored| restored.method == method).map(value).collect()
}

/// Ratios of each round, `over` by `under`.
fn ratios(over: &[f64], under: &[f64]) -> Spread {
    spread(&over.iter().zip(under).map(|(over, under)| over / under).collect::<Vec<_>>())
}

fn growth(results: &TrialResults, load: &str, name: &str) -> Figure {
    let of = |method| spread(&of_trials(results, method, load, |trial| trial.growth));
    let (ours, forks) = (of(SaveMethod::Mdc), of(SaveMethod::Stdio));
    Figure::new(name, ours.median, "of the data", Better::Lower)
        .spread(ours)
        .peer("fork_memory_growth", forks.median)
        .note(format!("extra memory at its peak during a save; load {load}"))
}

fn time_ratio(results: &TrialResults, load: &str) -> Figure {
    let times = |method| of_trials(results, method, load, |trial| trial.save_s);
    let (ours, forks) = (times(SaveMethod::Mdc), times(SaveMethod::Stdio));
    let ratio = ratios(&ours, &forks);
    let bytes = of_trials(results, SaveMethod::Mdc, load, |trial| trial.file_bytes as f64);
    let raw_s = spread(&bytes).median / spread(&results.raw_write_bytes_per_s).median;
    Figure::new("mdc_fork_checkpoint_time_ratio", ratio.median, "x", Better::Lower)
        .spread(ratio)
        .peer("mdc_fork_s", spread(&ours).median)
        .peer("fork_s", spread(&forks).median)
        .bound("a raw write of the same bytes", raw_s / spread(&forks).median)
        .note(format!("time of a save, over stdio's; load {load}"))
}

fn restore_ratio(results: &TrialResults) -> Figure {
    let times = |method| of_restores(results, method, |restored| restored.all_s);
    let (ours, forks) = (times(SaveMethod::Mdc), times(SaveMethod::Stdio));
    let ratio = ratios(&forks, &ours);
    Figure::new("mdc_fork_restore_time_ratio", ratio.median, "x", Better::Higher)
        .spread(ratio)
        .peer("mdc_fork_s", spread(&ours).median)
        .peer("fork_s", spread(&forks).median)
        .peer("mdc_fork_first_ms", spread(&of_restores(results, SaveMethod::Mdc, |restored| restored.first_ms)).median)
        .note("stdio's time of a restore from the disk, over ours")
}

fn size_ratio(results: &TrialResults, load: &str) -> Figure {
    let sizes = |method| of_trials(results, method, load, |trial| trial.file_bytes as f64);
    let (ours, forks) = (sizes(SaveMethod::Mdc), sizes(SaveMethod::Stdio));
    Figure::new("mdc_fork_file_size_ratio", ratios(&ours, &forks).median, "x", Better::Lower)
        .peer("mdc_fork_mib", mebibytes(spread(&ours).median as u64))
        .peer("fork_mib", mebibytes(spread(&forks).median as u64))
        .note("the dump has the allocator's bytes, too")
}

fn cell(results: &TrialResults, method: SaveMethod, load: &str) -> Figure {
    let of = |value: fn(&SaveResult) -> f64| spread(&of_trials(results, method, load, value));
    let time = of(|trial| trial.save_s);
    Figure::new(format!("{}_{load}", method.name()), time.median, "s", Better::Lower)
        .spread(time)
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
        let mut report = crate::experiment::tests::report::<crate::checkpoint::Args>();
        add(&results, &mut report);
        assert_eq!((report.results[0].value, report.results[0].reached()), (0.25, Some(true)));
        assert_eq!(report.info[0].value, 0.5);
        assert!(report.info[1].value.is_nan(), "there was no restore");
    }
}
