//! Times to live: setting, reading, and the active search for keys whose time has come.
//!
//! Reads and writes delete an expired key that they meet (`store`); here is the search for those that none of them meets. Parts of
//! values whose time has come are searched for in the same step (`subkey_expiry`).

use quire_arena::Handle;

use crate::db::DbId;
use crate::error::{Result, StoreError};
use crate::events::KeyFate;
use crate::keyspace::Keyspace;
use crate::keyspace::entries::{self, EntryLayout};
use crate::keyspace::entry::{EXPIRES, Entry};
use crate::keyspace::root::DATABASES;
use crate::keyspace::{subkey_expiry, subkey_index};

/// Of so many keys that are looked at, one subkey is: to take it out of its value takes longer.
const SUBKEYS_SHARE: usize = 2;

/// What one step of the search did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpireSummary {
    /// Keys and buckets looked at.
    pub examined: usize,
    /// Keys deleted, and subkeys.
    pub expired: usize,
    /// So many keys had expired that another step is worth while at once.
    pub more: bool,
}

impl Keyspace {
    /// The entry of a key, to be looked at. Deletes it if its time has come, unless such keys are held.
    #[inline]
    pub(crate) fn look_up(&mut self, db: DbId, key: &[u8]) -> Result<Option<Entry>> {
        match self.find_any(db, key, self.key_hash(key))? {
            Some(entry) if self.has_expired(&entry)? => {
                if !self.clock.holding_expired {
                    self.expire_entry(db, key, entry)?;
                }
                Ok(None)
            }
            found => Ok(found),
        }
    }

    /// When a key expires, in unix milliseconds: `None` if there is no such key, `Some(None)` if it lives for ever.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub fn expiry(&mut self, db: DbId, key: &[u8]) -> Result<Option<Option<i64>>> {
        let found = self.look_up(db, key)?;
        found.map(|entry| entry.expiry(&self.heap.arena)).transpose()
    }

    /// Sets or removes a key's time to live; one that is past deletes the key. False if there is no such key. Removing
    /// none is no change.
    ///
    /// # Errors
    /// [`StoreError::OutOfMemory`], [`StoreError::Damaged`].
    pub fn set_expiry(&mut self, db: DbId, key: &[u8], at_ms: Option<i64>) -> Result<bool> {
        let Some(entry) = self.find_to_write(db, key, self.key_hash(key))? else { return Ok(false) };
        if at_ms.is_some_and(|at_ms| at_ms <= self.now_ms()) {
            self.delete_entry(db, entry)?;
            self.changed(db, key, false, 1);
            return Ok(true);
        }
        if at_ms.is_none() && !entry.has(EXPIRES) {
            return Ok(true);
        }
        let value_len = entry.header.value_len as usize;
        let layout = EntryLayout { encoding: entry.encoding()?, value_len, keep: value_len, expiry: at_ms, reserve: 0 };
        entries::reshape(self, db, entry, layout)?;
        self.changed(db, key, true, 1);
        Ok(true)
    }

    /// Whether any value has subkeys that expire.
    pub fn has_expiring_subkeys(&self) -> bool {
        subkey_index::is_in_use(self)
    }

    /// About how many milliseconds the keys with a time to live have left.
    pub fn avg_ttl(&self, db: DbId) -> u64 {
        self.searches.expiry.avg_ttl_ms.get(db.0 as usize).copied().unwrap_or(0)
    }

    /// Looks at about `budget` expiring keys, database after database, and deletes those whose time has come, unless they are held; and
    /// does the same with fewer subkeys.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub fn expire_step(&mut self, budget: usize) -> Result<ExpireSummary> {
        let mut summary = ExpireSummary::default();
        if self.clock.holding_expired {
            return Ok(summary);
        }
        let busy = self.dbs.iter().filter(|db| db.expires.count > 0).count();
        let keys = budget.checked_div(busy).map_or(Ok(()), |share| self.expire_keys(budget, share, &mut summary));
        // A damaged key holds up no search of subkeys, and the other way round.
        let subkeys = subkey_expiry::step(self, budget / SUBKEYS_SHARE);
        keys?;
        let subkeys = subkeys?;
        summary.examined += subkeys.examined;
        summary.expired += subkeys.expired;
        // Of either kind: many keys that live on must not hold up fields whose time has come.
        let kinds = [
            (summary.examined - subkeys.examined, summary.expired - subkeys.expired),
            (subkeys.examined, subkeys.expired),
        ];
        summary.more = kinds.into_iter().any(|(examined, expired)| expired * 10 > examined);
        Ok(summary)
    }

    /// Looks at about `budget` expiring keys, and at `share` of them in a database.
    fn expire_keys(&mut self, budget: usize, share: usize, summary: &mut ExpireSummary) -> Result<()> {
        for _ in 0..DATABASES {
            let index = self.searches.expiry.db;
            self.searches.expiry.db = (index + 1) % DATABASES;
            if self.dbs[index].expires.count > 0 {
                self.expire_in(index, share.max(1), summary)?;
            }
            if summary.examined >= budget {
                break;
            }
        }
        Ok(())
    }

    /// Searches one database, from where the last step stopped.
    fn expire_in(&mut self, index: usize, budget: usize, summary: &mut ExpireSummary) -> Result<()> {
        let end = summary.examined.saturating_add(budget);
        let mut batch: Vec<Handle> = Vec::new();
        let (mut left_ms, mut alive) = (0u64, 0);
        while summary.examined < end && self.dbs[index].expires.count > 0 {
            batch.clear();
            let cursor = self.searches.expiry.cursors[index];
            let next = self.dbs[index].expires.scan(&self.heap.arena, cursor, |item| {
                batch.push(item);
                Ok(())
            })?;
            self.searches.expiry.cursors[index] = next;
            summary.examined += 1 + batch.len();
            let mut failed = None;
            for &item in &batch {
                // A damaged key must not hold up those behind it, each time that the search comes by.
                match self.expire_item(index, item) {
                    Ok(0) => summary.expired += 1,
                    Ok(left) => {
                        left_ms = left_ms.saturating_add(left);
                        alive += 1;
                    }
                    Err(error) => _ = failed.get_or_insert(error),
                }
            }
            if let Some(error) = failed {
                return Err(error);
            }
            if next == 0 {
                break;
            }
        }
        self.searches.expiry.sample(index, left_ms, alive);
        Ok(())
    }

    /// Deletes a key if its time has come; returns how many milliseconds it has left.
    fn expire_item(&mut self, index: usize, item: Handle) -> Result<u64> {
        let entry = Entry::read(&self.heap.arena, item)?;
        let at_ms = entry.expiry(&self.heap.arena)?.ok_or_else(|| StoreError::damaged("an index of times to live"))?;
        let left_ms = at_ms.saturating_sub(self.now_ms());
        if left_ms <= 0 {
            self.expire_found(DbId(index as u8), entry)?;
        }
        Ok(left_ms.max(0) as u64)
    }

    fn expire_found(&mut self, db: DbId, entry: Entry) -> Result<()> {
        let told = self.events.heard() || self.effects.notes_expired();
        let key = if told { Some(entry.key(&self.heap.arena)?.to_vec()) } else { None };
        self.delete_entry(db, entry)?;
        self.counters.expired += 1;
        if let Some(key) = key {
            self.effects.note_expired(db, &key);
            self.events.emit(db, &key, KeyFate::Expired);
        }
        Ok(())
    }
}

/// Progress of the active search through the expiring keys.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Expiration {
    /// The database to go on with.
    pub(crate) db: usize,
    /// Cursor in each database's index.
    pub(crate) cursors: [u64; DATABASES],
    /// Running average of the time that keys have left.
    pub(crate) avg_ttl_ms: [u64; DATABASES],
}

impl Expiration {
    /// Takes a sample of times left into the average, weighing it as Redis does.
    pub(crate) fn sample(&mut self, db: usize, total_ms: u64, keys: u64) {
        let Some(now_ms) = total_ms.checked_div(keys) else { return };
        let average_ms = &mut self.avg_ttl_ms[db];
        *average_ms = if *average_ms == 0 { now_ms } else { *average_ms / 50 * 49 + now_ms / 50 };
    }
}

#[cfg(test)]
mod tests {
    use crate::table::Hash;
    use crate::{DbId, ExpiryChange, Keyspace, Store, StoreConfig, StoreError, string};

    #[test]
    fn a_damaged_key_holds_up_none_behind_it() {
        let mut store = Store::create(StoreConfig::default()).unwrap();
        store.set_now_ms(1);
        // They come first in each bucket, and don't expire.
        for number in 0..4 {
            let key = format!("lasting {number}").into_bytes();
            string::set(&mut store, DbId(0), &key, b"value", ExpiryChange::Clear).unwrap();
            let entry = store.peek_entry(DbId(0), &key).unwrap().unwrap();
            let Keyspace { heap, dbs, .. } = &mut *store;
            dbs[0].expires.insert(&mut heap.arena, Hash::without_tag(number), entry.handle).unwrap();
        }
        for number in 0..20 {
            let key = format!("mortal {number}").into_bytes();
            string::set(&mut store, DbId(0), &key, b"value", ExpiryChange::At(1000)).unwrap();
        }
        store.set_now_ms(1000);
        for _ in 0..20 {
            assert!(matches!(store.expire_step(100), Err(StoreError::Damaged { .. })));
        }
        assert_eq!((store.len(DbId(0)), store.expires_len(DbId(0))), (4, 4));
    }
}
