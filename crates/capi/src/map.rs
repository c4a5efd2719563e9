//! Files as memory, of which a pool holds as much as it may.
//!
//! Relies on [`TransparentMap`] for all that happens; here a path becomes a device.

use core::ffi::{CStr, c_char, c_void};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use ::quire_pool::{FaultThreadOptions, MapOptions, PageNo, TransparentMap};
use quire_device::{BlockDevice, Device, Directory, DiskDirectory};
use quire_sys::file::is_kernel_interface;
use quire_sys::fork_mark::ForkMark;

use crate::api_error::{ApiError, check_limit};
use crate::boundary::{self, OutPointer, check};
use crate::extensible_struct::{self, ExtensibleStruct};
use crate::handle::{self, ObjectGuard};
use crate::pool::{MOST_BYTES, quire_pool};
use crate::status::quire_status;

/// The file is made if it is not there.
pub const QUIRE_MAP_CREATE: u64 = 1;
/// Threads of the library see to the faults, not the thread that faults. System calls (read, write, ...) may then be handed
/// addresses of the map; they fail with EFAULT otherwise. It costs two changes of thread a fault, needs the right to catch
/// faults of system calls (CAP_SYS_PTRACE, /dev/userfaultfd or vm.unprivileged_userfaultfd=1), and a page that can't be
/// read ends the program by SIGABRT with a line on standard error.
pub const QUIRE_MAP_SERVED: u64 = 2;

/// More servers than this are of no use.
const MOST_SERVERS: u64 = 32;
/// FaultThreadOptions threads, if nothing else is said.
const USUAL_SERVERS: usize = 4;

/// A file as memory.
///
/// Any thread may load and store at quire_map_ptr() as anywhere; an access to a page that is not in memory reads it from the
/// file first. Where that fails, or the pool has no memory to give, the access ends in SIGBUS as with mmap(). The program
/// must not set a handler of SIGBUS of its own once such a map exists; one that it set before is asked about all other
/// faults. A child that the program makes by fork() must not touch the map.
/// Calls with it are refused there.
pub struct quire_mapping {
    map: TransparentMap,
    page_bytes: u64,
    mark: ForkMark,
}

impl quire_mapping {
    /// The map at `map`, if this process made it.
    ///
    /// # Safety
    /// Unless it is null or unaligned, `map` is a map that is not released.
    fn own(map: *const Self) -> Result<ObjectGuard<Self>, ApiError> {
        let map = handle::get("map", map)?;
        // What it has in memory is the parent's to write, and so are its threads.
        if map.mark.is_forked() { Err(ApiError::Forked { argument: "map" }) } else { Ok(map) }
    }
}

/// What a map may be told when it is made. Zero means "as usual" in every field, and so does NULL instead of the whole.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct quire_map_options {
    /// sizeof(quire_map_options), so that later versions may have further fields.
    pub struct_size: usize,
    /// The length to which quire_map_grow() may go, in bytes: addresses are kept free for so much. Usual: the length of the
    /// file now, or 1 TiB for a file of no bytes. At most 64 TiB.
    pub reserve_bytes: u64,
    /// QUIRE_MAP_CREATE, QUIRE_MAP_SERVED, or both added up.
    pub flags: u64,
    /// Threads for QUIRE_MAP_SERVED: as many faults at a time can wait for the disk. At most 32; usual: 4.
    pub servers: u64,
}

// SAFETY: integers only, each at a multiple of its size, beginning with the size.
unsafe impl ExtensibleStruct for quire_map_options {}
const _: () = assert!(size_of::<quire_map_options>() == 32, "a gap, or a field that the header's readers don't know");

/// What an empty file may become.
const EMPTY_RESERVE_BYTES: u64 = 1 << 40;

/// The options at `options`, or the usual ones for null.
///
/// # Safety
/// `options` is null or leads to a [`quire_map_options`] of any version.
pub(crate) unsafe fn read(options: *const quire_map_options) -> Result<quire_map_options, ApiError> {
    if options.is_null() {
        return Ok(quire_map_options::default());
    }
    // SAFETY: not null; that `struct_size` is set and as many bytes may be read is the duty of this function's callers, and
    // `extensible_struct::read` refuses unaligned addresses itself.
    let options = unsafe { extensible_struct::read("options", options) }?;
    let unknown = options.flags & !(QUIRE_MAP_CREATE | QUIRE_MAP_SERVED);
    if unknown != 0 {
        let value = unknown.cast_signed();
        return Err(ApiError::Unknown { argument: "options->flags", value, advice: "a later libquire may know it" });
    }
    Ok(options)
}

/// The file or block device at `path`.
pub(crate) fn open(path: &Path, may_create: bool) -> Result<Arc<dyn Device>, ApiError> {
    if path.metadata().is_ok_and(|facts| facts.file_type().is_block_device()) {
        return Ok(BlockDevice::open(path)?);
    }
    let name = path.file_name().and_then(OsStr::to_str).ok_or_else(|| ApiError::NoFile(path.display().to_string()))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let disk = DiskDirectory::new(parent.unwrap_or(Path::new(".")));
    let device = match disk.open_to_write(name) {
        Err(error) if error.is_missing() && may_create => disk.create(name)?,
        opened => opened?,
    };
    // They say that they are files. A file system that doesn't say what it is is taken for one that keeps files.
    if device.as_file().is_some_and(|file| is_kernel_interface(file).unwrap_or(false)) {
        return Err(ApiError::Interface(path.display().to_string()));
    }
    Ok(device)
}

/// Bytes to reserve addresses for, of a file of `len` bytes.
pub(crate) fn reserve_bytes(asked: u64, len: u64) -> u64 {
    if asked == 0 && len == 0 { EMPTY_RESERVE_BYTES } else { asked }
}

/// A thread of the program that waits for a page can't be told more than that.
fn lost(words: &str) {
    eprintln!("libquire: {words}; the program is ended, as memory of it is lost");
}

/// Maps the file, or block device, at path as memory, whole, with pages of pool. The same file must not be mapped twice at a
/// time. What is stored there gets to the file when the pool needs memory, by quire_map_flush() and quire_map_sync(), and
/// when the map is released.
///
/// options may be NULL. On success *map is the new map, to be released by quire_map_release(); on failure it is NULL.
/// QUIRE_UNSUPPORTED where userfaultfd is forbidden. Directories, pipes, sockets, character devices and the kernel's
/// interfaces (/proc, /sys) are refused.
///
/// # Safety
/// `pool` is a pool that is not released; `path` is a string that ends with NUL; `options` is NULL or leads to options with
/// `struct_size` set; `*map` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_map(
    pool: *const quire_pool,
    path: *const c_char,
    options: *const quire_map_options,
    map: *mut *mut quire_mapping,
) -> quire_status {
    boundary::status(|| {
        // SAFETY: `OutPointer::new` refuses NULL and unaligned addresses; that any other one may be written until this call
        // returns is the duty of this function's callers.
        let out = unsafe { OutPointer::new("map", map) }?;
        let pool = quire_pool::own(pool)?;
        let pool = pool.pool();
        check("path", path)?;
        // SAFETY: not null, as was checked; that it then leads to a string which ends with NUL is the duty of this function's
        // callers. It is used within this call only.
        let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
        // SAFETY: `read` takes NULL, or options whose `struct_size` says how much may be read: what this function's callers have
        // to pass.
        let options = unsafe { read(options) }?;
        check_limit("options->reserve_bytes", options.reserve_bytes, 0, MOST_BYTES)?;
        check_limit("options->servers", options.servers, 0, MOST_SERVERS)?;
        let device = open(path, options.flags & QUIRE_MAP_CREATE != 0)?;
        let reserve_bytes = reserve_bytes(options.reserve_bytes, device.len()?);
        let settings = MapOptions { reserve_bytes, ..MapOptions::default() };
        let map = if options.flags & QUIRE_MAP_SERVED == 0 {
            TransparentMap::new(pool, device, settings)?
        } else {
            let threads = match options.servers {
                0 => USUAL_SERVERS,
                some => some as usize,
            };
            TransparentMap::with_fault_threads(pool, device, settings, FaultThreadOptions { threads, lost })?
        };
        let page_bytes = pool.page_bytes() as u64;
        out.fill(quire_mapping { map, page_bytes, mark: ForkMark::new() })
    })
}

/// The file's first byte. It stays where it is, also when the map grows. NULL if map is.
///
/// # Safety
/// `map` is NULL or a map that is not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_map_ptr(map: *const quire_mapping) -> *mut c_void {
    boundary::value(std::ptr::null_mut(), || Ok(quire_mapping::own(map)?.map.as_ptr().cast()))
}

/// Bytes of the file, which may be loaded and stored. 0 if map is NULL.
///
/// # Safety
/// `map` is NULL or a map that is not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_map_len(map: *const quire_mapping) -> u64 {
    boundary::value(0, || Ok(quire_mapping::own(map)?.map.len()))
}

/// Makes the file, and so the map, len bytes long if it is shorter. The new bytes are zero.
///
/// # Safety
/// `map` is a map that is not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_map_grow(map: *const quire_mapping, len: u64) -> quire_status {
    boundary::status(|| Ok(quire_mapping::own(map)?.map.grow(len)?))
}

/// Makes durable what was stored before the call to the pages of len bytes at offset, and the file's length. Other threads
/// may go on storing; what they store meanwhile may be in the file or not.
///
/// When it fails, it is not known what is in the file: the map's later stores stay in memory, and every later call says why.
///
/// # Safety
/// `map` is a map that is not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_map_flush(map: *const quire_mapping, offset: u64, len: u64) -> quire_status {
    boundary::status(|| {
        let map = quire_mapping::own(map)?;
        let size = map.map.len();
        let end = offset.checked_add(len).filter(|&end| end <= size).ok_or(ApiError::Outside {
            offset: offset as usize,
            len: len as usize,
            size: size as usize,
        })?;
        Ok(map.map.flush(PageNo(offset / map.page_bytes)..PageNo(end.div_ceil(map.page_bytes)))?)
    })
}

/// quire_map_flush() of the whole file.
///
/// # Safety
/// `map` is a map that is not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_map_sync(map: *const quire_mapping) -> quire_status {
    boundary::status(|| Ok(quire_mapping::own(map)?.map.sync()?))
}

/// Bytes of the map that are in memory. 0 if map is NULL.
///
/// # Safety
/// `map` is NULL or a map that is not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_map_resident(map: *const quire_mapping) -> u64 {
    boundary::value(0, || {
        let map = quire_mapping::own(map)?;
        Ok(map.map.resident_pages() as u64 * map.page_bytes)
    })
}

/// Ends a map. What was stored is written to the file, but not made durable: that takes quire_map_sync(). Its memory must not
/// be touched afterwards. NULL is nothing to release.
///
/// # Safety
/// `map` is NULL or a map that is not released, no other thread is in a call with it or touches its memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_map_release(map: *mut quire_mapping) -> quire_status {
    boundary::status(|| {
        if !map.is_null() {
            quire_mapping::own(map)?;
        }
        handle::release("map", map)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_without_a_meaning_are_refused() {
        let options = quire_map_options { struct_size: size_of::<quire_map_options>(), flags: 4, ..Default::default() };
        // SAFETY: `options` is a local structure of this version with its size set; null reads nothing.
        let (refused, usual) = unsafe { (read(&raw const options).unwrap_err(), read(std::ptr::null()).unwrap()) };
        assert!(refused.to_string().contains("flags") && usual.flags == 0);
    }

    #[test]
    fn a_file_is_made_only_if_that_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        assert!(open(&path, false).is_err() && !path.exists());
        assert!(open(&path, true).is_ok() && path.exists());
        std::fs::write(&path, "kept").unwrap();
        assert_eq!(open(&path, true).unwrap().len().unwrap(), 4);
        assert!(matches!(open(Path::new("/"), true), Err(ApiError::NoFile(_))));
        assert!(matches!(open(Path::new("/proc/self/mem"), false), Err(ApiError::Interface(_))));
    }
}
