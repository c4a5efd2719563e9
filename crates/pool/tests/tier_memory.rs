//! The memory that a second tier takes by being made: next to none, and none where all memory is locked.
//!
//! Relies on `/proc/self/statm`, and on this program being run again for each test, so that no other one takes memory meanwhile.

#[allow(dead_code, reason = "the other tests use other parts of it")]
mod common;

use std::process::Command;
use std::time::{Duration, Instant};

use common::{number, numbered, plain_map, small_config};
use quire_pool::{PageNo, Pool, PoolConfig, TierCompression, TierConfig, TierSize};
use quire_sys::deny::{SyscallFilter, calls, deny};

const INSIDE: &str = "QUIRE_TEST_TIER_MEMORY";
const MIB: usize = 1 << 20;

/// Runs `test` of this program by itself, and returns what it printed.
fn run(test: &str) -> String {
    let ended = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned() + &String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{:?}: {said}", ended.status);
    said
}

fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Bytes of this process that are in memory.
fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn config(tier_bytes: usize) -> PoolConfig {
    let tier = TierConfig { size: TierSize::Bytes(tier_bytes), is_adaptive: false, ..TierConfig::default() };
    PoolConfig { tier, ..small_config(64) }
}

#[test]
fn a_tier_takes_no_memory_before_it_is_used() {
    assert!(run("make_a_large_tier").contains("made"));
}

#[test]
fn make_a_large_tier() {
    if !is_inside() {
        return;
    }
    let before = resident_bytes();
    let pool = Pool::new(config(4096 * MIB)).unwrap();
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 8 * MIB, "{grown} bytes for a tier of {} bytes", pool.tier_stats().capacity_bytes);
    println!("made");
}

#[test]
fn where_all_memory_is_locked_there_is_no_tier_and_its_memory_is_not_taken() {
    let said = run("make_a_tier_of_locked_memory");
    assert!(said.contains("made") || said.contains("skipped"), "{said}");
}

#[test]
fn make_a_tier_of_locked_memory() {
    if !is_inside() {
        return;
    }
    if let Err(error) = quire_sys::testing::lock_all_memory() {
        return quire_sys::testing::skipped(error);
    }
    let before = resident_bytes();
    let pool = Pool::new(config(64 * MIB)).unwrap();
    let grown = resident_bytes().saturating_sub(before);
    // Threads have stacks, which are locked as well.
    assert!(grown < 48 * MIB, "{grown} bytes");
    assert_eq!(pool.tier_stats().capacity_bytes, 0);
    let (_, device) = numbered(256);
    let map = plain_map(&pool, device);
    for page in 0..256 {
        assert_eq!(number(&map, page), page);
    }
    println!("made");
}

#[test]
fn a_tier_whose_memory_is_locked_later_gives_it_back_and_serves_nothing() {
    let said = run("lock_the_memory_of_a_tier");
    assert!(said.contains("made") || said.contains("skipped"), "{said}");
}

#[test]
fn lock_the_memory_of_a_tier() {
    if !is_inside() {
        return;
    }
    let PoolConfig { tier, .. } = config(64 * MIB);
    let tier = TierConfig { compression: TierCompression::None, ..tier };
    let pool = Pool::new(PoolConfig { tier, ..config(64 * MIB) }).unwrap();
    // 16 MiB, so that segments of 256 KiB are filled, and the kernel is to have them.
    let (_, device) = numbered(4096);
    let map = plain_map(&pool, device);
    (0..64).for_each(|page| assert_eq!(number(&map, page), page));
    pool.evict(usize::MAX);
    assert!(pool.tier_stats().entries > 0);
    if let Err(error) = quire_sys::testing::lock_all_memory() {
        return quire_sys::testing::skipped(error);
    }
    for _ in 0..2 {
        (0..4096).for_each(|page| assert_eq!(number(&map, page), page));
    }
    let tier = pool.tier_stats();
    assert_eq!((tier.entries, tier.held_bytes, tier.resident_bytes), (0, 0, 0));
    println!("made");
}

#[test]
fn what_the_kernel_does_not_take_back_of_a_tier_no_page_gets() {
    let said = run("keep_the_memory_of_a_tier");
    assert!(said.contains("made") || said.contains("skipped"), "{said}");
}

#[test]
fn keep_the_memory_of_a_tier() {
    if !is_inside() {
        return;
    }
    const BUDGET_PAGES: u64 = 4096;
    let tier = TierConfig { size: TierSize::Auto, compression: TierCompression::None, ..config(MIB).tier };
    let config = PoolConfig { tier, miss_timeout_ms: 1, ..small_config(BUDGET_PAGES as usize) };
    let pool = Pool::new(config).unwrap();
    let map = plain_map(&pool, numbered(2 * BUDGET_PAGES).1);
    let begun = Instant::now();
    // The second tier gets its part soon after the first page was evicted.
    while pool.tier_stats().resident_bytes == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", pool.stats());
        (0..2 * BUDGET_PAGES).for_each(|page| assert_eq!(number(&map, page), page));
    }
    // As for locked memory where the kernel knows no `MADV_DONTNEED_LOCKED`.
    const DONTNEED: [u32; 2] = [4, 24];
    for advice in DONTNEED {
        let denied = SyscallFilter { call: calls::SYS_madvise, argument: Some((2, advice)), errno: 22 };
        if let Err(error) = deny(denied) {
            return quire_sys::testing::skipped(error);
        }
    }
    let guards: Vec<_> = (0..BUDGET_PAGES).map_while(|page| map.read(PageNo(page)).ok()).collect();
    assert!(guards.len() < BUDGET_PAGES as usize);
    let (first_bytes, tier) = (pool.stats().budget_pages * 4096, pool.tier_stats());
    assert!(
        tier.resident_bytes > 0 && first_bytes + tier.resident_bytes <= BUDGET_PAGES * 4096,
        "{first_bytes} {tier:?}"
    );
    println!("made");
}
