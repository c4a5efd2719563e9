//! The table of methods that SQLite calls for a database file of ours.
//!
//! Relies on SQLite for what its interface promises: a method is called with a file that this VFS has opened and not closed, from
//! one thread at a time, and with buffers of the length that it says. No panic leaves a method.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use libsqlite3_sys as sqlite;
use sqlite::{sqlite3_file, sqlite3_io_methods};

use crate::file::{Inner, OpenFile, PooledFile, inner};
use crate::pragma;

/// Version 2 has shared memory, version 3 pages in place.
static METHODS: sqlite3_io_methods = sqlite3_io_methods { iVersion: 3, ..METHODS_WITHOUT_SHM };

/// For files of a VFS without shared memory (`unix-dotfile`, `unix-none`). SQLite asks for no WAL there.
static METHODS_WITHOUT_SHM: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: Some(fetch),
    xUnfetch: Some(unfetch),
};

/// The methods for a file that has `inner` behind it.
pub(crate) fn table(inner: Inner) -> &'static sqlite3_io_methods {
    let has_shm = inner.methods.iVersion >= 2 && inner.methods.xShmMap.is_some();
    if has_shm { &METHODS } else { &METHODS_WITHOUT_SHM }
}

/// Runs a method on `file`; a panic, and the use of a parent's file in a forked child, are answered with `otherwise`.
///
/// # Safety
/// `file` is an open object of ours, and no other method of it runs.
unsafe fn with(file: *mut sqlite3_file, otherwise: c_int, method: impl FnOnce(OpenFile<'_>) -> c_int) -> c_int {
    catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: `OpenFile::of` demands an open object of ours, of which no other method runs while the result is used: `with` demands both
        // of its caller, and the result does not outlive this call of `method`.
        let open = unsafe { OpenFile::of(file) };
        if open.connection.database.is_forked() { otherwise } else { method(open) }
    }))
    .unwrap_or(otherwise)
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: `Inner::of` demands an object of ours whose inner part is open while the result is used. SQLite calls xClose of an open file,
    // once; the inner part is closed by the last use of `inner`.
    let inner = unsafe { Inner::of(file) };
    // SAFETY: `remove` demands an open object of ours that is not used as one any more. SQLite calls xClose of an open file, once, and no
    // method after it; what is done below with `inner` does not reach our part of the object.
    let connection = unsafe { PooledFile::remove(file) };
    // A panic there leaves a few figures wrong; the file is closed all the same.
    let _ = catch_unwind(AssertUnwindSafe(|| connection.close()));
    inner!(inner, xClose(), sqlite::SQLITE_OK)
}

unsafe extern "C" fn read(file: *mut sqlite3_file, into: *mut c_void, len: c_int, offset: i64) -> c_int {
    // SAFETY: SQLite passes a buffer of `len` bytes and an open file of ours, and calls the methods of a file one at a time.
    unsafe {
        let into = std::slice::from_raw_parts_mut(into.cast::<u8>(), len as usize);
        with(file, sqlite::SQLITE_IOERR_READ, |mut file| file.read(into, offset))
    }
}

unsafe extern "C" fn write(file: *mut sqlite3_file, from: *const c_void, len: c_int, offset: i64) -> c_int {
    // SAFETY: SQLite passes `len` bytes that stay as they are during the call, and an open file of ours. It calls the methods of a file one
    // at a time.
    unsafe {
        let from = std::slice::from_raw_parts(from.cast::<u8>(), len as usize);
        with(file, sqlite::SQLITE_IOERR_WRITE, |mut file| file.write(from, offset))
    }
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, len: i64) -> c_int {
    // SAFETY: SQLite passes an open file of ours, and calls its methods one at a time.
    unsafe { with(file, sqlite::SQLITE_IOERR_TRUNCATE, |mut file| file.truncate(len)) }
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: SQLite passes an open file of ours, and calls its methods one at a time. It is the default VFS that has written.
    let inner = unsafe { Inner::of(file) };
    inner!(inner, xSync(flags), sqlite::SQLITE_IOERR_FSYNC)
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, size: *mut i64) -> c_int {
    // SAFETY: SQLite passes an open file of ours, and calls its methods one at a time.
    let inner = unsafe { Inner::of(file) };
    inner!(inner, xFileSize(size), sqlite::SQLITE_IOERR_FSTAT)
}

unsafe extern "C" fn lock(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: SQLite passes an open file of ours, and calls its methods one at a time.
    unsafe { with(file, sqlite::SQLITE_IOERR_LOCK, |mut file| file.lock(level)) }
}

unsafe extern "C" fn unlock(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: SQLite passes an open file of ours, and calls its methods one at a time.
    unsafe { with(file, sqlite::SQLITE_IOERR_UNLOCK, |mut file| file.unlock(level)) }
}

unsafe extern "C" fn check_reserved_lock(file: *mut sqlite3_file, result: *mut c_int) -> c_int {
    // SAFETY: SQLite passes an open file of ours, and calls its methods one at a time.
    let inner = unsafe { Inner::of(file) };
    inner!(inner, xCheckReservedLock(result), sqlite::SQLITE_IOERR_CHECKRESERVEDLOCK)
}

unsafe extern "C" fn file_control(file: *mut sqlite3_file, op: c_int, argument: *mut c_void) -> c_int {
    match op {
        // Not for the default VFS, which would map the file.
        sqlite::SQLITE_FCNTL_MMAP_SIZE => {
            let argument = argument.cast::<i64>();
            let mut before = 0;
            // SAFETY: this operation's argument is a 64-bit number: the limit to be set, where the one before is to be put.
            let asked = unsafe { argument.read_unaligned() };
            let limit = |mut file: OpenFile<'_>| {
                before = file.limit_fetches(asked);
                sqlite::SQLITE_OK
            };
            // SAFETY: SQLite passes an open file of ours, and calls its methods one at a time. The argument may be written, as above.
            unsafe {
                let code = with(file, sqlite::SQLITE_OK, limit);
                argument.write_unaligned(before);
                code
            }
        }
        sqlite::SQLITE_FCNTL_VFSNAME => {
            // SAFETY: this operation's argument is a place for a text that SQLite frees.
            unsafe { pragma::set_text(argument.cast(), c"quire") }
        }
        sqlite::SQLITE_FCNTL_PRAGMA => {
            // SAFETY: `pragma::answer` demands the argument of this operation, and SQLite passes it.
            let answer = |file: OpenFile<'_>| unsafe { pragma::answer(&file.connection.database, argument.cast()) };
            // SAFETY: SQLite passes an open file of ours, and calls its methods one at a time.
            unsafe { with(file, sqlite::SQLITE_NOTFOUND, answer) }
        }
        _ => {
            if op == sqlite::SQLITE_FCNTL_COMMIT_PHASETWO {
                let note = |mut file: OpenFile<'_>| {
                    file.note_commit();
                    sqlite::SQLITE_OK
                };
                // SAFETY: SQLite passes an open file of ours, and calls its methods one at a time.
                unsafe { with(file, sqlite::SQLITE_OK, note) };
            }
            // SAFETY: SQLite passes an open file of ours, and calls its methods one at a time.
            let inner = unsafe { Inner::of(file) };
            inner!(inner, xFileControl(op, argument), sqlite::SQLITE_NOTFOUND)
        }
    }
}

unsafe extern "C" fn sector_size(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite passes an open file of ours, and calls its methods one at a time.
    let inner = unsafe { Inner::of(file) };
    inner!(inner, xSectorSize(), 4096)
}

unsafe extern "C" fn characteristics(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite passes an open file of ours, and calls its methods one at a time.
    let inner = unsafe { Inner::of(file) };
    // No batches of writes that are atomic: one that is taken back changes pages without a call of `write`.
    inner!(inner, xDeviceCharacteristics(), 0) & !sqlite::SQLITE_IOCAP_BATCH_ATOMIC
}

unsafe extern "C" fn shm_map(
    file: *mut sqlite3_file,
    region: c_int,
    bytes: c_int,
    extend: c_int,
    at: *mut *mut c_void,
) -> c_int {
    // SAFETY: SQLite passes an open file of ours, and calls its methods one at a time.
    unsafe { with(file, sqlite::SQLITE_IOERR_SHMMAP, |mut file| file.shm_map(region, bytes, extend, at)) }
}

unsafe extern "C" fn shm_lock(file: *mut sqlite3_file, first: c_int, count: c_int, flags: c_int) -> c_int {
    // SAFETY: SQLite passes an open file of ours, and calls its methods one at a time.
    unsafe { with(file, sqlite::SQLITE_IOERR_SHMLOCK, |mut file| file.shm_lock(first, count, flags)) }
}

unsafe extern "C" fn shm_barrier(file: *mut sqlite3_file) {
    // SAFETY: SQLite passes an open file of ours, and calls its methods one at a time.
    let inner = unsafe { Inner::of(file) };
    inner!(inner, xShmBarrier(), ());
}

unsafe extern "C" fn shm_unmap(file: *mut sqlite3_file, remove: c_int) -> c_int {
    // SAFETY: SQLite passes an open file of ours, and calls its methods one at a time.
    unsafe { with(file, sqlite::SQLITE_OK, |mut file| file.shm_unmap(remove)) }
}

unsafe extern "C" fn fetch(file: *mut sqlite3_file, offset: i64, len: c_int, at: *mut *mut c_void) -> c_int {
    let mut found = ptr::null();
    let find = |mut file: OpenFile<'_>| {
        found = file.fetch(offset, len);
        sqlite::SQLITE_OK
    };
    // SAFETY: SQLite passes an open file of ours, calls its methods one at a time, and wants the address at `at`. It only reads there.
    unsafe {
        let code = with(file, sqlite::SQLITE_OK, find);
        *at = found.cast_mut();
        code
    }
}

unsafe extern "C" fn unfetch(file: *mut sqlite3_file, _offset: i64, at: *mut c_void) -> c_int {
    let release = |mut file: OpenFile<'_>| {
        file.unfetch(at);
        sqlite::SQLITE_OK
    };
    // SAFETY: SQLite passes an open file of ours, and calls its methods one at a time.
    unsafe { with(file, sqlite::SQLITE_OK, release) }
}
