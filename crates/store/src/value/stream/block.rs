//! Entries of a stream packed one after the other, in the order of their IDs.
//!
//! ```text
//! 0   first ID, ms u64 · seq u64 · listpack bytes u32 · entries u32 · deleted u32     (little endian)
//! 28  fields of the first entry: count, fields
//! ..  entries: ms, as distance from the first ID's · seq, as distance if ms is the same · fields + 1, or 0 for those of the first
//!     entry · fields and values, or values only
//! ```
//!
//! Numbers are varints of up to 64 bits. An element is a varint of twice its length and its bytes; that of an integer is odd, with
//! the integer's low bytes behind it. "Listpack bytes" is how long Redis' node of the same entries would be, less its two counters: it decides when
//! a block is full, so that XTRIM's approximate forms keep what they keep there.
//!
//! Pure functions on bytes; anything that isn't well-formed gives [`StoreError::Damaged`].

use std::ops::Range;

use crate::error::{Result, StoreError};
use crate::numbers::parse_i64;
use crate::value::list::Element;

use super::id::StreamId;

/// Bytes of the fixed part.
pub(super) const HEADER_BYTES: usize = 28;
/// A varint of 64 bits takes at most so many bytes.
const VARINT_MAX: usize = 10;
/// Header and end of a listpack.
const LISTPACK_ENDS: usize = 7;

fn damaged() -> StoreError {
    StoreError::damaged("entries of a stream whose lengths don't add up")
}

fn read_varint(bytes: &[u8], at: usize) -> Result<(u64, usize)> {
    let mut value = 0u64;
    for (place, &byte) in bytes.get(at..).unwrap_or_default().iter().take(VARINT_MAX).enumerate() {
        value |= u64::from(byte & 0x7f).wrapping_shl(7 * place as u32);
        if byte & 0x80 == 0 {
            return Ok((value, at + place + 1));
        }
    }
    Err(damaged())
}

fn push_varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// Low bytes of an integer that tell it.
fn int_bytes(number: i64) -> usize {
    let tells = |bytes: &usize| {
        let lost = 64 - 8 * *bytes as u32;
        number << lost >> lost == number
    };
    if number == 0 { 0 } else { (1..8).find(tells).unwrap_or(8) }
}

fn push_element(to: &mut Vec<u8>, element: &[u8]) {
    match parse_i64(element) {
        Some(number) => {
            let len = int_bytes(number);
            push_varint(to, (len << 1 | 1) as u64);
            to.extend_from_slice(&number.to_le_bytes()[..len]);
        }
        None => {
            push_varint(to, (element.len() as u64) << 1);
            to.extend_from_slice(element);
        }
    }
}

fn read_element(bytes: &[u8], at: usize) -> Result<(Element<'_>, usize)> {
    let (tag, start) = read_varint(bytes, at)?;
    let len = usize::try_from(tag >> 1).map_err(|_| damaged())?;
    let end = start.checked_add(len).ok_or_else(damaged)?;
    let own = bytes.get(start..end).ok_or_else(damaged)?;
    if tag & 1 == 0 {
        return Ok((Element::Bytes(own), end));
    }
    if len > 8 {
        return Err(damaged());
    }
    let filler = if own.last().is_some_and(|byte| byte & 0x80 != 0) { 0xff } else { 0 };
    let mut number = [filler; 8];
    number[..len].copy_from_slice(own);
    Ok((Element::Int(i64::from_le_bytes(number)), end))
}

/// Bytes of an integer in a listpack, with its length behind it.
fn listpack_int(number: i64) -> usize {
    match number {
        0..=127 => 2,
        -4096..=4095 => 3,
        -32_768..=32_767 => 4,
        -8_388_608..=8_388_607 => 5,
        -2_147_483_648..=2_147_483_647 => 6,
        _ => 10,
    }
}

/// The same for any element.
fn listpack_element(element: &[u8]) -> usize {
    if let Some(number) = parse_i64(element) {
        return listpack_int(number);
    }
    let own = element.len()
        + match element.len() {
            0..=63 => 1,
            64..=4095 => 2,
            _ => 5,
        };
    own + match own {
        0..=127 => 1,
        128..=16_383 => 2,
        16_384..=2_097_151 => 3,
        2_097_152..=268_435_455 => 4,
        _ => 5,
    }
}

/// The fixed part of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct BlockHeader {
    /// The ID of the first entry that it was made with.
    pub(super) first: StreamId,
    listpack_bytes: u32,
    /// Entries.
    pub(super) count: u32,
    /// Entries that were taken out.
    pub(super) deleted: u32,
}

impl BlockHeader {
    pub(super) fn read(bytes: &[u8]) -> Result<BlockHeader> {
        let bytes = bytes.get(..HEADER_BYTES).ok_or_else(damaged)?;
        let long = |at: usize| bytes[at..at + 8].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
        let word = |at: usize| bytes[at..at + 4].iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte));
        let first = StreamId { ms: long(0), seq: long(8) };
        Ok(BlockHeader { first, listpack_bytes: word(16), count: word(20), deleted: word(24) })
    }

    pub(super) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&self.first.ms.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.first.seq.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.listpack_bytes.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.count.to_le_bytes());
        bytes[24..].copy_from_slice(&self.deleted.to_le_bytes());
        bytes
    }

    /// Entries that came in, whatever became of them.
    pub(super) fn added(&self) -> u64 {
        u64::from(self.count) + u64::from(self.deleted)
    }

    /// How long Redis' node would be.
    pub(super) fn listpack_bytes(&self) -> usize {
        self.listpack_bytes as usize + listpack_int(self.count.into()) + listpack_int(self.deleted.into())
    }
}

/// An entry's place in a block.
#[derive(Clone, Debug)]
pub(super) struct Span<'a> {
    pub(super) id: StreamId,
    pub(super) range: Range<usize>,
    /// Its fields and values.
    pub(super) fields: StreamFields<'a>,
}

/// The fields of an entry with their values, in order.
#[derive(Clone, Copy, Debug)]
pub struct StreamFields<'a> {
    bytes: &'a [u8],
    /// Where the next value is, before it its field unless that is one of the first entry's.
    at: usize,
    /// Where the next field of the first entry is, if the fields are those.
    shared_at: Option<usize>,
    left: usize,
}

impl<'a> StreamFields<'a> {
    /// How many are left.
    pub fn len(&self) -> usize {
        self.left
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// The next field and its value. They were read once before, when their entry's end was found.
    fn take(&mut self) -> Result<(Element<'a>, Element<'a>)> {
        let field = match &mut self.shared_at {
            Some(at) => {
                let (field, end) = read_element(self.bytes, *at)?;
                *at = end;
                field
            }
            None => {
                let (field, end) = read_element(self.bytes, self.at)?;
                self.at = end;
                field
            }
        };
        let (value, end) = read_element(self.bytes, self.at)?;
        self.at = end;
        self.left -= 1;
        Ok((field, value))
    }
}

impl<'a> Iterator for StreamFields<'a> {
    type Item = (Element<'a>, Element<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        // Reading the entry's end has read all of them.
        let next = self.take().ok();
        self.left = if next.is_some() { self.left } else { 0 };
        next
    }
}

/// Goes through the entries of a block.
#[derive(Clone, Debug)]
pub(super) struct Entries<'a> {
    bytes: &'a [u8],
    first: StreamId,
    shared: usize,
    shared_at: usize,
    at: usize,
    left: u32,
}

/// The entries of a block.
pub(super) fn entries(bytes: &[u8]) -> Result<Entries<'_>> {
    let header = BlockHeader::read(bytes)?;
    let (shared, shared_at) = read_varint(bytes, HEADER_BYTES)?;
    // Each takes a byte at least.
    let shared = usize::try_from(shared).ok().filter(|&shared| shared <= bytes.len()).ok_or_else(damaged)?;
    let mut at = shared_at;
    for _ in 0..shared {
        at = read_element(bytes, at)?.1;
    }
    Ok(Entries { bytes, first: header.first, shared, shared_at, at, left: header.count })
}

impl<'a> Entries<'a> {
    /// Where the next entry begins.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    fn take(&mut self) -> Result<Span<'a>> {
        let (ms, at) = read_varint(self.bytes, self.at)?;
        let (seq, at) = read_varint(self.bytes, at)?;
        let seq = if ms == 0 { self.first.seq.wrapping_add(seq) } else { seq };
        let id = StreamId { ms: self.first.ms.wrapping_add(ms), seq };
        let (own, at) = read_varint(self.bytes, at)?;
        let (left, shared_at) = match own {
            0 => (self.shared, Some(self.shared_at)),
            own => (usize::try_from(own - 1).map_err(|_| damaged())?, None),
        };
        if left > self.bytes.len() {
            return Err(damaged());
        }
        let fields = StreamFields { bytes: self.bytes, at, shared_at, left };
        let mut end = at;
        for _ in 0..if shared_at.is_some() { left } else { 2 * left } {
            end = read_element(self.bytes, end)?.1;
        }
        let range = self.at..end;
        (self.at, self.left) = (end, self.left - 1);
        Ok(Span { id, range, fields })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Span<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let next = self.take();
        if next.is_err() {
            self.left = 0;
        }
        Some(next)
    }
}

/// An entry as it is added: its fields and values, one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewEntry<'a> {
    pub(super) id: StreamId,
    pub(super) words: &'a [&'a [u8]],
}

impl NewEntry<'_> {
    fn fields(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.words.iter().step_by(2).copied()
    }

    /// Bytes of fields and values.
    pub(super) fn bytes(&self) -> usize {
        self.words.iter().fold(0usize, |sum, word| sum.saturating_add(word.len()))
    }

    /// Adds the entry behind those of a block whose header this is; whether its fields are those of the first entry is known.
    fn push(&self, to: &mut Vec<u8>, header: &mut BlockHeader, shared: bool) {
        let (first, id) = (header.first, self.id);
        let ms = id.ms.wrapping_sub(first.ms);
        push_varint(to, ms);
        push_varint(to, if ms == 0 { id.seq.wrapping_sub(first.seq) } else { id.seq });
        let fields = self.words.len() / 2;
        push_varint(to, if shared { 0 } else { fields as u64 + 1 });
        let values = self.words.iter().skip(1).step_by(2);
        if shared {
            values.for_each(|value| push_element(to, value));
        } else {
            self.words.iter().for_each(|word| push_element(to, word));
        }
        header.count += 1;
        header.listpack_bytes = header.listpack_bytes.saturating_add(self.listpack_bytes(first, shared) as u32);
    }

    /// Bytes of an entry in Redis' node: flags, two distances, maybe the number of fields, all elements, and how many that are.
    fn listpack_bytes(&self, first: StreamId, shared: bool) -> usize {
        let fields = self.words.len() / 2;
        let int = |number: usize| listpack_int(number as i64);
        let distances = [self.id.ms.wrapping_sub(first.ms), self.id.seq.wrapping_sub(first.seq)];
        let fixed = int(0) + distances.iter().map(|&distance| listpack_int(distance as i64)).sum::<usize>();
        let step = if shared { 2 } else { 1 };
        let elements = self.words.iter().skip(step - 1).step_by(step).map(|word| listpack_element(word)).sum::<usize>();
        fixed + elements + if shared { int(fields + 3) } else { int(fields) + int(2 * fields + 4) }
    }
}

/// A block of one entry.
pub(super) fn begin(to: &mut Vec<u8>, entry: &NewEntry<'_>) {
    let start = to.len();
    let fields = entry.words.len() / 2;
    let master: usize = entry.fields().map(listpack_element).sum();
    let listpack = LISTPACK_ENDS + listpack_int(fields as i64) + master + listpack_int(0);
    let mut header = BlockHeader { first: entry.id, listpack_bytes: listpack as u32, ..BlockHeader::default() };
    to.resize(start + HEADER_BYTES, 0);
    push_varint(to, fields as u64);
    entry.fields().for_each(|field| push_element(to, field));
    entry.push(to, &mut header, true);
    to[start..start + HEADER_BYTES].copy_from_slice(&header.to_bytes());
}

/// What is to be put behind a block's bytes to add an entry, and the header that it has then.
pub(super) fn appended(to: &mut Vec<u8>, block: &[u8], entry: &NewEntry<'_>) -> Result<BlockHeader> {
    let mut header = BlockHeader::read(block)?;
    let shared = has_fields(block, entry)?;
    entry.push(to, &mut header, shared);
    Ok(header)
}

/// Whether the fields of an entry are those of a block's first one.
fn has_fields(block: &[u8], entry: &NewEntry<'_>) -> Result<bool> {
    let (shared, mut at) = read_varint(block, HEADER_BYTES)?;
    if shared != entry.words.len() as u64 / 2 {
        return Ok(false);
    }
    for field in entry.fields() {
        let (element, end) = read_element(block, at)?;
        let same = match element {
            Element::Int(number) => parse_i64(field) == Some(number),
            Element::Bytes(bytes) => bytes == field,
        };
        if !same {
            return Ok(false);
        }
        at = end;
    }
    Ok(true)
}

/// Where an entry lies, if the block has it.
pub(super) fn find(bytes: &[u8], id: StreamId) -> Result<Option<Range<usize>>> {
    for span in entries(bytes)? {
        let span = span?;
        if span.id >= id {
            return Ok((span.id == id).then_some(span.range));
        }
    }
    Ok(None)
}

/// The ID of the last entry; there is one.
pub(super) fn last_id(bytes: &[u8]) -> Result<StreamId> {
    entries(bytes)?.last().ok_or_else(damaged)?.map(|span| span.id)
}

/// Where the entries lie before the first one that stays, and how many they are; `stays` is told how many come before one, and its ID.
pub(super) fn front(bytes: &[u8], stays: impl Fn(u64, StreamId) -> bool) -> Result<(Range<usize>, u32)> {
    let entries = entries(bytes)?;
    let (start, mut end, mut count) = (entries.at(), entries.at(), 0);
    for span in entries {
        let span = span?;
        if stays(count.into(), span.id) {
            break;
        }
        (end, count) = (span.range.end, count + 1);
    }
    Ok((start..end, count))
}

/// Checks the entries of a block: in order, behind `after`, and nothing behind them. Returns how many they are, and the last one's ID.
pub(super) fn check(bytes: &[u8], after: Option<StreamId>) -> Result<(u64, Option<StreamId>)> {
    let mut entries = entries(bytes)?;
    let (mut last, mut count, first) = (after, 0, entries.first);
    for span in entries.by_ref() {
        let id = span?.id;
        if last.is_some_and(|last| id <= last) || id < first {
            return Err(StoreError::damaged("a stream's entries that are not in order"));
        }
        (last, count) = (Some(id), count + 1);
    }
    if entries.at() == bytes.len() { Ok((count, last)) } else { Err(damaged()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(element: Element<'_>) -> Vec<u8> {
        element.text(&mut itoa::Buffer::new()).to_vec()
    }

    fn all(bytes: &[u8]) -> Vec<(StreamId, Vec<Vec<u8>>)> {
        let read = |span: Result<Span<'_>>| {
            let span = span.unwrap();
            (span.id, span.fields.flat_map(|(field, value)| [text(field), text(value)]).collect())
        };
        entries(bytes).unwrap().map(read).collect()
    }

    #[test]
    fn integers_take_as_few_bytes_as_they_need_and_read_back() {
        for (number, bytes) in
            [(0i64, 0), (1, 1), (-1, 1), (127, 1), (128, 2), (-128, 1), (-129, 2), (i64::MAX, 8), (i64::MIN, 8)]
        {
            let mut to = Vec::new();
            push_element(&mut to, number.to_string().as_bytes());
            assert_eq!(to.len(), 1 + bytes, "{number}");
            assert_eq!(read_element(&to, 0).unwrap(), (Element::Int(number), to.len()));
        }
    }

    #[test]
    fn entries_read_back_whatever_their_fields_are() {
        let words: [&[&[u8]]; 5] =
            [&[b"a", b"1", b"b", b"x"], &[b"a", b"", b"b", b"-7"], &[b"b", b"1", b"a", b"x"], &[b"a", b"007"], &[]];
        let mut bytes = Vec::new();
        let mut expected = Vec::new();
        for (number, words) in words.into_iter().enumerate() {
            let id = StreamId { ms: 5 + number as u64 / 2, seq: if number % 2 == 0 { 9 } else { u64::MAX } };
            let entry = NewEntry { id, words };
            if number == 0 {
                begin(&mut bytes, &entry);
            } else {
                let mut tail = Vec::new();
                let header = appended(&mut tail, &bytes, &entry).unwrap();
                bytes[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
                bytes.extend_from_slice(&tail);
            }
            expected.push((id, words.iter().map(|word| word.to_vec()).collect::<Vec<_>>()));
        }
        assert_eq!(all(&bytes), expected);
        assert_eq!(check(&bytes, None).unwrap(), (5, Some(expected[4].0)));
        for len in 0..bytes.len() {
            assert!(check(&bytes[..len], None).is_err(), "{len} bytes");
        }
    }
}
