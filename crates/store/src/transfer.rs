//! Giving a value another name or place: RENAME, COPY, MOVE.

use crate::db::DbId;
use crate::entry::{EXTERNAL, Entry, EntryHeader, External, Form, RAW, TEXT};
use crate::error::{Result, StoreError};
use crate::fields::{self, Field};
use crate::reclaim::Items;
use crate::shape::Shape;
use crate::store::Store;
use crate::table::TableHead;

impl Store {
    /// Renames a key; what the new name held is deleted. False if there is no such key.
    ///
    /// # Errors
    /// [`StoreError::OutOfMemory`], [`StoreError::Damaged`], [`StoreError::NoSuchDb`].
    pub fn rename(&mut self, db: DbId, from: &[u8], to: &[u8]) -> Result<bool> {
        let index = self.db_index(db)?;
        let Some(entry) = self.find(db, from, self.hash(from))? else { return Ok(false) };
        if from == to {
            return Ok(true);
        }
        let hash = self.hash(to);
        let target = self.find(db, to, hash)?;
        let new = self.allocate_renamed(&entry, to)?;
        // A handle tells the new entry from the target, so both may be in the table for a moment.
        if let Err(error) = self.link(index, &new, hash) {
            self.free_shell(&new)?;
            return Err(error);
        }
        if let Some(target) = target {
            self.delete_entry(db, target)?;
        }
        self.unlink(index, &entry)?;
        self.free_shell(&entry)?;
        self.changed(db, to, true);
        // One change, though two keys have changed.
        if !self.watchers.is_empty() {
            self.watchers.touch(db, from, false);
        }
        Ok(true)
    }

    /// An entry of another name that has taken over an entry's value.
    fn allocate_renamed(&mut self, entry: &Entry, to: &[u8]) -> Result<Entry> {
        let form = entry.form()?;
        let expiry = entry.expiry(&self.arena)?;
        let external = entry.value_object(&self.arena)?;
        // In the place of a big value's bytes comes the reference to them.
        let value_len = if external.is_some() { External::BYTES } else { entry.header.value_len as usize };
        let shape = Shape::new(form, value_len, expiry);
        let mut new = self.allocate_entry_as(to, self.hash(to), shape, false)?;
        let (from_offset, to_offset) = (entry.value_offset(), new.value_offset());
        self.arena.copy(entry.handle, from_offset, new.handle, to_offset, value_len)?;
        new.header.value_len = entry.header.value_len;
        new.header.flags |= entry.header.flags & (EXTERNAL | RAW | TEXT);
        new.header.clock = entry.header.clock;
        *self.arena.get_mut::<EntryHeader>(new.handle)? = new.header;
        Ok(new)
    }

    /// Frees an entry but not its value.
    fn free_shell(&mut self, entry: &Entry) -> Result<()> {
        if let Some(key) = entry.key_object(&self.arena)? {
            self.arena.free(key.object)?;
        }
        Ok(self.arena.free(entry.handle)?)
    }

    /// Moves a key to another database. False if there is no such key, or the other database has one of that name.
    ///
    /// # Errors
    /// As [`Store::rename`].
    pub fn move_key(&mut self, db: DbId, key: &[u8], to_db: DbId) -> Result<bool> {
        let (from_index, to_index) = (self.db_index(db)?, self.db_index(to_db)?);
        let hash = self.hash(key);
        let Some(entry) = self.find(db, key, hash)? else { return Ok(false) };
        if from_index == to_index || self.find(to_db, key, hash)?.is_some() {
            return Ok(false);
        }
        self.link(to_index, &entry, hash)?;
        self.unlink(from_index, &entry)?;
        self.changed(db, key, false);
        if !self.watchers.is_empty() {
            self.watchers.touch(to_db, key, true);
        }
        Ok(true)
    }

    /// Copies a key with its time to live. False if there is no such key, or the other name exists and `replace` is not
    /// set.
    ///
    /// # Errors
    /// As [`Store::rename`].
    pub fn copy(&mut self, db: DbId, from: &[u8], to_db: DbId, to: &[u8], replace: bool) -> Result<bool> {
        let index = self.db_index(to_db)?;
        let Some(entry) = self.find(db, from, self.hash(from))? else { return Ok(false) };
        let hash = self.hash(to);
        let target = self.find(to_db, to, hash)?;
        if (target.is_some() && !replace) || target.is_some_and(|target| target.handle == entry.handle) {
            return Ok(false);
        }
        let form = entry.form()?;
        let value_len = entry.header.value_len as usize;
        let shape = Shape::new(form, value_len, entry.expiry(&self.arena)?);
        let new = self.allocate_entry(to, hash, shape)?;
        let filled = match form {
            Form::TableHash => self.copy_table(&entry, &new),
            Form::String | Form::PackedHash => self.copy_bytes(&entry, &new, value_len),
        };
        let filled = filled.and_then(|()| self.mark(&new, entry.header.flags & (RAW | TEXT)));
        if let Err(error) = filled {
            self.discard(&new)?;
            return Err(error);
        }
        if let Err(error) = self.link(index, &new, hash) {
            self.reclaim.free_entry(&mut self.arena, new)?;
            self.sync_reclaim()?;
            return Err(error);
        }
        if let Some(target) = target {
            self.delete_entry(to_db, target)?;
        }
        self.changed(to_db, to, true);
        Ok(true)
    }

    fn copy_bytes(&mut self, from: &Entry, to: &Entry, len: usize) -> Result<()> {
        let (source, source_offset) = from.value_place(&self.arena)?;
        let (target, target_offset) = to.value_place(&self.arena)?;
        Ok(self.arena.copy(source, source_offset, target, target_offset, len)?)
    }

    /// Copies all fields of a table. Leaves nothing behind if this fails.
    fn copy_table(&mut self, from: &Entry, to: &Entry) -> Result<()> {
        let source = from.table(&self.arena)?;
        let mut head = TableHead::default();
        let mut copied = Ok(());
        let mut items = Vec::new();
        for bucket in 0..source.buckets() {
            items.clear();
            copied = source.visit(&self.arena, bucket, |item| {
                items.push(item);
                Ok(())
            });
            for &item in &items {
                copied = copied.and_then(|()| {
                    if head.count >= source.count {
                        return Err(StoreError::damaged("a table holds more items than it says"));
                    }
                    let field = Field::read(&self.arena, item)?;
                    let (name, value) = (field.name(&self.arena)?.to_vec(), field.value(&self.arena)?.to_vec());
                    let hash = self.hash(&name);
                    fields::insert(&mut self.arena, &mut head, hash, &name, &value)
                });
            }
            if copied.is_err() {
                break;
            }
        }
        match copied {
            Ok(()) => to.set_table(&mut self.arena, &head),
            Err(error) => {
                self.reclaim.destroy(&mut self.arena, head, Items::Fields)?;
                Err(error)
            }
        }
    }
}
