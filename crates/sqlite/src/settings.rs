//! How large the pool is, and what the user is told.
//!
//! Relies on the environment of the process, read once, when the first database is opened.

use std::io::Write;

use quire_units::parse_bytes;

/// Memory of the pool that all databases of the process share.
const BYTES_VARIABLE: &str = "QUIRE_SQLITE_POOL";
/// The pool's memory where the variable says nothing.
const USUAL_BYTES: usize = 128 << 20;
const LEAST_BYTES: usize = 1 << 20;

/// Bytes of memory for pages. A text that is no size counts as none, and is told.
pub(crate) fn pool_bytes() -> usize {
    let Ok(text) = std::env::var(BYTES_VARIABLE) else { return USUAL_BYTES };
    match parse_bytes(&text) {
        Some(bytes) if bytes >= LEAST_BYTES as u64 => usize::try_from(bytes).unwrap_or(usize::MAX),
        _ => {
            eprintln!(
                "quire_sqlite: {BYTES_VARIABLE}={text:?} is no size from 1MiB on (such as 256MiB); it has no effect"
            );
            USUAL_BYTES
        }
    }
}

/// Tells the user of the program. Nothing happens where standard error takes no text.
pub(crate) fn warn(text: &str) {
    let _ = writeln!(std::io::stderr(), "quire_sqlite: {text}");
}
