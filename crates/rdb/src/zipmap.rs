//! Zipmaps, in which versions before 2.6 kept small hashes: fields and values, of which each value may be followed by spare bytes.
//! Relies on `word`.

use crate::word::{Word, Wrong, read, word_at};

const END: u8 = 0xff;
/// Stands before a length of four bytes; as the count, pairs have to be counted.
const LONG: u8 = 0xfe;

/// Returns where the first word begins.
pub(crate) fn open(bytes: &[u8]) -> Result<usize, Wrong> {
    if bytes.len() < 2 { Err("a zipmap is too short") } else { Ok(1) }
}

/// How many words it says to have.
pub(crate) fn count(bytes: &[u8]) -> Option<u64> {
    bytes.first().filter(|&&count| count < LONG).map(|&count| 2 * u64::from(count))
}

/// The word at `at`, behind `words` others, and where the next one begins; `None` at the end.
pub(crate) fn step(bytes: &[u8], at: usize, words: u64) -> Result<Option<(Word, usize)>, Wrong> {
    let is_value = words % 2 == 1;
    let (len, at) = match read(bytes, at)? {
        [END] if is_value => return Err("a field of a zipmap has no value"),
        [END] => return if at + 1 == bytes.len() { Ok(None) } else { Err("a zipmap ends too early") },
        [LONG] => (u32::from_le_bytes(read(bytes, at + 1)?) as usize, at + 5),
        [short] => (usize::from(short), at + 1),
    };
    let (spare, start) = if is_value { (usize::from(read::<1>(bytes, at)?[0]), at + 1) } else { (0, at) };
    Ok(Some((word_at(bytes, start, len)?, start + len + spare)))
}

#[cfg(test)]
mod tests {
    use crate::packed::{Form, Packed};

    #[test]
    fn pairs_are_read_and_spare_bytes_are_not() {
        let bytes = b"\x02\x03foo\x02\x01ab#\x01k\x00\x00\xff".to_vec();
        let mut packed = Packed::open(Form::Zipmap, bytes).unwrap();
        let (mut found, mut word) = (Vec::new(), Vec::new());
        while packed.next_into(&mut word).unwrap() {
            found.push(word.clone());
        }
        assert_eq!(found, [&b"foo"[..], b"ab", b"k", b""]);
        let mut cut = Packed::open(Form::Zipmap, b"\x01\x03foo\xff".to_vec()).unwrap();
        assert!(cut.next().is_ok() && cut.next().is_err());
    }
}
