//! Mappings at addresses that the caller owns: files in memory, private and shared views of them, advice.
//!
//! Relies on `mmap`, `munmap`, `madvise` and `memfd_create`. Unlike [`crate::mem::Reservation`] nothing here remembers what
//! was mapped, so every call that changes memory is `unsafe` and says what the caller must own.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;

use rustix::fs::MemfdFlags;
use rustix::mm::{self, Advice, MapFlags, ProtFlags};

/// Who sees what is written to a mapping of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapSharing {
    /// Every mapping of the file.
    Shared,
    /// Only this mapping: the first write to a page makes a copy of it.
    Private,
}

/// What may be done with a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Loads only.
    Read,
    /// Loads and stores.
    ReadWrite,
}

impl Protection {
    fn flags(self) -> ProtFlags {
        match self {
            Self::Read => ProtFlags::READ,
            Self::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        }
    }
}

/// A file in memory of `len` bytes, all zero, that has no name and is gone with its last user.
///
/// # Errors
/// As `memfd_create` and `ftruncate`.
pub fn memory_file(name: &str, len: u64) -> io::Result<File> {
    let file = File::from(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?);
    file.set_len(len)?;
    Ok(file)
}

/// Maps `len` bytes of `file` from `offset` on over whatever is at `at`.
///
/// # Safety
/// `at .. at + len` is page-aligned and belongs to the caller, who holds no reference into it.
///
/// # Errors
/// As `mmap`; the old mapping may be gone then.
pub unsafe fn map_file_over(
    at: *mut u8,
    len: usize,
    file: &File,
    offset: u64,
    sharing: MapSharing,
    access: Protection,
) -> io::Result<()> {
    let sharing = match sharing {
        MapSharing::Shared => MapFlags::SHARED,
        MapSharing::Private => MapFlags::PRIVATE,
    };
    let flags = sharing | MapFlags::FIXED | MapFlags::NORESERVE;
    // SAFETY: with MAP_FIXED `mmap` takes away what lies at the addresses; `map_file_over` demands that they belong to its caller, who
    // holds no reference into them.
    unsafe { mm::mmap(at.cast(), len, access.flags(), flags, file.as_fd(), offset) }?;
    Ok(())
}

/// Puts fresh anonymous memory, which reads as zero, over whatever is at `at`.
///
/// # Safety
/// `at .. at + len` is page-aligned and belongs to the caller, who holds no reference into it.
///
/// # Errors
/// As `mmap`.
pub unsafe fn map_anonymous_over(at: *mut u8, len: usize, access: Protection) -> io::Result<()> {
    let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
    // SAFETY: with MAP_FIXED `mmap` takes away what lies at the addresses; `map_anonymous_over` demands that they belong to its caller,
    // who holds no reference into them.
    unsafe { mm::mmap_anonymous(at.cast(), len, access.flags(), flags) }?;
    Ok(())
}

/// Changes what may be done with the memory at `at`.
///
/// # Safety
/// `at .. at + len` is page-aligned and belongs to the caller; code that loses access to it by this call doesn't use it.
///
/// # Errors
/// As `mprotect`.
pub unsafe fn protect(at: *mut u8, len: usize, access: Protection) -> io::Result<()> {
    let flags = match access {
        Protection::Read => mm::MprotectFlags::READ,
        Protection::ReadWrite => mm::MprotectFlags::READ | mm::MprotectFlags::WRITE,
    };
    // SAFETY: `protect` demands pages of the caller's that no code uses which loses access to them.
    Ok(unsafe { mm::mprotect(at.cast(), len, flags) }?)
}

/// Takes away whatever lies at `at`.
///
/// # Safety
/// `at .. at + len` is page-aligned and belongs to the caller; no code uses it any more.
///
/// # Errors
/// As `munmap`.
pub unsafe fn unmap(at: *mut u8, len: usize) -> io::Result<()> {
    // SAFETY: `unmap` demands pages of the caller's that no code uses any more.
    Ok(unsafe { mm::munmap(at.cast(), len) }?)
}

/// Advice about memory that doesn't change what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapAdvice {
    /// Back it with huge pages where that is possible.
    Huge,
    /// Don't.
    NoHuge,
    /// Make huge pages of it now, copying if need be (Linux 6.1).
    Collapse,
    /// Fill in page table entries for reading now (Linux 5.14).
    PopulateRead,
    /// Fill in page table entries for writing now, which breaks copy-on-write sharing (Linux 5.14).
    PopulateWrite,
    /// Forked children do not get it.
    DontFork,
}

/// Gives advice about `at .. at + len`, which must be mapped by this process.
///
/// # Errors
/// As `madvise`; `InvalidInput` where the kernel doesn't know the advice.
pub fn advise(at: *mut u8, len: usize, hint: MapAdvice) -> io::Result<()> {
    let advice = match hint {
        MapAdvice::Huge => libc::MADV_HUGEPAGE,
        MapAdvice::NoHuge => libc::MADV_NOHUGEPAGE,
        MapAdvice::Collapse => libc::MADV_COLLAPSE,
        MapAdvice::PopulateRead => libc::MADV_POPULATE_READ,
        MapAdvice::PopulateWrite => libc::MADV_POPULATE_WRITE,
        MapAdvice::DontFork => libc::MADV_DONTFORK,
    };
    // SAFETY: none of these changes what memory of this process holds or takes it away.
    if unsafe { libc::madvise(at.cast(), len, advice) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Drops the pages at `at`: anonymous memory reads as zero afterwards, a private mapping of a file as the file.
///
/// # Safety
/// `at .. at + len` is page-aligned and belongs to the caller, who holds no reference into it: its bytes change.
///
/// # Errors
/// As `madvise`.
pub unsafe fn discard(at: *mut u8, len: usize) -> io::Result<()> {
    // SAFETY: `discard` demands pages of the caller's into which no reference exists.
    Ok(unsafe { mm::madvise(at.cast(), len, Advice::LinuxDontNeed) }?)
}

/// Moves the pages at `from` over whatever is at `to`. What lies at `from` stays mapped as it was, but without the pages:
/// anonymous memory reads as zero, a private mapping of a file as the file, and a range that userfaultfd has registered
/// stays registered while its moved pages are not.
///
/// # Safety
/// Both ranges of `len` bytes are page-aligned, don't overlap and belong to the caller, who holds no reference into them.
///
/// # Errors
/// As `mremap` with `MREMAP_DONTUNMAP` (Linux 5.13 for files).
pub unsafe fn move_over(from: *mut u8, len: usize, to: *mut u8) -> io::Result<()> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP | libc::MREMAP_FIXED;
    // SAFETY: `move_over` demands two ranges of the caller's that don't overlap and into which no reference exists.
    unsafe { remap(from, len, flags, to) }
}

/// Moves the mapping at `from`, pages and registration with userfaultfd included, over whatever is at `to`; nothing is left at `from`.
///
/// # Safety
/// As [`move_over`].
///
/// # Errors
/// As `mremap`: what was at `to` may be gone then.
pub unsafe fn move_whole(from: *mut u8, len: usize, to: *mut u8) -> io::Result<()> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: `move_whole` demands two ranges of the caller's that don't overlap and into which no reference exists.
    unsafe { remap(from, len, flags, to) }
}

/// # Safety
/// As [`move_over`].
unsafe fn remap(from: *mut u8, len: usize, flags: libc::c_int, to: *mut u8) -> io::Result<()> {
    // Not by rustix: its C library backend, which Miri and the sanitizers need, passes a wrong flag. Nor by the C library's function,
    // before which a library that this crate is linked into may have put its own.
    // SAFETY: `remap` demands two ranges of the caller's that don't overlap and into which no reference exists.
    let moved = unsafe { libc::syscall(libc::SYS_mremap, from, len, len, flags, to) };
    if moved == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The parts of `within` that `file` has pages for, in memory or swapped out; the rest are holes and read as zero. What is
/// written meanwhile may be in the answer or not.
///
/// # Errors
/// As `lseek` with `SEEK_DATA`.
pub fn data_ranges(file: &File, within: Range<u64>) -> io::Result<Vec<Range<u64>>> {
    use rustix::fs::{SeekFrom, seek};
    let mut ranges = Vec::new();
    let mut at = within.start;
    while at < within.end {
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) if start < within.end => start,
            Ok(_) | Err(rustix::io::Errno::NXIO) => break,
            Err(errno) => return Err(errno.into()),
        };
        at = seek(file, SeekFrom::Hole(start))?.min(within.end);
        ranges.push(start..at);
    }
    Ok(ranges)
}

/// Gives the memory behind part of a file in memory back to the system; it reads as zero afterwards.
///
/// # Errors
/// As `fallocate`.
pub fn punch_hole(file: &File, offset: u64, len: u64) -> io::Result<()> {
    use rustix::fs::FallocateFlags;
    Ok(rustix::fs::fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::Reservation;

    #[test]
    fn a_private_mapping_keeps_its_writes_and_a_shared_one_shows_them() {
        let len = 2 << 20;
        let file = memory_file("test", len as u64).unwrap();
        let (one, two) = (Reservation::new(len).unwrap(), Reservation::new(len).unwrap());
        // SAFETY: both ranges are this test's own; no references into them are kept.
        unsafe {
            map_file_over(one.base(), len, &file, 0, MapSharing::Shared, Protection::ReadWrite).unwrap();
            map_file_over(two.base(), len, &file, 0, MapSharing::Private, Protection::ReadWrite).unwrap();
            one.base().write(7);
            assert_eq!(two.base().read(), 7);
            two.base().write(8);
            assert_eq!((one.base().read(), two.base().read()), (7, 8));
            discard(two.base(), len).unwrap();
            assert_eq!(two.base().read(), 7);
            punch_hole(&file, 0, len as u64).unwrap();
            assert_eq!(one.base().read(), 0);
            map_anonymous_over(one.base(), len, Protection::ReadWrite).unwrap();
            assert_eq!(one.base().read(), 0);
        }
        advise(one.base(), len, MapAdvice::PopulateWrite).unwrap();
        assert!(advise(std::ptr::null_mut(), len, MapAdvice::PopulateRead).is_err());
    }

    #[test]
    fn a_file_in_memory_says_where_it_has_pages() {
        let (page, len) = (4096, 1 << 20);
        let file = memory_file("test", len).unwrap();
        assert!(data_ranges(&file, 0..len).unwrap().is_empty());
        std::os::unix::fs::FileExt::write_all_at(&file, &[1; 5000], 3 * page).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[1], 9 * page).unwrap();
        assert_eq!(data_ranges(&file, 0..len).unwrap(), [3 * page..5 * page, 9 * page..10 * page]);
        assert_eq!(data_ranges(&file, 4 * page..9 * page).unwrap(), std::slice::from_ref(&(4 * page..5 * page)));
    }

    #[test]
    fn moved_pages_of_a_private_mapping_leave_the_file_behind() {
        let len = 2 << 20;
        let file = memory_file("test", len as u64).unwrap();
        let (one, two) = (Reservation::new(len).unwrap(), Reservation::new(len).unwrap());
        // SAFETY: both ranges are this test's own; no references into them are kept.
        unsafe {
            map_file_over(one.base(), len, &file, 0, MapSharing::Private, Protection::ReadWrite).unwrap();
            one.base().write(7);
            move_over(one.base(), len, two.base()).unwrap();
            assert_eq!((one.base().read(), two.base().read()), (0, 7));
        }
    }
}
