//! What can go wrong with the cache, and what to do about it.
//!
//! Relies on errors of devices being cheap to keep: one failure is reported to every task that it concerns.

use std::fmt;

use quire_device::DeviceError;

use crate::ids::VolumeId;
use crate::recover::RecoverError;

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
    /// There is no log, or it can't be read.
    #[error("{log}: {cause}")]
    Recover {
        /// The fast device.
        log: String,
        /// Why.
        cause: RecoverError,
    },
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
    /// The log is damaged, or none.
    #[error(
        "{log}: {cause}. Nothing was changed. Bring back a sound copy of it; or accept that what is damaged is lost \
         (`quire mount --accept-damaged-log`)"
    )]
    Damaged {
        /// The fast device.
        log: String,
        /// What is wrong with it.
        cause: RecoverError,
    },
    /// The fast device holds something else.
    #[error(
        "{log}: {cause}. Nothing was changed. Give another place; or remove the file (or erase the device with `wipefs -a` \
         and `blkdiscard`) if nothing in it is wanted"
    )]
    Foreign {
        /// The fast device.
        log: String,
        /// What is wrong with it.
        cause: RecoverError,
    },
    /// The witness is damaged.
    #[error(
        "{witness}, which says which log belongs here, is damaged. Nothing was changed. Bring back a sound copy of it; or \
         accept the log {log} as the right one (`quire mount --accept-damaged-log`)"
    )]
    WitnessDamaged {
        /// The witness's file.
        witness: String,
        /// The fast device.
        log: String,
    },
    /// The volumes belong to another log.
    #[error(
        "{witness} says that {wanted:016x} is the log that belongs here, but {log} holds {found:016x}: give the right one"
    )]
    WrongLog {
        /// The witness's file.
        witness: String,
        /// The log that it names.
        wanted: u64,
        /// The fast device.
        log: String,
        /// The log there.
        found: u64,
    },
    /// The volumes need a log, and there is none.
    #[error(
        "{witness} says that a log belongs here that may hold acknowledged writes, but {log} holds none: give the right one. \
         If it is gone for good, restore the directory from a backup of a time when it needed no log (`--drain`), or remove \
         {witness} and go on without those writes"
    )]
    LogMissing {
        /// The witness's file.
        witness: String,
        /// The fast device.
        log: String,
    },
    /// The log holds writes, and the volumes know of none.
    #[error(
        "{log} holds writes for a directory that knows it, but {witness} is empty: this is another directory, or it was \
         restored without its hidden folder. Give the right log or a new one"
    )]
    Unclaimed {
        /// The witness's file.
        witness: String,
        /// The fast device.
        log: String,
    },
    /// The log holds nothing, and was that of other volumes.
    #[error(
        "{log} is the log of a directory that knows it, and {witness} is empty: this is another directory, or its file system is \
         not mounted there. Mount it; or give a new log, or remove {log}, which holds nothing, if this directory is to have it"
    )]
    OtherVolumes {
        /// The witness's file.
        witness: String,
        /// The fast device.
        log: String,
    },
    /// Log and volumes are of different times.
    #[error(
        "{log} and the directory are of different times: the log is of epoch {found}, {witness} of epoch {wanted}, so one of \
         them was restored from a backup. Bring back the other one of the same time. To go on with the directory as it is, \
         remove {log} and {witness}: what only the log held is lost then"
    )]
    Epochs {
        /// The witness's file.
        witness: String,
        /// Its epoch's count.
        wanted: u32,
        /// The fast device.
        log: String,
        /// Its epoch's count.
        found: u32,
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
