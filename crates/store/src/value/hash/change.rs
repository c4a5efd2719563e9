//! Changing a hash: setting, counting up and removing fields.
//!
//! Relies on `ValueMut` for writing back what is changed here, and for telling it; on `field_expiry` for hashes some of whose fields have
//! times to live.

use crate::db::{DbId, ExpiryChange};
use crate::encoding::{Encoding, HashEncoding, ValueType};
use crate::error::{Result, StoreError};
use crate::keyspace::Keyspace;
use crate::keyspace::entries::check_len;
use crate::keyspace::value::ValueMut;
use crate::limits::{PACKED_MAX_BYTES, PACKED_MAX_ITEMS};
use crate::numbers::long_double::LongDouble;
use crate::numbers::parse_i64;

use super::limits::{MAX_PACKED_FIELDS, MAX_PACKED_LEN};
use super::{StoredField, field_of, fields, packed};

/// A hash to be changed, or made by the first field that is set. The key goes with the last field.
#[derive(Debug)]
pub struct HashMut<'a> {
    pub(super) value: ValueMut<'a>,
}

/// Looks a hash up to change it.
///
/// # Errors
/// As [`super::get`].
#[inline]
pub fn open_mut<'a>(keyspace: &'a mut Keyspace, db: DbId, key: &'a [u8]) -> Result<HashMut<'a>> {
    Ok(HashMut { value: keyspace.open_mut(db, key, ValueType::Hash)? })
}

/// As [`HashMut::set`], for one field.
///
/// # Errors
/// As [`super::get`].
pub fn set(keyspace: &mut Keyspace, db: DbId, key: &[u8], field: &[u8], value: &[u8]) -> Result<bool> {
    open_mut(keyspace, db, key)?.set(field, value)
}

/// As [`HashMut::remove`], for one field.
///
/// # Errors
/// As [`super::get`].
pub fn del(keyspace: &mut Keyspace, db: DbId, key: &[u8], field: &[u8]) -> Result<bool> {
    open_mut(keyspace, db, key)?.remove(field)
}

impl HashMut<'_> {
    /// Says that it is made aside, under a [`Keyspace::aside_key`]: what becomes of it is no change.
    pub fn made_aside(mut self) -> Self {
        self.value.set_aside();
        self
    }

    /// The value of a field, which is not counted as read.
    ///
    /// # Errors
    /// As [`super::get`].
    pub fn get(&self, field: &[u8]) -> Result<Option<&[u8]>> {
        self.value.get().map_or(Ok(None), |hash| field_of(&hash, field))
    }

    /// Sets a field, which lives as long as the hash; returns whether it is new.
    ///
    /// # Errors
    /// As [`super::get`]; the hash holds what it held then.
    #[inline]
    pub fn set(&mut self, field: &[u8], value: &[u8]) -> Result<bool> {
        Ok(self.put(field, value, ExpiryChange::Clear)? != StoredField::Live)
    }

    /// Sets a field, whose time to live stays or goes, as `expiry` says; returns what it was.
    #[inline]
    pub(super) fn put(&mut self, field: &[u8], value: &[u8], expiry: ExpiryChange) -> Result<StoredField> {
        check_len(field.len().saturating_add(value.len()))?;
        let of = |is_new| if is_new { StoredField::Missing } else { StoredField::Live };
        let before = match self.encoding()? {
            Some(HashEncoding::Table) => of(self.set_in_table(field, value)?),
            Some(HashEncoding::Packed) => of(self.set_in_packed(field, value)?),
            Some(HashEncoding::PackedTtl) => self.set_in_packed_ttl(field, value, expiry)?,
            Some(HashEncoding::TableTtl) => self.set_in_ttl_table(field, value, expiry)?,
            None => self.create(field, value).map(|()| StoredField::Missing)?,
        };
        self.value.count_member();
        Ok(before)
    }

    /// Sets a field only if the hash doesn't have it; returns whether it was set.
    ///
    /// # Errors
    /// As [`HashMut::set`].
    pub fn set_new(&mut self, field: &[u8], value: &[u8]) -> Result<bool> {
        if self.get(field)?.is_some() { Ok(false) } else { self.set(field, value) }
    }

    /// Removes a field; returns whether it was there. One whose time has come was not, but is removed.
    ///
    /// # Errors
    /// As [`super::get`].
    pub fn remove(&mut self, field: &[u8]) -> Result<bool> {
        let of = |removed| if removed { StoredField::Live } else { StoredField::Missing };
        let removed = match self.encoding()? {
            Some(HashEncoding::Table) => of(self.remove_from_table(field)?),
            Some(HashEncoding::Packed) => of(self.remove_from_packed(field)?),
            Some(HashEncoding::PackedTtl) => self.remove_from_packed_ttl(field)?,
            Some(HashEncoding::TableTtl) => self.remove_from_ttl_table(field)?,
            None => StoredField::Missing,
        };
        if removed != StoredField::Missing {
            self.value.count_member();
        }
        Ok(removed == StoredField::Live)
    }

    /// Adds to the integer that a field is, 0 if there is none; returns the sum. The field keeps its time to live.
    ///
    /// # Errors
    /// As [`HashMut::set`], [`StoreError::HashValueNotInteger`], [`StoreError::Overflow`].
    pub fn incr_by(&mut self, field: &[u8], by: i64) -> Result<i64> {
        let old = match self.get(field)? {
            Some(value) => parse_i64(value).ok_or(StoreError::HashValueNotInteger)?,
            None => 0,
        };
        let sum = old.checked_add(by).ok_or(StoreError::Overflow)?;
        self.put(field, itoa::Buffer::new().format(sum).as_bytes(), ExpiryChange::Keep)?;
        Ok(sum)
    }

    /// Adds to the number that a field is, 0 if there is none; returns the sum as it is now stored. The field keeps its time to live.
    ///
    /// # Errors
    /// As [`HashMut::set`], [`StoreError::HashValueNotFloat`], [`StoreError::NanOrInfinity`].
    pub fn incr_by_float(&mut self, field: &[u8], by: impl Into<LongDouble>) -> Result<String> {
        let old = match self.get(field)? {
            Some(value) => LongDouble::parse(value).ok_or(StoreError::HashValueNotFloat)?,
            None => LongDouble::ZERO,
        };
        let sum = old.plus(by.into()).filter(|sum| sum.is_finite()).ok_or(StoreError::NanOrInfinity)?;
        let text = sum.format();
        self.put(field, text.as_bytes(), ExpiryChange::Keep)?;
        Ok(text)
    }

    pub(super) fn encoding(&self) -> Result<Option<HashEncoding>> {
        self.value.encoding()?.map(Encoding::of_hash).transpose()
    }

    /// Whether a hash of so many fields, one of which is so long, may be packed into so many bytes.
    pub(super) fn packs(&self, count: usize, longest: usize, bytes: usize) -> bool {
        count <= self.value.limit(&MAX_PACKED_FIELDS).min(PACKED_MAX_ITEMS)
            && longest <= self.value.limit(&MAX_PACKED_LEN)
            && bytes <= PACKED_MAX_BYTES
    }

    fn create(&mut self, field: &[u8], value: &[u8]) -> Result<()> {
        if self.packs(1, field.len().max(value.len()), packed::pair_size(field, value)) {
            return self.repack(|to, _| packed::with_pair(to, &packed::EMPTY, None, field, value));
        }
        self.value.make_table(Encoding::TableHash, |heap, hasher, head| {
            fields::insert(heap, head, hasher.hash(field), field, value)
        })
    }

    fn set_in_packed(&mut self, field: &[u8], value: &[u8]) -> Result<bool> {
        let bytes = self.value.bytes()?;
        let found = packed::find(bytes, field)?;
        // A field that is there is written over even if a lower limit came since.
        let count = if found.is_some() { 0 } else { packed::count(bytes)? + 1 };
        let old = found.map_or(0, |span| span.end() - span.start);
        let len = bytes.len() - old + packed::pair_size(field, value);
        if !self.packs(count, field.len().max(value.len()), len) {
            self.outgrow(field, value)?;
        } else if let Some(span) = found.filter(|span| span.value_len == value.len()) {
            self.value.part_mut(span.value, value.len())?.copy_from_slice(value);
        } else {
            self.repack(|to, bytes| packed::with_pair(to, bytes, found, field, value))?;
        }
        Ok(found.is_none())
    }

    /// Replaces a packed hash by what `write` makes of its bytes, or makes one.
    fn repack(&mut self, write: impl FnOnce(&mut Vec<u8>, &[u8]) -> Result<()>) -> Result<()> {
        self.value.with_scratch(|hash, scratch| {
            write(scratch, hash.get().map_or(Ok(&[][..]), |old| old.bytes())?)?;
            hash.replace(Encoding::PackedHash, scratch, ExpiryChange::Keep)
        })
    }

    /// Makes a packed hash a table with a field that it has no room for, as one change.
    fn outgrow(&mut self, field: &[u8], value: &[u8]) -> Result<()> {
        self.value.with_scratch(|hash, bytes| {
            bytes.extend_from_slice(hash.bytes()?);
            hash.make_table(Encoding::TableHash, |heap, hasher, head| {
                fields::insert_packed(heap, hasher, head, bytes, Some(field))?;
                fields::insert(heap, head, hasher.hash(field), field, value)
            })
        })
    }

    fn set_in_table(&mut self, field: &[u8], value: &[u8]) -> Result<bool> {
        let head = self.value.table()?;
        let hash = self.value.hash_of(field);
        let found = fields::find(self.value.arena(), &head, hash, field)?;
        self.value.change_table(head, |heap, head| match found {
            Some(old) => fields::set_value(heap, head, old, hash, value),
            None => fields::insert(heap, head, hash, field, value),
        })?;
        Ok(found.is_none())
    }

    fn remove_from_packed(&mut self, field: &[u8]) -> Result<bool> {
        let bytes = self.value.bytes()?;
        let Some(span) = packed::find(bytes, field)? else { return Ok(false) };
        if packed::count(bytes)? <= 1 {
            self.value.delete()?;
        } else {
            self.repack(|to, bytes| packed::without(to, bytes, span))?;
        }
        Ok(true)
    }

    fn remove_from_table(&mut self, field: &[u8]) -> Result<bool> {
        let head = self.value.table()?;
        let hash = self.value.hash_of(field);
        let Some(found) = fields::find(self.value.arena(), &head, hash, field)? else { return Ok(false) };
        let left = self.value.change_table(head, |heap, head| {
            fields::remove(&mut heap.arena, head, found)?;
            Ok(head.count)
        })?;
        if left == 0 {
            self.value.delete()?;
        }
        Ok(true)
    }
}
