//! Which page an entry of the second tier is of.
//!
//! Relies on numbers of maps not being used twice in a pool, so that entries of a map that was closed fit no page, and on no two pages
//! having the same hash: it is a bijection of map and page.

use quire_rng::mix;
use twox_hash::XxHash3_64;

/// Bits of a page's number: a map has addresses for 2^46 bytes at most, in pages of 4 KiB at least.
const PAGE_BITS: u32 = 34;

/// Maps with this number or a greater one have no second tier: with the page's number theirs would not fit a key.
pub(crate) const MOST_MAPS: u64 = 1 << (u64::BITS - PAGE_BITS);

/// A page of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageKey(u64);

impl PageKey {
    /// Page `page` of the map with number `map`.
    ///
    /// # Panics
    /// If `map` is [`MOST_MAPS`] or greater, or `page` beyond what a map has addresses for.
    pub(crate) fn new(map: u64, page: u64) -> Self {
        assert!(map < MOST_MAPS && page < 1 << PAGE_BITS, "page {page} of map {map} has no key");
        Self(map << PAGE_BITS | page)
    }

    /// The key spread over 64 bits, by a step of SplitMix64: no two keys have the same hash.
    pub(super) fn hash(self) -> u64 {
        mix(self.0)
    }

    /// What an entry remembers of the hash. The bits above choose its bucket.
    pub(super) fn fingerprint(self) -> u32 {
        self.hash() as u32
    }

    /// Of `bytes` as those of this page in the tier with `seed`: the same bytes have another checksum as another page's, and a program that
    /// does not know the seed can't choose bytes by their checksum.
    pub(super) fn checksum(self, seed: u64, bytes: &[u8]) -> u64 {
        XxHash3_64::oneshot_with_seed(self.hash() ^ seed, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The number that multiplies an odd `factor` to 1: Newton's iteration doubles the bits that are right.
    fn inverse(factor: u64) -> u64 {
        (0..6).fold(factor, |found, _| found.wrapping_mul(2_u64.wrapping_sub(factor.wrapping_mul(found))))
    }

    /// The number that `number ^ number >> shift` was made of.
    fn unshifted(mixed: u64, shift: u32) -> u64 {
        (0..64 / shift).fold(mixed, |found, _| mixed ^ found >> shift)
    }

    /// Map and page of a hash.
    fn page_of(hash: u64) -> (u64, u64) {
        let mixed = unshifted(hash, 31).wrapping_mul(inverse(0x94d0_49bb_1331_11eb));
        let mixed = unshifted(mixed, 27).wrapping_mul(inverse(0xbf58_476d_1ce4_e5b9));
        let key = unshifted(mixed, 30).wrapping_sub(0x9e37_79b9_7f4a_7c15);
        (key >> PAGE_BITS, key & ((1 << PAGE_BITS) - 1))
    }

    proptest! {
        #[test]
        fn a_hash_is_that_of_one_page_alone(map in 0..MOST_MAPS, page in 0..1_u64 << PAGE_BITS) {
            prop_assert_eq!(page_of(PageKey::new(map, page).hash()), (map, page));
        }
    }

    #[test]
    fn the_first_and_the_last_page_of_the_first_and_the_last_map_have_keys_of_their_own() {
        for map in [0, 1, MOST_MAPS - 1] {
            for page in [0, 1, (1 << PAGE_BITS) - 1] {
                assert_eq!(page_of(PageKey::new(map, page).hash()), (map, page));
            }
        }
    }

    #[test]
    fn the_same_bytes_have_another_checksum_in_another_page_and_in_another_tier() {
        let key = PageKey::new(1, 2);
        assert_ne!(key.checksum(3, &[7; 100]), PageKey::new(2, 1).checksum(3, &[7; 100]));
        assert_ne!(key.checksum(3, &[7; 100]), key.checksum(4, &[7; 100]));
    }
}
