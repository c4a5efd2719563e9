//! A trial of TPC-C on SQLite, as its process is told of it.
//!
//! Relies on nothing.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::wcache::tpcc::database_size::DatabaseSize;

/// Whose VFS is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SqliteCandidate {
    /// SQLite's own.
    Stock,
    /// That of `libquire_sqlite.so`, with a pool and no second tier.
    Quire,
    /// The same, with a second tier.
    QuireTiers,
}

impl SqliteCandidate {
    /// As figures name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stock => "sqlite_stock",
            Self::Quire => "sqlite_quire",
            Self::QuireTiers => "sqlite_quire_tiers",
        }
    }

    /// As a URI names it.
    pub fn vfs(self) -> &'static str {
        if self == Self::Stock { "unix" } else { "quire" }
    }
}

/// The database of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SqliteSpec {
    /// Whose VFS is tried.
    pub candidate: SqliteCandidate,
    /// `libquire_sqlite.so`.
    pub extension: PathBuf,
    /// Bytes of SQLite's own cache, of all connections together; SQLite's default if there are none.
    pub cache_bytes: Option<u64>,
    /// What is in the database.
    pub size: DatabaseSize,
    /// Transactions that fill the caches.
    pub warm_transactions: u64,
}
