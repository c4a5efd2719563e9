//! What tells one save from all others.

use std::fmt;

/// Whose data a save is of, and which save it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageIdentity {
    /// The number of the data that it is of, 0 if that is not known.
    pub history: u64,
    /// Counts the images and deltas of one history.
    pub epoch: u64,
    /// Checksum of the footer of the newest link, which covers all of it.
    pub checksum: u64,
}

impl fmt::Display for ImageIdentity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "save {} ({:016x}) of the data {:016x}", self.epoch, self.checksum, self.history)
    }
}
