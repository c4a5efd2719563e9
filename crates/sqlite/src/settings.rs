//! How large the pool is, and what the user is told.
//!
//! Relies on the environment of the process, read once, when the first database is opened.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use quire_pool::TierSize;
use quire_units::parse_bytes;

/// Memory of the pool that all databases of the process share.
const BYTES_VARIABLE: &str = "QUIRE_SQLITE_POOL";
/// The pool's memory where the variable says nothing.
const USUAL_BYTES: usize = 128 << 20;
const LEAST_BYTES: usize = 1 << 20;
/// Memory of the second tier, beside the pool's.
const TIER_VARIABLE: &str = "QUIRE_SQLITE_TIER";
/// Messages of a process, less one.
const MOST_TOLD: u64 = 19;
/// Messages so far.
static TOLD: AtomicU64 = AtomicU64::new(0);

/// Bytes of memory for pages. A text that is no size counts as none, and is told.
pub(crate) fn pool_bytes() -> usize {
    let Ok(text) = std::env::var(BYTES_VARIABLE) else { return USUAL_BYTES };
    match parse_bytes(&text) {
        Some(bytes) if bytes >= LEAST_BYTES as u64 => usize::try_from(bytes).unwrap_or(usize::MAX),
        _ => {
            warn(&format!("{BYTES_VARIABLE}={text:?} is no size from 1MiB on (such as 256MiB); it has no effect"));
            USUAL_BYTES
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
