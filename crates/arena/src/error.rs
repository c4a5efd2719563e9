//! What can go wrong in an arena.

use quire_snapshot::SnapshotError;
use quire_sys::mem::MemError;

use crate::handle::Handle;

/// Why an arena refused.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// The arena has reached its size, or the system has no more memory.
    #[error("out of memory: {wanted_bytes} bytes wanted, {committed_bytes} of at most {max_bytes} in use{refusal}")]
    OutOfMemory {
        /// Bytes asked for.
        wanted_bytes: u64,
        /// Bytes the arena spans.
        committed_bytes: u64,
        /// Bytes the arena may span.
        max_bytes: u64,
        /// What the system has said, if it is the one that has no more.
        refusal: String,
    },
    /// The handle names no object of that size: a bug, or damaged data.
    #[error("handle {handle:?} with {len} bytes at {offset} names nothing (damaged data?)")]
    BadHandle {
        /// The handle used.
        handle: Handle,
        /// Offset into the object.
        offset: usize,
        /// Bytes wanted.
        len: usize,
    },
    /// The allocator's own data contradicts itself.
    #[error("allocator data of page {page} is damaged: {what}")]
    Damaged {
        /// The page concerned.
        page: u32,
        /// What is wrong.
        what: &'static str,
    },
    /// The superblock isn't one, or of another version.
    #[error("not an arena this program can read: {what}")]
    BadSuperblock {
        /// What is wrong.
        what: String,
    },
    /// The system refused memory.
    #[error(transparent)]
    System(#[from] MemError),
    /// The snapshot could not be made.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
}
