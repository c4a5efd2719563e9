//! LRU-2 (O'Neil and others, SIGMOD 1993): evicts the page whose last touch but one is the longest ago. ResidentPages touched once
//! only go first, oldest first; times are remembered a while after a page has gone.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::{EvictOutcome, EvictionPolicy, ResidentPages};

/// Times of the last touch but one (0 if there was none) and the last touch.
type Times = (u64, u64);

/// All pages by their times.
#[derive(Debug)]
pub(super) struct Lru2 {
    times: HashMap<u64, Times>,
    order: BTreeSet<(Times, u64)>,
    gone: HashMap<u64, Times>,
    gone_order: VecDeque<u64>,
    capacity: usize,
    clock: u64,
}

impl Lru2 {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            times: HashMap::new(),
            order: BTreeSet::new(),
            gone: HashMap::new(),
            gone_order: VecDeque::new(),
            capacity,
            clock: 0,
        }
    }

    fn remember(&mut self, page: u64, times: Times) {
        self.gone.insert(page, times);
        self.gone_order.push_back(page);
        while self.gone_order.len() > self.capacity {
            if let Some(oldest) = self.gone_order.pop_front() {
                self.gone.remove(&oldest);
            }
        }
    }
}

impl EvictionPolicy for Lru2 {
    fn insert(&mut self, page: u64) {
        self.clock += 1;
        let last = self.gone.remove(&page).map_or(0, |(_, last)| last);
        self.times.insert(page, (last, self.clock));
        self.order.insert(((last, self.clock), page));
    }

    fn evict(&mut self, wanted: usize, pages: &mut dyn ResidentPages) {
        let mut left = wanted;
        let mut after = None;
        while left > 0 {
            let next = match after {
                None => self.order.first().copied(),
                Some(passed) => {
                    self.order.range((std::ops::Bound::Excluded(passed), std::ops::Bound::Unbounded)).next().copied()
                }
            };
            let Some((times, page)) = next else { return };
            let taken = pages.take(page);
            if taken == EvictOutcome::InUse {
                after = next;
                continue;
            }
            self.order.remove(&(times, page));
            self.times.remove(&page);
            if taken == EvictOutcome::Evicted {
                self.remember(page, times);
                left -= 1;
            }
        }
    }

    fn len(&self) -> usize {
        self.times.len()
    }

    fn retain(&mut self, keep: &mut dyn FnMut(u64) -> bool) {
        self.times.retain(|&page, _| keep(page));
        self.order.retain(|(_, page)| self.times.contains_key(page));
    }

    fn touch(&mut self, page: u64) {
        self.clock += 1;
        if let Some(times) = self.times.get_mut(&page) {
            self.order.remove(&(*times, page));
            *times = (times.1, self.clock);
            self.order.insert((*times, page));
        }
    }
}
