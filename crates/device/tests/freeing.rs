//! Removed files are freed by a thread of their own. One test: the thread is the process's.

use std::sync::Arc;
use std::time::Duration;

use quire_device::{Directory, FreeingGate, MemoryDirectory, await_freed, free_later, is_freeing, remove_then_free};

#[test]
fn a_name_is_gone_at_once_and_a_caller_waits_for_the_space_only_if_it_asks() {
    let memory = MemoryDirectory::new();
    ["a", "b", "c"].iter().for_each(|name| memory.put(name, b"x"));
    let gate = FreeingGate::new(Arc::new(memory));
    assert!(!is_freeing());
    await_freed(Duration::MAX);
    gate.close();
    remove_then_free(&gate, "a").unwrap();
    assert!(remove_then_free(&gate, "a").unwrap_err().is_missing());
    let b = gate.open("b").unwrap();
    gate.remove("b").unwrap();
    free_later(b);
    assert_eq!(gate.list().unwrap(), ["c"]);
    gate.await_waiting();
    assert!(is_freeing());
    await_freed(Duration::from_millis(1));
    assert_eq!(gate.freed(), 0);
    gate.open_gate();
    await_freed(Duration::MAX);
    assert!(!is_freeing());
    assert_eq!(gate.freed(), 2);
    // The next file finds a new thread.
    remove_then_free(&gate, "c").unwrap();
    await_freed(Duration::MAX);
    assert_eq!(gate.freed(), 3);
}
