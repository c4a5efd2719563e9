//! How much is done: sizes, threads, times, rounds, and which parts.
//!
//! Relies on `--quick` leaving out what its small budgets cannot tell; what is left is measured in two rounds, which show
//! whether they agree.

use serde_json::{Map, Value, json};

use super::FastmapArgs;
use super::kv::VALUE_BYTES;
use super::testbed::PAGE_BYTES;
use crate::experiment::wants;

/// The size of a run.
#[derive(Clone, Debug)]
pub struct FastmapScale {
    /// Whether this is the small run.
    pub quick: bool,
    /// Memory for pages in the microbenchmark and the key-value loads.
    pub budget_mib: u64,
    /// The microbenchmark's dataset over its budget.
    pub factor: u64,
    /// Threads of the microbenchmark.
    pub threads: Vec<usize>,
    /// How long touches count.
    pub measure_ms: u64,
    /// How long filling the budget may take before that.
    pub warm_ms: u64,
    /// Rounds of what has figures with goals.
    pub rounds: usize,
    /// Rounds of key-value loads and of searches.
    pub long_rounds: usize,
    /// How long each key-value load lasts.
    pub run_ms: u64,
    /// The graph has `1 << graph_scale` vertices.
    pub graph_scale: u32,
    parts: Vec<String>,
}

/// Threads of key-value loads and of searches.
pub const THREADS: usize = 4;
/// The key-value dataset over its budget, once its leaves are as full as splits leave them.
const KV_FACTOR: u64 = 4;
/// Bytes of pages for each record: a leaf of four entries is seven tenths full.
const RECORD_BYTES: u64 = 10 * (PAGE_BYTES as u64) / 28;
const _: () = assert!(RECORD_BYTES as usize > VALUE_BYTES);
/// Pages of the hit cost: 64 MiB.
pub const HIT_PAGES: u64 = (64 << 20) / PAGE_BYTES as u64;

impl FastmapScale {
    /// The size that `args` ask for.
    pub fn new(args: &FastmapArgs) -> Self {
        let quick = args.common.quick;
        let pick = |full: u64, small: u64| args.common.pick(full, small);
        Self {
            quick,
            budget_mib: args.sizes.first().copied().unwrap_or(pick(128, 32)).max(1),
            factor: pick(8, 4),
            threads: if quick { vec![1, 16] } else { vec![1, 2, 4, 8, 16, 32] },
            measure_ms: pick(1000, 200),
            warm_ms: pick(6000, 1000),
            rounds: args.common.rounds(3, 2),
            long_rounds: args.common.rounds(2, 1),
            run_ms: pick(2000, 100),
            graph_scale: pick(21, 16) as u32,
            parts: args.parts.clone(),
        }
    }

    /// Whether `part` was asked for.
    pub fn wants(&self, part: &str) -> bool {
        wants(&self.parts, part)
    }

    /// Memory for pages in bytes.
    pub fn budget_bytes(&self) -> u64 {
        self.budget_mib << 20
    }

    /// The share of the pages that is not in memory: all but the budget's.
    pub fn missing_share(&self) -> f64 {
        1.0 - 1.0 / self.factor as f64
    }

    /// Pages of the microbenchmark's dataset.
    pub fn micro_pages(&self) -> u64 {
        self.budget_bytes() * self.factor / PAGE_BYTES as u64
    }

    /// Budget of the key-value loads: a small run has no time for more.
    pub fn kv_budget_bytes(&self) -> u64 {
        if self.quick { self.budget_bytes() / 4 } else { self.budget_bytes() }
    }

    /// Records of a store that is several times its budget, and of one that is half of it.
    pub fn records(&self, in_memory: bool) -> u64 {
        let bytes = if in_memory { self.kv_budget_bytes() / 2 } else { KV_FACTOR * self.kv_budget_bytes() };
        bytes / RECORD_BYTES
    }

    /// Pages that a store of `records` records may come to need: half-full leaves at worst, branches, and what two loads
    /// insert, at most a hundred records in a millisecond.
    pub fn store_pages(&self, records: u64) -> u64 {
        records * 5 / 8 + 100 * self.run_ms
    }

    /// Budget of a search: a quarter of the graph's edges.
    pub fn graph_budget_bytes(&self) -> u64 {
        (super::graph::EDGE_FACTOR << self.graph_scale) * 4 / 4
    }

    /// Facts for the report.
    pub fn facts(&self) -> Map<String, Value> {
        let mut facts = Map::new();
        let mut add = |name: &str, value: Value| facts.insert(name.to_owned(), value);
        add("budget_mib", json!(self.budget_mib));
        add("dataset_mib", json!(self.budget_mib * self.factor));
        add("rounds", json!(self.rounds));
        add("kv_budget_mib", json!(self.kv_budget_bytes() >> 20));
        add("kv_records", json!(self.records(false)));
        add("kv_records_in_memory", json!(self.records(true)));
        add("kv_threads", json!(THREADS));
        add("kv_and_bfs_rounds", json!(self.long_rounds));
        add("graph_vertices", json!(1_u64 << self.graph_scale));
        add("graph_budget_mib", json!(self.graph_budget_bytes() >> 20));
        add("device_disk", json!("a file under --dir"));
        facts
    }
}
