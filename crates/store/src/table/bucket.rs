//! A bucket of the table: ten items on one cache line.
//!
//! Plain data in the arena. Items lie at the front without gaps; only the last bucket of a chain may have room.

use quire_arena::Handle;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Items that fit into one bucket.
pub(crate) const SLOTS: usize = 10;
/// Bytes of a bucket: one cache line.
pub(crate) const BUCKET_BYTES: usize = 64;

/// One cache line of items.
#[derive(Clone, Copy, Debug, Default, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Bucket {
    pub(crate) items: [Handle; SLOTS],
    /// The bucket that continues the chain, or null.
    pub(crate) overflow: Handle,
    /// Top bits of each item's hash, never 0; 0 marks a free slot.
    pub(crate) tags: [u16; SLOTS],
}

const _: () = assert!(size_of::<Bucket>() == BUCKET_BYTES);

impl Bucket {
    /// Bit `i` is set if slot `i` is in use and has this tag.
    #[inline]
    pub(crate) fn matches(&self, tag: u16) -> u32 {
        let mut mask = 0;
        for (slot, &other) in self.tags.iter().enumerate() {
            mask |= u32::from(other == tag) << slot;
        }
        mask
    }

    /// Slots in use.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.tags.iter().position(|&tag| tag == 0).unwrap_or(SLOTS)
    }

    /// The items in use, with their tags.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, Handle)> + '_ {
        self.tags.iter().copied().zip(self.items).take(self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_finds_every_slot_that_has_it() {
        let bucket = Bucket { tags: [7, 9, 7, 1, 0, 0, 0, 0, 0, 0], ..Bucket::default() };
        assert_eq!(bucket.matches(7), 0b101);
        assert_eq!(bucket.matches(9), 0b10);
        assert_eq!(bucket.matches(3), 0);
        assert_eq!(bucket.len(), 4);
        assert_eq!(bucket.iter().count(), 4);
    }
}
