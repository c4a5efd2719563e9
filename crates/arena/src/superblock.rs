//! The arena's first page: what it is, how far it reaches, and the heads of the allocator's lists.

use quire_snapshot::PAGE_SIZE;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::classes::CLASSES;
use crate::handle::Handle;

/// First bytes of every arena.
pub(crate) const MAGIC: [u8; 8] = *b"QUIREARN";
/// Version of the layout of superblock, descriptors and slabs. Any change raises it.
pub(crate) const VERSION: u32 = 1;
/// Lists of free runs by length.
pub(crate) const BINS: usize = 96;

/// The superblock.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Superblock {
    pub(crate) magic: [u8; 8],
    pub(crate) version: u32,
    /// The owner's root object.
    pub(crate) root: Handle,
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
}

// It lies where the descriptors of the metadata pages of chunk 0 would be.
const _: () = assert!(size_of::<Superblock>() <= PAGE_SIZE && align_of::<Superblock>() <= 16);
