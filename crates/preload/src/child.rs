//! The child's side: what it remembers of its parent's stats page, and what it does just before it ends.
//!
//! Relies on everything here being async-signal-safe: atomics, `getpid`, `clock_gettime` and futexes.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};
use std::time::Duration;

use quire_sys::guest;

use crate::stats_page::{SlotId, StatsPage};

/// A child waits no longer than that for its parent's leave.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

static STATS_PAGE: AtomicPtr<StatsPage> = AtomicPtr::new(null_mut());
static SLOT_ID: AtomicU32 = AtomicU32::new(0);
/// The number of this process when it was made: a child made by other means than the library's `fork` inherits the above,
/// but is not meant.
static PID: AtomicI32 = AtomicI32::new(0);

/// In a new child: it has `slot_id` on `stats_page`, or no parent that asks if there is none.
pub fn born(stats_page: Option<(&'static StatsPage, SlotId)>) {
    let Some((stats_page, slot_id)) = stats_page else {
        // Without a system call, which a filter might forbid.
        STATS_PAGE.store(null_mut(), Ordering::Relaxed);
        return;
    };
    STATS_PAGE.store(std::ptr::from_ref(stats_page).cast_mut(), Ordering::Relaxed);
    SLOT_ID.store(slot_id.raw(), Ordering::Relaxed);
    PID.store(guest::process_id(), Ordering::Relaxed);
}

/// Before the end of a process: a child that its parent has asked tells it, once.
pub fn about_to_end() {
    let stats_page = STATS_PAGE.load(Ordering::Relaxed);
    if stats_page.is_null() || PID.load(Ordering::Relaxed) != guest::process_id() {
        return;
    }
    // SAFETY: `born` stored the address of the parent's shared page. A fork leaves that mapped, and neither
    // `state::next_slot`, which made it, nor any other function unmaps it.
    let stats_page = unsafe { &*stats_page };
    STATS_PAGE.store(null_mut(), Ordering::Relaxed);
    stats_page.announce_end(SlotId::from_raw(SLOT_ID.load(Ordering::Relaxed)), LONGEST_WAIT);
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_process_that_is_no_child_of_ours_ends_without_ado() {
        super::about_to_end();
        super::born(None);
        super::about_to_end();
    }
}
