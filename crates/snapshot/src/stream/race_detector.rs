//! Which thread copies or changes which page when, for loom's models: a copy and a change of the same page that nothing puts in
//! order fail the model.
//!
//! Relies on being told of every copy and change before it is made. Without loom it is nothing.

#[cfg(loom)]
use loom::cell::UnsafeCell;

/// What is known of the copies and changes of some pages.
pub(crate) struct RaceDetector {
    #[cfg(loom)]
    pages: Box<[UnsafeCell<()>]>,
}

// SAFETY: the cells hold nothing; loom checks every access to them for races.
#[cfg(loom)]
unsafe impl Sync for RaceDetector {}
// SAFETY: the cells hold nothing, so nothing goes to the other thread with them.
#[cfg(loom)]
unsafe impl Send for RaceDetector {}

#[cfg(not(loom))]
#[expect(clippy::unused_self, reason = "with loom it is used")]
impl RaceDetector {
    pub(crate) fn new(_pages: usize) -> Self {
        Self {}
    }

    /// The calling thread copies bytes of `page`.
    #[inline(always)]
    pub(crate) fn read(&self, _page: usize) {}

    /// The calling thread changes bytes of `page`.
    #[inline(always)]
    pub(crate) fn write(&self, _page: usize) {}
}

#[cfg(loom)]
impl RaceDetector {
    pub(crate) fn new(pages: usize) -> Self {
        Self { pages: (0..pages).map(|_| UnsafeCell::new(())).collect() }
    }

    /// The calling thread copies bytes of `page`.
    pub(crate) fn read(&self, page: usize) {
        self.pages[page].with(|_| ());
    }

    /// The calling thread changes bytes of `page`.
    pub(crate) fn write(&self, page: usize) {
        self.pages[page].with_mut(|_| ());
    }
}
