//! LMDB as a store: a copy-on-write B+-tree that maps its file, which many programs use where data exceeds memory.
//!
//! Relies on a writable map without syncs, LMDB's fastest mode and as durable as the others here between syncs; and on
//! reading nothing ahead, which it advises for databases larger than memory. Every write is a transaction of its own, of
//! which there is one at a time.

use std::path::Path;

use anyhow::Context;
use lmdb::{Cursor, Database, DatabaseFlags, Environment, EnvironmentFlags, Error, Transaction, WriteFlags};

use super::node::VALUE_BYTES;
use super::store::KvStore;

/// An open database.
#[derive(Debug)]
pub struct Lmdb {
    environment: Environment,
    database: Database,
}

impl Lmdb {
    /// A new database in the directory `dir`, of at most `most_bytes`.
    ///
    /// # Errors
    /// When LMDB refuses.
    pub fn create(dir: &Path, most_bytes: u64) -> anyhow::Result<Self> {
        let flags = EnvironmentFlags::WRITE_MAP
            | EnvironmentFlags::NO_SYNC
            | EnvironmentFlags::NO_META_SYNC
            | EnvironmentFlags::NO_READAHEAD;
        let mut builder = Environment::new();
        builder.set_flags(flags).set_map_size(most_bytes as usize);
        let environment = builder.open(dir).with_context(|| format!("LMDB in {}", dir.display()))?;
        let database = environment.create_db(None, DatabaseFlags::empty()).context("LMDB's database")?;
        Ok(Self { environment, database })
    }
}

/// A new database that is being filled, in one transaction.
pub struct LmdbFilling<'a> {
    transaction: lmdb::RwTransaction<'a>,
    database: Database,
}

impl LmdbFilling<'_> {
    /// Adds an entry, whose key comes after all others.
    ///
    /// # Errors
    /// When LMDB refuses.
    pub fn append(&mut self, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        Ok(self.transaction.put(self.database, &key, &value, WriteFlags::APPEND)?)
    }

    /// Commits.
    ///
    /// # Errors
    /// When LMDB refuses.
    pub fn finish(self) -> anyhow::Result<()> {
        Ok(self.transaction.commit()?)
    }
}

impl Lmdb {
    /// Begins to fill the database with entries in the order of their keys.
    ///
    /// # Errors
    /// When LMDB refuses.
    pub fn filling(&self) -> anyhow::Result<LmdbFilling<'_>> {
        Ok(LmdbFilling { transaction: self.environment.begin_rw_txn()?, database: self.database })
    }
}

impl KvStore for Lmdb {
    fn insert(&self, key: u64, value: &[u8]) -> anyhow::Result<()> {
        let mut transaction = self.environment.begin_rw_txn()?;
        transaction.put(self.database, &key.to_be_bytes(), &value, WriteFlags::empty())?;
        Ok(transaction.commit()?)
    }

    fn read(&self, key: u64, into: &mut [u8]) -> anyhow::Result<bool> {
        let transaction = self.environment.begin_ro_txn()?;
        match transaction.get(self.database, &key.to_be_bytes()) {
            Ok(value) => {
                into[..VALUE_BYTES].copy_from_slice(value);
                Ok(true)
            }
            Err(Error::NotFound) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn scan(&self, from: u64, most: usize, each: &mut dyn FnMut(u64, &[u8])) -> anyhow::Result<usize> {
        let transaction = self.environment.begin_ro_txn()?;
        let mut cursor = transaction.open_ro_cursor(self.database)?;
        let mut seen = 0;
        for entry in cursor.iter_from(from.to_be_bytes()).take(most) {
            let (key, value) = entry?;
            each(u64::from_be_bytes(key.try_into().context("a key of eight bytes")?), value);
            seen += 1;
        }
        Ok(seen)
    }

    fn bytes(&self) -> u64 {
        let last_page = self.environment.info().map_or(0, |info| info.last_pgno());
        (last_page as u64 + 1) * crate::fastmap::testbed::PAGE_BYTES as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_in_the_order_of_their_keys() {
        let dir = tempfile::tempdir().unwrap();
        let store = Lmdb::create(dir.path(), 16 << 20).unwrap();
        let value = |key: u8| vec![key; VALUE_BYTES];
        for key in [300, 7, 70_000, 5] {
            store.insert(key, &value(key as u8)).unwrap();
        }
        let mut bytes = vec![0; VALUE_BYTES];
        assert!(store.read(7, &mut bytes).unwrap() && bytes == value(7));
        assert!(!store.read(8, &mut bytes).unwrap());
        let mut keys = Vec::new();
        store.scan(6, 2, &mut |key, _| keys.push(key)).unwrap();
        assert_eq!(keys, [7, 300]);
        assert!(store.bytes() > 4096);
    }
}
