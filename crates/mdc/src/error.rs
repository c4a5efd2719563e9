//! Why a checkpoint or a restore failed.

use std::fmt;
use std::io;

/// Why a checkpoint failed. The file that was there before is untouched, but for [`CheckpointError::NotDurable`].
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The system refused something.
    #[error("{call} failed: {source}")]
    System {
        /// What was asked for.
        call: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Another process has the temporary file.
    #[error("another process is writing a checkpoint of this name: wait until it ends")]
    Busy,
    /// Memory was to be given back by a process with several threads.
    #[error(
        "this process has {count} threads: only a forked child with one thread can give its memory back, since another thread's \
         writes could be lost; leave that option out, or fork"
    )]
    Threads {
        /// How many.
        count: u64,
    },
    /// An object doesn't lie in memory.
    #[error("{len} bytes at {address:#x} are not in the memory of this process")]
    NotMapped {
        /// Where it should be.
        address: usize,
        /// How long it should be.
        len: usize,
    },
    /// An object is longer than can be.
    #[error("an object of {len} bytes is longer than memory can hold")]
    TooLong {
        /// Its bytes.
        len: usize,
    },
    /// An earlier call failed.
    #[error("an earlier call of this checkpoint failed: it can't be completed")]
    Failed,
    /// The file is complete and has its name, but a power cut may bring the old one back.
    #[error("the checkpoint is written, but its directory could not be flushed: {source}")]
    NotDurable {
        /// What the system said.
        source: io::Error,
    },
}

impl CheckpointError {
    pub(crate) fn system(call: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { call, source }
    }
}

/// A part of a checkpoint file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilePart {
    /// The first page.
    Header,
    /// A chunk of the log.
    Log(u64),
    /// A unit of the dump.
    Unit(u64),
    /// Areas and units.
    Table,
    /// The last page.
    Footer,
}

impl fmt::Display for FilePart {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => out.write_str("header"),
            Self::Log(chunk) => write!(out, "log, chunk {chunk}"),
            Self::Unit(unit) => write!(out, "dump, unit {unit}"),
            Self::Table => out.write_str("table"),
            Self::Footer => out.write_str("footer"),
        }
    }
}

/// Why a checkpoint can't be read.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// There is no such file.
    #[error("there is no checkpoint {file}")]
    Missing {
        /// Its path.
        file: String,
    },
    /// The file is something else.
    #[error("{file} is not a checkpoint of mdc: it begins with {found:02x?}")]
    Foreign {
        /// Its path.
        file: String,
        /// Its first bytes.
        found: [u8; 8],
    },
    /// The file was written in another version of the format.
    #[error("{file} is a checkpoint of format version {found}, this library reads version {known}")]
    Version {
        /// Its path.
        file: String,
        /// Version in the file.
        found: u32,
        /// Version of this library.
        known: u32,
    },
    /// The file isn't what was written.
    #[error("{file} is damaged in its {part}: {what}")]
    Damaged {
        /// Its path.
        file: String,
        /// Where.
        part: FilePart,
        /// What doesn't fit.
        what: String,
    },
    /// An object lies in memory that was not dumped: the program gave the memory back before the checkpoint ended.
    #[error(
        "{file} has no contents of the {len} bytes that were at {address:#x}: the program unmapped them between writing the object \
         and ending the checkpoint"
    )]
    Unmapped {
        /// Its path.
        file: String,
        /// Where they were.
        address: u64,
        /// How many.
        len: u64,
    },
    /// The system refused something.
    #[error("{call} of {file} failed: {source}")]
    System {
        /// Its path.
        file: String,
        /// What was asked for.
        call: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl RestoreError {
    /// Whether the bytes of the file are at fault, rather than this machine or the choice of the file.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Unmapped { .. })
    }
}
