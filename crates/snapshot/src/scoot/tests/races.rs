//! Writers that never stop while regions are merged under them: no increment is lost, no system call fails.
//!
//! Relies on counters that only their own thread raises, so that the right sum is known.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quire_rng::SplitMix64;

use super::*;

const WRITERS: usize = 3;

/// Raises counters all over the range until told to stop; returns how often.
fn hammer(base: usize, len: usize, seed: u64, stop: &AtomicBool) -> u64 {
    let (mut rng, mut count) = (SplitMix64::new(seed), 0);
    while !stop.load(Ordering::Relaxed) {
        let offset = rng.index(len / PAGE_SIZE) * PAGE_SIZE + 8 * rng.index(16);
        // SAFETY: aligned, inside the range, and only ever used as an atomic while writers run.
        unsafe { AtomicU64::from_ptr((base + offset) as *mut u64) }.fetch_add(1, Ordering::Relaxed);
        count += 1;
    }
    count
}

fn sum(base: *mut u8, len: usize) -> u64 {
    let words = (0..len).step_by(8);
    // SAFETY: inside the range; writers have ended.
    words.map(|offset| unsafe { base.wrapping_add(offset).cast::<u64>().read_volatile() }).sum()
}

/// Cuts (while writers hold still), lets writers run, drops the view in their midst, lets the merge race with them.
fn races(len: usize, base_shift: usize, time: Duration, setting: Setting) {
    let memory = Reservation::new(len + REGION_SIZE).unwrap();
    memory.commit(0..memory.len()).unwrap();
    // SAFETY: the reservation outlives the origin and its views.
    let span = unsafe { PageRange::borrow(memory.base().wrapping_add(base_shift), len) }.unwrap();
    let options = OriginOptions { precopy: Precopy::All, region_bytes: 64 << 10, ..options(setting) };
    let origin = attach(span, setting, &options);
    let (base, start) = (origin.base() as usize, Instant::now());
    let (mut total, mut rounds) = (0, 0);
    while start.elapsed() < time || rounds < 3 {
        let view = origin.cut().unwrap();
        let stop = AtomicBool::new(false);
        let written: u64 = std::thread::scope(|scope| {
            let stop = &stop;
            let writers: Vec<_> = (0..WRITERS as u64)
                .map(|writer| scope.spawn(move || hammer(base, len, rounds * 10 + writer + 1, stop)))
                .collect();
            std::thread::sleep(Duration::from_millis(2));
            assert_eq!(sum(view.as_ptr().unwrap(), len), total, "the view is as it was at the cut");
            drop(view);
            if setting.userfault {
                origin.settle();
            }
            stop.store(true, Ordering::Relaxed);
            writers.into_iter().map(|writer| writer.join().unwrap()).sum()
        });
        total += written;
        rounds += 1;
        assert_eq!(sum(origin.base(), len), total, "no increment is lost");
    }
    let stats = origin.stats();
    assert_eq!(stats.cuts, rounds);
    assert!(stats.copied_pages > 0 && stats.precopied_pages <= stats.copied_pages);
    assert_eq!(stats.precopied_pages, stats.needed_pages + stats.unneeded_pages);
}

#[test]
fn no_increment_is_lost_to_a_fold() {
    races(3 * REGION_SIZE, 0, Duration::from_secs(2), SETTINGS[0]);
}

#[test]
fn no_increment_is_lost_in_a_range_between_boundaries() {
    races(2 * REGION_SIZE + PAGE_SIZE, 3 * PAGE_SIZE, Duration::from_secs(1), SETTINGS[0]);
}

#[test]
fn no_increment_is_lost_when_cuts_fold() {
    races(2 * REGION_SIZE, 0, Duration::from_millis(500), SETTINGS[1]);
    races(2 * REGION_SIZE, 0, Duration::from_millis(500), SETTINGS[2]);
}

#[test]
fn no_increment_is_lost_while_views_overlap() {
    let len = 2 * REGION_SIZE;
    let origin = origin(len, SETTINGS[0]);
    let base = origin.base() as usize;
    let (mut total, mut views) = (0, std::collections::VecDeque::new());
    for round in 0..20 {
        views.push_back((total, origin.cut().unwrap()));
        if views.len() > 3 {
            views.pop_front();
        }
        let stop = AtomicBool::new(false);
        total += std::thread::scope(|scope| {
            let stop = &stop;
            let writer = scope.spawn(move || hammer(base, len, round + 1, stop));
            std::thread::sleep(Duration::from_millis(15 * (round % 8)));
            stop.store(true, Ordering::Relaxed);
            writer.join().unwrap()
        });
        assert_eq!(sum(origin.base(), len), total);
        for (then, view) in &views {
            assert_eq!(sum(view.as_ptr().unwrap(), len), *then);
        }
    }
}

#[test]
fn a_system_call_that_writes_into_a_folded_region_waits_like_a_store() {
    use std::io::Read;
    let len = 4 * REGION_SIZE;
    let origin = origin(len, SETTINGS[0]);
    let base = origin.base() as usize;
    for _ in 0..10 {
        let view = origin.cut().unwrap();
        (0..len).step_by(PAGE_SIZE).for_each(|offset| put(origin.base(), offset, 1));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut zeroes = std::fs::File::open("/dev/zero").unwrap();
                for _ in 0..4 {
                    // SAFETY: the range is this test's, and only this thread uses it while it runs.
                    let all = unsafe { std::slice::from_raw_parts_mut(base as *mut u8, len) };
                    zeroes.read_exact(all).unwrap();
                }
            });
            drop(view);
            origin.settle();
        });
        assert_eq!(sum(origin.base(), len), 0);
    }
}

#[test]
fn a_range_may_be_written_while_it_is_taken_over() {
    if let Err(reason) = open_userfault() {
        return quire_sys::testing::skipped(reason);
    }
    let len = 4 * REGION_SIZE;
    let memory = Reservation::new(len).unwrap();
    memory.commit(0..len).unwrap();
    let (base, stop) = (memory.base() as usize, AtomicBool::new(false));
    let total: u64 = std::thread::scope(|scope| {
        let stop = &stop;
        let writers: Vec<_> = (0..2).map(|writer| scope.spawn(move || hammer(base, len, writer + 1, stop))).collect();
        std::thread::sleep(Duration::from_millis(5));
        // SAFETY: the reservation outlives the origin.
        let span = unsafe { PageRange::borrow(memory.base(), len) }.unwrap();
        let origin = attach(span, SETTINGS[0], &options(SETTINGS[0]));
        std::thread::sleep(Duration::from_millis(5));
        drop(origin);
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    assert_eq!(sum(memory.base(), len), total);
}
