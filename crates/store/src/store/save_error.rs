//! Why a save failed, and what that means for what is on the disk.
//!
//! Relies on `quire-checkpoint` telling whether a file that it gave up is known not to be there.

use quire_arena::ArenaError;
use quire_checkpoint::DumpError;

use crate::error::{OpenError, StoreError};

/// Why a save failed or did not start.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// Another save is still running, or ending after it was cancelled.
    #[error("a save is in progress")]
    Busy,
    /// What is mapped from an image has not been verified yet.
    #[error("the image that the data comes from is still being verified; the data can be saved when that is done")]
    Unverified,
    /// The image that the data comes from proved damaged, or could not be read, so nothing may be saved over it.
    #[error("the data comes from an image that can't be verified, so it is not saved: {0}")]
    NotVerifiable(#[source] Box<OpenError>),
    /// The memory could not be cut.
    #[error("cannot fix the data as it is now: {0}")]
    Cut(#[source] ArenaError),
    /// The data is damaged where it says what it holds.
    #[error("cannot note the place in the log: {0}")]
    Root(#[source] StoreError),
    /// The image could not be written.
    #[error(transparent)]
    Dump(#[from] DumpError),
    /// The system refused a thread.
    #[error("cannot start the thread that saves: {0}")]
    Thread(#[source] std::io::Error),
    /// The thread that saves ended by a fault in this program.
    #[error("the thread that saves has crashed; please report this")]
    Crashed,
}

impl SaveError {
    /// Whether nothing failed: the save was told to stop.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Dump(DumpError::Cancelled { .. }))
    }

    /// Whether no delta could be saved, since what it would be over is not on the disk any more. The next save is a full image.
    pub fn needs_full_image(&self) -> bool {
        matches!(self, Self::Dump(DumpError::BaseChanged { .. }))
    }

    /// Whether the image and the deltas that were on the disk before are known to be there.
    pub fn leaves_disk_as_it_was(&self) -> bool {
        let is_unknown = matches!(self, Self::Dump(DumpError::NotDurable { .. } | DumpError::BaseChanged { .. }));
        !is_unknown && !matches!(self, Self::Crashed)
    }
}
