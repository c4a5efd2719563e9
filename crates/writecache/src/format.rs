//! The bytes on the fast device; `docs/format.md`, section "Write cache", is the same in words.
//!
//! ```text
//! 0       superblock, 4096 bytes    the one with the higher generation counts;
//! 4096    superblock, 4096 bytes    they are written in turn
//! 8192    area: a circular log of records
//!
//! record: header (one granule, 512 bytes of it used) | block_count blocks of 4096 bytes
//! ```
//! A position in the log, the *lsn*, only grows; it lies at byte `8192 + lsn mod area_bytes`. Records don't wrap: where one
//! does not fit before the end of the area, it begins at the next lap. The lsn is also the order of writes.
//!
//! Valid is a superblock with its magic, version and checksum, that of the whole or that of one of its first two sectors,
//! which say the same. What is in the place of a superblock and is neither that nor zeros is damage, and nothing of the log
//! is believed then: the place may have held the newer one. Valid is a record whose header carries the magic, the
//! cache's identity, **its own lsn** and the right checksum, which lies inside the area and whose blocks have the checksum
//! in the header. What an earlier lap left behind has another lsn, so it is never taken for new.
//!
//! A reader takes the newer superblock and walks from its `tail_lsn`. After a valid record it goes on behind it; where
//! there is none it tries every granule up to [`IN_FLIGHT_BYTES`] further, since a record that was acknowledged is never
//! further behind one that was not. Of each block the version with the highest lsn counts. A `Truncate` makes earlier records
//! of its volume beyond its length void; one that isn't followed by a `TruncateDone` is carried out again, as is an
//! `OpenTruncation`, which stands for those before it. If the new end lies
//! within a block that the log or the memory holds, the `Truncate` brings that block along, with zeros behind the end.
//!
//! Where no valid record is, one may have been cut off by a crash before it was acknowledged, or one that was acknowledged
//! may be damaged. A record says where the one before it ends and up to which lsn all were durable when it was begun; so
//! does a superblock. A gap that begins before that is damage. Gaps that a crash left are marked [`RecordKind::Spare`] at the
//! next start, before anything is written behind them. Only of records that were under way together with the very last
//! ones nothing says whether they were acknowledged.
//!
//! Relies on XXH3 (64 bits) to find accidents; it is no defence against forgery, so a reader bounds-checks everything even
//! if all checksums are right.

use twox_hash::XxHash3_64;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ids::BLOCK_BYTES;

/// First bytes of a superblock.
pub const MAGIC: [u8; 8] = *b"QUIREWCH";
/// First bytes of a record.
pub const RECORD_MAGIC: [u8; 8] = *b"QWCREC01";
/// Version of the format that is written. Any change raises it.
pub const VERSION: u32 = 3;
/// Oldest version that is read.
pub const OLDEST_VERSION: u32 = 1;
/// Newest version that is read: 2 has [`RecordHeader::done_lsn`], 3 has [`RecordKind::OpenTruncation`].
pub const NEWEST_VERSION: u32 = 3;
/// What a device writes whole or not at all.
pub const SECTOR_BYTES: usize = 512;
/// Bytes of a superblock.
pub const SUPERBLOCK_BYTES: usize = 4096;
/// Where the log begins.
pub const AREA_OFFSET: u64 = 2 * SUPERBLOCK_BYTES as u64;
/// Used bytes of a record's header.
pub const HEADER_BYTES: usize = 512;
/// Most blocks of a record.
pub const MOST_BLOCKS: u32 = 256;
/// Most bytes from the start of the oldest unfinished record (and of the gap before it) to the end of the newest.
pub const IN_FLIGHT_BYTES: u64 = 4 << 20;
/// Blocks beyond this can't be named: their offsets would not fit.
pub const MOST_BLOCK: u64 = 1 << 50;

/// Flag of a superblock: the log was closed; it ends at `head_lsn` without gaps at its end.
pub const CLEAN: u32 = 1;

/// The first sector of a superblock, which counts by itself.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SuperblockSector {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: U32,
    /// [`CLEAN`] or 0.
    pub flags: U32,
    /// A number of this cache, drawn when it was made.
    pub identity: U64,
    /// Counts superblocks; the low bit says in which of the two places this one is.
    pub generation: U64,
    /// Unit in which records lie: 512 or 4096 bytes.
    pub granule_bytes: U32,
    /// Bytes of a block.
    pub block_bytes: U32,
    /// Bytes of the area.
    pub area_bytes: U64,
    /// Where the oldest record that counts lies, or would lie.
    pub tail_lsn: U64,
    /// With [`CLEAN`]: the end of the log.
    pub head_lsn: U64,
    /// Epoch of this log and its volumes: the witness says the same.
    pub epoch: U64,
    /// The epoch that is being begun, or 0: the witness says either.
    pub next_epoch: U64,
    /// Every record that began before this lsn was durable.
    pub settled_lsn: U64,
    /// Zero.
    pub unused: [u8; 416],
    /// XXH3 of all bytes before.
    pub sector_checksum: U64,
}

/// One of the first two pages of the device.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Superblock {
    /// What it says.
    pub sector: SuperblockSector,
    /// The bytes up to here once more.
    pub copy: [u8; SECTOR_BYTES],
    /// Zero.
    pub rest: [u8; 3064],
    /// XXH3 of all bytes before.
    pub checksum: U64,
}

impl Superblock {
    /// Makes copy and checksums fit the other fields.
    pub fn seal(&mut self) {
        let sector = XxHash3_64::oneshot(&self.as_bytes()[..SECTOR_BYTES - 8]);
        self.sector.sector_checksum = sector.into();
        self.copy = sector_of(self.as_bytes());
        self.checksum = self.own_checksum().into();
    }

    /// The checksum that fits the other fields.
    pub fn own_checksum(&self) -> u64 {
        XxHash3_64::oneshot(&self.as_bytes()[..SUPERBLOCK_BYTES - 8])
    }

    fn has_magic(&self) -> bool {
        self.sector.magic == MAGIC && (OLDEST_VERSION..=NEWEST_VERSION).contains(&self.sector.version.get())
    }

    /// Whether magic, version and the checksum of the whole are right.
    pub fn is_sound(&self) -> bool {
        self.has_magic() && self.checksum.get() == self.own_checksum()
    }
}

fn sector_of(bytes: &[u8]) -> [u8; SECTOR_BYTES] {
    let mut sector = [0; SECTOR_BYTES];
    sector.copy_from_slice(&bytes[..SECTOR_BYTES]);
    sector
}

/// What lies in the place of a superblock.
pub enum SuperblockState {
    /// Nothing was ever written there.
    Blank,
    /// A superblock.
    Sound(Box<Superblock>),
    /// A superblock of a version that this reader does not know.
    Newer(u32),
    /// Something that is none.
    Damaged,
}

impl SuperblockState {
    /// Looks at the bytes of one place. A sector is written whole or not at all, so one of the two that count is always
    /// sound, whenever power goes; and one flipped bit leaves the other.
    pub fn read(bytes: &[u8; SUPERBLOCK_BYTES]) -> Self {
        if let Some(whole) = Superblock::read_from_bytes(bytes).ok().filter(Superblock::is_sound) {
            return Self::Sound(Box::new(whole));
        }
        let sectors = [&bytes[..SECTOR_BYTES], &bytes[SECTOR_BYTES..2 * SECTOR_BYTES]];
        if sectors.iter().all(|sector| sector.iter().all(|&byte| byte == 0)) {
            return Self::Blank;
        }
        let newest = sectors.into_iter().filter_map(by_sector).max_by_key(|sound| sound.sector.generation.get());
        let other = || sectors.into_iter().find_map(newer_version).map_or(Self::Damaged, Self::Newer);
        newest.map_or_else(other, |sound| Self::Sound(Box::new(sound)))
    }
}

/// The superblock that a sector tells, if it counts.
fn by_sector(sector: &[u8]) -> Option<Superblock> {
    whole_sector(sector).filter(Superblock::has_magic)
}

/// The version that a sector tells, if it is newer than those that are read here. Every version has the checksum there.
fn newer_version(sector: &[u8]) -> Option<u32> {
    let version = whole_sector(sector).filter(|superblock| superblock.sector.magic == MAGIC)?.sector.version.get();
    (version > NEWEST_VERSION).then_some(version)
}

/// What a sector with the right checksum says.
fn whole_sector(sector: &[u8]) -> Option<Superblock> {
    let mut whole = [0; SUPERBLOCK_BYTES];
    whole[..SECTOR_BYTES].copy_from_slice(sector);
    let superblock = Superblock::read_from_bytes(&whole).ok()?;
    let right = superblock.sector.sector_checksum.get() == XxHash3_64::oneshot(&sector[..SECTOR_BYTES - 8]);
    right.then_some(superblock)
}

/// What a record does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// Holds blocks.
    Write,
    /// The volume is truncated (or grown) to `volume_len` bytes; earlier blocks beyond it are void. May hold its last block.
    Truncate,
    /// Truncations before it are durable on the volume, up to the one that it names.
    TruncateDone,
    /// The volume is gone: earlier blocks are void.
    Forget,
    /// The volume may lack truncations that came before, and of which no record need be left: it is to be made
    /// [`RecordHeader::floor`] bytes long and then `volume_len`, before anything else is written there. Makes no block void.
    OpenTruncation,
    /// A crash left no record from here to `volume_len`, an lsn, and none is missed: what was being written there had not
    /// been acknowledged.
    Spare,
}

impl RecordKind {
    /// Its number in the header.
    pub fn number(self) -> u32 {
        match self {
            Self::Write => 1,
            Self::Truncate => 2,
            Self::TruncateDone => 3,
            Self::Forget => 4,
            Self::Spare => 5,
            Self::OpenTruncation => 6,
        }
    }

    /// Whether the log keeps it until the volume has been truncated.
    pub fn is_truncation(self) -> bool {
        matches!(self, Self::Truncate | Self::OpenTruncation)
    }

    /// The kind of a number.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::Write, Self::Truncate, Self::TruncateDone, Self::Forget, Self::Spare, Self::OpenTruncation]
            .into_iter()
            .find(|kind| kind.number() == number)
    }
}

/// First bytes of a record.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RecordHeader {
    /// [`RECORD_MAGIC`].
    pub magic: [u8; 8],
    /// The superblock's identity.
    pub identity: U64,
    /// Where this record is.
    pub lsn: U64,
    /// The volume's number.
    pub volume: U64,
    /// First block on the volume.
    pub first_block: U64,
    /// Blocks that follow: 1 to [`MOST_BLOCKS`] for writes, 0 or 1 for truncations, else 0.
    pub block_count: U32,
    /// [`RecordKind::number`].
    pub kind: U32,
    /// Writes: the volume has at least so many bytes. Truncations: it has exactly so many. Spare: where the next record begins.
    pub volume_len: U64,
    /// XXH3 of the blocks, with the lsn as the seed.
    pub blocks_checksum: U64,
    /// Where the record before this one ends; less than `lsn` at the end of a lap.
    pub previous_end: U64,
    /// Every record that began before this lsn was durable when this one was begun.
    pub settled_lsn: U64,
    /// Truncate done: the truncations of the volume whose records end here or before are durable on it. 0, as in version 1:
    /// all before this record.
    pub done_lsn: U64,
    /// Open truncation: the lowest of the lengths, at most `volume_len`. Else 0.
    pub floor: U64,
    /// Zero.
    pub unused: [u8; 408],
    /// XXH3 of all bytes before.
    pub checksum: U64,
}

impl RecordHeader {
    /// The checksum that fits the other fields.
    pub fn own_checksum(&self) -> u64 {
        XxHash3_64::oneshot(&self.as_bytes()[..HEADER_BYTES - 8])
    }
}

/// The checksum of a record's blocks.
pub fn blocks_checksum(lsn: u64, blocks: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(lsn, blocks)
}

/// Bytes of a record with `count` blocks.
pub fn record_bytes(granule_bytes: u64, count: u32) -> u64 {
    granule_bytes + u64::from(count) * BLOCK_BYTES as u64
}

// The layout in docs/format.md, held fast.
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Superblock>() == SUPERBLOCK_BYTES && size_of::<RecordHeader>() == HEADER_BYTES);
    assert!(offset_of!(Superblock, sector.version) == 8 && offset_of!(Superblock, sector.flags) == 12);
    assert!(offset_of!(Superblock, sector.identity) == 16 && offset_of!(Superblock, sector.generation) == 24);
    assert!(offset_of!(Superblock, sector.granule_bytes) == 32 && offset_of!(Superblock, sector.block_bytes) == 36);
    assert!(offset_of!(Superblock, sector.area_bytes) == 40 && offset_of!(Superblock, sector.tail_lsn) == 48);
    assert!(offset_of!(Superblock, sector.head_lsn) == 56 && offset_of!(Superblock, sector.epoch) == 64);
    assert!(offset_of!(Superblock, sector.next_epoch) == 72 && offset_of!(Superblock, sector.settled_lsn) == 80);
    assert!(offset_of!(Superblock, sector.unused) == 88 && offset_of!(Superblock, sector.sector_checksum) == 504);
    assert!(offset_of!(Superblock, copy) == 512 && offset_of!(Superblock, rest) == 1024);
    assert!(offset_of!(Superblock, checksum) == 4088);
    assert!(offset_of!(RecordHeader, identity) == 8 && offset_of!(RecordHeader, lsn) == 16);
    assert!(offset_of!(RecordHeader, volume) == 24 && offset_of!(RecordHeader, first_block) == 32);
    assert!(offset_of!(RecordHeader, block_count) == 40 && offset_of!(RecordHeader, kind) == 44);
    assert!(offset_of!(RecordHeader, volume_len) == 48 && offset_of!(RecordHeader, blocks_checksum) == 56);
    assert!(offset_of!(RecordHeader, previous_end) == 64 && offset_of!(RecordHeader, settled_lsn) == 72);
    assert!(offset_of!(RecordHeader, done_lsn) == 80 && offset_of!(RecordHeader, floor) == 88);
    assert!(offset_of!(RecordHeader, unused) == 96);
    assert!(offset_of!(RecordHeader, checksum) == 504);
};
