//! The process that the worker runs in: started when there is a child to work for, gone when that is done.
//!
//! Relies on [`quire_sys::helper`]: the process shares the program's memory, but is no thread of it, so the program may
//! `unshare`, `setns`, confine itself and count its threads as if there were none. Only a thread that prepares a fork starts it.
//! That it has ended is noted by a hook of the program's process (a fork, an allocation, the program's end), so it is a
//! zombie for a moment only.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::time::Duration;

use quire_sys::area::AnonymousMap;
use quire_sys::guest;
use quire_sys::helper::{self, AREA_BYTES, HelperProcess, HostProcess};

use crate::{confinement, state};

/// The program's end waits no longer for it.
const LONGEST_STOP: Duration = Duration::from_millis(50);

/// A new program waits no longer for the worker of the one that it was.
const LONGEST_INHERITED: Duration = Duration::from_millis(100);

/// What the process is called.
pub const NAME: &std::ffi::CStr = c"quire-preload";

static HELPER: HelperProcess = HelperProcess::new();
/// Where it runs: made once, and kept for the next.
static AREA: AtomicPtr<AnonymousMap> = AtomicPtr::new(null_mut());
/// The program as the latest one knows it.
static HOST: AtomicPtr<HostProcess> = AtomicPtr::new(null_mut());
/// It has ended, or is about to, and was not waited for yet.
static HAS_LEFT: AtomicBool = AtomicBool::new(false);
/// It shall end.
static SHALL_LEAVE: AtomicBool = AtomicBool::new(false);

/// At the program's start: the process may have been another program before, whose worker is about to end. The new one must
/// have neither its signal nor its zombie.
pub fn end_inherited() {
    helper::reap_inherited(NAME.to_bytes(), LONGEST_INHERITED);
}

/// Whether it runs, or has just ended.
pub fn is_alive() -> bool {
    HELPER.is_alive()
}

/// Starts it with `run`. To be called by the thread that has prepared a fork, while the process [is free](is_free).
///
/// # Errors
/// Why there can be none, in words.
///
/// # Safety
/// `run` neither allocates nor uses anything thread-local but `errno`.
pub unsafe fn start(run: extern "C" fn()) -> Result<(), &'static str> {
    let host = HostProcess::of_caller()
        .ok_or("the kernel does not tell where a thread's end is noted (PR_GET_TID_ADDRESS)")?;
    let area = match AREA.load(Ordering::Relaxed) {
        kept if !kept.is_null() => kept,
        _ => make_area().ok_or("no memory")?,
    };
    // SAFETY: `make_area` has written it there and leaked that memory, and only the thread that prepares a fork gets here.
    let area = unsafe { &*area };
    // SAFETY: `make_area` has set `HOST` to memory for one, and leaked it. The process is free, as `start` asks: no worker
    // runs that could read it meanwhile.
    unsafe { HOST.load(Ordering::Relaxed).write(host) };
    HAS_LEFT.store(false, Ordering::SeqCst);
    SHALL_LEAVE.store(false, Ordering::Relaxed);
    // SAFETY: `make_area` has leaked the area; the process is free, so the helper before was waited for. `Helper::start`
    // asks of `run` that it neither allocates nor uses anything thread-local, which the caller of this function promises.
    unsafe { HELPER.start(area, run) }.map_err(|_| "a process could not be started")
}

/// Makes the area, and places for what is known of it.
fn make_area() -> Option<*mut AnonymousMap> {
    let area = AnonymousMap::private(AREA_BYTES).ok()?;
    let places = AnonymousMap::private(size_of::<AnonymousMap>() + size_of::<HostProcess>()).ok()?;
    // The child of a fork has no such process and needs no memory for it.
    area.keep_from_children();
    let place = places.base().cast::<AnonymousMap>();
    // SAFETY: the mapping has room for both values, begins at a page, and no other thread knows of it.
    unsafe { place.write(area) };
    // SAFETY: one `AnonymousMap` further is still within the mapping, which has room for that and a `HostProcess`.
    HOST.store(unsafe { place.add(1) }.cast(), Ordering::Relaxed);
    AREA.store(place, Ordering::Relaxed);
    std::mem::forget(places);
    Some(place)
}

/// The program that the worker works for; `None` before there was a worker.
pub fn host() -> Option<HostProcess> {
    // SAFETY: null, or memory that `make_area` has leaked; `start` writes it before it starts the worker and not while one
    // runs.
    unsafe { HOST.load(Ordering::Relaxed).as_ref() }.copied()
}

/// Whether the calling process is the worker's.
pub fn is_current() -> bool {
    HELPER.is_current()
}

/// In the worker: whether it shall end.
pub fn shall_leave() -> bool {
    SHALL_LEAVE.load(Ordering::Relaxed)
}

/// In the worker, at its end.
pub fn leave() {
    // The program notes the end by a system call, unless it has confined itself meanwhile.
    if let Some(host) = host() {
        confinement::look_at(host.thread());
    }
    HAS_LEFT.store(true, Ordering::SeqCst);
}

/// In the program: takes note of the end of the one before; whether there is none now.
pub fn is_free() -> bool {
    HELPER.reap()
}

/// In the program, now and then: takes note of the end of a worker. Costs a load while there is nothing to do.
#[inline]
pub fn tidy() {
    if HAS_LEFT.load(Ordering::Relaxed) {
        tidy_up();
    }
}

#[cold]
fn tidy_up() {
    if confinement::is_quiesced() {
        return;
    }
    // One thread at a time, and not a child by `vfork`, which shares this memory and is not the parent.
    let is_mine = host().is_some_and(|host| host.process() == guest::process_id());
    if is_mine && state::begin_forking() {
        if HELPER.reap() {
            HAS_LEFT.store(false, Ordering::SeqCst);
        }
        state::end_forking();
    }
}

/// Before the program's end: has the worker end first, so that memory goes back with the program.
pub fn stop() {
    let is_mine = host().is_some_and(|host| host.process() == guest::process_id());
    if !is_mine || !HELPER.is_alive() {
        return;
    }
    SHALL_LEAVE.store(true, Ordering::Relaxed);
    if let Some(stats_page) = state::stats_page() {
        stats_page.report();
    }
    HELPER.wait_for_end(LONGEST_STOP);
    HELPER.reap();
}

/// In a new child of the program: it has no such process. What the area was is not mapped here.
pub fn forget() {
    HELPER.forget();
    AREA.store(null_mut(), Ordering::Relaxed);
    HOST.store(null_mut(), Ordering::Relaxed);
    HAS_LEFT.store(false, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_worker_there_is_nothing_to_tidy_or_stop() {
        let _alone = state::alone();
        tidy();
        stop();
        assert!(host().is_none() && !is_current() && !shall_leave());
    }
}
