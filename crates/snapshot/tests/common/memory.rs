//! Ranges of every kind that a mechanism may be put on, and plain access to them.
//!
//! Relies on each range outliving what is made of it: [`Memory`] is dropped last.

use quire_snapshot::{PAGE_SIZE, PageRange, REGION_SIZE};
use quire_sys::map::{self, MapAdvice};
use quire_sys::mem::Reservation;

/// How a range lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Aligned to huge pages and backed by them where the system has them.
    Huge,
    /// Aligned to huge pages, small pages only.
    Small,
    /// Memory of the test, beginning and ending in the middle of huge pages.
    Borrowed,
}

/// All kinds.
pub const KINDS: [Kind; 3] = [Kind::Huge, Kind::Small, Kind::Borrowed];

/// A range and what it was borrowed from.
pub struct Memory {
    /// The range.
    pub span: PageRange,
    _lender: Option<Reservation>,
}

impl Memory {
    /// A range of `pages` pages, all zero.
    pub fn new(kind: Kind, pages: usize) -> Self {
        let len = pages * PAGE_SIZE;
        if kind == Kind::Borrowed {
            let before = 5 * PAGE_SIZE;
            let lender = Reservation::new(len + before + REGION_SIZE).unwrap();
            lender.commit(0..lender.len()).unwrap();
            // SAFETY: committed private memory that is unmapped only when this struct goes; the fixtures of the tests
            // drop origins and views before it.
            let span = unsafe { PageRange::borrow(lender.base().wrapping_add(before), len) }.unwrap();
            return Self { span, _lender: Some(lender) };
        }
        let span = PageRange::allocate(len).unwrap();
        if kind == Kind::Small {
            map::advise(span.base(), len, MapAdvice::NoHuge).unwrap();
        }
        Self { span, _lender: None }
    }

    /// The range.
    pub fn span(&self) -> PageRange {
        self.span.clone()
    }
}

/// Writes `bytes` at `offset` of the memory at `base`.
pub fn write(base: *mut u8, offset: usize, bytes: &[u8]) {
    // SAFETY: the tests write inside their own ranges, from one thread at a time, and keep no references into them.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), base.wrapping_add(offset), bytes.len()) };
}

/// The `len` bytes at `offset` of the memory at `base`.
pub fn read(base: *const u8, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    // SAFETY: the tests read inside their own ranges, while no other thread writes those bytes; `bytes` is memory of this function.
    unsafe { std::ptr::copy_nonoverlapping(base.wrapping_add(offset), bytes.as_mut_ptr(), len) };
    bytes
}
