//! The part `leases`: bytes of a file by [`quire_pool::Map::lease`] beside the same by `pread` into a buffer, from 4 KiB to 1 MiB.
//!
//! Relies on the file being in the page cache and in the pool as a whole, so that neither waits for the device, and on random order over
//! more than the processor's caches. The caller sums all bytes, or touches none. What summing plain memory takes, in the
//! same order, bounds what any way can reach. All ways take turns.

use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, ensure};
use quire_device::{Directory, DiskDirectory};
use quire_pool::{Map, MapOptions, Pool, PoolConfig, TierConfig};
use quire_rng::SplitMix64;

use super::read_loads::sum;
use crate::report::{BetterDirection, Figure, Report};
use crate::stats::Spread;

/// The name of the part.
pub(super) const PART: &str = "leases";

/// Sizes of reads, and how many times as fast as `pread` a lease must be whose bytes are summed, where that is a goal.
const SIZES: [(&str, usize, Option<f64>); 5] = [
    ("4k", 4 << 10, Some(2.0)),
    ("16k", 16 << 10, None),
    ("64k", 64 << 10, Some(1.5)),
    ("256k", 256 << 10, None),
    ("1m", 1 << 20, None),
];
/// The same of one whose bytes are not touched, at the sizes with a goal.
const UNTOUCHED_GOAL: f64 = 20.0;
/// Least passes over so many bytes in a round, so that a round of large reads is no shorter than a clock can tell.
const ROUND_BYTES: u64 = 256 << 20;
/// Most reads in a round that touches nothing.
const ROUND_READS: usize = 65_536;

/// Seconds of a read by each way, one value a round.
#[derive(Debug, Clone, Default)]
struct SizeTimes {
    pread_summed: Vec<f64>,
    lease_summed: Vec<f64>,
    plain_summed: Vec<f64>,
    pread_untouched: Vec<f64>,
    lease_untouched: Vec<f64>,
}

/// What was measured, by size.
#[derive(Debug, Clone, Default)]
pub struct LeaseResults {
    sizes: Vec<SizeTimes>,
}

/// Where the bytes come from.
struct Sources {
    file: File,
    map: Map,
    plain: Vec<u8>,
}

impl Sources {
    fn new(dir: &Path, bytes: u64) -> anyhow::Result<Self> {
        let path = dir.join("data");
        let mut rng = SplitMix64::new(7);
        let plain: Vec<u8> = (0..bytes / 8).flat_map(|_| rng.next_u64().to_ne_bytes()).collect();
        let mut file =
            File::options().read(true).write(true).create_new(true).open(&path).context("making the file")?;
        file.write_all(&plain).and_then(|()| file.sync_all()).context("writing the file")?;
        // Leases may pin a quarter, of which one at a time takes no more than its size.
        let budget_bytes = bytes as usize + (16 << 20);
        let pool = Pool::new(PoolConfig { budget_bytes, tier: TierConfig::off(), ..PoolConfig::default() })?;
        let device = DiskDirectory::new(dir).open_to_write("data")?;
        let map = pool.map(device, MapOptions::default())?;
        let sources = Self { file, map, plain };
        // All of it is in memory from here on, and the same everywhere.
        let mut buffer = vec![0; 1 << 20];
        for offset in (0..bytes).step_by(1 << 20) {
            let expected = sum(&sources.plain[offset as usize..offset as usize + (1 << 20)]);
            sources.file.read_exact_at(&mut buffer, offset).context("reading the file")?;
            let lease = sources.map.lease(offset, 1 << 20)?;
            ensure!(sum(&buffer) == expected && sum(&lease) == expected, "the ways read other bytes at {offset}");
        }
        Ok(sources)
    }

    fn pread(&self, offset: u64, buffer: &mut [u8]) -> anyhow::Result<()> {
        self.file.read_exact_at(buffer, offset).context("reading the file")
    }
}

/// Seconds of a read, on average over `offsets`.
fn timed(offsets: &[u64], mut read: impl FnMut(u64) -> anyhow::Result<u64>) -> anyhow::Result<f64> {
    let began = Instant::now();
    let mut total = 0_u64;
    for &offset in offsets {
        total = total.wrapping_add(read(offset)?);
    }
    black_box(total);
    Ok(began.elapsed().as_secs_f64() / offsets.len() as f64)
}

impl SizeTimes {
    fn round(&mut self, sources: &Sources, len: usize, rng: &mut SplitMix64) -> anyhow::Result<()> {
        let places = sources.plain.len() as u64 / len as u64;
        let count = (ROUND_BYTES.min(4 * sources.plain.len() as u64) / len as u64) as usize;
        let offsets: Vec<u64> = (0..count.max(1)).map(|_| rng.below(places) * len as u64).collect();
        let untouched: Vec<u64> = offsets.iter().copied().cycle().take(ROUND_READS.min(4 * offsets.len())).collect();
        let mut buffer = vec![0; len];
        let pread = |offset, buffer: &mut Vec<u8>| sources.pread(offset, buffer).map(|()| 0);
        self.pread_summed.push(timed(&offsets, |offset| pread(offset, &mut buffer).map(|_| sum(&buffer)))?);
        self.lease_summed.push(timed(&offsets, |offset| Ok(sum(&sources.map.lease(offset, len)?)))?);
        let plain = |offset: u64| &sources.plain[offset as usize..offset as usize + len];
        self.plain_summed.push(timed(&offsets, |offset| Ok(sum(black_box(plain(offset)))))?);
        self.pread_untouched.push(timed(&untouched, |offset| pread(offset, black_box(&mut buffer)))?);
        let lease = |offset| Ok(black_box(sources.map.lease(offset, len)?.as_ptr()) as u64);
        self.lease_untouched.push(timed(&untouched, lease)?);
        Ok(())
    }
}

/// Measures.
///
/// # Errors
/// The file can't be written or read, or the ways disagree on what it holds.
pub(super) fn measure(dir: &Path, file_bytes: u64, rounds: usize) -> anyhow::Result<LeaseResults> {
    let sources = Sources::new(dir, file_bytes)?;
    let mut rng = SplitMix64::new(11);
    let mut results = LeaseResults { sizes: vec![SizeTimes::default(); SIZES.len()] };
    for _ in 0..rounds {
        for ((_, len, _), times) in SIZES.iter().zip(&mut results.sizes) {
            times.round(&sources, *len, &mut rng)?;
        }
    }
    Ok(results)
}

/// How many times longer `theirs` takes than `ours`, round by round.
fn ratio(theirs: &[f64], ours: &[f64]) -> Spread {
    let ratios: Vec<f64> = theirs.iter().zip(ours).map(|(theirs, ours)| theirs / ours).collect();
    Spread::of(&ratios).unwrap_or(Spread { median: f64::NAN, least: f64::NAN, most: f64::NAN })
}

fn median_ns(times: &[f64]) -> f64 {
    Spread::of(times).map_or(f64::NAN, |spread| spread.median * 1e9)
}

/// Adds the figures: those with goals to the results, the other sizes for information.
pub(super) fn add_figures(results: &LeaseResults, report: &mut Report) {
    let summed = |name: &str, times: &SizeTimes| {
        let spread = ratio(&times.pread_summed, &times.lease_summed);
        Figure::new(format!("lease_vs_pread_{name}"), spread.median, "x", BetterDirection::Higher)
            .peer("pread_ns", median_ns(&times.pread_summed))
            .peer("lease_ns", median_ns(&times.lease_summed))
            .spread(spread)
            .bound("plain memory, summed in the same order", ratio(&times.pread_summed, &times.plain_summed).median)
            .note("all bytes summed by the caller, one thread, random order, all in memory")
    };
    let untouched = |name: &str, times: &SizeTimes| {
        let spread = ratio(&times.pread_untouched, &times.lease_untouched);
        Figure::new(format!("lease_untouched_vs_pread_{name}"), spread.median, "x", BetterDirection::Higher)
            .peer("pread_ns", median_ns(&times.pread_untouched))
            .peer("lease_ns", median_ns(&times.lease_untouched))
            .spread(spread)
            .note("no byte touched by the caller")
    };
    for ((name, _, goal), times) in SIZES.iter().zip(&results.sizes) {
        let (summed, untouched) = (summed(name, times), untouched(name, times));
        match goal {
            Some(goal) => report.results.extend([summed.goal(*goal), untouched.goal(UNTOUCHED_GOAL)]),
            None => report.info.extend([summed, untouched]),
        }
    }
    // Those of bytes that are summed first.
    report.results.sort_by_key(|figure| figure.name.starts_with("lease_untouched"));
}
