//! A whole store, written as an RDB file.

use std::io::{self, Write};

use quire_rdb::{KeyFacts, TTL_VERSION, WRITTEN_VERSION, Writer};
use quire_store::{DbId, Store, StoreError, ValueType};

use super::encode::{encode_value, kind_of};
use crate::library_store;

/// Keys that are looked up before their values are written.
const KEYS_AT_ONCE: usize = 256;

/// Why a store could not be exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The file can't be written.
    #[error("cannot be written: {0}")]
    Write(#[from] io::Error),
    /// The data can't be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Fewer or more keys were met than there are.
    #[error("{met} keys were found where the image says that there are {wanted}: it is damaged")]
    Count {
        /// How many were met.
        met: u64,
        /// How many there are.
        wanted: u64,
    },
}

/// What was exported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExportSummary {
    /// Keys that were written.
    pub keys: u64,
    /// Keys whose time had come, which were left out.
    pub expired: u64,
    /// Libraries of functions that were written.
    pub libraries: u64,
}

/// Writes all data to `out`. `on_progress` is told how many keys are done, of how many.
///
/// # Errors
/// The data can't be read, or the sink fails.
pub fn export<W: Write>(
    store: &mut Store,
    out: W,
    mut on_progress: impl FnMut(u64, u64),
) -> Result<(ExportSummary, W), ExportError> {
    // Nothing may change beneath the walk, nor is it one that uses keys.
    store.set_holding_expired(true);
    store.set_touching(false);
    let created_s = (store.now_ms() / 1000).to_string();
    // Only servers that know what the data has can load it: others refuse the file by its version.
    let (version, server) =
        if store.has_expiring_subkeys() { (TTL_VERSION, "7.4.0") } else { (WRITTEN_VERSION, "7.0.15") };
    let facts = [("redis-ver", server), ("redis-bits", "64"), ("ctime", &created_s)];
    let mut writer = Writer::of_version(version, out, &facts);
    let mut summary = ExportSummary::default();
    for text in library_store::read(store)? {
        writer.function(&text);
        summary.libraries += 1;
    }
    let databases: Vec<DbId> = (0..store.databases()).map(DbId).filter(|db| !store.is_empty(*db)).collect();
    let total: u64 = databases.iter().map(|db| store.len(*db)).sum();
    let mut done = 0;
    for db in databases {
        let (keys, expiring) = (store.len(db), store.expires_len(db));
        writer.database(u64::from(db.0), keys, expiring);
        let before = summary.keys;
        let (mut cursor, mut some) = (0, Vec::new());
        loop {
            cursor = store.scan(db, cursor, KEYS_AT_ONCE, &mut |key, kind| some.push((key.to_vec(), kind)))?;
            for (key, kind) in some.drain(..) {
                if export_key(store, db, &key, kind, &mut writer)? {
                    summary.keys += 1;
                }
            }
            writer.check()?;
            on_progress(done + summary.keys - before, total);
            if cursor == 0 {
                break;
            }
        }
        let written = summary.keys - before;
        if written > keys {
            return Err(ExportError::Count { met: written, wanted: keys });
        }
        summary.expired += keys - written;
        done += keys;
    }
    on_progress(total, total);
    Ok((summary, writer.finish()?))
}

/// Writes a key; false if there is nothing of it to be written, since the time of all its fields has come.
fn export_key<W: Write>(
    store: &mut Store,
    db: DbId,
    key: &[u8],
    kind: ValueType,
    writer: &mut Writer<W>,
) -> Result<bool, ExportError> {
    let Some(form) = kind_of(store, db, key, kind)? else { return Ok(false) };
    let expire_ms = store.expiry(db, key)?.flatten();
    let facts = KeyFacts { expire_ms, ..KeyFacts::default() };
    encode_value(store, db, key, kind, writer.key(key, facts, form))?;
    Ok(true)
}
