//! What is particular to `uffd`; the semantics that all mechanisms share are in `tests/suite.rs`.
//!
//! Relies on userfaultfd; where it is forbidden the tests say so and do nothing.

use super::*;
use crate::mechanism::Precopy;

fn origin(len: usize, options: Options) -> Option<Uffd> {
    match Uffd::new(Span::allocate(len).unwrap(), &options, None) {
        Ok(origin) => Some(origin),
        Err(refusal @ Refused::Unsupported { .. }) => {
            eprintln!("skipped: {refusal}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn write(origin: &Uffd, offset: usize, value: u8) {
    // SAFETY: inside the span, which these tests alone write.
    unsafe { origin.base().add(offset).write_volatile(value) };
}

fn byte(view: &Arc<dyn View>, offset: usize) -> u8 {
    let mut byte = [0];
    view.read(offset, &mut byte).unwrap();
    byte[0]
}

const QUIET: Options = Options {
    region_bytes: 2 << 20,
    precopy: Precopy::None,
    background: false,
    precopy_bytes_per_second: 0,
    budget_bytes: None,
    keep_bytes: 0,
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
    let Some(origin) = origin(4 << 20, Options { precopy: Precopy::Threshold(80), ..QUIET }) else { return };
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
    // SAFETY: this test's memory; nobody else uses these bytes during the calls.
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
    origin.settle();
    if origin.0.refusals.load(Ordering::Relaxed) == 0 {
        assert_eq!(origin.stats().rejoined_regions, before + 4);
    }
    let view = origin.cut().unwrap();
    write(&origin, 4096, 3);
    assert_eq!((byte(&view, 4096), byte(&view, 0)), (1, 2));
}

#[test]
fn the_keeper_copies_ahead_what_was_written_before() {
    let options =
        Options { precopy: Precopy::Threshold(80), background: true, precopy_bytes_per_second: 1 << 40, ..QUIET };
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
    let span = origin.0.core.span.clone();
    write(&origin, 0, 1);
    let view = origin.cut().unwrap();
    drop(origin);
    // SAFETY: the span keeps the memory mapped.
    unsafe { span.base().write_volatile(2) };
    assert_eq!(byte(&view, 0), 1);
    drop(view);
    // SAFETY: as above.
    unsafe { span.base().add(4096).write_volatile(2) };
}
