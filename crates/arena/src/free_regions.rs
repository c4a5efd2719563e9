//! Which regions are free as a whole and may still hold memory: what a [trim](crate::Arena::trim) can give back, found
//! without looking at the free runs, however many there are.
//!
//! Relies on the runs to tell what becomes free and what is taken. It is made anew from them when an arena is opened,
//! since nothing that matters lies outside the arena's bytes.

use std::ops::Range;

use quire_snapshot::PAGES_PER_REGION;

const REGION_PAGES: u32 = PAGES_PER_REGION as u32;

/// One bit a region.
#[derive(Debug)]
pub(crate) struct FreeRegions {
    words: Box<[u64]>,
    count: usize,
    /// Where the next look begins, as an index of `words`.
    cursor: usize,
}

impl FreeRegions {
    /// None, of an arena of at most so many pages.
    pub(crate) fn none(max_pages: usize) -> Self {
        let regions = max_pages.div_ceil(PAGES_PER_REGION);
        Self { words: vec![0; regions.div_ceil(64)].into(), count: 0, cursor: 0 }
    }

    /// Regions that are waiting to be given back.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The pages `freed` have become free as a part of the free run `run`: notes the regions that thereby are free as a
    /// whole.
    pub(crate) fn note_freed(&mut self, freed: Range<u32>, run: Range<u32>) {
        let start = (freed.start / REGION_PAGES).max(run.start.div_ceil(REGION_PAGES));
        let end = freed.end.div_ceil(REGION_PAGES).min(run.end / REGION_PAGES);
        self.set(start..end, true);
    }

    /// The pages are in use from now on, or hold no memory.
    pub(crate) fn note_taken(&mut self, pages: Range<u32>) {
        self.set(pages.start / REGION_PAGES..pages.end.div_ceil(REGION_PAGES), false);
    }

    /// Takes out one region. At most one look at each word of a table of 64 KiB (an arena of 1 TiB).
    pub(crate) fn take(&mut self) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        for _ in 0..self.words.len() {
            let word = &mut self.words[self.cursor];
            if *word != 0 {
                let bit = word.trailing_zeros();
                *word &= *word - 1;
                self.count -= 1;
                return Some(self.cursor as u32 * 64 + bit);
            }
            self.cursor = (self.cursor + 1) % self.words.len();
        }
        None
    }

    /// Puts a region back that could not be given back now.
    pub(crate) fn put_back(&mut self, region: u32) {
        self.set(region..region + 1, true);
    }

    fn set(&mut self, regions: Range<u32>, free: bool) {
        let end = (regions.end as usize).min(self.words.len() * 64);
        let mut region = regions.start as usize;
        while region < end {
            let last = end.min((region / 64 + 1) * 64);
            let mask = (u64::MAX >> (64 - (last - region))) << (region % 64);
            let word = &mut self.words[region / 64];
            let before = word.count_ones() as usize;
            if free {
                *word |= mask;
            } else {
                *word &= !mask;
            }
            self.count = self.count + word.count_ones() as usize - before;
            region = last;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut regions: FreeRegions) -> Vec<u32> {
        let mut found: Vec<u32> = std::iter::from_fn(|| regions.take()).collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn only_regions_that_are_free_as_a_whole_are_noted() {
        let mut regions = FreeRegions::none(200 * PAGES_PER_REGION);
        // The middle of a run that reaches from the middle of region 1 to the middle of region 5.
        regions.note_freed(1500..1600, 700..3000);
        assert_eq!(regions.len(), 2);
        regions.note_freed(512 * 60..512 * 130, 512 * 60..512 * 130);
        regions.note_taken(512 * 62 + 5..512 * 127 + 1);
        assert_eq!(all(regions), [2, 3, 60, 61, 128, 129]);
    }

    #[test]
    fn what_lies_beyond_the_arena_is_ignored() {
        let mut regions = FreeRegions::none(3 * PAGES_PER_REGION);
        regions.note_freed(0..u32::MAX, 0..u32::MAX);
        assert_eq!(regions.len(), 64, "whole words");
        regions.note_taken(0..u32::MAX);
        assert_eq!(regions.take(), None);
        regions.put_back(2);
        assert_eq!(all(regions), [2]);
    }
}
