//! No cache at all: each touch is a direct `pread` into a page of the thread's own, a store a `pwrite` after it.
//!
//! Relies on nothing between program and device; this is what the device gives to threads that wait for each request.

use std::fs::File;
use std::sync::atomic::Ordering;

use anyhow::Context;
use quire_sys::word_range::WordRange;

use crate::fastmap::pages::{Counters, ThreadAccess, WordAccess};
use crate::fastmap::testbed::{PAGE_BYTES, Testbed};

/// A file without cache.
#[derive(Debug)]
pub struct DirectPages {
    file: File,
}

impl DirectPages {
    /// Opens `place`.
    ///
    /// # Errors
    /// When it can't be opened for direct transfers.
    pub fn new(testbed: &Testbed) -> anyhow::Result<Self> {
        Ok(Self { file: testbed.open_direct()? })
    }
}

impl WordAccess for DirectPages {
    type ThreadAccess<'a> = DirectThread<'a>;

    fn thread_access(&self) -> anyhow::Result<DirectThread<'_>> {
        Ok(DirectThread { file: &self.file, page: WordRange::new(PAGE_BYTES).context("memory for a page")? })
    }

    fn counters(&self) -> Counters {
        Counters::new()
    }
}

/// One thread's page.
#[derive(Debug)]
pub struct DirectThread<'a> {
    file: &'a File,
    page: WordRange,
}

impl ThreadAccess for DirectThread<'_> {
    fn load(&mut self, page: u64, index: usize) -> anyhow::Result<u64> {
        self.page.read_from(self.file, page * PAGE_BYTES as u64, 0..PAGE_BYTES).context("pread")?;
        Ok(u64::from_le(self.page.words()[index].load(Ordering::Relaxed)))
    }

    fn store(&mut self, page: u64, index: usize, value: u64) -> anyhow::Result<()> {
        self.load(page, index)?;
        self.page.words()[index].store(value.to_le(), Ordering::Relaxed);
        self.page.write_to(self.file, page * PAGE_BYTES as u64, 0..PAGE_BYTES).context("pwrite")
    }

    fn prefetch(&mut self, _pages: &[u64]) -> anyhow::Result<()> {
        Ok(())
    }
}
