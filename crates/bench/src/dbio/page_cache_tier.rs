//! The plain second tier, for comparison: the page cache, which takes what is written.
//!
//! A program can write a page into the page cache, and can't put a clean one there without a write. So writes go through the page cache, what
//! is read comes past it, and a miss first looks there and has the cache give the page up (`TierConfig::page_cache`). The pool writes a dirty
//! page soon before it evicts it, as for the other candidates: that is the path *evict-dirty*. Clean victims are dropped. A page that the
//! kernel has not written yet stays in its cache when the pool reads it again.
//!
//! Relies on the kernel for coherence: a direct read of bytes that are dirty in the cache has them written first.

use std::sync::Arc;

use quire_device::{Device, DeviceError, Direction, Layer, LayeredDevice, Queue, Transfer};

/// Sends writes through the page cache, in front of a device that goes past it.
struct BufferedWrites {
    /// The same file.
    buffered: Arc<dyn Device>,
}

/// `direct` for reads, and `buffered`, which has the same file, for writes.
pub fn page_cache_tier(direct: Arc<dyn Device>, buffered: Arc<dyn Device>) -> Arc<dyn Device> {
    LayeredDevice::new(direct, BufferedWrites { buffered })
}

impl Layer for BufferedWrites {
    fn run(&self, inner: &dyn Device, transfer: &mut Transfer) -> Result<(), DeviceError> {
        match transfer.direction {
            Direction::Read => inner.run(transfer),
            Direction::Write => self.buffered.run(transfer),
        }
    }

    fn write_durable(&self, _: &dyn Device, transfer: &mut Transfer) -> Result<(), DeviceError> {
        self.buffered.write_durable(transfer)
    }

    /// The pool of a trial reads nothing ahead, so its queues only write.
    fn queue(&self, _: &Arc<dyn Device>, depth: usize) -> Result<Box<dyn Queue>, DeviceError> {
        self.buffered.queue(depth)
    }

    fn flush(&self, _: &dyn Device) -> Result<(), DeviceError> {
        self.buffered.flush()
    }

    fn flush_data(&self, _: &dyn Device) -> Result<(), DeviceError> {
        self.buffered.flush_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_device::{CacheMode, Directory, DiskDirectory, IoEngine};
    use quire_pool::{MapOptions, PageNo, Pool, PoolConfig, TierConfig};

    const PAGES: u64 = 64;

    #[test]
    fn what_was_written_comes_from_the_page_cache_and_what_was_only_read_does_not() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let directory = |caching| DiskDirectory::new(dir.path()).with(caching, IoEngine::default());
        directory(CacheMode::Direct).create("pages").unwrap().allocate(PAGES * 4096).unwrap();
        let open = |caching| directory(caching).open_to_write("pages").unwrap();
        let device = page_cache_tier(open(CacheMode::Direct), open(CacheMode::Buffered));
        let tier = TierConfig { page_cache: true, ..TierConfig::off() };
        let pool = Pool::new(PoolConfig { budget_bytes: 16 * 4096, tier, ..PoolConfig::default() }).unwrap();
        let map = pool.map(Arc::clone(&device), MapOptions { read_ahead_pages: 0, ..MapOptions::default() }).unwrap();
        for page in 0..PAGES / 2 {
            map.overwrite(PageNo(page)).unwrap().fill(page as u8 + 1);
        }
        map.sync().unwrap();
        pool.evict(usize::MAX);
        let Some(cached) = device.cached_bytes(0, PAGES * 4096) else {
            return quire_sys::testing::skipped("this kernel doesn't say what its page cache holds");
        };
        if cached == 0 {
            return quire_sys::testing::skipped("this file system keeps nothing in the page cache");
        }
        for _ in 0..2 {
            for page in 0..PAGES {
                let expected = if page < PAGES / 2 { page as u8 + 1 } else { 0 };
                assert!(map.read(PageNo(page)).unwrap().iter().all(|&byte| byte == expected), "page {page}");
            }
        }
        let paths = pool.stats().paths;
        assert!(paths.read_cached > 0 && paths.read_direct >= PAGES, "{paths:?}");
    }
}
