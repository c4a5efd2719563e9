//! An arena to which the system gives no more memory. A program of its own, since the limit is the whole process's.

use quire_arena::{Arena, ArenaConfig, ArenaError};
use quire_sys::limits;

/// Data of this process, in bytes.
fn data_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn memory_that_the_system_refuses_is_lacking_as_in_a_full_arena() {
    let mut arena = Arena::create(ArenaConfig { max_bytes: 512 << 20, budget_bytes: 1 << 20 }).unwrap();
    limits::limit_data(Some(data_bytes() + (32 << 20))).unwrap();
    let mut handles = Vec::with_capacity(1 << 16);
    let error = loop {
        match arena.alloc(10_000) {
            Ok(handle) => handles.push(handle),
            Err(error) => break error,
        }
    };
    limits::limit_data(None).unwrap();
    assert!(matches!(error, ArenaError::OutOfMemory { .. }), "{error:?}");
    assert!(error.to_string().contains("mprotect of "), "{error}");
    assert!(handles.len() > 1000, "{}", handles.len());
    // It goes on as soon as there is memory.
    for _ in 0..10_000 {
        arena.alloc(10_000).unwrap();
    }
}
