//! How much is done: memory, data, sizes of the pool, clients, times, rounds.
//!
//! Relies on the arguments only; what they leave out depends on whether the run is a small one.

use serde_json::{Map, Value, json};

use super::DbioArgs;
use super::candidate::{Candidate, TierCodec};
use super::full_read;
use super::sqlite_spec::SqliteCandidate;
use super::values::ValueKind;
use crate::fastmap::kv::VALUE_BYTES;
use crate::fastmap::testbed::PAGE_BYTES;
use crate::wcache::tpcc::database_size::DatabaseSize;

/// Parts of the memory that sizes of the pool are told in.
pub const POOL_PARTS: u64 = 12;
/// Data that figures with goals are of, as a multiple of the memory: a little less than it.
const GOAL_DATA: f64 = 0.83;
/// Data of which no second tier is needed is at most this.
const SMALL_DATA: f64 = 0.5;
/// Bytes of pages for each record: leaves are full.
const RECORD_BYTES: u64 = PAGE_BYTES as u64 / (PAGE_BYTES / VALUE_BYTES) as u64;
/// Bytes of a warehouse of TPC-C in SQLite, and of one of the small databases that fit small memories.
const WAREHOUSE_BYTES: u64 = 92 << 20;
const SMALL_WAREHOUSE_BYTES: u64 = WAREHOUSE_BYTES / 20;

/// The size of a run.
#[derive(Clone, Debug)]
pub struct DbioScale {
    /// Memory of each trial in MiB.
    pub memory_mib: u64,
    /// Data as multiples of the memory.
    pub data: Vec<f64>,
    /// Sizes of the pool in [`POOL_PARTS`] of the memory.
    pub pools: Vec<u64>,
    /// Numbers of clients.
    pub clients: Vec<usize>,
    /// The sizes with which small data is tried, where they are others.
    pub small_data_pools: Vec<u64>,
    /// Numbers of terminals of TPC-C.
    pub tpcc_clients: Vec<usize>,
    /// What values consist of.
    pub values: ValueKind,
    /// How the second tier, and RocksDB, compress.
    pub compression: TierCodec,
    /// How long each load lasts.
    pub run_ms: u64,
    /// Operations that fill the caches, for each record.
    pub warm_ops_per_record: f64,
    /// Reads and writes a second of the disk, if it is slowed down.
    pub disk_iops: Option<u64>,
    /// Rounds of everything.
    pub rounds: usize,
}

fn or<T: Clone>(given: &[T], otherwise: &[T]) -> Vec<T> {
    if given.is_empty() { otherwise.to_vec() } else { given.to_vec() }
}

/// A few of `sizes`, which rise.
fn few(sizes: &[u64]) -> Vec<u64> {
    let mut few: Vec<u64> = [1, 2, 3].map(|quarter| sizes[sizes.len() * quarter / 4]).into();
    few.dedup();
    few
}

impl DbioScale {
    /// The size that `args` ask for.
    pub fn new(args: &DbioArgs) -> Self {
        let quick = args.common.quick;
        let ms = |given: Option<u64>, full_s: u64, small_ms: u64| {
            given.map_or(args.common.pick(full_s * 1000, small_ms), |seconds| seconds * 1000)
        };
        let mut clients = or(&args.clients, if quick { &[4] } else { &[1, 32] });
        clients.iter_mut().for_each(|clients| *clients = (*clients).clamp(1, 256));
        let mut tpcc_clients = or(&args.tpcc_clients, &[4]);
        tpcc_clients.iter_mut().for_each(|clients| *clients = (*clients).clamp(1, 64));
        Self {
            memory_mib: args.memory.unwrap_or(args.common.pick(1536, 96)).max(32),
            data: or(&args.data, if quick { &[0.33, 0.83] } else { &[0.33, 0.83, 1.67] }),
            pools: or(&args.pools, if quick { &[2, 6] } else { &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11] }),
            clients,
            small_data_pools: args.small_data_pools.clone(),
            tpcc_clients,
            values: args.values,
            compression: args.compression,
            run_ms: ms(args.seconds, 4, 150),
            warm_ops_per_record: args.warm_operations.unwrap_or(if quick { 1.0 } else { 2.0 }).max(0.0),
            disk_iops: args.disk_iops,
            rounds: args.common.rounds(2, 1),
        }
    }

    /// All memory of a trial.
    pub fn limit_bytes(&self) -> u64 {
        self.memory_mib << 20
    }

    /// Memory of a pool of so many twelfths; with 0 what a pool divides by itself, which leaves an eighth to the process.
    pub fn pool_bytes(&self, twelfths: u64) -> u64 {
        if twelfths == 0 {
            return self.limit_bytes() / 8 * 7;
        }
        self.limit_bytes() * twelfths / POOL_PARTS
    }

    /// Records of a store of `data` times the memory.
    pub fn records(&self, data: f64) -> u64 {
        ((self.limit_bytes() as f64 * data) as u64 / RECORD_BYTES).max(1000)
    }

    /// Operations that fill the caches of a store of `data` times the memory: as many for each candidate, however fast it is.
    pub fn warm_ops(&self, data: f64) -> u64 {
        (self.records(data) as f64 * self.warm_ops_per_record) as u64
    }

    /// The clients of the figures with goals: the most.
    pub fn goal_clients(&self) -> usize {
        self.clients.iter().copied().max().unwrap_or(1)
    }

    /// The data of the figures with goals: what is nearest to what they are told for.
    pub fn goal_data(&self) -> f64 {
        let distance = |data: &f64| (data - GOAL_DATA).abs();
        let nearest = self.data.iter().copied().min_by(|one, other| distance(one).total_cmp(&distance(other)));
        nearest.unwrap_or(GOAL_DATA)
    }

    /// Whether a pool alone may hold data of `data` times the memory: every record of it is read once before anything is measured.
    pub fn is_small(&self, data: f64) -> bool {
        data <= SMALL_DATA
    }

    /// The sizes of the pool that data of `data` times the memory is tried with.
    pub fn pools_for(&self, data: f64) -> &[u64] {
        let is_other = self.is_small(data) && !self.small_data_pools.is_empty();
        if is_other { &self.small_data_pools } else { &self.pools }
    }

    /// A few sizes from among all that are tried, for candidates that are not tried with each.
    fn few_pools(&self) -> Vec<u64> {
        few(&self.pools)
    }

    /// The sizes of the pool in front of the page cache as its second tier.
    pub fn page_cache_pools(&self, data: f64) -> Vec<u64> {
        few(self.pools_for(data))
    }

    /// The stores of others, with the sizes of their caches; 0 for one that has none.
    pub fn peers(&self) -> Vec<(Candidate, u64)> {
        let of_rocksdb = |candidate: Candidate| self.few_pools().into_iter().map(move |twelfths| (candidate, twelfths));
        let rocksdb = Candidate::ROCKSDB.into_iter().flat_map(of_rocksdb);
        rocksdb.chain([(Candidate::Lmdb, 0)]).collect()
    }

    /// SQLite's VFSes with the sizes of their caches.
    pub fn tpcc_candidates(&self) -> Vec<(SqliteCandidate, u64)> {
        let few = self.few_pools();
        let mut candidates = vec![(SqliteCandidate::Stock, 0)];
        for candidate in [SqliteCandidate::Stock, SqliteCandidate::Quire, SqliteCandidate::QuireTiers] {
            candidates.extend(few.iter().map(|&twelfths| (candidate, twelfths)));
        }
        candidates
    }

    /// The database of TPC-C: of the size that figures with goals are of, as far as whole warehouses come to it.
    pub fn tpcc_size(&self) -> DatabaseSize {
        let bytes = (self.limit_bytes() as f64 * self.goal_data()) as u64;
        let warehouses = |each: u64| u32::try_from((bytes + each / 2) / each).unwrap_or(u32::MAX).max(1);
        match bytes {
            ..WAREHOUSE_BYTES => DatabaseSize::small(warehouses(SMALL_WAREHOUSE_BYTES)),
            _ => DatabaseSize::standard(warehouses(WAREHOUSE_BYTES)),
        }
    }

    /// Transactions that fill the caches of a trial of TPC-C: some for each MiB.
    pub fn tpcc_warm_transactions(&self) -> u64 {
        (self.memory_mib as f64 * self.warm_ops_per_record * 3.0) as u64
    }

    /// The terminals of the figures of TPC-C with goals: the most.
    pub fn goal_tpcc_clients(&self) -> usize {
        self.tpcc_clients.iter().copied().max().unwrap_or(1)
    }

    /// Data that a pool alone may hold, if there is any in this run.
    pub fn small_data(&self) -> Option<f64> {
        self.data.iter().copied().filter(|data| self.is_small(*data)).min_by(f64::total_cmp)
    }

    /// Facts for the report.
    pub fn facts(&self) -> Map<String, Value> {
        let mut facts = Map::new();
        let mut add = |name: &str, value: Value| facts.insert(name.to_owned(), value);
        add("memory_mib", json!(self.memory_mib));
        add("data", json!(self.data));
        add("pool_twelfths", json!(self.pools));
        add("clients", json!(self.clients));
        add("small_data_pool_twelfths", json!(self.small_data_pools));
        add("tpcc_clients", json!(self.tpcc_clients));
        add("values", json!(self.values.name()));
        add("compression", json!(self.compression.name()));
        add("zipf", json!(0.99));
        add("load_ms", json!(self.run_ms));
        add("warm_operations_per_record", json!(self.warm_ops_per_record));
        add("small_data_is_read_before", json!(self.small_data().is_some()));
        add("small_data_read_most_s", json!(full_read::MOST_TIME.as_secs()));
        add("disk_iops", json!(self.disk_iops));
        add("rounds", json!(self.rounds));
        facts
    }
}
