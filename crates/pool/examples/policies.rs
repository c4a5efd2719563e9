//! Compares eviction policies on traces: hit ratios as a table for docs/design/pool.md.
//!
//! Run with `cargo run --release -p quire-pool --example policies`.

use quire_pool::evict::{PolicyKind, replay, traces};

const PAGES: usize = 100_000;
const LEN: usize = 2_000_000;

fn main() {
    let all: Vec<(&str, Vec<u64>)> = vec![
        ("zipf 0.7", traces::zipf(PAGES, 0.7, LEN, 1)),
        ("zipf 0.9", traces::zipf(PAGES, 0.9, LEN, 2)),
        ("zipf 1.1", traces::zipf(PAGES, 1.1, LEN, 3)),
        ("zipf 0.9 and scans (20 % of touches)", traces::scanned(PAGES, 0.9, LEN, 20_000, 80_000, 4)),
        ("zipf 0.9 and scans (50 % of touches)", traces::scanned(PAGES, 0.9, LEN, 20_000, 20_000, 5)),
        ("loop over 1.25 × memory", traces::cycle(12_500, LEN)),
        ("loop over 4 × memory", traces::cycle(40_000, LEN)),
        ("zipf 1.0, shifting every 200,000", traces::shifting(PAGES, 1.0, LEN, 200_000, 6)),
    ];
    println!("| trace | S3-FIFO | CLOCK | LRU-2 |\n|---|---|---|---|");
    for (name, trace) in all {
        let ratio = |kind| 100.0 * replay(kind, PAGES / 10, 156, trace.iter().copied()).hit_ratio();
        println!(
            "| {name} | {:.1} | {:.1} | {:.1} |",
            ratio(PolicyKind::S3Fifo),
            ratio(PolicyKind::Clock),
            ratio(PolicyKind::Lru2)
        );
    }
}
