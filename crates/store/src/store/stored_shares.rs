//! What part of their pages' bytes images and deltas take on the disk, as the last ones did.
//!
//! Relies on what a save says that compression has saved. An estimate: a save waits by it for space that is being freed, and nothing is
//! refused for it.

use quire_checkpoint::DumpSummary;
use quire_snapshot::PAGE_SIZE;

/// What compression left the last time: what the next save probably needs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StoredShares {
    image: Option<f64>,
    delta: Option<f64>,
}

impl StoredShares {
    /// A save was whole.
    pub(crate) fn note(&mut self, image: &DumpSummary) {
        let pages_bytes = (image.pages * PAGE_SIZE as u64) as f64;
        let share = (pages_bytes > 0.0).then(|| 1.0 - image.saved_bytes as f64 / pages_bytes);
        *(if image.is_delta { &mut self.delta } else { &mut self.image }) = share;
    }

    /// The share to expect; all, where none is known.
    pub(crate) fn expected(self, is_delta: bool) -> f64 {
        if is_delta { self.delta } else { self.image }.unwrap_or(1.0)
    }
}
