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
    /// How long a miss waits without anything moving before it fails with [`PoolError::Exhausted`].
    pub miss_timeout_ms: u64,
    /// Called first in every thread that the pool and its maps start.
    pub on_thread_start: Option<fn()>,
    /// Asked before writers claim pages.
    pub gate: Option<WritebackHooks>,
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
            writers: 1,
            shards: 0,
            evict_pages: 0,
            queue_depth: 64,
            policy: PolicyKind::default(),
            miss_timeout_ms: 5000,
            on_thread_start: None,
            gate: None,
        }
    }
}

/// Most pages evicted together: what one call to the system takes.
const MOST_EVICTED: usize = 512;
/// A shard smaller than this has too few pages to choose from.
const LEAST_SHARD_PAGES: usize = 256;
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
        if pages < 4 {
            return Err(PoolError::Config("`budget_bytes` must be at least four pages"));
        }
        if !(1..=100).contains(&self.dirty_percent) {
            return Err(PoolError::Config("`dirty_percent` must be from 1 to 100"));
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

    /// Pages that fit the budget.
    pub(crate) fn budget_pages(&self) -> usize {
        self.budget_bytes / self.page_bytes
    }
}

/// How a map is going to be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Advice {
    /// The pool looks for streams, and reads ahead of them.
    #[default]
    Normal,
    /// Every miss is taken for the start of a stream.
    Sequential,
    /// Nothing is read ahead.
    Random,
}

impl Advice {
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
#[derive(Clone, Debug)]
pub struct MapOptions {
    /// Address space for the file to grow into; at least the file's present length is reserved.
    pub reserve_bytes: u64,
    /// Most pages read ahead of a stream; 0 for none.
    pub read_ahead_pages: u32,
    /// How the map is going to be used.
    pub advice: Advice,
}

impl Default for MapOptions {
    fn default() -> Self {
        Self { reserve_bytes: 0, read_ahead_pages: 32, advice: Advice::Normal }
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
