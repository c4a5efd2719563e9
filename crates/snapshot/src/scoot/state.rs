//! What the origin, its views and its maintenance thread share.
//!
//! Relies on [`crate::scoot::backing`] and [`crate::scoot::region_table`].
//!
//! There are two locks. A thread takes them in this order:
//! 1. the lock of [`crate::scoot::maintenance`], which one thread at a time does;
//! 2. the lock of [`Mappings`], which say what is mapped where.
//!
//! A cut takes the second lock only. The maintenance thread lets a cut that waits go first.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use quire_sys::fork_mark::ForkMark;
use quire_sys::mem::Reservation;

use super::backing::BackingFile;
use super::coverage::BlockCoverage;
use super::layout::Generation;
use super::off_heap::OffHeap;
use super::region_table::{RegionMapping, RegionTable};
use super::stats::ScootStats;
use crate::mechanism::OriginOptions;
use crate::page::{PAGE_SIZE, REGION_SIZE};

/// What is mapped where, and what is left to do. It changes under the lock.
pub(super) struct Mappings {
    pub(super) regions: RegionTable,
    pub(super) coverage: BlockCoverage,
    /// Number of the last cut.
    pub(super) epoch: u64,
    /// Views alive.
    pub(super) views: usize,
    /// A cut found pages of a region that an older view holds: regions move away from under views from now on.
    pub(super) overlaps: bool,
    /// Pages of regions merged since the last cut.
    pub(super) merged_pages: usize,
    /// Windows of views that are gone.
    pub(super) unmap_queue: Vec<Reservation>,
    /// Small pages are to be collapsed into huge ones where that is worth while.
    pub(super) collapse_due: bool,
    /// The maintenance has found nothing left to do.
    pub(super) settled: bool,
    /// Something has changed since the maintenance thread looked.
    pub(super) woken: bool,
    /// A thread does the maintenance in the background.
    pub(super) has_thread: bool,
    /// The origin is gone.
    pub(super) closing: bool,
}

/// See the head of this file.
pub(super) struct ScootState {
    pub(super) backing: OffHeap<BackingFile>,
    pub(super) options: OriginOptions,
    pub(super) stats: ScootStats,
    mappings: Mutex<Mappings>,
    /// Wakes the maintenance thread.
    pub(super) work: Condvar,
    /// Wakes the threads that wait for it in `settle`.
    pub(super) idle: Condvar,
    cuts_waiting: AtomicUsize,
    mark: ForkMark,
}

impl ScootState {
    pub(super) fn new(backing: OffHeap<BackingFile>, options: &OriginOptions) -> Self {
        let regions = backing.layout.regions();
        let mappings = Mappings {
            regions: RegionTable::new(regions),
            coverage: BlockCoverage::new(regions * REGION_SIZE, options),
            epoch: 0,
            views: 0,
            overlaps: false,
            merged_pages: 0,
            unmap_queue: Vec::new(),
            collapse_due: false,
            settled: true,
            woken: false,
            has_thread: false,
            closing: false,
        };
        Self {
            backing,
            options: *options,
            stats: ScootStats::default(),
            mappings: Mutex::new(mappings),
            work: Condvar::new(),
            idle: Condvar::new(),
            cuts_waiting: AtomicUsize::new(0),
            mark: ForkMark::new(),
        }
    }

    /// Whether this is a forked child of the process that made the origin. It shares the file with its parent and has no
    /// maintenance thread. A lock that another thread held stays locked for ever. So the child waits for nothing, and changes
    /// nothing but its own mappings.
    pub(super) fn is_forked(&self) -> bool {
        self.mark.is_forked()
    }

    /// Locks the mappings for a cut or a view, for which writers may wait.
    pub(super) fn lock(&self) -> MutexGuard<'_, Mappings> {
        self.cuts_waiting.fetch_add(1, Ordering::SeqCst);
        let mappings = self.mappings.lock().unwrap_or_else(PoisonError::into_inner);
        self.cuts_waiting.fetch_sub(1, Ordering::SeqCst);
        mappings
    }

    /// Locks the mappings for maintenance, after every cut that waits.
    pub(super) fn lock_after_cuts(&self) -> MutexGuard<'_, Mappings> {
        while self.cuts_waiting.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
        self.mappings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Regions' worth of memory that may keep regions for views while the origin goes on in another generation.
    pub(super) fn spare_regions(&self) -> usize {
        let budget_bytes = self.options.budget_bytes.unwrap_or(self.backing.len());
        budget_bytes.div_ceil(REGION_SIZE)
    }

    /// A view takes hold of `homes`.
    pub(super) fn enter(&self, mappings: &mut Mappings, homes: &[Generation]) {
        mappings.regions.hold(homes);
        mappings.views += 1;
    }

    /// A view is gone: its window is unmapped and what it held may be merged or given back. The maintenance
    /// thread does that if there is one.
    pub(super) fn leave(&self, homes: &[Generation], window: Reservation) {
        if self.is_forked() {
            return;
        }
        let mut mappings = self.lock();
        mappings.regions.release(homes);
        mappings.views -= 1;
        if mappings.has_thread {
            mappings.unmap_queue.push(window);
            mappings.settled = false;
            mappings.woken = true;
            drop(mappings);
            self.work.notify_one();
            return;
        }
        let mut idle = Vec::new();
        while self.gives_back(&mappings) {
            idle.extend(mappings.regions.take_idle());
        }
        for (region, generation) in idle {
            // Memory that the system doesn't take back now is given back with the file.
            let _ = self.backing.give_back(generation, region);
        }
        drop(mappings);
        drop(window);
    }

    /// Whether more idle memory is kept than asked for. Nothing is kept once the origin is gone.
    pub(super) fn gives_back(&self, mappings: &Mappings) -> bool {
        let keep = if mappings.closing { 0 } else { self.options.keep_bytes };
        mappings.regions.spare().1 * REGION_SIZE > keep
    }

    /// Bytes held for views now. Walks page tables, so the lock is left as soon as it is known where they are.
    pub(super) fn held_bytes(&self) -> u64 {
        if self.is_forked() {
            return 0;
        }
        let mappings = self.lock();
        let runs = mappings.regions.runs(|region| region.sharing == RegionMapping::Private);
        let spare = mappings.regions.spare().0;
        drop(mappings);
        let mut found = Vec::new();
        let mut bytes = (spare * REGION_SIZE) as u64 + self.stats.window_bytes.get();
        for region in runs.into_iter().flatten() {
            found.clear();
            // A figure: what can't be told is left out.
            let _ = self.backing.origin_private_pages(&(region..region + 1), &mut found);
            bytes += (found.len() * PAGE_SIZE) as u64;
        }
        self.stats.held_bytes_peak.raise(bytes);
        bytes
    }
}

impl Drop for ScootState {
    /// Leaves the range as private memory, as it came: a child of a later fork must not share what its parent writes. The
    /// content is the file's, which lives on for as long as it is mapped.
    fn drop(&mut self) {
        let mappings = self.mappings.get_mut().unwrap_or_else(PoisonError::into_inner);
        for run in mappings.regions.runs(|region| region.sharing == RegionMapping::Shared) {
            let home = mappings.regions.region(run.start).home;
            // What can't be mapped anew stays as it is: readable and writable.
            // SAFETY: `BackingFile::map_origin` wants the reader to find the same bytes. The file holds what the run shows, and no
            // other code writes the file: the views, which hold an `Arc` of this, are gone.
            let _ = unsafe { self.backing.map_origin(&run, home, quire_sys::map::MapSharing::Private) };
        }
    }
}
