//! The arena's first page: what it is, how far it reaches, and the heads of the allocator's lists.

use quire_snapshot::PAGE_SIZE;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::classes::CLASSES;
use crate::handle::{Handle, NARROW_BYTES};

/// First bytes of every arena.
pub(crate) const MAGIC: [u8; 8] = *b"QUIREARN";
/// Version of the layout of superblock, descriptors and slabs.
pub(crate) const VERSION: u32 = 1;
/// The same layout, of an arena that has reached further than handles of 32 bits do: a program that knows no others must not take
/// it for one whose handles it can read.
pub(crate) const VERSION_WIDE: u32 = 2;
/// Pages of which the handles of all objects have 32 bits.
pub(crate) const NARROW_PAGES: u32 = (NARROW_BYTES / PAGE_SIZE as u64) as u32;
/// Lists of free runs by length.
pub(crate) const BINS: usize = 96;

/// The superblock.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Superblock {
    pub(crate) magic: [u8; 8],
    pub(crate) version: u32,
    /// The owner's root object, the lower bits of its handle.
    root_low: u32,
    /// Pages from the base that the allocator has laid out.
    pub(crate) page_count: u32,
    /// Pages in free runs.
    pub(crate) free_pages: u32,
    /// Bytes of slots and large objects in use.
    pub(crate) allocated_bytes: u64,
    /// Objects in use.
    pub(crate) objects: u64,
    /// Bit *n*: bin *n* has a run.
    pub(crate) bins_used: [u64; 2],
    /// First page of the first free run of each bin, 0 for none.
    pub(crate) bins: [u32; BINS],
    /// First page of the first slab with free slots of each class, 0 for none.
    pub(crate) partial: [u32; CLASSES],
    /// The upper bits of the root's handle.
    root_high: u32,
    unused: u32,
}

impl Superblock {
    /// The owner's root object.
    pub(crate) fn root(&self) -> Handle {
        Handle::from_parts(self.root_low, self.root_high as u8)
    }

    pub(crate) fn set_root(&mut self, root: Handle) {
        (self.root_low, self.root_high) = (root.low(), root.high().into());
    }

    /// Pages from the base are laid out, up to this one.
    pub(crate) fn reach(&mut self, page_count: u32) {
        self.page_count = page_count;
        if page_count > NARROW_PAGES {
            self.version = VERSION_WIDE;
        }
    }
}

// It lies where the descriptors of the metadata pages of chunk 0 would be.
const _: () = assert!(size_of::<Superblock>() <= PAGE_SIZE && align_of::<Superblock>() <= 16);
