//! Part `eviction`: how often a cache with `allkeys-lru` or `allkeys-lfu` has what is asked for, with a `maxmemory` that a part of the
//! data fits into. A client asks for keys, and stores those that are missing, as users of a cache do.
//!
//! Relies on the same draws for all servers. The second load has scans in between: keys in order, each asked for once.

use anyhow::{Context, bail};
use quire_rng::SplitMix64;
use quire_rng::zipf::Zipf;

use super::of_peer;
use crate::memory;
use crate::report::{BetterDirection, Figure, Report};
use crate::resp::{Connection, Value};
use crate::server::setup::ExperimentSetup;

/// Bytes that the servers may take, and keys, whose values together are several times as many.
const MAX_MEMORY_BYTES: u64 = 64 << 20;
const KEYS: u64 = 1_000_000;
const VALUE_BYTES: usize = 200;
const SKEW: f64 = 0.99;
/// Requests that are sent together, and in all; a small run has fewer, and a tenth of memory and keys.
const BATCH: usize = 64;
const REQUESTS: u64 = 4_000_000;
const FEW_REQUESTS: u64 = 200_000;
const QUICK_PART: u64 = 10;
/// The first part of the requests fills the cache and is not counted.
const WARMING_PART: u64 = 4;
/// Of the second load's requests so many of a hundred belong to scans.
const SCANNED_PERCENT: u64 = 30;

/// The loads: a name, the policy, and whether scans come in between.
const LOADS: [(&str, &str, bool); 4] = [
    ("lru_zipf", "allkeys-lru", false),
    ("lru_scanned", "allkeys-lru", true),
    ("lfu_zipf", "allkeys-lfu", false),
    ("lfu_scanned", "allkeys-lfu", true),
];

/// Of a load and each program, ours first: the share of hits, and bytes of the process.
#[derive(Debug)]
pub struct LoadResult {
    name: &'static str,
    hits: Vec<(String, f64)>,
    process_bytes: Vec<(String, f64)>,
}

/// All loads.
pub type EvictionResults = Vec<LoadResult>;

/// Asks each program by itself.
pub fn measure(setup: &ExperimentSetup) -> anyhow::Result<EvictionResults> {
    let part = if setup.quick { QUICK_PART } else { 1 };
    let mut found = Vec::new();
    for (name, policy, is_scanned) in LOADS {
        let mut result = LoadResult { name, hits: Vec::new(), process_bytes: Vec::new() };
        for (index, program) in setup.programs().iter().enumerate() {
            setup.say(&format!("hits of {name}: {}", program.name));
            let bytes = (MAX_MEMORY_BYTES / part).to_string();
            let settings = ["--maxmemory", &bytes, "--maxmemory-policy", policy];
            let mut candidate = setup.start_with(index, &format!("eviction-{name}"), &settings)?;
            let requests = if setup.quick { FEW_REQUESTS } else { REQUESTS };
            let mut draws = Draws::new(KEYS / part, is_scanned);
            let hits = hit_ratio(&mut candidate.control, &mut draws, requests).with_context(|| program.name.clone())?;
            let process_bytes = memory::proportional_bytes(candidate.server.pid())? as f64;
            result.hits.push((program.name.clone(), hits));
            result.process_bytes.push((program.name.clone(), process_bytes));
            candidate.server.kill();
        }
        found.push(result);
    }
    Ok(found)
}

/// Which keys are asked for.
struct Draws {
    rng: SplitMix64,
    zipf: Zipf,
    keys: u64,
    is_scanned: bool,
    next_scanned: u64,
}

impl Draws {
    fn new(keys: u64, is_scanned: bool) -> Self {
        Self { rng: SplitMix64::new(42), zipf: Zipf::new(keys, SKEW), keys, is_scanned, next_scanned: 0 }
    }

    /// A key; true with it if it belongs to a scan, whose hits are not counted.
    fn next(&mut self) -> (u64, bool) {
        if self.is_scanned && self.rng.below(100) < SCANNED_PERCENT {
            self.next_scanned += 1;
            return (self.keys + self.next_scanned % (2 * self.keys), true);
        }
        (self.zipf.sample(&mut self.rng), false)
    }
}

fn hit_ratio(control: &mut Connection, draws: &mut Draws, requests: u64) -> anyhow::Result<f64> {
    let value = "v".repeat(VALUE_BYTES);
    let (mut asked, mut hits) = (0u64, 0u64);
    for batch in 0..requests / BATCH as u64 {
        let keys: Vec<(u64, bool)> = (0..BATCH).map(|_| draws.next()).collect();
        let name = |key: u64| format!("key:{key:012}");
        let gets: String =
            keys.iter().map(|(key, _)| format!("*2\r\n$3\r\nGET\r\n$16\r\n{}\r\n", name(*key))).collect();
        control.send(gets.as_bytes())?;
        let (mut sets, mut missing) = (String::new(), 0);
        for (key, is_scan) in &keys {
            let is_hit = match control.reply()? {
                Value::Bulk(value) => value.is_some(),
                other => bail!("GET was answered with {other:?}"),
            };
            if batch * BATCH as u64 >= requests / WARMING_PART && !is_scan {
                asked += 1;
                hits += u64::from(is_hit);
            }
            if !is_hit {
                let key = name(*key);
                sets += &format!("*3\r\n$3\r\nSET\r\n$16\r\n{key}\r\n${VALUE_BYTES}\r\n{value}\r\n");
                missing += 1;
            }
        }
        control.send(sets.as_bytes())?;
        if control.skip(missing)? > 0 {
            bail!("a SET was refused");
        }
    }
    Ok(hits as f64 / asked.max(1) as f64)
}

/// Adds the worst ratio of hits.
pub fn figures(found: &EvictionResults, report: &mut Report) {
    let ratio = |result: &LoadResult| result.hits[0].1 / of_peer(&result.hits);
    let Some(worst) = found.iter().min_by(|a, b| ratio(a).total_cmp(&ratio(b))) else { return };
    let higher = BetterDirection::Higher;
    report.results.push(
        Figure::new("eviction_hit_ratio_vs_redis", ratio(worst), "x", higher)
            .goal(1.0)
            .note(format!("the worst of {} loads: {}", found.len(), worst.name))
            .bound("every request a hit", 1.0 / of_peer(&worst.hits)),
    );
    for result in found {
        let mut figure = Figure::new(format!("{}_hit_ratio", result.name), ratio(result), "x", higher);
        for (name, hits) in &result.hits {
            figure = figure.peer(name, *hits);
        }
        let bytes: Vec<String> =
            result.process_bytes.iter().map(|(name, bytes)| format!("{name} {:.0} MiB", bytes / 1048576.0)).collect();
        report.info.push(figure.note(format!("processes: {}", bytes.join(", "))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_ask_for_keys_that_the_skewed_load_never_asks_for() {
        let mut draws = Draws::new(1000, true);
        let all: Vec<(u64, bool)> = (0..10_000).map(|_| draws.next()).collect();
        assert!(all.iter().all(|(key, is_scan)| *is_scan == (*key >= 1000)));
        let scanned = all.iter().filter(|(_, is_scan)| *is_scan).count();
        assert!((2500..3500).contains(&scanned), "{scanned}");
        assert!((0..1000).map(|_| Draws::new(1000, false).next()).all(|(_, is_scan)| !is_scan));
    }
}
