//! Why there is no heap on a file, and what to do about it.
//!
//! Relies on the errors of `quire-pool` and `quire-device` saying what happened.

use std::io;

use quire_device::DeviceError;
use quire_pool::PoolError;

use quire_units::Bytes;

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum HeapError {
    /// The setting has another form.
    #[error("QUIRE_HEAP is \"{0}\": write PATH:SIZE:POOL, such as /var/tmp:16G:512M")]
    Syntax(String),
    /// The page size is none.
    #[error("QUIRE_HEAP_PAGE is \"{0}\": take 4k, 16k or 64k")]
    Page(String),
    /// A size that can't work.
    #[error("QUIRE_HEAP: {what} is {}, which is too little: take at least {}", Bytes(*bytes), Bytes(*least))]
    Small {
        /// Of what.
        what: &'static str,
        /// What was asked for.
        bytes: u64,
        /// The least there may be.
        least: u64,
    },
    /// A file that is there already.
    #[error("{0} is there already, and is left alone: name a directory, or a file that is not there yet")]
    Exists(String),
    /// No file can be made there.
    #[error("{error}; name a directory on a disk that you may write to")]
    Place {
        /// What the system said.
        #[from]
        error: DeviceError,
    },
    /// The disk is too small.
    #[error(
        "{} are asked for, and the file system of {directory} has {} left: ask for less, or name another place",
        Bytes(*wanted), Bytes(*free)
    )]
    Space {
        /// Where.
        directory: String,
        /// Bytes of the heap.
        wanted: u64,
        /// Bytes there are.
        free: u64,
    },
    /// There can be no map.
    #[error("{0}{cure}", cure = cure(.0))]
    Pool(#[from] PoolError),
    /// The program doesn't use the library's functions.
    #[error(
        "the program has an allocator of its own (malloc is not the library's), so its heap can't be moved: use a build \
         that takes the C library's, or put this library first in LD_PRELOAD"
    )]
    OwnAllocator,
    /// The allocator can't use the map.
    #[error("the allocator takes no memory of {}", Bytes(*.0))]
    Arena(u64),
    /// The system refuses something that it should not.
    #[error("{what}: {error}")]
    System {
        /// What it was for.
        what: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

fn cure(error: &PoolError) -> &'static str {
    match error {
        PoolError::Unsupported { .. } => {
            "; a heap needs faults inside system calls too: be root (CAP_SYS_PTRACE), or may use /dev/userfaultfd, or set \
             vm.unprivileged_userfaultfd=1"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_says_what_to_do() {
        let space = HeapError::Space { directory: "/d".into(), wanted: 16 << 30, free: 1 << 30 };
        assert!(space.to_string().starts_with("16 GiB are asked for, and the file system of /d has 1 GiB left"));
        let pool = HeapError::from(PoolError::Unsupported { cause: "no".into() });
        assert!(pool.to_string().contains("vm.unprivileged_userfaultfd=1"), "{pool}");
        assert!(HeapError::Small { what: "the pool", bytes: 9, least: 1 << 20 }.to_string().contains("at least 1 MiB"));
    }
}
