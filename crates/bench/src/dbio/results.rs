//! The results of all trials, and how two candidates compare in them.
//!
//! Relies on a ratio being taken inside a round, where both candidates ran on the machine in the same state; the middle round counts.

use super::candidate::Candidate;
use super::comparison::Comparison;
use super::tpcc::results::TpccResults;
use super::trial::bound_name;
use crate::fastmap::phase_stats::PhaseStats;
use crate::fastmap::runner::TrialOutcome;
use crate::stats::Spread;

/// What a trial was of, beside its candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResultCell {
    /// Data as a multiple of the memory.
    pub data: f64,
    /// The pool's size in twelfths of the memory; 0 where the pool divides the memory by itself.
    pub pool_twelfths: u64,
}

/// One trial.
#[derive(Clone, Debug)]
pub struct TrialResult {
    /// What it was of.
    pub cell: ResultCell,
    /// Who was tried.
    pub candidate: Candidate,
    /// In which round.
    pub round: usize,
    /// What came of it.
    pub outcome: TrialOutcome,
}

/// The disk by itself.
#[derive(Clone, Debug)]
pub struct BoundResult {
    /// In a file of this size.
    pub data: f64,
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
    /// One for each size of the data and each round.
    pub bounds: Vec<BoundResult>,
    /// Those of TPC-C on SQLite.
    pub tpcc: TpccResults,
}

impl TrialResults {
    /// Trials of `candidate` with as much data.
    fn of(&self, candidate: Candidate, data: f64) -> impl Iterator<Item = &TrialResult> {
        self.trials.iter().filter(move |trial| trial.candidate == candidate && trial.cell.data == data)
    }

    /// Statistics of the phase called `phase`, of all rounds.
    pub fn phases(&self, cell: ResultCell, candidate: Candidate, phase: &str) -> Vec<&PhaseStats> {
        let outcomes = self.of(candidate, cell.data).filter(|trial| trial.cell == cell);
        let phases = outcomes.filter_map(|trial| trial.outcome.as_ref().ok()).flatten();
        phases.filter(|stats| stats.name == phase).collect()
    }

    /// The median over all rounds of what `pick` says of a phase.
    pub fn median(
        &self,
        cell: ResultCell,
        candidate: Candidate,
        phase: &str,
        pick: impl Fn(&PhaseStats) -> f64,
    ) -> Option<f64> {
        let values: Vec<f64> = self.phases(cell, candidate, phase).into_iter().map(pick).collect();
        Spread::of(&values).map(|spread| spread.median)
    }

    fn per_s(&self, candidate: Candidate, cell: ResultCell, phase: &str, round: usize) -> Option<f64> {
        let mut trials = self.of(candidate, cell.data);
        let trial = trials.find(|trial| trial.cell == cell && trial.round == round)?;
        trial.outcome.as_ref().ok()?.iter().find(|stats| stats.name == phase).map(PhaseStats::per_s)
    }

    /// Whether `candidate` was tried in `cell`, however it ended.
    pub fn has(&self, cell: ResultCell, candidate: Candidate) -> bool {
        self.trials.iter().any(|trial| trial.cell == cell && trial.candidate == candidate)
    }

    fn rounds(&self) -> usize {
        self.trials.iter().map(|trial| trial.round + 1).max().unwrap_or(0)
    }

    /// All cells, in the order in which they were first tried.
    pub fn cells(&self) -> Vec<ResultCell> {
        let mut cells: Vec<ResultCell> = Vec::new();
        for trial in &self.trials {
            if !cells.contains(&trial.cell) {
                cells.push(trial.cell);
            }
        }
        cells
    }

    fn cells_of(&self, data: f64) -> impl Iterator<Item = ResultCell> {
        self.cells().into_iter().filter(move |cell| cell.data == data)
    }

    /// `ours` over `peer` with pools of the same size: the size at which it is most.
    pub fn same_pool(&self, [ours, peer]: [Candidate; 2], data: f64, phase: &str) -> Option<Comparison> {
        let of_cell = |cell: ResultCell| {
            let ratio = |round| Some(self.per_s(ours, cell, phase, round)? / self.per_s(peer, cell, phase, round)?);
            let ratios: Vec<f64> = (0..self.rounds()).filter_map(ratio).collect();
            Some(Comparison { spread: Spread::of(&ratios)?, pool_twelfths: [cell.pool_twelfths; 2] })
        };
        let all = self.cells_of(data).filter_map(of_cell);
        all.max_by(|one, other| one.spread.median.total_cmp(&other.spread.median))
    }

    /// The size of the pool with which a candidate did most in a round, and how much.
    fn best(&self, candidate: Candidate, data: f64, phase: &str, round: usize) -> Option<(u64, f64)> {
        let all = self
            .cells_of(data)
            .filter_map(|cell| Some((cell.pool_twelfths, self.per_s(candidate, cell, phase, round)?)));
        all.max_by(|one, other| one.1.total_cmp(&other.1))
    }

    /// `ours` over the best of `peers`, each with the size of the pool that suits it.
    pub fn best_vs_best(&self, ours: Candidate, peers: &[Candidate], data: f64, phase: &str) -> Option<Comparison> {
        let (mut ratios, mut pool_twelfths) = (Vec::new(), [0; 2]);
        for round in 0..self.rounds() {
            let others = peers.iter().filter_map(|&peer| self.best(peer, data, phase, round));
            let other = others.max_by(|one, other| one.1.total_cmp(&other.1));
            if let (Some(own), Some(other)) = (self.best(ours, data, phase, round), other) {
                ratios.push(own.1 / other.1);
                pool_twelfths = [own.0, other.0];
            }
        }
        Some(Comparison { spread: Spread::of(&ratios)?, pool_twelfths })
    }

    /// Reads a second of the disk by itself, each of so many clients one at a time: over the rounds, in which it is measured beside all others.
    pub fn disk_reads_per_s(&self, data: f64, clients: usize) -> Option<Spread> {
        let outcomes =
            self.bounds.iter().filter(|bound| bound.data == data).filter_map(|bound| bound.outcome.as_ref().ok());
        let phases = outcomes.flatten().filter(|stats| stats.name == bound_name(clients));
        Spread::of(&phases.map(PhaseStats::per_s).collect::<Vec<f64>>())
    }

    /// Why there is nothing to say of `candidate`: its first failure.
    pub fn reason(&self, candidate: Candidate, data: f64) -> String {
        let failed = self.of(candidate, data).find_map(|trial| trial.outcome.as_ref().err());
        failed.map_or_else(|| "it was not run".to_owned(), |reason| format!("{} failed: {reason}", candidate.name()))
    }
}

#[cfg(test)]
pub mod tests {
    use super::super::counters::tests::phase;
    use super::*;

    /// A trial with one phase.
    pub fn trial(cell: ResultCell, candidate: Candidate, round: usize, name: &str, per_s: f64) -> TrialResult {
        TrialResult { cell, candidate, round, outcome: Ok(vec![phase(name, per_s, &[])]) }
    }

    const fn cell(pool_twelfths: u64) -> ResultCell {
        ResultCell { data: 0.83, pool_twelfths }
    }

    const OURS: Candidate = Candidate::TwoTiers;
    const PEER: Candidate = Candidate::Direct;

    #[test]
    fn the_same_pool_counts_where_the_ratio_is_largest_and_the_best_each_for_itself() {
        let mut results = TrialResults::default();
        for (pool, ours, peer) in [(1, 300.0, 50.0), (4, 400.0, 100.0), (8, 200.0, 160.0)] {
            results.trials.push(trial(cell(pool), OURS, 0, "b_c1", ours));
            results.trials.push(trial(cell(pool), PEER, 0, "b_c1", peer));
        }
        let same = results.same_pool([OURS, PEER], 0.83, "b_c1").unwrap();
        assert_eq!((same.spread.median, same.pool_twelfths), (6.0, [1, 1]));
        let best = results.best_vs_best(OURS, &[PEER, Candidate::Buffered], 0.83, "b_c1").unwrap();
        assert_eq!((best.spread.median, best.pool_twelfths), (2.5, [4, 8]));
        assert_eq!(results.same_pool([OURS, PEER], 0.33, "b_c1"), None);
        assert_eq!(results.same_pool([OURS, PEER], 0.83, "a_c1"), None);
    }

    #[test]
    fn ratios_are_taken_inside_a_round() {
        let mut results = TrialResults::default();
        for (round, (ours, peer)) in [(200.0, 100.0), (2000.0, 500.0), (30.0, 10.0)].into_iter().enumerate() {
            results.trials.push(trial(cell(2), OURS, round, "b_c1", ours));
            results.trials.push(trial(cell(2), PEER, round, "b_c1", peer));
        }
        let spread = results.same_pool([OURS, PEER], 0.83, "b_c1").unwrap().spread;
        assert_eq!((spread.least, spread.median, spread.most), (2.0, 3.0, 4.0));
        assert_eq!(results.best_vs_best(OURS, &[PEER], 0.83, "b_c1").unwrap().spread.median, 3.0);
    }

    #[test]
    fn the_disk_is_measured_in_every_round() {
        let mut results = TrialResults::default();
        for (round, per_s) in [900.0, 300.0, 800.0].into_iter().enumerate() {
            let outcome = Ok(vec![phase(&bound_name(8), per_s, &[])]);
            results.bounds.push(BoundResult { data: 0.83, round, outcome });
        }
        results.bounds.push(BoundResult { data: 0.83, round: 3, outcome: Err("killed".into()) });
        let spread = results.disk_reads_per_s(0.83, 8).unwrap();
        assert_eq!((spread.least, spread.median, spread.most), (300.0, 800.0, 900.0));
        assert_eq!(results.disk_reads_per_s(0.83, 1), None);
    }

    #[test]
    fn a_failure_leaves_the_other_sizes_and_its_reason() {
        let mut results = TrialResults::default();
        for pool in [1, 2] {
            results.trials.push(trial(cell(pool), PEER, 0, "b_c1", 10.0));
            results.trials.push(trial(cell(pool), OURS, 0, "b_c1", 20.0 * pool as f64));
        }
        results.trials[3].outcome = Err("killed".into());
        let same = results.same_pool([OURS, PEER], 0.83, "b_c1").unwrap();
        assert_eq!((same.spread.median, same.pool_twelfths), (2.0, [1, 1]));
        assert_eq!(results.reason(OURS, 0.83), "two_tiers failed: killed");
        assert_eq!(results.reason(Candidate::Buffered, 0.83), "it was not run");
    }
}
