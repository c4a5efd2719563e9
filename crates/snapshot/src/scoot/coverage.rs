//! How much of each block of the origin was written in the last epoch, and which pages were copied ahead of writers.
//!
//! Relies on being told at each merge which private pages there were and which of them had not changed. A *block* is the
//! unit of [`crate::OriginOptions::region_bytes`]; after CCoW (Ha & Kim, 2022).

use std::ops::Range;

use crate::mechanism::{OriginOptions, Precopy};
use crate::page::PAGE_SIZE;

/// Adaptive: where the threshold starts, and its bounds. Over 100 nothing is precopied.
const START_PERCENT: u8 = 80;
const LEAST_PERCENT: u8 = 50;
const OFF_PERCENT: u8 = 101;
const STEP_PERCENT: u8 = 5;
/// Unneeded copies, in percent of all precopied pages, above which less and below which more is precopied.
const MOST_UNNEEDED_PERCENT: u64 = 15;
const FEW_UNNEEDED_PERCENT: u64 = 5;
/// Epochs after which a threshold that has risen to "never" is tried a step lower again.
const PAUSE_EPOCHS: u32 = 16;

/// See the head of this file.
#[derive(Debug)]
pub(super) struct BlockCoverage {
    block_bytes: usize,
    percent: Vec<u8>,
    /// One bit a page: copied ahead, not merged since.
    precopied: Vec<u64>,
    mode: Precopy,
    threshold_percent: u8,
    needed: u64,
    unneeded: u64,
    pause: u32,
}

impl BlockCoverage {
    /// For positions below `bytes`.
    pub(super) fn new(bytes: usize, options: &OriginOptions) -> Self {
        let threshold_percent = match options.precopy {
            Precopy::None => OFF_PERCENT,
            Precopy::Threshold(percent) => percent,
            Precopy::All => 1,
            Precopy::Adaptive => START_PERCENT,
        };
        Self {
            block_bytes: options.region_bytes,
            percent: vec![0; bytes.div_ceil(options.region_bytes)],
            precopied: vec![0; (bytes / PAGE_SIZE).div_ceil(64)],
            mode: options.precopy,
            threshold_percent,
            needed: 0,
            unneeded: 0,
            pause: 0,
        }
    }

    /// The coverage from which blocks are precopied now.
    pub(super) fn threshold_percent(&self) -> u8 {
        self.threshold_percent
    }

    /// The page at `position` was copied ahead.
    pub(super) fn mark_precopied(&mut self, position: usize) {
        let page = position / PAGE_SIZE;
        self.precopied[page / 64] |= 1 << (page % 64);
    }

    /// Tells those of `positions` that were copied ahead.
    pub(super) fn list_precopied(&self, positions: Range<usize>, tell: impl FnMut(usize)) {
        let is_precopied = |&position: &usize| {
            let page = position / PAGE_SIZE;
            self.precopied[page / 64] >> (page % 64) & 1 == 1
        };
        positions.step_by(PAGE_SIZE).filter(is_precopied).for_each(tell);
    }

    /// The page at `position` is merged: forgets that it was copied ahead.
    pub(super) fn take_precopied(&mut self, position: usize) {
        let page = position / PAGE_SIZE;
        self.precopied[page / 64] &= !(1 << (page % 64));
    }

    /// The pages of `positions` have been merged; `written` of them had been written, in order of address.
    pub(super) fn note(&mut self, positions: &Range<usize>, written: &[usize]) {
        let mut written = written.iter().copied().peekable();
        let first = positions.start / self.block_bytes;
        for block in first..positions.end.div_ceil(self.block_bytes) {
            let end = ((block + 1) * self.block_bytes).min(positions.end);
            let start = (block * self.block_bytes).max(positions.start);
            let mut count = 0;
            while written.next_if(|&position| position < end).is_some() {
                count += 1;
            }
            self.percent[block] = (count * 100 / ((end - start) / PAGE_SIZE)) as u8;
        }
    }

    /// Of the precopied pages just merged these many had been written, and those not.
    pub(super) fn note_precopied(&mut self, needed: u64, unneeded: u64) {
        self.needed += needed;
        self.unneeded += unneeded;
    }

    /// An epoch ends: adapts the threshold to what precopying was good for.
    pub(super) fn next_epoch(&mut self) {
        let (needed, unneeded) = (std::mem::take(&mut self.needed), std::mem::take(&mut self.unneeded));
        if self.mode != Precopy::Adaptive {
            return;
        }
        if self.threshold_percent >= OFF_PERCENT {
            self.pause += 1;
            if self.pause >= PAUSE_EPOCHS {
                self.pause = 0;
                self.threshold_percent -= STEP_PERCENT;
            }
        } else if let Some(unneeded_percent) = (unneeded * 100).checked_div(needed + unneeded) {
            if unneeded_percent > MOST_UNNEEDED_PERCENT {
                self.threshold_percent = (self.threshold_percent + STEP_PERCENT).min(OFF_PERCENT);
            } else if unneeded_percent < FEW_UNNEEDED_PERCENT {
                self.threshold_percent = (self.threshold_percent - STEP_PERCENT).max(LEAST_PERCENT);
            }
        }
    }

    /// Positions of the blocks that are worth precopying now, those written most first, within `all`.
    pub(super) fn due(&self, all: &Range<usize>) -> Vec<Range<usize>> {
        let mut blocks: Vec<usize> =
            (0..self.percent.len()).filter(|&block| self.percent[block] >= self.threshold_percent).collect();
        blocks.sort_by_key(|&block| std::cmp::Reverse(self.percent[block]));
        let bytes = self.block_bytes;
        let clip = |block: usize| (block * bytes).max(all.start)..((block + 1) * bytes).min(all.end);
        blocks.into_iter().map(clip).filter(|positions| !positions.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coverage(precopy: Precopy) -> BlockCoverage {
        let options = OriginOptions { region_bytes: 32 << 10, precopy, ..OriginOptions::default() };
        BlockCoverage::new(4 * options.region_bytes, &options)
    }

    fn pages(range: Range<usize>) -> Vec<usize> {
        range.map(|page| page * PAGE_SIZE).collect()
    }

    #[test]
    fn blocks_over_the_threshold_are_due_the_fullest_first() {
        let mut coverage = coverage(Precopy::Threshold(60));
        let mut written = pages(0..5);
        written.extend(pages(8..12));
        written.extend(pages(16..24));
        coverage.note(&(0..128 << 10), &written);
        let all = 4096..128 << 10;
        assert_eq!(coverage.due(&all), [64 << 10..96 << 10, 4096..32 << 10]);
        coverage.note(&(64 << 10..96 << 10), &[]);
        assert_eq!(coverage.due(&all), std::slice::from_ref(&(4096..32 << 10)));
    }

    #[test]
    fn a_precopied_page_is_remembered_until_it_is_taken() {
        let mut coverage = coverage(Precopy::All);
        coverage.mark_precopied(9 * PAGE_SIZE);
        let listed = |coverage: &BlockCoverage| {
            let mut listed = Vec::new();
            coverage.list_precopied(8 * PAGE_SIZE..10 * PAGE_SIZE, |position| listed.push(position));
            listed
        };
        assert_eq!(listed(&coverage), [9 * PAGE_SIZE]);
        coverage.take_precopied(9 * PAGE_SIZE);
        assert_eq!(listed(&coverage), []);
    }

    #[test]
    fn the_threshold_follows_what_precopying_was_good_for() {
        let mut coverage = coverage(Precopy::Adaptive);
        coverage.note_precopied(100, 0);
        coverage.next_epoch();
        assert_eq!(coverage.threshold_percent(), 75);
        for _ in 0..10 {
            coverage.note_precopied(50, 50);
            coverage.next_epoch();
        }
        assert_eq!(coverage.threshold_percent(), 101);
        for _ in 0..PAUSE_EPOCHS {
            coverage.next_epoch();
        }
        assert_eq!(coverage.threshold_percent(), 96);
    }
}
