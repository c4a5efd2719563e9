//! Strings: reading, writing, appending, counting, single bits.
//!
//! What makes a long string longer has a twin that is done in steps, see `growth`. What reads and writes a string many times in one
//! command opens it once, see `string_mut`.

mod growth;
mod string_mut;

use quire_arena::Arena;

use crate::db::{DbId, ExpiryChange};
use crate::encoding::{Encoding, ValueType};
use crate::error::{Result, StoreError};
use crate::keyspace::digest::Digest;
use crate::keyspace::entry::{Entry, RAW, TEXT};
use crate::keyspace::ops::{Ops, no_copy_step, no_memory, no_table};
use crate::keyspace::value::ValueMut;
use crate::keyspace::{Keyspace, STRING_MAX_BYTES};
use crate::numbers::long_double::LongDouble;
use crate::numbers::parse_i64;

pub use string_mut::{StringMut, open_mut, open_mut_in_steps};

/// Most bytes that a growing string gets in reserve.
const RESERVE_MAX: usize = 1 << 20;
/// Redis keeps strings up to this length in the same allocation as their object, and says so.
const EMBSTR_MAX: usize = 44;
/// The number by which Redis knows the type.
const TYPE_NUMBER: u32 = 0;

/// What the keyspace asks of strings.
pub(crate) static OPS: Ops = Ops {
    name: encoding_name,
    check,
    table: no_table,
    copy_step: no_copy_step,
    has_movable_items: false,
    digest,
    memory: no_memory,
};

fn check(keyspace: &Keyspace, entry: &Entry) -> Result<()> {
    entry.value(keyspace.arena()).map(|_| ())
}

fn encoding_name(arena: &Arena, entry: &Entry) -> Result<&'static str> {
    if entry.has(RAW) {
        return Ok("raw");
    }
    let value = entry.value(arena)?;
    Ok(match value.len() {
        0..=20 if !entry.has(TEXT) && parse_i64(value).is_some() => "int",
        0..=EMBSTR_MAX => "embstr",
        _ => "raw",
    })
}

fn digest(arena: &Arena, entry: &Entry, digest: &mut Digest) -> Result<()> {
    digest.mix(&TYPE_NUMBER.to_be_bytes());
    digest.mix(entry.value(arena)?);
    Ok(())
}

/// The string of a key. Counts a hit or a miss and sets the access clock.
///
/// # Errors
/// As all operations here: [`StoreError::WrongType`], [`StoreError::Damaged`], [`StoreError::NoSuchDb`]; those that
/// write also [`StoreError::OutOfMemory`] and [`StoreError::TooLarge`].
#[inline]
pub fn get<'a>(keyspace: &'a mut Keyspace, db: DbId, key: &[u8]) -> Result<Option<&'a [u8]>> {
    keyspace.read(db, key, ValueType::String)
}

/// The string of a key that a command is about to change: an access, but no read that counts.
///
/// # Errors
/// As [`get`].
pub fn get_to_change<'a>(keyspace: &'a mut Keyspace, db: DbId, key: &[u8]) -> Result<Option<&'a [u8]>> {
    keyspace.open_to_change(db, key, ValueType::String)?.map(|value| value.bytes()).transpose()
}

/// The string of a key; counts nothing.
///
/// # Errors
/// As [`get`].
pub fn peek<'a>(keyspace: &'a Keyspace, db: DbId, key: &[u8]) -> Result<Option<&'a [u8]>> {
    match keyspace.peek(db, key, ValueType::String)? {
        Some(value) => Ok(Some(value.bytes()?)),
        None => Ok(None),
    }
}

/// The length of a key's string, 0 if there is no such key.
///
/// # Errors
/// As [`get`].
pub fn strlen(keyspace: &mut Keyspace, db: DbId, key: &[u8]) -> Result<usize> {
    Ok(keyspace.open(db, key, ValueType::String)?.map_or(0, |value| value.len()))
}

/// Gives a key a string, whatever it held before.
///
/// # Errors
/// As [`get`].
#[inline]
pub fn set(keyspace: &mut Keyspace, db: DbId, key: &[u8], value: &[u8], expiry: ExpiryChange) -> Result<()> {
    keyspace.put(db, key, Encoding::String, value, expiry)
}

/// As [`set`], for a string that was put together: however short it is, it counts as raw.
///
/// # Errors
/// As [`get`].
pub fn set_raw(keyspace: &mut Keyspace, db: DbId, key: &[u8], value: &[u8], expiry: ExpiryChange) -> Result<()> {
    let mut string = keyspace.open_any_mut(db, key)?;
    string.replace(Encoding::String, value, expiry)?;
    string.mark(RAW)
}

/// Appends to a key's string, which is created if need be; returns the new length.
///
/// # Errors
/// As [`get`].
pub fn append(keyspace: &mut Keyspace, db: DbId, key: &[u8], value: &[u8]) -> Result<usize> {
    append_to(&mut keyspace.open_mut(db, key, ValueType::String)?, value)
}

/// As [`append`]; what takes long is done in steps before, by [`Keyspace::copy_step`]. `None` as long as that is under way, and
/// nothing has changed yet: `owner` is to ask for the same again when a step has ended, or to call [`Keyspace::cancel_copy`].
///
/// # Errors
/// As [`append`].
pub fn append_in_steps(
    keyspace: &mut Keyspace,
    owner: u64,
    db: DbId,
    key: &[u8],
    value: &[u8],
) -> Result<Option<usize>> {
    let len_of = |len: usize| (len + value.len()) as u64;
    let Some(mut growing) = growth::open(keyspace, owner, db, key, len_of, false)? else { return Ok(None) };
    append_to(&mut growing.string, value).map(Some)
}

fn append_to(string: &mut ValueMut<'_>, value: &[u8]) -> Result<usize> {
    let old_len = string.get().map(|old| old.len());
    let start = old_len.unwrap_or(0);
    grow(string, start + value.len())?;
    if old_len.is_some() {
        string.mark(RAW)?;
    }
    string.part_mut(start, value.len())?.copy_from_slice(value);
    Ok(start + value.len())
}

/// Writes over a key's string from `offset`, which is padded with zeros if need be; returns the length afterwards.
///
/// # Errors
/// As [`get`].
pub fn set_range(keyspace: &mut Keyspace, db: DbId, key: &[u8], offset: u64, value: &[u8]) -> Result<usize> {
    // A value of another type is the graver error.
    set_range_of(&mut keyspace.open_mut(db, key, ValueType::String)?, offset, value, false)
}

/// As [`set_range`], in steps as [`append_in_steps`].
///
/// # Errors
/// As [`set_range`].
pub fn set_range_in_steps(
    keyspace: &mut Keyspace,
    owner: u64,
    db: DbId,
    key: &[u8],
    offset: u64,
    value: &[u8],
) -> Result<Option<usize>> {
    let end = if value.is_empty() { 0 } else { offset.saturating_add(value.len() as u64) };
    let Some(mut growing) = growth::open(keyspace, owner, db, key, |_| end, true)? else { return Ok(None) };
    set_range_of(&mut growing.string, offset, value, growing.is_cleared).map(Some)
}

fn set_range_of(string: &mut ValueMut<'_>, offset: u64, value: &[u8], is_cleared: bool) -> Result<usize> {
    if value.is_empty() {
        return Ok(string.get().map_or(0, |old| old.len()));
    }
    let end = offset.saturating_add(value.len() as u64);
    if end > STRING_MAX_BYTES as u64 {
        return Err(StoreError::TooLarge { len: end });
    }
    let len = pad(string, end as usize, is_cleared)?;
    string.part_mut(offset as usize, value.len())?.copy_from_slice(value);
    Ok(len)
}

/// Sets a bit of a key's string, counted from the first byte's highest bit; returns what it was. Nothing has changed
/// if it was so before, unless the string grew.
///
/// # Errors
/// As [`get`], and [`StoreError::OutOfRange`].
pub fn set_bit(keyspace: &mut Keyspace, db: DbId, key: &[u8], bit_offset: u64, bit: bool) -> Result<bool> {
    let byte_offset = byte_of(bit_offset)?;
    let mut string = keyspace.open_mut(db, key, ValueType::String)?;
    pad(&mut string, byte_offset + 1, false)?;
    set_bit_of(&mut string, bit_offset, bit)
}

/// As [`set_bit`], in steps as [`append_in_steps`].
///
/// # Errors
/// As [`set_bit`].
pub fn set_bit_in_steps(
    keyspace: &mut Keyspace,
    owner: u64,
    db: DbId,
    key: &[u8],
    bit_offset: u64,
    bit: bool,
) -> Result<Option<bool>> {
    let len = byte_of(bit_offset)? + 1;
    let Some(mut growing) = growth::open(keyspace, owner, db, key, |_| len as u64, true)? else { return Ok(None) };
    pad(&mut growing.string, len, growing.is_cleared)?;
    set_bit_of(&mut growing.string, bit_offset, bit).map(Some)
}

/// The byte that holds a bit.
fn byte_of(bit_offset: u64) -> Result<usize> {
    let byte = bit_offset / 8;
    if byte < STRING_MAX_BYTES as u64 { Ok(byte as usize) } else { Err(StoreError::OutOfRange { offset: bit_offset }) }
}

/// Sets a bit that the string has.
fn set_bit_of(string: &mut ValueMut<'_>, bit_offset: u64, bit: bool) -> Result<bool> {
    let byte_offset = byte_of(bit_offset)?;
    let mask = 0x80 >> (bit_offset % 8);
    let old = string.bytes()?.get(byte_offset).copied().unwrap_or_default();
    let new = if bit { old | mask } else { old & !mask };
    if new != old {
        string.part_mut(byte_offset, 1)?[0] = new;
    }
    Ok(old & mask != 0)
}

/// Makes a string at least so long, padded with zeros, which are there already if `is_cleared`; returns its length.
fn pad(string: &mut ValueMut<'_>, len: usize, is_cleared: bool) -> Result<usize> {
    let old_len = string.get().map_or(0, |old| old.len());
    let new_len = old_len.max(len);
    grow(string, new_len)?;
    string.mark(RAW)?;
    if new_len > old_len && !is_cleared {
        string.part_mut(old_len, new_len - old_len)?.fill(0);
    }
    Ok(new_len)
}

/// Makes a string so long, if it isn't; what it gets is for the caller to write.
fn grow(string: &mut ValueMut<'_>, len: usize) -> Result<()> {
    if string.get().is_some_and(|old| old.len() == len) {
        return Ok(());
    }
    string.grow(Encoding::String, len, reserve_of(len))
}

/// What a string in a place of its own gets in reserve when it gets so long.
fn reserve_of(len: usize) -> usize {
    len.min(RESERVE_MAX)
}

/// Adds to the integer that a key's string is, 0 if there is no such key; returns the sum.
///
/// # Errors
/// As [`get`], [`StoreError::NotInteger`], [`StoreError::Overflow`].
pub fn incr_by(keyspace: &mut Keyspace, db: DbId, key: &[u8], by: i64) -> Result<i64> {
    let mut string = keyspace.open_mut(db, key, ValueType::String)?;
    let old = match string.get() {
        Some(value) => parse_i64(value.bytes()?).ok_or(StoreError::NotInteger)?,
        None => 0,
    };
    let sum = old.checked_add(by).ok_or(StoreError::Overflow)?;
    string.replace(Encoding::String, itoa::Buffer::new().format(sum).as_bytes(), ExpiryChange::Keep)?;
    Ok(sum)
}

/// Adds to the number that a key's string is, 0 if there is no such key; returns the sum as it is now stored.
///
/// # Errors
/// As [`get`], [`StoreError::NotFloat`], [`StoreError::NanOrInfinity`].
pub fn incr_by_float(keyspace: &mut Keyspace, db: DbId, key: &[u8], by: impl Into<LongDouble>) -> Result<String> {
    let mut string = keyspace.open_mut(db, key, ValueType::String)?;
    let old = match string.get() {
        Some(value) => LongDouble::parse(value.bytes()?).ok_or(StoreError::NotFloat)?,
        None => LongDouble::ZERO,
    };
    let sum = old.plus(by.into()).filter(|sum| sum.is_finite()).ok_or(StoreError::NanOrInfinity)?;
    let text = sum.format();
    string.replace(Encoding::String, text.as_bytes(), ExpiryChange::Keep)?;
    if parse_i64(text.as_bytes()).is_some() {
        string.mark(TEXT)?;
    }
    Ok(text)
}
