//! Checksums of the pages of mapped files, as they were found first: by the check, or by a writer that came before it.
//!
//! An image has a checksum for each region of 512 pages, which tells nothing of a single page. The check reads all pages and knows then
//! what each of them is, so whatever finds one later can compare. Takes 8 bytes a page, backed region by region.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use quire_snapshot::PAGES_PER_REGION;

use crate::format::page_sum;

/// What was found of each page; 0 for nothing yet.
pub(crate) struct PageSums {
    regions: Box<[OnceLock<Box<[AtomicU64]>>]>,
}

impl PageSums {
    /// Of so many regions, nothing of them found yet.
    pub(crate) fn new(region_count: usize) -> Self {
        Self { regions: (0..region_count).map(|_| OnceLock::new()).collect() }
    }

    /// Whether `bytes` are what was found as `page` before. They are noted if nothing was.
    pub(crate) fn agree(&self, page: u32, bytes: &[u8]) -> bool {
        let page_index = page as usize;
        let none_found = || (0..PAGES_PER_REGION).map(|_| AtomicU64::new(0)).collect();
        let region = self.regions[page_index / PAGES_PER_REGION].get_or_init(none_found);
        let sum = page_sum(page, bytes).max(1);
        let noted = &region[page_index % PAGES_PER_REGION];
        // What is noted stands for itself: no other memory is read because of it.
        noted.compare_exchange(0, sum, Ordering::Relaxed, Ordering::Relaxed).map_or_else(|found| found == sum, |_| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_later_must_be_what_was_found_first() {
        let (sums, bytes) = (PageSums::new(3), vec![7; 4096]);
        let mut other = bytes.clone();
        other[4095] ^= 1;
        assert!(sums.agree(1535, &bytes) && sums.agree(1535, &bytes) && !sums.agree(1535, &other));
        assert!(sums.agree(0, &other) && !sums.agree(0, &bytes) && sums.agree(0, &other));
    }
}
