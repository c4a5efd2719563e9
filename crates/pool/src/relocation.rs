//! A page whose address shows leased bytes that its leases keep gets a spare frame: before it is changed, and where it is read anew.
//!
//! Relies on the page's state for who may do that and when ([`crate::page_state`]), on credits (a spare frame holds one, as every
//! page in memory does), and on [`crate::relocated_pages`] for the way back.

use std::time::{Duration, Instant};

use crate::access_mode::AccessMode;
use crate::counters::PoolCounter;
use crate::credits::Credit;
use crate::error::PoolError;
use crate::mapped_file::MappedFile;
use crate::page_read;
use crate::pool_state::PoolState;
use crate::reclaim;
use crate::relocated_pages::{settle, sweep};
use crate::spare_frames::{SpareFrame, SpareFrames};

/// Longest sleep before the next try.
const NAP: Duration = Duration::from_millis(2);

/// A spare frame that no page has yet, with the credit for it. Given back when dropped, unless it was kept.
struct NewFrame<'a> {
    frames: &'a SpareFrames,
    frame: SpareFrame,
    credit: Option<Credit<'a>>,
}

impl<'a> NewFrame<'a> {
    /// Waits until there is one.
    ///
    /// # Errors
    /// [`PoolError::Exhausted`] if nothing moves for as long as the configuration allows and no page is under writeback, or the system gives no addresses.
    fn take(shared: &'a PoolState, map: &'a MappedFile, page: u64) -> Result<Self, PoolError> {
        let frames = map.spare_frames(shared.config.lease_pages())?;
        let begun = Instant::now();
        let patience = Duration::from_millis(shared.config.miss_timeout_ms);
        let frame = loop {
            let seen = shared.pressure.freed.current();
            let still = begun.elapsed();
            if let Some(frame) = frames.take() {
                break frame;
            }
            if sweep(shared, map) > 0 {
                continue;
            }
            if still >= patience && shared.pressure.is_stuck_since(seen) {
                let waited_ms = u64::try_from(still.as_millis()).unwrap_or(u64::MAX);
                return Err(PoolError::Exhausted { budget_pages: shared.credits.total(), waited_ms });
            }
            shared.pressure.freed.wait(seen, Some(NAP));
        };
        let mut new = Self { frames, frame, credit: None };
        new.credit = Some(reclaim::credit(shared, map, page)?);
        Ok(new)
    }

    /// The frame is `page`'s from now on, whose bytes it holds; the address of these.
    fn keep(mut self, page: u64) -> *mut u8 {
        if let Some(credit) = self.credit.take() {
            credit.spend();
        }
        self.frames.assign(self.frame, page);
        let at = self.frames.at(self.frame);
        std::mem::forget(self);
        at
    }
}

impl Drop for NewFrame<'_> {
    fn drop(&mut self) {
        // SAFETY: the frame is this struct's alone: `keep`, which gives it to a page, forgets the struct.
        if unsafe { self.frames.give_back(self.frame) }.is_err() {
            // Its memory stays taken, and so does its credit.
            if let Some(credit) = self.credit.take() {
                credit.spend();
            }
        }
    }
}

/// Locks a leased page exclusively, in a spare frame: its leases keep the bytes that they see. `None` if it can't be by now.
///
/// # Errors
/// There is no memory for the frame.
pub(crate) fn relocate(shared: &PoolState, map: &MappedFile, page: u64) -> Result<Option<*mut u8>, PoolError> {
    let new = NewFrame::take(shared, map, page)?;
    let state = map.state(page);
    let Ok(is_newly_dirty) = state.begin_relocate() else { return Ok(None) };
    // SAFETY: `begin_relocate` has locked the page exclusively, so no thread changes the bytes at its address (leases only read them), and
    // `new` is a frame that no page has. Both are `page_bytes` long and apart.
    unsafe { new.frames.at(new.frame).copy_from_nonoverlapping(map.address(page), map.frames.page_bytes()) };
    let at = new.keep(page);
    state.end_relocate();
    if is_newly_dirty {
        shared.note_dirty(map, page);
    }
    map.counters.add(PoolCounter::Relocated, 1);
    Ok(Some(at))
}

/// Gets hold of an absent page whose address shows leased bytes, in a spare frame. `None` if it isn't so any more.
///
/// # Errors
/// The device can't read it, or there is no memory for it.
pub(crate) fn read_in(
    shared: &PoolState,
    map: &MappedFile,
    page: u64,
    want: AccessMode,
) -> Result<Option<*mut u8>, PoolError> {
    if settle(shared, map, page) {
        return Ok(None);
    }
    let new = NewFrame::take(shared, map, page)?;
    let state = map.state(page);
    if state.begin_read_relocated().is_err() {
        return Ok(None);
    }
    // SAFETY: `read` demands a page that is claimed for reading until it has returned: `begin_read_relocated` has claimed it, and the claim
    // ends below. No page has the new frame yet.
    if let Err(error) = unsafe { page_read::read(shared, map, page, want, Some((new.frames, new.frame))) } {
        drop(new);
        map.counters.add(PoolCounter::FailedReads, 1);
        map.follow_up(page, state.fail_read());
        settle(shared, map, page);
        return Err(error.into());
    }
    let at = new.keep(page);
    map.follow_up(page, state.end_read(want.hold()));
    if want != AccessMode::Read {
        shared.note_dirty(map, page);
    }
    Ok(Some(at))
}
