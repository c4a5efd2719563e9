//! A small set of integers: sorted, all as wide as the widest needs.
//!
//! ```text
//! 0  width u8: 2, 4 or 8
//! 1  integers of so many bytes, little endian, ascending
//! ```
//!
//! Pure functions on bytes. In a damaged set whose integers are out of order a member may not be found.

use std::ops::Range;

use crate::error::{Result, StoreError};

/// Bytes before the integers.
const HEADER_BYTES: usize = 1;

/// A set of integers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ints<'a> {
    width: usize,
    bytes: &'a [u8],
}

/// Bytes that an integer needs.
pub(crate) fn width_of(value: i64) -> usize {
    if i16::try_from(value).is_ok() {
        2
    } else if i32::try_from(value).is_ok() {
        4
    } else {
        8
    }
}

/// Bytes of a set of `count` integers.
pub(crate) fn size(width: usize, count: usize) -> usize {
    HEADER_BYTES + width * count
}

/// Writes the header.
pub(crate) fn begin(bytes: &mut [u8], width: usize) {
    bytes[0] = width as u8;
}

/// Writes the integer at `index`.
pub(crate) fn put(bytes: &mut [u8], width: usize, index: usize, value: i64) {
    bytes[size(width, index)..][..width].copy_from_slice(&value.to_le_bytes()[..width]);
}

/// Moves the integers from `index` on up by one; the last one is lost.
pub(crate) fn open_gap(bytes: &mut [u8], width: usize, index: usize) {
    let end = bytes.len() - width;
    bytes.copy_within(size(width, index)..end, size(width, index + 1));
}

/// Moves the integers after `index` down by one.
pub(crate) fn close_gap(bytes: &mut [u8], width: usize, index: usize) {
    bytes.copy_within(size(width, index + 1).., size(width, index));
}

impl<'a> Ints<'a> {
    #[inline]
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Ints<'a>> {
        match bytes.split_first() {
            Some((&width @ (2 | 4 | 8), rest)) if rest.len().is_multiple_of(width as usize) => {
                Ok(Ints { width: width as usize, bytes: rest })
            }
            _ => Err(StoreError::damaged("a set of integers of no known width")),
        }
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() / self.width
    }

    /// The integer at `index`, which must be below the length.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> i64 {
        let at = &self.bytes[index * self.width..];
        match self.width {
            2 => i64::from(i16::from_le_bytes([at[0], at[1]])),
            4 => i64::from(i32::from_le_bytes([at[0], at[1], at[2], at[3]])),
            _ => i64::from_le_bytes([at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7]]),
        }
    }

    /// Where an integer is, or where it would have to be put.
    #[inline]
    pub(crate) fn find(&self, value: i64) -> Result<usize, usize> {
        self.find_in(0..self.len(), value)
    }

    /// As [`Ints::find`], where the integers below the range are less, and those above it greater.
    #[inline]
    fn find_in(&self, range: Range<usize>, value: i64) -> Result<usize, usize> {
        let (mut low, mut high) = (range.start, range.end);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.get(middle).cmp(&value) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// As [`Ints::find`], for a value that is expected at `from` or soon after it: as a walk through another sorted set asks.
    #[inline]
    pub(crate) fn find_from(&self, from: usize, value: i64) -> Result<usize, usize> {
        let from = from.min(self.len());
        let mut low = if from > 0 && self.get(from - 1) >= value { 0 } else { from };
        let (mut high, mut step) = (low, 1);
        while high < self.len() && self.get(high) < value {
            (low, high) = (high + 1, high + 1 + step);
            step *= 2;
        }
        self.find_in(low..self.len().min(high + 1), value)
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = i64> + 'a {
        (0..self.len()).map(move |index| self.get(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn number() -> impl Strategy<Value = i64> {
        prop_oneof![-300i64..300, any::<i16>().prop_map(i64::from), any::<i32>().prop_map(i64::from), any::<i64>()]
    }

    proptest! {
        #[test]
        fn every_number_put_in_order_is_found(numbers in prop::collection::btree_set(number(), 1..50), other in number()) {
            let width = numbers.iter().map(|&number| width_of(number)).max().unwrap();
            let mut bytes = vec![0; size(width, numbers.len())];
            begin(&mut bytes, width);
            numbers.iter().enumerate().for_each(|(index, &number)| put(&mut bytes, width, index, number));
            let ints = Ints::read(&bytes).unwrap();
            prop_assert!(ints.iter().eq(numbers.iter().copied()));
            for (index, &number) in numbers.iter().enumerate() {
                prop_assert_eq!(ints.find(number), Ok(index));
            }
            let before = numbers.range(..other).count();
            prop_assert_eq!(ints.find(other).is_ok(), numbers.contains(&other));
            prop_assert_eq!(ints.find(other).unwrap_or_else(|at| at), before);
            for from in 0..numbers.len() + 2 {
                prop_assert_eq!(ints.find_from(from, other), ints.find(other));
                for &number in &numbers {
                    prop_assert_eq!(ints.find_from(from, number), ints.find(number));
                }
            }
        }

        #[test]
        fn a_search_through_integers_in_no_order_ends(bytes in prop::collection::vec(any::<u8>(), 0..200), values in prop::collection::vec(number(), 1..20)) {
            if let Ok(ints) = Ints::read(&bytes) {
                let mut from = 0;
                for value in values {
                    from = ints.find_from(from, value).unwrap_or_else(|at| at);
                    prop_assert!(from <= ints.len());
                }
            }
        }

        #[test]
        fn gaps_open_and_close(numbers in prop::collection::btree_set(number(), 2..30), at in any::<prop::sample::Index>()) {
            let all: Vec<i64> = numbers.into_iter().collect();
            let gone = at.index(all.len());
            let mut bytes = vec![0; size(8, all.len())];
            begin(&mut bytes, 8);
            all.iter().enumerate().for_each(|(index, &number)| put(&mut bytes, 8, index, number));
            let whole = bytes.clone();
            close_gap(&mut bytes, 8, gone);
            bytes.truncate(size(8, all.len() - 1));
            let rest: BTreeSet<i64> = Ints::read(&bytes).unwrap().iter().collect();
            prop_assert!(!rest.contains(&all[gone]) && rest.len() == all.len() - 1);
            bytes.resize(size(8, all.len()), 0);
            open_gap(&mut bytes, 8, gone);
            put(&mut bytes, 8, gone, all[gone]);
            prop_assert_eq!(bytes, whole);
        }

        #[test]
        fn any_bytes_give_integers_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..60), value: i64) {
            if let Ok(ints) = Ints::read(&bytes) {
                prop_assert_eq!(ints.iter().count(), ints.len());
                let _ = ints.find(value);
            }
        }
    }
}
