//! A small sorted set as one run of bytes: a count, then its members in order, each behind its score.
//!
//! ```text
//! 0  count u16, little endian
//! 2  { length varint · score · member } × count
//!
//! score   00 … BF           integer of that value; the sign of 0 is not kept, as in Redis' listpacks
//!         C1 … C7 n…        integer of 1 to 7 bytes with a sign, little endian
//!         C8 n n n n        a float of 4 bytes that is exact
//!         C9 n…             any other double
//! ```
//!
//! Pure functions on bytes; anything that isn't well-formed gives [`StoreError::Damaged`](crate::StoreError::Damaged).

use crate::error::Result;
use crate::limits::PACKED_MAX_ITEMS;
use crate::value::varint::{self, damaged};

use super::order::Cut;

/// The count can tell them all.
const _: () = assert!(PACKED_MAX_ITEMS <= u16::MAX as usize);
/// Bytes of an empty packed sorted set.
pub(super) const COUNT_BYTES: usize = 2;

const SMALL_END: u8 = 0xc0;
const INT: u8 = 0xc0;
const MAX_INT_BYTES: u8 = 7;
const SINGLE: u8 = 0xc8;
const DOUBLE: u8 = 0xc9;
/// Integers below this and above its negative take at most seven bytes.
const INT_END: f64 = (1u64 << 55) as f64;

/// A member and where it lies, its length and score included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Item<'a> {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) score: f64,
    pub(super) member: &'a [u8],
}

/// Members that a packed sorted set says it has.
#[inline]
pub(super) fn count(bytes: &[u8]) -> Result<usize> {
    match bytes {
        [low, high, ..] => Ok(u16::from_le_bytes([*low, *high]) as usize),
        _ => Err(damaged()),
    }
}

/// Says how many members there are, at most [`PACKED_MAX_ITEMS`].
pub(super) fn set_count(bytes: &mut [u8], count: usize) {
    bytes[..COUNT_BYTES].copy_from_slice(&(count as u16).to_le_bytes());
}

fn push_score(to: &mut Vec<u8>, score: f64) {
    if score.fract() == 0.0 && score.abs() < INT_END {
        let number = score as i64;
        if let Some(small) = u8::try_from(number).ok().filter(|&small| small < SMALL_END) {
            return to.push(small);
        }
        // A byte more than its bits need: the sign.
        let bits = u64::BITS - if number < 0 { number.leading_ones() } else { number.leading_zeros() };
        let width = bits as usize / 8 + 1;
        to.push(INT + width as u8);
        return to.extend_from_slice(&number.to_le_bytes()[..width]);
    }
    let single = score as f32;
    if f64::from(single) == score {
        to.push(SINGLE);
        to.extend_from_slice(&single.to_le_bytes());
    } else {
        to.push(DOUBLE);
        to.extend_from_slice(&score.to_le_bytes());
    }
}

/// Adds a member.
pub(super) fn push(to: &mut Vec<u8>, score: f64, member: &[u8]) {
    varint::push(to, member.len());
    push_score(to, score);
    to.extend_from_slice(member);
}

/// The score that begins at `at`, and where it ends.
#[inline]
fn score_at(bytes: &[u8], at: usize) -> Result<(f64, usize)> {
    let code = *bytes.get(at).ok_or_else(damaged)?;
    let some = |width: usize| bytes.get(at + 1..at + 1 + width).ok_or_else(damaged);
    match code {
        0..SMALL_END => Ok((f64::from(code), at + 1)),
        SINGLE => {
            let single = some(4)?.first_chunk().map(|chunk| f32::from_le_bytes(*chunk)).ok_or_else(damaged)?;
            Ok((f64::from(single), at + 5))
        }
        DOUBLE => {
            let double = some(8)?.first_chunk().map(|chunk| f64::from_le_bytes(*chunk)).ok_or_else(damaged)?;
            Ok((double, at + 9))
        }
        _ => {
            let width = usize::from(code - INT);
            if !(1..=usize::from(MAX_INT_BYTES)).contains(&width) {
                return Err(damaged());
            }
            let mut wide = [0; 8];
            wide[8 - width..].copy_from_slice(some(width)?);
            Ok(((i64::from_le_bytes(wide) >> (8 * (8 - width))) as f64, at + 1 + width))
        }
    }
}

/// The member that begins at `start`.
#[inline]
pub(super) fn item_at(bytes: &[u8], start: usize) -> Result<Item<'_>> {
    let (len, at) = match bytes.get(start) {
        Some(&len) if len < 0x80 => (usize::from(len), start + 1),
        Some(_) | None => varint::read(bytes, start)?,
    };
    let (score, at) = score_at(bytes, at)?;
    let end = at.saturating_add(len);
    Ok(Item { start, end, score, member: bytes.get(at..end).ok_or_else(damaged)? })
}

/// The members of a packed sorted set.
#[derive(Clone, Debug)]
pub(super) struct Items<'a> {
    bytes: &'a [u8],
    at: usize,
    left: usize,
}

/// Walks through a packed sorted set.
#[inline]
pub(super) fn items(bytes: &[u8]) -> Result<Items<'_>> {
    Ok(Items { bytes, at: COUNT_BYTES, left: count(bytes)? })
}

impl<'a> Iterator for Items<'a> {
    type Item = Result<Item<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let read = item_at(self.bytes, self.at);
        match &read {
            Ok(item) => self.at = item.end,
            Err(_) => self.left = 0,
        }
        Some(read)
    }
}

/// Finds a member, and its rank.
#[inline]
pub(super) fn find<'a>(bytes: &'a [u8], member: &[u8]) -> Result<Option<(usize, Item<'a>)>> {
    for (rank, item) in items(bytes)?.enumerate() {
        let item = item?;
        if item.member == member {
            return Ok(Some((rank, item)));
        }
    }
    Ok(None)
}

/// How many members lie before a place, and where the next one begins.
pub(super) fn place(bytes: &[u8], cut: &Cut<'_>) -> Result<(usize, usize)> {
    let (mut rank, mut at) = (0, COUNT_BYTES);
    for item in items(bytes)? {
        let item = item?;
        if !cut.is_behind(item.score, || Ok(item.member))? {
            break;
        }
        (rank, at) = (rank + 1, item.end);
    }
    Ok((rank, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn score() -> impl Strategy<Value = f64> {
        prop_oneof![
            any::<f64>().prop_filter("scores are numbers", |score| !score.is_nan()),
            (0u32..64, any::<i64>()).prop_map(|(shift, number)| (number >> shift) as f64),
            (-1000i32..1000).prop_map(|number| f64::from(number) / 8.0),
            prop::sample::select(vec![0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, INT_END, -INT_END]),
        ]
    }

    proptest! {
        #[test]
        fn members_read_back(all in prop::collection::vec((score(), prop::collection::vec(any::<u8>(), 0..200)), 0..40)) {
            let mut bytes = vec![0; COUNT_BYTES];
            all.iter().for_each(|(score, member)| push(&mut bytes, *score, member));
            set_count(&mut bytes, all.len());
            let read: Vec<Item<'_>> = items(&bytes).unwrap().collect::<Result<_>>().unwrap();
            prop_assert_eq!(read.len(), all.len());
            for (item, (score, member)) in read.iter().zip(&all) {
                // Adding 0 takes the sign of 0 away, and nothing else.
                prop_assert_eq!((item.score.to_bits(), item.member), ((score + 0.0).to_bits(), &member[..]));
            }
            prop_assert_eq!(read.last().map_or(COUNT_BYTES, |item| item.end), bytes.len());
            if let Some((_, member)) = all.last() {
                let first = all.iter().position(|(_, other)| other == member).unwrap();
                prop_assert_eq!(find(&bytes, member).unwrap(), Some((first, read[first])));
            }
        }

        #[test]
        fn any_bytes_give_members_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (find(&bytes, b"x"), place(&bytes, &Cut::Behind(5.0, b"x")), place(&bytes, &Cut::End));
            for item in items(&bytes).into_iter().flatten().flatten() {
                prop_assert!(item.end <= bytes.len());
            }
        }
    }

    #[test]
    fn small_scores_take_few_bytes() {
        for (score, len) in [
            (0.0, 1),
            (191.0, 1),
            (192.0, 3),
            (-1.0, 2),
            (-128.0, 2),
            (127.0 * 256.0, 3),
            (1e6, 4),
            (1.7e12, 7),
            (0.5, 5),
            (-0.0, 1),
            (0.1, 9),
            (f64::INFINITY, 5),
        ] {
            let mut bytes = Vec::new();
            push_score(&mut bytes, score);
            assert_eq!(bytes.len(), len, "{score}");
        }
    }
}
