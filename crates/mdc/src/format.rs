//! The bytes of a checkpoint file; `docs/mdc-format.md` is the same in words.
//!
//! ```text
//! 0       header, 4096 bytes
//! 4096    log: chunks of 256 KiB, the last one shorter, a multiple of 4096
//! …       dump: unit n at dump_offset + n * 256 KiB; pages that have no contents are holes
//! …       table: areas, units, zeros up to a multiple of 4096
//! …       footer, 4096 bytes, the last of the file
//! ```
//! Valid is a file whose header, table and footer carry their own checksums and agree with each other and with the length of
//! the file. A chunk of the log and a unit of the dump are believed when their checksums are found right, which a reader does
//! before it uses any of their bytes. All numbers are little-endian.
//!
//! Relies on XXH3 (64 bits) to find accidents; it is no defence against forgery, so a reader checks every bound even if all
//! checksums are right.

use twox_hash::XxHash3_64;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of a checkpoint.
pub const MAGIC: [u8; 8] = *b"QUIREMDC";
/// Last bytes of a checkpoint, before the checksum of the footer.
pub const END_MAGIC: [u8; 8] = *b"MDC--END";
/// Version of the format. Any change raises it.
pub const VERSION: u32 = 1;
/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// Pages of a unit of the dump: what is written at once.
pub const UNIT_PAGES: usize = 64;
/// Bytes of a unit of the dump, and of a whole chunk of the log.
pub const UNIT_BYTES: usize = UNIT_PAGES * PAGE_BYTES;
/// Where the log begins.
pub const LOG_OFFSET: u64 = PAGE_BYTES as u64;
/// Bytes of the log in a whole chunk.
pub const CHUNK_PAYLOAD: usize = UNIT_BYTES - size_of::<ChunkHead>();
/// Longest object that is written at once.
pub const MOST_OBJECT_BYTES: usize = 1 << 47;

/// The first page.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: U32,
    /// [`PAGE_BYTES`].
    pub page_bytes: U32,
    /// [`UNIT_BYTES`].
    pub unit_bytes: U32,
    /// Zero.
    pub flags: U32,
    /// When the checkpoint was begun, in milliseconds since 1970.
    pub created_unix_ms: U64,
    /// Zero.
    pub unused: [u8; 4056],
    /// XXH3 of all bytes before.
    pub checksum: U64,
}

/// The last page.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Footer {
    /// Bytes of the log, heads of chunks not counted.
    pub log_bytes: U64,
    /// Where unit 0 of the dump lies.
    pub dump_offset: U64,
    /// Units of the dump.
    pub unit_count: U64,
    /// Areas of memory.
    pub area_count: U64,
    /// Where the table lies.
    pub table_offset: U64,
    /// XXH3 of the table, its zeros at the end counted.
    pub table_checksum: U64,
    /// The header's checksum: both are of one checkpoint.
    pub header_checksum: U64,
    /// Bytes of the file.
    pub file_bytes: U64,
    /// Zero.
    pub unused: [u8; 4016],
    /// [`END_MAGIC`].
    pub magic: [u8; 8],
    /// XXH3 of all bytes before.
    pub checksum: U64,
}

/// What each chunk of the log begins with.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ChunkHead {
    /// Bytes of the log that follow.
    pub used: U32,
    /// Zero.
    pub reserved: U32,
    /// XXH3 of these bytes, the chunk's number being the seed.
    pub checksum: U64,
}

/// A range of the addresses that the program had. What no unit has of it reads as zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AreaEntry {
    /// First address, a multiple of a page.
    pub start: U64,
    /// One past the last address.
    pub end: U64,
}

/// A piece of an area with at least one page that has contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct UnitEntry {
    /// First address, a multiple of a page.
    pub start: U64,
    /// Bit n: page n has contents. The others read as zero.
    pub bitmap: U64,
    /// XXH3 of the unit's bytes in the file, the first address being the seed.
    pub checksum: U64,
    /// Pages of the unit, at most [`UNIT_PAGES`].
    pub pages: U32,
    /// Zero.
    pub reserved: U32,
}

const _: () = assert!(size_of::<Header>() == PAGE_BYTES && size_of::<Footer>() == PAGE_BYTES);
const _: () = assert!(size_of::<ChunkHead>() == 16 && size_of::<AreaEntry>() == 16 && size_of::<UnitEntry>() == 32);

/// XXH3 of `bytes`.
pub fn checksum(bytes: &[u8], seed: u64) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, bytes)
}

impl Header {
    /// The header of a checkpoint that begins now.
    pub fn new(created_unix_ms: u64) -> Self {
        let mut header = Self {
            magic: MAGIC,
            version: VERSION.into(),
            page_bytes: (PAGE_BYTES as u32).into(),
            unit_bytes: (UNIT_BYTES as u32).into(),
            flags: 0.into(),
            created_unix_ms: created_unix_ms.into(),
            unused: [0; 4056],
            checksum: 0.into(),
        };
        header.checksum = header.own_checksum().into();
        header
    }

    /// The checksum that fits its bytes.
    pub fn own_checksum(&self) -> u64 {
        checksum(&self.as_bytes()[..PAGE_BYTES - 8], 0)
    }
}

impl Footer {
    /// The checksum that fits its bytes.
    pub fn own_checksum(&self) -> u64 {
        checksum(&self.as_bytes()[..PAGE_BYTES - 8], 0)
    }
}

/// Bytes of the table with these many entries, if there can be such a table.
pub fn table_bytes(areas: u64, units: u64) -> Option<u64> {
    let areas = areas.checked_mul(size_of::<AreaEntry>() as u64)?;
    let units = units.checked_mul(size_of::<UnitEntry>() as u64)?;
    areas.checked_add(units)?.checked_next_multiple_of(PAGE_BYTES as u64)
}

/// Bytes that a log takes in the file, if there can be such a log.
pub fn log_span(log_bytes: u64) -> Option<u64> {
    let whole = log_bytes / CHUNK_PAYLOAD as u64;
    let rest = log_bytes % CHUNK_PAYLOAD as u64;
    let last = if rest == 0 { 0 } else { (rest + size_of::<ChunkHead>() as u64).next_multiple_of(PAGE_BYTES as u64) };
    whole.checked_mul(UNIT_BYTES as u64)?.checked_add(last)
}

/// Most bytes of a number in the log.
pub const MOST_NUMBER_BYTES: usize = 10;

/// A number as the log has it: seven bits a byte, the lowest first; all bytes but the last have the top bit.
pub fn put_number(mut number: u64, into: &mut [u8; MOST_NUMBER_BYTES]) -> usize {
    let mut len = 0;
    while number >= 0x80 {
        into[len] = number as u8 | 0x80;
        number >>= 7;
        len += 1;
    }
    into[len] = number as u8;
    len + 1
}

/// A distance as a number: small ones are short, whatever their sign.
pub fn fold(distance: i64) -> u64 {
    (distance.cast_unsigned() << 1) ^ (distance >> 63).cast_unsigned()
}

/// The distance again.
pub fn unfold(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_short_when_they_are_small_and_come_back_whatever_they_are() {
        let mut bytes = [0; MOST_NUMBER_BYTES];
        for distance in [0, 1, -1, 63, -64, 1 << 40, i64::MIN, i64::MAX] {
            assert_eq!(unfold(fold(distance)), distance);
            assert!(put_number(fold(distance), &mut bytes) <= MOST_NUMBER_BYTES);
        }
        assert_eq!((put_number(fold(-64), &mut bytes), put_number(fold(64), &mut bytes)), (1, 2));
        assert_eq!(put_number(u64::MAX, &mut bytes), MOST_NUMBER_BYTES);
    }

    #[test]
    fn a_log_takes_whole_chunks_and_then_whole_pages() {
        let chunk = CHUNK_PAYLOAD as u64;
        assert_eq!([0, 1, 4080, 4081, chunk].map(log_span), [0, 4096, 4096, 8192, UNIT_BYTES as u64].map(Some));
        assert_eq!(log_span(chunk + 1), Some(UNIT_BYTES as u64 + 4096));
        assert_eq!(table_bytes(u64::MAX, 1), None);
    }
}
