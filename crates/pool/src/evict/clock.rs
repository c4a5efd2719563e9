//! CLOCK: one queue; a page that was touched since it was last looked at goes round once more.

use std::collections::VecDeque;

use super::{Pages, Policy, ROUNDS, Taken};

/// The queue; the hand is at its front.
#[derive(Debug, Default)]
pub(super) struct Clock {
    pages: VecDeque<u64>,
}

impl Policy for Clock {
    fn insert(&mut self, page: u64) {
        self.pages.push_back(page);
    }

    fn evict(&mut self, wanted: usize, pages: &mut dyn Pages) {
        let mut left = wanted;
        for _ in 0..self.pages.len() * ROUNDS {
            if left == 0 {
                return;
            }
            let Some(page) = self.pages.pop_front() else { return };
            if pages.touches(page) > 0 {
                pages.cool(page, 0);
                self.pages.push_back(page);
                continue;
            }
            match pages.take(page) {
                Taken::Yes => left -= 1,
                Taken::InUse => self.pages.push_back(page),
                Taken::Gone => {}
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
