//! What is particular to `uffd`; the semantics that all mechanisms share are in `tests/suite.rs`.
//!
//! Relies on userfaultfd; where it is forbidden the tests say so and do nothing.

use std::time::{Duration, Instant};

use quire_sys::deny;

use super::*;
use crate::mechanism::Precopy;
use crate::origin::{Origin, View};

/// So long the kernel may refuse huge pages that can be had.
const PATIENCE: Duration = Duration::from_secs(60);

fn origin(len: usize, options: OriginOptions) -> Option<UffdOrigin> {
    match attach(PageRange::allocate(len).unwrap(), &options, None) {
        // Another test's thread may have been in a handler whenever it was looked at.
        Ok(origin) if origin.detector.server.is_some() != options.serve_faults => self::origin(len, options),
        Ok(origin) => Some(origin),
        Err(refusal @ MechanismError::Unsupported { .. }) => {
            quire_sys::testing::skipped(refusal);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn write(origin: &UffdOrigin, offset: usize, value: u8) {
    // SAFETY: inside the span, which these tests alone write.
    unsafe { origin.base().add(offset).write_volatile(value) };
}

fn byte(view: &Arc<dyn View>, offset: usize) -> u8 {
    let mut byte = [0];
    view.read(offset, &mut byte).unwrap();
    byte[0]
}

const QUIET: OriginOptions = OriginOptions {
    region_bytes: 2 << 20,
    precopy: Precopy::None,
    background: false,
    precopy_bytes_per_second: 0,
    budget_bytes: None,
    keep_bytes: 0,
    serve_faults: false,
};

#[test]
fn a_first_write_faults_once_and_the_view_keeps_what_was_there() {
    let Some(origin) = origin(8 << 20, QUIET) else { return };
    write(&origin, 5000, 1);
    let view = origin.cut().unwrap();
    (0..10).for_each(|value| write(&origin, 5000, value + 2));
    assert_eq!((byte(&view, 5000), byte(&view, 0)), (1, 0));
    assert_eq!((origin.stats().faults, origin.stats().copied_pages), (1, 1));
    let second = origin.cut().unwrap();
    write(&origin, 5000, 100);
    write(&origin, 7 << 20, 100);
    assert_eq!([byte(&view, 5000), byte(&second, 5000), byte(&second, 7 << 20)], [1, 11, 0]);
    drop((view, second));
    write(&origin, 5000, 101);
    write(&origin, 100, 101);
    assert_eq!(origin.stats().copied_pages, 3);
}

#[test]
fn a_region_of_high_coverage_is_copied_by_one_fault() {
    let Some(origin) = origin(4 << 20, OriginOptions { precopy: Precopy::Threshold(80), ..QUIET }) else { return };
    let cut_and_write = |pages: usize, value: u8| {
        let view = origin.cut().unwrap();
        (0..pages).for_each(|page| write(&origin, page * PAGE_SIZE, value));
        drop(view);
        origin.stats()
    };
    let first = cut_and_write(512, 1);
    assert_eq!((first.faults, first.precopied_pages), (512, 0));
    let second = cut_and_write(512, 2);
    assert_eq!((second.faults, second.precopied_pages, second.unneeded_pages), (513, 512, 0));
    let third = cut_and_write(256, 3);
    assert_eq!((third.faults, third.precopied_pages, third.unneeded_pages), (514, 1024, 256));
    let fourth = cut_and_write(8, 4);
    assert_eq!((fourth.faults, fourth.precopied_pages), (522, 1024));
}

#[test]
fn a_system_call_writes_into_protected_memory_once_it_was_prepared() {
    use std::os::unix::fs::FileExt;
    let Some(origin) = origin(2 << 20, QUIET) else { return };
    let file = quire_sys::map::memory_file("source", 4096).unwrap();
    let view = origin.cut().unwrap();
    // SAFETY: this test's memory, and only this thread uses these bytes during the calls.
    let target = unsafe { std::slice::from_raw_parts_mut(origin.base(), 4096) };
    assert_eq!(file.read_at(target, 0).unwrap_err().raw_os_error(), Some(libc_efault()));
    origin.prepare_write(0..4096);
    assert_eq!(file.read_at(target, 0).unwrap(), 4096);
    drop(view);
}

/// `EFAULT`, which has no name in the standard library.
fn libc_efault() -> i32 {
    14
}

/// Whether the system makes a huge page now.
fn has_huge_pages() -> bool {
    let alone = PageRange::allocate(2 << 20).unwrap();
    // SAFETY: a range of this test's own.
    unsafe { alone.base().write_volatile(1) };
    advise(alone.base(), alone.len(), MapAdvice::Collapse).is_ok()
}

/// Settles until so many regions were made whole, or the system makes no huge pages. The kernel refuses one while another
/// process looks at its pages, as a child does that another test has forked; the next settling tries again.
fn settle_until_rejoined(origin: &UffdOrigin, regions: u64) {
    let start = Instant::now();
    origin.settle();
    while origin.stats().rejoined_regions < regions && start.elapsed() < PATIENCE {
        if !has_huge_pages() {
            return quire_sys::testing::skipped_even_in_ci("no huge page is to be had here");
        }
        std::thread::yield_now();
        origin.settle();
    }
    assert_eq!(origin.stats().rejoined_regions, regions);
}

#[test]
fn split_huge_pages_are_made_whole_again_when_no_view_lives() {
    let Some(origin) = origin(8 << 20, QUIET) else { return };
    (0..2048).for_each(|page| write(&origin, page * PAGE_SIZE, 1));
    origin.settle();
    let view = origin.cut().unwrap();
    (0..4).for_each(|region| write(&origin, region << 21, 2));
    let before = origin.stats().rejoined_regions;
    origin.settle();
    assert_eq!(origin.stats().rejoined_regions, before, "a view lives");
    drop(view);
    settle_until_rejoined(&origin, before + 4);
    let view = origin.cut().unwrap();
    write(&origin, 4096, 3);
    assert_eq!((byte(&view, 4096), byte(&view, 0)), (1, 2));
}

#[test]
fn the_copier_copies_ahead_what_was_written_before() {
    let options =
        OriginOptions { precopy: Precopy::Threshold(80), background: true, precopy_bytes_per_second: 1 << 40, ..QUIET };
    let Some(origin) = origin(8 << 20, options) else { return };
    drop(origin.cut().unwrap());
    let view = origin.cut().unwrap();
    (0..2048).for_each(|page| write(&origin, page * PAGE_SIZE, 1));
    drop(view);
    origin.settle();
    let before = origin.stats();
    let view = origin.cut().unwrap();
    origin.settle();
    assert_eq!(origin.stats().precopied_pages, before.precopied_pages + 2048);
    (0..2048).for_each(|page| write(&origin, page * PAGE_SIZE, 2));
    assert_eq!(origin.stats().faults, before.faults);
    assert_eq!(byte(&view, 3 << 20), 1);
    drop(view);
    origin.settle();
    assert_eq!(origin.stats().unneeded_pages, 0);
}

#[test]
fn memory_stays_usable_when_the_origin_goes_before_its_view() {
    let Some(origin) = origin(2 << 20, QUIET) else { return };
    let span = origin.detector.engine.cow.span.clone();
    write(&origin, 0, 1);
    let view = origin.cut().unwrap();
    drop(origin);
    // SAFETY: the span keeps the memory mapped.
    unsafe { span.base().write_volatile(2) };
    assert_eq!(byte(&view, 0), 1);
    drop(view);
    // SAFETY: inside the span, which keeps the memory mapped after the view too.
    unsafe { span.base().add(4096).write_volatile(2) };
}

#[test]
fn a_handler_in_flight_across_a_cut_leaves_the_page_protected() {
    let Some(origin) = origin(2 << 20, QUIET) else { return };
    write(&origin, 0, 1);
    let first = origin.cut().unwrap();
    let shared = Arc::clone(&origin.detector);
    let second = std::thread::scope(|scope| {
        // What a handler does, one step after the other:
        let unprotecting = shared.protection.unprotecting();
        let pages = shared.engine.cow.first_write(0);
        let cutter = scope.spawn(|| origin.cut().unwrap());
        while !shared.protection.is_protecting() {
            std::thread::yield_now();
        }
        shared.unprotect(&pages).unwrap();
        drop(unprotecting);
        cutter.join().unwrap()
    });
    write(&origin, 0, 2);
    assert_eq!((byte(&first, 0), byte(&second, 0)), (1, 1));
}

/// Writes all but one page of each region and cuts, after which regions that have holes are to be made huge. Tells the figures,
/// how many refusals came last, and how much of the first region is there.
fn make_holes_huge(regions: usize) -> Option<(u64, u32, Population)> {
    let origin = origin(regions << 21, QUIET)?;
    let all_but_one = |value: u8| {
        let offsets = (0..regions * PAGES_PER_REGION).filter(|page| page % PAGES_PER_REGION != 7);
        offsets.for_each(|page| write(&origin, page * PAGE_SIZE, value));
    };
    // In small pages, as far as the mechanism knows. Some of the pages that are never written are read.
    all_but_one(1);
    // SAFETY: inside the span.
    (0..regions)
        .step_by(2)
        .for_each(|region| assert_eq!(unsafe { origin.base().add((region << 21) + 7 * PAGE_SIZE).read_volatile() }, 0));
    origin.settle();
    let view = origin.cut().unwrap();
    (0..regions).for_each(|region| write(&origin, region << 21, 2));
    drop(view);
    origin.settle();
    let refusals = origin.detector.refusals.load(Ordering::Relaxed);
    Some((origin.stats().rejoined_regions, refusals, origin.detector.population(&(0..PAGES_PER_REGION))))
}

#[test]
fn regions_with_holes_are_made_huge() {
    const REGIONS: usize = 40;
    let start = Instant::now();
    loop {
        if !has_huge_pages() {
            return quire_sys::testing::skipped_even_in_ci("no huge page is to be had here");
        }
        let Some(found) = make_holes_huge(REGIONS) else { return };
        if found.0 >= REGIONS as u64 && found.1 == 0 && found.2 == Population::Full {
            return;
        }
        // A region that the kernel refuses at the moment is left for another epoch.
        assert!(start.elapsed() < PATIENCE, "regions, refusals and the first region: {found:?}");
    }
}

#[test]
fn a_range_that_is_told_to_use_small_pages_is_tried_again_in_each_epoch_and_not_filled() {
    let Some(origin) = origin(64 << 20, QUIET) else { return };
    advise(origin.base(), origin.len(), MapAdvice::NoHuge).unwrap();
    (0..16384).filter(|page| page % 2 == 0 || *page < 512).for_each(|page| write(&origin, page * PAGE_SIZE, 1));
    for _ in 0..2 {
        drop(origin.cut().unwrap());
        origin.settle();
        assert_eq!(origin.stats().rejoined_regions, 0);
        assert!(origin.detector.refusals.load(Ordering::Relaxed) > 0);
    }
    let filled = (0..32).filter(|part| origin.detector.population(&(part * 512..(part + 1) * 512)) == Population::Full);
    assert!(filled.count() <= 2, "more regions were filled than could be made huge");
}

/// Panics on the thread of the mechanism only.
struct Faulty;

// SAFETY: it reads nothing; it panics, which is what the test is about, on a thread that is in no signal handler.
unsafe impl PreimageConsumer for Faulty {
    fn preimage(&self, _: usize, _: *const u8, _: usize) {
        assert_ne!(std::thread::current().name(), Some("quire-copier"), "meant to be seen: the copier panics");
    }
}

#[test]
fn no_thread_waits_for_a_copier_that_has_panicked() {
    let options = OriginOptions { background: true, precopy: Precopy::All, precopy_bytes_per_second: 1 << 40, ..QUIET };
    let origin = match attach(PageRange::allocate(4 << 20).unwrap(), &options, Some(Arc::new(Faulty))) {
        Ok(origin) => origin,
        Err(error) => return quire_sys::testing::skipped(error),
    };
    let write_all = |value: u8| (0..1024).for_each(|page| write(&origin, page * PAGE_SIZE, value));
    for round in 1..4 {
        let view = origin.cut().unwrap();
        // From the second round on the copier comes before the writer, and from its end on there is none.
        if round > 1 {
            origin.settle();
        }
        write_all(round);
        assert!(view.read(0, &mut [0]).is_err());
        drop(view);
        origin.settle();
    }
}

#[test]
fn the_thread_of_the_mechanism_takes_none_of_the_programs_signals() {
    let Some(origin) = origin(2 << 20, OriginOptions { background: true, ..QUIET }) else { return };
    // By then it has run, and has its name.
    origin.settle();
    let mut seen = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path()) {
        let Ok(status) = std::fs::read_to_string(task.join("status")) else { continue };
        if status.starts_with("Name:\tquire-copier\n") {
            let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t")).unwrap();
            let blocked = u64::from_str_radix(line, 16).unwrap();
            // SIGUSR1 and SIGTERM, but not SIGBUS.
            assert_eq!((blocked >> 9 & 1, blocked >> 14 & 1, blocked >> 6 & 1), (1, 1, 0), "{line}");
            seen += 1;
        }
    }
    assert!(seen > 0);
}

#[test]
fn a_writer_whose_page_is_never_opened_ends_the_program_with_a_message() {
    use quire_sys::child::{WaitStatus, fork_by_library};
    use quire_sys::deny::{SyscallFilter, calls};
    /// `UFFDIO_WRITEPROTECT`, and "no memory".
    const REQUEST: u32 = 0xC018_AA06;
    const ENOMEM: i32 = 12;
    const NO_FILTERS: i32 = 77;
    for serve_faults in [false, true] {
        let mut run = || {
            let Some(origin) = origin(2 << 20, OriginOptions { serve_faults, ..QUIET }) else { return NO_FILTERS };
            write(&origin, 0, 1);
            let _view = origin.cut().unwrap();
            let denied = SyscallFilter { call: calls::SYS_ioctl, argument: Some((1, REQUEST)), errno: ENOMEM };
            if deny::deny(denied).is_err() {
                return NO_FILTERS;
            }
            write(&origin, 0, 2);
            1
        };
        // SAFETY: the C library's fork lets the child allocate; the mechanism is made in the child.
        let ending = unsafe { fork_by_library(&mut run) }.unwrap().wait();
        match ending {
            WaitStatus::Exited(NO_FILTERS) => quire_sys::testing::skipped("no seccomp filters, or no userfaultfd"),
            // SIGABRT by the thread that serves, or the default of SIGBUS.
            ending => assert_eq!(ending, WaitStatus::Killed(if serve_faults { 6 } else { 7 })),
        }
    }
}
