//! Sizes for people.
//!
//! Relies on nothing.

use std::fmt;

/// A number of bytes, shown in the largest unit that leaves it whole, or nearly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        let Some((unit, name)) = units.into_iter().find(|&(unit, _)| self.0 >= unit) else {
            return write!(to, "{} bytes", self.0);
        };
        match self.0 % unit {
            0 => write!(to, "{} {name}", self.0 / unit),
            _ => write!(to, "{:.1} {name}", self.0 as f64 / unit as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Bytes;

    #[test]
    fn sizes_read_as_people_write_them() {
        let shown = [1023, 1 << 10, 512 << 20, 16 << 30, 3 << 29].map(|bytes| Bytes(bytes).to_string());
        assert_eq!(shown, ["1023 bytes", "1 KiB", "512 MiB", "16 GiB", "1.5 GiB"]);
    }
}
