//! Bounds-checked loads and stores on an origin, for code without `unsafe`: tools, benches, examples.
//!
//! Relies on the origin to keep its range mapped for as long as it lives. Other threads may write the same bytes at the
//! same time, so single words are atomics and longer runs are copied by instructions that are opaque to the compiler.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::origin::Origin;
use crate::racy;

/// A handle to an origin's range. Announces each write where the mechanism wants that.
///
/// ```
/// use quire_snapshot::{Mechanism, OriginAccess, OriginOptions, PageRange, attach};
///
/// let origin = attach(Mechanism::Barrier, PageRange::allocate(4096)?, &OriginOptions::default())?;
/// let memory = OriginAccess::new(origin.into());
/// memory.write(100, b"no unsafe code, and no write that is not announced");
/// let mut word = [0; 2];
/// memory.read(100, &mut word);
/// assert_eq!(&word, b"no");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct OriginAccess {
    origin: Arc<dyn Origin>,
    base: *mut u8,
    len: usize,
    announces: bool,
}

// SAFETY: an address inside the range of an origin that is kept alive; every use of it is an atomic or a racy copy.
unsafe impl Send for OriginAccess {}
// SAFETY: shared by reference it allows no more than a clone does: every use of the address is an atomic or a racy copy.
unsafe impl Sync for OriginAccess {}

impl OriginAccess {
    /// Of `origin`.
    pub fn new(origin: Arc<dyn Origin>) -> Self {
        let (base, len) = (origin.base(), origin.len());
        Self { base, len, announces: origin.mechanism().needs_announcement(), origin }
    }

    /// The origin whose range it is.
    pub fn origin(&self) -> &Arc<dyn Origin> {
        &self.origin
    }

    /// Bytes of the range.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: a range has a page at least.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        let is_inside = offset <= self.len && len <= self.len - offset;
        assert!(is_inside, "{len} bytes at {offset} lie outside the {} of this range", self.len);
        self.base.wrapping_add(offset)
    }

    #[inline]
    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8), "offset {offset} is not aligned to a word");
        // SAFETY: inside the range (checked), which the origin keeps mapped; aligned, as the range begins at a page; all
        // bytes are valid words, and other threads write them by atomics or out of the compiler's sight.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast()) }
    }

    #[inline]
    fn announce(&self, range: Range<usize>) {
        if self.announces {
            self.origin.prepare_write(range);
        }
    }

    /// The word at `offset`.
    ///
    /// # Panics
    /// If it lies outside or is not aligned to 8, as in all calls below.
    #[inline]
    pub fn load_u64(&self, offset: usize) -> u64 {
        self.word(offset).load(Ordering::Relaxed)
    }

    /// Changes the word at `offset`.
    ///
    /// # Panics
    /// As [`OriginAccess::load_u64`].
    #[inline]
    pub fn store_u64(&self, offset: usize, value: u64) {
        let word = self.word(offset);
        self.announce(offset..offset + 8);
        word.store(value, Ordering::Relaxed);
    }

    /// Writes `bytes` from `offset` on.
    ///
    /// # Panics
    /// If they don't fit.
    #[inline]
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        self.announce(offset..offset + bytes.len());
        // SAFETY: inside the range (checked), which the origin keeps mapped. Others may use the same bytes meanwhile: the
        // copy is opaque to the compiler, so they see some of it.
        unsafe { racy::copy(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Reads the bytes from `offset` on.
    ///
    /// # Panics
    /// If `to` reaches beyond the range.
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        let from = self.at(offset, to.len());
        // SAFETY: inside the range (checked), which the origin keeps mapped; `to` is the caller's alone.
        unsafe { racy::copy(from, to.as_mut_ptr(), to.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::attach;
    use crate::mechanism::{Mechanism, OriginOptions};
    use crate::span::PageRange;

    fn access(mechanism: Mechanism) -> OriginAccess {
        let options = OriginOptions { background: false, ..OriginOptions::default() };
        OriginAccess::new(Arc::from(attach(mechanism, PageRange::allocate(8192).unwrap(), &options).unwrap()))
    }

    #[test]
    fn writes_are_read_back_and_a_view_shows_the_bytes_before() {
        for mechanism in [Mechanism::Memcpy, Mechanism::Barrier] {
            let access = access(mechanism);
            access.store_u64(4096, 7);
            let view = access.origin().cut().unwrap();
            access.write(4096, &8_u64.to_ne_bytes());
            let (mut now, mut then) = ([0; 8], [0; 8]);
            access.read(4096, &mut now);
            view.read(4096, &mut then).unwrap();
            assert_eq!((u64::from_ne_bytes(now), u64::from_ne_bytes(then), access.load_u64(4096)), (8, 7, 8));
        }
    }

    #[test]
    #[should_panic(expected = "outside")]
    fn nothing_is_written_beyond_the_range() {
        access(Mechanism::Memcpy).write(8190, &[1; 3]);
    }

    #[test]
    #[should_panic(expected = "aligned")]
    fn words_are_aligned() {
        access(Mechanism::Memcpy).load_u64(4);
    }
}
