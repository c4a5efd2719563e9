//! How each huge page of a range stands with write protection.
//!
//! Relies on nothing; the states are hints that only err on the safe side: what counts as protected is protected.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::page::{PAGE_SIZE, PAGES_PER_REGION, REGION_SIZE};

/// Not protected anywhere.
const OPEN: u8 = 0;
/// Protected everywhere.
const ARMED: u8 = 1;
/// Protected here and there.
const MIXED: u8 = 2;
/// The bits of the above.
const PROTECTION: u8 = 3;
/// Mapped in small pages, as far as is known.
const SMALL: u8 = 4;

/// The huge pages that a range touches, the first and last perhaps in part.
pub(crate) struct ProtectionMap {
    states: Box<[AtomicU8]>,
    /// Pages of the first huge page that lie before the range.
    skew: usize,
    pages: usize,
}

impl ProtectionMap {
    /// All in small pages and protected who knows where: what nothing is known about.
    pub(crate) fn new(base: *mut u8, pages: usize) -> Self {
        let skew = base as usize % REGION_SIZE / PAGE_SIZE;
        let count = (skew + pages).div_ceil(PAGES_PER_REGION);
        Self { states: (0..count).map(|_| AtomicU8::new(MIXED | SMALL)).collect(), skew, pages }
    }

    fn part_of(&self, page: usize) -> usize {
        (page + self.skew) / PAGES_PER_REGION
    }

    /// Pages of `part`.
    pub(crate) fn pages_of(&self, part: usize) -> Range<usize> {
        let start = (part * PAGES_PER_REGION).saturating_sub(self.skew);
        start..((part + 1) * PAGES_PER_REGION - self.skew).min(self.pages)
    }

    /// `pages` are no longer protected.
    pub(crate) fn note_unprotected(&self, pages: &Range<usize>) {
        for part in self.part_of(pages.start)..=self.part_of(pages.end - 1) {
            let all = self.pages_of(part);
            let is_whole = pages.start <= all.start && all.end <= pages.end;
            let _ = self.states[part].fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| match now & PROTECTION {
                OPEN => None,
                _ if is_whole => Some(now & SMALL | OPEN),
                _ => Some(MIXED | SMALL),
            });
        }
    }

    /// All of `part` is protected now.
    pub(crate) fn note_armed(&self, part: usize) {
        self.states[part].fetch_and(SMALL, Ordering::AcqRel);
        self.states[part].fetch_or(ARMED, Ordering::AcqRel);
    }

    /// `part` is a huge page again.
    pub(crate) fn note_collapsed(&self, part: usize) {
        self.states[part].fetch_and(PROTECTION, Ordering::AcqRel);
    }

    fn protection(&self, part: usize) -> u8 {
        self.states[part].load(Ordering::Acquire) & PROTECTION
    }

    /// Whether the page certainly isn't protected.
    pub(crate) fn is_open(&self, page: usize) -> bool {
        self.protection(self.part_of(page)) == OPEN
    }

    /// The longest runs of pages whose parts aren't protected all over, in order.
    pub(crate) fn unarmed(&self) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::with_capacity(16);
        for part in 0..self.states.len() {
            if self.protection(part) == ARMED {
                continue;
            }
            let pages = self.pages_of(part);
            match runs.last_mut() {
                Some(last) if last.end == pages.start => last.end = pages.end,
                _ => runs.push(pages),
            }
        }
        runs
    }

    /// The first part from `from` on that could be a huge page and is mapped in small ones.
    pub(crate) fn next_small(&self, from: usize) -> Option<usize> {
        (from..self.states.len()).find(|&part| {
            self.states[part].load(Ordering::Acquire) & SMALL != 0 && self.pages_of(part).len() == PAGES_PER_REGION
        })
    }

    /// ProtectionMap.
    pub(crate) fn count(&self) -> usize {
        self.states.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_starts_inside_a_huge_page_has_parts_at_both_ends() {
        let base = (10 * REGION_SIZE + 500 * PAGE_SIZE) as *mut u8;
        let parts = ProtectionMap::new(base, 12 + 512 + 3);
        assert_eq!(
            (parts.count(), parts.pages_of(0), parts.pages_of(1), parts.pages_of(2)),
            (3, 0..12, 12..524, 524..527)
        );
        assert_eq!(parts.next_small(0), Some(1));
        parts.note_collapsed(1);
        assert_eq!(parts.next_small(0), None, "the others aren't huge pages, only parts of them");
        assert_eq!(parts.unarmed().as_slice(), std::slice::from_ref(&(0..527)));
        (0..3).for_each(|part| parts.note_armed(part));
        assert_eq!(parts.unarmed(), []);
        parts.note_unprotected(&(12..524));
        assert!(parts.is_open(12) && !parts.is_open(11));
        parts.note_unprotected(&(526..527));
        assert_eq!(parts.unarmed().as_slice(), std::slice::from_ref(&(12..527)));
        parts.note_unprotected(&(13..14));
        assert!(parts.is_open(12), "what is open stays open");
        assert_eq!(parts.next_small(0), None);
        parts.note_armed(1);
        parts.note_unprotected(&(13..14));
        assert_eq!((parts.next_small(0), parts.is_open(13)), (Some(1), false));
        parts.note_unprotected(&(12..524));
        assert_eq!((parts.next_small(0), parts.is_open(13)), (Some(1), true), "still small when open");
    }
}
