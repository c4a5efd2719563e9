//! Why snapshots are refused.

use quire_sys::mem::MemError;

/// Why a snapshot could not be made or changed.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Another snapshot is still being read.
    #[error("a snapshot is still open: wait until it is saved, or cancel it")]
    Busy,
    /// The system refused memory.
    #[error(transparent)]
    Memory(#[from] MemError),
    /// Changes are not tracked, so there is no snapshot of them.
    #[error("which pages changed is not known")]
    Untracked,
    /// A page number beyond the memory.
    #[error("page {page} lies beyond the {pages} pages of this memory")]
    Page {
        /// The page asked for.
        page: u64,
        /// Pages that exist.
        pages: u64,
    },
}
