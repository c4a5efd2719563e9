//! What went wrong with a file, where.

use std::fmt;
use std::io;

/// What was being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceOperation {
    /// Making a new file.
    Create,
    /// Opening a file.
    Open,
    /// Asking or changing a file's length.
    Length,
    /// Taking space for a file.
    Allocate,
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Writing so that it is durable at once.
    DurableWrite,
    /// Making a file's content durable.
    Flush,
    /// Giving a file another name.
    Rename,
    /// Giving a file a second name.
    Link,
    /// Removing a file.
    Remove,
    /// Making a directory's entries durable.
    SyncDirectory,
    /// Listing a directory.
    List,
    /// Taking memory for buffers.
    Buffers,
}

impl fmt::Display for DeviceOperation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Create => "creating",
            Self::Open => "opening",
            Self::Length => "sizing",
            Self::Allocate => "taking space for",
            Self::Read => "reading",
            Self::Write => "writing",
            Self::DurableWrite => "writing durably to",
            Self::Flush => "flushing",
            Self::Rename => "renaming",
            Self::Link => "linking",
            Self::Remove => "removing",
            Self::SyncDirectory => "syncing directory",
            Self::List => "listing directory",
            Self::Buffers => "taking memory for buffers of",
        })
    }
}

/// A failed operation on a file or directory. Cheap to keep and to pass on: the cause is a number or a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceError {
    /// What was being done.
    pub action: DeviceOperation,
    /// Path or name of the file.
    pub file: String,
    /// First byte and number of bytes concerned, if it was about bytes.
    pub place: Option<(u64, u64)>,
    /// Kind of failure.
    pub kind: io::ErrorKind,
    /// The system's error number, if it came from the system.
    pub errno: Option<i32>,
}

impl DeviceError {
    /// An error of the system.
    pub fn new(action: DeviceOperation, file: impl Into<String>, source: &io::Error) -> Self {
        Self { action, file: file.into(), place: None, kind: source.kind(), errno: source.raw_os_error() }
    }

    /// An error by number (see [`crate::errno`]).
    pub fn from_errno(action: DeviceOperation, file: impl Into<String>, errno: i32) -> Self {
        Self::new(action, file, &io::Error::from_raw_os_error(errno))
    }

    /// There was no memory for buffers.
    pub(crate) fn no_memory(file: &str) -> Self {
        Self::new(DeviceOperation::Buffers, file, &io::ErrorKind::OutOfMemory.into())
    }

    /// The same, about `len` bytes at `offset`.
    #[must_use]
    pub fn at(mut self, offset: u64, len: u64) -> Self {
        self.place = Some((offset, len));
        self
    }

    /// Whether the device is full (or a quota is).
    pub fn is_full(&self) -> bool {
        matches!(self.kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    /// Whether there is no such file.
    pub fn is_missing(&self) -> bool {
        self.kind == io::ErrorKind::NotFound
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.action, self.file)?;
        if let Some((offset, len)) = self.place {
            write!(out, ", {len} bytes at {offset},")?;
        }
        match self.errno {
            Some(errno) => write!(out, " failed: {}", io::Error::from_raw_os_error(errno)),
            None => write!(out, " failed: {}", self.kind),
        }
    }
}

impl std::error::Error for DeviceError {}
