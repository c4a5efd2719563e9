//! The heap: the arena, with allocation that first frees what waits to be freed, and objects for what an entry has no
//! room for.
//!
//! Knows no keys: what a retired structure consists of is known by the [`FreeStep`] that the heap is made with.

pub(crate) mod reclaim;

use quire_arena::{Arena, Handle};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::{Result, StoreError};
use crate::heap::reclaim::{FreeStep, Reclaim, ReclaimRoot};

/// Objects freed at a time when memory is short and structures wait to be freed.
const RECLAIM_STEP: usize = 1024;

/// Names bytes in an object of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct External {
    pub(crate) object: Handle,
    /// A value's capacity, a key's length.
    pub(crate) size: u32,
}

const _: () = assert!(size_of::<External>() == External::BYTES);

impl External {
    /// Bytes of the reference itself.
    pub(crate) const BYTES: usize = 8;

    pub(crate) fn read(arena: &Arena, object: Handle, offset: usize) -> Result<External> {
        External::read_from_bytes(arena.bytes(object, offset, Self::BYTES)?)
            .map_err(|_| StoreError::damaged("a reference cut short"))
    }
}

/// The arena and what in it waits to be freed.
#[derive(Debug)]
pub(crate) struct Heap {
    pub(crate) arena: Arena,
    pub(crate) reclaim: Reclaim,
}

impl Heap {
    /// `free_step` takes the structures apart that `root` lists, which lies at `root_at`, and those that are retired later.
    pub(crate) fn new(arena: Arena, root: ReclaimRoot, root_at: (Handle, usize), free_step: FreeStep) -> Heap {
        Heap { arena, reclaim: Reclaim::new(root, root_at, free_step) }
    }

    /// Space in the arena; if there is none, what waits to be freed is freed first.
    pub(crate) fn alloc(&mut self, bytes: usize) -> Result<Handle> {
        self.with_room(|arena| Ok(arena.alloc(bytes)?))
    }

    /// Does `grow`, again and again as long as there is no memory for it and something waits to be freed. What `grow` tries
    /// must leave nothing behind when it fails.
    pub(crate) fn with_room<T>(&mut self, mut grow: impl FnMut(&mut Arena) -> Result<T>) -> Result<T> {
        loop {
            match grow(&mut self.arena) {
                Err(error @ StoreError::OutOfMemory { .. }) => {
                    if self.free_step(RECLAIM_STEP)? == 0 {
                        return Err(error);
                    }
                }
                done => return done,
            }
        }
    }

    /// An object for bytes that an entry has no room for.
    pub(crate) fn allocate_external(&mut self, bytes: usize) -> Result<External> {
        let object = self.alloc(bytes)?;
        Ok(External { object, size: Arena::class_size(bytes) as u32 })
    }
}
