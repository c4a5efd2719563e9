//! Strings that outgrow their place: a longer one is filled in steps, before the command that makes them longer runs.
//!
//! Without that a command copied up to 512 MiB, or filled as many with zeros, in one step. Relies on `copying` for the steps, and
//! for beginning anew what was made for a value that has changed since.

use crate::db::DbId;
use crate::encoding::ValueType;
use crate::error::{Result, StoreError};
use crate::heap::Heap;
use crate::keyspace::copying::{Making, Purpose};
use crate::keyspace::entries::keeps;
use crate::keyspace::value::ValueMut;
use crate::keyspace::value_copy::{AT_ONCE, CopiedValue, ValueCopy, cost_of_bytes};
use crate::keyspace::{Keyspace, STRING_MAX_BYTES};

use super::reserve_of;

/// A string that is about to get longer.
pub(super) struct Growing<'a> {
    pub(super) string: ValueMut<'a>,
    /// The bytes that it gets are zeros already.
    pub(super) is_cleared: bool,
}

/// What making a string longer takes.
struct Growth {
    /// It gets another place.
    moves: bool,
    /// Bytes of the new place that are filled: the old ones, and zeros behind them.
    total: usize,
    /// Bytes of the new place.
    room: usize,
}

/// A key's string, or one to be made, which a command makes `len_of` its length long. `None` if what that takes is still being
/// done, for `owner`: the command is to ask again when [`crate::CopyStep::Ended`] is told. With `pads` what the string gets is to be
/// zeros.
///
/// # Errors
/// As [`super::get`], and [`StoreError::OutOfMemory`]; nothing has changed then.
pub(super) fn open<'a>(
    keyspace: &'a mut Keyspace,
    owner: u64,
    db: DbId,
    key: &'a [u8],
    len_of: impl FnOnce(usize) -> u64,
    pads: bool,
) -> Result<Option<Growing<'a>>> {
    let mut string = keyspace.open_mut(db, key, ValueType::String)?;
    let len = len_of(string.get().map_or(0, |old| old.len()));
    let Some((len, growth)) = growth_of(&string, len, pads)? else {
        string.cancel_steps(owner)?;
        return Ok(Some(Growing { string, is_cleared: false }));
    };
    let entry = string.get().map(|old| *old.entry());
    let begin = |heap: &mut Heap| ValueCopy::begin_growth(heap, entry.as_ref(), growth.total, growth.room);
    match string.make_in_steps(owner, Purpose::Growth(len), begin) {
        Ok(Making::UnderWay | Making::Busy) => Ok(None),
        Ok(Making::Made(made)) => {
            let CopiedValue::Object(object) = made.into_copy(string.heap())? else {
                return Err(StoreError::damaged("a table where a string was copied"));
            };
            match string.move_to(object) {
                Ok(()) => Ok(Some(Growing { string, is_cleared: pads })),
                Err(error @ StoreError::OutOfMemory { .. }) => {
                    string.heap().arena.free(object.object)?;
                    // It may have room where it is; the command must not fail then.
                    if growth.moves { Err(error) } else { Ok(Some(Growing { string, is_cleared: false })) }
                }
                Err(error) => Err(error),
            }
        }
        // It has room where it is, so that the command must not fail.
        Err(StoreError::OutOfMemory { .. }) if !growth.moves => Ok(Some(Growing { string, is_cleared: false })),
        Err(error) => Err(error),
    }
}

/// What it takes to make a string so long, with the length; `None` if that is little, or the length is not allowed.
fn growth_of(string: &ValueMut<'_>, len: u64, pads: bool) -> Result<Option<(usize, Growth)>> {
    let old_len = string.get().map_or(0, |old| old.len());
    let Some(len) = usize::try_from(len).ok().filter(|len| (old_len + 1..=STRING_MAX_BYTES).contains(len)) else {
        return Ok(None);
    };
    // As much as the command asks for, which finds that it fits.
    let reserve = string.get().map_or(0, |_| reserve_of(len));
    let object = string.get().map(|old| old.entry().value_object(string.arena())).transpose()?.flatten();
    let moves = object.is_none_or(|object| !keeps(&object, len, reserve));
    let total = if pads { len } else { old_len };
    let cost = cost_of_bytes(if moves { total } else { total - old_len });
    Ok((cost > AT_ONCE).then_some((len, Growth { moves, total, room: len + reserve })))
}
