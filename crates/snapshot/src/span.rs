//! A page-aligned range of memory that snapshots are made of: its own, or the caller's.
//!
//! Relies on the maker of a borrowed span for the promise that the range stays mapped.

use std::sync::Arc;

use quire_sys::mem::{MemError, Reservation};

use crate::origin::MechanismError;
use crate::page::{PAGE_SIZE, REGION_SIZE};

/// Page-aligned memory.
#[derive(Clone, Debug)]
pub struct PageRange {
    base: *mut u8,
    len: usize,
    /// Keeps allocated memory mapped for as long as an origin or a view may read it.
    _owner: Option<Arc<Reservation>>,
}

// SAFETY: an address and a length; access to the bytes takes `unsafe` that answers for itself.
unsafe impl Send for PageRange {}
// SAFETY: shared by reference it allows no more than a clone does: access to the bytes takes `unsafe` that answers for itself.
unsafe impl Sync for PageRange {}

impl PageRange {
    /// Fresh memory of `len` bytes, rounded up to pages, aligned to huge pages; reads as zero.
    ///
    /// # Errors
    /// The system has no memory or addresses left.
    ///
    /// ```
    /// use quire_snapshot::PageRange;
    ///
    /// let range = PageRange::allocate(10_000)?;
    /// assert_eq!((range.len(), range.pages()), (12_288, 3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn allocate(len: usize) -> Result<Self, MemError> {
        let len = len.max(1).next_multiple_of(PAGE_SIZE);
        let memory = Reservation::new(len)?;
        // With the rest of its huge page, a small range would take all of that: memory, and the time to fill it with zeros.
        let committed = if len < REGION_SIZE { len } else { memory.len() };
        memory.commit(0..committed)?;
        Ok(Self { base: memory.base(), len, _owner: Some(Arc::new(memory)) })
    }

    /// Memory of the caller.
    ///
    /// # Safety
    /// - `base .. base + len` is private anonymous memory, readable and writable.
    /// - It stays mapped, and no other code remaps it, until every origin and view made of it is gone.
    /// - No Rust reference into it exists while a mechanism holds it: other threads write it.
    ///
    /// # Errors
    /// [`MechanismError`] if it is empty or not aligned to pages.
    ///
    /// ```
    /// use quire_snapshot::PageRange;
    ///
    /// let layout = std::alloc::Layout::from_size_align(1 << 20, 4096)?;
    /// // SAFETY: the layout has bytes.
    /// let base = unsafe { std::alloc::alloc_zeroed(layout) };
    /// // SAFETY: private memory, which stays until the program ends, and to which no reference is made.
    /// let range = unsafe { PageRange::borrow(base, layout.size()) }?;
    /// assert_eq!(range.pages(), 256);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn borrow(base: *mut u8, len: usize) -> Result<Self, MechanismError> {
        if base.is_null() || len == 0 || !(base as usize).is_multiple_of(PAGE_SIZE) || !len.is_multiple_of(PAGE_SIZE) {
            return Err(MechanismError::Range { base: base as usize, len });
        }
        Ok(Self { base, len, _owner: None })
    }

    /// First address.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: a span has a page at least.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Pages.
    pub fn pages(&self) -> usize {
        self.len / PAGE_SIZE
    }

    /// Address of byte `offset`.
    ///
    /// # Panics
    /// If it lies outside.
    pub fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.len, "offset {offset} of {}", self.len);
        self.base.wrapping_add(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_aligned_and_unaligned_memory_is_refused() {
        let span = PageRange::allocate(10_000).unwrap();
        assert_eq!((span.len(), span.pages(), span.base() as usize % (2 << 20)), (12_288, 3, 0));
        // SAFETY: refused spans are never used.
        unsafe {
            assert!(PageRange::borrow(span.at(1), 4096).is_err());
            assert!(PageRange::borrow(span.at(0), 100).is_err());
            assert!(PageRange::borrow(span.at(0), 0).is_err());
            assert!(PageRange::borrow(std::ptr::null_mut(), 4096).is_err());
        }
    }

    #[test]
    fn a_small_span_takes_no_huge_page() {
        let span = PageRange::allocate(16 * PAGE_SIZE).unwrap();
        let end = span.base() as usize + span.len();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let contains_end = |line: &&str| {
            let bounds = line.split_once(' ').and_then(|(bounds, _)| bounds.split_once('-'));
            let number = |text| usize::from_str_radix(text, 16).unwrap();
            bounds.is_some_and(|(from, to)| (number(from)..number(to)).contains(&end))
        };
        // A huge page needs a mapping of its whole size; the rest of this one can't be accessed, so it is another mapping.
        let after = maps.lines().find(contains_end).expect("the reservation goes on behind it");
        assert!(after.contains(" ---p "), "{after}");
    }
}
