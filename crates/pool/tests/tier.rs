//! The second tier: what comes from it, what never does, and what is left when its memory goes.

use std::sync::Arc;

use quire_device::{Device, Direction, Directory, Extent, Transfer};
use quire_pool::{Map, MapOptions, PageNo, Pool, PoolConfig, PoolStats, TransparentMap};
use quire_rng::SplitMix64;
use quire_sys::buffer::Buffer;

use crate::common::{PAGE, number, numbered, plain_map, put_number, small_config, tier};

const PAGES: u64 = 64;

/// Puts another number at the start of a page of the file, past the pool. Returns the page's bytes.
fn rewrite(elsewhere: &dyn Device, page: u64, value: u64) -> [u8; PAGE] {
    let mut buffer = Buffer::new(PAGE).unwrap();
    buffer[..8].copy_from_slice(&value.to_le_bytes());
    let bytes = buffer[..PAGE].try_into().unwrap();
    let extents = vec![Extent { offset: page * PAGE as u64, start: 0, len: PAGE }];
    elsewhere.run(&mut Transfer { direction: Direction::Write, buffer, extents, tag: 0 }).unwrap();
    bytes
}

/// A pool for all pages of the file beside a second tier for all of them, and a map.
fn tiered() -> (Arc<Pool>, Arc<dyn Device>, Map) {
    let (_, device) = numbered(PAGES);
    let pool = Pool::new(PoolConfig { tier: tier(4 * PAGES as usize), ..small_config(2 * PAGES as usize) }).unwrap();
    let map = plain_map(&pool, Arc::clone(&device));
    (pool, device, map)
}

fn read_all(map: &Map) {
    (0..PAGES).for_each(|page| assert_eq!(number(map, page), page));
}

/// The figures now, and the pages that were read from the device since `before`.
fn since(pool: &Pool, before: &PoolStats) -> (PoolStats, u64) {
    let now = pool.stats();
    let direct = now.paths.read_direct - before.paths.read_direct;
    (now, direct)
}

#[test]
fn victims_come_back_without_a_read_again_and_again() {
    let (pool, _, map) = tiered();
    read_all(&map);
    assert_eq!(pool.evict(usize::MAX), PAGES as usize);
    let (before, tier) = (pool.stats(), pool.tier_stats());
    assert_eq!((before.paths.evict_clean, tier.entries, tier.promoted_entries), (PAGES, PAGES, 0));
    read_all(&map);
    let (now, direct) = since(&pool, &before);
    assert_eq!((direct, now.paths.read_tier, pool.tier_stats().promoted_entries), (0, PAGES, PAGES));
    // Unchanged, they need not be copied again.
    pool.evict(usize::MAX);
    read_all(&map);
    let (now, direct) = since(&pool, &before);
    assert_eq!((direct, now.paths.read_tier), (0, 2 * PAGES));
    assert!(now.paths.evict_kept > 0);
    assert_eq!(now.paths.evict_kept + now.paths.evict_clean, 2 * PAGES);
}

#[test]
fn a_page_that_was_changed_since_comes_back_changed() {
    let (pool, _, map) = tiered();
    read_all(&map);
    pool.evict(usize::MAX);
    put_number(&map, 7, 700);
    map.sync().unwrap();
    pool.evict(usize::MAX);
    assert_eq!(number(&map, 7), 700);
    // Overwritten, the page was not even asked for.
    pool.evict(usize::MAX);
    map.overwrite(PageNo(7)).unwrap().fill(9);
    map.sync().unwrap();
    pool.evict(usize::MAX);
    assert_eq!(map.read(PageNo(7)).unwrap()[..], [9; PAGE]);
    assert_eq!(pool.stats().paths.write_direct, 2);
}

#[test]
fn memory_that_the_kernel_took_is_noticed_and_read_from_the_device() {
    let (pool, _, map) = tiered();
    for one_in in [1, 2] {
        read_all(&map);
        pool.evict(usize::MAX);
        let before = pool.stats();
        assert!(pool.take_back_tier_memory(one_in, one_in) > 0);
        read_all(&map);
        let (now, direct) = since(&pool, &before);
        let reclaimed = now.paths.tier_reclaimed - before.paths.tier_reclaimed;
        assert_eq!(reclaimed, direct);
        assert!(direct > 0);
    }
}

#[test]
fn a_tier_that_shrinks_gives_memory_back_and_grows_again() {
    let (pool, _, map) = tiered();
    read_all(&map);
    pool.evict(usize::MAX);
    assert!(pool.tier_stats().held_bytes > 0);
    pool.shrink_tier(0);
    let tier = pool.tier_stats();
    assert_eq!((tier.held_bytes, tier.entries, tier.resident_bytes), (0, 0, 0));
    read_all(&map);
    // The tier is fitted to the memory that there is every now and then.
    for _ in 0.. {
        pool.evict(usize::MAX);
        if pool.tier_stats().entries > 0 {
            break;
        }
        read_all(&map);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    read_all(&map);
}

#[test]
fn what_does_not_compress_is_stored_as_it_is() {
    let (pool, _, map) = tiered();
    let mut rng = SplitMix64::new(5);
    let pages: Vec<Vec<u8>> = (0..PAGES)
        .map(|page| {
            let bytes: Vec<u8> = (0..PAGE).map(|_| rng.next_u64() as u8).collect();
            map.overwrite(PageNo(page)).unwrap().copy_from_slice(&bytes);
            bytes
        })
        .collect();
    map.sync().unwrap();
    pool.evict(usize::MAX);
    let (before, tier) = (pool.stats(), pool.tier_stats());
    assert_eq!((tier.raw_entries, tier.stored_bytes), (PAGES, PAGES * PAGE as u64));
    for (page, bytes) in pages.iter().enumerate() {
        assert_eq!(map.read(PageNo(page as u64)).unwrap()[..], bytes[..]);
    }
    assert_eq!(since(&pool, &before).1, 0);
}

#[test]
fn pages_that_are_read_ahead_come_from_the_tier() {
    let (pool, _, map) = tiered();
    read_all(&map);
    pool.evict(usize::MAX);
    let before = pool.stats();
    let pages: Vec<PageNo> = (0..PAGES).map(PageNo).collect();
    assert_eq!(map.prefetch(&pages), 0, "none had to be asked of the device");
    assert_eq!(map.resident_pages(), PAGES as usize);
    read_all(&map);
    let (now, direct) = since(&pool, &before);
    assert_eq!((direct, now.paths.read_tier, now.misses), (0, PAGES, before.misses));
    // With half of the memory gone, the rest is read.
    pool.evict(usize::MAX);
    pool.take_back_tier_memory(3, 2);
    map.prefetch(&pages);
    read_all(&map);
}

#[test]
fn a_map_of_the_same_file_later_does_not_see_the_pages_of_the_map_before() {
    let (pool, device, map) = tiered();
    read_all(&map);
    pool.evict(usize::MAX);
    drop(map);
    let (_, other) = numbered(PAGES);
    let changed = plain_map(&pool, other);
    put_number(&changed, 3, 33);
    let again = plain_map(&pool, device);
    assert_eq!((number(&changed, 3), number(&again, 3)), (33, 3));
    assert_eq!(pool.stats().paths.read_tier, 0);
}

#[test]
fn what_the_tier_holds_is_told_to_prometheus() {
    let (pool, _, map) = tiered();
    read_all(&map);
    pool.evict(usize::MAX);
    let (stats, tier) = (pool.stats(), pool.tier_stats());
    let text = stats.prometheus() + &tier.prometheus();
    for expected in [
        format!("quire_pool_tier_entries {PAGES}\n"),
        format!("quire_pool_tier_held_bytes {}\n", tier.held_bytes),
        format!("quire_pool_path_pages_total{{path=\"evict_clean\"}} {PAGES}\n"),
    ] {
        assert!(text.contains(&expected), "{expected} is missing in\n{text}");
    }
}

#[test]
fn a_map_that_wants_no_tier_leaves_nothing_there() {
    let (_, device) = numbered(PAGES);
    let pool = Pool::new(PoolConfig { tier: tier(256), ..small_config(128) }).unwrap();
    let options = MapOptions { use_tier: false, read_ahead_pages: 0, ..MapOptions::default() };
    let map = pool.map(device, options).unwrap();
    read_all(&map);
    pool.evict(usize::MAX);
    read_all(&map);
    let stats = pool.stats();
    assert_eq!((stats.paths.evict_clean, stats.paths.read_direct, pool.tier_stats().entries), (0, 2 * PAGES, 0));
}

#[test]
fn the_last_page_of_a_file_that_ends_inside_it_is_read_anew_after_the_file_has_grown() {
    let (_, device) = numbered(4);
    device.set_len(3 * PAGE as u64 + 100).unwrap();
    let pool = Pool::new(PoolConfig { tier: tier(64), ..small_config(16) }).unwrap();
    let options = MapOptions { reserve_bytes: 8 * PAGE as u64, read_ahead_pages: 0, ..MapOptions::default() };
    let map = pool.map(device, options).unwrap();
    assert_eq!(map.read(PageNo(3)).unwrap().len(), 100);
    assert_eq!(pool.evict(usize::MAX), 1);
    map.grow(4 * PAGE as u64).unwrap();
    let page = map.read(PageNo(3)).unwrap();
    assert_eq!((page.len(), page[100..].iter().all(|&byte| byte == 0)), (PAGE, true));
    let paths = pool.stats().paths;
    assert_eq!((paths.read_tier, paths.evict_clean), (0, 0), "it was never stored");
}

#[test]
fn more_victims_than_the_tier_holds_push_out_the_oldest() {
    let (_, device) = numbered(PAGES);
    let pool = Pool::new(PoolConfig {
        tier: quire_pool::TierConfig { compression: quire_pool::TierCompression::None, ..tier(32) },
        ..small_config(2 * PAGES as usize)
    })
    .unwrap();
    let map = plain_map(&pool, device);
    for page in 0..PAGES {
        assert_eq!(number(&map, page), page);
        map.dont_need(PageNo(page)..PageNo(page + 1));
    }
    let (before, held) = (pool.stats(), pool.tier_stats());
    assert!(held.entries <= 32 && held.held_bytes <= held.capacity_bytes);
    // The last half of what the tier can hold is there for certain.
    (PAGES - 16..PAGES).for_each(|page| assert_eq!(number(&map, page), page));
    assert_eq!(since(&pool, &before).1, 0);
    assert_eq!(pool.stats().paths.tier_ghost, 0);
    assert_eq!(number(&map, 0), 0);
    let (now, direct) = since(&pool, &before);
    assert_eq!((direct, now.paths.tier_ghost), (1, 1), "it went last time round, and is remembered");
}

#[test]
fn faults_of_a_transparent_map_are_served_from_the_tier() {
    let (_, device) = numbered(PAGES);
    let pool = Pool::new(PoolConfig { tier: tier(4 * PAGES as usize), ..small_config(2 * PAGES as usize) }).unwrap();
    let options = MapOptions { read_ahead_pages: 0, ..MapOptions::default() };
    let map = match TransparentMap::new(&pool, device, options) {
        Ok(map) => map,
        Err(error) => return quire_sys::testing::skipped(error),
    };
    let words = PAGE / 8;
    let load = |page: usize| map.words()[page * words].load(std::sync::atomic::Ordering::Relaxed);
    let store = |page: usize, value| map.words()[page * words].store(value, std::sync::atomic::Ordering::Relaxed);
    (0..PAGES as usize).for_each(|page| assert_eq!(load(page), page as u64));
    // Handlers leave what they did to be told; a sync takes it over.
    map.sync().unwrap();
    assert_eq!(pool.evict(usize::MAX), PAGES as usize);
    let before = pool.stats();
    (0..PAGES as usize).for_each(|page| assert_eq!(load(page), page as u64));
    assert_eq!(since(&pool, &before).1, 0);
    (0..PAGES as usize).step_by(3).for_each(|page| store(page, 1000 + page as u64));
    map.sync().unwrap();
    pool.evict(usize::MAX);
    for page in 0..PAGES as usize {
        assert_eq!(load(page), if page.is_multiple_of(3) { 1000 + page as u64 } else { page as u64 });
    }
}

#[test]
fn threads_that_read_change_and_evict_see_every_page_as_it_was_left() {
    let (_, device) = numbered(PAGES);
    let pool = Pool::new(PoolConfig { tier: tier(48), ..small_config(16) }).unwrap();
    let map = plain_map(&pool, device);
    std::thread::scope(|threads| {
        for thread in 0..4u64 {
            let (map, pool) = (&map, &pool);
            threads.spawn(move || {
                let mut rng = SplitMix64::new(thread);
                // Each changes pages of its own, and reads those of the others: a page's number only rises.
                let mut seen = [0; PAGES as usize];
                for step in 0..2000u64 {
                    let page = rng.next_u64() % PAGES;
                    let found = number(map, page);
                    assert!(
                        found >= seen[page as usize],
                        "page {page} went back from {} to {found}",
                        seen[page as usize]
                    );
                    seen[page as usize] = found;
                    if page % 4 == thread && rng.next_u64().is_multiple_of(3) {
                        put_number(map, page, found + PAGES);
                        seen[page as usize] = found + PAGES;
                    }
                    if step % 97 == thread {
                        pool.take_back_tier_memory(step, 3);
                    }
                    if step % 61 == thread {
                        pool.evict(8);
                    }
                }
            });
        }
    });
    map.sync().unwrap();
    (0..PAGES).for_each(|page| assert_eq!(number(&map, page) % PAGES, page));
    assert!(pool.stats().paths.read_tier > 0);
}

#[test]
fn threads_that_give_up_copies_which_others_read_lose_no_byte_and_few_bytes_are_held_twice() {
    let (_, device) = numbered(PAGES);
    let pool = Pool::new(PoolConfig { tier: tier(64), ..small_config(16) }).unwrap();
    let map = plain_map(&pool, device);
    // Some compress well, some a little, some not at all.
    let noisy = |page: u64| {
        let (mut bytes, mut rng) = (vec![0; PAGE], SplitMix64::new(page));
        bytes[..PAGE * (page % 4) as usize / 3].fill_with(|| rng.next_u64() as u8);
        bytes
    };
    let pages: Vec<Vec<u8>> = (0..PAGES).map(noisy).collect();
    for (page, bytes) in (0..).map(PageNo).zip(&pages) {
        map.overwrite(page).unwrap().copy_from_slice(bytes);
    }
    map.sync().unwrap();
    std::thread::scope(|threads| {
        for thread in 0..4u64 {
            let (map, pool, pages) = (&map, &pool, &pages);
            threads.spawn(move || {
                let mut rng = SplitMix64::new(thread);
                for step in 0..3000u64 {
                    let page = rng.next_u64() % PAGES;
                    assert!(map.read(PageNo(page)).unwrap()[..] == pages[page as usize][..], "page {page}");
                    if step % 41 == thread {
                        pool.evict(8);
                    }
                    if step % 97 == thread {
                        let tier = pool.tier_stats();
                        assert!(tier.promoted_bytes <= tier.capacity_bytes / 64, "{tier:?}");
                    }
                }
            });
        }
    });
    let paths = pool.stats().paths;
    assert!(paths.read_tier > 0 && paths.evict_clean > 0, "{paths:?}");
}

#[test]
fn what_is_discarded_comes_from_the_file_whatever_the_tier_had_of_it() {
    let (memory, device) = numbered(PAGES);
    let pool = Pool::new(PoolConfig { tier: tier(256), ..small_config(128) }).unwrap();
    let map = plain_map(&pool, device);
    let elsewhere = memory.open_to_write("numbered").unwrap();
    read_all(&map);
    pool.evict(usize::MAX);
    // Half of the pages are in the pool again, and in the tier still; the others are in the tier only.
    (0..PAGES / 2).for_each(|page| assert_eq!(number(&map, page), page));
    for page in 0..PAGES {
        rewrite(&*elsewhere, page, page + 1000);
    }
    map.discard(PageNo(0)..PageNo(PAGES));
    let before = pool.stats();
    (0..PAGES).for_each(|page| assert_eq!(number(&map, page), page + 1000));
    assert_eq!(since(&pool, &before).1, PAGES);
    // What the file has now goes to the tier as ever.
    pool.evict(usize::MAX);
    (0..PAGES).for_each(|page| assert_eq!(number(&map, page), page + 1000));
    assert_eq!(since(&pool, &before).1, PAGES);
}

#[test]
fn pages_in_memory_are_given_what_was_written_to_the_file_and_what_the_tier_had_of_them_is_stale() {
    let (memory, device) = numbered(PAGES);
    let pool = Pool::new(PoolConfig { tier: tier(256), ..small_config(2 * PAGES as usize) }).unwrap();
    let map = plain_map(&pool, device);
    let elsewhere = memory.open_to_write("numbered").unwrap();
    read_all(&map);
    pool.evict(usize::MAX);
    // Half of the pages are in the pool again, and in the tier still; the others are in the tier only.
    (0..PAGES / 2).for_each(|page| assert_eq!(number(&map, page), page));
    let before = pool.stats();
    for page in 0..PAGES {
        let bytes = rewrite(&*elsewhere, page, page + 1000);
        map.note_write(page * PAGE as u64, &bytes);
    }
    assert_eq!(map.resident_pages() as u64, PAGES / 2);
    (0..PAGES).for_each(|page| assert_eq!(number(&map, page), page + 1000));
    assert_eq!(since(&pool, &before).1, PAGES / 2, "what was in memory is not read");
    // Evicted from where they are now, they come back as they are now.
    pool.evict(usize::MAX);
    (0..PAGES).for_each(|page| assert_eq!(number(&map, page), page + 1000));
    assert_eq!(since(&pool, &before).1, PAGES / 2);
    // A part of a page is read again.
    let bytes = rewrite(&*elsewhere, 3, 7);
    map.note_write(3 * PAGE as u64, &bytes[..8]);
    assert_eq!((number(&map, 3), since(&pool, &before).1), (7, PAGES / 2 + 1));
}

#[test]
fn threads_that_read_and_evict_never_bring_back_what_was_discarded_or_overwritten() {
    let (memory, device) = numbered(PAGES);
    let pool = Pool::new(PoolConfig { tier: tier(256), ..small_config(16) }).unwrap();
    let map = plain_map(&pool, device);
    let elsewhere = memory.open_to_write("numbered").unwrap();
    std::thread::scope(|threads| {
        for thread in 0..3u64 {
            let (map, pool) = (&map, &pool);
            threads.spawn(move || {
                let mut rng = SplitMix64::new(thread);
                for step in 0..3000u64 {
                    number(map, rng.next_u64() % PAGES);
                    if step % 31 == thread {
                        pool.evict(8);
                    }
                }
            });
        }
        // Another way to the file, whose bytes this thread alone writes and discards.
        for round in 1..200u64 {
            let page = round % PAGES;
            let bytes = rewrite(&*elsewhere, page, page + round * PAGES);
            if round % 3 == 0 {
                map.discard(PageNo(page)..PageNo(page + 1));
            } else {
                map.note_write(page * PAGE as u64, &bytes);
            }
            assert_eq!(number(&map, page), page + round * PAGES);
            map.dont_need(PageNo(page)..PageNo(page + 1));
            assert_eq!(number(&map, page), page + round * PAGES);
        }
    });
}
