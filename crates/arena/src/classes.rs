//! Size classes: which slot an object of some size gets, and how many pages a slab of such slots takes.
//!
//! Sixteen classes to a doubling, so at most a sixteenth of a slot is wasted; below 512 bytes every multiple of 16.

use quire_snapshot::PAGE_SIZE;

use crate::handle::GRANULE;

/// Classes that exist.
pub(crate) const CLASSES: usize = 128;
/// Largest object that lies in a slab; larger ones get pages of their own.
pub(crate) const SLAB_MAX: usize = 32 << 10;
/// Most pages of a slab.
pub(crate) const SLAB_MAX_PAGES: usize = 32;

/// A class by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeClass(pub(crate) u8);

impl SizeClass {
    /// The class for `bytes`, 1 to [`SLAB_MAX`].
    #[inline]
    pub(crate) const fn of(bytes: usize) -> Self {
        if bytes <= 512 {
            return Self((bytes.saturating_sub(1) / GRANULE) as u8);
        }
        let exponent = (bytes - 1).ilog2() as usize;
        Self((32 + (exponent - 9) * 16 + ((bytes - 1) >> (exponent - 4)) - 16) as u8)
    }

    /// Bytes of a slot.
    #[inline]
    pub(crate) const fn size(self) -> usize {
        let class = self.0 as usize;
        if class < 32 {
            return (class + 1) * GRANULE;
        }
        let exponent = 9 + (class - 32) / 16;
        (17 + (class - 32) % 16) << (exponent - 4)
    }

    /// Pages of a slab.
    #[inline]
    pub(crate) const fn pages(self) -> usize {
        SLAB_PAGES[self.0 as usize] as usize
    }

    /// Slots of a slab.
    #[inline]
    pub(crate) const fn slots(self) -> usize {
        SLOTS[self.0 as usize] as usize
    }
}

/// The fewest pages with at least 16 slots and at most a 32nd wasted; where no number has both, the one with at least
/// four slots that wastes the smallest share.
const SLAB_PAGES: [u8; CLASSES] = {
    let mut table = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        let size = SizeClass(class as u8).size();
        let (mut pages, mut best, mut best_waste) = (1, SLAB_MAX_PAGES, usize::MAX);
        while pages <= SLAB_MAX_PAGES {
            let bytes = pages * PAGE_SIZE;
            let waste = bytes % size;
            if bytes / size >= 16 && waste * 32 <= bytes {
                best = pages;
                break;
            }
            // Shares are compared as waste per page, scaled.
            if bytes / size >= 4 && waste * 1024 / pages < best_waste {
                best = pages;
                best_waste = waste * 1024 / pages;
            }
            pages += 1;
        }
        table[class] = best as u8;
        class += 1;
    }
    table
};

/// Slots of a slab of each class: a table, since each allocation asks for it and a division takes long.
const SLOTS: [u16; CLASSES] = {
    let mut table = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        table[class] = (SLAB_PAGES[class] as usize * PAGE_SIZE / SizeClass(class as u8).size()) as u16;
        class += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::ALIGNED_MIN;

    #[test]
    fn every_size_gets_the_smallest_slot_that_holds_it() {
        for bytes in 1..=SLAB_MAX {
            let class = SizeClass::of(bytes);
            assert!(class.size() >= bytes, "{bytes} in {}", class.size());
            assert!(class.size().is_multiple_of(GRANULE));
            if class.0 > 0 {
                assert!(SizeClass(class.0 - 1).size() < bytes, "{bytes}");
            }
        }
        assert_eq!(SizeClass::of(SLAB_MAX), SizeClass(CLASSES as u8 - 1));
    }

    #[test]
    fn slots_of_some_size_lie_at_multiples_of_256() {
        // Slabs begin at a page, and so do large objects.
        assert!((ALIGNED_MIN..=SLAB_MAX).all(|bytes| SizeClass::of(bytes).size().is_multiple_of(256)));
        assert!(!SizeClass::of(ALIGNED_MIN - 129).size().is_multiple_of(256));
    }

    #[test]
    fn slabs_waste_little() {
        for class in (0..CLASSES as u8).map(SizeClass) {
            assert!(class.slots() >= 4 && class.slots() < u16::MAX as usize);
            let bytes = class.pages() * PAGE_SIZE;
            assert!((bytes - class.slots() * class.size()) * 16 < bytes, "{}", class.size());
        }
    }
}
