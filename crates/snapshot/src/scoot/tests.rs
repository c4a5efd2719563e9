//! Tests of the mechanism as a whole: what views show, which frames are shared, and that merging loses no write.
//!
//! Relies on raw loads and stores, as its users do. Tests that want userfaultfd or frame numbers say so and end early where
//! they aren't to be had.

mod isolation;
mod model;
mod races;

use std::sync::Arc;

use quire_sys::map::{self, MapAdvice};
use quire_sys::mem::Reservation;
use quire_sys::pagemap::Pagemap;

use super::ScootOrigin;
use super::probe::open_userfault;
use crate::mechanism::{OriginOptions, Precopy};
use crate::origin::{Origin, View};
use crate::page::{PAGE_SIZE, REGION_SIZE};
use crate::span::PageRange;

/// With a thread and without, with userfaultfd and without.
#[derive(Clone, Copy, Debug)]
struct Setting {
    background: bool,
    userfault: bool,
}

const SETTINGS: [Setting; 4] = [
    Setting { background: true, userfault: true },
    Setting { background: true, userfault: false },
    Setting { background: false, userfault: true },
    Setting { background: false, userfault: false },
];

fn options(setting: Setting) -> OriginOptions {
    OriginOptions { background: setting.background, precopy: Precopy::None, ..OriginOptions::default() }
}

fn attach(span: PageRange, setting: Setting, options: &OriginOptions) -> ScootOrigin {
    let fault = if setting.userfault { open_userfault().ok() } else { None };
    ScootOrigin::with_userfault(span, options, fault).unwrap()
}

fn origin(len: usize, setting: Setting) -> ScootOrigin {
    attach(PageRange::allocate(len).unwrap(), setting, &options(setting))
}

fn put(base: *mut u8, offset: usize, value: u8) {
    // SAFETY: the tests write inside their ranges only, and use raw accesses alone.
    unsafe { base.wrapping_add(offset).write_volatile(value) };
}

fn get(base: *mut u8, offset: usize) -> u8 {
    // SAFETY: the tests read inside their ranges only, and use raw accesses alone.
    unsafe { base.wrapping_add(offset).read_volatile() }
}

fn seen(view: &dyn View, offset: usize) -> u8 {
    let mut byte = [0];
    view.read(offset, &mut byte).unwrap();
    assert_eq!(get(view.as_ptr().unwrap(), offset), byte[0]);
    byte[0]
}

fn frame(base: *mut u8, offset: usize) -> Option<u64> {
    get(base, offset);
    Pagemap::open(None).unwrap().read(base as usize + offset, 1).unwrap()[0].frame
}

#[test]
fn a_view_shows_the_range_as_it_was_at_its_cut() {
    for setting in SETTINGS {
        let origin = origin(3 * REGION_SIZE + PAGE_SIZE, setting);
        let offsets = [0, 5000, REGION_SIZE - 1, REGION_SIZE, 3 * REGION_SIZE + 4095];
        let mut views: Vec<Arc<dyn View>> = Vec::new();
        for round in 0..6_u8 {
            views.clear();
            if round % 2 == 1 {
                origin.settle();
            }
            offsets.iter().for_each(|&offset| put(origin.base(), offset, round));
            views.push(origin.cut().unwrap());
            offsets.iter().for_each(|&offset| put(origin.base(), offset, 100 + round));
            for &offset in &offsets {
                assert_eq!((seen(&*views[0], offset), get(origin.base(), offset)), (round, 100 + round), "{setting:?}");
            }
        }
        assert_eq!(origin.stats().cuts, 6);
    }
}

#[test]
fn frames_are_shared_until_one_side_is_written() {
    let origin = origin(2 * REGION_SIZE, SETTINGS[0]);
    put(origin.base(), 0, 1);
    if frame(origin.base(), 0).is_none() {
        quire_sys::testing::skipped("frame numbers are for CAP_SYS_ADMIN");
        return;
    }
    for _ in 0..3 {
        let view = origin.cut().unwrap();
        let duplicate = view.as_ptr().unwrap();
        for offset in [0, 9 * PAGE_SIZE, REGION_SIZE + PAGE_SIZE] {
            assert_eq!(frame(origin.base(), offset), frame(duplicate, offset));
        }
        let before = frame(duplicate, 0);
        put(origin.base(), 0, 2);
        assert_ne!(frame(origin.base(), 0), frame(duplicate, 0));
        assert_eq!(frame(duplicate, 0), before);
        put(duplicate, 9 * PAGE_SIZE, 3);
        assert_ne!(frame(origin.base(), 9 * PAGE_SIZE), frame(duplicate, 9 * PAGE_SIZE));
        drop(view);
        origin.settle();
    }
}

#[test]
fn several_views_live_at_once_and_are_dropped_in_any_order() {
    for setting in SETTINGS {
        for drops in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]] {
            let options = OriginOptions { keep_bytes: 0, ..options(setting) };
            let origin = attach(PageRange::allocate(2 * REGION_SIZE).unwrap(), setting, &options);
            let mut views: Vec<Option<Arc<dyn View>>> = Vec::new();
            for value in 0..4_u8 {
                put(origin.base(), 7, value);
                put(origin.base(), REGION_SIZE + usize::from(value) * PAGE_SIZE, 50 + value);
                views.push(Some(origin.cut().unwrap()));
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            put(origin.base(), 7, 9);
            for drop in drops {
                for (value, view) in views.iter().enumerate() {
                    let Some(view) = view else { continue };
                    assert_eq!(usize::from(seen(&**view, 7)), value);
                    for other in 0..4 {
                        let shown = seen(&**view, REGION_SIZE + other * PAGE_SIZE);
                        assert_eq!(usize::from(shown), if other <= value { 50 + other } else { 0 });
                    }
                }
                views[drop] = None;
            }
            origin.settle();
            assert_eq!(get(origin.base(), 7), 9);
            if setting.userfault && open_userfault().is_ok() {
                assert_eq!(origin.stats().held_bytes_now, 0, "{setting:?}");
            }
        }
    }
}

#[test]
fn a_view_of_a_view_is_independent_of_both() {
    for setting in SETTINGS {
        let origin = origin(REGION_SIZE + 2 * PAGE_SIZE, setting);
        put(origin.base(), 0, 1);
        let first = origin.cut().unwrap();
        put(first.as_ptr().unwrap(), PAGE_SIZE, 2);
        let second = first.cut().unwrap();
        put(first.as_ptr().unwrap(), PAGE_SIZE, 3);
        put(second.as_ptr().unwrap(), 0, 4);
        assert_eq!((seen(&*second, 0), seen(&*second, PAGE_SIZE)), (4, 2));
        assert_eq!((seen(&*first, 0), seen(&*first, PAGE_SIZE)), (1, 3));
        assert_eq!((get(origin.base(), 0), get(origin.base(), PAGE_SIZE)), (1, 0));
        drop(first);
        drop(origin);
        assert_eq!((seen(&*second, 0), seen(&*second, PAGE_SIZE)), (4, 2));
    }
}

#[test]
fn what_was_there_before_the_origin_is_there_with_it_and_after_it() {
    for setting in SETTINGS {
        let memory = Reservation::new(4 * REGION_SIZE).unwrap();
        memory.commit(0..memory.len()).unwrap();
        // Neither end of the range is at a boundary of huge pages; one region has no page at all.
        let base = memory.base().wrapping_add(3 * PAGE_SIZE);
        let len = 3 * REGION_SIZE - 5 * PAGE_SIZE;
        let last = len - 1;
        [0, REGION_SIZE, last].into_iter().for_each(|offset| put(base, offset, 5));
        // SAFETY: the reservation outlives the origin and its views.
        let span = || unsafe { PageRange::borrow(base, len) }.unwrap();
        let first = attach(span(), setting, &options(setting));
        assert_eq!([0, 1, REGION_SIZE, last].map(|offset| get(base, offset)), [5, 0, 5, 5]);
        put(base, REGION_SIZE, 6);
        let view = first.cut().unwrap();
        put(base, last, 7);
        drop(first);
        put(base, last, 8);
        assert_eq!((seen(&*view, REGION_SIZE), seen(&*view, last)), (6, 5));
        drop(view);
        assert_eq!((get(base, 0), get(base, REGION_SIZE), get(base, last)), (5, 6, 8));
        let mut words = Pagemap::open(None).unwrap().read(base as usize, 1).unwrap();
        assert!(words.remove(0).file_or_shared, "nothing was copied");
        put(base, 0, 4);
        let own = Pagemap::open(None).unwrap().read(base as usize, 1).unwrap().remove(0);
        assert!(!own.file_or_shared, "and writes are the range's own, as before");
        put(base, 0, 5);
        // Memory that has had an origin can have another one.
        let second = attach(span(), setting, &options(setting));
        assert_eq!((get(base, 0), get(base, REGION_SIZE), get(base, last)), (5, 6, 8));
        let view = second.cut().unwrap();
        put(base, last, 9);
        assert_eq!(seen(&*view, last), 8);
    }
}

#[test]
fn holes_stay_holes() {
    for setting in SETTINGS {
        let origin = origin(8 * REGION_SIZE, setting);
        put(origin.base(), REGION_SIZE, 1);
        let view = origin.cut().unwrap();
        put(origin.base(), 2 * REGION_SIZE, 1);
        drop(view);
        origin.settle();
        let state = &origin.state;
        let home = state.lock().regions.region(5).home;
        assert!(state.backing.filled(home, 5).unwrap().is_empty());
        assert_eq!(
            state.backing.filled(home, 1).unwrap(),
            std::slice::from_ref(&(REGION_SIZE..REGION_SIZE + PAGE_SIZE))
        );
    }
}

#[test]
fn regions_that_fill_up_get_huge_pages() {
    let origin = origin(2 * REGION_SIZE, SETTINGS[0]);
    (0..REGION_SIZE).step_by(PAGE_SIZE).for_each(|offset| put(origin.base(), offset, 1));
    put(origin.base(), REGION_SIZE, 1);
    origin.settle();
    let mappings = origin.state.lock();
    let huge = |region: usize| mappings.regions.region(region).huge[0];
    if !huge(0) {
        quire_sys::testing::skipped_even_in_ci("no huge page was to be had for a file in memory");
    }
    assert!(!huge(1), "one page is not worth a huge one");
}

#[test]
fn pages_of_two_generations_and_of_holes_keep_apart() {
    // Views overlap without end, so regions move from generation to generation.
    for userfault in [true, false] {
        let setting = Setting { background: true, userfault };
        let options = OriginOptions { keep_bytes: 0, ..options(setting) };
        let origin = attach(PageRange::allocate(3 * REGION_SIZE).unwrap(), setting, &options);
        let mut views: Vec<(u8, Arc<dyn View>)> = Vec::new();
        for round in 1..40_u8 {
            put(origin.base(), usize::from(round) * PAGE_SIZE, round);
            put(origin.base(), REGION_SIZE, round);
            views.push((round, origin.cut().unwrap()));
            put(origin.base(), REGION_SIZE + PAGE_SIZE, round);
            if views.len() > 2 {
                views.remove(0);
            }
            std::thread::sleep(std::time::Duration::from_millis(u64::from(round) % 4 * 30));
            for (cut, view) in &views {
                assert_eq!((seen(&**view, REGION_SIZE), seen(&**view, REGION_SIZE + PAGE_SIZE)), (*cut, cut - 1));
                for page in 1..40_u8 {
                    let expected = if page <= *cut { page } else { 0 };
                    assert_eq!(seen(&**view, usize::from(page) * PAGE_SIZE), expected, "page {page}, cut {cut}");
                }
            }
        }
        if userfault && open_userfault().is_ok() {
            let homes = origin.state.lock().regions.homes();
            assert!(homes[..2].iter().any(|home| home.0 > 0) || origin.stats().held_bytes_peak > 0);
        }
        views.clear();
        origin.settle();
        let spare = origin.state.lock().regions.spare();
        assert_eq!(spare, (0, 0));
    }
}

#[test]
fn a_region_that_the_program_has_split_into_mappings_is_merged_by_the_next_cut() {
    let origin = origin(3 * REGION_SIZE, SETTINGS[2]);
    for round in 1..4 {
        let view = origin.cut().unwrap();
        put(origin.base(), REGION_SIZE + 100, round);
        put(origin.base(), 2 * REGION_SIZE, round);
        let inside = origin.base().wrapping_add(REGION_SIZE + 16 * PAGE_SIZE);
        map::advise(inside, 16 * PAGE_SIZE, MapAdvice::NoHuge).unwrap();
        put(inside, 0, round);
        drop(view);
        origin.settle();
        if open_userfault().is_ok() {
            let mappings = origin.state.lock();
            let sharings = [0, 1, 2].map(|region| mappings.regions.region(region).is_mergeable());
            assert_eq!(sharings, [false, true, false]);
        }
        assert_eq!((get(origin.base(), REGION_SIZE + 100), get(inside, 0)), (round, round));
    }
    let view = origin.cut().unwrap();
    assert_eq!((seen(&*view, REGION_SIZE + 100), seen(&*view, 2 * REGION_SIZE)), (3, 3));
}

#[test]
fn the_address_space_stays_in_few_mappings() {
    let origin = origin(40 * REGION_SIZE, SETTINGS[0]);
    for round in 0..3 {
        let view = origin.cut().unwrap();
        (0..40).filter(|region| region % 3 > 0).for_each(|region| put(origin.base(), region * REGION_SIZE, round));
        drop(view);
        origin.settle();
    }
    let (base, mut count) = (origin.base() as usize, 0);
    quire_sys::proc_maps::each(&mut vec![0; quire_sys::proc_maps::BUFFER_BYTES], |mapping| {
        count += usize::from(mapping.end > base && mapping.start < base + origin.len());
        true
    })
    .unwrap();
    if open_userfault().is_ok() {
        assert_eq!(count, 1);
    }
}

#[test]
fn reads_outside_a_view_are_refused() {
    let origin = origin(PAGE_SIZE, SETTINGS[2]);
    let view = origin.cut().unwrap();
    assert!(view.read(1, &mut [0; PAGE_SIZE]).is_err());
    assert_eq!((view.len(), origin.len()), (PAGE_SIZE, PAGE_SIZE));
}

#[test]
fn what_is_held_is_what_was_written_meanwhile() {
    let origin = origin(2 * REGION_SIZE, SETTINGS[2]);
    (0..8).for_each(|page| put(origin.base(), page * PAGE_SIZE, 1));
    let view = origin.cut().unwrap();
    assert_eq!((view.held_bytes(), origin.stats().held_bytes_now), (0, 0));
    (0..5).for_each(|page| put(origin.base(), page * PAGE_SIZE, 2));
    put(view.as_ptr().unwrap(), 7 * PAGE_SIZE, 3);
    assert_eq!((view.held_bytes(), origin.stats().held_bytes_now), (6 * PAGE_SIZE, 5 * PAGE_SIZE as u64));
    drop(view);
    origin.settle();
    let stats = origin.stats();
    assert_eq!(stats.held_bytes_peak, 5 * PAGE_SIZE as u64);
    if open_userfault().is_ok() {
        assert_eq!((stats.held_bytes_now, stats.copied_pages), (0, 5));
    }
}
