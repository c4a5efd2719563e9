//! Times to live of a hash's fields: giving and taking them, changing hashes that have such fields, and the step of the active search.
//!
//! The first field that gets a time to live changes the hash's layout: a packed hash is written anew, a table keeps its fields and gets eight
//! bytes more in its entry. Without the last one it has the layout that it had, so that all other operations have one kind of hash
//! to look after. Relies on `packed_ttl` and `ttl_table` for the two layouts, on `ValueMut` for writing back and telling.

use quire_arena::Arena;

use crate::db::{DbId, ExpiryChange};
use crate::encoding::{Encoding, HashEncoding};
use crate::error::{Result, StoreError};
use crate::keyspace::Keyspace;
use crate::keyspace::entry::Entry;
use crate::keyspace::subkey_expiry::ExpiredSubkeys;
use crate::keyspace::value::ValueMut;
use crate::limits::{PACKED_MAX_BYTES, PACKED_MAX_ITEMS};
use crate::table::TableHead;
use crate::value::zset::schedule;

use super::change::{HashMut, open_mut};
use super::packed_ttl::{self, EXPIRY_BYTES, MAX_EXPIRY_MS};
use super::ttl_table::{self, TtlField, TtlTable};
use super::{StoredField, fields, live_expiry, packed, stored_expiry};

/// The expiry that a field gets that is written. One whose time has come is a new field.
fn decided(expiry: ExpiryChange, before: StoredField, known: Option<i64>) -> Option<i64> {
    match expiry {
        ExpiryChange::At(at_ms) => Some(at_ms.clamp(1, MAX_EXPIRY_MS)),
        ExpiryChange::Keep if before == StoredField::Live => known,
        ExpiryChange::Keep | ExpiryChange::Clear => None,
    }
}

/// Replaces packed fields by others, of which some have expiries or none has.
fn put_packed_ttl(hash: &mut ValueMut<'_>, bytes: &[u8], has_expiries: bool) -> Result<()> {
    if has_expiries {
        return hash.replace(Encoding::PackedTtlHash, bytes, ExpiryChange::Keep);
    }
    hash.replace(Encoding::PackedHash, &packed_ttl::to_packed(bytes)?, ExpiryChange::Keep)
}

fn damaged() -> StoreError {
    StoreError::damaged("a hash whose fields don't add up")
}

/// No field expires before that; `None` if none does ever.
pub(in crate::value) fn first_expiry(arena: &Arena, entry: &Entry) -> Result<Option<i64>> {
    match entry.encoding()?.of_hash()? {
        HashEncoding::Packed | HashEncoding::Table => Ok(None),
        HashEncoding::PackedTtl => packed_ttl::first_expiry(entry.value(arena)?),
        HashEncoding::TableTtl => Ok(schedule::first(arena, &entry.table(arena)?)?.map(|(at_ms, _)| at_ms as i64)),
    }
}

/// Takes up to `most` fields out of a hash whose time has come, which the caller tells.
pub(in crate::value) fn expire_fields(
    keyspace: &mut Keyspace,
    db: DbId,
    key: &[u8],
    most: usize,
) -> Result<ExpiredSubkeys> {
    let mut hash = open_mut(keyspace, db, key)?.made_aside();
    let names = hash.take_expired(most)?;
    Ok(ExpiredSubkeys { names, is_key_gone: hash.value.get().is_none() })
}

impl HashMut<'_> {
    /// When a field expires, in unix milliseconds: `None` if there is no such field, `Some(None)` if it lives as long as the hash.
    ///
    /// # Errors
    /// As [`super::get`].
    pub fn expiry(&self, field: &[u8]) -> Result<Option<Option<i64>>> {
        self.value.get().map_or(Ok(None), |hash| live_expiry(&hash, field))
    }

    /// Whether any field has a time to live. That is known without looking for one.
    ///
    /// # Errors
    /// As [`super::get`].
    #[inline]
    pub fn has_times_to_live(&self) -> Result<bool> {
        Ok(match self.encoding()? {
            None | Some(HashEncoding::Packed | HashEncoding::Table) => false,
            Some(HashEncoding::PackedTtl | HashEncoding::TableTtl) => true,
        })
    }

    /// Whether the hash still has a field that no operation finds, since its time has come.
    ///
    /// # Errors
    /// As [`super::get`].
    pub fn has_expired(&self, field: &[u8]) -> Result<bool> {
        if !self.has_times_to_live()? {
            return Ok(false);
        }
        let (stored, now_ms) =
            (self.value.get().map_or(Ok(None), |hash| stored_expiry(&hash, field))?, self.value.now_ms());
        Ok(stored.flatten().is_some_and(|at_ms| at_ms <= now_ms))
    }

    /// Gives a field a time to live, until that time in unix milliseconds, or takes it away. False if there is no such field. The
    /// time should not be past: such a field is to be removed.
    ///
    /// # Errors
    /// As [`HashMut::set`].
    pub fn set_expiry(&mut self, field: &[u8], expiry_ms: Option<i64>) -> Result<bool> {
        let Some(known) = self.expiry(field)? else { return Ok(false) };
        if known.is_none() && expiry_ms.is_none() {
            return Ok(true);
        }
        let expiry_ms = expiry_ms.map(|at_ms| at_ms.clamp(1, MAX_EXPIRY_MS));
        self.begin_expiry()?;
        let done = match self.encoding()? {
            Some(HashEncoding::PackedTtl) => self.set_packed_expiry(field, expiry_ms),
            Some(HashEncoding::TableTtl) => self.set_table_expiry(field, expiry_ms),
            Some(HashEncoding::Packed | HashEncoding::Table) | None => Err(damaged()),
        };
        let ended = self.end_expiry();
        done.and(ended)?;
        self.value.count_member();
        Ok(true)
    }

    /// Sets a field that the hash should not have, which lives until that time even if that is past; false if the hash had it, expired or
    /// not: it has the new value then, and lives as long as the hash. For data that is read from elsewhere.
    ///
    /// # Errors
    /// As [`HashMut::set`].
    pub fn load(&mut self, field: &[u8], value: &[u8], expiry_ms: Option<i64>) -> Result<bool> {
        if self.put(field, value, ExpiryChange::Clear)? != StoredField::Missing {
            return Ok(false);
        }
        let Some(at_ms) = expiry_ms else { return Ok(true) };
        self.set_expiry(field, Some(at_ms))
    }

    /// Gives the hash a layout that has times to live, which is no change of it.
    fn begin_expiry(&mut self) -> Result<()> {
        match self.encoding()? {
            Some(HashEncoding::Packed) => {
                let bytes = self.value.bytes()?;
                let count = packed::count(bytes)?;
                let len = bytes.len() + packed_ttl::HEADER_BYTES + count * EXPIRY_BYTES;
                if count <= PACKED_MAX_ITEMS && len <= PACKED_MAX_BYTES {
                    return self.put_packed(Encoding::PackedTtlHash, packed_ttl::from_packed);
                }
                self.unpack()?;
                self.begin_table_expiry()
            }
            Some(HashEncoding::Table) => self.begin_table_expiry(),
            None | Some(HashEncoding::PackedTtl | HashEncoding::TableTtl) => Ok(()),
        }
    }

    /// The same for a hash that is a table.
    fn begin_table_expiry(&mut self) -> Result<()> {
        let count = self.value.table()?.count;
        self.value.relabel_table(Encoding::TableTtlHash, &count.to_ne_bytes())
    }

    /// Gives a hash of which no field has a time to live any more the layout that others have, which is no change of it.
    fn end_expiry(&mut self) -> Result<()> {
        match self.encoding()? {
            Some(HashEncoding::PackedTtl) if packed_ttl::first_expiry(self.value.bytes()?)?.is_none() => self
                .put_packed(Encoding::PackedHash, |to, bytes| {
                    *to = packed_ttl::to_packed(bytes)?;
                    Ok(())
                }),
            Some(HashEncoding::TableTtl) if self.value.table()?.root().is_null() => {
                self.value.relabel_table(Encoding::TableHash, &[])
            }
            None
            | Some(HashEncoding::Packed | HashEncoding::Table | HashEncoding::PackedTtl | HashEncoding::TableTtl) => {
                Ok(())
            }
        }
    }

    /// Replaces packed fields by another form of them, which is no change of the hash.
    fn put_packed(&mut self, encoding: Encoding, write: impl FnOnce(&mut Vec<u8>, &[u8]) -> Result<()>) -> Result<()> {
        self.value.with_scratch(|hash, scratch| {
            write(scratch, hash.bytes()?)?;
            hash.without_change(|hash| hash.replace(encoding, scratch, ExpiryChange::Keep))
        })
    }

    /// Makes a packed hash a table, which is no change of it.
    fn unpack(&mut self) -> Result<()> {
        let bytes = self.value.bytes()?.to_vec();
        self.value.convert_to_table(Encoding::TableHash, |heap, hasher, head| {
            fields::insert_packed(heap, hasher, head, &bytes, None)
        })
    }

    /// Makes a packed hash whose fields have times to live a table, which is no change of it.
    fn unpack_ttl(&mut self) -> Result<()> {
        let bytes = self.value.bytes()?.to_vec();
        let count = (packed_ttl::count(&bytes)? as u64).to_ne_bytes();
        self.value.without_change(|value| {
            value.make_table_before(Encoding::TableTtlHash, &count, |heap, hasher, head| {
                let mut table = TtlTable { heap, head, hasher };
                for span in packed_ttl::records(&bytes)? {
                    let span = span?;
                    table.insert(span.name(&bytes), span.content(&bytes), span.expiry_ms)?;
                }
                Ok(())
            })
        })
    }

    /// Sets a field of a packed hash whose fields have times to live; returns what it was.
    pub(super) fn set_in_packed_ttl(
        &mut self,
        field: &[u8],
        value: &[u8],
        expiry: ExpiryChange,
    ) -> Result<StoredField> {
        let (bytes, now_ms) = (self.value.bytes()?, self.value.now_ms());
        let found = packed_ttl::find(bytes, field)?;
        let before = StoredField::of(found.map(|span| span.is_live(now_ms)));
        let expiry_ms = decided(expiry, before, found.and_then(|span| span.expiry_ms));
        // A field that is there is written over even if a lower limit came since.
        let count = if found.is_some() { 0 } else { packed_ttl::count(bytes)? + 1 };
        let old = found.map_or(0, |span| span.end() - span.start);
        let len = bytes.len() - old + packed_ttl::record_size(field, value);
        if !self.packs(count, field.len().max(value.len()), len) {
            self.unpack_ttl()?;
            return self.set_in_ttl_table(field, value, expiry);
        }
        self.repack_ttl(|to, bytes| packed_ttl::with_record(to, bytes, found, (field, value), expiry_ms))?;
        Ok(before)
    }

    /// Removes a field of a packed hash whose fields have times to live; returns what it was.
    pub(super) fn remove_from_packed_ttl(&mut self, field: &[u8]) -> Result<StoredField> {
        let (bytes, now_ms) = (self.value.bytes()?, self.value.now_ms());
        let Some(span) = packed_ttl::find(bytes, field)? else { return Ok(StoredField::Missing) };
        if packed_ttl::count(bytes)? <= 1 {
            self.value.delete()?;
        } else {
            self.repack_ttl(|to, bytes| packed_ttl::without(to, bytes, span))?;
        }
        Ok(StoredField::of(Some(span.is_live(now_ms))))
    }

    fn set_packed_expiry(&mut self, field: &[u8], expiry_ms: Option<i64>) -> Result<()> {
        let span = packed_ttl::find(self.value.bytes()?, field)?.ok_or_else(damaged)?;
        self.repack_ttl(|to, bytes| {
            packed_ttl::with_record(to, bytes, Some(span), (span.name(bytes), span.content(bytes)), expiry_ms)
        })
    }

    /// Replaces a packed hash whose fields have times to live by what `write` makes of its bytes. That says whether any field still has one.
    fn repack_ttl(&mut self, write: impl FnOnce(&mut Vec<u8>, &[u8]) -> Result<bool>) -> Result<()> {
        self.value.with_scratch(|hash, scratch| {
            let has_expiries = write(scratch, hash.bytes()?)?;
            put_packed_ttl(hash, scratch, has_expiries)
        })
    }

    /// A field of a table whose fields have times to live, expired or not, and what the hash has of it.
    fn find_stored(&self, field: &[u8]) -> Result<(Option<TtlField>, StoredField)> {
        let (hash, now_ms) = (self.value.hash_of(field), self.value.now_ms());
        let found = ttl_table::find(self.value.arena(), &self.value.table()?, hash, field)?;
        Ok((found, StoredField::of(found.map(|found| found.is_live(now_ms)))))
    }

    /// Does something to the table whose fields have times to live.
    fn change_ttl_table<R>(&mut self, change: impl FnOnce(&mut TtlTable<'_>) -> Result<R>) -> Result<R> {
        let (hasher, head) = (self.value.hasher(), self.value.table()?);
        self.value.change_table(head, |heap, head| change(&mut TtlTable { heap, head, hasher: &hasher }))
    }

    /// Counts fields that came to such a table, or went; returns how many there are.
    fn count_fields(&mut self, by: i64) -> Result<u64> {
        let count = ttl_table::field_count(self.value.bytes()?)?.checked_add_signed(by).ok_or_else(damaged)?;
        if by != 0 {
            self.value.part_mut(TableHead::BYTES, size_of::<u64>())?.copy_from_slice(&count.to_ne_bytes());
        }
        Ok(count)
    }

    /// Sets a field of a table whose fields have times to live; returns what it was.
    pub(super) fn set_in_ttl_table(&mut self, field: &[u8], value: &[u8], expiry: ExpiryChange) -> Result<StoredField> {
        let (found, before) = self.find_stored(field)?;
        let expiry_ms = decided(expiry, before, found.and_then(|found| found.expiry_ms));
        self.change_ttl_table(|table| match found {
            Some(old) => table.set(old, field, value, expiry_ms),
            None => table.insert(field, value, expiry_ms),
        })?;
        self.count_fields(i64::from(found.is_none()))?;
        self.end_expiry()?;
        Ok(before)
    }

    /// Removes a field of a table whose fields have times to live; returns what it was.
    pub(super) fn remove_from_ttl_table(&mut self, field: &[u8]) -> Result<StoredField> {
        let (Some(found), before) = self.find_stored(field)? else { return Ok(StoredField::Missing) };
        self.change_ttl_table(|table| table.remove(found))?;
        self.end_of_fields(1)?;
        Ok(before)
    }

    /// So many fields of such a table have gone: with the last one the key does.
    fn end_of_fields(&mut self, gone: usize) -> Result<()> {
        if self.count_fields(-(gone as i64))? == 0 { self.value.delete() } else { self.end_expiry() }
    }

    fn set_table_expiry(&mut self, field: &[u8], expiry_ms: Option<i64>) -> Result<()> {
        let found = self.find_stored(field)?.0.ok_or_else(damaged)?;
        self.change_ttl_table(|table| table.set_expiry(found, expiry_ms))
    }

    /// Takes up to `most` fields out whose time has come; returns which.
    fn take_expired(&mut self, most: usize) -> Result<Vec<Box<[u8]>>> {
        match self.encoding()? {
            Some(HashEncoding::PackedTtl) => self.take_expired_of_packed(most),
            Some(HashEncoding::TableTtl) => self.take_expired_of_table(most),
            Some(HashEncoding::Packed | HashEncoding::Table) | None => Ok(Vec::new()),
        }
    }

    fn take_expired_of_packed(&mut self, most: usize) -> Result<Vec<Box<[u8]>>> {
        let now_ms = self.value.now_ms();
        self.value.with_scratch(|hash, scratch| {
            let expired = packed_ttl::without_expired(scratch, hash.bytes()?, now_ms, most)?;
            match expired.left {
                0 => hash.delete()?,
                _ => put_packed_ttl(hash, scratch, expired.has_expiries)?,
            }
            Ok(expired.names)
        })
    }

    fn take_expired_of_table(&mut self, most: usize) -> Result<Vec<Box<[u8]>>> {
        let (now_ms, mut names) = (self.value.now_ms(), Vec::new());
        let done = self.change_ttl_table(|table| {
            while names.len() < most {
                let Some(field) = table.first()?.filter(|field| !field.is_live(now_ms)) else { break };
                let name: Box<[u8]> = field.name(&table.heap.arena)?.into();
                table.remove(field)?;
                names.push(name);
            }
            Ok(())
        });
        // What has gone is counted even if what follows proved damaged.
        self.end_of_fields(names.len())?;
        done.map(|()| names)
    }
}
