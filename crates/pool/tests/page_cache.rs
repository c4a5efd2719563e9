//! The system's page cache beside the pool: what another program left there is used and given up, and what is in both is told.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use quire_device::{Device, Directory, DiskDirectory};
use quire_pool::{Map, MapOptions, Pool, PoolConfig, TierConfig, TransparentMap};

use crate::common::{PAGE, number, plain_map, put_number, small_config};

const PAGES: u64 = 64;

/// A file of numbered pages on disk, none of it in the page cache; `None` where the kernel doesn't tell what is.
fn file(folder: &tempfile::TempDir) -> Option<(File, Arc<dyn Device>)> {
    let path = folder.path().join("file");
    let mut bytes = vec![0; PAGES as usize * PAGE];
    for (number, page) in bytes.chunks_mut(PAGE).enumerate() {
        page[..8].copy_from_slice(&(number as u64).to_le_bytes());
    }
    std::fs::write(&path, bytes).unwrap();
    let other = File::open(&path).unwrap();
    other.sync_all().unwrap();
    quire_sys::file::drop_cache(&other);
    let device = DiskDirectory::new(folder.path()).open_to_write("file").unwrap();
    if !device.mode().starts_with("direct") || device.cached_bytes(0, 1).is_none() {
        quire_sys::testing::skipped_even_in_ci("no direct I/O, or a kernel that doesn't tell what is in its cache");
        return None;
    }
    Some((other, device))
}

fn pool() -> Arc<Pool> {
    let tier = TierConfig { page_cache: true, ..TierConfig::default() };
    Pool::new(PoolConfig { tier, ..small_config(2 * PAGES as usize) }).unwrap()
}

fn read_elsewhere(other: &File, page: u64) {
    other.read_exact_at(&mut [0], page * PAGE as u64).unwrap();
}

fn read_all(map: &Map) {
    (0..PAGES).for_each(|page| assert_eq!(number(map, page), page));
}

#[test]
fn a_page_that_the_page_cache_has_is_taken_from_there_and_others_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let Some((other, device)) = file(&folder) else { return };
    let pool = pool();
    let map = plain_map(&pool, Arc::clone(&device));
    quire_sys::page_cache::drop_range(&other, 0, PAGES * PAGE as u64);
    read_elsewhere(&other, 5);
    let cached = device.cached_bytes(0, PAGES * PAGE as u64).unwrap();
    assert!(cached > 0);
    read_all(&map);
    let paths = pool.stats().paths;
    assert!(paths.read_cached > 0, "{paths:?}");
    assert_eq!(paths.read_cached + paths.read_direct, PAGES);
    let left = device.cached_bytes(0, PAGES * PAGE as u64).unwrap();
    assert!(left == 0 || paths.cache_kept > 0, "{left} bytes are left, {paths:?}");
    assert_eq!(map.held_twice_bytes(), Some(left));
}

#[test]
fn bytes_that_another_program_reads_are_told_as_held_twice() {
    let folder = tempfile::tempdir().unwrap();
    let Some((other, device)) = file(&folder) else { return };
    let pool = pool();
    let map = plain_map(&pool, Arc::clone(&device));
    read_all(&map);
    assert_eq!(map.held_twice_bytes(), Some(0));
    read_elsewhere(&other, 9);
    let cached = device.cached_bytes(0, PAGES * PAGE as u64).unwrap();
    assert_eq!(map.held_twice_bytes(), Some(cached));
    pool.evict(usize::MAX);
    assert_eq!(map.held_twice_bytes(), Some(0));
}

#[test]
fn what_was_written_around_the_page_cache_is_never_read_from_an_older_copy_there() {
    let folder = tempfile::tempdir().unwrap();
    let Some((other, device)) = file(&folder) else { return };
    let pool = pool();
    let map = plain_map(&pool, device);
    for round in 1..20 {
        (0..PAGES).for_each(|page| read_elsewhere(&other, page));
        (0..PAGES).for_each(|page| put_number(&map, page, page + round * PAGES));
        map.sync().unwrap();
        if round % 2 == 0 {
            (0..PAGES).for_each(|page| read_elsewhere(&other, page));
        }
        pool.evict(usize::MAX);
        (0..PAGES).for_each(|page| assert_eq!(number(&map, page), page + round * PAGES));
    }
    let stats = pool.stats();
    assert!(stats.paths.read_cached > 0 && stats.paths.write_direct > 0, "{:?}", stats.paths);
}

#[test]
fn faults_take_pages_from_the_page_cache_too() {
    let folder = tempfile::tempdir().unwrap();
    let Some((other, device)) = file(&folder) else { return };
    let pool = pool();
    let options = MapOptions { read_ahead_pages: 0, ..MapOptions::default() };
    let map = match TransparentMap::new(&pool, device, options) {
        Ok(map) => map,
        Err(error) => return quire_sys::testing::skipped(error),
    };
    (0..PAGES).for_each(|page| read_elsewhere(&other, page));
    for page in 0..PAGES {
        let word = &map.words()[page as usize * PAGE / 8];
        assert_eq!(word.load(std::sync::atomic::Ordering::Relaxed), page);
    }
    assert!(pool.stats().paths.read_cached > 0);
}
