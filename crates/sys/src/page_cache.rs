//! The system's cache of a file's pages: what is in it, and giving some of it up.
//!
//! Relies on `cachestat` (Linux 6.5), which unlike a read that may not wait leaves the cache as it was. Where the kernel or a filter of
//! system calls refuses it nothing is known of the cache, but for what `mincore` tells of a mapping ([`resident_pages`]).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;

use crate::mem::PAGE_SIZE;

/// `cachestat`, the same number on every architecture.
const SYS_CACHESTAT: libc::c_long = 451;

#[repr(C)]
struct Range {
    offset: u64,
    len: u64,
}

/// What the cache has of a range of a file, in pages.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachedPages {
    /// In the cache.
    pub cached: u64,
    /// Of these, those that are not on the device yet.
    pub dirty: u64,
    /// Of these, those that are on their way to the device.
    pub writeback: u64,
    /// Evicted since they were in the cache.
    pub evicted: u64,
    /// Of these, those that were evicted lately.
    pub recently_evicted: u64,
}

/// Pages of the `len` bytes from `offset` on that are in the cache. 0 bytes are none here, unlike to the kernel.
///
/// # Errors
/// As `cachestat`: the kernel doesn't know it, or files of this kind have no such cache.
pub fn cached_pages(file: impl AsFd, offset: u64, len: u64) -> io::Result<CachedPages> {
    if len == 0 {
        return Ok(CachedPages::default());
    }
    let range = Range { offset, len };
    let mut found = CachedPages::default();
    // SAFETY: both structs are laid out as the kernel's and live for the call; it reads the first and writes the second.
    let result = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_fd().as_raw_fd(), &raw const range, &raw mut found, 0 as libc::c_uint)
    };
    if result == 0 { Ok(found) } else { Err(io::Error::last_os_error()) }
}

/// Whether all pages of the `len` bytes from `offset` on are in the cache.
///
/// # Errors
/// As [`cached_pages`].
pub fn holds(file: impl AsFd, offset: u64, len: u64) -> io::Result<bool> {
    let unit = PAGE_SIZE as u64;
    let pages = (offset + len).div_ceil(unit) - offset / unit;
    Ok(len > 0 && cached_pages(file, offset, len)?.cached >= pages)
}

/// Bytes of a file that are mapped together, to ask for their pages.
const ASKED_BYTES: u64 = 256 << 20;

/// Pages of the `len` bytes from `offset` on, a multiple of the page, that are in memory, by `mincore`. Slower than [`cached_pages`], and
/// tells nothing of dirty pages. Neither call changes the cache.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] where the kernel would take all pages for resident: to a process that neither owns the file nor may
/// write it, it doesn't tell. Else as `mmap` and `mincore`.
pub fn resident_pages(file: &File, offset: u64, len: u64) -> io::Result<u64> {
    if !is_told(file)? {
        let reason = "the kernel tells the pages of a file only to its owner, to those who may write it, and to root";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    let mut resident = 0;
    let end = offset + len;
    let mut at = offset;
    while at < end {
        let part = (end - at).min(ASKED_BYTES);
        resident += mapped_pages(file, at, part as usize)?;
        at += part;
    }
    Ok(resident)
}

/// Whether the kernel tells this process which pages of `file` are in memory (as `can_do_mincore` in it).
fn is_told(file: &File) -> io::Result<bool> {
    let user = rustix::process::geteuid();
    if user.is_root() || file.metadata()?.uid() == user.as_raw() {
        return Ok(true);
    }
    let (path, wish) = (format!("/proc/self/fd/{}", file.as_raw_fd()), rustix::fs::Access::WRITE_OK);
    Ok(rustix::fs::accessat(rustix::fs::CWD, path, wish, rustix::fs::AtFlags::EACCESS).is_ok())
}

/// Pages of one mapping of `file` that are in memory.
fn mapped_pages(file: &File, offset: u64, len: usize) -> io::Result<u64> {
    let (flags, access) = (rustix::mm::MapFlags::SHARED, rustix::mm::ProtFlags::READ);
    let mut states = vec![0_u8; len.div_ceil(PAGE_SIZE)];
    // SAFETY: a fresh mapping at an address of the kernel's choice; nothing existing is touched, and no byte of it is read.
    let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, access, flags, file.as_fd(), offset) }?;
    // SAFETY: the range is the mapping made above, and `states` has a byte for each of its pages, which is what the call writes.
    let result = unsafe { libc::mincore(base, len, states.as_mut_ptr()) };
    let error = io::Error::last_os_error();
    // SAFETY: it was mapped above, and no other code knows its address.
    unsafe { rustix::mm::munmap(base, len) }?;
    if result == 0 { Ok(states.iter().filter(|&&state| state & 1 != 0).count() as u64) } else { Err(error) }
}

/// Asks the system to drop the clean pages of a range from the cache. A wish: pages that are mapped, dirty or part of a larger piece
/// that reaches beyond the range stay.
pub fn drop_range(file: &File, offset: u64, len: u64) {
    if let Some(len) = std::num::NonZeroU64::new(len) {
        let _ = rustix::fs::fadvise(file, offset, Some(len), rustix::fs::Advice::DontNeed);
    }
}

/// Opens `file` a second time, to be read through the cache whatever the first opening does.
///
/// # Errors
/// The file may not be read, or there is no procfs.
pub fn open_cached(file: &File) -> io::Result<File> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::ScratchFile;
    use std::os::unix::fs::FileExt;

    #[test]
    fn what_was_read_is_in_the_cache_until_it_is_given_up() {
        let scratch = ScratchFile::new("page-cache");
        let file = scratch.file("file");
        file.write_all_at(&vec![7; 8 * PAGE_SIZE], 0).unwrap();
        file.sync_all().unwrap();
        let again = open_cached(&file).unwrap();
        let mut byte = [0];
        (0..8).for_each(|page| again.read_exact_at(&mut byte, page * PAGE_SIZE as u64).unwrap());
        let found = match cached_pages(&file, 0, 8 * PAGE_SIZE as u64) {
            Err(error) => return crate::testing::skipped_even_in_ci(error),
            Ok(found) => found,
        };
        assert_eq!((found.cached, found.dirty), (8, 0));
        assert!(holds(&file, PAGE_SIZE as u64 + 5, PAGE_SIZE as u64).unwrap());
        drop_range(&file, 0, 8 * PAGE_SIZE as u64);
        assert_eq!(cached_pages(&file, 0, 8 * PAGE_SIZE as u64).unwrap().cached, 0);
        assert!(!holds(&file, 0, 1).unwrap());
        assert_eq!(cached_pages(&file, 0, 0).unwrap(), CachedPages::default());
    }

    #[test]
    fn both_ways_to_ask_tell_the_same() {
        let scratch = ScratchFile::new("page-cache-mincore");
        let file = scratch.file("file");
        file.write_all_at(&vec![7; 8 * PAGE_SIZE + 5], 0).unwrap();
        file.sync_all().unwrap();
        let len = 8 * PAGE_SIZE as u64 + 5;
        assert_eq!(resident_pages(&file, 0, len).unwrap(), 9);
        assert_eq!(resident_pages(&file, 2 * PAGE_SIZE as u64, 3 * PAGE_SIZE as u64).unwrap(), 3);
        assert_eq!(resident_pages(&file, 0, 0).unwrap(), 0);
        drop_range(&file, 0, len);
        match cached_pages(&file, 0, len) {
            Err(error) => crate::testing::skipped_even_in_ci(error),
            Ok(found) => assert_eq!(resident_pages(&file, 0, len).unwrap(), found.cached),
        }
        assert!(resident_pages(&file, 0, len).unwrap() < 9, "what was given up is not in memory");
    }
}
