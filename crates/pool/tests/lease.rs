//! Leases: bytes in place that stay what they were, under a bound, whatever becomes of their pages.

use std::sync::Arc;
use std::time::Duration;

use quire_device::{
    Buffer, DeviceOperation, Direction, Directory, Extent, FaultInjector, FaultTrigger, InjectedFault, IoGate,
    MemoryDirectory, Transfer, errno,
};
use quire_pool::{Lease, Map, PageNo, Pool, PoolConfig, PoolError};

use crate::common::{PAGE, Stop, number, numbered, plain_map, put_number, seal, sealed, small_config, small_pool};

/// The number at the start of page `page` of a lease that begins with a page.
fn number_in(lease: &Lease<'_>, page: usize) -> u64 {
    u64::from_le_bytes(lease[page * PAGE..page * PAGE + 8].try_into().unwrap())
}

fn lease_page(map: &Map, page: u64) -> Lease<'_> {
    map.lease(page * PAGE as u64, PAGE).unwrap()
}

/// A pool of which leases may pin half.
fn half_pool(pages: usize, miss_timeout_ms: u64) -> Arc<Pool> {
    Pool::new(PoolConfig { lease_percent: 50, miss_timeout_ms, ..small_config(pages) }).unwrap()
}

#[test]
fn a_lease_is_the_pages_themselves_one_behind_the_other() {
    let (_memory, device) = numbered(64);
    let pool = small_pool(64);
    let map = plain_map(&pool, device);
    let lease = map.lease(3 * PAGE as u64 + 100, 3 * PAGE).unwrap();
    assert_eq!((lease.len(), lease.is_copy()), (3 * PAGE, false));
    for page in 4..6 {
        let guard = map.read(PageNo(page)).unwrap();
        assert_eq!(lease[(page as usize - 3) * PAGE - 100..].as_ptr(), guard.as_ptr(), "no copy");
    }
    let other = lease_page(&map, 4);
    assert_eq!(number_in(&other, 0), 4);
    assert_eq!(pool.stats().leases.pinned_pages, 4, "a page counts once");
    drop(lease);
    assert_eq!(pool.stats().leases.pinned_pages, 1);
    drop(other);
    assert_eq!(pool.stats().leases.pinned_pages, 0);
}

#[test]
fn a_lease_ends_with_the_file_and_there_is_none_beyond() {
    let device = MemoryDirectory::with_file("odd", &[7; PAGE + 10]).open_to_write("odd").unwrap();
    let pool = small_pool(16);
    let map = plain_map(&pool, device);
    let lease = map.lease(PAGE as u64 - 1, 100).unwrap();
    assert_eq!(*lease, [7; 11]);
    assert!(matches!(map.lease(PAGE as u64 + 10, 1), Err(PoolError::Outside { .. })));
    assert!(matches!(map.lease(u64::MAX, usize::MAX), Err(PoolError::Outside { .. })));
    assert_eq!(map.lease(5, 0).unwrap().len(), 0);
    drop(lease);
    assert_eq!(pool.stats().leases.pinned_pages, 0);
}

#[test]
fn a_leased_page_is_not_evicted() {
    let (_memory, device) = numbered(64);
    let pool = small_pool(16);
    let map = plain_map(&pool, device);
    let lease = lease_page(&map, 5);
    (0..64).for_each(|page| assert_eq!(number(&map, page), page));
    pool.evict(usize::MAX);
    map.dont_need(PageNo(0)..PageNo(64));
    assert_eq!((map.resident_pages(), number_in(&lease, 0)), (1, 5));
    drop(lease);
    pool.evict(usize::MAX);
    assert_eq!(map.resident_pages(), 0);
}

#[test]
fn a_writer_of_a_leased_page_gets_a_copy_and_the_lease_keeps_what_it_saw() {
    let (_memory, device) = numbered(16);
    let pool = small_pool(16);
    let map = plain_map(&pool, Arc::clone(&device));
    let lease = map.lease(4 * PAGE as u64, 2 * PAGE).unwrap();
    put_number(&map, 5, 55);
    assert_eq!((number_in(&lease, 1), number(&map, 5)), (5, 55));
    let optimistic = map.optimistic_read(PageNo(5), |page| page.u64(0)).unwrap();
    assert_eq!(optimistic, Some(55));
    // It is written from where it is, and stays as new afterwards; so does what is changed next.
    map.sync().unwrap();
    let mut bytes = vec![0; 8];
    device.read_at(5 * PAGE as u64, &mut bytes).unwrap();
    assert_eq!(bytes, 55_u64.to_le_bytes());
    map.overwrite(PageNo(5)).unwrap()[..8].copy_from_slice(&56_u64.to_le_bytes());
    assert_eq!((number_in(&lease, 1), number(&map, 5)), (5, 56));
    let stats = pool.stats();
    assert_eq!((stats.leases.relocated, stats.resident_pages), (1, 3), "the copy counts as memory");
    // With the last lease the page goes back to its address.
    drop(lease);
    assert_eq!(pool.stats().resident_pages, 2);
    let again = lease_page(&map, 5);
    assert_eq!((number_in(&again, 0), again.is_copy()), (56, false));
    assert_eq!(again.as_ptr(), map.read(PageNo(5)).unwrap().as_ptr());
}

#[test]
fn a_lease_of_a_page_whose_older_bytes_are_leased_is_a_copy() {
    let (_memory, device) = numbered(16);
    let pool = half_pool(16, 2000);
    let map = plain_map(&pool, device);
    let old = lease_page(&map, 5);
    put_number(&map, 5, 55);
    let new = map.lease(4 * PAGE as u64 + 8, 2 * PAGE).unwrap();
    assert!(new.is_copy() && !old.is_copy());
    assert_eq!(u64::from_le_bytes(new[PAGE - 8..PAGE].try_into().unwrap()), 55);
    put_number(&map, 5, 56);
    assert_eq!(u64::from_le_bytes(new[PAGE - 8..PAGE].try_into().unwrap()), 55);
    assert_eq!((number_in(&old, 0), number(&map, 5)), (5, 56));
    let stats = pool.stats();
    assert_eq!((stats.leases.copied, stats.leases.pinned_pages), (3, 4), "page 5, and a copy of 4 to 6");
    drop((new, old));
    pool.evict(usize::MAX);
    let stats = pool.stats();
    assert_eq!((stats.leases.pinned_pages, stats.resident_pages), (0, 1), "what is dirty stays");
}

#[test]
fn a_thread_that_holds_leases_reads_and_writes_the_same_pages() {
    let (_memory, device) = numbered(16);
    let pool = small_pool(16);
    let map = plain_map(&pool, device);
    let lease = lease_page(&map, 5);
    // Readers that hold a relocated page keep it from being moved back; that is made up for later.
    put_number(&map, 5, 50);
    let guard = map.read(PageNo(5)).unwrap();
    drop(lease);
    let copy = lease_page(&map, 5);
    assert!(copy.is_copy() && number_in(&copy, 0) == 50);
    drop((guard, copy));
    assert_eq!(number(&map, 5), 50);
    assert!(!lease_page(&map, 5).is_copy());
    let mut guard = map.write(PageNo(5)).unwrap();
    guard[0] = 51;
    drop(guard);
    assert_eq!((number_in(&lease_page(&map, 5), 0), pool.stats().resident_pages), (51, 1));
}

#[test]
fn more_than_may_be_pinned_is_refused_at_once_or_after_a_wait() {
    let (_memory, device) = numbered(64);
    let pool = half_pool(16, 30);
    let map = plain_map(&pool, device);
    let held: Vec<Lease<'_>> = (0..8).map(|page| lease_page(&map, page)).collect();
    let is_refused =
        |result: Result<Lease<'_>, PoolError>| matches!(result, Err(PoolError::LeaseLimit { limit_pages: 8, .. }));
    assert!(is_refused(map.try_lease(9 * PAGE as u64, 1)));
    assert!(is_refused(map.lease(9 * PAGE as u64, 1)), "the thread holds all of them itself");
    assert!(is_refused(map.lease(0, 9 * PAGE)), "it can never be had");
    drop(held);
    assert_eq!(map.try_lease(0, 8 * PAGE).unwrap().len(), 8 * PAGE);
    assert_eq!(pool.stats().leases.pinned_pages, 0);
}

#[test]
fn a_lease_waits_until_another_thread_gives_one_up() {
    let (_memory, device) = numbered(64);
    let pool = half_pool(16, 60_000);
    let map = plain_map(&pool, device);
    let held = map.lease(0, 8 * PAGE).unwrap();
    std::thread::scope(|threads| {
        let waiter = threads.spawn(|| number_in(&lease_page(&map, 20), 0));
        // Dropped here, though another thread made it or not, and whether the waiter has come yet or not.
        threads.spawn(move || drop(held));
        assert_eq!(waiter.join().unwrap(), 20);
    });
}

#[test]
fn a_writer_that_finds_no_memory_for_the_copy_fails_and_changes_nothing() {
    let (_memory, device) = numbered(64);
    let pool = half_pool(4, 30);
    let map = plain_map(&pool, device);
    let leases = map.lease(0, 2 * PAGE).unwrap();
    let guards = [map.read(PageNo(10)).unwrap(), map.read(PageNo(11)).unwrap()];
    assert!(matches!(map.write(PageNo(0)), Err(PoolError::Exhausted { .. })));
    drop(guards);
    put_number(&map, 0, 100);
    assert_eq!((number_in(&leases, 0), number(&map, 0)), (0, 100));
    drop(leases);
    assert_eq!(number(&map, 0), 100);
    assert!(pool.stats().resident_pages <= 4);
}

#[test]
fn a_writer_of_a_leased_page_waits_for_a_frame_whose_page_is_under_writeback() {
    let (_memory, device) = numbered(64);
    let (gate, config) = (IoGate::default(), PoolConfig { lease_percent: 10, miss_timeout_ms: 10, ..small_config(30) });
    let pool = Pool::new(config).unwrap();
    let map = plain_map(&pool, gate.before(device));
    let leases: Vec<_> = (0..3).map(|page| lease_page(&map, page)).collect();
    // They are in all three frames then.
    (0..3).for_each(|page| put_number(&map, page, page + 100));
    gate.close();
    std::thread::scope(|threads| {
        let sync = threads.spawn(|| map.sync());
        gate.await_waiting();
        drop(leases);
        let lease = lease_page(&map, 10);
        let writer = threads.spawn(|| put_number(&map, 10, 110));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!writer.is_finished(), "there was no frame for its page");
        gate.open();
        writer.join().unwrap();
        sync.join().unwrap().unwrap();
        assert_eq!((number_in(&lease, 0), number(&map, 10)), (10, 110));
    });
}

#[test]
fn what_is_discarded_comes_from_the_file_and_the_lease_keeps_its_bytes() {
    let (memory, device) = numbered(16);
    let pool = small_pool(16);
    let map = plain_map(&pool, device);
    let elsewhere = memory.open_to_write("numbered").unwrap();
    let rewrite = |page: u64, value: u64| {
        let mut buffer = Buffer::new(PAGE).unwrap();
        buffer[..8].copy_from_slice(&value.to_le_bytes());
        let extents = vec![Extent { offset: page * PAGE as u64, start: 0, len: PAGE }];
        elsewhere.run(&mut Transfer { direction: Direction::Write, buffer, extents, tag: 0 }).unwrap();
        map.discard(PageNo(0)..PageNo(16));
    };
    let lease = map.lease(4 * PAGE as u64, 2 * PAGE).unwrap();
    rewrite(5, 55);
    assert_eq!((number_in(&lease, 1), number(&map, 5)), (5, 55));
    // Again, now that the page is elsewhere; and once more without its being read in between.
    rewrite(5, 56);
    rewrite(5, 57);
    assert_eq!((number_in(&lease, 1), number(&map, 5)), (5, 57));
    put_number(&map, 4, 44);
    rewrite(4, 99);
    assert_eq!((number_in(&lease, 0), number(&map, 4)), (4, 44), "what was changed stays");
    map.sync().unwrap();
    map.discard(PageNo(0)..PageNo(16));
    drop(lease);
    pool.evict(usize::MAX);
    assert_eq!(pool.stats().resident_pages, 0);
    assert_eq!((number(&map, 4), number(&map, 5)), (44, 57));
}

#[test]
fn a_page_that_was_discarded_and_not_read_gives_its_memory_back_with_the_lease() {
    let (_memory, device) = numbered(16);
    let pool = small_pool(16);
    let map = plain_map(&pool, device);
    let lease = lease_page(&map, 5);
    map.discard(PageNo(5)..PageNo(6));
    assert_eq!((pool.stats().resident_pages, number_in(&lease, 0)), (1, 5));
    drop(lease);
    assert_eq!((pool.stats().resident_pages, number(&map, 5)), (0, 5));
}

#[test]
fn a_lease_keeps_its_map_and_its_pool() {
    let (memory, device) = numbered(16);
    let pool = small_pool(16);
    let map = plain_map(&pool, device);
    put_number(&map, 6, 66);
    let lease = map.lease(5 * PAGE as u64, 2 * PAGE).unwrap().into_owned();
    drop((map, pool));
    let thread = std::thread::spawn(move || {
        assert_eq!((number_in(&lease, 0), number_in(&lease, 1)), (5, 66));
        drop(lease);
    });
    thread.join().unwrap();
    // The map was closed with it: what was dirty is in the file.
    let mut bytes = [0; 8];
    memory.open("numbered").unwrap().read_at(6 * PAGE as u64, &mut bytes).unwrap();
    assert_eq!(bytes, 66_u64.to_le_bytes());
}

#[test]
fn a_map_that_is_closed_while_pages_are_away_gives_all_memory_back() {
    let (_memory, device) = numbered(16);
    let pool = small_pool(16);
    let map = plain_map(&pool, device);
    let lease = lease_page(&map, 5);
    put_number(&map, 5, 55);
    let guard = map.read(PageNo(5)).unwrap();
    drop(lease);
    drop(guard);
    assert_eq!(pool.stats().resident_pages, 2, "no thread has come to move it back");
    drop(map);
    assert_eq!(pool.stats().resident_pages, 0);
}

#[test]
fn frames_that_pages_no_longer_need_are_found_where_memory_is_short() {
    let (_memory, device) = numbered(64);
    let pool = small_pool(8);
    let map = plain_map(&pool, device);
    for round in 0..4 {
        let lease = lease_page(&map, 5);
        put_number(&map, 5, 50 + round);
        let guard = map.read(PageNo(5)).unwrap();
        drop(lease);
        drop(guard);
        if round % 2 == 1 {
            map.sync().unwrap();
        }
        (10..64).for_each(|page| assert_eq!(number(&map, page), page));
        // All of the budget but one page can be held.
        let held: Vec<_> = (10..17).map(|page| map.read(PageNo(page)).unwrap()).collect();
        assert_eq!((held.len(), number(&map, 5)), (7, 50 + round));
    }
}

#[test]
fn a_page_that_can_t_be_read_can_t_be_leased_and_pins_nothing() {
    let (memory, _) = numbered(16);
    let rule = (FaultTrigger::Nth(DeviceOperation::Read, 1), InjectedFault::Error(errno::EIO));
    let pool = half_pool(16, 2000);
    let map = plain_map(&pool, FaultInjector::new(Arc::new(memory), vec![rule]).open_to_write("numbered").unwrap());
    let first = lease_page(&map, 3);
    assert!(matches!(map.lease(4 * PAGE as u64, PAGE), Err(PoolError::Device(_))));
    assert_eq!(pool.stats().leases.pinned_pages, 1);
    assert_eq!(number_in(&lease_page(&map, 4), 0), 4);
    assert_eq!(number_in(&first, 0), 3);
}

#[test]
fn a_page_is_leased_no_more_often_than_can_be_counted() {
    let (_memory, device) = numbered(16);
    let pool = half_pool(16, 30);
    let map = plain_map(&pool, device);
    let mut all: Vec<Lease<'_>> = (0..1023).map(|_| lease_page(&map, 5)).collect();
    assert!(matches!(map.try_lease(5 * PAGE as u64, 1), Err(PoolError::LeaseLimit { .. })));
    assert!(matches!(map.lease(4 * PAGE as u64, 2 * PAGE), Err(PoolError::LeaseLimit { .. })));
    assert_eq!(pool.stats().leases.pinned_pages, 1);
    all.pop();
    assert_eq!(number_in(&lease_page(&map, 5), 0), 5);
    drop(all);
    assert_eq!(pool.stats().leases.pinned_pages, 0);
}

/// Threads that lease, write, read, discard, evict and sync the same few pages.
#[test]
fn no_lease_ever_changes_and_no_write_is_lost_between_threads() {
    const PAGES: u64 = 12;
    const WRITES: u64 = 400;
    let device = MemoryDirectory::new().create("file").unwrap();
    device.set_len(PAGES * PAGE as u64).unwrap();
    let pool = Pool::new(PoolConfig { lease_percent: 50, miss_timeout_ms: 60_000, ..small_config(16) }).unwrap();
    let map = plain_map(&pool, Arc::clone(&device));
    let stop = Stop::default();
    std::thread::scope(|threads| {
        for thread in 0..2_u64 {
            let (map, stop, pool) = (&map, &stop, &pool);
            threads.spawn(move || {
                let mut step = thread * 7;
                while !stop.is_set() {
                    step += 1;
                    let page = step * 5 % PAGES;
                    let len = 1 + step as usize % 3 * PAGE;
                    let Ok(lease) = map.lease(page * PAGE as u64, len) else { continue };
                    let lease = lease.into_owned();
                    let seen: Vec<Option<u64>> = lease.chunks_exact(PAGE).map(sealed).collect();
                    assert!(seen.iter().all(Option::is_some), "a page is whole");
                    match step % 8 {
                        0 => map.sync().unwrap(),
                        1 => map.discard(PageNo(page)..PageNo(page + 1)),
                        2 => drop(pool.evict(4)),
                        _ => {}
                    }
                    assert_eq!(lease.chunks_exact(PAGE).map(sealed).collect::<Vec<_>>(), seen);
                }
            });
        }
        let _stop = stop.later();
        let writers: Vec<_> = (0..2)
            .map(|_| {
                threads.spawn(|| {
                    for step in 0..WRITES * PAGES / 2 {
                        let mut guard = map.write(PageNo(step % PAGES)).unwrap();
                        let value = sealed(&guard).expect("a page is whole");
                        seal(&mut guard, value + 1);
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
    for page in 0..PAGES {
        assert_eq!(sealed(&map.read(PageNo(page)).unwrap()), Some(WRITES));
    }
    map.sync().unwrap();
    assert_eq!(pool.stats().leases.pinned_pages, 0);
    drop(map);
    assert_eq!(pool.stats().resident_pages, 0);
    let mut bytes = vec![0; PAGE];
    device.read_at(0, &mut bytes).unwrap();
    assert_eq!(sealed(&bytes), Some(WRITES));
}

#[test]
fn patience_is_for_the_end_of_leases_and_not_for_ever() {
    let (_memory, device) = numbered(16);
    let pool = half_pool(4, 40);
    let map = plain_map(&pool, device);
    let _held = map.lease(0, 2 * PAGE).unwrap();
    match map.lease(5 * PAGE as u64, PAGE) {
        Err(PoolError::LeaseLimit { waited_ms, asked_pages: 1, .. }) => {
            assert!(Duration::from_millis(waited_ms) >= Duration::from_millis(40));
        }
        other => panic!("{other:?}"),
    }
}
