//! A map as plain memory whose faults are served by threads: for code whose system calls touch it, too.
//!
//! Relies on userfaultfd for faults of system calls; where it is forbidden the tests say so and do nothing.

#[allow(dead_code, reason = "the other tests use other parts of it")]
mod common;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{PAGE, numbered, plain_map, small_config, small_pool};
use quire_device::{Device, Directory, MemoryDirectory};
use quire_pool::{FaultThreadOptions, MapOptions, PageNo, Pool, PoolConfig, PoolError, TransparentMap};

fn lost(words: &str) {
    panic!("{words}");
}

fn served(pool: &Arc<Pool>, device: Arc<dyn Device>, threads: usize) -> Option<TransparentMap> {
    let options = MapOptions { reserve_bytes: 64 * PAGE as u64, ..MapOptions::default() };
    match TransparentMap::with_fault_threads(pool, device, options, FaultThreadOptions { threads, lost }) {
        Ok(map) => Some(map),
        Err(refusal @ PoolError::Unsupported { .. }) => {
            quire_sys::testing::skipped(refusal);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

const STEP: usize = PAGE / 8;

#[test]
fn loads_find_the_file_and_stores_reach_it_under_the_ceiling() {
    let (memory, device) = numbered(64);
    let pool = small_pool(8);
    let Some(map) = served(&pool, device, 2) else { return };
    for round in 0..3 {
        for page in 0..64 {
            let word = &map.words()[page * STEP];
            assert_eq!(word.load(Ordering::Relaxed), page as u64 + round, "page {page}");
            word.fetch_add(1, Ordering::Relaxed);
            assert!(pool.stats().resident_pages <= 8);
        }
    }
    map.sync().unwrap();
    for (page, bytes) in memory.bytes("numbered").unwrap().chunks(PAGE).enumerate() {
        assert_eq!(u64::from_le_bytes(bytes[..8].try_into().unwrap()), page as u64 + 3);
    }
    assert!(pool.stats().evicted > 100);
}

/// A handler of the program that ran there and touched the map could wait for the thread that it has stopped.
#[test]
fn no_handler_of_the_programs_signals_runs_in_a_thread_of_the_pool() {
    let (_, device) = numbered(64);
    let pool = small_pool(8);
    let Some(map) = served(&pool, device, 2) else { return };
    // Served faults and a write-back: both kinds of threads have run, and have their names.
    (0..64).for_each(|page| map.words()[page * STEP].store(1, Ordering::Relaxed));
    map.sync().unwrap();
    let mut seen = [false; 2];
    for task in std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path()) {
        let Ok(status) = std::fs::read_to_string(task.join("status")) else { continue };
        let names = ["Name:\tquire-fault-", "Name:\tquire-pool-"];
        let Some(kind) = names.iter().position(|name| status.starts_with(name)) else { continue };
        let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t")).unwrap();
        let blocked = u64::from_str_radix(line, 16).unwrap();
        // SIGUSR1 and SIGTERM, but not SIGBUS.
        assert_eq!((blocked >> 9 & 1, blocked >> 14 & 1, blocked >> 6 & 1), (1, 1, 0), "{status}");
        seen[kind] = true;
    }
    assert_eq!(seen, [true; 2]);
}

#[test]
fn a_store_to_an_absent_page_is_one_fault_and_reaches_the_file() {
    let (memory, device) = numbered(16);
    let pool = small_pool(32);
    let Some(map) = served(&pool, device, 1) else { return };
    for round in 1..4 {
        map.words()[5 * STEP + 1].store(round, Ordering::Relaxed);
        map.sync().unwrap();
        let bytes = memory.bytes("numbered").unwrap();
        assert_eq!((bytes[5 * PAGE], bytes[5 * PAGE + 8]), (5, round as u8));
    }
    assert_eq!((pool.stats().misses, pool.stats().written), (1, 3));
}

#[test]
fn a_system_call_waits_for_pages_it_reads_and_pages_it_writes() {
    let (_, device) = numbered(64);
    let pool = small_pool(8);
    let Some(map) = served(&pool, device, 2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = File::options().read(true).write(true).create_new(true).open(folder.path().join("copy")).unwrap();
    // SAFETY: the whole map, which no other thread uses.
    let bytes = unsafe { std::slice::from_raw_parts_mut(map.as_ptr(), 64 * PAGE) };
    assert_eq!(file.write_at(bytes, 0).unwrap(), 64 * PAGE);
    assert_eq!(file.read_at(&mut bytes[PAGE..], 0).unwrap(), 63 * PAGE);
    for page in 1..64 {
        assert_eq!(map.words()[page * STEP].load(Ordering::Relaxed), page as u64 - 1);
    }
}

#[test]
fn stores_of_many_threads_are_not_lost() {
    const PAGES: usize = 40;
    let device = MemoryDirectory::new().create("words").unwrap();
    device.set_len((PAGES * PAGE) as u64).unwrap();
    let pool = Pool::new(PoolConfig { shards: 2, writers: 2, ..small_config(16) }).unwrap();
    let Some(map) = served(&pool, Arc::clone(&device), 3) else { return };
    std::thread::scope(|threads| {
        for thread in 0..4 {
            let (map, pool) = (&map, &pool);
            threads.spawn(move || {
                for step in 0..2000_usize {
                    let page = (step * 7919 + thread * 13) % PAGES;
                    map.words()[page * STEP + step % STEP].fetch_add(1, Ordering::Relaxed);
                    if step % 500 == thread {
                        map.sync().unwrap();
                    }
                    assert!(pool.stats().resident_pages <= pool.stats().budget_pages);
                }
            });
        }
    });
    drop(map);
    let plain = plain_map(&small_pool(8), device);
    let sum_of = |page: u64| {
        let page = plain.read(PageNo(page)).unwrap();
        page.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).sum::<u64>()
    };
    assert_eq!((0..PAGES as u64).map(sum_of).sum::<u64>(), 4 * 2000);
}

static GREETED: AtomicUsize = AtomicUsize::new(0);

#[test]
fn every_thread_of_the_pool_is_greeted() {
    let on_thread_start = Some((|| _ = GREETED.fetch_add(1, Ordering::SeqCst)) as fn());
    let pool = Pool::new(PoolConfig { on_thread_start, writers: 1, ..small_config(8) }).unwrap();
    let (_, device) = numbered(4);
    let Some(map) = served(&pool, device, 3) else { return };
    drop((map, pool));
    // One writer, the evictor, three fault threads; all have ended by now.
    assert_eq!(GREETED.load(Ordering::SeqCst), 5);
}
