//! Edges: bounds, system calls, holes, short-lived threads, figures.

use std::io::Read;

use quire_snapshot::{Mechanism, OriginOptions, PAGE_SIZE, Precopy, ViewError};

use crate::common::attach_or_skip;
use crate::common::memory::{KINDS, Kind, Memory, read, write};

pub fn reads_outside_a_view_and_announcements_outside_the_range_are_refused(mechanism: Mechanism) {
    let memory = Memory::new(Kind::Borrowed, 1);
    let Some(origin) = attach_or_skip(mechanism, memory.span(), &OriginOptions::default()) else { return };
    let view = origin.cut().unwrap();
    let mut two = [0; 2];
    view.read(PAGE_SIZE - 2, &mut two).unwrap();
    view.read(PAGE_SIZE, &mut []).unwrap();
    for offset in [PAGE_SIZE - 1, PAGE_SIZE, usize::MAX] {
        assert!(matches!(view.read(offset, &mut two), Err(ViewError::Range { .. })), "offset {offset}");
    }
    origin.prepare_write(PAGE_SIZE..PAGE_SIZE);
    let beyond = std::panic::AssertUnwindSafe(|| origin.prepare_write(PAGE_SIZE - 1..PAGE_SIZE + 1));
    assert!(std::panic::catch_unwind(beyond).is_err());
}

pub fn a_system_call_may_write_where_it_was_announced(mechanism: Mechanism) {
    for kind in KINDS {
        let memory = Memory::new(kind, 64);
        let Some(origin) = attach_or_skip(mechanism, memory.span(), &OriginOptions::default()) else { return };
        origin.prepare_write(0..origin.len());
        write(origin.base(), 0, &vec![1; origin.len()]);
        let view = origin.cut().unwrap();
        origin.prepare_write(100..100 + 5 * PAGE_SIZE);
        let target = origin.base().wrapping_add(100);
        // SAFETY: inside the range, and this thread alone uses it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(target, 5 * PAGE_SIZE) };
        // The kernel writes the bytes.
        std::fs::File::open("/dev/zero").unwrap().read_exact(bytes).unwrap();
        let mut shown = vec![0; 7 * PAGE_SIZE];
        view.read(0, &mut shown).unwrap();
        assert!(shown.iter().all(|&byte| byte == 1), "{kind:?}");
        let live = read(origin.base(), 0, 6 * PAGE_SIZE);
        assert_eq!((live[99], live[100], live[5 * PAGE_SIZE + 99], live[5 * PAGE_SIZE + 100]), (1, 0, 0, 1));
    }
}

pub fn a_view_outlives_the_thread_that_cut_it(mechanism: Mechanism) {
    let memory = Memory::new(Kind::Huge, 30);
    let Some(origin) = attach_or_skip(mechanism, memory.span(), &OriginOptions::default()) else { return };
    let view = std::thread::scope(|scope| scope.spawn(|| origin.cut().unwrap()).join().unwrap());
    let writer = || {
        origin.prepare_write(0..PAGE_SIZE);
        write(origin.base(), 0, &[9; PAGE_SIZE]);
    };
    std::thread::scope(|scope| scope.spawn(writer).join().unwrap());
    let mut bytes = [1; PAGE_SIZE];
    view.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; PAGE_SIZE]);
}

pub fn holes_read_as_zero_before_and_after_they_are_written(mechanism: Mechanism) {
    for kind in KINDS {
        let memory = Memory::new(kind, 1100);
        let Some(origin) = attach_or_skip(mechanism, memory.span(), &OriginOptions::default()) else { return };
        let page = |number: usize| number * PAGE_SIZE..(number + 1) * PAGE_SIZE;
        let put = |number: usize, value: u8| {
            origin.prepare_write(page(number));
            write(origin.base(), number * PAGE_SIZE, &[value; PAGE_SIZE]);
        };
        put(700, 1);
        // A hole that was read is still one.
        assert_eq!(read(origin.base(), 9 * PAGE_SIZE, 1), [0]);
        let first = origin.cut().unwrap();
        [3, 9, 700, 1099].into_iter().for_each(|number| put(number, 2));
        let second = origin.cut().unwrap();
        [3, 4, 9].into_iter().for_each(|number| put(number, 3));
        let shown = |view: &dyn quire_snapshot::View| {
            [3, 4, 9, 700, 1098, 1099].map(|number| {
                let mut byte = [7; 3];
                view.read(number * PAGE_SIZE + 4000, &mut byte).unwrap();
                assert_eq!(byte, [byte[0]; 3]);
                byte[0]
            })
        };
        assert_eq!(shown(&*first), [0, 0, 0, 1, 0, 0], "{kind:?}");
        assert_eq!(shown(&*second), [2, 0, 2, 2, 0, 2], "{kind:?}");
        let of_first = first.cut().unwrap();
        drop(first);
        assert_eq!(shown(&*of_first), [0, 0, 0, 1, 0, 0], "{kind:?}");
    }
}

/// The lender of the range gets it back with the last view and the origin: no thread of the mechanism touches it later.
pub fn the_range_may_be_unmapped_as_soon_as_all_is_gone(mechanism: Mechanism) {
    for round in 0..30 {
        let options = OriginOptions { precopy: Precopy::All, keep_bytes: 0, ..OriginOptions::default() };
        let memory = Memory::new(Kind::Borrowed, 2000);
        let Some(origin) = attach_or_skip(mechanism, memory.span(), &options) else { return };
        let put = |value: u8| {
            for page in (0..2000).step_by(100) {
                origin.prepare_write(page * PAGE_SIZE..(page + 1) * PAGE_SIZE);
                write(origin.base(), page * PAGE_SIZE, &[value; PAGE_SIZE]);
            }
        };
        put(1);
        let views = [origin.cut().unwrap(), origin.cut().unwrap()];
        put(2);
        if round % 2 == 0 {
            drop(views);
            drop(origin);
        } else {
            drop(origin);
            drop(views);
        }
        drop(memory);
    }
}

/// Going back to a snapshot: what it shows is read straight into the live range.
pub fn a_view_may_be_read_into_the_range_it_shows(mechanism: Mechanism) {
    for kind in KINDS {
        let memory = Memory::new(kind, 600);
        let Some(origin) = attach_or_skip(mechanism, memory.span(), &OriginOptions::default()) else { return };
        let len = origin.len();
        origin.prepare_write(0..len);
        let before: Vec<u8> = (0..len).map(|offset| (offset / 37) as u8).collect();
        write(origin.base(), 0, &before);
        let view = origin.cut().unwrap();
        origin.prepare_write(0..len / 2);
        write(origin.base(), 0, &vec![0; len / 2]);
        origin.prepare_write(0..len);
        // SAFETY: the range is this test's, whose only thread is in the call.
        view.read(0, unsafe { std::slice::from_raw_parts_mut(origin.base(), len) }).unwrap();
        assert!(read(origin.base(), 0, len) == before, "{kind:?}");
        let mut shown = vec![0; len];
        view.read(0, &mut shown).unwrap();
        assert!(shown == before, "{kind:?}");
    }
}

pub fn figures_add_up(mechanism: Mechanism) {
    let memory = Memory::new(Kind::Huge, 2048);
    let Some(origin) = attach_or_skip(mechanism, memory.span(), &OriginOptions::default()) else { return };
    for round in 0..5u8 {
        let view = origin.cut().unwrap();
        for page in (0..2048).step_by(usize::from(round) + 1) {
            origin.prepare_write(page * PAGE_SIZE..(page + 1) * PAGE_SIZE);
            write(origin.base(), page * PAGE_SIZE, &[round; PAGE_SIZE]);
        }
        let stats = origin.stats();
        assert!(stats.held_bytes_now <= stats.held_bytes_peak, "{stats:?}");
        assert!(view.held_bytes() <= 3 * origin.len(), "{}", view.held_bytes());
    }
    origin.settle();
    let stats = origin.stats();
    assert_eq!(stats.cuts, 5);
    assert!(stats.last_cut_ns > 0);
    assert!(stats.precopied_pages <= stats.copied_pages, "{stats:?}");
    assert!(stats.needed_pages + stats.unneeded_pages <= stats.precopied_pages, "{stats:?}");
    assert!(stats.wait_longest_ns <= stats.wait_total_ns, "{stats:?}");
}
