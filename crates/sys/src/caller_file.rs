//! A descriptor of the program's, as a function that stands in front of the C library's gets it: a number that may be wrong.
//!
//! Relies on system calls alone: no `errno`, no cancellation point, no allocation.

use std::io;
use std::os::fd::BorrowedFd;

use crate::lease::FileKey;

/// As many buffers as the kernel takes in one call.
const MOST_BUFFERS: usize = 1024;

/// Bytes of one buffer of `readv`, where they lie.
pub type IoVec = libc::iovec;

/// A number that the program takes for a descriptor.
#[derive(Clone, Copy, Debug)]
pub struct CallerFile(BorrowedFd<'static>);

impl CallerFile {
    /// The descriptor `number`, open or not; `None` for numbers that none has.
    pub fn new(number: i32) -> Option<Self> {
        // SAFETY: it isn't -1; calls on a number that isn't open fail, which all functions here pass on.
        (number >= 0).then(|| Self(unsafe { BorrowedFd::borrow_raw(number) }))
    }

    /// Which regular file it is; `None` if it is none.
    pub fn regular(self) -> Option<FileKey> {
        let stat = rustix::fs::fstat(self.0).ok()?;
        (stat.st_mode & libc::S_IFMT == libc::S_IFREG).then_some(FileKey { device: stat.st_dev, inode: stat.st_ino })
    }

    /// Whether it is read through the page cache.
    pub fn is_buffered(self) -> bool {
        use rustix::fs::OFlags;
        let flags = rustix::fs::fcntl_getfl(self.0).unwrap_or(OFlags::DIRECT);
        flags & OFlags::RWMODE != OFlags::WRONLY && !flags.intersects(OFlags::DIRECT | OFlags::PATH)
    }

    /// The path that it was opened by, as far as it fits.
    pub fn path(self, into: &mut [u8]) -> Option<&[u8]> {
        use std::io::Write;
        use std::os::fd::AsRawFd;
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

/// The buffers of a call of `readv`; empty if that is none, or of more than the kernel takes, which refuses the call without a look at them.
///
/// # Safety
/// As many as `count` lie at `buffers`.
pub unsafe fn buffers<'a>(buffers: *const IoVec, count: i32) -> &'a [IoVec] {
    match usize::try_from(count) {
        // SAFETY: `buffers` demands that as many lie there.
        Ok(count) if (1..=MOST_BUFFERS).contains(&count) && !buffers.is_null() => unsafe {
            std::slice::from_raw_parts(buffers, count)
        },
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::ScratchFile;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_number_says_what_it_is_and_wrong_ones_do_no_harm() {
        let scratch = ScratchFile::new("caller");
        let file = scratch.file("a");
        std::os::unix::fs::FileExt::write_all_at(&file, &[9; 6000], 0).unwrap();
        let caller = CallerFile::new(file.as_raw_fd()).unwrap();
        assert!(caller.regular().is_some() && caller.is_buffered());
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
        assert!(closed.regular().is_none() && !closed.is_buffered() && closed.advance(0).is_err());
        // SAFETY: none needed for nothing.
        assert!(unsafe { buffers(std::ptr::null(), -1) }.is_empty());
        // SAFETY: a call that is refused reads none.
        assert!(unsafe { buffers(std::ptr::dangling(), MOST_BUFFERS as i32 + 1) }.is_empty());
    }
}
