//! How much of what was remapped was written afterwards, for one buffer or one range of a file.
//!
//! Relies on looks that are few: what was seen long ago counts less and less.

use std::sync::atomic::{AtomicU32, Ordering};

/// Pages that were looked at, above which both counts are halved.
const MOST_SEEN: u32 = 4096;

/// Pages that were looked at, and those of them that were written.
#[derive(Debug, Default)]
pub struct WriteHistory {
    seen: AtomicU32,
    written: AtomicU32,
}

impl WriteHistory {
    /// Nothing was seen.
    pub const fn new() -> Self {
        Self { seen: AtomicU32::new(0), written: AtomicU32::new(0) }
    }

    /// Of `seen` pages `written` were written.
    pub fn note(&self, seen: u32, written: u32) {
        let halve = u32::from(self.seen.load(Ordering::Relaxed) > MOST_SEEN);
        self.seen.store((self.seen.load(Ordering::Relaxed) >> halve) + seen, Ordering::Relaxed);
        self.written.store((self.written.load(Ordering::Relaxed) >> halve) + written, Ordering::Relaxed);
    }

    /// The share of pages that were written, in thousandths; `None` if nothing was seen.
    pub fn permille(&self) -> Option<u32> {
        let seen = u64::from(self.seen.load(Ordering::Relaxed));
        let written = u64::from(self.written.load(Ordering::Relaxed));
        (seen > 0).then(|| (written * 1000 / seen).min(1000) as u32)
    }

    /// Forgets everything.
    pub fn clear(&self) {
        self.seen.store(0, Ordering::Relaxed);
        self.written.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_follows_what_was_seen_lately() {
        let history = WriteHistory::new();
        assert_eq!(history.permille(), None);
        history.note(16, 8);
        assert_eq!(history.permille(), Some(500));
        for _ in 0..2000 {
            history.note(16, 16);
        }
        assert!(history.permille().unwrap() > 980);
        history.clear();
        assert_eq!(history.permille(), None);
    }
}
