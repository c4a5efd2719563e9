//! Numbers in text as Redis reads and writes them. Relies on nothing.

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

/// Reads a floating-point number: the whole text, no spaces, not NaN; `inf` and `-inf` are allowed.
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    if text.is_empty() || text.len() > 255 || text[0].is_ascii_whitespace() {
        return None;
    }
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    // A text like 1e999 overflows to infinity; Redis refuses what does not fit unless infinity was written out.
    let spelt = text.iter().any(|byte| matches!(byte, b'i' | b'I'));
    (!value.is_nan() && (value.is_finite() || spelt)).then_some(value)
}

/// Reads a size with an optional unit as configuration files write it: `100`, `1k` (1000), `1kb` (1024), `64mb`, `2gb`.
pub fn parse_memory(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let unit_bytes: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit_bytes)
}

/// Writes a size for people: `1.50G`, `12.00M`, `3.10K`, `7B`.
pub fn human_bytes(bytes: u64) -> String {
    let value = bytes as f64;
    match bytes {
        0..1024 => format!("{bytes}B"),
        1024..1_048_576 => format!("{:.2}K", value / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.2}M", value / 1_048_576.0),
        1_073_741_824..1_099_511_627_776 => format!("{:.2}G", value / 1_073_741_824.0),
        _ => format!("{:.2}T", value / 1_099_511_627_776.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_must_be_canonical() {
        for (text, value) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
        ] {
            assert_eq!(parse_i64(text.as_bytes()), value);
        }
        for text in [
            "",
            "-",
            "+1",
            " 1",
            "1 ",
            "01",
            "-0",
            "1x",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999999",
        ] {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn floats_refuse_nan_and_rubbish() {
        assert_eq!(parse_f64(b"1.5e3"), Some(1500.0));
        assert_eq!(parse_f64(b"-inf"), Some(f64::NEG_INFINITY));
        for text in ["", "nan", " 1", "1 ", "1e999", "abc"] {
            assert_eq!(parse_f64(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_memory("64mb"), Some(64 << 20));
        assert_eq!(parse_memory("1K"), Some(1000));
        assert_eq!(parse_memory("12"), Some(12));
        assert_eq!(parse_memory("12q"), None);
        assert_eq!(parse_memory("99999999999gb"), None);
    }
}
