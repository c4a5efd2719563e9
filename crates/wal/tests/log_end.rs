//! The end of a log whose next file waits for the space of a large one that is being freed. In a process of its own: freeing is the
//! process's.

#[allow(dead_code, reason = "the other tests use other parts of it")]
mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{append, base, read, start};
use quire_device::{
    DeviceOperation, Directory, FaultInjector, FaultTrigger, FreeingGate, InjectedFault, MemoryDirectory, errno,
    is_freeing, remove_then_free,
};
use quire_wal::{LogError, SyncPolicy};

/// So long space is waited for at most.
const LONGEST_WAIT: Duration = Duration::from_secs(120);
const LARGE_LEN: usize = 100_000;

#[test]
fn the_end_of_a_log_does_not_wait_for_space_that_is_being_freed() {
    let memory = MemoryDirectory::new();
    let disk = FaultInjector::new(Arc::new(memory.clone()), Vec::new());
    let gate = FreeingGate::new(Arc::new(disk.clone()));
    let directory: Arc<dyn Directory> = Arc::new(gate.clone());
    let mut log = start(&directory, SyncPolicy::Always, 0).unwrap();
    drop(directory.create("old-image").unwrap());
    gate.close();
    remove_then_free(&*directory, "old-image").unwrap();
    let full = (FaultTrigger::From(DeviceOperation::Allocate, 0), InjectedFault::Error(errno::ENOSPC));
    disk.set_rules(vec![full]);
    append(&mut log, 10).unwrap();
    append(&mut log, LARGE_LEN).unwrap();
    log.commit();
    // It waits, or does so soon.
    while disk.struck() == 0 {
        std::thread::yield_now();
    }
    let since = Instant::now();
    let told = log.finish();
    assert!(since.elapsed() < LONGEST_WAIT && is_freeing(), "the space is not free yet");
    assert!(matches!(&told, Err(LogError::NoRoom { durable: 1, .. })), "{told:?}");
    gate.open_gate();
    assert_eq!(read(&memory, base(0), |_| 10).unwrap().0, [1]);
}
