//! The results of all trials, and how two candidates compare in them.
//!
//! Relies on a ratio being taken inside a round, where both candidates ran on the machine in the same state; the middle round counts.

use super::candidate::Candidate;
use super::phase_stats::PhaseStats;
use super::runner::TrialOutcome;
use super::testbed::DeviceKind;
use crate::stats::Spread;

/// What was done to a candidate, by the names that figures use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The workload: `read`, `write_zipf`, `ycsb`, ….
    pub work: &'static str,
    /// On what.
    pub device: DeviceKind,
    /// Threads.
    pub threads: usize,
}

/// One trial.
#[derive(Clone, Debug)]
pub struct TrialResult {
    /// What was done.
    pub scenario: Scenario,
    /// To whom.
    pub candidate: Candidate,
    /// In which round.
    pub round: usize,
    /// What came of it.
    pub outcome: TrialOutcome,
}

/// All trials.
#[derive(Clone, Debug, Default)]
pub struct TrialResults {
    /// In the order in which they were made.
    pub trials: Vec<TrialResult>,
}

/// One candidate against the better of Linux's two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speedup {
    /// Over the rounds.
    pub spread: Spread,
    /// Which of the two was better, in most rounds.
    pub peer: Candidate,
}

impl TrialResults {
    fn of(&self, scenario: Scenario, candidate: Candidate) -> impl Iterator<Item = &TrialResult> {
        self.trials.iter().filter(move |trial| trial.scenario == scenario && trial.candidate == candidate)
    }

    /// The statistics of the phase called `phase`, of all rounds.
    pub fn phases(&self, scenario: Scenario, candidate: Candidate, phase: &str) -> Vec<&PhaseStats> {
        let outcomes = self.of(scenario, candidate).filter_map(|trial| trial.outcome.as_ref().ok());
        outcomes.flatten().filter(|stats| stats.name == phase).collect()
    }

    /// The median over all rounds of what `pick` says of a phase.
    pub fn median(
        &self,
        scenario: Scenario,
        candidate: Candidate,
        phase: &str,
        pick: impl Fn(&PhaseStats) -> f64,
    ) -> Option<f64> {
        let values: Vec<f64> = self.phases(scenario, candidate, phase).into_iter().map(pick).collect();
        Spread::of(&values).map(|spread| spread.median)
    }

    fn per_s(&self, scenario: Scenario, candidate: Candidate, phase: &str, round: usize) -> Option<f64> {
        let trial = self.of(scenario, candidate).find(|trial| trial.round == round)?;
        trial.outcome.as_ref().ok()?.iter().find(|stats| stats.name == phase).map(PhaseStats::per_s)
    }

    /// Rounds in which a candidate did `scenario`.
    fn rounds(&self, scenario: Scenario) -> usize {
        let rounds = self.trials.iter().filter(|trial| trial.scenario == scenario).map(|trial| trial.round + 1);
        rounds.max().unwrap_or(0)
    }

    /// How many times as fast as the better of Linux's two `ours` is. `None` if either was not measured.
    pub fn ratio(&self, scenario: Scenario, ours: Candidate, phase: &str) -> Option<Speedup> {
        let mut ratios = Vec::new();
        let mut wins = [0; 2];
        for round in 0..self.rounds(scenario) {
            let peers = Candidate::PEERS.map(|peer| self.per_s(scenario, peer, phase, round));
            let better = usize::from(peers[1] > peers[0]);
            if let (Some(ours), Some(peer)) = (self.per_s(scenario, ours, phase, round), peers[better]) {
                wins[better] += 1;
                ratios.push(ours / peer);
            }
        }
        let peer = Candidate::PEERS[usize::from(wins[1] > wins[0])];
        Some(Speedup { spread: Spread::of(&ratios)?, peer })
    }

    /// Why there is nothing to say of `candidate`: its first failure.
    pub fn reason(&self, scenario: Scenario, candidate: Candidate) -> String {
        let failed = self.of(scenario, candidate).find_map(|trial| trial.outcome.as_ref().err());
        failed.map_or_else(|| "it was not run".to_owned(), |reason| format!("{} failed: {reason}", candidate.name()))
    }

    /// All scenarios, in the order in which they were first done.
    pub fn scenarios(&self) -> Vec<Scenario> {
        let mut scenarios: Vec<Scenario> = Vec::new();
        for trial in &self.trials {
            if !scenarios.contains(&trial.scenario) {
                scenarios.push(trial.scenario);
            }
        }
        scenarios
    }

    /// Every candidate that did `scenario`.
    pub fn candidates(&self, scenario: Scenario) -> Vec<Candidate> {
        let mut candidates: Vec<Candidate> =
            self.trials.iter().filter(|trial| trial.scenario == scenario).map(|trial| trial.candidate).collect();
        candidates.sort_unstable();
        candidates.dedup();
        candidates
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A trial with one phase of `per_s` operations in a second.
    pub fn trial(scenario: Scenario, candidate: Candidate, round: usize, phase: &str, per_s: u64) -> TrialResult {
        let stats =
            PhaseStats { name: phase.to_owned(), ops: per_s, elapsed_s: 1.0, cpu_s: 0.5, ..PhaseStats::default() };
        TrialResult { scenario, candidate, round, outcome: Ok(vec![stats]) }
    }

    pub const READ: Scenario = Scenario { work: "read", device: DeviceKind::Disk, threads: 1 };

    #[test]
    fn a_ratio_is_taken_round_by_round_against_the_better_peer() {
        let mut results = TrialResults::default();
        for (round, (ours, mmap, random)) in [(300, 100, 50), (600, 100, 150), (400, 80, 100)].into_iter().enumerate() {
            results.trials.push(trial(READ, Candidate::Guards, round, "read", ours));
            results.trials.push(trial(READ, Candidate::Mmap, round, "read", mmap));
            results.trials.push(trial(READ, Candidate::MmapRandom, round, "read", random));
        }
        let ratio = results.ratio(READ, Candidate::Guards, "read").unwrap();
        assert_eq!((ratio.spread.least, ratio.spread.median, ratio.spread.most), (3.0, 4.0, 4.0));
        assert_eq!(ratio.peer, Candidate::MmapRandom);
        assert_eq!(results.ratio(READ, Candidate::Vmcache, "read"), None);
        assert_eq!(results.median(READ, Candidate::Guards, "read", PhaseStats::per_s), Some(400.0));
    }

    #[test]
    fn a_peer_that_failed_leaves_the_other_and_its_reason() {
        let mut results = TrialResults::default();
        results.trials.push(trial(READ, Candidate::Guards, 0, "read", 300));
        results.trials.push(trial(READ, Candidate::MmapRandom, 0, "read", 100));
        results
            .trials
            .push(TrialResult { outcome: Err("killed".into()), ..trial(READ, Candidate::Mmap, 0, "read", 1) });
        assert_eq!(results.ratio(READ, Candidate::Guards, "read").unwrap().spread.median, 3.0);
        assert_eq!(results.reason(READ, Candidate::Mmap), "mmap failed: killed");
        assert_eq!(results.candidates(READ), [Candidate::Mmap, Candidate::MmapRandom, Candidate::Guards]);
    }
}
