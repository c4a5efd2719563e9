//! From trials to figures.
//!
//! Relies on a round's two trials having had the same load: gains are taken round by round, and the middle one counts.

use super::TrialResults;
use super::epochs::EpochLine;
use super::trial::TrialResult;
use crate::report::{BetterDirection, Figure, Report};
use crate::stats::{self, Spread};

/// Adds all figures.
pub(super) fn add(results: &TrialResults, report: &mut Report) {
    add_throughput(results, report);
    add_latency(results, report);
    add_pages(results, report);
    let (plain, preloaded) = results.extra_mib;
    report.info.push(
        Figure::new("forkers_extra_memory_mib", preloaded, "MiB", BetterDirection::Lower)
            .peer("without", plain)
            .note("peak of the proportional set size, with the child, above just before a save; one save each"),
    );
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The gain of every round, and the medians of both servers.
fn gains(results: &TrialResults, pick: impl Fn(&TrialResult) -> f64) -> (Spread, f64, f64) {
    let pairs: Vec<(f64, f64)> = results.rounds.iter().map(|(plain, with)| (pick(plain), pick(with))).collect();
    let gains: Vec<f64> = pairs.iter().map(|(plain, with)| with / plain - 1.0).collect();
    let median = |values: Vec<f64>| Spread::of(&values).map_or(0.0, |spread| spread.median);
    let none = Spread { median: 0.0, least: 0.0, most: 0.0 };
    (
        Spread::of(&gains).unwrap_or(none),
        median(pairs.iter().map(|pair| pair.0).collect()),
        median(pairs.iter().map(|pair| pair.1).collect()),
    )
}

fn add_throughput(results: &TrialResults, report: &mut Report) {
    let (gain, plain, with) = gains(results, |trial| mean(&trial.during_per_s));
    let (_, plain_rest, _) = gains(results, |trial| mean(&trial.rest_per_s));
    report.results.push(
        Figure::new("redis_throughput_gain", gain.median, "of 1", BetterDirection::Higher)
            .goal(0.05)
            .spread(gain)
            .bound("redis-server while no save runs", plain_rest / plain - 1.0)
            .peer("without, updates/s", plain)
            .peer("with, updates/s", with)
            .note(
                "updates a second while a save runs, with the library over without, less 1; median of the rounds; \
                   coverage was learned in earlier saves",
            ),
    );
    let (gain, plain, with) = gains(results, |trial| mean(&trial.cycle_per_s));
    report.info.push(
        Figure::new("redis_cycle_throughput_gain", gain.median, "of 1", BetterDirection::Higher)
            .spread(gain)
            .peer("without, updates/s", plain)
            .peer("with, updates/s", with)
            .note("the same over whole periods from save to save, as long with the library as without (the paper's measure): a save \
                   that ends sooner counts, and so does that the library makes huge pages again"),
    );
    for (name, unit, pick) in [
        ("redis_save_s", "s", (|trial| mean(&trial.took_s)) as fn(&TrialResult) -> f64),
        ("redis_processor_us_per_update", "us", |trial| mean(&trial.processor_us)),
        ("redis_fork_us", "us", |trial| mean(&trial.forks_us)),
    ] {
        let (_, plain, with) = gains(results, pick);
        report.info.push(Figure::new(name, with, unit, BetterDirection::Lower).peer("without", plain));
    }
}

fn add_latency(results: &TrialResults, report: &mut Report) {
    let mut all = [stats::latency_histogram(), stats::latency_histogram()];
    let mut per_round = Vec::new();
    for (plain, with) in &results.rounds {
        let mut own = [stats::latency_histogram(), stats::latency_histogram()];
        for (candidate, trial) in [plain, with].into_iter().enumerate() {
            for &latency in &trial.latencies_us {
                // The bounds of the histogram hold ten minutes; nothing here waits longer.
                let _ = own[candidate].record(u64::from(latency).max(1));
                let _ = all[candidate].record(u64::from(latency).max(1));
            }
        }
        if let [Some(plain), Some(with)] = own.map(|histogram| stats::p999_us(&histogram)) {
            per_round.push(plain / with);
        }
    }
    let [plain, with] = all.map(|histogram| stats::p999_us(&histogram).unwrap_or(0.0));
    let gain = Spread::of(&per_round).unwrap_or(Spread { median: 0.0, least: 0.0, most: 0.0 });
    report.results.push(
        Figure::new("redis_p999_gain", gain.median, "x", BetterDirection::Higher)
            .goal(1.0)
            .spread(gain)
            .peer("without, us", plain)
            .peer("with, us", with)
            .note("99.9th percentile while a save runs, without the library over with; a trickle of 2000 requests/s in an \
                   open loop beside the updates; median of the rounds, peers over all rounds"),
    );
}

fn add_pages(results: &TrialResults, report: &mut Report) {
    let mean_of = |pick: fn(&EpochLine) -> f64| mean(&results.epochs.iter().map(pick).collect::<Vec<_>>());
    let (precopied, unneeded) = (mean_of(|epoch| epoch.precopied), mean_of(|epoch| epoch.unneeded));
    let share = if precopied > 0.0 { unneeded / precopied } else { 0.0 };
    report.info.push(
        Figure::new("forkers_precopied_pages", precopied, "pages", BetterDirection::Higher)
            .peer("needed", mean_of(|epoch| epoch.needed))
            .peer("unneeded", unneeded)
            .peer("copied by redis", mean_of(|epoch| epoch.own))
            .peer("present", mean_of(|epoch| epoch.present))
            .note(format!("means of {} saves; needed and unneeded are the library's estimates", results.epochs.len())),
    );
    report.info.push(
        Figure::new("forkers_unneeded_ratio", share, "of 1", BetterDirection::Lower)
            .note("of the pages copied ahead (paper: 0.249)"),
    );
    report.info.push(
        Figure::new("forkers_library_processor_ms", mean_of(|epoch| epoch.processor_ms), "ms", BetterDirection::Lower)
            .note("processor time of the library's thread per save, making huge pages again included"),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(per_s: f64, latency_us: u32) -> TrialResult {
        TrialResult {
            during_per_s: vec![per_s],
            cycle_per_s: vec![per_s],
            rest_per_s: vec![2.0 * per_s],
            latencies_us: vec![latency_us; 2000],
            took_s: vec![1.0],
            forks_us: vec![9000.0],
            processor_us: vec![3.0],
            extra_mib: None,
        }
    }

    #[test]
    fn the_middle_round_counts() {
        let rounds = [(100.0, 103.0), (200.0, 220.0), (100.0, 150.0)];
        let results = TrialResults {
            rounds: rounds.iter().map(|&(plain, with)| (trial(plain, 300), trial(with, 200))).collect(),
            extra_mib: (100.0, 110.0),
            epochs: vec![EpochLine { precopied: 200.0, needed: 150.0, unneeded: 50.0, ..EpochLine::default() }],
        };
        let mut report = crate::experiment::tests::report::<crate::forkers::ForkersArgs>();
        add(&results, &mut report);
        let figure = |name: &str| {
            let all = report.results.iter().chain(&report.info);
            all.into_iter().find(|figure| figure.name == name).unwrap()
        };
        assert_eq!(figure("redis_throughput_gain").value, 0.1);
        assert_eq!(figure("redis_throughput_gain").reached(), Some(true));
        assert_eq!(figure("redis_throughput_gain").bound.as_ref().unwrap().value, 1.0);
        assert_eq!(figure("redis_p999_gain").value, 1.5);
        assert_eq!(figure("forkers_unneeded_ratio").value, 0.25);
    }
}
