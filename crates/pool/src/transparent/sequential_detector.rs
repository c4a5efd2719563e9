//! Recognises, in signal handlers, threads that go through a map in order, and says how many pages to bring in at once.
//!
//! Relies on atomics of each thread's own as a rule: threads that share them only spoil each other's guesses.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::cache_padded::{CachePadded, slot};

/// Sequential runs that a thread is followed in, as when it copies from one place to another.
const RUNS: usize = 4;
/// Sets of runs; threads share them beyond that.
const SETS: usize = 16;
/// Pages of the first readahead of a run; doubled with each further one.
const FIRST_PAGES: u64 = 4;

/// A row of misses in order.
#[derive(Debug, Default)]
struct SequentialRun {
    /// The page after what was brought in last; 0 before the first.
    next: AtomicU64,
    /// Pages that were brought in last.
    pages: AtomicU64,
}

#[derive(Debug, Default)]
struct Set {
    runs: [SequentialRun; RUNS],
    /// The one that is given up next.
    oldest: AtomicUsize,
}

/// The sequential runs of a map.
#[derive(Debug, Default)]
pub(super) struct SequentialDetector {
    sets: [CachePadded<Set>; SETS],
}

impl SequentialDetector {
    /// How many pages to bring in at a miss of `page`, it included: at most `most`, and 1 unless it goes on where the calling
    /// thread left off. `eager` takes every miss for the start of a run.
    pub(super) fn missed(&self, page: u64, most: u64, eager: bool) -> u64 {
        if most < 2 {
            return 1;
        }
        let set = &self.sets[slot() % SETS];
        // What was brought in may have ended early, where a page was there already.
        let goes_on = |run: &&SequentialRun| {
            let next = run.next.load(Ordering::Relaxed);
            next != 0 && next.wrapping_sub(page) < run.pages.load(Ordering::Relaxed).max(1)
        };
        let (run, pages) = match set.runs.iter().find(goes_on) {
            Some(run) => (run, (2 * run.pages.load(Ordering::Relaxed)).clamp(FIRST_PAGES.min(most), most)),
            None => {
                let oldest = set.oldest.fetch_add(1, Ordering::Relaxed) % RUNS;
                (&set.runs[oldest], if eager { most } else { 1 })
            }
        };
        run.pages.store(pages, Ordering::Relaxed);
        run.next.store(page + pages, Ordering::Relaxed);
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readahead_grows_along_runs_that_are_followed_at_the_same_time() {
        let detector = SequentialDetector::default();
        let mut at = [0, 1000, 5000];
        for expected in [1, 4, 8, 16, 16] {
            for page in &mut at {
                assert_eq!(detector.missed(*page, 16, false), expected);
                *page += expected;
            }
        }
        assert_eq!(detector.missed(at[0] - 3, 16, false), 16, "its run ended early");
    }

    #[test]
    fn pages_in_no_order_come_alone_unless_the_map_is_eager_or_told_not_to_read_ahead() {
        let detector = SequentialDetector::default();
        for page in [7, 3, 900, 12, 77, 2] {
            assert_eq!(detector.missed(page, 32, false), 1);
        }
        assert_eq!(detector.missed(400, 32, true), 32);
        assert_eq!(detector.missed(432, 1, true), 1);
    }
}
