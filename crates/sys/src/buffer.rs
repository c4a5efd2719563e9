//! Owned, page-aligned memory for input and output, on huge pages where the system allows.
//!
//! Relies on [`Reservation`]. A [`Buffer`] is the only way to its bytes while it lives, so it can be handed to the kernel
//! and be got back without borrowing; a [`BumpAllocator`] makes such buffers out of memory that will serve as something else
//! afterwards, and [`Buffer::lend`] out of memory that another part looks after, so that a read goes straight to its place.

use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use crate::mem::{MemError, PAGE_SIZE, Reservation};

/// Bytes that one owner may read, write, or lend to the kernel.
#[derive(Debug)]
pub struct Buffer {
    memory: Arc<Reservation>,
    range: Range<usize>,
}

impl Buffer {
    /// A buffer of `len` bytes (rounded up to whole pages), all zero.
    ///
    /// # Errors
    /// The system has no memory.
    pub fn new(len: usize) -> Result<Self, MemError> {
        Self::several(1, len).map(|mut one| one.remove(0))
    }

    /// `count` buffers of `len` bytes each (rounded up to whole pages), all zero, close together.
    ///
    /// # Errors
    /// The system has no memory.
    pub fn several(count: usize, len: usize) -> Result<Vec<Self>, MemError> {
        let count = count.max(1);
        let len = len.max(1).next_multiple_of(PAGE_SIZE);
        let mut carver = BumpAllocator::new(Reservation::new(count * len)?);
        (0..count).map(|index| carver.carve(index * len..(index + 1) * len)).collect()
    }

    /// Bytes that the caller lends out of memory that it looks after itself, such as a frame of a pool. Costs no system
    /// call.
    ///
    /// # Safety
    /// - `range` is committed, and stays so until the buffer is dropped.
    /// - Until then no other code writes it, nor remaps or releases it, in this process or through a mapping shared with
    ///   another.
    /// - Until then no other code reads it, unless all that is done with the buffer is to read it (a transfer that writes to
    ///   a file does nothing else).
    ///
    /// # Panics
    /// If `range` isn't made of whole pages inside `memory`.
    pub unsafe fn lend(memory: Arc<Reservation>, range: Range<usize>) -> Self {
        let whole = range.start.is_multiple_of(PAGE_SIZE) && range.end.is_multiple_of(PAGE_SIZE);
        let inside = range.start <= range.end && range.end <= memory.len();
        assert!(whole && inside, "{range:?} can't be lent of {} bytes", memory.len());
        Self { memory, range }
    }

    /// Where the kernel may write. Not derived from a reference, so its writes contradict none.
    pub(crate) fn address(&self) -> *mut u8 {
        self.memory.base().wrapping_add(self.range.start)
    }

    /// A buffer of no bytes, to stand for one that can't be got back.
    pub(crate) fn hollow(&self) -> Self {
        Self { memory: Arc::clone(&self.memory), range: 0..0 }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range was committed when the buffer was carved and belongs to this buffer alone until it is
        // dropped, but for others who only read as well (a carver hands no byte out twice, and who lends promises the
        // same); `&self` keeps writers away.
        unsafe { std::slice::from_raw_parts(self.address(), self.range.len()) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the range was committed when the buffer was carved and belongs to this buffer alone until it is dropped: a carver hands no
        // byte out twice, and `lend` demands that no other code writes the range, nor reads it if more is done with the buffer than
        // to read it. `&mut self` keeps this buffer's other users away.
        unsafe { std::slice::from_raw_parts_mut(self.address(), self.range.len()) }
    }
}

/// How far ahead of what is given out access to memory is opened, in bytes.
const COMMIT_AHEAD: usize = 1 << 30;

/// Gives out parts of one reservation as buffers, each part at most once and in rising order.
///
/// It takes the reservation by value, so no other code reaches those bytes while they are filled.
#[derive(Debug)]
pub struct BumpAllocator {
    memory: Arc<Reservation>,
    next: usize,
    committed: usize,
}

impl BumpAllocator {
    /// Starts at the first byte of `memory`.
    pub fn new(memory: Reservation) -> Self {
        Self { memory: Arc::new(memory), next: 0, committed: 0 }
    }

    /// The bytes of `range`, committed, as a buffer.
    ///
    /// # Errors
    /// [`MemError::Range`] if the range isn't page-aligned, lies outside the memory or before the end of one carved
    /// earlier; or the system has no memory.
    pub fn carve(&mut self, range: Range<usize>) -> Result<Buffer, MemError> {
        if range.start < self.next || range.end < range.start {
            return Err(MemError::Range { start: range.start, end: range.end, len: self.memory.len() });
        }
        if range.end > self.committed {
            // Far ahead at once: access is opened under a lock that the page faults of all threads need too.
            let ahead = range.end.saturating_add(COMMIT_AHEAD).min(self.memory.len()).max(range.end);
            self.memory.commit(self.committed.max(range.start)..ahead)?;
            self.committed = ahead;
        }
        self.next = range.end;
        Ok(Buffer { memory: Arc::clone(&self.memory), range })
    }

    /// The memory itself.
    ///
    /// Code that reads or remaps a part of it must know that the part's buffer has been dropped.
    pub fn memory(&self) -> &Arc<Reservation> {
        &self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zero_aligned_and_apart() {
        let mut all = Buffer::several(3, 5000).unwrap();
        for (index, buffer) in all.iter_mut().enumerate() {
            assert_eq!(buffer.len(), 2 * PAGE_SIZE);
            assert_eq!(buffer.as_ptr().align_offset(PAGE_SIZE), 0);
            assert!(buffer.iter().all(|&byte| byte == 0));
            buffer.fill(index as u8 + 1);
        }
        for (index, buffer) in all.iter().enumerate() {
            assert!(buffer.iter().all(|&byte| byte == index as u8 + 1));
        }
    }

    #[test]
    fn no_byte_is_carved_twice() {
        let mut carver = BumpAllocator::new(Reservation::new(1 << 21).unwrap());
        let first = carver.carve(PAGE_SIZE..3 * PAGE_SIZE).unwrap();
        assert!(carver.carve(2 * PAGE_SIZE..4 * PAGE_SIZE).is_err());
        drop(first);
        assert!(carver.carve(0..PAGE_SIZE).is_err());
        assert!(carver.carve(3 * PAGE_SIZE..4 * PAGE_SIZE).is_ok());
        assert!(carver.carve(0..1 << 30).is_err());
    }

    #[test]
    fn what_is_lent_is_the_memory_itself() {
        let memory = Arc::new(Reservation::new(1 << 21).unwrap());
        memory.commit(0..4 * PAGE_SIZE).unwrap();
        // SAFETY: committed above, and read below only after the buffer is gone.
        let mut lent = unsafe { Buffer::lend(Arc::clone(&memory), PAGE_SIZE..2 * PAGE_SIZE) };
        assert_eq!(lent.len(), PAGE_SIZE);
        lent.fill(5);
        drop(lent);
        // SAFETY: the pages are committed and the buffer is gone.
        let around = unsafe { [0, 1, 2].map(|page| *memory.base().wrapping_add(page * PAGE_SIZE)) };
        assert_eq!(around, [0, 5, 0]);
    }

    #[test]
    #[should_panic(expected = "can't be lent")]
    fn parts_of_pages_are_not_lent() {
        let memory = Arc::new(Reservation::new(1 << 21).unwrap());
        // SAFETY: it panics.
        let _ = unsafe { Buffer::lend(memory, 1..PAGE_SIZE) };
    }

    #[test]
    fn what_was_carved_stays_in_the_memory() {
        let mut carver = BumpAllocator::new(Reservation::new(1 << 21).unwrap());
        carver.carve(0..PAGE_SIZE).unwrap().fill(7);
        // SAFETY: the page is committed and its buffer is gone.
        assert_eq!(unsafe { *carver.memory().base() }, 7);
    }
}
