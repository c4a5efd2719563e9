//! The bytes that are read: their place, their checksum, and the two forms of which all else is made, lengths and strings.
//!
//! Relies on `lzf` for strings that are compressed. Memory is taken as bytes come, not as a length claims them.

use std::io::{ErrorKind, Read};

use crate::checksum::Checksum;
use crate::error::{Cause, RdbError, Result};
use crate::{MAX_STRING_BYTES, lzf};

const BUFFER_BYTES: usize = 64 * 1024;
/// Memory that a string is given at once.
const STEP_BYTES: u64 = 1 << 20;

/// A length, or what stands in its place before a string of another form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Plain(u64),
    Special(u8),
}

/// A source of bytes that counts and sums them.
pub(crate) struct Input<R> {
    inner: R,
    buffer: Vec<u8>,
    /// Where the unread bytes of the buffer begin.
    start: usize,
    offset: u64,
    checksum: Checksum,
    /// A value was begun and has not been read to its end.
    pub(crate) in_value: bool,
}

impl<R> std::fmt::Debug for Input<R> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Input").field("offset", &self.offset).finish_non_exhaustive()
    }
}

impl<R: Read> Input<R> {
    pub(crate) fn new(inner: R) -> Self {
        let (buffer, checksum) = (Vec::new(), Checksum::default());
        Self { inner, buffer, start: 0, offset: 0, checksum, in_value: false }
    }

    /// Bytes that were read.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The checksum of what was read.
    pub(crate) fn checksum(&self) -> u64 {
        self.checksum.value()
    }

    /// What was not read: of the buffer, and the source behind it.
    pub(crate) fn into_rest(self) -> (Vec<u8>, R) {
        (self.buffer[self.start..].to_vec(), self.inner)
    }

    /// The error of this cause, here.
    pub(crate) fn fail<T>(&self, cause: Cause) -> Result<T> {
        Err(RdbError { offset: self.offset, cause })
    }

    /// The error of what contradicts itself, here.
    pub(crate) fn malformed<T>(&self, what: &'static str) -> Result<T> {
        self.fail(Cause::Malformed(what))
    }

    /// What is to be read next, at least one byte; nothing at the end.
    fn fill(&mut self) -> Result<&[u8]> {
        if self.start == self.buffer.len() {
            self.buffer.resize(BUFFER_BYTES, 0);
            self.start = 0;
            let read = loop {
                match self.inner.read(&mut self.buffer) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => {
                        self.buffer.clear();
                        return self.fail(Cause::Read(error));
                    }
                    Ok(read) => break read,
                }
            };
            self.buffer.truncate(read);
        }
        Ok(&self.buffer[self.start..])
    }

    /// Whether there is nothing more to be read.
    pub(crate) fn is_at_end(&mut self) -> Result<bool> {
        Ok(self.fill()?.is_empty())
    }

    fn consume(&mut self, count: usize) {
        self.checksum.update(&self.buffer[self.start..self.start + count]);
        self.start += count;
        self.offset += count as u64;
    }

    /// Reads so many bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        let mut filled = 0;
        while filled < N {
            let there = self.fill()?;
            let count = there.len().min(N - filled);
            if count == 0 {
                return self.fail(Cause::Truncated { wanted: (N - filled) as u64 });
            }
            bytes[filled..filled + count].copy_from_slice(&there[..count]);
            self.consume(count);
            filled += count;
        }
        Ok(bytes)
    }

    pub(crate) fn byte(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// Appends `len` bytes to `to`.
    fn append(&mut self, len: u64, to: &mut Vec<u8>) -> Result<()> {
        let mut left = len;
        while left > 0 {
            if to.capacity() == to.len() {
                let step = left.min(STEP_BYTES.max(to.len() as u64)) as usize;
                if to.try_reserve_exact(step).is_err() {
                    return self.fail(Cause::NoMemory { len });
                }
            }
            let there = self.fill()?;
            let count = there.len().min(left.min(usize::MAX as u64) as usize).min(to.capacity() - to.len());
            if count == 0 {
                return self.fail(Cause::Truncated { wanted: left });
            }
            to.extend_from_slice(&there[..count]);
            self.consume(count);
            left -= count as u64;
        }
        Ok(())
    }

    fn length_or_special(&mut self) -> Result<Length> {
        let first = self.byte()?;
        Ok(Length::Plain(match (first >> 6, first) {
            (0, _) => u64::from(first & 0x3f),
            (1, _) => u64::from(first & 0x3f) << 8 | u64::from(self.byte()?),
            (2, 0x80) => u64::from(u32::from_be_bytes(self.array()?)),
            (2, 0x81) => u64::from_be_bytes(self.array()?),
            (2, _) => return self.malformed("a length of no known form"),
            _ => return Ok(Length::Special(first & 0x3f)),
        }))
    }

    /// A length, or another number that is written as one.
    pub(crate) fn length(&mut self) -> Result<u64> {
        match self.length_or_special()? {
            Length::Plain(length) => Ok(length),
            Length::Special(_) => self.malformed("a string where a length should be"),
        }
    }

    fn string_length(&mut self) -> Result<u64> {
        let len = self.length()?;
        if len > MAX_STRING_BYTES { self.fail(Cause::TooLong { len, max: MAX_STRING_BYTES }) } else { Ok(len) }
    }

    /// Reads a string in the place of what `to` holds.
    pub(crate) fn string_into(&mut self, to: &mut Vec<u8>) -> Result<()> {
        to.clear();
        let number = match self.length_or_special()? {
            Length::Plain(len) if len > MAX_STRING_BYTES => {
                return self.fail(Cause::TooLong { len, max: MAX_STRING_BYTES });
            }
            Length::Plain(len) => return self.append(len, to),
            Length::Special(0) => i64::from(i8::from_le_bytes(self.array()?)),
            Length::Special(1) => i64::from(i16::from_le_bytes(self.array()?)),
            Length::Special(2) => i64::from(i32::from_le_bytes(self.array()?)),
            Length::Special(3) => return self.compressed_into(to),
            Length::Special(number) => {
                return self.fail(Cause::Unsupported { what: "encoding of strings", number: u64::from(number) });
            }
        };
        to.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        Ok(())
    }

    fn compressed_into(&mut self, to: &mut Vec<u8>) -> Result<()> {
        let (packed_len, len) = (self.string_length()?, self.string_length()?);
        if lzf::is_impossible(packed_len, len) {
            return self.malformed("a compressed string that claims to be longer than it can be");
        }
        let mut packed = Vec::new();
        self.append(packed_len, &mut packed)?;
        match lzf::decompress(&packed, len as usize) {
            Some(bytes) => *to = bytes,
            None => return self.malformed("a compressed string that can't be unpacked"),
        }
        Ok(())
    }

    /// Reads a string.
    pub(crate) fn string(&mut self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.string_into(&mut bytes)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn string(bytes: &[u8]) -> Result<Vec<u8>> {
        Input::new(bytes).string()
    }

    #[test]
    fn lengths_and_strings_of_all_forms_are_read() {
        let length = |bytes: &[u8]| Input::new(bytes).length().unwrap();
        assert_eq!((length(&[5]), length(&[0x41, 2]), length(&[0x80, 0, 1, 0, 0])), (5, 258, 65536));
        assert_eq!(length(&[0x81, 0, 0, 0, 1, 0, 0, 0, 0]), 1 << 32);
        for (bytes, text) in [
            (&b"\x03abc"[..], &b"abc"[..]),
            (b"\x00", b""),
            (b"\xc0\xff", b"-1"),
            (b"\xc1\x00\x80", b"-32768"),
            (b"\xc2\xff\xff\xff\x7f", b"2147483647"),
            (b"\xc3\x04\x0a\x00a\xe0\x00", b""),
        ] {
            match string(bytes) {
                Ok(found) => assert_eq!(found, text),
                Err(error) => assert!(text.is_empty(), "{error}"),
            }
        }
        assert_eq!(string(b"\xc3\x05\x0a\x00a\xe0\x00\x00").unwrap(), b"a".repeat(10));
    }

    #[test]
    fn a_claimed_length_takes_no_memory_before_its_bytes_are_there() {
        let mut bytes = vec![0x80];
        bytes.extend_from_slice(&(500u32 << 20).to_be_bytes());
        bytes.extend_from_slice(b"abc");
        let mut to = Vec::new();
        let error = Input::new(&bytes[..]).string_into(&mut to).unwrap_err();
        assert!(matches!(error, RdbError { offset: 8, cause: Cause::Truncated { .. } }), "{error}");
        assert!(to.capacity() <= STEP_BYTES as usize);
        let too_long = [&[0x81][..], &u64::MAX.to_be_bytes()].concat();
        assert!(matches!(string(&too_long).unwrap_err().cause, Cause::TooLong { .. }));
    }
}
