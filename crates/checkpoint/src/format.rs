//! The bytes of an image file; `docs/format.md` is the same in words.
//!
//! ```text
//! 0          header, 4096 bytes
//! 4096       zeros
//! 2 MiB      data: page n at 2 MiB + n * 4096; pages that aren't present are holes
//! …          table: present bits, region checksums, in version 3 how each region is stored; zeros up to a multiple of 4096
//! …          footer, 4096 bytes, the last of the file
//! ```
//! Valid is a file whose header, table and footer carry their own checksums, agree with each other and with the length of
//! the file, and whose present pages have the checksums in the table. All numbers are little-endian.
//!
//! Relies on XXH3 (64 bits) to find accidents; it is no defence against forgery, so a reader bounds-checks everything
//! even if all checksums are right.

use quire_snapshot::{PAGE_SIZE, PAGES_PER_REGION, REGION_SIZE};
use twox_hash::XxHash3_64;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::ImagePart;

/// First bytes of an image.
pub const MAGIC: [u8; 8] = *b"QUIREIMG";
/// Last bytes of an image.
pub const END_MAGIC: [u8; 8] = *b"QUIREEND";
/// Version of an image that stands alone. Any change of the format raises it beyond [`VERSION_COMPRESSED`].
pub const VERSION: u32 = 1;
/// Version of an image that deltas may follow: the same bytes, but a program that knows no deltas must not take it for all.
pub const VERSION_CHAINED: u32 = 2;
/// Version of an image whose regions may be compressed. Deltas may follow it.
pub const VERSION_COMPRESSED: u32 = 3;
/// Where page 0 lies: on a huge page of the file, so that it can be mapped with huge pages.
pub const DATA_OFFSET: u64 = REGION_SIZE as u64;
/// Most deltas that an image says it has replaced.
pub const MAX_REPLACED: usize = 128;
/// Most pages of an image: 1 TiB, what handles can name.
pub const MAX_PAGES: u32 = 1 << 28;

const PAGE_BYTES: u64 = PAGE_SIZE as u64;

/// What the writer of an image says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageMeta {
    /// Counts the images of one history.
    pub epoch: u64,
    /// Time of the cut, in milliseconds since 1970.
    pub created_unix_ms: u64,
    /// The arena's root handle, for information: the arena's own is in its pages.
    pub root: u32,
    /// Free text, filled up with zeros.
    pub note: [u8; 64],
    /// Which data it is an image of: a number that the images of other data don't have; 0 if that isn't known.
    pub history: u64,
    /// Deltas may follow it.
    pub chained: bool,
}

/// What tells a link of a chain, an image or a delta, from every other: its footer's checksum covers every byte of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkId {
    /// [`ImageMeta::epoch`].
    pub epoch: u64,
    /// The footer's checksum.
    pub checksum: u64,
}

/// The first page.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ImageHeader {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`], [`VERSION_CHAINED`] or [`VERSION_COMPRESSED`].
    pub version: U32,
    /// Bytes of a page.
    pub page_bytes: U32,
    /// Bytes of a region.
    pub region_bytes: U32,
    /// Zero.
    pub flags: U32,
    /// [`ImageMeta::epoch`].
    pub epoch: U64,
    /// [`ImageMeta::created_unix_ms`].
    pub created_unix_ms: U64,
    /// [`ImageMeta::root`].
    pub root: U32,
    /// Pages, absent ones counted.
    pub page_count: U32,
    /// [`DATA_OFFSET`].
    pub data_offset: U64,
    /// [`ImageMeta::history`].
    pub history: U64,
    /// [`ImageMeta::note`].
    pub note: [u8; 64],
    /// Fingerprints of the deltas that the image has replaced, then zeros.
    pub replaced: [U64; 128],
    /// Zero.
    pub unused: [u8; 2936],
    /// XXH3 of all bytes before.
    pub checksum: U64,
}

/// The last page.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ImageFooter {
    /// Where the table starts.
    pub table_offset: U64,
    /// Bytes of the table.
    pub table_bytes: U64,
    /// XXH3 of the table.
    pub table_checksum: U64,
    /// The header's epoch again.
    pub epoch: U64,
    /// The header's checksum again.
    pub header_checksum: U64,
    /// Bits set in the table.
    pub present_pages: U64,
    /// The header's page count again.
    pub page_count: U32,
    /// Regions, the last one perhaps not full.
    pub region_count: U32,
    /// [`VERSION_COMPRESSED`] again; zero in earlier versions.
    pub version: U32,
    /// Zero.
    pub unused: [u8; 4020],
    /// XXH3 of all bytes before.
    pub checksum: U64,
    /// [`END_MAGIC`].
    pub end_magic: [u8; 8],
}

/// How a region is stored, at the place of its first page with content: all zeros if as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct StoredRegion {
    /// [`Codec::number`](crate::Codec::number), or 0.
    pub codec: U32,
    /// Bytes that the codec has made of the pages from the first to the last one with content. Zeros follow, up to a whole page.
    pub stored_bytes: U32,
    /// XXH3 of these bytes and zeros.
    pub checksum: U64,
}

impl StoredRegion {
    /// Whether the pages are in the file as they are.
    pub fn is_plain(&self) -> bool {
        self.codec.get() == 0
    }

    /// Bytes that it takes in the file if it is compressed.
    pub fn padded_bytes(&self) -> usize {
        (self.stored_bytes.get() as usize).next_multiple_of(PAGE_SIZE)
    }

    /// What can't be true of a region whose pages span so many.
    pub(crate) fn nonsense(&self, span_pages: usize) -> Option<String> {
        match self.is_plain() {
            true if self.stored_bytes.get() != 0 || self.checksum.get() != 0 => {
                Some("is stored as it is, but with a length or checksum".into())
            }
            false if self.stored_bytes.get() == 0 || self.padded_bytes() >= span_pages * PAGE_SIZE => {
                Some(format!("has {} compressed bytes of {span_pages} pages", self.stored_bytes))
            }
            _ => None,
        }
    }
}

// The layout in docs/format.md, held fast.
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<ImageHeader>() == PAGE_SIZE && size_of::<ImageFooter>() == PAGE_SIZE);
    assert!(offset_of!(ImageHeader, version) == 8 && offset_of!(ImageHeader, page_bytes) == 12);
    assert!(offset_of!(ImageHeader, region_bytes) == 16 && offset_of!(ImageHeader, flags) == 20);
    assert!(offset_of!(ImageHeader, epoch) == 24 && offset_of!(ImageHeader, created_unix_ms) == 32);
    assert!(offset_of!(ImageHeader, root) == 40 && offset_of!(ImageHeader, page_count) == 44);
    assert!(offset_of!(ImageHeader, data_offset) == 48);
    assert!(offset_of!(ImageHeader, history) == 56 && offset_of!(ImageHeader, note) == 64);
    assert!(offset_of!(ImageHeader, replaced) == 128 && MAX_REPLACED == 128);
    assert!(offset_of!(ImageHeader, unused) == 1152);
    assert!(offset_of!(ImageHeader, checksum) == 4088);
    assert!(offset_of!(ImageFooter, table_offset) == 0 && offset_of!(ImageFooter, table_bytes) == 8);
    assert!(offset_of!(ImageFooter, table_checksum) == 16 && offset_of!(ImageFooter, epoch) == 24);
    assert!(offset_of!(ImageFooter, header_checksum) == 32 && offset_of!(ImageFooter, present_pages) == 40);
    assert!(offset_of!(ImageFooter, page_count) == 48 && offset_of!(ImageFooter, region_count) == 52);
    assert!(offset_of!(ImageFooter, version) == 56 && offset_of!(ImageFooter, unused) == 60);
    assert!(size_of::<StoredRegion>() == 16 && offset_of!(StoredRegion, stored_bytes) == 4);
    assert!(offset_of!(StoredRegion, checksum) == 8 && offset_of!(ImageFooter, checksum) == 4080);
    assert!(offset_of!(ImageFooter, end_magic) == 4088);
    assert!(PAGE_SIZE == 4096 && REGION_SIZE == 2 << 20 && PAGES_PER_REGION == 512);
};

/// Checksum of header, table and footer.
pub fn checksum(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// What a page adds to the checksum of its region. Sums don't depend on the order; the page number as seed makes them
/// depend on the place.
#[inline]
pub fn page_sum(page: u32, bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(u64::from(page), bytes)
}

impl ImageHeader {
    /// The header of an image of `page_count` pages.
    pub fn new(meta: &ImageMeta, page_count: u32) -> Self {
        let mut header = Self {
            magic: MAGIC,
            version: if meta.chained { VERSION_CHAINED } else { VERSION }.into(),
            page_bytes: (PAGE_SIZE as u32).into(),
            region_bytes: (REGION_SIZE as u32).into(),
            flags: 0.into(),
            epoch: meta.epoch.into(),
            created_unix_ms: meta.created_unix_ms.into(),
            root: meta.root.into(),
            page_count: page_count.into(),
            data_offset: DATA_OFFSET.into(),
            history: meta.history.into(),
            note: meta.note,
            replaced: [0.into(); 128],
            unused: [0; 2936],
            checksum: 0.into(),
        };
        header.checksum = header.own_checksum().into();
        header
    }

    /// The same for an image that has replaced the deltas with these fingerprints, of which it takes the first [`MAX_REPLACED`].
    pub fn replacing(mut self, fingerprints: &[u64]) -> Self {
        self.replaced.iter_mut().zip(fingerprints).for_each(|(place, &fingerprint)| *place = fingerprint.into());
        self.checksum = self.own_checksum().into();
        self
    }

    /// Whether the image has replaced the delta with this fingerprint.
    pub fn has_replaced(&self, fingerprint: u64) -> bool {
        fingerprint != 0 && self.replaced.iter().any(|replaced| replaced.get() == fingerprint)
    }

    /// The same for an image whose regions may be compressed.
    pub fn compressed(mut self) -> Self {
        self.version = VERSION_COMPRESSED.into();
        self.checksum = self.own_checksum().into();
        self
    }

    /// Whether regions may be compressed.
    pub fn is_compressed(&self) -> bool {
        self.version.get() == VERSION_COMPRESSED
    }

    /// Where everything lies in the image.
    pub fn layout(&self) -> ImageLayout {
        let layout = ImageLayout::new(self.page_count.get());
        if self.is_compressed() { layout.compressed() } else { layout }
    }

    /// What [`ImageHeader::checksum`] should be.
    pub fn own_checksum(&self) -> u64 {
        checksum(&self.as_bytes()[..std::mem::offset_of!(Self, checksum)])
    }

    /// Whether [`ImageHeader::checksum`] is what it should be.
    pub fn is_sound(&self) -> bool {
        self.checksum.get() == self.own_checksum()
    }

    /// What the writer said.
    pub fn meta(&self) -> ImageMeta {
        ImageMeta {
            epoch: self.epoch.get(),
            created_unix_ms: self.created_unix_ms.get(),
            root: self.root.get(),
            note: self.note,
            history: self.history.get(),
            chained: self.version.get() >= VERSION_CHAINED,
        }
    }

    /// Whether this program reads images of this version.
    pub fn is_known_version(&self) -> bool {
        (VERSION..=VERSION_COMPRESSED).contains(&self.version.get())
    }
}

impl ImageFooter {
    /// What tells this image from every other link of a chain.
    pub fn id(&self) -> LinkId {
        LinkId { epoch: self.epoch.get(), checksum: self.checksum.get() }
    }

    /// The footer that goes with `header` and a table.
    pub fn new(header: &ImageHeader, table: &[u8], present_pages: u64) -> Self {
        let layout = header.layout();
        let mut footer = Self {
            table_offset: layout.table_offset().into(),
            table_bytes: (table.len() as u64).into(),
            table_checksum: checksum(table).into(),
            epoch: header.epoch,
            header_checksum: header.checksum,
            present_pages: present_pages.into(),
            page_count: header.page_count,
            region_count: layout.region_count().into(),
            version: if header.is_compressed() { VERSION_COMPRESSED } else { 0 }.into(),
            unused: [0; 4020],
            checksum: 0.into(),
            end_magic: END_MAGIC,
        };
        footer.checksum = footer.own_checksum().into();
        footer
    }

    /// Where everything lies in the image, as far as the footer can tell.
    pub fn layout(&self) -> ImageLayout {
        let layout = ImageLayout::new(self.page_count.get());
        if self.is_compressed() { layout.compressed() } else { layout }
    }

    /// Whether regions may be compressed.
    pub fn is_compressed(&self) -> bool {
        self.version.get() == VERSION_COMPRESSED
    }

    /// What [`ImageFooter::checksum`] should be.
    pub fn own_checksum(&self) -> u64 {
        checksum(&self.as_bytes()[..std::mem::offset_of!(Self, checksum)])
    }
}

/// Where everything lies in an image of so many pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageLayout {
    page_count: u32,
    /// The table says of each region how it is stored.
    is_compressed: bool,
}

impl ImageLayout {
    /// The layout for `page_count` pages, as they are.
    pub fn new(page_count: u32) -> Self {
        Self { page_count, is_compressed: false }
    }

    /// The same if regions may be compressed.
    pub fn compressed(self) -> Self {
        Self { is_compressed: true, ..self }
    }

    /// Whether regions may be compressed.
    pub fn is_compressed(self) -> bool {
        self.is_compressed
    }

    /// Pages, absent ones counted.
    pub fn page_count(self) -> u32 {
        self.page_count
    }

    /// Regions, the last one perhaps not full.
    pub fn region_count(self) -> u32 {
        self.page_count.div_ceil(PAGES_PER_REGION as u32)
    }

    /// Bytes of all pages.
    pub fn data_bytes(self) -> u64 {
        u64::from(self.page_count) * PAGE_BYTES
    }

    /// Offset of a page in the file.
    pub fn page_offset(self, page: u32) -> u64 {
        DATA_OFFSET + u64::from(page) * PAGE_BYTES
    }

    /// Pages of `region`.
    pub fn pages_of(self, region: u32) -> std::ops::Range<u32> {
        let start = region.saturating_mul(PAGES_PER_REGION as u32).min(self.page_count);
        start..start.saturating_add(PAGES_PER_REGION as u32).min(self.page_count)
    }

    /// 64-bit words of present bits.
    pub fn present_words(self) -> usize {
        self.page_count.div_ceil(64) as usize
    }

    /// Offset of the table.
    pub fn table_offset(self) -> u64 {
        DATA_OFFSET + self.data_bytes()
    }

    /// Bytes of the table, a multiple of a page.
    pub fn table_bytes(self) -> usize {
        let stored = if self.is_compressed { self.region_count() as usize * size_of::<StoredRegion>() } else { 0 };
        ((self.present_words() + self.region_count() as usize) * 8 + stored).next_multiple_of(PAGE_SIZE)
    }

    /// Offset of the footer.
    pub fn footer_offset(self) -> u64 {
        self.table_offset() + self.table_bytes() as u64
    }

    /// Bytes of the file.
    pub fn file_bytes(self) -> u64 {
        self.footer_offset() + PAGE_BYTES
    }

    /// The part that byte `offset` belongs to.
    pub fn part_at(self, offset: u64) -> ImagePart {
        match offset {
            _ if offset < PAGE_BYTES => ImagePart::Header,
            _ if offset < DATA_OFFSET => ImagePart::Gap,
            _ if offset < self.table_offset() => {
                ImagePart::Region(((offset - DATA_OFFSET) / REGION_SIZE as u64) as u32)
            }
            _ if offset < self.footer_offset() => ImagePart::Table,
            _ => ImagePart::Footer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other_without_gaps() {
        for pages in [0, 1, 63, 64, 65, 511, 512, 513, 40_000, MAX_PAGES] {
            let layout = ImageLayout::new(pages);
            assert_eq!(layout.page_offset(pages), layout.table_offset());
            assert_eq!(
                layout.part_at(layout.table_offset().wrapping_sub(1)),
                match pages {
                    0 => ImagePart::Gap,
                    _ => ImagePart::Region(layout.region_count() - 1),
                }
            );
            assert_eq!(layout.part_at(layout.footer_offset()), ImagePart::Footer);
            let covered: u64 = (0..layout.region_count()).map(|region| layout.pages_of(region).len() as u64).sum();
            assert_eq!(covered, u64::from(pages));
        }
    }

    #[test]
    fn the_same_page_elsewhere_has_another_sum() {
        let page = [7; PAGE_SIZE];
        assert_ne!(page_sum(1, &page), page_sum(2, &page));
    }
}
