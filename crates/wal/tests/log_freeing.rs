//! Files that the log removes are freed in the background, and waited for only when the disk is full without their space.

#[allow(dead_code, reason = "the other tests use other parts of it")]
mod common;

use std::sync::Arc;
use std::thread;

use common::{DATASET, append, durable, start};
use quire_device::{
    DeviceOperation, Directory, FaultInjector, FaultTrigger, FreeingGate, InjectedFault, MemoryDirectory, errno,
    remove_then_free,
};
use quire_wal::{SyncPolicy, remove_covered};

#[test]
fn covered_segments_are_removed_while_they_are_being_freed() {
    let gate = FreeingGate::new(Arc::new(MemoryDirectory::new()));
    let directory: Arc<dyn Directory> = Arc::new(gate.clone());
    let mut log = start(&directory, SyncPolicy::Always, 0).unwrap();
    while directory.list().unwrap().len() < 4 {
        append(&mut log, 500).unwrap();
        log.commit();
        assert!(durable(&log, log.appended()));
    }
    let last = log.appended();
    log.finish().unwrap();
    gate.close();
    assert_eq!(remove_covered(&gate, DATASET, last).unwrap(), 0);
    assert_eq!((gate.list().unwrap().len(), gate.freed()), (0, 0));
    gate.open_gate();
    gate.await_freed(4);
}

#[test]
fn a_log_begins_on_a_disk_that_is_full_until_removed_files_are_freed() {
    let memory = MemoryDirectory::with_file("left by a killed save", b"3 GB");
    let gate = FreeingGate::new(Arc::new(memory));
    let full_once = vec![(FaultTrigger::Nth(DeviceOperation::Allocate, 0), InjectedFault::Error(errno::ENOSPC))];
    let disk = FaultInjector::new(Arc::new(gate.clone()), full_once);
    gate.close();
    remove_then_free(&gate, "left by a killed save").unwrap();
    gate.await_waiting();
    let directory: Arc<dyn Directory> = Arc::new(disk.clone());
    thread::scope(|threads| {
        let log = threads.spawn(|| start(&directory, SyncPolicy::Always, 0));
        while disk.struck() == 0 {
            thread::yield_now();
        }
        gate.open_gate();
        drop(log.join().unwrap().unwrap());
    });
}
