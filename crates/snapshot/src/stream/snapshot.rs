//! The reader's side: a snapshot, read page by page by one thread while the writer goes on.
//!
//! Relies on the protocol of [`crate::stream::page_state`]: a page is claimed before it is copied, so the writer never changes bytes
//! that are being read here.

use std::sync::Arc;

use crate::page::{PAGE_SIZE, PAGES_PER_REGION};
use crate::stream::background::BackgroundPriority;
use crate::stream::buffer_pool::BufferPool;
use crate::stream::file_pages::FilePages;
use crate::stream::page_set::PageSet;
use crate::stream::page_state::{self, PageState, SnapshotNumber};
use crate::stream::shared::SharedState;
use crate::sync::Ordering;

/// What [`Snapshot::take`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeOutcome {
    /// The page as it was at the cut is in the buffer.
    Copied,
    /// The page had no content.
    Absent,
    /// The page was taken before.
    AlreadyTaken,
}

/// Memory as it was at a cut.
///
/// Dropping it before all pages are taken abandons it: the writer stops keeping pre-images.
pub struct Snapshot {
    shared: Arc<SharedState>,
    pool: Arc<BufferPool>,
    number: SnapshotNumber,
    pages: usize,
    /// The pages that belong to it, if not all do.
    changed: Option<Arc<PageSet>>,
    /// Pages that are a file's, if there are any.
    file_pages: Option<Arc<FilePages>>,
    taken: u64,
    /// Where [`Snapshot::next_preimage`] goes on looking.
    cursor: usize,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Snapshot").field("pages", &self.pages).field("taken", &self.taken).finish_non_exhaustive()
    }
}

/// How many pages are taken between two looks at the writer's buffers.
const WARM_EVERY: u64 = 64;

impl Snapshot {
    pub(crate) fn new(
        shared: Arc<SharedState>,
        pool: Arc<BufferPool>,
        number: SnapshotNumber,
        pages: usize,
        changed: Option<Arc<PageSet>>,
    ) -> Self {
        Self { shared, pool, number, pages, changed, file_pages: None, taken: 0, cursor: 0 }
    }

    /// That examines pages which are a file's when they are taken.
    pub(crate) fn examining(mut self, file_pages: Option<Arc<FilePages>>) -> Self {
        self.file_pages = file_pages;
        self
    }

    /// A page of a file that was not what it should be when it was taken, or when the writer made it its own: the snapshot is of no use.
    pub fn damaged_page(&self) -> Option<u32> {
        self.file_pages.as_ref().and_then(|files| files.damaged_page())
    }

    /// Pages of the snapshot, absent ones counted.
    pub fn page_count(&self) -> u32 {
        self.pages as u32
    }

    /// The pages that belong to it, if it is one of [changes](crate::WriteBarrier::cut_changes). Those of them that
    /// [`Snapshot::take`] doesn't find had content before and had none at the cut, or never had any.
    pub fn changed(&self) -> Option<&Arc<PageSet>> {
        self.changed.as_ref()
    }

    /// Whether `page` belongs to the snapshot and may have had content at the cut. (Pages that got content since may be reported too.)
    pub fn is_present(&self, page: u32) -> bool {
        (page as usize) < self.pages
            && self.shared.is_present(page as usize)
            && self.changed.as_ref().is_none_or(|changed| changed.contains(page))
    }

    /// Pages that may have had content at the cut, or a bound of that if only changed pages belong to the snapshot.
    pub fn present_count(&self) -> u64 {
        self.changed.as_ref().map_or_else(|| self.shared.count_present(self.pages), |changed| changed.count())
    }

    /// Copies `page` as it was at the cut. Every page can be taken once; a page that doesn't belong to the snapshot is absent.
    ///
    /// # Panics
    /// If `to` isn't [`PAGE_SIZE`] bytes long.
    pub fn take(&mut self, page: u32, to: &mut [u8]) -> TakeOutcome {
        assert_eq!(to.len(), PAGE_SIZE, "a page is taken into a buffer of a page");
        if !self.is_present(page) {
            return TakeOutcome::Absent;
        }
        if self.taken.is_multiple_of(WARM_EVERY) {
            self.pool.warm_ahead();
        }
        let index = page as usize;
        let word = self.shared.word(index);
        // Before it is taken: if it is none of the file's by then, the writer has examined what it keeps of it.
        let of_file = self.file_pages.as_ref().filter(|files| files.contains(index));
        match page_state::try_take(word, self.number) {
            Ok(()) => {
                self.shared.race_detector.read(index);
                let from = self.shared.memory.base().wrapping_add(index * PAGE_SIZE);
                // SAFETY: a present page is committed; while it is claimed the writer doesn't change it; `to` is a
                // distinct buffer of the right length.
                unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), PAGE_SIZE) };
                page_state::finish_take(word, self.number);
                self.pool.wake();
            }
            Err(PageState::Held(buffer)) => self.collect(index, buffer, to),
            Err(_) => return TakeOutcome::AlreadyTaken,
        }
        if let Some(files) = of_file {
            files.examine(page, to);
        }
        self.taken += 1;
        TakeOutcome::Copied
    }

    /// Copies a pre-image out of its buffer and gives the buffer back.
    fn collect(&self, page: usize, buffer: u32, to: &mut [u8]) {
        self.pool.race_detector.read(buffer as usize);
        let from = self.pool.buffer(buffer).as_ptr();
        // SAFETY: the word named the buffer as holding this page, read with Acquire after the writer's copy; the writer
        // touches it again only after `give_back`.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), PAGE_SIZE) };
        page_state::finish_take(self.shared.word(page), self.number);
        self.shared.held[page / PAGES_PER_REGION].fetch_sub(1, Ordering::Relaxed);
        self.pool.give_back(buffer);
    }

    /// Whether more than half of the writer's buffers are in use: free some soon, or it will wait.
    pub fn pressure(&self) -> bool {
        self.pool.held() * 2 > self.pool.total()
    }

    /// Pre-images held for `region`.
    pub fn held_in(&self, region: u32) -> u32 {
        self.shared.held.get(region as usize).map_or(0, |held| held.load(Ordering::Relaxed))
    }

    /// The region that holds most pre-images: taking all its pages frees most buffers. `None` if none holds any.
    pub fn fullest_region(&mut self) -> Option<u32> {
        let regions = self.pages.div_ceil(PAGES_PER_REGION);
        let held = |region: &usize| self.shared.held[*region].load(Ordering::Relaxed);
        (0..regions).max_by_key(held).filter(|region| held(region) > 0).map(|region| region as u32)
    }

    /// Takes one held pre-image, wherever it is, and returns its page. Successive calls go through the pages in rising
    /// order and start again at the end, so that neighbours can be written together.
    ///
    /// # Panics
    /// If `to` isn't [`PAGE_SIZE`] bytes long.
    pub fn next_preimage(&mut self, to: &mut [u8]) -> Option<u32> {
        assert_eq!(to.len(), PAGE_SIZE, "a page is taken into a buffer of a page");
        let regions = self.pages.div_ceil(PAGES_PER_REGION);
        // One more than all, since the region of the cursor is looked at from its middle first.
        for _ in 0..=regions {
            let region = self.cursor / PAGES_PER_REGION;
            let end = ((region + 1) * PAGES_PER_REGION).min(self.pages);
            if self.held_in(region as u32) > 0 {
                for page in self.cursor..end {
                    if let PageState::Held(buffer) = page_state::load(self.shared.word(page), self.number) {
                        self.collect(page, buffer, to);
                        self.taken += 1;
                        self.cursor = if page + 1 == self.pages { 0 } else { page + 1 };
                        return Some(page as u32);
                    }
                }
            }
            self.cursor = if end >= self.pages { 0 } else { end };
        }
        None
    }

    /// Lets the calling thread run behind everything else, until the writer comes to depend on it: then the writer raises
    /// it again. Where the system would not allow that the thread keeps its processor priority: a writer that waits for a
    /// thread which gets no processor time waits for long. Returns whether that is lowered.
    pub fn run_in_background(&self, priority: BackgroundPriority) -> bool {
        self.shared.background.step_back(priority)
    }

    /// Pages taken so far.
    pub fn taken(&self) -> u64 {
        self.taken
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.pool.wake();
    }
}
