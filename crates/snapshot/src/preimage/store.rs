//! Memory for pre-images: runs of a huge page each, taken and given back without a lock.
//!
//! Relies on its callers not to use a run that they have given back. Everything but [`PreimageStore::trim`] and [`PreimageStore::warm_ahead`] may be
//! called from a signal handler: no locks, no allocation.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use quire_sys::mem::{MemError, Reservation};

use crate::page::{PAGE_SIZE, PAGES_PER_REGION, REGION_SIZE};

/// Bytes of a run.
pub(crate) const RUN_BYTES: usize = REGION_SIZE;
/// Pages of a run.
pub(crate) const RUN_PAGES: usize = PAGES_PER_REGION;
/// How many runs are kept warm ahead of their use while a view is open.
const AHEAD: u32 = 8;

/// A stack of runs: Treiber's, with a counter against the same head coming back in between.
#[derive(Default)]
struct FreeStack(AtomicU64);

impl FreeStack {
    fn push(&self, run: u32, next: &[AtomicU32]) {
        let mut head = self.0.load(Ordering::Relaxed);
        loop {
            next[run as usize].store(head as u32, Ordering::Relaxed);
            let new = (head >> 32).wrapping_add(1) << 32 | u64::from(run + 1);
            match self.0.compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    fn pop(&self, next: &[AtomicU32]) -> Option<u32> {
        let mut head = self.0.load(Ordering::Acquire);
        loop {
            let run = (head as u32).checked_sub(1)?;
            let below = u64::from(next[run as usize].load(Ordering::Relaxed));
            let new = (head >> 32).wrapping_add(1) << 32 | below;
            match self.0.compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(run),
                Err(now) => head = now,
            }
        }
    }
}

/// All runs of one origin.
pub(crate) struct PreimageStore {
    memory: Reservation,
    next: Box<[AtomicU32]>,
    /// Runs that were used and still have their memory.
    warm: FreeStack,
    warm_count: AtomicU32,
    /// Runs whose memory was given back.
    cold: FreeStack,
    /// The first run that was never used.
    fresh: AtomicU32,
    /// Fresh runs below this one have memory already.
    fresh_warm: AtomicU32,
    used: AtomicU32,
    used_peak: AtomicU32,
    /// Most runs in use at once since the last epoch was over.
    peak: AtomicU32,
    /// Runs that the next epoch may need, going by the last ones.
    lately: AtomicU32,
}

impl PreimageStore {
    /// Room for `capacity_bytes`, none of it backed yet.
    pub(crate) fn new(capacity_bytes: usize) -> Result<Self, MemError> {
        let memory = Reservation::new(capacity_bytes.max(RUN_BYTES))?;
        memory.commit(0..memory.len())?;
        let runs = memory.len() / RUN_BYTES;
        Ok(Self {
            memory,
            next: (0..runs).map(|_| AtomicU32::new(0)).collect(),
            warm: FreeStack::default(),
            warm_count: AtomicU32::new(0),
            cold: FreeStack::default(),
            fresh: AtomicU32::new(0),
            fresh_warm: AtomicU32::new(0),
            used: AtomicU32::new(0),
            used_peak: AtomicU32::new(0),
            peak: AtomicU32::new(0),
            lately: AtomicU32::new(0),
        })
    }

    /// Bytes that there is room for.
    pub(crate) fn capacity_bytes(&self) -> usize {
        self.memory.len()
    }

    /// A run for the caller alone; its bytes are arbitrary. `None` when all are taken.
    pub(crate) fn take(&self) -> Option<u32> {
        let run = match self.warm.pop(&self.next) {
            Some(run) => {
                self.warm_count.fetch_sub(1, Ordering::Relaxed);
                run
            }
            None => match self.take_fresh(self.fresh_warm.load(Ordering::Acquire)) {
                Some(run) => run,
                None => self.cold.pop(&self.next).or_else(|| self.take_fresh(self.next.len() as u32))?,
            },
        };
        let used = self.used.fetch_add(1, Ordering::Relaxed) + 1;
        self.used_peak.fetch_max(used, Ordering::Relaxed);
        self.peak.fetch_max(used, Ordering::Relaxed);
        Some(run)
    }

    fn take_fresh(&self, end: u32) -> Option<u32> {
        self.fresh.fetch_update(Ordering::AcqRel, Ordering::Acquire, |fresh| (fresh < end).then_some(fresh + 1)).ok()
    }

    /// Gives a run back. No thread reads or writes it any more.
    pub(crate) fn give_back(&self, run: u32) {
        self.used.fetch_sub(1, Ordering::Relaxed);
        self.warm_count.fetch_add(1, Ordering::Relaxed);
        self.warm.push(run, &self.next);
    }

    /// A word for the holder of `run` to link its runs with.
    pub(crate) fn link(&self, run: u32) -> &AtomicU32 {
        &self.next[run as usize]
    }

    /// First address of page `slot` (counted through all runs).
    pub(crate) fn page(&self, slot: u32) -> *mut u8 {
        let offset = slot as usize * PAGE_SIZE;
        assert!(offset < self.memory.len(), "page {slot} of the store");
        self.memory.base().wrapping_add(offset)
    }

    /// Whether few runs are ready.
    pub(crate) fn is_short(&self) -> bool {
        let fresh = self.fresh_warm.load(Ordering::Relaxed).saturating_sub(self.fresh.load(Ordering::Relaxed));
        self.warm_count.load(Ordering::Relaxed) + fresh < AHEAD
    }

    /// Backs a few runs with memory before a writer needs them. Returns whether there was something to do.
    pub(crate) fn warm_ahead(&self) -> bool {
        let from = self.fresh.load(Ordering::Acquire);
        let warm = self.fresh_warm.load(Ordering::Acquire).max(from);
        let ready = self.warm_count.load(Ordering::Relaxed) + (warm - from);
        if ready >= AHEAD || warm as usize >= self.next.len() {
            return false;
        }
        // A thread that takes the run while it is being backed finds it as it is: backing changes no bytes.
        let start = warm as usize * RUN_BYTES;
        if self.memory.populate(start..start + RUN_BYTES).is_err() {
            return false;
        }
        self.fresh_warm.store(warm + 1, Ordering::Release);
        true
    }

    /// An epoch is over, and its runs are still in use: as many will be wanted again.
    pub(crate) fn note_epoch(&self) {
        let peak = self.peak.swap(0, Ordering::Relaxed).max(self.used.load(Ordering::Relaxed));
        let lately = self.lately.load(Ordering::Relaxed);
        // Epochs differ: one that needed less doesn't make the next one pay for memory that is there now.
        self.lately.store(peak.max(lately - lately / 4), Ordering::Relaxed);
    }

    /// No epoch has followed the last one for a while.
    pub(crate) fn forget_lately(&self) {
        self.lately.store(0, Ordering::Relaxed);
    }

    /// Whether more than `keep_bytes` are kept, because they were needed lately.
    pub(crate) fn lingers(&self, keep_bytes: usize) -> bool {
        self.lately.load(Ordering::Relaxed) > 0 && self.warm_bytes() > keep_bytes
    }

    fn warm_bytes(&self) -> usize {
        self.warm_count.load(Ordering::Relaxed) as usize * RUN_BYTES
    }

    /// Gives one unused run's memory back to the system if more than `keep_bytes` are kept, and more than are likely to be
    /// needed again soon. Returns whether it did.
    pub(crate) fn trim(&self, keep_bytes: usize) -> bool {
        let soon = self.lately.load(Ordering::Relaxed).saturating_sub(self.used.load(Ordering::Relaxed));
        if self.warm_bytes() <= keep_bytes.max(soon as usize * RUN_BYTES) {
            return false;
        }
        let Some(run) = self.warm.pop(&self.next) else { return false };
        self.warm_count.fetch_sub(1, Ordering::Relaxed);
        let start = run as usize * RUN_BYTES;
        // A run off the stacks belongs to this thread alone. If the system refuses the advice, the run stays warm, which does no harm.
        let _ = self.memory.release(start..start + RUN_BYTES);
        self.cold.push(run, &self.next);
        true
    }

    /// Bytes of runs in use.
    pub(crate) fn used_bytes(&self) -> u64 {
        u64::from(self.used.load(Ordering::Relaxed)) * RUN_BYTES as u64
    }

    /// Most bytes in use at once.
    pub(crate) fn used_bytes_peak(&self) -> u64 {
        u64::from(self.used_peak.load(Ordering::Relaxed)) * RUN_BYTES as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn runs_are_taken_once_until_given_back() {
        let store = PreimageStore::new(3 * RUN_BYTES).unwrap();
        let taken: HashSet<u32> = (0..3).map(|_| store.take().unwrap()).collect();
        assert_eq!(taken.len(), 3);
        assert_eq!(store.take(), None);
        store.give_back(1);
        assert_eq!(store.take(), Some(1));
        assert_eq!(store.used_bytes(), store.used_bytes_peak());
    }

    #[test]
    fn trimmed_runs_come_back_after_the_warm_ones() {
        let store = PreimageStore::new(4 * RUN_BYTES).unwrap();
        assert!(store.warm_ahead());
        let runs: Vec<u32> = (0..3).map(|_| store.take().unwrap()).collect();
        runs.iter().for_each(|&run| store.give_back(run));
        assert!(store.trim(RUN_BYTES) && store.trim(RUN_BYTES) && !store.trim(RUN_BYTES));
        let again: HashSet<u32> = (0..4).map(|_| store.take().unwrap()).collect();
        assert_eq!(again.len(), 4);
        assert_eq!(store.take(), None);
    }

    #[test]
    fn as_much_as_the_last_epoch_needed_stays_warm_for_a_while() {
        let store = PreimageStore::new(8 * RUN_BYTES).unwrap();
        let runs: Vec<u32> = (0..4).map(|_| store.take().unwrap()).collect();
        store.note_epoch();
        runs.iter().for_each(|&run| store.give_back(run));
        assert!(!store.trim(0) && store.lingers(0) && !store.lingers(4 * RUN_BYTES));
        // Smaller epochs let it go bit by bit.
        (0..2).for_each(|_| store.note_epoch());
        assert!(store.trim(0) && !store.trim(0));
        store.forget_lately();
        assert!((0..3).all(|_| store.trim(0)) && !store.trim(0) && !store.lingers(0));
    }

    #[test]
    fn threads_never_get_the_same_run() {
        let store = PreimageStore::new(16 * RUN_BYTES).unwrap();
        let owner: Vec<AtomicU32> = (0..16).map(|_| AtomicU32::new(0)).collect();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        if let Some(run) = store.take() {
                            assert_eq!(owner[run as usize].swap(1, Ordering::AcqRel), 0);
                            owner[run as usize].store(0, Ordering::Release);
                            store.give_back(run);
                        }
                    }
                });
            }
        });
        assert_eq!(store.used_bytes(), 0);
    }
}
