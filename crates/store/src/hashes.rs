//! Hashes: maps from fields to values. Small ones are packed into their entry, large ones are tables of fields.
//!
//! Relies on `packed` and `fields` for the two layouts; a hash changes from the first to the second when it grows past
//! the limits, and never back, as in Redis. A hash without fields doesn't exist.

use crate::db::DbId;
use crate::entry::{Entry, Form, Kind};
use crate::error::{Result, StoreError};
use crate::fields::{self, Field};
use crate::long_double::LongDouble;
use crate::numbers::parse_i64;
use crate::packed;
use crate::reclaim::Items;
use crate::shape::{Shape, check_len};
use crate::store::{Store, check_kind};
use crate::table::TableHead;

impl Store {
    /// The value of a field.
    ///
    /// # Errors
    /// As all operations here: [`StoreError::WrongType`], [`StoreError::Damaged`], [`StoreError::NoSuchDb`]; those that
    /// write also [`StoreError::OutOfMemory`] and [`StoreError::TooLarge`].
    pub fn hash_get(&mut self, db: DbId, key: &[u8], field: &[u8]) -> Result<Option<&[u8]>> {
        match self.find_kind_to_read(db, key, Kind::Hash)? {
            Some(entry) => self.field_of(&entry, field),
            None => Ok(None),
        }
    }

    /// The length of a field's value, 0 if there is none.
    ///
    /// # Errors
    /// As [`Store::hash_get`].
    pub fn hash_field_len(&mut self, db: DbId, key: &[u8], field: &[u8]) -> Result<usize> {
        Ok(self.hash_get(db, key, field)?.map_or(0, <[u8]>::len))
    }

    /// Fields of a hash, 0 if there is no such key.
    ///
    /// # Errors
    /// As [`Store::hash_get`].
    pub fn hash_len(&mut self, db: DbId, key: &[u8]) -> Result<usize> {
        match self.find_kind_to_read(db, key, Kind::Hash)? {
            Some(entry) => self.field_count(&entry),
            None => Ok(0),
        }
    }

    /// Sets a field; returns whether it is new.
    ///
    /// # Errors
    /// As [`Store::hash_get`].
    pub fn hash_set(&mut self, db: DbId, key: &[u8], field: &[u8], value: &[u8]) -> Result<bool> {
        check_len(field.len().saturating_add(value.len()))?;
        let hash = self.hash(key);
        let created = match self.find_kind(db, key, hash, Kind::Hash)? {
            Some(entry) => self.put_field(db, entry, field, value)?,
            None => {
                let entry =
                    self.create_entry(db, key, hash, Shape::new(Form::PackedHash, packed::COUNT_BYTES, None))?;
                entry.value_mut(&mut self.arena, 0, packed::COUNT_BYTES)?.fill(0);
                if let Err(error) = self.put_field(db, entry, field, value) {
                    // Still the empty one: a hash that could not be filled must not stay.
                    if let Some(entry) = self.find(db, key, hash)? {
                        self.delete_entry(db, entry)?;
                    }
                    return Err(error);
                }
                true
            }
        };
        self.changed(db, key, true);
        Ok(created)
    }

    /// Sets a field only if the hash doesn't have it; returns whether it was set.
    ///
    /// # Errors
    /// As [`Store::hash_get`].
    pub fn hash_set_new(&mut self, db: DbId, key: &[u8], field: &[u8], value: &[u8]) -> Result<bool> {
        if let Some(entry) = self.find_kind(db, key, self.hash(key), Kind::Hash)?
            && self.field_of(&entry, field)?.is_some()
        {
            return Ok(false);
        }
        self.hash_set(db, key, field, value)
    }

    /// Removes a field; returns whether it was there. The last field takes the key with it.
    ///
    /// # Errors
    /// As [`Store::hash_get`].
    pub fn hash_del(&mut self, db: DbId, key: &[u8], field: &[u8]) -> Result<bool> {
        let Some(entry) = self.find_kind(db, key, self.hash(key), Kind::Hash)? else { return Ok(false) };
        let left = match entry.form()? {
            Form::TableHash => {
                let mut head = entry.table(&self.arena)?;
                let Some(found) = fields::find(&self.arena, &head, self.hash(field), field)? else { return Ok(false) };
                let removed = fields::remove(&mut self.arena, &mut head, found);
                entry.set_table(&mut self.arena, &head)?;
                removed?;
                head.count as usize
            }
            _ => match self.unpack_field(db, entry, field)? {
                Some(left) => left,
                None => return Ok(false),
            },
        };
        if left == 0
            && let Some(entry) = self.find(db, key, self.hash(key))?
        {
            self.delete_entry(db, entry)?;
        }
        self.changed(db, key, left > 0);
        Ok(true)
    }

    /// Calls `f` with every field and value.
    ///
    /// # Errors
    /// As [`Store::hash_get`].
    pub fn hash_for_each(&mut self, db: DbId, key: &[u8], f: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        match self.find_kind_to_read(db, key, Kind::Hash)? {
            Some(entry) => self.for_each_field(&entry, f),
            None => Ok(()),
        }
    }

    /// Adds to the integer that a field is, 0 if there is none; returns the sum.
    ///
    /// # Errors
    /// As [`Store::hash_get`], [`StoreError::HashValueNotInteger`], [`StoreError::Overflow`].
    pub fn hash_incr_by(&mut self, db: DbId, key: &[u8], field: &[u8], by: i64) -> Result<i64> {
        let old = match self.field_to_change(db, key, field)? {
            Some(value) => parse_i64(value).ok_or(StoreError::HashValueNotInteger)?,
            None => 0,
        };
        let sum = old.checked_add(by).ok_or(StoreError::Overflow)?;
        self.hash_set(db, key, field, itoa::Buffer::new().format(sum).as_bytes())?;
        Ok(sum)
    }

    /// Adds to the number that a field is, 0 if there is none; returns the sum as it is now stored.
    ///
    /// # Errors
    /// As [`Store::hash_get`], [`StoreError::HashValueNotFloat`], [`StoreError::NanOrInfinity`].
    pub fn hash_incr_by_float(
        &mut self,
        db: DbId,
        key: &[u8],
        field: &[u8],
        by: impl Into<LongDouble>,
    ) -> Result<String> {
        let old = match self.field_to_change(db, key, field)? {
            Some(value) => LongDouble::parse(value).ok_or(StoreError::HashValueNotFloat)?,
            None => LongDouble::ZERO,
        };
        let sum = old.plus(by.into()).filter(|sum| sum.is_finite()).ok_or(StoreError::NanOrInfinity)?;
        let text = sum.format();
        self.hash_set(db, key, field, text.as_bytes())?;
        Ok(text)
    }

    fn field_to_change(&mut self, db: DbId, key: &[u8], field: &[u8]) -> Result<Option<&[u8]>> {
        let found = self.find(db, key, self.hash(key))?;
        match check_kind(found, Kind::Hash)? {
            Some(entry) => self.field_of(&entry, field),
            None => Ok(None),
        }
    }

    /// The value of a field of a hash.
    pub(crate) fn field_of(&self, entry: &Entry, name: &[u8]) -> Result<Option<&[u8]>> {
        if entry.form()? == Form::TableHash {
            let head = entry.table(&self.arena)?;
            let found = fields::find(&self.arena, &head, self.hash(name), name)?;
            return found.map(|field| field.value(&self.arena)).transpose();
        }
        let bytes = entry.value(&self.arena)?;
        Ok(packed::find(bytes, name)?.map(|span| &bytes[span.value..span.end()]))
    }

    /// Fields of a hash.
    pub(crate) fn field_count(&self, entry: &Entry) -> Result<usize> {
        match entry.form()? {
            Form::TableHash => Ok(entry.table(&self.arena)?.count as usize),
            _ => packed::count(entry.value(&self.arena)?),
        }
    }

    /// Calls `f` with every field and value of a hash.
    pub(crate) fn for_each_field(&self, entry: &Entry, f: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        if entry.form()? == Form::TableHash {
            return entry.table(&self.arena)?.for_each(&self.arena, |item| {
                let field = Field::read(&self.arena, item)?;
                f(field.name(&self.arena)?, field.value(&self.arena)?);
                Ok(())
            });
        }
        let bytes = entry.value(&self.arena)?;
        for span in packed::pairs(bytes)? {
            let span = span?;
            f(&bytes[span.field..][..span.field_len], &bytes[span.value..span.end()]);
        }
        Ok(())
    }

    /// Sets a field of a hash; returns whether it is new. If this fails, the hash holds what it held.
    fn put_field(&mut self, db: DbId, entry: Entry, name: &[u8], value: &[u8]) -> Result<bool> {
        let entry = match entry.form()? {
            Form::TableHash => entry,
            _ => match self.pack_field(db, entry, name, value)? {
                Some(created) => return Ok(created),
                None => self.unpack_all(db, entry)?,
            },
        };
        let mut head = entry.table(&self.arena)?;
        let hash = self.hash(name);
        let found = fields::find(&self.arena, &head, hash, name)?;
        let done = match found {
            Some(field) => fields::set_value(&mut self.arena, &mut head, field, hash, value),
            None => fields::insert(&mut self.arena, &mut head, hash, name, value),
        };
        // Even a failed insert may have split a bucket.
        entry.set_table(&mut self.arena, &head)?;
        done.map(|()| found.is_none())
    }

    /// Sets a field of a packed hash; `None` if it is too much for one.
    fn pack_field(&mut self, db: DbId, entry: Entry, name: &[u8], value: &[u8]) -> Result<Option<bool>> {
        let bytes = entry.value(&self.arena)?;
        let found = packed::find(bytes, name)?;
        let limit = self.hash_max_packed_value;
        let full = found.is_none() && packed::count(bytes)? >= self.hash_max_packed_entries;
        if full || name.len() > limit || value.len() > limit {
            return Ok(None);
        }
        if let Some(span) = found.filter(|span| span.value_len == value.len()) {
            entry.value_mut(&mut self.arena, span.value, value.len())?.copy_from_slice(value);
            return Ok(Some(false));
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let done = packed::with_pair(&mut scratch, entry.value(&self.arena)?, found, name, value)
            .and_then(|()| self.write_packed(db, entry, &scratch));
        self.scratch = scratch;
        done.map(|()| Some(found.is_none()))
    }

    /// Removes a field of a packed hash; returns how many are left, `None` if it wasn't there.
    fn unpack_field(&mut self, db: DbId, entry: Entry, name: &[u8]) -> Result<Option<usize>> {
        let bytes = entry.value(&self.arena)?;
        let Some(span) = packed::find(bytes, name)? else { return Ok(None) };
        let left = packed::count(bytes)?.saturating_sub(1);
        if left > 0 {
            let mut scratch = std::mem::take(&mut self.scratch);
            let done = packed::without(&mut scratch, entry.value(&self.arena)?, span)
                .and_then(|()| self.write_packed(db, entry, &scratch));
            self.scratch = scratch;
            done?;
        }
        Ok(Some(left))
    }

    fn write_packed(&mut self, db: DbId, entry: Entry, bytes: &[u8]) -> Result<()> {
        let expiry = entry.expiry(&self.arena)?;
        let entry = self.reshape(db, entry, Shape::new(Form::PackedHash, bytes.len(), expiry))?;
        entry.value_mut(&mut self.arena, 0, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    /// Makes a packed hash a table.
    fn unpack_all(&mut self, db: DbId, entry: Entry) -> Result<Entry> {
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.clear();
        bytes.extend_from_slice(entry.value(&self.arena)?);
        let mut head = TableHead::default();
        let filled = self.fill_table(&mut head, &bytes);
        self.scratch = bytes;
        let expiry = entry.expiry(&self.arena)?;
        let shape = Shape::new(Form::TableHash, TableHead::BYTES, expiry);
        match filled.and_then(|()| self.reshape(db, entry, shape)) {
            Ok(entry) => {
                entry.set_table(&mut self.arena, &head)?;
                Ok(entry)
            }
            Err(error) => {
                self.reclaim.destroy(&mut self.arena, head, Items::Fields)?;
                Err(error)
            }
        }
    }

    fn fill_table(&mut self, head: &mut TableHead, bytes: &[u8]) -> Result<()> {
        for span in packed::pairs(bytes)? {
            let span = span?;
            let name = &bytes[span.field..][..span.field_len];
            let hash = self.hash(name);
            fields::insert(&mut self.arena, head, hash, name, &bytes[span.value..span.end()])?;
        }
        Ok(())
    }
}
