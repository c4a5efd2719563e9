//! Which pages of the heap's file have ever been written: the others are zeros that no thread has to read.
//!
//! Relies on memory of its own that a forked child gets a copy of: it tells the child what there was at the fork.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use quire_sys::area::AnonymousMap;

/// A bit for each page.
#[derive(Debug)]
pub struct WrittenPages {
    bits: AnonymousMap,
    page_bytes: u64,
    pages: u64,
}

impl WrittenPages {
    /// None of the pages of a file of `len` bytes.
    ///
    /// # Errors
    /// As `mmap`.
    pub fn new(len: u64, page_bytes: usize) -> io::Result<Self> {
        let pages = len.div_ceil(page_bytes as u64);
        Ok(Self {
            bits: AnonymousMap::private((pages.div_ceil(64) * 8) as usize)?,
            page_bytes: page_bytes as u64,
            pages,
        })
    }

    fn word(&self, page: u64) -> &AtomicU64 {
        assert!(page < self.pages, "a page of the file");
        // SAFETY: `new` has mapped a word for every 64 pages, and `page` is below `pages`. The mapping is aligned, reads as
        // zero at first, is only used as atomics and lives as long as `self`.
        unsafe { &*self.bits.base().cast::<AtomicU64>().add((page / 64) as usize) }
    }

    fn pages(&self, offset: u64, len: u64) -> Range<u64> {
        offset / self.page_bytes..(offset + len).div_ceil(self.page_bytes)
    }

    /// Some of the `len` bytes at `offset` are about to be written.
    pub fn note(&self, offset: u64, len: u64) {
        for page in self.pages(offset, len) {
            self.word(page).fetch_or(1 << (page % 64), Ordering::Release);
        }
    }

    /// Whether any of the `len` bytes at `offset` have been written.
    pub fn any(&self, offset: u64, len: u64) -> bool {
        self.pages(offset, len).any(|page| self.word(page).load(Ordering::Acquire) & 1 << (page % 64) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::WrittenPages;

    #[test]
    fn only_pages_that_were_noted_have_been_written() {
        let written = WrittenPages::new(1 << 20, 4096).unwrap();
        assert!(!written.any(0, 1 << 20));
        written.note(63 * 4096, 2 * 4096);
        assert!(written.any(63 * 4096, 1) && written.any(64 * 4096 + 5, 1) && written.any(0, 1 << 20));
        assert!(!written.any(0, 63 * 4096) && !written.any(65 * 4096, 4096));
    }
}
