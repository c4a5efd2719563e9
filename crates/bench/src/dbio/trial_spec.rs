//! What the process of a trial is told, as one line of JSON.
//!
//! Relies on the file having been laid out before.

use serde::{Deserialize, Serialize};

use super::candidate::StoreSpec;
use super::slow_disk::ThrottleSpec;
use super::sqlite_spec::SqliteSpec;
use crate::fastmap::testbed::Testbed;

/// What a trial is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialSpec {
    /// The file.
    pub testbed: Testbed,
    /// All memory of the process, page cache included.
    pub limit_bytes: u64,
    /// Numbers of clients, each of which has every load to itself.
    pub clients: Vec<usize>,
    /// How long each load lasts.
    pub run_ms: u64,
    /// Seed of everything that is drawn.
    pub seed: u64,
    /// How slow the disk is while loads are measured.
    pub throttle: Option<ThrottleSpec>,
    /// What is done.
    pub work: TrialWork,
}

/// What a trial does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialWork {
    /// Reads of the disk by itself.
    Disk,
    /// YCSB on a store.
    Store(StoreSpec),
    /// TPC-C on SQLite; the file is its database.
    Sqlite(SqliteSpec),
}
