//! A file, as seen by a crate that stores something in it.

use std::fs::File;

use quire_sys::file::DirectAlignment;
use quire_sys::transfer::Transfer;

use crate::error::DeviceError;

/// A file of bytes. Many writes at once go through a [`Queue`], one at a time through [`Device::run`]. What they wrote is
/// durable once [`Device::flush`] has returned; [`Device::write_durable`] is both in one.
///
/// Transfers must be aligned to [`crate::DIRECT_ALIGN`] in the file, in memory and in length, since the file may be used
/// without the system's cache; [`Device::alignment`] says whether less would do here. [`Device::read_at`] takes anything.
///
/// A device whose flush or durable write has failed is *poisoned*: what it holds is unknown, and every later write or
/// flush fails with the same error. Other devices opened on the same file know nothing of it.
///
/// No method but [`Device::is_empty`] has a default: what stands before another device ([`crate::Layer`]) can forget none.
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

    /// Makes the file `len` bytes long, and takes space for all of it now. Bytes that are there stay. New ones are written
    /// as zeros, so that once they are flushed, writing over them changes nothing but themselves.
    ///
    /// # Errors
    /// The device is full ([`DeviceError::is_full`]) or fails; the file has its old length then, if that could be had.
    fn allocate(&self, len: u64) -> Result<(), DeviceError>;

    /// Reads bytes from `offset` on and returns how many: fewer than asked for only at the end of the file.
    ///
    /// # Errors
    /// The device fails.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, DeviceError>;

    /// As [`Device::read_at`] if the system's cache has all of these bytes, which costs no wait for the device. `None` if
    /// it hasn't, or if this device doesn't go through it; `into` may have changed all the same, and the system may have
    /// begun to read what was lacking.
    ///
    /// # Errors
    /// The device fails.
    fn read_cached(&self, offset: u64, into: &mut [u8]) -> Result<Option<usize>, DeviceError>;

    /// As [`Device::read_cached`], also if this device goes past the system's cache, and the cache gives the bytes up: for a caller that
    /// keeps them itself. The look begins no read, and waits for no device. `None` also where the system doesn't say what is in its cache.
    ///
    /// # Errors
    /// The device fails.
    fn take_cached(&self, offset: u64, into: &mut [u8]) -> Result<Option<TakenBytes>, DeviceError>;

    /// How many of these bytes, in whole pages, the system's cache holds; `None` if it doesn't say, or there is no such cache.
    fn cached_bytes(&self, offset: u64, len: u64) -> Option<u64>;

    /// Moves all of `transfer` now, in the calling thread. Takes no memory unless it fails, where a real file is behind it.
    ///
    /// # Errors
    /// The device fails: some parts may have been moved, the error says where it ended.
    ///
    /// # Panics
    /// If a part of the transfer is empty or reaches outside its buffer.
    fn run(&self, transfer: &mut Transfer) -> Result<(), DeviceError>;

    /// As [`Device::run`], for a write; when it returns, these bytes are durable, and as much of the file's length as is
    /// needed to find them. It says nothing about earlier writes.
    ///
    /// # Errors
    /// The device fails. It is poisoned then, as by a failed flush.
    ///
    /// # Panics
    /// As [`Device::run`], and if `transfer` is a read.
    fn write_durable(&self, transfer: &mut Transfer) -> Result<(), DeviceError>;

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

    /// As [`Device::flush`], for bytes and the file's length only: what else the system knows about the file (times, owner, its
    /// name if it is new) may lag.
    ///
    /// # Errors
    /// As [`Device::flush`].
    fn flush_data(&self) -> Result<(), DeviceError>;

    /// How transfers must be aligned here; never to more than [`crate::DIRECT_ALIGN`].
    fn alignment(&self) -> DirectAlignment;

    /// How bytes travel, for logs: `direct, io_uring`, `buffered, threads`, ….
    fn mode(&self) -> &'static str;

    /// The file itself, for mapping it. `None` if it isn't one.
    fn as_file(&self) -> Option<&File>;
}

/// What [`Device::take_cached`] has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenBytes {
    /// Bytes read.
    pub len: usize,
    /// Whether the system's cache has none of them any more. It keeps pages that are dirty, mapped, or part of a larger piece.
    pub is_given_up: bool,
}

/// A transfer that has ended, with its buffer.
#[derive(Debug)]
pub struct Completion {
    /// What was asked for. Its buffer is empty if it could not be got back from a failed ring.
    pub transfer: Transfer,
    /// How it ended.
    pub result: Result<(), DeviceError>,
}

/// Transfers in flight, used by one thread. Dropping it waits for what was submitted.
///
/// ```
/// use quire_device::{Buffer, Directory, Direction, Extent, MemoryDirectory, Transfer};
///
/// let file = MemoryDirectory::new().create("data")?;
/// let mut queue = file.queue(8)?;
/// let write = |block: u64| -> Result<Transfer, Box<dyn std::error::Error>> {
///     let extents = vec![Extent { offset: block * 4096, start: 0, len: 4096 }];
///     Ok(Transfer { direction: Direction::Write, buffer: Buffer::new(4096)?, extents, tag: block })
/// };
/// queue.submit_all((0..8).map(write).collect::<Result<_, _>>()?);
/// while let Some(done) = queue.complete() {
///     done.result?; // of the transfer with done.transfer.tag, whose buffer is here again
/// }
/// file.flush()?;
/// assert_eq!(file.len()?, 8 * 4096);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Queue: Send {
    /// Starts a transfer. It comes back from [`Queue::complete`] or [`Queue::poll`], whatever becomes of it.
    ///
    /// # Panics
    /// If a part of the transfer is empty or reaches outside its buffer.
    fn submit(&mut self, transfer: Transfer);

    /// Starts several transfers, which costs a ring no more system calls than one does. They may be more than the depth
    /// that the queue was made for.
    ///
    /// # Panics
    /// As [`Queue::submit`]; transfers before the bad one have been started then.
    fn submit_all(&mut self, transfers: Vec<Transfer>);

    /// The next transfer that has ended, in any order; sleeps until there is one. `None` if none is in flight.
    fn complete(&mut self) -> Option<Completion>;

    /// The next transfer that has ended, in any order. `None` if none has, yet.
    fn poll(&mut self) -> Option<Completion>;

    /// Transfers submitted but not returned yet.
    fn in_flight(&self) -> usize;
}
