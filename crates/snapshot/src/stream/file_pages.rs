//! Which pages of memory are still those of a file that is mapped there for good, and whether they are what they should be.
//!
//! The system may drop such a page at any time and read it again: from a disk that returns something else by then, or after another
//! program has written to the file. So every such page is examined when it is taken into a snapshot, and when it becomes the
//! writer's own, or is given up.
//!
//! Relies on the order in which the writer makes a page its own: its pre-image is kept and examined, the page is made private and examined,
//! and only then is it none of the file's any more. So a reader that still finds it among them examines what it takes; one that
//! doesn't knows that the writer has.

use std::ops::Range;

use crate::page::PAGE_SIZE;
use crate::stream::buffer_pool::BufferPool;
use crate::stream::shared::SharedState;
use crate::sync::{AtomicU64, Ordering};

/// Says whether these bytes are what the page of a file should be.
type Examine = dyn Fn(u32, &[u8]) -> bool + Send + Sync;

/// Pages that are a file's.
pub struct FilePages {
    /// One bit a page.
    words: Box<[AtomicU64]>,
    examine: Box<Examine>,
    /// The first page that was found to be something else, and one; 0 as long as there is none.
    damaged: AtomicU64,
}

impl std::fmt::Debug for FilePages {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("FilePages").field("damaged", &self.damaged_page()).finish_non_exhaustive()
    }
}

impl FilePages {
    /// None of `pages` pages. `examine` says of a page's number and bytes whether that is what the file should have there; both
    /// sides ask it, from their threads.
    pub fn new(pages: usize, examine: impl Fn(u32, &[u8]) -> bool + Send + Sync + 'static) -> Self {
        let words = (0..pages.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { words, examine: Box::new(examine), damaged: AtomicU64::new(0) }
    }

    /// `pages` are the file's. Call it before the memory is used.
    ///
    /// # Panics
    /// If there are no such pages.
    pub fn insert(&self, pages: Range<u32>) {
        for (word, mask) in words_of(pages) {
            self.words[word].fetch_or(mask, Ordering::Relaxed);
        }
    }

    /// `pages` are none of the file's any more.
    pub(crate) fn forget(&self, pages: Range<u32>) {
        for (word, mask) in words_of(pages) {
            if let Some(word) = self.words.get(word) {
                // What the writer has found out before is seen by a reader that doesn't find the page here.
                word.fetch_and(!mask, Ordering::Release);
            }
        }
    }

    /// Whether `page` is the file's.
    pub(crate) fn contains(&self, page: usize) -> bool {
        self.words.get(page / 64).is_some_and(|word| word.load(Ordering::Acquire) & (1 << (page % 64)) != 0)
    }

    /// Looks whether `bytes` are what the file should have as `page`.
    pub(crate) fn examine(&self, page: u32, bytes: &[u8]) {
        if !(self.examine)(page, bytes) {
            // Another page may have been found before, which says as much.
            let _ = self.damaged.compare_exchange(0, u64::from(page) + 1, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// The writer has filled `buffer` with `page` of the file, and no other thread has it yet.
    pub(crate) fn examine_preimage(&self, page: usize, pool: &BufferPool, buffer: u32) {
        // SAFETY: a buffer is a page of the pool's memory, and this one is the writer's alone until it is announced.
        let bytes = unsafe { std::slice::from_raw_parts(pool.buffer(buffer).as_ptr(), PAGE_SIZE) };
        self.examine(page as u32, bytes);
    }

    /// Makes `page` of the file the writer's own, and sees whether it is what it should be. The writer calls it before it changes the
    /// page, and after a snapshot that is open has taken the page or has got a pre-image of it.
    #[cold]
    pub(crate) fn make_private(&self, page: usize, shared: &SharedState) {
        shared.race_detector.write(page);
        let start = shared.memory.base().wrapping_add(page * PAGE_SIZE);
        // SAFETY: pages of a file are committed and inside the memory; the writer is the only thread that writes them, and the reader
        // is done with this one. A write of what is there, which the compiler must not leave out, has the system copy the page: what
        // is examined then is what stays.
        let bytes = unsafe {
            start.write_volatile(start.read_volatile());
            std::slice::from_raw_parts(start, PAGE_SIZE)
        };
        self.examine(page as u32, bytes);
        self.forget(page as u32..page as u32 + 1);
    }

    /// The writer has no use for `pages` any more. What it copied out of them before, into pages of its own, is only as good as they are: those that
    /// are still the file's are examined.
    #[cold]
    pub(crate) fn give_up(&self, pages: Range<u32>, shared: &SharedState) {
        for page in pages.clone().filter(|&page| self.contains(page as usize)) {
            shared.race_detector.read(page as usize);
            let start = shared.memory.base().wrapping_add(page as usize * PAGE_SIZE);
            // SAFETY: pages of a file are committed and inside the memory; the writer, which calls this, is the only thread that writes them.
            self.examine(page, unsafe { std::slice::from_raw_parts(start, PAGE_SIZE) });
        }
        self.forget(pages);
    }

    /// A page that was found to be something else, when it was taken into a snapshot, became the writer's own or was given up.
    pub fn damaged_page(&self) -> Option<u32> {
        self.damaged.load(Ordering::Relaxed).checked_sub(1).map(|page| page as u32)
    }
}

/// The words in which the bits of `pages` lie, each with these bits.
fn words_of(pages: Range<u32>) -> impl Iterator<Item = (usize, u64)> {
    let (mut page, end) = (pages.start as usize, pages.end as usize);
    std::iter::from_fn(move || {
        let start = page;
        (start < end).then(|| {
            page = end.min((start / 64 + 1) * 64);
            (start / 64, (u64::MAX >> (64 - (page - start))) << (start % 64))
        })
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn pages_are_the_file_s_until_they_are_forgotten() {
        let files = FilePages::new(300, |page, bytes| u32::from(bytes[0]) == page);
        files.insert(60..130);
        files.forget(64..65);
        files.forget(128..400);
        let found: Vec<usize> = (0..400).filter(|&page| files.contains(page)).collect();
        assert_eq!(found, (60..64).chain(65..128).collect::<Vec<_>>());
        files.examine(70, &[70]);
        assert_eq!(files.damaged_page(), None);
        files.examine(0, &[70]);
        files.examine(71, &[70]);
        assert_eq!(files.damaged_page(), Some(0));
    }
}
