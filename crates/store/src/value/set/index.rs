//! Look-ups for a command that asks a set about many members. A packed set gets an index, since a look-up in the set itself walks through it.
//! A set of integers is searched from where the last one was found.
//!
//! Relies on the set not changing meanwhile. Members that collide cost a walk among themselves, at worst that through the set.

use std::cell::Cell;

use crate::error::Result;

use super::packed;
use super::view::{SetMember, SetValue, SetView};

/// With fewer members, or fewer look-ups, a walk costs less than an index.
const LEAST: usize = 8;

/// Where the members of a packed set lie, by open addressing.
struct PackedIndex<'a> {
    bytes: &'a [u8],
    /// First byte of each member and its length; an empty place has the position 0, where no member can be.
    places: Vec<(u32, u32)>,
    shift: u32,
}

/// Spreads members over so many places that a look-up needs few steps; nothing relies on members not colliding.
#[inline]
fn spread(member: &[u8], shift: u32) -> usize {
    let word = |bytes: Option<&[u8; 8]>| bytes.map(|bytes| u64::from_le_bytes(*bytes));
    let (first, last) = match (word(member.first_chunk()), word(member.last_chunk())) {
        (Some(first), Some(last)) => (first, last),
        _ => (0, member.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte))),
    };
    let mixed = (first.rotate_left(29) ^ last).wrapping_add(member.len() as u64);
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> shift) as usize
}

impl<'a> PackedIndex<'a> {
    fn of(bytes: &'a [u8]) -> Result<Self> {
        let count = packed::count(bytes)?.min(bytes.len());
        let size = (2 * count).next_power_of_two().max(2);
        let mut index = Self { bytes, places: vec![(0, 0); size], shift: u64::BITS - size.trailing_zeros() };
        for span in packed::spans(bytes)? {
            let member = span?.member;
            let place = index.place(&bytes[member.clone()]);
            index.places[place] = (member.start as u32, member.len() as u32);
        }
        Ok(index)
    }

    /// The place of a member, or the empty one where it would be. There are more places than members, so there is one.
    #[inline]
    fn place(&self, member: &[u8]) -> usize {
        let mut place = spread(member, self.shift);
        loop {
            let (at, len) = self.places[place];
            if at == 0 || self.bytes[at as usize..][..len as usize] == *member {
                return place;
            }
            place = (place + 1) % self.places.len();
        }
    }

    #[inline]
    fn contains(&self, member: &[u8]) -> bool {
        self.places[self.place(member)].0 != 0
    }
}

/// A set that is asked about many members.
pub(in crate::value) struct Lookup<'v, 'a> {
    set: &'v SetView<'a>,
    index: Option<PackedIndex<'a>>,
    /// Of a set of integers: where the search for the next one begins. Another such set is walked through in the same order.
    next_int: Cell<usize>,
}

impl<'v, 'a> Lookup<'v, 'a> {
    /// Prepares for about so many look-ups.
    pub(in crate::value) fn new(set: &'v SetView<'a>, lookups: usize) -> Result<Self> {
        let index = match set.body() {
            Some(&SetValue::Packed(bytes)) if lookups >= LEAST && packed::count(bytes)? >= LEAST => {
                Some(PackedIndex::of(bytes)?)
            }
            Some(_) | None => None,
        };
        Ok(Self { set, index, next_int: Cell::new(0) })
    }

    /// Whether the set has this member.
    #[inline]
    pub(in crate::value) fn contains(&self, member: &SetMember<'_>) -> Result<bool> {
        match (&self.index, self.set.body(), member) {
            (Some(index), ..) => Ok(index.contains(member.text(&mut itoa::Buffer::new()))),
            (None, Some(SetValue::Ints(ints)), SetMember::Int(number)) => {
                let found = ints.find_from(self.next_int.get(), *number);
                self.next_int.set(found.map_or_else(|at| at, |at| at + 1));
                Ok(found.is_ok())
            }
            (None, ..) => self.set.contains(member),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn pack(members: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
        let mut bytes = vec![0; packed::COUNT_BYTES];
        let mut count = 0;
        for member in members {
            let end = bytes.len();
            bytes.resize(end + packed::size(&member), 0);
            packed::put(&mut bytes[end..], &member);
            count += 1;
        }
        packed::set_count(&mut bytes, count);
        bytes
    }

    proptest! {
        #[test]
        fn an_index_has_the_members_of_its_set_and_no_others(
            members in prop::collection::btree_set(prop::collection::vec(0u8..3, 0..12), 0..200),
            others in prop::collection::vec(prop::collection::vec(0u8..3, 0..12), 0..50),
        ) {
            let bytes = pack(members.iter().cloned());
            let index = PackedIndex::of(&bytes).unwrap();
            prop_assert!(members.iter().all(|member| index.contains(member)));
            for other in others {
                prop_assert_eq!(index.contains(&other), members.contains(&other));
            }
        }

        #[test]
        fn any_bytes_give_an_index_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(index) = PackedIndex::of(&bytes) {
                let _ = index.contains(b"x");
            }
        }
    }

    #[test]
    fn members_that_all_collide_are_found() {
        // First and last eight bytes are alike, and so are the lengths.
        let members: BTreeSet<Vec<u8>> =
            (0..100u8).map(|number| [b"12345678".as_slice(), &[number], b"12345678"].concat()).collect();
        let bytes = pack(members.iter().cloned());
        let index = PackedIndex::of(&bytes).unwrap();
        assert!(members.iter().all(|member| index.contains(member)));
        assert!(!index.contains(&[b"12345678".as_slice(), &[200], b"12345678"].concat()));
    }
}
