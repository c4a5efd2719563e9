//! A word of packed bytes, and reading within their bounds. Knows none of the forms.

/// What is wrong with the bytes.
pub(crate) type Wrong = &'static str;

/// A word of packed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// These of the bytes.
    Bytes {
        /// Index of the first.
        start: usize,
        /// How many.
        len: usize,
    },
    /// A number.
    Int(i64),
}

impl Word {
    /// The word's text.
    pub(crate) fn text<'b>(self, bytes: &'b [u8], number: &'b mut itoa::Buffer) -> &'b [u8] {
        match self {
            Word::Bytes { start, len } => bytes.get(start..start + len).unwrap_or_default(),
            Word::Int(value) => number.format(value).as_bytes(),
        }
    }
}

/// Reads a little-endian number of `N` bytes.
pub(crate) fn read<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Wrong> {
    let end = at.checked_add(N).ok_or("a packed word reaches beyond the end")?;
    let found = bytes.get(at..end).and_then(|found| found.try_into().ok());
    found.ok_or("a packed word reaches beyond the end")
}

/// A word of `len` bytes at `start`, if they are there.
pub(crate) fn word_at(bytes: &[u8], start: usize, len: usize) -> Result<Word, Wrong> {
    match start.checked_add(len) {
        Some(end) if end <= bytes.len() => Ok(Word::Bytes { start, len }),
        _ => Err("a packed word reaches beyond the end"),
    }
}

/// The signed number of three bytes.
pub(crate) fn int24(bytes: [u8; 3]) -> i64 {
    i64::from(i32::from_le_bytes([0, bytes[0], bytes[1], bytes[2]]) >> 8)
}
