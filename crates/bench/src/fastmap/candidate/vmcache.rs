//! The approach of vmcache (Leis et al., SIGMOD 2023), small: a range of anonymous memory as large as the file, pages read
//! into place with direct `pread`, a word of state for each, a clock, and one `madvise` for each page that is evicted.
//!
//! Relies on the state word for everything: in memory or not, locked by one or shared by several, marked by the clock.
//! What differs from the original: the clock's hand walks the state words instead of a hash table of resident pages, and
//! a thread that meets a locked page gives its processor up after a while, or sixteen threads on two cores would spin.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use quire_sys::word_range::WordRange;

use super::write_batch::BatchWriters;
use crate::fastmap::pages::{Counters, Page, PageMut, Pages, WordPage};
use crate::fastmap::testbed::{PAGE_BYTES, PAGE_WORDS, Testbed};

/// No thread uses the page; up to [`MOST_SHARED`] is the number of those who read it.
const UNLOCKED: u32 = 0;
const MOST_SHARED: u32 = 252;
const LOCKED: u32 = 253;
/// Unlocked, and not used since the hand came by.
const MARKED: u32 = 254;
const EVICTED: u32 = 255;
const STATE: u32 = 0xff;
/// Changed since it was read; a bit beside the state.
const DIRTY: u32 = 1 << 8;

/// Pages evicted together.
const BATCH: usize = 64;
/// How long there may be nothing to evict.
const PATIENCE: Duration = Duration::from_secs(5);
/// Looks at a locked page before the processor is given up.
const SPINS: u32 = 100;

/// The range, its states, and the clock.
pub struct Vmcache {
    file: Arc<File>,
    memory: WordRange,
    states: Box<[AtomicU32]>,
    thread_access: AtomicU64,
    used: AtomicU64,
    capacity: u64,
    writers: BatchWriters,
    faults: AtomicU64,
    evictions: AtomicU64,
    waits: AtomicU64,
}

impl Vmcache {
    /// A cache of `budget_bytes` for all of `place`.
    ///
    /// # Errors
    /// When it can't be opened for direct transfers, or there is no memory.
    pub fn new(testbed: &Testbed, budget_bytes: u64) -> anyhow::Result<Self> {
        let file = Arc::new(testbed.open_direct()?);
        let memory = WordRange::new(testbed.pages as usize * PAGE_BYTES).context("address space for the cache")?;
        let states = (0..testbed.pages).map(|_| AtomicU32::new(EVICTED)).collect();
        let capacity = (budget_bytes / PAGE_BYTES as u64).max(8);
        Ok(Self {
            writers: BatchWriters::new(Arc::clone(&file)),
            file,
            memory,
            states,
            thread_access: AtomicU64::new(0),
            used: AtomicU64::new(0),
            capacity,
            faults: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            waits: AtomicU64::new(0),
        })
    }

    fn words(&self, page: u64) -> WordPage<'_> {
        let start = page as usize * PAGE_WORDS;
        WordPage(&self.memory.words()[start..start + PAGE_WORDS])
    }

    fn state(&self, page: u64) -> anyhow::Result<&AtomicU32> {
        self.states.get(page as usize).with_context(|| format!("there is no page {page} of {}", self.states.len()))
    }

    /// Locks `page` in memory, with what the device holds if that is `needed`; `next` says for a state in which it is there
    /// what it becomes, if it can be had.
    fn lock(&self, page: u64, needed: bool, next: impl Fn(u32) -> Option<u32>) -> anyhow::Result<&AtomicU32> {
        let state = self.state(page)?;
        let mut looks = 0_u32;
        loop {
            let seen = state.load(Ordering::Acquire);
            if seen & STATE == EVICTED {
                if state.compare_exchange(seen, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    if let Err(error) = self.fault(page, needed) {
                        state.store(EVICTED, Ordering::Release);
                        return Err(error);
                    }
                    state.store(UNLOCKED, Ordering::Release);
                }
            } else if let Some(wanted) = next(seen) {
                if state.compare_exchange_weak(seen, wanted, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return Ok(state);
                }
            } else {
                looks += 1;
                if looks.is_multiple_of(SPINS) {
                    self.waits.fetch_add(1, Ordering::Relaxed);
                    std::thread::yield_now();
                }
                std::hint::spin_loop();
            }
        }
    }

    fn exclude(&self, page: u64, needed: bool) -> anyhow::Result<ExclusivePage<'_>> {
        let idle = |seen| matches!(seen & STATE, UNLOCKED | MARKED).then_some(seen & DIRTY | LOCKED);
        let state = self.lock(page, needed, idle)?;
        Ok(ExclusivePage { words: self.words(page), state })
    }

    /// Makes room for `page`, which is locked, and reads it into place if that is `needed`.
    fn fault(&self, page: u64, needed: bool) -> anyhow::Result<()> {
        self.faults.fetch_add(1, Ordering::Relaxed);
        if self.used.fetch_add(1, Ordering::Relaxed) >= self.capacity
            && let Err(error) = self.evict()
        {
            self.used.fetch_sub(1, Ordering::Relaxed);
            return Err(error);
        }
        if !needed {
            return Ok(());
        }
        let start = page as usize * PAGE_BYTES;
        self.memory.read_from(&self.file, start as u64, start..start + PAGE_BYTES).context("reading a page")
    }

    /// Evicts a batch of pages that the clock has come round to twice.
    fn evict(&self) -> anyhow::Result<()> {
        let batch = BATCH.min((self.capacity as usize / 4).max(1));
        let mut victims = Vec::with_capacity(batch);
        let mut dirty = Vec::new();
        let mut steps = 0_u64;
        let begun = Instant::now();
        while victims.len() < batch {
            steps += 1;
            if steps > 4 * self.states.len() as u64 {
                if !victims.is_empty() {
                    break;
                }
                // Others may be evicting all that this cache holds; they are done soon.
                if begun.elapsed() > PATIENCE {
                    bail!("every one of {} pages in memory is in use", self.capacity);
                }
                std::thread::yield_now();
                steps = 0;
            }
            let page = self.thread_access.fetch_add(1, Ordering::Relaxed) % self.states.len() as u64;
            if let Some(was_dirty) = self.pass(page) {
                victims.push(page);
                if was_dirty {
                    dirty.push(page);
                }
            }
        }
        self.writers.write(&self.memory, &mut dirty)?;
        for &page in &victims {
            let start = page as usize * PAGE_BYTES;
            self.memory.discard(start..start + PAGE_BYTES).context("giving a page back")?;
            self.states[page as usize].store(EVICTED, Ordering::Release);
        }
        self.used.fetch_sub(victims.len() as u64, Ordering::Relaxed);
        self.evictions.fetch_add(victims.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// The hand comes by: an idle page is marked, a marked one locked for eviction. Then: whether it is dirty.
    fn pass(&self, page: u64) -> Option<bool> {
        let state = &self.states[page as usize];
        let seen = state.load(Ordering::Relaxed);
        let next = match seen & STATE {
            UNLOCKED => seen & DIRTY | MARKED,
            MARKED => seen & DIRTY | LOCKED,
            _ => return None,
        };
        let won = state.compare_exchange(seen, next, Ordering::Acquire, Ordering::Relaxed).is_ok();
        (won && next & STATE == LOCKED).then_some(seen & DIRTY != 0)
    }
}

impl Pages for Vmcache {
    type Read<'a> = SharedPage<'a>;
    type Write<'a> = ExclusivePage<'a>;

    fn read(&self, page: u64) -> anyhow::Result<SharedPage<'_>> {
        let state = self.lock(page, true, |seen| match seen & STATE {
            MARKED => Some(seen & DIRTY | 1),
            readers if readers < MOST_SHARED => Some(seen + 1),
            _ => None,
        })?;
        Ok(SharedPage { words: self.words(page), state })
    }

    fn write(&self, page: u64) -> anyhow::Result<ExclusivePage<'_>> {
        self.exclude(page, true)
    }

    fn fresh(&self, page: u64) -> anyhow::Result<ExclusivePage<'_>> {
        self.exclude(page, false)
    }

    fn counters(&self) -> Counters {
        let of = |name: &str, counter: &AtomicU64| (name.to_owned(), counter.load(Ordering::Relaxed) as f64);
        [of("misses", &self.faults), of("evictions", &self.evictions), of("waits", &self.waits)].into()
    }
}

impl Drop for Vmcache {
    fn drop(&mut self) {
        let is_dirty = |page: &u64| self.states[*page as usize].load(Ordering::Relaxed) & DIRTY != 0;
        let mut dirty: Vec<u64> = (0..self.states.len() as u64).filter(is_dirty).collect();
        if let Err(error) = self.writers.write(&self.memory, &mut dirty) {
            quire_sys::errln!("dirty pages are lost: {error:#}");
        }
    }
}

/// A page that several may read.
#[derive(Debug)]
pub struct SharedPage<'a> {
    words: WordPage<'a>,
    state: &'a AtomicU32,
}

impl Page for SharedPage<'_> {
    fn word(&self, index: usize) -> u64 {
        self.words.word(index)
    }
}

impl Drop for SharedPage<'_> {
    fn drop(&mut self) {
        self.state.fetch_sub(1, Ordering::Release);
    }
}

/// A page that one may change; dirty afterwards.
#[derive(Debug)]
pub struct ExclusivePage<'a> {
    words: WordPage<'a>,
    state: &'a AtomicU32,
}

impl Page for ExclusivePage<'_> {
    fn word(&self, index: usize) -> u64 {
        self.words.word(index)
    }
}

impl PageMut for ExclusivePage<'_> {
    fn set_word(&mut self, index: usize, value: u64) {
        self.words.set_word(index, value);
    }
}

impl Drop for ExclusivePage<'_> {
    fn drop(&mut self) {
        self.state.store(UNLOCKED | DIRTY, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fastmap::testbed::stamp;

    #[test]
    fn pages_come_and_go_within_the_budget_and_keep_their_words() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let testbed = Testbed::stamped_file(&dir.path().join("data"), 256).unwrap();
        let cache = Vmcache::new(&testbed, 32 * PAGE_BYTES as u64).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (cache, testbed) = (&cache, &testbed);
                scope.spawn(move || {
                    let mut rng = quire_rng::SplitMix64::new(thread);
                    for _ in 0..2000 {
                        let page = rng.below(testbed.pages);
                        assert_eq!(cache.read(page).unwrap().word(0), stamp(page));
                        cache.write(page).unwrap().set_word(8 + thread as usize, page + thread);
                    }
                });
            }
        });
        assert!(cache.used.load(Ordering::Relaxed) <= 32 + 4 && cache.evictions.load(Ordering::Relaxed) > 1000);
        assert!(cache.read(256).is_err());
        drop(cache);
        let again = Vmcache::new(&testbed, 32 * PAGE_BYTES as u64).unwrap();
        let changed = (0..256).filter(|&page| again.read(page).unwrap().word(9) == page + 1).count();
        assert!(changed > 200, "{changed}");
    }
}
