//! Numbers for people: sizes, digits, values with their units.
//!
//! Relies on `quire_units` for times.

use quire_units::format_ns;

/// Bytes as a number of MiB.
pub fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Bytes in MiB.
pub fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", mebibytes(bytes))
}

/// Four significant digits are more than any of these measurements deserves.
pub fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10_f64.powf((3.0 - value.abs().log10().floor()).max(0.0));
    (value * scale).round() / scale
}

/// A number with its thousands apart; small ones as they are.
pub fn plain(value: f64) -> String {
    if value.abs() < 1000.0 {
        return format!("{value}");
    }
    let digits = format!("{:.0}", value.abs());
    let mut text = String::from(if value < 0.0 { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A value with its unit, times in the unit that suits them.
pub fn format_with_unit(value: f64, unit: &str) -> String {
    match unit {
        "ns" if value >= 0.0 => format_ns(value),
        "" | "of 1" => plain(value),
        unit => format!("{} {unit}", plain(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_apart_and_four_digits_are_kept() {
        assert_eq!([12.5, 999.0, 1000.0, -2_734_567.4].map(plain), ["12.5", "999", "1,000", "-2,734,567"]);
        assert_eq!([1.23456, 0.012345, 123_456.7].map(rounded), [1.235, 0.01235, 123_457.0]);
        assert!(rounded(f64::NAN).is_nan());
    }

    #[test]
    fn a_value_is_told_in_its_unit() {
        assert_eq!(
            [format_with_unit(1234.0, "ns"), format_with_unit(0.5, "of 1"), format_with_unit(3.0, "x")],
            ["1.23 µs", "0.5", "3 x"]
        );
        assert_eq!((mib(3 << 20), mebibytes(1 << 19)), ("3.0 MiB".to_owned(), 0.5));
    }
}
