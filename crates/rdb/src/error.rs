//! What is wrong with RDB bytes, and where.

use std::io;

/// What reading gives.
pub type Result<T, E = RdbError> = std::result::Result<T, E>;

/// Why RDB bytes can't be read.
#[derive(Debug, thiserror::Error)]
#[error("at byte {offset}: {cause}")]
pub struct RdbError {
    /// How many bytes had been read before.
    pub offset: u64,
    /// What is wrong there.
    pub cause: Cause,
}

/// What is wrong.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The source of the bytes failed.
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    /// It ends before what it says is there.
    #[error("ends too early: {wanted} more bytes should follow")]
    Truncated {
        /// How many bytes are missing.
        wanted: u64,
    },
    /// It doesn't begin as an RDB file.
    #[error("not an RDB file")]
    Foreign,
    /// A version that this program doesn't read.
    #[error("RDB version {version}; versions 1 to {newest} are read")]
    Version {
        /// The version that it says to have.
        version: u32,
        /// The newest that is read.
        newest: u32,
    },
    /// The checksum at its end is not that of what was read.
    #[error("wrong checksum: {found:016x} is stored, {computed:016x} is that of the content")]
    Checksum {
        /// As it is stored.
        found: u64,
        /// As it is computed.
        computed: u64,
    },
    /// A type of values or of entries that is not known, or not supported.
    #[error("{what} {number} is not supported")]
    Unsupported {
        /// What it is a number of.
        what: &'static str,
        /// The number.
        number: u64,
    },
    /// It contradicts itself.
    #[error("malformed: {0}")]
    Malformed(&'static str),
    /// A length beyond every bound.
    #[error("a string of {len} bytes is longer than {max} bytes")]
    TooLong {
        /// The length that it claims.
        len: u64,
        /// The longest that is read.
        max: u64,
    },
    /// The system has no memory for it.
    #[error("no memory for {len} bytes")]
    NoMemory {
        /// How many bytes were asked for.
        len: u64,
    },
}
