//! Sizes as people write them: `64M`, `64MiB`, `1g`, `65536`.
//!
//! Relies on nothing. Units are powers of 1024.

/// Bytes of a size.
///
/// # Errors
/// It is none; the message says how to write one.
pub fn parse(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no size: write bytes, or a number with K, M, G or T (256MiB)");
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let shift = match text[digits..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(wrong()),
    };
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

/// A size in a few letters.
pub fn words(bytes: u64) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes) in [("7", 7), ("64k", 64 << 10), ("256MiB", 256 << 20), ("2GB", 2 << 30), ("1t", 1 << 40)] {
            assert_eq!(parse(text), Ok(bytes));
        }
        for text in ["", "MiB", "-1", "1x", "99999999999T"] {
            assert!(parse(text).unwrap_err().contains("256MiB"), "{text}");
        }
        let told: Vec<_> = [5, 1536, 1 << 20, 300 << 20].into_iter().map(words).collect();
        assert_eq!(told, ["5 B", "1.5 KiB", "1 MiB", "300 MiB"]);
    }
}
