//! Bytes in and out of the memory behind a barrier, for owners that do without `unsafe` of their own.
//!
//! Relies on the barrier: every write passes it. Owners with an idea of what is in the pages (the arena) go past this.

use std::ops::Range;

use crate::page::{PAGE_SIZE, page_of};
use crate::stream::error::SnapshotError;
use crate::stream::write_barrier::WriteBarrier;

impl WriteBarrier {
    /// Copies `bytes` to `offset`, through the barrier. All their pages must be [present](WriteBarrier::mark_present).
    ///
    /// # Errors
    /// [`SnapshotError::Page`] names the first page that isn't, or lies outside the memory; nothing is written then.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), SnapshotError> {
        self.check_present(offset..offset.saturating_add(bytes.len()))?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.before_write(offset, bytes.len());
        (page_of(offset)..=page_of(offset + bytes.len() - 1)).for_each(|page| self.note_change(page));
        let to = self.memory().base().wrapping_add(offset);
        // SAFETY: present pages are committed and inside the memory (checked above); `&mut self` makes this the only
        // writer, and the barrier has been passed, so no reader copies these pages. `bytes` is borrowed, and a
        // borrow of the memory itself takes unsafe code, which answers for it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    /// Copies the bytes at `offset` out. All their pages must be present.
    ///
    /// # Errors
    /// [`SnapshotError::Page`] names the first page that isn't, or lies outside the memory.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), SnapshotError> {
        self.check_present(offset..offset.saturating_add(into.len()))?;
        let from = self.memory().base().wrapping_add(offset);
        // SAFETY: present pages are committed and inside the memory (checked above); the only writer is the owner of
        // this barrier, which `&self` keeps still; `into` is memory of the caller.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    fn check_present(&self, bytes: Range<usize>) -> Result<(), SnapshotError> {
        let pages = page_of(bytes.start)..bytes.end.div_ceil(PAGE_SIZE);
        let absent = |page: &usize| u32::try_from(*page).map_or(true, |page| !self.is_present(page));
        match pages.into_iter().find(absent) {
            Some(page) => {
                Err(SnapshotError::Page { page: page as u64, pages: (self.memory().len() / PAGE_SIZE) as u64 })
            }
            None => Ok(()),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{TakeOutcome, WriteBarrierConfig};
    use quire_sys::mem::Reservation;
    use std::sync::Arc;

    #[test]
    fn bytes_come_back_and_pass_the_barrier() {
        let memory = Arc::new(Reservation::new(1 << 21).unwrap());
        memory.commit(0..memory.len()).unwrap();
        let mut barrier = WriteBarrier::new(memory, WriteBarrierConfig::default()).unwrap();
        assert!(barrier.write(10, b"too early").is_err());
        barrier.mark_present(0..2);
        barrier.write(PAGE_SIZE - 2, b"over the edge").unwrap();
        let mut snapshot = barrier.cut(2).unwrap();
        barrier.write(PAGE_SIZE, b"!").unwrap();
        let mut page = vec![0; PAGE_SIZE];
        assert_eq!(snapshot.take(1, &mut page), TakeOutcome::Copied);
        assert_eq!(&page[..11], b"er the edge");
        let mut now = [0; 13];
        barrier.read(PAGE_SIZE - 2, &mut now).unwrap();
        assert_eq!(&now, b"ov!r the edge");
        assert!(barrier.write(2 * PAGE_SIZE - 1, b"xy").is_err());
        assert!(barrier.read(usize::MAX - 1, &mut now).is_err());
    }
}
