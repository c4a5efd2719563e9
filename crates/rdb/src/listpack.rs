//! Listpacks: words each behind its form and length, and before its length again, written backwards.
//!
//! Relies on `word`. Here is also how a listpack is written.

use crate::word::{Word, Wrong, int24, read, word_at};

const HEADER_BYTES: usize = 6;
const END: u8 = 0xff;
/// The count of a listpack whose words have to be counted.
const UNCOUNTED: u16 = u16::MAX;

/// Checks the header; returns where the first word begins.
pub(crate) fn open(bytes: &[u8]) -> Result<usize, Wrong> {
    if u64::from(u32::from_le_bytes(read(bytes, 0)?)) != bytes.len() as u64 || bytes.len() <= HEADER_BYTES {
        return Err("a listpack's length is not what it says");
    }
    Ok(HEADER_BYTES)
}

/// How many words it says to have.
pub(crate) fn count(bytes: &[u8]) -> Option<u64> {
    let count = u16::from_le_bytes(read(bytes, 4).ok()?);
    (count != UNCOUNTED).then_some(u64::from(count))
}

/// The word at `at` and where the next one begins; `None` at the end.
pub(crate) fn step(bytes: &[u8], at: usize) -> Result<Option<(Word, usize)>, Wrong> {
    let [first] = read(bytes, at)?;
    let (word, end) = match first {
        END => return if at + 1 == bytes.len() { Ok(None) } else { Err("a listpack ends too early") },
        0x00..=0x7f => (Word::Int(i64::from(first)), at + 1),
        0x80..=0xbf => text(bytes, at + 1, usize::from(first & 0x3f))?,
        0xc0..=0xdf => {
            let [low] = read(bytes, at + 1)?;
            let value = i16::from_be_bytes([first << 3, 0]) >> 3 | i16::from(low);
            (Word::Int(i64::from(value)), at + 2)
        }
        0xe0..=0xef => {
            let [low] = read(bytes, at + 1)?;
            text(bytes, at + 2, usize::from(first & 0x0f) << 8 | usize::from(low))?
        }
        0xf0 => text(bytes, at + 5, u32::from_le_bytes(read(bytes, at + 1)?) as usize)?,
        0xf1 => (Word::Int(i64::from(i16::from_le_bytes(read(bytes, at + 1)?))), at + 3),
        0xf2 => (Word::Int(int24(read(bytes, at + 1)?)), at + 4),
        0xf3 => (Word::Int(i64::from(i32::from_le_bytes(read(bytes, at + 1)?))), at + 5),
        0xf4 => (Word::Int(i64::from_le_bytes(read(bytes, at + 1)?)), at + 9),
        _ => return Err("a word of a listpack has no known form"),
    };
    let (backward, len) = backward_len(end - at);
    match bytes.get(end..end + len) {
        Some(found) if *found == backward[..len] => Ok(Some((word, end + len))),
        _ => Err("a word of a listpack is not as long as is said behind it"),
    }
}

fn text(bytes: &[u8], start: usize, len: usize) -> Result<(Word, usize), Wrong> {
    Ok((word_at(bytes, start, len)?, start + len))
}

/// A word's length as it is written behind the word, and how many bytes that takes.
fn backward_len(len: usize) -> ([u8; 5], usize) {
    let bytes = match len {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    };
    let mut written = [0; 5];
    for (index, byte) in written[..bytes].iter_mut().enumerate() {
        let seven = (len >> (7 * (bytes - 1 - index)) & 0x7f) as u8;
        *byte = if index == 0 { seven } else { seven | 0x80 };
    }
    (written, bytes)
}

/// A listpack that is being written.
#[derive(Debug)]
pub(crate) struct ListpackWriter {
    bytes: Vec<u8>,
    words: u32,
}

impl Default for ListpackWriter {
    fn default() -> Self {
        Self { bytes: vec![0; HEADER_BYTES], words: 0 }
    }
}

impl ListpackWriter {
    /// Bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Words so far.
    pub(crate) fn words(&self) -> u32 {
        self.words
    }

    /// Adds a number.
    pub(crate) fn push_int(&mut self, value: i64) {
        let start = self.bytes.len();
        match value {
            0..=127 => self.bytes.push(value as u8),
            -4096..=4095 => {
                let value = value as u16 & 0x1fff;
                self.bytes.extend_from_slice(&[0xc0 | (value >> 8) as u8, value as u8]);
            }
            -32_768..=32_767 => self.put(0xf1, &(value as i16).to_le_bytes()),
            -8_388_608..=8_388_607 => self.put(0xf2, &(value as i32).to_le_bytes()[..3]),
            -2_147_483_648..=2_147_483_647 => self.put(0xf3, &(value as i32).to_le_bytes()),
            _ => self.put(0xf4, &value.to_le_bytes()),
        }
        self.close(start);
    }

    /// Adds text, as a number where it is one written as Redis writes it.
    pub(crate) fn push(&mut self, text: &[u8]) {
        if let Some(value) = plain_int(text) {
            return self.push_int(value);
        }
        let start = self.bytes.len();
        match text.len() {
            len @ 0..=63 => self.bytes.push(0x80 | len as u8),
            len @ 64..=4095 => self.bytes.extend_from_slice(&[0xe0 | (len >> 8) as u8, len as u8]),
            len => self.put(0xf0, &(len as u32).to_le_bytes()),
        }
        self.bytes.extend_from_slice(text);
        self.close(start);
    }

    fn put(&mut self, form: u8, rest: &[u8]) {
        self.bytes.push(form);
        self.bytes.extend_from_slice(rest);
    }

    fn close(&mut self, start: usize) {
        let (backward, len) = backward_len(self.bytes.len() - start);
        self.bytes.extend_from_slice(&backward[..len]);
        self.words += 1;
    }

    /// Writes over a number between 0 and 127 that is the word at `offset`.
    pub(crate) fn set_small(&mut self, offset: usize, value: u8) {
        self.bytes[offset] = value & 0x7f;
    }

    /// The whole listpack.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(END);
        let len = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&len.to_le_bytes());
        let words = u16::try_from(self.words).unwrap_or(UNCOUNTED);
        self.bytes[4..HEADER_BYTES].copy_from_slice(&words.to_le_bytes());
        self.bytes
    }
}

/// The number whose decimal digits the text is.
pub(crate) fn plain_int(text: &[u8]) -> Option<i64> {
    if text.is_empty() || text.len() > 20 || !(text[0] == b'-' || text[0].is_ascii_digit()) {
        return None;
    }
    let value: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (itoa::Buffer::new().format(value).as_bytes() == text).then_some(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::packed::{Form, Packed};

    fn words(bytes: Vec<u8>) -> Result<Vec<Vec<u8>>, Wrong> {
        let mut packed = Packed::open(Form::Listpack, bytes)?;
        let (mut found, mut word) = (Vec::new(), Vec::new());
        while packed.next_into(&mut word)? {
            found.push(word.clone());
        }
        Ok(found)
    }

    #[test]
    fn words_of_all_forms_come_back() {
        let mut given: Vec<Vec<u8>> = [
            0,
            1,
            -1,
            127,
            128,
            4095,
            -4096,
            4096,
            32_767,
            -32_768,
            8_388_607,
            i64::from(i32::MIN),
            i64::MAX,
            i64::MIN,
        ]
        .iter()
        .map(|number: &i64| number.to_string().into_bytes())
        .collect();
        given.extend([0, 1, 63, 64, 127, 4095, 4096, 16_380, 16_390, 70_000].map(|len| vec![b'x'; len]));
        given.extend([&b"-0"[..], b"01", b"+1", b"9223372036854775808", b"-"].map(<[u8]>::to_vec));
        let mut writer = ListpackWriter::default();
        given.iter().for_each(|word| writer.push(word));
        assert_eq!(words(writer.finish()).unwrap(), given);
    }

    proptest! {
        #[test]
        fn damaged_bytes_are_refused_or_read_within_bounds(
            given in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..30),
            place in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let mut writer = ListpackWriter::default();
            given.iter().for_each(|word| writer.push(word));
            let mut bytes = writer.finish();
            prop_assert_eq!(&words(bytes.clone()).unwrap(), &given);
            let place = place.index(bytes.len());
            bytes[place] = byte;
            let _ = words(bytes);
        }
    }
}
