//! The results of all trials, and how two policies compare in them.
//!
//! Relies on a ratio being taken inside a round, where both policies ran on the machine in the same state; the middle round
//! counts.

use super::cache_policy::CachePolicy;
use super::scenarios::{Scenario, Workload};
use super::testbed::storage_stack::FastDevice;
use super::trial_stats::TrialStats;
use crate::stats::Spread;

/// One trial.
#[derive(Clone, Debug)]
pub struct TrialResult {
    /// What was tried.
    pub scenario: Scenario,
    /// In which round.
    pub round: usize,
    /// What came of it, or why nothing did.
    pub outcome: Result<TrialStats, String>,
}

/// All trials, in the order in which they were made.
#[derive(Clone, Debug, Default)]
pub struct TrialResults {
    /// The trials.
    pub trials: Vec<TrialResult>,
}

/// Cells that differ in their policy only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScenarioGroup {
    /// What ran.
    pub work: Workload,
    /// On what the cache lay.
    pub fast: FastDevice,
    /// How large it was.
    pub capacity_mib: u64,
}

impl ScenarioGroup {
    /// The scenario of `policy`.
    pub fn scenario(self, policy: CachePolicy) -> Scenario {
        Scenario { work: self.work, fast: self.fast, capacity_mib: self.capacity_mib, policy }
    }

    /// As figures name it.
    pub fn name(self) -> String {
        format!("{} {} {} MiB", self.work.name(), self.fast.name(), self.capacity_mib)
    }
}

impl TrialResults {
    /// Tallies of `scenario`, with their rounds.
    pub fn stats_of(&self, scenario: Scenario) -> impl Iterator<Item = (usize, &TrialStats)> {
        let trials = self.trials.iter().filter(move |trial| trial.scenario == scenario);
        trials.filter_map(|trial| Some((trial.round, trial.outcome.as_ref().ok()?)))
    }

    /// What `pick` says of `scenario`, over the rounds.
    pub fn spread(&self, scenario: Scenario, pick: impl Fn(&TrialStats) -> Option<f64>) -> Option<Spread> {
        let values: Vec<f64> = self.stats_of(scenario).filter_map(|(_, stats)| pick(stats)).collect();
        Spread::of(&values)
    }

    /// The middle of it.
    pub fn median(&self, scenario: Scenario, pick: impl Fn(&TrialStats) -> Option<f64>) -> Option<f64> {
        self.spread(scenario, pick).map(|spread| spread.median)
    }

    /// `pick` of `ours` over `pick` of `theirs`, round by round.
    pub fn ratio(
        &self,
        group: ScenarioGroup,
        ours: CachePolicy,
        theirs: CachePolicy,
        pick: impl Fn(&TrialStats) -> Option<f64>,
    ) -> Option<Spread> {
        let of = |policy: CachePolicy, round: usize| {
            let (_, stats) = self.stats_of(group.scenario(policy)).find(|(other, _)| *other == round)?;
            pick(stats)
        };
        let rounds = self.trials.iter().map(|trial| trial.round + 1).max().unwrap_or(0);
        let ratios: Vec<f64> = (0..rounds).filter_map(|round| Some(of(ours, round)? / of(theirs, round)?)).collect();
        Spread::of(&ratios)
    }

    /// Why there is nothing to say of a group: its first failure.
    pub fn reason(&self, group: ScenarioGroup) -> String {
        let failed = self.trials.iter().find_map(|trial| {
            let is_here = group.scenario(trial.scenario.policy) == trial.scenario;
            Some((trial.scenario, trial.outcome.as_ref().err().filter(|_| is_here)?))
        });
        failed.map_or_else(
            || "it was not run".to_owned(),
            |(scenario, reason)| format!("{}: {reason}", scenario.policy.name()),
        )
    }

    /// All scenarios, in the order in which they were first tried.
    pub fn scenarios(&self) -> Vec<Scenario> {
        let mut scenarios: Vec<Scenario> = Vec::new();
        for trial in &self.trials {
            if !scenarios.contains(&trial.scenario) {
                scenarios.push(trial.scenario);
            }
        }
        scenarios
    }

    /// All groups, likewise.
    pub fn groups(&self) -> Vec<ScenarioGroup> {
        let mut groups: Vec<ScenarioGroup> = Vec::new();
        for Scenario { work, fast, capacity_mib, .. } in self.scenarios() {
            let group = ScenarioGroup { work, fast, capacity_mib };
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        groups
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::wcache::testbed::counters::CacheCounters;

    pub const SMALL: ScenarioGroup = ScenarioGroup { work: Workload::Tpcc, fast: FastDevice::Ram, capacity_mib: 32 };

    /// A trial that did `ops` operations in a second and cached `cached_bytes`.
    pub fn trial(group: ScenarioGroup, policy: CachePolicy, round: usize, ops: u64, cached_bytes: u64) -> TrialResult {
        let cache = CacheCounters::of(&serde_json::json!({
            "logged_bytes": cached_bytes,
            "critical_waits": {"lock": {"count": 1, "total_ns": 5_000_000}, "log_room": {"total_ns": 7_000_000}},
            "critical_blocks": {"direct": {"data": 1, "log": 2, "meta": 3}},
        }));
        let mut stats = TrialStats { ops, elapsed_s: 1.0, cache, ..TrialStats::default() };
        (0..2000).for_each(|micros| stats.note("new_order", micros));
        TrialResult { scenario: group.scenario(policy), round, outcome: Ok(stats) }
    }

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        let mut results = TrialResults::default();
        for (round, (all, ours)) in [(100, 200), (50, 150), (100, 180)].into_iter().enumerate() {
            results.trials.push(trial(SMALL, CachePolicy::All, round, all, 1));
            results.trials.push(trial(SMALL, CachePolicy::CpPiIoi, round, ours, 1));
        }
        results.trials.push(TrialResult { outcome: Err("full".into()), ..trial(SMALL, CachePolicy::Cp, 0, 1, 1) });
        let ratio = results.ratio(SMALL, CachePolicy::CpPiIoi, CachePolicy::All, |stats| Some(stats.per_s())).unwrap();
        assert_eq!((ratio.least, ratio.median, ratio.most), (1.8, 2.0, 3.0));
        assert_eq!(results.ratio(SMALL, CachePolicy::CpPiIoi, CachePolicy::Cp, |stats| Some(stats.per_s())), None);
        assert_eq!(results.reason(SMALL), "CP: full");
        assert_eq!(results.groups(), [SMALL]);
        assert_eq!(results.scenarios().len(), 3);
    }
}
