//! What the pool counts while it works: per core what happens often, together what is slow anyway.
//!
//! Relies on nothing. Hits are sampled: each thread reports every 64th of its own as 64, so that a hit writes to no memory
//! that others see.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::cache_padded::{CachePadded, slot};

/// What is counted, by core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum PoolCounter {
    Hits,
    Misses,
    Overwritten,
    FailedReads,
    Evicted,
    EvictBatches,
    EvictCalls,
    EvictRanges,
    Written,
    Writes,
    Ahead,
    AheadReads,
    OptimisticRetries,
    ReadDirect,
    ReadTier,
    ReadCached,
    CacheKept,
    TierReclaimed,
    TierGhost,
    TierBusy,
    WriteDirect,
    EvictDirty,
    EvictClean,
    EvictKept,
    EvictDeclined,
    Relocated,
    LeaseCopies,
}

const COUNTS: usize = PoolCounter::LeaseCopies as usize + 1;

/// Why a thread waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum WaitCause {
    /// Another thread was reading the page.
    Reading,
    /// The page had been asked for ahead of its use and was still on its way.
    Ahead,
    /// Another thread was changing the page.
    Changing,
    /// A writer waited for readers.
    Readers,
    /// A writer waited for the page to be written to the device.
    Writing,
    /// The page was being evicted.
    Evicting,
    /// There was no clean page to evict.
    Writeback,
}

impl WaitCause {
    /// All causes.
    pub const ALL: [Self; 7] =
        [Self::Reading, Self::Ahead, Self::Changing, Self::Readers, Self::Writing, Self::Evicting, Self::Writeback];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reading => "reading",
            Self::Ahead => "ahead",
            Self::Changing => "changing",
            Self::Readers => "readers",
            Self::Writing => "writing",
            Self::Evicting => "evicting",
            Self::Writeback => "writeback",
        }
    }
}

/// Bounds of the histogram of merged writes: the last is for all larger ones.
pub(crate) const MERGED_BUCKETS: usize = 11;

#[derive(Debug, Default)]
pub(crate) struct WaitCounter {
    pub(crate) count: AtomicU64,
    pub(crate) total_ns: AtomicU64,
    pub(crate) longest_ns: AtomicU64,
}

/// A queue's depth, seen at every submission.
#[derive(Debug, Default)]
pub(crate) struct DepthCounter {
    pub(crate) samples: AtomicU64,
    pub(crate) sum: AtomicU64,
    pub(crate) most: AtomicU64,
}

impl DepthCounter {
    pub(crate) fn note(&self, in_flight: usize) {
        self.samples.fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(in_flight as u64, Ordering::Relaxed);
        self.most.fetch_max(in_flight as u64, Ordering::Relaxed);
    }
}

/// All counters of a pool.
#[derive(Debug)]
pub(crate) struct PoolCounters {
    cores: Box<[CachePadded<[AtomicU64; COUNTS]>]>,
    waits: [WaitCounter; WaitCause::ALL.len()],
    /// Writes of up to 1, 2, 4, … pages.
    merged: [AtomicU64; MERGED_BUCKETS],
    pub(crate) read_depth: DepthCounter,
    pub(crate) write_depth: DepthCounter,
}

/// Hits that are reported as one.
const SAMPLE: u32 = 64;

thread_local!(static HITS: Cell<u32> = const { Cell::new(0) });

impl PoolCounters {
    pub(crate) fn new(cores: usize) -> Self {
        Self {
            cores: (0..cores.max(1)).map(|_| CachePadded::default()).collect(),
            waits: Default::default(),
            merged: Default::default(),
            read_depth: DepthCounter::default(),
            write_depth: DepthCounter::default(),
        }
    }

    pub(crate) fn add(&self, what: PoolCounter, by: usize) {
        self.cores[slot() % self.cores.len()][what as usize].fetch_add(by as u64, Ordering::Relaxed);
    }

    /// Counts a hit, of whichever pool.
    #[inline]
    pub(crate) fn hit(&self) {
        let hits = HITS.get().wrapping_add(1);
        HITS.set(hits);
        if hits.is_multiple_of(SAMPLE) {
            self.report_hits();
        }
    }

    /// Counts `count` hits.
    #[inline]
    pub(crate) fn hit_many(&self, count: u32) {
        let before = HITS.get();
        let hits = before.wrapping_add(count);
        HITS.set(hits);
        if hits / SAMPLE != before / SAMPLE {
            self.add(PoolCounter::Hits, (hits.wrapping_sub(before / SAMPLE * SAMPLE) / SAMPLE * SAMPLE) as usize);
        }
    }

    #[cold]
    fn report_hits(&self) {
        self.add(PoolCounter::Hits, SAMPLE as usize);
    }

    pub(crate) fn get(&self, what: PoolCounter) -> u64 {
        self.cores.iter().map(|core| core[what as usize].load(Ordering::Relaxed)).sum()
    }

    /// The calling thread has waited since `begun`.
    pub(crate) fn waited(&self, cause: WaitCause, begun: Instant) {
        let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let wait = &self.waits[cause as usize];
        wait.count.fetch_add(1, Ordering::Relaxed);
        wait.total_ns.fetch_add(ns, Ordering::Relaxed);
        wait.longest_ns.fetch_max(ns, Ordering::Relaxed);
    }

    pub(crate) fn wait(&self, cause: WaitCause) -> &WaitCounter {
        &self.waits[cause as usize]
    }

    /// A write of `pages` neighbours was submitted.
    pub(crate) fn merged(&self, pages: u64) {
        let bucket = pages.max(1).next_power_of_two().trailing_zeros() as usize;
        self.merged[bucket.min(MERGED_BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn merged_writes(&self) -> [u64; MERGED_BUCKETS] {
        std::array::from_fn(|bucket| self.merged[bucket].load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_all_cores_add_up_and_hits_come_in_samples() {
        let counters = PoolCounters::new(4);
        std::thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    counters.add(PoolCounter::Misses, 2);
                    (0..128).for_each(|_| counters.hit());
                });
            }
        });
        assert_eq!((counters.get(PoolCounter::Misses), counters.get(PoolCounter::Hits)), (6, 3 * 128));
    }

    #[test]
    fn writes_are_sorted_by_how_many_pages_they_merge() {
        let counters = PoolCounters::new(1);
        [1, 2, 3, 4, 5, 1024, 70_000].into_iter().for_each(|pages| counters.merged(pages));
        assert_eq!(counters.merged_writes(), [1, 1, 2, 1, 0, 0, 0, 0, 0, 0, 2]);
    }
}
