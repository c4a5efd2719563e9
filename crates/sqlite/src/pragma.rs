//! `PRAGMA quire_stats`: figures of the pool and of the database, as one text.
//!
//! Relies on SQLite to free the text, which is therefore made by `sqlite3_malloc`.

use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt::Write;

use libsqlite3_sys as sqlite;

use crate::database::Database;
use crate::registry;

/// Answers a pragma of ours; `SQLITE_NOTFOUND` leaves all others to SQLite.
///
/// # Safety
/// `strings` is the argument of `SQLITE_FCNTL_PRAGMA`: a place for the answer, the pragma's name, and its value or null.
pub(crate) unsafe fn answer(database: &Database, strings: *mut *mut c_char) -> c_int {
    // SAFETY: `answer` demands the argument of `SQLITE_FCNTL_PRAGMA`: its second string is the name, never null, and ends with NUL.
    let name = unsafe { CStr::from_ptr(*strings.add(1)) };
    if !name.to_bytes().eq_ignore_ascii_case(b"quire_stats") {
        return sqlite::SQLITE_NOTFOUND;
    }
    let Ok(text) = CString::new(stats(database)) else { return sqlite::SQLITE_NOTFOUND };
    // SAFETY: `set_text` demands a place that may be written: `answer` demands the argument of `SQLITE_FCNTL_PRAGMA`, whose first place is for
    // the answer.
    unsafe { set_text(strings, &text) }
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
    if let Some(pool) = registry::pool() {
        let stats = pool.stats();
        line("pool_budget_bytes", stats.budget_pages * stats.page_bytes);
        line("pool_resident_bytes", stats.resident_pages * stats.page_bytes);
        line("pool_hits", stats.hits);
        line("pool_misses", stats.misses);
        line("pool_evicted_pages", stats.evicted);
        line("pool_written_pages", stats.written);
        line("read_tier", stats.paths.read_tier);
        line("read_cached", stats.paths.read_cached);
        line("read_direct", stats.paths.read_direct);
        line("evict_clean", stats.paths.evict_clean);
        let tier = pool.tier_stats();
        line("tier_limit_bytes", tier.limit_bytes);
        line("tier_held_bytes", tier.held_bytes);
        line("tier_resident_bytes", tier.resident_bytes);
    }
    text
}
