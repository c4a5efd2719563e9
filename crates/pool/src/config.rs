//! What can be set about a pool and its maps.

use crate::error::PoolError;
use crate::evict::PolicyKind;

/// Settings of a pool.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// Memory for pages, in bytes. It is never exceeded, pages that are being read or written included.
    pub budget_bytes: usize,
    /// Bytes of a page: 4096, 16384 or 65536.
    pub page_bytes: usize,
    /// Writing back begins when more than this share of the budget is dirty.
    pub dirty_percent: u8,
    /// Leases pin no more than this share of the budget, and at least a page.
    pub lease_percent: u8,
    /// Threads that write back.
    pub writers: usize,
    /// Parts that queues and sets of pages are split in, one a core as a rule; 0 chooses.
    pub shards: usize,
    /// Pages that are evicted together, at most 512; 0 chooses.
    pub evict_pages: usize,
    /// Writes that a writer keeps in flight, and reads that a readahead queue does.
    pub queue_depth: usize,
    /// Which pages are evicted.
    pub policy: PolicyKind,
    /// How long a miss waits without anything moving before it fails with [`PoolError::Exhausted`]. While pages of the pool are under
    /// writeback it waits on, however slow the device is.
    pub miss_timeout_ms: u64,
    /// Called first in every thread that the pool and its maps start.
    pub on_thread_start: Option<fn()>,
    /// Asked before writers claim pages.
    pub gate: Option<WritebackHooks>,
    /// The second tier, beside the budget, or in it with [`TierSize::Auto`].
    pub tier: TierConfig,
}

/// How large the second tier is: memory for evicted pages that the kernel may take back at any time. It is beside the budget but for
/// [`TierSize::Auto`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TierSize {
    /// There is none.
    Off,
    /// A part of the budget itself, which bounds both tiers together. It has nothing until the pool evicts its first page, half then, and from a
    /// 64th, or two segments for each of its shards if that is more, to seven eighths later. Memory moves to the tier whose next bytes would save more time, by the hits at the border between the
    /// tiers and at the end of the second. Pages that don't compress leave the second tier its least part, and pages that can't be evicted
    /// (dirty, or held by guards) leave it none. A budget that is too small for a second tier of 16 pages is all first tier.
    #[default]
    Auto,
    /// A share of the budget, in percent, beside it; may be over 100.
    Percent(u16),
    /// So many bytes, beside the budget.
    Bytes(usize),
}

/// How pages are stored in the second tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TierCompression {
    /// By LZ4; what doesn't compress is stored as it is.
    #[default]
    Lz4,
    /// By zstd at its first level; what doesn't compress is stored as it is. It stores text of few different characters in less, which LZ4
    /// doesn't, and takes several times as long.
    Zstd,
    /// As they are.
    None,
}

/// Settings of the second tier.
///
/// ```
/// use quire_pool::{Pool, PoolConfig, TierCompression, TierConfig, TierSize};
///
/// let tier = TierConfig { size: TierSize::Percent(50), compression: TierCompression::Lz4, ..TierConfig::default() };
/// let pool = Pool::new(PoolConfig { budget_bytes: 8 << 20, tier, ..PoolConfig::default() })?;
/// assert!(pool.tier_limit_bytes() <= 4 << 20); // less where memory is short
/// assert_eq!(pool.tier_stats().entries, 0); // nothing was evicted to it yet
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierConfig {
    /// Its size at most. Pressure makes it smaller.
    pub size: TierSize,
    /// How pages are stored.
    pub compression: TierCompression,
    /// A miss that the tier can't serve looks into the system's page cache before it goes to the device, and has it give the page up, so
    /// that no two layers keep the same page. Of use for files that other programs read or write through the page cache, too.
    /// Block devices are always read themselves: the cache may have older bytes of them.
    pub page_cache: bool,
    /// Victims are dropped while storing them takes longer than reading them from the device does.
    pub is_adaptive: bool,
}

impl TierConfig {
    /// No second tier.
    pub fn off() -> Self {
        Self { size: TierSize::Off, ..Self::default() }
    }
}

impl Default for TierConfig {
    fn default() -> Self {
        Self {
            size: TierSize::default(),
            compression: TierCompression::default(),
            page_cache: false,
            is_adaptive: true,
        }
    }
}

/// Keeps a pool's writers from files for some time. What is dirty stays in memory meanwhile, and can be changed.
#[derive(Clone, Copy, Debug)]
pub struct WritebackHooks {
    /// Whether pages may be claimed and written now; asked again when memory is wanted.
    pub enter: fn() -> bool,
    /// The writes that it allowed have been made.
    pub leave: fn(),
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            budget_bytes: 64 << 20,
            page_bytes: 4096,
            dirty_percent: 75,
            lease_percent: 25,
            writers: 1,
            shards: 0,
            evict_pages: 0,
            queue_depth: 64,
            policy: PolicyKind::default(),
            miss_timeout_ms: 5000,
            on_thread_start: None,
            gate: None,
            tier: TierConfig::default(),
        }
    }
}

/// Most pages evicted together: what one call to the system takes.
pub(crate) const MOST_EVICTED: usize = 512;
/// Fewer pages than this are no pool.
pub(crate) const LEAST_PAGES: usize = 4;
/// A shard smaller than this has too few pages to choose from.
const LEAST_SHARD_PAGES: usize = 256;
/// Fewer pages than this are no order of recency.
pub(crate) const LEAST_TIER_PAGES: usize = 16;
/// More shards than this gain nothing.
const MOST_SHARDS: usize = 64;

impl PoolConfig {
    /// Fills in what was left to choose.
    ///
    /// # Errors
    /// [`PoolError::Config`].
    pub(crate) fn settle(mut self) -> Result<Self, PoolError> {
        if ![4096, 16384, 65536].contains(&self.page_bytes) {
            return Err(PoolError::Config("`page_bytes` must be 4096, 16384 or 65536"));
        }
        let pages = self.budget_pages();
        if pages < LEAST_PAGES {
            return Err(PoolError::Config("`budget_bytes` must be at least four pages"));
        }
        if !(1..=100).contains(&self.dirty_percent) {
            return Err(PoolError::Config("`dirty_percent` must be from 1 to 100"));
        }
        if !(1..=75).contains(&self.lease_percent) {
            return Err(PoolError::Config("`lease_percent` must be from 1 to 75"));
        }
        if let TierSize::Bytes(bytes) = self.tier.size
            && bytes > 0
            && bytes / self.page_bytes < LEAST_TIER_PAGES
        {
            return Err(PoolError::Config("a second tier must have at least 16 pages"));
        }
        if self.shards == 0 {
            self.shards = std::thread::available_parallelism().map_or(4, usize::from);
            self.shards = self.shards.min(pages / LEAST_SHARD_PAGES);
        }
        self.shards = self.shards.clamp(1, MOST_SHARDS).next_power_of_two();
        if self.evict_pages == 0 {
            // A small part of the budget, or a batch would throw out what is needed next.
            self.evict_pages = pages / 64;
        }
        self.evict_pages = self.evict_pages.clamp(1, MOST_EVICTED).min(pages / 2);
        self.writers = self.writers.clamp(1, self.shards);
        self.queue_depth = self.queue_depth.clamp(1, 128);
        Ok(self)
    }

    /// What `write` returns, if writers may write now.
    pub(crate) fn with_writeback_hooks<T>(&self, write: impl FnOnce() -> T) -> Option<T> {
        if let Some(gate) = self.gate
            && !(gate.enter)()
        {
            return None;
        }
        let result = write();
        if let Some(gate) = self.gate {
            (gate.leave)();
        }
        Some(result)
    }

    /// To be called first in a thread of the pool.
    pub(crate) fn call_on_thread_start(&self) {
        if let Some(greet) = self.on_thread_start {
            greet();
        }
    }

    /// Most pages that leases pin.
    pub(crate) fn lease_pages(&self) -> usize {
        self.lease_pages_of(self.budget_pages())
    }

    /// Most pages that leases pin once the budget has `pages`. No more than at first: that many spare frames each map has.
    pub(crate) fn lease_pages_of(&self, pages: usize) -> usize {
        (self.budget_pages().min(pages) * usize::from(self.lease_percent) / 100).max(1)
    }

    /// The smallest budget, in pages, of which leases may pin `pinned`.
    pub(crate) fn pages_for_leases(&self, pinned: usize) -> usize {
        (pinned * 100).div_ceil(usize::from(self.lease_percent))
    }

    /// Pages that fit the budget.
    pub(crate) fn budget_pages(&self) -> usize {
        self.budget_bytes / self.page_bytes
    }
}

/// How a map is going to be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessAdvice {
    /// The pool looks for streams, and reads ahead of them.
    #[default]
    Normal,
    /// Every miss is taken for the start of a stream.
    Sequential,
    /// Nothing is read ahead.
    Random,
}

impl AccessAdvice {
    pub(crate) fn to_byte(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_byte(byte: u8) -> Self {
        match byte {
            1 => Self::Sequential,
            2 => Self::Random,
            _ => Self::Normal,
        }
    }
}

/// Settings of a map.
///
/// ```
/// use quire_device::{Directory, MemoryDirectory};
/// use quire_pool::{AccessAdvice, MapOptions, Pool, PoolConfig};
///
/// let pool = Pool::new(PoolConfig { budget_bytes: 1 << 20, ..PoolConfig::default() })?;
/// let options = MapOptions { reserve_bytes: 1 << 30, advice: AccessAdvice::Random, ..MapOptions::default() };
/// let map = pool.map(MemoryDirectory::new().create("grows to a GiB, looked up here and there")?, options)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct MapOptions {
    /// Address space for the file to grow into; at least the file's present length is reserved.
    pub reserve_bytes: u64,
    /// Most pages read ahead of a stream; 0 for none.
    pub read_ahead_pages: u32,
    /// How the map is going to be used.
    pub advice: AccessAdvice,
    /// Pages of the map go to the second tier. Not for a file that other processes write while it is mapped: what they write is seen
    /// when a page is read from the device again, which the tier puts off; unless the program discards what they have written
    /// ([`crate::Map::discard`]).
    pub use_tier: bool,
}

impl Default for MapOptions {
    fn default() -> Self {
        Self { reserve_bytes: 0, read_ahead_pages: 32, advice: AccessAdvice::Normal, use_tier: true }
    }
}

/// Threads that see to the faults of a transparent map, in place of the threads that fault.
#[derive(Clone, Copy, Debug)]
pub struct FaultThreadOptions {
    /// How many; as many faults at a time can wait for the device.
    pub threads: usize,
    /// Told as a message what can't be had. A thread that waits for a page can't be given an error, so the process is aborted
    /// when this returns.
    pub lost: fn(&str),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused() {
        for wrong in [
            PoolConfig { page_bytes: 8192, ..PoolConfig::default() },
            PoolConfig { budget_bytes: 3 * 4096, ..PoolConfig::default() },
            PoolConfig { dirty_percent: 0, ..PoolConfig::default() },
            PoolConfig { lease_percent: 76, ..PoolConfig::default() },
            PoolConfig {
                tier: TierConfig { size: TierSize::Bytes(15 * 4096), ..TierConfig::default() },
                ..PoolConfig::default()
            },
        ] {
            assert!(matches!(wrong.settle(), Err(PoolError::Config(_))));
        }
    }

    #[test]
    fn small_pools_have_one_shard_and_small_batches() {
        let small = PoolConfig { budget_bytes: 8 * 4096, ..PoolConfig::default() }.settle().unwrap();
        assert_eq!((small.shards, small.evict_pages), (1, 1));
        let large = PoolConfig { budget_bytes: 8 << 30, shards: 6, ..PoolConfig::default() }.settle().unwrap();
        assert_eq!((large.shards, large.evict_pages), (8, 512));
    }
}
