//! The functions of the C library that we stand in front of: `fork`, `_exit`, `_Exit`, and the library's own beginning
//! and end.
//!
//! Relies on the dynamic linker taking ours first. Each calls the next definition, so that other libraries in
//! `LD_PRELOAD` get their turn. `exit` and returning from `main` end in our closing function, so they need no hook. The
//! allocator's functions are in [`crate::heap::hooks`].

use std::ffi::{CStr, c_int};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use quire_sys::{guest, symbol};

use crate::heap::{found, next};
use crate::settings::Settings;
use crate::{child, log, parent, process, state};

static NEXT_FORK: AtomicPtr<()> = AtomicPtr::new(null_mut());
static NEXT_EXIT: AtomicPtr<()> = AtomicPtr::new(null_mut());

/// Runs when the library is loaded, before `main` and before there are threads.
extern "C" fn opened() {
    resolve();
    next::find_all();
    process::end_inherited();
    // SAFETY: no thread of the program runs yet, so nobody changes the environment; nothing of it is kept.
    let value_of = |name: &CStr| unsafe { guest::setting(name) };
    let mut settings = Settings::read(value_of);
    let heap = value_of(c"QUIRE_HEAP").filter(|value| !value.is_empty());
    // Copying ahead would bring in what the heap has on its file.
    settings.enabled &= heap.is_none();
    state::configure(settings);
    if let Some(heap) = heap
        && let Err(refusal) = found::found(heap, value_of(c"QUIRE_HEAP_PAGE"))
    {
        // Who asks for more heap than there is memory is not helped by a program that runs without.
        log::line(format_args!("no heap, so the program is not started: {refusal} (unset QUIRE_HEAP to do without)"));
        guest::exit_now(NOT_STARTED);
    }
}

/// The exit status of a program that did not get the heap that was asked for; `env` and `nohup` have it for their own
/// failures.
const NOT_STARTED: i32 = 125;

/// Runs in `exit`, after the program's own exit handlers.
extern "C" fn closed() {
    child::about_to_end();
    process::stop();
    found::about_to_end();
}

// Unit tests are programs of their own that need no hooks.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static OPENED: extern "C" fn() = opened;

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static CLOSED: extern "C" fn() = closed;

fn resolve() {
    let find = |name| symbol::next(name).map_or(null_mut(), std::ptr::NonNull::as_ptr);
    NEXT_FORK.store(find(c"fork"), Ordering::Relaxed);
    NEXT_EXIT.store(find(c"_exit"), Ordering::Relaxed);
}

/// Stands in front of the C library's `fork`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn fork() -> c_int {
    if NEXT_FORK.load(Ordering::Relaxed).is_null() {
        // Another library's opening function forks before ours has run.
        resolve();
    }
    let next = NEXT_FORK.load(Ordering::Relaxed);
    if next.is_null() {
        guest::set_errno(guest::NO_SUCH_CALL);
        return -1;
    }
    // SAFETY: the dynamic linker's address for `fork`, which has this type in every C library.
    let next: extern "C" fn() -> c_int = unsafe { std::mem::transmute(next) };
    let errno = guest::errno();
    let ticket = parent::before_fork();
    guest::set_errno(errno);
    let pid = next();
    let errno = guest::errno();
    match pid {
        0 => parent::in_child(ticket),
        _ => parent::after_fork(ticket, pid),
    }
    guest::set_errno(errno);
    pid
}

/// Stands in front of the C library's `_exit`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn _exit(status: c_int) -> ! {
    child::about_to_end();
    process::stop();
    let next = NEXT_EXIT.load(Ordering::Relaxed);
    if !next.is_null() {
        // SAFETY: the dynamic linker's address for `_exit`, which has this type in every C library.
        let next: extern "C" fn(c_int) -> ! = unsafe { std::mem::transmute(next) };
        next(status)
    }
    guest::exit_now(status)
}

/// Stands in front of the C library's `_Exit`, which is another name of `_exit`.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[allow(non_snake_case)]
pub extern "C" fn _Exit(status: c_int) -> ! {
    _exit(status)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_library_opens_and_closes_in_a_program_that_does_not_fork() {
        super::opened();
        super::closed();
        assert!(!super::NEXT_FORK.load(super::Ordering::Relaxed).is_null());
    }
}
