//! What all maps of a pool share: credits, counters, signals, and the list of maps.
//!
//! Relies on maps not knowing it: a function that works on a page is given both.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use crate::cache_padded::CachePadded;
use crate::config::{PoolConfig, TierSize};
use crate::counters::PoolCounters;
use crate::credits::CreditPool;
use crate::error::PoolError;
use crate::lease_pins::LeasePins;
use crate::mapped_file::MappedFile;
use crate::memory_pressure::MemoryPressure;
use crate::tier::SecondTier;
use crate::tier_budget::TierBudget;

/// The shared part of a pool.
pub(crate) struct PoolState {
    pub(crate) config: PoolConfig,
    pub(crate) credits: CreditPool,
    pub(crate) counters: Arc<PoolCounters>,
    pub(crate) pressure: MemoryPressure,
    /// Pages that leases pin.
    pub(crate) pins: LeasePins,
    /// The second tier, made with the pool or when it is first given a size, and its part of the budget.
    tier_budget: OnceLock<Arc<TierBudget>>,
    /// Held while the sizes of the tiers change, but for what threads take that wait for a page.
    pub(crate) resizing: Mutex<()>,
    maps: RwLock<Vec<Arc<MappedFile>>>,
    /// Dirty pages of all maps, by shard.
    dirty: Box<[CachePadded<AtomicUsize>]>,
    next_map: AtomicU64,
    next_turn: AtomicUsize,
}

/// Numbers of dirty pages, both of one moment: the budget's part that is the first tier's changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirtyMarks {
    /// From which on writing back begins.
    pub(crate) limit: usize,
    /// Down to which it goes on.
    pub(crate) floor: usize,
}

impl DirtyMarks {
    fn new(total_pages: usize, percent: u8) -> Self {
        let limit = total_pages * usize::from(percent) / 100;
        Self { limit, floor: limit - limit / 6 }
    }

    /// Pages to be written of `dirty` ones, by a writer that is at it or not; none as long as it need not begin.
    pub(crate) fn excess(self, dirty: usize, is_writing: bool) -> usize {
        let is_writing = dirty > if is_writing { self.floor } else { self.limit };
        if is_writing { dirty - self.floor } else { 0 }
    }
}

impl PoolState {
    /// `config` has been settled. Where there is no memory for a second tier that was not asked for by a size, the pool has none.
    ///
    /// # Errors
    /// There is no memory for the second tier's index.
    pub(crate) fn new(config: PoolConfig) -> Result<Self, PoolError> {
        let cores = config.shards;
        let tier = match SecondTier::new(config.tier, config.budget_bytes, config.page_bytes) {
            Err(error) if config.tier.size == TierSize::Auto => {
                tracing::warn!(%error, "the pool has no second tier");
                None
            }
            tier => tier?,
        };
        let tier_budget = tier.map(|tier| Arc::new(TierBudget::new(tier, config.page_bytes)));
        Ok(Self {
            credits: CreditPool::new(config.budget_pages(), cores),
            counters: Arc::new(PoolCounters::new(cores)),
            pressure: MemoryPressure::default(),
            pins: LeasePins::new(config.lease_pages(), cores),
            maps: RwLock::default(),
            dirty: (0..cores).map(|_| CachePadded::default()).collect(),
            next_map: AtomicU64::new(0),
            next_turn: AtomicUsize::new(0),
            tier_budget: tier_budget.map(OnceLock::from).unwrap_or_default(),
            resizing: Mutex::default(),
            config,
        })
    }

    /// The second tier, if there is one.
    pub(crate) fn tier(&self) -> Option<&Arc<SecondTier>> {
        self.tier_budget().map(|budget| budget.tier())
    }

    /// The second tier, if there is one, and its part of the budget.
    pub(crate) fn tier_budget(&self) -> Option<&Arc<TierBudget>> {
        self.tier_budget.get()
    }

    /// Gives a pool that was made without one its second tier; whether it had none.
    pub(crate) fn add_tier(&self, budget: &Arc<TierBudget>) -> bool {
        self.tier_budget.set(Arc::clone(budget)).is_ok()
    }

    /// Pages that are evicted together.
    pub(crate) fn evict_pages(&self) -> usize {
        self.config.evict_pages.min(self.credits.total() / 2).max(1)
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

    /// A number that no other eviction out of turn has had: maps and shards take turns by it.
    pub(crate) fn next_turn(&self) -> usize {
        self.next_turn.fetch_add(1, Ordering::Relaxed)
    }

    /// Has the second tier give up at least `pages` pages to the first, if both share the budget and it has any. Returns how many came.
    pub(crate) fn take_from_tier(&self, pages: usize) -> usize {
        if pages == 0 {
            return 0;
        }
        let given = self.tier_budget().map_or(0, |budget| budget.take_back(&self.credits, pages));
        self.pressure.progress(given);
        given
    }

    /// Where writing back begins and where it ends, as the budget is divided at this moment.
    pub(crate) fn dirty_marks(&self) -> DirtyMarks {
        DirtyMarks::new(self.credits.total(), self.config.dirty_percent)
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
        let limit = self.dirty_marks().limit;
        if dirty > limit / self.dirty.len() && self.dirty_pages() > limit {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_goes_by_the_marks_that_it_began_with_while_the_budget_is_divided_anew() {
        let config = PoolConfig { budget_bytes: 1000 * 4096, dirty_percent: 60, ..PoolConfig::default() };
        let shared = PoolState::new(config.settle().unwrap()).unwrap();
        let withheld = shared.credits.withhold(900);
        let marks = shared.dirty_marks();
        let dirty = marks.limit + 1;
        shared.credits.release(withheld);
        // By the new marks there are hundreds too few.
        assert!(shared.dirty_marks().floor > dirty);
        assert_eq!((marks.excess(dirty, false), shared.dirty_marks().excess(dirty, true)), (11, 0));
    }

    #[test]
    fn writing_begins_above_the_limit_and_goes_on_down_to_the_floor() {
        let marks = DirtyMarks::new(100, 60);
        assert_eq!(marks, DirtyMarks { limit: 60, floor: 50 });
        assert_eq!([50, 60, 61].map(|dirty| marks.excess(dirty, false)), [0, 0, 11]);
        assert_eq!([50, 51, 60].map(|dirty| marks.excess(dirty, true)), [0, 1, 10]);
    }
}
