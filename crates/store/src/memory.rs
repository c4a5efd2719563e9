//! How much memory a key takes.

use quire_arena::Arena;

use crate::db::DbId;
use crate::entry::{EXPIRES, Form};
use crate::error::Result;
use crate::store::Store;

/// A key's share of a table's buckets, about.
const TABLE_SHARE_BYTES: u64 = 10;

impl Store {
    /// Bytes that a key takes: entry, value, table of fields, its share of the keyspace's tables. Exact but for that
    /// share; nothing is sampled.
    ///
    /// # Errors
    /// [`crate::StoreError::Damaged`], [`crate::StoreError::NoSuchDb`].
    pub fn memory_usage(&self, db: DbId, key: &[u8]) -> Result<Option<u64>> {
        let Some(entry) = self.peek_entry(db, key)? else { return Ok(None) };
        let mut bytes = entry.capacity(&self.arena)? as u64 + TABLE_SHARE_BYTES;
        if entry.has(EXPIRES) {
            bytes += TABLE_SHARE_BYTES;
        }
        if let Some(key) = entry.key_object(&self.arena)? {
            bytes += Arena::class_size(key.size as usize) as u64;
        }
        if let Some(value) = entry.value_object(&self.arena)? {
            bytes += self.arena.usable_size(value.object)? as u64;
        }
        if entry.form()? == Form::TableHash {
            let table = entry.table(&self.arena)?;
            bytes = bytes.saturating_add(table.own_bytes()).saturating_add(table.item_bytes);
        }
        Ok(Some(bytes))
    }
}
