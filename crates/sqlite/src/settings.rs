//! How large the two tiers are, and what the user is told.
//!
//! Relies on the environment of the process, read once, when the first database is opened, and on the URI of each database.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use quire_pool::{Pool, TierCompression, TierSize};
use quire_sys::limits;
use quire_sys::pressure::MemoryInfo;
use quire_units::parse_bytes;

/// Memory of the pool that all databases of the process share.
const BYTES_VARIABLE: &str = "QUIRE_SQLITE_POOL";
/// The pool's memory where the variable says nothing, and there is enough.
const USUAL_BYTES: u64 = 128 << 20;
/// Of the memory of the machine or of the control group, and of the addresses that the process may have, one part in so many at most.
const USUAL_PART: u64 = 8;
/// No size is smaller.
pub(crate) const LEAST_BYTES: usize = 1 << 20;
/// Memory of the second tier, in the pool's or beside it.
const TIER_VARIABLE: &str = "QUIRE_SQLITE_TIER";
/// What `parse_tier` takes.
pub(crate) const TIER_SIZES: &str =
    "off, auto, a share of the pool (such as 50%) and a size from 1MiB on (such as 256MiB)";
/// How the second tier stores pages.
const COMPRESSION_VARIABLE: &str = "QUIRE_SQLITE_COMPRESSION";
/// Messages of a process, less one.
const MOST_TOLD: u64 = 19;
/// Messages so far.
static TOLD: AtomicU64 = AtomicU64::new(0);

/// Bytes of memory for pages where the user has said nothing.
fn usual_bytes(physical_bytes: Option<u64>, address_space: Option<u64>) -> usize {
    let least = [physical_bytes, address_space].into_iter().flatten().map(|bytes| bytes / USUAL_PART);
    least.fold(USUAL_BYTES, u64::min).max(LEAST_BYTES as u64) as usize
}

/// Bytes of memory for pages. A text that is no size counts as none, and is told.
pub(crate) fn pool_bytes() -> usize {
    let given = std::env::var(BYTES_VARIABLE).ok().and_then(|text| told_pool(BYTES_VARIABLE, &text));
    given.unwrap_or_else(|| usual_bytes(MemoryInfo::now().physical_bytes(), limits::address_space()))
}

/// The size of the second tier. A text that is none counts as nothing said, and is told.
pub(crate) fn tier_size() -> TierSize {
    let given = std::env::var(TIER_VARIABLE).ok().and_then(|text| told_tier(TIER_VARIABLE, &text));
    given.unwrap_or_default()
}

/// How the second tier stores pages. A text that names no way counts as nothing said, and is told.
pub(crate) fn compression() -> TierCompression {
    let Ok(text) = std::env::var(COMPRESSION_VARIABLE) else { return TierCompression::default() };
    match text.as_str() {
        "lz4" => TierCompression::Lz4,
        "zstd" => TierCompression::Zstd,
        "none" => TierCompression::None,
        _ => {
            warn(&format!("{COMPRESSION_VARIABLE}={text:?} is none of lz4, zstd and none; it has no effect"));
            TierCompression::default()
        }
    }
}

/// A size from 1 MiB on.
pub(crate) fn parse_size(text: &str) -> Option<usize> {
    parse_bytes(text.trim()).and_then(|bytes| usize::try_from(bytes).ok()).filter(|&bytes| bytes >= LEAST_BYTES)
}

/// A size of the second tier.
pub(crate) fn parse_tier(text: &str) -> Option<TierSize> {
    match text.trim().to_ascii_lowercase().as_str() {
        "off" | "0" => Some(TierSize::Off),
        "auto" => Some(TierSize::Auto),
        other => match other.strip_suffix('%') {
            Some(percent) => percent.trim_end().parse().ok().map(TierSize::Percent),
            None => parse_size(other).map(TierSize::Bytes),
        },
    }
}

/// The pool's size that `name` gives; a text that is none is told.
fn told_pool(name: &str, text: &str) -> Option<usize> {
    let size = parse_size(text);
    if size.is_none() {
        warn(&format!("{name}={text:?} is no size from 1MiB on (such as 256MiB); it has no effect"));
    }
    size
}

/// The second tier's size that `name` gives; a text that is none is told.
fn told_tier(name: &str, text: &str) -> Option<TierSize> {
    let size = parse_tier(text);
    if size.is_none() {
        warn(&format!("{name}={text:?} is none of {TIER_SIZES}; it has no effect"));
    }
    size
}

/// Sizes that the URI of a database gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UriSizes {
    /// `quire_pool`.
    pub(crate) pool_bytes: Option<usize>,
    /// `quire_tier`.
    pub(crate) tier: Option<TierSize>,
}

impl UriSizes {
    /// Of the texts that the URI has for `quire_pool` and `quire_tier`; one that is no size is told.
    pub(crate) fn new(pool: Option<&str>, tier: Option<&str>) -> Self {
        Self {
            pool_bytes: pool.and_then(|text| told_pool("quire_pool", text)),
            tier: tier.and_then(|text| told_tier("quire_tier", text)),
        }
    }

    /// Gives a pool that there is already these sizes; what can't be had is told.
    pub(crate) fn apply(self, pool: &Pool) {
        let told = |name: &str, result: Result<usize, quire_pool::PoolError>| {
            if let Err(error) = result {
                warn(&format!("{name} of the URI has no effect: {error}"));
            }
        };
        if let Some(bytes) = self.pool_bytes {
            told("quire_pool", pool.set_budget(bytes));
        }
        if let Some(size) = self.tier {
            told("quire_tier", pool.set_tier(size));
        }
    }
}

/// Tells the user of the program. Nothing happens where standard error takes no text: a program must not end because its log is full.
/// One that opens many databases is not told of each.
pub(crate) fn warn(text: &str) {
    let more = match TOLD.fetch_add(1, Ordering::Relaxed) {
        ..MOST_TOLD => "",
        MOST_TOLD => " (no more of this is told)",
        _ => return,
    };
    let _ = writeln!(std::io::stderr(), "quire_sqlite: {text}{more}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_pool_is_an_eighth_of_what_there_is_at_most() {
        assert_eq!(usual_bytes(None, None), 128 << 20);
        assert_eq!(usual_bytes(Some(64 << 30), Some(1 << 40)), 128 << 20);
        assert_eq!(usual_bytes(Some(256 << 20), None), 32 << 20);
        assert_eq!(usual_bytes(Some(256 << 20), Some(128 << 20)), 16 << 20);
        assert_eq!(usual_bytes(Some(1 << 20), None), LEAST_BYTES);
    }

    #[test]
    fn a_tier_is_off_or_auto_or_a_share_or_bytes() {
        assert_eq!([" off", "0", "AUTO"].map(parse_tier), [TierSize::Off, TierSize::Off, TierSize::Auto].map(Some));
        assert_eq!(["50%", "400 %"].map(parse_tier), [50, 400].map(|percent| Some(TierSize::Percent(percent))));
        assert_eq!(["2MiB", "2097152"].map(parse_tier), [Some(TierSize::Bytes(2 << 20)); 2]);
        for wrong in ["", "%", "-1%", "65536%", "half", "1000", "1.5%", "auto%", "99999999999999999999"] {
            assert_eq!(parse_tier(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_text_of_a_uri_that_is_no_size_counts_as_none() {
        let sizes = UriSizes { pool_bytes: Some(8 << 20), tier: Some(TierSize::Auto) };
        assert_eq!(UriSizes::new(Some("8MiB"), Some("auto")), sizes);
        assert_eq!(UriSizes::new(Some("much"), Some("more")), UriSizes::default());
        assert_eq!(UriSizes::new(None, Some("50%")).tier, Some(TierSize::Percent(50)));
    }
}
