//! Whatever fails during a save, the previous image stays, the writer goes on, and the error says what happened.
//!
//! Relies on `FaultInjector`, which fails chosen operations, before a directory in memory or on a disk.

use std::sync::Arc;

use quire_checkpoint::{DumpError, DumpPhase, DumpProgress, Image, ImageError, ImagePart, dump, load, remove_stale};
use quire_device::{
    DeviceOperation, Directory, DiskDirectory, FaultInjector, FaultTrigger, InjectedFault, MemoryDirectory, errno,
};

use crate::common::*;

const PAGES: u32 = 600;

/// An old image of epoch 1 in a memory, and a world that has moved on from it.
fn changed() -> (MemoryDirectory, World, Pages) {
    let memory = MemoryDirectory::new();
    let mut world = World::varied(PAGES);
    world.save(&memory, 1).unwrap();
    let old = world.model.clone();
    for page in 0..PAGES / 2 {
        world.write(page, 99);
    }
    (memory, world, old)
}

/// A second save under `rules`; checks what must hold whatever becomes of it, and returns that and how often a fault struck.
fn save_under(rules: Vec<(FaultTrigger, InjectedFault)>) -> (Result<(), DumpError>, u64) {
    let (memory, mut world, old) = changed();
    let faulty = FaultInjector::new(Arc::new(memory.clone()), rules);
    let result = world.save(&faulty, 2).map(drop);
    let (epoch, found) = image(&memory);
    match &result {
        Ok(()) | Err(DumpError::NotDurable { .. }) => {
            assert_eq!(epoch, 2);
            assert_same(&found, &world.model);
        }
        Err(error) => {
            assert_eq!(epoch, 1, "{error}");
            assert_same(&found, &old);
            assert!(error.to_string().contains(&memory.path_of(NAME)), "{error}");
        }
    }
    assert_eq!(names(&memory), [NAME], "nothing may be left of a failed save");
    // The writer is free, and the next save works.
    world.write(1, 123);
    world.check();
    world.save(&memory, 3).unwrap();
    assert_same(&image(&memory).1, &world.model);
    (result, faulty.struck())
}

/// Strikes at the first, second, … operation of this kind until there are no more.
fn at_every(action: DeviceOperation, fault: InjectedFault) -> Vec<DumpError> {
    let mut errors = Vec::new();
    for number in 0.. {
        let (result, struck) = save_under(vec![(FaultTrigger::Nth(action, number), fault)]);
        match result {
            Err(error) => errors.push(error),
            Ok(()) if struck == 0 => return errors,
            Ok(()) => {}
        }
    }
    errors
}

#[test]
fn a_save_fails_cleanly_at_any_write() {
    let errors = at_every(DeviceOperation::Write, InjectedFault::Error(errno::EIO));
    assert!(errors.len() > 10, "{} writes", errors.len());
    for error in errors {
        let DumpError::Device { source, .. } = &error else { panic!("{error}") };
        assert_eq!((source.action, source.errno), (DeviceOperation::Write, Some(errno::EIO)));
        assert!(source.place.is_some(), "{error}");
    }
}

#[test]
fn a_torn_write_fails_the_save_like_any_other() {
    assert!(at_every(DeviceOperation::Write, InjectedFault::Torn(errno::EIO)).len() > 10);
}

#[test]
fn a_save_fails_cleanly_wherever_else_it_can() {
    for action in [DeviceOperation::Create, DeviceOperation::Length, DeviceOperation::Flush, DeviceOperation::Rename] {
        let errors = at_every(action, InjectedFault::Error(errno::EACCES));
        assert_eq!(errors.len(), 1, "{action}");
        let DumpError::Device { source, .. } = &errors[0] else { panic!("{}", errors[0]) };
        assert_eq!(source.action, action);
    }
}

#[test]
fn a_full_disk_is_told_as_such_wherever_it_gets_full() {
    for limit in (0..2 << 20).step_by(100_000) {
        let (result, struck) = save_under(vec![(FaultTrigger::Beyond(limit), InjectedFault::Error(errno::ENOSPC))]);
        if struck == 0 {
            result.unwrap();
            continue;
        }
        let Err(DumpError::Device { source, .. }) = result else { panic!("{limit}: {result:?}") };
        assert!(source.is_full(), "{source}");
        assert!(source.to_string().contains("No space left"), "{source}");
    }
}

#[test]
fn an_image_whose_name_may_be_lost_is_reported_though_complete() {
    let errors = at_every(DeviceOperation::SyncDirectory, InjectedFault::Error(errno::EIO));
    assert!(matches!(errors.as_slice(), [DumpError::NotDurable { .. }]), "{errors:?}");
}

#[test]
fn a_leftover_that_could_not_be_removed_goes_at_the_next_start() {
    let (memory, mut world, _) = changed();
    let rules = vec![
        (FaultTrigger::Nth(DeviceOperation::Write, 3), InjectedFault::Error(errno::EIO)),
        (FaultTrigger::From(DeviceOperation::Remove, 0), InjectedFault::Error(errno::EACCES)),
    ];
    world.save(&FaultInjector::new(Arc::new(memory.clone()), rules), 2).unwrap_err();
    assert_eq!(names(&memory).len(), 2);
    assert_eq!(remove_stale(&memory, NAME).unwrap(), 1);
    assert_eq!(names(&memory), [NAME]);
}

#[test]
fn a_leftover_of_the_same_process_number_is_no_hindrance() {
    let (memory, mut world, _) = changed();
    memory.put(&format!("{NAME}.tmp-{}", std::process::id()), b"old");
    world.save(&memory, 2).unwrap();
    assert_eq!(names(&memory), [NAME]);
    assert_eq!(image(&memory).0, 2);
}

#[test]
fn a_cancelled_save_leaves_no_trace() {
    let (memory, mut world, old) = changed();
    let progress = DumpProgress::new();
    progress.cancel();
    let snapshot = world.cut();
    let error = dump(snapshot, &meta(2), &memory, NAME, &progress, &small_writes()).unwrap_err();
    assert!(matches!(error, DumpError::Cancelled { .. }), "{error}");
    assert_eq!(progress.phase(), DumpPhase::Failed);
    assert!(world.barrier.try_finish());
    assert_eq!(names(&memory), [NAME]);
    assert_same(&image(&memory).1, &old);
}

#[test]
fn a_writer_that_waits_for_a_buffer_is_freed_by_a_failing_save() {
    let mut world = World::varied(PAGES);
    world.barrier.set_budget(4 * 4096).unwrap();
    let rules = vec![(FaultTrigger::From(DeviceOperation::Write, 1), InjectedFault::Error(errno::EIO))];
    let faulty = FaultInjector::new(Arc::new(MemoryDirectory::new()), rules);
    let snapshot = world.cut();
    std::thread::scope(|scope| {
        let dumper = scope.spawn(|| save(snapshot, &faulty, 1).map(drop));
        for page in (0..PAGES).rev() {
            world.write(page, 5);
        }
        dumper.join().unwrap().unwrap_err();
    });
    assert!(world.barrier.try_finish());
    world.check();
}

#[test]
fn a_missing_directory_is_told() {
    let mut world = World::varied(10);
    let error = world.save(&DiskDirectory::new("/no/such/directory"), 1).unwrap_err();
    assert!(error.to_string().contains("/no/such/directory"), "{error}");
    assert!(error.to_string().contains("No such file"), "{error}");
}

#[test]
fn reads_that_fail_name_the_part() {
    let (memory, ..) = saved(PAGES);
    let under = |number| {
        let rules = vec![(FaultTrigger::Nth(DeviceOperation::Read, number), InjectedFault::Error(errno::EIO))];
        FaultInjector::new(Arc::new(memory.clone()), rules)
    };
    let mut parts = Vec::new();
    for number in 0..3 {
        let Err(ImageError::Unreadable { part, source }) = Image::open(&under(number), NAME) else { panic!() };
        assert_eq!(source.errno, Some(errno::EIO));
        parts.push(part);
    }
    assert_eq!(parts, [ImagePart::Header, ImagePart::Footer, ImagePart::Table]);
    for number in [3, 4] {
        let image = Image::open(&under(number), NAME).unwrap();
        let Err(error) = load(&image, &options(), |_, _| {}) else { panic!("read {number} was let pass") };
        // Which region is read first depends on the threads.
        let ImageError::Unreadable { part: ImagePart::Region(region), .. } = error else { panic!("{error}") };
        assert!(!error.is_damage());
        let offset = (region as u64 + 1) << 21;
        assert!(error.to_string().contains(&format!("bytes at {offset}")), "{error}");
        assert!(error.to_string().contains(&memory.path_of(NAME)), "{error}");
    }
    let image = Image::open(&under(3), NAME).unwrap();
    assert!(matches!(image.verify(|_, _| {}), Err(ImageError::Unreadable { part: ImagePart::Gap, .. })));
}
