//! Bitmaps over the pages of a few regions, small enough for the stack: isolated pages may be pages of the heap.
//!
//! Relies on nothing.

use super::backing::MAX_ISOLATED_REGIONS;
use crate::page::{PAGE_SIZE, PAGES_PER_REGION, REGION_SIZE};

/// One bit for each page of up to [`MAX_ISOLATED_REGIONS`] regions.
#[derive(Clone)]
pub(super) struct PageBitmap([u64; MAX_ISOLATED_REGIONS * PAGES_PER_REGION / 64]);

impl PageBitmap {
    const fn none() -> Self {
        Self([0; MAX_ISOLATED_REGIONS * PAGES_PER_REGION / 64])
    }

    fn set(&mut self, page: usize) {
        self.0[page / 64] |= 1 << (page % 64);
    }

    fn has(&self, page: usize) -> bool {
        self.0[page / 64] >> (page % 64) & 1 == 1
    }

    /// The first page from `page` on that is set.
    fn next(&self, page: usize) -> Option<usize> {
        let mut word = page / 64;
        let mut bits = *self.0.get(word)? & u64::MAX << (page % 64);
        while bits == 0 {
            word += 1;
            bits = *self.0.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    fn pages(&self) -> impl Iterator<Item = usize> {
        std::iter::successors(self.next(0), |&page| self.next(page + 1))
    }
}

/// What a merge knows and finds out. Pages go by their positions, from `first` region on.
pub(super) struct MergeBitmaps {
    first: usize,
    found: PageBitmap,
    precopied: PageBitmap,
    same: PageBitmap,
}

impl MergeBitmaps {
    /// For the regions from `first` on.
    pub(super) fn new(first: usize) -> Self {
        Self { first, found: PageBitmap::none(), precopied: PageBitmap::none(), same: PageBitmap::none() }
    }

    fn page(&self, position: usize) -> usize {
        (position - self.first * REGION_SIZE) / PAGE_SIZE
    }

    fn positions(&self, bits: &PageBitmap) -> impl Iterator<Item = usize> {
        let first = self.first * REGION_SIZE;
        bits.pages().map(move |page| first + page * PAGE_SIZE)
    }

    /// The page at `position` is a private one.
    pub(super) fn note_found(&mut self, position: usize) {
        self.found.set(self.page(position));
    }

    /// The page at `position` was copied ahead of its writer.
    pub(super) fn note_precopied(&mut self, position: usize) {
        self.precopied.set(self.page(position));
    }

    /// Whether the page at `position` was copied ahead.
    pub(super) fn is_precopied(&self, position: usize) -> bool {
        self.precopied.has(self.page(position))
    }

    /// The page at `position`, which was copied ahead, has not been written.
    pub(super) fn note_same(&mut self, position: usize) {
        self.same.set(self.page(position));
    }

    /// Private pages, in order of address.
    pub(super) fn found(&self) -> Vec<usize> {
        self.positions(&self.found).collect()
    }

    /// The next private page from `position` on.
    pub(super) fn next_found(&self, position: usize) -> Option<usize> {
        self.found.next(self.page(position)).map(|page| self.first * REGION_SIZE + page * PAGE_SIZE)
    }

    /// Private pages that were written, in order of address.
    pub(super) fn written(&self) -> Vec<usize> {
        self.positions(&self.found).filter(|&position| !self.same.has(self.page(position))).collect()
    }

    /// Of the private pages, those that were copied ahead: how many of them were written, and how many were not.
    pub(super) fn precopied(&self) -> (u64, u64) {
        let of_found = self.found.pages().filter(|&page| self.precopied.has(page));
        of_found.fold((0, 0), |(needed, unneeded), page| match self.same.has(page) {
            true => (needed, unneeded + 1),
            false => (needed + 1, unneeded),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_told_by_position_and_by_kind() {
        let mut bitmaps = MergeBitmaps::new(7);
        let at = |page: usize| 7 * REGION_SIZE + page * PAGE_SIZE;
        let last = MAX_ISOLATED_REGIONS * PAGES_PER_REGION - 1;
        [0, 63, 64, last].into_iter().for_each(|page| bitmaps.note_found(at(page)));
        [63, 64, 100].into_iter().for_each(|page| bitmaps.note_precopied(at(page)));
        bitmaps.note_same(at(64));
        assert_eq!(bitmaps.found(), [0, 63, 64, last].map(at));
        assert_eq!(bitmaps.written(), [0, 63, last].map(at));
        assert_eq!((bitmaps.precopied(), bitmaps.is_precopied(at(100))), ((1, 1), true));
        assert_eq!((bitmaps.next_found(at(1)), bitmaps.next_found(at(65))), (Some(at(63)), Some(at(last))));
        assert_eq!(bitmaps.next_found(at(last + 1)), None);
    }
}
