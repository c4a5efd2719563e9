//! Pages that a handler reads into before they go to their place: a missing page can only be filled whole, by copying.
//!
//! Relies on a few being enough: whoever finds none waits for a copy to end. All memory is taken beforehand.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quire_device::{Buffer, Direction, Extent, Transfer};
use quire_sys::mem::{MemError, Reservation};

/// Pages of staging memory, as many as threads can be reading at a time.
const SLOTS: usize = 32;

/// The pages.
pub(super) struct Staging {
    slots: Box<[UnsafeCell<Transfer>]>,
    /// A bit for each slot that nobody has.
    free: AtomicU64,
}

// SAFETY: a slot is used only by who has taken its bit.
unsafe impl Sync for Staging {}
// SAFETY: transfers can be sent.
unsafe impl Send for Staging {}

/// A slot, given back when dropped.
pub(super) struct Lease<'a> {
    staging: &'a Staging,
    slot: usize,
}

impl Staging {
    pub(super) fn new(page_bytes: usize) -> Result<Self, MemError> {
        let memory = Arc::new(Reservation::new(SLOTS * page_bytes)?);
        memory.commit(0..memory.len())?;
        let slot = |number: usize| {
            // SAFETY: committed above; each slot has its own bytes, and nobody else knows of the memory.
            let buffer = unsafe { Buffer::lend(Arc::clone(&memory), number * page_bytes..(number + 1) * page_bytes) };
            let extents = vec![Extent { offset: 0, start: 0, len: page_bytes }];
            UnsafeCell::new(Transfer { direction: Direction::Read, buffer, extents, tag: 0 })
        };
        Ok(Self { slots: (0..SLOTS).map(slot).collect(), free: AtomicU64::new((1 << SLOTS) - 1) })
    }

    /// A slot; waits for one.
    pub(super) fn take(&self) -> Lease<'_> {
        loop {
            let free = self.free.load(Ordering::Relaxed);
            if free == 0 {
                std::thread::yield_now();
                continue;
            }
            let slot = free.trailing_zeros() as usize;
            if self.free.compare_exchange_weak(free, free & !(1 << slot), Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return Lease { staging: self, slot };
            }
        }
    }
}

impl Lease<'_> {
    /// A read of one page into the slot; its extent is to be set.
    pub(super) fn transfer(&mut self) -> &mut Transfer {
        // SAFETY: the slot is this lease's alone; `&mut self` is the only access.
        unsafe { &mut *self.staging.slots[self.slot].get() }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.staging.free.fetch_or(1 << self.slot, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_apart_and_come_back() {
        let staging = Staging::new(4096).unwrap();
        let mut all: Vec<Lease> = (0..SLOTS).map(|_| staging.take()).collect();
        for (number, lease) in all.iter_mut().enumerate() {
            lease.transfer().buffer.fill(number as u8);
        }
        for (number, lease) in all.iter_mut().enumerate() {
            assert!(lease.transfer().buffer.iter().all(|&byte| byte == number as u8));
        }
        all.pop();
        assert_eq!(staging.take().transfer().buffer[0], SLOTS as u8 - 1);
    }
}
