//! Whether victims are worth storing: storing a page must not take longer than the read from the device that it may spare.
//!
//! Relies on being told what both take. Averages are moving ones, without a lock: an update that is lost is one sample of many.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A new sample's part of the average: one in so many.
const WEIGHT: u64 = 16;
/// While storing doesn't pay, one batch in so many is stored all the same, or no thread would learn that it does again.
const TRIED_PART: u32 = 16;

/// A moving average of times.
#[derive(Debug, Default)]
struct MeanTime(AtomicU64);

impl MeanTime {
    fn add(&self, sample_ns: u64) {
        let sample_ns = sample_ns.max(1);
        let mean = self.0.load(Ordering::Relaxed);
        let next = if mean == 0 { sample_ns } else { (mean * (WEIGHT - 1) + sample_ns) / WEIGHT };
        self.0.store(next.max(1), Ordering::Relaxed);
    }

    fn get(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&mean_ns| mean_ns > 0)
    }
}

/// What storing a page takes, and reading one.
#[derive(Debug)]
pub(super) struct Admission {
    is_adaptive: bool,
    store: MeanTime,
    read: MeanTime,
    take: MeanTime,
    refused: AtomicU32,
}

impl Admission {
    pub(super) fn new(is_adaptive: bool) -> Self {
        Self {
            is_adaptive,
            store: MeanTime::default(),
            read: MeanTime::default(),
            take: MeanTime::default(),
            refused: AtomicU32::new(0),
        }
    }

    /// Storing `pages` pages has taken so long.
    pub(super) fn stored(&self, pages: usize, took_ns: u64) {
        if pages > 0 {
            self.store.add(took_ns / pages as u64);
        }
    }

    /// Reading `pages` pages together from the device has taken so long.
    pub(super) fn read(&self, pages: usize, took_ns: u64) {
        if pages > 0 {
            self.read.add(took_ns / pages as u64);
        }
    }

    /// A page has come from the tier in so long.
    pub(super) fn took(&self, took_ns: u64) {
        self.take.add(took_ns);
    }

    /// What a page costs that comes from the tier and is stored again, and what one from the device costs more; nothing as long as it is
    /// not known.
    pub(super) fn costs_ns(&self) -> Option<[u64; 2]> {
        let (store_ns, read_ns, take_ns) = (self.store.get()?, self.read.get()?, self.take.get().unwrap_or(0));
        Some([store_ns + take_ns, read_ns.saturating_sub(take_ns)])
    }

    /// Whether storing a page takes less than it may spare, as far as it is known.
    pub(super) fn pays(&self) -> bool {
        let (Some(store_ns), Some(read_ns)) = (self.store.get(), self.read.get()) else { return true };
        !self.is_adaptive || store_ns < read_ns
    }

    /// Whether a batch of victims is stored.
    pub(super) fn admits(&self) -> bool {
        self.pays() || self.refused.fetch_add(1, Ordering::Relaxed) % TRIED_PART == TRIED_PART - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_longer_than_it_spares_is_tried_seldom_and_admitted_again_when_it_pays() {
        let admission = Admission::new(true);
        assert!(admission.admits(), "nothing is known");
        admission.stored(10, 500_000);
        assert!(admission.admits(), "of reads nothing is known");
        // A batch: 20 µs a page.
        admission.read(4, 80_000);
        let admitted = (0..10 * TRIED_PART).filter(|_| admission.admits()).count();
        assert!(admitted == 10 && !admission.pays());
        (0..100).for_each(|_| admission.stored(10, 50_000));
        assert!((0..100).all(|_| admission.admits()));
    }

    #[test]
    fn costs_are_known_once_both_ways_were_taken() {
        let admission = Admission::new(true);
        admission.stored(2, 8_000);
        assert_eq!(admission.costs_ns(), None);
        admission.read(1, 90_000);
        assert_eq!(admission.costs_ns(), Some([4_000, 90_000]));
        admission.took(1_000);
        assert_eq!(admission.costs_ns(), Some([5_000, 89_000]));
    }

    #[test]
    fn pages_that_are_read_together_are_a_part_of_the_read_each() {
        let admission = Admission::new(true);
        admission.stored(1, 15_000);
        admission.read(16, 160_000);
        assert!((1..TRIED_PART).all(|_| !admission.admits()), "10 µs a page are less than storing it takes");
    }

    #[test]
    fn a_tier_that_is_told_so_takes_everything() {
        let admission = Admission::new(false);
        admission.stored(1, 1_000_000);
        admission.read(1, 1);
        assert!((0..100).all(|_| admission.admits()));
    }
}
