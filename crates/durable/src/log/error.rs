//! What is wrong with a log, where, and what to do about it.

use quire_device::DeviceError;

/// A body that doesn't read as commands, though its checksum is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its commands can't be read, at byte {at} of the body")]
pub struct Malformed {
    /// First byte that makes no sense.
    pub at: usize,
}

/// Why a log can't be read, begun or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The device failed or is full.
    #[error("the log: {0}")]
    Device(#[from] DeviceError),
    /// A segment was written in another version of the format.
    #[error(
        "{file} is a log segment of format version {found}, this program reads version {known}; start the version that \
         wrote it, save there, and come back"
    )]
    Version {
        /// Path of the segment.
        file: String,
        /// Version in the file.
        found: u32,
        /// Version of this program.
        known: u32,
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
         in {before}); put the missing segment or a later image in place, or move {file} and the later segments away to \
         go on without their writes"
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
        "{file} is damaged at byte {offset}: record {sequence} is not what was written, and later records are there. Put a \
         later image in place, or cut the log off there by moving the later segments away and \
         `truncate -s {offset} {file}`: the writes from record {sequence} on are lost then"
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
