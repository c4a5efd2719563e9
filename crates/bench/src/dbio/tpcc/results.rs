//! What the trials of TPC-C came to, and how the candidates compare.
//!
//! Relies on a ratio being taken inside a round, as [`crate::dbio::comparison`] does.

use super::load::phase_name;
use crate::dbio::comparison::Comparison;
use crate::dbio::sqlite_spec::SqliteCandidate;
use crate::fastmap::phase_stats::PhaseStats;
use crate::fastmap::runner::TrialOutcome;
use crate::stats::Spread;

/// One trial.
#[derive(Clone, Debug)]
pub struct TpccTrial {
    /// Whose VFS was tried.
    pub candidate: SqliteCandidate,
    /// Twelfths of the memory for Quire's pool, or for SQLite's own caches by its own VFS; 0 for SQLite's default.
    pub twelfths: u64,
    /// In which round.
    pub round: usize,
    /// What came of it.
    pub outcome: TrialOutcome,
}

/// All trials, or why there are none.
#[derive(Clone, Debug, Default)]
pub struct TpccResults {
    /// In the order in which they were made.
    pub trials: Vec<TpccTrial>,
    /// Why nothing could be tried.
    pub not_run: Option<String>,
    /// Bytes of the database at first, and its warehouses.
    pub database: Option<(u64, u32)>,
}

impl TpccResults {
    /// Statistics of the trials of a candidate with a cache of `twelfths`, of all rounds.
    pub fn phases(&self, candidate: SqliteCandidate, twelfths: u64, clients: usize) -> Vec<&PhaseStats> {
        let trials = self.trials.iter().filter(|trial| trial.candidate == candidate && trial.twelfths == twelfths);
        let phases = trials.filter_map(|trial| trial.outcome.as_ref().ok()).flatten();
        phases.filter(|stats| stats.name == phase_name(clients)).collect()
    }

    /// All combinations that were tried, in their order.
    pub fn cells(&self) -> Vec<(SqliteCandidate, u64)> {
        let mut cells = Vec::new();
        for trial in &self.trials {
            if !cells.contains(&(trial.candidate, trial.twelfths)) {
                cells.push((trial.candidate, trial.twelfths));
            }
        }
        cells
    }

    fn best(&self, wanted: &dyn Fn(SqliteCandidate, u64) -> bool, clients: usize, round: usize) -> Option<(u64, f64)> {
        let trials = self.trials.iter().filter(|trial| trial.round == round && wanted(trial.candidate, trial.twelfths));
        let per_s = trials.filter_map(|trial| {
            let phases = trial.outcome.as_ref().ok()?;
            let stats = phases.iter().find(|stats| stats.name == phase_name(clients))?;
            Some((trial.twelfths, stats.per_s()))
        });
        per_s.max_by(|one, other| one.1.total_cmp(&other.1))
    }

    /// Quire's best over the best of SQLite's own VFS with a cache that `peer` wants.
    pub fn quire_vs_stock(&self, peer: impl Fn(u64) -> bool, clients: usize) -> Option<Comparison> {
        let (mut ratios, mut pool_twelfths) = (Vec::new(), [0; 2]);
        let rounds = self.trials.iter().map(|trial| trial.round + 1).max().unwrap_or(0);
        for round in 0..rounds {
            let ours = self.best(&|candidate, _| candidate != SqliteCandidate::Stock, clients, round);
            let stock = |candidate, twelfths| candidate == SqliteCandidate::Stock && peer(twelfths);
            if let (Some(own), Some(other)) = (ours, self.best(&stock, clients, round)) {
                ratios.push(own.1 / other.1);
                pool_twelfths = [own.0, other.0];
            }
        }
        Some(Comparison { spread: Spread::of(&ratios)?, pool_twelfths })
    }

    /// Why there is nothing to say.
    pub fn reason(&self) -> String {
        if let Some(reason) = &self.not_run {
            return reason.clone();
        }
        let failed = self.trials.iter().find_map(|trial| Some((trial, trial.outcome.as_ref().err()?)));
        failed.map_or_else(
            || "it was not run".to_owned(),
            |(trial, reason)| format!("{} failed: {reason}", trial.candidate.name()),
        )
    }
}
