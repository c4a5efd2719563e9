//! What a hit costs, by read guard, by optimistic read and by write guard, and what the pool adds to a miss, in nanoseconds.
//!
//! Run with `cargo run --release -p quire-pool --example hit`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use quire_device::{Directory, MemoryDirectory, NullDevice, ReadPattern};
use quire_pool::{Map, MapOptions, PageNo, Pool, PoolConfig};

const PAGES: u64 = 1024;
const ROUNDS: u64 = 20_000_000;

/// Nanoseconds of one `use_page`, the best of a few rounds.
fn cost_ns(name: &str, use_page: impl Fn(PageNo)) {
    let mut best = f64::MAX;
    for _ in 0..5 {
        let begun = Instant::now();
        for step in 0..ROUNDS / 5 {
            use_page(PageNo(step.wrapping_mul(7919) % PAGES));
        }
        best = best.min(begun.elapsed().as_nanos() as f64 / (ROUNDS / 5) as f64);
    }
    println!("{name:>12}: {best:.1} ns");
}

fn main() {
    let memory = MemoryDirectory::with_file("hit", &vec![1; PAGES as usize * 4096]);
    let pool = Pool::new(PoolConfig { budget_bytes: 64 << 20, ..PoolConfig::default() }).expect("a pool");
    let device = memory.open("hit").expect("the file");
    let map: Map = pool.map(Arc::clone(&device), MapOptions::default()).expect("a map");
    (0..PAGES).for_each(|page| drop(map.write(PageNo(page)).expect("a page")));
    cost_ns("nothing", |page| {
        black_box(page);
    });
    cost_ns("read guard", |page| {
        black_box(map.read(page).expect("a page")[8]);
    });
    cost_ns("optimistic", |page| {
        black_box(map.optimistic_read(page, |view| view.u64(8)).expect("a page"));
    });
    cost_ns("write guard", |page| {
        map.write(page).expect("a page")[8] = 1;
    });
    println!("{} hits counted", pool.stats().hits);
    (1..=2).for_each(miss_cost);
}

/// Random pages of a file eight times the pool, on a device that takes no time but fills in eight bytes a page, so that
/// memory is taken and given back.
fn miss_cost(threads: u64) {
    const FILE_PAGES: u64 = 1 << 17;
    const MISSES: u64 = 400_000;
    let budget_bytes = (FILE_PAGES as usize / 8) * 4096;
    let pool = Pool::new(PoolConfig { budget_bytes, ..PoolConfig::default() }).expect("a pool");
    let device = Arc::new(NullDevice::new(FILE_PAGES * 4096, ReadPattern::Offsets));
    let map = pool.map(device, MapOptions { read_ahead_pages: 0, ..MapOptions::default() }).expect("a map");
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let map = &map;
            scope.spawn(move || {
                for step in 0..MISSES {
                    let page = (step + thread * MISSES).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 30;
                    black_box(map.read(PageNo(page % FILE_PAGES)).expect("a page")[0]);
                }
            });
        }
    });
    let misses = pool.stats().misses;
    let per_miss = begun.elapsed().as_nanos() as f64 * threads as f64 / misses as f64;
    println!("{threads} threads: {per_miss:.0} ns of a thread for a miss, {misses} misses");
}
