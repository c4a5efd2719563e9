//! The stores of others: RocksDB and LMDB, filled with the records of the tree, and opened in their ways.
//!
//! Relies on each trial of RocksDB having a checkpoint of its own, which shares the tables; LMDB's updates use the places of
//! earlier ones again, so its trials share one file. Neither syncs between its writes, as the pool doesn't.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use quire_peers::rocksdb::{BlockCompression, Rocksdb, RocksdbDatabase, RocksdbOptions};
use quire_rng::SplitMix64;

use super::candidate::{Candidate, OpenStore, StoreSpec, StoreWorkload, TierCodec};
use super::counters;
use super::values::ValueKind;
use crate::fastmap::kv::VALUE_BYTES;
use crate::fastmap::kv::lmdb::Lmdb;
use crate::fastmap::kv::store::KvStore;
use crate::fastmap::kv::ycsb::{key_of, write_value};
use crate::fastmap::pages::Counters;

const SEED: u64 = 31;
/// Records of a table of RocksDB: about 64 MiB, as its own tables have.
const TABLE_RECORDS: usize = 64 << 10;
/// RocksDB gathers writes in two buffers of this part of its memory, and of so many bytes at least.
const BUFFER_PART: u64 = 48;
const LEAST_BUFFER_BYTES: u64 = 1 << 20;
/// LMDB's map is so many times as large as what is in it: pages of earlier versions are free only later.
const LMDB_ROOM: u64 = 3;

fn options(candidate: Candidate, cache_bytes: u64, compression: TierCodec) -> RocksdbOptions {
    let is_direct = candidate == Candidate::RocksdbDirect;
    // Compressed blocks take time with each read of the cache that has them uncompressed, and gain nothing where no cache has them so.
    let compression = match compression {
        TierCodec::Lz4 if !is_direct => BlockCompression::Lz4,
        TierCodec::Zstd if !is_direct => BlockCompression::Zstd,
        _ => BlockCompression::None,
    };
    RocksdbOptions {
        cache_bytes: cache_bytes as usize,
        write_buffer_bytes: (cache_bytes / BUFFER_PART).max(LEAST_BUFFER_BYTES) as usize,
        is_direct,
        compression,
    }
}

/// The records of a store, each with its value, in the order of their keys.
fn each_record(
    records: u64,
    kind: ValueKind,
    mut each: impl FnMut(usize, &[u8], &[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut keys: Vec<u64> = (0..records).map(key_of).collect();
    keys.sort_unstable();
    let (values, mut rng) = (kind.values(SEED), SplitMix64::new(SEED));
    let mut bytes = [0; VALUE_BYTES];
    for (index, key) in keys.into_iter().enumerate() {
        write_value(key, &values, &mut rng, &mut bytes);
        each(index, &key.to_be_bytes(), &bytes)?;
    }
    Ok(())
}

/// A store of another program's below a directory, with all records.
#[derive(Debug)]
pub struct PeerStore {
    candidate: Candidate,
    dir: PathBuf,
    compression: TierCodec,
}

impl PeerStore {
    /// Fills a new store with `records` records.
    ///
    /// # Errors
    /// The peer isn't here, or fails.
    pub fn fill(
        parent: &Path,
        candidate: Candidate,
        (records, kind): (u64, ValueKind),
        compression: TierCodec,
    ) -> anyhow::Result<Self> {
        let dir = parent.join(candidate.name());
        let store = Self { candidate, dir, compression };
        if candidate == Candidate::Lmdb {
            std::fs::create_dir(&store.dir).with_context(|| format!("making {}", store.dir.display()))?;
            let lmdb = Lmdb::create(&store.dir, lmdb_bytes(records))?;
            let mut filling = lmdb.filling()?;
            each_record(records, kind, |_, key, value| filling.append(key, value))?;
            filling.finish()?;
        } else {
            store.fill_rocksdb(parent, records, kind)?;
        }
        store.drop_cache(&store.dir)?;
        Ok(store)
    }

    fn fill_rocksdb(&self, parent: &Path, records: u64, kind: ValueKind) -> anyhow::Result<()> {
        let rocksdb = Rocksdb::load()?;
        let options = options(self.candidate, 32 << 20, self.compression);
        let database = rocksdb.open(&self.dir, &options)?;
        let (mut paths, mut table) = (Vec::new(), None);
        each_record(records, kind, |index, key, value| {
            if index % TABLE_RECORDS == 0 {
                let path = parent.join(format!("{}-{}.sst", self.candidate.name(), paths.len()));
                let full = table.replace(rocksdb.write_table(&path, &options)?);
                full.map(quire_peers::rocksdb::TableWriter::finish).transpose()?;
                paths.push(path);
            }
            Ok(table.as_mut().context("a table was begun")?.put(key, value)?)
        })?;
        table.map(quire_peers::rocksdb::TableWriter::finish).transpose()?;
        let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        Ok(database.ingest(&paths)?)
    }

    /// The store for one trial, cached by no layer. Dropping it removes what is the trial's own.
    ///
    /// # Errors
    /// The peer fails.
    pub fn for_trial(&self) -> anyhow::Result<TrialDir> {
        if self.candidate == Candidate::Lmdb {
            self.drop_cache(&self.dir)?;
            return Ok(TrialDir { path: self.dir.clone(), is_own: false });
        }
        let own = TrialDir { path: self.dir.with_extension("trial"), is_own: true };
        Rocksdb::load()?
            .open(&self.dir, &options(self.candidate, 32 << 20, self.compression))?
            .checkpoint(&own.path)?;
        self.drop_cache(&own.path)?;
        Ok(own)
    }

    /// Writes out what is dirty of the files in `dir` and has the system forget their cached pages.
    fn drop_cache(&self, dir: &Path) -> anyhow::Result<()> {
        for entry in std::fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
            let path = entry?.path();
            let file = std::fs::File::open(&path).with_context(|| format!("opening {}", path.display()))?;
            file.sync_all().with_context(|| format!("syncing {}", path.display()))?;
            quire_sys::file::drop_cache(&file);
        }
        Ok(())
    }
}

impl Drop for PeerStore {
    fn drop(&mut self) {
        // The run's directory is removed with all that is left in it.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// The directory of a trial's store.
#[derive(Debug)]
pub struct TrialDir {
    /// The directory.
    pub path: PathBuf,
    is_own: bool,
}

impl Drop for TrialDir {
    fn drop(&mut self) {
        if self.is_own {
            // As for the store.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

fn lmdb_bytes(records: u64) -> u64 {
    (records * 1024 * LMDB_ROOM).max(64 << 20)
}

/// Opens the store of a peer in the directory `dir`, and does `work` on it.
///
/// # Errors
/// When it can't be opened, or the work's own.
pub fn with_store<W: StoreWorkload>(spec: &StoreSpec, dir: &Path, work: W) -> anyhow::Result<W::Out> {
    let (counters, gauges) = (counters::disk, Counters::new);
    if spec.candidate == Candidate::Lmdb {
        let lmdb = Lmdb::create(dir, lmdb_bytes(spec.records))?;
        return work.run_on(&OpenStore { store: &lmdb, counters: &counters, gauges: &gauges });
    }
    let options = options(spec.candidate, spec.pool_bytes, spec.compression);
    let store = RocksdbStore(Rocksdb::load()?.open(dir, &options)?);
    work.run_on(&OpenStore { store: &store, counters: &counters, gauges: &gauges })
}

/// RocksDB under the loads.
struct RocksdbStore(RocksdbDatabase);

impl KvStore for RocksdbStore {
    fn insert(&self, key: u64, value: &[u8]) -> anyhow::Result<()> {
        Ok(self.0.put(&key.to_be_bytes(), value)?)
    }

    fn read(&self, key: u64, into: &mut [u8]) -> anyhow::Result<bool> {
        let found = self.0.get(&key.to_be_bytes(), |value| {
            let is_whole = value.len() == VALUE_BYTES;
            if is_whole {
                into[..VALUE_BYTES].copy_from_slice(value);
            }
            is_whole
        })?;
        match found {
            Some(false) => bail!("RocksDB's value of key {key:#x} has another length"),
            found => Ok(found.is_some()),
        }
    }

    fn scan(&self, _: u64, _: usize, _: &mut dyn FnMut(u64, &[u8])) -> anyhow::Result<usize> {
        bail!("no load of this experiment scans RocksDB")
    }

    fn bytes(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dbio::trial_spec::{TrialSpec, TrialWork};
    use crate::fastmap::testbed::{DeviceKind, Testbed};

    fn trial(candidate: Candidate) -> anyhow::Result<()> {
        let parent = tempfile::tempdir_in(".")?;
        let store = PeerStore::fill(parent.path(), candidate, (3000, ValueKind::Half), TierCodec::Lz4)?;
        for _ in 0..2 {
            let own = store.for_trial()?;
            let spec = StoreSpec {
                candidate,
                pool_bytes: 4 << 20,
                layout: None,
                records: 3000,
                values: ValueKind::Half,
                compression: TierCodec::Lz4,
                reads_all: true,
                warm_ops: 1000,
            };
            let spec = TrialSpec {
                testbed: Testbed { kind: DeviceKind::Disk, path: own.path.clone(), pages: 1 },
                limit_bytes: 64 << 20,
                clients: vec![2],
                run_ms: 20,
                seed: 5,
                throttle: None,
                work: TrialWork::Store(spec),
            };
            let phases = spec.carry_out()?;
            assert!(phases.len() == 2 && phases.iter().all(|stats| stats.ops > 0), "{phases:?}");
        }
        Ok(())
    }

    #[test]
    fn lmdb_has_all_records_under_both_loads() {
        trial(Candidate::Lmdb).unwrap();
    }

    #[test]
    fn rocksdb_has_all_records_under_both_loads_or_its_package_is_named() {
        for candidate in Candidate::ROCKSDB {
            if let Err(error) = trial(candidate) {
                let text = format!("{error:#}");
                assert!(text.contains("Debian's package librocksdb"), "{text}");
            }
        }
    }
}
