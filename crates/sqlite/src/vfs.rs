//! The VFS `quire`: main database files go through the pool, everything else is the default VFS's.
//!
//! Relies on the default VFS being registered for as long as the process lives, as SQLite's own is.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr;

use libsqlite3_sys as sqlite;
use sqlite::{sqlite3_file, sqlite3_vfs};

use crate::file::{INNER_OFFSET, Inner, PooledFile};
use crate::methods;
use crate::registry::{self, Locking};
use crate::settings::{UriSizes, warn};

/// The name under which programs ask for it.
const NAME: &CStr = c"quire";

/// Registers the VFS; with `as_default` for connections that name none, too. A second registration has no effect.
pub(crate) fn register(as_default: bool) -> c_int {
    // SAFETY: SQLite's functions are there, `extension` has seen to it. A null name asks for the default VFS.
    let (known, inner) = unsafe { (sqlite::sqlite3_vfs_find(NAME.as_ptr()), sqlite::sqlite3_vfs_find(ptr::null())) };
    if !known.is_null() {
        return sqlite::SQLITE_OK;
    }
    if inner.is_null() {
        return sqlite::SQLITE_ERROR;
    }
    // SAFETY: a registered VFS stays where it is, and its name ends with NUL.
    let (below, name) = unsafe { (&*inner, CStr::from_ptr((*inner).zName)) };
    if !name.to_bytes().starts_with(b"unix") {
        // One that encrypts or compresses has other bytes in the file than SQLite asks for.
        warn(&format!("the default VFS is {name:?}, and only those that keep pages as they are (unix) can be cached"));
        return sqlite::SQLITE_ERROR;
    }
    let vfs = sqlite3_vfs {
        iVersion: below.iVersion.min(2),
        szOsFile: below.szOsFile + INNER_OFFSET as c_int,
        mxPathname: below.mxPathname,
        pNext: ptr::null_mut(),
        zName: NAME.as_ptr(),
        pAppData: inner.cast(),
        xOpen: Some(open),
        xDelete: Some(delete),
        xAccess: Some(access),
        xFullPathname: Some(full_pathname),
        xDlOpen: Some(dl_open),
        xDlError: Some(dl_error),
        xDlSym: below.xDlSym.map(|_| dl_sym as _),
        xDlClose: Some(dl_close),
        xRandomness: Some(randomness),
        xSleep: Some(sleep),
        xCurrentTime: Some(current_time),
        xGetLastError: Some(get_last_error),
        xCurrentTimeInt64: below.xCurrentTimeInt64.map(|_| current_time_int64 as _),
        xSetSystemCall: None,
        xGetSystemCall: None,
        xNextSystemCall: None,
    };
    // The VFS is registered for as long as the process lives, so its memory is never given back.
    let vfs = Box::into_raw(Box::new(vfs));
    // SAFETY: all that the version number promises is set, and the object stays.
    unsafe { sqlite::sqlite3_vfs_register(vfs, c_int::from(as_default)) }
}

/// The default VFS, which ours stands before.
///
/// # Safety
/// `vfs` is the one that [`register`] has made.
unsafe fn below(vfs: *mut sqlite3_vfs) -> *mut sqlite3_vfs {
    // SAFETY: `register` has put the default VFS there.
    unsafe { (*vfs).pAppData.cast() }
}

/// Calls the method of the default VFS.
macro_rules! below {
    ($vfs:expr, $method:ident($($argument:expr),*), $default:expr) => {{
        // SAFETY: SQLite calls the methods of ours with the VFS that `register` has made.
        let below = unsafe { below($vfs) };
        // SAFETY: `register` has found the default VFS among those that are registered, and a registered VFS stays where it is.
        match unsafe { (*below).$method } {
            // SAFETY: the method is the default VFS's own and gets that VFS, which stays registered; the arguments are those of the same
            // method of ours, which SQLite has called by the same contract.
            Some(method) => unsafe { method(below $(, $argument)*) },
            None => $default,
        }
    }};
}

unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    if flags & sqlite::SQLITE_OPEN_MAIN_DB == 0 || name.is_null() {
        // The object is larger than the default VFS needs, and all its own.
        return below!(vfs, xOpen(name, file, flags, out_flags), sqlite::SQLITE_CANTOPEN);
    }
    // SAFETY: SQLite gives memory of our `szOsFile`, of which the inner object takes what lies behind ours. Without methods in
    // it SQLite calls no xClose, if this fails.
    let inner = unsafe {
        (*file).pMethods = ptr::null();
        let inner = file.cast::<u8>().add(INNER_OFFSET).cast::<sqlite3_file>();
        (*inner).pMethods = ptr::null();
        inner
    };
    let mut opened_flags = flags;
    let code = below!(vfs, xOpen(name, inner, flags, &raw mut opened_flags), sqlite::SQLITE_CANTOPEN);
    if code != sqlite::SQLITE_OK {
        // SAFETY: `close_inner` demands an object that the default VFS was asked to open and that is not used any more: it was asked just now,
        // and this function returns. By SQLite's contract a failed xOpen leaves methods only where it wants xClose to be called.
        unsafe { close_inner(inner) };
        return code;
    }
    if !out_flags.is_null() {
        // SAFETY: not null, so SQLite wants the flags there.
        unsafe { *out_flags = opened_flags };
    }
    // SAFETY: the name is not null, as was checked, and ends with NUL.
    let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()));
    // SAFETY: `Inner::of` demands memory for an object of ours whose inner file is open while the result is used: SQLite gave the memory, the
    // default VFS has just opened the inner file, and it is closed only below, after the last call of `is_moved`.
    let is_moved = || unsafe { Inner::of(file) }.is_moved();
    // SAFETY: SQLite passes names that it has made itself, with the parameters of the URI behind them.
    let is_immutable = unsafe { sqlite::sqlite3_uri_boolean(name, c"immutable".as_ptr(), 0) } != 0;
    let locking = if is_immutable { Locking::Immutable } else { Locking::Locks };
    // SAFETY: `uri_sizes` demands the name of a main database as SQLite passes it: this is one.
    let sizes = unsafe { uri_sizes(name) };
    let database = catch_unwind(AssertUnwindSafe(|| registry::open(path, locking, sizes)))
        .unwrap_or_else(|_| Err("the VFS has crashed; please report this".into()))
        .and_then(|database| if is_moved() { Err("another file has taken its name".into()) } else { Ok(database) });
    match database {
        Ok(database) => {
            // SAFETY: `install` and `Inner::of` demand memory for an object of ours whose inner part is open: SQLite gave the memory, and the
            // default VFS has opened the inner file.
            unsafe { PooledFile::install(file, (database, locking), methods::table(Inner::of(file))) };
            sqlite::SQLITE_OK
        }
        Err(reason) => {
            warn(&format!("{} is not cached by Quire, but by SQLite and the kernel alone: {reason}", path.display()));
            // SAFETY: `close_inner` demands an object that the default VFS was asked to open and that is not used any more: it has opened
            // `inner` above, and from here on it has all of the memory, from its start, for another object.
            unsafe { close_inner(inner) };
            below!(vfs, xOpen(name, file, flags, out_flags), sqlite::SQLITE_CANTOPEN)
        }
    }
}

/// The sizes of the tiers that the URI gives by which a database was opened.
///
/// # Safety
/// `name` is what SQLite passes to `xOpen` for a main database.
unsafe fn uri_sizes(name: *const c_char) -> UriSizes {
    let text = |parameter: &CStr| {
        // SAFETY: `uri_sizes` demands a name of SQLite's, which has the parameters of the URI behind it.
        let value = unsafe { sqlite::sqlite3_uri_parameter(name, parameter.as_ptr()) };
        // SAFETY: not null, so it is one of the texts behind the name, which ends with NUL; it is copied while the name is there.
        (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_string_lossy().into_owned())
    };
    UriSizes::new(text(c"quire_pool").as_deref(), text(c"quire_tier").as_deref())
}

/// Closes the file of the default VFS if it has methods.
///
/// # Safety
/// `inner` is an object that the default VFS was asked to open, and is not used any more.
unsafe fn close_inner(inner: *mut sqlite3_file) {
    // SAFETY: the default VFS sets the methods, or null.
    unsafe {
        if let Some(methods) = (*inner).pMethods.as_ref()
            && let Some(close) = methods.xClose
        {
            close(inner);
        }
    }
}

unsafe extern "C" fn delete(vfs: *mut sqlite3_vfs, name: *const c_char, sync_directory: c_int) -> c_int {
    below!(vfs, xDelete(name, sync_directory), sqlite::SQLITE_IOERR_DELETE)
}

unsafe extern "C" fn access(vfs: *mut sqlite3_vfs, name: *const c_char, flags: c_int, result: *mut c_int) -> c_int {
    below!(vfs, xAccess(name, flags, result), sqlite::SQLITE_IOERR_ACCESS)
}

unsafe extern "C" fn full_pathname(vfs: *mut sqlite3_vfs, name: *const c_char, bytes: c_int, to: *mut c_char) -> c_int {
    below!(vfs, xFullPathname(name, bytes, to), sqlite::SQLITE_CANTOPEN)
}

unsafe extern "C" fn dl_open(vfs: *mut sqlite3_vfs, name: *const c_char) -> *mut c_void {
    below!(vfs, xDlOpen(name), ptr::null_mut())
}

unsafe extern "C" fn dl_error(vfs: *mut sqlite3_vfs, bytes: c_int, message: *mut c_char) {
    below!(vfs, xDlError(bytes, message), ());
}

type DlFunction = unsafe extern "C" fn(*mut sqlite3_vfs, *mut c_void, *const c_char);

unsafe extern "C" fn dl_sym(vfs: *mut sqlite3_vfs, library: *mut c_void, symbol: *const c_char) -> Option<DlFunction> {
    below!(vfs, xDlSym(library, symbol), None)
}

unsafe extern "C" fn dl_close(vfs: *mut sqlite3_vfs, library: *mut c_void) {
    below!(vfs, xDlClose(library), ());
}

unsafe extern "C" fn randomness(vfs: *mut sqlite3_vfs, bytes: c_int, to: *mut c_char) -> c_int {
    below!(vfs, xRandomness(bytes, to), 0)
}

unsafe extern "C" fn sleep(vfs: *mut sqlite3_vfs, microseconds: c_int) -> c_int {
    below!(vfs, xSleep(microseconds), 0)
}

unsafe extern "C" fn current_time(vfs: *mut sqlite3_vfs, julian_day: *mut f64) -> c_int {
    below!(vfs, xCurrentTime(julian_day), sqlite::SQLITE_ERROR)
}

unsafe extern "C" fn get_last_error(vfs: *mut sqlite3_vfs, bytes: c_int, message: *mut c_char) -> c_int {
    below!(vfs, xGetLastError(bytes, message), 0)
}

unsafe extern "C" fn current_time_int64(vfs: *mut sqlite3_vfs, milliseconds: *mut i64) -> c_int {
    below!(vfs, xCurrentTimeInt64(milliseconds), sqlite::SQLITE_ERROR)
}
