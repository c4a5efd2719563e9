//! A block device in a pool, also one whose size is no number of pages: nothing is written beyond its end.
//!
//! Relies on a loop device, which takes root and `losetup`; where there is none this test has nothing to say.

mod common;

use std::process::Command;

use common::plain_map;
use quire_device::BlockDevice;
use quire_pool::{PageNo, Pool, PoolConfig, PoolError};

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

#[test]
fn a_block_device_of_any_size_is_written_to_its_end_and_no_further() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(LEN as u64).unwrap();
    let answer = Command::new("losetup").args(["--find", "--show"]).arg(file.path()).output();
    let Some(answer) = answer.ok().filter(|answer| answer.status.success()) else {
        return quire_sys::testing::skipped("no loop device can be made here");
    };
    let looped = Loop(String::from_utf8(answer.stdout).unwrap().trim().to_owned());
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
