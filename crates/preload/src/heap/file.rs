//! The file that the heap lies on, as the pool sees it: pages that were never written need not be read, and a failure ends the
//! program with a line that says why.
//!
//! Relies on [`WrittenPages`]. The file has no name: it goes with the process.

use std::sync::Arc;
use std::time::Instant;

use quire_device::{Completion, Device, DeviceError, Direction, Layer, LayeredDevice, Queue, TakenBytes, Transfer};
use quire_sys::guest;

use super::refaults::RefaultCounter;
use super::written_pages::WrittenPages;
use crate::log;

/// What is different about the heap's file.
#[derive(Clone)]
pub struct HeapFile {
    written: Arc<WrittenPages>,
    refaults: Arc<RefaultCounter>,
}

impl HeapFile {
    /// `inner`, of which nothing was written yet.
    pub fn over(inner: Arc<dyn Device>, written: Arc<WrittenPages>, refaults: Arc<RefaultCounter>) -> Arc<dyn Device> {
        LayeredDevice::new(inner, Self { written, refaults })
    }

    /// Whether no byte of a read was ever written.
    fn is_fresh(&self, transfer: &Transfer) -> bool {
        transfer.extents.iter().all(|part| !self.written.any(part.offset, part.len as u64))
    }

    /// Before a transfer.
    fn before(&self, transfer: &Transfer) {
        if transfer.direction == Direction::Write {
            transfer.extents.iter().for_each(|part| self.written.note(part.offset, part.len as u64));
        }
    }
}

/// A program can't be told that a page of its heap is lost.
fn end_with(error: &DeviceError) -> ! {
    log::line(format_args!("heap: {error}; the program is ended, as memory of it is lost"));
    guest::abort()
}

impl Layer for HeapFile {
    fn run(&self, inner: &dyn Device, transfer: &mut Transfer) -> Result<(), DeviceError> {
        if transfer.direction == Direction::Read && self.is_fresh(transfer) {
            for part in &transfer.extents {
                transfer.buffer[part.start..part.start + part.len].fill(0);
            }
            return Ok(());
        }
        self.before(transfer);
        let begun = Instant::now();
        let result = inner.run(transfer);
        if transfer.direction == Direction::Read {
            self.refaults.note(begun.elapsed());
        }
        result.map_err(|error| end_with(&error))
    }

    /// What the system has of the file is no use: pages that were never written are zero, whatever the file holds there.
    fn take_cached(&self, _: &dyn Device, _: u64, _: &mut [u8]) -> Result<Option<TakenBytes>, DeviceError> {
        Ok(None)
    }

    fn write_durable(&self, inner: &dyn Device, transfer: &mut Transfer) -> Result<(), DeviceError> {
        self.before(transfer);
        inner.write_durable(transfer)
    }

    /// Only a ring: a queue of threads would be threads that the hooks don't know as the library's.
    fn queue(&self, inner: &Arc<dyn Device>, depth: usize) -> Result<Box<dyn Queue>, DeviceError> {
        if !inner.mode().contains("io_uring") {
            let unsupported = std::io::Error::from(std::io::ErrorKind::Unsupported);
            return Err(DeviceError::new(quire_device::DeviceOperation::Open, inner.name(), &unsupported));
        }
        Ok(Box::new(HeapQueue { inner: inner.queue(depth)?, file: self.clone() }))
    }

    fn flush(&self, _inner: &dyn Device) -> Result<(), DeviceError> {
        // No process reads the file after this one.
        Ok(())
    }

    fn flush_data(&self, _inner: &dyn Device) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// A queue of the file.
struct HeapQueue {
    inner: Box<dyn Queue>,
    file: HeapFile,
}

fn checked(finished: Option<Completion>) -> Option<Completion> {
    if let Some(Completion { result: Err(error), .. }) = &finished {
        end_with(error);
    }
    finished
}

impl Queue for HeapQueue {
    fn submit(&mut self, transfer: Transfer) {
        self.file.before(&transfer);
        self.inner.submit(transfer);
    }

    fn submit_all(&mut self, transfers: Vec<Transfer>) {
        transfers.iter().for_each(|transfer| self.file.before(transfer));
        self.inner.submit_all(transfers);
    }

    fn complete(&mut self) -> Option<Completion> {
        checked(self.inner.complete())
    }

    fn poll(&mut self) -> Option<Completion> {
        checked(self.inner.poll())
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_device::{Buffer, Directory, Extent, MemoryDirectory};

    fn transfer(direction: Direction, offset: u64) -> Transfer {
        let mut buffer = Buffer::new(4096).unwrap();
        buffer.fill(7);
        Transfer { direction, buffer, extents: vec![Extent { offset, start: 0, len: 4096 }], tag: 0 }
    }

    #[test]
    fn what_was_never_written_is_zero_and_what_was_is_read() {
        let memory = MemoryDirectory::with_file("heap", &[9; 3 * 4096]);
        let written = Arc::new(WrittenPages::new(3 * 4096, 4096).unwrap());
        let file = HeapFile::over(memory.open_to_write("heap").unwrap(), written, Arc::default());
        let mut read = transfer(Direction::Read, 4096);
        file.run(&mut read).unwrap();
        assert!(read.buffer.iter().all(|&byte| byte == 0), "not what happens to be there");
        file.run(&mut transfer(Direction::Write, 4096)).unwrap();
        file.run(&mut read).unwrap();
        assert!(read.buffer.iter().all(|&byte| byte == 7));
        assert!(file.queue(4).is_err(), "no ring, no queue");
    }
}
