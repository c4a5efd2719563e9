//! What can go wrong with a mount, and which error number a program gets.
//!
//! Relies on errors of devices being told once in the log, by the cache; here they only become numbers.

use std::io;
use std::path::PathBuf;

use fuser::Errno;
use quire_device::{DeviceError, errno};
use quire_writecache::CacheError;

/// Why there is no mount.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The directory can't be used.
    #[error("cannot use the directory {path}: {cause}")]
    Backing {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The owner of the directory may have put a link there to some other file, which is not to be written.
    #[error("{path} is a symbolic link, which a mount does not follow: remove it")]
    Link {
        /// Which.
        path: PathBuf,
    },
    /// Another process uses it.
    #[error("{path} is in use by another mount: unmount that first (`quire unmount`)")]
    Busy {
        /// The directory or the log.
        path: PathBuf,
    },
    /// The fast device can't be used.
    #[error("cannot use the log {path}: {cause}")]
    Log {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The cache can't be opened.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The table of volumes is damaged.
    #[error("the table of volumes is damaged at byte {offset}: {file}; restore it, or lose what only the log holds")]
    VolumeTable {
        /// The table's file.
        file: String,
        /// Where.
        offset: u64,
    },
    /// The log names a file that can't be looked for.
    #[error(
        "the log holds bytes of a file (inode {ino}) that can't be opened: {cause}; mount as root, or as the user \
         who mounted before"
    )]
    Unreachable {
        /// Its inode number.
        ino: u64,
        /// Why.
        cause: io::Error,
    },
    /// Bytes were lost that no program waited for, and no program has been told.
    #[error(
        "bytes of {} files could not be written to the directory, and no program was told: {}; the next mount tells the \
         program that flushes them",
        files.len(),
        named(files)
    )]
    Untold {
        /// The files, by where they are as far as that is known.
        files: Vec<String>,
    },
    /// The system refuses to mount.
    #[error("cannot mount at {path}: {cause}; `quire doctor` says what FUSE needs here")]
    Mount {
        /// Where.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// A thread can't be started.
    #[error("starting the mount's threads: {0}")]
    Threads(io::Error),
}

/// Most files that a message names.
const MOST_NAMED: usize = 10;

fn named(files: &[String]) -> String {
    let more = if files.len() > MOST_NAMED { ", …" } else { "" };
    files[..files.len().min(MOST_NAMED)].join(", ") + more
}

/// What an operation for a program comes to.
pub type FuseResult<T> = Result<T, Errno>;

/// The number by which a program learns of it.
pub fn errno_of(error: &CacheError) -> Errno {
    let full = |cause: &DeviceError| match cause.errno {
        _ if cause.is_full() => Errno::ENOSPC,
        Some(errno::EMFILE) => Errno::EMFILE,
        Some(errno::ENFILE) => Errno::ENFILE,
        _ if cause.kind == io::ErrorKind::FileTooLarge => Errno::EFBIG,
        _ => Errno::EIO,
    };
    match error {
        CacheError::SlowFull { cause, .. } | CacheError::Slow { cause, .. } => full(cause),
        CacheError::Beyond { .. } => Errno::EFBIG,
        _ => Errno::EIO,
    }
}

/// Says in the log what failed for whom, and returns the number for the program.
pub fn log_failure(error: &CacheError, doing: &str, ino: u64) -> Errno {
    tracing::warn!(%error, inode = ino, "{doing} failed");
    errno_of(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_device::DeviceOperation;
    use quire_writecache::VolumeId;

    #[test]
    fn a_full_slow_device_is_told_apart_from_a_broken_one() {
        let slow = |errno| CacheError::SlowFull {
            volume: VolumeId(3),
            cause: DeviceError::from_errno(DeviceOperation::Write, "file", errno),
        };
        assert_eq!(errno_of(&slow(errno::ENOSPC)), Errno::ENOSPC);
        assert_eq!(errno_of(&slow(errno::EIO)), Errno::EIO);
        assert_eq!(errno_of(&slow(Errno::EFBIG.code())), Errno::EFBIG);
        assert_eq!(errno_of(&CacheError::Closed), Errno::EIO);
    }
}
