//! Ziplists, which listpacks have replaced: each word behind the length of the one before it. Relies on `word`.

use crate::word::{Word, Wrong, int24, read, word_at};

const HEADER_BYTES: usize = 10;
const END: u8 = 0xff;
/// Stands before a length of four bytes.
const LONG: u8 = 0xfe;
/// The count of a ziplist whose words have to be counted.
const UNCOUNTED: u16 = u16::MAX;

/// Checks the header; returns where the first word begins.
pub(crate) fn open(bytes: &[u8]) -> Result<usize, Wrong> {
    if u64::from(u32::from_le_bytes(read(bytes, 0)?)) != bytes.len() as u64 || bytes.len() <= HEADER_BYTES {
        return Err("a ziplist's length is not what it says");
    }
    Ok(HEADER_BYTES)
}

/// How many words it says to have.
pub(crate) fn count(bytes: &[u8]) -> Option<u64> {
    let count = u16::from_le_bytes(read(bytes, 8).ok()?);
    (count != UNCOUNTED).then_some(u64::from(count))
}

/// The word at `at`, behind one of `before` bytes, and where the next one begins; `None` at the end.
pub(crate) fn step(bytes: &[u8], at: usize, before: usize) -> Result<Option<(Word, usize)>, Wrong> {
    let (said, at) = match read(bytes, at)? {
        [END] => return if at + 1 == bytes.len() { Ok(None) } else { Err("a ziplist ends too early") },
        [LONG] => (u32::from_le_bytes(read(bytes, at + 1)?) as usize, at + 5),
        [short] => (usize::from(short), at + 1),
    };
    if said != before {
        return Err("a word of a ziplist is not as long as is said behind it");
    }
    let [first] = read(bytes, at)?;
    let int = |value: i64, end: usize| Ok(Some((Word::Int(value), end)));
    let (start, len) = match first {
        0x00..=0x3f => (at + 1, usize::from(first & 0x3f)),
        0x40..=0x7f => {
            let [low] = read(bytes, at + 1)?;
            (at + 2, usize::from(first & 0x3f) << 8 | usize::from(low))
        }
        0x80 => (at + 5, u32::from_be_bytes(read(bytes, at + 1)?) as usize),
        0xc0 => return int(i64::from(i16::from_le_bytes(read(bytes, at + 1)?)), at + 3),
        0xd0 => return int(i64::from(i32::from_le_bytes(read(bytes, at + 1)?)), at + 5),
        0xe0 => return int(i64::from_le_bytes(read(bytes, at + 1)?), at + 9),
        0xf0 => return int(int24(read(bytes, at + 1)?), at + 4),
        0xfe => return int(i64::from(i8::from_le_bytes(read(bytes, at + 1)?)), at + 2),
        0xf1..=0xfd => return int(i64::from(first & 0x0f) - 1, at + 1),
        _ => return Err("a word of a ziplist has no known form"),
    };
    Ok(Some((word_at(bytes, start, len)?, start + len)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packed::{Form, Packed};

    /// A ziplist of words that are given with their form.
    fn ziplist(words: &[&[u8]]) -> Vec<u8> {
        let (mut body, mut before) = (Vec::new(), 0usize);
        for word in words {
            let start = body.len();
            if before < usize::from(LONG) {
                body.push(before as u8);
            } else {
                body.push(LONG);
                body.extend_from_slice(&(before as u32).to_le_bytes());
            }
            body.extend_from_slice(word);
            before = body.len() - start;
        }
        let total = (HEADER_BYTES + body.len() + 1) as u32;
        let mut bytes = [total.to_le_bytes(), 10u32.to_le_bytes()].concat();
        bytes.extend_from_slice(&(words.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes.push(END);
        bytes
    }

    #[test]
    fn words_of_all_forms_are_read() {
        let long = [&[0x41, 44][..], &[b'y'; 300]].concat();
        let words: [&[u8]; 10] = [
            b"\x03abc",
            &long,
            &[0x80, 0, 0, 0, 1, b'z'],
            &[0xc0, 0xff, 0xff],
            &[0xd0, 1, 0, 0, 0x80],
            &[0xe0, 1, 0, 0, 0, 0, 0, 0, 0],
            &[0xf0, 0xfe, 0xff, 0xff],
            &[0xfe, 0x80],
            &[0xf1],
            &[0xfd],
        ];
        let bytes = ziplist(&words);
        let mut packed = Packed::open(Form::Ziplist, bytes).unwrap();
        let (mut found, mut word) = (Vec::new(), Vec::new());
        while packed.next_into(&mut word).unwrap() {
            found.push(String::from_utf8(word.clone()).unwrap());
        }
        let expected = ["abc", &"y".repeat(300), "z", "-1", "-2147483647", "1", "-2", "-128", "0", "12"];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let mut bytes = ziplist(&[b"\x01a", b"\x01b"]);
        bytes[HEADER_BYTES + 3] = 9;
        let mut packed = Packed::open(Form::Ziplist, bytes.clone()).unwrap();
        assert!(packed.next().is_ok() && packed.next().is_err());
        bytes.pop();
        assert!(Packed::open(Form::Ziplist, bytes).is_err());
    }
}
