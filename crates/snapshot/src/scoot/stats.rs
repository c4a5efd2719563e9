//! What a scoot origin has done and cost, counted where it happens.
//!
//! Relies on nothing; every counter is independent of the others, so relaxed atomics do.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    pub(super) fn sub(&self, amount: u64) {
        self.0.fetch_sub(amount, Ordering::Relaxed);
    }

    pub(super) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(super) fn raise(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// All of them; [`crate::OriginStats`] says what each means.
#[derive(Debug, Default)]
pub(super) struct ScootStats {
    pub(super) cuts: Counter,
    pub(super) last_cut_ns: Counter,
    pub(super) copied_pages: Counter,
    pub(super) precopied_pages: Counter,
    pub(super) needed_pages: Counter,
    pub(super) unneeded_pages: Counter,
    pub(super) waits: Counter,
    pub(super) wait_total_ns: Counter,
    pub(super) wait_longest_ns: Counter,
    pub(super) held_bytes_peak: Counter,
    pub(super) rejoined_regions: Counter,
    /// Bytes of pages that were copied into windows when views were cut.
    pub(super) window_bytes: Counter,
}
