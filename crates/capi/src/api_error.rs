//! Why a call failed, and which status that is.
//!
//! Relies on the errors of `quire-snapshot` and `quire-pool` saying what to do about them.

use std::io::ErrorKind;

use quire_device::DeviceError;
use quire_mdc::{CheckpointError, RestoreError};
use quire_pool::PoolError;
use quire_snapshot::{MechanismError, ViewError};

use crate::status::quire_status;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// A pointer that must lead somewhere doesn't.
    #[error("`{argument}` is NULL")]
    Null {
        /// Which argument.
        argument: &'static str,
    },
    /// A pointer to a structure has an address that no such structure has.
    #[error("`{argument}` is not aligned: {address:#x}")]
    Unaligned {
        /// Which argument.
        argument: &'static str,
        /// Where it leads.
        address: usize,
    },
    /// A number that names nothing.
    #[error("`{argument}` is {value}, which is none: {advice}")]
    Unknown {
        /// Which argument or field.
        argument: &'static str,
        /// Its value.
        value: i64,
        /// What it may be.
        advice: &'static str,
    },
    /// No handle, or one no more.
    #[error("`{argument}` is {handle:#x}, which is none: it was released, or never was one, or is of another kind")]
    Stale {
        /// Which.
        argument: &'static str,
        /// The handle.
        handle: usize,
    },
    /// A release while another call uses the object.
    #[error("`{argument}` is in use by another call: wait until it has returned")]
    Busy {
        /// Which.
        argument: &'static str,
    },
    /// The table of handles is full.
    #[error("there are too many ranges, snapshots, pools and maps: release some")]
    Handles,
    /// A word that names no mechanism.
    #[error("no mechanism is called {0:?}: there are best, scoot, uffd, barrier, mmapcopy, fork and memcpy")]
    NoMechanism(String),
    /// A size that no memory has.
    #[error("`size` is {size}: it has to be at least 1 and at most {most}")]
    Size {
        /// The size asked for.
        size: usize,
        /// The largest there may be.
        most: usize,
    },
    /// A number that is beyond what there can be.
    #[error("`{argument}` is {value}: it has to be at least {least} and at most {most}")]
    Limit {
        /// Which argument or field.
        argument: &'static str,
        /// Its value.
        value: u64,
        /// The least it may be.
        least: u64,
        /// The most it may be.
        most: u64,
    },
    /// What another process made, of which this one is a forked child.
    #[error("`{argument}` was made by the process that this one was forked from: a child may not call with it")]
    Forked {
        /// Which argument.
        argument: &'static str,
    },
    /// A file that is an interface of the kernel.
    #[error("{0:?} is an interface of the kernel, not a file that keeps what is written: it can't be mapped")]
    Interface(String),
    /// Bytes outside a range or snapshot.
    #[error("{len} bytes at offset {offset} lie outside the {size} there are")]
    Outside {
        /// First byte.
        offset: usize,
        /// How many.
        len: usize,
        /// How many there are.
        size: usize,
    },
    /// `struct_size` is smaller than any version's.
    #[error("`struct_size` of `{argument}` is {size}: set it to sizeof(*{argument}) before the call")]
    StructSize {
        /// Which argument.
        argument: &'static str,
        /// What it says.
        size: usize,
    },
    /// A structure of a later version uses what this one doesn't know.
    #[error("`{argument}` sets fields that {version} does not know: a later libquire is needed")]
    Later {
        /// Which argument.
        argument: &'static str,
        /// Our version.
        version: &'static str,
    },
    /// A buffer lies inside memory that must not be read into.
    #[error(
        "the buffer lies within the {what}: read to a buffer of your own, and copy it from there (a range may have to be \
         prepared for that)"
    )]
    Overlap {
        /// What it lies in.
        what: &'static str,
    },
    /// Memory that the program offers can't be taken.
    #[error("{len} bytes at {base:#x} can't be adopted: {why}")]
    Memory {
        /// First address.
        base: usize,
        /// Bytes.
        len: usize,
        /// What is wrong with them.
        why: String,
    },
    /// A path that names no file.
    #[error("{0:?} names no file: its last part has to be a name, in UTF-8")]
    NoFile(String),
    /// A mount can't be told anything.
    #[error("{path:?} is no root of a mount of quire, or not yours: {cause}")]
    Mount {
        /// Where it is said to be.
        path: String,
        /// What the system says.
        cause: std::io::Error,
    },
    /// A pool of objects is full, or the system has no memory for it.
    #[error("there is no memory for {bytes} bytes: see the memory limit, RLIMIT_AS and vm.overcommit_memory")]
    NoMemory {
        /// How many were asked for.
        bytes: usize,
    },
    /// A checkpoint can't be written.
    #[error("checkpoint {file}: {source}")]
    Checkpoint {
        /// Its path.
        file: String,
        /// Why.
        source: CheckpointError,
    },
    /// A checkpoint can't be read.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// A checkpoint of which a read has failed.
    #[error("{file} was not read to its end: a read of it has failed before")]
    PartlyRead {
        /// Its path.
        file: String,
    },
    /// A checkpoint that is written is read, or the other way round.
    #[error("`{argument}` does not come from {wanted}")]
    Stage {
        /// Which.
        argument: &'static str,
        /// Where it should come from.
        wanted: &'static str,
    },
    /// A pool or a map says no.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A file says no.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A mechanism says no.
    #[error(transparent)]
    Refused(#[from] MechanismError),
    /// A snapshot says no.
    #[error(transparent)]
    View(#[from] ViewError),
}

impl ApiError {
    /// What the call returns.
    pub fn status(&self) -> quire_status {
        match self {
            Self::Refused(MechanismError::Unsupported { .. }) => quire_status::QUIRE_UNSUPPORTED,
            Self::Pool(PoolError::Unsupported { .. }) => quire_status::QUIRE_UNSUPPORTED,
            Self::Refused(MechanismError::System { .. }) | Self::Device(_) | Self::Pool(PoolError::Device(_)) => {
                quire_status::QUIRE_SYSTEM
            }
            Self::Refused(MechanismError::Memory(_))
            | Self::Pool(PoolError::Memory { .. } | PoolError::Thread { .. }) => quire_status::QUIRE_NO_MEMORY,
            Self::NoMemory { .. } => quire_status::QUIRE_NO_MEMORY,
            Self::Handles
            | Self::Refused(MechanismError::Exhausted { .. })
            | Self::Pool(PoolError::Exhausted { .. } | PoolError::LeaseLimit { .. }) => quire_status::QUIRE_EXHAUSTED,
            Self::View(
                ViewError::GivenUp { .. } | ViewError::HandedOver { .. } | ViewError::Taken { .. } | ViewError::Gone(_),
            )
            | Self::Pool(PoolError::Poisoned { .. }) => quire_status::QUIRE_LOST,
            Self::Mount { cause, .. } if cause.kind() == ErrorKind::PermissionDenied => quire_status::QUIRE_UNSUPPORTED,
            Self::Checkpoint { source, .. } => match source {
                CheckpointError::Busy => quire_status::QUIRE_EXHAUSTED,
                CheckpointError::System { .. } | CheckpointError::NotDurable { .. } | CheckpointError::Failed => {
                    quire_status::QUIRE_SYSTEM
                }
                _ => quire_status::QUIRE_INVALID,
            },
            Self::Restore(RestoreError::System { .. } | RestoreError::Missing { .. }) => quire_status::QUIRE_SYSTEM,
            Self::Restore(_) | Self::PartlyRead { .. } => quire_status::QUIRE_DAMAGED,
            // No process serves it any more.
            Self::Mount { cause, .. } if cause.kind() == ErrorKind::NotConnected => quire_status::QUIRE_SYSTEM,
            _ => quire_status::QUIRE_INVALID,
        }
    }
}

/// Whether `value` is at least `least` and at most `most`.
pub fn check_limit(argument: &'static str, value: u64, least: u64, most: u64) -> Result<(), ApiError> {
    if (least..=most).contains(&value) { Ok(()) } else { Err(ApiError::Limit { argument, value, least, most }) }
}

/// Whether `len` bytes at `offset` are among `size`.
pub fn check_bounds(offset: usize, len: usize, size: usize) -> Result<(), ApiError> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(ApiError::Outside { offset, len, size }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_snapshot::Mechanism;

    #[test]
    fn the_caller_s_faults_are_invalid_and_those_of_the_system_are_told_apart() {
        let mechanism = Mechanism::Uffd;
        let unsupported = MechanismError::Unsupported { mechanism, reason: "no".into(), suggestion: "Ask." };
        assert_eq!(ApiError::from(unsupported).status(), quire_status::QUIRE_UNSUPPORTED);
        let exhausted = MechanismError::Exhausted { mechanism, what: "64 views", suggestion: "drop some" };
        assert_eq!(ApiError::from(exhausted).status(), quire_status::QUIRE_EXHAUSTED);
        let source = std::io::Error::from_raw_os_error(12);
        let system = MechanismError::System { mechanism, call: "mmap", source, suggestion: "" };
        assert_eq!(ApiError::from(system).status(), quire_status::QUIRE_SYSTEM);
        assert_eq!(ApiError::from(MechanismError::Region { region_bytes: 1 }).status(), quire_status::QUIRE_INVALID);
        assert_eq!(ApiError::from(ViewError::Gone("killed".into())).status(), quire_status::QUIRE_LOST);
        assert_eq!(ApiError::from(ViewError::GivenUp { budget_bytes: 1 }).status(), quire_status::QUIRE_LOST);
        assert_eq!(ApiError::Null { argument: "range" }.status(), quire_status::QUIRE_INVALID);
        let pool = |error: PoolError| ApiError::from(error).status();
        assert_eq!(pool(PoolError::Unsupported { cause: "no".into() }), quire_status::QUIRE_UNSUPPORTED);
        assert_eq!(pool(PoolError::Config("no")), quire_status::QUIRE_INVALID);
        assert_eq!(pool(PoolError::Exhausted { budget_pages: 1, waited_ms: 2 }), quire_status::QUIRE_EXHAUSTED);
    }

    #[test]
    fn bounds_hold_up_to_the_last_byte_and_sums_may_overflow() {
        assert!(check_bounds(0, 4096, 4096).is_ok() && check_bounds(4096, 0, 4096).is_ok());
        for (offset, len) in [(0, 4097), (4096, 1), (4097, 0), (usize::MAX, 2), (1, usize::MAX)] {
            assert!(check_bounds(offset, len, 4096).is_err(), "{offset} {len}");
        }
    }
}
