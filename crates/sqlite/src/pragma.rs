//! The pragmas of the VFS: figures of the pool and of the database, and the sizes of both tiers, which all databases of the process share.
//!
//! | pragma | answer |
//! |---|---|
//! | `quire_stats` | figures, as one text |
//! | `quire_pool_bytes` | bytes that the pool may have, with the second tier if that is `auto`; `= N` sets it, as far as pages can be evicted at once |
//! | `quire_tier_bytes` | bytes that the second tier may hold now; `= N` (or `P%`, `off`, `auto`) sets its size, as far as there is memory |
//! | `quire_held_twice_bytes` | bytes of this database that are in the pool and in the kernel's page cache; no row where the kernel doesn't say |
//!
//! Relies on SQLite to free the texts, which are therefore made by `sqlite3_malloc`.

use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt::Write;
use std::sync::atomic::Ordering;

use libsqlite3_sys as sqlite;
use quire_pool::Pool;

use crate::database::Database;
use crate::registry;
use crate::settings::{TIER_SIZES, parse_size, parse_tier};

/// What a pragma is answered with: a text, nothing, or an error.
type Answer = Result<Option<String>, String>;

/// Answers a pragma of ours; `SQLITE_NOTFOUND` leaves all others to SQLite.
///
/// # Safety
/// `strings` is the argument of `SQLITE_FCNTL_PRAGMA`: a place for the answer, the pragma's name, and its value or null.
pub(crate) unsafe fn answer(database: &Database, strings: *mut *mut c_char) -> c_int {
    // SAFETY: `answer` demands the argument of `SQLITE_FCNTL_PRAGMA`: its second string is the name, never null, and ends with NUL.
    let name = unsafe { CStr::from_ptr(*strings.add(1)) };
    // SAFETY: `answer` demands the argument of `SQLITE_FCNTL_PRAGMA`: its third string is the value, which ends with NUL, or null.
    let value = unsafe { (*strings.add(2)).as_ref().map(|value| CStr::from_ptr(value)) };
    let value = value.map(CStr::to_string_lossy);
    let answer = match name.to_bytes().to_ascii_lowercase().as_slice() {
        b"quire_stats" => Ok(Some(stats(database))),
        b"quire_pool_bytes" => with_pool(|pool| pool_bytes(pool, value.as_deref())),
        b"quire_tier_bytes" => with_pool(|pool| tier_bytes(pool, value.as_deref())),
        b"quire_held_twice_bytes" => Ok(database.held_twice_bytes().map(|bytes| bytes.to_string())),
        _ => return sqlite::SQLITE_NOTFOUND,
    };
    let (text, code) = match answer {
        Ok(None) => return sqlite::SQLITE_OK,
        Ok(Some(text)) => (text, sqlite::SQLITE_OK),
        Err(message) => (message, sqlite::SQLITE_ERROR),
    };
    // A value with a NUL would not have come here whole.
    let text = CString::new(text).unwrap_or_default();
    // SAFETY: `set_text` demands a place that may be written: `answer` demands the argument of `SQLITE_FCNTL_PRAGMA`, whose first place is for
    // the answer.
    match unsafe { set_text(strings, &text) } {
        sqlite::SQLITE_OK => code,
        failed => failed,
    }
}

fn with_pool(ask: impl FnOnce(&Pool) -> Answer) -> Answer {
    registry::pool().map_or(Ok(None), |pool| ask(&pool))
}

fn pool_bytes(pool: &Pool, value: Option<&str>) -> Answer {
    if let Some(value) = value {
        let bytes = parse_size(value).ok_or_else(|| format!("quire_pool_bytes: {value:?} is no size from 1MiB on"))?;
        pool.set_budget(bytes).map_err(|error| error.to_string())?;
    }
    Ok(Some(pool.budget_bytes().to_string()))
}

fn tier_bytes(pool: &Pool, value: Option<&str>) -> Answer {
    if let Some(value) = value {
        let size = parse_tier(value).ok_or_else(|| format!("quire_tier_bytes: {value:?} is none of {TIER_SIZES}"))?;
        pool.set_tier(size).map_err(|error| error.to_string())?;
    }
    Ok(Some(pool.tier_limit_bytes().to_string()))
}

/// Puts a copy of `text` where SQLite takes it from and frees it.
///
/// # Safety
/// `to` may be written.
pub(crate) unsafe fn set_text(to: *mut *mut c_char, text: &CStr) -> c_int {
    let text = text.to_bytes_with_nul();
    // SAFETY: `sqlite3_malloc` may be asked for any size; what it returns is null, or has as many bytes as are copied. `set_text` demands of
    // its caller that `to` may be written.
    unsafe {
        let copy = sqlite::sqlite3_malloc(text.len() as c_int).cast::<u8>();
        if copy.is_null() {
            return sqlite::SQLITE_NOMEM;
        }
        copy.copy_from_nonoverlapping(text.as_ptr(), text.len());
        *to = copy.cast();
    }
    sqlite::SQLITE_OK
}

fn stats(database: &Database) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: u64| {
        // Writing to a string can't fail.
        let _ = writeln!(text, "{name}={value}");
    };
    line("database_resident_bytes", database.resident_bytes());
    line("invalidations", database.invalidations());
    line("fetches_served", database.fetches().served.load(Ordering::Relaxed));
    line("fetches_declined", database.fetches().declined.load(Ordering::Relaxed));
    if let Some(pool) = registry::pool() {
        let stats = pool.stats();
        line("pool_budget_bytes", pool.budget_bytes() as u64);
        line("pool_limit_bytes", stats.budget_pages * stats.page_bytes);
        line("pool_resident_bytes", stats.resident_pages * stats.page_bytes);
        line("pool_hits", stats.hits);
        line("pool_misses", stats.misses);
        line("pool_evicted_pages", stats.evicted);
        line("pool_written_pages", stats.written);
        line("pool_leased_bytes", stats.leases.pinned_pages * stats.page_bytes);
        line("pool_lease_limit_bytes", stats.leases.limit_pages * stats.page_bytes);
        line("read_tier", stats.paths.read_tier);
        line("read_cached", stats.paths.read_cached);
        line("read_direct", stats.paths.read_direct);
        line("evict_clean", stats.paths.evict_clean);
        let tier = pool.tier_stats();
        line("tier_is_in_budget", u64::from(tier.is_in_budget));
        line("tier_limit_bytes", tier.limit_bytes);
        line("tier_held_bytes", tier.held_bytes);
        line("tier_resident_bytes", tier.resident_bytes);
        line("tier_twice_bytes", tier.promoted_bytes);
        ratio(&mut text, "pool_hit_ratio", stats.hits, stats.hits + stats.misses);
        ratio(&mut text, "tier_hit_ratio", stats.paths.read_tier, stats.misses);
    }
    text
}

/// A line with a part of `all`; none of nothing.
fn ratio(text: &mut String, name: &str, part: u64, all: u64) {
    if all > 0 {
        // Writing to a string can't fail.
        let _ = writeln!(text, "{name}={:.4}", (part as f64 / all as f64).min(1.0));
    }
}
