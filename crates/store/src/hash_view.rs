//! A hash that was looked up once and is then read as often as need be: HMGET, HGETALL, HSCAN.
//!
//! Relies on `hashes` for its fields. A look-up counts as one access, however much is read.

use crate::db::DbId;
use crate::entry::{Entry, Form, Kind};
use crate::error::Result;
use crate::fields::Field;
use crate::store::Store;

/// Buckets per wanted field that a scan looks at before it returns.
const BUCKETS_PER_COUNT: usize = 10;

/// A hash to be read. One that doesn't exist has no fields.
#[derive(Clone, Copy, Debug)]
pub struct HashView<'a> {
    store: &'a Store,
    entry: Option<Entry>,
}

impl Store {
    /// Looks a hash up.
    ///
    /// # Errors
    /// As [`Store::hash_get`].
    pub fn hash_view(&mut self, db: DbId, key: &[u8]) -> Result<HashView<'_>> {
        let entry = self.find_kind_to_read(db, key, Kind::Hash)?;
        Ok(HashView { store: self, entry })
    }
}

impl<'a> HashView<'a> {
    /// Whether the key exists.
    pub fn exists(&self) -> bool {
        self.entry.is_some()
    }

    /// Fields of the hash.
    ///
    /// # Errors
    /// [`crate::StoreError::Damaged`], as all operations here.
    pub fn field_count(&self) -> Result<usize> {
        self.entry.map_or(Ok(0), |entry| self.store.field_count(&entry))
    }

    /// The value of a field.
    ///
    /// # Errors
    /// As [`HashView::field_count`].
    pub fn get(&self, field: &[u8]) -> Result<Option<&'a [u8]>> {
        match &self.entry {
            Some(entry) => self.store.field_of(entry, field),
            None => Ok(None),
        }
    }

    /// Calls `f` with every field and value.
    ///
    /// # Errors
    /// As [`HashView::field_count`].
    pub fn for_each(&self, f: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        self.entry.map_or(Ok(()), |entry| self.store.for_each_field(&entry, f))
    }

    /// Calls `f` with about `count` fields and returns the cursor to go on with, 0 at the end; with all of a small hash.
    /// The promise is that of [`Store::scan`].
    ///
    /// # Errors
    /// As [`HashView::field_count`].
    pub fn scan(&self, cursor: u64, count: usize, f: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let Some(entry) = &self.entry else { return Ok(0) };
        if entry.form()? != Form::TableHash {
            self.store.for_each_field(entry, f)?;
            return Ok(0);
        }
        let arena = &self.store.arena;
        let head = entry.table(arena)?;
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
