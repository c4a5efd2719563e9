//! Active defragmentation: what lives in slabs that are mostly empty moves together. Relies on nothing yet.

use crate::error::Result;
use crate::keyspace::Keyspace;

/// What one step of the defragmentation did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefragSummary {
    /// Entries and pages looked at.
    pub examined: usize,
    /// Objects moved.
    pub moved: usize,
    /// Objects that stayed, since their slabs are well filled.
    pub stayed: usize,
    /// Pages given back to the system.
    pub released_pages: usize,
    /// The walk through all databases, and then through the pages, is at its end: the next step begins anew.
    pub is_cycle_done: bool,
}

impl Keyspace {
    /// Looks at about `budget` entries or pages, and moves objects out of slabs that are mostly empty.
    ///
    /// # Errors
    /// [`StoreError::Damaged`](crate::StoreError::Damaged).
    pub fn defrag_step(&mut self, _: usize) -> Result<DefragSummary> {
        Ok(DefragSummary::default())
    }
}
