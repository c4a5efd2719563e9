//! In which order everything is tried: a store of each size is laid out once, and all trials of that size use it.
//!
//! Relies on candidates taking turns for each size of the pool, and the order being turned round from round to round, so that drift
//! of the machine meets all of them.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use quire_rng::mix;

use super::candidate::{Candidate, StoreSpec};
use super::peer_stores::PeerStore;
use super::results::{BoundResult, ResultCell, TrialResult, TrialResults};
use super::scale::DbioScale;
use super::slow_disk::ThrottleSpec;
use super::store_file::fill;
use super::trial_spec::{TrialSpec, TrialWork};
use super::{CHILD, full_read};
use crate::fastmap::kv::tree::TreeLayout;
use crate::fastmap::runner::{ChildSpec, TrialOutcome, TrialRunner};
use crate::fastmap::testbed::{DeviceKind, Testbed};
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
    /// How slow the disk is while loads are measured.
    pub throttle: Option<ThrottleSpec>,
    /// Says what is done.
    pub progress: Progress,
    /// What came of it.
    pub results: TrialResults,
}

impl Schedule<'_> {
    /// The seed of everything that is drawn in a round, the same for all candidates.
    pub fn seed_of(round: usize) -> u64 {
        mix(SEED + round as u64)
    }

    /// All trials on a store of `data` times the memory, in files below `dir` that are removed again: of the pool, and of the stores of others,
    /// as far as they are wanted.
    ///
    /// # Errors
    /// The store can't be laid out, a trial can't be started, or there was an interrupt.
    pub fn data(&mut self, dir: &Path, data: f64, (pool, peers): (bool, bool)) -> anyhow::Result<()> {
        let path = dir.join("store");
        let records = self.scale.records(data);
        self.progress.say(&format!("laying out {records} records, {data} of the memory"));
        let (testbed, layout) = fill(&path, records, self.scale.values, self.scale.limit_bytes() / 4)?;
        let stores = if peers && data == self.scale.goal_data() { self.fill_peers(dir, data)? } else { Vec::new() };
        for round in 0..self.scale.rounds {
            let spec = TrialSpec {
                testbed: testbed.clone(),
                limit_bytes: self.scale.limit_bytes(),
                clients: self.scale.clients.clone(),
                run_ms: self.scale.run_ms,
                seed: Self::seed_of(round),
                throttle: self.throttle.clone(),
                work: TrialWork::Disk,
            };
            let rounds = self.scale.rounds;
            self.progress.say(&format!("round {} of {rounds}: random reads of the disk by itself", round + 1));
            let outcome = self.run(&spec)?;
            self.results.bounds.push(BoundResult { data, round, outcome });
            if pool {
                self.pool_trials(&spec, &layout, data, round)?;
            }
            for (candidate, store) in &stores {
                self.peer_trials(&spec, (*candidate, store), data, round)?;
            }
        }
        std::fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))
    }

    /// The pool in all its ways.
    fn pool_trials(&mut self, spec: &TrialSpec, layout: &TreeLayout, data: f64, round: usize) -> anyhow::Result<()> {
        for &pool_twelfths in self.scale.pools_for(data) {
            let mut candidates = Candidate::SWEPT.to_vec();
            if self.scale.page_cache_pools(data).contains(&pool_twelfths) {
                candidates.push(Candidate::PageCacheTier);
            }
            if round % 2 == 1 {
                candidates.reverse();
            }
            for candidate in candidates {
                self.trial(spec, Some(layout), (ResultCell { data, pool_twelfths }, candidate), round)?;
            }
        }
        self.trial(spec, Some(layout), (ResultCell { data, pool_twelfths: 0 }, Candidate::AutoSplit), round)
    }

    /// The stores of others with all records, or why there is none.
    fn fill_peers(&mut self, dir: &Path, data: f64) -> anyhow::Result<Vec<(Candidate, Result<PeerStore, String>)>> {
        let mut stores = Vec::new();
        for candidate in Candidate::ROCKSDB.into_iter().chain([Candidate::Lmdb]) {
            self.runner.check()?;
            self.progress.say(&format!("filling {}", candidate.name()));
            let records = (self.scale.records(data), self.scale.values);
            let store = PeerStore::fill(dir, candidate, records, self.scale.compression);
            stores.push((candidate, store.map_err(|error| format!("{error:#}"))));
        }
        Ok(stores)
    }

    /// A store of another program's, with each size of its cache.
    fn peer_trials(
        &mut self,
        plain: &TrialSpec,
        (candidate, store): (Candidate, &Result<PeerStore, String>),
        data: f64,
        round: usize,
    ) -> anyhow::Result<()> {
        for (_, pool_twelfths) in self.scale.peers().into_iter().filter(|(peer, _)| *peer == candidate) {
            let cell = ResultCell { data, pool_twelfths };
            let own = match store {
                Ok(store) => store.for_trial().map_err(|error| format!("{error:#}")),
                Err(reason) => Err(reason.clone()),
            };
            match own {
                Ok(own) => {
                    let testbed = Testbed { kind: DeviceKind::Disk, path: own.path.clone(), pages: 1 };
                    let spec = TrialSpec { testbed, ..plain.clone() };
                    self.trial(&spec, None, (cell, candidate), round)?;
                }
                Err(reason) => {
                    self.results.trials.push(TrialResult { cell, candidate, round, outcome: Err(reason) });
                }
            }
        }
        Ok(())
    }

    fn trial(
        &mut self,
        plain: &TrialSpec,
        layout: Option<&TreeLayout>,
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
            layout: layout.cloned(),
            records: self.scale.records(data),
            values: self.scale.values,
            compression: self.scale.compression,
            reads_all: self.scale.is_small(data),
            warm_ops: self.scale.warm_ops(data),
        };
        let outcome = self.run(&TrialSpec { work: TrialWork::Store(store), ..plain.clone() })?;
        self.results.trials.push(TrialResult { cell, candidate, round, outcome });
        Ok(())
    }

    fn run(&self, spec: &TrialSpec) -> anyhow::Result<TrialOutcome> {
        self.run_in(spec, &[])
    }

    /// Runs a trial with more variables in its environment. What of its file was cached is not any more when it begins.
    ///
    /// # Errors
    /// It can't be started, or there was an interrupt.
    pub fn run_in(&self, spec: &TrialSpec, environment: &[(&str, String)]) -> anyhow::Result<TrialOutcome> {
        // The directory of another program's store was seen to already.
        if !spec.testbed.path.is_dir() {
            spec.testbed.drop_cache()?;
        }
        let loads = 3 * (spec.clients.len() as u64 + 1) * spec.run_ms;
        let warm_ops = match &spec.work {
            TrialWork::Disk => 0,
            TrialWork::Store(store) => store.warm_ops,
            TrialWork::Sqlite(sqlite) => sqlite.warm_transactions * 10,
        };
        let full_read = match &spec.work {
            TrialWork::Store(store) if store.reads_all => full_read::MOST_TIME,
            _ => Duration::ZERO,
        };
        let warm_ops = u32::try_from(warm_ops).unwrap_or(u32::MAX);
        self.runner.run_child(&ChildSpec {
            name: CHILD,
            line: &serde_json::to_string(spec)?,
            environment,
            limit_bytes: spec.limit_bytes,
            time_limit: GRACE + full_read + Duration::from_millis(loads) + 2 * WARM_OP * warm_ops,
        })
    }
}
