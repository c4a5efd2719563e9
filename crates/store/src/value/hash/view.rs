//! A hash that was looked up once and is then read as often as need be: HMGET, HGETALL, HSCAN.
//!
//! Relies on `fields` and `packed` for its fields. A look-up counts as one access, however much is read.

use quire_arena::Handle;

use super::fields::Field;
use super::ttl_table::TtlField;
use super::{EachStored, field_count, field_of, first_expiry, for_each_field, for_each_live, live_expiry};
use crate::db::DbId;
use crate::encoding::{HashEncoding, ValueType};
use crate::error::Result;
use crate::keyspace::Keyspace;
use crate::keyspace::value::ValueRef;

/// Buckets per wanted field that a scan looks at before it returns.
const BUCKETS_PER_COUNT: usize = 10;

/// A hash to be read. One that doesn't exist has no fields.
#[derive(Clone, Copy, Debug)]
pub struct HashView<'a> {
    value: Option<ValueRef<'a>>,
}

/// Looks a hash up.
///
/// # Errors
/// As [`super::get`].
pub fn view<'a>(keyspace: &'a mut Keyspace, db: DbId, key: &[u8]) -> Result<HashView<'a>> {
    Ok(HashView { value: keyspace.open(db, key, ValueType::Hash)? })
}

/// Looks a hash up, which is no access of it and counts nothing.
///
/// # Errors
/// As [`super::get`].
pub fn peek<'a>(keyspace: &'a Keyspace, db: DbId, key: &[u8]) -> Result<HashView<'a>> {
    Ok(HashView { value: keyspace.peek(db, key, ValueType::Hash)? })
}

impl<'a> HashView<'a> {
    /// Whether the key exists.
    pub fn exists(&self) -> bool {
        self.value.is_some()
    }

    /// Fields of the hash.
    ///
    /// # Errors
    /// [`crate::StoreError::Damaged`], as all operations here.
    pub fn field_count(&self) -> Result<usize> {
        self.value.map_or(Ok(0), |value| field_count(&value))
    }

    /// The value of a field.
    ///
    /// # Errors
    /// As [`HashView::field_count`].
    pub fn get(&self, field: &[u8]) -> Result<Option<&'a [u8]>> {
        self.value.map_or(Ok(None), |value| field_of(&value, field))
    }

    /// Calls `f` with every field and value.
    ///
    /// # Errors
    /// As [`HashView::field_count`].
    pub fn for_each(&self, f: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        self.value.map_or(Ok(()), |value| for_each_field(&value, f))
    }

    /// Calls `f` with every field, its value and its expiry, in unix milliseconds.
    ///
    /// # Errors
    /// As [`HashView::field_count`].
    pub fn for_each_with_expiry(&self, f: EachStored<'_>) -> Result<()> {
        self.value.map_or(Ok(()), |value| for_each_live(&value, f))
    }

    /// When a field expires, in unix milliseconds: `None` if there is no such field, `Some(None)` if it lives as long as the hash.
    ///
    /// # Errors
    /// As [`HashView::field_count`].
    pub fn expiry(&self, field: &[u8]) -> Result<Option<Option<i64>>> {
        self.value.map_or(Ok(None), |value| live_expiry(&value, field))
    }

    /// No field expires before that, in unix milliseconds; `None` if none does ever.
    ///
    /// # Errors
    /// As [`HashView::field_count`].
    pub fn first_expiry(&self) -> Result<Option<i64>> {
        self.value.map_or(Ok(None), |value| first_expiry(value.arena(), value.entry()))
    }

    /// Calls `f` with about `count` fields and returns the cursor to go on with, 0 at the end; with all of a small hash.
    /// The promise is that of [`Keyspace::scan`].
    ///
    /// # Errors
    /// As [`HashView::field_count`].
    pub fn scan(&self, cursor: u64, count: usize, f: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let Some(value) = &self.value else { return Ok(0) };
        let (arena, now_ms) = (value.arena(), value.keyspace().now_ms());
        let mut seen = 0;
        match value.encoding()?.of_hash()? {
            HashEncoding::Packed | HashEncoding::PackedTtl => for_each_field(value, f).map(|()| 0),
            HashEncoding::Table => scan_table(value, cursor, count, |item| {
                seen += 1;
                let field = Field::read(arena, item)?;
                f(field.name(arena)?, field.value(arena)?);
                Ok(seen)
            }),
            HashEncoding::TableTtl => scan_table(value, cursor, count, |item| {
                if let Some(field) = TtlField::read(arena, item)?.filter(|field| field.is_live(now_ms)) {
                    seen += 1;
                    f(field.name(arena)?, field.value(arena)?);
                }
                Ok(seen)
            }),
        }
    }
}

/// Calls `f` with the items of a table, bucket after bucket, until it says that it has seen `count` fields.
fn scan_table(
    value: &ValueRef<'_>,
    cursor: u64,
    count: usize,
    mut f: impl FnMut(Handle) -> Result<usize>,
) -> Result<u64> {
    let (head, mut cursor, mut seen) = (value.table()?, cursor, 0);
    for _ in 0..count.max(1).saturating_mul(BUCKETS_PER_COUNT) {
        cursor = head.scan(value.arena(), cursor, |item| {
            seen = f(item)?;
            Ok(())
        })?;
        if cursor == 0 || seen >= count {
            break;
        }
    }
    Ok(cursor)
}
