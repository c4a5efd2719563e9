//! The bytes of a log; `docs/format.md` is the same in words.
//!
//! A log is a row of segments, files named `quire-log-` and a number. Each is allocated whole before it is used, and a
//! segment that an image covers is used again under another number, so it holds bytes of earlier uses.
//!
//! ```text
//! 0      header: 512 bytes, then zeros up to 4096
//! 4096   records, one after the other, each at a multiple of 8
//! …      whatever was there before
//! ```
//!
//! **Valid** is a header whose checksum fits. Valid is a record whose checksum, keyed by the segment's salt, fits and whose
//! sequence number is exactly one more than that of the record before it (of the first one: the header's
//! `first_sequence`). The salt differs for each use of a file, so bytes of an earlier use never look valid.
//!
//! **Every file has a valid header from its first moment on**, one that says [`SPARE`] or one of a segment in use: a new file
//! gets the name of a segment only when its header is durable, and all later changes of a header write one sector of 512
//! bytes. So no crash leaves a header that isn't valid, and one that isn't is damage: the log is refused, and no file
//! touched. Version 1 wrote zeros instead of a spare's header; `scan` says when zeros are believed.
//!
//! **Reading.** Sort the segments with valid headers by `first_sequence`. Read records until one isn't valid; go on in the
//! next segment, which must begin at the number that is expected now, unless everything between is in the image that the
//! log is applied to. What isn't valid behind the last record was never acknowledged, and is cut off, unless a later
//! record of the segment says that the missing one was durable when it was written (`undurable`): then the log is damaged.
//! So that there is a later one even behind the last record, the writer puts an [`END`] there when it has nothing to do.
//! A segment whose image isn't there (`base_epoch`) and that isn't marked [`IN_FORCE`] was begun while logging was being
//! switched on, and doesn't count, nor do those behind it.
//!
//! **Writing.** A segment's predecessor is durable before its header is written, and its name before that. The block in
//! which the last record ends is written again with what follows. So this relies on a device that, when it writes a sector
//! of 512 bytes with the same content again, doesn't lose it.
//!
//! Relies on XXH3 (64 bits) to find accidents; it is no defence against forgery.

use twox_hash::XxHash3_64;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of a segment.
pub const MAGIC: [u8; 8] = *b"QUIRELOG";
/// Version of the format. Any change raises it.
pub const VERSION: u32 = 2;
/// The oldest version that is read.
pub const OLDEST_VERSION: u32 = 1;
/// Where the records begin.
pub const DATA_OFFSET: u64 = 4096;
/// Records begin at multiples of this.
pub const RECORD_ALIGN: usize = 8;
/// Bytes of a record before its body.
pub const RECORD_HEADER_BYTES: usize = size_of::<RecordHeader>();
/// Flag of a header: the image that the segment builds on is durable.
pub const IN_FORCE: u32 = 1;
/// Flag of a header: the file holds nothing and waits for its use.
pub const SPARE: u32 = 2;
/// Kind of a record: commands.
pub const COMMANDS: u32 = 1;
/// Kind of a record that only says that those before it are durable. The next record is written over it, with its number.
pub const END: u32 = 2;

const PREFIX: &str = "quire-log-";
const UNFINISHED: &str = ".new";
/// The body begins with a time.
const LEAST_BODY_BYTES: u32 = 8;

/// The first bytes of a segment.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SegmentHeader {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: U32,
    /// [`DATA_OFFSET`].
    pub data_offset: U32,
    /// The number in the file's name.
    pub index: U64,
    /// Sequence number of the first record.
    pub first_sequence: U64,
    /// The dataset that the records change.
    pub dataset: U64,
    /// Epoch of the image that the log builds on: this one or a later one must be there.
    pub base_epoch: U64,
    /// Bytes of the file.
    pub segment_bytes: U64,
    /// When the header was written, in milliseconds since 1970.
    pub created_unix_ms: U64,
    /// Key of the records' checksums.
    pub salt: U64,
    /// [`IN_FORCE`], [`SPARE`] or zero.
    pub flags: U32,
    /// Zero.
    pub unused: [u8; 428],
    /// XXH3 of all bytes before.
    pub checksum: U64,
}

/// The first bytes of a record.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RecordHeader {
    /// XXH3 of the rest of the header and of the body, with the segment's salt as the seed.
    pub checksum: U64,
    /// One more than the record before.
    pub sequence: U64,
    /// How many records before this one were not yet durable when it was written: at most so many, `u32::MAX` for more.
    pub undurable: U32,
    /// Bytes of the body.
    pub body_bytes: U32,
    /// Commands in the body.
    pub commands: U32,
    /// [`COMMANDS`] or [`END`].
    pub kind: U32,
}

// The layout in docs/format.md, held fast.
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<SegmentHeader>() == 512 && size_of::<RecordHeader>() == 32);
    assert!(offset_of!(SegmentHeader, version) == 8 && offset_of!(SegmentHeader, data_offset) == 12);
    assert!(offset_of!(SegmentHeader, index) == 16 && offset_of!(SegmentHeader, first_sequence) == 24);
    assert!(offset_of!(SegmentHeader, dataset) == 32 && offset_of!(SegmentHeader, base_epoch) == 40);
    assert!(offset_of!(SegmentHeader, segment_bytes) == 48 && offset_of!(SegmentHeader, created_unix_ms) == 56);
    assert!(offset_of!(SegmentHeader, salt) == 64 && offset_of!(SegmentHeader, flags) == 72);
    assert!(offset_of!(SegmentHeader, unused) == 76 && offset_of!(SegmentHeader, checksum) == 504);
    assert!(offset_of!(RecordHeader, sequence) == 8 && offset_of!(RecordHeader, undurable) == 16);
    assert!(offset_of!(RecordHeader, body_bytes) == 20 && offset_of!(RecordHeader, commands) == 24);
    assert!(offset_of!(RecordHeader, kind) == 28);
    assert!(RECORD_HEADER_BYTES.is_multiple_of(RECORD_ALIGN) && DATA_OFFSET as usize >= size_of::<SegmentHeader>());
};

/// What distinguishes one use of a segment from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentMeta {
    /// The number in the file's name.
    pub index: u64,
    /// Sequence number of the first record.
    pub first_sequence: u64,
    /// The dataset that the records change.
    pub dataset: u64,
    /// Epoch of the image that the log builds on.
    pub base_epoch: u64,
    /// Bytes of the file.
    pub segment_bytes: u64,
    /// When the header was written.
    pub created_unix_ms: u64,
    /// Whether that image is durable.
    pub in_force: bool,
}

impl SegmentHeader {
    /// The header that says this.
    pub fn new(meta: &SegmentMeta) -> Self {
        let mut header = Self::new_zeroed();
        header.magic = MAGIC;
        header.version = VERSION.into();
        header.data_offset = (DATA_OFFSET as u32).into();
        header.index = meta.index.into();
        header.first_sequence = meta.first_sequence.into();
        header.dataset = meta.dataset.into();
        header.base_epoch = meta.base_epoch.into();
        header.segment_bytes = meta.segment_bytes.into();
        header.created_unix_ms = meta.created_unix_ms.into();
        // Of everything that tells uses apart, but not of the flags: those change while the segment is in use.
        header.salt = header.own_salt().into();
        header.flags = (if meta.in_force { IN_FORCE } else { 0 }).into();
        header.checksum = header.own_checksum().into();
        header
    }

    /// The header of a file of so many bytes that holds nothing.
    pub fn spare(index: u64, file_bytes: u64) -> Self {
        let mut header = Self::new_zeroed();
        header.magic = MAGIC;
        header.version = VERSION.into();
        header.data_offset = (DATA_OFFSET as u32).into();
        header.index = index.into();
        header.segment_bytes = file_bytes.into();
        header.flags = SPARE.into();
        header.checksum = header.own_checksum().into();
        header
    }

    /// What [`SegmentHeader::salt`] should be.
    pub fn own_salt(&self) -> u64 {
        XxHash3_64::oneshot(&self.as_bytes()[..std::mem::offset_of!(Self, salt)])
    }

    /// What [`SegmentHeader::checksum`] should be.
    pub fn own_checksum(&self) -> u64 {
        XxHash3_64::oneshot(&self.as_bytes()[..std::mem::offset_of!(Self, checksum)])
    }

    /// What the header says.
    pub fn meta(&self) -> SegmentMeta {
        SegmentMeta {
            index: self.index.get(),
            first_sequence: self.first_sequence.get(),
            dataset: self.dataset.get(),
            base_epoch: self.base_epoch.get(),
            segment_bytes: self.segment_bytes.get(),
            created_unix_ms: self.created_unix_ms.get(),
            in_force: self.flags.get() & IN_FORCE != 0,
        }
    }
}

impl RecordHeader {
    /// The sequence number up to which everything was durable when the record was written.
    pub fn durable(&self) -> u64 {
        match self.undurable.get() {
            u32::MAX => 0,
            undurable => self.sequence.get().saturating_sub(1 + u64::from(undurable)),
        }
    }

    /// Bytes that the record takes, padding counted. `None` if no record has a header like this.
    pub fn record_bytes(&self) -> Option<u64> {
        let body_bytes = self.body_bytes.get();
        let sound =
            matches!(self.kind.get(), COMMANDS | END) && body_bytes >= LEAST_BODY_BYTES && self.sequence.get() > 0;
        sound.then(|| record_bytes(u64::from(body_bytes)))
    }
}

/// Bytes that a record with so long a body takes.
pub(crate) fn record_bytes(body_bytes: u64) -> u64 {
    (RECORD_HEADER_BYTES as u64 + body_bytes).next_multiple_of(RECORD_ALIGN as u64)
}

/// The checksum of a record, given its bytes without padding; the first eight of them don't count.
pub fn record_checksum(salt: u64, record: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(salt, &record[size_of::<u64>()..])
}

/// The name that a file has until its header is durable.
pub(crate) fn unfinished_name_of(index: u64) -> String {
    name_of(index) + UNFINISHED
}

/// Whether that is the name of a file that was never finished.
pub(crate) fn is_unfinished(name: &str) -> bool {
    name.strip_suffix(UNFINISHED).is_some_and(|name| index_of(name).is_some())
}

/// The name of segment `index`.
pub(crate) fn name_of(index: u64) -> String {
    format!("{PREFIX}{index:08}")
}

/// The number in a segment's name; `None` if the name is no segment's.
pub(crate) fn index_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?;
    let index = digits.parse().ok()?;
    (name_of(index) == name).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta() -> SegmentMeta {
        SegmentMeta {
            index: 3,
            first_sequence: 70,
            dataset: 9,
            base_epoch: 2,
            segment_bytes: 1 << 20,
            created_unix_ms: 5,
            in_force: true,
        }
    }

    #[test]
    fn a_header_says_what_it_was_told() {
        let header = SegmentHeader::new(&meta());
        assert_eq!(header.meta(), meta());
        assert_eq!(header.checksum.get(), header.own_checksum());
    }

    #[test]
    fn each_use_has_its_salt_and_keeps_it_when_it_comes_in_force() {
        let header = SegmentHeader::new(&meta());
        let pending = SegmentHeader::new(&SegmentMeta { in_force: false, ..meta() });
        assert_eq!(header.salt, pending.salt);
        for other in [
            SegmentMeta { index: 4, ..meta() },
            SegmentMeta { first_sequence: 71, ..meta() },
            SegmentMeta { created_unix_ms: 6, ..meta() },
            SegmentMeta { dataset: 8, ..meta() },
        ] {
            assert_ne!(SegmentHeader::new(&other).salt, header.salt, "{other:?}");
        }
    }

    #[test]
    fn names_and_numbers_belong_together() {
        for index in [0, 1, 99_999_999, 100_000_000, u64::MAX] {
            assert_eq!(index_of(&name_of(index)), Some(index));
            assert!(is_unfinished(&unfinished_name_of(index)) && index_of(&unfinished_name_of(index)).is_none());
        }
        for name in ["quire-log-1", "quire-log-", "quire-log-000000001", "quire-log-0000000x", "dump.quire"] {
            assert_eq!(index_of(name), None, "{name}");
        }
    }

    #[test]
    fn what_was_durable_is_told_from_the_distance() {
        let header = |sequence: u64, undurable: u32| RecordHeader {
            checksum: 0.into(),
            sequence: sequence.into(),
            undurable: undurable.into(),
            body_bytes: 8.into(),
            commands: 0.into(),
            kind: COMMANDS.into(),
        };
        assert_eq!(header(10, 0).durable(), 9);
        assert_eq!(header(10, 4).durable(), 5);
        assert_eq!(header(10, u32::MAX).durable(), 0);
        assert_eq!(header(10, 0).record_bytes(), Some(40));
        assert_eq!(header(0, 0).record_bytes(), None);
    }
}
