//! The heap: the arena, with allocation that first frees what waits to be freed, and objects for what an entry has no
//! room for.
//!
//! Knows no keys: what a retired structure consists of is known by the [`FreeStep`] that the heap is made with.

pub(crate) mod reclaim;

use quire_arena::{ALIGNED_MIN, Arena, Handle};

use crate::error::{Result, StoreError};
use crate::heap::reclaim::{FreeStep, Reclaim, ReclaimRoot};

/// Objects freed at a time when memory is short and structures wait to be freed.
const RECLAIM_STEP: usize = 1024;

/// In the place of the size: the handle before it is an [aligned](Handle::to_aligned) one. No size has this bit.
const ALIGNED: u32 = 1 << 31;

/// Names bytes in an object of their own. In the arena it lies as the handle's lower 32 bits and the size.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct External {
    pub(crate) object: Handle,
    /// A value's capacity, a key's length.
    pub(crate) size: u32,
}

impl External {
    /// Bytes of the reference itself.
    pub(crate) const BYTES: usize = 8;

    pub(crate) fn read(arena: &Arena, object: Handle, offset: usize) -> Result<External> {
        let words = arena.bytes(object, offset, Self::BYTES)?.first_chunk();
        words.copied().map(External::from_bytes).ok_or_else(|| StoreError::damaged("a reference cut short"))
    }

    #[inline]
    pub(crate) fn from_bytes(bytes: [u8; Self::BYTES]) -> External {
        let both = u64::from_ne_bytes(bytes);
        let (bits, size) = (both as u32, (both >> 32) as u32);
        let is_aligned = size & ALIGNED != 0;
        let object = if is_aligned { Handle::from_aligned(bits) } else { Handle::from_parts(bits, 0) };
        External { object, size: size & !ALIGNED }
    }

    #[inline]
    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let (bits, mark) = match self.object.is_narrow() {
            true => (self.object.low(), 0),
            false => (self.object.to_aligned().expect("`Heap::alloc_external` has made it"), ALIGNED),
        };
        (u64::from(self.size | mark) << 32 | u64::from(bits)).to_ne_bytes()
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

    /// Space whose handle an [`External`] can hold: larger than asked for if that is small and lies beyond 64 GiB.
    pub(crate) fn alloc_external(&mut self, bytes: usize) -> Result<Handle> {
        let object = self.alloc(bytes)?;
        if object.is_narrow() || object.is_aligned() {
            return Ok(object);
        }
        self.arena.free(object)?;
        self.alloc(bytes.max(ALIGNED_MIN))
    }

    /// An object for bytes that an entry has no room for.
    pub(crate) fn allocate_external(&mut self, bytes: usize) -> Result<External> {
        let object = self.alloc_external(bytes)?;
        Ok(External { object, size: Arena::class_size(bytes) as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_read_as_it_was_written() {
        for (raw, size) in [(0, 0), (5, 300), (0xffff_ffff, 1 << 29), (0xf_ffff_fff0, 1 << 29), (1 << 32, 17_000)] {
            let reference = External { object: Handle::from_raw(raw), size };
            assert_eq!(External::from_bytes(reference.to_bytes()), reference);
        }
    }

    #[test]
    fn a_reference_to_less_than_64_gib_has_the_bytes_it_always_had() {
        let reference = External { object: Handle::from_raw(0x0102_0304), size: 0x0506 };
        assert_eq!(reference.to_bytes(), [4, 3, 2, 1, 6, 5, 0, 0]);
    }
}
