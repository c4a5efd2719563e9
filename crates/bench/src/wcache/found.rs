//! What all trials found, and how two policies compare in it.
//!
//! Relies on a ratio being taken inside a round, where both sides met the machine in the same mood; the middle round
//! counts.

use super::cells::{Cell, Work};
use super::lab::stage::Fast;
use super::policy::Policy;
use super::tally::Tally;
use crate::stats::Spread;

/// One trial.
#[derive(Clone, Debug)]
pub struct Trial {
    /// What was tried.
    pub cell: Cell,
    /// In which round.
    pub round: usize,
    /// What came of it, or why nothing did.
    pub outcome: Result<Tally, String>,
}

/// All trials, in the order in which they were made.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The trials.
    pub trials: Vec<Trial>,
}

/// Cells that differ in their policy only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// What ran.
    pub work: Work,
    /// On what the cache lay.
    pub fast: Fast,
    /// How large it was.
    pub capacity_mib: u64,
}

impl Row {
    /// The cell of `policy`.
    pub fn cell(self, policy: Policy) -> Cell {
        Cell { work: self.work, fast: self.fast, capacity_mib: self.capacity_mib, policy }
    }

    /// As figures name it.
    pub fn name(self) -> String {
        format!("{} {} {} MiB", self.work.name(), self.fast.name(), self.capacity_mib)
    }
}

impl Found {
    /// Tallies of `cell`, with their rounds.
    pub fn tallies(&self, cell: Cell) -> impl Iterator<Item = (usize, &Tally)> {
        let trials = self.trials.iter().filter(move |trial| trial.cell == cell);
        trials.filter_map(|trial| Some((trial.round, trial.outcome.as_ref().ok()?)))
    }

    /// What `pick` says of `cell`, over the rounds.
    pub fn spread(&self, cell: Cell, pick: impl Fn(&Tally) -> Option<f64>) -> Option<Spread> {
        let values: Vec<f64> = self.tallies(cell).filter_map(|(_, tally)| pick(tally)).collect();
        Spread::of(&values)
    }

    /// The middle of it.
    pub fn median(&self, cell: Cell, pick: impl Fn(&Tally) -> Option<f64>) -> Option<f64> {
        self.spread(cell, pick).map(|spread| spread.median)
    }

    /// `pick` of `ours` over `pick` of `theirs`, round by round.
    pub fn ratio(
        &self,
        row: Row,
        ours: Policy,
        theirs: Policy,
        pick: impl Fn(&Tally) -> Option<f64>,
    ) -> Option<Spread> {
        let of = |policy: Policy, round: usize| {
            let (_, tally) = self.tallies(row.cell(policy)).find(|(other, _)| *other == round)?;
            pick(tally)
        };
        let rounds = self.trials.iter().map(|trial| trial.round + 1).max().unwrap_or(0);
        let ratios: Vec<f64> = (0..rounds).filter_map(|round| Some(of(ours, round)? / of(theirs, round)?)).collect();
        Spread::of(&ratios)
    }

    /// Why there is nothing to say of a row: its first failure.
    pub fn reason(&self, row: Row) -> String {
        let failed = self.trials.iter().find_map(|trial| {
            let is_here = row.cell(trial.cell.policy) == trial.cell;
            Some((trial.cell, trial.outcome.as_ref().err().filter(|_| is_here)?))
        });
        failed.map_or_else(|| "it was not run".to_owned(), |(cell, reason)| format!("{}: {reason}", cell.policy.name()))
    }

    /// All cells, in the order in which they were first tried.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells: Vec<Cell> = Vec::new();
        for trial in &self.trials {
            if !cells.contains(&trial.cell) {
                cells.push(trial.cell);
            }
        }
        cells
    }

    /// All rows, likewise.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        for Cell { work, fast, capacity_mib, .. } in self.cells() {
            let row = Row { work, fast, capacity_mib };
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
        rows
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::wcache::lab::counters::Counters;

    pub const SMALL: Row = Row { work: Work::Tpcc, fast: Fast::Ram, capacity_mib: 32 };

    /// A trial that did `ops` operations in a second and cached `cached_bytes`.
    pub fn trial(row: Row, policy: Policy, round: usize, ops: u64, cached_bytes: u64) -> Trial {
        let cache = Counters::of(&serde_json::json!({
            "logged_bytes": cached_bytes,
            "critical_waits": {"lock": {"count": 1, "total_ns": 5_000_000}, "log_room": {"total_ns": 7_000_000}},
            "critical_blocks": {"direct": {"data": 1, "log": 2, "meta": 3}},
        }));
        let mut tally = Tally { ops, elapsed_s: 1.0, cache, ..Tally::default() };
        (0..2000).for_each(|micros| tally.note("new_order", micros));
        Trial { cell: row.cell(policy), round, outcome: Ok(tally) }
    }

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        let mut found = Found::default();
        for (round, (all, ours)) in [(100, 200), (50, 150), (100, 180)].into_iter().enumerate() {
            found.trials.push(trial(SMALL, Policy::All, round, all, 1));
            found.trials.push(trial(SMALL, Policy::CpPiIoi, round, ours, 1));
        }
        found.trials.push(Trial { outcome: Err("full".into()), ..trial(SMALL, Policy::Cp, 0, 1, 1) });
        let ratio = found.ratio(SMALL, Policy::CpPiIoi, Policy::All, |tally| Some(tally.per_s())).unwrap();
        assert_eq!((ratio.least, ratio.median, ratio.most), (1.8, 2.0, 3.0));
        assert_eq!(found.ratio(SMALL, Policy::CpPiIoi, Policy::Cp, |tally| Some(tally.per_s())), None);
        assert_eq!(found.reason(SMALL), "CP: full");
        assert_eq!(found.rows(), [SMALL]);
        assert_eq!(found.cells().len(), 3);
    }
}
