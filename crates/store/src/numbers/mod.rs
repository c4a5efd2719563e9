//! Text and numbers, as Redis reads and writes them.

mod big;
pub(crate) mod long_double;

/// Longest text that is read as a floating-point number, as in Redis.
const F64_TEXT_MAX: usize = 255;
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

/// Reads a floating-point number: the whole text, infinities written out allowed, NaN and numbers out of range not.
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= F64_TEXT_MAX)?;
    let value: f64 = text.parse().ok()?;
    let spelled = text.trim_start_matches(['+', '-']).starts_with(['i', 'I']);
    (!value.is_nan() && (value.is_finite() || spelled)).then_some(value)
}

/// Two hexadecimal digits for each byte, small letters.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.extend([byte >> 4, byte & 0xf].map(|digit| char::from(HEX_DIGITS[usize::from(digit)])));
    }
    text
}

/// The shortest text that reads back as `value`, with an exponent where the plain form would be long.
pub fn format_f64(value: f64) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let size = value.abs();
    if size != 0.0 && !(1e-5..1e17).contains(&size) {
        let text = format!("{value:e}");
        return if size >= 1.0 { text.replacen('e', "e+", 1) } else { text };
    }
    format!("{value}")
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
    fn floats_read_and_print_as_expected() {
        assert_eq!(parse_f64(b"3.0e3"), Some(3000.0));
        assert_eq!(parse_f64(b"-inf"), Some(f64::NEG_INFINITY));
        assert_eq!(parse_f64(b"nan"), None);
        assert_eq!(parse_f64(b"1e999"), None);
        assert_eq!((parse_f64(b" 1"), parse_f64(b"1 "), parse_f64(b"")), (None, None, None));
        assert_eq!((parse_f64(&[b'1'; 255]).is_some(), parse_f64(&[b'1'; 256])), (true, None));
        let texts = [
            (3.0, "3"),
            (10.6, "10.6"),
            (1e300, "1e+300"),
            (1.5e-7, "1.5e-7"),
            (-0.25, "-0.25"),
            (1e16, "10000000000000000"),
        ];
        for (value, text) in texts {
            assert_eq!(format_f64(value), text);
        }
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

        #[test]
        fn every_float_reads_back(value: f64) {
            prop_assume!(value.is_finite());
            prop_assert_eq!(parse_f64(format_f64(value).as_bytes()), Some(value));
        }
    }
}
