//! The slow way to a page: it isn't there, or another thread uses it.
//!
//! Relies on the page's state for which thread may do what. Memory is found before the page is claimed, so that no thread waits for memory while
//! others wait for the page.

use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::access_mode::AccessMode;
use crate::counters::WaitCause;
use crate::error::PoolError;
use crate::futex::Futex;
use crate::mapped_file::MappedFile;
use crate::page::PageRun;
use crate::page_state::{PageStatus, StateSnapshot};
use crate::pool_state::PoolState;
use crate::{completion, page_read, readahead, reclaim, relocated_pages, relocation};

/// Gets hold of `page`, which lies in the map, for reading or changing it. The address of its bytes, which stay there while it is held.
///
/// # Errors
/// The device can't read it, or there is no memory for it.
#[cold]
pub(crate) fn acquire(shared: &PoolState, map: &MappedFile, page: u64, want: AccessMode) -> Result<*mut u8, PoolError> {
    let state = map.state(page);
    loop {
        // Its leases may have ended since.
        relocated_pages::settle(shared, map, page);
        let seen = match lock(shared, map, page, want) {
            Ok(at) => return Ok(at),
            Err(seen) => seen,
        };
        match seen.status() {
            PageStatus::Absent => {
                let is_relocated = seen.is_relocated();
                let reader = if is_relocated { relocation::read_in } else { read_in };
                if let Some(at) = reader(shared, map, page, want)? {
                    return Ok(at);
                }
            }
            PageStatus::Reading | PageStatus::Evicting => wait(shared, map, page, want, seen),
            _ if seen.is_marked() => {
                if state.unmark() {
                    readahead::after_mark(shared, map, page);
                }
            }
            _ if want != AccessMode::Read && seen.can_relocate() => {
                if let Some(at) = relocation::relocate(shared, map, page)? {
                    return Ok(at);
                }
            }
            _ => wait(shared, map, page, want, seen),
        }
    }
}

/// Locks a page whose bytes are in memory, wherever; the address of these.
fn lock(shared: &PoolState, map: &MappedFile, page: u64, want: AccessMode) -> Result<*mut u8, StateSnapshot> {
    let state = map.state(page);
    if want == AccessMode::Read {
        return state.try_lock_shared_anywhere().map(|is_relocated| relocated_pages::place(map, page, is_relocated));
    }
    let before = state.try_lock_exclusive_anywhere()?;
    if before.status() == PageStatus::Clean {
        shared.note_dirty(map, page);
    }
    if before.is_relocated() && before.leases() == 0 {
        // SAFETY: `move_back_locked` demands a relocated page that is locked exclusively and has no lease: the lock was taken just now, and no
        // page gets a lease while it is locked so.
        return Ok(unsafe { relocated_pages::move_back_locked(shared, map, page) });
    }
    Ok(relocated_pages::place(map, page, before.is_relocated()))
}

/// Waits until it makes sense to try again.
fn wait(shared: &PoolState, map: &MappedFile, page: u64, want: AccessMode, seen: StateSnapshot) {
    let (state, begun) = (map.state(page), Instant::now());
    if let Some(number) = seen.readahead_queue() {
        completion::drive(shared, map, number, || state.load().readahead_queue() != Some(number));
        map.counters.waited(WaitCause::Ahead, begun);
        return;
    }
    let is_new = |seen: StateSnapshot| match seen.status() {
        PageStatus::Absent => true,
        // A thread has to drive the readahead queue, or nothing arrives.
        PageStatus::Reading => seen.readahead_queue().is_some(),
        PageStatus::Evicting => false,
        PageStatus::Clean | PageStatus::Dirty | PageStatus::Writing => seen.is_marked() || want.is_possible(seen),
    };
    state.wait(&Futex, is_new);
    map.counters.waited(want.cause(seen), begun);
}

/// Reads the page if it is still absent; its address if the caller has got hold of it.
fn read_in(shared: &PoolState, map: &MappedFile, page: u64, want: AccessMode) -> Result<Option<*mut u8>, PoolError> {
    let _entered = tracing::trace_span!("pool_miss", map = map.device.name(), page, ?want).entered();
    let credit = reclaim::credit(shared, map, page)?;
    let state = map.state(page);
    if state.begin_read(None).is_err() {
        return Ok(None);
    }
    credit.spend();
    map.shard(page).resident.fetch_add(1, Ordering::Relaxed);
    if want != AccessMode::Overwrite {
        // Before the page itself is read, so that the device has both to do.
        readahead::after_miss(shared, map, page);
    }
    // SAFETY: `read` demands a page that is claimed for reading until it has returned: `begin_read` has claimed it, and the claim ends below.
    if let Err(error) = unsafe { page_read::read(shared, map, page, want, None) } {
        completion::give_up(shared, map, PageRun { start: page, pages: 1 });
        return Err(error.into());
    }
    map.follow_up(page, state.end_read(want.hold()));
    if want != AccessMode::Read {
        shared.note_dirty(map, page);
    }
    Ok(Some(map.address(page)))
}
