//! Sizes as people write them: `64M`, `64MiB`, `1g`, `65536`.
//!
//! Relies on `quire-units` to read them. Here is only the message for what is no size.

pub use quire_units::format_bytes as words;

/// Bytes of a size.
///
/// # Errors
/// It is none; the message says how to write one.
pub fn parse(text: &str) -> Result<u64, String> {
    quire_units::parse_bytes(text)
        .ok_or_else(|| format!("{text:?} is no size: write bytes, or a number with K, M, G or T (256MiB)"))
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
