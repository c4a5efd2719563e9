//! The bytes of a delta; `docs/format.md` is the same in words.
//!
//! ```text
//! 0               header, 4096 bytes
//! 4096            data: the changed pages in rising order, one behind the other; those without content are holes
//! 4096 * (1 + n)  table: 16 bytes for each of the n changed pages, in version 2 as many for each region that has such, zeros up to
//!                 a multiple of 4096
//! …               footer, 4096 bytes, the last of the file
//! ```
//! Relies on the same checksums as [`crate::format`].

use std::hash::Hasher;

use quire_snapshot::{PAGE_SIZE, PAGES_PER_REGION};
use twox_hash::XxHash3_64;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::ImagePart;
use crate::format::{END_MAGIC, ImageMeta, LinkId, StoredRegion, checksum};

/// First bytes of a delta.
pub const MAGIC: [u8; 8] = *b"QUIREDLT";
/// Version of the format of deltas. Any change raises it beyond [`VERSION_COMPRESSED`].
pub const VERSION: u32 = 1;
/// Version of a delta whose regions may be compressed.
pub const VERSION_COMPRESSED: u32 = 2;

const PAGE_BYTES: u64 = PAGE_SIZE as u64;

/// The first page.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DeltaHeader {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`] or [`VERSION_COMPRESSED`].
    pub version: U32,
    /// Bytes of a page.
    pub page_bytes: U32,
    /// Zero.
    pub flags: U32,
    /// Pages of the memory, absent ones counted.
    pub page_count: U32,
    /// [`ImageMeta::epoch`].
    pub epoch: U64,
    /// [`ImageMeta::created_unix_ms`].
    pub created_unix_ms: U64,
    /// [`ImageMeta::history`].
    pub history: U64,
    /// The link that this one is over.
    pub base: BaseLink,
    /// [`ImageMeta::root`].
    pub root: U32,
    /// Pages that have changed, those that have lost their content counted.
    pub changed_pages: U32,
    /// [`ImageMeta::note`].
    pub note: [u8; 64],
    /// Regions that have changed pages; zero in version 1.
    pub changed_regions: U32,
    /// Zero.
    pub unused: [u8; 3948],
    /// XXH3 of all bytes before.
    pub checksum: U64,
}

/// How a delta names the link that it is over.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BaseLink {
    /// Its epoch.
    pub epoch: U64,
    /// The checksum of its footer.
    pub checksum: U64,
}

/// What the table says of a page.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DeltaEntry {
    /// Its number.
    pub page: U32,
    /// 1 if it has content, else 0.
    pub present: U32,
    /// Its checksum as [`crate::format::page_sum`] has it; 0 without content.
    pub sum: U64,
}

/// The last page.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DeltaFooter {
    /// Where the table starts.
    pub table_offset: U64,
    /// Bytes of the table.
    pub table_bytes: U64,
    /// XXH3 of the table's entries, with those of regions.
    pub table_checksum: U64,
    /// The header's epoch again.
    pub epoch: U64,
    /// The header's checksum again.
    pub header_checksum: U64,
    /// Pages with content in the delta.
    pub present_pages: U64,
    /// Zero.
    pub unused: [u8; 4032],
    /// XXH3 of all bytes before.
    pub checksum: U64,
    /// The mark at the end, as an image has it.
    pub end_magic: [u8; 8],
}

// The layout in docs/format.md, held fast.
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<DeltaHeader>() == PAGE_SIZE && size_of::<DeltaFooter>() == PAGE_SIZE);
    assert!(size_of::<DeltaEntry>() == 16);
    assert!(offset_of!(DeltaHeader, version) == 8 && offset_of!(DeltaHeader, page_bytes) == 12);
    assert!(offset_of!(DeltaHeader, flags) == 16 && offset_of!(DeltaHeader, page_count) == 20);
    assert!(offset_of!(DeltaHeader, epoch) == 24 && offset_of!(DeltaHeader, created_unix_ms) == 32);
    assert!(offset_of!(DeltaHeader, history) == 40 && offset_of!(DeltaHeader, base) == 48);
    assert!(offset_of!(BaseLink, checksum) == 8 && offset_of!(DeltaHeader, root) == 64);
    assert!(offset_of!(DeltaHeader, changed_pages) == 68 && offset_of!(DeltaHeader, note) == 72);
    assert!(offset_of!(DeltaHeader, changed_regions) == 136 && offset_of!(DeltaHeader, unused) == 140);
    assert!(offset_of!(DeltaHeader, checksum) == 4088);
    assert!(offset_of!(DeltaFooter, table_bytes) == 8 && offset_of!(DeltaFooter, table_checksum) == 16);
    assert!(offset_of!(DeltaFooter, epoch) == 24 && offset_of!(DeltaFooter, header_checksum) == 32);
    assert!(offset_of!(DeltaFooter, present_pages) == 40 && offset_of!(DeltaFooter, unused) == 48);
    assert!(offset_of!(DeltaFooter, checksum) == 4080 && offset_of!(DeltaFooter, end_magic) == 4088);
};

impl DeltaHeader {
    /// The header of a delta of `changed_pages` pages over `base`, in a memory of `page_count`.
    pub fn new(meta: &ImageMeta, base: LinkId, page_count: u32, changed_pages: u32) -> Self {
        let mut header = Self {
            magic: MAGIC,
            version: VERSION.into(),
            page_bytes: (PAGE_SIZE as u32).into(),
            flags: 0.into(),
            page_count: page_count.into(),
            epoch: meta.epoch.into(),
            created_unix_ms: meta.created_unix_ms.into(),
            history: meta.history.into(),
            base: BaseLink { epoch: base.epoch.into(), checksum: base.checksum.into() },
            root: meta.root.into(),
            changed_pages: changed_pages.into(),
            note: meta.note,
            changed_regions: 0.into(),
            unused: [0; 3948],
            checksum: 0.into(),
        };
        header.checksum = header.own_checksum().into();
        header
    }

    /// The same for a delta whose regions, so many of which have changed pages, may be compressed.
    pub fn compressed(mut self, changed_regions: u32) -> Self {
        self.version = VERSION_COMPRESSED.into();
        self.changed_regions = changed_regions.into();
        self.checksum = self.own_checksum().into();
        self
    }

    /// Whether regions may be compressed.
    pub fn is_compressed(&self) -> bool {
        self.version.get() == VERSION_COMPRESSED
    }

    /// Where everything lies in the delta.
    pub fn layout(&self) -> DeltaLayout {
        let changed_regions = if self.is_compressed() { self.changed_regions.get() } else { 0 };
        DeltaLayout::new(self.changed_pages.get()).with_regions(changed_regions)
    }

    /// What [`DeltaHeader::checksum`] should be.
    pub fn own_checksum(&self) -> u64 {
        checksum(&self.as_bytes()[..std::mem::offset_of!(Self, checksum)])
    }

    /// Whether [`DeltaHeader::checksum`] is what it should be.
    pub fn is_sound(&self) -> bool {
        self.checksum.get() == self.own_checksum()
    }

    /// The link that this delta is over.
    pub fn base(&self) -> LinkId {
        LinkId { epoch: self.base.epoch.get(), checksum: self.base.checksum.get() }
    }
}

impl DeltaFooter {
    /// What tells this delta from every other link.
    pub fn id(&self) -> LinkId {
        LinkId { epoch: self.epoch.get(), checksum: self.checksum.get() }
    }

    /// The footer that goes with `header` and a table, whose part about regions is empty in version 1.
    pub fn new(header: &DeltaHeader, table: &[DeltaEntry], stored: &[StoredRegion]) -> Self {
        let layout = header.layout();
        let mut footer = Self {
            table_offset: layout.table_offset().into(),
            table_bytes: (layout.table_bytes() as u64).into(),
            table_checksum: table_checksum(table, stored).into(),
            epoch: header.epoch,
            header_checksum: header.checksum,
            present_pages: present_pages(table).into(),
            unused: [0; 4032],
            checksum: 0.into(),
            end_magic: END_MAGIC,
        };
        footer.checksum = footer.own_checksum().into();
        footer
    }

    /// What [`DeltaFooter::checksum`] should be.
    pub fn own_checksum(&self) -> u64 {
        checksum(&self.as_bytes()[..std::mem::offset_of!(Self, checksum)])
    }
}

/// Checksum of a table, without the zeros behind it.
pub fn table_checksum(table: &[DeltaEntry], stored: &[StoredRegion]) -> u64 {
    let mut hasher = XxHash3_64::with_seed(0);
    hasher.write(table.as_bytes());
    hasher.write(stored.as_bytes());
    hasher.finish()
}

/// Regions that the pages of a table are in, in rising order.
pub(crate) fn regions_of(table: &[DeltaEntry]) -> Vec<u32> {
    let mut regions: Vec<u32> = Vec::new();
    for region in table.iter().map(|entry| entry.page.get() / PAGES_PER_REGION as u32) {
        if regions.last() != Some(&region) {
            regions.push(region);
        }
    }
    regions
}

/// Ranks of the entries of a table in `region`.
pub(crate) fn ranks_in(table: &[DeltaEntry], region: u32) -> std::ops::Range<usize> {
    let before = |region: u64| {
        let page = region * PAGES_PER_REGION as u64;
        table.partition_point(|entry| u64::from(entry.page.get()) < page)
    };
    before(region.into())..before(u64::from(region) + 1)
}

/// Pages of a table that have content.
pub fn present_pages(table: &[DeltaEntry]) -> u64 {
    table.iter().filter(|entry| entry.present.get() != 0).count() as u64
}

/// Where everything lies in a delta of so many pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaLayout {
    changed_pages: u32,
    /// Regions that the table tells of how they are stored.
    regions: u32,
}

impl DeltaLayout {
    /// The layout for `changed_pages` pages.
    pub fn new(changed_pages: u32) -> Self {
        Self { changed_pages, regions: 0 }
    }

    /// The same if so many regions may be compressed.
    pub fn with_regions(self, regions: u32) -> Self {
        Self { regions, ..self }
    }

    /// Offset of the page that is `rank`-th among the changed ones.
    pub fn page_offset(self, rank: usize) -> u64 {
        PAGE_BYTES * (1 + rank as u64)
    }

    /// Offset of the table.
    pub fn table_offset(self) -> u64 {
        self.page_offset(self.changed_pages as usize)
    }

    /// Bytes of the table, a multiple of a page.
    pub fn table_bytes(self) -> usize {
        self.table_used_bytes().next_multiple_of(PAGE_SIZE)
    }

    /// The same without the zeros at its end.
    pub fn table_used_bytes(self) -> usize {
        self.changed_pages as usize * size_of::<DeltaEntry>() + self.regions as usize * size_of::<StoredRegion>()
    }

    /// Offset of the footer.
    pub fn footer_offset(self) -> u64 {
        self.table_offset() + self.table_bytes() as u64
    }

    /// Bytes of the file.
    pub fn file_bytes(self) -> u64 {
        self.footer_offset() + PAGE_BYTES
    }

    /// The part that byte `offset` belongs to; of the data no page is named.
    pub fn part_at(self, offset: u64) -> ImagePart {
        match offset {
            _ if offset < PAGE_BYTES => ImagePart::Header,
            _ if offset < self.table_offset() => ImagePart::Data,
            _ if offset < self.footer_offset() => ImagePart::Table,
            _ => ImagePart::Footer,
        }
    }
}
