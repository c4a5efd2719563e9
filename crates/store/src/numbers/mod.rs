//! Text and numbers, as Redis reads and writes them.

mod big;
mod double;
pub(crate) mod long_double;

pub use double::{format_f64, format_g17, parse_f64, read_f64};

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Reads a canonical 64-bit integer: no plus sign, no spaces, no leading zeros, no `-0`.
#[inline]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let magnitude = parse_u64(digits)?;
    match (negative, magnitude) {
        (true, 0) => None,
        (true, m) if m <= i64::MIN.unsigned_abs() => Some((m as i64).wrapping_neg()),
        (false, m) => i64::try_from(m).ok(),
        _ => None,
    }
}

/// Reads a canonical unsigned integer: digits only, no leading zeros.
#[inline]
pub fn parse_u64(digits: &[u8]) -> Option<u64> {
    match digits {
        [] => return None,
        [b'0'] => return Some(0),
        [b'0', ..] => return None,
        _ if digits.len() > 20 => return None,
        _ => {}
    }
    let mut value = 0u64;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// Two hexadecimal digits for each byte, small letters.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.extend([byte >> 4, byte & 0xf].map(|digit| char::from(HEX_DIGITS[usize::from(digit)])));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_canonical_spelling_is_an_integer() {
        for text in [
            "",
            "-",
            "+1",
            "01",
            "-0",
            " 1",
            "1 ",
            "1.0",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999999",
            "0x1",
        ] {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse_i64(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(parse_i64(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(parse_i64(b"0"), Some(0));
    }

    #[test]
    fn bytes_have_two_hexadecimal_digits_each() {
        assert_eq!((hex(&[0x00, 0x0f, 0xa0, 0xff]), hex(&[])), ("000fa0ff".into(), String::new()));
    }

    proptest! {
        #[test]
        fn every_integer_reads_back(value: i64) {
            prop_assert_eq!(parse_i64(value.to_string().as_bytes()), Some(value));
        }
    }
}
