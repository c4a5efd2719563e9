//! Values that are made aside, under a key that no command knows, until they are whole: then they get their key at one instant, or
//! are given up, and nothing has changed.
//!
//! Relies on the types' ways to change a value, which are told that it is made aside.

use crate::db::DbId;
use crate::error::{Result, StoreError};
use crate::keyspace::Keyspace;
use crate::keyspace::access;
use crate::keyspace::entries::{self, EntryLayout};
use crate::keyspace::entry::Entry;

const NAME: &[u8] = b"\0quire: a value that is being built\0";

impl Keyspace {
    /// A key under which a value can be made aside. It is to be published or discarded within the same command.
    pub fn aside_key(&mut self) -> Vec<u8> {
        [NAME, &self.rng.next_u64().to_ne_bytes()].concat()
    }

    /// Gives a value that was made aside a key and perhaps an end, which is one change of that key; what it held is deleted.
    ///
    /// # Errors
    /// [`StoreError::NoSuchKey`] if nothing was made aside, [`StoreError::OutOfMemory`], [`StoreError::Damaged`]; the value made aside is
    /// deleted then, and the key holds what it held.
    pub fn publish_aside(&mut self, db: DbId, aside: &[u8], to: &[u8], expire_ms: Option<i64>) -> Result<()> {
        let entry = self.find_any(db, aside, self.hash(aside))?.ok_or(StoreError::NoSuchKey)?;
        let published = self.mortal(db, entry, expire_ms).and_then(|entry| self.give_key(db, &entry, to));
        if published.is_err() {
            self.discard_aside(db, aside)?;
        }
        published
    }

    /// The entry, with an end if it gets one.
    fn mortal(&mut self, db: DbId, entry: Entry, expire_ms: Option<i64>) -> Result<Entry> {
        if expire_ms.is_none() {
            return Ok(entry);
        }
        let keep = entry.header.value_len as usize;
        let layout = EntryLayout { keep, ..EntryLayout::new(entry.encoding()?, keep, expire_ms) };
        entries::reshape(self, db, entry, layout)
    }

    /// Deletes what was made aside, if anything was.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub fn discard_aside(&mut self, db: DbId, aside: &[u8]) -> Result<()> {
        match self.find_any(db, aside, self.hash(aside))? {
            Some(entry) => self.delete_entry(db, entry),
            None => Ok(()),
        }
    }

    /// Sets for how many seconds a key was not used, which is no change. False if there is no such key.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], [`StoreError::NoSuchDb`].
    pub fn set_idle_seconds(&mut self, db: DbId, key: &[u8], idle_s: u64) -> Result<bool> {
        let Some(entry) = self.peek_entry(db, key)? else { return Ok(false) };
        access::set_idle(self, &entry, idle_s);
        Ok(true)
    }
}
