//! Who is tried: the pool in its ways, and the stores of others ([`super::peer_stores`]).
//!
//! Relies on the same tree in the same file for all of the pool's ways, so that they differ in nothing but where a page is looked for
//! when the pool hasn't got it.

use std::sync::Arc;

use anyhow::Context;
use quire_device::{CacheMode, Directory, DiskDirectory, IoEngine};
use quire_pool::{AccessAdvice, MapOptions, Pool, PoolConfig, TierCompression, TierConfig, TierSize};
use serde::{Deserialize, Serialize};

use super::page_cache_tier::page_cache_tier;
use super::values::ValueKind;
use crate::fastmap::candidate::GuardedPages;
use crate::fastmap::kv::store::KvStore;
use crate::fastmap::kv::tree::TreeLayout;
use crate::fastmap::pages::Counters;
use crate::fastmap::testbed::Testbed;

/// What a process takes for itself, of which no tier is made.
const OWN_BYTES: u64 = 8 << 20;

/// Who is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Candidate {
    /// The pool reads and writes through the page cache.
    Buffered,
    /// The pool reads and writes the device, and what it evicts is gone.
    Direct,
    /// What the pool evicts goes to its second tier.
    TwoTiers,
    /// The page cache is the second tier: it takes what is written, and no clean victims.
    PageCacheTier,
    /// Two tiers of the pool's, and the pool divides the memory by itself.
    AutoSplit,
    /// RocksDB around the page cache.
    RocksdbDirect,
    /// RocksDB through the page cache, with compressed blocks: the page cache is a compressed tier behind its own cache.
    RocksdbBuffered,
    /// LMDB, which has no cache but the page cache.
    Lmdb,
}

/// How the second tier compresses pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TierCodec {
    /// By LZ4, the pool's default
    Lz4,
    /// By zstd, which compresses what YCSB fills its fields with
    Zstd,
    /// Not at all
    None,
}

impl TierCodec {
    /// As the facts of a report name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
            Self::None => "none",
        }
    }

    fn of_pool(self) -> TierCompression {
        match self {
            Self::Lz4 => TierCompression::Lz4,
            Self::Zstd => TierCompression::Zstd,
            Self::None => TierCompression::None,
        }
    }
}

impl Candidate {
    /// Those that are tried with every size of the pool, in the order in which reports have them.
    pub const SWEPT: [Self; 3] = [Self::Buffered, Self::Direct, Self::TwoTiers];
    /// All, in the order in which reports have them.
    pub const EVERY: [Self; 8] = [
        Self::Buffered,
        Self::Direct,
        Self::TwoTiers,
        Self::PageCacheTier,
        Self::AutoSplit,
        Self::RocksdbDirect,
        Self::RocksdbBuffered,
        Self::Lmdb,
    ];
    /// RocksDB's two ways.
    pub const ROCKSDB: [Self; 2] = [Self::RocksdbDirect, Self::RocksdbBuffered];

    /// As figures name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Buffered => "buffered",
            Self::Direct => "direct",
            Self::TwoTiers => "two_tiers",
            Self::PageCacheTier => "page_cache_tier",
            Self::AutoSplit => "auto_split",
            Self::RocksdbDirect => "rocksdb_direct",
            Self::RocksdbBuffered => "rocksdb_buffered",
            Self::Lmdb => "lmdb",
        }
    }
}

/// The store of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreSpec {
    /// Who is tried.
    pub candidate: Candidate,
    /// Memory of the pool.
    pub pool_bytes: u64,
    /// Where everything is in the file, if it is the pool's.
    pub layout: Option<TreeLayout>,
    /// Records in it.
    pub records: u64,
    /// What new values consist of.
    pub values: ValueKind,
    /// How the second tier, or RocksDB, compresses.
    pub compression: TierCodec,
    /// Whether every record is read once before anything else.
    pub reads_all: bool,
    /// Operations that fill the caches.
    pub warm_ops: u64,
}

/// What loads see of an open store.
pub struct OpenStore<'a, S> {
    /// The store.
    pub store: &'a S,
    /// What has been counted so far.
    pub counters: &'a dyn Fn() -> Counters,
    /// What is held now.
    pub gauges: &'a dyn Fn() -> Counters,
}

/// Work that can be done on any store.
pub trait StoreWorkload {
    /// What comes of it.
    type Out;

    /// Does it.
    ///
    /// # Errors
    /// Its own.
    fn run_on<S: KvStore>(self, open: &OpenStore<'_, S>) -> anyhow::Result<Self::Out>;
}

/// The file in a pool of `pool_bytes`, with what `limit_bytes` leave for a second tier if the candidate has one.
///
/// # Errors
/// When the file can't be opened, or there is no memory.
pub fn open_pages(
    candidate: Candidate,
    testbed: &Testbed,
    (pool_bytes, limit_bytes): (u64, u64),
    compression: TierCodec,
) -> anyhow::Result<GuardedPages<false>> {
    let left = limit_bytes.saturating_sub(pool_bytes + OWN_BYTES);
    let size = match candidate {
        Candidate::AutoSplit => TierSize::Auto,
        Candidate::TwoTiers if left >= OWN_BYTES => TierSize::Bytes(left as usize),
        _ => TierSize::Off,
    };
    let is_page_cache = candidate == Candidate::PageCacheTier;
    let tier =
        TierConfig { size, compression: compression.of_pool(), page_cache: is_page_cache, ..TierConfig::default() };
    let pool = Pool::new(PoolConfig { budget_bytes: pool_bytes as usize, tier, ..PoolConfig::default() })?;
    let dir = testbed.path.parent().context("a file has a directory")?;
    let name = testbed.path.file_name().and_then(|name| name.to_str()).context("a file has a name")?;
    let open = |caching| DiskDirectory::new(dir).with(caching, IoEngine::default()).open_to_write(name);
    let device = match candidate {
        Candidate::Buffered => open(CacheMode::Buffered)?,
        Candidate::PageCacheTier => page_cache_tier(open(CacheMode::Direct)?, open(CacheMode::Buffered)?),
        _ => open(CacheMode::Direct)?,
    };
    let map = pool.map(device, MapOptions { advice: AccessAdvice::Random, ..MapOptions::default() })?;
    Ok(GuardedPages::of(Arc::clone(&pool), map))
}
