//! Hashes: maps from fields to values. Small ones are packed into their entry, large ones are tables of fields.
//!
//! Relies on `packed` and `fields` for the two layouts; a hash changes from the first to the second when it grows past
//! the limits, and never back, as in Redis. A hash without fields doesn't exist.

mod fields;
mod packed;
mod view;
mod walks;

use std::collections::HashSet;

use quire_arena::Arena;

use crate::db::DbId;
use crate::encoding::{Encoding, HashEncoding, Kind};
use crate::error::{Result, StoreError};
use crate::keyspace::digest::Digest;
use crate::keyspace::entries::{EntryLayout, check_len};
use crate::keyspace::entry::Entry;
use crate::keyspace::ops::{Ops, copy_table_step, no_copy_step, no_memory, no_table, table_memory, table_of};
use crate::keyspace::{Keyspace, check_kind};
use crate::numbers::long_double::LongDouble;
use crate::numbers::parse_i64;
use crate::table::check::check_items;
use crate::table::{TableHead, reclaim};

pub use view::{HashView, view};
pub use walks::{random_fields, scan};

use fields::Field;

/// The number by which Redis knows the type.
const TYPE_NUMBER: u32 = 4;

/// What the keyspace asks of packed hashes.
pub(crate) static PACKED_OPS: Ops = Ops {
    name: |_, _| Ok("listpack"),
    check: check_packed,
    table: no_table,
    copy_step: no_copy_step,
    digest,
    memory: no_memory,
};
/// What the keyspace asks of hashes that are tables.
pub(crate) static TABLE_OPS: Ops = Ops {
    name: |_, _| Ok("hashtable"),
    check: check_table,
    table: table_of,
    copy_step: copy_table_step,
    digest,
    memory: table_memory,
};

fn check_packed(keyspace: &Keyspace, entry: &Entry) -> Result<()> {
    let bytes = entry.value(&keyspace.heap.arena)?;
    let (mut end, mut seen) = (packed::COUNT_BYTES, HashSet::new());
    for span in packed::pairs(bytes)? {
        let span = span?;
        end = span.end();
        if !seen.insert(&bytes[span.field..][..span.field_len]) {
            return Err(StoreError::damaged("a packed hash has a field twice"));
        }
    }
    match end == bytes.len() && !seen.is_empty() {
        true => Ok(()),
        false => Err(StoreError::damaged("a packed hash that is longer than its fields")),
    }
}

fn check_table(keyspace: &Keyspace, entry: &Entry) -> Result<()> {
    let arena = &keyspace.heap.arena;
    check_items(arena, &entry.table(arena)?, |item| {
        let field = Field::read(arena, item)?;
        field.value(arena)?;
        Ok(keyspace.hash(field.name(arena)?))
    })
}

/// Toggles one digest per field, so that their order does not matter.
fn digest(arena: &Arena, entry: &Entry, digest: &mut Digest) -> Result<()> {
    digest.mix(&TYPE_NUMBER.to_be_bytes());
    for_each_field(arena, entry, &mut |field, value| {
        let mut pair = Digest::default();
        pair.mix(field);
        pair.mix(value);
        digest.toggle(&pair.0);
    })
}

/// The value of a field.
///
/// # Errors
/// As all operations here: [`StoreError::WrongType`], [`StoreError::Damaged`], [`StoreError::NoSuchDb`]; those that
/// write also [`StoreError::OutOfMemory`] and [`StoreError::TooLarge`].
pub fn get<'a>(keyspace: &'a mut Keyspace, db: DbId, key: &[u8], field: &[u8]) -> Result<Option<&'a [u8]>> {
    match keyspace.find_kind_to_read(db, key, Kind::Hash)? {
        Some(entry) => field_of(keyspace, &entry, field),
        None => Ok(None),
    }
}

/// The length of a field's value, 0 if there is none.
///
/// # Errors
/// As [`get`].
pub fn field_len(keyspace: &mut Keyspace, db: DbId, key: &[u8], field: &[u8]) -> Result<usize> {
    Ok(get(keyspace, db, key, field)?.map_or(0, <[u8]>::len))
}

/// Fields of a hash, 0 if there is no such key.
///
/// # Errors
/// As [`get`].
pub fn len(keyspace: &mut Keyspace, db: DbId, key: &[u8]) -> Result<usize> {
    match keyspace.find_kind_to_read(db, key, Kind::Hash)? {
        Some(entry) => field_count(&keyspace.heap.arena, &entry),
        None => Ok(0),
    }
}

/// Sets a field; returns whether it is new.
///
/// # Errors
/// As [`get`].
pub fn set(keyspace: &mut Keyspace, db: DbId, key: &[u8], field: &[u8], value: &[u8]) -> Result<bool> {
    check_len(field.len().saturating_add(value.len()))?;
    let hash = keyspace.hash(key);
    let created = match keyspace.find_kind(db, key, hash, Kind::Hash)? {
        Some(entry) => put_field(keyspace, db, entry, field, value)?,
        None => {
            let entry = keyspace.create_entry(
                db,
                key,
                hash,
                EntryLayout::new(Encoding::PackedHash, packed::COUNT_BYTES, None),
            )?;
            entry.value_mut(&mut keyspace.heap.arena, 0, packed::COUNT_BYTES)?.fill(0);
            if let Err(error) = put_field(keyspace, db, entry, field, value) {
                // Still the empty one: a hash that could not be filled must not stay.
                if let Some(entry) = keyspace.find(db, key, hash)? {
                    keyspace.delete_entry(db, entry)?;
                }
                return Err(error);
            }
            true
        }
    };
    keyspace.changed(db, key, true);
    Ok(created)
}

/// Sets a field only if the hash doesn't have it; returns whether it was set.
///
/// # Errors
/// As [`get`].
pub fn set_new(keyspace: &mut Keyspace, db: DbId, key: &[u8], field: &[u8], value: &[u8]) -> Result<bool> {
    if let Some(entry) = keyspace.find_kind(db, key, keyspace.hash(key), Kind::Hash)?
        && field_of(keyspace, &entry, field)?.is_some()
    {
        return Ok(false);
    }
    set(keyspace, db, key, field, value)
}

/// Removes a field; returns whether it was there. The last field takes the key with it.
///
/// # Errors
/// As [`get`].
pub fn del(keyspace: &mut Keyspace, db: DbId, key: &[u8], field: &[u8]) -> Result<bool> {
    let Some(entry) = keyspace.find_kind(db, key, keyspace.hash(key), Kind::Hash)? else { return Ok(false) };
    let left = match entry.encoding()?.of_hash()? {
        HashEncoding::Table => {
            let mut head = entry.table(&keyspace.heap.arena)?;
            let Some(found) = fields::find(&keyspace.heap.arena, &head, keyspace.hash(field), field)? else {
                return Ok(false);
            };
            let removed = fields::remove(&mut keyspace.heap.arena, &mut head, found);
            entry.set_table(&mut keyspace.heap.arena, &head)?;
            removed?;
            head.count as usize
        }
        HashEncoding::Packed => match unpack_field(keyspace, db, entry, field)? {
            Some(left) => left,
            None => return Ok(false),
        },
    };
    if left == 0
        && let Some(entry) = keyspace.find(db, key, keyspace.hash(key))?
    {
        keyspace.delete_entry(db, entry)?;
    }
    keyspace.changed(db, key, left > 0);
    Ok(true)
}

/// Calls `f` with every field and value.
///
/// # Errors
/// As [`get`].
pub fn for_each(keyspace: &mut Keyspace, db: DbId, key: &[u8], f: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
    match keyspace.find_kind_to_read(db, key, Kind::Hash)? {
        Some(entry) => for_each_field(&keyspace.heap.arena, &entry, f),
        None => Ok(()),
    }
}

/// Adds to the integer that a field is, 0 if there is none; returns the sum.
///
/// # Errors
/// As [`get`], [`StoreError::HashValueNotInteger`], [`StoreError::Overflow`].
pub fn incr_by(keyspace: &mut Keyspace, db: DbId, key: &[u8], field: &[u8], by: i64) -> Result<i64> {
    let old = match field_to_change(keyspace, db, key, field)? {
        Some(value) => parse_i64(value).ok_or(StoreError::HashValueNotInteger)?,
        None => 0,
    };
    let sum = old.checked_add(by).ok_or(StoreError::Overflow)?;
    set(keyspace, db, key, field, itoa::Buffer::new().format(sum).as_bytes())?;
    Ok(sum)
}

/// Adds to the number that a field is, 0 if there is none; returns the sum as it is now stored.
///
/// # Errors
/// As [`get`], [`StoreError::HashValueNotFloat`], [`StoreError::NanOrInfinity`].
pub fn incr_by_float(
    keyspace: &mut Keyspace,
    db: DbId,
    key: &[u8],
    field: &[u8],
    by: impl Into<LongDouble>,
) -> Result<String> {
    let old = match field_to_change(keyspace, db, key, field)? {
        Some(value) => LongDouble::parse(value).ok_or(StoreError::HashValueNotFloat)?,
        None => LongDouble::ZERO,
    };
    let sum = old.plus(by.into()).filter(|sum| sum.is_finite()).ok_or(StoreError::NanOrInfinity)?;
    let text = sum.format();
    set(keyspace, db, key, field, text.as_bytes())?;
    Ok(text)
}

fn field_to_change<'a>(keyspace: &'a mut Keyspace, db: DbId, key: &[u8], field: &[u8]) -> Result<Option<&'a [u8]>> {
    let found = keyspace.find(db, key, keyspace.hash(key))?;
    match check_kind(found, Kind::Hash)? {
        Some(entry) => field_of(keyspace, &entry, field),
        None => Ok(None),
    }
}

/// The value of a field of a hash.
fn field_of<'a>(keyspace: &'a Keyspace, entry: &Entry, name: &[u8]) -> Result<Option<&'a [u8]>> {
    if entry.encoding()? == Encoding::TableHash {
        let head = entry.table(&keyspace.heap.arena)?;
        let found = fields::find(&keyspace.heap.arena, &head, keyspace.hash(name), name)?;
        return found.map(|field| field.value(&keyspace.heap.arena)).transpose();
    }
    let bytes = entry.value(&keyspace.heap.arena)?;
    Ok(packed::find(bytes, name)?.map(|span| &bytes[span.value..span.end()]))
}

/// Fields of a hash.
fn field_count(arena: &Arena, entry: &Entry) -> Result<usize> {
    match entry.encoding()?.of_hash()? {
        HashEncoding::Table => Ok(entry.table(arena)?.count as usize),
        HashEncoding::Packed => packed::count(entry.value(arena)?),
    }
}

/// Calls `f` with every field and value of a hash.
fn for_each_field(arena: &Arena, entry: &Entry, f: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
    if entry.encoding()? == Encoding::TableHash {
        return entry.table(arena)?.for_each(arena, |item| {
            let field = Field::read(arena, item)?;
            f(field.name(arena)?, field.value(arena)?);
            Ok(())
        });
    }
    let bytes = entry.value(arena)?;
    for span in packed::pairs(bytes)? {
        let span = span?;
        f(&bytes[span.field..][..span.field_len], &bytes[span.value..span.end()]);
    }
    Ok(())
}

/// Sets a field of a hash; returns whether it is new. If this fails, the hash holds what it held.
fn put_field(keyspace: &mut Keyspace, db: DbId, entry: Entry, name: &[u8], value: &[u8]) -> Result<bool> {
    let entry = match entry.encoding()?.of_hash()? {
        HashEncoding::Table => entry,
        HashEncoding::Packed => match pack_field(keyspace, db, entry, name, value)? {
            Some(created) => return Ok(created),
            None => unpack_all(keyspace, db, entry)?,
        },
    };
    let mut head = entry.table(&keyspace.heap.arena)?;
    let hash = keyspace.hash(name);
    let found = fields::find(&keyspace.heap.arena, &head, hash, name)?;
    let done = match found {
        Some(field) => fields::set_value(&mut keyspace.heap.arena, &mut head, field, hash, value),
        None => fields::insert(&mut keyspace.heap.arena, &mut head, hash, name, value),
    };
    // Even a failed insert may have split a bucket.
    entry.set_table(&mut keyspace.heap.arena, &head)?;
    done.map(|()| found.is_none())
}

/// Sets a field of a packed hash; `None` if it is too much for one.
fn pack_field(keyspace: &mut Keyspace, db: DbId, entry: Entry, name: &[u8], value: &[u8]) -> Result<Option<bool>> {
    let bytes = entry.value(&keyspace.heap.arena)?;
    let found = packed::find(bytes, name)?;
    let limit = keyspace.limits.hash_max_packed_value;
    let full =
        found.is_none() && packed::count(bytes)? >= keyspace.limits.hash_max_packed_entries.min(packed::MAX_FIELDS);
    if full || name.len() > limit || value.len() > limit {
        return Ok(None);
    }
    if let Some(span) = found.filter(|span| span.value_len == value.len()) {
        entry.value_mut(&mut keyspace.heap.arena, span.value, value.len())?.copy_from_slice(value);
        return Ok(Some(false));
    }
    let mut scratch = std::mem::take(&mut keyspace.scratch);
    let done = packed::with_pair(&mut scratch, entry.value(&keyspace.heap.arena)?, found, name, value)
        .and_then(|()| write_packed(keyspace, db, entry, &scratch));
    keyspace.scratch = scratch;
    done.map(|()| Some(found.is_none()))
}

/// Removes a field of a packed hash; returns how many are left, `None` if it wasn't there.
fn unpack_field(keyspace: &mut Keyspace, db: DbId, entry: Entry, name: &[u8]) -> Result<Option<usize>> {
    let bytes = entry.value(&keyspace.heap.arena)?;
    let Some(span) = packed::find(bytes, name)? else { return Ok(None) };
    let left = packed::count(bytes)?.saturating_sub(1);
    if left > 0 {
        let mut scratch = std::mem::take(&mut keyspace.scratch);
        let done = packed::without(&mut scratch, entry.value(&keyspace.heap.arena)?, span)
            .and_then(|()| write_packed(keyspace, db, entry, &scratch));
        keyspace.scratch = scratch;
        done?;
    }
    Ok(Some(left))
}

fn write_packed(keyspace: &mut Keyspace, db: DbId, entry: Entry, bytes: &[u8]) -> Result<()> {
    let expiry = entry.expiry(&keyspace.heap.arena)?;
    let entry = keyspace.reshape(db, entry, EntryLayout::new(Encoding::PackedHash, bytes.len(), expiry))?;
    entry.value_mut(&mut keyspace.heap.arena, 0, bytes.len())?.copy_from_slice(bytes);
    Ok(())
}

/// Makes a packed hash a table.
fn unpack_all(keyspace: &mut Keyspace, db: DbId, entry: Entry) -> Result<Entry> {
    let mut bytes = std::mem::take(&mut keyspace.scratch);
    bytes.clear();
    bytes.extend_from_slice(entry.value(&keyspace.heap.arena)?);
    let mut head = TableHead::default();
    let filled = fill_table(keyspace, &mut head, &bytes);
    keyspace.scratch = bytes;
    let expiry = entry.expiry(&keyspace.heap.arena)?;
    let shape = EntryLayout::new(Encoding::TableHash, TableHead::BYTES, expiry);
    match filled.and_then(|()| keyspace.reshape(db, entry, shape)) {
        Ok(entry) => {
            entry.set_table(&mut keyspace.heap.arena, &head)?;
            Ok(entry)
        }
        Err(error) => {
            reclaim::destroy(&mut keyspace.heap, head)?;
            Err(error)
        }
    }
}

fn fill_table(keyspace: &mut Keyspace, head: &mut TableHead, bytes: &[u8]) -> Result<()> {
    for span in packed::pairs(bytes)? {
        let span = span?;
        let name = &bytes[span.field..][..span.field_len];
        let hash = keyspace.hash(name);
        fields::insert(&mut keyspace.heap.arena, head, hash, name, &bytes[span.value..span.end()])?;
    }
    Ok(())
}
