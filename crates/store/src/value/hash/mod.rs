//! Hashes: maps from fields to values. Small ones are packed into their entry, large ones are tables of fields.
//!
//! Relies on `packed` and `fields` for the two layouts; a hash changes from the first to the second when it grows past
//! the limits, and never back, as in Redis. A hash without fields doesn't exist. While some of its fields have times to live of their own
//! it has one of two further layouts, `packed_ttl` or `ttl_table`: others have no byte for that. A field whose time has come is found by
//! no operation; it stays until it is overwritten or removed, or a step of the active search takes it out (`field_expiry`).

mod change;
mod field_expiry;
mod fields;
pub(super) mod limits;
mod packed;
mod packed_ttl;
mod ttl_table;
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
use crate::value::zset::schedule;

pub use change::{HashMut, del, open_mut, set};
pub(super) use field_expiry::{expire_fields, first_expiry};
pub use limits::{MAX_PACKED_FIELDS, MAX_PACKED_LEN};
pub use packed_ttl::MAX_EXPIRY_MS;
pub use view::{HashView, peek, view};
pub use walks::{random_fields, scan};

use fields::Field;
use ttl_table::TtlField;

/// The number by which Redis knows the type.
const TYPE_NUMBER: u32 = 4;

/// What the keyspace asks of packed hashes.
pub(crate) static PACKED_OPS: Ops = Ops {
    name: |_, _| Ok("listpack"),
    check: check_packed,
    table: no_table,
    copy_step: no_copy_step,
    has_movable_items: false,
    digest,
    memory: no_memory,
};
/// What the keyspace asks of hashes that are tables.
pub(crate) static TABLE_OPS: Ops = Ops {
    name: |_, _| Ok("hashtable"),
    check: check_table,
    table: table_of,
    copy_step: copy_table_step,
    has_movable_items: true,
    digest,
    memory: table_memory,
};

/// What the keyspace asks of packed hashes whose fields have times to live.
pub(crate) static PACKED_TTL_OPS: Ops = Ops {
    name: |_, _| Ok("listpackex"),
    check: check_packed_ttl,
    table: no_table,
    copy_step: no_copy_step,
    has_movable_items: false,
    digest,
    memory: no_memory,
};
/// What the keyspace asks of hashes that are tables, whose fields have times to live.
pub(crate) static TABLE_TTL_OPS: Ops = Ops {
    name: |_, _| Ok("hashtable"),
    check: check_ttl_table,
    table: table_of,
    copy_step: schedule::copy_step,
    has_movable_items: false,
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

fn check_packed_ttl(keyspace: &Keyspace, entry: &Entry) -> Result<()> {
    let bytes = entry.value(keyspace.arena())?;
    let (mut end, mut seen, mut first_ms) = (packed_ttl::HEADER_BYTES, HashSet::new(), None);
    for span in packed_ttl::records(bytes)? {
        let span = span?;
        end = span.end();
        first_ms = [first_ms, span.expiry_ms].into_iter().flatten().min();
        if !seen.insert(span.name(bytes)) {
            return Err(StoreError::damaged("a packed hash has a field twice"));
        }
    }
    match end == bytes.len() && !seen.is_empty() && packed_ttl::first_expiry(bytes)? == first_ms {
        true => Ok(()),
        false => Err(StoreError::damaged("a packed hash whose header is not that of its fields")),
    }
}

fn check_ttl_table(keyspace: &Keyspace, entry: &Entry) -> Result<()> {
    let arena = keyspace.arena();
    let head = entry.table(arena)?;
    check_items(arena, &head, |item| match TtlField::read(arena, item)? {
        Some(field) => {
            field.value(arena)?;
            Ok(keyspace.hash(field.name(arena)?))
        }
        None => schedule::hash_of_node(arena, item),
    })?;
    let field_count = ttl_table::field_count(entry.value(arena)?)?;
    ttl_table::check(arena, &head, field_count, |name| keyspace.hash(name))
}

/// Toggles one digest per field, so that their order does not matter; one whose time has come is still there.
fn digest(arena: &Arena, entry: &Entry, digest: &mut Digest) -> Result<()> {
    digest.mix(&TYPE_NUMBER.to_be_bytes());
    for_each_stored(arena, entry, &mut |field, value, expiry_ms| {
        let mut pair = Digest::default();
        pair.mix(field);
        pair.mix(value);
        if expiry_ms.is_some() {
            pair.toggle(b"!!hexpire!!");
        }
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
        Some(value) => for_each_field(&value, f),
        None => Ok(()),
    }
}

/// What the hash had of a field before it was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StoredField {
    /// Nothing.
    Missing,
    /// One whose time has come.
    Expired,
    /// One that operations find.
    Live,
}

impl StoredField {
    /// `is_live` says whether the time of a field has not come; `None` stands for no field.
    fn of(is_live: Option<bool>) -> StoredField {
        match is_live {
            None => StoredField::Missing,
            Some(false) => StoredField::Expired,
            Some(true) => StoredField::Live,
        }
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
        HashEncoding::PackedTtl => {
            let (bytes, now_ms) = (hash.bytes()?, hash.keyspace().now_ms());
            let found = packed_ttl::find(bytes, name)?.filter(|span| span.is_live(now_ms));
            Ok(found.map(|span| span.content(bytes)))
        }
        HashEncoding::TableTtl => {
            let found = find_ttl(hash, name)?.filter(|field| field.is_live(hash.keyspace().now_ms()));
            found.map(|field| field.value(hash.arena())).transpose()
        }
    }
}

/// A field of a table whose fields have times to live, expired or not.
fn find_ttl(hash: &ValueRef<'_>, name: &[u8]) -> Result<Option<TtlField>> {
    ttl_table::find(hash.arena(), &hash.table()?, hash.keyspace().hash(name), name)
}

/// When a field expires, be that past: `None` if there is no such field, `Some(None)` if it lives as long as the hash.
fn stored_expiry(hash: &ValueRef<'_>, name: &[u8]) -> Result<Option<Option<i64>>> {
    match hash.encoding()?.of_hash()? {
        HashEncoding::Table | HashEncoding::Packed => Ok(field_of(hash, name)?.map(|_| None)),
        HashEncoding::PackedTtl => Ok(packed_ttl::find(hash.bytes()?, name)?.map(|span| span.expiry_ms)),
        HashEncoding::TableTtl => Ok(find_ttl(hash, name)?.map(|field| field.expiry_ms)),
    }
}

/// The same of a field whose time has not come.
fn live_expiry(hash: &ValueRef<'_>, name: &[u8]) -> Result<Option<Option<i64>>> {
    let now_ms = hash.keyspace().now_ms();
    Ok(stored_expiry(hash, name)?.filter(|expiry_ms| expiry_ms.is_none_or(|at_ms| at_ms > now_ms)))
}

/// Fields of a hash.
fn field_count(hash: &ValueRef<'_>) -> Result<usize> {
    match hash.encoding()?.of_hash()? {
        HashEncoding::Table => Ok(hash.table()?.count as usize),
        HashEncoding::Packed => packed::count(hash.bytes()?),
        HashEncoding::PackedTtl => packed_ttl::live_count(hash.bytes()?, hash.keyspace().now_ms()),
        HashEncoding::TableTtl => Ok((stored_count(hash)? - expired_count(hash)?) as usize),
    }
}

/// Fields of a table whose fields have times to live, expired ones included.
fn stored_count(hash: &ValueRef<'_>) -> Result<u64> {
    let count = ttl_table::field_count(hash.bytes()?)?;
    // No reply announces more than there can be.
    if count <= hash.table()?.count {
        Ok(count)
    } else {
        Err(StoreError::damaged("a hash with more fields than items"))
    }
}

/// Those of them whose time has come.
fn expired_count(hash: &ValueRef<'_>) -> Result<u64> {
    let bound = ttl_table::tree_number(hash.keyspace().now_ms());
    let count = schedule::count_up_to(hash.arena(), &hash.table()?, bound)?;
    if count <= stored_count(hash)? {
        Ok(count)
    } else {
        Err(StoreError::damaged("a hash with more times than fields"))
    }
}

/// What is done with a field, its value and its expiry.
type EachStored<'f> = &'f mut dyn FnMut(&[u8], &[u8], Option<i64>);

/// Calls `f` with every field and value of a hash.
fn for_each_field(hash: &ValueRef<'_>, f: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
    match hash.encoding()?.of_hash()? {
        HashEncoding::Table | HashEncoding::Packed => for_each_plain(hash.arena(), hash.entry(), f),
        HashEncoding::PackedTtl | HashEncoding::TableTtl => for_each_live(hash, &mut |field, value, _| f(field, value)),
    }
}

/// The same with the expiries of fields.
fn for_each_live(hash: &ValueRef<'_>, f: EachStored<'_>) -> Result<()> {
    let now_ms = hash.keyspace().now_ms();
    for_each_stored(hash.arena(), hash.entry(), &mut |field, value, expiry_ms| {
        if expiry_ms.is_none_or(|at_ms| at_ms > now_ms) {
            f(field, value, expiry_ms);
        }
    })
}

/// Calls `f` with every field, also those whose time has come.
fn for_each_stored(arena: &Arena, entry: &Entry, f: EachStored<'_>) -> Result<()> {
    match entry.encoding()?.of_hash()? {
        HashEncoding::Table | HashEncoding::Packed => {
            for_each_plain(arena, entry, &mut |field, value| f(field, value, None))
        }
        HashEncoding::PackedTtl => {
            let bytes = entry.value(arena)?;
            for span in packed_ttl::records(bytes)? {
                let span = span?;
                f(span.name(bytes), span.content(bytes), span.expiry_ms);
            }
            Ok(())
        }
        HashEncoding::TableTtl => entry.table(arena)?.for_each(arena, |item| {
            if let Some(field) = TtlField::read(arena, item)? {
                f(field.name(arena)?, field.value(arena)?, field.expiry_ms);
            }
            Ok(())
        }),
    }
}

/// Calls `f` with every field of a hash whose fields have no times to live.
fn for_each_plain(arena: &Arena, entry: &Entry, f: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
    match entry.encoding()?.of_hash()? {
        HashEncoding::PackedTtl | HashEncoding::TableTtl => Err(StoreError::damaged("a hash of another layout")),
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
