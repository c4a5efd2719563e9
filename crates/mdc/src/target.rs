//! What a checkpoint is written to.
//!
//! Relies on [`DumpFile`] for files; tests put files in memory here that lose power or fail.

use std::io;

use quire_sys::dump_file::DumpFile;
use quire_sys::write_queue::WriteSink;

/// A new file that takes the place of an older one when it is complete. Addresses, offsets and lengths of what is written are multiples
/// of a page.
pub trait DumpTarget: WriteSink {
    /// Makes what was written durable.
    ///
    /// # Errors
    /// The device fails; the file is given up then.
    fn flush(&mut self) -> io::Result<()>;

    /// Gives the file its name, in place of what had it.
    ///
    /// # Errors
    /// The directory refuses.
    fn rename(&mut self) -> io::Result<()>;

    /// Makes the name durable.
    ///
    /// # Errors
    /// The device fails.
    fn flush_names(&mut self) -> io::Result<()>;

    /// Removes the file, which has no name yet that matters.
    fn remove(&mut self);

    /// Puts `len` bytes of the file from `offset` on in place of the memory at `at`, which is given back to the system.
    ///
    /// # Safety
    /// As [`DumpFile::map_over`].
    ///
    /// # Errors
    /// The system refuses; the memory is as it was then.
    unsafe fn replace_memory(&self, at: *mut u8, len: usize, offset: u64) -> io::Result<()>;
}

impl DumpTarget for DumpFile {
    fn flush(&mut self) -> io::Result<()> {
        Self::flush(self)
    }

    fn rename(&mut self) -> io::Result<()> {
        Self::rename(self)
    }

    fn flush_names(&mut self) -> io::Result<()> {
        self.flush_directory()
    }

    fn remove(&mut self) {
        // What is left is used again, or removed, by the next checkpoint of this name.
        let _ = Self::remove(self);
    }

    unsafe fn replace_memory(&self, at: *mut u8, len: usize, offset: u64) -> io::Result<()> {
        // SAFETY: `map_over` demands whole pages of private anonymous memory without references into them, of which the file has the
        // bytes at `offset`; `replace_memory` demands the same of its caller.
        unsafe { self.map_over(at, len, offset) }
    }
}
