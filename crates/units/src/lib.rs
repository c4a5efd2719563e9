//! Sizes as people write and read them.
//!
//! Relies on nothing. Reading allocates nothing, so that it can be done before a program's `main`.

#![forbid(unsafe_code)]

/// Bytes of a size such as `65536`, `512k`, `64mb` or `2GiB`: every unit is a power of 1024. `None` if it is no size.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let (letter, rest) = unit.split_at(unit.len().min(1));
    let shift = match letter.to_ascii_lowercase().first() {
        None => 0,
        Some(b'b') if rest.is_empty() => 0,
        Some(b'k') => 10,
        Some(b'm') => 20,
        Some(b'g') => 30,
        Some(b't') => 40,
        Some(_) => return None,
    };
    let is_known = rest.is_empty() || rest.eq_ignore_ascii_case(b"b") || rest.eq_ignore_ascii_case(b"ib");
    if is_known { number.checked_mul(1 << shift) } else { None }
}

/// A size in a few letters: `5 B`, `1.5 KiB`, `300 MiB`.
pub fn format_bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut amount, mut unit) = (bytes as f64, 0);
    while amount >= 1024.0 && unit + 1 < units.len() {
        amount /= 1024.0;
        unit += 1;
    }
    if unit == 0 || amount >= 100.0 || amount.fract() == 0.0 {
        format!("{amount:.0} {}", units[unit])
    } else {
        format!("{amount:.1} {}", units[unit])
    }
}

/// The number at the start of a size, and what stands behind it.
fn split(text: &str) -> Option<(u64, &[u8])> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text.as_bytes()[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024_however_they_are_written() {
        for (text, bytes) in
            [("0", 0), ("7", 7), ("7B", 7), ("64k", 64 << 10), ("64Kb", 64 << 10), ("256MiB", 256 << 20)]
        {
            assert_eq!(parse_bytes(text), Some(bytes), "{text}");
        }
        for (text, bytes) in [("2GB", 2 << 30), ("1t", 1 << 40), ("1tib", 1 << 40), ("16777215T", 16_777_215 << 40)] {
            assert_eq!(parse_bytes(text), Some(bytes), "{text}");
        }
    }

    #[test]
    fn sizes_are_written_in_the_unit_that_leaves_few_digits() {
        let written: Vec<_> = [5, 1536, 1 << 20, 300 << 20].into_iter().map(format_bytes).collect();
        assert_eq!(written, ["5 B", "1.5 KiB", "1 MiB", "300 MiB"]);
    }

    #[test]
    fn what_is_no_size_or_too_large_is_refused() {
        for text in
            ["", "MiB", "-1", "+1", "1x", "1bb", "1bib", "1kbb", "1 k", "1.5k", "1é", "99999999999T", "16777216T"]
        {
            assert_eq!(parse_bytes(text), None, "{text:?}");
        }
    }
}
