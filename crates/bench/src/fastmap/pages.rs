//! What every way to the pages of a file has in common: [`Pages`] for programs that look at a page for a while (the tree,
//! the graph), [`WordAccess`] for those that take a word at a time.
//!
//! Relies on the thread that stores into a page keeping others away from it by locks of its own: mapped memory has none.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a candidate counts itself, by name.
pub type Counters = BTreeMap<String, f64>;

/// A page that can be looked at.
pub trait Page {
    /// The word at `index`.
    fn word(&self, index: usize) -> u64;

    /// Copies bytes from the word at `index` on. `into` is of whole words.
    fn copy_out(&self, index: usize, into: &mut [u8]) {
        for (word, bytes) in (index..).zip(into.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&self.word(word).to_le_bytes());
        }
    }
}

/// A page that can be changed.
pub trait PageMut: Page {
    /// Puts `value` at `index`.
    fn set_word(&mut self, index: usize, value: u64);

    /// Copies bytes to the word at `index` and on. `from` is of whole words.
    fn copy_in(&mut self, index: usize, from: &[u8]) {
        for (word, bytes) in (index..).zip(from.chunks_exact(8)) {
            self.set_word(word, u64::from_le_bytes(bytes.try_into().expect("chunks of eight bytes")));
        }
    }
}

/// Pages of a file, reached in one way or another.
pub trait Pages: Sync {
    /// A page while it is looked at.
    type Read<'a>: Page
    where
        Self: 'a;
    /// A page while it is changed.
    type Write<'a>: PageMut
    where
        Self: 'a;

    /// Whether [`Pages::prefetch`] does anything.
    const AHEAD: bool = false;

    /// Page `page`, to look at.
    ///
    /// # Errors
    /// The device failed, or there is no such page.
    fn read(&self, page: u64) -> anyhow::Result<Self::Read<'_>>;

    /// Page `page`, to change.
    ///
    /// # Errors
    /// As [`Pages::read`].
    fn write(&self, page: u64) -> anyhow::Result<Self::Write<'_>>;

    /// Page `page`, of which nothing that it holds is needed.
    ///
    /// # Errors
    /// As [`Pages::read`].
    fn fresh(&self, page: u64) -> anyhow::Result<Self::Write<'_>> {
        self.write(page)
    }

    /// Begins to read `pages`, which will be needed soon, and does not wait.
    ///
    /// # Errors
    /// The device failed.
    fn prefetch(&self, _pages: &[u64]) -> anyhow::Result<()> {
        Ok(())
    }

    /// What the candidate has counted so far.
    fn counters(&self) -> Counters {
        Counters::new()
    }
}

/// Something of which threads touch words.
pub trait WordAccess: Sync {
    /// What a thread needs for itself.
    type ThreadAccess<'a>: ThreadAccess
    where
        Self: 'a;

    /// Access for the calling thread.
    ///
    /// # Errors
    /// The system has no memory for it.
    fn thread_access(&self) -> anyhow::Result<Self::ThreadAccess<'_>>;

    /// What the candidate has counted so far.
    fn counters(&self) -> Counters;
}

/// One thread's way to words.
pub trait ThreadAccess {
    /// The word at `index` of page `page`.
    ///
    /// # Errors
    /// The device failed.
    fn load(&mut self, page: u64, index: usize) -> anyhow::Result<u64>;

    /// Puts `value` at `index` of page `page`.
    ///
    /// # Errors
    /// The device failed.
    fn store(&mut self, page: u64, index: usize, value: u64) -> anyhow::Result<()>;

    /// Begins to read `pages`, and does not wait.
    ///
    /// # Errors
    /// The device failed.
    fn prefetch(&mut self, pages: &[u64]) -> anyhow::Result<()>;
}

impl<P: Pages> WordAccess for P {
    type ThreadAccess<'a>
        = &'a P
    where
        Self: 'a;

    fn thread_access(&self) -> anyhow::Result<&P> {
        Ok(self)
    }

    fn counters(&self) -> Counters {
        Pages::counters(self)
    }
}

impl<P: Pages> ThreadAccess for &P {
    fn load(&mut self, page: u64, index: usize) -> anyhow::Result<u64> {
        Ok(self.read(page)?.word(index))
    }

    fn store(&mut self, page: u64, index: usize, value: u64) -> anyhow::Result<()> {
        self.write(page)?.set_word(index, value);
        Ok(())
    }

    fn prefetch(&mut self, pages: &[u64]) -> anyhow::Result<()> {
        Pages::prefetch(*self, pages)
    }
}

/// A page that is plain words in memory.
#[derive(Clone, Copy, Debug)]
pub struct WordPage<'a>(pub &'a [AtomicU64]);

impl Page for WordPage<'_> {
    fn word(&self, index: usize) -> u64 {
        u64::from_le(self.0[index].load(Ordering::Relaxed))
    }
}

impl PageMut for WordPage<'_> {
    fn set_word(&mut self, index: usize, value: u64) {
        self.0[index].store(value.to_le(), Ordering::Relaxed);
    }
}
