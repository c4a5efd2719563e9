//! Every interleaving of writer and reader over the page-state protocol, explored by loom.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p quire-snapshot --release --test loom` (`cargo xtask test` does).
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use quire_snapshot::stream::ring::Ring;
use quire_snapshot::stream::words::{self, Number, State};
use quire_snapshot::sync::AtomicU32;

const PAGES: usize = 2;
const OLD: u32 = 10;
const NEW: u32 = 20;

/// Pages and buffers are loom cells: a read beside a write is reported as a race.
struct Memory {
    words: [AtomicU32; PAGES],
    pages: [UnsafeCell<u32>; PAGES],
    buffers: [UnsafeCell<u32>; PAGES],
}

// SAFETY: loom checks every access to the cells for races; that is what the test is for.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

fn memory() -> Arc<Memory> {
    Arc::new(Memory {
        words: std::array::from_fn(|_| AtomicU32::new(0)),
        pages: std::array::from_fn(|_| UnsafeCell::new(OLD)),
        buffers: std::array::from_fn(|_| UnsafeCell::new(0)),
    })
}

fn read(cell: &UnsafeCell<u32>) -> u32 {
    // SAFETY: loom fails the test if this read races.
    cell.with(|at| unsafe { *at })
}

fn write(cell: &UnsafeCell<u32>, value: u32) {
    // SAFETY: loom fails the test if this write races.
    cell.with_mut(|at| unsafe { *at = value });
}

/// The writer's side of `Barrier::keep`, then its write.
fn write_page(memory: &Memory, page: usize, number: Number) {
    loop {
        match words::state(&memory.words[page], number) {
            State::Saved | State::Held(_) => break,
            State::Taken => thread::yield_now(),
            State::Unsaved => {
                write(&memory.buffers[page], read(&memory.pages[page]));
                if words::try_hold(&memory.words[page], number, page as u32).is_ok() {
                    break;
                }
            }
        }
    }
    write(&memory.pages[page], NEW);
}

/// The reader's side: `Snapshot::take`.
fn take_page(memory: &Memory, page: usize, number: Number) -> u32 {
    match words::try_take(&memory.words[page], number) {
        Ok(()) => {
            let content = read(&memory.pages[page]);
            words::finish_take(&memory.words[page], number);
            content
        }
        Err(State::Held(buffer)) => {
            let content = read(&memory.buffers[buffer as usize]);
            words::finish_take(&memory.words[page], number);
            content
        }
        Err(other) => panic!("a page is taken once, but was {other:?}"),
    }
}

#[test]
fn the_reader_sees_the_cut_in_every_interleaving() {
    loom::model(|| {
        let memory = memory();
        let writer = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                for page in 0..PAGES {
                    write_page(&memory, page, Number(1));
                }
            })
        };
        for page in (0..PAGES).rev() {
            assert_eq!(take_page(&memory, page, Number(1)), OLD);
        }
        writer.join().unwrap();
        for page in &memory.pages {
            assert_eq!(read(page), NEW);
        }
    });
}

#[test]
fn a_page_without_content_is_either_taken_or_skipped_never_both() {
    loom::model(|| {
        let memory = memory();
        let writer = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                loop {
                    match words::state(&memory.words[0], Number(3)) {
                        State::Unsaved if words::try_skip(&memory.words[0], Number(3)).is_ok() => {
                            break true;
                        }
                        State::Saved => break false,
                        State::Held(_) => panic!("nobody holds it"),
                        _ => thread::yield_now(),
                    }
                }
            })
        };
        let taken = words::try_take(&memory.words[0], Number(3)).is_ok();
        if taken {
            words::finish_take(&memory.words[0], Number(3));
        }
        assert_ne!(writer.join().unwrap(), taken);
    });
}

#[test]
fn a_freed_buffer_is_never_written_while_it_is_read() {
    loom::model(|| {
        let memory = memory();
        let ring = Arc::new(Ring::new(PAGES as u32));
        let reader = {
            let (memory, ring) = (Arc::clone(&memory), Arc::clone(&ring));
            thread::spawn(move || {
                for buffer in 0..PAGES {
                    assert_eq!(read(&memory.buffers[buffer]), 0);
                    ring.give(buffer as u32);
                }
            })
        };
        for expected in 0..PAGES as u32 {
            let buffer = loop {
                match ring.take() {
                    Some(buffer) => break buffer,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(buffer, expected);
            write(&memory.buffers[buffer as usize], NEW);
        }
        reader.join().unwrap();
    });
}
