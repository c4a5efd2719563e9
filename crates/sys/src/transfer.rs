//! What is moved between a buffer and a file in one piece of work, and how it ended.
//!
//! Relies on [`Buffer`]: a transfer owns its buffer from submission to completion, so no borrow can outlive the kernel's
//! use of it.

use std::fs::File;
use std::io;

use crate::buffer::Buffer;
use crate::rw::{self, RwFlags};

/// No direct transfer begins or ends at anything finer, but at the end of a file.
const LEAST_DIRECT: u64 = 512;

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the file into the buffer.
    Read,
    /// From the buffer into the file.
    Write,
}

impl Direction {
    /// What it means when the system moves no bytes.
    pub(crate) fn end(self) -> io::Error {
        io::Error::from(match self {
            Self::Read => io::ErrorKind::UnexpectedEof,
            Self::Write => io::ErrorKind::WriteZero,
        })
    }

    /// What `error` at `offset`, after `done` bytes, means. A direct read that has ended at an odd place has met the end of
    /// the file; asked to go on from there, some file systems say that the place is odd.
    pub(crate) fn failure(self, error: io::Error, done: usize, offset: u64) -> io::Error {
        let is_odd = done > 0 && !offset.is_multiple_of(LEAST_DIRECT);
        if self == Self::Read && is_odd && error.kind() == io::ErrorKind::InvalidInput { self.end() } else { error }
    }
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
    ///
    /// # Panics
    /// As [`Transfer::check`].
    pub fn run(&mut self, file: &File, flags: RwFlags) -> Result<(), TransferError> {
        self.check();
        for index in 0..self.extents.len() {
            self.run_extent(file, self.extents[index], flags)?;
        }
        Ok(())
    }

    fn run_extent(&mut self, file: &File, extent: Extent, flags: RwFlags) -> Result<(), TransferError> {
        let mut done = 0;
        while done < extent.len {
            let bytes = extent.start + done..extent.start + extent.len;
            let offset = extent.offset + done as u64;
            let result = match self.direction {
                Direction::Read => rw::read_at(file, &mut self.buffer[bytes], offset, flags),
                // By a shared reference: others may be reading what was lent.
                Direction::Write => rw::write_at(file, &self.buffer[bytes], offset, flags),
            };
            let source = match result {
                Ok(0) => self.direction.end(),
                Ok(moved) => {
                    done += moved;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => self.direction.failure(error, done, offset),
            };
            return Err(TransferError { offset, len: extent.len - done, source });
        }
        Ok(())
    }
}

/// A part of a transfer that failed. What became of the others is unknown.
#[derive(Debug, thiserror::Error)]
#[error("{len} bytes at {offset}: {source}")]
pub struct TransferError {
    /// Offset in the file of the first byte that was not moved.
    pub offset: u64,
    /// Bytes of the part that were not moved.
    pub len: usize,
    /// What the system said.
    pub source: io::Error,
}
