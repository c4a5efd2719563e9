//! Every interleaving of writers, readers, the copier and cuts over the words of pages, explored by loom: over the functions that the
//! mechanisms call (`copy_state`, `current_epoch`, `protection_lock`), with pages of one word in the place of memory.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p quire-snapshot --release --test loom_preimage` (`cargo xtask test` does).
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::AtomicU32 as Cell;
use loom::thread;
use quire_snapshot::copy_state::{self, CopyState};
use quire_snapshot::current_epoch::{CurrentEpoch, PinCount};
use quire_snapshot::protection_lock::ProtectionLock;
use quire_snapshot::sync::{AtomicU32, Ordering};

const OLD: u32 = 10;
const NEW: u32 = 20;

/// The slot of one epoch for one page: its word, and room for its copy. The bytes are relaxed atomics, as readers may meet writers.
struct EpochSlot {
    word: AtomicU32,
    copy: Cell,
    pins: AtomicU32,
}

impl PinCount for EpochSlot {
    fn pins(&self) -> &AtomicU32 {
        &self.pins
    }
}

impl EpochSlot {
    fn new() -> Self {
        Self { word: AtomicU32::new(0), copy: Cell::new(0), pins: AtomicU32::new(0) }
    }
}

/// A range of one page, and what `CopyOnWrite` keeps for it. Slots live as long as this.
struct Range {
    bytes: Cell,
    current: CurrentEpoch<EpochSlot>,
    slots: [EpochSlot; 2],
}

impl Range {
    /// After the first cut.
    fn new() -> Arc<Self> {
        let range =
            Self { bytes: Cell::new(OLD), current: CurrentEpoch::none(), slots: [EpochSlot::new(), EpochSlot::new()] };
        // It must not move once a slot has been set.
        let range = Arc::new(range);
        range.current.set(&range.slots[0]);
        range
    }

    /// `CopyOnWrite::copy_page`, which `CopyOnWrite::copy_ahead` comes to as well.
    fn copy_page(&self, slot: &EpochSlot) {
        let copy = || {
            slot.copy.store(self.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
            Some(0)
        };
        if !copy_state::save(&slot.word, copy, || self.current.is_newest(slot)) {
            while copy_state::load(&slot.word) == CopyState::Copying {
                thread::yield_now();
            }
        }
    }

    /// The copier thread.
    fn copy_ahead(&self) {
        // SAFETY: slots live as long as the range.
        unsafe { self.current.with_pinned(|slot| self.copy_page(slot)) };
    }

    /// `CopyOnWrite::first_write`, then the write.
    fn write(&self, value: u32) {
        self.copy_ahead();
        copy_state::before_change();
        self.bytes.store(value, Ordering::Relaxed);
    }

    /// `EpochChain::read_from`: a view of the epoch `from` where `to` epochs have begun.
    fn read(&self, from: usize, to: usize) -> u32 {
        let (seen, slots) = (std::cell::Cell::new(None), &self.slots[from..to]);
        let held = |_| {
            let slot = slots.iter().find(|slot| matches!(copy_state::load(&slot.word), CopyState::Held(_))).unwrap();
            seen.set(Some(slot.copy.load(Ordering::Relaxed)));
        };
        let live = || seen.set(Some(self.bytes.load(Ordering::Relaxed)));
        copy_state::read(slots.iter().map(|slot| &slot.word), held, live).unwrap();
        seen.get().unwrap()
    }
}

/// Explores with so many preemptions at most, where all of them would take too long.
fn bounded(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(run);
}

#[test]
fn a_view_never_shows_a_write_that_came_after_its_cut() {
    bounded(3, || {
        let range = Range::new();
        let writers = [NEW, NEW + 1].map(|value| {
            let range = Arc::clone(&range);
            thread::spawn(move || range.write(value))
        });
        assert_eq!(range.read(0, 1), OLD);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert_eq!(range.read(0, 1), OLD);
        assert_ne!(range.bytes.load(Ordering::Relaxed), OLD);
    });
}

#[test]
fn a_page_is_copied_by_one_thread_only() {
    loom::model(|| {
        let (word, copies) = (Arc::new(AtomicU32::new(0)), Arc::new(Cell::new(0)));
        let copiers: Vec<_> = (0..2)
            .map(|_| {
                let (word, copies) = (Arc::clone(&word), Arc::clone(&copies));
                let copy = move || Some(copies.fetch_add(1, Ordering::Relaxed));
                thread::spawn(move || copy_state::save(&word, copy, || true))
            })
            .collect();
        let done = copiers.into_iter().map(|copier| copier.join().unwrap()).filter(|&is_done| is_done).count();
        assert!(done >= 1);
        assert_eq!(copies.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_view_never_shows_a_copy_that_a_cut_has_overtaken() {
    loom::model(|| {
        let range = Range::new();
        let copier = {
            let range = Arc::clone(&range);
            thread::spawn(move || range.copy_ahead())
        };
        // Writers hold still: a cut is made.
        range.current.set(&range.slots[1]);
        range.write(NEW);
        assert_eq!(range.read(0, 2), OLD);
        copier.join().unwrap();
        assert_eq!((range.read(0, 2), range.read(1, 2)), (OLD, OLD));
    });
}

/// A slot whose content races if it is reset while a thread has it pinned.
struct Guarded(AtomicU32, loom::cell::UnsafeCell<u32>);

// SAFETY: loom fails the test if the cell is used by two threads at once.
unsafe impl Sync for Guarded {}

impl PinCount for Guarded {
    fn pins(&self) -> &AtomicU32 {
        &self.0
    }
}

#[test]
fn a_slot_is_not_reset_while_a_writer_has_it_pinned() {
    loom::model(|| {
        let slot = Arc::new(Guarded(AtomicU32::new(0), loom::cell::UnsafeCell::new(0)));
        let current = Arc::new(CurrentEpoch::none());
        current.set(&*slot);
        let writer = {
            let (current, _slot) = (Arc::clone(&current), Arc::clone(&slot));
            // SAFETY: the slot lives as long as this thread.
            thread::spawn(move || unsafe { current.with_pinned(|slot: &Guarded| slot.1.with_mut(|at| *at += 1)) })
        };
        current.retire(&*slot);
        // SAFETY: loom fails the test if this races.
        slot.1.with_mut(|at| unsafe { *at = 0 });
        writer.join().unwrap();
    });
}

/// The fault handler of uffd against its cut: the page is protected when the cut is over, unless it has a copy for the new epoch.
#[test]
fn a_page_that_a_cut_has_protected_is_not_unprotected_for_the_epoch_before() {
    loom::model(|| {
        let lock = Arc::new(ProtectionLock::default());
        let (epoch, unprotected_in) = (Arc::new(Cell::new(1)), Arc::new(Cell::new(0)));
        let handler = {
            let (lock, epoch, unprotected_in) = (Arc::clone(&lock), Arc::clone(&epoch), Arc::clone(&unprotected_in));
            thread::spawn(move || {
                let _unprotecting = lock.unprotecting();
                let served = epoch.load(Ordering::Relaxed);
                unprotected_in.store(served, Ordering::Relaxed);
            })
        };
        {
            let _protecting = lock.protecting();
            epoch.store(2, Ordering::Relaxed);
            // Protecting: every page that was unprotected before is protected again.
            unprotected_in.store(0, Ordering::Relaxed);
        }
        assert_ne!(unprotected_in.load(Ordering::Relaxed), 1);
        handler.join().unwrap();
        assert_ne!(unprotected_in.load(Ordering::Relaxed), 1, "unprotected for an epoch that was over");
    });
}
