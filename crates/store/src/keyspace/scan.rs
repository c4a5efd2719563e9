//! Walking through keys: SCAN, KEYS, RANDOMKEY, digests of all.

use crate::db::DbId;
use crate::encoding::Kind;
use crate::error::Result;
use crate::keyspace::Keyspace;
use crate::keyspace::digest::Digest;
use crate::keyspace::entry::{EXPIRES, Entry};
use crate::table::sample::random_item;

/// Buckets per wanted key that a scan looks at before it returns, however few keys it met.
const BUCKETS_PER_COUNT: usize = 10;
/// Expired keys that a random pick may hit before it gives up.
const RANDOM_TRIES: usize = 100;

impl Keyspace {
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
            cursor = table.scan(&self.heap.arena, cursor, |item| {
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
    /// As [`Keyspace::scan`].
    pub fn for_each_key(&self, db: DbId, f: &mut dyn FnMut(&[u8], Kind)) -> Result<()> {
        self.dbs[self.db_index(db)?].keys.for_each(&self.heap.arena, |item| self.show(item, f))
    }

    fn show(&self, item: quire_arena::Handle, f: &mut dyn FnMut(&[u8], Kind)) -> Result<()> {
        let entry = Entry::read(&self.heap.arena, item)?;
        if !self.has_expired(&entry)? {
            f(entry.key(&self.heap.arena)?, entry.encoding()?.kind());
        }
        Ok(())
    }

    /// Some key; every one is equally likely.
    ///
    /// # Errors
    /// As [`Keyspace::scan`].
    pub fn random_key(&mut self, db: DbId) -> Result<Option<Vec<u8>>> {
        let index = self.db_index(db)?;
        for attempt in 0..RANDOM_TRIES {
            let table = self.dbs[index].keys;
            let Some(item) = random_item(&self.heap.arena, &table, &mut self.rng)? else { return Ok(None) };
            let entry = Entry::read(&self.heap.arena, item)?;
            let key = entry.key(&self.heap.arena)?.to_vec();
            let expired = self.has_expired(&entry)?;
            if !expired || attempt + 1 == RANDOM_TRIES {
                return Ok((!expired).then_some(key));
            }
            self.look_up(db, &key)?;
        }
        Ok(None)
    }

    /// The digest of all databases. Walks through all data.
    ///
    /// # Errors
    /// [`crate::StoreError::Damaged`].
    pub fn digest(&self) -> Result<[u8; 20]> {
        let mut all = Digest::default();
        for (index, roots) in self.dbs.iter().enumerate() {
            if roots.keys.count == 0 {
                continue;
            }
            all.mix(&(index as u32).to_be_bytes());
            roots.keys.for_each(&self.heap.arena, |item| {
                let entry = Entry::read(&self.heap.arena, item)?;
                let mut digest = Digest::default();
                digest.mix(entry.key(&self.heap.arena)?);
                self.mix_value(&mut digest, &entry)?;
                all.toggle(&digest.0);
                Ok(())
            })?;
        }
        Ok(all.0)
    }

    /// The digest of one key's value and of whether it expires.
    ///
    /// # Errors
    /// [`crate::StoreError::Damaged`], [`crate::StoreError::NoSuchDb`].
    pub fn digest_value(&self, db: DbId, key: &[u8]) -> Result<Option<[u8; 20]>> {
        let Some(entry) = self.peek_entry(db, key)? else { return Ok(None) };
        // A digest is asked for to find differences; damage is one.
        (self.ops(&entry)?.check)(self, &entry)?;
        let mut digest = Digest::default();
        self.mix_value(&mut digest, &entry)?;
        Ok(Some(digest.0))
    }

    fn mix_value(&self, digest: &mut Digest, entry: &Entry) -> Result<()> {
        (self.ops(entry)?.digest)(&self.heap.arena, entry, digest)?;
        if entry.has(EXPIRES) {
            digest.toggle(b"!!expire!!");
        }
        Ok(())
    }
}
