//! Sizes, durations and points in time as people write and read them.
//!
//! Relies on nothing. Reading and showing allocate nothing, so that both can be done before a program's `main` and inside its
//! `malloc`. Clients of Redis have other units: [`redis`].

#![forbid(unsafe_code)]

use std::fmt;
use std::time::Duration;

pub mod redis;

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

/// A number of bytes, shown in a few letters: `5 B`, `1.5 KiB`, `300 MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = ["B", "KiB", "MiB", "GiB", "TiB"];
        let (mut amount, mut unit) = (self.0 as f64, 0);
        while amount >= 1024.0 && unit + 1 < units.len() {
            amount /= 1024.0;
            unit += 1;
        }
        let digits = usize::from(unit > 0 && amount < 100.0 && amount.fract() != 0.0);
        write!(to, "{amount:.digits$} {}", units[unit])
    }
}

/// A size in a few letters, as [`Bytes`] shows it.
pub fn format_bytes(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

/// A time in the unit that suits it, with three digits and no more: `999 ns`, `1.50 µs`, `20.0 ms`, `300 s`.
pub fn format_duration(time: Duration) -> String {
    format_ns(time.as_nanos() as f64)
}

/// As [`format_duration`], for means and other fractions of a nanosecond.
pub fn format_ns(nanoseconds: f64) -> String {
    let (value, unit) = match nanoseconds {
        under if under < 1e3 => return format!("{under:.0} ns"),
        under if under < 1e6 => (under / 1e3, "µs"),
        under if under < 1e9 => (under / 1e6, "ms"),
        seconds => (seconds / 1e9, "s"),
    };
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {unit}")
}

/// A point in time in milliseconds since 1970, shown as `2026-11-21 07:43:59 UTC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UtcTime(pub u64);

impl fmt::Display for UtcTime {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1000;
        let (hours, minutes, seconds, days) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60, seconds / 86_400);
        // Years begin in March here, so that the leap day is a year's last; eras of 400 years all have the same days.
        let days = days + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let year = 400 * era + year + u64::from(month >= 10);
        let month = if month < 10 { month + 3 } else { month - 9 };
        write!(to, "{year}-{month:02}-{day:02} {hours:02}:{minutes:02}:{seconds:02} UTC")
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
    fn times_have_three_digits_in_the_unit_that_suits_them() {
        let told: Vec<String> = [7.0, 1234.0, 45_678.0, 999_600.0, 27_000_000.0, 2.5e9].map(format_ns).to_vec();
        assert_eq!(format_duration(Duration::from_micros(1500)), "1.50 ms");
        assert_eq!(told, ["7 ns", "1.23 µs", "45.7 µs", "1000 µs", "27.0 ms", "2.50 s"]);
    }

    #[test]
    fn points_in_time_are_written_for_people() {
        for (unix_ms, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399_999, "2000-02-28 23:59:59 UTC"),
            (951_782_400_000, "2000-02-29 00:00:00 UTC"),
            (4_107_542_400_000, "2100-03-01 00:00:00 UTC"),
            (1_795_247_039_429, "2026-11-21 07:43:59 UTC"),
        ] {
            assert_eq!(UtcTime(unix_ms).to_string(), text);
        }
        assert!(UtcTime(u64::MAX).to_string().ends_with("UTC"), "a damaged image may say any time");
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
