//! The cost of a first write: a pass of writes with a view open, less the same pass without, for each page that was written
//! for the first time.
//!
//! Relies on passes that are the same word for word, and on upkeep being over before each: what a mechanism does behind a
//! dropped view is not to be found in the pass that it is compared with.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::Context;
use quire_snapshot::PAGE_SIZE;

use crate::measure::candidate::Candidate;
use crate::measure::updates::{SKEW, distinct, write_all};
use crate::stats::Spread;
use quire_rng::SplitMix64;
use quire_rng::zipf::{RankPermutation, Zipf};

/// Pages of a sequential or random pass at most.
const MOST_PAGES: usize = 1 << 16;
/// Writes of a Zipf pass at most.
const MOST_DRAWS: usize = 1 << 19;

/// Bytes that are copied to see what a page costs: more than caches hold.
const COPIED_BYTES: usize = 64 << 20;
const COPY_PASSES: usize = 5;

/// In which order pages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritePattern {
    /// One after the other, from the first on.
    Sequential,
    /// Any page, all alike.
    Random,
    /// Few of them often, scattered over the range.
    Zipf,
    /// Few of them often, in the order of their popularity, so that popular ones are neighbours (as in `ccow`).
    ZipfOrdered,
}

impl WritePattern {
    /// All.
    pub const ALL: [Self; 4] = [Self::Sequential, Self::Random, Self::Zipf, Self::ZipfOrdered];

    /// In names of figures.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Random => "random",
            Self::Zipf => "zipf",
            Self::ZipfOrdered => "zipf_ordered",
        }
    }
}

/// Pages to write, in their order.
#[derive(Debug)]
pub struct WritePass {
    pages: Vec<u32>,
    distinct: usize,
}

impl WritePass {
    /// Of `pattern` over a range of `bytes`.
    pub fn new(pattern: WritePattern, bytes: usize, seed: u64) -> Self {
        let all = (bytes / PAGE_SIZE).max(1);
        let some = (all / 4).clamp(1, MOST_PAGES);
        let mut rng = SplitMix64::new(seed);
        let pages: Vec<u32> = match pattern {
            WritePattern::Sequential => (0..some as u32).collect(),
            WritePattern::Random => (0..some).map(|_| rng.below(all as u64) as u32).collect(),
            WritePattern::Zipf | WritePattern::ZipfOrdered => {
                let (zipf, scatter) = (Zipf::new(all as u64, SKEW), RankPermutation::new(all as u64, seed));
                let place = |rank| if pattern == WritePattern::Zipf { scatter.key(rank) } else { rank };
                (0..all.min(MOST_DRAWS)).map(|_| place(zipf.sample(&mut rng)) as u32).collect()
            }
        };
        let distinct = distinct(&pages, all);
        Self { pages, distinct }
    }

    fn time(&self, candidate: &Candidate, value: u64) -> Duration {
        let start = Instant::now();
        write_all(candidate.access(), &self.pages, value);
        start.elapsed()
    }
}

/// Nanoseconds for each page written for the first time, over `rounds` rounds after `warm` that are not counted, in which
/// coverage is learned.
///
/// # Errors
/// When a cut is refused.
pub fn cost_ns(candidate: &Candidate, pass: &WritePass, warm: usize, rounds: usize) -> anyhow::Result<Spread> {
    let mut costs = Vec::new();
    for round in 0..warm + rounds {
        let value = 2 * round as u64;
        candidate.origin().settle();
        // Faults that are still due from the last view, and caches, belong to neither pass.
        pass.time(candidate, value);
        let without = pass.time(candidate, value);
        let view = candidate.origin().cut().context("cutting")?;
        let with = pass.time(candidate, value + 1);
        drop(view);
        if round >= warm {
            costs.push((with.as_nanos() as f64 - without.as_nanos() as f64) / pass.distinct as f64);
        }
    }
    Spread::of(&costs).context("no rounds were asked for")
}

/// Nanoseconds of a copy of a page that is in no cache, to memory that is there: the median of several passes.
pub fn page_copy_ns() -> f64 {
    let (from, mut to) = (vec![1_u8; COPIED_BYTES], vec![2_u8; COPIED_BYTES]);
    let pass = |_| {
        let start = Instant::now();
        black_box(&mut to[..]).copy_from_slice(black_box(&from));
        start.elapsed().as_nanos() as f64 / (COPIED_BYTES / PAGE_SIZE) as f64
    };
    Spread::of(&std::array::from_fn::<f64, COPY_PASSES, _>(pass)).map_or(f64::NAN, |spread| spread.median)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::candidate::PageKind;
    use quire_snapshot::{Mechanism, OriginOptions};

    #[test]
    fn passes_stay_in_the_range_and_count_each_page_once() {
        for pattern in WritePattern::ALL {
            let pass = WritePass::new(pattern, 4 << 20, 3);
            assert!(pass.pages.iter().all(|&page| page < 1024), "{pattern:?}");
            assert!(pass.distinct <= pass.pages.len() && pass.distinct > 100, "{pattern:?}: {}", pass.distinct);
        }
        assert_eq!(WritePass::new(WritePattern::Sequential, 4 << 20, 3).distinct, 256);
    }

    #[test]
    fn a_copy_of_a_page_takes_time() {
        assert!(page_copy_ns() > 0.0);
    }

    #[test]
    fn the_rounds_that_count_are_told() {
        let candidate =
            Candidate::new(Mechanism::Barrier, 4 << 20, PageKind::Huge, true, &OriginOptions::default()).unwrap();
        let pass = WritePass::new(WritePattern::Random, 4 << 20, 3);
        assert!(cost_ns(&candidate, &pass, 1, 0).is_err());
        let cost = cost_ns(&candidate, &pass, 1, 2).unwrap();
        assert!(cost.least <= cost.median && cost.median <= cost.most);
    }
}
