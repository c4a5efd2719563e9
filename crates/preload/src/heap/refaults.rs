//! Pages that the program needs again after they had to make room, and the time that it waits for them.
//!
//! Relies on the file telling each read of what was written before. A heap that is much larger than its pool may be used in
//! an order that suits that (sorted runs, old data) or in one that doesn't: then the program waits for nearly every access, and
//! looks as if it hung. It goes on, at the speed of the disk, and one line says so.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How often it is looked.
pub const WINDOW: Duration = Duration::from_secs(10);
/// Share of a window that is worth telling, one part in that many.
const PART: u32 = 2;

/// What came back.
#[derive(Debug, Default)]
pub struct RefaultCounter {
    reads: AtomicU64,
    waited_ns: AtomicU64,
    told: AtomicBool,
}

/// What came back within a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefaultWindow {
    /// Reads.
    pub reads: u64,
    /// Time that they took together: of several threads, it may be more than the window.
    pub waited: Duration,
}

impl RefaultCounter {
    /// A page came back, after `waited`.
    pub fn note(&self, waited: Duration) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.waited_ns.fetch_add(waited.as_nanos() as u64, Ordering::Relaxed);
    }

    /// At the end of a window: what came back within it, if that is worth telling and was not told before.
    pub fn end_window(&self) -> Option<RefaultWindow> {
        let reads = self.reads.swap(0, Ordering::Relaxed);
        let waited = Duration::from_nanos(self.waited_ns.swap(0, Ordering::Relaxed));
        let is_much = waited >= WINDOW / PART;
        (is_much && !self.told.swap(true, Ordering::Relaxed)).then_some(RefaultWindow { reads, waited })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_mostly_waits_for_its_pages_is_told_once() {
        let refaults = RefaultCounter::default();
        (0..4).for_each(|_| refaults.note(Duration::from_secs(1)));
        assert_eq!(refaults.end_window(), None, "less than half of the time");
        (0..7).for_each(|_| refaults.note(Duration::from_secs(1)));
        assert_eq!(refaults.end_window(), Some(RefaultWindow { reads: 7, waited: Duration::from_secs(7) }));
        (0..9).for_each(|_| refaults.note(Duration::from_secs(1)));
        assert_eq!(refaults.end_window(), None, "it was told");
    }
}
