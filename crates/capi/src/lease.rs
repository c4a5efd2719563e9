//! Files that are read in place: leases of their bytes.
//!
//! Relies on [`quire_pool::Map`](::quire_pool::Map) and its leases for all that happens.

use core::ffi::{CStr, c_char, c_void};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ::quire_pool::{Lease, Map, MapOptions, PageNo};
use quire_sys::fork_mark::ForkMark;

use crate::api_error::{ApiError, check_limit};
use crate::boundary::{self, OutPointer, check};
use crate::handle::{self, ObjectGuard};
use crate::map::{self, QUIRE_MAP_CREATE, quire_map_options};
use crate::pool::{MOST_BYTES, quire_pool};
use crate::status::quire_status;

/// quire_lease() fails with QUIRE_EXHAUSTED at once where leases pin as much as they may, and does not wait for others to be released.
pub const QUIRE_LEASE_TRY: u64 = 1;

/// A file whose bytes are read in place, by leases, and written by calls. Any thread may call with it.
///
/// A child that the program makes by fork() must not call with it: that is refused.
pub struct quire_file {
    map: Map,
    page_bytes: u64,
    mark: ForkMark,
}

impl quire_file {
    /// The file at `file`, if this process opened it.
    ///
    /// # Safety
    /// Unless it is null or unaligned, `file` is a file that is not released.
    fn own(file: *const Self) -> Result<ObjectGuard<Self>, ApiError> {
        let file = handle::get("file", file)?;
        // What it has in memory is the parent's to write, and so are the pool's threads.
        if file.mark.is_forked() { Err(ApiError::Forked { argument: "file" }) } else { Ok(file) }
    }
}

/// Bytes of a file, in place.
///
/// They stay in memory, and as they are, until the lease is released, whatever is written to the file meanwhile: a writer gets a copy of a
/// leased page, and later leases and reads show what it wrote. Any thread may load the bytes and release the lease. It keeps the
/// file, and its pool, also when these have been released. Of bytes on several pages each page is as it was at one moment, not all
/// at the same.
///
/// A forked child may load the bytes of a lease that its parent had, and may not call with it.
pub struct quire_leased {
    lease: Lease<'static>,
    mark: ForkMark,
}

/// Opens the file, or block device, at path, whole, with pages of pool. The same file must not be opened, or mapped, twice at a time. What is
/// written gets to the file when the pool needs memory, by quire_file_sync(), and when the file and the last of its leases are released.
///
/// options may be NULL; its flags may be QUIRE_MAP_CREATE, and servers must be 0. On success *file is the new file, to be released by
/// quire_file_release(); on failure it is NULL. Directories, pipes, sockets, character devices and the kernel's interfaces (/proc,
/// /sys) are refused.
///
/// # Safety
/// `pool` is a pool that is not released; `path` is a string that ends with NUL; `options` is NULL or leads to options with
/// `struct_size` set; `*file` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_file_open(
    pool: *const quire_pool,
    path: *const c_char,
    options: *const quire_map_options,
    file: *mut *mut quire_file,
) -> quire_status {
    boundary::status(|| {
        // SAFETY: `OutPointer::new` refuses NULL and unaligned addresses; that any other one may be written until this call
        // returns is the duty of this function's callers.
        let out = unsafe { OutPointer::new("file", file) }?;
        let pool = quire_pool::own(pool)?;
        check("path", path)?;
        // SAFETY: not null, as was checked; that it then leads to a string which ends with NUL is the duty of this function's
        // callers. It is used within this call only.
        let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
        // SAFETY: `read` takes NULL, or options whose `struct_size` says how much may be read: what this function's callers have
        // to pass.
        let options = unsafe { map::read(options) }?;
        check_limit("options->flags", options.flags, 0, QUIRE_MAP_CREATE)?;
        check_limit("options->servers", options.servers, 0, 0)?;
        check_limit("options->reserve_bytes", options.reserve_bytes, 0, MOST_BYTES)?;
        let device = map::open(path, options.flags & QUIRE_MAP_CREATE != 0)?;
        let reserve_bytes = map::reserve_bytes(options.reserve_bytes, device.len()?);
        let map = pool.pool().map(device, MapOptions { reserve_bytes, ..MapOptions::default() })?;
        out.fill(quire_file { map, page_bytes: pool.pool().page_bytes() as u64, mark: ForkMark::new() })
    })
}

/// Bytes of the file. 0 if file is NULL.
///
/// # Safety
/// `file` is NULL or a file that is not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_file_len(file: *const quire_file) -> u64 {
    boundary::value(0, || Ok(quire_file::own(file)?.map.len()))
}

/// Makes the file len bytes long if it is shorter. The new bytes are zero.
///
/// # Safety
/// `file` is a file that is not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_file_grow(file: *const quire_file, len: u64) -> quire_status {
    boundary::status(|| Ok(quire_file::own(file)?.map.grow(len)?))
}

/// Writes len bytes to the file at offset, where the file must have as many. Leases of these bytes keep what they show. Other threads see
/// each page of the file as it was before or is afterwards. Where it fails, a part of the bytes may have been written.
///
/// bytes must not be memory of a quire_map().
///
/// # Safety
/// `file` is a file that is not released; `len` bytes at `bytes` may be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_file_write(
    file: *const quire_file,
    offset: u64,
    bytes: *const c_void,
    len: usize,
) -> quire_status {
    boundary::status(|| {
        let file = quire_file::own(file)?;
        check("bytes", bytes)?;
        let size = file.map.len();
        let end = offset.checked_add(len as u64).filter(|&end| end <= size).ok_or(ApiError::Outside {
            offset: offset as usize,
            len,
            size: size as usize,
        })?;
        let mut at = offset;
        while at < end {
            let mut guard = file.map.write(PageNo(at / file.page_bytes))?;
            let inside = (at % file.page_bytes) as usize;
            let count = (guard.len() - inside).min((end - at) as usize);
            let from = bytes.cast::<u8>().wrapping_add((at - offset) as usize);
            // SAFETY: that `len` bytes at `bytes` may be read is the duty of this function's callers; `count` of them are left from `from` on. They
            // may lie in a lease, of this page even: the guard's bytes are elsewhere then. `copy_to` takes any overlap.
            unsafe { from.copy_to(guard[inside..].as_mut_ptr(), count) };
            at += count as u64;
        }
        Ok(())
    })
}

/// Makes durable what was written before the call, and the file's length.
///
/// When it fails, it is not known what is in the file: what was written stays in memory, and every later call says why.
///
/// # Safety
/// `file` is a file that is not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_file_sync(file: *const quire_file) -> quire_status {
    boundary::status(|| Ok(quire_file::own(file)?.map.sync()?))
}

/// Ends the use of a file; its leases stay. What was written is written to the file with the last of them, but not made durable: that takes
/// quire_file_sync(). NULL is nothing to release.
///
/// # Safety
/// `file` is NULL or a file that is not released, and no other thread is in a call with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_file_release(file: *mut quire_file) -> quire_status {
    boundary::status(|| {
        if !file.is_null() {
            quire_file::own(file)?;
        }
        handle::release("file", file)
    })
}

/// Leases the len bytes of file at offset; fewer if the file ends before. Pages that are not in memory are read.
///
/// Leases pin no more than a part of the pool (quire_pool_options.lease_percent). Where they do, the call waits until others are released, but
/// no longer than the pool's patience while none is: the caller may hold all of them. Then, and with QUIRE_LEASE_TRY in flags at
/// once, it fails with QUIRE_EXHAUSTED. QUIRE_INVALID where the file ends at offset or before.
///
/// On success *lease is the new lease, to be released by quire_lease_release(); on failure it is NULL.
///
/// # Safety
/// `file` is a file that is not released; `*lease` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_lease(
    file: *const quire_file,
    offset: u64,
    len: usize,
    flags: u64,
    lease: *mut *mut quire_leased,
) -> quire_status {
    boundary::status(|| {
        // SAFETY: `OutPointer::new` refuses NULL and unaligned addresses; that any other one may be written until this call
        // returns is the duty of this function's callers.
        let out = unsafe { OutPointer::new("lease", lease) }?;
        check_limit("flags", flags, 0, QUIRE_LEASE_TRY)?;
        let file = quire_file::own(file)?;
        let leased = if flags & QUIRE_LEASE_TRY == 0 {
            file.map.lease(offset, len)?
        } else {
            file.map.try_lease(offset, len)?
        };
        out.fill(quire_leased { lease: leased.into_owned(), mark: ForkMark::new() })
    })
}

/// The first of the leased bytes, which must not be stored to. NULL if lease is.
///
/// # Safety
/// `lease` is NULL or a lease that is not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_lease_ptr(lease: *const quire_leased) -> *const c_void {
    boundary::value(std::ptr::null(), || Ok(handle::get("lease", lease)?.lease.as_ptr().cast()))
}

/// How many bytes are leased. 0 if lease is NULL.
///
/// # Safety
/// `lease` is NULL or a lease that is not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_lease_len(lease: *const quire_leased) -> usize {
    boundary::value(0, || Ok(handle::get("lease", lease)?.lease.len()))
}

/// Ends a lease, whose bytes must not be touched afterwards. Any thread may. NULL is nothing to release.
///
/// # Safety
/// `lease` is NULL or a lease that is not released, and no other thread uses its bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_lease_release(lease: *mut quire_leased) -> quire_status {
    boundary::status(|| {
        if !lease.is_null() && handle::get("lease", lease.cast_const())?.mark.is_forked() {
            return Err(ApiError::Forked { argument: "lease" });
        }
        handle::release("lease", lease)
    })
}
