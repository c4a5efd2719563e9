//! Figures of a store.

use quire_arena::ArenaStats;

/// Figures of one database.
#[derive(Clone, Copy, Debug, Default)]
pub struct DbStats {
    /// Keys, expired ones that no command has met yet included.
    pub keys: u64,
    /// Keys that have a time to live.
    pub expires: u64,
    /// About how long those keys have left on average.
    pub avg_ttl_ms: u64,
    /// Bytes of the tables' buckets and directories.
    pub overhead_bytes: u64,
    /// The part of these that serves times to live.
    pub expires_overhead_bytes: u64,
}

/// Figures of a store.
#[derive(Clone, Debug)]
pub struct StoreStats {
    /// Each database's.
    pub databases: Vec<DbStats>,
    /// Look-ups that found their key.
    pub hits: u64,
    /// Look-ups that found no key.
    pub misses: u64,
    /// Keys removed because their time had come.
    pub expired: u64,
    /// Parts of values removed because their time had come: fields of hashes.
    pub expired_subkeys: u64,
    /// Keys removed because memory was short.
    pub evicted: u64,
    /// Changes made since the store was opened.
    pub changes: u64,
    /// Deleted tables that are still being freed.
    pub reclaim_pending: u64,
    /// Values that were freed in steps.
    pub freed_in_steps: u64,
    /// Bytes of the tables' buckets and directories, of all databases.
    pub overhead_bytes: u64,
    /// The arena's.
    pub arena: ArenaStats,
}

/// What is counted while the store works.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) expired: u64,
    pub(crate) expired_subkeys: u64,
    pub(crate) evicted: u64,
    pub(crate) changes: u64,
}
