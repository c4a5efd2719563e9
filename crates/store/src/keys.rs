//! What can be done with a key whatever its value is.

use crate::db::DbId;
use crate::entry::{Form, Kind, RAW, TEXT};
use crate::error::Result;
use crate::numbers::parse_i64;
use crate::store::Store;

/// Redis keeps strings up to this length in the same allocation as their object, and says so.
const EMBSTR_MAX: usize = 44;

impl Store {
    /// Whether a key exists. Counts a hit or a miss but is no access.
    ///
    /// # Errors
    /// As all operations here: [`crate::StoreError::Damaged`], [`crate::StoreError::NoSuchDb`].
    pub fn exists(&mut self, db: DbId, key: &[u8]) -> Result<bool> {
        let exists = self.find(db, key, self.hash(key))?.is_some();
        self.count_read(exists);
        Ok(exists)
    }

    /// The type of a key's value.
    ///
    /// # Errors
    /// As [`Store::exists`].
    pub fn kind(&mut self, db: DbId, key: &[u8]) -> Result<Option<Kind>> {
        let found = self.find(db, key, self.hash(key))?;
        found.map(|entry| Ok(entry.form()?.kind())).transpose()
    }

    /// Deletes a key. A big value is freed later, by [`Store::reclaim_step`].
    ///
    /// # Errors
    /// As [`Store::exists`].
    pub fn remove(&mut self, db: DbId, key: &[u8]) -> Result<bool> {
        let Some(entry) = self.find(db, key, self.hash(key))? else { return Ok(false) };
        self.delete_entry(db, entry)?;
        self.changed(db, key, false);
        Ok(true)
    }

    /// Notes an access to a key, even where reads don't.
    ///
    /// # Errors
    /// As [`Store::exists`].
    pub fn touch(&mut self, db: DbId, key: &[u8]) -> Result<bool> {
        let found = self.find(db, key, self.hash(key))?;
        self.count_read(found.is_some());
        if let Some(entry) = &found {
            self.set_clock(entry);
        }
        Ok(found.is_some())
    }

    /// Seconds since a key was last accessed.
    ///
    /// # Errors
    /// As [`Store::exists`].
    pub fn idle_seconds(&self, db: DbId, key: &[u8]) -> Result<Option<u64>> {
        let found = self.peek_entry(db, key)?;
        Ok(found.map(|entry| u64::from(self.clock.saturating_sub(entry.header.clock))))
    }

    /// How a value is stored, in Redis' words.
    ///
    /// # Errors
    /// As [`Store::exists`].
    pub fn encoding(&self, db: DbId, key: &[u8]) -> Result<Option<&'static str>> {
        let Some(entry) = self.peek_entry(db, key)? else { return Ok(None) };
        Ok(Some(match entry.form()? {
            Form::PackedHash => "listpack",
            Form::TableHash => "hashtable",
            Form::String if entry.has(RAW) => "raw",
            Form::String => {
                let value = entry.value(&self.arena)?;
                match value.len() {
                    0..=20 if !entry.has(TEXT) && parse_i64(value).is_some() => "int",
                    0..=EMBSTR_MAX => "embstr",
                    _ => "raw",
                }
            }
        }))
    }
}
