//! Why an operation on the store failed. The server words these as Redis does.

use quire_arena::ArenaError;
use quire_checkpoint::ImageError;
use quire_device::DeviceError;

/// What operations on the store return.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// What went wrong, without the wording a client sees.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The key holds a value of another type.
    #[error("the key holds a value of another type")]
    WrongType,
    /// The string is not a 64-bit integer.
    #[error("the value is not an integer or out of range")]
    NotInteger,
    /// The string is not a floating-point number.
    #[error("the value is not a valid float")]
    NotFloat,
    /// The sum leaves the range of a 64-bit integer.
    #[error("the increment or decrement would overflow")]
    Overflow,
    /// The sum is not a finite number.
    #[error("the increment would produce NaN or infinity")]
    NanOrInfinity,
    /// The field's value is not a 64-bit integer.
    #[error("the hash value is not an integer")]
    HashValueNotInteger,
    /// The field's value is not a floating-point number.
    #[error("the hash value is not a float")]
    HashValueNotFloat,
    /// A string would exceed the largest allowed length.
    #[error("the string of {len} bytes exceeds the largest allowed length")]
    TooLarge {
        /// The length that was asked for.
        len: u64,
    },
    /// An offset lies outside the range that the operation allows.
    #[error("offset {offset} is out of range")]
    OutOfRange {
        /// The offset that was asked for.
        offset: u64,
    },
    /// The arena has no room left, or the system has no memory for it.
    #[error("{detail}")]
    OutOfMemory {
        /// What the arena says about it.
        detail: String,
        /// It is the system that has refused memory.
        is_refused: bool,
    },
    /// The key that the operation needs does not exist.
    #[error("no such key")]
    NoSuchKey,
    /// The database number is out of range.
    #[error("database {db} does not exist")]
    NoSuchDb {
        /// The number that was asked for.
        db: u8,
    },
    /// The arena's contents contradict themselves: a damaged or hostile image.
    #[error("the data is damaged: {what}")]
    Damaged {
        /// What was found.
        what: String,
    },
    /// The data has a form that this program does not know, but a newer version may.
    #[error("the data was written by a newer version of this program: {what}")]
    Newer {
        /// What was found.
        what: String,
    },
    /// The arena refused for a reason of the system's.
    #[error("memory: {detail}")]
    System {
        /// What the arena says about it.
        detail: String,
    },
    /// The random seed could not be had from the system.
    #[error("no random seed: {detail}")]
    NoSeed {
        /// What the system says about it.
        detail: String,
    },
}

impl StoreError {
    /// Whether memory, the data, the system or this version is at fault, rather than the command: another time or elsewhere the same
    /// command on the same data may succeed.
    pub fn is_fault(&self) -> bool {
        match self {
            Self::OutOfMemory { .. }
            | Self::Damaged { .. }
            | Self::Newer { .. }
            | Self::System { .. }
            | Self::NoSeed { .. } => true,
            Self::WrongType
            | Self::NotInteger
            | Self::NotFloat
            | Self::Overflow
            | Self::NanOrInfinity
            | Self::HashValueNotInteger
            | Self::HashValueNotFloat
            | Self::TooLarge { .. }
            | Self::OutOfRange { .. }
            | Self::NoSuchKey
            | Self::NoSuchDb { .. } => false,
        }
    }

    /// A [`StoreError::Damaged`] that says what was found.
    pub(crate) fn damaged(what: impl Into<String>) -> StoreError {
        StoreError::Damaged { what: what.into() }
    }

    /// A [`StoreError::Newer`] that says what was found.
    pub(crate) fn newer(what: impl Into<String>) -> StoreError {
        StoreError::Newer { what: what.into() }
    }
}

/// Why there is no store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The image can't be used.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The directory can't.
    #[error(transparent)]
    Directory(#[from] DeviceError),
    /// The image is whole, but what it holds isn't a keyspace.
    #[error("{file} holds no data of this program: {source}")]
    Content {
        /// Path of the image.
        file: String,
        /// What was found.
        source: StoreError,
    },
    /// No memory for an empty store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl OpenError {
    /// Whether the bytes of the image are at fault, rather than the disk or this machine.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Image(error) => error.is_damage(),
            Self::Content { source, .. } => matches!(source, StoreError::Damaged { .. }),
            Self::Directory(_) | Self::Store(_) => false,
        }
    }

    /// Whether the file is no image, or one that only another version of this program can read.
    pub fn is_foreign(&self) -> bool {
        match self {
            Self::Image(error) => {
                matches!(
                    error,
                    ImageError::Foreign { .. } | ImageError::Version { .. } | ImageError::UnknownCodec { .. }
                )
            }
            Self::Content { source, .. } => matches!(source, StoreError::Newer { .. }),
            Self::Directory(_) | Self::Store(_) => false,
        }
    }
}

impl From<ArenaError> for StoreError {
    fn from(error: ArenaError) -> StoreError {
        match error {
            ArenaError::OutOfMemory { ref refusal, .. } => {
                StoreError::OutOfMemory { is_refused: !refusal.is_empty(), detail: error.to_string() }
            }
            ArenaError::System(..) | ArenaError::Snapshot(..) => StoreError::System { detail: error.to_string() },
            other => StoreError::damaged(other.to_string()),
        }
    }
}
