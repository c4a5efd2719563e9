//! Walking through keys: SCAN, KEYS, RANDOMKEY.

use crate::db::DbId;
use crate::entry::{Entry, Kind};
use crate::error::Result;
use crate::sample::random_item;
use crate::store::Store;

/// Buckets per wanted key that a scan looks at before it returns, however few keys it met.
const BUCKETS_PER_COUNT: usize = 10;
/// Expired keys that a random pick may hit before it gives up.
const RANDOM_TRIES: usize = 100;

impl Store {
    /// Calls `f` with about `count` keys and returns the cursor to go on with, 0 at the end.
    ///
    /// A key that exists during a whole scan is passed at least once; one that comes or goes may be; some twice.
    ///
    /// # Errors
    /// [`crate::StoreError::Damaged`], [`crate::StoreError::NoSuchDb`].
    pub fn scan(&self, db: DbId, cursor: u64, count: usize, f: &mut dyn FnMut(&[u8], Kind)) -> Result<u64> {
        let table = &self.dbs[self.db_index(db)?].keys;
        let mut cursor = cursor;
        let mut seen = 0;
        for _ in 0..count.max(1).saturating_mul(BUCKETS_PER_COUNT) {
            cursor = table.scan(&self.arena, cursor, |item| {
                seen += 1;
                self.show(item, f)
            })?;
            if cursor == 0 || seen >= count {
                break;
            }
        }
        Ok(cursor)
    }

    /// Calls `f` with every key.
    ///
    /// # Errors
    /// As [`Store::scan`].
    pub fn for_each_key(&self, db: DbId, f: &mut dyn FnMut(&[u8], Kind)) -> Result<()> {
        self.dbs[self.db_index(db)?].keys.for_each(&self.arena, |item| self.show(item, f))
    }

    fn show(&self, item: quire_arena::Handle, f: &mut dyn FnMut(&[u8], Kind)) -> Result<()> {
        let entry = Entry::read(&self.arena, item)?;
        if !self.has_expired(&entry)? {
            f(entry.key(&self.arena)?, entry.form()?.kind());
        }
        Ok(())
    }

    /// Some key; every one is equally likely.
    ///
    /// # Errors
    /// As [`Store::scan`].
    pub fn random_key(&mut self, db: DbId) -> Result<Option<Vec<u8>>> {
        let index = self.db_index(db)?;
        for attempt in 0..RANDOM_TRIES {
            let table = self.dbs[index].keys;
            let Some(item) = random_item(&self.arena, &table, &mut self.random)? else { return Ok(None) };
            let entry = Entry::read(&self.arena, item)?;
            let key = entry.key(&self.arena)?.to_vec();
            let expired = self.has_expired(&entry)?;
            if !expired || attempt + 1 == RANDOM_TRIES {
                return Ok((!expired).then_some(key));
            }
            self.find(db, &key, self.hash(&key))?;
        }
        Ok(None)
    }
}
