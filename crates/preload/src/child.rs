//! The child's side: what it remembers of its parent's board, and what it does just before it ends.
//!
//! Relies on everything here being async-signal-safe: atomics, `getpid`, `clock_gettime` and futexes.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};
use std::time::Duration;

use quire_sys::guest;

use crate::board::{Board, Place};

/// A child waits no longer than that for its parent's leave.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

static BOARD: AtomicPtr<Board> = AtomicPtr::new(null_mut());
static PLACE: AtomicU32 = AtomicU32::new(0);
/// Who we were when we were made: a child made by other means than our `fork` inherits the above, but is not meant.
static PID: AtomicI32 = AtomicI32::new(0);

/// In a new child: it is `place` on `board`, or nobody's if there is none.
pub fn born(board: Option<(&'static Board, Place)>) {
    let Some((board, place)) = board else {
        // Without a system call, which a filter might forbid.
        BOARD.store(null_mut(), Ordering::Relaxed);
        return;
    };
    BOARD.store(std::ptr::from_ref(board).cast_mut(), Ordering::Relaxed);
    PLACE.store(place.raw(), Ordering::Relaxed);
    PID.store(guest::process_id(), Ordering::Relaxed);
}

/// Before the end of a process: a child that its parent has asked tells it, once.
pub fn about_to_end() {
    let board = BOARD.load(Ordering::Relaxed);
    if board.is_null() || PID.load(Ordering::Relaxed) != guest::process_id() {
        return;
    }
    // SAFETY: it points to the parent's shared page, which is inherited mapped and never unmapped by anybody.
    let board = unsafe { &*board };
    BOARD.store(null_mut(), Ordering::Relaxed);
    board.announce_end(Place::from_raw(PLACE.load(Ordering::Relaxed)), LONGEST_WAIT);
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_process_that_is_nobodys_child_ends_without_ado() {
        super::about_to_end();
        super::born(None);
        super::about_to_end();
    }
}
