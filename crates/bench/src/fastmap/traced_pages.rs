//! Pages in memory that remember the order in which they were used: traces for comparing policies, and ground for tests.
//!
//! Relies on few threads: every use takes a lock.

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use anyhow::Context;

use super::pages::{Pages, WordPage};
use super::testbed::PAGE_WORDS;

/// Pages, all zero at first, and how they were used.
#[derive(Debug)]
pub struct TracedPages {
    words: Vec<AtomicU64>,
    trace: Mutex<Vec<u64>>,
}

impl TracedPages {
    /// `pages` empty pages.
    pub fn new(pages: u64) -> Self {
        let words = (0..pages as usize * PAGE_WORDS).map(|_| AtomicU64::new(0)).collect();
        Self { words, trace: Mutex::default() }
    }

    /// Pages that begin with `bytes`.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let pages = Self::new(bytes.len().div_ceil(PAGE_WORDS * 8) as u64);
        for (word, bytes) in pages.words.iter().zip(bytes.chunks_exact(8)) {
            word.store(
                u64::from_ne_bytes(bytes.try_into().expect("eight bytes")),
                std::sync::atomic::Ordering::Relaxed,
            );
        }
        pages
    }

    /// Numbers of the pages used so far, in order.
    pub fn into_trace(self) -> Vec<u64> {
        self.trace.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pages for TracedPages {
    type Read<'a> = WordPage<'a>;
    type Write<'a> = WordPage<'a>;

    fn read(&self, page: u64) -> anyhow::Result<WordPage<'_>> {
        let start = page as usize * PAGE_WORDS;
        let words = self.words.get(start..start + PAGE_WORDS).with_context(|| format!("there is no page {page}"))?;
        self.trace.lock().unwrap_or_else(PoisonError::into_inner).push(page);
        Ok(WordPage(words))
    }

    fn write(&self, page: u64) -> anyhow::Result<WordPage<'_>> {
        self.read(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fastmap::pages::{Page, PageMut, ThreadAccess};

    #[test]
    fn bytes_come_out_as_they_went_in_and_uses_are_remembered() {
        let pages = TracedPages::new(2);
        let bytes: Vec<u8> = (0..1000).map(|index| index as u8).collect();
        pages.write(1).unwrap().copy_in(6, &bytes);
        let mut back = vec![0; 1000];
        pages.read(1).unwrap().copy_out(6, &mut back);
        assert_eq!(back, bytes);
        assert_eq!(ThreadAccess::load(&mut &pages, 0, 6).unwrap(), 0);
        assert!(pages.read(2).is_err());
        assert_eq!(pages.into_trace(), [1, 1, 0]);
        assert_eq!(TracedPages::of_bytes(&7_u64.to_ne_bytes()).read(0).unwrap().word(0), 7);
    }
}
