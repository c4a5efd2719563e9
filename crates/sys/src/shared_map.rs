//! A file or block device mapped shared, as words that may be loaded and stored without `unsafe`.
//!
//! Relies on `mmap`, `madvise` and `msync`. The words are atomics because another process that has the file mapped may
//! change them at any time. **A mapping is as fragile as its file**: when a process truncates the file, or the device fails, the
//! access to the lost page raises SIGBUS, which ends a program that has no handler for it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicU64;

use rustix::mm::{self, Advice, MapFlags, MsyncFlags, ProtFlags};

use crate::mem::PAGE_SIZE;

/// How a range is going to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessPattern {
    /// In no particular way.
    Normal,
    /// In no order: nothing is worth reading ahead.
    Random,
    /// From front to back.
    Sequential,
    /// Soon: reading it may begin now.
    WillNeed,
    /// Not any more: this mapping may forget its pages. The file keeps what was stored.
    DontNeed,
}

/// A mapping of a file. Every process that maps or reads the file sees what is written to it.
#[derive(Debug)]
pub struct SharedMap {
    base: *mut u8,
    len: usize,
}

// SAFETY: an address and a length; the bytes are reached only as atomics.
unsafe impl Send for SharedMap {}
// SAFETY: threads that share it reach the bytes only as atomics.
unsafe impl Sync for SharedMap {}

impl SharedMap {
    /// Maps the first `len` bytes of `file`, which must be open for reading and writing.
    ///
    /// # Errors
    /// `len` is no positive number of pages, or as `mmap`.
    pub fn new(file: &File, len: usize) -> io::Result<Self> {
        if len == 0 || !len.is_multiple_of(PAGE_SIZE) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a mapping is a positive number of whole pages"));
        }
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice; nothing existing is touched.
        let base = unsafe { mm::mmap(std::ptr::null_mut(), len, access, flags, file.as_fd(), 0) }?;
        Ok(Self { base: base.cast(), len })
    }

    /// The bytes as words in the processor's order.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping lasts as long as `self`, is readable, writable and page-aligned, and is reached only as
        // atomics, by us and (as far as this process can know) by others.
        unsafe { std::slice::from_raw_parts(self.base.cast::<AtomicU64>(), self.len / size_of::<AtomicU64>()) }
    }

    /// Tells the system how the bytes of `range` will be used.
    ///
    /// # Errors
    /// `range` is not of whole pages inside the mapping, or as `madvise`.
    pub fn advise(&self, range: Range<usize>, expect: AccessPattern) -> io::Result<()> {
        self.check(&range)?;
        let advice = match expect {
            AccessPattern::Normal => Advice::Normal,
            AccessPattern::Random => Advice::Random,
            AccessPattern::Sequential => Advice::Sequential,
            AccessPattern::WillNeed => Advice::WillNeed,
            AccessPattern::DontNeed => Advice::LinuxDontNeed,
        };
        // SAFETY: inside our mapping; in a shared one none of these changes what the words hold.
        Ok(unsafe { mm::madvise(self.base.wrapping_add(range.start).cast(), range.len(), advice) }?)
    }

    /// Writes what was stored in `range` to the device, and returns when it is there.
    ///
    /// # Errors
    /// `range` is not of whole pages inside the mapping, or as `msync`.
    pub fn sync(&self, range: Range<usize>) -> io::Result<()> {
        self.check(&range)?;
        // SAFETY: inside our mapping, whose contents stay.
        Ok(unsafe { mm::msync(self.base.wrapping_add(range.start).cast(), range.len(), MsyncFlags::SYNC) }?)
    }

    fn check(&self, range: &Range<usize>) -> io::Result<()> {
        let aligned = range.start.is_multiple_of(PAGE_SIZE) && range.end.is_multiple_of(PAGE_SIZE);
        if aligned && range.start <= range.end && range.end <= self.len {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::InvalidInput, "the range is not of whole pages inside the mapping"))
    }
}

impl Drop for SharedMap {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and every slice of it borrows from `self`.
        let _ = unsafe { mm::munmap(self.base.cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::ScratchFile;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::Ordering;

    #[test]
    fn words_that_are_stored_are_in_the_file() {
        let scratch = ScratchFile::new("shared-map");
        let file = scratch.file("a");
        file.set_len(4 * PAGE_SIZE as u64).unwrap();
        let map = SharedMap::new(&file, 4 * PAGE_SIZE).unwrap();
        assert_eq!(map.words().len(), 4 * 512);
        map.words()[513].store(0x0102_0304, Ordering::Relaxed);
        map.sync(0..4 * PAGE_SIZE).unwrap();
        map.advise(0..4 * PAGE_SIZE, AccessPattern::DontNeed).unwrap();
        let mut back = [0; 8];
        file.read_exact_at(&mut back, PAGE_SIZE as u64 + 8).unwrap();
        assert_eq!(u64::from_ne_bytes(back), 0x0102_0304);
        assert_eq!(map.words()[513].load(Ordering::Relaxed), 0x0102_0304);
    }

    #[test]
    fn every_advice_is_taken_and_ranges_outside_are_refused() {
        let file = crate::map::memory_file("shared-map", 8 * PAGE_SIZE as u64).unwrap();
        let map = SharedMap::new(&file, 8 * PAGE_SIZE).unwrap();
        for expect in [
            AccessPattern::Random,
            AccessPattern::Sequential,
            AccessPattern::WillNeed,
            AccessPattern::DontNeed,
            AccessPattern::Normal,
        ] {
            map.advise(PAGE_SIZE..3 * PAGE_SIZE, expect).unwrap();
        }
        assert!(map.advise(0..9 * PAGE_SIZE, AccessPattern::Normal).is_err());
        assert!(map.advise(1..PAGE_SIZE, AccessPattern::Normal).is_err());
        assert!(map.sync(PAGE_SIZE..9 * PAGE_SIZE).is_err());
        assert!(SharedMap::new(&file, 0).is_err() && SharedMap::new(&file, 100).is_err());
    }
}
