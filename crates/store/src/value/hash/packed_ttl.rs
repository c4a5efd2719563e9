//! A small hash, some fields of which have times to live, as one run of bytes: a count and the first expiry of a field, then
//! each field, its value and its own expiry.
//!
//! ```text
//! 0  count u16 · first expiry u48, little endian
//! 8  { length varint · field · length varint · value · expiry u48 } × count
//! ```
//!
//! An expiry is in unix milliseconds, 0 if there is none. Pure functions on bytes; anything that isn't well-formed gives
//! [`StoreError::Damaged`](crate::StoreError::Damaged).

use crate::error::Result;
use crate::value::varint;

use super::packed;
pub(crate) use super::packed::{COUNT_BYTES, count};

/// Bytes before the first field.
pub(crate) const HEADER_BYTES: usize = 8;
/// Bytes of an expiry.
pub(crate) const EXPIRY_BYTES: usize = 6;
/// The last expiry that a field may have, in unix milliseconds.
pub const MAX_EXPIRY_MS: i64 = (1 << (8 * EXPIRY_BYTES)) - 1;

const _: () = assert!(COUNT_BYTES + EXPIRY_BYTES == HEADER_BYTES, "the count is where a packed hash has it");

/// Where a field, its value and its expiry lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TtlSpan {
    /// First byte of all.
    pub(crate) start: usize,
    /// First byte of the field.
    pub(crate) field: usize,
    pub(crate) field_len: usize,
    /// First byte of the value.
    pub(crate) value: usize,
    pub(crate) value_len: usize,
    /// When it expires, in unix milliseconds.
    pub(crate) expiry_ms: Option<i64>,
}

impl TtlSpan {
    /// First byte of the expiry.
    fn expiry(&self) -> usize {
        self.value + self.value_len
    }

    /// First byte after all.
    pub(crate) fn end(&self) -> usize {
        self.expiry() + EXPIRY_BYTES
    }

    pub(crate) fn name<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.field..][..self.field_len]
    }

    pub(crate) fn content<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.value..][..self.value_len]
    }

    /// Whether its time has not come.
    pub(crate) fn is_live(&self, now_ms: i64) -> bool {
        self.expiry_ms.is_none_or(|at_ms| at_ms > now_ms)
    }
}

fn read_expiry(bytes: &[u8], at: usize) -> Result<Option<i64>> {
    let expiry = bytes.get(at..).unwrap_or_default().first_chunk::<EXPIRY_BYTES>().ok_or_else(varint::damaged)?;
    let mut wide = [0; 8];
    wide[..EXPIRY_BYTES].copy_from_slice(expiry);
    let at_ms = i64::from_le_bytes(wide);
    Ok((at_ms != 0).then_some(at_ms))
}

fn expiry_bytes(expiry_ms: Option<i64>) -> [u8; EXPIRY_BYTES] {
    // An expiry that is past stays one: 0 would be none.
    let at_ms = expiry_ms.map_or(0, |at_ms| at_ms.clamp(1, MAX_EXPIRY_MS));
    let wide = at_ms.to_le_bytes();
    std::array::from_fn(|index| wide[index])
}

/// Bytes that a field takes with its value and its expiry.
pub(crate) fn record_size(field: &[u8], value: &[u8]) -> usize {
    packed::pair_size(field, value) + EXPIRY_BYTES
}

/// The first expiry of a field, if any expires.
pub(crate) fn first_expiry(bytes: &[u8]) -> Result<Option<i64>> {
    read_expiry(bytes, COUNT_BYTES)
}

/// The fields of such a hash.
#[derive(Debug)]
pub(crate) struct TtlFields<'a> {
    bytes: &'a [u8],
    at: usize,
    left: usize,
}

/// Walks through such a hash.
pub(crate) fn records(bytes: &[u8]) -> Result<TtlFields<'_>> {
    Ok(TtlFields { bytes, at: HEADER_BYTES, left: count(bytes)? })
}

impl TtlFields<'_> {
    fn read(&mut self) -> Result<TtlSpan> {
        let start = self.at;
        let (field_len, field) = varint::read(self.bytes, start)?;
        let (value_len, value) = varint::read(self.bytes, field.saturating_add(field_len))?;
        let expiry_ms = read_expiry(self.bytes, value.saturating_add(value_len))?;
        let span = TtlSpan { start, field, field_len, value, value_len, expiry_ms };
        self.at = span.end();
        Ok(span)
    }
}

impl Iterator for TtlFields<'_> {
    type Item = Result<TtlSpan>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let span = self.read();
        if span.is_err() {
            self.left = 0;
        }
        Some(span)
    }
}

/// Finds a field, expired or not.
pub(crate) fn find(bytes: &[u8], field: &[u8]) -> Result<Option<TtlSpan>> {
    for span in records(bytes)? {
        let span = span?;
        if span.name(bytes) == field {
            return Ok(Some(span));
        }
    }
    Ok(None)
}

/// Fields whose time has not come. All are looked at, whatever the header says: a reply announces so many.
pub(crate) fn live_count(bytes: &[u8], now_ms: i64) -> Result<usize> {
    records(bytes)?.try_fold(0, |live, span| Ok(live + usize::from(span?.is_live(now_ms))))
}

/// Begins such a hash in `to`, to which fields are pushed before it is sealed.
pub(crate) fn begin(to: &mut Vec<u8>) {
    to.clear();
    to.resize(HEADER_BYTES, 0);
}

/// Adds a field.
pub(crate) fn push(to: &mut Vec<u8>, field: &[u8], value: &[u8], expiry_ms: Option<i64>) {
    varint::push(to, field.len());
    to.extend_from_slice(field);
    varint::push(to, value.len());
    to.extend_from_slice(value);
    to.extend_from_slice(&expiry_bytes(expiry_ms));
}

/// Writes the header over `count` fields. Returns whether any of them has an expiry.
pub(crate) fn seal(to: &mut [u8], count: usize) -> Result<bool> {
    let count = u16::try_from(count).map_err(|_| varint::damaged())?;
    to.get_mut(..COUNT_BYTES).ok_or_else(varint::damaged)?.copy_from_slice(&count.to_le_bytes());
    let mut first: Option<i64> = None;
    for span in records(to)? {
        first = first.into_iter().chain(span?.expiry_ms).min();
    }
    to[COUNT_BYTES..HEADER_BYTES].copy_from_slice(&expiry_bytes(first));
    Ok(first.is_some())
}

/// Writes to `to` the hash with a field put in place of `old`, or added at the end. Returns whether any field has an expiry.
pub(crate) fn with_record(
    to: &mut Vec<u8>,
    bytes: &[u8],
    old: Option<TtlSpan>,
    (field, value): (&[u8], &[u8]),
    expiry_ms: Option<i64>,
) -> Result<bool> {
    let count = count(bytes)? + usize::from(old.is_none());
    let (start, end) = old.map_or((bytes.len(), bytes.len()), |span| (span.start, span.end()));
    begin(to);
    to.extend_from_slice(bytes.get(HEADER_BYTES..start).ok_or_else(varint::damaged)?);
    push(to, field, value, expiry_ms);
    to.extend_from_slice(&bytes[end..]);
    seal(to, count)
}

/// Writes to `to` the hash without a field. Returns whether any field has an expiry.
pub(crate) fn without(to: &mut Vec<u8>, bytes: &[u8], old: TtlSpan) -> Result<bool> {
    begin(to);
    to.extend_from_slice(&bytes[HEADER_BYTES..old.start]);
    to.extend_from_slice(&bytes[old.end()..]);
    seal(to, count(bytes)?.saturating_sub(1))
}

/// Writes to `to` a packed hash, of which no field has an expiry.
pub(crate) fn from_packed(to: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    begin(to);
    for span in packed::pairs(bytes)? {
        let span = span?;
        to.extend_from_slice(&bytes[span.start..span.end()]);
        to.extend_from_slice(&expiry_bytes(None));
    }
    seal(to, packed::count(bytes)?).map(drop)
}

/// The packed hash of the same fields without their expiries.
pub(crate) fn to_packed(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut packed = bytes.get(..COUNT_BYTES).ok_or_else(varint::damaged)?.to_vec();
    for span in records(bytes)? {
        let span = span?;
        packed.extend_from_slice(&bytes[span.start..span.expiry()]);
    }
    Ok(packed)
}

/// What [`without_expired`] left out.
#[derive(Debug, Default)]
pub(crate) struct Expired {
    /// The fields.
    pub(crate) names: Vec<Box<[u8]>>,
    /// Fields that are left.
    pub(crate) left: usize,
    /// Some of these have expiries.
    pub(crate) has_expiries: bool,
}

/// Writes to `to` the hash without the fields whose time has come, up to `most` of them.
pub(crate) fn without_expired(to: &mut Vec<u8>, bytes: &[u8], now_ms: i64, most: usize) -> Result<Expired> {
    let mut expired = Expired::default();
    begin(to);
    for span in records(bytes)? {
        let span = span?;
        if !span.is_live(now_ms) && expired.names.len() < most {
            expired.names.push(span.name(bytes).into());
        } else {
            to.extend_from_slice(&bytes[span.start..span.end()]);
            expired.left += 1;
        }
    }
    expired.has_expiries = seal(to, expired.left)?;
    Ok(expired)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Model = BTreeMap<Vec<u8>, (Vec<u8>, Option<i64>)>;

    fn unpack(bytes: &[u8]) -> Model {
        let record = |span: Result<TtlSpan>| {
            let span = span.unwrap();
            (span.name(bytes).to_vec(), (span.content(bytes).to_vec(), span.expiry_ms))
        };
        records(bytes).unwrap().map(record).collect()
    }

    fn assert_is(packed: &[u8], model: &Model) {
        assert_eq!(count(packed).unwrap(), model.len());
        assert_eq!(&unpack(packed), model);
        assert_eq!(first_expiry(packed).unwrap(), model.values().filter_map(|(_, at_ms)| *at_ms).min());
        let end = records(packed).unwrap().last().map_or(HEADER_BYTES, |span| span.unwrap().end());
        assert_eq!(end, packed.len());
    }

    proptest! {
        #[test]
        fn behaves_as_a_map_of_values_and_expiries(
            ops in prop::collection::vec((0u8..20, prop::option::of(0usize..300), prop::option::of(1i64..50)), 0..60),
            now_ms in 0i64..50,
            most in 0usize..10,
        ) {
            let mut packed = Vec::new();
            begin(&mut packed);
            let mut next = Vec::new();
            let mut model = Model::new();
            for (name, len, expiry_ms) in ops {
                let field = vec![name; name as usize * 9];
                let found = find(&packed, &field).unwrap();
                prop_assert_eq!(found.is_some(), model.contains_key(&field));
                match (len, found) {
                    (Some(len), found) => {
                        let value = vec![b'v'; len];
                        let size = record_size(&field, &value);
                        with_record(&mut next, &packed, found, (&field, &value), expiry_ms).unwrap();
                        let old = found.map_or(0, |span| span.end() - span.start);
                        prop_assert_eq!(next.len() + old, packed.len() + size);
                        model.insert(field, (value, expiry_ms));
                    }
                    (None, Some(span)) => {
                        without(&mut next, &packed, span).unwrap();
                        model.remove(&field);
                    }
                    (None, None) => continue,
                }
                std::mem::swap(&mut packed, &mut next);
                assert_is(&packed, &model);
            }
            let live = |at_ms: Option<i64>| at_ms.is_none_or(|at_ms| at_ms > now_ms);
            let dead = model.values().filter(|(_, at_ms)| !live(*at_ms)).count();
            prop_assert_eq!(live_count(&packed, now_ms).unwrap(), model.len() - dead);
            let expired = without_expired(&mut next, &packed, now_ms, most).unwrap();
            prop_assert_eq!(expired.names.len(), dead.min(most));
            for name in expired.names {
                let (_, at_ms) = model.remove(&*name).unwrap();
                prop_assert!(!live(at_ms));
            }
            assert_is(&next, &model);
            prop_assert_eq!((expired.left, expired.has_expiries), (model.len(), model.values().any(|(_, at_ms)| at_ms.is_some())));
        }

        #[test]
        fn any_bytes_give_fields_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200), now_ms in any::<i64>()) {
            let _ = (find(&bytes, b"x"), live_count(&bytes, now_ms), without_expired(&mut Vec::new(), &bytes, now_ms, 3));
            let _ = seal(&mut bytes.clone(), 2);
            if let Ok(records) = records(&bytes) {
                for span in records.flatten() {
                    prop_assert!(span.end() <= bytes.len());
                }
            }
        }
    }

    #[test]
    fn an_expiry_keeps_within_its_bytes_and_never_means_none() {
        for (at_ms, kept_ms) in
            [(i64::MIN, 1), (0, 1), (1, 1), (MAX_EXPIRY_MS, MAX_EXPIRY_MS), (i64::MAX, MAX_EXPIRY_MS)]
        {
            assert_eq!(read_expiry(&expiry_bytes(Some(at_ms)), 0).unwrap(), Some(kept_ms));
        }
        assert_eq!(read_expiry(&expiry_bytes(None), 0).unwrap(), None);
    }
}
