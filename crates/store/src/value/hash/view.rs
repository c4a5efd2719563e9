//! A hash that was looked up once and is then read as often as need be: HMGET, HGETALL, HSCAN.
//!
//! Relies on `fields` and `packed` for its fields. A look-up counts as one access, however much is read.

use super::fields::Field;
use super::{field_count, field_of, for_each_field};
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
        self.value.map_or(Ok(()), |value| for_each_field(value.arena(), value.entry(), f))
    }

    /// Calls `f` with about `count` fields and returns the cursor to go on with, 0 at the end; with all of a small hash.
    /// The promise is that of [`Keyspace::scan`].
    ///
    /// # Errors
    /// As [`HashView::field_count`].
    pub fn scan(&self, cursor: u64, count: usize, f: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let Some(value) = &self.value else { return Ok(0) };
        let arena = value.arena();
        let head = match value.encoding()?.of_hash()? {
            HashEncoding::Table => value.table()?,
            HashEncoding::Packed => return for_each_field(arena, value.entry(), f).map(|()| 0),
        };
        let (mut cursor, mut seen) = (cursor, 0);
        for _ in 0..count.max(1).saturating_mul(BUCKETS_PER_COUNT) {
            cursor = head.scan(arena, cursor, |item| {
                seen += 1;
                let field = Field::read(arena, item)?;
                f(field.name(arena)?, field.value(arena)?);
                Ok(())
            })?;
            if cursor == 0 || seen >= count {
                break;
            }
        }
        Ok(cursor)
    }
}
