//! The ceiling under the kernel's own limit: in a group of processes whose memory is hardly more than the pool's budget the
//! limit is never met, whatever the threads do.
//!
//! Relies on root and on the memory controller of cgroup v1 or v2; where there is none the test has nothing to say. The
//! work is done by this program, run again inside the group.

#[allow(dead_code, reason = "the other tests use other parts of it")]
mod common;
#[path = "common/memory_group.rs"]
#[allow(dead_code, reason = "another test uses other parts of it")]
mod memory_group;

use common::PAGE;
use memory_group::MemoryGroup;
use quire_device::{Directory, DiskDirectory};
use quire_pool::{MapOptions, PageNo, Pool, PoolConfig, PoolError, TransparentMap};
use quire_rng::SplitMix64;

const BUDGET_BYTES: usize = 16 << 20;
const FILE_PAGES: u64 = 16 << 10;
/// For the program itself, its threads and rings, words and page tables of the whole file.
const SLACK_BYTES: usize = 12 << 20;
const INSIDE: &str = "QUIRE_TEST_CAGE";

#[test]
fn a_limit_hardly_larger_than_the_budget_is_never_met() {
    let Some(group) = MemoryGroup::new("pool", BUDGET_BYTES + SLACK_BYTES) else {
        return quire_sys::testing::skipped("no memory limit can be set here");
    };
    let folder = tempfile::tempdir().unwrap();
    let device = DiskDirectory::new(folder.path()).create("large").unwrap();
    // In one piece, since many small ones take long to remove.
    device.allocate(FILE_PAGES * PAGE as u64).unwrap();
    if !device.mode().starts_with("direct") {
        return quire_sys::testing::skipped(
            "files cannot be opened past the system's cache here, which would be counted too",
        );
    }
    let ended = group.run("work_inside", INSIDE, folder.path().as_os_str());
    let said = String::from_utf8_lossy(&ended.stderr).into_owned() + &String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && said.contains("worked inside"), "{:?}: {said}", ended.status);
    assert_eq!(group.met(), 0, "the limit was met");
}

/// What is done under the limit; nothing if this is not the inside.
#[test]
fn work_inside() {
    let Some(folder) = std::env::var_os(INSIDE) else { return };
    let disk = DiskDirectory::new(folder);
    let pool = Pool::new(PoolConfig { budget_bytes: BUDGET_BYTES, ..PoolConfig::default() }).unwrap();
    let map = pool.map(disk.open_to_write("large").unwrap(), MapOptions::default()).unwrap();
    std::thread::scope(|threads| {
        for thread in 0..8 {
            let map = &map;
            threads.spawn(move || {
                let mut rng = SplitMix64::new(thread);
                for _ in 0..700 {
                    let page = PageNo(rng.below(FILE_PAGES));
                    match rng.below(8) {
                        0..2 => map.write(page).unwrap()[100] = 1,
                        2 => map.overwrite(page).unwrap().fill(thread as u8),
                        3 => drop(map.optimistic_read(page, |view| view.u64(8)).unwrap()),
                        4 => drop(map.prefetch(&[page, PageNo(page.0 / 2), PageNo(page.0 / 3)])),
                        // A stream.
                        5 => {
                            (page.0..FILE_PAGES.min(page.0 + 8)).for_each(|page| drop(map.read(PageNo(page)).unwrap()))
                        }
                        _ => drop(map.read(page).unwrap()),
                    }
                }
            });
        }
    });
    map.sync().unwrap();
    drop(map);
    match TransparentMap::new(&pool, disk.open_to_write("large").unwrap(), MapOptions::default()) {
        Err(refusal @ PoolError::Unsupported { .. }) => quire_sys::testing::skipped(refusal),
        map => load_and_store(&map.unwrap()),
    }
    println!("worked inside");
}

fn load_and_store(map: &TransparentMap) {
    let mut rng = SplitMix64::new(99);
    for _ in 0..5000 {
        let word = &map.words()[rng.below(map.len() / 8) as usize];
        word.fetch_add(rng.below(2), std::sync::atomic::Ordering::Relaxed);
    }
    map.sync().unwrap();
}
