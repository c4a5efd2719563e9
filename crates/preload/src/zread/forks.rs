//! What is done around every fork: the child gets plain memory.
//!
//! Relies on `pthread_atfork`, so that forks of the C library's own are seen. No range is remapped while the fork lasts, so the child has
//! none; its tables are empty, and it has no lease process.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use quire_sys::fork_mark::ForkMark;
use quire_sys::{atfork, guest};

use super::{blocks, hooks, lease_process, maps, memory_hooks, requests};
use crate::confinement;

/// Threads that are about to fork, or fork. While there is one nothing is remapped.
static FORKING: AtomicU32 = AtomicU32::new(0);
/// The thread that holds the lists of blocks for its fork; 0 for none.
static HOLDER: AtomicUsize = AtomicUsize::new(0);
/// Is missing in children that no handler here has seen (`clone`).
static MARK: OnceLock<ForkMark> = OnceLock::new();

/// Has forks seen, from the library's start on.
///
/// # Errors
/// As `pthread_atfork`.
pub fn watch() -> io::Result<()> {
    MARK.get_or_init(ForkMark::new);
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
    if let Some(mark) = MARK.get() {
        mark.renew();
    }
    blocks::release(gives_up_blocks(), true);
    forget();
}

/// Whether the caller is a child that no handler has seen, with memory of its own. It has no lease process, and is told once: from then on nothing
/// of its parent's is known here.
pub fn is_left_behind() -> bool {
    let is_first = MARK.get().is_some_and(|mark| mark.is_forked() && mark.renew());
    if is_first {
        FORKING.store(0, Ordering::SeqCst);
        blocks::release_in_child();
        forget();
    }
    is_first
}

/// Runs `fork`, a function that tells none of the handlers, between them.
pub fn around(fork: impl FnOnce() -> i32) -> i32 {
    if !hooks::is_open() {
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

/// In a child.
fn forget() {
    lease_process::forget();
    requests::forget();
    // SAFETY: this is the child's only thread, which does not hold MAPS: no handler runs while it is held.
    unsafe { maps::reset() };
}
