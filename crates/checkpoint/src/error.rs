//! What can be wrong with an image or with writing one.

use std::fmt;

use quire_device::{DeviceError, DeviceOperation};

/// A part of an image file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImagePart {
    /// The first page.
    Header,
    /// The unused bytes between header and data.
    Gap,
    /// Pages of this region.
    Region(u32),
    /// Pages of a delta.
    Data,
    /// Which pages are present, and the checksums of the regions.
    Table,
    /// The last page.
    Footer,
}

impl fmt::Display for ImagePart {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => out.write_str("header"),
            Self::Gap => out.write_str("gap after the header"),
            Self::Region(region) => write!(out, "region {region}"),
            Self::Data => out.write_str("pages"),
            Self::Table => out.write_str("table"),
            Self::Footer => out.write_str("footer"),
        }
    }
}

/// Why an image can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// There is no such file.
    #[error("there is no image {file}")]
    Missing {
        /// Path of the image.
        file: String,
    },
    /// The file is something else.
    #[error("{file} is not a Quire image{}", foreign(found))]
    Foreign {
        /// Path of the image.
        file: String,
        /// Its first bytes.
        found: [u8; 16],
    },
    /// The image was written in another version of the format.
    #[error("{file} is an image of format version {found}, this program reads version {known} (header, byte 8)")]
    Version {
        /// Path of the image.
        file: String,
        /// Version in the file.
        found: u32,
        /// Version of this program.
        known: u32,
    },
    /// A region is compressed in a way that this program does not know.
    #[error(
        "region {region} of {file} is compressed by codec {codec}, which this program does not know ({part}, byte {offset}): it was \
         written by a newer version"
    )]
    UnknownCodec {
        /// Path of the image or the delta.
        file: String,
        /// The first such region.
        region: u32,
        /// The codec's number.
        codec: u32,
        /// Where the file says so.
        part: ImagePart,
        /// The byte.
        offset: u64,
    },
    /// A delta does not belong to what is there.
    #[error(
        "{file} is a delta that does not fit {base}: {why}. Put back the file that it was made for, or move the deltas away to \
         use the image without them"
    )]
    WrongBase {
        /// Path of the delta.
        file: String,
        /// Path of the image or the delta that it should be over.
        base: String,
        /// What doesn't fit.
        why: String,
    },
    /// Another process has replaced the image or its deltas each time that they were opened.
    #[error("{file} is replaced again and again while it is opened; try again when its server saves less often")]
    Changing {
        /// Path of the image.
        file: String,
    },
    /// The image isn't what was written.
    #[error("{file} is damaged in its {part}, at byte {offset}: {what}")]
    Damaged {
        /// Path of the image.
        file: String,
        /// Where.
        part: ImagePart,
        /// First byte concerned.
        offset: u64,
        /// What doesn't fit.
        what: String,
    },
    /// The image holds more than may be used.
    #[error("{file} needs {needed_bytes} bytes of memory, allowed are {max_bytes}")]
    TooLarge {
        /// Path of the image.
        file: String,
        /// Bytes that its pages span.
        needed_bytes: u64,
        /// Bytes allowed.
        max_bytes: u64,
    },
    /// The image isn't a file of the system, or not one that can be mapped.
    #[error("{file} can't be mapped: {why}")]
    NotMappable {
        /// Path of the image.
        file: String,
        /// What the system said.
        why: String,
    },
    /// No memory for the restored pages.
    #[error("no memory to restore {file}: {why}")]
    Memory {
        /// Path of the image.
        file: String,
        /// What the system said.
        why: String,
    },
    /// The device failed to read a part of the image.
    #[error("the {part} of the image can't be read: {source}")]
    Unreadable {
        /// Which part.
        part: ImagePart,
        /// What failed, where.
        source: DeviceError,
    },
    /// The thread that reads in the background has ended by a fault in this program.
    #[error("the thread that reads {file} in the background has crashed; please report this")]
    Crashed {
        /// Path of the image.
        file: String,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl ImageError {
    /// Whether the bytes of an image are at fault, rather than the device, this machine, or the choice of the file.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. })
    }

    /// Whether a file was not there that a moment before was listed.
    pub(crate) fn is_missing_link(&self) -> bool {
        matches!(self, Self::Device(error) if error.is_missing())
    }

    /// Whether a delta does not belong to what is there.
    pub(crate) fn is_wrong_base(&self) -> bool {
        matches!(self, Self::WrongBase { .. })
    }
}

/// What a file that is no image is, by its first bytes.
fn foreign(found: &[u8; 16]) -> String {
    match found {
        [b'R', b'E', b'D', b'I', b'S', version @ .., _, _, _, _, _, _, _] if version.iter().all(u8::is_ascii_digit) => {
            format!(", but a Redis RDB file (REDIS{})", String::from_utf8_lossy(version))
        }
        [b'*', b'0'..=b'9', ..] => ", but an append-only file of Redis".into(),
        [b'f', b'i', b'l', b'e', b' ', ..] => ", but perhaps the manifest of an append-only file of Redis".into(),
        [b'Q', b'U', b'I', b'R', b'E', b'D', b'L', b'T', ..] => {
            ", but a delta; name the image that it belongs to".into()
        }
        [0x1f, 0x8b, ..] => ", but compressed by gzip".into(),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => ", but compressed by zstd".into(),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => ", but compressed by xz".into(),
        _ => format!(": it starts with {:02x?}", &found[..8]),
    }
}

/// Why a dump failed. Unless said otherwise, the previous image is untouched and nothing is left of the new one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DumpError {
    /// The device failed or is full.
    #[error("saving {file} failed: {source}")]
    Device {
        /// Path of the image.
        file: String,
        /// What failed.
        source: DeviceError,
    },
    /// The device is full, and a chain is on it that the image was to replace.
    #[error(
        "saving {file} failed: {source}. A full image needs space beside the image and the deltas ({deltas}) that it replaces, \
         which are removed when it is durable: make room on the disk"
    )]
    FullBesideChain {
        /// Path of the image.
        file: String,
        /// What failed.
        source: DeviceError,
        /// Deltas of the chain.
        deltas: usize,
    },
    /// The delta could not be written, since what it would be over is not there any more.
    #[error("saving {file} failed, as {base} is not what was saved before: {why}; the next save is a full image")]
    BaseChanged {
        /// Path of the delta.
        file: String,
        /// Path of the link that has changed.
        base: String,
        /// How.
        why: String,
    },
    /// Memory is mapped from a file that does not hold any more what was checked.
    #[error(
        "saving {file} failed: page {page} of the data comes from a mapped image, whose bytes have changed since they were checked"
    )]
    DamagedPage {
        /// Path of the image.
        file: String,
        /// The page.
        page: u32,
    },
    /// An image that was written to be read by this process alone can't be read.
    #[error("{file} was written and can't be read: {source}")]
    Unreadable {
        /// Path of the image.
        file: String,
        /// Why not.
        source: Box<ImageError>,
    },
    /// It was cancelled.
    #[error("saving {file} was cancelled")]
    Cancelled {
        /// Path of the image.
        file: String,
    },
    /// The new image is complete and in place of the previous one, but its name may be lost if the power goes; then
    /// the previous image is found again.
    #[error("{file} is saved, but the directory could not be flushed: {source}")]
    NotDurable {
        /// Path of the image.
        file: String,
        /// What failed.
        source: DeviceError,
    },
}

/// A device error for memory that the system refused.
pub(crate) fn no_buffers(file: &str) -> DeviceError {
    DeviceError::new(DeviceOperation::Buffers, file, &std::io::ErrorKind::OutOfMemory.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_files_are_called_by_their_name() {
        for (start, name) in [
            (&b"REDIS0011\xfa\tredis-v"[..], ", but a Redis RDB file (REDIS0011)"),
            (b"*2\r\n$6\r\nSELECT\r\n", "append-only file of Redis"),
            (b"\x1f\x8b\x08\0\0\0\0\0\0\0\0\0\0\0\0\0", "gzip"),
            (b"REDISTRIBUTED....", "it starts with [52, 45, 44"),
        ] {
            let found = start[..16].try_into().unwrap();
            let text = ImageError::Foreign { file: "dump".into(), found }.to_string();
            assert!(text.starts_with("dump is not a Quire image") && text.contains(name), "{text}");
        }
    }
}
