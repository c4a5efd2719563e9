//! The table of page words: one atomic word a page, all zero at first.
//!
//! Relies on `quire-sys` for memory that reads as zero until it is used; under loom the words are loom's own.

use quire_sys::mem::MemError;
#[cfg(not(loom))]
use quire_sys::mem::Reservation;

use crate::sync::AtomicU32;
#[cfg(loom)]
use crate::sync::Ordering;

/// The words of some pages.
pub(crate) struct StateTable {
    #[cfg(not(loom))]
    words: Reservation,
    #[cfg(loom)]
    words: Box<[AtomicU32]>,
    pages: usize,
}

#[cfg(not(loom))]
impl StateTable {
    /// Words for `pages` pages, backed as they are used.
    pub(crate) fn new(pages: usize) -> Result<Self, MemError> {
        let words = Reservation::new(pages * size_of::<AtomicU32>())?;
        words.commit(0..words.len())?;
        Ok(Self { words, pages })
    }

    pub(crate) fn word(&self, page: usize) -> &AtomicU32 {
        assert!(page < self.pages, "page {page} of {}", self.pages);
        // SAFETY: `words` is committed for 4 bytes a page, page-aligned, zeroed, accessed only as AtomicU32, and lives
        // as long as `self`.
        unsafe { &*self.words.base().cast::<AtomicU32>().add(page) }
    }

    /// Makes all words zero again. Call it while no other thread uses them.
    pub(crate) fn clear(&self) -> Result<(), MemError> {
        self.words.release(0..self.words.len())
    }
}

#[cfg(loom)]
impl StateTable {
    /// Words for `pages` pages.
    pub(crate) fn new(pages: usize) -> Result<Self, MemError> {
        Ok(Self { words: (0..pages).map(|_| AtomicU32::new(0)).collect(), pages })
    }

    pub(crate) fn word(&self, page: usize) -> &AtomicU32 {
        assert!(page < self.pages, "page {page} of {}", self.pages);
        &self.words[page]
    }

    /// Makes all words zero again. Call it while no other thread uses them.
    pub(crate) fn clear(&self) -> Result<(), MemError> {
        self.words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        Ok(())
    }
}
