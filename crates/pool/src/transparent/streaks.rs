//! Recognises, in signal handlers, threads that go through a map in order, and says how many pages to bring in at once.
//!
//! Relies on atomics of each thread's own as a rule: threads that share them only spoil each other's guesses.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::padded::{Padded, slot};

/// Streaks that a thread is followed in, as when it copies from one place to another.
const STREAKS: usize = 4;
/// Sets of streaks; threads share them beyond that.
const SETS: usize = 16;
/// Pages of a streak's first run; doubled with each further one.
const FIRST_PAGES: u64 = 4;

/// A row of misses in order.
#[derive(Debug, Default)]
struct Streak {
    /// The page after the last run; 0 before the first.
    next: AtomicU64,
    /// Pages of the last run.
    pages: AtomicU64,
}

#[derive(Debug, Default)]
struct Set {
    streaks: [Streak; STREAKS],
    /// The one that is given up next.
    oldest: AtomicUsize,
}

/// The streaks of a map.
#[derive(Debug, Default)]
pub(super) struct Streaks {
    sets: [Padded<Set>; SETS],
}

impl Streaks {
    /// How many pages to bring in at a miss of `page`, it included: at most `most`, and 1 unless it goes on where the calling
    /// thread left off. `eager` takes every miss for the start of a streak.
    pub(super) fn missed(&self, page: u64, most: u64, eager: bool) -> u64 {
        if most < 2 {
            return 1;
        }
        let set = &self.sets[slot() % SETS];
        // A run may have ended early, where a page was there already.
        let goes_on = |streak: &&Streak| {
            let next = streak.next.load(Ordering::Relaxed);
            next != 0 && next.wrapping_sub(page) < streak.pages.load(Ordering::Relaxed).max(1)
        };
        let (streak, pages) = match set.streaks.iter().find(goes_on) {
            Some(streak) => (streak, (2 * streak.pages.load(Ordering::Relaxed)).clamp(FIRST_PAGES.min(most), most)),
            None => {
                let oldest = set.oldest.fetch_add(1, Ordering::Relaxed) % STREAKS;
                (&set.streaks[oldest], if eager { most } else { 1 })
            }
        };
        streak.pages.store(pages, Ordering::Relaxed);
        streak.next.store(page + pages, Ordering::Relaxed);
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_grow_along_streaks_that_are_followed_at_the_same_time() {
        let streaks = Streaks::default();
        let mut at = [0, 1000, 5000];
        for expected in [1, 4, 8, 16, 16] {
            for page in &mut at {
                assert_eq!(streaks.missed(*page, 16, false), expected);
                *page += expected;
            }
        }
        assert_eq!(streaks.missed(at[0] - 3, 16, false), 16, "its run ended early");
    }

    #[test]
    fn pages_in_no_order_come_alone_unless_the_map_is_eager_or_told_not_to_read_ahead() {
        let streaks = Streaks::default();
        for page in [7, 3, 900, 12, 77, 2] {
            assert_eq!(streaks.missed(page, 32, false), 1);
        }
        assert_eq!(streaks.missed(400, 32, true), 32);
        assert_eq!(streaks.missed(432, 1, true), 1);
    }
}
