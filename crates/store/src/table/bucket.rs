//! A bucket of the table: ten items on one cache line.
//!
//! Plain data in the arena. Items lie at the front without gaps; only the last bucket of a chain may have room.
//!
//! ```text
//! 0   items: ten handles, their lower 32 bits
//! 40  overflow: the bucket that continues the chain, the lower 32 bits of its handle; bit 0 is set in a wide bucket
//! 44  ten words, 0 for a free slot
//!     narrow: the tag, 16 bits
//!     wide:   bits 0..11 the tag · bit 11 in the first four words: bit 32 + n of the overflow's handle · bits 12..16 of the item's
//! ```
//!
//! A bucket is narrow until it has to name something beyond 64 GiB, and narrow buckets are all that there are in an arena that reaches
//! no further. A tag only spares looks at items that are others: one of 11 bits is right in all but one of two thousand cases.

use quire_arena::Handle;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Items that fit into one bucket.
pub(crate) const SLOTS: usize = 10;
/// Bytes of a bucket: one cache line.
pub(crate) const BUCKET_BYTES: usize = 64;

/// In `overflow`, where the handle of an object of 64 bytes has a zero.
const WIDE: u32 = 1;
/// The tag in a word of a wide bucket.
const SHORT_MASK: u16 = (1 << 11) - 1;
/// A bit of the overflow's handle in a word of a wide bucket.
const LINK_BIT: u16 = 1 << 11;
/// How many words have such a bit.
const LINK_WORDS: usize = 4;
/// Where the upper bits of an item's handle begin in a word of a wide bucket.
const HIGH_SHIFT: u32 = 12;

/// What of an item's hash stands in its bucket: 16 bits, or the lower 11 of them if that is all that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    bits: u16,
    is_short: bool,
}

impl Tag {
    /// Of 16 bits; 0 counts as 1.
    #[inline]
    pub(crate) const fn of(bits: u16) -> Tag {
        Tag { bits: if bits == 0 { 1 } else { bits }, is_short: false }
    }

    /// As a wide bucket has it.
    #[inline]
    fn short(self) -> u16 {
        (self.bits & SHORT_MASK).max(1)
    }

    /// Whether both may be the tag of one item.
    pub(crate) fn agrees(self, other: Tag) -> bool {
        if self.is_short || other.is_short { self.short() == other.short() } else { self.bits == other.bits }
    }
}

/// One cache line of items.
#[derive(Clone, Copy, Debug, Default, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Bucket {
    items: [u32; SLOTS],
    overflow: u32,
    words: [u16; SLOTS],
}

const _: () = assert!(size_of::<Bucket>() == BUCKET_BYTES);

impl Bucket {
    #[inline]
    fn is_wide(&self) -> bool {
        self.overflow & WIDE != 0
    }

    /// What of a word is the tag.
    #[inline]
    fn tag_mask(&self) -> u16 {
        if self.is_wide() { SHORT_MASK } else { u16::MAX }
    }

    /// Bit `i` is set if slot `i` is in use and has this tag.
    #[inline]
    pub(crate) fn matches(&self, tag: Tag) -> u32 {
        if self.is_wide() {
            return self.matches_short(tag.short());
        }
        let mut mask = 0;
        for (slot, &word) in self.words.iter().enumerate() {
            mask |= u32::from(word == tag.bits) << slot;
        }
        mask
    }

    /// [`Bucket::matches`] of a wide bucket. Apart from that of a narrow one, which the processor does for all slots at once.
    fn matches_short(&self, tag: u16) -> u32 {
        let mut mask = 0;
        for (slot, &word) in self.words.iter().enumerate() {
            mask |= u32::from(word & SHORT_MASK == tag) << slot;
        }
        mask
    }

    /// Slots in use.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        if self.is_wide() {
            return self.words.iter().position(|&word| word & SHORT_MASK == 0).unwrap_or(SLOTS);
        }
        self.words.iter().position(|&word| word == 0).unwrap_or(SLOTS)
    }

    /// The item in a slot.
    #[inline]
    pub(crate) fn item(&self, slot: usize) -> Handle {
        let high = if self.is_wide() { (self.words[slot] >> HIGH_SHIFT) as u8 } else { 0 };
        Handle::from_parts(self.items[slot], high)
    }

    /// The tag in a slot.
    #[inline]
    pub(crate) fn tag(&self, slot: usize) -> Tag {
        Tag { bits: self.words[slot] & self.tag_mask(), is_short: self.is_wide() }
    }

    /// The items in use, with their tags.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Tag, Handle)> + '_ {
        (0..self.len()).map(move |slot| (self.tag(slot), self.item(slot)))
    }

    /// Puts an item with its tag into a slot.
    #[inline]
    pub(crate) fn set(&mut self, slot: usize, tag: Tag, item: Handle) {
        if !self.is_wide() && (tag.is_short || !item.is_narrow()) {
            self.widen();
        }
        self.items[slot] = item.low();
        self.words[slot] = match self.is_wide() {
            false => tag.bits,
            true => self.words[slot] & LINK_BIT | u16::from(item.high()) << HIGH_SHIFT | tag.short(),
        };
    }

    /// Makes a slot free.
    pub(crate) fn clear(&mut self, slot: usize) {
        self.items[slot] = 0;
        self.words[slot] &= if self.is_wide() { LINK_BIT } else { 0 };
    }

    /// The bucket that continues the chain, or null.
    #[inline]
    pub(crate) fn overflow(&self) -> Handle {
        if !self.is_wide() {
            return Handle::from_parts(self.overflow, 0);
        }
        let bits = self.words[..LINK_WORDS].iter().enumerate();
        let high = bits.fold(0, |high, (bit, &word)| high | u8::from(word & LINK_BIT != 0) << bit);
        Handle::from_parts(self.overflow & !WIDE, high)
    }

    /// Says which bucket continues the chain; null if none does.
    pub(crate) fn set_overflow(&mut self, bucket: Handle) {
        if !bucket.is_narrow() {
            self.widen();
        }
        if !self.is_wide() {
            self.overflow = bucket.low();
            return;
        }
        self.overflow = bucket.low() | WIDE;
        for (bit, word) in self.words[..LINK_WORDS].iter_mut().enumerate() {
            let link = if bucket.high() >> bit & 1 == 1 { LINK_BIT } else { 0 };
            *word = *word & !LINK_BIT | link;
        }
    }

    /// Makes it a wide bucket; the upper bits of its handles are zero.
    #[cold]
    fn widen(&mut self) {
        if !self.is_wide() {
            for slot in 0..self.len() {
                self.words[slot] = self.tag(slot).short();
            }
            self.overflow |= WIDE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_tag_finds_every_slot_that_has_it() {
        let mut bucket = Bucket::default();
        for (slot, tag) in [7, 9, 7, 1].into_iter().enumerate() {
            bucket.set(slot, Tag::of(tag), Handle::from_raw(slot as u64 + 1));
        }
        assert_eq!(bucket.matches(Tag::of(7)), 0b101);
        assert_eq!(bucket.matches(Tag::of(9)), 0b10);
        assert_eq!(bucket.matches(Tag::of(3)), 0);
        assert_eq!(bucket.len(), 4);
        assert_eq!(bucket.iter().count(), 4);
    }

    #[test]
    fn a_bucket_that_names_nothing_beyond_64_gib_has_the_bytes_it_always_had() {
        let mut bucket = Bucket::default();
        bucket.set(0, Tag::of(0xabcd), Handle::from_raw(0x0102_0304));
        bucket.set(1, Tag::of(0), Handle::from_raw(0xffff_ffff));
        bucket.set_overflow(Handle::from_raw(0xffff_fffc));
        let mut bytes = [0; BUCKET_BYTES];
        bytes[..8].copy_from_slice(&[4, 3, 2, 1, 0xff, 0xff, 0xff, 0xff]);
        bytes[40..48].copy_from_slice(&[0xfc, 0xff, 0xff, 0xff, 0xcd, 0xab, 1, 0]);
        assert_eq!(bucket.as_bytes(), bytes);
    }

    fn handle() -> impl Strategy<Value = Handle> {
        prop_oneof![2 => 1u64..1 << 32, 1 => 1u64..1 << 36].prop_map(Handle::from_raw)
    }

    proptest! {
        #[test]
        fn a_bucket_has_what_was_put_into_it(
            items in prop::collection::vec((any::<u16>(), handle()), 0..=SLOTS),
            replaced in prop::collection::vec((0usize..SLOTS, handle()), 0..4),
            link in prop_oneof![Just(0u64), 1u64..1 << 30, 1u64..1 << 34],
        ) {
            let (mut bucket, mut items) = (Bucket::default(), items);
            for (slot, &(tag, item)) in items.iter().enumerate() {
                bucket.set(slot, Tag::of(tag), item);
            }
            // Only a full bucket has another one behind it.
            let link = Handle::from_raw(if items.len() == SLOTS { link * 4 } else { 0 });
            bucket.set_overflow(link);
            for (slot, item) in replaced {
                if let Some(place) = items.get_mut(slot) {
                    place.1 = item;
                    bucket.set(slot, bucket.tag(slot), item);
                }
            }
            prop_assert_eq!((bucket.len(), bucket.overflow()), (items.len(), link));
            for (slot, &(tag, item)) in items.iter().enumerate() {
                prop_assert_eq!(bucket.item(slot), item);
                prop_assert!(bucket.tag(slot).agrees(Tag::of(tag)));
                prop_assert!(bucket.matches(Tag::of(tag)) >> slot & 1 == 1);
                prop_assert!(bucket.matches(bucket.tag(slot)) >> slot & 1 == 1);
            }
            bucket.set_overflow(Handle::NULL);
            for slot in (0..items.len()).rev() {
                bucket.clear(slot);
                prop_assert_eq!((bucket.len(), bucket.overflow()), (slot, Handle::NULL));
            }
        }
    }
}
