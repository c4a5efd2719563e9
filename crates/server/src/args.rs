//! The words of a request, as ranges of the buffer that it was read into. Relies on `error`, and on the store for numbers in text.

use std::borrow::Cow;

use quire_store::numbers;

use crate::error::CmdError;

/// Where one word of a request lies in its buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ArgRange {
    /// First byte.
    pub start: u32,
    /// Length in bytes.
    pub len: u32,
}

/// The words of one request, the command's name first, as it was sent.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    buffer: &'a [u8],
    ranges: &'a [ArgRange],
}

impl<'a> Args<'a> {
    /// Words of `buffer` at `ranges`. Words outside of the buffer read as empty.
    #[inline]
    pub fn new(buffer: &'a [u8], ranges: &'a [ArgRange]) -> Self {
        Self { buffer, ranges }
    }

    /// How many words, the name included.
    #[inline]
    #[allow(clippy::len_without_is_empty)] // a request has at least its name
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Word `index` with the request's own lifetime; empty if there is none.
    #[inline]
    pub fn at(&self, index: usize) -> &'a [u8] {
        self.get(index).unwrap_or_default()
    }

    /// Word `index`, if there are that many.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        let range = self.ranges.get(index)?;
        let start = range.start as usize;
        self.buffer.get(start..start + range.len as usize)
    }

    /// All words in order, the name first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &'a [u8]> + ExactSizeIterator + use<'a> {
        let buffer = self.buffer;
        self.ranges.iter().map(move |range| {
            buffer.get(range.start as usize..range.start as usize + range.len as usize).unwrap_or_default()
        })
    }

    /// The words from `index` on (`from(1)` leaves out the name).
    pub fn from(&self, index: usize) -> Args<'a> {
        Args { buffer: self.buffer, ranges: self.ranges.get(index..).unwrap_or_default() }
    }

    /// The words from `start` up to `end`.
    pub fn range(&self, start: usize, end: usize) -> Args<'a> {
        Args { buffer: self.buffer, ranges: self.ranges.get(start..end).unwrap_or_default() }
    }

    /// True when word `index` exists and equals `word`, whatever the case of its letters.
    #[inline]
    pub fn is(&self, index: usize, word: &str) -> bool {
        self.get(index).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// Word `index` as an integer.
    #[inline]
    pub fn int(&self, index: usize) -> Result<i64, CmdError> {
        numbers::parse_i64(self.at(index)).ok_or(CmdError::NOT_INTEGER)
    }

    /// Word `index` as a floating-point number.
    pub fn float(&self, index: usize) -> Result<f64, CmdError> {
        numbers::parse_f64(self.at(index)).ok_or(CmdError::NOT_FLOAT)
    }

    /// Word `index` as text; bytes that are not UTF-8 are replaced.
    pub fn text(&self, index: usize) -> Cow<'a, str> {
        String::from_utf8_lossy(self.at(index))
    }
}

impl std::ops::Index<usize> for Args<'_> {
    type Output = [u8];

    #[inline]
    fn index(&self, index: usize) -> &[u8] {
        self.at(index)
    }
}

impl std::fmt::Debug for Args<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter().map(String::from_utf8_lossy)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_reached_by_index_and_never_panic() {
        let ranges = [ArgRange { start: 0, len: 3 }, ArgRange { start: 4, len: 2 }, ArgRange { start: 90, len: 2 }];
        let args = Args::new(b"GET 12", &ranges);
        assert_eq!((args.len(), &args[0], args.at(1)), (3, &b"GET"[..], &b"12"[..]));
        assert!(args.is(0, "get") && !args.is(7, "get"));
        assert_eq!(args.int(1).unwrap(), 12);
        assert_eq!(args.int(0).unwrap_err().line(), "ERR value is not an integer or out of range");
        assert_eq!(args.at(2), b"");
        assert_eq!(args.from(1).len(), 2);
    }
}
