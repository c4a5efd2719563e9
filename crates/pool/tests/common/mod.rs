//! What the tests of the pool share: files in memory and on disk, small pools, pages with checksums.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::test_runner::Config;
use quire_device::{Device, Directory, MemoryDirectory};
use quire_pool::{Map, MapOptions, PageNo, Pool, PoolConfig, TierConfig, TierSize};

/// Bytes of a page in most tests.
pub const PAGE: usize = 4096;

/// Tells a thread to stop, also when the test fails.
#[derive(Default)]
pub struct Stop(pub AtomicBool);

impl Stop {
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets it when the result is dropped.
    pub fn later(&self) -> Later<'_> {
        Later(self)
    }
}

/// Sets a stop when it is dropped.
pub struct Later<'a>(&'a Stop);

impl Drop for Later<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// So many cases of a property, or as many as `PROPTEST_CASES` says.
pub fn cases(usual: u32) -> Config {
    let told = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    Config { cases: told.unwrap_or(usual), failure_persistence: None, ..Config::default() }
}

/// A pool of `pages` pages that waits for memory no longer than a test should.
pub fn small_pool(pages: usize) -> Arc<Pool> {
    Pool::new(small_config(pages)).unwrap()
}

/// The configuration of such a pool, without a second tier.
pub fn small_config(pages: usize) -> PoolConfig {
    PoolConfig { budget_bytes: pages * PAGE, miss_timeout_ms: 2000, tier: no_tier(), ..PoolConfig::default() }
}

/// No second tier; one that is given a size later takes every victim.
pub fn no_tier() -> TierConfig {
    TierConfig { is_adaptive: false, ..TierConfig::off() }
}

/// A second tier of `pages` pages that takes every victim.
pub fn tier(pages: usize) -> TierConfig {
    TierConfig { size: TierSize::Bytes(pages * PAGE), is_adaptive: false, ..TierConfig::default() }
}

/// A file in memory of `pages` pages, each starting with its number.
pub fn numbered(pages: u64) -> (MemoryDirectory, Arc<dyn Device>) {
    let mut bytes = vec![0; pages as usize * PAGE];
    for (number, page) in bytes.chunks_mut(PAGE).enumerate() {
        page[..8].copy_from_slice(&(number as u64).to_le_bytes());
    }
    let memory = MemoryDirectory::with_file("numbered", &bytes);
    let device = memory.open("numbered").unwrap();
    (memory, device)
}

/// Maps `device` without reading ahead.
pub fn plain_map(pool: &Arc<Pool>, device: Arc<dyn Device>) -> Map {
    pool.map(device, MapOptions { read_ahead_pages: 0, ..MapOptions::default() }).unwrap()
}

/// The number at the start of a page.
pub fn number(map: &Map, page: u64) -> u64 {
    let guard = map.read(PageNo(page)).unwrap();
    u64::from_le_bytes(guard[..8].try_into().unwrap())
}

/// Puts a number at the start of a page.
pub fn put_number(map: &Map, page: u64, value: u64) {
    map.write(PageNo(page)).unwrap()[..8].copy_from_slice(&value.to_le_bytes());
}

/// Sets all of a page: a value, and what follows from it, so that a torn page shows.
pub fn seal(page: &mut [u8], value: u64) {
    for (index, word) in page.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *word = value.wrapping_mul(index as u64 + 1).to_le_bytes();
    }
}

/// The value that a page was sealed with; `None` if it is torn.
pub fn sealed(page: &[u8]) -> Option<u64> {
    let words = page.as_chunks::<8>().0;
    let value = u64::from_le_bytes(words[0]);
    let is_whole =
        words.iter().enumerate().all(|(index, word)| u64::from_le_bytes(*word) == value.wrapping_mul(index as u64 + 1));
    is_whole.then_some(value)
}
