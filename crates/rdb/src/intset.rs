//! Intsets: numbers of one width in their order. Relies on `word`.

use crate::word::{Word, Wrong, read};

const HEADER_BYTES: usize = 8;

fn width(bytes: &[u8]) -> Result<usize, Wrong> {
    match u32::from_le_bytes(read(bytes, 0)?) {
        width @ (2 | 4 | 8) => Ok(width as usize),
        _ => Err("an intset of no known width"),
    }
}

/// Checks the header; returns where the first number begins.
pub(crate) fn open(bytes: &[u8]) -> Result<usize, Wrong> {
    let count = u64::from(u32::from_le_bytes(read(bytes, 4)?));
    if HEADER_BYTES as u64 + count * width(bytes)? as u64 != bytes.len() as u64 {
        return Err("an intset's length is not what it says");
    }
    Ok(HEADER_BYTES)
}

/// The number at `at` and where the next one begins; `None` at the end.
pub(crate) fn step(bytes: &[u8], at: usize) -> Result<Option<(Word, usize)>, Wrong> {
    if at == bytes.len() {
        return Ok(None);
    }
    let width = width(bytes)?;
    let value = match width {
        2 => i64::from(i16::from_le_bytes(read(bytes, at)?)),
        4 => i64::from(i32::from_le_bytes(read(bytes, at)?)),
        _ => i64::from_le_bytes(read(bytes, at)?),
    };
    Ok(Some((Word::Int(value), at + width)))
}
