//! Memory that goes from one tier to the other while the pool works ([`TierSize::Auto`](crate::TierSize::Auto)), and the look at a second tier that
//! lies beside the budget.
//!
//! Relies on [`crate::tier_budget`] for the move itself, in which both tiers together never exceed the budget. A move goes in batches: it
//! ends early with the pool, and when a thread comes to wait for memory.

use std::sync::{Arc, PoisonError, TryLockError};
use std::time::Duration;

use quire_sys::pressure::{MemoryInfo, processor_stalled_us};

use crate::pool_state::PoolState;
use crate::reclaim;
use crate::tier::{MemorySplit, PERIOD, SecondTier};
use crate::tier_budget::TierBudget;

/// The division of a pool's budget.
pub(crate) struct TierSplit {
    shared: Arc<PoolState>,
    budget: Arc<TierBudget>,
    tier: Arc<SecondTier>,
    split: MemorySplit,
    /// Pages of a segment: the second tier has use for no part of one.
    segment_pages: usize,
    /// The second tier shares the budget, and has got its first part.
    is_divided: bool,
}

impl TierSplit {
    /// Of the budget of `shared`, which is undivided so far.
    pub(crate) fn new(shared: &Arc<PoolState>, budget: &Arc<TierBudget>) -> Self {
        let tier = Arc::clone(budget.tier());
        let page_bytes = shared.config.page_bytes;
        let segment_pages = tier.segment_bytes() / page_bytes;
        let split = MemorySplit::new(
            shared.credits.budget(),
            tier.capacity_bytes() / page_bytes,
            segment_pages,
            tier.shard_count(),
        );
        let (shared, budget) = (Arc::clone(shared), Arc::clone(budget));
        Self { shared, budget, tier, split, segment_pages, is_divided: false }
    }

    /// Looks at what was hit since the last look, moves memory if it is worth it, and fits the second tier to the memory that there is. Returns
    /// when to look again; if nothing, there is no use for it before a page is evicted.
    pub(crate) fn look(&mut self) -> Option<Duration> {
        if !self.budget.is_wanted() {
            self.is_divided = false;
            return None;
        }
        self.tier.note_processors(processor_stalled_us());
        self.look_at(&MemoryInfo::now());
        Some(PERIOD)
    }

    fn look_at(&mut self, now: &MemoryInfo) {
        self.tier.resize_to(now);
        let shared = Arc::clone(&self.shared);
        let _alone = match shared.resizing.try_lock() {
            Ok(alone) => alone,
            Err(TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
            // A thread sets the sizes. The next look is soon.
            Err(TryLockError::WouldBlock) => return,
        };
        if !self.tier.is_shared() {
            self.is_divided = false;
            return;
        }
        let total = shared.credits.budget();
        if self.tier.is_refused() {
            self.divide(total);
            return;
        }
        if !self.is_divided || self.split.total_pages() != total {
            self.begin(total);
        }
        if !std::mem::replace(&mut self.is_divided, true) {
            self.divide(self.split.first_pages());
            return;
        }
        // Threads that waited for memory may have taken some since.
        self.split.settle(total - shared.credits.withheld());
        let seen = self.tier.border_hits();
        let is_memory_low = shared.pressure.is_memory_low();
        let first_pages = if is_memory_low { self.split.yield_to_first() } else { self.split.observe(&seen) };
        self.divide(first_pages);
    }

    /// The budget has `total` pages.
    fn begin(&mut self, total: usize) {
        let page_bytes = self.shared.config.page_bytes;
        self.split = MemorySplit::new(
            total,
            self.tier.capacity_bytes() / page_bytes,
            self.segment_pages,
            self.tier.shard_count(),
        );
        self.tier.set_reach(MemorySplit::most_second_bytes(total * page_bytes));
        // What was counted before is of another division.
        self.tier.border_hits();
    }

    fn divide(&mut self, first_pages: usize) {
        let total = self.shared.credits.budget();
        // What there is no memory for in the second tier is of use in the first.
        let most = self.tier.memory_bytes() / self.shared.config.page_bytes;
        let wanted = (total - first_pages).min(most);
        let wanted = wanted - wanted % self.segment_pages;
        if wanted > self.shared.credits.withheld() {
            self.extend(wanted);
        }
        self.take_back(wanted);
        self.split.settle(total - self.shared.credits.withheld());
    }

    /// Pages that move together: threads that need one of them wait for so many.
    fn batch(&self) -> usize {
        self.shared.config.evict_pages.max(self.segment_pages)
    }

    /// Takes from the second tier what it has beyond `wanted`.
    fn take_back(&self, wanted: usize) {
        let shared = &*self.shared;
        while !shared.pressure.is_stopping()
            && let Some(surplus) = shared.credits.withheld().checked_sub(wanted).filter(|&surplus| surplus > 0)
            && shared.take_from_tier(surplus.min(self.batch())) > 0
        {}
    }

    /// Evicts until the second tier has `wanted` pages. It grows with every batch, so that what is evicted next finds room. What other
    /// threads take meanwhile is left for the next look.
    fn extend(&self, wanted: usize) {
        let shared = &*self.shared;
        let budget = &*self.budget;
        let batch = self.batch();
        let batches = 2 * (wanted - shared.credits.withheld()).div_ceil(batch);
        for _ in 0..=batches {
            let missing = budget.extend(&shared.credits, &shared.pressure, wanted);
            let is_interrupted = shared.pressure.is_stopping() || shared.pressure.is_memory_low();
            if missing == 0 || is_interrupted || reclaim::evict(shared, missing.min(batch)) == 0 {
                break;
            }
        }
        // Of what came no part of a segment is kept.
        let surplus = shared.credits.withheld() % self.segment_pages;
        if surplus > 0 {
            shared.take_from_tier(surplus);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_mode::AccessMode;
    use crate::config::{MapOptions, PoolConfig, TierCompression, TierConfig, TierSize};
    use crate::fetch::acquire;
    use crate::mapped_file::MappedFile;
    use quire_device::{Directory, MemoryDirectory};

    const PAGE: usize = 4096;
    const BUDGET_PAGES: usize = 256;
    const PLENTY: MemoryInfo = MemoryInfo {
        stalled_percent: None,
        stalled_us: Some(0),
        available_bytes: Some(1 << 40),
        total_bytes: None,
        group_left_bytes: None,
        group_limit_bytes: None,
    };

    /// A pool without threads, divided, with a map of twice as many pages.
    struct Divided {
        shared: Arc<PoolState>,
        map: Arc<MappedFile>,
        split: TierSplit,
    }

    fn divided(budget_pages: usize) -> Divided {
        divided_with(budget_pages, 1)
    }

    fn divided_with(budget_pages: usize, shards: usize) -> Divided {
        let size = TierSize::Auto;
        let tier = TierConfig { size, compression: TierCompression::None, is_adaptive: false, ..TierConfig::default() };
        let config = PoolConfig { budget_bytes: budget_pages * PAGE, shards, tier, ..PoolConfig::default() };
        let shared = Arc::new(PoolState::new(config.settle().unwrap()).unwrap());
        let budget = Arc::clone(shared.tier_budget().unwrap());
        let mut split = TierSplit::new(&shared, &budget);
        assert_eq!((split.look(), shared.credits.withheld()), (None, 0), "no page was evicted yet");
        budget.note_eviction();
        split.look_at(&PLENTY);
        let memory = MemoryDirectory::with_file("pages", &vec![1; 2 * budget_pages * PAGE]);
        let device = memory.open("pages").unwrap();
        let options = MapOptions { read_ahead_pages: 0, ..MapOptions::default() };
        let counters = Arc::clone(&shared.counters);
        let map = MappedFile::new(device, &options, &shared.config, counters, shared.next_map()).unwrap();
        let map = Arc::new(map);
        shared.add_map(Arc::clone(&map));
        Divided { shared, map, split }
    }

    impl Divided {
        /// Reads all pages, so that both tiers are full.
        fn fill(&self) {
            for page in 0..self.map.pages() {
                acquire(&self.shared, &self.map, page, AccessMode::Read).unwrap();
                self.map.state(page).unlock_shared();
            }
        }

        fn second_pages(&self) -> usize {
            self.shared.credits.withheld()
        }

        fn tier_bytes(&self) -> usize {
            self.split.tier.stats().limit_bytes as usize
        }
    }

    #[test]
    fn a_second_tier_that_grows_keeps_what_it_has() {
        let mut divided = divided(BUDGET_PAGES);
        divided.fill();
        let (before, segment) = (divided.split.tier.stats().entries as usize, divided.split.segment_pages);
        let (second, resident) = (divided.second_pages(), divided.map.resident());
        assert!(before + segment > second, "it is full: {before} pages");
        divided.split.divide(BUDGET_PAGES - second - 4 * segment);
        assert_eq!(divided.second_pages(), second + 4 * segment);
        let after = divided.split.tier.stats().entries as usize;
        let came = resident - divided.map.resident();
        // The first batch finds no room but that of the oldest segment.
        assert!(came > 3 * segment && after + segment >= before + came, "{before} pages, {came} came, {after} later");
    }

    #[test]
    fn a_second_tier_that_grows_takes_from_all_shards_of_the_first() {
        const SHARDS: usize = 4;
        let mut divided = divided_with(8 * BUDGET_PAGES, SHARDS);
        divided.fill();
        let resident = |divided: &Divided| -> Vec<usize> {
            let shards = divided.map.shards().iter();
            shards.map(|shard| shard.resident.load(std::sync::atomic::Ordering::Relaxed)).collect()
        };
        let (before, second) = (resident(&divided), divided.second_pages());
        let step = 8 * divided.split.batch();
        divided.split.divide(8 * BUDGET_PAGES - second - step);
        let went: Vec<usize> = before.iter().zip(resident(&divided)).map(|(before, now)| before - now).collect();
        let (least, most) = (went.iter().min().unwrap(), went.iter().max().unwrap());
        assert!(*most - *least <= 2 * divided.split.batch() && *least > 0, "of a step of {step} pages: {went:?}");
    }

    #[test]
    fn a_move_ends_with_the_pool() {
        for first_pages in [BUDGET_PAGES / 8, BUDGET_PAGES * 7 / 8] {
            let mut divided = divided(BUDGET_PAGES);
            divided.fill();
            let (second, resident) = (divided.second_pages(), divided.map.resident());
            divided.shared.pressure.stop();
            divided.split.divide(first_pages);
            assert_eq!(divided.map.resident(), resident);
            assert!(divided.second_pages().abs_diff(second) < divided.split.batch());
        }
    }

    #[test]
    fn a_thread_that_waits_for_memory_gets_it_by_and_by_and_none_goes_the_other_way() {
        let mut divided = divided(BUDGET_PAGES);
        divided.fill();
        let least = (BUDGET_PAGES / 64).max(2 * divided.split.segment_pages);
        {
            let _waiting = divided.shared.pressure.begin_low_memory_wait();
            for _ in 0..BUDGET_PAGES {
                let before = divided.second_pages();
                divided.split.look_at(&PLENTY);
                assert!(divided.second_pages() < before || before <= least, "{before} pages");
            }
            // What the look leaves, a thread that has waited for long gets by itself.
            while divided.shared.take_from_tier(1) > 0 {}
            divided.split.look_at(&PLENTY);
            assert_eq!((divided.second_pages(), divided.tier_bytes()), (0, 0));
        }
        divided.split.look_at(&PLENTY);
        let (second, segment) = (divided.second_pages(), divided.split.segment_pages);
        assert!(second + segment > least && divided.tier_bytes() == second * PAGE, "{second} pages");
    }

    #[test]
    fn what_there_is_no_memory_for_in_the_second_tier_is_the_first_s_until_there_is() {
        let mut divided = divided(BUDGET_PAGES);
        divided.fill();
        for looks in 1..=BUDGET_PAGES as u64 {
            divided.split.look_at(&MemoryInfo { stalled_us: Some(looks * 1_000_000_000), ..PLENTY });
            assert_eq!(divided.tier_bytes(), divided.second_pages() * PAGE);
        }
        assert_eq!((divided.second_pages(), divided.shared.credits.total()), (0, BUDGET_PAGES));
        divided.split.look_at(&PLENTY);
        assert!(divided.second_pages() + divided.split.segment_pages > BUDGET_PAGES / 64);
    }

    #[test]
    fn small_budgets_are_divided_into_whole_segments_two_at_least() {
        let least = (4..).find(|&pages| is_divided(pages)).unwrap();
        for pages in least..8 * least {
            let mut divided = divided(pages);
            let segment = divided.split.segment_pages;
            for first_pages in 0..=pages {
                divided.split.divide(first_pages);
                let second = divided.second_pages();
                assert_eq!((second % segment, divided.tier_bytes()), (0, second * PAGE), "{first_pages} of {pages}");
                assert!(divided.shared.credits.total() + second == pages);
            }
            divided.split.look_at(&PLENTY);
            let second = divided.second_pages();
            assert!(second >= 2 * segment && second < pages, "{second} of {pages} pages in segments of {segment}");
        }
    }

    fn is_divided(budget_pages: usize) -> bool {
        let tier = TierConfig { size: TierSize::Auto, ..TierConfig::default() };
        let config = PoolConfig { budget_bytes: budget_pages * PAGE, tier, ..PoolConfig::default() };
        PoolState::new(config.settle().unwrap()).unwrap().tier().is_some()
    }
}
