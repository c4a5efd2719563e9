//! Every interleaving of writers, readers, the copier and cuts over the words of pages, explored by loom: over the very code that the
//! mechanisms run (`copy_protocol`, `copy_state`, `current_epoch`, `protection_lock`), with pages of one word in the place of memory.
//!
//! Two things are the test's own, for what the mechanisms do there is locks and system calls. A cut sets the newest epoch as
//! `CopyOnWrite::open` does, without the lock of the chain, under which the epoch is added; `preimage/epoch_chain.rs` and `tests/stress.rs`
//! test that. And a word stands for the protection of a page by userfaultfd; `uffd/tests.rs` tests the real one.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p quire-snapshot --release --test loom_preimage` (`cargo xtask test` does).
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::AtomicU32 as Cell;
use loom::thread;
use quire_snapshot::copy_protocol::{CopyAttempt, CopyProtocol, PageWords, is_copied};
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

impl PageWords for EpochSlot {
    fn word(&self, _page: usize) -> &AtomicU32 {
        &self.word
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
    /// Writers copy regions whole.
    copies_whole: bool,
}

impl CopyProtocol for Range {
    type Slot = EpochSlot;

    fn current(&self) -> &CurrentEpoch<EpochSlot> {
        &self.current
    }

    fn with_current<T>(&self, then: impl FnOnce(&EpochSlot) -> T) -> Option<T> {
        // SAFETY: `with_pinned` demands that slots which were ever set live: they are fields of the range, which is borrowed.
        unsafe { self.current.with_pinned(then) }
    }

    fn region_pages(&self, _page: usize) -> std::ops::Range<usize> {
        0..1
    }

    fn count_write(&self, _slot: &EpochSlot, _page: usize) -> bool {
        self.copies_whole
    }

    fn copy_claimed(&self, slot: &EpochSlot, _pages: std::ops::Range<usize>, _is_single: bool) -> Option<u32> {
        slot.copy.store(self.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
        Some(0)
    }

    fn await_copy(&self, word: &AtomicU32) {
        while copy_state::load(word) == CopyState::Copying {
            thread::yield_now();
        }
    }

    fn while_unforked(&self, copy: impl FnOnce()) -> CopyAttempt {
        copy();
        CopyAttempt::Made
    }
}

impl Range {
    /// After the first cut.
    fn new(copies_whole: bool) -> Arc<Self> {
        let slots = [EpochSlot::new(), EpochSlot::new()];
        let range = Self { bytes: Cell::new(OLD), current: CurrentEpoch::none(), slots, copies_whole };
        // It must not move once a slot has been set.
        let range = Arc::new(range);
        range.current.set(&range.slots[0]);
        range
    }

    fn write(&self, value: u32) {
        self.first_write(0);
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
        copy_state::read(slots.iter().map(|slot| slot.word(0)), held, live).unwrap();
        seen.get().unwrap()
    }
}

/// Explores with so many preemptions at most, where all of them would take too long.
fn bounded(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(run);
}

/// Two writers and a reader of one view.
fn check_writers_and_a_view(copies_whole: bool) {
    bounded(3, move || {
        let range = Range::new(copies_whole);
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
fn a_view_never_shows_a_write_that_came_after_its_cut() {
    check_writers_and_a_view(false);
}

#[test]
fn a_view_never_shows_a_write_that_came_after_its_cut_where_writers_copy_regions() {
    check_writers_and_a_view(true);
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
        let range = Range::new(false);
        let copier = {
            let range = Arc::clone(&range);
            thread::spawn(move || range.copy_ahead(0..1))
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

/// The fault handler of uffd against its cut: a page that may be written when both are over has a copy for the new epoch.
#[test]
fn a_page_that_a_cut_has_protected_is_not_unprotected_for_the_epoch_before() {
    bounded(3, || {
        let (lock, range, unprotected) =
            (Arc::new(ProtectionLock::default()), Range::new(false), Arc::new(Cell::new(0)));
        let handler = {
            let (lock, range, unprotected) = (Arc::clone(&lock), Arc::clone(&range), Arc::clone(&unprotected));
            thread::spawn(move || {
                let _unprotecting = lock.unprotecting();
                range.first_write(0);
                unprotected.store(1, Ordering::SeqCst);
            })
        };
        {
            let _protecting = lock.protecting();
            range.current.set(&range.slots[1]);
            unprotected.store(0, Ordering::SeqCst);
        }
        let is_safe = || unprotected.load(Ordering::SeqCst) == 0 || is_copied(&range.slots[1], 0);
        assert!(is_safe());
        handler.join().unwrap();
        assert!(is_safe(), "unprotected for an epoch that was over");
    });
}
