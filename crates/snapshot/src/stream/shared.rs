//! What the writer's side and the reader's side share.
//!
//! Relies on [`crate::stream::page_state`] for who may touch a page when.

use std::ops::Range;
use std::sync::Arc;

use quire_sys::mem::Reservation;

use crate::page::PAGES_PER_REGION;
use crate::stream::background::BackgroundThread;
use crate::stream::race_detector::RaceDetector;
use crate::stream::state_table::StateTable;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// What writer and reader share.
pub(crate) struct SharedState {
    pub(crate) memory: Arc<Reservation>,
    /// One word a page, see [`crate::stream::page_state`].
    pub(crate) states: StateTable,
    /// Who copies and changes the pages of `memory`.
    pub(crate) race_detector: RaceDetector,
    /// One bit a page: it may have content.
    present: Box<[AtomicU64]>,
    /// Pre-images held per region.
    pub(crate) held: Box<[AtomicU32]>,
    /// The reader is gone: the writer need not keep anything any more.
    pub(crate) closed: AtomicBool,
    /// The reader's thread if it runs behind everything else, see [`crate::Snapshot::run_in_background`].
    pub(crate) background: BackgroundThread,
    pub(crate) pages: usize,
}

impl SharedState {
    /// Of the first `pages` pages of `memory`, with a table of words for them.
    pub(crate) fn new(memory: Arc<Reservation>, pages: usize, states: StateTable) -> Self {
        Self {
            memory,
            states,
            race_detector: RaceDetector::new(pages),
            present: (0..pages.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            held: (0..pages.div_ceil(PAGES_PER_REGION)).map(|_| AtomicU32::new(0)).collect(),
            closed: AtomicBool::new(false),
            background: BackgroundThread::default(),
            pages,
        }
    }

    pub(crate) fn word(&self, page: usize) -> &AtomicU32 {
        self.states.word(page)
    }

    pub(crate) fn is_present(&self, page: usize) -> bool {
        self.present[page / 64].load(Ordering::Relaxed) & (1 << (page % 64)) != 0
    }

    /// How many of the first `pages` pages may have content.
    pub(crate) fn count_present(&self, pages: usize) -> u64 {
        u64::from(self.present_in(0..pages))
    }

    /// How many of `pages` may have content; those beyond the memory have none.
    pub(crate) fn present_in(&self, pages: Range<usize>) -> u32 {
        let end = pages.end.min(self.pages);
        let mut page = pages.start;
        let mut count = 0;
        while page < end {
            let last = end.min((page / 64 + 1) * 64);
            let mask = (u64::MAX >> (64 - (last - page))) << (page % 64);
            count += (self.present[page / 64].load(Ordering::Relaxed) & mask).count_ones();
            page = last;
        }
        count
    }

    /// Sets or clears the bits of `pages`; returns how many changed.
    pub(crate) fn set_present(&self, pages: Range<usize>, present: bool) -> u32 {
        let mut page = pages.start;
        let mut changed = 0;
        while page < pages.end {
            let last = pages.end.min((page / 64 + 1) * 64);
            let mask = (u64::MAX >> (64 - (last - page))) << (page % 64);
            changed += if present {
                (mask & !self.present[page / 64].fetch_or(mask, Ordering::Relaxed)).count_ones()
            } else {
                (mask & self.present[page / 64].fetch_and(!mask, Ordering::Relaxed)).count_ones()
            };
            page = last;
        }
        changed
    }
}
