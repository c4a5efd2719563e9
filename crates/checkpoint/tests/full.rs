//! A dump that finds the disk full while removed files are being freed waits for their space, and fails plainly where there is none.
//!
//! Relies on being alone in its process: whether files are being freed is known of the process as a whole. So this is one test.

#[allow(dead_code, reason = "the other tests use other parts of it")]
mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use common::*;
use quire_checkpoint::{DumpError, DumpOptions, DumpProgress, dump};
use quire_device::{
    Device, DeviceError, DeviceOperation, Directory, FaultInjector, FaultTrigger, FreeingGate, InjectedFault,
    MemoryDirectory, await_freed, errno, remove_then_free,
};
use quire_snapshot::PAGE_SIZE;

const PAGES: u32 = 600;

/// A directory that tells how much room there is. Who asks again and again waits for what never comes: the gate is opened then.
struct Told {
    gate: FreeingGate,
    free_bytes: u64,
    asked: AtomicU32,
}

impl Directory for Told {
    fn path_of(&self, name: &str) -> String {
        self.gate.path_of(name)
    }
    fn create(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.gate.create(name)
    }
    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.gate.open(name)
    }
    fn open_to_write(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.gate.open_to_write(name)
    }
    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        self.gate.rename(from, to)
    }
    fn link(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        self.gate.link(from, to)
    }
    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        self.gate.remove(name)
    }
    fn sync(&self) -> Result<(), DeviceError> {
        self.gate.sync()
    }
    fn list(&self) -> Result<Vec<String>, DeviceError> {
        self.gate.list()
    }
    fn free_bytes(&self) -> Option<u64> {
        if self.asked.fetch_add(1, Ordering::SeqCst) == 3 {
            self.gate.open_gate();
        }
        Some(self.free_bytes)
    }
}

/// A memory whose `nth` write meets a full disk, if any does, with a removed file whose freeing takes until the gate is opened.
fn with_a_file_being_freed(nth: Option<u64>) -> (FreeingGate, FaultInjector, MemoryDirectory) {
    let memory = MemoryDirectory::new();
    memory.put("removed", b"an image that was replaced");
    let full = nth.map(|nth| (FaultTrigger::Nth(DeviceOperation::Write, nth), InjectedFault::Error(errno::ENOSPC)));
    let faulty = FaultInjector::new(Arc::new(memory.clone()), full.into_iter().collect());
    let gate = FreeingGate::new(Arc::new(faulty.clone()));
    gate.close();
    remove_then_free(&gate, "removed").unwrap();
    (gate, faulty, memory)
}

fn a_write_is_tried_again_when_there_is_room(nth: u64) {
    let (gate, faulty, memory) = with_a_file_being_freed(Some(nth));
    let mut world = World::varied(PAGES);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while faulty.struck() == 0 {
                std::thread::yield_now();
            }
            gate.open_gate();
        });
        world.save(&gate, 1).unwrap();
    });
    assert_eq!(faulty.struck(), 1);
    assert_same(&image(&memory).1, &world.model);
    assert_eq!(names(&memory), [NAME]);
}

fn a_save_that_waits_for_room_can_be_cancelled() {
    let (gate, faulty, memory) = with_a_file_being_freed(Some(1));
    let mut world = World::varied(PAGES);
    let (snapshot, progress) = (world.cut(), DumpProgress::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while faulty.struck() == 0 {
                std::thread::yield_now();
            }
            progress.cancel();
        });
        let ended = dump(snapshot, &meta(1), &gate, NAME, &progress, &small_writes());
        assert!(matches!(ended, Err(DumpError::Cancelled { .. })), "{ended:?}");
    });
    assert!(names(&memory).is_empty());
    gate.open_gate();
}

fn without_anything_to_wait_for_a_full_disk_fails_the_save(nth: u64) {
    let memory = MemoryDirectory::new();
    let rules = vec![(FaultTrigger::From(DeviceOperation::Write, nth), InjectedFault::Error(errno::ENOSPC))];
    let faulty = FaultInjector::new(Arc::new(memory.clone()), rules);
    let error = World::varied(PAGES).save(&faulty, 1).unwrap_err();
    let DumpError::Device { source, .. } = &error else { panic!("{error}") };
    assert!(source.is_full(), "{error}");
}

/// Whether a save waits for the file that is being freed, of a disk that has room for half of the pages as they are in memory.
fn waits_for_room(expected_share: f64) -> bool {
    let (gate, _, memory) = with_a_file_being_freed(None);
    let mut world = World::varied(PAGES);
    let free_bytes = world.model.len() as u64 * PAGE_SIZE as u64 / 2;
    let told = Told { gate: gate.clone(), free_bytes, asked: AtomicU32::new(0) };
    let options = DumpOptions { expected_share, ..small_writes() };
    dump(world.cut(), &meta(1), &told, NAME, &DumpProgress::new(), &options).unwrap();
    assert_same(&image(&memory).1, &world.model);
    gate.open_gate();
    told.asked.load(Ordering::SeqCst) > 3
}

#[test]
fn a_full_disk_is_waited_for_as_long_as_files_are_being_freed_and_no_longer() {
    for nth in [0, 2, 9] {
        a_write_is_tried_again_when_there_is_room(nth);
        await_freed(std::time::Duration::MAX);
        without_anything_to_wait_for_a_full_disk_fails_the_save(nth);
        await_freed(std::time::Duration::MAX);
    }
    a_save_that_waits_for_room_can_be_cancelled();
    await_freed(std::time::Duration::MAX);
    assert!(waits_for_room(1.0));
    await_freed(std::time::Duration::MAX);
    assert!(!waits_for_room(0.25), "what compression leaves fits");
}
