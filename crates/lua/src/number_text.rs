//! Numbers as text, as `printf` of C writes them with `%.Ng`.

/// A number with at most so many significant digits.
pub fn shortest_of(number: f64, digits: usize) -> String {
    if number.is_nan() {
        return if number.is_sign_negative() { "-nan" } else { "nan" }.to_owned();
    }
    if number.is_infinite() {
        return if number < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    let digits = digits.max(1);
    let scientific = format!("{number:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs());
    }
    let fraction_digits = (digits as i32 - 1 - exponent).max(0) as usize;
    without_zeros(&format!("{number:.fraction_digits$}")).to_owned()
}

fn without_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_by_printf() {
        for (number, digits, text) in [
            (0.1, 17, "0.10000000000000001"),
            (1e20, 17, "1e+20"),
            (3.0, 17, "3"),
            (-0.0, 14, "-0"),
            (1e-5, 14, "1e-05"),
            (0.0001, 14, "0.0001"),
            (123_456_789_012_345_678.0, 17, "1.2345678901234568e+17"),
            (123_456.5, 3, "1.23e+05"),
            (99.99, 3, "100"),
            (f64::INFINITY, 14, "inf"),
            (1.0 / 3.0, 14, "0.33333333333333"),
        ] {
            assert_eq!(shortest_of(number, digits), text);
        }
    }
}
