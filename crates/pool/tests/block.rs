//! A block device in a pool, also one whose size is no number of pages: nothing is written beyond its end.
//!
//! What the page cache has of it is not used: a direct write leaves older bytes there.
//!
//! Relies on a loop device, which takes root and `losetup`; where there is none this test has nothing to say.

use std::os::unix::fs::FileExt;
use std::process::Command;

use quire_device::{BlockDevice, CacheMode, IoEngine, of_file};
use quire_pool::{PageNo, Pool, PoolConfig, PoolError, TierConfig};

use crate::common::plain_map;

const PAGE: usize = 16384;
/// Ten pages and a bit, in sectors of 512 bytes.
const LEN: usize = 10 * PAGE + 5 * 512;

/// Takes a loop device down.
struct Loop(String);

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

/// A loop device of `file`; `None` where none can be made.
fn looped(file: &tempfile::NamedTempFile) -> Option<Loop> {
    let answer = Command::new("losetup").args(["--find", "--show"]).arg(file.path()).output();
    let answer = answer.ok().filter(|answer| answer.status.success())?;
    Some(Loop(String::from_utf8(answer.stdout).unwrap().trim().to_owned()))
}

#[test]
fn what_the_page_cache_has_of_a_block_device_is_not_used() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(LEN as u64).unwrap();
    let Some(looped) = looped(&file) else {
        return quire_sys::testing::skipped("no loop device can be made here");
    };
    let device = BlockDevice::open(&looped.0).unwrap();
    if !device.mode().starts_with("direct") {
        return quire_sys::testing::skipped_even_in_ci("no direct I/O on a loop device");
    }
    // Another program reads it through the page cache.
    let other = std::fs::File::options().read(true).write(true).open(&looped.0).unwrap();
    other.read_exact_at(&mut vec![0; LEN], 0).unwrap();
    // Also where it was opened as any file is.
    let as_a_file = of_file("loop", other, CacheMode::Direct, IoEngine::Auto);
    assert_eq!(as_a_file.take_cached(0, &mut [0; PAGE]).unwrap(), None);
    let tier = TierConfig { page_cache: true, ..TierConfig::default() };
    let config = PoolConfig { budget_bytes: 16 * PAGE, page_bytes: PAGE, tier, ..PoolConfig::default() };
    let pool = Pool::new(config).unwrap();
    let map = plain_map(&pool, device);
    (0..10).for_each(|page| drop(map.read(PageNo(page)).unwrap()));
    let paths = pool.stats().paths;
    assert_eq!((paths.read_cached, paths.read_direct), (0, 10));
}

#[test]
fn a_block_device_of_any_size_is_written_to_its_end_and_no_further() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(LEN as u64).unwrap();
    let Some(looped) = looped(&file) else {
        return quire_sys::testing::skipped("no loop device can be made here");
    };
    let pool = Pool::new(PoolConfig { budget_bytes: 4 * PAGE, page_bytes: PAGE, ..PoolConfig::default() }).unwrap();
    let map = plain_map(&pool, BlockDevice::open(&looped.0).unwrap());
    assert_eq!((map.len(), map.pages()), (LEN as u64, 11));
    for page in 0..11 {
        map.write(PageNo(page)).unwrap().fill(page as u8 + 1);
    }
    map.sync().unwrap();
    for page in (0..11).rev() {
        assert!(map.read(PageNo(page)).unwrap().iter().all(|&byte| byte == page as u8 + 1), "page {page}");
    }
    assert!(matches!(map.grow(LEN as u64 + 1), Err(PoolError::TooLong { .. } | PoolError::Device(_))));
    drop(map);
    let bytes = std::fs::read(file.path()).unwrap();
    assert_eq!(bytes.len(), LEN);
    assert!(bytes.chunks(PAGE).enumerate().all(|(page, bytes)| bytes.iter().all(|&byte| byte == page as u8 + 1)));
}
