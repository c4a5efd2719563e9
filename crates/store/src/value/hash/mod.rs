//! Hashes: maps from fields to values. Small ones are packed into their entry, large ones are tables of fields.
//!
//! Relies on `packed` and `fields` for the two layouts; a hash changes from the first to the second when it grows past
//! the limits, and never back, as in Redis. A hash without fields doesn't exist.

mod change;
mod fields;
pub(super) mod limits;
mod packed;
mod view;
mod walks;

use std::collections::HashSet;

use quire_arena::Arena;

use crate::db::DbId;
use crate::encoding::{HashEncoding, ValueType};
use crate::error::{Result, StoreError};
use crate::keyspace::Keyspace;
use crate::keyspace::digest::Digest;
use crate::keyspace::entry::Entry;
use crate::keyspace::ops::{Ops, copy_table_step, no_copy_step, no_memory, no_table, table_memory, table_of};
use crate::keyspace::value::ValueRef;
use crate::table::check::check_items;

pub use change::{HashMut, del, open_mut, set};
pub use limits::{MAX_PACKED_FIELDS, MAX_PACKED_LEN};
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
    let bytes = entry.value(keyspace.arena())?;
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
    let arena = keyspace.arena();
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
    match keyspace.open(db, key, ValueType::Hash)? {
        Some(value) => field_of(&value, field),
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
    keyspace.open(db, key, ValueType::Hash)?.map_or(Ok(0), |value| field_count(&value))
}

/// Calls `f` with every field and value.
///
/// # Errors
/// As [`get`].
pub fn for_each(keyspace: &mut Keyspace, db: DbId, key: &[u8], f: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
    match keyspace.open(db, key, ValueType::Hash)? {
        Some(value) => for_each_field(value.arena(), value.entry(), f),
        None => Ok(()),
    }
}

/// The value of a field of a hash.
fn field_of<'a>(hash: &ValueRef<'a>, name: &[u8]) -> Result<Option<&'a [u8]>> {
    match hash.encoding()?.of_hash()? {
        HashEncoding::Table => {
            let found = fields::find(hash.arena(), &hash.table()?, hash.keyspace().hash(name), name)?;
            found.map(|field| field.value(hash.arena())).transpose()
        }
        HashEncoding::Packed => {
            let bytes = hash.bytes()?;
            Ok(packed::find(bytes, name)?.map(|span| &bytes[span.value..span.end()]))
        }
    }
}

/// Fields of a hash.
fn field_count(hash: &ValueRef<'_>) -> Result<usize> {
    match hash.encoding()?.of_hash()? {
        HashEncoding::Table => Ok(hash.table()?.count as usize),
        HashEncoding::Packed => packed::count(hash.bytes()?),
    }
}

/// Calls `f` with every field and value of a hash.
fn for_each_field(arena: &Arena, entry: &Entry, f: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
    match entry.encoding()?.of_hash()? {
        HashEncoding::Table => entry.table(arena)?.for_each(arena, |item| {
            let field = Field::read(arena, item)?;
            f(field.name(arena)?, field.value(arena)?);
            Ok(())
        }),
        HashEncoding::Packed => {
            let bytes = entry.value(arena)?;
            for span in packed::pairs(bytes)? {
                let span = span?;
                f(&bytes[span.field..][..span.field_len], &bytes[span.value..span.end()]);
            }
            Ok(())
        }
    }
}
