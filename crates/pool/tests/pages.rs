//! What a user of a map sees: bytes of the file, under the ceiling, whatever happens behind it.

use std::sync::Arc;

use quire_device::{Device, Directory, MemoryDirectory};
use quire_pool::{MapOptions, PageNo, Pool, PoolConfig, PoolError, WaitCause};

use crate::common::{self, PAGE, number, numbered, plain_map, put_number, sealed, small_config, small_pool};

#[test]
fn pages_come_and_go_and_hold_what_the_file_holds() {
    let (_memory, device) = numbered(100);
    let pool = small_pool(8);
    let map = plain_map(&pool, device);
    for round in 0..3 {
        for page in 0..100 {
            assert_eq!(number(&map, page * 7 % 100), page * 7 % 100, "round {round}");
            assert!(pool.stats().resident_pages <= 8);
        }
    }
    let stats = pool.stats();
    assert!(stats.misses >= 290 && stats.evicted >= stats.misses - 8, "{stats:?}");
}

#[test]
fn what_is_written_is_read_back_after_eviction_and_is_in_the_file_after_sync() {
    let (memory, device) = numbered(64);
    let pool = small_pool(8);
    let map = plain_map(&pool, device);
    (0..64).for_each(|page| put_number(&map, page, page + 1000));
    (0..64).for_each(|page| assert_eq!(number(&map, page), page + 1000));
    map.sync().unwrap();
    assert_eq!(pool.stats().dirty_pages, 0);
    let bytes = memory.bytes("numbered").unwrap();
    for (page, bytes) in bytes.chunks(PAGE).enumerate() {
        assert_eq!(u64::from_le_bytes(bytes[..8].try_into().unwrap()), page as u64 + 1000);
    }
}

#[test]
fn guards_keep_their_page_and_too_many_are_an_error() {
    let (_memory, device) = numbered(16);
    let pool = Pool::new(PoolConfig { miss_timeout_ms: 30, ..small_config(8) }).unwrap();
    let map = plain_map(&pool, device);
    let guards: Vec<_> = (0..8).map(|page| map.read(PageNo(page)).unwrap()).collect();
    let refused = map.read(PageNo(9)).unwrap_err();
    assert!(matches!(refused, PoolError::Exhausted { budget_pages: 8, .. }), "{refused}");
    assert_eq!(pool.evict(8), 0);
    for (page, guard) in guards.iter().enumerate() {
        assert_eq!(guard[0], page as u8);
    }
    drop(guards);
    assert_eq!(number(&map, 9), 9);
}

#[test]
fn pages_outside_the_file_are_refused_until_it_has_grown() {
    let (memory, device) = numbered(3);
    let pool = small_pool(8);
    let map = pool.map(device, MapOptions { reserve_bytes: 10 * PAGE as u64, ..MapOptions::default() }).unwrap();
    assert!(matches!(map.read(PageNo(3)), Err(PoolError::Outside { pages: 3, .. })));
    assert!(matches!(map.write(PageNo(u64::MAX)), Err(PoolError::Outside { .. })));
    map.grow(5 * PAGE as u64).unwrap();
    map.grow(2 * PAGE as u64).unwrap();
    assert_eq!((map.pages(), number(&map, 4)), (5, 0));
    put_number(&map, 4, 77);
    assert!(matches!(map.grow(11 * PAGE as u64), Err(PoolError::TooLong { .. })));
    map.sync().unwrap();
    assert_eq!(memory.bytes("numbered").unwrap().len(), 5 * PAGE);
    assert_eq!(memory.bytes("numbered").unwrap()[4 * PAGE], 77);
}

#[test]
fn a_file_that_ends_inside_a_page_keeps_its_length() {
    let memory = MemoryDirectory::with_file("odd", &[7; PAGE + 100]);
    let pool = small_pool(4);
    let reserve_bytes = 4 * PAGE as u64;
    let map = pool.map(memory.open("odd").unwrap(), MapOptions { reserve_bytes, ..MapOptions::default() }).unwrap();
    assert_eq!((map.pages(), map.read(PageNo(1)).unwrap().len()), (2, 100));
    map.write(PageNo(1)).unwrap().fill(8);
    map.sync().unwrap();
    let bytes = memory.bytes("odd").unwrap();
    assert_eq!((bytes.len(), bytes[PAGE - 1], bytes[PAGE]), (PAGE + 100, 7, 8));
    map.grow(3 * PAGE as u64).unwrap();
    let page = map.read(PageNo(1)).unwrap();
    assert_eq!((page.len(), page[99], page[100]), (PAGE, 8, 0));
}

#[test]
fn an_overwritten_page_is_not_read() {
    let (_memory, device) = numbered(8);
    let pool = small_pool(4);
    let map = plain_map(&pool, device);
    map.overwrite(PageNo(5)).unwrap().fill(9);
    assert_eq!((map.read(PageNo(5)).unwrap()[8], pool.stats().misses), (9, 0));
    assert_eq!(pool.stats().overwritten, 1);
}

#[test]
fn a_look_sees_the_page_and_fetches_it_if_need_be() {
    let (_memory, device) = numbered(20);
    let pool = small_pool(4);
    let map = plain_map(&pool, device);
    for page in (0..20).chain(0..20) {
        assert_eq!(map.optimistic_read(PageNo(page), |view| view.u64(0)).unwrap(), Some(page));
        assert_eq!(map.optimistic_read(PageNo(page), |view| view.len()).unwrap(), PAGE);
    }
    assert!(matches!(map.optimistic_read(PageNo(20), |view| view.len()), Err(PoolError::Outside { .. })));
}

#[test]
fn large_pages_work_alike() {
    for page_bytes in [16384, 65536] {
        let mut bytes = vec![0; 20 * page_bytes];
        for (number, page) in bytes.chunks_mut(page_bytes).enumerate() {
            page.fill(number as u8);
        }
        let memory = MemoryDirectory::with_file("large", &bytes);
        let pool = Pool::new(PoolConfig { budget_bytes: 5 * page_bytes, page_bytes, ..PoolConfig::default() }).unwrap();
        let map = plain_map(&pool, memory.open("large").unwrap());
        for page in 0..20 {
            let mut guard = map.write(PageNo(page)).unwrap();
            assert!(guard.len() == page_bytes && guard.iter().all(|&byte| byte == page as u8));
            guard[page_bytes - 1] = 200;
        }
        map.sync().unwrap();
        assert!(memory.bytes("large").unwrap().chunks(page_bytes).all(|page| page[page_bytes - 1] == 200));
    }
}

#[test]
fn prefetched_pages_are_there_without_another_read() {
    let (_memory, device) = numbered(100);
    let pool = small_pool(32);
    let map = plain_map(&pool, device);
    let pages: Vec<PageNo> = [5, 6, 7, 50, 90, 3].map(PageNo).into();
    assert_eq!(map.prefetch(&pages), 6);
    assert_eq!(map.prefetch(&pages), 0);
    pages.iter().for_each(|page| assert_eq!(number(&map, page.0), page.0));
    let stats = pool.stats();
    assert_eq!((stats.misses, stats.ahead, stats.ahead_reads), (0, 6, 4));
    assert_eq!(map.prefetch(&[PageNo(100), PageNo(u64::MAX)]), 0);
    map.will_need(PageNo(60)..PageNo(70));
    map.poll();
    assert_eq!(map.dont_need(PageNo(0)..PageNo(100)), 16);
    assert_eq!((map.resident_pages(), pool.stats().resident_pages), (0, 0));
}

#[test]
fn a_stream_is_read_ahead_and_random_pages_are_not() {
    let (_memory, device) = numbered(1000);
    let pool = small_pool(256);
    let map = pool.map(device, MapOptions { read_ahead_pages: 16, ..MapOptions::default() }).unwrap();
    (0..200).for_each(|page| assert_eq!(number(&map, page), page));
    let stats = pool.stats();
    assert!(stats.misses <= 3, "{} of 200 pages were waited for", stats.misses);
    assert!(stats.ahead_reads < 30, "{} reads", stats.ahead_reads);
    map.random();
    let before = pool.stats().ahead;
    (300..330).for_each(|page| assert_eq!(number(&map, page), page));
    assert_eq!(pool.stats().ahead, before);
    map.sequential();
    assert_eq!(number(&map, 700), 700);
    assert!(pool.stats().ahead > before);
}

#[test]
fn neighbours_are_written_together() {
    let (_memory, device) = numbered(1024);
    let pool = Pool::new(PoolConfig { dirty_percent: 100, ..small_config(1024) }).unwrap();
    let map = plain_map(&pool, device);
    (0..1024).rev().for_each(|page| put_number(&map, page, 1));
    map.sync().unwrap();
    let stats = pool.stats();
    assert_eq!(stats.written, 1024);
    assert!(stats.writes <= 8, "{} writes", stats.writes);
}

#[test]
fn hints_leave_no_trace_in_the_queues() {
    let (_memory, device) = numbered(2000);
    let pool = small_pool(64);
    let map = plain_map(&pool, device);
    for page in 0..2000 {
        assert_eq!(number(&map, page), page);
        assert_eq!(map.dont_need(PageNo(page)..PageNo(page + 1)), 1);
    }
    (0..2000).for_each(|page| assert_eq!(number(&map, page), page));
}

#[test]
fn memory_goes_back_to_the_pool_with_its_map_and_changes_to_the_file() {
    let (memory, device) = numbered(16);
    let pool = small_pool(8);
    let map = plain_map(&pool, device);
    put_number(&map, 3, 33);
    let clone = map.clone();
    drop(map);
    assert_eq!(number(&clone, 3), 33);
    assert!(pool.stats().resident_pages > 0);
    drop(clone);
    let stats = pool.stats();
    assert_eq!((stats.resident_pages, stats.dirty_pages, stats.maps), (0, 0, 0));
    assert_eq!(memory.bytes("numbered").unwrap()[3 * PAGE], 33);
}

#[test]
fn a_forgotten_guard_does_not_keep_the_map_from_going() {
    let (_memory, device) = numbered(16);
    let pool = small_pool(8);
    let map = plain_map(&pool, device);
    std::mem::forget(map.write(PageNo(1)).unwrap());
    std::mem::forget(map.read(PageNo(2)).unwrap());
    drop(map);
    let stats = pool.stats();
    assert_eq!((stats.resident_pages, stats.dirty_pages), (0, 0));
}

#[test]
fn an_empty_file_has_no_pages_and_grows() {
    let memory = MemoryDirectory::new();
    let device: Arc<dyn Device> = memory.create("new").unwrap();
    let pool = small_pool(4);
    let map = pool.map(device, MapOptions { reserve_bytes: 1 << 20, ..MapOptions::default() }).unwrap();
    assert!(map.is_empty() && map.read(PageNo(0)).is_err());
    map.sync().unwrap();
    map.grow(3 * PAGE as u64).unwrap();
    common::seal(&mut map.write(PageNo(2)).unwrap(), 5);
    map.sync().unwrap();
    assert_eq!(sealed(&memory.bytes("new").unwrap()[2 * PAGE..]), Some(5));
}

#[test]
fn figures_are_told_to_prometheus() {
    let (_memory, device) = numbered(64);
    let pool = small_pool(8);
    let map = plain_map(&pool, device);
    (0..64).for_each(|page| put_number(&map, page, 1));
    map.sync().unwrap();
    let stats = pool.stats();
    let text = stats.prometheus();
    for expected in [
        "quire_pool_budget_bytes 32768".to_owned(),
        "# TYPE quire_pool_misses_total counter".to_owned(),
        format!("quire_pool_written_pages_total {}", stats.written),
        format!("quire_pool_merged_write_pages_bucket{{le=\"+Inf\"}} {}", stats.writes),
        format!("quire_pool_waits_total{{cause=\"writeback\"}} {}", stats.wait(WaitCause::Writeback).count),
    ] {
        assert!(text.contains(&expected), "{expected} is missing in\n{text}");
    }
}
