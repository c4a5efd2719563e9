//! LZF, by which RDB strings are compressed: literal runs of up to 32 bytes, and matches of 3 to 264 bytes at most 8 KiB back.

/// Farthest back that a match may lie.
const MAX_DISTANCE: usize = 1 << 13;
/// Longest run of literal bytes.
const MAX_LITERALS: usize = 1 << 5;
/// Longest match.
const MAX_MATCH: usize = 264;
/// Places that the compressor remembers, by a hash of the three bytes there.
const HASH_BITS: u32 = 14;
/// Most bytes that one byte of input can give.
const MAX_RATIO: u64 = MAX_MATCH as u64 / 3 + 1;

/// Whether `packed_len` bytes can't possibly give `len` bytes.
pub(crate) fn is_impossible(packed_len: u64, len: u64) -> bool {
    len > packed_len.saturating_mul(MAX_RATIO)
}

/// Unpacks `packed` to exactly `len` bytes; `None` if it is malformed. Takes no more memory than comes out of it.
pub(crate) fn decompress(packed: &[u8], len: usize) -> Option<Vec<u8>> {
    if is_impossible(packed.len() as u64, len as u64) {
        return None;
    }
    let mut out = Vec::new();
    out.try_reserve_exact(len).ok()?;
    let mut rest = packed;
    while let Some((&control, behind)) = rest.split_first() {
        rest = behind;
        let control = usize::from(control);
        if control < MAX_LITERALS {
            let (literals, behind) = rest.split_at_checked(control + 1)?;
            if out.len() + literals.len() > len {
                return None;
            }
            out.extend_from_slice(literals);
            rest = behind;
            continue;
        }
        let mut match_len = control >> 5;
        if match_len == 7 {
            let (&more, behind) = rest.split_first()?;
            match_len += usize::from(more);
            rest = behind;
        }
        let (&low, behind) = rest.split_first()?;
        rest = behind;
        let distance = ((control & 0x1f) << 8 | usize::from(low)) + 1;
        copy_match(&mut out, distance, match_len + 2, len)?;
    }
    (out.len() == len).then_some(out)
}

/// Appends what lies `distance` bytes back, which may reach into what is being appended.
fn copy_match(out: &mut Vec<u8>, distance: usize, match_len: usize, len: usize) -> Option<()> {
    let start = out.len().checked_sub(distance)?;
    if out.len() + match_len > len {
        return None;
    }
    if distance >= match_len {
        out.extend_from_within(start..start + match_len);
    } else {
        for at in start..start + match_len {
            out.push(out[at]);
        }
    }
    Some(())
}

/// Packs `bytes`; `None` if that makes them no shorter by at least four bytes, as Redis asks.
pub(crate) fn compress(bytes: &[u8]) -> Option<Vec<u8>> {
    let limit = bytes.len().checked_sub(4)?;
    let mut table = vec![0u32; 1 << HASH_BITS];
    let mut out = Vec::with_capacity(bytes.len().min(1 << 16));
    let (mut at, mut literals) = (0, 0);
    while at + 2 < bytes.len() {
        let hash = hash_of(&bytes[at..at + 3]);
        // Places are kept one higher, so that 0 means none.
        let found = (table[hash] as usize).checked_sub(1);
        table[hash] = u32::try_from(at + 1).ok()?;
        let found = found.filter(|&from| at - from <= MAX_DISTANCE && bytes[from..from + 3] == bytes[at..at + 3]);
        let Some(from) = found else {
            at += 1;
            continue;
        };
        put_literals(&mut out, &bytes[literals..at]);
        let most = MAX_MATCH.min(bytes.len() - at);
        let match_len = 3 + (3..most).take_while(|&more| bytes[from + more] == bytes[at + more]).count();
        put_match(&mut out, at - from - 1, match_len - 2);
        at += match_len;
        literals = at;
        if out.len() > limit {
            return None;
        }
    }
    put_literals(&mut out, &bytes[literals..]);
    (out.len() <= limit).then_some(out)
}

fn hash_of(three: &[u8]) -> usize {
    let word = u32::from(three[0]) << 16 | u32::from(three[1]) << 8 | u32::from(three[2]);
    (word.wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize
}

fn put_literals(out: &mut Vec<u8>, bytes: &[u8]) {
    for run in bytes.chunks(MAX_LITERALS) {
        out.push(run.len() as u8 - 1);
        out.extend_from_slice(run);
    }
}

/// `distance` is one less than that of the match, `len` two less than its length.
fn put_match(out: &mut Vec<u8>, distance: usize, len: usize) {
    let high = (distance >> 8) as u8;
    if len < 7 {
        out.push((len as u8) << 5 | high);
    } else {
        out.push(7 << 5 | high);
        out.push((len - 7) as u8);
    }
    out.push(distance as u8);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_repeats_gets_shorter_and_comes_back() {
        for text in [&b"a".repeat(1000), &b"abcabcd".repeat(5000), &[b"x".repeat(300), b"yz".repeat(9000)].concat()] {
            let packed = compress(text).unwrap();
            assert!(packed.len() < text.len() / 10, "{} of {}", packed.len(), text.len());
            assert_eq!(decompress(&packed, text.len()).unwrap(), *text);
        }
        assert_eq!(compress(b"abcdefghijklmnopqrstuvwxyz"), None);
        assert_eq!(compress(b""), None);
    }

    #[test]
    fn a_bomb_is_refused_before_memory_is_taken() {
        assert_eq!(decompress(&[0xff; 100], usize::MAX / 2), None);
        assert_eq!(decompress(b"\x00a\xe0\xff\x00", 400), None, "shorter than it claims");
        assert_eq!(decompress(b"\x00a\x20\x01", 4), None, "a match before the beginning");
        assert_eq!(decompress(b"\x05ab", 6), None, "literals that are missing");
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(words in prop::collection::vec(prop::collection::vec(0..4u8, 0..40), 0..60)) {
            let bytes = words.concat();
            if let Some(packed) = compress(&bytes) {
                prop_assert!(packed.len() + 4 <= bytes.len());
                prop_assert_eq!(decompress(&packed, bytes.len()), Some(bytes));
            }
        }

        #[test]
        fn any_packed_bytes_give_what_they_say_or_nothing(packed in prop::collection::vec(any::<u8>(), 0..200), len in 0..3000usize) {
            if let Some(bytes) = decompress(&packed, len) {
                prop_assert_eq!(bytes.len(), len);
            }
        }
    }
}
