//! Linux's own: the file mapped shared.
//!
//! Relies on the kernel for everything: the page cache is the pool, the cgroup's limit its size.

use anyhow::Context;
use quire_sys::shared_map::{AccessPattern, SharedMap};

use crate::fastmap::pages::{Pages, WordPage};
use crate::fastmap::testbed::{PAGE_BYTES, PAGE_WORDS, Testbed};

/// A mapped file. With `AHEAD` its pages are asked for with `MADV_WILLNEED`.
#[derive(Debug)]
pub struct MmapPages<const AHEAD: bool> {
    map: SharedMap,
    pages: u64,
}

impl<const AHEAD: bool> MmapPages<AHEAD> {
    /// Maps all of `place`.
    ///
    /// # Errors
    /// When it can't be mapped.
    pub fn new(testbed: &Testbed, expect: AccessPattern) -> anyhow::Result<Self> {
        let bytes = testbed.pages as usize * PAGE_BYTES;
        let map =
            SharedMap::new(&testbed.open()?, bytes).with_context(|| format!("mapping {}", testbed.path.display()))?;
        map.advise(0..bytes, expect).context("madvise")?;
        Ok(Self { map, pages: testbed.pages })
    }

    fn page(&self, page: u64) -> anyhow::Result<WordPage<'_>> {
        let start = page as usize * PAGE_WORDS;
        let words = self.map.words().get(start..start + PAGE_WORDS);
        words.map(WordPage).with_context(|| format!("there is no page {page} of {}", self.pages))
    }
}

impl<const AHEAD: bool> Pages for MmapPages<AHEAD> {
    type Read<'a> = WordPage<'a>;
    type Write<'a> = WordPage<'a>;

    const AHEAD: bool = AHEAD;

    fn read(&self, page: u64) -> anyhow::Result<WordPage<'_>> {
        self.page(page)
    }

    fn write(&self, page: u64) -> anyhow::Result<WordPage<'_>> {
        self.page(page)
    }

    fn prefetch(&self, pages: &[u64]) -> anyhow::Result<()> {
        if AHEAD {
            for &page in pages {
                let start = page as usize * PAGE_BYTES;
                self.map.advise(start..start + PAGE_BYTES, AccessPattern::WillNeed).context("madvise(WILLNEED)")?;
            }
        }
        Ok(())
    }
}
