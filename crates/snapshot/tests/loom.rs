//! Every interleaving of a writer and a reader over the barrier itself: its page words, its buffers, its ring and its sleep.
//!
//! Relies on the barrier and the snapshot being built from loom's atomics and locks (`src/sync.rs`), and on telling loom of each
//! copy and change of a page (`src/stream/race_detector.rs`), so that a race is found where it arises and not by the bytes that it spoils.
//! A wait that is not ended by the other side is a deadlock to loom: sleeps there have no limit of time.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p quire-snapshot --release --test loom` (`cargo xtask test` does).
#![cfg(loom)]

use std::sync::Arc as Plain;

use loom::sync::Arc;
use loom::thread;
use quire_snapshot::stream::page_state::{self, PageState, SnapshotNumber};
use quire_snapshot::stream::ring::Ring;
use quire_snapshot::sync::AtomicU32;
use quire_snapshot::{PAGE_SIZE, Snapshot, TakeOutcome, WriteBarrier, WriteBarrierConfig};
use quire_sys::mem::Reservation;

const OLD: u8 = 10;
const NEW: u8 = 20;

/// Explores every interleaving with at most so many preemptions: all of them are too many.
fn bounded(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// One memory for all interleavings of a model, since making one takes longer than most of them.
fn memory() -> Plain<Reservation> {
    let memory = Reservation::new(1).unwrap();
    memory.commit(0..memory.len()).unwrap();
    Plain::new(memory)
}

/// A barrier before `pages` pages that hold [`OLD`], with `buffers` buffers.
fn barrier(memory: &Plain<Reservation>, pages: usize, buffers: usize) -> WriteBarrier {
    let config = WriteBarrierConfig { budget_bytes: buffers * PAGE_SIZE };
    let mut barrier = WriteBarrier::of_pages(Plain::clone(memory), pages, config).unwrap();
    barrier.mark_present(0..pages as u32);
    (0..pages).for_each(|page| put(&mut barrier, page, OLD));
    barrier
}

fn put(barrier: &mut WriteBarrier, page: usize, value: u8) {
    barrier.write(page * PAGE_SIZE, &[value]).unwrap();
}

/// The page as it was at the cut.
fn take(snapshot: &mut Snapshot, page: u32) -> u8 {
    let mut bytes = vec![0; PAGE_SIZE];
    assert_eq!(snapshot.take(page, &mut bytes), TakeOutcome::Copied);
    bytes[0]
}

#[test]
fn the_reader_sees_the_cut_in_every_interleaving() {
    // With a buffer for each page, and with one for all: then the writer waits for the reader.
    for buffers in [2, 1] {
        let memory = memory();
        bounded(3, move || {
            let mut barrier = barrier(&memory, 2, buffers);
            let mut snapshot = barrier.cut(2).unwrap();
            let writer = thread::spawn(move || {
                put(&mut barrier, 0, NEW);
                put(&mut barrier, 1, NEW);
                barrier
            });
            assert_eq!([1, 0].map(|page| take(&mut snapshot, page)), [OLD; 2]);
            let mut barrier = writer.join().unwrap();
            drop(snapshot);
            assert!(barrier.try_finish());
            let mut now = [0];
            barrier.read(PAGE_SIZE, &mut now).unwrap();
            assert_eq!(now, [NEW]);
        });
    }
}

#[test]
fn a_reader_that_collects_buffers_first_sees_the_cut_and_frees_the_writer() {
    let memory = memory();
    bounded(3, move || {
        let mut barrier = barrier(&memory, 2, 1);
        let mut snapshot = barrier.cut(2).unwrap();
        let writer = thread::spawn(move || (0..2).for_each(|page| put(&mut barrier, page, NEW)));
        let mut bytes = vec![0; PAGE_SIZE];
        let collected = snapshot.next_preimage(&mut bytes);
        assert!(collected.is_none() || bytes[0] == OLD);
        for page in (0..2).filter(|page| Some(*page) != collected) {
            assert_eq!(take(&mut snapshot, page), OLD);
        }
        assert_eq!(snapshot.taken(), 2);
        writer.join().unwrap();
    });
}

#[test]
fn a_writer_that_waits_goes_on_when_the_snapshot_is_dropped() {
    let memory = memory();
    bounded(3, move || {
        let mut barrier = barrier(&memory, 2, 1);
        let snapshot = barrier.cut(2).unwrap();
        let writer = thread::spawn(move || (0..2).for_each(|page| put(&mut barrier, page, NEW)));
        drop(snapshot);
        writer.join().unwrap();
    });
}

#[test]
fn buffers_of_one_snapshot_are_used_again_by_the_next_and_never_while_they_are_read() {
    let memory = memory();
    bounded(2, move || {
        let mut barrier = barrier(&memory, 1, 1);
        let mut first = barrier.cut(1).unwrap();
        let reader = thread::spawn(move || take(&mut first, 0));
        put(&mut barrier, 0, NEW);
        // The first reader may still be at it.
        let mut second = loop {
            match barrier.cut(1) {
                Ok(snapshot) => break snapshot,
                Err(_) => thread::yield_now(),
            }
        };
        let writer = thread::spawn(move || put(&mut barrier, 0, NEW + 1));
        assert_eq!(take(&mut second, 0), NEW);
        writer.join().unwrap();
        assert_eq!(reader.join().unwrap(), OLD);
    });
}

#[test]
fn a_page_that_gets_content_after_the_cut_is_absent_or_empty_in_it() {
    let memory = memory();
    bounded(3, move || {
        let config = WriteBarrierConfig { budget_bytes: PAGE_SIZE };
        let mut barrier = WriteBarrier::of_pages(Plain::clone(&memory), 1, config).unwrap();
        // SAFETY: committed, and no other thread knows of it yet.
        unsafe { *memory.base() = 0 };
        let mut snapshot = barrier.cut(1).unwrap();
        let writer = thread::spawn(move || {
            barrier.mark_present(0..1);
            put(&mut barrier, 0, NEW);
        });
        let mut bytes = vec![0; PAGE_SIZE];
        assert!(snapshot.take(0, &mut bytes) == TakeOutcome::Absent || bytes[0] == 0);
        writer.join().unwrap();
    });
}

#[test]
fn a_snapshot_of_changes_shows_the_cut_and_waits_for_no_other_page() {
    let memory = memory();
    bounded(3, move || {
        let mut barrier = barrier(&memory, 2, 1);
        barrier.track_changes(true).unwrap();
        put(&mut barrier, 1, OLD + 1);
        let mut snapshot = barrier.cut_changes(2).unwrap();
        let writer = thread::spawn(move || {
            // Takes no buffer, of which there is one: the snapshot does not need this page.
            put(&mut barrier, 0, NEW);
            put(&mut barrier, 1, NEW);
            barrier
        });
        assert_eq!(snapshot.take(0, &mut vec![0; PAGE_SIZE]), TakeOutcome::Absent);
        assert_eq!(take(&mut snapshot, 1), OLD + 1);
        let mut barrier = writer.join().unwrap();
        drop(snapshot);
        barrier.settle(true);
        assert_eq!(barrier.changed_pages(), Some(2));
        assert_eq!(barrier.stats().budget_waits, 0);
    });
}

#[test]
fn a_page_without_content_is_either_taken_or_skipped_never_both() {
    loom::model(|| {
        let word = Arc::new(AtomicU32::new(0));
        let writer = {
            let word = Arc::clone(&word);
            thread::spawn(move || {
                loop {
                    match page_state::load(&word, SnapshotNumber(3)) {
                        PageState::Unsaved if page_state::try_skip(&word, SnapshotNumber(3)).is_ok() => break true,
                        PageState::Saved => break false,
                        PageState::Held(_) => panic!("no buffer holds it"),
                        _ => thread::yield_now(),
                    }
                }
            })
        };
        let taken = page_state::try_take(&word, SnapshotNumber(3)).is_ok();
        if taken {
            page_state::finish_take(&word, SnapshotNumber(3));
        }
        assert_ne!(writer.join().unwrap(), taken);
    });
}

#[test]
fn numbers_come_out_of_a_full_ring_in_order() {
    loom::model(|| {
        let ring = Arc::new(Ring::new(2));
        let giver = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || (0..2).for_each(|number| ring.give(number)))
        };
        for expected in 0..2 {
            let number = loop {
                match ring.take() {
                    Some(number) => break number,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(number, expected);
        }
        giver.join().unwrap();
    });
}
