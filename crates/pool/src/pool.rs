//! A pool: memory for pages of files, under a ceiling, with threads that write them back.
//!
//! Relies on [`crate::writers`]; a pool goes when its last map and its last handle have gone.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use quire_device::Device;

use crate::config::{LEAST_PAGES, MapOptions, PoolConfig, TierConfig, TierSize};
use crate::counters::{DepthCounter, PoolCounter, WaitCause};
use crate::error::PoolError;
use crate::map::Map;
use crate::mapped_file::MappedFile;
use crate::pool_state::PoolState;
use crate::reclaim;
use crate::stats::{DepthStats, LeaseStats, PathStats, PoolStats, WaitStats};
use crate::tier::{SecondTier, TierSizer, TierStats};
use crate::tier_budget::TierBudget;
use crate::tier_split::TierSplit;
use crate::writers;

/// Memory for pages of files.
///
/// ```
/// use quire_device::{Directory, MemoryDirectory};
/// use quire_pool::{MapOptions, PageNo, Pool, PoolConfig};
///
/// let pool = Pool::new(PoolConfig { budget_bytes: 1 << 20, ..PoolConfig::default() })?;
/// let file = MemoryDirectory::with_file("data", &[7; 1 << 16]).open_to_write("data")?;
/// let map = pool.map(file, MapOptions::default())?;
/// assert_eq!(map.read(PageNo(3))?[0], 7);
/// map.write(PageNo(3))?[..5].copy_from_slice(b"hello");
/// map.sync()?; // durable from here on
/// assert_eq!(pool.stats().misses, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Pool {
    shared: Arc<PoolState>,
    writers: Mutex<Vec<JoinHandle<()>>>,
    /// Ends with the pool. Held while a second tier is made.
    tier_sizer: Mutex<Option<TierSizer>>,
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
        let sizer = shared.tier_budget().map(|budget| start_sizer(&shared, budget)).transpose()?;
        let writers = writers::start(&shared)?;
        Ok(Arc::new(Self { shared, writers: Mutex::new(writers), tier_sizer: Mutex::new(sizer) }))
    }

    /// Maps a file, whole. The same file must not be mapped twice at a time: neither map would know what the other changes.
    ///
    /// # Errors
    /// The device doesn't say how long the file is, or there are no addresses for it.
    pub fn map(self: &Arc<Self>, device: Arc<dyn Device>, options: MapOptions) -> Result<Map, PoolError> {
        let shared = &self.shared;
        let counters = Arc::clone(&shared.counters);
        // The budget may have another size by now.
        let budget_bytes = shared.credits.total() * shared.config.page_bytes;
        let config = PoolConfig { budget_bytes, ..shared.config.clone() };
        let mapped = Arc::new(MappedFile::new(device, &options, &config, counters, shared.next_map())?);
        shared.add_map(Arc::clone(&mapped));
        Ok(Map::new(Arc::clone(shared), mapped, Arc::clone(self) as Arc<dyn Send + Sync>))
    }

    /// Evicts up to `pages` clean pages now, of whatever map, and returns how many went.
    pub fn evict(&self, pages: usize) -> usize {
        reclaim::evict(&self.shared, pages)
    }

    /// Gives the pool another budget, as far as pages can be evicted for that at once: those that are dirty, or held by guards or leases, stay. Returns
    /// the budget's bytes then. If both tiers share it, they give in proportion, and what comes is the first tier's until the split moves it. Leases may pin their part of the new budget, and never more than of the one that the pool was made with; a budget of
    /// which the leases that there are would pin more than their part is not given. Address space and shards stay as they were made.
    ///
    /// # Errors
    /// [`PoolError::Config`]: fewer than four pages.
    ///
    /// ```
    /// use quire_pool::{Pool, PoolConfig};
    ///
    /// let pool = Pool::new(PoolConfig { budget_bytes: 1 << 20, ..PoolConfig::default() })?;
    /// assert_eq!(pool.set_budget(512 << 10)?, 512 << 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_budget(&self, bytes: usize) -> Result<usize, PoolError> {
        let page_bytes = self.page_bytes();
        let pages = bytes / page_bytes;
        if pages < LEAST_PAGES {
            return Err(PoolError::Config("`budget_bytes` must be at least four pages"));
        }
        Ok(reclaim::resize(&self.shared, pages) * page_bytes)
    }

    /// Gives the second tier another size. A pool that was made without one gets one. Returns the bytes that the tier may hold now: fewer where
    /// there is less memory, or where it was made for less; with [`TierSize::Auto`] none before a page is evicted. A share is one of the budget as it is
    /// now.
    ///
    /// # Errors
    /// [`PoolError::Memory`] and [`PoolError::Thread`].
    ///
    /// ```
    /// use quire_pool::{Pool, PoolConfig, TierSize};
    ///
    /// let pool = Pool::new(PoolConfig { budget_bytes: 1 << 20, ..PoolConfig::default() })?;
    /// let granted_bytes = pool.set_tier(TierSize::Bytes(4 << 20))?; // fewer where memory is short
    /// assert!(granted_bytes <= 4 << 20);
    /// pool.set_tier(TierSize::Auto)?; // a part of the budget
    /// assert_eq!(pool.set_tier(TierSize::Off)?, 0);
    /// assert_eq!(pool.budget_bytes(), 1 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_tier(&self, size: TierSize) -> Result<usize, PoolError> {
        let mut sizer = self.tier_sizer.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = &self.shared;
        let budget = match shared.tier_budget() {
            Some(budget) => Arc::clone(budget),
            None => {
                let Some(made) = self.make_tier(size)? else { return Ok(0) };
                let budget = Arc::new(TierBudget::new(made, shared.config.page_bytes));
                *sizer = Some(start_sizer(shared, &budget)?);
                shared.add_tier(&budget);
                budget
            }
        };
        let _alone = shared.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        if size == TierSize::Auto {
            budget.share();
            return Ok(budget.tier().limit_bytes());
        }
        let bytes = SecondTier::wanted_bytes(size, self.budget_bytes());
        let (limit_bytes, given) = budget.separate(&shared.credits, bytes);
        shared.pressure.progress(given);
        Ok(limit_bytes)
    }

    /// A second tier for a pool that was made without one; none for no size, or where there is no use for one.
    fn make_tier(&self, size: TierSize) -> Result<Option<SecondTier>, PoolError> {
        let PoolConfig { tier: config, page_bytes, .. } = self.shared.config;
        let budget_bytes = self.budget_bytes();
        let make = |size| SecondTier::new(TierConfig { size, ..config }, budget_bytes, page_bytes);
        if matches!(size, TierSize::Off | TierSize::Auto) {
            return make(size);
        }
        let bytes = SecondTier::wanted_bytes(size, budget_bytes);
        if bytes == 0 {
            return Ok(None);
        }
        // Room to grow later costs addresses only.
        make(TierSize::Bytes(bytes.max(SecondTier::roomy_bytes(budget_bytes)))).or_else(|_| make(size))
    }

    /// Bytes of the budget: for pages, and for the second tier if both share it.
    pub fn budget_bytes(&self) -> usize {
        self.shared.credits.budget() * self.page_bytes()
    }

    /// Bytes that the second tier may hold now; 0 if there is none.
    pub fn tier_limit_bytes(&self) -> usize {
        self.shared.tier().map_or(0, |tier| tier.limit_bytes())
    }

    /// Has the second tier hold no more than about `bytes` until it is next fitted to the memory that there is; what is too much goes
    /// at once.
    pub fn shrink_tier(&self, bytes: usize) {
        if let Some(tier) = self.shared.tier() {
            tier.set_limit(bytes);
        }
    }

    /// Takes one page in `one_in` of the second tier's memory, drawn by lot, as the kernel does under pressure; how many. For tests.
    #[doc(hidden)]
    pub fn take_back_tier_memory(&self, seed: u64, one_in: u64) -> usize {
        self.shared.tier().map_or(0, |tier| tier.take_back(seed, one_in))
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.shared.config.page_bytes
    }

    /// What the second tier holds now; all zero if there is none. Looks at every entry that it has, in parts, so not many times a second.
    pub fn tier_stats(&self) -> TierStats {
        self.shared.tier().map(|tier| tier.stats()).unwrap_or_default()
    }

    /// The pool's figures so far.
    ///
    /// ```
    /// use quire_pool::{Pool, PoolConfig, WaitCause};
    ///
    /// let pool = Pool::new(PoolConfig { budget_bytes: 1 << 20, ..PoolConfig::default() })?;
    /// let stats = pool.stats();
    /// for wait in stats.waits.iter().filter(|wait| wait.cause == WaitCause::Writeback) {
    ///     println!("waits for a page to evict: {}, {} ns at most", wait.count, wait.longest_ns);
    /// }
    /// assert_eq!((stats.budget_pages, stats.dirty_pages), (256, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
fn start_sizer(shared: &Arc<PoolState>, budget: &Arc<TierBudget>) -> Result<TierSizer, PoolError> {
    let mut split = TierSplit::new(shared, budget);
    TierSizer::start(shared.config.on_thread_start, budget.events(), move || split.look())
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
