//! How much of what was remapped was touched and written afterwards, for one buffer or one range of a file.
//!
//! Relies on looks that are few: what was seen long ago counts less and less. The page table tells what was touched with the neighbours that the
//! kernel maps at the same fault, which is what costs: a fault costs, not a page.

use std::sync::atomic::{AtomicU32, Ordering};

/// Pages that were looked at, above which all counts are halved.
const MOST_SEEN: u32 = 4096;

/// Pages that were looked at, and those of them that were touched and written.
#[derive(Debug, Default)]
pub struct UseHistory {
    seen: AtomicU32,
    touched: AtomicU32,
    written: AtomicU32,
}

/// Shares of pages, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UseShares {
    /// Those that were loaded from or written.
    pub touched: u32,
    /// Those that were written.
    pub written: u32,
}

impl UseShares {
    /// What is expected of memory of which nothing is known: what it gains more if it is left alone is not counted on.
    pub const UNKNOWN: Self = Self { touched: 1000, written: 0 };
    /// What costs a remap the least.
    pub const UNTOUCHED: Self = Self { touched: 0, written: 0 };

    /// What is expected of a buffer of which this is known, filled from a range of a file of which `range` is known. How much is touched follows
    /// from what the program does with the buffer now; the range may have had another use before. A page that is written costs most, so the greater
    /// share counts.
    pub fn filled_from(self, range: Self) -> Self {
        Self { touched: self.touched, written: self.written.max(range.written) }
    }
}

impl UseHistory {
    /// Nothing was seen.
    pub const fn new() -> Self {
        Self { seen: AtomicU32::new(0), touched: AtomicU32::new(0), written: AtomicU32::new(0) }
    }

    /// Of `seen` pages so many were touched, and so many written.
    pub fn note(&self, seen: u32, touched: u32, written: u32) {
        let halve = u32::from(self.seen.load(Ordering::Relaxed) > MOST_SEEN);
        for (count, more) in [(&self.seen, seen), (&self.touched, touched), (&self.written, written)] {
            count.store((count.load(Ordering::Relaxed) >> halve) + more, Ordering::Relaxed);
        }
    }

    /// The shares; `None` if nothing was seen.
    pub fn shares(&self) -> Option<UseShares> {
        let [seen, touched, written] =
            [&self.seen, &self.touched, &self.written].map(|count| u64::from(count.load(Ordering::Relaxed)));
        let share = |count: u64| (count * 1000 / seen).min(1000) as u32;
        (seen > 0).then(|| UseShares { touched: share(touched), written: share(written) })
    }

    /// Forgets everything.
    pub fn clear(&self) {
        for count in [&self.seen, &self.touched, &self.written] {
            count.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_follow_what_was_seen_lately() {
        let history = UseHistory::new();
        assert_eq!(history.shares(), None);
        history.note(16, 12, 8);
        assert_eq!(history.shares(), Some(UseShares { touched: 750, written: 500 }));
        for _ in 0..2000 {
            history.note(16, 16, 0);
        }
        let shares = history.shares().unwrap();
        assert!(shares.touched > 980 && shares.written < 20);
        let range = UseShares { touched: 5, written: 900 };
        assert_eq!(shares.filled_from(range), UseShares { written: 900, ..shares });
        assert_eq!(range.filled_from(shares), range);
        history.clear();
        assert_eq!(history.shares(), None);
    }
}
