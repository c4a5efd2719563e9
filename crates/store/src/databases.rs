//! Whole databases: size, flushing, swapping.

use crate::db::DbId;
use crate::error::Result;
use crate::reclaim::Items;
use crate::store::Store;

impl Store {
    /// Keys in a database, expired ones that nobody has met yet included.
    pub fn len(&self, db: DbId) -> u64 {
        self.dbs.get(db.0 as usize).map_or(0, |roots| roots.keys.count)
    }

    /// Whether a database has no keys.
    pub fn is_empty(&self, db: DbId) -> bool {
        self.len(db) == 0
    }

    /// Keys that have a time to live.
    pub fn expires_len(&self, db: DbId) -> u64 {
        self.dbs.get(db.0 as usize).map_or(0, |roots| roots.expires.count)
    }

    /// Empties a database at once; its memory is freed later, by [`Store::reclaim_step`]. Returns how many keys went.
    ///
    /// # Errors
    /// [`crate::StoreError::Damaged`], [`crate::StoreError::NoSuchDb`].
    pub fn flush(&mut self, db: DbId) -> Result<u64> {
        let index = self.db_index(db)?;
        let keys = self.dbs[index].keys.count;
        self.touch_existing(db)?;
        let roots = std::mem::take(&mut self.dbs[index]);
        self.sync_db(index)?;
        self.expiry.cursors[index] = 0;
        self.expiry.avg_ttl_ms[index] = 0;
        let retired = self
            .reclaim
            .retire(&mut self.arena, roots.expires, Items::Borrowed)
            .and_then(|()| self.reclaim.retire(&mut self.arena, roots.keys, Items::Entries));
        self.sync_reclaim()?;
        self.counters.changes += keys;
        retired.map(|()| keys)
    }

    /// Empties all databases. Returns how many keys went.
    ///
    /// # Errors
    /// As [`Store::flush`].
    pub fn flush_all(&mut self) -> Result<u64> {
        let mut keys = 0;
        for db in 0..self.databases() {
            keys += self.flush(DbId(db))?;
        }
        Ok(keys)
    }

    /// Exchanges two databases.
    ///
    /// # Errors
    /// As [`Store::flush`].
    pub fn swap(&mut self, a: DbId, b: DbId) -> Result<()> {
        let (index_a, index_b) = (self.db_index(a)?, self.db_index(b)?);
        if index_a == index_b {
            return Ok(());
        }
        // A watched key changes if it is there before or after.
        self.touch_existing(a)?;
        self.touch_existing(b)?;
        self.dbs.swap(index_a, index_b);
        self.expiry.cursors.swap(index_a, index_b);
        self.expiry.avg_ttl_ms.swap(index_a, index_b);
        self.sync_db(index_a)?;
        self.sync_db(index_b)?;
        self.touch_existing(a)?;
        self.touch_existing(b)?;
        self.counters.changes += 1;
        Ok(())
    }

    /// Tells the watchers of a database's keys that exist.
    fn touch_existing(&mut self, db: DbId) -> Result<()> {
        if self.watchers.is_empty() {
            return Ok(());
        }
        for key in self.watchers.keys_of(db) {
            if self.find_any(db, &key, self.hash(&key))?.is_some() {
                self.watchers.touch(db, &key, true);
            }
        }
        Ok(())
    }
}
