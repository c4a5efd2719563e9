//! A file mapped for reading, of which parts are copied out.
//!
//! Relies on `mmap`. Bytes are only copied and never referred to, because another process may change them at any time. **A mapping
//! is as fragile as its file**: when a process truncates the file, or the device fails, a copy raises SIGBUS.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::mm::{self, Advice, MapFlags, ProtFlags};

/// A mapping of a whole file.
#[derive(Debug)]
pub struct FileView {
    base: *mut u8,
    len: usize,
}

// SAFETY: an address and a length; the bytes are only copied.
unsafe impl Send for FileView {}
// SAFETY: threads that share it only copy bytes, which are never written through it.
unsafe impl Sync for FileView {}

impl FileView {
    /// Maps the first `len` bytes of `file`.
    ///
    /// # Errors
    /// `len` is 0, or as `mmap`.
    pub fn new(file: &File, len: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh mapping at an address of the kernel's choice; nothing existing is touched.
        let base = unsafe { mm::mmap(std::ptr::null_mut(), len, ProtFlags::READ, flags, file.as_fd(), 0) }?;
        Ok(Self { base: base.cast(), len })
    }

    /// Bytes of the mapping.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty; it never is.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies the bytes from `offset` on; false if they lie outside.
    pub fn copy(&self, offset: usize, into: &mut [u8]) -> bool {
        if offset > self.len || into.len() > self.len - offset {
            return false;
        }
        // SAFETY: inside the mapping, which lasts as long as `self`; `into` is another piece of memory, since no reference into
        // the mapping is ever made.
        unsafe { self.base.add(offset).copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
        true
    }

    /// Has the system read `len` bytes from `offset` on ahead of their use. A wish.
    pub fn read_ahead(&self, offset: usize, len: usize) {
        let start = offset / crate::mem::PAGE_SIZE * crate::mem::PAGE_SIZE;
        let end = offset.saturating_add(len).min(self.len);
        if start < end {
            // SAFETY: advice about our own mapping that changes no bytes.
            let _ = unsafe { mm::madvise(self.base.add(start).cast(), end - start, Advice::WillNeed) };
        }
    }
}

impl Drop for FileView {
    fn drop(&mut self) {
        // SAFETY: the mapping is this struct's, and no reference into it exists.
        let _ = unsafe { mm::munmap(self.base.cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn bytes_are_copied_within_the_file_and_nowhere_else() {
        let file = crate::map::memory_file("view", 5000).unwrap();
        file.write_all_at(b"abc", 4096).unwrap();
        let view = FileView::new(&file, 5000).unwrap();
        view.read_ahead(4096, 1 << 40);
        let mut bytes = [9; 4];
        assert!(view.copy(4095, &mut bytes) && bytes == *b"\0abc");
        assert!(view.copy(5000, &mut []) && view.copy(4996, &mut bytes));
        assert!(!view.copy(4997, &mut bytes) && !view.copy(usize::MAX, &mut bytes));
        assert!(FileView::new(&file, 0).is_err() && view.len() == 5000 && !view.is_empty());
    }
}
