//! Elements of a list one after the other: integers in as few bytes as they need, other bytes behind their length; behind each
//! one its own length, read from the right, so that a walk may go either way. The bytes are those of an element in Redis' listpacks.
//!
//! ```text
//! 0nnnnnnn                  integer of 7 bits, no sign        10llllll bytes            up to 63 bytes
//! 110nnnnn n                integer of 13 bits                1110llll l bytes          up to 4095 bytes
//! F1 F2 F3 F4 n…            integer of 16, 24, 32, 64 bits    F0 llll bytes             length in 4 bytes
//! ```
//!
//! Pure functions on bytes; anything that isn't well-formed gives [`StoreError::Damaged`](crate::StoreError::Damaged).

use std::ops::Range;

use crate::error::Result;
use crate::numbers::parse_i64;
use crate::value::varint::damaged;

/// Bytes that the length behind an element takes at most.
const MAX_BACK: usize = 5;
/// Bytes of an integer with its code at most.
const MAX_FORM: usize = 9;

/// An element, as its list keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element<'a> {
    /// An integer.
    Int(i64),
    /// Any other bytes.
    Bytes(&'a [u8]),
}

impl Element<'_> {
    /// The element's bytes; the buffer is for those of integers.
    #[inline]
    pub fn text<'b>(&'b self, buffer: &'b mut itoa::Buffer) -> &'b [u8] {
        match self {
            Element::Int(number) => buffer.format(*number).as_bytes(),
            Element::Bytes(bytes) => bytes,
        }
    }
}

/// An element that is looked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct SoughtElement<'a> {
    bytes: &'a [u8],
    int: Option<i64>,
}

impl<'a> SoughtElement<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> SoughtElement<'a> {
        SoughtElement { bytes, int: parse_i64(bytes) }
    }

    #[inline]
    pub(super) fn is(&self, element: &Element<'_>) -> bool {
        match element {
            Element::Int(number) => self.int == Some(*number),
            Element::Bytes(bytes) => *bytes == self.bytes,
        }
    }
}

/// An element and where it lies, its length behind it included.
#[derive(Clone, Debug)]
pub(super) struct Item<'a> {
    pub(super) element: Element<'a>,
    pub(super) span: Range<usize>,
}

/// What stands before an element's bytes, or for all of an integer.
struct ElementHeader {
    bytes: [u8; MAX_FORM],
    len: usize,
}

impl ElementHeader {
    /// A code and the low bytes of a number, little endian.
    fn coded(code: u8, number: i64, width: usize) -> ElementHeader {
        let mut bytes = [0; MAX_FORM];
        bytes[0] = code;
        bytes[1..=width].copy_from_slice(&number.to_le_bytes()[..width]);
        ElementHeader { bytes, len: 1 + width }
    }

    fn of_int(number: i64) -> ElementHeader {
        match number {
            0..=127 => ElementHeader::coded(number as u8, 0, 0),
            -4096..=4095 => ElementHeader::coded(0xc0 | (number >> 8) as u8 & 0x1f, number, 1),
            -0x8000..=0x7fff => ElementHeader::coded(0xf1, number, 2),
            -0x80_0000..=0x7f_ffff => ElementHeader::coded(0xf2, number, 3),
            -0x8000_0000..=0x7fff_ffff => ElementHeader::coded(0xf3, number, 4),
            _ => ElementHeader::coded(0xf4, number, 8),
        }
    }

    fn of_len(len: usize) -> ElementHeader {
        match len {
            0..=63 => ElementHeader::coded(0x80 | len as u8, 0, 0),
            64..=4095 => ElementHeader::coded(0xe0 | (len >> 8) as u8, len as i64, 1),
            _ => ElementHeader::coded(0xf0, len as i64, 4),
        }
    }

    /// The form of an element, and the bytes that follow it.
    fn of(element: &[u8]) -> (ElementHeader, &[u8]) {
        match parse_i64(element) {
            Some(number) => (ElementHeader::of_int(number), &[]),
            None => (ElementHeader::of_len(element.len()), element),
        }
    }
}

/// Bytes of the length behind an element of so many bytes.
fn back_size(len: usize) -> usize {
    (1..MAX_BACK).find(|bytes| len >> (7 * bytes) == 0).unwrap_or(MAX_BACK)
}

/// Adds an element.
pub(super) fn push(to: &mut Vec<u8>, element: &[u8]) {
    let (form, bytes) = ElementHeader::of(element);
    to.extend_from_slice(&form.bytes[..form.len]);
    to.extend_from_slice(bytes);
    let len = form.len + bytes.len();
    for place in (0..back_size(len)).rev() {
        let more = if place + 1 == back_size(len) { 0 } else { 0x80 };
        to.push((len >> (7 * place)) as u8 & 0x7f | more);
    }
}

/// An element's bytes as a list keeps them.
pub(super) fn encoded(element: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(element.len() + MAX_FORM + MAX_BACK);
    push(&mut bytes, element);
    bytes
}

/// Some little-endian bytes as a number with a sign.
fn signed(bytes: &[u8]) -> i64 {
    let mut wide = [0; 8];
    wide[8 - bytes.len()..].copy_from_slice(bytes);
    i64::from_le_bytes(wide) >> (8 * (8 - bytes.len()))
}

/// The element that begins at `at`.
#[inline]
pub(super) fn item_at(bytes: &[u8], at: usize) -> Result<Item<'_>> {
    let code = *bytes.get(at).ok_or_else(damaged)?;
    let some = |from: usize, len: usize| {
        let start = at.saturating_add(from);
        bytes.get(start..start.saturating_add(len)).ok_or_else(damaged)
    };
    let int = |width: usize| -> Result<(Element<'_>, usize)> { Ok((Element::Int(signed(some(1, width)?)), 1 + width)) };
    let string = |form: usize, len: usize| -> Result<(Element<'_>, usize)> {
        Ok((Element::Bytes(some(form, len)?), form + len))
    };
    let (element, len) = match code {
        0..0x80 => (Element::Int(i64::from(code)), 1),
        0x80..0xc0 => string(1, usize::from(code & 0x3f))?,
        0xc0..0xe0 => {
            let high = i64::from(code & 0x1f) << 59 >> 51;
            (Element::Int(high | i64::from(some(1, 1)?[0])), 2)
        }
        0xe0..0xf0 => string(2, usize::from(code & 0xf) << 8 | usize::from(some(1, 1)?[0]))?,
        0xf0 => {
            let len = some(1, 4)?.iter().rev().fold(0, |len, &byte| len << 8 | usize::from(byte));
            string(5, len)?
        }
        0xf1 => int(2)?,
        0xf2 => int(3)?,
        0xf3 => int(4)?,
        0xf4 => int(8)?,
        0xf5.. => return Err(damaged()),
    };
    let end = at + len + back_size(len);
    if end > bytes.len() { Err(damaged()) } else { Ok(Item { element, span: at..end }) }
}

/// The element that begins at `at`, if it is a string of at most 63 bytes, and where the next one begins. As [`item_at`], but what it
/// gives stays in registers, and most elements are of this form.
#[inline]
pub(super) fn short_string_at(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let code = *bytes.get(at)?;
    let len = usize::from(code & 0x3f);
    // The length behind an element of 64 bytes takes one.
    let next = at + 1 + len + 1;
    (code & 0xc0 == 0x80 && next <= bytes.len()).then(|| (&bytes[at + 1..at + 1 + len], next))
}

/// The element that ends at `end`.
#[inline]
pub(super) fn item_before(bytes: &[u8], end: usize) -> Result<Item<'_>> {
    let mut len = 0usize;
    for place in 0..MAX_BACK {
        let at = end.checked_sub(1 + place).ok_or_else(damaged)?;
        let byte = *bytes.get(at).ok_or_else(damaged)?;
        len |= usize::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            let start = at.checked_sub(len).ok_or_else(damaged)?;
            let item = item_at(bytes, start)?;
            return if item.span.end == end { Ok(item) } else { Err(damaged()) };
        }
    }
    Err(damaged())
}

/// Where the first `count` elements end.
pub(super) fn end_of(bytes: &[u8], count: usize) -> Result<usize> {
    (0..count).try_fold(0, |at, _| Ok(item_at(bytes, at)?.span.end))
}

/// Where the last `count` elements begin.
pub(super) fn start_of(bytes: &[u8], count: usize) -> Result<usize> {
    (0..count).try_fold(bytes.len(), |at, _| Ok(item_before(bytes, at)?.span.start))
}

/// Where the element at `index` of `count` begins, from the nearer end.
pub(super) fn offset_of(bytes: &[u8], index: usize, count: usize) -> Result<usize> {
    if index <= count / 2 { end_of(bytes, index) } else { start_of(bytes, count.saturating_sub(index)) }
}

/// Whether these are so many elements, each as it is read from either side.
pub(super) fn check(bytes: &[u8], count: usize) -> Result<()> {
    let mut at = 0;
    for _ in 0..count {
        let end = item_at(bytes, at)?.span.end;
        if item_before(bytes, end)?.span.start != at {
            return Err(damaged());
        }
        at = end;
    }
    if at == bytes.len() { Ok(()) } else { Err(damaged()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn element() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            (0u32..64, any::<i64>()).prop_map(|(shift, number)| (number >> shift).to_string().into_bytes()),
            prop::collection::vec(any::<u8>(), 0..80),
            (0usize..20_000).prop_map(|len| vec![b'x'; len]),
        ]
    }

    proptest! {
        #[test]
        fn elements_read_back_from_either_side(elements in prop::collection::vec(element(), 0..30)) {
            let mut bytes = Vec::new();
            elements.iter().for_each(|element| push(&mut bytes, element));
            check(&bytes, elements.len()).unwrap();
            let (mut at, mut buffer) = (0, itoa::Buffer::new());
            for (index, element) in elements.iter().enumerate() {
                prop_assert_eq!(offset_of(&bytes, index, elements.len()).unwrap(), at);
                let item = item_at(&bytes, at).unwrap();
                prop_assert_eq!(item.element.text(&mut buffer), &element[..]);
                prop_assert!(SoughtElement::new(element).is(&item.element));
                prop_assert_eq!(item.span.len(), encoded(element).len());
                at = item.span.end;
                prop_assert_eq!(item_before(&bytes, at).unwrap().span, item.span);
            }
        }

        #[test]
        fn any_bytes_give_elements_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..220) {
            let item = item_at(&bytes, at);
            if let Ok(item) = &item {
                prop_assert!(item.span.end <= bytes.len());
            }
            let is_short = matches!(&item, Ok(Item { element: Element::Bytes(string), .. }) if string.len() < 64 && bytes[at] < 0xe0);
            let short = short_string_at(&bytes, at);
            prop_assert_eq!(short.is_some(), is_short);
            if let (Some((string, next)), Ok(item)) = (short, item) {
                prop_assert_eq!((Element::Bytes(string), next), (item.element, item.span.end));
            }
            if let Ok(item) = item_before(&bytes, at) {
                prop_assert_eq!(item.span.end, at);
            }
            let _ = (check(&bytes, 10), end_of(&bytes, 10), start_of(&bytes, 10));
        }
    }

    #[test]
    fn integers_take_the_bytes_that_redis_takes() {
        for (number, len) in [
            (0, 2),
            (127, 2),
            (128, 3),
            (-1, 3),
            (4095, 3),
            (-4096, 3),
            (4096, 4),
            (1 << 16, 5),
            (1 << 30, 6),
            (1 << 40, 10),
        ] {
            assert_eq!(encoded(i64::to_string(&number).as_bytes()).len(), len, "{number}");
        }
        assert_eq!(
            (encoded(&[b'a'; 63]).len(), encoded(&[b'a'; 64]).len(), encoded(&[b'a'; 4096]).len()),
            (65, 67, 4103)
        );
    }
}
