//! The bytes of a delta; `docs/format.md` is the same in words.
//!
//! ```text
//! 0               header, 4096 bytes
//! 4096            data: the changed pages in rising order, one behind the other; those without content are holes
//! 4096 * (1 + n)  table: 16 bytes for each of the n changed pages, zeros up to a multiple of 4096
//! …               footer, 4096 bytes, the last of the file
//! ```
//! Relies on the same checksums as [`crate::format`].

use quire_snapshot::PAGE_SIZE;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::ImagePart;
use crate::format::{END_MAGIC, ImageMeta, LinkId, checksum};

/// First bytes of a delta.
pub const MAGIC: [u8; 8] = *b"QUIREDLT";
/// Version of the format of deltas. Any change raises it.
pub const VERSION: u32 = 1;

const PAGE_BYTES: u64 = PAGE_SIZE as u64;

/// The first page.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DeltaHeader {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
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
    /// Epoch of the link that this one is over.
    pub base_epoch: U64,
    /// Checksum of that link's footer.
    pub base_checksum: U64,
    /// [`ImageMeta::root`].
    pub root: U32,
    /// Pages that have changed, those that have lost their content counted.
    pub changed_pages: U32,
    /// [`ImageMeta::note`].
    pub note: [u8; 64],
    /// Zero.
    pub unused: [u8; 3952],
    /// XXH3 of all bytes before.
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
    /// XXH3 of the table's entries.
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
    assert!(offset_of!(DeltaHeader, history) == 40 && offset_of!(DeltaHeader, base_epoch) == 48);
    assert!(offset_of!(DeltaHeader, base_checksum) == 56 && offset_of!(DeltaHeader, root) == 64);
    assert!(offset_of!(DeltaHeader, changed_pages) == 68 && offset_of!(DeltaHeader, note) == 72);
    assert!(offset_of!(DeltaHeader, unused) == 136 && offset_of!(DeltaHeader, checksum) == 4088);
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
            base_epoch: base.epoch.into(),
            base_checksum: base.checksum.into(),
            root: meta.root.into(),
            changed_pages: changed_pages.into(),
            note: meta.note,
            unused: [0; 3952],
            checksum: 0.into(),
        };
        header.checksum = header.own_checksum().into();
        header
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
        LinkId { epoch: self.base_epoch.get(), checksum: self.base_checksum.get() }
    }
}

impl DeltaFooter {
    /// What tells this delta from every other link.
    pub fn id(&self) -> LinkId {
        LinkId { epoch: self.epoch.get(), checksum: self.checksum.get() }
    }

    /// The footer that goes with `header` and a table.
    pub fn new(header: &DeltaHeader, table: &[DeltaEntry]) -> Self {
        let layout = DeltaLayout::new(header.changed_pages.get());
        let mut footer = Self {
            table_offset: layout.table_offset().into(),
            table_bytes: (layout.table_bytes() as u64).into(),
            table_checksum: checksum(table.as_bytes()).into(),
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

/// Pages of a table that have content.
pub fn present_pages(table: &[DeltaEntry]) -> u64 {
    table.iter().filter(|entry| entry.present.get() != 0).count() as u64
}

/// Where everything lies in a delta of so many pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaLayout {
    changed_pages: u32,
}

impl DeltaLayout {
    /// The layout for `changed_pages` pages.
    pub fn new(changed_pages: u32) -> Self {
        Self { changed_pages }
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
        (self.changed_pages as usize * size_of::<DeltaEntry>()).next_multiple_of(PAGE_SIZE)
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
