//! The system's cache of a file's pages: what is in it, and giving some of it up.
//!
//! Relies on `cachestat` (Linux 6.5), which unlike a read that may not wait leaves the cache as it was. Where the kernel or a filter of
//! system calls refuses it nothing is known of the cache.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

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
}
