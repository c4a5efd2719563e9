//! Floating-point numbers in text: read as the C library's strtod does, printed as Redis does.

/// Longest text that is read as a whole number: all digits of any double, and those of the longer ones that Redis adds with.
const TEXT_MAX: usize = 5 * 1024;
/// Integers of a double that Redis prints as such lie between this and its negative.
const LARGEST_INTEGER: f64 = (i64::MAX / 2) as f64;
/// Powers of two beyond which every number is 0 or infinite.
const EXPONENT_MAX: i64 = 5000;
/// A whole number of so many digits is exact as `f64`.
const EXACT_DIGITS: usize = 15;

/// Reads a floating-point number: the whole text, infinities written out allowed, NaN and numbers out of range not.
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    plain_digits(text).or_else(|| parse_any(text))
}

/// Reads a whole number that is written with few digits and nothing else, as most scores are.
#[inline]
fn plain_digits(text: &[u8]) -> Option<f64> {
    if text.is_empty() || text.len() > EXACT_DIGITS {
        return None;
    }
    let mut number = 0u64;
    for &byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number * 10 + u64::from(digit);
    }
    Some(number as f64)
}

fn parse_any(text: &[u8]) -> Option<f64> {
    if text.len() > TEXT_MAX || text.first().is_none_or(|&byte| is_space(byte)) {
        return None;
    }
    let (value, len) = read_f64(text);
    let unsigned = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    let spelled = unsigned.first().is_some_and(|byte| byte.eq_ignore_ascii_case(&b'i'));
    let too_large = value.is_infinite() && !spelled;
    let too_small = value == 0.0 && has_nonzero_digit(unsigned);
    (len == text.len() && !value.is_nan() && !too_large && !too_small).then_some(value)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Whether a number whose value is 0 was written as another one.
fn has_nonzero_digit(unsigned: &[u8]) -> bool {
    let hexadecimal = hex_digits(unsigned).is_some();
    let exponent: &[u8] = if hexadecimal { b"pP" } else { b"eE" };
    let digits = if hexadecimal { &unsigned[2..] } else { unsigned };
    digits.iter().take_while(|byte| !exponent.contains(byte)).any(|byte| byte.is_ascii_hexdigit() && *byte != b'0')
}

/// Reads the number that a text begins with, behind spaces, and tells where it ends: 0, and nowhere behind the start, if there is
/// none. What is too large is infinite.
pub fn read_f64(text: &[u8]) -> (f64, usize) {
    let spaces = text.iter().take_while(|&&byte| is_space(byte)).count();
    let rest = &text[spaces..];
    let (negative, sign) = match rest.first() {
        Some(b'-') => (true, 1),
        Some(b'+') => (false, 1),
        _ => (false, 0),
    };
    let unsigned = &rest[sign..];
    let (value, len) = read_word(unsigned).or_else(|| read_hex(unsigned)).unwrap_or_else(|| read_decimal(unsigned));
    match len {
        0 => (0.0, 0),
        len => (if negative { -value } else { value }, spaces + sign + len),
    }
}

fn read_word(text: &[u8]) -> Option<(f64, usize)> {
    let begins = |word: &[u8]| text.get(..word.len()).is_some_and(|part| part.eq_ignore_ascii_case(word));
    if begins(b"infinity") {
        Some((f64::INFINITY, 8))
    } else if begins(b"inf") {
        Some((f64::INFINITY, 3))
    } else {
        begins(b"nan").then_some((f64::NAN, 3))
    }
}

fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// Bytes of an exponent that begins with this letter; 0 if it has no digits.
fn exponent(text: &[u8], letter: u8) -> usize {
    match text {
        [first, rest @ ..] if first.eq_ignore_ascii_case(&letter) => {
            let sign = usize::from(matches!(rest.first(), Some(b'+' | b'-')));
            match digits(&rest[sign..]) {
                0 => 0,
                digits => 1 + sign + digits,
            }
        }
        _ => 0,
    }
}

fn read_decimal(text: &[u8]) -> (f64, usize) {
    let whole = digits(text);
    let fraction = match text.get(whole) {
        Some(b'.') => 1 + digits(&text[whole + 1..]),
        _ => 0,
    };
    if whole == 0 && fraction < 2 {
        return (0.0, 0);
    }
    let len = whole + fraction + exponent(&text[whole + fraction..], b'e');
    let value = std::str::from_utf8(&text[..len]).ok().and_then(|text| text.parse().ok());
    value.map_or((0.0, 0), |value| (value, len))
}

/// The digits of a hexadecimal number and what follows.
fn hex_digits(text: &[u8]) -> Option<&[u8]> {
    let rest = text.strip_prefix(b"0x").or(text.strip_prefix(b"0X"))?;
    let first = if rest.first() == Some(&b'.') { 1 } else { 0 };
    rest.get(first).is_some_and(u8::is_ascii_hexdigit).then_some(rest)
}

fn read_hex(text: &[u8]) -> Option<(f64, usize)> {
    let rest = hex_digits(text)?;
    let (mut mantissa, mut shift, mut point, mut len) = (0u64, 0i64, false, 0);
    for &byte in rest {
        match (byte, (byte as char).to_digit(16)) {
            (_, Some(digit)) if mantissa >> 60 == 0 => {
                mantissa = mantissa << 4 | u64::from(digit);
                shift -= if point { 4 } else { 0 };
            }
            (_, Some(digit)) => {
                // Only whether anything follows matters to the rounding.
                mantissa |= u64::from(digit != 0);
                shift += if point { 0 } else { 4 };
            }
            (b'.', None) if !point => point = true,
            _ => break,
        }
        len += 1;
    }
    let exponent_len = exponent(&rest[len..], b'p');
    if exponent_len > 0 {
        let text = std::str::from_utf8(&rest[len + 1..len + exponent_len]).ok()?;
        let limit = if text.starts_with('-') { -EXPONENT_MAX } else { EXPONENT_MAX };
        shift = shift.saturating_add(text.parse().unwrap_or(limit));
    }
    let mut value = mantissa as f64;
    let mut left = shift.clamp(-EXPONENT_MAX, EXPONENT_MAX) as i32;
    while left != 0 {
        let part = left.clamp(-1000, 1000);
        (value, left) = (value * 2f64.powi(part), left - part);
    }
    Some((value, 2 + len + exponent_len))
}

/// The decimal digits of a finite number that is not 0, and the power of ten of the first one.
fn split(scientific: &str) -> (String, i32) {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    (mantissa.chars().filter(char::is_ascii_digit).collect(), exponent.parse().unwrap_or(0))
}

fn special(value: f64) -> Option<&'static str> {
    if value.is_nan() {
        Some("nan")
    } else if value.is_infinite() {
        Some(if value > 0.0 { "inf" } else { "-inf" })
    } else if value == 0.0 {
        Some(if value.is_sign_negative() { "-0" } else { "0" })
    } else {
        None
    }
}

/// Digits with a point, the first of which stands for ten to the power of `exponent`.
fn plain(digits: &str, exponent: i32) -> String {
    let whole = exponent + 1;
    if whole <= 0 {
        return format!("0.{}{digits}", "0".repeat(whole.unsigned_abs() as usize));
    }
    let whole = whole as usize;
    match digits.get(whole..) {
        Some("") => digits.to_owned(),
        Some(fraction) => format!("{}.{fraction}", &digits[..whole]),
        None => format!("{digits}{}", "0".repeat(whole - digits.len())),
    }
}

fn with_exponent(digits: &str, exponent: i32, least_digits: usize) -> String {
    let (first, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{first}{point}{rest}e{sign}{:0least_digits$}", exponent.unsigned_abs())
}

/// The shortest text that reads back as `value`, as Redis prints a double from 7.2 on.
pub fn format_f64(value: f64) -> String {
    if let Some(text) = special(value) {
        return text.to_owned();
    }
    if value.abs() <= LARGEST_INTEGER && value.fract() == 0.0 {
        return itoa::Buffer::new().format(value as i64).to_owned();
    }
    let (digits, exponent) = split(&format!("{:e}", value.abs()));
    // The power of ten of the last digit decides whether there is an exponent.
    let last = exponent - (digits.len() as i32 - 1);
    let is_plain = match last {
        0.. => (exponent as usize) < digits.len() + 7,
        _ => last > -7 || exponent.abs() < 4,
    };
    let text = if is_plain { plain(&digits, exponent) } else { with_exponent(&digits, exponent, 1) };
    if value < 0.0 { format!("-{text}") } else { text }
}

/// The text that C's `%.17g` gives, as Redis prints a double in digests, and before 7.2.
pub fn format_g17(value: f64) -> String {
    if let Some(text) = special(value) {
        return text.to_owned();
    }
    let (digits, exponent) = split(&format!("{:.16e}", value.abs()));
    let digits = digits.trim_end_matches('0');
    let text = if (-4..17).contains(&exponent) { plain(digits, exponent) } else { with_exponent(digits, exponent, 2) };
    if value < 0.0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn floats_read_as_expected() {
        assert_eq!(parse_f64(b"3.0e3"), Some(3000.0));
        assert_eq!(parse_f64(b"-inf"), Some(f64::NEG_INFINITY));
        assert_eq!(
            (parse_f64(b"+Infinity"), parse_f64(b".5"), parse_f64(b"5.")),
            (Some(f64::INFINITY), Some(0.5), Some(5.0))
        );
        assert_eq!(
            (parse_f64(b"0x10"), parse_f64(b"-0X1.8p1"), parse_f64(b"0x.8")),
            (Some(16.0), Some(-3.0), Some(0.5))
        );
        assert_eq!((parse_f64(b"0e5"), parse_f64(b"-0x0p3")), (Some(0.0), Some(0.0)));
        for text in [
            "nan",
            "1e999",
            "1e-400",
            "0x1p-2000",
            "0x1p2000",
            " 1",
            "1 ",
            "",
            "-",
            "+-1",
            "1e",
            "0x",
            "1_0",
            "inf1",
            ".",
        ] {
            assert_eq!(parse_f64(text.as_bytes()), None, "{text}");
        }
        let largest = format!("{}.000", f64::MAX);
        assert_eq!(parse_f64(largest.as_bytes()), Some(f64::MAX));
        let zeros = |len: usize| parse_f64(&vec![b'0'; len]);
        assert_eq!((zeros(TEXT_MAX), zeros(TEXT_MAX + 1)), (Some(0.0), None));
    }

    proptest! {
        #[test]
        fn digits_alone_read_as_in_any_other_number(text in "[0-9]{0,18}") {
            prop_assert_eq!(parse_f64(text.as_bytes()), parse_any(text.as_bytes()));
            prop_assert_eq!(parse_f64(text.as_bytes()), text.parse().ok());
        }
    }

    #[test]
    fn a_number_ends_where_the_c_library_ends_it() {
        for (text, value, len) in [
            ("", 0.0, 0),
            ("x", 0.0, 0),
            (" \t", 0.0, 0),
            (" 12x", 12.0, 3),
            ("1e+", 1.0, 1),
            ("1e400", f64::INFINITY, 5),
            ("-.5.5", -0.5, 3),
            ("0x", 0.0, 1),
            ("0x1g", 1.0, 3),
            ("0x123456789abcdef01p4", 0x1_2345_6789_abcd_ef01_u128 as f64 * 16.0, 21),
            ("infinit", f64::INFINITY, 3),
            ("-inf", f64::NEG_INFINITY, 4),
        ] {
            assert_eq!(read_f64(text.as_bytes()), (value, len), "{text}");
        }
        assert!(read_f64(b"nan").0.is_nan());
    }

    #[test]
    fn floats_print_as_expected() {
        for (value, shortest, seventeen) in [
            (3.0, "3", "3"),
            (10.6, "10.6", "10.6"),
            (3.1, "3.1", "3.1000000000000001"),
            (1e300, "1e+300", "1.0000000000000001e+300"),
            (1.5e-7, "1.5e-7", "1.4999999999999999e-07"),
            (-0.25, "-0.25", "-0.25"),
            (1e16, "10000000000000000", "10000000000000000"),
            (4e18, "4000000000000000000", "4e+18"),
            (1e19, "1e+19", "1e+19"),
            (0.000_012, "0.000012", "1.2e-05"),
            (0.001_234_56, "0.00123456", "0.00123456"),
            (12_345.123_456_7, "1.23451234567e+4", "12345.123456699999"),
            (f64::INFINITY, "inf", "inf"),
            (-0.0, "-0", "-0"),
        ] {
            assert_eq!((format_f64(value).as_str(), format_g17(value).as_str()), (shortest, seventeen), "{value:e}");
        }
    }

    proptest! {
        #[test]
        fn every_float_reads_back(value: f64) {
            prop_assume!(!value.is_nan());
            prop_assert_eq!(parse_f64(format_f64(value).as_bytes()), Some(value));
            prop_assert_eq!(parse_f64(format_g17(value).as_bytes()), Some(value));
        }

        #[test]
        fn any_text_is_read_as_far_as_it_goes(text in "[-+ 0-9xXpPeE.infa]{0,20}") {
            let (_, len) = read_f64(text.as_bytes());
            prop_assert!(len <= text.len());
        }
    }
}
