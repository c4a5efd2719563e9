//! A file, as seen by whoever stores something in it.

use std::fs::File;

use quire_sys::transfer::Transfer;

use crate::error::DeviceError;

/// A file of bytes. Writes go through a [`Queue`]; nothing is durable before [`Device::flush`] has returned.
///
/// Transfers must be aligned to [`crate::DIRECT_ALIGN`] in the file, in memory and in length, since the file may be used
/// without the system's cache. [`Device::read_at`] takes anything.
pub trait Device: Send + Sync {
    /// Path or name, for messages.
    fn name(&self) -> &str;

    /// Bytes of the file.
    ///
    /// # Errors
    /// The device can't say.
    fn len(&self) -> Result<u64, DeviceError>;

    /// Whether the file has no bytes.
    ///
    /// # Errors
    /// As [`Device::len`].
    fn is_empty(&self) -> Result<bool, DeviceError> {
        self.len().map(|len| len == 0)
    }

    /// Makes the file `len` bytes long. New bytes read as zero and take no space.
    ///
    /// # Errors
    /// The device refuses.
    fn set_len(&self, len: u64) -> Result<(), DeviceError>;

    /// Reads bytes from `offset` on and returns how many: fewer than asked for only at the end of the file.
    ///
    /// # Errors
    /// The device fails.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, DeviceError>;

    /// A queue on which about `depth` transfers can be in flight.
    ///
    /// # Errors
    /// The system has no memory or threads for it.
    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>, DeviceError>;

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// The device fails. What was written is then in an unknown state, and every later write or flush of this device
    /// fails too: the file must be given up.
    fn flush(&self) -> Result<(), DeviceError>;

    /// How bytes travel, for logs: `direct io_uring`, `buffered threads`, ….
    fn mode(&self) -> &'static str;

    /// The file itself, for mapping it. `None` if it isn't one.
    fn as_file(&self) -> Option<&File> {
        None
    }
}

/// A transfer that has ended, with its buffer.
#[derive(Debug)]
pub struct Finished {
    /// What was asked for. Its buffer is empty if it could not be got back from a failed ring.
    pub transfer: Transfer,
    /// How it ended.
    pub result: Result<(), DeviceError>,
}

/// Transfers in flight, used by one thread. Dropping it waits for what was submitted.
pub trait Queue: Send {
    /// Starts a transfer. It comes back from [`Queue::complete`], whatever becomes of it.
    ///
    /// # Panics
    /// If a part of the transfer is empty or reaches outside its buffer.
    fn submit(&mut self, transfer: Transfer);

    /// The next transfer that has ended, in any order; sleeps until there is one. `None` if none is in flight.
    fn complete(&mut self) -> Option<Finished>;

    /// Transfers submitted but not returned yet.
    fn in_flight(&self) -> usize;
}
