//! In which order SQLite's VFSes are tried: one database is filled, and each trial has a copy of it that nothing has cached.
//!
//! Relies on rounds turning the order round, so that drift of the machine meets both.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use quire_peers::sqlite::Sqlite;

use super::schedule::Schedule;
use super::sqlite_spec::{SqliteCandidate, SqliteSpec};
use super::tpcc::results::TpccTrial;
use super::tpcc::{POOL_VARIABLE, TIER_VARIABLE, fill};
use super::trial_spec::{TrialSpec, TrialWork};
use crate::fastmap::testbed::{DeviceKind, PAGE_BYTES, Testbed};

/// Names that SQLite gives to what belongs to a database.
const SUFFIXES: [&str; 3] = ["", "-wal", "-shm"];

/// `libquire_sqlite.so`, which is built beside the program `quire`.
fn extension(quire: &Path) -> anyhow::Result<PathBuf> {
    let quire = quire.canonicalize().with_context(|| format!("finding {}", quire.display()))?;
    let path = quire.with_file_name("libquire_sqlite.so");
    ensure!(path.is_file(), "there is no {}; build it (cargo build -p quire-sqlite)", path.display());
    Ok(path)
}

impl Schedule<'_> {
    /// All trials of TPC-C, on databases below `dir` that are removed again. What keeps them from being run is a result, too.
    ///
    /// # Errors
    /// The database can't be filled, a trial can't be started, or there was an interrupt.
    pub fn tpcc(&mut self, dir: &Path, quire: &Path) -> anyhow::Result<()> {
        let found = extension(quire).and_then(|extension| Ok((extension, Sqlite::load()?)));
        let (extension, sqlite) = match found {
            Ok(found) => found,
            Err(reason) => {
                self.results.tpcc.not_run = Some(format!("{reason:#}"));
                return Ok(());
            }
        };
        let (template, size) = (dir.join("tpcc.db"), self.scale.tpcc_size());
        self.progress.say(&format!("filling a database of {} warehouses", size.warehouses));
        fill::fill(&sqlite, &template, size, &|| self.runner.check())?;
        let bytes = template.metadata().context("the length of the database")?.len();
        self.results.tpcc.database = Some((bytes, size.warehouses));
        for round in 0..self.scale.rounds {
            let mut candidates = self.scale.tpcc_candidates();
            if round % 2 == 1 {
                candidates.reverse();
            }
            for (candidate, twelfths) in candidates {
                let rounds = self.scale.rounds;
                self.progress.say(&format!("round {} of {rounds}: {} {twelfths}/12", round + 1, candidate.name()));
                let outcome = self.tpcc_trial(&template, &extension, (candidate, twelfths), round)?;
                self.results.tpcc.trials.push(TpccTrial { candidate, twelfths, round, outcome });
            }
        }
        std::fs::remove_file(&template).with_context(|| format!("removing {}", template.display()))
    }

    fn tpcc_trial(
        &self,
        template: &Path,
        extension: &Path,
        (candidate, twelfths): (SqliteCandidate, u64),
        round: usize,
    ) -> anyhow::Result<crate::fastmap::runner::TrialOutcome> {
        let path = template.with_file_name("tpcc-trial.db");
        let bytes = std::fs::copy(template, &path).with_context(|| format!("copying to {}", path.display()))?;
        let testbed = Testbed { kind: DeviceKind::Disk, path: path.clone(), pages: bytes / PAGE_BYTES as u64 };
        let cache_bytes = self.scale.pool_bytes(twelfths);
        let is_stock = candidate == SqliteCandidate::Stock;
        let spec = SqliteSpec {
            candidate,
            extension: extension.to_owned(),
            cache_bytes: (is_stock && twelfths > 0).then_some(cache_bytes),
            size: self.scale.tpcc_size(),
            warm_transactions: self.scale.tpcc_warm_transactions(),
        };
        let mut environment = Vec::new();
        if !is_stock {
            environment.push((POOL_VARIABLE, cache_bytes.to_string()));
        }
        match candidate {
            SqliteCandidate::Stock => {}
            SqliteCandidate::Quire => environment.push((TIER_VARIABLE, "off".to_owned())),
            SqliteCandidate::QuireTiers => {
                let left = self.scale.limit_bytes().saturating_sub(cache_bytes) / 4 * 3;
                environment.push((TIER_VARIABLE, left.to_string()));
            }
        }
        let trial = TrialSpec {
            testbed,
            limit_bytes: self.scale.limit_bytes(),
            clients: self.scale.tpcc_clients.clone(),
            run_ms: self.scale.run_ms,
            seed: Self::seed_of(round),
            throttle: None,
            work: TrialWork::Sqlite(spec),
        };
        let outcome = self.run_in(&trial, &environment);
        for suffix in SUFFIXES {
            let name = format!("{}{suffix}", path.display());
            match std::fs::remove_file(&name) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("removing {name}"));
                }
                _ => {}
            }
        }
        outcome
    }
}
