//! Every interleaving of two writers, a reader and a cut over the claims of pages, explored by loom.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p quire-snapshot --release --test loom_keep` (`cargo xtask test` does).
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::AtomicU32 as Cell;
use loom::thread;
use quire_snapshot::claim::{self, State};
use quire_snapshot::sync::{AtomicU32, Ordering, fence};

const OLD: u32 = 10;
const NEW: u32 = 20;

/// One page of the range, its word, and room for its copy. The bytes are relaxed atomics, as readers may meet writers there.
struct Page {
    word: AtomicU32,
    bytes: Cell,
    copy: Cell,
}

fn page() -> Arc<Page> {
    Arc::new(Page { word: AtomicU32::new(0), bytes: Cell::new(OLD), copy: Cell::new(0) })
}

/// `Core::first_write`, then the write.
fn write(page: &Page, value: u32) {
    loop {
        match claim::claim(&page.word) {
            Ok(()) => {
                page.copy.store(page.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
                claim::publish(&page.word, 0);
                break;
            }
            Err(State::Copying) => thread::yield_now(),
            Err(_) => break,
        }
    }
    claim::before_change();
    page.bytes.store(value, Ordering::Relaxed);
}

/// `KeptView::read_in_page` of the newest view.
fn read(page: &Page) -> u32 {
    loop {
        if let State::Held(_) = claim::state(&page.word) {
            return page.copy.load(Ordering::Relaxed);
        }
        let seen = page.bytes.load(Ordering::Relaxed);
        if claim::still_unsaved(&page.word) {
            return seen;
        }
    }
}

#[test]
fn a_view_never_shows_a_write_that_came_after_its_cut() {
    loom::model(|| {
        let shared = page();
        let writers: Vec<_> = (0..2)
            .map(|number| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || write(&shared, NEW + number))
            })
            .collect();
        assert_eq!(read(&shared), OLD);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert_eq!(read(&shared), OLD);
        assert_ne!(shared.bytes.load(Ordering::Relaxed), OLD);
    });
}

#[test]
fn a_page_is_copied_by_one_thread_only() {
    loom::model(|| {
        let shared = page();
        let copies = Arc::new(Cell::new(0));
        let copiers: Vec<_> = (0..2)
            .map(|_| {
                let (shared, copies) = (Arc::clone(&shared), Arc::clone(&copies));
                thread::spawn(move || {
                    if claim::claim(&shared.word).is_ok() {
                        copies.fetch_add(1, Ordering::Relaxed);
                        claim::publish(&shared.word, 0);
                    }
                })
            })
            .collect();
        copiers.into_iter().for_each(|copier| copier.join().unwrap());
        assert_eq!(copies.load(Ordering::Relaxed), 1);
    });
}

/// `Core::keep`: the keeper is at a page of the first epoch while the second one begins and the page is written.
#[test]
fn a_view_never_shows_a_copy_that_a_cut_has_overtaken() {
    loom::model(|| {
        let (first, second) = (page(), page());
        let current = Arc::new(Cell::new(1));
        let keeper = {
            let (first, second, current) = (Arc::clone(&first), Arc::clone(&second), Arc::clone(&current));
            thread::spawn(move || {
                if claim::claim(&first.word).is_err() {
                    return;
                }
                // The bytes are those of `second`, since it is one page.
                first.copy.store(second.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
                fence(Ordering::Acquire);
                if current.load(Ordering::SeqCst) == 1 {
                    claim::publish(&first.word, 0);
                } else {
                    claim::give_up(&first.word);
                }
            })
        };
        // Writers hold still: a cut is made.
        current.store(2, Ordering::SeqCst);
        write(&second, NEW);
        let old_view = || match claim::state(&first.word) {
            State::Held(_) => first.copy.load(Ordering::Relaxed),
            _ => read(&second),
        };
        assert_eq!(old_view(), OLD);
        keeper.join().unwrap();
        assert_eq!(old_view(), OLD);
    });
}

/// `Core::serve` against `Core::retire`: a slot isn't reset while somebody inside may still write its words.
#[test]
fn a_slot_is_not_reset_while_a_writer_serves_it() {
    loom::model(|| {
        let inside = Arc::new(Cell::new(0));
        let current = Arc::new(Cell::new(1));
        let slot = Arc::new(loom::cell::UnsafeCell::new(0));
        let writer = {
            let (inside, current, slot) = (Arc::clone(&inside), Arc::clone(&current), Arc::clone(&slot));
            thread::spawn(move || {
                if current.load(Ordering::SeqCst) != 1 {
                    return;
                }
                inside.fetch_add(1, Ordering::SeqCst);
                fence(Ordering::SeqCst);
                if current.load(Ordering::SeqCst) == 1 {
                    // SAFETY: loom fails the test if this races.
                    slot.with_mut(|at| unsafe { *at += 1 });
                }
                inside.fetch_sub(1, Ordering::Release);
            })
        };
        current.store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        while inside.load(Ordering::Acquire) != 0 {
            thread::yield_now();
        }
        // SAFETY: loom fails the test if this races.
        slot.with_mut(|at| unsafe { *at = 0 });
        writer.join().unwrap();
    });
}
