//! Memory that a handler reads into before pages go to their place: a missing page can only be filled whole, by copying.
//!
//! Relies on a few slots being enough: a handler that finds none for a page waits for a copy to end, and one that finds none
//! for a run does without. All memory is taken beforehand.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quire_device::{Buffer, Direction, Extent, Transfer};
use quire_sys::map::{MapAdvice, advise};
use quire_sys::mem::{MemError, Reservation};

/// StagingSlots of a page each, as many as threads can be reading at a time.
const PAGE_SLOTS: usize = 32;
/// StagingSlots for runs, and their bytes.
const RUN_SLOTS: usize = 4;
const RUN_BYTES: usize = 64 << 10;

/// The memory.
pub(super) struct StagingBuffers {
    pages: StagingSlots,
    runs: StagingSlots,
    page_bytes: usize,
}

/// StagingSlots of one size.
struct StagingSlots {
    slots: Box<[UnsafeCell<Transfer>]>,
    /// A bit for each slot that is free.
    free: AtomicU64,
}

// SAFETY: a slot is used only by the lease that has taken its bit.
unsafe impl Sync for StagingSlots {}
// SAFETY: a slot holds a transfer, which may be sent to another thread.
unsafe impl Send for StagingSlots {}

/// A slot, given back when dropped.
pub(super) struct StagingLease<'a> {
    slots: &'a StagingSlots,
    slot: usize,
}

impl StagingBuffers {
    pub(super) fn new(page_bytes: usize) -> Result<Self, MemError> {
        let runs = StagingSlots::new(RUN_SLOTS, RUN_BYTES)?;
        Ok(Self { pages: StagingSlots::new(PAGE_SLOTS, page_bytes)?, runs, page_bytes })
    }

    /// A slot for a page; waits for one.
    pub(super) fn take(&self) -> StagingLease<'_> {
        loop {
            match self.pages.try_take() {
                Some(lease) => return lease,
                None => std::thread::yield_now(),
            }
        }
    }

    /// A slot for up to [`StagingBuffers::run_pages`], if there is one.
    pub(super) fn take_for_run(&self) -> Option<StagingLease<'_>> {
        self.runs.try_take()
    }

    /// Most pages of a run.
    pub(super) fn run_pages(&self) -> u64 {
        (RUN_BYTES / self.page_bytes) as u64
    }
}

impl StagingSlots {
    fn new(count: usize, bytes: usize) -> Result<Self, MemError> {
        let memory = Arc::new(Reservation::new(count * bytes)?);
        memory.commit(0..memory.len())?;
        // A huge page would be more memory than all slots. Where there are none this fails, and nothing is lost.
        let _ = advise(memory.base(), memory.len(), MapAdvice::NoHuge);
        let slot = |number: usize| {
            // SAFETY: committed above; each slot has its own bytes, and no other part of the program knows of the memory.
            let buffer = unsafe { Buffer::lend(Arc::clone(&memory), number * bytes..(number + 1) * bytes) };
            let extents = vec![Extent { offset: 0, start: 0, len: bytes }];
            UnsafeCell::new(Transfer { direction: Direction::Read, buffer, extents, tag: 0 })
        };
        Ok(Self { slots: (0..count).map(slot).collect(), free: AtomicU64::new((1 << count) - 1) })
    }

    fn try_take(&self) -> Option<StagingLease<'_>> {
        let mut free = self.free.load(Ordering::Relaxed);
        while free != 0 {
            let slot = free.trailing_zeros() as usize;
            let rest = free & !(1 << slot);
            match self.free.compare_exchange_weak(free, rest, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(StagingLease { slots: self, slot }),
                Err(now) => free = now,
            }
        }
        None
    }
}

impl StagingLease<'_> {
    /// A read into the slot; its extent is to be set.
    pub(super) fn transfer(&mut self) -> &mut Transfer {
        // SAFETY: `try_take` took the slot's bit for this lease alone, and `drop` gives it back; `&mut self` is the only access by way
        // of the lease.
        unsafe { &mut *self.slots.slots[self.slot].get() }
    }
}

impl Drop for StagingLease<'_> {
    fn drop(&mut self) {
        self.slots.free.fetch_or(1 << self.slot, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_apart_and_come_back() {
        let staging = StagingBuffers::new(4096).unwrap();
        let mut all: Vec<StagingLease> = (0..PAGE_SLOTS).map(|_| staging.take()).collect();
        for (number, lease) in all.iter_mut().enumerate() {
            lease.transfer().buffer.fill(number as u8);
        }
        for (number, lease) in all.iter_mut().enumerate() {
            assert!(lease.transfer().buffer.iter().all(|&byte| byte == number as u8));
        }
        all.pop();
        assert_eq!(staging.take().transfer().buffer[0], PAGE_SLOTS as u8 - 1);
        let runs: Vec<StagingLease> = std::iter::from_fn(|| staging.take_for_run()).collect();
        assert_eq!((runs.len(), staging.run_pages()), (RUN_SLOTS, 16));
    }
}
