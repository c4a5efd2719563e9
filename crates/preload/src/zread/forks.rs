//! What is done around every fork: the child gets plain memory.
//!
//! Relies on `pthread_atfork`, so that forks of the C library's own are seen. No range is remapped while the fork lasts, so the child has
//! none; its tables are empty, and it has no lease process.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use quire_sys::{atfork, guest};

use super::{blocks, lease_process, maps, memory_hooks, patterns, requests, unseen_child};
use crate::confinement;

/// Threads that are about to fork, or fork. While there is one nothing is remapped.
static FORKING: AtomicU32 = AtomicU32::new(0);
/// The thread that holds the lists of blocks for its fork; 0 for none.
static HOLDER: AtomicUsize = AtomicUsize::new(0);

/// Has forks seen, from the library's start on.
///
/// # Errors
/// As `pthread_atfork`.
pub fn watch() -> io::Result<()> {
    unseen_child::begin();
    // SAFETY: they lock, wait for the lease process and change atomics; nothing of that is forbidden in the child.
    unsafe { atfork::around_forks(before, in_parent, in_child) }
}

/// Whether a thread forks. To be asked under MAPS.
pub fn is_forking() -> bool {
    FORKING.load(Ordering::SeqCst) != 0
}

extern "C" fn before() {
    if confinement::is_quiesced() {
        return;
    }
    let errno = guest::errno();
    FORKING.fetch_add(1, Ordering::SeqCst);
    memory_hooks::make_plain(0, usize::MAX);
    if blocks::hold() {
        HOLDER.store(guest::thread_handle(), Ordering::SeqCst);
    }
    guest::set_errno(errno);
}

/// Whether the calling thread has held the lists of blocks; it does no more.
fn gives_up_blocks() -> bool {
    HOLDER.compare_exchange(guest::thread_handle(), 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
}

extern "C" fn in_parent() {
    if gives_up_blocks() {
        blocks::release(true, false);
    }
    // A thread that confines the process may have come between `before` and now.
    let _ = FORKING.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
}

extern "C" fn in_child() {
    if FORKING.swap(0, Ordering::SeqCst) == 0 {
        return;
    }
    unseen_child::adopt();
    blocks::release(gives_up_blocks(), true);
    lease_process::forget();
    requests::forget();
    // SAFETY: this is the child's only thread, which does not hold MAPS: no handler runs while it is held.
    unsafe { maps::reset() };
}

/// Runs `fork`, a function that tells none of the handlers, between them.
pub fn around(fork: impl FnOnce() -> i32) -> i32 {
    if patterns::settings().is_none() {
        return fork();
    }
    before();
    let pid = fork();
    match pid {
        0 => in_child(),
        _ => in_parent(),
    }
    pid
}
