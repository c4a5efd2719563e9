//! The child's side: what it remembers of its parent's board, and what it does just before it ends.
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
/// Who we were when we were made: a child made by other means than our `fork` inherits the above, but is not meant.
static PID: AtomicI32 = AtomicI32::new(0);

/// In a new child: it is `slot_id` on `stats_page`, or nobody's if there is none.
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
    // SAFETY: it points to the parent's shared page, which is inherited mapped and never unmapped by anybody.
    let stats_page = unsafe { &*stats_page };
    STATS_PAGE.store(null_mut(), Ordering::Relaxed);
    stats_page.announce_end(SlotId::from_raw(SLOT_ID.load(Ordering::Relaxed)), LONGEST_WAIT);
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
