//! Anonymous memory as words that may be loaded and stored without `unsafe`, filled from files and given back in parts.
//!
//! Relies on [`AnonymousMap`], `pread`, `pwrite` and `madvise`. Because the words are reached as atomics only, the system may fill
//! or drop a part while a thread reads it. That thread then sees old words, new ones or zeros, and must know by other means
//! which.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU64;

use crate::area::AnonymousMap;
use crate::map::{self, MapAdvice};
use crate::mem::PAGE_SIZE;

/// A range of anonymous memory in small pages, all zero until it is filled.
#[derive(Debug)]
pub struct WordRange {
    area: AnonymousMap,
}

impl WordRange {
    /// A range of `len` bytes (rounded up to whole pages); memory is taken as it is touched.
    ///
    /// # Errors
    /// As `mmap`.
    pub fn new(len: usize) -> io::Result<Self> {
        let area = AnonymousMap::private(len)?;
        // With huge pages a part could not be given back page by page. Where there are none, nothing needs forbidding.
        let _ = map::advise(area.base(), area.len(), MapAdvice::NoHuge);
        Ok(Self { area })
    }

    /// The words.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the memory lasts as long as `self`, is readable, writable and page-aligned, and is reached as atomics
        // and by the kernel only.
        unsafe { std::slice::from_raw_parts(self.area.base().cast::<AtomicU64>(), self.area.len() / 8) }
    }

    /// Fills the bytes of `range` from `file`, beginning at `offset`. Page-aligned, so direct files will do.
    ///
    /// # Errors
    /// `range` is not of whole pages inside the memory, the file ends before, or as `pread`.
    pub fn read_from(&self, file: &File, offset: u64, range: Range<usize>) -> io::Result<()> {
        self.check(&range)?;
        let mut done = 0;
        while done < range.len() {
            let at = self.area.base().wrapping_add(range.start + done);
            let place = offset_of(offset, done)?;
            // SAFETY: `at` and the length lie inside the area, whose words are borrowed only as atomics.
            let read = unsafe { libc::pread(file.as_raw_fd(), at.cast(), range.len() - done, place) };
            done += moved(read, io::ErrorKind::UnexpectedEof)?;
        }
        Ok(())
    }

    /// Writes the bytes of `range` to `file`, beginning at `offset`.
    ///
    /// # Errors
    /// `range` is not of whole pages inside the memory, or as `pwrite`.
    pub fn write_to(&self, file: &File, offset: u64, range: Range<usize>) -> io::Result<()> {
        self.check(&range)?;
        let mut done = 0;
        while done < range.len() {
            let at = self.area.base().wrapping_add(range.start + done);
            let place = offset_of(offset, done)?;
            // SAFETY: `at` and the length lie inside our mapping, which the call only reads.
            let written = unsafe { libc::pwrite(file.as_raw_fd(), at.cast(), range.len() - done, place) };
            done += moved(written, io::ErrorKind::WriteZero)?;
        }
        Ok(())
    }

    /// Gives the pages of `range` back to the system; their words are zero from now on.
    ///
    /// # Errors
    /// `range` is not of whole pages inside the memory, or as `madvise`.
    pub fn discard(&self, range: Range<usize>) -> io::Result<()> {
        self.check(&range)?;
        // SAFETY: the pages are ours; references into them are to atomics, which may change at any time.
        unsafe { map::discard(self.area.base().wrapping_add(range.start), range.len()) }
    }

    fn check(&self, range: &Range<usize>) -> io::Result<()> {
        let aligned = range.start.is_multiple_of(PAGE_SIZE) && range.end.is_multiple_of(PAGE_SIZE);
        if aligned && range.start <= range.end && range.end <= self.area.len() {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::InvalidInput, "the range is not of whole pages inside the memory"))
    }
}

fn offset_of(offset: u64, done: usize) -> io::Result<libc::off_t> {
    libc::off_t::try_from(offset + done as u64).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

/// What a transfer's answer means: bytes, or try again (none), or an error; no bytes at all is `none`.
fn moved(answer: isize, none: io::ErrorKind) -> io::Result<usize> {
    match answer {
        0 => Err(none.into()),
        bytes if bytes > 0 => Ok(bytes.cast_unsigned()),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            error => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::ScratchFile;
    use crate::file::try_direct;
    use std::sync::atomic::Ordering;

    #[test]
    fn pages_go_to_a_file_and_come_back() {
        let scratch = ScratchFile::new("word-range");
        let file = scratch.file("a");
        try_direct(&file, true);
        let range = WordRange::new(4 * PAGE_SIZE).unwrap();
        range.words()[512].store(7, Ordering::Relaxed);
        range.write_to(&file, 0, PAGE_SIZE..3 * PAGE_SIZE).unwrap();
        range.discard(PAGE_SIZE..3 * PAGE_SIZE).unwrap();
        assert_eq!(range.words()[512].load(Ordering::Relaxed), 0);
        range.read_from(&file, 0, 2 * PAGE_SIZE..4 * PAGE_SIZE).unwrap();
        assert_eq!(range.words()[1024].load(Ordering::Relaxed), 7);
    }

    #[test]
    fn the_end_of_a_file_and_ranges_outside_are_errors() {
        let file = crate::map::memory_file("word-range", PAGE_SIZE as u64).unwrap();
        let range = WordRange::new(2 * PAGE_SIZE).unwrap();
        let ended = range.read_from(&file, 0, 0..2 * PAGE_SIZE).unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof);
        assert!(range.read_from(&file, 0, 0..3 * PAGE_SIZE).is_err());
        assert!(range.write_to(&file, u64::MAX, 0..PAGE_SIZE).is_err());
        assert!(range.discard(8..16).is_err());
    }
}
