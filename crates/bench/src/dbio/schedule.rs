//! In which order everything is tried: a store of each size is laid out once, and all trials of that size use it.
//!
//! Relies on candidates taking turns for each size of the pool, and the order being turned round from round to round, so that drift
//! of the machine meets all of them.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use quire_rng::mix;

use super::CHILD;
use super::candidate::{Candidate, StoreSpec};
use super::results::{BoundResult, ResultCell, TrialResult, TrialResults};
use super::scale::DbioScale;
use super::store_file::fill;
use super::trial::TrialSpec;
use crate::fastmap::kv::tree::TreeLayout;
use crate::fastmap::runner::{TrialOutcome, TrialRunner};
use crate::progress::Progress;

const SEED: u64 = 29;
/// An operation of the warming takes no longer than this on average, unless the trial hangs.
const WARM_OP: Duration = Duration::from_millis(1);
/// How much longer a trial may take than its loads before it counts as hung.
const GRACE: Duration = Duration::from_secs(120);

/// A run of the experiment.
pub struct Schedule<'a> {
    /// How much is done.
    pub scale: &'a DbioScale,
    /// Starts trials.
    pub runner: &'a TrialRunner,
    /// Says what is done.
    pub progress: Progress,
    /// What came of it.
    pub results: TrialResults,
}

impl Schedule<'_> {
    /// All trials on a store of `data` times the memory, in a file below `dir` that is removed again.
    ///
    /// # Errors
    /// The store can't be laid out, a trial can't be started, or there was an interrupt.
    pub fn data(&mut self, dir: &Path, data: f64) -> anyhow::Result<()> {
        let path = dir.join("store");
        let records = self.scale.records(data);
        self.progress.say(&format!("laying out {records} records, {data} of the memory"));
        let (testbed, layout) = fill(&path, records, self.scale.values, self.scale.limit_bytes() / 4)?;
        let spec = TrialSpec {
            testbed,
            limit_bytes: self.scale.limit_bytes(),
            clients: self.scale.clients.clone(),
            run_ms: self.scale.run_ms,
            seed: SEED,
            store: None,
        };
        for round in 0..self.scale.rounds {
            // The same for all candidates of a round.
            let spec = TrialSpec { seed: mix(SEED + round as u64), ..spec.clone() };
            self.progress.say(&format!(
                "round {} of {}: random reads of the disk by itself",
                round + 1,
                self.scale.rounds
            ));
            let outcome = self.run(&spec)?;
            self.results.bounds.push(BoundResult { data, round, outcome });
            for &pool_twelfths in &self.scale.pools {
                let mut candidates = Candidate::SWEPT;
                if round % 2 == 1 {
                    candidates.reverse();
                }
                for candidate in candidates {
                    self.trial(&spec, &layout, (ResultCell { data, pool_twelfths }, candidate), round)?;
                }
            }
            self.trial(&spec, &layout, (ResultCell { data, pool_twelfths: 0 }, Candidate::AutoSplit), round)?;
        }
        std::fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))
    }

    fn trial(
        &mut self,
        plain: &TrialSpec,
        layout: &TreeLayout,
        (cell, candidate): (ResultCell, Candidate),
        round: usize,
    ) -> anyhow::Result<()> {
        let ResultCell { data, pool_twelfths } = cell;
        let (name, rounds) = (candidate.name(), self.scale.rounds);
        let pool = if pool_twelfths == 0 { String::new() } else { format!("pool {pool_twelfths}/12, ") };
        self.progress.say(&format!("round {} of {rounds}: data {data}, {pool}{name}", round + 1));
        let store = StoreSpec {
            candidate,
            pool_bytes: self.scale.pool_bytes(pool_twelfths),
            layout: layout.clone(),
            records: self.scale.records(data),
            values: self.scale.values,
            warm_ops: self.scale.warm_ops(data),
        };
        let outcome = self.run(&TrialSpec { store: Some(store), ..plain.clone() })?;
        self.results.trials.push(TrialResult { cell, candidate, round, outcome });
        Ok(())
    }

    fn run(&self, spec: &TrialSpec) -> anyhow::Result<TrialOutcome> {
        spec.testbed.drop_cache()?;
        let loads = 3 * (spec.clients.len() as u64 + 1) * spec.run_ms;
        let warm_ops = spec.store.as_ref().map_or(0, |store| u32::try_from(store.warm_ops).unwrap_or(u32::MAX));
        let limit = GRACE + Duration::from_millis(loads) + 2 * WARM_OP * warm_ops;
        self.runner.run_child(CHILD, &serde_json::to_string(spec)?, spec.limit_bytes, limit)
    }
}
