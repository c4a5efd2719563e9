//! Traces of page touches for comparing policies: skewed, looping, shifting, and mixed with scans. The same seed gives the
//! same trace.

use quire_rng::SplitMix64;
use quire_rng::zipf::{RankPermutation, Zipf};

/// Draws pages whose popularity falls with a power of their rank; the ranks are scattered over the file.
#[derive(Clone, Debug)]
struct PageSampler {
    ranks: Zipf,
    scattered: RankPermutation,
    pages: u64,
    shift: u64,
}

impl PageSampler {
    /// `pages` pages with exponent `skew`.
    fn new(pages: usize, skew: f64) -> Self {
        let pages = pages as u64;
        Self { ranks: Zipf::new(pages, skew), scattered: RankPermutation::new(pages, 0), pages, shift: 0 }
    }

    /// Makes other pages popular.
    fn shift(&mut self, by: u64) {
        self.shift = self.shift.wrapping_add(by) % self.pages;
    }

    fn page(&self, rng: &mut SplitMix64) -> u64 {
        (self.scattered.key(self.ranks.sample(rng)) + self.shift) % self.pages
    }
}

/// `len` touches by popularity.
pub fn zipf(pages: usize, skew: f64, len: usize, seed: u64) -> Vec<u64> {
    let (sampler, mut rng) = (PageSampler::new(pages, skew), SplitMix64::new(seed));
    (0..len).map(|_| sampler.page(&mut rng)).collect()
}

/// `len` touches by popularity with scans of `scan` pages that are never seen again, one after every `every` touches.
pub fn scanned(pages: usize, skew: f64, len: usize, scan: usize, every: usize, seed: u64) -> Vec<u64> {
    let (sampler, mut rng) = (PageSampler::new(pages, skew), SplitMix64::new(seed));
    let mut trace = Vec::with_capacity(len + scan);
    let mut next_fresh = pages as u64;
    let mut until_scan = every;
    while trace.len() < len {
        if until_scan == 0 {
            trace.extend(next_fresh..next_fresh + scan as u64);
            next_fresh += scan as u64;
            until_scan = every;
        }
        trace.push(sampler.page(&mut rng));
        until_scan -= 1;
    }
    trace.truncate(len);
    trace
}

/// `len` touches going round through `pages` pages.
pub fn cycle(pages: usize, len: usize) -> Vec<u64> {
    (0..len).map(|step| (step % pages) as u64).collect()
}

/// `len` touches by popularity, with other popular pages after every `every` touches.
pub fn shifting(pages: usize, skew: f64, len: usize, every: usize, seed: u64) -> Vec<u64> {
    let (mut sampler, mut rng) = (PageSampler::new(pages, skew), SplitMix64::new(seed));
    (0..len)
        .map(|step| {
            if step % every == every - 1 {
                sampler.shift(pages as u64 / 3);
            }
            sampler.page(&mut rng)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::{PolicyKind, replay};
    use super::*;

    const PAGES: usize = 5000;
    const MEMORY: usize = 500;
    const LEN: usize = 60_000;

    fn ratio(kind: PolicyKind, trace: &[u64]) -> f64 {
        replay(kind, MEMORY, 8, trace.iter().copied()).hit_ratio()
    }

    #[test]
    fn a_memory_for_everything_misses_each_page_once() {
        let trace = zipf(400, 0.9, 20_000, 1);
        for kind in [PolicyKind::S3Fifo, PolicyKind::Clock, PolicyKind::Lru2] {
            let outcome = replay(kind, 400, 8, trace.iter().copied());
            let distinct = trace.iter().collect::<std::collections::HashSet<_>>().len() as u64;
            assert_eq!(outcome.touches - outcome.hits, distinct, "{kind:?}");
        }
    }

    #[test]
    fn s3_fifo_resists_scans_better_than_clock() {
        let trace = scanned(PAGES, 0.9, LEN, 1000, 2000, 2);
        let (ours, clock) = (ratio(PolicyKind::S3Fifo, &trace), ratio(PolicyKind::Clock, &trace));
        assert!(ours > clock + 0.02, "S3-FIFO {ours:.3}, CLOCK {clock:.3}");
    }

    #[test]
    fn s3_fifo_is_no_worse_than_clock_where_nothing_scans() {
        for skew in [0.7, 0.9, 1.1] {
            let trace = zipf(PAGES, skew, LEN, 3);
            let (ours, clock) = (ratio(PolicyKind::S3Fifo, &trace), ratio(PolicyKind::Clock, &trace));
            assert!(ours > clock - 0.005, "zipf {skew}: S3-FIFO {ours:.3}, CLOCK {clock:.3}");
        }
    }

    #[test]
    fn s3_fifo_follows_when_the_popular_pages_change() {
        let trace = shifting(PAGES, 1.0, LEN, 15_000, 4);
        let (ours, exact) = (ratio(PolicyKind::S3Fifo, &trace), ratio(PolicyKind::Lru2, &trace));
        assert!(ours > exact - 0.03, "S3-FIFO {ours:.3}, LRU-2 {exact:.3}");
    }
}
