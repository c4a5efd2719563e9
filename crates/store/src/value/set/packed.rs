//! A small set as one run of bytes: a count, then each member behind its length, in the order of insertion.
//!
//! ```text
//! 0  count u16, little endian
//! 2  { length varint · member } × count
//! ```
//!
//! Pure functions on bytes; anything that isn't well-formed gives [`StoreError::Damaged`](crate::StoreError::Damaged).

use std::ops::Range;

use crate::error::Result;
use crate::limits::PACKED_MAX_ITEMS;
use crate::value::varint;

/// The count can tell them all.
const _: () = assert!(PACKED_MAX_ITEMS <= u16::MAX as usize);
/// Bytes of an empty packed set.
pub(crate) const COUNT_BYTES: usize = 2;

/// Members that a packed set says it has.
#[inline]
pub(crate) fn count(bytes: &[u8]) -> Result<usize> {
    match bytes {
        [low, high, ..] => Ok(u16::from_le_bytes([*low, *high]) as usize),
        _ => Err(varint::damaged()),
    }
}

/// Says how many members there are, at most [`PACKED_MAX_ITEMS`].
pub(crate) fn set_count(bytes: &mut [u8], count: usize) {
    bytes[..COUNT_BYTES].copy_from_slice(&(count as u16).to_le_bytes());
}

/// Bytes that a member takes.
pub(crate) fn size(member: &[u8]) -> usize {
    varint::len(member.len()) + member.len()
}

/// Writes a member to the front of `to`.
pub(crate) fn put(to: &mut [u8], member: &[u8]) {
    let start = varint::write(to, member.len());
    to[start..start + member.len()].copy_from_slice(member);
}

/// Where a member lies: its length and it, and itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemberSpan {
    pub(crate) start: usize,
    pub(crate) member: Range<usize>,
}

/// The members of a packed set.
#[derive(Debug)]
pub(crate) struct PackedMembers<'a> {
    bytes: &'a [u8],
    at: usize,
    left: usize,
}

/// Walks through a packed set.
#[inline]
pub(crate) fn spans(bytes: &[u8]) -> Result<PackedMembers<'_>> {
    Ok(PackedMembers { bytes, at: COUNT_BYTES, left: count(bytes)? })
}

impl PackedMembers<'_> {
    /// Where the next member begins, and how many are left.
    pub(crate) fn place(&self) -> (usize, usize) {
        (self.at, self.left)
    }
}

/// Walks on from a place in the same packed set.
pub(crate) fn spans_from(bytes: &[u8], (at, left): (usize, usize)) -> PackedMembers<'_> {
    PackedMembers { bytes, at, left }
}

impl Iterator for PackedMembers<'_> {
    type Item = Result<MemberSpan>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let start = self.at;
        let read = varint::read(self.bytes, start).and_then(|(len, member)| {
            let end = member.saturating_add(len);
            if end > self.bytes.len() { Err(varint::damaged()) } else { Ok(MemberSpan { start, member: member..end }) }
        });
        match &read {
            Ok(span) => self.at = span.member.end,
            Err(_) => self.left = 0,
        }
        Some(read)
    }
}

/// Finds a member. Members of a set are often equally long and begin alike, so their ends are compared first: without a call
/// for each, a walk through the set is short.
#[inline]
pub(crate) fn find(bytes: &[u8], member: &[u8]) -> Result<Option<MemberSpan>> {
    let wanted_end = member.last_chunk::<8>();
    let mut start = COUNT_BYTES;
    for _ in 0..count(bytes)? {
        let (len, at) = match bytes.get(start) {
            Some(&len) if len < 0x80 => (usize::from(len), start + 1),
            Some(_) | None => varint::read(bytes, start)?,
        };
        let end = at.saturating_add(len);
        let found = bytes.get(at..end).ok_or_else(varint::damaged)?;
        if len == member.len() && found.last_chunk::<8>() == wanted_end && found == member {
            return Ok(Some(MemberSpan { start, member: at..end }));
        }
        start = end;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_put_is_found(lengths in prop::collection::vec(0usize..300, 0..40)) {
            let mut bytes = vec![0; COUNT_BYTES];
            let members: Vec<Vec<u8>> = lengths.iter().enumerate().map(|(n, &len)| vec![n as u8; len + 1]).collect();
            for (n, member) in members.iter().enumerate() {
                let end = bytes.len();
                bytes.resize(end + size(member), 0);
                put(&mut bytes[end..], member);
                set_count(&mut bytes, n + 1);
            }
            for member in &members {
                let span = find(&bytes, member).unwrap().unwrap();
                prop_assert_eq!(&bytes[span.member], &member[..]);
            }
            prop_assert_eq!(spans(&bytes).unwrap().count(), members.len());
            prop_assert_eq!(find(&bytes, b"").unwrap(), None);
        }

        #[test]
        fn any_bytes_give_members_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = find(&bytes, b"x");
            if let Ok(spans) = spans(&bytes) {
                for span in spans.flatten() {
                    prop_assert!(span.member.end <= bytes.len());
                }
            }
        }
    }
}
