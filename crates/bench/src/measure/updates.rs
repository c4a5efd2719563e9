//! The updates between cuts: Zipf draws of pages that are scattered over the range, with a touch of every region.
//!
//! A phase has two halves of one write a page each. The view of a cut is open during the first half only. By default a half
//! lasts as long as it takes to write the range out at 4 GiB/s (what a view is for, on a fast disk), so writes come at one
//! million a second; flat out they come as fast as memory takes them, and the next cut finds upkeep undone.
//!
//! Relies on the draws being made beforehand, so that only writes are timed. A page is written in one word, whose place in
//! the page follows from its number: words at the same place of every page would meet in a few sets of the cache.

use std::time::{Duration, Instant};

use quire_snapshot::{OriginAccess, PAGE_SIZE, PAGES_PER_REGION};

use quire_rng::SplitMix64;
use quire_rng::zipf::{RankPermutation, Zipf};

/// The skew that the papers call ordinary.
pub const SKEW: f64 = 1.0;
/// Phases of different draws, before the first comes again.
const PHASES: usize = 4;

/// Bytes of the range for each second that half a phase lasts.
const BYTES_PER_SECOND: f64 = (4_u64 << 30) as f64;
/// Writes between looks at the clock.
const PIECE: usize = 2048;

/// How fast updates come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdatePace {
    /// Half a phase lasts as long as writing the range out at 4 GiB/s.
    Steady,
    /// As fast as memory takes them.
    FlatOut,
}

/// Draws for update phases over one range.
#[derive(Debug)]
pub struct UpdateStream {
    pages: usize,
    draws: Vec<u32>,
    at: usize,
    halves: u64,
}

/// Where page `page` is written.
#[inline]
pub fn word_of(page: u32) -> usize {
    let word = page.wrapping_mul(0x9e37_79b1) >> 23;
    page as usize * PAGE_SIZE + word as usize * 8
}

impl UpdateStream {
    /// For a range of `bytes`.
    pub fn new(bytes: usize, seed: u64) -> Self {
        let pages = (bytes / PAGE_SIZE).max(1);
        let (zipf, scatter, mut rng) =
            (Zipf::new(pages as u64, SKEW), RankPermutation::new(pages as u64, seed), SplitMix64::new(seed));
        let draws = (0..pages * PHASES).map(|_| scatter.key(zipf.sample(&mut rng)) as u32).collect();
        Self { pages, draws, at: 0, halves: 0 }
    }

    /// Half a phase: a page of every region, and then the next draws.
    pub fn half(&mut self, access: &OriginAccess, pace: UpdatePace) {
        let start = Instant::now();
        self.halves += 1;
        let value = self.halves;
        for region in 0..self.pages.div_ceil(PAGES_PER_REGION) {
            let page = region * PAGES_PER_REGION + (value as usize * 37) % PAGES_PER_REGION;
            access.store_u64(word_of(page.min(self.pages - 1) as u32), value);
        }
        if self.at + self.pages > self.draws.len() {
            self.at = 0;
        }
        let draws = &self.draws[self.at..self.at + self.pages];
        self.at += self.pages;
        let per_page_s = PAGE_SIZE as f64 / BYTES_PER_SECOND;
        for (number, piece) in draws.chunks(PIECE).enumerate() {
            write_all(access, piece, value);
            if pace == UpdatePace::Steady {
                let written = number * PIECE + piece.len();
                let due = Duration::from_secs_f64(written as f64 * per_page_s);
                std::thread::sleep(due.saturating_sub(start.elapsed()));
            }
        }
    }
}

/// Writes `value` to each of `pages`, in their order.
#[inline]
pub fn write_all(access: &OriginAccess, pages: &[u32], value: u64) {
    for &page in pages {
        access.store_u64(word_of(page), value);
    }
}

/// How many different pages there are in `pages`, all below `bound`.
pub fn distinct(pages: &[u32], bound: usize) -> usize {
    let mut seen = vec![false; bound];
    pages.iter().filter(|&&page| !std::mem::replace(&mut seen[page as usize], true)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::candidate::{Candidate, PageKind};
    use quire_snapshot::{Mechanism, OriginOptions};

    #[test]
    fn a_phase_touches_every_region_and_more() {
        let bytes = 8 << 20;
        let candidate =
            Candidate::new(Mechanism::Memcpy, bytes, PageKind::Small, false, &OriginOptions::default()).unwrap();
        let mut updates = UpdateStream::new(bytes, 3);
        (0..20).for_each(|_| updates.half(candidate.access(), UpdatePace::FlatOut));
        let written: Vec<usize> = (0..2048_u32)
            .filter(|&page| candidate.access().load_u64(word_of(page)) != 0)
            .map(|page| page as usize)
            .collect();
        for region in 0..4 {
            assert!(written.iter().filter(|&&page| page / PAGES_PER_REGION == region).count() > 20);
        }
        assert!(written.len() > 500, "{}", written.len());
    }

    #[test]
    fn words_lie_within_their_pages() {
        for page in [0, 1, 511, 1 << 20] {
            assert_eq!(word_of(page) / PAGE_SIZE, page as usize);
            assert!(word_of(page).is_multiple_of(8));
        }
    }

    #[test]
    fn pages_are_counted_once() {
        assert_eq!(distinct(&[3, 1, 3, 3, 0], 4), 3);
    }
}
