//! A descriptor of the program's, as a function that stands in front of the C library's gets it: a number that may be wrong.
//!
//! Relies on system calls alone: no `errno`, no cancellation point, no allocation.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::lease::FileKey;

/// Bytes of one buffer of `readv`, where they lie.
pub type IoVec = libc::iovec;

/// A regular file, as a descriptor of it tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegularFile {
    /// Which it is.
    pub key: FileKey,
    /// Its bytes now.
    pub len: u64,
}

/// What a descriptor is fit for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAccess {
    /// Reads through the page cache.
    ReadOnly,
    /// Reads through the page cache, and writes: while it is open no process can lease the file.
    ReadWrite,
    /// Anything else: reads past the page cache, or none.
    Other,
}

/// A number that the program takes for a descriptor.
#[derive(Clone, Copy, Debug)]
pub struct CallerFile(BorrowedFd<'static>);

impl CallerFile {
    /// The descriptor `number`, open or not; `None` for numbers that none has.
    pub fn new(number: i32) -> Option<Self> {
        // SAFETY: it isn't -1; calls on a number that isn't open fail, which all functions here pass on.
        (number >= 0).then(|| Self(unsafe { BorrowedFd::borrow_raw(number) }))
    }

    /// Which regular file it is, and how long; `None` if it is none.
    ///
    /// A network file system's server is not asked: it says what was known last.
    pub fn regular(self) -> Option<RegularFile> {
        use rustix::fs::{AtFlags, StatxFlags, statx};
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let stat = statx(self.0, c"", flags, StatxFlags::TYPE | StatxFlags::INO | StatxFlags::SIZE).ok()?;
        let key = FileKey { device: libc::makedev(stat.stx_dev_major, stat.stx_dev_minor), inode: stat.stx_ino };
        let is_regular = u32::from(stat.stx_mode) & libc::S_IFMT == libc::S_IFREG;
        is_regular.then_some(RegularFile { key, len: stat.stx_size })
    }

    /// Whether it lies on a file system on which leases keep writers away.
    pub fn is_local(self) -> bool {
        crate::lease::is_local(self.0)
    }

    /// Whether the program has itself leased it by this descriptor: opening it once more may end that lease.
    pub fn has_own_lease(self) -> bool {
        // SAFETY: the call takes numbers.
        unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_GETLEASE) != libc::F_UNLCK }
    }

    /// Whether it is a device whose driver may hold frames of the program's memory (graphics, networks, virtual machines): any but
    /// terminals and the likes of `/dev/null`.
    pub fn is_holding_device(self) -> bool {
        /// Memory (null, zero, random), terminals, consoles.
        const HARMLESS: [u32; 3] = [1, 4, 5];
        /// Pseudo-terminals.
        const PSEUDO_TERMINALS: std::ops::RangeInclusive<u32> = 136..=143;
        rustix::fs::fstat(self.0).is_ok_and(|stat| {
            let major = libc::major(stat.st_rdev);
            stat.st_mode & libc::S_IFMT == libc::S_IFCHR
                && !HARMLESS.contains(&major)
                && !PSEUDO_TERMINALS.contains(&major)
        })
    }

    /// What it is fit for.
    pub fn access(self) -> FileAccess {
        use rustix::fs::OFlags;
        let flags = rustix::fs::fcntl_getfl(self.0).unwrap_or(OFlags::DIRECT);
        let mode = flags & OFlags::RWMODE;
        if flags.intersects(OFlags::DIRECT | OFlags::PATH) || mode == OFlags::WRONLY {
            FileAccess::Other
        } else if mode == OFlags::RDONLY {
            FileAccess::ReadOnly
        } else {
            FileAccess::ReadWrite
        }
    }

    /// The path that it was opened by, as far as it fits.
    pub fn path(self, into: &mut [u8]) -> Option<&[u8]> {
        use std::io::Write;
        let mut link = [0_u8; 40];
        // The last byte stays the closing zero.
        write!(&mut link[..39], "/proc/self/fd/{}", self.0.as_raw_fd()).ok()?;
        let link = std::ffi::CStr::from_bytes_until_nul(&link).ok()?;
        // SAFETY: the link is a C string, and the place has as many bytes as is said.
        let len = unsafe { libc::readlink(link.as_ptr(), into.as_mut_ptr().cast(), into.len()) };
        usize::try_from(len).ok().map(|len| &into[..len])
    }

    /// Its position, moved by `bytes` first: one step for all who share it.
    ///
    /// # Errors
    /// As `lseek`.
    pub fn advance(self, bytes: i64) -> io::Result<u64> {
        Ok(rustix::fs::seek(self.0, rustix::fs::SeekFrom::Current(bytes))?)
    }

    /// Reads up to `len` bytes from `offset` on to `at`; fewer at the end of the file and before an error.
    ///
    /// # Safety
    /// `len` bytes at `at` are mapped and may change.
    ///
    /// # Errors
    /// As `pread`, when nothing was read.
    pub unsafe fn read_at(self, at: usize, len: usize, offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < len {
            // SAFETY: `read_at` demands memory that may change; the slice is only handed to the kernel.
            let rest = unsafe { std::slice::from_raw_parts_mut((at + done) as *mut u8, len - done) };
            match rustix::io::pread(self.0, rest, offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if done == 0 => return Err(error.into()),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Whether all pages of a range are in the page cache; `None` where the kernel doesn't tell.
    pub fn is_cached(self, offset: u64, len: u64) -> Option<bool> {
        crate::page_cache::holds(self.0, offset, len).ok()
    }
}

/// The buffers of a call of `readv`, in `room`; none if there are no such, or more than there is room for. The program may have passed an address at which
/// nothing lies: the kernel says `EFAULT` to that, so nothing is loaded from there that may fail.
///
/// What lies in the page of `known` is looked at without a system call.
///
/// # Safety
/// `known` is memory of the caller's own frame.
pub unsafe fn buffers(buffers: *const IoVec, count: i32, room: &mut [IoVec], known: *const u8) -> &[IoVec] {
    let Some(room) =
        usize::try_from(count).ok().and_then(|count| room.get_mut(..count)).filter(|room| !room.is_empty())
    else {
        return &[];
    };
    let page = |address: usize| address / crate::mem::PAGE_SIZE;
    let (first, last) = (buffers.addr(), buffers.addr().saturating_add(size_of_val(room) - 1));
    if page(first) == page(known.addr()) && page(last) == page(known.addr()) {
        for (place, at) in room.iter_mut().zip(0..) {
            // SAFETY: all of it lies in the page of `known`, which `buffers` demands to be of its caller's frame: such a page is mapped while the
            // caller runs. No alignment is needed.
            *place = unsafe { buffers.wrapping_add(at).read_unaligned() };
        }
        return room;
    }
    let into = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: size_of_val(room) };
    let from = libc::iovec { iov_base: buffers.cast_mut().cast(), iov_len: size_of_val(room) };
    let errno = crate::guest::errno();
    // SAFETY: the kernel writes to `room` alone, as many bytes as it has, and fails where there is nothing to read.
    let copied = unsafe { libc::process_vm_readv(libc::getpid(), &raw const into, 1, &raw const from, 1, 0) };
    crate::guest::set_errno(errno);
    if usize::try_from(copied) == Ok(size_of_val(room)) { room } else { &[] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::ScratchFile;

    #[test]
    fn a_number_says_what_it_is_and_wrong_ones_do_no_harm() {
        let scratch = ScratchFile::new("caller");
        let file = scratch.file("a");
        std::os::unix::fs::FileExt::write_all_at(&file, &[9; 6000], 0).unwrap();
        let caller = CallerFile::new(file.as_raw_fd()).unwrap();
        assert!(caller.access() == FileAccess::ReadWrite && !caller.is_holding_device());
        let stat = rustix::fs::fstat(&file).unwrap();
        let key = FileKey { device: stat.st_dev, inode: stat.st_ino };
        assert_eq!(caller.regular(), Some(RegularFile { key, len: 6000 }));
        assert!(!caller.is_local() || !caller.has_own_lease());
        let null = std::fs::File::open("/dev/null").unwrap();
        let null = CallerFile::new(null.as_raw_fd()).unwrap();
        assert!(!null.is_holding_device() && null.access() == FileAccess::ReadOnly && null.regular().is_none());
        let written = std::fs::File::options().write(true).open("/dev/null").unwrap();
        assert_eq!(CallerFile::new(written.as_raw_fd()).unwrap().access(), FileAccess::Other);
        let mut path = [0; 4096];
        assert!(caller.path(&mut path).unwrap().starts_with(b"/"));
        let before = caller.advance(0).unwrap();
        assert_eq!(caller.advance(100).unwrap(), before + 100);
        let mut into = vec![0_u8; 8000];
        // SAFETY: the vector has as many bytes, and no other code uses it.
        let count = unsafe { caller.read_at(into.as_mut_ptr() as usize, 8000, 0) }.unwrap();
        assert!(count == 6000 && into[5999] == 9 && into[6000] == 0);
        assert_ne!(caller.is_cached(0, 6000), Some(false));
        assert!(CallerFile::new(-1).is_none());
        let closed = CallerFile::new(i32::MAX).unwrap();
        assert!(closed.regular().is_none() && closed.access() == FileAccess::Other && closed.advance(0).is_err());
    }

    #[test]
    fn buffers_are_taken_over_from_wherever_they_lie_and_bad_addresses_give_none() {
        let none = IoVec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let (mut room, here) = ([none; 4], 0_u8);
        let here_at = &raw const here;
        let given = [1_usize, 2, 3].map(|len| IoVec { iov_base: std::ptr::dangling_mut(), iov_len: len });
        let on_heap = given.to_vec();
        for (at, known) in
            [(given.as_ptr(), given.as_ptr().cast()), (given.as_ptr(), here_at), (on_heap.as_ptr(), here_at)]
        {
            // SAFETY: both that `known` is are of this test's frame.
            let taken = unsafe { buffers(at, 3, &mut room, known) };
            assert_eq!(taken.iter().map(|buffer| buffer.iov_len).collect::<Vec<_>>(), [1, 2, 3]);
        }
        // SAFETY: `here` is of this test's frame.
        let mut taken = |at, count| unsafe { buffers(at, count, &mut room, here_at) }.len();
        assert_eq!(taken(given.as_ptr(), 5), 0, "more than there is room for");
        assert_eq!((taken(given.as_ptr(), -1), taken(given.as_ptr(), 0)), (0, 0));
        for bad in [0, 8, usize::MAX - 7] {
            assert_eq!(taken(std::ptr::without_provenance(bad), 2), 0, "{bad:#x}");
        }
    }
}
