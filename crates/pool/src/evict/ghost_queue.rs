//! Remembers which pages were evicted lately, in eight bytes a page.
//!
//! Relies on a little forgetfulness being harmless: a bucket holds four pages and loses its oldest to a fifth; two pages of
//! the same fingerprint are taken for one.

/// Entries of a bucket.
const WAYS: usize = 4;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    fingerprint: u32,
    /// Number of the eviction; 0 for an empty entry.
    time: u32,
}

/// A table of evicted pages.
#[derive(Debug)]
pub(super) struct GhostQueue {
    entries: Vec<Entry>,
    /// Evictions so far. It wraps after four thousand million, when a few old pages may look new.
    time: u32,
    /// Pages longer gone than so many evictions are forgotten.
    reach: u32,
}

/// A number spread over 64 bits.
fn spread(page: u64) -> u64 {
    let mixed = (page ^ page >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ mixed >> 32
}

impl GhostQueue {
    /// A table for the last `reach` pages. It grows as they come.
    pub(super) fn new(reach: usize) -> Self {
        Self { entries: Vec::new(), time: 0, reach: u32::try_from(reach.max(1)).unwrap_or(u32::MAX / 2) }
    }

    fn bucket(&self, hash: u64) -> usize {
        (hash >> 32) as usize % (self.entries.len() / WAYS) * WAYS
    }

    fn is_live(&self, entry: Entry) -> bool {
        entry.time != 0 && self.time.wrapping_sub(entry.time) < self.reach
    }

    /// `page` has been evicted.
    pub(super) fn insert(&mut self, page: u64) {
        self.time = self.time.wrapping_add(1).max(1);
        let wanted = (self.time.min(self.reach) as usize).next_multiple_of(WAYS);
        if self.entries.len() < wanted {
            // Twice the size, or the reach. What was in it is forgotten, which costs a few second chances now and then.
            let reach = (self.reach as usize).next_multiple_of(WAYS);
            self.entries = vec![Entry::default(); (wanted * 2).max(64).min(reach)];
        }
        let hash = spread(page);
        let bucket = self.bucket(hash);
        let now = self.time;
        let ways = &mut self.entries[bucket..bucket + WAYS];
        let age = |entry: &Entry| if entry.time == 0 { u32::MAX } else { now.wrapping_sub(entry.time) };
        if let Some(oldest) = ways.iter_mut().max_by_key(|entry| age(entry)) {
            *oldest = Entry { fingerprint: hash as u32, time: now };
        }
    }

    /// Whether `page` was evicted lately; it is forgotten then.
    pub(super) fn take(&mut self, page: u64) -> bool {
        if self.entries.is_empty() {
            return false;
        }
        let hash = spread(page);
        let bucket = self.bucket(hash);
        for way in bucket..bucket + WAYS {
            if self.entries[way].fingerprint == hash as u32 && self.is_live(self.entries[way]) {
                self.entries[way] = Entry::default();
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_lately_is_remembered_once_and_what_went_long_ago_is_not() {
        let mut ghosts = GhostQueue::new(1000);
        (0..10_000).for_each(|page| ghosts.insert(page));
        assert!(!(0..8000).any(|page| ghosts.take(page)));
        let known = (9000..10_000).filter(|&page| ghosts.take(page)).count();
        assert!(known > 700, "{known} of the last 1000");
        assert_eq!((9000..10_000).filter(|&page| ghosts.take(page)).count(), 0);
    }

    #[test]
    fn the_table_is_no_larger_than_its_reach() {
        let mut ghosts = GhostQueue::new(100);
        assert!(!ghosts.take(1));
        (0..1000).for_each(|page| ghosts.insert(page));
        assert_eq!(ghosts.entries.len(), 100);
    }
}
