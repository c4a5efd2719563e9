//! A map's memory: an address for every page, whether it is there or not, and a state for each.
//!
//! Relies on reserved addresses costing nothing. A page's frame is what lies behind its address: anonymous memory that a
//! read fills in place and an eviction gives back, so no table says which frame a page has. Small pages only: pages come and
//! go singly, and a huge page can't.

use std::io;
use std::sync::{Arc, OnceLock};

use quire_device::{Buffer, Direction, Extent, Transfer};
use quire_sys::advise::{DiscardBatch, DiscardCost};
use quire_sys::map::{MapAdvice, advise};
use quire_sys::mem::{MemError, Reservation};
use quire_sys::userfault::Userfault;

use crate::error::PoolError;
use crate::page::PageRun;
use crate::page_state::PageState;
use crate::spare_frames::SpareFrames;

/// Words of less memory than this are kept on small pages, or a small map would pay for a huge one.
const HUGE_STATES_BYTES: usize = 8 << 20;

/// The memory of one map.
#[derive(Debug)]
pub(crate) struct PageFrames {
    base: *mut u8,
    states: *const PageState,
    page_shift: u32,
    /// Pages that there are addresses for.
    pages: u64,
    memory: Arc<Reservation>,
    /// Frames for pages that are changed while they are leased; made when the first is.
    pub(crate) spare: OnceLock<SpareFrames>,
    /// What keeps stores from clean pages, in a transparent map.
    protector: OnceLock<Userfault>,
    /// Behind `states`.
    _states: Reservation,
}

// SAFETY: the pointers lead into the two reservations, which live as long; states are atomics, and bytes are only reached
// through pointers whose users answer for them.
unsafe impl Send for PageFrames {}
// SAFETY: `&PageFrames` gives out atomics, and bytes only through functions whose callers have claimed the page.
unsafe impl Sync for PageFrames {}

fn refused(what: &'static str) -> impl Fn(MemError) -> PoolError {
    move |error| PoolError::Memory { what, cause: error.to_string() }
}

impl PageFrames {
    /// Addresses for `bytes` bytes in pages of `page_bytes` (a power of two, at least the system's).
    pub(crate) fn new(bytes: u64, page_bytes: usize) -> Result<Self, PoolError> {
        let too_large = || PoolError::Memory { what: "the map's addresses", cause: "the file is too large".into() };
        let bytes = usize::try_from(bytes.max(1)).map_err(|_| too_large())?;
        let bytes =
            bytes.checked_next_multiple_of(page_bytes).filter(|&bytes| bytes < 1 << 46).ok_or_else(too_large)?;
        let pages = bytes / page_bytes;
        let memory = Reservation::new(bytes).map_err(refused("the map's addresses"))?;
        memory.commit(0..memory.len()).map_err(refused("the map's addresses"))?;
        // Where there are no huge pages it fails, and nothing is lost.
        let _ = advise(memory.base(), memory.len(), MapAdvice::NoHuge);
        let states =
            Reservation::new(pages * size_of::<PageState>()).map_err(refused("the states of the map's pages"))?;
        states.commit(0..states.len()).map_err(refused("the states of the map's pages"))?;
        if states.len() < HUGE_STATES_BYTES {
            let _ = advise(states.base(), states.len(), MapAdvice::NoHuge);
        }
        Ok(Self {
            base: memory.base(),
            states: states.base().cast_const().cast(),
            page_shift: page_bytes.trailing_zeros(),
            pages: pages as u64,
            memory: Arc::new(memory),
            spare: OnceLock::new(),
            protector: OnceLock::new(),
            _states: states,
        })
    }

    /// Bytes of a page.
    #[inline]
    pub(crate) fn page_bytes(&self) -> usize {
        1 << self.page_shift
    }

    /// Bytes that there are addresses for.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.pages << self.page_shift
    }

    /// The page's state and the offset of its first byte; `None` if there is no address for it.
    #[inline]
    pub(crate) fn find(&self, page: u64) -> Option<(&PageState, u64)> {
        if page >= self.pages {
            return None;
        }
        // SAFETY: inside the reservation of the states, which is committed: zeroed memory, which is a valid state, and lives
        // as long as `self`.
        Some((unsafe { &*self.states.add(page as usize) }, page << self.page_shift))
    }

    /// The page's state.
    ///
    /// # Panics
    /// If there is no address for the page.
    pub(crate) fn state(&self, page: u64) -> &PageState {
        self.find(page).expect("the page was looked up before").0
    }

    /// Where the byte at `offset` is, if its page is in memory.
    #[inline]
    pub(crate) fn at(&self, offset: u64) -> *mut u8 {
        self.base.wrapping_add(offset as usize)
    }

    /// A transfer between `run` and its place in the file.
    ///
    /// # Safety
    /// The pages are claimed by the caller, until the transfer is dropped: for a read, no other thread uses them; for a write,
    /// others at most read them.
    pub(crate) unsafe fn transfer(&self, direction: Direction, run: PageRun) -> Transfer {
        let start = (run.start << self.page_shift) as usize;
        let len = (run.pages << self.page_shift) as usize;
        // SAFETY: all of the memory is committed, and `Arc` keeps it so while the buffer lives. `transfer`'s caller has claimed the
        // pages until then: for a read, no other thread uses them; for a write, the device and others only read them.
        let buffer = unsafe { Buffer::lend(Arc::clone(&self.memory), start..start + len) };
        let extents = vec![Extent { offset: start as u64, start: 0, len }];
        Transfer { direction, buffer, extents, tag: run.to_tag() }
    }

    /// The bytes of a page that no other thread uses.
    ///
    /// # Safety
    /// The page is claimed by the caller for as long as it uses the slice.
    #[expect(clippy::mut_from_ref, reason = "the claim is the right to change it")]
    pub(crate) unsafe fn claimed(&self, page: u64) -> &mut [u8] {
        // SAFETY: all of the memory is committed, and `claimed`'s caller has claimed the page: no other thread reads or writes it.
        unsafe { std::slice::from_raw_parts_mut(self.at(page << self.page_shift), self.page_bytes()) }
    }

    /// The bytes of a page that other threads at most read.
    ///
    /// # Safety
    /// The page is claimed for eviction by the caller for as long as it uses the slice.
    pub(crate) unsafe fn evicting(&self, page: u64) -> &[u8] {
        // SAFETY: all of the memory is committed, and `evicting`'s caller has claimed the page as clean and without a lock: no other
        // thread changes it before the claim ends.
        unsafe { std::slice::from_raw_parts(self.at(page << self.page_shift), self.page_bytes()) }
    }

    /// The map is transparent from now on: `fault` guards all of it.
    pub(crate) fn protect_by(&self, fault: Userfault) {
        // It is done once, when the map is made.
        let _ = self.protector.set(fault);
    }

    /// What guards a transparent map.
    pub(crate) fn protector(&self) -> Option<&Userfault> {
        self.protector.get()
    }

    /// Keeps stores away from pages that are claimed for writing, in a transparent map. Elsewhere the claim does.
    pub(crate) fn protect(&self, run: PageRun) -> io::Result<()> {
        let Some(fault) = self.protector.get() else { return Ok(()) };
        let len = (run.pages << self.page_shift) as usize;
        fault.write_protect(self.at(run.start << self.page_shift), len, true, false)
    }

    /// Gives the memory of `pages`, which rise, back to the system.
    ///
    /// # Safety
    /// The pages are claimed by the caller.
    pub(crate) unsafe fn discard(&self, pages: &[u64]) -> io::Result<DiscardCost> {
        let mut batch = DiscardBatch::with_capacity(pages.len());
        for &page in pages {
            batch.add(self.at(page << self.page_shift), self.page_bytes());
        }
        // SAFETY: whole pages of this map's anonymous memory. The caller of `discard` has claimed them, so no guard refers to them.
        unsafe { batch.discard() }
    }

    /// Gives all memory back to the system.
    ///
    /// # Safety
    /// No thread uses the map any more.
    pub(crate) unsafe fn discard_all(&self) {
        // It could only fail for a range that isn't ours.
        let _ = self.memory.release(0..self.memory.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_state::PageStatus;

    #[test]
    fn pages_have_states_and_addresses_that_do_not_move() {
        let frames = PageFrames::new(10 * 16384 + 1, 16384).unwrap();
        assert_eq!((frames.page_bytes(), frames.reserved_bytes()), (16384, 11 * 16384));
        assert_eq!(frames.state(10).load().status(), PageStatus::Absent);
        assert!(frames.find(11).is_none());
        // SAFETY: this test alone uses the map.
        unsafe {
            frames.claimed(3).fill(7);
            assert_eq!(*frames.at(3 * 16384), 7);
            frames.discard(&[3, 4]).unwrap();
            assert_eq!(*frames.at(3 * 16384), 0);
        }
    }

    #[test]
    fn large_maps_cost_nothing_until_used() {
        let frames = PageFrames::new(1 << 40, 4096).unwrap();
        assert_eq!(frames.state((1 << 28) - 1).load().status(), PageStatus::Absent);
        assert!(PageFrames::new(u64::MAX, 4096).is_err());
    }
}
