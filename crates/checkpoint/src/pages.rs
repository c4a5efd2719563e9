//! Pages on their way into an image: packed into large buffers, several of which are being written at once.
//!
//! Pages come in any order. Neighbours in the order of arrival that are neighbours in the file become one write, so an
//! address-order walk makes writes as large as a buffer, and scattered pre-images still go out a bufferful at a time.
//!
//! Relies on a [`Queue`]. A page is copied once, straight into the buffer that is written.

use std::time::Duration;

use quire_device::{
    Buffer, Completion, Device, DeviceError, Direction, Extent, Queue, Transfer, await_freed, freed_files, is_freeing,
};
use quire_snapshot::PAGE_SIZE;

use crate::error::no_buffers;
use crate::progress::DumpProgress;

/// A write that waits for space looks so often whether the dump is cancelled.
const FREED_INTERVAL: Duration = Duration::from_millis(50);

/// Writer of pages.
pub(crate) struct PageWriter<'a> {
    queue: Box<dyn Queue>,
    progress: &'a DumpProgress,
    file: String,
    free: Vec<Buffer>,
    /// The buffer being filled.
    filling: Option<Buffer>,
    filled_pages: usize,
    /// Pages of the snapshot that these hold: more, if they are compressed.
    taken_pages: u64,
    extents: Vec<Extent>,
    spare_extents: Vec<Vec<Extent>>,
    in_flight: usize,
    /// Removed files whose space was free again when the disk was last found full, or at the start.
    freed_files: u64,
}

impl<'a> PageWriter<'a> {
    /// With `count` buffers of `bytes` bytes each, all but one of which may be in flight.
    pub(crate) fn new(
        device: &dyn Device,
        progress: &'a DumpProgress,
        count: usize,
        bytes: usize,
    ) -> Result<Self, DeviceError> {
        let file = device.name().to_owned();
        let count = count.max(2);
        let free = Buffer::several(count, bytes.max(PAGE_SIZE)).map_err(|_| no_buffers(&file))?;
        Ok(Self {
            queue: device.queue(count)?,
            progress,
            file,
            free,
            filling: None,
            filled_pages: 0,
            taken_pages: 0,
            extents: Vec::new(),
            spare_extents: Vec::new(),
            in_flight: 0,
            freed_files: freed_files(),
        })
    }

    /// Room for one page. It is used up by [`PageWriter::keep`], otherwise given out again.
    pub(crate) fn slot(&mut self) -> Result<&mut [u8], DeviceError> {
        if self.filling.is_none() {
            while self.free.is_empty() {
                self.collect_one()?;
            }
            self.filling = self.free.pop();
        }
        let start = self.filled_pages * PAGE_SIZE;
        let filling = self.filling.as_mut().expect("a buffer was taken above");
        Ok(&mut filling[start..start + PAGE_SIZE])
    }

    /// The slot now holds the page that goes to `offset`.
    pub(crate) fn keep(&mut self, offset: u64) -> Result<(), DeviceError> {
        self.keep_as(offset, 1)
    }

    /// The same for a page of the file that stands for so many pages of the snapshot.
    pub(crate) fn keep_as(&mut self, offset: u64, taken_pages: u64) -> Result<(), DeviceError> {
        let start = self.filled_pages * PAGE_SIZE;
        match self.extents.last_mut() {
            Some(last) if last.offset + last.len as u64 == offset => last.len += PAGE_SIZE,
            _ => self.extents.push(Extent { offset, start, len: PAGE_SIZE }),
        }
        self.filled_pages += 1;
        self.taken_pages += taken_pages;
        if self.filling.as_ref().is_some_and(|buffer| start + 2 * PAGE_SIZE > buffer.len()) {
            self.submit()?;
        }
        Ok(())
    }

    /// Pages that are kept and not on their way yet.
    pub(crate) fn filled_pages(&self) -> usize {
        self.filled_pages
    }

    /// Room left in the buffer being filled, in pages.
    pub(crate) fn room(&self) -> usize {
        self.filling.as_ref().map_or(0, |buffer| buffer.len() / PAGE_SIZE - self.filled_pages)
    }

    /// Starts writing what has been kept.
    pub(crate) fn submit(&mut self) -> Result<(), DeviceError> {
        if self.filled_pages == 0 {
            return Ok(());
        }
        let Some(buffer) = self.filling.take() else { return Ok(()) };
        self.progress.add_pages(std::mem::take(&mut self.taken_pages));
        self.filled_pages = 0;
        let extents = std::mem::replace(&mut self.extents, self.spare_extents.pop().unwrap_or_default());
        self.start(Transfer { direction: Direction::Write, buffer, extents, tag: 0 });
        // Errors are met as early as the buffers come back, not before: nothing is slowed down by looking.
        Ok(())
    }

    /// Writes bytes that aren't pages (whole blocks) at `offset`.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let mut buffer = Buffer::new(bytes.len()).map_err(|_| no_buffers(&self.file))?;
        buffer[..bytes.len()].copy_from_slice(bytes);
        let extents = vec![Extent { offset, start: 0, len: bytes.len() }];
        self.start(Transfer { direction: Direction::Write, buffer, extents, tag: 1 });
        Ok(())
    }

    fn start(&mut self, transfer: Transfer) {
        self.queue.submit(transfer);
        self.in_flight += 1;
    }

    /// Waits for one write.
    fn collect_one(&mut self) -> Result<(), DeviceError> {
        let transfer = loop {
            let Some(Completion { transfer, result }) = self.queue.complete() else {
                return Err(no_buffers(&self.file));
            };
            self.in_flight -= 1;
            match result {
                Ok(()) => break transfer,
                Err(error) if error.is_full() && self.has_got_room() => self.start(transfer),
                Err(error) => return Err(error),
            }
        };
        self.progress.add_bytes(transfer.bytes());
        if transfer.tag == 0 {
            self.free.push(transfer.buffer);
            let mut extents = transfer.extents;
            extents.clear();
            self.spare_extents.push(extents);
        }
        Ok(())
    }

    /// Waits for the space of removed files, such as a failed save's; whether there was any since this was asked last. So a write on a
    /// full disk is tried again, but not for ever.
    fn has_got_room(&mut self) -> bool {
        while is_freeing() && !self.progress.is_cancelled() {
            await_freed(FREED_INTERVAL);
        }
        let before = std::mem::replace(&mut self.freed_files, freed_files());
        self.freed_files != before && !self.progress.is_cancelled()
    }

    /// Waits until everything is written.
    pub(crate) fn finish(&mut self) -> Result<(), DeviceError> {
        self.submit()?;
        while self.in_flight > 0 {
            self.collect_one()?;
        }
        Ok(())
    }
}
