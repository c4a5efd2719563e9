//! A pool: memory for pages of files, under a ceiling, with threads that write them back.
//!
//! Relies on [`crate::writers`]; a pool goes when its last map and its last handle have gone.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use quire_device::Device;

use crate::config::{MapOptions, PoolConfig, TierSize};
use crate::counters::{DepthCounter, PoolCounter, WaitCause};
use crate::error::PoolError;
use crate::map::Map;
use crate::mapped_file::MappedFile;
use crate::pool_state::PoolState;
use crate::reclaim;
use crate::stats::{DepthStats, LeaseStats, PathStats, PoolStats, WaitStats};
use crate::tier::{SecondTier, TierSizer, TierStats};
use crate::tier_split::TierSplit;
use crate::writers;

/// Memory for pages of files.
pub struct Pool {
    shared: Arc<PoolState>,
    writers: Mutex<Vec<JoinHandle<()>>>,
    /// Ends with the pool.
    _tier_sizer: Option<TierSizer>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Pool").field("config", &self.shared.config).finish_non_exhaustive()
    }
}

impl Pool {
    /// A pool with its writer threads.
    ///
    /// # Errors
    /// [`PoolError::Config`], or [`PoolError::Thread`].
    pub fn new(config: PoolConfig) -> Result<Arc<Self>, PoolError> {
        let shared = Arc::new(PoolState::new(config.settle()?)?);
        let sizer = shared.tier.as_ref().map(|tier| start_sizer(&shared, tier)).transpose()?;
        let writers = writers::start(&shared)?;
        Ok(Arc::new(Self { shared, writers: Mutex::new(writers), _tier_sizer: sizer }))
    }

    /// Maps a file, whole. The same file must not be mapped twice at a time: neither map would know what the other changes.
    ///
    /// # Errors
    /// The device doesn't say how long the file is, or there are no addresses for it.
    pub fn map(self: &Arc<Self>, device: Arc<dyn Device>, options: MapOptions) -> Result<Map, PoolError> {
        let shared = &self.shared;
        let counters = Arc::clone(&shared.counters);
        let mapped = Arc::new(MappedFile::new(device, &options, &shared.config, counters, shared.next_map())?);
        shared.add_map(Arc::clone(&mapped));
        Ok(Map::new(Arc::clone(shared), mapped, Arc::clone(self) as Arc<dyn Send + Sync>))
    }

    /// Evicts up to `pages` clean pages now, of whatever map, and returns how many went.
    pub fn evict(&self, pages: usize) -> usize {
        reclaim::evict(&self.shared, pages)
    }

    /// Has the second tier hold no more than about `bytes` until it is next fitted to the memory that there is; what is too much goes
    /// at once.
    pub fn shrink_tier(&self, bytes: usize) {
        if let Some(tier) = &self.shared.tier {
            tier.set_limit(bytes);
        }
    }

    /// Takes one page in `one_in` of the second tier's memory, drawn by lot, as the kernel does under pressure; how many. For tests.
    #[doc(hidden)]
    pub fn take_back_tier_memory(&self, seed: u64, one_in: u64) -> usize {
        self.shared.tier.as_ref().map_or(0, |tier| tier.take_back(seed, one_in))
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.shared.config.page_bytes
    }

    /// What the second tier holds now; all zero if there is none. Looks at every entry that it has, in parts, so not many times a second.
    pub fn tier_stats(&self) -> TierStats {
        self.shared.tier.as_ref().map(|tier| tier.stats()).unwrap_or_default()
    }

    /// The pool's figures so far.
    pub fn stats(&self) -> PoolStats {
        let shared = &*self.shared;
        let count = |what| shared.counters.get(what);
        let waits = WaitCause::ALL.map(|cause| {
            let wait = shared.counters.wait(cause);
            let get = |figure: &std::sync::atomic::AtomicU64| figure.load(std::sync::atomic::Ordering::Relaxed);
            WaitStats {
                cause,
                count: get(&wait.count),
                total_ns: get(&wait.total_ns),
                longest_ns: get(&wait.longest_ns),
            }
        });
        let total = shared.credits.total();
        PoolStats {
            budget_pages: total as u64,
            page_bytes: shared.config.page_bytes as u64,
            resident_pages: total.saturating_sub(shared.credits.free()) as u64,
            dirty_pages: shared.dirty_pages() as u64,
            maps: shared.maps().len() as u64,
            hits: count(PoolCounter::Hits),
            misses: count(PoolCounter::Misses),
            overwritten: count(PoolCounter::Overwritten),
            failed_reads: count(PoolCounter::FailedReads),
            evicted: count(PoolCounter::Evicted),
            evict_batches: count(PoolCounter::EvictBatches),
            evict_ranges: count(PoolCounter::EvictRanges),
            evict_calls: count(PoolCounter::EvictCalls),
            written: count(PoolCounter::Written),
            writes: count(PoolCounter::Writes),
            ahead: count(PoolCounter::Ahead),
            ahead_reads: count(PoolCounter::AheadReads),
            optimistic_retries: count(PoolCounter::OptimisticRetries),
            merged_writes: shared.counters.merged_writes(),
            read_depth: depth(&shared.counters.read_depth),
            write_depth: depth(&shared.counters.write_depth),
            waits: waits.into(),
            leases: LeaseStats {
                pinned_pages: shared.pins.pinned() as u64,
                limit_pages: shared.pins.total() as u64,
                relocated: count(PoolCounter::Relocated),
                copied: count(PoolCounter::LeaseCopies),
            },
            paths: PathStats {
                read_direct: count(PoolCounter::ReadDirect),
                read_tier: count(PoolCounter::ReadTier),
                read_cached: count(PoolCounter::ReadCached),
                cache_kept: count(PoolCounter::CacheKept),
                tier_reclaimed: count(PoolCounter::TierReclaimed),
                tier_ghost: count(PoolCounter::TierGhost),
                tier_busy: count(PoolCounter::TierBusy),
                write_direct: count(PoolCounter::WriteDirect),
                evict_dirty: count(PoolCounter::EvictDirty),
                evict_clean: count(PoolCounter::EvictClean),
                evict_kept: count(PoolCounter::EvictKept),
                evict_declined: count(PoolCounter::EvictDeclined),
            },
        }
    }
}

/// The thread that sees to the sizes of the tiers.
fn start_sizer(shared: &Arc<PoolState>, tier: &Arc<SecondTier>) -> Result<TierSizer, PoolError> {
    let greet = shared.config.on_thread_start;
    if shared.config.tier.size == TierSize::AutoSplit {
        // Divided before the first page is asked for.
        let mut split = TierSplit::new(shared, tier);
        return TierSizer::start(greet, move || split.look());
    }
    let tier = Arc::clone(tier);
    TierSizer::start(greet, move || tier.look())
}

fn depth(depth: &DepthCounter) -> DepthStats {
    let get = |figure: &std::sync::atomic::AtomicU64| figure.load(std::sync::atomic::Ordering::Relaxed);
    let samples = get(&depth.samples).max(1);
    DepthStats { mean: get(&depth.sum) as f64 / samples as f64, most: get(&depth.most) }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let threads = std::mem::take(&mut *self.writers.lock().unwrap_or_else(PoisonError::into_inner));
        writers::stop(&self.shared, threads);
    }
}
