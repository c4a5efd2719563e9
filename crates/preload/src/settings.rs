//! The settings, from environment variables that begin with `QUIRE_PRELOAD`.
//!
//! Relies on being read once, while the library is loaded. A value that can't be understood leaves the default in force
//! and is told with the first line that is printed.

use quire_units::parse_bytes;

/// What an operator can set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PreloadSettings {
    /// `QUIRE_PRELOAD`: whether anything is done at all.
    pub enabled: bool,
    /// `QUIRE_PRELOAD_MEMORY`: bytes that may be copied ahead per child; by default a quarter of what is available.
    pub memory_bytes: Option<u64>,
    /// `QUIRE_PRELOAD_RATE`: bytes a second to copy at most.
    pub rate_bytes_per_s: u64,
    /// `QUIRE_PRELOAD_THRESHOLD`: the least share of a region that was written, in thousandths, for it to be copied.
    pub threshold_permille: u16,
    /// `QUIRE_PRELOAD_REGION`: bytes of a region.
    pub region_bytes: usize,
    /// `QUIRE_PRELOAD_LOG`: 0 one line when active, 1 a line per child, 2 everything.
    pub log: u8,
    /// `QUIRE_PRELOAD_HUGE`: whether regions may be copied into huge pages.
    pub huge: bool,
    /// `QUIRE_PRELOAD_BUSY`: share of the time in which tasks may wait for a processor, in thousandths, for pages to be
    /// copied one by one.
    pub busy_permille: u16,
    /// `QUIRE_PRELOAD_MIN`: programs that never held that many bytes are left alone.
    pub min_bytes: u64,
    /// Name of the first variable whose value was not understood.
    pub misread: Option<&'static str>,
}

impl Default for PreloadSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            memory_bytes: None,
            rate_bytes_per_s: 4 << 30,
            threshold_permille: 800,
            region_bytes: MOST_REGION_BYTES,
            log: 0,
            huge: true,
            busy_permille: 400,
            min_bytes: 64 << 20,
            misread: None,
        }
    }
}

/// The largest region, a huge page.
pub const MOST_REGION_BYTES: usize = 2 << 20;
const LEAST_REGION_BYTES: usize = 32 << 10;
const LEAST_RATE_BYTES_PER_S: u64 = 1 << 20;

impl PreloadSettings {
    /// The settings that `value_of` gives for the names of variables, without allocating.
    pub fn read<'a>(value_of: impl Fn(&std::ffi::CStr) -> Option<&'a [u8]>) -> Self {
        let mut settings = Self::default();
        let mut misread = None;
        let mut text = |name: &'static std::ffi::CStr, apply: &mut dyn FnMut(&str) -> Option<()>| {
            let Some(value) = value_of(name) else { return };
            if std::str::from_utf8(value).ok().map(str::trim).and_then(apply).is_none() && misread.is_none() {
                misread = name.to_str().ok();
            }
        };
        text(c"QUIRE_PRELOAD", &mut |value| set(&mut settings.enabled, yes_or_no(value)));
        text(c"QUIRE_PRELOAD_MEMORY", &mut |value| set(&mut settings.memory_bytes, parse_bytes(value).map(Some)));
        text(c"QUIRE_PRELOAD_RATE", &mut |value| {
            set(&mut settings.rate_bytes_per_s, parse_bytes(value).filter(|&rate| rate >= LEAST_RATE_BYTES_PER_S))
        });
        text(c"QUIRE_PRELOAD_THRESHOLD", &mut |value| set(&mut settings.threshold_permille, share(value)));
        text(c"QUIRE_PRELOAD_REGION", &mut |value| set(&mut settings.region_bytes, region_bytes(value)));
        text(c"QUIRE_PRELOAD_LOG", &mut |value| set(&mut settings.log, value.parse().ok().filter(|&level| level <= 2)));
        text(c"QUIRE_PRELOAD_HUGE", &mut |value| set(&mut settings.huge, yes_or_no(value)));
        text(c"QUIRE_PRELOAD_BUSY", &mut |value| set(&mut settings.busy_permille, share(value)));
        text(c"QUIRE_PRELOAD_MIN", &mut |value| set(&mut settings.min_bytes, parse_bytes(value)));
        settings.misread = misread;
        settings
    }

    /// Pages of a region.
    pub fn region_pages(&self) -> usize {
        self.region_bytes / quire_sys::mem::PAGE_SIZE
    }
}

/// Takes over a value that was understood.
fn set<T>(setting: &mut T, value: Option<T>) -> Option<()> {
    *setting = value?;
    Some(())
}

fn region_bytes(value: &str) -> Option<usize> {
    let bytes = usize::try_from(parse_bytes(value)?).ok()?;
    (bytes.is_power_of_two() && (LEAST_REGION_BYTES..=MOST_REGION_BYTES).contains(&bytes)).then_some(bytes)
}

fn yes_or_no(value: &str) -> Option<bool> {
    match value {
        "on" | "yes" | "auto" | "1" | "" => Some(true),
        "off" | "no" | "0" => Some(false),
        _ => None,
    }
}

/// `0.8`, `80` and `80%` are the same share.
fn share(value: &str) -> Option<u16> {
    let number: f64 = value.strip_suffix('%').unwrap_or(value).parse().ok()?;
    let whole = if value.ends_with('%') || number > 1.0 { number / 100.0 } else { number };
    (0.0..=1.0).contains(&whole).then(|| (whole * 1000.0).round() as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &'static str, value: &'static str) -> PreloadSettings {
        PreloadSettings::read(|asked| (asked.to_str() == Ok(name)).then_some(value.as_bytes()))
    }

    #[test]
    fn without_variables_the_defaults_hold() {
        assert_eq!(PreloadSettings::read(|_| None), PreloadSettings::default());
        assert_eq!(PreloadSettings::default().region_pages(), 512);
    }

    #[test]
    fn values_are_understood_as_people_write_them() {
        assert!(!with("QUIRE_PRELOAD", "off").enabled);
        assert_eq!(with("QUIRE_PRELOAD_MEMORY", "512m").memory_bytes, Some(512 << 20));
        assert_eq!(with("QUIRE_PRELOAD_MEMORY", "2GiB").memory_bytes, Some(2 << 30));
        assert_eq!(with("QUIRE_PRELOAD_RATE", "1048576").rate_bytes_per_s, 1 << 20);
        for share in ["0.7", "70", "70%"] {
            assert_eq!(with("QUIRE_PRELOAD_THRESHOLD", share).threshold_permille, 700);
        }
        assert_eq!(with("QUIRE_PRELOAD_REGION", "64k").region_bytes, 64 << 10);
        assert_eq!(with("QUIRE_PRELOAD_LOG", "2").log, 2);
        assert!(!with("QUIRE_PRELOAD_HUGE", "no").huge);
    }

    #[test]
    fn a_value_that_is_no_value_is_named_and_changes_nothing() {
        for (name, value) in [
            ("QUIRE_PRELOAD", "maybe"),
            ("QUIRE_PRELOAD_MEMORY", "much"),
            ("QUIRE_PRELOAD_MEMORY", "5x"),
            ("QUIRE_PRELOAD_RATE", "1k"),
            ("QUIRE_PRELOAD_THRESHOLD", "120%"),
            ("QUIRE_PRELOAD_REGION", "3m"),
            ("QUIRE_PRELOAD_REGION", "4m"),
            ("QUIRE_PRELOAD_LOG", "9"),
        ] {
            assert_eq!(
                with(name, value),
                PreloadSettings { misread: Some(name), ..PreloadSettings::default() },
                "{name}={value}"
            );
        }
    }
}
