//! The writer's side: a barrier that the writer passes before every write.
//!
//! Relies on one writer (it owns the [`WriteBarrier`], whose methods take `&mut self`) and at most one reader (it owns the
//! [`Snapshot`]). The fast path compares one byte a page with the number of the current epoch; everything else happens
//! at a page's first write after a cut.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use quire_sys::mem::Reservation;

use crate::page::{PAGE_SIZE, PAGES_PER_REGION, REGION_SIZE, page_of};
use crate::stream::buffer_pool::BufferPool;
use crate::stream::changed_pages::ChangedPages;
use crate::stream::error::SnapshotError;
use crate::stream::file_pages::FilePages;
use crate::stream::page_state::{self, PageState, SnapshotNumber};
use crate::stream::shared::SharedState;
use crate::stream::snapshot::Snapshot;
use crate::stream::state_table::StateTable;
use crate::stream::stats::WriteBarrierStats;
use crate::stream::write_counts::RegionWriteCounts;
use crate::sync::{AtomicU32, Ordering};

/// How long the writer spins for a page being copied before it sleeps: about two copies.
const SPINS: u32 = if cfg!(loom) { 0 } else { 400 };

/// Settings of a [`WriteBarrier`].
#[derive(Clone, Copy, Debug)]
pub struct WriteBarrierConfig {
    /// Most memory for pre-images, in bytes.
    pub budget_bytes: usize,
}

impl Default for WriteBarrierConfig {
    fn default() -> Self {
        Self { budget_bytes: 64 << 20 }
    }
}

/// The writer's side of snapshots of one range of memory.
pub struct WriteBarrier {
    shared: Arc<SharedState>,
    pool: Arc<BufferPool>,
    /// One byte a page: the epoch in which it was last written, 0 for never. Only the writer uses it.
    written: Reservation,
    epoch: u8,
    /// The snapshot being read: its number and how many pages belong to it.
    open: Option<(SnapshotNumber, usize)>,
    /// A buffer taken but not needed in the end.
    spare: Option<u32>,
    coverage: RegionWriteCounts,
    /// Which pages have changed, if that is tracked.
    changes: Option<ChangedPages>,
    restoring: bool,
    /// Pages that are a file's until they are written, if there are any.
    file_pages: Option<Arc<FilePages>>,
    boosted: bool,
    stats: WriteBarrierStats,
}

impl std::fmt::Debug for WriteBarrier {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("WriteBarrier").field("epoch", &self.epoch).field("open", &self.open).finish_non_exhaustive()
    }
}

impl WriteBarrier {
    /// Puts a barrier before `memory`. Its tables take 5 bytes a page, backed as pages are used.
    ///
    /// # Errors
    /// The system has no memory for the tables.
    pub fn new(memory: Arc<Reservation>, config: WriteBarrierConfig) -> Result<Self, SnapshotError> {
        let pages = memory.len() / PAGE_SIZE;
        Self::of_pages(memory, pages, config)
    }

    /// [`WriteBarrier::new`] for the first `pages` pages of `memory`, which models keep few.
    #[doc(hidden)]
    pub fn of_pages(memory: Arc<Reservation>, pages: usize, config: WriteBarrierConfig) -> Result<Self, SnapshotError> {
        let written = Reservation::new(pages)?;
        written.commit(0..written.len())?;
        let regions = pages.div_ceil(PAGES_PER_REGION);
        let pool = Arc::new(BufferPool::new(config.budget_bytes)?);
        let shared = SharedState::new(memory, pages, StateTable::new(pages)?);
        let budget_bytes = u64::from(pool.total()) * PAGE_SIZE as u64;
        Ok(Self {
            shared: Arc::new(shared),
            pool,
            written,
            epoch: 1,
            open: None,
            spare: None,
            coverage: RegionWriteCounts::new(regions),
            changes: None,
            restoring: false,
            file_pages: None,
            boosted: false,
            stats: WriteBarrierStats { budget_bytes, ..WriteBarrierStats::default() },
        })
    }

    /// The memory behind the barrier.
    pub fn memory(&self) -> &Arc<Reservation> {
        &self.shared.memory
    }

    fn last_write(&self, page: usize) -> *mut u8 {
        assert!(page < self.shared.pages, "page {page} of {}", self.shared.pages);
        self.written.base().wrapping_add(page)
    }

    /// Must be called before bytes `offset .. offset + len` are changed; afterwards they may be, until the next cut.
    ///
    /// # Panics
    /// If the range lies outside the memory.
    #[inline]
    pub fn before_write(&mut self, offset: usize, len: usize) {
        let first = page_of(offset);
        let last = page_of(offset + len.max(1) - 1);
        for page in first..=last {
            // SAFETY: `last_write` gives an address inside the committed table, which only this struct uses, through `&mut self`.
            if unsafe { *self.last_write(page) } != self.epoch {
                self.first_write(page);
            }
        }
    }

    /// Bytes of `page` are changed now, for loom's models.
    pub(crate) fn note_change(&self, page: usize) {
        self.shared.race_detector.write(page);
    }

    /// A page's first write since the last cut.
    #[cold]
    #[inline(never)]
    fn first_write(&mut self, page: usize) {
        if let Some((number, pages)) = self.open
            && page < pages
            && self.changes.as_ref().is_none_or(|changes| changes.needs(page))
        {
            self.save_preimage(page, number);
        }
        if let Some(files) = self.file_pages.as_ref().filter(|files| files.contains(page)) {
            files.make_private(page, &self.shared);
        }
        if let Some(changes) = &mut self.changes {
            changes.note(page);
        }
        // SAFETY: `last_write` gives an address inside the committed table, which only this struct uses, through `&mut self`.
        unsafe { *self.last_write(page) = self.epoch };
        self.coverage.count(page / PAGES_PER_REGION);
        self.stats.pages_written += 1;
    }

    /// Sees to it that the page's content at the cut is safe.
    fn save_preimage(&mut self, page: usize, number: SnapshotNumber) {
        let shared = Arc::clone(&self.shared);
        let word = shared.word(page);
        loop {
            match page_state::load(word, number) {
                PageState::Saved | PageState::Held(_) => return,
                _ if shared.closed.load(Ordering::Acquire) => return,
                PageState::Taken => self.wait_for_page(word, number),
                PageState::Unsaved if !shared.is_present(page) => {
                    if page_state::try_skip(word, number).is_ok() {
                        return;
                    }
                }
                PageState::Unsaved => {
                    let Some(buffer) = self.spare.take().or_else(|| self.buffer()) else {
                        return;
                    };
                    let from = shared.memory.base().wrapping_add(page * PAGE_SIZE);
                    shared.race_detector.read(page);
                    self.pool.race_detector.write(buffer as usize);
                    // SAFETY: `from` is a present page, so committed, and this thread is the only one that writes it
                    // (the reader at most reads it too); the buffer was just taken, so it is this thread's alone.
                    unsafe { std::ptr::copy_nonoverlapping(from, self.pool.buffer(buffer).as_ptr(), PAGE_SIZE) };
                    if let Some(files) = self.file_pages.as_ref().filter(|files| files.contains(page)) {
                        files.examine_preimage(page, &self.pool, buffer);
                    }
                    // Counted first: the reader must never find a held page that its region's count denies.
                    shared.held[page / PAGES_PER_REGION].fetch_add(1, Ordering::Relaxed);
                    if page_state::try_hold(word, number, buffer).is_err() {
                        shared.held[page / PAGES_PER_REGION].fetch_sub(1, Ordering::Relaxed);
                        self.spare = Some(buffer);
                        continue;
                    }
                    self.stats.preimage_pages += 1;
                    let held_bytes = u64::from(self.pool.held()) * PAGE_SIZE as u64;
                    self.stats.preimage_bytes_peak = self.stats.preimage_bytes_peak.max(held_bytes);
                    if held_bytes * 2 > self.stats.budget_bytes {
                        self.boost();
                    }
                    return;
                }
            }
        }
    }

    /// The reader is copying this very page: spin, then sleep.
    fn wait_for_page(&mut self, word: &AtomicU32, number: SnapshotNumber) {
        let start = Instant::now();
        let shared = Arc::clone(&self.shared);
        let ready = || page_state::load(word, number) != PageState::Taken || shared.closed.load(Ordering::Acquire);
        if !(0..SPINS).any(|_| {
            std::hint::spin_loop();
            ready()
        }) {
            self.boost();
            self.pool.wait(|| ready().then_some(()));
        }
        self.note_wait(start);
    }

    /// A buffer for a pre-image; waits while the budget is used up. `None` if the snapshot ended meanwhile.
    fn buffer(&mut self) -> Option<u32> {
        if let Some(buffer) = self.pool.take() {
            return Some(buffer);
        }
        self.boost();
        let start = Instant::now();
        let shared = Arc::clone(&self.shared);
        let pool = Arc::clone(&self.pool);
        let buffer = pool.wait(|| match pool.take() {
            Some(buffer) => Some(Some(buffer)),
            None => shared.closed.load(Ordering::Acquire).then_some(None),
        });
        self.stats.budget_waits += 1;
        self.note_wait(start);
        buffer
    }

    fn note_wait(&mut self, start: Instant) {
        let wait_ns = start.elapsed().as_nanos() as u64;
        self.stats.waits += 1;
        self.stats.wait_total_ns += wait_ns;
        self.stats.wait_longest_ns = self.stats.wait_longest_ns.max(wait_ns);
    }

    /// Work waits for the reader of the open snapshot: it must no longer run behind everything else.
    pub fn hurry_reader(&mut self) {
        self.boost();
    }

    /// The writer depends on the reader: it must no longer run behind everything else.
    fn boost(&mut self) {
        if !self.boosted {
            self.boosted = true;
            self.shared.background.raise();
        }
    }

    /// Declares that `pages` may have content from now on. Call it before their first write. Returns how many of them
    /// had none so far.
    ///
    /// # Panics
    /// If a page lies outside the memory.
    pub fn mark_present(&mut self, pages: Range<u32>) -> u32 {
        if let Some(changes) = &mut self.changes {
            // A page that gets content is part of the next snapshot of what changed, though it may never be written.
            pages
                .clone()
                .filter(|&page| !self.shared.is_present(page as usize))
                .for_each(|page| changes.note(page as usize));
        }
        self.shared.set_present(pages.start as usize..pages.end as usize, true)
    }

    /// Whether `page` may have content.
    pub fn is_present(&self, page: u32) -> bool {
        (page as usize) < self.shared.pages && self.shared.is_present(page as usize)
    }

    /// How many of `pages` may have content.
    pub fn present_in(&self, pages: Range<u32>) -> u32 {
        self.shared.present_in(pages.start as usize..pages.end as usize)
    }

    /// Gives `pages` back to the system: they read as zero and aren't part of later snapshots. Refused (`false`) while
    /// a snapshot is open, which may still need them, while memory is being restored, or if the system refuses.
    pub fn release_pages(&mut self, pages: Range<u32>) -> bool {
        if self.open.is_some() || self.restoring {
            return false;
        }
        let (start, end) = (pages.start as usize, pages.end as usize);
        self.file_pages.iter().for_each(|files| files.give_up(pages.clone(), &self.shared));
        self.before_write(start * PAGE_SIZE, (end - start) * PAGE_SIZE);
        let (memory, bytes) = (&self.shared.memory, start * PAGE_SIZE..end * PAGE_SIZE);
        // A private mapping of a file whose pages are dropped reads as the file again.
        let given = if self.is_file_backed() { memory.replace_by_zeros(bytes) } else { memory.release(bytes) };
        if given.is_err() {
            return false;
        }
        self.shared.set_present(start..end, false);
        true
    }

    /// Notes from now on which pages change, or doesn't any more. What changed before is not known, so that the first
    /// snapshot afterwards must be of everything, unless memory is now as an image has it.
    ///
    /// # Errors
    /// [`SnapshotError::Busy`] while a snapshot is open.
    pub fn track_changes(&mut self, track: bool) -> Result<(), SnapshotError> {
        if !self.try_finish() {
            return Err(SnapshotError::Busy);
        }
        // Pages that were written in this epoch would not be noted when they are written again.
        self.next_epoch()?;
        self.changes = track.then(|| ChangedPages::none(self.shared.pages));
        Ok(())
    }

    /// Pages that have changed since the last snapshot that [was kept](WriteBarrier::settle); `None` if that isn't tracked.
    pub fn changed_pages(&self) -> Option<u64> {
        self.changes.as_ref().map(ChangedPages::count)
    }

    /// Says whether what was read from the last snapshot is kept. If not, what had changed before it counts as changed again;
    /// so it does if this is not said before the next cut.
    pub fn settle(&mut self, kept: bool) {
        if self.try_finish()
            && let Some(changes) = &mut self.changes
        {
            changes.settle(kept);
        }
    }

    /// As [`WriteBarrier::cut`], but only the pages that have changed since the last snapshot that was kept belong to it;
    /// the writer keeps no pre-images of others.
    ///
    /// # Errors
    /// As [`WriteBarrier::cut`]; [`SnapshotError::Untracked`].
    pub fn cut_changes(&mut self, page_count: u32) -> Result<Snapshot, SnapshotError> {
        if self.changes.is_none() {
            return Err(SnapshotError::Untracked);
        }
        self.cut_pages(page_count, true)
    }

    /// Fixes the content of the first `page_count` pages as it is now. Constant time: no page is touched.
    ///
    /// # Errors
    /// [`SnapshotError::Busy`] while another snapshot is open; [`SnapshotError::Page`].
    pub fn cut(&mut self, page_count: u32) -> Result<Snapshot, SnapshotError> {
        self.cut_pages(page_count, false)
    }

    /// From here on every page counts as not written yet.
    fn next_epoch(&mut self) -> Result<(), SnapshotError> {
        if self.epoch == u8::MAX {
            if self.restoring {
                return Err(SnapshotError::Busy);
            }
            // Once in 255 times the numbers start again, so the marks that they left must go. No snapshot is open that reads them.
            self.shared.states.clear()?;
            self.written.release(0..self.written.len())?;
            self.epoch = 0;
        }
        self.epoch += 1;
        self.coverage.next_epoch();
        Ok(())
    }

    fn cut_pages(&mut self, page_count: u32, only_changed: bool) -> Result<Snapshot, SnapshotError> {
        let start = Instant::now();
        if !self.try_finish() {
            return Err(SnapshotError::Busy);
        }
        let pages = page_count as usize;
        if pages > self.shared.pages {
            return Err(SnapshotError::Page { page: u64::from(page_count), pages: self.shared.pages as u64 });
        }
        self.next_epoch()?;
        self.pool.reset();
        self.shared.closed.store(false, Ordering::Relaxed);
        self.shared.background.forget();
        self.boosted = false;
        let number = SnapshotNumber(self.epoch);
        self.open = Some((number, pages));
        self.stats.preimage_bytes_peak = 0;
        self.stats.pages_written = 0;
        self.stats.cuts += 1;
        let changed = self.changes.as_mut().map(|changes| changes.freeze(only_changed)).filter(|_| only_changed);
        let snapshot = Snapshot::new(Arc::clone(&self.shared), Arc::clone(&self.pool), number, pages, changed)
            .examining(self.file_pages.clone());
        self.stats.last_cut_ns = start.elapsed().as_nanos() as u64;
        Ok(snapshot)
    }

    /// Whether a snapshot is open, as far as the writer has noticed.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Closes the barrier if the reader has dropped its [`Snapshot`]. Returns whether no snapshot is open any more.
    pub fn try_finish(&mut self) -> bool {
        if self.open.is_some() && self.shared.closed.load(Ordering::Acquire) {
            self.open = None;
            self.spare = None;
            self.pool.note_use();
            for held in &self.shared.held {
                held.store(0, Ordering::Relaxed);
            }
            self.pool.reset();
        }
        self.open.is_none()
    }

    /// Gives some memory of unused pre-image buffers back to the system; returns the bytes, 0 when nothing is left or
    /// a snapshot is open.
    pub fn trim(&mut self) -> usize {
        if self.open.is_some() { 0 } else { self.pool.trim() }
    }

    /// Says whether regions are still going to be [migrated](WriteBarrier::migrate_regions).
    pub fn set_restoring(&mut self, restoring: bool) {
        self.restoring = restoring;
    }

    /// Whether regions are still going to be migrated.
    pub fn is_restoring(&self) -> bool {
        self.restoring
    }

    /// Says that `pages` are mapped privately from a file until they are written. No page is made private for a change that may be lost.
    pub fn set_file_pages(&mut self, pages: Arc<FilePages>) {
        self.file_pages = Some(pages);
    }

    /// Whether memory stays mapped from a file.
    pub fn is_file_backed(&self) -> bool {
        self.file_pages.is_some()
    }

    /// Replaces `regions` by those at the same offsets of `staging`, which hold what they held when they were restored:
    /// pages written since are copied over first. Returns how many these were.
    ///
    /// The regions then no longer depend on the file that they were mapped from. `staging` is empty there afterwards.
    ///
    /// # Errors
    /// [`SnapshotError::Page`] if there are no such regions in both, or the system refuses to remap.
    pub fn migrate_regions(&mut self, regions: Range<u32>, staging: &Reservation) -> Result<u32, SnapshotError> {
        let (start, end) = (regions.start as usize * REGION_SIZE, regions.end as usize * REGION_SIZE);
        if start > end || end > self.shared.memory.len() || end > staging.len() {
            let pages = self.shared.pages.min(staging.len() / PAGE_SIZE) as u64;
            return Err(SnapshotError::Page { page: (start / PAGE_SIZE) as u64, pages });
        }
        staging.ensure_committed(start..end)?;
        let mut merged = 0;
        for page in start / PAGE_SIZE..end / PAGE_SIZE {
            // SAFETY: `last_write` gives an address inside the committed table, which only this struct uses, through `&mut self`.
            if unsafe { *self.last_write(page) } != 0 {
                let from = self.shared.memory.base().wrapping_add(page * PAGE_SIZE);
                // SAFETY: a page that was written is committed in memory; staging was committed above. Only this
                // thread writes either (a staged region is announced when its filler is done with it).
                unsafe {
                    std::ptr::copy_nonoverlapping(from, staging.base().wrapping_add(page * PAGE_SIZE), PAGE_SIZE)
                };
                merged += 1;
            }
        }
        // SAFETY: both sides are equal now; no reference into the regions exists, since references come from `&self` or
        // `&mut self` of the owner of this barrier. A reader of a snapshot may be copying a page: the kernel exchanges
        // the mapping at once as far as accesses can tell, and either side shows the same bytes.
        unsafe { self.shared.memory.move_from(staging, start..end)? };
        Ok(merged)
    }

    /// Changes the most memory for pre-images, from the next snapshot on.
    ///
    /// # Errors
    /// [`SnapshotError::Busy`] while a snapshot is open, or no memory.
    pub fn set_budget(&mut self, budget_bytes: usize) -> Result<(), SnapshotError> {
        if !self.try_finish() {
            return Err(SnapshotError::Busy);
        }
        self.pool = Arc::new(BufferPool::new(budget_bytes)?);
        self.stats.budget_bytes = u64::from(self.pool.total()) * PAGE_SIZE as u64;
        Ok(())
    }

    /// Pages of `region` written since the last cut, and between the two cuts before.
    ///
    /// # Panics
    /// If there is no such region.
    pub fn region_writes(&self, region: u32) -> (u16, u16) {
        self.coverage.of(region as usize)
    }

    /// Figures since the barrier was made.
    pub fn stats(&self) -> WriteBarrierStats {
        let held = if self.open.is_some() { self.pool.held() } else { 0 };
        WriteBarrierStats { preimage_bytes_now: u64::from(held) * PAGE_SIZE as u64, ..self.stats }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::snapshot::TakeOutcome;

    /// A barrier before three pages, which keeps one pre-image, and a snapshot of them.
    fn cut() -> (WriteBarrier, Snapshot) {
        let memory = Arc::new(Reservation::new(3 * PAGE_SIZE).unwrap());
        memory.commit(0..memory.len()).unwrap();
        let mut barrier = WriteBarrier::new(memory, WriteBarrierConfig { budget_bytes: PAGE_SIZE }).unwrap();
        barrier.mark_present(0..3);
        let snapshot = barrier.cut(3).unwrap();
        (barrier, snapshot)
    }

    /// Writes to `page`; another thread does `act` once the writer waits. Returns how often the writer has waited, and how often
    /// for a buffer.
    fn waits_of(barrier: &mut WriteBarrier, page: usize, act: impl FnOnce() + Send) -> (u64, u64) {
        let pool = Arc::clone(&barrier.pool);
        std::thread::scope(|threads| {
            threads.spawn(move || {
                while !pool.is_waited_for() {
                    std::thread::yield_now();
                }
                act();
            });
            barrier.before_write(page * PAGE_SIZE, 1);
        });
        let stats = barrier.stats();
        assert!(stats.wait_longest_ns > 0 && stats.wait_total_ns >= stats.wait_longest_ns, "{stats:?}");
        (stats.waits, stats.budget_waits)
    }

    #[test]
    fn a_wait_for_a_buffer_is_counted_when_the_reader_frees_one() {
        let (mut barrier, mut snapshot) = cut();
        barrier.before_write(0, 1);
        assert_eq!(barrier.stats().waits, 0, "there was a buffer");
        let free = move || assert_eq!(snapshot.take(0, &mut [0; PAGE_SIZE]), TakeOutcome::Copied);
        assert_eq!(waits_of(&mut barrier, 1, free), (1, 1));
    }

    #[test]
    fn a_wait_for_a_buffer_is_counted_when_the_snapshot_is_abandoned() {
        let (mut barrier, snapshot) = cut();
        barrier.before_write(0, 1);
        assert_eq!(waits_of(&mut barrier, 1, move || drop(snapshot)), (1, 1));
        assert!(barrier.try_finish());
    }

    #[test]
    fn a_wait_for_a_page_that_the_reader_copies_is_counted_as_such() {
        let (mut barrier, _snapshot) = cut();
        let (number, _) = barrier.open.unwrap();
        let (shared, pool) = (Arc::clone(&barrier.shared), Arc::clone(&barrier.pool));
        page_state::try_take(shared.word(2), number).unwrap();
        let finish = move || {
            page_state::finish_take(shared.word(2), number);
            pool.wake();
        };
        assert_eq!(waits_of(&mut barrier, 2, finish), (1, 0));
    }
}
