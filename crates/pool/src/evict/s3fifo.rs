//! S3-FIFO (Yang and others, SOSP 2023): a small queue that most pages leave again, a main queue for those touched while in
//! the small one, and a memory of what left the small one, whose return leads straight to the main queue.
//!
//! A scan passes through the small queue, a tenth of the pages, and leaves the rest alone; no hit moves anything.

use std::collections::VecDeque;

use super::ghost_queue::GhostQueue;
use super::{EvictOutcome, EvictionPolicy, ROUNDS, ResidentPages};

/// The small queue's part of all pages: one in so many.
const SMALL_PART: usize = 10;
/// Touches in the small queue that lead to the main one. One is not enough: reading a page in several steps is one use.
const ENOUGH_TOUCHES: u8 = 2;

/// The queues. New pages come in at the back.
#[derive(Debug)]
pub(super) struct S3Fifo {
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    ghosts: GhostQueue,
}

impl S3Fifo {
    pub(super) fn new(capacity: usize) -> Self {
        Self { small: VecDeque::new(), main: VecDeque::new(), ghosts: GhostQueue::new(capacity) }
    }

    /// Looks at the first page of the small queue; whether it was evicted.
    fn step_small(&mut self, pages: &mut dyn ResidentPages) -> bool {
        let Some(page) = self.small.pop_front() else { return false };
        if pages.touches(page) >= ENOUGH_TOUCHES {
            pages.decay(page, 0);
            self.main.push_back(page);
            return false;
        }
        match pages.take(page) {
            EvictOutcome::Evicted => {
                self.ghosts.insert(page);
                true
            }
            // It is being used right now, which is as good as a second touch.
            EvictOutcome::InUse => {
                self.main.push_back(page);
                false
            }
            EvictOutcome::Stale => false,
        }
    }

    /// Looks at the first page of the main queue; whether it was evicted.
    fn step_main(&mut self, pages: &mut dyn ResidentPages) -> bool {
        let Some(page) = self.main.pop_front() else { return false };
        let touches = pages.touches(page);
        if touches > 0 {
            pages.decay(page, touches - 1);
            self.main.push_back(page);
            return false;
        }
        match pages.take(page) {
            EvictOutcome::Evicted => true,
            EvictOutcome::InUse => {
                self.main.push_back(page);
                false
            }
            EvictOutcome::Stale => false,
        }
    }
}

impl EvictionPolicy for S3Fifo {
    fn insert(&mut self, page: u64) {
        if self.ghosts.take(page) { self.main.push_back(page) } else { self.small.push_back(page) }
    }

    fn evict(&mut self, wanted: usize, pages: &mut dyn ResidentPages) {
        let mut left = wanted;
        for _ in 0..self.len() * ROUNDS {
            if left == 0 || self.is_empty() {
                return;
            }
            let is_small_full = self.small.len() * SMALL_PART >= self.len();
            let went =
                if is_small_full || self.main.is_empty() { self.step_small(pages) } else { self.step_main(pages) };
            left -= usize::from(went);
        }
        // All of the main queue is in use: the small one gives what it has, although it is small.
        for _ in 0..self.small.len() {
            if left == 0 {
                return;
            }
            left -= usize::from(self.step_small(pages));
        }
    }

    fn len(&self) -> usize {
        self.small.len() + self.main.len()
    }

    fn retain(&mut self, keep: &mut dyn FnMut(u64) -> bool) {
        self.small.retain(|&page| keep(page));
        self.main.retain(|&page| keep(page));
    }
}
