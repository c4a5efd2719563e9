//! The slow way to a page: it isn't there, or somebody else is at it.
//!
//! Relies on the word for who may do what. Memory is found before the page is claimed, so that nobody waits for memory while
//! others wait for the page.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Instant;

use quire_device::{Action, DeviceError, Direction};

use crate::counters::{Cause, Count};
use crate::error::PoolError;
use crate::mapped::Mapped;
use crate::page::Run;
use crate::park::Futex;
use crate::shared::Shared;
use crate::word::{Hold, Seen, State};
use crate::{ahead, arrive, reclaim};

/// What the page is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// To be read.
    Read,
    /// To be changed.
    Write,
    /// To be changed all over: what it holds doesn't matter.
    Overwrite,
}

impl Want {
    fn hold(self) -> Hold {
        if self == Self::Read { Hold::Shared } else { Hold::Exclusive }
    }

    fn is_possible(self, seen: Seen) -> bool {
        if self == Self::Read { seen.can_share() } else { seen.can_exclude() }
    }

    /// Why somebody who finds the page so has to wait.
    fn cause(self, seen: Seen) -> Cause {
        match seen.state() {
            State::Reading => Cause::Reading,
            State::Evicting => Cause::Evicting,
            State::Writing if self != Self::Read && seen.shared() == 0 => Cause::Writing,
            _ if seen.is_exclusive() => Cause::Changing,
            _ => Cause::Readers,
        }
    }
}

/// Gets hold of `page`, which lies in the map, for reading or changing it.
///
/// # Errors
/// The device can't read it, or there is no memory for it.
#[cold]
pub(crate) fn acquire(shared: &Shared, map: &Mapped, page: u64, want: Want) -> Result<(), PoolError> {
    let word = map.word(page);
    loop {
        let held = if want == Want::Read { word.share().map(|()| false) } else { word.exclude() };
        let seen = match held {
            Ok(is_newly_dirty) => {
                if is_newly_dirty {
                    shared.note_dirty(map, page);
                }
                return Ok(());
            }
            Err(seen) => seen,
        };
        match seen.state() {
            State::Absent => {
                if read_in(shared, map, page, want)? {
                    return Ok(());
                }
            }
            State::Reading | State::Evicting => wait(shared, map, page, want, seen),
            _ if seen.is_marked() => {
                if word.unmark() {
                    ahead::after_mark(shared, map, page);
                }
            }
            _ => wait(shared, map, page, want, seen),
        }
    }
}

/// Waits until it makes sense to look at the page again.
fn wait(shared: &Shared, map: &Mapped, page: u64, want: Want, seen: Seen) {
    let (word, begun) = (map.word(page), Instant::now());
    if let Some(lane) = seen.lane() {
        arrive::drive(shared, map, lane, || word.seen().lane() != Some(lane));
        map.counters.waited(Cause::Ahead, begun);
        return;
    }
    let is_new = |seen: Seen| match seen.state() {
        State::Absent => true,
        // A lane has to be driven, or nothing arrives.
        State::Reading => seen.lane().is_some(),
        State::Evicting => false,
        State::Clean | State::Dirty | State::Writing => seen.is_marked() || want.is_possible(seen),
    };
    word.wait(&Futex, is_new);
    map.counters.waited(want.cause(seen), begun);
}

/// Reads the page if it is still absent; whether the caller has got hold of it.
fn read_in(shared: &Shared, map: &Mapped, page: u64, want: Want) -> Result<bool, PoolError> {
    let _entered = tracing::trace_span!("pool_miss", map = map.device.name(), page, ?want).entered();
    let credit = reclaim::credit(shared, map, page)?;
    let word = map.word(page);
    if word.begin_read(None).is_err() {
        return Ok(false);
    }
    credit.spend();
    map.shard(page).resident.fetch_add(1, Ordering::Relaxed);
    if want != Want::Overwrite {
        // Before the page itself is read, so that the device has both to do.
        ahead::after_miss(shared, map, page);
    }
    if let Err(error) = fetch(map, page, want) {
        arrive::give_up(shared, map, Run { start: page, pages: 1 });
        return Err(error.into());
    }
    map.follow_up(page, word.end_read(want.hold()));
    if want != Want::Read {
        shared.note_dirty(map, page);
    }
    Ok(true)
}

/// Brings the bytes of a page that is claimed for reading into its place. A second tier would be asked first, here.
fn fetch(map: &Mapped, page: u64, want: Want) -> Result<(), DeviceError> {
    map.check_memory()?;
    if want == Want::Overwrite {
        map.counters.add(Count::Overwritten, 1);
        return Ok(());
    }
    map.counters.add(Count::Misses, 1);
    if map.is_tail(page) {
        return fetch_tail(map, page);
    }
    // SAFETY: the page is claimed for reading, by us, until the transfer is dropped.
    let mut transfer = unsafe { map.frames.transfer(Direction::Read, Run { start: page, pages: 1 }) };
    map.device.run(&mut transfer)
}

/// As [`fetch`], for the last page of a file that ends inside it. The rest of the page is zero.
fn fetch_tail(map: &Mapped, page: u64) -> Result<(), DeviceError> {
    // SAFETY: the page is claimed for reading, by us.
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
