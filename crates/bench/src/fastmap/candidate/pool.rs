//! Quire's pool, by guards and as plain memory: the only file here that knows its interface.
//!
//! Relies on one map in a pool of its own. With `AHEAD` the workload's knowledge of future pages is passed on.

use std::sync::Arc;

use anyhow::Context;
use quire_device::{BlockDevice, Device, Directory, DiskDirectory, NullDevice, ReadPattern};
use quire_pool::{
    AccessAdvice, Map, MapOptions, PageNo, Pool, PoolConfig, ReadGuard, TierConfig, TransparentMap, WriteGuard,
};

use crate::fastmap::pages::{Counters, Page, PageMut, Pages, WordPage};
use crate::fastmap::testbed::{DeviceKind, PAGE_BYTES, PAGE_WORDS, Testbed};

/// A file in a pool.
pub struct GuardedPages<const AHEAD: bool> {
    map: Map,
    pool: Arc<Pool>,
}

impl<const AHEAD: bool> GuardedPages<AHEAD> {
    /// Maps `place` in a pool of `budget_bytes`. With `streams` the pool looks for pages read in order.
    ///
    /// # Errors
    /// When it can't be opened, or there is no memory.
    pub fn new(testbed: &Testbed, budget_bytes: u64, streams: bool) -> anyhow::Result<Self> {
        let pool = pool(budget_bytes)?;
        let map = pool.map(open(testbed)?, options(streams))?;
        Ok(Self { map, pool })
    }

    /// `pages` pages on a device that takes no time, in a pool of `budget_bytes`: what is left is the pool's own work.
    ///
    /// # Errors
    /// There is no memory.
    pub fn over_nothing(pages: u64, budget_bytes: u64) -> anyhow::Result<Self> {
        let pool = pool(budget_bytes)?;
        let map = pool.map(nothing(pages), options(false))?;
        Ok(Self { map, pool })
    }

    /// `map`, which is of `pool`.
    pub fn of(pool: Arc<Pool>, map: Map) -> Self {
        Self { map, pool }
    }

    /// The file.
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// The pool that it is in.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The word at `index` of page `page`, without holding the page.
    ///
    /// # Errors
    /// As [`Pages::read`].
    pub fn look(&self, page: u64, index: usize) -> anyhow::Result<u64> {
        let word = self.map.optimistic_read(PageNo(page), |view| view.u64(index * 8))?;
        word.with_context(|| format!("page {page} has no word {index}"))
    }
}

fn pool(budget_bytes: u64) -> anyhow::Result<Arc<Pool>> {
    // Of the first tier alone; `bench dbio` measures both.
    Ok(Pool::new(PoolConfig { budget_bytes: budget_bytes as usize, tier: TierConfig::off(), ..PoolConfig::default() })?)
}

fn options(streams: bool) -> MapOptions {
    let advice = if streams { AccessAdvice::Normal } else { AccessAdvice::Random };
    MapOptions { advice, ..MapOptions::default() }
}

/// A device of so many pages whose reads fill in eight bytes, so that memory is taken.
fn nothing(pages: u64) -> Arc<dyn Device> {
    Arc::new(NullDevice::new(pages * PAGE_BYTES as u64, ReadPattern::Offsets))
}

fn open(testbed: &Testbed) -> anyhow::Result<Arc<dyn Device>> {
    if testbed.kind == DeviceKind::Zram {
        return Ok(BlockDevice::open(&testbed.path)?);
    }
    let dir = testbed.path.parent().context("a file has a directory")?;
    let name = testbed.path.file_name().and_then(|name| name.to_str()).context("a file has a name")?;
    Ok(DiskDirectory::new(dir).open_to_write(name)?)
}

impl<const AHEAD: bool> Pages for GuardedPages<AHEAD> {
    type Read<'a> = ReadPage<'a>;
    type Write<'a> = WritePage<'a>;

    const AHEAD: bool = AHEAD;

    fn read(&self, page: u64) -> anyhow::Result<ReadPage<'_>> {
        Ok(ReadPage(self.map.read(PageNo(page))?))
    }

    fn write(&self, page: u64) -> anyhow::Result<WritePage<'_>> {
        Ok(WritePage(self.map.write(PageNo(page))?))
    }

    fn fresh(&self, page: u64) -> anyhow::Result<WritePage<'_>> {
        Ok(WritePage(self.map.overwrite(PageNo(page))?))
    }

    fn prefetch(&self, pages: &[u64]) -> anyhow::Result<()> {
        if AHEAD {
            let mut numbers = [PageNo(0); 64];
            for part in pages.chunks(numbers.len()) {
                numbers.iter_mut().zip(part).for_each(|(number, &page)| *number = PageNo(page));
                self.map.prefetch(&numbers[..part.len()]);
            }
        }
        Ok(())
    }

    fn counters(&self) -> Counters {
        counters(&self.pool)
    }
}

fn counters(pool: &Pool) -> Counters {
    let stats = pool.stats();
    let waits: u64 = stats.waits.iter().map(|wait| wait.count).sum();
    let wait_ns: u64 = stats.waits.iter().map(|wait| wait.total_ns).sum();
    let sums = [
        ("hits", stats.hits),
        ("misses", stats.misses),
        ("evictions", stats.evicted),
        ("evict_calls", stats.evict_calls),
        ("written", stats.written),
        ("writes", stats.writes),
        ("ahead", stats.ahead),
        ("ahead_reads", stats.ahead_reads),
        ("looks_again", stats.optimistic_retries),
        ("waits", waits),
        ("wait_ns", wait_ns),
    ];
    let causes = stats.waits.iter().map(|wait| (format!("waits_{}", wait.cause.name()), wait.count as f64));
    sums.into_iter().map(|(name, count)| (name.to_owned(), count as f64)).chain(causes).collect()
}

/// A file in a pool as plain memory.
pub struct TransparentPages {
    map: TransparentMap,
    pool: Arc<Pool>,
}

impl TransparentPages {
    /// Maps `place` in a pool of `budget_bytes`. With `streams` the pool looks for pages touched in order.
    ///
    /// # Errors
    /// When it can't be opened, there is no memory, or userfaultfd is forbidden.
    pub fn new(testbed: &Testbed, budget_bytes: u64, streams: bool) -> anyhow::Result<Self> {
        let pool = pool(budget_bytes)?;
        Ok(Self { map: TransparentMap::new(&pool, open(testbed)?, options(streams))?, pool })
    }

    /// As [`GuardedPages::over_nothing`].
    ///
    /// # Errors
    /// There is no memory, or userfaultfd is forbidden.
    pub fn over_nothing(pages: u64, budget_bytes: u64) -> anyhow::Result<Self> {
        let pool = pool(budget_bytes)?;
        Ok(Self { map: TransparentMap::new(&pool, nothing(pages), options(false))?, pool })
    }

    fn page(&self, page: u64) -> anyhow::Result<WordPage<'_>> {
        let start = page as usize * PAGE_WORDS;
        self.map
            .words()
            .get(start..start + PAGE_WORDS)
            .map(WordPage)
            .with_context(|| format!("there is no page {page}"))
    }
}

impl Pages for TransparentPages {
    type Read<'a> = WordPage<'a>;
    type Write<'a> = WordPage<'a>;

    fn read(&self, page: u64) -> anyhow::Result<WordPage<'_>> {
        self.page(page)
    }

    fn write(&self, page: u64) -> anyhow::Result<WordPage<'_>> {
        self.page(page)
    }

    fn counters(&self) -> Counters {
        counters(&self.pool)
    }
}

/// A page that stays as it is meanwhile.
pub struct ReadPage<'a>(ReadGuard<'a>);

impl Page for ReadPage<'_> {
    fn word(&self, index: usize) -> u64 {
        word(&self.0, index)
    }

    fn copy_out(&self, index: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.0[index * 8..index * 8 + into.len()]);
    }
}

/// A page of one's own.
pub struct WritePage<'a>(WriteGuard<'a>);

impl Page for WritePage<'_> {
    fn word(&self, index: usize) -> u64 {
        word(&self.0, index)
    }

    fn copy_out(&self, index: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.0[index * 8..index * 8 + into.len()]);
    }
}

impl PageMut for WritePage<'_> {
    fn set_word(&mut self, index: usize, value: u64) {
        self.0[index * 8..index * 8 + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn copy_in(&mut self, index: usize, from: &[u8]) {
        self.0[index * 8..index * 8 + from.len()].copy_from_slice(from);
    }
}

fn word(bytes: &[u8], index: usize) -> u64 {
    u64::from_le_bytes(bytes[index * 8..index * 8 + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fastmap::testbed::{CHANGED_WORD, stamp};
    use quire_pool::PoolError;

    #[test]
    fn the_pool_as_memory_shows_stamps_and_keeps_what_is_stored() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let testbed = Testbed::stamped_file(&dir.path().join("data"), 200).unwrap();
        let map = match TransparentPages::new(&testbed, 64 * 4096, true) {
            Err(error) if matches!(error.downcast_ref(), Some(PoolError::Unsupported { .. })) => return,
            map => map.unwrap(),
        };
        for round in 0..2 {
            for page in 0..200 {
                assert_eq!(map.read(page).unwrap().word(0), stamp(page));
                assert!(round == 0 || map.read(page).unwrap().word(CHANGED_WORD) == page);
                map.write(page).unwrap().set_word(CHANGED_WORD, page);
            }
        }
        assert!(map.read(200).is_err());
    }
}
