//! What is kept for one epoch: a [`CopyState`](crate::copy_state::CopyState) for each page, the runs that hold copies, and
//! counts per region.
//!
//! Relies on [`crate::copy_state`] for who may touch a page, and on [`super::store`] for memory. A slot outlives the epochs
//! that use it one after the other, so a thread that is late never touches memory that is gone.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use quire_sys::mem::{MemError, Reservation};

use super::store::{PreimageStore, RUN_PAGES};
use crate::copy_protocol::PageWords;
use crate::current_epoch::PinCount;

/// Tables of one epoch.
pub(crate) struct EpochSlot {
    words: Reservation,
    pages: usize,
    pages_per_region: usize,
    /// The run from which single pages are taken, plus one, and the next page in it.
    cursor: AtomicU64,
    /// The last run taken, plus one; the store links the others.
    runs: AtomicU32,
    held_pages: AtomicU32,
    counts: Box<[AtomicCounts]>,
    /// Threads that are in the middle of a copy for this slot.
    pins: AtomicU32,
}

impl PinCount for EpochSlot {
    fn pins(&self) -> &AtomicU32 {
        &self.pins
    }
}

impl PageWords for EpochSlot {
    fn word(&self, page: usize) -> &AtomicU32 {
        assert!(page < self.pages, "page {page} of {}", self.pages);
        // SAFETY: `words` is committed for 4 bytes a page, aligned, zeroed, used only as AtomicU32, and lives as long as
        // `self`.
        unsafe { &*self.words.base().cast::<AtomicU32>().add(page) }
    }
}

/// What happened to a region in an epoch.
#[derive(Default)]
struct AtomicCounts {
    /// Pages that were written.
    written: AtomicU16,
    /// Pages that were copied by themselves.
    single: AtomicU16,
    /// Pages that were copied with the region.
    precopied: AtomicU16,
    /// Whether pages came from a later epoch.
    merged: AtomicU16,
}

/// [`EpochSlot::counts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RegionCounts {
    /// Pages that were written, as far as that was noticed.
    pub(crate) written: usize,
    /// Pages that were copied by themselves.
    pub(crate) single: usize,
    /// Pages that were copied with the region.
    pub(crate) precopied: usize,
}

impl EpochSlot {
    pub(crate) fn new(pages: usize, pages_per_region: usize) -> Result<Self, MemError> {
        let words = Reservation::new(pages * 4)?;
        words.commit(0..words.len())?;
        Ok(Self {
            words,
            pages,
            pages_per_region,
            cursor: AtomicU64::new(0),
            runs: AtomicU32::new(0),
            held_pages: AtomicU32::new(0),
            pins: AtomicU32::new(0),
            counts: (0..pages.div_ceil(pages_per_region)).map(|_| AtomicCounts::default()).collect(),
        })
    }

    /// Takes `count` neighbouring pages of the store; the first one's number, or `None` if there is no memory.
    pub(crate) fn take_pages(&self, count: usize, store: &PreimageStore) -> Option<u32> {
        debug_assert!(count > 0 && count <= RUN_PAGES);
        let taken = if count == RUN_PAGES {
            self.take_run(store)? * RUN_PAGES as u32
        } else {
            self.take_from_cursor(count, store)?
        };
        self.held_pages.fetch_add(count as u32, Ordering::Relaxed);
        Some(taken)
    }

    fn take_from_cursor(&self, count: usize, store: &PreimageStore) -> Option<u32> {
        let mut cursor = self.cursor.load(Ordering::Acquire);
        loop {
            let (run, next) = ((cursor >> 32) as u32, cursor as u32);
            let fits = run != 0 && next as usize + count <= RUN_PAGES;
            let (new, page) = if fits {
                (cursor + count as u64, (run - 1) * RUN_PAGES as u32 + next)
            } else {
                // Should another thread be faster, the run is used for nothing else: rare, and freed with the others.
                let run = self.take_run(store)?;
                (u64::from(run + 1) << 32 | count as u64, run * RUN_PAGES as u32)
            };
            match self.cursor.compare_exchange(cursor, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(page),
                Err(now) => cursor = now,
            }
        }
    }

    fn take_run(&self, store: &PreimageStore) -> Option<u32> {
        let run = store.take()?;
        let mut head = self.runs.load(Ordering::Relaxed);
        loop {
            store.link(run).store(head, Ordering::Relaxed);
            match self.runs.compare_exchange_weak(head, run + 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(run),
                Err(now) => head = now,
            }
        }
    }

    /// A page of `region` was written for the first time; how many that makes.
    pub(crate) fn count_written(&self, region: usize) -> usize {
        usize::from(self.counts[region].written.fetch_add(1, Ordering::Relaxed)) + 1
    }

    /// A page of `region` was copied by itself.
    pub(crate) fn count_single(&self, region: usize) {
        self.counts[region].single.fetch_add(1, Ordering::Relaxed);
    }

    /// `pages` of `region` were copied with it.
    pub(crate) fn count_precopied(&self, region: usize, pages: usize) {
        self.counts[region].precopied.fetch_add(pages as u16, Ordering::Relaxed);
    }

    /// Pages of `region` may come from a later epoch from now on.
    pub(crate) fn note_merged(&self, region: usize) {
        self.counts[region].merged.store(1, Ordering::Relaxed);
    }

    /// Whether nothing of `region` was ever copied.
    pub(crate) fn is_untouched(&self, region: usize) -> bool {
        self.counts(region) == RegionCounts::default() && self.counts[region].merged.load(Ordering::Relaxed) == 0
    }

    /// What happened to `region`.
    pub(crate) fn counts(&self, region: usize) -> RegionCounts {
        let counts = &self.counts[region];
        let get = |count: &AtomicU16| usize::from(count.load(Ordering::Relaxed));
        RegionCounts { written: get(&counts.written), single: get(&counts.single), precopied: get(&counts.precopied) }
    }

    /// Bytes of copies.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_pages.load(Ordering::Relaxed) as usize * crate::page::PAGE_SIZE
    }

    /// Makes the slot as good as new: gives its runs back and zeroes its counts. No other thread may be using it.
    pub(crate) fn reset(&self, store: &PreimageStore) {
        for (region, counts) in self.counts.iter().enumerate() {
            let written = counts.written.swap(0, Ordering::Relaxed);
            let single = counts.single.swap(0, Ordering::Relaxed);
            let precopied = counts.precopied.swap(0, Ordering::Relaxed);
            let merged = counts.merged.swap(0, Ordering::Relaxed);
            if written | single | precopied | merged != 0 {
                let first = region * self.pages_per_region;
                for page in first..(first + self.pages_per_region).min(self.pages) {
                    self.word(page).store(0, Ordering::Relaxed);
                }
            }
        }
        self.cursor.store(0, Ordering::Relaxed);
        self.held_pages.store(0, Ordering::Relaxed);
        let mut run = self.runs.swap(0, Ordering::AcqRel);
        while let Some(taken) = run.checked_sub(1) {
            run = store.link(taken).load(Ordering::Relaxed);
            store.give_back(taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preimage::store::RUN_BYTES;

    #[test]
    fn pages_are_taken_once_and_all_runs_come_back() {
        let store = PreimageStore::new(4 * RUN_BYTES).unwrap();
        let slot = EpochSlot::new(1024, 512).unwrap();
        let first = slot.take_pages(1, &store).unwrap();
        assert_eq!(slot.take_pages(8, &store), Some(first + 1));
        let whole = slot.take_pages(RUN_PAGES, &store).unwrap();
        assert_eq!(whole as usize % RUN_PAGES, 0);
        assert_eq!(slot.take_pages(1, &store), Some(first + 9));
        assert_eq!(slot.take_pages(511, &store).map(|page| page as usize % RUN_PAGES), Some(0));
        assert_eq!(store.used_bytes(), 3 * RUN_BYTES as u64);
        assert_eq!(slot.count_written(1), 1);
        slot.word(600).store(9, Ordering::Relaxed);
        slot.reset(&store);
        assert_eq!((store.used_bytes(), slot.held_bytes(), slot.counts(1)), (0, 0, RegionCounts::default()));
        assert_eq!(slot.word(600).load(Ordering::Relaxed), 0);
    }

    #[test]
    fn without_memory_no_pages_are_taken() {
        let store = PreimageStore::new(RUN_BYTES).unwrap();
        let slot = EpochSlot::new(512, 512).unwrap();
        assert!(slot.take_pages(RUN_PAGES, &store).is_some());
        assert_eq!(slot.take_pages(1, &store), None);
    }
}
