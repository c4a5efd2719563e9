//! A map as plain memory: loads and stores by code that knows of no pages, under the ceiling.
//!
//! Relies on userfaultfd; where it is forbidden the tests say so and do nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use quire_device::{
    Device, DeviceOperation, Directory, DiskDirectory, FaultInjector, FaultTrigger, InjectedFault, IoEngine, IoGate,
    MemoryDirectory, errno,
};
use quire_pool::{AccessAdvice, MapOptions, PageNo, Pool, PoolConfig, PoolError, TransparentMap};

use crate::common::{PAGE, Stop, cases, numbered, plain_map, small_config, small_pool};

fn transparent(pool: &Arc<Pool>, device: Arc<dyn Device>) -> Option<TransparentMap> {
    let options = MapOptions { reserve_bytes: 64 * PAGE as u64, ..MapOptions::default() };
    match TransparentMap::new(pool, device, options) {
        Ok(map) => Some(map),
        Err(refusal @ PoolError::Unsupported { .. }) => {
            quire_sys::testing::skipped(refusal);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn words(map: &TransparentMap) -> &[AtomicU64] {
    map.words()
}

const STEP: usize = PAGE / 8;

#[test]
fn loads_find_the_file_and_stores_reach_it() {
    let (memory, device) = numbered(64);
    let pool = small_pool(8);
    let Some(map) = transparent(&pool, device) else { return };
    for round in 0..3 {
        for page in 0..64 {
            assert_eq!(words(&map)[page * STEP].load(Ordering::Relaxed), page as u64 + round, "page {page}");
            words(&map)[page * STEP].fetch_add(1, Ordering::Relaxed);
            assert!(pool.stats().resident_pages <= 8);
        }
    }
    map.sync().unwrap();
    assert_eq!(pool.stats().dirty_pages, 0);
    for (page, bytes) in memory.bytes("numbered").unwrap().chunks(PAGE).enumerate() {
        assert_eq!(u64::from_le_bytes(bytes[..8].try_into().unwrap()), page as u64 + 3);
    }
    assert!(pool.stats().evicted > 100);
    drop(map);
    assert_eq!(pool.stats().resident_pages, 0);
}

#[test]
fn each_change_between_two_syncs_is_noticed() {
    let (memory, device) = numbered(4);
    let pool = small_pool(8);
    let Some(map) = transparent(&pool, device) else { return };
    for value in 100..110 {
        words(&map)[STEP].store(value, Ordering::Relaxed);
        words(&map)[STEP + 1].store(value, Ordering::Relaxed);
        map.sync().unwrap();
        let bytes = memory.bytes("numbered").unwrap();
        assert_eq!(bytes[PAGE], value as u8);
        assert_eq!(bytes[PAGE + 8], value as u8);
    }
    assert_eq!(pool.stats().written, 10);
    map.flush(PageNo(0)..PageNo(1)).unwrap();
}

fn increments_are_not_lost(device: Arc<dyn Device>, config: PoolConfig) {
    const PAGES: usize = 40;
    device.set_len((PAGES * PAGE) as u64).unwrap();
    let pool = Pool::new(config).unwrap();
    let Some(map) = transparent(&pool, Arc::clone(&device)) else { return };
    std::thread::scope(|threads| {
        for thread in 0..4 {
            let (map, pool) = (&map, &pool);
            threads.spawn(move || {
                for step in 0..3000_usize {
                    let page = (step * 7919 + thread * 13) % PAGES;
                    words(map)[page * STEP + step % STEP].fetch_add(1, Ordering::Relaxed);
                    if step % 500 == thread {
                        map.sync().unwrap();
                    }
                    assert!(pool.stats().resident_pages <= pool.stats().budget_pages);
                }
            });
        }
    });
    map.sync().unwrap();
    drop(map);
    let plain = plain_map(&small_pool(8), device);
    let sum: u64 = (0..PAGES as u64)
        .map(|page| {
            let page = plain.read(PageNo(page)).unwrap();
            page.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).sum::<u64>()
        })
        .sum();
    assert_eq!(sum, 4 * 3000);
}

#[test]
fn stores_of_many_threads_are_not_lost() {
    let config = PoolConfig { shards: 2, writers: 2, ..small_config(16) };
    increments_are_not_lost(MemoryDirectory::new().create("words").unwrap(), config.clone());
    let folder = tempfile::tempdir().unwrap();
    increments_are_not_lost(DiskDirectory::new(folder.path()).create("words").unwrap(), config);
}

#[test]
fn a_device_that_takes_longer_than_the_pools_patience_ends_no_thread() {
    let (_memory, device) = numbered(64);
    let pool = Pool::new(PoolConfig { miss_timeout_ms: 10, ..small_config(8) }).unwrap();
    let gate = IoGate::default();
    let Some(map) = transparent(&pool, gate.before(device)) else { return };
    gate.close();
    std::thread::scope(|threads| {
        // More pages than the pool holds: the thread waits for writeback.
        threads.spawn(|| (0..16).for_each(|page| words(&map)[page * STEP].store(7, Ordering::Relaxed)));
        gate.await_waiting();
        std::thread::sleep(Duration::from_millis(100));
        gate.open();
    });
    assert!((0..16).all(|page| words(&map)[page * STEP].load(Ordering::Relaxed) == 7));
}

#[test]
fn a_sync_does_not_wait_for_stores_made_meanwhile() {
    let (_memory, device) = numbered(4);
    // So large that nothing but the sync itself tells what was stored.
    let pool = small_pool(1024);
    let Some(map) = transparent(&pool, device) else { return };
    let stop = Stop::default();
    std::thread::scope(|threads| {
        let _later = stop.later();
        threads.spawn(|| {
            while !stop.is_set() {
                words(&map)[0].fetch_add(1, Ordering::Relaxed);
            }
        });
        (0..300).for_each(|_| map.sync().unwrap());
    });
}

#[test]
fn what_was_stored_before_a_sync_is_there_after_it_whichever_threads_sync() {
    let (memory, device) = numbered(8);
    let pool = Pool::new(PoolConfig { shards: 2, ..small_config(6) }).unwrap();
    let Some(map) = transparent(&pool, device) else { return };
    std::thread::scope(|threads| {
        for thread in 0..4 {
            let (memory, map) = (&memory, &map);
            threads.spawn(move || {
                for round in 1..300_u64 {
                    let page = thread * 2 + (round % 2) as usize;
                    words(map)[page * STEP + 5].store(round, Ordering::Relaxed);
                    map.sync().unwrap();
                    let bytes = memory.bytes("numbered").unwrap();
                    assert_eq!(bytes[page * PAGE + 40..][..8], round.to_le_bytes());
                }
            });
        }
    });
}

#[derive(Clone, Debug)]
enum Op {
    Load(usize),
    Store(usize, u64),
    Sync,
    Flush(u64, u64),
    Evict,
    Grow(u64),
    Reopen,
}

const MOST_BYTES: u64 = 24 * PAGE as u64;

fn operation() -> impl Strategy<Value = Op> {
    let word = || 0..MOST_BYTES as usize / 8;
    let page = || 0..MOST_BYTES / PAGE as u64;
    prop_oneof![
        8 => word().prop_map(Op::Load),
        8 => (word(), any::<u64>()).prop_map(|(word, value)| Op::Store(word, value)),
        1 => Just(Op::Sync),
        1 => (page(), page()).prop_map(|(from, to)| Op::Flush(from, to)),
        1 => Just(Op::Evict),
        1 => (0..MOST_BYTES).prop_map(Op::Grow),
        1 => Just(Op::Reopen),
    ]
}

/// Does to a transparent map what is done to a vector; they hold the same at every step, and the file in the end.
fn behaves_as_a_vector(device: &Arc<dyn Device>, len: u64, budget: usize, ops: &[Op]) {
    device.set_len(len).unwrap();
    let mut model = vec![0_u8; len as usize];
    let pool = small_pool(budget);
    let open = || {
        let options = MapOptions { reserve_bytes: MOST_BYTES, ..MapOptions::default() };
        TransparentMap::new(&pool, Arc::clone(device), options).unwrap()
    };
    let mut map = open();
    for op in ops {
        match *op {
            Op::Load(at) => {
                let expected = model.get(at * 8..at * 8 + 8).map(|bytes| u64::from_ne_bytes(bytes.try_into().unwrap()));
                assert_eq!(words(&map).get(at).map(|word| word.load(Ordering::Relaxed)), expected, "word {at}");
            }
            Op::Store(at, value) => {
                if let Some(word) = words(&map).get(at) {
                    word.store(value, Ordering::Relaxed);
                    model[at * 8..at * 8 + 8].copy_from_slice(&value.to_ne_bytes());
                }
            }
            Op::Sync => map.sync().unwrap(),
            Op::Flush(from, to) => map.flush(PageNo(from)..PageNo(to)).unwrap(),
            Op::Evict => drop(pool.evict(usize::MAX)),
            Op::Grow(len) => {
                map.grow(len).unwrap();
                model.resize(model.len().max(len as usize), 0);
            }
            Op::Reopen => {
                map.sync().unwrap();
                drop(map);
                assert_eq!(pool.stats().resident_pages, 0, "memory has gone with the map");
                map = open();
            }
        }
    }
    map.sync().unwrap();
    let mut bytes = vec![0; model.len() + 1];
    assert_eq!(device.read_at(0, &mut bytes).unwrap(), model.len());
    assert!(bytes[..model.len()] == model[..], "the file differs from the model");
}

fn is_supported() -> bool {
    transparent(&small_pool(4), MemoryDirectory::with_file("one", &[0; PAGE]).open("one").unwrap()).is_some()
}

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn plain_memory_over_memory_is_a_vector(
        len in 0..MOST_BYTES,
        budget in 4..40usize,
        ops in prop::collection::vec(operation(), 1..200),
    ) {
        if is_supported() {
            behaves_as_a_vector(&MemoryDirectory::new().create("file").unwrap(), len, budget, &ops);
        }
    }
}

proptest! {
    #![proptest_config(cases(6))]

    #[test]
    fn plain_memory_over_a_real_file_is_a_vector(
        len in 0..MOST_BYTES,
        budget in 4..40usize,
        ops in prop::collection::vec(operation(), 1..200),
        threads: bool,
    ) {
        if is_supported() {
            let folder = tempfile::tempdir().unwrap();
            let engine = if threads { IoEngine::Threads } else { IoEngine::Auto };
            let disk = DiskDirectory::new(folder.path()).with(Default::default(), engine);
            behaves_as_a_vector(&disk.create("file").unwrap(), len, budget, &ops);
        }
    }
}

#[test]
fn a_file_that_ends_inside_a_page_and_grows() {
    let memory = MemoryDirectory::with_file("odd", &[7; PAGE + 100]);
    let pool = small_pool(4);
    let Some(map) = transparent(&pool, memory.open_to_write("odd").unwrap()) else { return };
    // SAFETY: inside the file; this test alone uses the map.
    unsafe {
        assert_eq!((*map.as_ptr().add(PAGE + 99), *map.as_ptr().add(PAGE + 100)), (7, 0));
        *map.as_ptr().add(PAGE + 50) = 8;
    }
    map.sync().unwrap();
    assert_eq!(memory.bytes("odd").unwrap().len(), PAGE + 100);
    map.grow(3 * PAGE as u64).unwrap();
    // SAFETY: inside the file, which has just grown to three pages; this test alone uses the map.
    unsafe { *map.as_ptr().add(2 * PAGE) = 9 };
    map.sync().unwrap();
    let bytes = memory.bytes("odd").unwrap();
    assert_eq!((bytes.len(), bytes[PAGE + 50], bytes[2 * PAGE]), (3 * PAGE, 8, 9));
}

/// Sums the first words of `pages` of a map, as a thread that goes through it in that order.
fn sum(map: &TransparentMap, pages: impl Iterator<Item = u64>) -> u64 {
    pages.map(|page| words(map)[page as usize * STEP].load(Ordering::Relaxed)).sum()
}

#[test]
fn a_thread_that_goes_through_in_order_gets_many_pages_with_one_fault_and_no_other_does() {
    const PAGES: u64 = 1024;
    let total = (0..PAGES).sum::<u64>();
    // With room for all pages it is known how many come; in a smaller pool that depends on what is free at the time.
    for (advice, budget, most_misses) in [
        (AccessAdvice::Normal, 2048, 70),
        (AccessAdvice::Sequential, 2048, 64),
        (AccessAdvice::Random, 2048, PAGES),
        (AccessAdvice::Normal, 512, PAGES),
    ] {
        let (memory, device) = numbered(PAGES);
        let pool = small_pool(budget);
        let options = MapOptions { advice, ..MapOptions::default() };
        let map = match TransparentMap::new(&pool, device, options) {
            Err(refusal @ PoolError::Unsupported { .. }) => return quire_sys::testing::skipped(refusal),
            map => map.unwrap(),
        };
        assert_eq!(sum(&map, 0..PAGES), total);
        let stats = pool.stats();
        assert!(stats.misses <= most_misses && stats.misses + stats.ahead >= PAGES, "{advice:?} {stats:?}");
        assert!(advice != AccessAdvice::Random || stats.ahead == 0);
        // Pages that came along are write-protected: a first store to them is noticed.
        (0..PAGES).for_each(|page| words(&map)[page as usize * STEP].store(page + 1, Ordering::Relaxed));
        assert_eq!(sum(&map, 0..PAGES), total + PAGES);
        assert!(pool.stats().resident_pages <= budget as u64);
        map.sync().unwrap();
        for (page, bytes) in memory.bytes("numbered").unwrap().chunks(PAGE).enumerate() {
            assert_eq!(u64::from_le_bytes(bytes[..8].try_into().unwrap()), page as u64 + 1);
        }
    }
}

#[test]
fn a_run_that_cannot_be_read_leaves_the_page_that_was_asked_for() {
    let (memory, _) = numbered(256);
    // The third read is the first of a run.
    let faults = vec![(FaultTrigger::Nth(DeviceOperation::Read, 2), InjectedFault::Error(errno::EIO))];
    let device = FaultInjector::new(Arc::new(memory), faults).open_to_write("numbered").unwrap();
    let pool = small_pool(512);
    let Some(map) = transparent(&pool, device) else { return };
    assert_eq!(sum(&map, 0..256), (0..256).sum::<u64>());
    let stats = pool.stats();
    assert_eq!((stats.resident_pages, stats.misses + stats.ahead), (256, 256));
    assert!(stats.failed_reads > 0 && stats.ahead > 100, "{stats:?}");
}
