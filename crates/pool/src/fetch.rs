//! The slow way to a page: it isn't there, or another thread uses it.
//!
//! Relies on the page's state for which thread may do what. Memory is found before the page is claimed, so that no thread waits for memory while
//! others wait for the page.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Instant;

use quire_device::{Action, DeviceError, Direction};

use crate::counters::{PoolCounter, WaitCause};
use crate::error::PoolError;
use crate::mapped_file::MappedFile;
use crate::page::PageRun;
use crate::page_state::{LockMode, PageStatus, StateSnapshot};
use crate::park::Futex;
use crate::pool_state::PoolState;
use crate::{completion, paths, readahead, reclaim};

/// What the page is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessMode {
    /// To be read.
    Read,
    /// To be changed.
    Write,
    /// To be changed all over: what it holds doesn't matter.
    Overwrite,
}

impl AccessMode {
    fn hold(self) -> LockMode {
        if self == Self::Read { LockMode::Shared } else { LockMode::Exclusive }
    }

    fn is_possible(self, seen: StateSnapshot) -> bool {
        if self == Self::Read { seen.can_lock_shared() } else { seen.can_lock_exclusive() }
    }

    /// Why a thread that finds the page so has to wait.
    fn cause(self, seen: StateSnapshot) -> WaitCause {
        match seen.status() {
            PageStatus::Reading => WaitCause::Reading,
            PageStatus::Evicting => WaitCause::Evicting,
            PageStatus::Writing if self != Self::Read && seen.shared() == 0 => WaitCause::Writing,
            _ if seen.is_exclusive() => WaitCause::Changing,
            _ => WaitCause::Readers,
        }
    }
}

/// Gets hold of `page`, which lies in the map, for reading or changing it.
///
/// # Errors
/// The device can't read it, or there is no memory for it.
#[cold]
pub(crate) fn acquire(shared: &PoolState, map: &MappedFile, page: u64, want: AccessMode) -> Result<(), PoolError> {
    let state = map.state(page);
    loop {
        let held =
            if want == AccessMode::Read { state.try_lock_shared().map(|()| false) } else { state.try_lock_exclusive() };
        let seen = match held {
            Ok(is_newly_dirty) => {
                if is_newly_dirty {
                    shared.note_dirty(map, page);
                }
                return Ok(());
            }
            Err(seen) => seen,
        };
        match seen.status() {
            PageStatus::Absent => {
                if read_in(shared, map, page, want)? {
                    return Ok(());
                }
            }
            PageStatus::Reading | PageStatus::Evicting => wait(shared, map, page, want, seen),
            _ if seen.is_marked() => {
                if state.unmark() {
                    readahead::after_mark(shared, map, page);
                }
            }
            _ => wait(shared, map, page, want, seen),
        }
    }
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

/// Reads the page if it is still absent; whether the caller has got hold of it.
fn read_in(shared: &PoolState, map: &MappedFile, page: u64, want: AccessMode) -> Result<bool, PoolError> {
    let _entered = tracing::trace_span!("pool_miss", map = map.device.name(), page, ?want).entered();
    let credit = reclaim::credit(shared, map, page)?;
    let state = map.state(page);
    if state.begin_read(None).is_err() {
        return Ok(false);
    }
    credit.spend();
    map.shard(page).resident.fetch_add(1, Ordering::Relaxed);
    if want != AccessMode::Overwrite {
        // Before the page itself is read, so that the device has both to do.
        readahead::after_miss(shared, map, page);
    }
    if let Err(error) = fetch(shared, map, page, want) {
        completion::give_up(shared, map, PageRun { start: page, pages: 1 });
        return Err(error.into());
    }
    map.follow_up(page, state.end_read(want.hold()));
    if want != AccessMode::Read {
        shared.note_dirty(map, page);
    }
    Ok(true)
}

/// Brings the bytes of a page that is claimed for reading into its place.
fn fetch(shared: &PoolState, map: &MappedFile, page: u64, want: AccessMode) -> Result<(), DeviceError> {
    map.check_memory()?;
    if want == AccessMode::Overwrite {
        map.counters.add(PoolCounter::Overwritten, 1);
        return Ok(());
    }
    map.counters.add(PoolCounter::Misses, 1);
    if map.is_tail(page) {
        map.counters.add(PoolCounter::ReadDirect, 1);
        return fetch_tail(map, page);
    }
    // SAFETY: `read_in` has claimed the page with `begin_read`, and ends the claim after this function returns; the slice is used
    // before the transfer below is made.
    let bytes = unsafe { map.frames.claimed(page) };
    if paths::read_tier(shared, map, page, bytes, true) || paths::read_cached(shared, map, page, bytes) {
        return Ok(());
    }
    // SAFETY: `read_in` has claimed the page with `begin_read`, and ends the claim after the transfer is dropped here: until then
    // no other thread uses its bytes.
    let mut transfer = unsafe { map.frames.transfer(Direction::Read, PageRun { start: page, pages: 1 }) };
    paths::read_direct(shared, map, 1, || map.device.run(&mut transfer))
}

/// As [`fetch`], for the last page of a file that ends inside it. The rest of the page is zero.
fn fetch_tail(map: &MappedFile, page: u64) -> Result<(), DeviceError> {
    // SAFETY: `read_in` has claimed the page with `begin_read`, and ends the claim after this function returns.
    let bytes = unsafe { map.frames.claimed(page) };
    let offset = page * bytes.len() as u64;
    let len = (map.len() - offset).min(bytes.len() as u64) as usize;
    let got = map.device.read_at(offset, &mut bytes[..len])?;
    if got < len {
        let end = io::Error::from(io::ErrorKind::UnexpectedEof);
        return Err(DeviceError::new(Action::Read, map.device.name(), &end).at(offset, len as u64));
    }
    Ok(())
}
