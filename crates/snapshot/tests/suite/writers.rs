//! Threads that write all the time, and views that must not notice.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use quire_rng::SplitMix64;
use quire_snapshot::{Mechanism, OriginOptions, PAGE_SIZE, Precopy};

use crate::common::cells::{Cells, Cut};
use crate::common::memory::{KINDS, Kind, Memory};
use crate::common::{all_options, attach_or_skip};

const WRITERS: usize = 3;

/// Stops the writers when it goes, also when a check has failed.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs writers, a reader of the live memory and a checker, and makes `cuts` cuts, `alive` of which live at once.
fn run(cells: &Cells, cuts: usize, alive: usize, seed: u64) {
    let stopped = AtomicBool::new(false);
    let stop = || stopped.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let guard = Stop(&stopped);
        for writer in 0..WRITERS {
            scope.spawn(move || cells.write_until(writer, WRITERS, seed, &stop));
        }
        scope.spawn(move || {
            let mut rng = SplitMix64::new(seed);
            while !stop() {
                cells.glance(rng.index(cells.count()));
            }
        });
        let (sender, receiver) = mpsc::sync_channel::<Cut>(1);
        let checker = scope.spawn(move || check_as_they_come(&receiver, alive, seed));
        for number in 0..cuts {
            if sender.send(cells.cut()).is_err() {
                break;
            }
            if number % 3 == 0 {
                cells.origin().settle();
            }
        }
        drop(sender);
        checker.join().unwrap();
        drop(guard);
    });
    cells.check();
}

/// Checks some of each cut at once and all of it after `alive` others have come; drops them in random order.
fn check_as_they_come(cuts: &mpsc::Receiver<Cut>, alive: usize, seed: u64) {
    let mut rng = SplitMix64::new(seed ^ 77);
    let mut held: Vec<Cut> = Vec::new();
    for cut in cuts {
        cut.check(rng.index(16), 17);
        if rng.below(4) == 0 {
            held.push(cut.again());
        }
        held.push(cut);
        while held.len() > alive {
            let gone = held.swap_remove(rng.index(held.len()));
            gone.check(0, 1);
        }
    }
    for cut in held {
        cut.check(0, 1);
    }
}

pub fn views_show_the_cut_while_several_threads_write_the_same_pages(mechanism: Mechanism) {
    for (number, kind) in KINDS.into_iter().enumerate() {
        let memory = Memory::new(kind, 1100);
        let Some(origin) = attach_or_skip(mechanism, memory.span(), &OriginOptions::default()) else { return };
        run(&Cells::new(origin), 10, 4, number as u64);
    }
}

pub fn views_show_the_cut_under_every_option(mechanism: Mechanism) {
    let mut options = all_options();
    options.push(OriginOptions { precopy: Precopy::Threshold(0), keep_bytes: 0, ..OriginOptions::default() });
    options.push(OriginOptions {
        precopy: Precopy::Threshold(100),
        precopy_bytes_per_second: 1 << 20,
        ..OriginOptions::default()
    });
    if matches!(mechanism, Mechanism::MmapCopy | Mechanism::Fork | Mechanism::Memcpy) {
        options.truncate(1);
    }
    for (number, options) in options.into_iter().enumerate() {
        let memory = Memory::new(if number % 2 == 0 { Kind::Huge } else { Kind::Borrowed }, 700);
        let Some(origin) = attach_or_skip(mechanism, memory.span(), &options) else { return };
        println!("{options:?}");
        run(&Cells::new(origin), 5, 2, number as u64);
    }
}

pub fn several_threads_read_and_cut_one_view(mechanism: Mechanism) {
    let memory = Memory::new(Kind::Huge, 600);
    let Some(origin) = attach_or_skip(mechanism, memory.span(), &OriginOptions::default()) else { return };
    let cells = Cells::new(origin);
    for cell in (0..cells.count()).step_by(3) {
        cells.bump(cell, true);
    }
    let cut = cells.cut();
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let cut = &cut;
            scope.spawn(move || {
                for round in 0..3 {
                    cut.check((reader + round) % 5, 5);
                    let again = cut.again();
                    again.check(reader, 7);
                    drop(again);
                }
            });
        }
        for round in 0..4 {
            for cell in (round..cells.count()).step_by(5) {
                cells.bump(cell, false);
            }
        }
    });
    cut.check(0, 1);
    cells.check();
    assert_eq!(cut.view.len(), 600 * PAGE_SIZE);
}
