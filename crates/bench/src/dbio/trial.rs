//! One trial, in a process of its own under the memory limit: a candidate with one size of the pool under all loads, or the disk by
//! itself.
//!
//! Relies on the parent as `fastmap` does ([`crate::fastmap::runner`]): one line of JSON in, one line out. The file has been laid out
//! and is cached by no layer when the trial begins; loads change values and no place, so every trial finds the same tree.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use quire_rng::{SplitMix64, mix};
use quire_sys::buffer::Buffer;

use super::candidate::{Candidate, OpenStore, StoreSpec, StoreWorkload, open_pages};
use super::slow_disk::ThrottleSpec;
use super::trial_spec::{TrialSpec, TrialWork};
use super::{counters, full_read, peer_stores, tpcc};
use crate::fastmap::kv::store::KvStore;
use crate::fastmap::kv::tree::Tree;
use crate::fastmap::kv::ycsb::{self, Ycsb, YcsbWorkload};
use crate::fastmap::pages::Counters;
use crate::fastmap::phase_stats::{PhaseStats, PhaseTimer, histogram};
use crate::fastmap::testbed::{PAGE_BYTES, Testbed};
use crate::wcache::testbed::device_throttle::DeviceThrottle;

/// The loads that are measured, in their order.
pub const LOADS: [YcsbWorkload; 2] = [YcsbWorkload::B, YcsbWorkload::A];
/// Clients that fill the caches before the first load: as many reads at once as keep a disk busy.
const WARM_CLIENTS: usize = 32;
/// Before a load that is not the first there is so many times less to do.
const LATER_WARM_PART: u64 = 4;

/// The seed of load number `load` of a trial by so many clients, from the trial's: no two loads make the same requests, or a load would find
/// what the one before it has left in the caches for it.
fn load_seed(seed: u64, load: usize, clients: usize) -> u64 {
    mix(seed ^ (load as u64 + 1) << 32 ^ clients as u64)
}

/// The name of a load of so many clients.
pub fn phase_name(load: YcsbWorkload, clients: usize) -> String {
    format!("{}_c{clients}", load.name())
}

/// The name of reads of the disk by itself by so many clients.
pub fn bound_name(clients: usize) -> String {
    format!("disk_reads_c{clients}")
}

impl TrialSpec {
    /// Does what is told, in this process.
    ///
    /// # Errors
    /// The device failed, or the store doesn't give back what was put there.
    pub fn carry_out(&self) -> anyhow::Result<Vec<PhaseStats>> {
        match &self.work {
            TrialWork::Store(store) => with_store(store, &self.testbed, self.limit_bytes, Loads { spec: self, store }),
            TrialWork::Disk => self.clients.iter().map(|&clients| self.disk_reads(clients)).collect(),
            TrialWork::Sqlite(sqlite) => tpcc::carry_out(self, sqlite),
        }
    }

    /// The disk is slowed down until this is dropped, if it is to be.
    fn slowed(&self) -> anyhow::Result<Option<DeviceThrottle>> {
        self.throttle.as_ref().map(ThrottleSpec::set).transpose()
    }

    /// Random direct reads of single pages, each client one at a time: what no way to pages that are not in memory can exceed.
    fn disk_reads(&self, clients: usize) -> anyhow::Result<PhaseStats> {
        let file = self.testbed.open_direct()?;
        let _slowed = self.slowed()?;
        let done = AtomicBool::new(false);
        let timer = PhaseTimer::begin(&self.testbed, Counters::new());
        let ops = std::thread::scope(|scope| {
            let client = |number: u64| {
                let (file, done) = (&file, &done);
                let mut rng = SplitMix64::new(load_seed(self.seed, clients, 0) ^ number << 32);
                scope.spawn(move || {
                    let mut page = Buffer::new(PAGE_BYTES).context("memory for a page")?;
                    let mut ops = 0_u64;
                    while ops == 0 || !done.load(Ordering::Relaxed) {
                        let offset = rng.below(self.testbed.pages) * PAGE_BYTES as u64;
                        file.read_exact_at(&mut page, offset).context("reading the disk")?;
                        ops += 1;
                    }
                    anyhow::Ok(ops)
                })
            };
            let threads: Vec<_> = (0..clients as u64).map(client).collect();
            std::thread::sleep(Duration::from_millis(self.run_ms));
            done.store(true, Ordering::Relaxed);
            threads.into_iter().map(|thread| thread.join().expect("a reading thread does not panic")).sum()
        });
        let ops: anyhow::Result<u64> = ops;
        Ok(timer.end(&bound_name(clients), ops?, &histogram(), Counters::new()))
    }
}

struct Loads<'a> {
    spec: &'a TrialSpec,
    store: &'a StoreSpec,
}

impl StoreWorkload for Loads<'_> {
    type Out = Vec<PhaseStats>;

    fn run_on<S: KvStore>(self, open: &OpenStore<'_, S>) -> anyhow::Result<Vec<PhaseStats>> {
        let Self { spec, store } = self;
        let values = store.values.values(spec.seed);
        let ycsb = |number, threads| {
            let seed = load_seed(spec.seed, number, threads);
            Ycsb { records: store.records, threads, run_ms: spec.run_ms, seed }
        };
        let mut read_before = None;
        if store.reads_all {
            let read = full_read::read_all(open.store, store.records, full_read::MOST_TIME)?;
            read_before = Some(read as f64 / store.records as f64);
        }
        let mut phases = Vec::new();
        for (number, load) in LOADS.into_iter().enumerate() {
            // The second load finds the caches full, and has to make its own pages dirty.
            let warm_ops = if number == 0 { store.warm_ops } else { store.warm_ops / LATER_WARM_PART };
            // A number that no load has.
            let warm = ycsb(LOADS.len() + number, WARM_CLIENTS);
            ycsb::run_operations(open.store, &warm, &values, load, warm_ops)?;
            for &clients in &spec.clients {
                let ycsb = ycsb(number, clients);
                let slowed = spec.slowed()?;
                let mut stats = ycsb::run_on_filled(open.store, &ycsb, &values, load, (&spec.testbed, open.counters))?;
                drop(slowed);
                stats.name = phase_name(load, clients);
                stats.counters.extend((open.gauges)());
                stats.counters.extend(read_before.map(|share| (counters::READ_BEFORE.to_owned(), share)));
                phases.push(stats);
            }
        }
        Ok(phases)
    }
}

/// The child process of a trial: waits for a `TrialSpec` on standard input, carries it out, and prints the statistics.
///
/// # Errors
/// The line is no spec, or the trial fails.
pub fn serve() -> anyhow::Result<()> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).context("waiting for what to do")?;
    let spec: TrialSpec =
        serde_json::from_str(&line).context("this experiment is started by `quire bench dbio` only")?;
    quire_sys::outln!("{}", serde_json::to_string(&spec.carry_out()?)?)?;
    Ok(())
}

/// Opens the store that `spec` tells of in the way of its candidate, and does `work` on it.
///
/// # Errors
/// When it can't be opened so, or the work's own.
fn with_store<W: StoreWorkload>(
    spec: &StoreSpec,
    testbed: &Testbed,
    limit_bytes: u64,
    work: W,
) -> anyhow::Result<W::Out> {
    if Candidate::ROCKSDB.contains(&spec.candidate) || spec.candidate == Candidate::Lmdb {
        return peer_stores::with_store(spec, &testbed.path, work);
    }
    let pages = open_pages(spec.candidate, testbed, (spec.pool_bytes, limit_bytes), spec.compression)?;
    let tree = Tree::open(&pages, spec.layout.as_ref().context("the pool's file has a tree")?)?;
    work.run_on(&OpenStore {
        store: &tree,
        counters: &|| counters::counted(pages.pool()),
        gauges: &|| counters::held(pages.pool(), pages.map()),
    })
}

#[cfg(test)]
mod tests {
    use super::super::candidate::{Candidate, TierCodec};
    use super::super::counters;
    use super::super::store_file::fill;
    use super::super::values::ValueKind;
    use super::*;
    use crate::fastmap::testbed::Testbed;

    const LIMIT_BYTES: u64 = 96 << 20;

    /// A trial of `candidate` on a store of 16 MiB, with a pool of a quarter of it, or of twice as much where everything is read before.
    fn trial(candidate: Candidate, reads_all: bool) -> Vec<PhaseStats> {
        let dir = tempfile::tempdir_in(".").unwrap();
        let (testbed, layout) = fill(&dir.path().join("store"), 16_000, ValueKind::Printable, 4 << 20).unwrap();
        testbed.drop_cache().unwrap();
        let store = StoreSpec {
            candidate,
            pool_bytes: if reads_all { 32 << 20 } else { 4 << 20 },
            layout: Some(layout),
            records: 16_000,
            values: ValueKind::Printable,
            compression: TierCodec::Zstd,
            reads_all,
            warm_ops: if reads_all { 0 } else { 4000 },
        };
        let spec = TrialSpec {
            testbed,
            limit_bytes: LIMIT_BYTES,
            clients: vec![1, 3],
            run_ms: 20,
            seed: 5,
            throttle: None,
            work: TrialWork::Store(store),
        };
        let line = serde_json::to_string(&spec).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<TrialSpec>(&line).unwrap(), spec);
        spec.carry_out().unwrap()
    }

    #[test]
    fn every_candidate_has_every_load_and_its_own_way_to_pages() {
        for candidate in Candidate::SWEPT.into_iter().chain([Candidate::PageCacheTier, Candidate::AutoSplit]) {
            let phases = trial(candidate, false);
            let names: Vec<&str> = phases.iter().map(|stats| stats.name.as_str()).collect();
            assert_eq!(names, ["b_c1", "b_c3", "a_c1", "a_c3"]);
            assert!(phases.iter().all(|stats| stats.ops > 0), "{candidate:?}");
            let sum = |name: &str| phases.iter().map(|stats| stats.counters[name]).sum::<f64>();
            assert!(sum("pool_misses") > 0.0, "{candidate:?}: the pool is smaller than the store");
            let has_tier = matches!(candidate, Candidate::TwoTiers | Candidate::AutoSplit);
            assert_eq!(sum("read_tier") > 0.0, has_tier, "{candidate:?}");
            // Where the kernel doesn't say what its cache holds, there is nothing to compare.
            if let Some(twice) = phases[0].counters.get("cached_twice_bytes") {
                // A page that the kernel has not written yet stays in its cache.
                let is_dirty = candidate == Candidate::PageCacheTier;
                assert!(is_dirty || (*twice > 0.0) == (candidate == Candidate::Buffered), "{candidate:?}: {twice}");
            }
            assert!(counters::pool_hit_ratio(&phases[0]) < 1.0);
        }
    }

    #[test]
    fn data_that_was_read_before_is_in_the_pool_of_every_candidate_when_the_first_load_begins() {
        for candidate in Candidate::SWEPT.into_iter().chain([Candidate::PageCacheTier]) {
            let phases = trial(candidate, true);
            assert!(phases.iter().all(|stats| counters::read_before(stats) == 1.0), "{candidate:?}");
            assert!(phases.iter().all(|stats| counters::pool_hit_ratio(stats) == 1.0), "{candidate:?}");
        }
    }

    #[test]
    fn no_two_loads_of_a_trial_make_the_same_requests() {
        let mut seeds: Vec<u64> = Vec::new();
        for load in 0..2 * LOADS.len() {
            for clients in [1, 4, WARM_CLIENTS] {
                // As each client has its own.
                seeds.extend((0..clients as u64).map(|client| load_seed(29, load, clients) ^ client << 32));
            }
        }
        let drawn = seeds.len();
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), drawn);
    }

    #[test]
    fn the_disk_by_itself_is_measured_for_each_number_of_clients() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let testbed = Testbed::stamped_file(&dir.path().join("data"), 64).unwrap();
        let work = TrialWork::Disk;
        let spec = TrialSpec {
            testbed,
            limit_bytes: LIMIT_BYTES,
            clients: vec![1, 4],
            run_ms: 5,
            seed: 5,
            throttle: None,
            work,
        };
        let phases = spec.carry_out().unwrap();
        let names: Vec<&str> = phases.iter().map(|stats| stats.name.as_str()).collect();
        assert_eq!(names, ["disk_reads_c1", "disk_reads_c4"]);
        assert!(phases.iter().all(|stats| stats.ops > 0));
    }
}
