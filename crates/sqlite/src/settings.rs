//! How large the pool is, and what the user is told.
//!
//! Relies on the environment of the process, read once, when the first database is opened.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use quire_pool::TierSize;
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
/// Memory of the second tier, beside the pool's.
const TIER_VARIABLE: &str = "QUIRE_SQLITE_TIER";
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
    let usual = || usual_bytes(MemoryInfo::now().physical_bytes(), limits::address_space());
    let Ok(text) = std::env::var(BYTES_VARIABLE) else { return usual() };
    match parse_bytes(&text) {
        Some(bytes) if bytes >= LEAST_BYTES as u64 => usize::try_from(bytes).unwrap_or(usize::MAX),
        _ => {
            warn(&format!("{BYTES_VARIABLE}={text:?} is no size from 1MiB on (such as 256MiB); it has no effect"));
            usual()
        }
    }
}

/// The size of the second tier: `off`, which is the default, `auto`, or a size. A text that is none of them counts as `off`, and is told.
pub(crate) fn tier_size() -> TierSize {
    let Ok(text) = std::env::var(TIER_VARIABLE) else { return TierSize::Off };
    match (text.as_str(), parse_bytes(&text)) {
        ("off", _) => TierSize::Off,
        ("auto", _) => TierSize::Auto,
        (_, Some(bytes)) if bytes >= LEAST_BYTES as u64 => {
            TierSize::Bytes(usize::try_from(bytes).unwrap_or(usize::MAX))
        }
        _ => {
            let sizes = "none of off, auto and a size from 1MiB on (such as 256MiB)";
            warn(&format!("{TIER_VARIABLE}={text:?} is {sizes}; it has no effect"));
            TierSize::Off
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
}
