//! A pool: memory for pages of files, under a ceiling, with threads that write them back.
//!
//! Relies on [`crate::writers`]; a pool goes when its last map and its last handle have gone.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use quire_device::Device;

use crate::config::{MapOptions, PoolConfig};
use crate::counters::{DepthCounter, PoolCounter, WaitCause};
use crate::error::PoolError;
use crate::map::Map;
use crate::mapped_file::MappedFile;
use crate::pool_state::PoolState;
use crate::reclaim;
use crate::stats::{DepthStats, PoolStats, WaitStats};
use crate::writers;

/// Memory for pages of files.
pub struct Pool {
    shared: Arc<PoolState>,
    writers: Mutex<Vec<JoinHandle<()>>>,
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
        let shared = Arc::new(PoolState::new(config.settle()?));
        let writers = writers::start(&shared)?;
        Ok(Arc::new(Self { shared, writers: Mutex::new(writers) }))
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
        let maps = self.shared.maps();
        let mut went = 0;
        for map in &maps {
            for home in 0..map.shards().len() {
                went += reclaim::evict_from(&self.shared, map, home, pages - went);
                if went == pages {
                    return went;
                }
            }
        }
        went
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
        }
    }
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
