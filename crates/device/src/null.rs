//! A device that does nothing, to measure what everything around a device costs.
//!
//! Relies on nothing.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quire_sys::file::{DIRECT_ALIGN, DirectAlignment};
use quire_sys::transfer::{Direction, Transfer};

use crate::device::{Device, Queue, TakenBytes};
use crate::error::{DeviceError, DeviceOperation};
use crate::inline_queue::InlineQueue;

/// What reads of a [`NullDevice`] find.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadPattern {
    /// The memory stays as it was: reads cost nothing at all.
    #[default]
    Untouched,
    /// This byte everywhere.
    Byte(u8),
    /// At the start of every block of [`DIRECT_ALIGN`] bytes its offset in the file, as eight bytes, the lowest first; the
    /// rest of it stays as it was. A reader can tell whether a block is where it belongs.
    Offsets,
}

/// A file of some length whose writes vanish. Clones are the same file.
///
/// ```
/// use quire_device::{Device, NullDevice, ReadPattern};
///
/// let device = NullDevice::new(1 << 40, ReadPattern::Offsets);
/// assert_eq!(device.len()?, 1 << 40);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct NullDevice {
    len: Arc<AtomicU64>,
    pattern: ReadPattern,
}

impl NullDevice {
    /// A device of `len` bytes that reads as `pattern`.
    pub fn new(len: u64, pattern: ReadPattern) -> Self {
        Self { len: Arc::new(AtomicU64::new(len)), pattern }
    }

    fn fill(&self, offset: u64, into: &mut [u8]) {
        match self.pattern {
            ReadPattern::Untouched => {}
            ReadPattern::Byte(byte) => into.fill(byte),
            ReadPattern::Offsets => {
                let skip = (offset.next_multiple_of(DIRECT_ALIGN as u64) - offset) as usize;
                let mut at = skip;
                while at < into.len() {
                    let bytes = (offset + at as u64).to_le_bytes();
                    let room = (into.len() - at).min(bytes.len());
                    into[at..at + room].copy_from_slice(&bytes[..room]);
                    at += DIRECT_ALIGN;
                }
            }
        }
    }

    fn carry_out(&self, transfer: &mut Transfer) -> Result<(), DeviceError> {
        transfer.check();
        for index in 0..transfer.extents.len() {
            let extent = transfer.extents[index];
            let end = extent.offset + extent.len as u64;
            match transfer.direction {
                // Threads that write don't meet here unless the file grows.
                Direction::Write if end > self.len.load(Ordering::Relaxed) => {
                    self.len.fetch_max(end, Ordering::Relaxed);
                }
                Direction::Write => {}
                Direction::Read if end > self.len.load(Ordering::Relaxed) => {
                    let eof = std::io::ErrorKind::UnexpectedEof.into();
                    let error = DeviceError::new(DeviceOperation::Read, self.name(), &eof);
                    return Err(error.at(extent.offset, extent.len as u64));
                }
                Direction::Read => {
                    self.fill(extent.offset, &mut transfer.buffer[extent.start..extent.start + extent.len]);
                }
            }
        }
        Ok(())
    }
}

impl Device for NullDevice {
    fn name(&self) -> &str {
        "null"
    }

    fn len(&self) -> Result<u64, DeviceError> {
        Ok(self.len.load(Ordering::Relaxed))
    }

    fn set_len(&self, len: u64) -> Result<(), DeviceError> {
        self.len.store(len, Ordering::Relaxed);
        Ok(())
    }

    fn allocate(&self, len: u64) -> Result<(), DeviceError> {
        self.set_len(len)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, DeviceError> {
        let there = self.len.load(Ordering::Relaxed).saturating_sub(offset).min(into.len() as u64) as usize;
        self.fill(offset, &mut into[..there]);
        Ok(there)
    }

    fn read_cached(&self, _offset: u64, _into: &mut [u8]) -> Result<Option<usize>, DeviceError> {
        // The system's cache has none of this.
        Ok(None)
    }

    fn take_cached(&self, _offset: u64, _into: &mut [u8]) -> Result<Option<TakenBytes>, DeviceError> {
        Ok(None)
    }

    fn cached_bytes(&self, _offset: u64, _len: u64) -> Option<u64> {
        None
    }

    fn run(&self, transfer: &mut Transfer) -> Result<(), DeviceError> {
        self.carry_out(transfer)
    }

    fn write_durable(&self, transfer: &mut Transfer) -> Result<(), DeviceError> {
        assert_eq!(transfer.direction, Direction::Write, "only a write can be durable");
        self.carry_out(transfer)
    }

    fn queue(&self, _depth: usize) -> Result<Box<dyn Queue>, DeviceError> {
        Ok(Box::new(InlineQueue::new(self.clone())))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn flush_data(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn alignment(&self) -> DirectAlignment {
        DirectAlignment::NONE
    }

    fn mode(&self) -> &'static str {
        "null"
    }

    fn as_file(&self) -> Option<&File> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_sys::buffer::Buffer;
    use quire_sys::transfer::Extent;

    fn transfer(direction: Direction, offset: u64, len: usize) -> Transfer {
        let mut buffer = Buffer::new(len).unwrap();
        buffer.fill(0xee);
        Transfer { direction, buffer, extents: vec![Extent { offset, start: 0, len }], tag: 7 }
    }

    #[test]
    fn every_block_says_where_it_is() {
        let null = NullDevice::new(1 << 20, ReadPattern::Offsets);
        let mut read = transfer(Direction::Read, 3 << 12, 2 << 12);
        null.run(&mut read).unwrap();
        for (index, block) in read.buffer.chunks(DIRECT_ALIGN).enumerate() {
            assert_eq!(block[..8], ((3 + index as u64) << 12).to_le_bytes());
            assert!(block[8..].iter().all(|&byte| byte == 0xee));
        }
        let mut odd = [0xee; 12];
        assert_eq!(null.read_at((5 << 12) - 8, &mut odd).unwrap(), 12);
        assert_eq!(odd[..8], [0xee; 8]);
        assert_eq!(odd[8..], [0, 0x50, 0, 0]);
    }

    #[test]
    fn reads_find_the_pattern_and_end_with_the_file() {
        let null = NullDevice::new(8192, ReadPattern::Byte(4));
        let mut queue = null.queue(2).unwrap();
        queue.submit_all(vec![transfer(Direction::Read, 0, 8192), transfer(Direction::Read, 8192, 4096)]);
        let first = queue.poll().unwrap();
        assert!(first.result.is_ok() && first.transfer.buffer.iter().all(|&byte| byte == 4));
        assert_eq!(queue.complete().unwrap().result.unwrap_err().place, Some((8192, 4096)));
        assert!(queue.poll().is_none() && queue.in_flight() == 0);
        assert_eq!(null.read_at(8190, &mut [0; 9]).unwrap(), 2);
    }

    #[test]
    fn writes_vanish_but_for_the_length() {
        let null = NullDevice::new(0, ReadPattern::Untouched);
        null.write_durable(&mut transfer(Direction::Write, 4096, 4096)).unwrap();
        null.flush().unwrap();
        assert_eq!(null.len().unwrap(), 8192);
        let mut read = transfer(Direction::Read, 4096, 4096);
        null.run(&mut read).unwrap();
        assert!(read.buffer.iter().all(|&byte| byte == 0xee));
        null.set_len(0).unwrap();
        assert!(null.is_empty().unwrap() && null.run(&mut read).is_err());
    }
}
