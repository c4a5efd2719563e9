//! The loads of YCSB (Cooper et al., SoCC 2010), in the order that it proposes.
//!
//! Relies on keys being a one-to-one hash of the record's number, so popular records lie anywhere. Requests follow a Zipf
//! distribution of exponent 0.99; values are written whole. A value tells its key, and its two ends agree, so that a torn
//! or foreign one is noticed. Three departures: each load but the first runs for a fixed time instead of a fixed number of
//! operations, E runs last on the same store, not after a second filling, and a thread knows its next few requests.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::node::VALUE_BYTES;
use super::store::{AccessHint, KvStore};
use crate::fastmap::pages::Counters;
use crate::fastmap::phase_stats::{PhaseStats, PhaseTimer, histogram};
use crate::fastmap::testbed::Testbed;
use crate::requests::Values;
use quire_rng::SplitMix64;
use quire_rng::zipf::Zipf;

const SKEW: f64 = 0.99;
/// Most entries of a scan; the number is drawn evenly.
const MOST_SCANNED: u64 = 100;
/// Records that a loading thread takes at a time.
const CHUNK: u64 = 64;
/// Requests that a thread knows at a time, as a server does whose clients don't wait for each answer: a store that looks
/// ahead is told of them. All stores get the same requests in the same order.
const KNOWN: usize = 16;

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum YcsbWorkload {
    /// Inserts of all records.
    Fill,
    /// Half reads, half updates.
    A,
    /// 95 % reads, 5 % updates.
    B,
    /// Reads.
    C,
    /// 95 % reads of what was inserted last, 5 % inserts.
    D,
    /// 95 % scans, 5 % inserts.
    E,
    /// Half reads, half reads with an update of what was read.
    F,
}

impl YcsbWorkload {
    /// All, in the order in which they run.
    pub const ALL: [Self; 7] = [Self::Fill, Self::A, Self::B, Self::C, Self::F, Self::D, Self::E];

    /// As figures name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fill => "load",
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
            Self::D => "d",
            Self::E => "e",
            Self::F => "f",
        }
    }

    /// The next request; `insert` gives the number of a new record, `latest` that of the one so many before the newest.
    fn next(
        self,
        zipf: &Zipf,
        rng: &mut SplitMix64,
        insert: impl FnOnce() -> u64,
        latest: impl FnOnce(u64) -> u64,
    ) -> Step {
        let percent = rng.below(100);
        match self {
            Self::Fill => Step::Insert(insert()),
            Self::A if percent < 50 => Step::Update(zipf.sample(rng)),
            Self::B if percent < 5 => Step::Update(zipf.sample(rng)),
            Self::F if percent < 50 => Step::Modify(zipf.sample(rng)),
            Self::D | Self::E if percent < 5 => Step::Insert(insert()),
            Self::D => Step::ReadLatest(latest(zipf.sample(rng))),
            Self::E => Step::Scan(zipf.sample(rng), 1 + rng.below(MOST_SCANNED) as usize),
            Self::A | Self::B | Self::C | Self::F => Step::Read(zipf.sample(rng)),
        }
    }
}

/// A request to a record.
#[derive(Clone, Copy)]
enum Step {
    Read(u64),
    /// One of the newest, which may not be there yet.
    ReadLatest(u64),
    Update(u64),
    Modify(u64),
    Insert(u64),
    /// With the most entries to look at.
    Scan(u64, usize),
}

/// What is loaded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ycsb {
    /// Records of the first load.
    pub records: u64,
    /// Threads.
    pub threads: usize,
    /// How long each load but the first lasts.
    pub run_ms: u64,
    /// Seed of everything that is drawn.
    pub seed: u64,
}

/// Key of record number `record`.
pub fn key_of(record: u64) -> u64 {
    SplitMix64::new(record).next_u64()
}

struct Session<'a, S> {
    store: &'a S,
    ycsb: &'a Ycsb,
    values: &'a Values,
    /// Records whose insertion has begun.
    records: AtomicU64,
    /// Ends loads but the first, in place of the time.
    most_ops: Option<u64>,
}

/// When a load is over.
struct LoadEnd {
    /// Its time is over.
    is_late: AtomicBool,
    /// Operations that were done, where they are counted.
    done: AtomicU64,
    most_ops: Option<u64>,
}

impl LoadEnd {
    /// Whether a thread that has done `ops` operations more ends.
    fn is_reached(&self, ops: u64) -> bool {
        match self.most_ops {
            Some(most) => self.done.fetch_add(ops, Ordering::Relaxed) + ops >= most,
            None => self.is_late.load(Ordering::Relaxed),
        }
    }
}

/// Runs all loads on `store`, which is empty.
///
/// # Errors
/// The store failed, or doesn't give back what was put there.
pub fn run<S: KvStore>(
    store: &S,
    ycsb: &Ycsb,
    testbed: &Testbed,
    counters: &dyn Fn() -> Counters,
) -> anyhow::Result<Vec<PhaseStats>> {
    let values = Values::new(VALUE_BYTES, ycsb.seed);
    let session = Session { store, ycsb, values: &values, records: AtomicU64::new(0), most_ops: None };
    let mut phases = Vec::new();
    for load in YcsbWorkload::ALL {
        let timer = PhaseTimer::begin(testbed, counters());
        let (ops, latencies) = session.phase(load)?;
        let mut stats = timer.end(load.name(), ops, &latencies, counters());
        stats.counters.insert("store_mib".into(), store.bytes() as f64 / f64::from(1 << 20));
        phases.push(stats);
    }
    Ok(phases)
}

/// Runs `load`, which inserts nothing, on `store`, which has all records; values of updates are picked from `values`.
///
/// # Errors
/// As [`run`].
pub fn run_on_filled<S: KvStore>(
    store: &S,
    ycsb: &Ycsb,
    values: &Values,
    load: YcsbWorkload,
    (testbed, counters): (&Testbed, &dyn Fn() -> Counters),
) -> anyhow::Result<PhaseStats> {
    let session = Session { store, ycsb, values, records: AtomicU64::new(ycsb.records), most_ops: None };
    let timer = PhaseTimer::begin(testbed, counters());
    let (ops, latencies) = session.phase(load)?;
    Ok(timer.end(load.name(), ops, &latencies, counters()))
}

/// Runs as many operations of `load`, which inserts nothing, on `store`, which has all records, or a few more; each thread does some. Returns
/// how many.
///
/// # Errors
/// As [`run`].
pub fn run_operations<S: KvStore>(
    store: &S,
    ycsb: &Ycsb,
    values: &Values,
    load: YcsbWorkload,
    operations: u64,
) -> anyhow::Result<u64> {
    let records = AtomicU64::new(ycsb.records);
    let session = Session { store, ycsb, values, records, most_ops: Some(operations) };
    Ok(session.phase(load)?.0)
}

/// Makes a value of `key`.
pub fn write_value(key: u64, values: &Values, rng: &mut SplitMix64, bytes: &mut [u8]) {
    bytes.copy_from_slice(values.pick(rng));
    let tag = rng.next_u64().to_le_bytes();
    bytes[..8].copy_from_slice(&key.to_le_bytes());
    bytes[8..16].copy_from_slice(&tag);
    bytes[VALUE_BYTES - 8..].copy_from_slice(&tag);
}

impl<S: KvStore> Session<'_, S> {
    fn phase(&self, load: YcsbWorkload) -> anyhow::Result<(u64, Histogram<u64>)> {
        let end = LoadEnd { is_late: AtomicBool::new(false), done: AtomicU64::new(0), most_ops: self.most_ops };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.ycsb.threads as u64)
                .map(|thread| {
                    let end = &end;
                    let rng = SplitMix64::new(self.ycsb.seed ^ thread << 32 ^ (load as u64) << 40);
                    scope.spawn(
                        move || if load == YcsbWorkload::Fill { self.fill(rng) } else { self.request(load, rng, end) },
                    )
                })
                .collect();
            if load != YcsbWorkload::Fill && self.most_ops.is_none() {
                std::thread::sleep(Duration::from_millis(self.ycsb.run_ms));
                end.is_late.store(true, Ordering::Relaxed);
            }
            let mut all = (0, histogram());
            for thread in threads {
                let (ops, latencies) = thread.join().expect("a requesting thread does not panic")?;
                all.0 += ops;
                all.1.add(latencies)?;
            }
            Ok(all)
        })
    }

    /// Inserts records until there are as many as asked for.
    fn fill(&self, mut rng: SplitMix64) -> anyhow::Result<(u64, Histogram<u64>)> {
        let (mut ops, mut latencies) = (0, histogram());
        let mut bytes = [0; VALUE_BYTES];
        let end = self.ycsb.records;
        let mut before = Instant::now();
        loop {
            // As many counters as threads overshoot; what is there in the end is settled by the last of them.
            let first = self.records.fetch_add(CHUNK, Ordering::Relaxed);
            if first >= end {
                self.records.fetch_min(end, Ordering::Relaxed);
                return Ok((ops, latencies));
            }
            let records: Vec<u64> = (first..end.min(first + CHUNK)).collect();
            for known in records.chunks(KNOWN) {
                let steps: Vec<Step> = known.iter().map(|&record| Step::Insert(record)).collect();
                self.expect(&steps)?;
                for &record in known {
                    self.update(record, &mut rng, &mut bytes)?;
                    ops += 1;
                    note(&mut before, &mut latencies);
                }
            }
        }
    }

    fn request(&self, load: YcsbWorkload, mut rng: SplitMix64, end: &LoadEnd) -> anyhow::Result<(u64, Histogram<u64>)> {
        let (mut ops, mut latencies) = (0, histogram());
        let zipf = Zipf::new(self.records.load(Ordering::Relaxed), SKEW);
        let mut bytes = [0; VALUE_BYTES];
        let mut before = Instant::now();
        // At least once: on a busy machine the time may be over before this thread has run.
        loop {
            let insert = || self.records.fetch_add(1, Ordering::Relaxed);
            let latest = |before| self.latest(before);
            let steps: Vec<Step> = (0..KNOWN).map(|_| load.next(&zipf, &mut rng, insert, latest)).collect();
            self.expect(&steps)?;
            // All of them, or a record that was promised would be missing.
            for step in steps {
                self.step(step, &mut rng, &mut bytes)?;
                ops += 1;
                note(&mut before, &mut latencies);
            }
            if end.is_reached(KNOWN as u64) {
                return Ok((ops, latencies));
            }
        }
    }

    /// The record that is so many before the newest one that must have been inserted by now.
    fn latest(&self, before: u64) -> u64 {
        let promised = (self.ycsb.threads * KNOWN) as u64;
        self.records.load(Ordering::Relaxed).saturating_sub(1 + promised + before)
    }

    fn expect(&self, steps: &[Step]) -> anyhow::Result<()> {
        let hints: Vec<AccessHint> = steps
            .iter()
            .map(|&step| match step {
                Step::Scan(record, most) => (record, most),
                Step::Read(record)
                | Step::ReadLatest(record)
                | Step::Update(record)
                | Step::Modify(record)
                | Step::Insert(record) => (record, 1),
            })
            .map(|(record, entries)| AccessHint { key: key_of(record), entries })
            .collect();
        self.store.expect(&hints)
    }

    fn step(&self, step: Step, rng: &mut SplitMix64, bytes: &mut [u8]) -> anyhow::Result<()> {
        match step {
            Step::Read(record) => self.read(record, bytes),
            Step::ReadLatest(record) => {
                let key = key_of(record);
                // A slow thread may be about to insert it.
                if self.store.read(key, bytes)? { check(key, bytes) } else { Ok(()) }
            }
            Step::Update(record) | Step::Insert(record) => self.update(record, rng, bytes),
            Step::Modify(record) => {
                self.read(record, bytes)?;
                self.update(record, rng, bytes)
            }
            Step::Scan(record, most) => {
                let from = key_of(record);
                let mut sound = Ok(());
                let mut each = |key: u64, value: &[u8]| {
                    let checked = check(key, value);
                    if sound.is_ok() {
                        sound = checked;
                    }
                };
                let seen = self.store.scan(from, most, &mut each)?;
                ensure!(seen > 0, "a scan from key {from:#x}, which is there, finds nothing");
                sound
            }
        }
    }

    fn read(&self, record: u64, bytes: &mut [u8]) -> anyhow::Result<()> {
        let key = key_of(record);
        ensure!(self.store.read(key, bytes)?, "record {record} is missing");
        check(key, bytes)
    }

    fn update(&self, record: u64, rng: &mut SplitMix64, bytes: &mut [u8]) -> anyhow::Result<()> {
        write_value(key_of(record), self.values, rng, bytes);
        self.store.insert(key_of(record), bytes)
    }
}

fn note(before: &mut Instant, latencies: &mut Histogram<u64>) {
    let now = Instant::now();
    latencies.saturating_record((now - *before).as_nanos() as u64);
    *before = now;
}

fn check(key: u64, bytes: &[u8]) -> anyhow::Result<()> {
    ensure!(bytes[..8] == key.to_le_bytes(), "the value of key {key:#x} is another's");
    ensure!(bytes[8..16] == bytes[VALUE_BYTES - 8..VALUE_BYTES], "the value of key {key:#x} is torn");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fastmap::kv::tree::Tree;
    use crate::fastmap::testbed::DeviceKind;
    use crate::fastmap::traced_pages::TracedPages;
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    #[test]
    fn every_load_runs_on_the_tree_and_all_records_are_inserted() {
        let pages = TracedPages::new(4000);
        let tree = Tree::new(&pages, 4, 4000).unwrap();
        let ycsb = Ycsb { records: 1000, threads: 3, run_ms: 10, seed: 3 };
        let testbed = Testbed { kind: DeviceKind::Disk, path: "nowhere".into(), pages: 4000 };
        let phases = run(&tree, &ycsb, &testbed, &Counters::new).unwrap();
        let names: Vec<&str> = phases.iter().map(|stats| stats.name.as_str()).collect();
        assert_eq!(names, ["load", "a", "b", "c", "f", "d", "e"]);
        assert_eq!(phases[0].ops, 1000);
        assert!(phases.iter().all(|stats| stats.ops > 0 && stats.counters["store_mib"] > 1.0));
    }

    #[test]
    fn a_load_of_so_many_operations_ends_with_them_however_long_it_takes() {
        let pages = TracedPages::new(4000);
        let tree = Tree::new(&pages, 4, 4000).unwrap();
        let ycsb = Ycsb { records: 1000, threads: 3, run_ms: 0, seed: 3 };
        let testbed = Testbed { kind: DeviceKind::Disk, path: "nowhere".into(), pages: 4000 };
        run(&tree, &ycsb, &testbed, &Counters::new).unwrap();
        let values = Values::new(VALUE_BYTES, 3);
        let ops = run_operations(&tree, &ycsb, &values, YcsbWorkload::B, 5000).unwrap();
        assert!((5000..=5000 + 3 * KNOWN as u64).contains(&ops), "{ops}");
    }

    /// Forgets every tenth value that it is given.
    #[derive(Default)]
    struct Forgetful(Mutex<BTreeMap<u64, Vec<u8>>>, AtomicU64);

    impl KvStore for Forgetful {
        fn insert(&self, key: u64, value: &[u8]) -> anyhow::Result<()> {
            if !self.1.fetch_add(1, Ordering::Relaxed).is_multiple_of(10) {
                self.0.lock().unwrap().insert(key, value.to_vec());
            }
            Ok(())
        }

        fn read(&self, key: u64, into: &mut [u8]) -> anyhow::Result<bool> {
            let results = self.0.lock().unwrap().get(&key).cloned();
            Ok(results.is_some_and(|value| {
                into.copy_from_slice(&value);
                true
            }))
        }

        fn scan(&self, _: u64, _: usize, _: &mut dyn FnMut(u64, &[u8])) -> anyhow::Result<usize> {
            Ok(1)
        }

        fn bytes(&self) -> u64 {
            0
        }
    }

    #[test]
    fn a_store_that_loses_records_is_found_out() {
        let ycsb = Ycsb { records: 500, threads: 2, run_ms: 50, seed: 3 };
        let testbed = Testbed { kind: DeviceKind::Disk, path: "nowhere".into(), pages: 1 };
        let error = run(&Forgetful::default(), &ycsb, &testbed, &Counters::new).unwrap_err().to_string();
        assert!(error.contains("missing"), "{error}");
        let mut value = vec![0; VALUE_BYTES];
        value[..8].copy_from_slice(&7_u64.to_le_bytes());
        assert!(check(7, &value).is_ok() && check(8, &value).is_err());
        value[9] = 1;
        assert!(check(7, &value).unwrap_err().to_string().contains("torn"));
    }
}
