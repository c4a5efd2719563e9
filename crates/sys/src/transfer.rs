//! What is moved between a buffer and a file in one piece of work, and how it ended.
//!
//! Relies on [`Buffer`]: a transfer owns its buffer from submission to completion, so no borrow can outlive the kernel's
//! use of it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::buffer::Buffer;

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the file into the buffer.
    Read,
    /// From the buffer into the file.
    Write,
}

/// A run of bytes that is contiguous in the buffer and in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the file.
    pub offset: u64,
    /// Offset in the buffer.
    pub start: usize,
    /// Bytes.
    pub len: usize,
}

/// A buffer and where its parts belong in the file. The parts may be moved in any order and at once.
#[derive(Debug)]
pub struct Transfer {
    /// Which way.
    pub direction: Direction,
    /// The memory.
    pub buffer: Buffer,
    /// The parts. None of them is empty.
    pub extents: Vec<Extent>,
    /// Whatever the submitter wants back with the result.
    pub tag: u64,
}

impl Transfer {
    /// Bytes moved in all.
    pub fn bytes(&self) -> u64 {
        self.extents.iter().map(|extent| extent.len as u64).sum()
    }

    /// Checks what every engine relies on.
    ///
    /// # Panics
    /// If a part is empty or reaches outside the buffer.
    pub fn check(&self) {
        for extent in &self.extents {
            let end = extent.start.checked_add(extent.len);
            let sound = extent.len > 0 && end.is_some_and(|end| end <= self.buffer.len());
            assert!(sound, "{extent:?} in a buffer of {} bytes", self.buffer.len());
        }
    }

    /// Moves every part now, in the calling thread.
    ///
    /// # Errors
    /// The first part that fails; a read that meets the end of the file fails.
    pub fn run(&mut self, file: &File) -> Result<(), TransferError> {
        self.check();
        for &Extent { offset, start, len } in &self.extents {
            let bytes = &mut self.buffer[start..start + len];
            let result = match self.direction {
                Direction::Read => file.read_exact_at(bytes, offset),
                Direction::Write => file.write_all_at(bytes, offset),
            };
            result.map_err(|source| TransferError { offset, len, source })?;
        }
        Ok(())
    }
}

/// A part of a transfer that failed. What became of the others is unknown.
#[derive(Debug, thiserror::Error)]
#[error("{len} bytes at {offset}: {source}")]
pub struct TransferError {
    /// Offset in the file.
    pub offset: u64,
    /// Bytes.
    pub len: usize,
    /// What the system said.
    pub source: io::Error,
}
