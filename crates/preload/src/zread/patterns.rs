//! What `QUIRE_ZREAD` and its kin ask for.
//!
//! Relies on being read once, while the library is loaded; the patterns are copied, as the program may change its environment.

use std::ffi::CStr;
use std::sync::OnceLock;

use quire_sys::mem::PAGE_SIZE;
use quire_units::parse_bytes;

/// Bytes of all patterns.
const MOST_BYTES: usize = 2048;
/// The least read by default: below it a remap gains nothing here.
const DEFAULT_LEAST_BYTES: usize = 128 << 10;

/// What an operator can set.
#[derive(Clone, Debug)]
pub struct ReadSettings {
    patterns: [u8; MOST_BYTES],
    len: usize,
    /// `QUIRE_ZREAD_MIN`: smaller reads are left alone.
    pub least_bytes: usize,
    /// `QUIRE_ZREAD_MODEL`: whether the loss model decides; `off` remaps whatever may be.
    pub has_model: bool,
    /// `QUIRE_ZREAD_STATS`: whether a line of figures is printed at the end.
    pub tells_stats: bool,
}

static SETTINGS: OnceLock<ReadSettings> = OnceLock::new();

/// The settings; `None` while reads are left alone.
pub fn settings() -> Option<&'static ReadSettings> {
    SETTINGS.get()
}

/// Takes the settings, while the library is loaded; whether reads shall be remapped.
pub fn configure<'a>(value_of: impl Fn(&CStr) -> Option<&'a [u8]>) -> bool {
    ReadSettings::read(value_of).is_some_and(|settings| SETTINGS.set(settings).is_ok())
}

impl ReadSettings {
    /// What the variables ask for. `None` if nothing, or what is too long to be kept.
    pub fn read<'a>(value_of: impl Fn(&CStr) -> Option<&'a [u8]>) -> Option<Self> {
        let wanted = value_of(c"QUIRE_ZREAD").filter(|value| !value.is_empty() && value.len() <= MOST_BYTES)?;
        if matches!(wanted, b"off" | b"no" | b"0") {
            return None;
        }
        let mut patterns = [0; MOST_BYTES];
        patterns[..wanted.len()].copy_from_slice(wanted);
        let text = |name| value_of(name).and_then(|value| std::str::from_utf8(value).ok());
        let least = text(c"QUIRE_ZREAD_MIN").and_then(parse_bytes).and_then(|bytes| usize::try_from(bytes).ok());
        Some(Self {
            patterns,
            len: wanted.len(),
            least_bytes: least.unwrap_or(DEFAULT_LEAST_BYTES).max(PAGE_SIZE),
            has_model: text(c"QUIRE_ZREAD_MODEL") != Some("off"),
            tells_stats: matches!(text(c"QUIRE_ZREAD_STATS"), Some("on" | "1" | "yes")),
        })
    }

    /// Whether reads of the file at `path` shall be remapped: a pattern fits it, or a folder that it lies in.
    pub fn has(&self, path: &[u8]) -> bool {
        self.patterns[..self.len].split(|&byte| byte == b':').filter(|pattern| !pattern.is_empty()).any(|pattern| {
            let pattern = pattern.strip_suffix(b"/").unwrap_or(pattern);
            let folders = path.iter().enumerate().filter(|&(_, &byte)| byte == b'/').map(|(at, _)| &path[..at]);
            matches!(pattern, b"on" | b"*")
                || fits(pattern, path)
                || folders.into_iter().any(|folder| fits(pattern, folder))
        })
    }
}

/// `*` stands for any bytes but `/`, `**` for any, `?` for one.
fn fits(pattern: &[u8], path: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // Where to go on when what follows the last star does not fit: one byte more is the star's then.
    let mut star: Option<(usize, usize, bool)> = None;
    while from < path.len() {
        if at < pattern.len() && pattern[at] == b'*' {
            let is_deep = pattern.get(at + 1) == Some(&b'*');
            at += 1 + usize::from(is_deep);
            star = Some((at, from, is_deep));
        } else if at < pattern.len() && (pattern[at] == path[from] || (pattern[at] == b'?' && path[from] != b'/')) {
            at += 1;
            from += 1;
        } else {
            match star {
                Some((behind, taken, is_deep)) if is_deep || path[taken] != b'/' => {
                    star = Some((behind, taken + 1, is_deep));
                    (at, from) = (behind, taken + 1);
                }
                _ => return false,
            }
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(patterns: &'static str) -> Option<ReadSettings> {
        ReadSettings::read(|name| (name == c"QUIRE_ZREAD").then_some(patterns.as_bytes()))
    }

    #[test]
    fn files_are_told_by_patterns_and_by_folders() {
        for (patterns, path, is_meant) in [
            ("/data", "/data/a/b", true),
            ("/data/", "/data", true),
            ("/data", "/database", false),
            ("/x:/data/*.bin", "/data/a.bin", true),
            ("/data/*.bin", "/data/a/b.bin", false),
            ("/data/**.bin", "/data/a/b.bin", true),
            ("/data/?.bin", "/data/a.bin", true),
            ("/data/?.bin", "/data/ab.bin", false),
            ("*", "/anything", true),
            ("on", "/anything", true),
            ("a*a*b", "aaab", true),
        ] {
            assert_eq!(with(patterns).unwrap().has(path.as_bytes()), is_meant, "{patterns} {path}");
        }
    }

    #[test]
    fn nothing_is_done_unless_it_is_asked_for() {
        assert!(with("").is_none() && with("off").is_none() && ReadSettings::read(|_| None).is_none());
        let settings = with("/data").unwrap();
        assert!(settings.has_model && !settings.tells_stats && settings.least_bytes == DEFAULT_LEAST_BYTES);
        let value_of = |name: &CStr| match name.to_str().unwrap() {
            "QUIRE_ZREAD_MIN" => Some(b"8k".as_slice()),
            "QUIRE_ZREAD_MODEL" => Some(b"off".as_slice()),
            _ => Some(b"1".as_slice()),
        };
        let settings = ReadSettings::read(value_of).unwrap();
        assert!(!settings.has_model && settings.tells_stats && settings.least_bytes == 8192);
    }
}
