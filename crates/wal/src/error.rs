//! What is wrong with a log, where, and what to do about it.

use std::path::Path;

use quire_device::DeviceError;

/// A body that doesn't read as commands, though its checksum is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its commands can't be read, at byte {at} of the body")]
pub struct MalformedRecord {
    /// First byte that makes no sense.
    pub at: usize,
}

/// Why a log can't be read, begun or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The device failed, or was full as the log began.
    #[error("the log: {0}")]
    Device(#[from] DeviceError),
    /// The log has ended on a full disk, before there was room for its last records.
    #[error("the log ended without the records after {durable}, for which there was no room: {cause}")]
    NoRoom {
        /// The last record that is in the log, durably.
        durable: u64,
        /// Why the next segment couldn't be made.
        cause: DeviceError,
    },
    /// A segment was written in another version of the format.
    #[error(
        "{file} is a log segment of format version {found}, this program reads versions {oldest} to {newest}; start the \
         version that wrote it, save there, and come back"
    )]
    Version {
        /// Path of the segment.
        file: String,
        /// Version in the file.
        found: u32,
        /// Oldest version that this program reads.
        oldest: u32,
        /// Version that it writes.
        newest: u32,
    },
    /// A header says nothing that a header says.
    #[error("{file} is damaged at byte 0: its header is not what was written. {}", advice(file))]
    Header {
        /// Path of the file.
        file: String,
    },
    /// A header is gone.
    #[error(
        "{file} is damaged at byte 0: there are zeros where its header should be, and it is not known what the file held. {}",
        advice(file)
    )]
    NoHeader {
        /// Path of the file.
        file: String,
    },
    /// A segment has lost its end.
    #[error("{file} is damaged at byte {bytes}: it ends there, and its header says {expected} bytes. {}", advice(file))]
    Short {
        /// Path of the segment.
        file: String,
        /// Its length.
        bytes: u64,
        /// The length that it was given.
        expected: u64,
    },
    /// The same segment is there twice.
    #[error("{file} is damaged at byte 0: its header is that of {original}, which is there too. {}", advice(file))]
    Copy {
        /// Path of the file.
        file: String,
        /// Name of the segment whose header it has.
        original: String,
    },
    /// The log belongs to another dataset than the image.
    #[error(
        "{file} is the log of another dataset ({found:016x}) than the image ({expected:016x}); put the image that belongs to \
         it in its place, or move the files quire-log-* away if their writes are not wanted"
    )]
    OtherDataset {
        /// Path of the segment.
        file: String,
        /// The dataset that it belongs to.
        found: u64,
        /// The image's.
        expected: u64,
    },
    /// The log that is there goes on further than the data to be logged.
    #[error(
        "{file} begins with record {found}, but the next one to be logged is number {next}: it is another history of the same \
         data; move the files quire-log-* away if their writes are not wanted"
    )]
    OtherHistory {
        /// Path of the last segment.
        file: String,
        /// Its first record.
        found: u64,
        /// The next record.
        next: u64,
    },
    /// Records are missing between the image and the log, or within the log.
    #[error(
        "{file} begins with record {found}, but record {expected} is wanted (the records before it are in the image, or \
         in {before}). Put the missing segment or a later image in place if there is one. {}",
        advice(file)
    )]
    Gap {
        /// Path of the segment behind the gap.
        file: String,
        /// Its first record.
        found: u64,
        /// The first record that is missing.
        expected: u64,
        /// Where the records before the gap end.
        before: String,
    },
    /// The image is older than the one that the log builds on.
    #[error(
        "{file} builds on image number {found}, but the image is number {image}; put the later image back in its place, or \
         move the files quire-log-* away to go on without their writes"
    )]
    OldImage {
        /// Path of the segment.
        file: String,
        /// Epoch of the image that it builds on.
        found: u64,
        /// Epoch of the image that is there.
        image: u64,
    },
    /// A record was durable and isn't what was written.
    #[error(
        "{file} is damaged at byte {offset}: record {sequence} is not what was written, and it was durable. Put a later \
         image in place if there is one. {}",
        advice(file)
    )]
    Damaged {
        /// Path of the segment.
        file: String,
        /// Where the record begins.
        offset: u64,
        /// Its number.
        sequence: u64,
    },
    /// A record is larger than any segment may be.
    #[error("a record of {bytes} bytes can't be logged; send smaller transactions")]
    TooLarge {
        /// Bytes of the body.
        bytes: u64,
    },
    /// The system refused a thread.
    #[error("cannot start a thread of the log: {0}")]
    Thread(String),
    /// A thread of the log has ended by a fault in this program.
    #[error("a thread of the log has crashed; please report this")]
    Crashed,
}

impl LogError {
    /// Whether files are not what was written, so that a start that accepts damage goes on with what can be read.
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            Self::Header { .. }
                | Self::NoHeader { .. }
                | Self::Short { .. }
                | Self::Copy { .. }
                | Self::Gap { .. }
                | Self::Damaged { .. }
        )
    }
}

/// What to do about a damaged file.
fn advice(file: &str) -> String {
    let directory = Path::new(file).parent().filter(|parent| !parent.as_os_str().is_empty());
    format!(
        "Nothing was changed. `quire log verify {}` tells what can be read; a start with --accept-damaged-log goes on with \
         that, and keeps the damaged files under other names",
        directory.unwrap_or(Path::new(".")).display()
    )
}
