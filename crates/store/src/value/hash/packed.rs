//! A small hash as one run of bytes: a count, then each field and its value behind its length.
//!
//! ```text
//! 0  count u16, little endian
//! 2  { length varint · field · length varint · value } × count
//! ```
//!
//! Pure functions on bytes; anything that isn't well-formed gives [`StoreError::Damaged`](crate::StoreError::Damaged).

use crate::error::Result;
use crate::limits::PACKED_MAX_ITEMS;
use crate::value::varint;

/// The count can tell them all.
const _: () = assert!(PACKED_MAX_ITEMS <= u16::MAX as usize);
/// Bytes of an empty packed hash.
pub(crate) const COUNT_BYTES: usize = 2;

/// A packed hash without fields, to begin with.
pub(crate) const EMPTY: [u8; COUNT_BYTES] = [0; COUNT_BYTES];

/// Where a field and its value lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FieldSpan {
    /// First byte of the pair.
    pub(crate) start: usize,
    /// First byte of the field.
    pub(crate) field: usize,
    pub(crate) field_len: usize,
    /// First byte of the value.
    pub(crate) value: usize,
    pub(crate) value_len: usize,
}

impl FieldSpan {
    /// First byte after the pair.
    pub(crate) fn end(&self) -> usize {
        self.value + self.value_len
    }
}

/// Bytes that a pair takes.
pub(crate) fn pair_size(field: &[u8], value: &[u8]) -> usize {
    varint::len(field.len()) + field.len() + varint::len(value.len()) + value.len()
}

/// Fields that a packed hash says it has.
pub(crate) fn count(bytes: &[u8]) -> Result<usize> {
    match bytes {
        [low, high, ..] => Ok(u16::from_le_bytes([*low, *high]) as usize),
        _ => Err(varint::damaged()),
    }
}

/// The pairs of a packed hash.
#[derive(Debug)]
pub(crate) struct PackedFields<'a> {
    bytes: &'a [u8],
    at: usize,
    left: usize,
}

/// Walks through a packed hash.
pub(crate) fn pairs(bytes: &[u8]) -> Result<PackedFields<'_>> {
    Ok(PackedFields { bytes, at: COUNT_BYTES, left: count(bytes)? })
}

impl PackedFields<'_> {
    fn read(&mut self) -> Result<FieldSpan> {
        let start = self.at;
        let (field_len, field) = varint::read(self.bytes, start)?;
        let (value_len, value) = varint::read(self.bytes, field.saturating_add(field_len))?;
        let span = FieldSpan { start, field, field_len, value, value_len };
        if value.saturating_add(value_len) > self.bytes.len() {
            return Err(varint::damaged());
        }
        self.at = span.end();
        Ok(span)
    }
}

impl Iterator for PackedFields<'_> {
    type Item = Result<FieldSpan>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let span = self.read();
        if span.is_err() {
            self.left = 0;
        }
        Some(span)
    }
}

/// Finds a field.
pub(crate) fn find(bytes: &[u8], field: &[u8]) -> Result<Option<FieldSpan>> {
    for span in pairs(bytes)? {
        let span = span?;
        if bytes[span.field..][..span.field_len] == *field {
            return Ok(Some(span));
        }
    }
    Ok(None)
}

/// Writes to `to` the hash with a pair put in place of `old`, or added at the end.
pub(crate) fn with_pair(
    to: &mut Vec<u8>,
    bytes: &[u8],
    old: Option<FieldSpan>,
    field: &[u8],
    value: &[u8],
) -> Result<()> {
    let count = count(bytes)? + usize::from(old.is_none());
    let (start, end) = old.map_or((bytes.len(), bytes.len()), |span| (span.start, span.end()));
    begin(to, count)?;
    to.extend_from_slice(&bytes[COUNT_BYTES..start]);
    varint::push(to, field.len());
    to.extend_from_slice(field);
    varint::push(to, value.len());
    to.extend_from_slice(value);
    to.extend_from_slice(&bytes[end..]);
    Ok(())
}

/// Writes to `to` the hash without a pair.
pub(crate) fn without(to: &mut Vec<u8>, bytes: &[u8], old: FieldSpan) -> Result<()> {
    begin(to, count(bytes)?.saturating_sub(1))?;
    to.extend_from_slice(&bytes[COUNT_BYTES..old.start]);
    to.extend_from_slice(&bytes[old.end()..]);
    Ok(())
}

fn begin(to: &mut Vec<u8>, count: usize) -> Result<()> {
    let count = u16::try_from(count).map_err(|_| varint::damaged())?;
    to.clear();
    to.extend_from_slice(&count.to_le_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn unpack(bytes: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let pair = |span: Result<FieldSpan>| {
            let span = span.unwrap();
            (bytes[span.field..][..span.field_len].to_vec(), bytes[span.value..][..span.value_len].to_vec())
        };
        pairs(bytes).unwrap().map(pair).collect()
    }

    proptest! {
        #[test]
        fn behaves_as_a_map(ops in prop::collection::vec((0u8..20, prop::option::of(0usize..300)), 0..60)) {
            let mut packed = vec![0, 0];
            let mut next = Vec::new();
            let mut model = BTreeMap::new();
            for (name, len) in ops {
                let field = vec![name; name as usize * 9];
                let found = find(&packed, &field).unwrap();
                prop_assert_eq!(found.is_some(), model.contains_key(&field));
                match (len, found) {
                    (Some(len), found) => {
                        let value = vec![b'v'; len];
                        with_pair(&mut next, &packed, found, &field, &value).unwrap();
                        model.insert(field, value);
                    }
                    (None, Some(span)) => {
                        without(&mut next, &packed, span).unwrap();
                        model.remove(&field);
                    }
                    (None, None) => continue,
                }
                std::mem::swap(&mut packed, &mut next);
                prop_assert_eq!(count(&packed).unwrap(), model.len());
                prop_assert_eq!(&unpack(&packed), &model);
            }
        }

        #[test]
        fn any_bytes_give_pairs_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = find(&bytes, b"x");
            if let Ok(pairs) = pairs(&bytes) {
                for span in pairs.flatten() {
                    prop_assert!(span.end() <= bytes.len());
                }
            }
        }
    }
}
