//! Sizes as configuration files and INFO of Redis have them.
//!
//! Relies on nothing. `1k` is 1000 bytes here and `1kb` is 1024, which users of Redis expect.

/// Bytes of a size such as `100`, `1k` (1000), `1kb` (1024), `64mb` or `2gb`. `None` if it is no size.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let (number, unit) = super::split(text)?;
    let unit_bytes: u64 = match unit.to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(unit_bytes)
}

/// A size as the fields of INFO that end in `_human` show it: `1.50G`, `12.00M`, `3.10K`, `7B`.
pub fn format_bytes(bytes: u64) -> String {
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
    fn a_letter_alone_is_a_power_of_1000_and_with_a_b_of_1024() {
        for (text, bytes) in [("12", 12), ("1b", 1), ("1K", 1000), ("1kb", 1024), ("2m", 2_000_000), ("64mb", 64 << 20)]
        {
            assert_eq!(parse_bytes(text), Some(bytes), "{text}");
        }
        for text in ["", "k", "-1", "+1", "12q", "1kib", "1.5k", "99999999999gb"] {
            assert_eq!(parse_bytes(text), None, "{text:?}");
        }
    }

    #[test]
    fn sizes_are_shown_with_two_digits_and_a_letter() {
        let shown = [7, 1536, 12 << 20, 3 << 29, 1 << 40].map(format_bytes);
        assert_eq!(shown, ["7B", "1.50K", "12.00M", "1.50G", "1.00T"]);
    }
}
