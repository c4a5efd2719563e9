//! What can go wrong with the cache, and what to do about it.
//!
//! Relies on errors of devices being cheap to keep: one failure is reported to everybody whom it concerns.

use std::fmt;

use quire_device::DeviceError;

use crate::cache::ids::VolumeId;
use crate::cache::recover::RecoverError;

/// Blocks of a volume that are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostRange {
    /// The volume.
    pub volume: VolumeId,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl fmt::Display for LostRange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} bytes {} to {}", self.volume, self.offset, self.offset + self.len)
    }
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CacheError {
    /// The log can't be read.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// The fast device is too small, or the size makes no sense.
    #[error("a write cache of {bytes} bytes is too small: it needs at least {least_bytes}")]
    TooSmall {
        /// What was asked for.
        bytes: u64,
        /// What is needed.
        least_bytes: u64,
    },
    /// There is a cache already where a new one was to be made.
    #[error("{device} holds a write cache already: open it, or erase the file if what is in it is not wanted")]
    Exists {
        /// The fast device.
        device: String,
    },
    /// A volume is not attached.
    #[error("{0} is not attached to the cache")]
    Unattached(VolumeId),
    /// A volume is attached already.
    #[error("{0} is attached already")]
    Attached(VolumeId),
    /// A write beyond the end of a volume that can't grow.
    #[error("{volume} ends at {len}: can't write up to {end}")]
    Beyond {
        /// The volume.
        volume: VolumeId,
        /// Its bytes.
        len: u64,
        /// Where the write would end.
        end: u64,
    },
    /// The fast device failed, and parts of what it held are nowhere else.
    #[error(
        "the fast device failed ({cause}); {lost_bytes} bytes of {volume} that were in it only are lost, the first at \
         {first_offset}: restore them from elsewhere, then accept the loss"
    )]
    Lost {
        /// Why.
        cause: DeviceError,
        /// Whose bytes.
        volume: VolumeId,
        /// How many of this volume.
        lost_bytes: u64,
        /// The first of them.
        first_offset: u64,
    },
    /// The fast device failed, and what it held can't be written anew without a note that its log is abandoned.
    #[error(
        "the fast device of the write cache failed: {0}; close the cache, make a new one on another device, or give the \
         cache a witness so that it can go on without"
    )]
    Fast(DeviceError),
    /// The volumes belong to another log.
    #[error(
        "these volumes belong to the write cache {witness:016x}, but the fast device holds {found:016x}: give the right one"
    )]
    WrongLog {
        /// What the witness says.
        witness: u64,
        /// What the fast device says.
        found: u64,
    },
    /// The log was given up when its device failed; the slow devices are newer.
    #[error("the fast device holds a log that was abandoned when the device failed: erase it and make a new cache")]
    Abandoned,
    /// The witness can't be read or written.
    #[error("the witness of the write cache failed: {0}")]
    Witness(DeviceError),
    /// The slow device failed and there is no room in the log.
    #[error("{volume} failed ({cause}) and the cache is full: nothing more can be written to it until it is replaced")]
    SlowFull {
        /// The volume.
        volume: VolumeId,
        /// Why it failed.
        cause: DeviceError,
    },
    /// A slow device failed while something had to be done on it at once.
    #[error("{volume} failed: {cause}")]
    Slow {
        /// The volume.
        volume: VolumeId,
        /// Why.
        cause: DeviceError,
    },
    /// A read failed.
    #[error("reading {volume}: {cause}")]
    Read {
        /// The volume.
        volume: VolumeId,
        /// Why.
        cause: DeviceError,
    },
    /// The cache has been closed.
    #[error("the write cache is closed")]
    Closed,
    /// The system starts no threads.
    #[error("starting the write cache's threads: {0}")]
    Threads(std::io::ErrorKind),
}
