//! Eviction policies on the traces of this very experiment: for information.
//!
//! Relies on the pool's own replay of a policy. Traces come from the same workloads over pages in memory: the draw of the
//! microbenchmark, the key-value loads, the search through a graph.

use std::path::Path;

use anyhow::Context;
use quire_pool::evict::{PolicyKind, replay, traces};

use super::bfs::{self, Bfs};
use super::graph::Graph;
use super::kv::tree::Tree;
use super::kv::ycsb::{self, Ycsb};
use super::pages::Counters;
use super::testbed::Testbed;
use super::traced_pages::TracedPages;
use crate::report::{BetterDirection, Figure};
use quire_rng::SplitMix64;
use quire_rng::zipf::{RankPermutation, Zipf};

/// Memory is an eighth of the pages, as in the microbenchmark; a batch is what the pool would choose.
const SHARE: u64 = 8;

struct Trace {
    name: &'static str,
    pages: u64,
    uses: Vec<u64>,
}

/// A line for each trace.
///
/// # Errors
/// The graph can't be written below `dir`.
pub fn compare(dir: &Path, quick: bool) -> anyhow::Result<Vec<Figure>> {
    let uses = if quick { 200_000 } else { 2_000_000 };
    let all = [zipf(uses), scanned(uses), key_values(if quick { 5000 } else { 40_000 })?, search(dir, quick)?];
    Ok(all.iter().map(line).collect())
}

fn line(trace: &Trace) -> Figure {
    let capacity = (trace.pages / SHARE).max(8) as usize;
    let ratio = |kind| replay(kind, capacity, (capacity / 64).clamp(1, 512), trace.uses.iter().copied()).hit_ratio();
    Figure::new(format!("hit_ratio_{}", trace.name), ratio(PolicyKind::S3Fifo), "of 1", BetterDirection::Higher)
        .peer("clock", ratio(PolicyKind::Clock))
        .peer("lru2", ratio(PolicyKind::Lru2))
        .peer("pages", trace.pages as f64)
        .peer("uses", trace.uses.len() as f64)
}

fn zipf(uses: usize) -> Trace {
    let pages = 1 << 16;
    let (zipf, scatter, mut rng) = (Zipf::new(pages, 0.99), RankPermutation::new(pages, 1), SplitMix64::new(1));
    let uses = (0..uses).map(|_| scatter.key(zipf.sample(&mut rng))).collect();
    Trace { name: "zipf", pages, uses }
}

fn scanned(uses: usize) -> Trace {
    let pages = 1 << 16;
    Trace { name: "zipf_and_scans", pages, uses: traces::scanned(pages as usize, 0.99, uses, 10_000, 40_000, 2) }
}

fn key_values(records: u64) -> anyhow::Result<Trace> {
    let ycsb = Ycsb { records, threads: 1, run_ms: 100, seed: 1 };
    // Room for what the loads insert in their time, too.
    let count = records * 2 + 100 * ycsb.run_ms;
    let pages = TracedPages::new(count);
    let nowhere = Testbed { kind: super::testbed::DeviceKind::Disk, path: "nowhere".into(), pages: count };
    let used = {
        let tree = Tree::new(&pages, 4, count)?;
        ycsb::run(&tree, &ycsb, &nowhere, &Counters::new)?;
        tree.used_pages()
    };
    Ok(Trace { name: "ycsb", pages: used, uses: pages.into_trace() })
}

fn search(dir: &Path, quick: bool) -> anyhow::Result<Trace> {
    let path = dir.join("policies-graph");
    let (graph, testbed) = Graph::write(&path, if quick { 14 } else { 18 }, 1)?;
    let pages = TracedPages::of_bytes(&std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?);
    std::fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
    bfs::run(&pages, &Bfs { graph, threads: 1 }, &testbed)?;
    Ok(Trace { name: "bfs", pages: testbed.pages, uses: pages.into_trace() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trace_has_a_line_and_ratios_are_ratios() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let lines =
            [zipf(20_000), key_values(600).unwrap(), search(dir.path(), true).unwrap()].map(|trace| line(&trace));
        for figure in lines {
            assert!((0.0..=1.0).contains(&figure.value) && figure.peer["uses"].as_f64() > Some(1000.0), "{figure:?}");
        }
    }
}
