//! Whether victims are worth storing: what that takes must not be more than what it may spare, of whatever is scarce.
//!
//! Storing takes time of a processor, and spares time of the device. While processors are idle, the device is what threads wait for: a page
//! is worth storing if that takes less than a read. While threads wait for processors, each page that is stored and never wanted again takes
//! time from other threads, so it counts, too, how often a stored page comes back.
//!
//! Relies on being told what both take, what came back, and whether processors are scarce. Averages are moving ones, without a lock: an
//! update that is lost is one sample of many.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

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

/// How often a stored page comes back before it goes.
#[derive(Debug)]
struct ReturnRate {
    /// Pages that are stored before the rate is known: the first of them had the time to come back then.
    enough: u64,
    stored: AtomicU64,
    returned: AtomicU64,
}

impl ReturnRate {
    fn new(enough: usize) -> Self {
        Self { enough: enough.max(1) as u64, stored: AtomicU64::new(0), returned: AtomicU64::new(0) }
    }

    fn add_stored(&self, pages: usize) {
        let stored = self.stored.fetch_add(pages as u64, Ordering::Relaxed) + pages as u64;
        if stored >= 2 * self.enough {
            // Later pages count for more, and earlier ones are not forgotten at once.
            self.stored.store(stored / 2, Ordering::Relaxed);
            self.returned.store(self.returned.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
        }
    }

    /// Times for each page, on average; once, as long as it is not known.
    fn get(&self) -> f64 {
        let (stored, returned) = (self.stored.load(Ordering::Relaxed), self.returned.load(Ordering::Relaxed));
        if stored < self.enough { 1.0 } else { returned as f64 / stored as f64 }
    }
}

/// What storing a page takes, and reading one.
#[derive(Debug)]
pub(super) struct Admission {
    is_adaptive: bool,
    store: MeanTime,
    read: MeanTime,
    take: MeanTime,
    returns: ReturnRate,
    is_processor_scarce: AtomicBool,
    refused: AtomicU32,
}

impl Admission {
    /// Of a tier that holds about `pages` pages.
    pub(super) fn new(is_adaptive: bool, pages: usize) -> Self {
        Self {
            is_adaptive,
            store: MeanTime::default(),
            read: MeanTime::default(),
            take: MeanTime::default(),
            returns: ReturnRate::new(pages / 2),
            is_processor_scarce: AtomicBool::new(false),
            refused: AtomicU32::new(0),
        }
    }

    /// Storing `pages` pages has taken so long.
    pub(super) fn stored(&self, pages: usize, took_ns: u64) {
        if pages > 0 {
            self.store.add(took_ns / pages as u64);
            self.returns.add_stored(pages);
        }
    }

    /// Reading `pages` pages together from the device has taken so long.
    pub(super) fn read(&self, pages: usize, took_ns: u64) {
        if pages > 0 {
            self.read.add(took_ns / pages as u64);
        }
    }

    /// A page has come from the tier. How long that took where it was measured.
    pub(super) fn took(&self, took_ns: Option<u64>) {
        self.returns.returned.fetch_add(1, Ordering::Relaxed);
        if let Some(took_ns) = took_ns {
            self.take.add(took_ns);
        }
    }

    /// Threads wait for processors, or not any more.
    pub(super) fn set_processor_scarce(&self, is_scarce: bool) {
        self.is_processor_scarce.store(is_scarce, Ordering::Relaxed);
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
        if !self.is_adaptive {
            return true;
        }
        if !self.is_processor_scarce.load(Ordering::Relaxed) {
            return store_ns < read_ns;
        }
        // A page that comes back is decoded instead of read.
        let spared_ns = read_ns.saturating_sub(self.take.get().unwrap_or(0)) as f64;
        (store_ns as f64) < self.returns.get() * spared_ns
    }

    /// Whether a batch of victims is stored.
    pub(super) fn admits(&self) -> bool {
        self.pays() || self.refused.fetch_add(1, Ordering::Relaxed) % TRIED_PART == TRIED_PART - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: usize = 100;

    #[test]
    fn what_takes_longer_than_it_spares_is_tried_seldom_and_admitted_again_when_it_pays() {
        let admission = Admission::new(true, PAGES);
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
        let admission = Admission::new(true, PAGES);
        admission.stored(2, 8_000);
        assert_eq!(admission.costs_ns(), None);
        admission.read(1, 90_000);
        assert_eq!(admission.costs_ns(), Some([4_000, 90_000]));
        admission.took(Some(1_000));
        assert_eq!(admission.costs_ns(), Some([5_000, 89_000]));
    }

    #[test]
    fn pages_that_are_read_together_are_a_part_of_the_read_each() {
        let admission = Admission::new(true, PAGES);
        admission.stored(1, 15_000);
        admission.read(16, 160_000);
        assert!((1..TRIED_PART).all(|_| !admission.admits()), "10 µs a page are less than storing it takes");
    }

    #[test]
    fn a_tier_that_is_told_so_takes_everything() {
        let admission = Admission::new(false, PAGES);
        admission.set_processor_scarce(true);
        admission.stored(PAGES, 1_000_000_000);
        admission.read(1, 1);
        assert!((0..100).all(|_| admission.admits()));
    }

    #[test]
    fn where_processors_are_scarce_pages_that_seldom_come_back_are_not_stored() {
        let admission = Admission::new(true, PAGES);
        // 10 µs to store, 2 µs to take, 52 µs to read: one page in five has to come back.
        let store = |pages| admission.stored(pages, 10_000 * pages as u64);
        admission.read(1, 52_000);
        store(PAGES / 2 - 1);
        admission.set_processor_scarce(true);
        assert!(admission.pays(), "how often pages come back is not known");
        store(1);
        assert!(!admission.pays(), "none has come back");
        admission.set_processor_scarce(false);
        assert!(admission.pays(), "processors that are idle cost nothing");
        admission.set_processor_scarce(true);
        (0..9).for_each(|_| admission.took(Some(2_000)));
        assert!(!admission.pays(), "9 of 50");
        (0..3).for_each(|_| admission.took(None));
        assert!(admission.pays(), "12 of 50");
        // What was long ago counts for less and less.
        (0..8).for_each(|_| store(PAGES / 2));
        assert!(!admission.pays());
    }
}
