//! Devices that fail: errors reach who must know, once and for all where data is at stake, and nothing leaks.

use std::sync::Arc;

use quire_device::{DeviceOperation, Directory, FaultInjector, FaultTrigger, InjectedFault, errno};
use quire_pool::{Map, PageNo, Pool, PoolError};

use crate::common::{PAGE, number, numbered, plain_map, put_number, small_pool};

fn faulty_map(pages: u64, budget: usize, trigger: FaultTrigger) -> (Arc<Pool>, Map, FaultInjector) {
    let (memory, _) = numbered(pages);
    let faulty = FaultInjector::new(Arc::new(memory), vec![(trigger, InjectedFault::Error(errno::EIO))]);
    let pool = small_pool(budget);
    let map = plain_map(&pool, faulty.open_to_write("numbered").unwrap());
    (pool, map, faulty)
}

fn is_poisoned<T>(result: Result<T, PoolError>, action: DeviceOperation) -> bool {
    matches!(result, Err(PoolError::Poisoned { cause, .. }) if cause.action == action && cause.errno == Some(errno::EIO))
}

#[test]
fn a_failed_write_poisons_the_map_and_dirty_pages_stay_readable() {
    let (pool, map, faulty) = faulty_map(64, 16, FaultTrigger::Nth(DeviceOperation::Write, 0));
    put_number(&map, 5, 55);
    assert!(is_poisoned(map.sync(), DeviceOperation::Write));
    assert_eq!(faulty.struck(), 1);
    assert!(is_poisoned(map.sync(), DeviceOperation::Write), "the first cause, though the device would work again");
    assert!(is_poisoned(map.flush(PageNo(0)..PageNo(1)), DeviceOperation::Write));
    assert!(
        is_poisoned(map.write(PageNo(1)), DeviceOperation::Write)
            && is_poisoned(map.write(PageNo(5)), DeviceOperation::Write)
    );
    assert!(is_poisoned(map.grow(1 << 20), DeviceOperation::Write) || map.grow(1 << 20).is_err());
    (0..64).for_each(|page| assert_eq!(number(&map, page), if page == 5 { 55 } else { page }));
    assert_eq!(number(&map, 5), 55);
    assert_eq!(pool.stats().dirty_pages, 1);
    drop(map);
    assert_eq!((pool.stats().dirty_pages, pool.stats().resident_pages), (0, 0));
}

#[test]
fn a_failed_flush_poisons_the_map() {
    let (_pool, map, _) = faulty_map(8, 8, FaultTrigger::Nth(DeviceOperation::Flush, 0));
    put_number(&map, 5, 55);
    assert!(is_poisoned(map.sync(), DeviceOperation::Flush));
    assert!(is_poisoned(map.sync(), DeviceOperation::Flush));
    assert_eq!(number(&map, 5), 55);
}

#[test]
fn a_write_that_fails_in_the_background_reaches_the_next_sync() {
    let (pool, map, _) = faulty_map(64, 8, FaultTrigger::From(DeviceOperation::Write, 0));
    let mut refused = 0;
    for page in 0..64 {
        // Misses make the writer write; some time it has failed.
        refused += u64::from(map.write(PageNo(page)).is_err());
    }
    assert!(refused > 0);
    assert!(is_poisoned(map.sync(), DeviceOperation::Write));
    assert!(pool.stats().resident_pages <= 8);
}

#[test]
fn a_failed_read_is_told_and_can_be_tried_again() {
    let (pool, map, _) = faulty_map(8, 4, FaultTrigger::Nth(DeviceOperation::Read, 1));
    assert_eq!(number(&map, 0), 0);
    for attempt in [map.read(PageNo(1)).map(drop), map.optimistic_read(PageNo(2), |view| view.len()).map(drop)] {
        let _ = attempt;
    }
    (0..8).for_each(|page| assert_eq!(number(&map, page), page));
    let stats = pool.stats();
    assert_eq!(stats.failed_reads, 1);
    assert!(stats.resident_pages <= 4);
}

#[test]
fn a_failed_read_ahead_is_no_readers_error() {
    let (pool, map, _) = faulty_map(16, 8, FaultTrigger::Nth(DeviceOperation::Read, 0));
    assert_eq!(map.prefetch(&[PageNo(1), PageNo(2), PageNo(9)]), 3);
    [1, 2, 9].into_iter().for_each(|page| assert_eq!(number(&map, page), page));
    assert_eq!((pool.stats().failed_reads, pool.stats().resident_pages), (2, 3));
}

#[test]
fn a_poisoned_map_does_not_take_the_others_with_it() {
    let (pool, broken, _) = faulty_map(64, 16, FaultTrigger::From(DeviceOperation::Write, 0));
    (0..8).for_each(|page| drop(broken.write(PageNo(page))));
    assert!(broken.sync().is_err());
    let (memory, device) = numbered(64);
    let sound = plain_map(&pool, device);
    (0..64).for_each(|page| put_number(&sound, page, page + 1));
    sound.sync().unwrap();
    assert_eq!(memory.bytes("numbered").unwrap()[63 * PAGE], 64);
    assert_eq!(number(&broken, 3), 3);
}
