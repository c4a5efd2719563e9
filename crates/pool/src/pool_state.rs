//! What all maps of a pool share: credits, counters, signals, and the list of maps.
//!
//! Relies on maps not knowing it: a function that works on a page is given both.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::cache_padded::CachePadded;
use crate::config::PoolConfig;
use crate::counters::PoolCounters;
use crate::credits::CreditPool;
use crate::mapped_file::MappedFile;
use crate::memory_pressure::MemoryPressure;

/// The shared part of a pool.
pub(crate) struct PoolState {
    pub(crate) config: PoolConfig,
    pub(crate) credits: CreditPool,
    pub(crate) counters: Arc<PoolCounters>,
    pub(crate) pressure: MemoryPressure,
    maps: RwLock<Vec<Arc<MappedFile>>>,
    /// Dirty pages of all maps, by shard.
    dirty: Box<[CachePadded<AtomicUsize>]>,
    next_map: AtomicU64,
}

impl PoolState {
    /// `config` has been settled.
    pub(crate) fn new(config: PoolConfig) -> Self {
        let cores = config.shards;
        Self {
            credits: CreditPool::new(config.budget_pages(), cores),
            counters: Arc::new(PoolCounters::new(cores)),
            pressure: MemoryPressure::default(),
            maps: RwLock::default(),
            dirty: (0..cores).map(|_| CachePadded::default()).collect(),
            next_map: AtomicU64::new(0),
            config,
        }
    }

    /// A number that no other map of this pool has.
    pub(crate) fn next_map(&self) -> u64 {
        self.next_map.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn add_map(&self, map: Arc<MappedFile>) {
        self.maps.write().unwrap_or_else(PoisonError::into_inner).push(map);
    }

    pub(crate) fn remove_map(&self, map: &Arc<MappedFile>) {
        self.maps.write().unwrap_or_else(PoisonError::into_inner).retain(|other| !Arc::ptr_eq(other, map));
    }

    /// The maps there are now.
    pub(crate) fn maps(&self) -> Vec<Arc<MappedFile>> {
        self.maps.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Dirty pages from which on writing back begins.
    pub(crate) fn dirty_limit(&self) -> usize {
        self.config.budget_pages() * usize::from(self.config.dirty_percent) / 100
    }

    /// Dirty pages down to which it goes on.
    pub(crate) fn dirty_floor(&self) -> usize {
        self.dirty_limit() - self.dirty_limit() / 6
    }

    /// Dirty pages of all maps, without those being written.
    pub(crate) fn dirty_pages(&self) -> usize {
        self.dirty.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// `page`, which the caller has for itself, has become dirty. Touches one shard's set and count; the others' counts are
    /// looked at only when this one is over its part, without which all together can't be over the whole.
    pub(crate) fn note_dirty(&self, map: &MappedFile, page: u64) {
        // Counted before it can be found, so that the count never falls below nothing.
        let dirty = self.add_dirty(map.shard_of(page), 1);
        map.shard(page).dirty().insert(page);
        if dirty > self.dirty_limit() / self.dirty.len() && self.dirty_pages() > self.dirty_limit() {
            self.pressure.wanted.notify_all();
        }
    }

    /// Counts dirty pages of a shard; returns how many there are now.
    pub(crate) fn add_dirty(&self, shard: usize, pages: usize) -> usize {
        self.dirty[shard].fetch_add(pages, Ordering::Relaxed) + pages
    }

    /// The reverse.
    pub(crate) fn sub_dirty(&self, shard: usize, pages: usize) {
        self.dirty[shard].fetch_sub(pages, Ordering::Relaxed);
    }
}
