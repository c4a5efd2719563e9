//! Reads and writes at a place of a file, each with its own wishes about the system's cache and about durability.
//!
//! Relies on `preadv2` and `pwritev2`; without wishes on `pread` and `pwrite`, which are allowed everywhere.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::FileExt;

use rustix::io::ReadWriteFlags;

/// Wishes about one read or write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RwFlags(i32);

impl RwFlags {
    /// None.
    pub const NONE: Self = Self(0);
    /// A write returns when its bytes are durable (`RWF_DSYNC`, Linux 4.7).
    pub const DURABLE: Self = Self(libc::RWF_DSYNC);
    /// A read fails with [`io::ErrorKind::WouldBlock`] rather than wait for the device (`RWF_NOWAIT`, Linux 4.14).
    pub const NO_WAIT: Self = Self(libc::RWF_NOWAIT);
    /// Through the system's cache, but nothing stays there (`RWF_DONTCACHE`, Linux 6.14).
    pub const DONT_CACHE: Self = Self(libc::RWF_DONTCACHE);

    /// These wishes and those.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// As the system wants them.
    pub(crate) const fn bits(self) -> i32 {
        self.0
    }
}

/// Reads at `offset` and returns how many bytes: fewer than asked for at the end of the file, or for any reason of the
/// system's.
///
/// # Errors
/// What the system says.
pub fn read_at(file: &File, into: &mut [u8], offset: u64, flags: RwFlags) -> io::Result<usize> {
    if flags == RwFlags::NONE {
        return file.read_at(into, offset);
    }
    let flags = ReadWriteFlags::from_bits_retain(flags.0.cast_unsigned());
    Ok(rustix::io::preadv2(file, &mut [IoSliceMut::new(into)], offset, flags)?)
}

/// Writes at `offset` and returns how many bytes.
///
/// # Errors
/// What the system says.
pub fn write_at(file: &File, from: &[u8], offset: u64, flags: RwFlags) -> io::Result<usize> {
    if flags == RwFlags::NONE {
        return file.write_at(from, offset);
    }
    let flags = ReadWriteFlags::from_bits_retain(flags.0.cast_unsigned());
    Ok(rustix::io::pwritev2(file, &[IoSlice::new(from)], offset, flags)?)
}

/// Whether reads of `file` may have `flags`: the kernel knows them and the file system does them. Found out by a read of
/// one byte, which may have to wait for the device if the flags allow.
pub fn allows(file: &File, flags: RwFlags) -> bool {
    match read_at(file, &mut [0], 0, flags) {
        Ok(_) => true,
        Err(error) => !is_refusal(&error),
    }
}

/// Whether `error` says that the flags aren't known here, rather than that the device fails.
pub fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EPERM))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::ScratchFile;

    #[test]
    fn bytes_come_back_as_written_with_any_wishes_that_are_allowed() {
        let scratch = ScratchFile::new("rw");
        let file = scratch.file("a");
        let wishes = [RwFlags::NONE, RwFlags::DURABLE, RwFlags::DONT_CACHE, RwFlags::DURABLE.and(RwFlags::DONT_CACHE)];
        for (number, flags) in wishes.into_iter().enumerate() {
            if !allows(&file, flags) {
                continue;
            }
            let offset = 3 * number as u64;
            assert_eq!(write_at(&file, &[number as u8; 3], offset, flags).unwrap(), 3);
            let mut back = [9; 4];
            assert_eq!(read_at(&file, &mut back, offset, flags).unwrap(), 3);
            assert_eq!(back, [number as u8, number as u8, number as u8, 9]);
        }
    }

    #[test]
    fn what_was_just_written_is_read_without_a_wait() {
        let scratch = ScratchFile::new("rw-cached");
        let file = scratch.file("a");
        write_at(&file, &[7; 100], 0, RwFlags::NONE).unwrap();
        if allows(&file, RwFlags::NO_WAIT) {
            let mut back = [0; 100];
            assert_eq!(read_at(&file, &mut back, 0, RwFlags::NO_WAIT).unwrap(), 100);
            assert_eq!(back, [7; 100]);
        }
    }

    #[test]
    fn unknown_wishes_are_refused_and_not_overheard() {
        let scratch = ScratchFile::new("rw-unknown");
        let file = scratch.file("a");
        assert!(!allows(&file, RwFlags(1 << 30)));
    }
}
