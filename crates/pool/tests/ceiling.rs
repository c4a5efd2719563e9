//! The ceiling, as the system sees it: the process's memory. Alone in its program, so that no other test's memory is counted.

#[allow(dead_code, reason = "the other tests use other parts of it")]
mod common;

use common::PAGE;
use quire_device::{Directory, DiskDirectory};
use quire_pool::{MapOptions, PageNo, Pool, PoolConfig};

const FILE_PAGES: u64 = 8 << 10;
const BUDGET_BYTES: usize = 8 << 20;

/// Memory of this process, in bytes.
fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn the_process_takes_no_more_memory_than_the_budget_and_a_little() {
    let folder = tempfile::tempdir().unwrap();
    let device = DiskDirectory::new(folder.path()).create("large").unwrap();
    // In one piece, since many small ones take long to remove.
    device.allocate(FILE_PAGES * PAGE as u64).unwrap();
    let before = resident_bytes();
    let pool = Pool::new(PoolConfig { budget_bytes: BUDGET_BYTES, ..PoolConfig::default() }).unwrap();
    let map = pool.map(device, MapOptions::default()).unwrap();
    let mut most = 0;
    std::thread::scope(|threads| {
        for thread in 0..2 {
            let map = &map;
            threads.spawn(move || {
                for page in (0..FILE_PAGES).filter(|page| page % 2 == thread) {
                    let page = PageNo(if thread == 0 { page } else { page * 7919 % FILE_PAGES });
                    if page.0.is_multiple_of(4) {
                        map.write(page).unwrap().fill(1)
                    } else {
                        drop(map.read(page).unwrap())
                    }
                    map.optimistic_read(PageNo(page.0 / 2), |view| view.u64(8)).unwrap();
                }
            });
        }
        for _ in 0..200 {
            assert!(pool.stats().resident_pages <= (BUDGET_BYTES / PAGE) as u64);
            most = most.max(resident_bytes());
            std::thread::yield_now();
        }
    });
    most = most.max(resident_bytes());
    let taken = most.saturating_sub(before);
    // Beyond the frames: words, queues, page tables, stacks, rings.
    assert!(taken < BUDGET_BYTES + (6 << 20), "{taken} bytes with a budget of {BUDGET_BYTES}");
    drop(map);
    assert!(resident_bytes().saturating_sub(before) < 6 << 20, "it goes back with the map");
}
