//! The power may go, and anything may fail, at any step of a save over a chain: a restart finds the old chain or the new one.
//!
//! Relies on `MemoryDirectory`, which keeps what is durable apart from what is not, and on `FaultInjector`.

use std::sync::Arc;

use quire_checkpoint::{DumpError, DumpProgress, ImageChain, ImageMeta, LinkId, dump, remove_stale};
use quire_device::{
    Device, DeviceError, DeviceOperation, Directory, DirectoryLayer, FaultInjector, FaultTrigger, InjectedFault,
    MemoryDirectory, PowerCut, errno,
};

use crate::common::*;

const PAGES: u32 = 300;

fn cuts(seeds: u64) -> impl Iterator<Item = PowerCut> {
    [PowerCut::LoseAll, PowerCut::KeepAll].into_iter().chain((1..=seeds).map(PowerCut::KeepSome))
}

/// A chain of an image and a delta, of epochs 1 and 2, and a world that has moved on from what it `had`.
struct Begun {
    memory: MemoryDirectory,
    world: World,
    links: Vec<LinkId>,
    had: Pages,
}

fn begun() -> Begun {
    let memory = MemoryDirectory::new();
    let mut world = World::varied(PAGES);
    world.track();
    let mut links = world.begin_chain(&memory, 1).unwrap();
    (0..40).for_each(|page| world.write(page * 3, 2));
    world.empty(200);
    world.save_delta(&memory, &mut links, 2).unwrap();
    let had = world.model.clone();
    (0..40).for_each(|page| world.write(page * 2 + 50, 3));
    world.write(200, 4);
    world.empty(1);
    Begun { memory, world, links, had }
}

/// Saves epoch 3, as a delta or in full.
fn save_next(begun: &mut Begun, directory: &dyn Directory, full: bool) -> Result<(), DumpError> {
    let Begun { world, links, .. } = begun;
    match full {
        true => world.begin_chain(directory, 3).map(|chain| *links = chain),
        false => world.save_delta(directory, links, 3).map(drop),
    }
}

#[test]
fn a_disk_too_full_for_an_image_beside_the_chain_that_it_replaces_is_told_as_such() {
    for full in [true, false] {
        let mut now = begun();
        let rules = vec![(FaultTrigger::Beyond(100_000), InjectedFault::Error(errno::ENOSPC))];
        let disk = FaultInjector::new(Arc::new(now.memory.clone()), rules);
        let error = save_next(&mut now, &disk, full).unwrap_err().to_string();
        assert!(error.contains("No space left"), "{error}");
        assert_eq!(error.contains("beside the image and the deltas (1) that it replaces"), full, "{error}");
        assert_same(&chain(&now.memory).1, &now.had);
    }
}

#[test]
fn whenever_the_power_goes_the_old_or_the_new_chain_is_whole() {
    for full in [false, true] {
        let mut whole = begun();
        let memory = whole.memory.clone();
        let start = memory.steps();
        save_next(&mut whole, &memory, full).unwrap();
        let steps = start..memory.steps();
        assert!(steps.end - steps.start > 8, "{steps:?}");
        let mut found_epochs = [0; 4];
        for step in steps.start..=steps.end {
            let mut now = begun();
            let memory = now.memory.clone();
            memory.power_off_at(step);
            let result = save_next(&mut now, &memory, full);
            for cut in cuts(12) {
                let found = memory.after_power_cut(cut);
                remove_stale(&found, NAME).unwrap();
                let (epoch, pages) = chain(&found);
                assert_same(&pages, if epoch == 2 { &now.had } else { &now.world.model });
                assert!(epoch == 3 || result.is_err(), "a save that ended well was lost at step {step}, {cut:?}");
                found_epochs[epoch as usize] += 1;
                // What the next start does.
                let mut opened = ImageChain::open(&found, NAME).unwrap();
                let links = 1 + opened.deltas().len();
                opened.remove_leftover(&found).unwrap();
                assert_eq!(names(&found).len(), links, "step {step}, {cut:?}");
            }
        }
        assert!(found_epochs[1] == 0 && found_epochs[2] > 30 && found_epochs[3] > 10, "{found_epochs:?}");
    }
}

#[test]
fn whenever_the_power_goes_an_image_of_other_data_or_of_a_lower_epoch_over_a_chain_is_whole_or_the_chain_is() {
    // The chain has history 9 and epochs 1 and 2.
    for (history, epoch, chained) in [(8, 2, true), (0, 9, true), (9, 1, false)] {
        let save = |now: &mut Begun| {
            let meta = ImageMeta { history, chained, ..meta(epoch) };
            let memory = now.memory.clone();
            dump(now.world.cut(), &meta, &memory, NAME, &DumpProgress::new(), &small_writes()).is_ok()
        };
        let mut whole = begun();
        let start = whole.memory.steps();
        assert!(save(&mut whole));
        let (mut old, mut new) = (0, 0);
        for step in start..=whole.memory.steps() {
            let mut now = begun();
            now.memory.power_off_at(step);
            let is_saved = save(&mut now);
            for cut in cuts(3) {
                let found = now.memory.after_power_cut(cut);
                let is_old = ImageChain::open(&found, NAME).unwrap().deltas().len() == 1;
                assert!(!(is_old && is_saved), "a save that ended well was lost at step {step}, {cut:?}");
                assert_same(&chain(&found).1, if is_old { &now.had } else { &now.world.model });
                (old, new) = (old + u32::from(is_old), new + u32::from(!is_old));
            }
        }
        assert!(old > 20 && new > 5, "{old} {new}");
    }
}

#[test]
fn a_start_that_finds_a_new_image_whose_name_is_not_durable_loses_no_delta_of_the_old_one() {
    // The process ends between the rename and the flush of the directory; the next start removes leftovers; the power goes.
    for step in 0..6 {
        let mut now = begun();
        let rules = vec![(FaultTrigger::Nth(DeviceOperation::SyncDirectory, 0), InjectedFault::Error(errno::EIO))];
        let faulty = FaultInjector::new(Arc::new(now.memory.clone()), rules);
        assert!(matches!(save_next(&mut now, &faulty, true), Err(DumpError::NotDurable { .. })));
        let memory = now.memory.clone();
        memory.power_off_at(memory.steps() + step);
        if let Ok(mut found) = ImageChain::open(&memory, NAME) {
            let _ = found.remove_leftover(&memory);
        }
        for cut in cuts(12) {
            let found = memory.after_power_cut(cut);
            let (epoch, pages) = chain(&found);
            assert_same(&pages, if epoch == 2 { &now.had } else { &now.world.model });
        }
    }
}

/// A save under `rules`; checks what must hold whatever becomes of it, and returns that and how often a fault struck.
fn save_under(full: bool, rules: Vec<(FaultTrigger, InjectedFault)>) -> (Result<(), DumpError>, u64) {
    let mut now = begun();
    let memory = now.memory.clone();
    let faulty = FaultInjector::new(Arc::new(memory.clone()), rules);
    let result = save_next(&mut now, &faulty, full);
    let (epoch, found) = chain(&memory);
    match &result {
        Ok(()) | Err(DumpError::NotDurable { .. }) => {
            assert_eq!(epoch, 3);
            assert_same(&found, &now.world.model);
        }
        Err(error) => {
            assert_eq!(epoch, 2, "{error}");
            assert_same(&found, &now.had);
            assert!(error.to_string().contains(&memory.path_of(NAME)), "{error}");
        }
    }
    assert!(names(&memory).iter().all(|name| !name.contains(".tmp-")), "nothing may be left of a failed save");
    // The next save holds what the failed one should have, and what changed since.
    now.world.write(1, 123);
    match result.is_ok() || matches!(result, Err(DumpError::Device { .. })) {
        true => now.world.save_delta(&memory, &mut now.links, 4).map(drop).unwrap(),
        false => now.world.begin_chain(&memory, 4).map(drop).unwrap(),
    }
    assert_same(&chain(&memory).1, &now.world.model);
    (result, faulty.struck())
}

/// Strikes at the first, second, … operation of this kind until there are no more. A disk that is full stays so: a write that has failed
/// for that is tried again where files were freed meanwhile, those of a test beside this one for instance.
fn at_every(full: bool, action: DeviceOperation, fault: InjectedFault) -> Vec<DumpError> {
    let stays = matches!(fault, InjectedFault::Error(errno::ENOSPC) | InjectedFault::Torn(errno::ENOSPC));
    let trigger = if stays { FaultTrigger::From } else { FaultTrigger::Nth };
    let mut errors = Vec::new();
    for number in 0.. {
        let (result, struck) = save_under(full, vec![(trigger(action, number), fault)]);
        match result {
            Err(error) => errors.push(error),
            Ok(()) if struck == 0 => return errors,
            Ok(()) => {}
        }
    }
    errors
}

/// A directory in which another file takes the image's name right before an operation of one kind.
struct Exchanging {
    memory: MemoryDirectory,
    at: DeviceOperation,
    other: Vec<u8>,
}

impl DirectoryLayer for Exchanging {
    fn inner(&self) -> &dyn Directory {
        &self.memory
    }

    fn wrap(&self, device: Arc<dyn Device>) -> Arc<dyn Device> {
        device
    }

    fn before(&self, action: DeviceOperation, _name: &str) -> Result<(), DeviceError> {
        if action == self.at {
            self.memory.put(NAME, &self.other);
        }
        Ok(())
    }
}

#[test]
fn a_delta_whose_image_is_exchanged_while_it_is_written_is_not_told_as_saved() {
    let (_, other, _) = saved(50);
    for (at, is_published) in [(DeviceOperation::Create, false), (DeviceOperation::Rename, true)] {
        let mut now = begun();
        let directory = Exchanging { memory: now.memory.clone(), at, other: other.clone() };
        let error = save_next(&mut now, &directory, false).unwrap_err();
        assert!(matches!(error, DumpError::BaseChanged { .. }), "{at}: {error}");
        assert_eq!(names(&now.memory).len(), 2 + usize::from(is_published), "{at}: {:?}", names(&now.memory));
        let memory = now.memory.clone();
        save_next(&mut now, &memory, true).unwrap();
        assert_same(&chain(&memory).1, &now.world.model);
    }
}

#[test]
fn a_delta_fails_cleanly_wherever_it_can_and_loses_no_change() {
    for fault in [errno::EIO, errno::ENOSPC] {
        assert!(at_every(false, DeviceOperation::Write, InjectedFault::Error(fault)).len() > 5);
        assert!(at_every(false, DeviceOperation::Write, InjectedFault::Torn(fault)).len() > 5);
    }
    for action in [
        DeviceOperation::Create,
        DeviceOperation::Length,
        DeviceOperation::Flush,
        DeviceOperation::Rename,
        DeviceOperation::SyncDirectory,
    ] {
        assert_eq!(at_every(false, action, InjectedFault::Error(errno::EIO)).len(), 1, "{action}");
    }
}

#[test]
fn an_image_over_a_chain_fails_cleanly_wherever_it_can_and_loses_no_change() {
    assert!(at_every(true, DeviceOperation::Write, InjectedFault::Error(errno::ENOSPC)).len() > 5);
    for action in [
        DeviceOperation::Create,
        DeviceOperation::Length,
        DeviceOperation::Flush,
        DeviceOperation::Rename,
        DeviceOperation::SyncDirectory,
    ] {
        assert_eq!(at_every(true, action, InjectedFault::Error(errno::EIO)).len(), 1, "{action}");
    }
    // A delta that can't be removed is older than the image, and is left out.
    assert!(at_every(true, DeviceOperation::Remove, InjectedFault::Error(errno::EACCES)).is_empty());
}
