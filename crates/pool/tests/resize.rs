//! Sizes that change while the pool works: its budget, and its second tier's.
//!
//! Relies on pages of a file in memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quire_pool::{Map, PageNo, Pool, PoolConfig, PoolError, TierConfig, TierSize};

use crate::common::{self, PAGE, number, numbered, plain_map, put_number, small_config, tier};

const PAGES: u64 = 256;

fn read_all(map: &Map) {
    (0..PAGES).for_each(|page| assert_eq!(number(map, page), page));
}

/// A pool for all pages without a second tier, and a map with all of them in memory.
fn full() -> (Arc<Pool>, Map) {
    let pool = Pool::new(small_config(PAGES as usize)).unwrap();
    let map = plain_map(&pool, numbered(PAGES).1);
    read_all(&map);
    (pool, map)
}

#[test]
fn a_budget_that_shrinks_is_kept_at_once_and_one_that_grows_is_used() {
    let (pool, map) = full();
    assert_eq!(map.resident_pages(), PAGES as usize);
    assert_eq!(pool.set_budget(40 * PAGE).unwrap(), 40 * PAGE);
    assert_eq!((pool.budget_bytes(), pool.stats().budget_pages), (40 * PAGE, 40));
    assert!(map.resident_pages() <= 40);
    read_all(&map);
    assert!(map.resident_pages() <= 40);
    assert_eq!(pool.set_budget(2 * PAGES as usize * PAGE).unwrap(), 2 * PAGES as usize * PAGE);
    read_all(&map);
    assert_eq!(map.resident_pages(), PAGES as usize);
    let before = pool.stats().misses;
    read_all(&map);
    assert_eq!(pool.stats().misses, before);
}

#[test]
fn pages_that_are_held_or_dirty_stay_when_the_budget_shrinks() {
    let (pool, map) = full();
    let guards: Vec<_> = (0..30).map(|page| map.read(PageNo(page)).unwrap()).collect();
    (30..50).for_each(|page| put_number(&map, page, 7));
    assert_eq!(pool.set_budget(10 * PAGE).unwrap(), 50 * PAGE);
    drop(guards);
    map.sync().unwrap();
    assert_eq!(pool.set_budget(10 * PAGE).unwrap(), 10 * PAGE);
    assert!((30..50).all(|page| number(&map, page) == 7));
}

#[test]
fn leases_pin_their_part_of_a_budget_that_shrinks_and_grows_again() {
    let (pool, map) = full();
    let limit = || pool.stats().leases.limit_pages;
    let made = limit();
    assert_eq!(made, PAGES / 4);
    pool.set_budget(40 * PAGE).unwrap();
    assert_eq!(limit(), 10);
    let held: Vec<_> = (0..10).map(|page| map.try_lease(page * PAGE as u64, PAGE).unwrap()).collect();
    assert!(matches!(map.try_lease(10 * PAGE as u64, PAGE), Err(PoolError::LeaseLimit { limit_pages: 10, .. })));
    assert_eq!(pool.set_budget(20 * PAGE).unwrap(), 40 * PAGE, "of which what is leased is a quarter");
    assert_eq!(limit(), 10, "what is leased stays so");
    read_all(&map);
    drop(held);
    pool.set_budget(20 * PAGE).unwrap();
    assert_eq!(limit(), 5);
    pool.set_budget(2 * PAGES as usize * PAGE).unwrap();
    assert_eq!(limit(), made, "each map has frames for as many");
    assert_eq!(pool.stats().leases.pinned_pages, 0);
}

#[test]
fn a_budget_of_less_than_four_pages_is_refused_and_one_of_four_serves() {
    let (pool, map) = full();
    assert!(matches!(pool.set_budget(4 * PAGE - 1), Err(PoolError::Config(_))));
    assert_eq!(pool.set_budget(4 * PAGE).unwrap(), 4 * PAGE);
    read_all(&map);
}

#[test]
fn a_pool_without_a_second_tier_gets_one_and_loses_it_again() {
    let pool = Pool::new(small_config(512)).unwrap();
    let map = plain_map(&pool, numbered(PAGES).1);
    read_all(&map);
    assert_eq!((pool.set_tier(TierSize::Off).unwrap(), pool.tier_limit_bytes()), (0, 0));
    pool.evict(usize::MAX);
    assert_eq!(pool.stats().paths.evict_clean, 0);
    let limit = pool.set_tier(TierSize::Bytes(4 * PAGES as usize * PAGE)).unwrap();
    assert!(limit > 0 && limit <= 4 * PAGES as usize * PAGE, "{limit}");
    // Pages whose last eviction was before there was a tier come from the device.
    read_all(&map);
    pool.evict(usize::MAX);
    let before = pool.stats().paths;
    read_all(&map);
    let after = pool.stats().paths;
    assert_eq!((after.read_tier - before.read_tier, after.read_direct - before.read_direct), (PAGES, 0));
    assert_eq!(pool.set_tier(TierSize::Off).unwrap(), 0);
    assert_eq!((pool.tier_stats().held_bytes, pool.tier_stats().entries), (0, 0));
    pool.evict(usize::MAX);
    read_all(&map);
    assert_eq!(pool.stats().paths.read_tier, after.read_tier);
    assert!(pool.set_tier(TierSize::Percent(200)).unwrap() > 0, "it grows again");
}

#[test]
fn a_second_tier_grows_no_larger_than_it_was_made_for() {
    let pool = Pool::new(PoolConfig { tier: tier(256), ..small_config(64) }).unwrap();
    let capacity = pool.tier_stats().capacity_bytes as usize;
    assert!(pool.set_tier(TierSize::Bytes(64 * PAGE)).unwrap() <= 64 * PAGE);
    assert!(pool.set_tier(TierSize::Bytes(usize::MAX)).unwrap() <= capacity);
}

#[test]
fn a_share_is_of_the_budget_as_it_is_when_it_is_given() {
    let pool = Pool::new(PoolConfig { tier: tier(4 * 1024), ..small_config(1024) }).unwrap();
    let half = pool.set_tier(TierSize::Percent(50)).unwrap();
    assert!(0 < half && half <= 512 * PAGE, "{half}");
    pool.set_budget(256 * PAGE).unwrap();
    assert_eq!(pool.tier_limit_bytes(), half);
    assert!(pool.set_tier(TierSize::Percent(50)).unwrap() <= 128 * PAGE);
}

/// What both tiers hold or may hold, in bytes; nothing if memory moved meanwhile.
fn together(pool: &Pool) -> Option<usize> {
    let first = pool.stats().budget_pages as usize * PAGE;
    let second = pool.tier_limit_bytes();
    (pool.stats().budget_pages as usize * PAGE == first).then_some(first + second)
}

#[test]
fn a_budget_that_both_tiers_share_gets_another_size_and_stays_undivided_if_it_is_small() {
    let tier = TierConfig { size: TierSize::Auto, is_adaptive: false, ..TierConfig::default() };
    for pages in [8, 1024] {
        let pool = Pool::new(PoolConfig { tier, ..small_config(pages) }).unwrap();
        let map = plain_map(&pool, numbered(2048).1);
        let read_many = || (0..2048).for_each(|page| assert_eq!(number(&map, page), page));
        for size in [pages, 100, 2000, 4, 37, 600, 1] {
            match pool.set_budget(size * PAGE) {
                Err(PoolError::Config(_)) if size < 4 => continue,
                set => assert_eq!(set.unwrap(), size * PAGE),
            }
            assert_eq!(pool.budget_bytes(), size * PAGE);
            for _ in 0..3 {
                read_many();
                assert!(
                    together(&pool).is_none_or(|bytes| bytes <= size * PAGE),
                    "{size} pages: {:?}",
                    pool.tier_stats()
                );
            }
        }
        assert_eq!(pool.tier_stats().capacity_bytes > 0, pages == 1024);
    }
}

#[test]
fn a_tier_goes_into_the_budget_and_out_of_it_again() {
    let pool = Pool::new(PoolConfig { tier: tier(512), ..small_config(512) }).unwrap();
    let map = plain_map(&pool, numbered(1024).1);
    let read_many = || (0..1024).for_each(|page| assert_eq!(number(&map, page), page));
    for _ in 0..3 {
        let begun = Instant::now();
        // The thread that gives the tier its size may come late.
        while pool.tier_stats().entries == 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", pool.stats());
            read_many();
        }
        assert_eq!(pool.stats().budget_pages, 512, "the tier lies beside the budget");
        assert_eq!(pool.set_tier(TierSize::Auto).unwrap(), 0);
        assert_eq!((pool.tier_stats().held_bytes, pool.budget_bytes()), (0, 512 * PAGE));
        let begun = Instant::now();
        while pool.tier_limit_bytes() == 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", pool.stats());
            read_many();
        }
        assert!(pool.set_tier(TierSize::Auto).unwrap() > 0, "it is so already");
        assert!(pool.stats().budget_pages < 512);
        read_many();
        assert!(pool.set_tier(TierSize::Bytes(512 * PAGE)).unwrap() <= 512 * PAGE);
        assert_eq!(pool.stats().budget_pages, 512);
    }
    assert_eq!(pool.set_tier(TierSize::Off).unwrap(), 0);
    read_many();
    assert_eq!(pool.tier_stats().held_bytes, 0);
}

#[test]
fn sizes_change_while_threads_read_and_no_page_is_lost() {
    let pool = Pool::new(PoolConfig { tier: tier(64), ..small_config(64) }).unwrap();
    let map = plain_map(&pool, numbered(PAGES).1);
    let stop = common::Stop::default();
    std::thread::scope(|threads| {
        let _stop = stop.later();
        for _ in 0..2 {
            threads.spawn(|| {
                while !stop.is_set() {
                    read_all(&map);
                }
            });
        }
        for step in 0..200 {
            pool.set_budget((4 + step * 7 % 100) * PAGE).unwrap();
            let bytes = step * 13 % 64 * PAGE;
            pool.set_tier(if step % 3 == 0 { TierSize::Auto } else { TierSize::Bytes(bytes) }).unwrap();
            std::thread::yield_now();
        }
    });
    pool.set_tier(TierSize::Off).unwrap();
    pool.set_budget(20 * PAGE).unwrap();
    assert!(map.resident_pages() <= 20);
}
