//! From trials to figures: gain, memory, and the paper's Table 1.
//!
//! Relies on goals being stated for skew 1.0 at the largest size. All three are those of one configuration: the fastest of
//! ours among those that keep to the goals for memory and needless copies, or the fastest if none does.

use super::configuration::{Configuration, FORK, FORK_THP};
use super::schedule::{Scenario, ScenarioResult};
use super::trial::TrialResult;
use super::workload::BlockLayout;
use crate::format::mebibytes;
use crate::report::{BetterDirection, Figure, Report};
use crate::stats::Spread;

/// Throughput beyond the better fork's that ours should have, of the latter.
pub(super) const GAIN: f64 = 0.25;
const MEMORY: f64 = 0.067;
const UNNEEDED: f64 = 0.20;

/// Adds all figures.
pub(super) fn add(scenarios: &[ScenarioResult], report: &mut Report) {
    if let Some(found) = goal_setting(scenarios) {
        add_goals(found, report);
    }
    for found in scenarios {
        for (configuration, trial) in &found.trials {
            report.info.push(line(found, *configuration, trial));
        }
        for (configuration, reason) in &found.refused {
            let name = name(&found.scenario, *configuration);
            report.info.push(
                Figure::new(name, f64::NAN, "1/s", BetterDirection::Higher).note(format!("not measured: {reason}")),
            );
        }
    }
}

/// The scenario that goals are stated for: skew 1.0 in order, at the largest size; another skew if that was not run.
fn goal_setting(scenarios: &[ScenarioResult]) -> Option<&ScenarioResult> {
    let ordered = || scenarios.iter().filter(|found| found.scenario.layout == BlockLayout::Ordered);
    ordered()
        .filter(|found| found.scenario.skew == 1.0)
        .max_by_key(|found| found.scenario.mib)
        .or_else(|| ordered().next_back())
}

/// The faster of the two forks, and its writes a second.
pub(super) fn better_fork(found: &ScenarioResult) -> Option<(Configuration, f64)> {
    let speed = |configuration| found.get(configuration).map(|trial| (configuration, trial.per_s()));
    [speed(FORK), speed(FORK_THP)].into_iter().flatten().max_by(|one, two| one.1.total_cmp(&two.1))
}

/// Memory beyond what copies of just the pages that were written would take, as a share of it. Beside fork's memory it would
/// mean little: who writes three times as much in an interval has more pages to copy.
fn memory_overhead(trial: &TrialResult) -> f64 {
    trial.footprint_bytes as f64 / trial.needed_bytes as f64 - 1.0
}

/// The configuration whose figures count.
fn best(found: &ScenarioResult) -> Option<(Configuration, &TrialResult)> {
    let ours = || found.trials.iter().filter(|(configuration, _)| !configuration.is_fork());
    let keeps = |trial: &TrialResult| memory_overhead(trial) <= MEMORY && trial.pages.unneeded_ratio() <= UNNEEDED;
    let fastest = |one: &&(Configuration, TrialResult), two: &&(Configuration, TrialResult)| {
        one.1.per_s().total_cmp(&two.1.per_s())
    };
    let chosen = ours().filter(|(_, trial)| keeps(trial)).max_by(fastest).or_else(|| ours().max_by(fastest));
    chosen.map(|(configuration, trial)| (*configuration, trial))
}

fn add_goals(found: &ScenarioResult, report: &mut Report) {
    let gain = |value| Figure::new("ccow_throughput_gain", value, "of 1", BetterDirection::Higher).goal(GAIN);
    let memory = |value| Figure::new("ccow_memory_overhead", value, "of 1", BetterDirection::Lower).goal(MEMORY);
    let unneeded = |value| Figure::new("ccow_unneeded_ratio", value, "of 1", BetterDirection::Lower).goal(UNNEEDED);
    let (Some((configuration, trial)), Some((fork, fork_per_s))) = (best(found), better_fork(found)) else {
        let missing = |figure: Figure| figure.note("not measured: fork or ours were not run");
        report.results.extend([gain(f64::NAN), memory(f64::NAN), unneeded(f64::NAN)].map(missing));
        return;
    };
    let Scenario { mib, skew, .. } = found.scenario;
    let note = format!("{} beside {}, {mib} MiB, zipf {skew}", configuration.name(), fork.name());
    let mut gain = gain(trial.per_s() / fork_per_s - 1.0)
        .peer("writes/s", trial.per_s())
        .bound("the same writes over huge pages without a view", found.recovery.huge_pages_per_s / fork_per_s - 1.0)
        .note(format!("{note}; the faster fork counts; a cut every {:.2} s", found.interval.as_secs_f64()));
    for fork in [FORK, FORK_THP] {
        if let Some(trial) = found.get(fork) {
            gain = gain.peer(&format!("{} writes/s", fork.name()), trial.per_s());
        }
    }
    let memory = memory(memory_overhead(trial))
        .bound("the range, and each page that was written once for each view", 0.0)
        .peer("mib", mebibytes(trial.footprint_bytes))
        .peer("needed mib", mebibytes(trial.needed_bytes))
        .peer("fork mib", found.get(FORK).map_or(f64::NAN, |fork| mebibytes(fork.footprint_bytes)))
        .note("of the same configuration, with all views: beyond the range and the pages that were written, once for each view");
    let unneeded = unneeded(trial.pages.unneeded_ratio())
        .peer("precopied", trial.pages.precopied as f64)
        .peer("unneeded", trial.pages.unneeded as f64)
        .note("of the same configuration; of the pages that were copied ahead");
    report.results.extend([gain, memory, unneeded]);
}

fn name(scenario: &Scenario, configuration: Configuration) -> String {
    let layout = if scenario.layout == BlockLayout::Scattered { "_scattered" } else { "" };
    format!("{}_{}_zipf_{:.1}{layout}", configuration.name(), scenario.mib, scenario.skew)
}

/// A line of the paper's figure 5 and of its table 1.
fn line(found: &ScenarioResult, configuration: Configuration, trial: &TrialResult) -> Figure {
    let fork = better_fork(found).map_or(f64::NAN, |(_, per_s)| per_s);
    let stall = Spread::of(&trial.stall_ns).map_or(f64::NAN, |stall| stall.median);
    Figure::new(name(&found.scenario, configuration), trial.per_s(), "1/s", BetterDirection::Higher)
        .peer("gain", trial.per_s() / fork - 1.0)
        .peer("memory_mib", mebibytes(trial.footprint_bytes))
        .peer("memory_overhead", memory_overhead(trial))
        .peer("precopy_ratio", trial.pages.precopy_ratio())
        .peer("unneeded_ratio", trial.pages.unneeded_ratio())
        .peer("stall_ns", stall)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ccow::recovery::ForkRecovery;
    use crate::ccow::trial::PageCounts;
    use crate::measure::candidate::PageKind;
    use quire_snapshot::{Mechanism, Precopy};
    use std::time::Duration;

    fn trial(writes: u64, footprint_bytes: u64, unneeded: u64) -> TrialResult {
        let pages = PageCounts { copied: 100, precopied: 50, needed: 50 - unneeded, unneeded };
        TrialResult { writes, elapsed_s: 1.0, footprint_bytes, needed_bytes: 1000, pages, ..TrialResult::default() }
    }

    fn ours(precopy: Precopy) -> Configuration {
        Configuration { mechanism: Mechanism::Barrier, precopy, kind: PageKind::Huge }
    }

    fn found(trials: Vec<(Configuration, TrialResult)>) -> ScenarioResult {
        let scenario = Scenario { mib: 8, skew: 1.0, layout: BlockLayout::Ordered, only_central: true };
        let recovery =
            ForkRecovery { interval: Duration::from_secs(1), normal_per_s: 5e5, huge_pages_per_s: 1e6, gave_up: false };
        ScenarioResult { scenario, recovery, interval: recovery.interval, alive: 2, trials, refused: vec![] }
    }

    fn values(found: ScenarioResult) -> Vec<f64> {
        let mut report = crate::experiment::tests::report::<crate::ccow::CcowArgs>();
        add(&[found], &mut report);
        report.results.iter().map(|figure| (figure.value * 1000.0).round() / 1000.0).collect()
    }

    #[test]
    fn a_fast_configuration_that_wastes_memory_does_not_count() {
        let forks = [(FORK, trial(100, 1000, 0)), (FORK_THP, trial(110, 1000, 0))];
        let wasteful = (ours(Precopy::All), trial(200, 1300, 30));
        let sound = (ours(Precopy::Threshold(80)), trial(154, 1050, 5));
        let [fork, thp] = forks;
        assert_eq!(values(found(vec![fork.clone(), thp.clone(), wasteful.clone(), sound])), [0.4, 0.05, 0.1]);
        assert_eq!(values(found(vec![fork, thp, wasteful])), [0.818, 0.3, 0.6]);
    }

    #[test]
    fn the_gain_is_bounded_by_writes_without_a_view() {
        let trials = vec![(FORK, trial(100_000, 1000, 0)), (ours(Precopy::All), trial(200_000, 1000, 0))];
        let mut report = crate::experiment::tests::report::<crate::ccow::CcowArgs>();
        add(&[found(trials)], &mut report);
        assert_eq!(
            report.results[0].bound.as_ref().unwrap().value,
            9.0,
            "a million writes a second over fork's 100,000"
        );
    }

    #[test]
    fn without_ours_there_are_no_numbers() {
        assert!(values(found(vec![(FORK, trial(1, 1, 0))])).iter().all(|value| value.is_nan()));
    }
}
