//! What the allocator knows of each page: 16 bytes, in the first pages of the chunk that the page belongs to.
//!
//! ```text
//! 0  kind     none · free run's first page · its last page · slab's first page · later page of a slab · large object
//! 1  class    slabs: size class
//! 2  used     slabs: slots in use; later pages of a slab: distance from the first
//! 4  len      runs, large objects: pages; slabs: free-list head (u16, slot + 1) and first never-used slot (u16)
//! 8  prev     lists: page before, 0 for none
//! 12 next     lists: page after, 0 for none
//! ```

use quire_snapshot::PAGE_SIZE;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Pages of a chunk (1 GiB).
pub(crate) const CHUNK_PAGES: u32 = 1 << 18;
/// Pages at the start of each chunk that hold its descriptors.
pub(crate) const META_PAGES: u32 = (CHUNK_PAGES as usize * size_of::<PageDescriptor>() / PAGE_SIZE) as u32;
/// Most pages of a run: what is left of a chunk.
pub(crate) const RUN_MAX_PAGES: u32 = CHUNK_PAGES - META_PAGES;

/// The page has no role of its own.
pub(crate) const NONE: u8 = 0;
/// First page of a free run.
pub(crate) const FREE_HEAD: u8 = 1;
/// Last page of a free run of two pages or more.
pub(crate) const FREE_TAIL: u8 = 2;
/// First page of a slab.
pub(crate) const SLAB_HEAD: u8 = 3;
/// Later page of a slab.
pub(crate) const SLAB_BODY: u8 = 4;
/// First page of a large object.
pub(crate) const LARGE: u8 = 5;

/// The descriptor of one page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct PageDescriptor {
    pub(crate) kind: u8,
    pub(crate) class: u8,
    pub(crate) used: u16,
    pub(crate) len: u32,
    pub(crate) prev: u32,
    pub(crate) next: u32,
}

const _: () = assert!(size_of::<PageDescriptor>() == 16 && META_PAGES == 1024);

impl PageDescriptor {
    /// Slabs: head of the list of freed slots, as slot + 1.
    pub(crate) fn free_head(&self) -> u16 {
        self.len as u16
    }

    /// Slabs: the first slot that was never used.
    pub(crate) fn bump(&self) -> u16 {
        (self.len >> 16) as u16
    }

    pub(crate) fn set_slots(&mut self, free_head: u16, bump: u16) {
        self.len = u32::from(bump) << 16 | u32::from(free_head);
    }
}

/// Where the descriptor of `page` lies, in bytes from the arena's base.
#[inline]
pub(crate) const fn descriptor_offset(page: u32) -> usize {
    (page / CHUNK_PAGES) as usize * (CHUNK_PAGES as usize * PAGE_SIZE)
        + (page % CHUNK_PAGES) as usize * size_of::<PageDescriptor>()
}
