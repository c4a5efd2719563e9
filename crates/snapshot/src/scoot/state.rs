//! What the origin, its views and its keeper share.
//!
//! Relies on [`crate::scoot::memory`] and [`crate::scoot::ledger`].
//!
//! Two locks, taken in this order: that of the upkeep (in [`crate::scoot::upkeep`]), which one thread at a time does, and
//! the desk, which says what is mapped where. A cut takes the desk only, and the upkeep leaves it to a cut that waits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use quire_sys::fork_mark::ForkMark;
use quire_sys::mem::Reservation;

use super::coverage::Coverage;
use super::figures::Figures;
use super::layout::Generation;
use super::ledger::{Ledger, Sharing};
use super::memory::Memory;
use super::placed::Placed;
use crate::mechanism::Options;
use crate::page::{PAGE_SIZE, REGION_SIZE};

/// What changes under the lock.
pub(super) struct Desk {
    pub(super) ledger: Ledger,
    pub(super) coverage: Coverage,
    /// Number of the last cut.
    pub(super) epoch: u64,
    /// Views alive.
    pub(super) views: usize,
    /// A cut found pages of a region that an older view holds: regions move away from under views from now on.
    pub(super) overlaps: bool,
    /// Pages of regions folded since the last cut.
    pub(super) folded_pages: usize,
    /// Windows of views that are gone.
    pub(super) graves: Vec<Reservation>,
    /// Small pages are to be joined to huge ones where that is worth while.
    pub(super) join_due: bool,
    /// The upkeep has found nothing left to do.
    pub(super) settled: bool,
    /// Something has changed since the keeper looked.
    pub(super) woken: bool,
    /// Somebody does the upkeep in the background.
    pub(super) kept: bool,
    /// The origin is gone.
    pub(super) closing: bool,
}

/// See the head of this file.
pub(super) struct State {
    pub(super) memory: Placed<Memory>,
    pub(super) options: Options,
    pub(super) figures: Figures,
    desk: Mutex<Desk>,
    /// Wakes the keeper.
    pub(super) work: Condvar,
    /// Wakes those who wait for it.
    pub(super) idle: Condvar,
    cuts_waiting: AtomicUsize,
    mark: ForkMark,
}

impl State {
    pub(super) fn new(memory: Placed<Memory>, options: &Options) -> Self {
        let regions = memory.layout.regions();
        let desk = Desk {
            ledger: Ledger::new(regions),
            coverage: Coverage::new(regions * REGION_SIZE, options),
            epoch: 0,
            views: 0,
            overlaps: false,
            folded_pages: 0,
            graves: Vec::new(),
            join_due: false,
            settled: true,
            woken: false,
            kept: false,
            closing: false,
        };
        Self {
            memory,
            options: *options,
            figures: Figures::default(),
            desk: Mutex::new(desk),
            work: Condvar::new(),
            idle: Condvar::new(),
            cuts_waiting: AtomicUsize::new(0),
            mark: ForkMark::new(),
        }
    }

    /// Whether this is a forked child of the process that made the origin. It shares the file with its parent, has no keeper, and
    /// whatever lock another thread held is held for ever: it waits for nothing and changes nothing but its own mappings.
    pub(super) fn is_forked(&self) -> bool {
        self.mark.is_forked()
    }

    /// The desk, for those for whom writers wait.
    pub(super) fn lock(&self) -> MutexGuard<'_, Desk> {
        self.cuts_waiting.fetch_add(1, Ordering::SeqCst);
        let desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
        self.cuts_waiting.fetch_sub(1, Ordering::SeqCst);
        desk
    }

    /// The desk, for upkeep: after everybody else.
    pub(super) fn lock_last(&self) -> MutexGuard<'_, Desk> {
        while self.cuts_waiting.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Regions' worth of memory that may be spent on keeping regions for views while the origin goes on elsewhere.
    pub(super) fn spare_regions(&self) -> usize {
        let budget_bytes = self.options.budget_bytes.unwrap_or(self.memory.len());
        budget_bytes.div_ceil(REGION_SIZE)
    }

    /// A view takes hold of `homes`.
    pub(super) fn enter(&self, desk: &mut Desk, homes: &[Generation]) {
        desk.ledger.hold(homes);
        desk.views += 1;
    }

    /// A view is gone: its window is unmapped and what it held may be folded or given back. By the keeper if there is one.
    pub(super) fn leave(&self, homes: &[Generation], window: Reservation) {
        if self.is_forked() {
            return;
        }
        let mut desk = self.lock();
        desk.ledger.release(homes);
        desk.views -= 1;
        if desk.kept {
            desk.graves.push(window);
            desk.settled = false;
            desk.woken = true;
            drop(desk);
            self.work.notify_one();
            return;
        }
        let mut idle = Vec::new();
        while self.gives_back(&desk) {
            idle.extend(desk.ledger.take_idle());
        }
        for (region, generation) in idle {
            // Memory that the system doesn't take back now is given back with the file.
            let _ = self.memory.give_back(generation, region);
        }
        drop(desk);
        drop(window);
    }

    /// Whether more idle memory is kept than asked for. Nothing is kept once the origin is gone.
    pub(super) fn gives_back(&self, desk: &Desk) -> bool {
        let keep = if desk.closing { 0 } else { self.options.keep_bytes };
        desk.ledger.spare().1 * REGION_SIZE > keep
    }

    /// Bytes held for views now. Walks page tables, so the desk is left as soon as it is known where.
    pub(super) fn held_bytes(&self) -> u64 {
        if self.is_forked() {
            return 0;
        }
        let desk = self.lock();
        let runs = desk.ledger.runs(|region| region.sharing == Sharing::Private);
        let spare = desk.ledger.spare().0;
        drop(desk);
        let mut found = Vec::new();
        let mut bytes = (spare * REGION_SIZE) as u64 + self.figures.window_bytes.get();
        for region in runs.into_iter().flatten() {
            found.clear();
            // A figure: what can't be told is left out.
            let _ = self.memory.origin_private_pages(&(region..region + 1), &mut found);
            bytes += (found.len() * PAGE_SIZE) as u64;
        }
        self.figures.held_bytes_peak.raise(bytes);
        bytes
    }
}

impl Drop for State {
    /// Leaves the range as private memory, as it came: a child of a later fork must not share what its parent writes. The
    /// content is the file's, which lives on for as long as it is mapped.
    fn drop(&mut self) {
        let desk = self.desk.get_mut().unwrap_or_else(PoisonError::into_inner);
        for run in desk.ledger.runs(|region| region.sharing == Sharing::Shared) {
            let home = desk.ledger.region(run.start).home;
            // What can't be mapped anew stays as it is: readable and writable.
            // SAFETY: the file holds what the run shows, and nobody writes it by another way: the views are gone.
            let _ = unsafe { self.memory.map_origin(&run, home, quire_sys::map::Sharing::Private) };
        }
    }
}
