//! CLOCK: one queue; a page that was touched since it was last looked at goes round once more.

use std::collections::VecDeque;

use super::{EvictOutcome, EvictionPolicy, ROUNDS, ResidentPages};

/// The queue; the hand is at its front.
#[derive(Debug, Default)]
pub(super) struct Clock {
    pages: VecDeque<u64>,
}

impl EvictionPolicy for Clock {
    fn insert(&mut self, page: u64) {
        self.pages.push_back(page);
    }

    fn evict(&mut self, wanted: usize, pages: &mut dyn ResidentPages) {
        let mut left = wanted;
        for _ in 0..self.pages.len() * ROUNDS {
            if left == 0 {
                return;
            }
            let Some(page) = self.pages.pop_front() else { return };
            if pages.touches(page) > 0 {
                pages.decay(page, 0);
                self.pages.push_back(page);
                continue;
            }
            match pages.take(page) {
                EvictOutcome::Evicted => left -= 1,
                EvictOutcome::InUse => self.pages.push_back(page),
                EvictOutcome::Stale => {}
            }
        }
    }

    fn len(&self) -> usize {
        self.pages.len()
    }

    fn retain(&mut self, keep: &mut dyn FnMut(u64) -> bool) {
        self.pages.retain(|&page| keep(page));
    }
}
