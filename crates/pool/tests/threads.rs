//! Many threads on few pages: nothing is lost, nothing is torn, the ceiling holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quire_device::{Device, Directory, DiskDirectory, MemoryDirectory};
use quire_pool::{Map, PageNo, Pool, PoolConfig};

use crate::common::{self, PAGE, numbered, plain_map, seal, sealed, small_config, small_pool};

const PAGES: u64 = 48;
const THREADS: u64 = 4;
const ROUNDS: u64 = 1500;

/// A page that depends on the step and jumps about.
fn page_of(step: u64) -> PageNo {
    PageNo((step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % PAGES)
}

/// A file of sealed zeros.
fn sealed_zeros(device: &Arc<dyn Device>) {
    device.set_len(PAGES * PAGE as u64).unwrap();
}

fn increment(map: &Map, page: PageNo) {
    let mut guard = map.write(page).unwrap();
    let value = sealed(&guard).expect("a page is whole");
    seal(&mut guard, value + 1);
}

fn optimistic_read(map: &Map, page: PageNo) {
    let bytes = map
        .optimistic_read(page, |view| {
            let mut bytes = vec![0; PAGE];
            view.copy_to(0, &mut bytes).unwrap();
            bytes
        })
        .unwrap();
    assert!(sealed(&bytes).is_some(), "a validated read is whole");
}

fn work(pool: &Pool, map: &Map, thread: u64) {
    for round in 0..ROUNDS {
        let step = thread * ROUNDS + round;
        increment(map, page_of(step));
        match step % 16 {
            0..4 => optimistic_read(map, page_of(step ^ 0x55)),
            4..7 => assert!(sealed(&map.read(page_of(step ^ 0xaa)).unwrap()).is_some()),
            7 => {
                map.prefetch(&[page_of(step + 1), page_of(step + 2), page_of(step + 3)]);
            }
            8 => map.flush(PageNo(0)..PageNo(PAGES / 2)).unwrap(),
            9 if step.is_multiple_of(5) => map.sync().unwrap(),
            10 => {
                map.dont_need(PageNo(0)..PageNo(PAGES));
            }
            _ => {}
        }
        assert!(pool.stats().resident_pages <= pool.stats().budget_pages);
    }
}

fn increments_are_not_lost(device: Arc<dyn Device>, budget: usize, shards: usize) {
    sealed_zeros(&device);
    let pool = Pool::new(PoolConfig { shards, writers: 2, ..small_config(budget) }).unwrap();
    let map = plain_map(&pool, Arc::clone(&device));
    std::thread::scope(|threads| {
        for thread in 0..THREADS {
            let (pool, map) = (&pool, map.clone());
            threads.spawn(move || work(pool, &map, thread));
        }
    });
    map.sync().unwrap();
    drop(map);
    assert_eq!(pool.stats().resident_pages, 0);
    let again = plain_map(&small_pool(8), device);
    let sum: u64 = (0..PAGES).map(|page| sealed(&again.read(PageNo(page)).unwrap()).unwrap()).sum();
    assert_eq!(sum, THREADS * ROUNDS);
}

#[test]
fn increments_of_many_threads_are_not_lost_in_memory() {
    increments_are_not_lost(MemoryDirectory::new().create("counters").unwrap(), 12, 1);
    increments_are_not_lost(MemoryDirectory::new().create("counters").unwrap(), 16, 4);
}

#[test]
fn increments_of_many_threads_are_not_lost_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    increments_are_not_lost(DiskDirectory::new(folder.path()).create("counters").unwrap(), 16, 2);
}

#[test]
fn looks_are_never_torn_while_pages_change_and_go() {
    let device = MemoryDirectory::new().create("optimistic").unwrap();
    sealed_zeros(&device);
    let pool = small_pool(6);
    let map = plain_map(&pool, device);
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for step in 0..6000 {
                increment(&map, PageNo(step % 8));
            }
            stop.store(true, Ordering::Relaxed);
        });
        threads.spawn(|| {
            let mut step = 0;
            while !stop.load(Ordering::Relaxed) {
                optimistic_read(&map, PageNo(step % 8));
                step += 1;
            }
        });
    });
}

#[test]
fn readers_of_the_same_absent_page_share_one_read() {
    let (_memory, device) = numbered(4);
    let pool = small_pool(4);
    let map = plain_map(&pool, device);
    std::thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| assert_eq!(common::number(&map, 2), 2));
        }
    });
    assert_eq!(pool.stats().misses, 1);
}

#[test]
fn threads_that_read_ahead_meet_in_the_lanes() {
    let (_memory, device) = numbered(400);
    let pool = Pool::new(PoolConfig { shards: 2, queue_depth: 4, ..small_config(64) }).unwrap();
    let map = plain_map(&pool, device);
    std::thread::scope(|threads| {
        for thread in 0..4u64 {
            let map = map.clone();
            threads.spawn(move || {
                for step in 0..60 {
                    let pages: Vec<PageNo> =
                        (0..8).map(|page| PageNo((thread * 90 + step * 5 + page * 2) % 400)).collect();
                    map.prefetch(&pages);
                    pages.iter().rev().for_each(|page| assert_eq!(common::number(&map, page.0), page.0));
                }
            });
        }
    });
}
