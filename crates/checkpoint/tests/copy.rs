//! A copy of an image and its deltas is whole, or there is no image.

use std::cell::Cell;
use std::sync::Arc;

use quire_checkpoint::{CopyError, CopyOptions, ImageChain, ImageError, copy_chain};
use quire_device::{FaultInjector, FaultTrigger, InjectedFault, MemoryDirectory, PowerCut, errno};

use crate::common::*;

const PAGE: usize = 4096;

/// An image and two deltas over it.
fn source() -> (MemoryDirectory, Pages) {
    let memory = MemoryDirectory::new();
    let mut world = World::varied(700);
    world.track();
    let mut links = world.begin_chain(&memory, 1).unwrap();
    (0..40).for_each(|page| world.write(page * 3, 2));
    world.save_delta(&memory, &mut links, 2).unwrap();
    (0..40).for_each(|page| world.write(page * 5, 3));
    world.save_delta(&memory, &mut links, 3).unwrap();
    (memory, world.model)
}

fn copy(from: &MemoryDirectory, to: &dyn quire_device::Directory) -> Result<(), CopyError> {
    copy_chain(from, NAME, to, CopyOptions::default(), |_, _| {}).map(drop)
}

#[test]
fn a_copy_has_the_same_bytes_and_tells_how_far_it_is() {
    let (memory, model) = source();
    let target = MemoryDirectory::new();
    let mut last = (0, 0);
    let summary = copy_chain(&memory, NAME, &target, CopyOptions::default(), |done, total| {
        assert!(done > last.0 && done <= total);
        last = (done, total);
    });
    let summary = summary.unwrap();
    assert_eq!((summary.files, summary.bytes * 2, last.0), (3, last.1, last.1));
    assert_eq!(names(&target), names(&memory));
    for name in names(&memory) {
        assert!(target.bytes(&name) == memory.bytes(&name), "{name}");
    }
    let (epoch, pages) = chain(&target);
    assert_eq!(epoch, 3);
    assert_same(&pages, &model);
    let before = target.bytes(NAME);
    assert!(matches!(copy(&memory, &target), Err(CopyError::Exists { .. })));
    assert!(target.bytes(NAME) == before);
    let occupied = MemoryDirectory::with_file(&format!("{NAME}.delta-7"), b"x");
    assert!(matches!(copy(&memory, &occupied), Err(CopyError::Leftover { .. })));
    assert!(matches!(copy(&MemoryDirectory::new(), &target), Err(CopyError::Source(ImageError::Missing { .. }))));
}

#[test]
fn damage_anywhere_is_found_before_a_name_is_given() {
    let (memory, _) = source();
    for name in names(&memory) {
        let bytes = memory.bytes(&name).unwrap();
        for at in (0..bytes.len()).step_by(bytes.len() / 23).filter(|at| bytes[*at] != 0) {
            let damaged = MemoryDirectory::new();
            names(&memory).iter().for_each(|other| damaged.put(other, &memory.bytes(other).unwrap()));
            let mut flipped = bytes.clone();
            flipped[at] ^= 4;
            damaged.put(&name, &flipped);
            let target = MemoryDirectory::new();
            assert!(copy(&damaged, &target).is_err(), "{name} at page {}", at / PAGE);
            assert_eq!(names(&target), Vec::<String>::new());
        }
    }
}

#[test]
fn a_copy_that_is_cancelled_leaves_nothing_however_far_it_is() {
    let (memory, _) = source();
    let (mut cancelled, mut while_reading_back) = (0, 0);
    for most in 0.. {
        let (target, asked, done) = (MemoryDirectory::new(), Cell::new(0), Cell::new((0, 0)));
        let is_cancelled = || asked.replace(asked.get() + 1) >= most;
        let options = CopyOptions { is_cancelled: &is_cancelled, ..CopyOptions::default() };
        match copy_chain(&memory, NAME, &target, options, |bytes, total| done.set((bytes, total))) {
            Ok(_) => break,
            Err(CopyError::Cancelled) => {
                assert_eq!(names(&target), Vec::<String>::new());
                cancelled += 1;
                while_reading_back += usize::from(done.get().0 > memory.bytes(NAME).unwrap().len() as u64);
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(cancelled > 8 && while_reading_back > 2, "{cancelled}, {while_reading_back}");
}

#[test]
fn a_copy_that_waits_for_its_rate_can_be_cancelled() {
    let (memory, _) = source();
    let (target, asked, done) = (MemoryDirectory::new(), Cell::new(0), Cell::new(0));
    let is_cancelled = || asked.replace(asked.get() + 1) >= 3;
    // After the first piece the next one is an hour away.
    let options = CopyOptions { max_bytes_per_s: 1, is_cancelled: &is_cancelled };
    let result = copy_chain(&memory, NAME, &target, options, |bytes, _| done.set(bytes));
    assert!(matches!(result, Err(CopyError::Cancelled)), "{result:?}");
    assert!(asked.get() == 4 && done.get() > 0 && done.get() <= 2 << 20, "{} {}", asked.get(), done.get());
    assert_eq!(names(&target), Vec::<String>::new());
}

#[test]
fn a_disk_that_is_full_or_fails_leaves_nothing() {
    let (memory, _) = source();
    for error in [errno::ENOSPC, errno::EIO] {
        for beyond in [0, 100_000, 2_500_000] {
            let target = MemoryDirectory::new();
            let rules = vec![(FaultTrigger::Beyond(beyond), InjectedFault::Error(error))];
            let faulty = FaultInjector::new(Arc::new(target.clone()), rules);
            assert!(matches!(copy(&memory, &faulty), Err(CopyError::Target(_))), "{beyond}");
            assert_eq!(names(&target), Vec::<String>::new());
        }
    }
}

#[test]
fn whenever_the_power_goes_there_is_the_whole_chain_or_no_image() {
    let (memory, model) = source();
    let whole = MemoryDirectory::new();
    copy(&memory, &whole).unwrap();
    let (mut none, mut all) = (0, 0);
    for step in 0..=whole.steps() {
        let target = MemoryDirectory::new();
        target.power_off_at(step);
        let result = copy(&memory, &target);
        for cut in [PowerCut::LoseAll, PowerCut::KeepAll].into_iter().chain((0..12).map(PowerCut::KeepSome)) {
            let found = target.after_power_cut(cut);
            match ImageChain::open(&found, NAME) {
                Ok(_) => {
                    let (epoch, pages) = chain(&found);
                    assert_eq!(epoch, 3, "an image without its deltas at step {step}, {cut:?}");
                    assert_same(&pages, &model);
                    all += 1;
                }
                Err(ImageError::Missing { .. } | ImageError::WrongBase { .. }) => {
                    assert!(result.is_err(), "a copy that ended well was lost at step {step}, {cut:?}");
                    none += 1;
                }
                Err(error) => panic!("step {step}, {cut:?}: {error}"),
            }
        }
    }
    assert!(none > 30 && all > 10, "{none} without, {all} with");
}
