//! The program confines itself (seccomp): from then on the library makes no system call in the program's threads.
//!
//! Relies on the [hooks](crate::hooks) of `prctl` and `syscall` to be told before the kernel is. In strict mode every call but
//! `read`, `write` and the end of the thread kills the process, and a filter may do so for any call that the program itself does not make; asking the kernel
//! whether it is so may be such a call, too. So the library has to know by itself. A program that confines itself past the C
//! library is noticed by the worker, which looks once a second and at its own end.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use quire_sys::fork_mark::ForkMark;
use quire_sys::guest;

/// The library makes no system call in this process any more. Children inherit that, as they inherit the filters.
static IS_OFF: AtomicBool = AtomicBool::new(false);
/// The process that the library works for, 0 before its start.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// A page that children have not, if they have memory of their own.
static MARK: OnceLock<ForkMark> = OnceLock::new();
/// The thread whose `vfork` child has confined itself, by the C library's handle, which both share; 0 if none.
static MUTED: AtomicUsize = AtomicUsize::new(0);
/// The mode of seccomp that the program was started in.
static MODE_AT_START: AtomicI32 = AtomicI32::new(UNKNOWN);
const UNKNOWN: i32 = -1;

/// Takes note of the process, while the library is loaded; whether it may be asked about children that have ended. Under a
/// filter that it was started in only those calls are made at the start that the dynamic linker has made, too.
pub fn begin() -> bool {
    OWNER.store(guest::process_id(), Ordering::Relaxed);
    MARK.get_or_init(ForkMark::new);
    let mode = guest::own_seccomp_mode();
    MODE_AT_START.store(mode.unwrap_or(UNKNOWN), Ordering::Relaxed);
    mode == Some(0)
}

/// In a new child that the hook of `fork` has seen. Makes no system call where that is not allowed.
pub fn forget() {
    MUTED.store(0, Ordering::Relaxed);
    if !IS_OFF.load(Ordering::Relaxed) {
        OWNER.store(guest::process_id(), Ordering::Relaxed);
    }
}

/// Whether the calling thread may make no system call for the library. Costs two loads, and is fit for a signal handler.
pub fn is_quiesced() -> bool {
    IS_OFF.load(Ordering::Relaxed) || is_muted()
}

fn is_muted() -> bool {
    let muted = MUTED.load(Ordering::Relaxed);
    muted != 0 && muted == guest::thread_handle()
}

/// Before a fork in a thread whose `vfork` child has confined itself and has become another program: the thread goes on as
/// before.
pub fn unmute() {
    if is_muted() && caller() == CallingProcess::Owner {
        mute(false);
    }
}

/// The library makes no system call in this process from here on.
pub fn turn_off() {
    IS_OFF.store(true, Ordering::SeqCst);
}

/// The kernel has refused to confine the process: the library goes on.
pub fn turn_on() {
    IS_OFF.store(false, Ordering::SeqCst);
}

/// Which process calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallingProcess {
    /// The one that the library works for.
    Owner,
    /// A child by `vfork`, in its parent's memory.
    InItsParentsMemory,
    /// A child that no hook has seen, with memory of its own.
    Unseen,
}

/// Which process calls, told by its number and by a page that only children by `vfork` share.
pub fn caller() -> CallingProcess {
    if OWNER.load(Ordering::Relaxed) == guest::process_id() {
        return CallingProcess::Owner;
    }
    if MARK.get().is_some_and(ForkMark::is_forked) {
        CallingProcess::Unseen
    } else {
        CallingProcess::InItsParentsMemory
    }
}

/// The calling thread, a child by `vfork`, makes no system call for the library from here on; `false` takes that back.
pub fn mute(is_muted: bool) {
    MUTED.store(if is_muted { guest::thread_handle() } else { 0 }, Ordering::Relaxed);
}

/// In the worker: looks whether `thread` of the program has been confined since the program's start, past the hooks.
pub fn look_at(thread: i32) {
    let mode = guest::seccomp_mode(thread);
    let at_start = MODE_AT_START.load(Ordering::Relaxed);
    if mode.is_some_and(|mode| mode != 0 && mode != at_start) {
        IS_OFF.store(true, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_muted_alone_until_its_process_goes_on() {
        // Statics that other tests set, too.
        let _alone = crate::state::alone();
        begin();
        assert_eq!((caller(), is_quiesced()), (CallingProcess::Owner, false));
        mute(true);
        assert!(is_quiesced() && std::thread::spawn(|| !is_quiesced()).join().unwrap());
        unmute();
        assert!(!is_quiesced());
        OWNER.store(1, Ordering::Relaxed);
        assert_eq!(caller(), CallingProcess::InItsParentsMemory);
        begin();
    }
}
