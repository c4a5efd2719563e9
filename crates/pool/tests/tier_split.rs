//! A budget that both tiers share: it moves to the better side, is never exceeded, and no page is lost by that.
//!
//! Relies on the thread that looks four times a second; the tests go on until it has moved memory, or for very many uses of pages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quire_device::{Directory, DiskModel, MemoryDirectory, ThrottledDirectory};
use quire_pool::{
    Map, MapOptions, PageNo, Pool, PoolConfig, TierCompression, TierConfig, TierSize, TransparentMap, WritebackHooks,
};
use quire_rng::SplitMix64;

use crate::common::{PAGE, number, numbered, plain_map, put_number, seal, sealed, small_config};

const BUDGET_PAGES: u64 = 1024;
/// Uses after which a division that hasn't moved will not.
const MOST_USES: u64 = 3_000_000;

/// A pool whose tiers share its budget, over a device that takes so long for a transfer, and the values of the file's pages.
fn divided(pages: u64, compression: TierCompression, latency_ns: u64) -> (Arc<Pool>, Map, Vec<u64>) {
    let memory: Arc<dyn Directory> = Arc::new(MemoryDirectory::with_file("pages", &vec![0; pages as usize * PAGE]));
    let slow = ThrottledDirectory::new(memory, DiskModel { latency_ns, ..DiskModel::default() });
    let tier = TierConfig { size: TierSize::Auto, compression, is_adaptive: false, ..TierConfig::default() };
    let pool = Pool::new(PoolConfig { tier, ..small_config(BUDGET_PAGES as usize) }).unwrap();
    let map = plain_map(&pool, slow.open_to_write("pages").unwrap());
    let values = (0..pages).map(|page| page + 1).collect();
    (0..pages).for_each(|page| fill(&map, page, page + 1));
    map.sync().unwrap();
    assert!(pool.evict(usize::MAX) > 0);
    await_second_tier(&pool);
    (pool, map, values)
}

/// The second tier gets its part soon after the first page was evicted.
fn await_second_tier(pool: &Pool) {
    let begun = Instant::now();
    while pool.tier_limit_bytes() == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", pool.stats());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Half a page of noise, half of nothing, sealed.
fn fill(map: &Map, page: u64, value: u64) {
    let mut guard = map.overwrite(PageNo(page)).unwrap();
    let mut rng = SplitMix64::new(value);
    guard.fill(0);
    guard[..PAGE / 2].chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&rng.next_u64().to_le_bytes()));
    seal(&mut guard, value);
}

/// What the tiers hold together, in bytes; nothing if memory moved meanwhile.
fn held(pool: &Pool) -> Option<u64> {
    let before = pool.stats().budget_pages;
    let bytes = pool.stats().resident_pages * PAGE as u64 + pool.tier_stats().held_bytes;
    (pool.stats().budget_pages == before).then_some(bytes)
}

/// Uses pages at random, one in 16 to change it, until `is_done`.
fn work(pool: &Pool, map: &Map, values: &mut [u64], is_done: impl Fn(u64) -> bool) -> bool {
    let mut rng = SplitMix64::new(5);
    (0..MOST_USES).any(|use_| {
        let page = rng.below(values.len() as u64);
        let value = &mut values[page as usize];
        if use_ % 16 == 0 {
            *value += 1_000_000;
            fill(map, page, *value);
        } else {
            assert_eq!(sealed(&map.read(PageNo(page)).unwrap()), Some(*value), "page {page}");
        }
        if use_ % 1000 == 0 {
            assert!(held(pool).is_none_or(|bytes| bytes <= BUDGET_PAGES * PAGE as u64), "{:?}", pool.tier_stats());
        }
        is_done(pool.stats().budget_pages)
    })
}

fn check(map: &Map, values: &[u64]) {
    for (page, value) in values.iter().enumerate() {
        assert_eq!(sealed(&map.read(PageNo(page as u64)).unwrap()), Some(*value), "page {page}");
    }
}

#[test]
fn as_long_as_all_pages_fit_the_budget_the_first_tier_has_all_of_it() {
    let tier = TierConfig { size: TierSize::Auto, ..TierConfig::default() };
    let pool = Pool::new(PoolConfig { tier, ..small_config(BUDGET_PAGES as usize) }).unwrap();
    let map = plain_map(&pool, numbered(2 * BUDGET_PAGES).1);
    let read = |pages| (0..pages).for_each(|page| assert_eq!(number(&map, page), page));
    // Longer than the time between two looks.
    for _ in 0..6 {
        read(BUDGET_PAGES);
        std::thread::sleep(Duration::from_millis(50));
    }
    let stats = pool.stats();
    assert_eq!((stats.budget_pages, stats.misses, stats.evicted), (BUDGET_PAGES, BUDGET_PAGES, 0));
    read(2 * BUDGET_PAGES);
    await_second_tier(&pool);
    assert!(pool.stats().budget_pages < BUDGET_PAGES);
    assert_eq!(pool.budget_bytes(), BUDGET_PAGES as usize * PAGE);
}

#[test]
fn half_of_the_budget_is_the_second_tier_s_at_first() {
    let (pool, _map, _) = divided(64, TierCompression::Lz4, 0);
    let (first, tier) = (pool.stats().budget_pages, pool.tier_stats());
    // In whole segments, of which there are 18.
    assert!((BUDGET_PAGES / 2..BUDGET_PAGES * 9 / 16).contains(&first), "{first}");
    let most = (BUDGET_PAGES - first) * PAGE as u64;
    assert_eq!(tier.limit_bytes, most);
    pool.shrink_tier(usize::MAX);
    assert!(pool.tier_stats().limit_bytes <= most, "it never has more than its part");
}

/// A pool whose misses wait a moment for memory, and a map of as many pages as both tiers have.
fn impatient(gate: Option<WritebackHooks>) -> (Arc<Pool>, Map) {
    let tier = TierConfig { size: TierSize::Auto, ..TierConfig::default() };
    let config = PoolConfig { tier, gate, miss_timeout_ms: 1, ..small_config(BUDGET_PAGES as usize) };
    let pool = Pool::new(config).unwrap();
    let map = plain_map(&pool, numbered(BUDGET_PAGES).1);
    assert_eq!(number(&map, 0), 0);
    assert!(pool.evict(usize::MAX) > 0);
    await_second_tier(&pool);
    (pool, map)
}

#[test]
fn guards_can_hold_as_many_pages_as_both_tiers_have() {
    let (pool, map) = impatient(None);
    let guards: Vec<_> = (0..BUDGET_PAGES).map(|page| map.read(PageNo(page)).unwrap()).collect();
    assert_eq!((pool.stats().budget_pages, pool.tier_stats().held_bytes), (BUDGET_PAGES, 0));
    drop(guards);
}

#[test]
fn pages_that_may_not_be_written_can_be_as_many_as_both_tiers_have() {
    let (pool, map) = impatient(Some(WritebackHooks { enter: || false, leave: || () }));
    (0..BUDGET_PAGES).for_each(|page| put_number(&map, page, page + 1));
    assert_eq!((pool.stats().dirty_pages, pool.tier_stats().held_bytes), (BUDGET_PAGES, 0));
    assert!((0..BUDGET_PAGES).all(|page| number(&map, page) == page + 1));
}

#[test]
fn a_transparent_map_has_dirty_pages_in_as_much_as_both_tiers_have() {
    let tier = TierConfig { size: TierSize::Auto, ..TierConfig::default() };
    let gate = Some(WritebackHooks { enter: || false, leave: || () });
    let pool = Pool::new(PoolConfig { tier, gate, ..small_config(BUDGET_PAGES as usize) }).unwrap();
    let options = MapOptions { read_ahead_pages: 0, ..MapOptions::default() };
    let map = match TransparentMap::new(&pool, numbered(BUDGET_PAGES).1, options) {
        Ok(map) => map,
        Err(error) => return quire_sys::testing::skipped(error),
    };
    let most = BUDGET_PAGES as usize * 7 / 8;
    let other = plain_map(&pool, numbered(1).1);
    assert_eq!(number(&other, 0), 0);
    assert!(pool.evict(usize::MAX) > 0);
    await_second_tier(&pool);
    for word in map.words().iter().step_by(PAGE / 8).take(most) {
        word.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    assert!(pool.stats().budget_pages >= most as u64);
}

#[test]
fn pools_of_all_small_sizes_serve_their_pages() {
    for pages in 4..80 {
        let tier = TierConfig { size: TierSize::Auto, is_adaptive: false, ..TierConfig::default() };
        let pool = Pool::new(PoolConfig { tier, ..small_config(pages) }).unwrap();
        let map = plain_map(&pool, numbered(100).1);
        for page in (0..98).chain(0..98) {
            let _held = [page, page + 1, page + 2].map(|page| map.read(PageNo(page)).unwrap());
            assert_eq!(number(&map, page), page, "a pool of {pages} pages");
        }
    }
}

#[test]
fn memory_goes_to_the_first_tier_where_the_second_can_hold_no_more_pages_in_it() {
    let (pool, map, mut values) = divided(900, TierCompression::None, 0);
    let has_moved = work(&pool, &map, &mut values, |first| first >= BUDGET_PAGES * 3 / 4);
    assert!(has_moved, "{:?} {:?}", pool.stats().paths, pool.tier_stats());
    assert!(pool.tier_stats().limit_bytes <= BUDGET_PAGES / 4 * PAGE as u64);
    check(&map, &values);
}

#[test]
fn memory_goes_to_the_second_tier_where_it_spares_reads_of_a_slow_device() {
    let (pool, map, mut values) = divided(2400, TierCompression::Lz4, 200_000);
    let has_moved = work(&pool, &map, &mut values, |first| first <= BUDGET_PAGES * 3 / 8);
    assert!(has_moved, "{:?} {:?}", pool.stats().paths, pool.tier_stats());
    check(&map, &values);
}
