//! Strings: reading, writing, appending, counting, single bits.

use quire_arena::Arena;
use zerocopy::IntoBytes;

use crate::db::{DbId, Expiry};
use crate::entry::{EXPIRES, EXTERNAL, Entry, EntryHeader, Form, HEADER_BYTES, INLINE_MAX, Kind, RAW, ROOMY, TEXT};
use crate::error::{Result, StoreError};
use crate::long_double::LongDouble;
use crate::numbers::parse_i64;
use crate::reclaim::Items;
use crate::shape::{Shape, check_len};
use crate::store::{STRING_MAX_BYTES, Store};

/// Most bytes that a growing string gets in reserve.
const RESERVE_MAX: usize = 1 << 20;

impl Store {
    /// The string of a key. Counts a hit or a miss and sets the access clock.
    ///
    /// # Errors
    /// As all operations here: [`StoreError::WrongType`], [`StoreError::Damaged`], [`StoreError::NoSuchDb`]; those that
    /// write also [`StoreError::OutOfMemory`] and [`StoreError::TooLarge`].
    #[inline]
    pub fn get(&mut self, db: DbId, key: &[u8]) -> Result<Option<&[u8]>> {
        match self.find_kind_to_read(db, key, Kind::String)? {
            Some(entry) => Ok(Some(entry.value(&self.arena)?)),
            None => Ok(None),
        }
    }

    /// The string of a key; counts nothing.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn peek(&self, db: DbId, key: &[u8]) -> Result<Option<&[u8]>> {
        match crate::store::check_kind(self.peek_entry(db, key)?, Kind::String)? {
            Some(entry) => Ok(Some(entry.value(&self.arena)?)),
            None => Ok(None),
        }
    }

    /// The length of a key's string, 0 if there is no such key.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn strlen(&mut self, db: DbId, key: &[u8]) -> Result<usize> {
        let found = self.find_kind_to_read(db, key, Kind::String)?;
        Ok(found.map_or(0, |entry| entry.header.value_len as usize))
    }

    /// Gives a key a string, whatever it held before.
    ///
    /// # Errors
    /// As [`Store::get`].
    #[inline]
    pub fn set(&mut self, db: DbId, key: &[u8], value: &[u8], expiry: Expiry) -> Result<()> {
        let hash = self.hash(key);
        let found = self.find(db, key, hash)?;
        match found {
            Some(entry) if self.overwrite(&entry, value, expiry)? => {}
            Some(entry) => self.replace_value(db, entry, value, expiry)?,
            None => {
                let expiry = if let Expiry::At(at_ms) = expiry { Some(at_ms) } else { None };
                let shape = Shape::new(Form::String, value.len(), expiry);
                let entry = self.create_entry(db, key, hash, shape)?;
                entry.value_mut(&mut self.arena, 0, value.len())?.copy_from_slice(value);
            }
        }
        self.changed(db, key, true);
        Ok(())
    }

    /// The common case: the new string has the old one's size class and no time to live changes, so the entry is
    /// written over with one pass of the barrier. False if that isn't so.
    #[inline]
    fn overwrite(&mut self, entry: &Entry, value: &[u8], expiry: Expiry) -> Result<bool> {
        // Any flag but LONG_KEY stands for something that must be looked after.
        let header = entry.header;
        if header.form != Form::String as u8
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
        let header = EntryHeader { value_len: value.len() as u32, clock: self.clock, ..header };
        let bytes = self.arena.bytes_mut(entry.handle, 0, total)?;
        bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        bytes[offset..].copy_from_slice(value);
        Ok(true)
    }

    /// The other cases of SET on a key that exists.
    fn replace_value(&mut self, db: DbId, entry: Entry, value: &[u8], expiry: Expiry) -> Result<()> {
        let expiry = match expiry {
            Expiry::Keep => entry.expiry(&self.arena)?,
            Expiry::Clear => None,
            Expiry::At(at_ms) => Some(at_ms),
        };
        let table = match entry.form()? {
            Form::TableHash => Some(entry.table(&self.arena)?),
            Form::String | Form::PackedHash => None,
        };
        let entry = self.reshape(db, entry, Shape::new(Form::String, value.len(), expiry))?;
        entry.value_mut(&mut self.arena, 0, value.len())?.copy_from_slice(value);
        if let Some(head) = table {
            self.reclaim.retire(&mut self.arena, head, Items::Fields)?;
            self.sync_reclaim()?;
        }
        Ok(())
    }

    /// As [`Store::set`], for a string that was put together: however short it is, it counts as raw.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn set_raw(&mut self, db: DbId, key: &[u8], value: &[u8]) -> Result<()> {
        self.set(db, key, value, Expiry::Clear)?;
        self.mark_key(db, key, RAW)
    }

    /// Appends to a key's string, which is created if need be; returns the new length.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn append(&mut self, db: DbId, key: &[u8], value: &[u8]) -> Result<usize> {
        let (entry, old_len) = self.grow_string(db, key, |old_len| old_len + value.len())?;
        if old_len.is_some() {
            self.mark(&entry, RAW)?;
        }
        entry.value_mut(&mut self.arena, old_len.unwrap_or(0), value.len())?.copy_from_slice(value);
        self.changed(db, key, true);
        Ok(entry.header.value_len as usize)
    }

    /// Writes over a key's string from `offset`, which is padded with zeros if need be; returns the length afterwards.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn set_range(&mut self, db: DbId, key: &[u8], offset: u64, value: &[u8]) -> Result<usize> {
        if value.is_empty() {
            // Not a read, so nothing is counted.
            let found = self.find_kind(db, key, self.hash(key), Kind::String)?;
            return Ok(found.map_or(0, |entry| entry.header.value_len as usize));
        }
        let end = offset.saturating_add(value.len() as u64);
        if end > STRING_MAX_BYTES as u64 {
            // A value of another type is the graver error.
            self.find_kind(db, key, self.hash(key), Kind::String)?;
            return Err(StoreError::TooLarge { len: end });
        }
        let (entry, _) = self.pad_string(db, key, end as usize)?;
        entry.value_mut(&mut self.arena, offset as usize, value.len())?.copy_from_slice(value);
        self.changed(db, key, true);
        Ok(entry.header.value_len as usize)
    }

    /// Sets a bit of a key's string, counted from the first byte's highest bit; returns what it was. Nothing has changed
    /// if it was so before, unless the string grew.
    ///
    /// # Errors
    /// As [`Store::get`], and [`StoreError::OutOfRange`].
    pub fn set_bit(&mut self, db: DbId, key: &[u8], bit_offset: u64, bit: bool) -> Result<bool> {
        if bit_offset / 8 >= STRING_MAX_BYTES as u64 {
            return Err(StoreError::OutOfRange { offset: bit_offset });
        }
        let byte_offset = (bit_offset / 8) as usize;
        let (entry, old_len) = self.pad_string(db, key, byte_offset + 1)?;
        let mask = 0x80 >> (bit_offset % 8);
        let old = entry.value(&self.arena)?.get(byte_offset).copied().unwrap_or_default();
        let new = if bit { old | mask } else { old & !mask };
        if new != old {
            entry.value_mut(&mut self.arena, byte_offset, 1)?[0] = new;
        }
        if new != old || old_len.is_none_or(|old_len| old_len <= byte_offset) {
            self.changed(db, key, true);
        }
        Ok(old & mask != 0)
    }

    /// The entry of a string of at least `len` bytes, padded with zeros, and the length that it had if it existed.
    fn pad_string(&mut self, db: DbId, key: &[u8], len: usize) -> Result<(Entry, Option<usize>)> {
        let (entry, old_len) = self.grow_string(db, key, |old_len| old_len.max(len))?;
        self.mark(&entry, RAW)?;
        let (start, end) = (old_len.unwrap_or(0), entry.header.value_len as usize);
        entry.value_mut(&mut self.arena, start, end - start)?.fill(0);
        Ok((entry, old_len))
    }

    /// Notes how a string came to be, for its encoding.
    pub(crate) fn mark(&mut self, entry: &Entry, flags: u8) -> Result<()> {
        if entry.header.flags & flags != flags {
            self.arena.get_mut::<EntryHeader>(entry.handle)?.flags |= flags;
        }
        Ok(())
    }

    /// Notes how a key's string came to be.
    fn mark_key(&mut self, db: DbId, key: &[u8], flags: u8) -> Result<()> {
        match self.find_any(db, key, self.hash(key))? {
            Some(entry) => self.mark(&entry, flags),
            None => Ok(()),
        }
    }

    /// The entry of a string whose length becomes what `new_len` makes of the old one, which is returned too if the
    /// string existed.
    fn grow_string(
        &mut self,
        db: DbId,
        key: &[u8],
        new_len: impl Fn(usize) -> usize,
    ) -> Result<(Entry, Option<usize>)> {
        let hash = self.hash(key);
        let Some(entry) = self.find_kind(db, key, hash, Kind::String)? else {
            return Ok((self.create_entry(db, key, hash, Shape::new(Form::String, new_len(0), None))?, None));
        };
        let old_len = entry.header.value_len as usize;
        let value_len = new_len(old_len);
        if value_len == old_len {
            return Ok((entry, Some(old_len)));
        }
        check_len(value_len)?;
        let expiry = entry.expiry(&self.arena)?;
        let reserve = value_len.min(RESERVE_MAX);
        let shape = Shape { form: Form::String, value_len, keep: old_len, expiry, reserve };
        Ok((self.reshape(db, entry, shape)?, Some(old_len)))
    }

    /// Adds to the integer that a key's string is, 0 if there is no such key; returns the sum.
    ///
    /// # Errors
    /// As [`Store::get`], [`StoreError::NotInteger`], [`StoreError::Overflow`].
    pub fn incr_by(&mut self, db: DbId, key: &[u8], by: i64) -> Result<i64> {
        let old = match self.find_kind(db, key, self.hash(key), Kind::String)? {
            Some(entry) => parse_i64(entry.value(&self.arena)?).ok_or(StoreError::NotInteger)?,
            None => 0,
        };
        let sum = old.checked_add(by).ok_or(StoreError::Overflow)?;
        self.set(db, key, itoa::Buffer::new().format(sum).as_bytes(), Expiry::Keep)?;
        Ok(sum)
    }

    /// Adds to the number that a key's string is, 0 if there is no such key; returns the sum as it is now stored.
    ///
    /// # Errors
    /// As [`Store::get`], [`StoreError::NotFloat`], [`StoreError::NanOrInfinity`].
    pub fn incr_by_float(&mut self, db: DbId, key: &[u8], by: impl Into<LongDouble>) -> Result<String> {
        let old = match self.find_kind(db, key, self.hash(key), Kind::String)? {
            Some(entry) => LongDouble::parse(entry.value(&self.arena)?).ok_or(StoreError::NotFloat)?,
            None => LongDouble::ZERO,
        };
        let sum = old.plus(by.into()).filter(|sum| sum.is_finite()).ok_or(StoreError::NanOrInfinity)?;
        let text = sum.format();
        self.set(db, key, text.as_bytes(), Expiry::Keep)?;
        if parse_i64(text.as_bytes()).is_some() {
            self.mark_key(db, key, TEXT)?;
        }
        Ok(text)
    }
}
