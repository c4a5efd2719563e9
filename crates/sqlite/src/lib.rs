//! `libquire_sqlite.so`: an SQLite VFS whose database files are read through a [`quire_pool::Pool`].
//!
//! The VFS `quire` stands before the VFS that SQLite uses by default, and leaves to it what it does well: writes, locks, the shared
//! memory of the WAL index, journals, temporary files, names. Only reads of main database files go another way: their pages are
//! cached by the pool, and the kernel's page cache holds no second copy of what was read. Since the locks are those of the
//! default VFS, programs that use it can have the same database open at the same time; `coherence` says how each
//! side sees the other's commits.
//!
//! Relies on the loadable extension interface of SQLite 3.34.1 and later, and on `quire-pool`. Must not know: SQL, the B-trees in
//! the pages, how pages are cached.

mod coherence;
mod database;
mod fetched_pages;
mod file;
mod methods;
mod pragma;
mod registry;
mod settings;
mod vfs;

use std::ffi::{c_char, c_int};

use libsqlite3_sys as sqlite;

/// Has SQLite use `quire` for every database that names no VFS.
const DEFAULT_VARIABLE: &str = "QUIRE_SQLITE_DEFAULT";

/// Registers the VFS `quire`. SQLite looks for this name in `libquire_sqlite.so`.
///
/// # Safety
/// `api` is the table of functions that SQLite hands to an extension.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_quiresqlite_init(
    _db: *mut sqlite::sqlite3,
    _message: *mut *mut c_char,
    api: *mut sqlite::sqlite3_api_routines,
) -> c_int {
    // SAFETY: `rusqlite_extension_init2` demands the table of functions that SQLite hands to an extension: `sqlite3_quiresqlite_init` demands
    // the same of its caller, SQLite.
    if unsafe { sqlite::rusqlite_extension_init2(api) }.is_err() {
        // The functions of a version that is too old are not to be called, so there is no way to make a message.
        return sqlite::SQLITE_ERROR;
    }
    let as_default = std::env::var_os(DEFAULT_VARIABLE).is_some_and(|value| value == "1");
    match vfs::register(as_default) {
        // The library stays: its VFS outlives the connection that has loaded it.
        sqlite::SQLITE_OK => sqlite::SQLITE_OK_LOAD_PERMANENTLY,
        code => code,
    }
}
