//! A pipe that holds the frames of memory: what is read from it is what the frames hold at that time, also when no address leads to
//! them any more.
//!
//! Relies on `vmsplice`, and on `mlock` for frames that stay where they are. Fit for a helper: nothing allocates.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::mem::PAGE_SIZE;

/// As many bytes as an ordinary user's pipe may hold.
const MOST_BYTES: i32 = 1 << 20;

/// An empty pipe for frames.
#[derive(Debug)]
pub struct FramePipe {
    read: OwnedFd,
    write: OwnedFd,
    len: usize,
}

impl FramePipe {
    /// Makes one, as large as may be.
    ///
    /// # Errors
    /// As `pipe2`.
    pub fn new() -> io::Result<Self> {
        let mut ends = [0; 2];
        // SAFETY: the call writes two numbers.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: descriptors that the kernel has just given us.
        let [read, write] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
        // A smaller one takes fewer frames at a time.
        // SAFETY: the calls take numbers.
        let len = unsafe {
            libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, MOST_BYTES);
            libc::fcntl(write.as_raw_fd(), libc::F_GETPIPE_SZ)
        };
        let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
        Ok(Self { read, write, len })
    }

    /// Bytes of frames that it takes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it takes none; it never does.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes the frames of up to `len` bytes at `at`, which become this process's own before that and are not moved; returns how many
    /// bytes these are.
    ///
    /// # Errors
    /// As `madvise` and `vmsplice`: the memory isn't mapped, there is no memory for copies.
    pub fn take(&self, at: usize, len: usize) -> io::Result<usize> {
        let len = len.min(self.len);
        // What an interrupted take may have left would come before these.
        let mut waste = [0; PAGE_SIZE];
        while rustix::io::read(&self.read, &mut waste).is_ok_and(|count| count > 0) {}
        // SAFETY: neither changes what memory holds. Where locking isn't allowed the copies are made all the same.
        if unsafe { rustix::mm::mlock(at as *mut _, len) }.is_err() {
            crate::bare_thread::populate_write(at, len)?;
        }
        let range = libc::iovec { iov_base: at as *mut _, iov_len: len };
        // SAFETY: the kernel takes references to frames of memory, and fails for what isn't mapped.
        let taken =
            unsafe { libc::syscall(libc::SYS_vmsplice, self.write.as_raw_fd(), &raw const range, 1_usize, 0_usize) };
        match usize::try_from(taken) {
            Ok(taken) if taken % PAGE_SIZE == 0 && taken > 0 => Ok(taken),
            Ok(taken) => {
                self.drop_frames(taken);
                Err(io::ErrorKind::WriteZero.into())
            }
            Err(_) => Err(io::Error::last_os_error()),
        }
    }

    /// Copies what the frames hold now to `to`, and gives them up.
    ///
    /// # Errors
    /// As `read`.
    pub fn empty_into(&self, to: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < to.len() {
            match rustix::io::read(&self.read, &mut to[done..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => done += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Gives up `len` bytes of frames.
    pub fn drop_frames(&self, len: usize) {
        let (mut left, mut waste) = (len, [0; PAGE_SIZE]);
        while left > 0 {
            let count = left.min(PAGE_SIZE);
            if self.empty_into(&mut waste[..count]).is_err() {
                return;
            }
            left -= count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::area::AnonymousMap;

    #[test]
    fn frames_hold_what_was_stored_after_they_were_taken_and_outlive_their_addresses() {
        let pipe = FramePipe::new().unwrap();
        assert!(pipe.len() >= PAGE_SIZE && !pipe.is_empty());
        let memory = AnonymousMap::private(3 * PAGE_SIZE).unwrap();
        let base = memory.base();
        let taken = pipe.take(base as usize, 3 * PAGE_SIZE).unwrap();
        assert_eq!(taken, 3 * PAGE_SIZE);
        // SAFETY: within the mapping, which only this test knows.
        unsafe { base.add(PAGE_SIZE + 5).write(7) };
        drop(memory);
        let mut into = vec![1; taken];
        pipe.empty_into(&mut into).unwrap();
        assert!(into[PAGE_SIZE + 5] == 7 && into[0] == 0);
        assert!(pipe.take(PAGE_SIZE, PAGE_SIZE).is_err(), "nothing is mapped there");
    }
}
