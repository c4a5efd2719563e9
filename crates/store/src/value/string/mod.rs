//! Strings: reading, writing, appending, counting, single bits.

use quire_arena::Arena;
use zerocopy::IntoBytes;

use crate::db::{DbId, Expiry};
use crate::encoding::{Encoding, Kind};
use crate::error::{Result, StoreError};
use crate::keyspace::digest::Digest;
use crate::keyspace::entries::{EntryLayout, check_len};
use crate::keyspace::entry::{EXPIRES, EXTERNAL, Entry, EntryHeader, HEADER_BYTES, INLINE_MAX, RAW, ROOMY, TEXT};
use crate::keyspace::ops::{Ops, no_copy_step, no_memory, no_table};
use crate::keyspace::{Keyspace, STRING_MAX_BYTES, check_kind};
use crate::numbers::long_double::LongDouble;
use crate::numbers::parse_i64;
use crate::table::reclaim;

/// Most bytes that a growing string gets in reserve.
const RESERVE_MAX: usize = 1 << 20;
/// Redis keeps strings up to this length in the same allocation as their object, and says so.
const EMBSTR_MAX: usize = 44;
/// The number by which Redis knows the type.
const TYPE_NUMBER: u32 = 0;

/// What the keyspace asks of strings.
pub(crate) static OPS: Ops =
    Ops { name: encoding_name, check, table: no_table, copy_step: no_copy_step, digest, memory: no_memory };

fn check(keyspace: &Keyspace, entry: &Entry) -> Result<()> {
    entry.value(&keyspace.heap.arena).map(|_| ())
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
    match keyspace.find_kind_to_read(db, key, Kind::String)? {
        Some(entry) => Ok(Some(entry.value(&keyspace.heap.arena)?)),
        None => Ok(None),
    }
}

/// The string of a key; counts nothing.
///
/// # Errors
/// As [`get`].
pub fn peek<'a>(keyspace: &'a Keyspace, db: DbId, key: &[u8]) -> Result<Option<&'a [u8]>> {
    match check_kind(keyspace.peek_entry(db, key)?, Kind::String)? {
        Some(entry) => Ok(Some(entry.value(&keyspace.heap.arena)?)),
        None => Ok(None),
    }
}

/// The length of a key's string, 0 if there is no such key.
///
/// # Errors
/// As [`get`].
pub fn strlen(keyspace: &mut Keyspace, db: DbId, key: &[u8]) -> Result<usize> {
    let found = keyspace.find_kind_to_read(db, key, Kind::String)?;
    Ok(found.map_or(0, |entry| entry.header.value_len as usize))
}

/// Gives a key a string, whatever it held before.
///
/// # Errors
/// As [`get`].
#[inline]
pub fn set(keyspace: &mut Keyspace, db: DbId, key: &[u8], value: &[u8], expiry: Expiry) -> Result<()> {
    let hash = keyspace.hash(key);
    let found = keyspace.find(db, key, hash)?;
    match found {
        Some(entry) if overwrite(keyspace, &entry, value, expiry)? => {}
        Some(entry) => replace_value(keyspace, db, entry, value, expiry)?,
        None => {
            let expiry = if let Expiry::At(at_ms) = expiry { Some(at_ms) } else { None };
            let layout = EntryLayout::new(Encoding::String, value.len(), expiry);
            let entry = keyspace.create_entry(db, key, hash, layout)?;
            entry.value_mut(&mut keyspace.heap.arena, 0, value.len())?.copy_from_slice(value);
        }
    }
    keyspace.changed(db, key, true);
    Ok(())
}

/// The common case: the new string has the old one's size class and no time to live changes, so the entry is
/// written over with one pass of the barrier. False if that isn't so.
#[inline]
fn overwrite(keyspace: &mut Keyspace, entry: &Entry, value: &[u8], expiry: Expiry) -> Result<bool> {
    // Any flag but LONG_KEY stands for something that must be looked after.
    let header = entry.header;
    if header.encoding != Encoding::String as u8
        || entry.has(EXTERNAL | ROOMY | RAW | TEXT | EXPIRES)
        || matches!(expiry, Expiry::At(_))
    {
        return Ok(false);
    }
    let offset = entry.value_offset();
    let total = offset + value.len();
    if header.value_len as usize != value.len()
        && (total > INLINE_MAX || Arena::class_size(total) != Arena::class_size(entry.len()))
    {
        return Ok(false);
    }
    let header = EntryHeader { value_len: value.len() as u32, clock: keyspace.clock.seconds, ..header };
    let bytes = keyspace.heap.arena.bytes_mut(entry.handle, 0, total)?;
    bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
    bytes[offset..].copy_from_slice(value);
    Ok(true)
}

/// The other cases of SET on a key that exists.
fn replace_value(keyspace: &mut Keyspace, db: DbId, entry: Entry, value: &[u8], expiry: Expiry) -> Result<()> {
    let expiry = match expiry {
        Expiry::Keep => entry.expiry(&keyspace.heap.arena)?,
        Expiry::Clear => None,
        Expiry::At(at_ms) => Some(at_ms),
    };
    let table = (keyspace.ops(&entry)?.table)(&keyspace.heap.arena, &entry)?;
    let entry = keyspace.reshape(db, entry, EntryLayout::new(Encoding::String, value.len(), expiry))?;
    entry.value_mut(&mut keyspace.heap.arena, 0, value.len())?.copy_from_slice(value);
    table.map_or(Ok(()), |table| reclaim::retire_objects(&mut keyspace.heap, table))
}

/// As [`set`], for a string that was put together: however short it is, it counts as raw.
///
/// # Errors
/// As [`get`].
pub fn set_raw(keyspace: &mut Keyspace, db: DbId, key: &[u8], value: &[u8]) -> Result<()> {
    set(keyspace, db, key, value, Expiry::Clear)?;
    mark_key(keyspace, db, key, RAW)
}

/// Appends to a key's string, which is created if need be; returns the new length.
///
/// # Errors
/// As [`get`].
pub fn append(keyspace: &mut Keyspace, db: DbId, key: &[u8], value: &[u8]) -> Result<usize> {
    let (entry, old_len) = grow_string(keyspace, db, key, |old_len| old_len + value.len())?;
    if old_len.is_some() {
        keyspace.mark(&entry, RAW)?;
    }
    entry.value_mut(&mut keyspace.heap.arena, old_len.unwrap_or(0), value.len())?.copy_from_slice(value);
    keyspace.changed(db, key, true);
    Ok(entry.header.value_len as usize)
}

/// Writes over a key's string from `offset`, which is padded with zeros if need be; returns the length afterwards.
///
/// # Errors
/// As [`get`].
pub fn set_range(keyspace: &mut Keyspace, db: DbId, key: &[u8], offset: u64, value: &[u8]) -> Result<usize> {
    if value.is_empty() {
        // Not a read, so nothing is counted.
        let found = keyspace.find_kind(db, key, keyspace.hash(key), Kind::String)?;
        return Ok(found.map_or(0, |entry| entry.header.value_len as usize));
    }
    let end = offset.saturating_add(value.len() as u64);
    if end > STRING_MAX_BYTES as u64 {
        // A value of another type is the graver error.
        keyspace.find_kind(db, key, keyspace.hash(key), Kind::String)?;
        return Err(StoreError::TooLarge { len: end });
    }
    let (entry, _) = pad_string(keyspace, db, key, end as usize)?;
    entry.value_mut(&mut keyspace.heap.arena, offset as usize, value.len())?.copy_from_slice(value);
    keyspace.changed(db, key, true);
    Ok(entry.header.value_len as usize)
}

/// Sets a bit of a key's string, counted from the first byte's highest bit; returns what it was. Nothing has changed
/// if it was so before, unless the string grew.
///
/// # Errors
/// As [`get`], and [`StoreError::OutOfRange`].
pub fn set_bit(keyspace: &mut Keyspace, db: DbId, key: &[u8], bit_offset: u64, bit: bool) -> Result<bool> {
    if bit_offset / 8 >= STRING_MAX_BYTES as u64 {
        return Err(StoreError::OutOfRange { offset: bit_offset });
    }
    let byte_offset = (bit_offset / 8) as usize;
    let (entry, old_len) = pad_string(keyspace, db, key, byte_offset + 1)?;
    let mask = 0x80 >> (bit_offset % 8);
    let old = entry.value(&keyspace.heap.arena)?.get(byte_offset).copied().unwrap_or_default();
    let new = if bit { old | mask } else { old & !mask };
    if new != old {
        entry.value_mut(&mut keyspace.heap.arena, byte_offset, 1)?[0] = new;
    }
    if new != old || old_len.is_none_or(|old_len| old_len <= byte_offset) {
        keyspace.changed(db, key, true);
    }
    Ok(old & mask != 0)
}

/// The entry of a string of at least `len` bytes, padded with zeros, and the length that it had if it existed.
fn pad_string(keyspace: &mut Keyspace, db: DbId, key: &[u8], len: usize) -> Result<(Entry, Option<usize>)> {
    let (entry, old_len) = grow_string(keyspace, db, key, |old_len| old_len.max(len))?;
    keyspace.mark(&entry, RAW)?;
    let (start, end) = (old_len.unwrap_or(0), entry.header.value_len as usize);
    entry.value_mut(&mut keyspace.heap.arena, start, end - start)?.fill(0);
    Ok((entry, old_len))
}

/// Notes how a key's string came to be.
fn mark_key(keyspace: &mut Keyspace, db: DbId, key: &[u8], flags: u8) -> Result<()> {
    match keyspace.find_any(db, key, keyspace.hash(key))? {
        Some(entry) => keyspace.mark(&entry, flags),
        None => Ok(()),
    }
}

/// The entry of a string whose length becomes what `new_len` makes of the old one, which is returned too if the
/// string existed.
fn grow_string(
    keyspace: &mut Keyspace,
    db: DbId,
    key: &[u8],
    new_len: impl Fn(usize) -> usize,
) -> Result<(Entry, Option<usize>)> {
    let hash = keyspace.hash(key);
    let Some(entry) = keyspace.find_kind(db, key, hash, Kind::String)? else {
        return Ok((keyspace.create_entry(db, key, hash, EntryLayout::new(Encoding::String, new_len(0), None))?, None));
    };
    let old_len = entry.header.value_len as usize;
    let value_len = new_len(old_len);
    if value_len == old_len {
        return Ok((entry, Some(old_len)));
    }
    check_len(value_len)?;
    let expiry = entry.expiry(&keyspace.heap.arena)?;
    let reserve = value_len.min(RESERVE_MAX);
    let layout = EntryLayout { encoding: Encoding::String, value_len, keep: old_len, expiry, reserve };
    Ok((keyspace.reshape(db, entry, layout)?, Some(old_len)))
}

/// Adds to the integer that a key's string is, 0 if there is no such key; returns the sum.
///
/// # Errors
/// As [`get`], [`StoreError::NotInteger`], [`StoreError::Overflow`].
pub fn incr_by(keyspace: &mut Keyspace, db: DbId, key: &[u8], by: i64) -> Result<i64> {
    let old = match keyspace.find_kind(db, key, keyspace.hash(key), Kind::String)? {
        Some(entry) => parse_i64(entry.value(&keyspace.heap.arena)?).ok_or(StoreError::NotInteger)?,
        None => 0,
    };
    let sum = old.checked_add(by).ok_or(StoreError::Overflow)?;
    set(keyspace, db, key, itoa::Buffer::new().format(sum).as_bytes(), Expiry::Keep)?;
    Ok(sum)
}

/// Adds to the number that a key's string is, 0 if there is no such key; returns the sum as it is now stored.
///
/// # Errors
/// As [`get`], [`StoreError::NotFloat`], [`StoreError::NanOrInfinity`].
pub fn incr_by_float(keyspace: &mut Keyspace, db: DbId, key: &[u8], by: impl Into<LongDouble>) -> Result<String> {
    let old = match keyspace.find_kind(db, key, keyspace.hash(key), Kind::String)? {
        Some(entry) => LongDouble::parse(entry.value(&keyspace.heap.arena)?).ok_or(StoreError::NotFloat)?,
        None => LongDouble::ZERO,
    };
    let sum = old.plus(by.into()).filter(|sum| sum.is_finite()).ok_or(StoreError::NanOrInfinity)?;
    let text = sum.format();
    set(keyspace, db, key, text.as_bytes(), Expiry::Keep)?;
    if parse_i64(text.as_bytes()).is_some() {
        mark_key(keyspace, db, key, TEXT)?;
    }
    Ok(text)
}
