//! Frames for relocated pages: memory beside a map's own, of which a page uses some while its address shows leased bytes.
//!
//! Relies on addresses costing nothing until they are used, and on users having a credit for each frame. Which frame a page has is
//! found without a lock; frames are taken and given back under one.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quire_device::{Buffer, Direction, Extent, Transfer};
use quire_sys::advise::DiscardBatch;
use quire_sys::map::{MapAdvice, advise};
use quire_sys::mem::{MemError, Reservation};

use crate::error::PoolError;
use crate::page::PageRun;

/// Number of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpareFrame(u32);

/// The frames of one map.
#[derive(Debug)]
pub(crate) struct SpareFrames {
    memory: Arc<Reservation>,
    page_bytes: usize,
    /// Frame plus one of each page of the map; zero for none.
    by_page: *const AtomicU32,
    pages: u64,
    /// Page plus one in each frame; zero for none.
    owners: Box<[AtomicU64]>,
    free: Mutex<Vec<SpareFrame>>,
    /// Frames that were ever used have lower numbers.
    used: AtomicUsize,
    /// Frames that hold a credit.
    held: AtomicUsize,
    /// Behind `by_page`.
    _by_page: Reservation,
}

// SAFETY: the pointer leads into the reservation, to atomics that live as long.
unsafe impl Send for SpareFrames {}
// SAFETY: threads that share the frames reach the atomics behind the pointer; bytes are only reached through pointers whose users answer
// for them.
unsafe impl Sync for SpareFrames {}

impl SpareFrames {
    /// Addresses for `count` frames of `page_bytes`, for a map of `pages` pages.
    ///
    /// # Errors
    /// The system has none.
    pub(crate) fn new(count: usize, page_bytes: usize, pages: u64) -> Result<Self, PoolError> {
        let refused = |error: MemError| PoolError::Memory {
            what: "pages that are changed while leased",
            cause: error.to_string(),
        };
        let count = count.clamp(1, u32::MAX as usize - 1);
        let memory = Reservation::new(count * page_bytes).map_err(refused)?;
        memory.commit(0..memory.len()).map_err(refused)?;
        let by_page = Reservation::new(pages as usize * size_of::<AtomicU32>()).map_err(refused)?;
        by_page.commit(0..by_page.len()).map_err(refused)?;
        for memory in [&memory, &by_page] {
            // Where there are no huge pages it fails, and nothing is lost.
            let _ = advise(memory.base(), memory.len(), MapAdvice::NoHuge);
        }
        Ok(Self {
            memory: Arc::new(memory),
            page_bytes,
            by_page: by_page.base().cast_const().cast(),
            pages,
            owners: (0..count).map(|_| AtomicU64::new(0)).collect(),
            free: Mutex::new((0..count as u32).rev().map(SpareFrame).collect()),
            used: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            _by_page: by_page,
        })
    }

    fn free(&self) -> MutexGuard<'_, Vec<SpareFrame>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entry(&self, page: u64) -> &AtomicU32 {
        assert!(page < self.pages, "the page was looked up before");
        // SAFETY: `page` was compared with the number of entries just now, which all lie in the committed reservation; zeroed memory is a
        // valid atomic.
        unsafe { &*self.by_page.add(page as usize) }
    }

    /// A frame that no page has; `None` if all are in use.
    pub(crate) fn take(&self) -> Option<SpareFrame> {
        let frame = self.free().pop()?;
        self.used.fetch_max(frame.0 as usize + 1, Ordering::Relaxed);
        Some(frame)
    }

    /// `page` has the frame, and its credit, from now on.
    pub(crate) fn assign(&self, frame: SpareFrame, page: u64) {
        self.held.fetch_add(1, Ordering::Relaxed);
        self.entry(page).store(frame.0 + 1, Ordering::Relaxed);
        self.owners[frame.0 as usize].store(page + 1, Ordering::Relaxed);
    }

    /// The frame of a page, which the caller has locked or claimed since it was assigned.
    pub(crate) fn frame_of(&self, page: u64) -> Option<SpareFrame> {
        self.entry(page).load(Ordering::Relaxed).checked_sub(1).map(SpareFrame)
    }

    /// Gives the frame's memory back to the system; it can be taken again. Its credit is the caller's.
    ///
    /// # Safety
    /// The page that has it, if any, is claimed by the caller exclusively, and has its bytes elsewhere or needs them no more.
    ///
    /// # Errors
    /// The system doesn't take the memory. The frame is not used again.
    pub(crate) unsafe fn give_back(&self, frame: SpareFrame) -> io::Result<()> {
        let owner = self.owners[frame.0 as usize].swap(0, Ordering::Relaxed);
        if let Some(page) = owner.checked_sub(1) {
            self.entry(page).store(0, Ordering::Relaxed);
            self.held.fetch_sub(1, Ordering::Relaxed);
        }
        let mut batch = DiscardBatch::with_capacity(1);
        batch.add(self.at(frame), self.page_bytes);
        // SAFETY: a whole frame of this struct's anonymous memory, to which nothing refers: its page is claimed exclusively by the caller, as
        // `give_back` demands, or it has none.
        unsafe { batch.discard() }?;
        self.free().push(frame);
        Ok(())
    }

    /// Where the frame's first byte is.
    pub(crate) fn at(&self, frame: SpareFrame) -> *mut u8 {
        self.memory.base().wrapping_add(frame.0 as usize * self.page_bytes)
    }

    /// Pages that have a frame; some may have lost it, or got one, meanwhile.
    pub(crate) fn pages(&self) -> impl Iterator<Item = u64> {
        let used = if self.held() == 0 { 0 } else { self.used.load(Ordering::Relaxed) };
        self.owners[..used].iter().filter_map(|owner| owner.load(Ordering::Relaxed).checked_sub(1))
    }

    /// Frames that hold a credit.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// A transfer between the frame and the place of `page` in the file.
    ///
    /// # Safety
    /// The page is claimed by the caller, until the transfer is dropped: for a read, no other thread uses it; for a write, others at most
    /// read it.
    pub(crate) unsafe fn transfer(&self, direction: Direction, frame: SpareFrame, page: u64) -> Transfer {
        let start = frame.0 as usize * self.page_bytes;
        // SAFETY: all of the memory is committed, and `Arc` keeps it so while the buffer lives. `transfer`'s caller has claimed the page until
        // then: for a read, no other thread uses its frame; for a write, the device and others only read it.
        let buffer = unsafe { Buffer::lend(Arc::clone(&self.memory), start..start + self.page_bytes) };
        let extents = vec![Extent { offset: page * self.page_bytes as u64, start: 0, len: self.page_bytes }];
        Transfer { direction, buffer, extents, tag: PageRun { start: page, pages: 1 }.to_tag() }
    }

    /// The bytes of a frame that no other thread uses.
    ///
    /// # Safety
    /// The frame's page is claimed by the caller, or it has none yet, for as long as the caller uses the slice.
    #[expect(clippy::mut_from_ref, reason = "the claim is the right to change it")]
    pub(crate) unsafe fn claimed(&self, frame: SpareFrame) -> &mut [u8] {
        // SAFETY: all of the memory is committed, and `claimed`'s caller has the frame for itself: no other thread reads or writes it.
        unsafe { std::slice::from_raw_parts_mut(self.at(frame), self.page_bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_apart_and_found_by_their_pages_until_they_are_given_back() {
        let frames = SpareFrames::new(3, 4096, 1 << 30).unwrap();
        let taken: Vec<SpareFrame> = std::iter::from_fn(|| frames.take()).collect();
        assert_eq!((taken.len(), frames.held(), frames.pages().count()), (3, 0, 0));
        for (number, &frame) in taken.iter().enumerate() {
            frames.assign(frame, (1 << 30) - 1 - number as u64);
            // SAFETY: this test alone uses the frame.
            unsafe { frames.claimed(frame) }.fill(number as u8 + 1);
        }
        assert_eq!(frames.frame_of((1 << 30) - 2), Some(taken[1]));
        // SAFETY: only this test uses the frame; page 2^30 - 2, which has it, is used by no other thread, as `claimed` and `give_back` demand.
        unsafe {
            assert!(frames.claimed(taken[1]).iter().all(|&byte| byte == 2));
            frames.give_back(taken[1]).unwrap();
        }
        assert_eq!((frames.frame_of((1 << 30) - 2), frames.held()), (None, 2));
        assert_eq!(frames.pages().collect::<Vec<_>>(), [(1 << 30) - 1, (1 << 30) - 3]);
        let again = frames.take().unwrap();
        // SAFETY: `claimed` demands a frame that no other thread uses: it was taken just now, and has no page yet.
        assert!(again == taken[1] && unsafe { frames.claimed(again) }.iter().all(|&byte| byte == 0));
    }
}
