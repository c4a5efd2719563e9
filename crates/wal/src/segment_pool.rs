//! Segment files before their use and after it: made, renamed, kept, removed.
//!
//! Relies on [`Device::allocate`], which writes zeros, since a write into space that was never written makes the file system
//! keep a journal of it. A new file has another name until its header is durable, and a segment that is no longer needed waits
//! under its old name, as a spare, until it gets its next number: so a file with a segment's name always has a valid header.

use std::sync::Arc;
use std::time::Duration;

use quire_device::{
    Buffer, Device, DeviceError, DeviceOperation, Direction, Directory, Extent, Transfer, await_freed, free_later,
    is_freeing, remove_then_free,
};
use zerocopy::IntoBytes;

use super::format::{DATA_OFFSET, SegmentHeader, SegmentMeta, name_of, unfinished_name_of};

/// Longest wait for the space of removed files, on a disk that is full without it.
const LONGEST_WAIT: Duration = Duration::from_secs(120);

/// A file that can take a segment. Its name is durable.
pub(crate) struct PreparedSegment {
    pub(crate) index: u64,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) bytes: u64,
}

/// A segment that is no longer written to.
pub(crate) struct ClosedSegment {
    pub(crate) index: u64,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) bytes: u64,
    /// Its last record.
    pub(crate) last_sequence: u64,
}

/// The files of a log that hold nothing needed.
pub(crate) struct SegmentPool {
    directory: Arc<dyn Directory>,
    segment_bytes: u64,
    next_index: u64,
    spares: Vec<ClosedSegment>,
    most_spares: usize,
}

impl SegmentPool {
    pub(crate) fn new(
        directory: Arc<dyn Directory>,
        segment_bytes: u64,
        most_spares: usize,
        highest_index: u64,
    ) -> Self {
        Self { directory, segment_bytes, next_index: highest_index + 1, spares: Vec::new(), most_spares }
    }

    /// Bytes of the files that wait to be used again.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.spares.iter().map(|closed| closed.bytes).sum()
    }

    /// A file of at least so many bytes. On a full disk this may be tried as often as one likes: it leaves nothing behind.
    pub(crate) fn take(&mut self, least_bytes: u64) -> Result<PreparedSegment, DeviceError> {
        if least_bytes <= self.segment_bytes
            && let Some(closed) = self.spares.pop()
        {
            return self.use_again(closed);
        }
        let (index, bytes) = (self.next_index, least_bytes.max(self.segment_bytes));
        let bytes = bytes.next_multiple_of(quire_device::DIRECT_ALIGN as u64);
        let made = match self.make(index, bytes) {
            // The space of removed files counts as taken until it is free: a start would fail for what it has removed itself.
            Err(error) if error.is_full() && is_freeing() => {
                self.discard_unfinished(index);
                await_freed(LONGEST_WAIT);
                self.make(index, bytes)
            }
            made => made,
        };
        let leaves_nothing = match &made {
            Ok(_) => false,
            Err(error) => self.discard_unfinished(index) && is_shortage(error),
        };
        self.next_index += u64::from(!leaves_nothing);
        made
    }

    fn use_again(&mut self, closed: ClosedSegment) -> Result<PreparedSegment, DeviceError> {
        let index = self.next_index;
        match self.directory.rename(&name_of(closed.index), &name_of(index)) {
            Err(error) if is_shortage(&error) => {
                self.spares.push(closed);
                return Err(error);
            }
            renamed => {
                self.next_index += 1;
                // If this fails the file stays where it is, and the next start finds it.
                renamed?;
            }
        }
        self.directory.sync()?;
        Ok(PreparedSegment { index, device: closed.device, bytes: closed.bytes })
    }

    /// A full disk must not stay full because of a file that could not be made. If it can't be removed the next start does; then
    /// this is false.
    fn discard_unfinished(&self, index: u64) -> bool {
        remove_then_free(&*self.directory, &unfinished_name_of(index))
            .map_or_else(|error| error.is_missing(), |()| true)
    }

    fn make(&self, index: u64, bytes: u64) -> Result<PreparedSegment, DeviceError> {
        let unfinished = unfinished_name_of(index);
        let device = self.directory.create(&unfinished)?;
        device.allocate(bytes)?;
        device.run(&mut header_transfer(&*device, &SegmentHeader::spare(index, bytes))?)?;
        device.flush()?;
        self.directory.rename(&unfinished, &name_of(index))?;
        self.directory.sync()?;
        Ok(PreparedSegment { index, device, bytes })
    }

    /// Takes a segment back that an image covers: to be used again, or to be removed if there are enough of them.
    pub(crate) fn give(&mut self, closed: ClosedSegment) -> Result<(), DeviceError> {
        if closed.bytes == self.segment_bytes
            && self.spares.len() < self.most_spares
            && make_spare(&*closed.device, closed.index, closed.bytes).is_ok()
        {
            self.spares.push(closed);
            return Ok(());
        }
        self.directory.remove(&name_of(closed.index))?;
        // The log thread may wait for the pool, and must not wait for this.
        free_later(closed.device);
        Ok(())
    }
}

/// Whether a file couldn't be made because the disk is full, or a quota: then nothing is torn, and a later attempt may work. A
/// directory that couldn't be synced is another matter, whatever the reason: it is not known which names are durable.
pub(crate) fn is_shortage(error: &DeviceError) -> bool {
    error.is_full() && error.action != DeviceOperation::SyncDirectory
}

/// Writes a header and returns the salt in it, when it is durable.
pub(crate) fn write_header(device: &dyn Device, meta: &SegmentMeta) -> Result<u64, DeviceError> {
    let header = SegmentHeader::new(meta);
    device.write_durable(&mut header_transfer(device, &header)?)?;
    Ok(header.salt.get())
}

/// Says in the header of a segment in use that the image it builds on is durable.
pub(crate) fn mark_in_force(device: &dyn Device, meta: &SegmentMeta) -> Result<(), DeviceError> {
    write_header(device, &SegmentMeta { in_force: true, ..*meta }).map(drop)
}

/// Makes a segment a file that holds nothing, durably: an old header must not come back with the power under another name.
pub(crate) fn make_spare(device: &dyn Device, index: u64, file_bytes: u64) -> Result<(), DeviceError> {
    device.write_durable(&mut header_transfer(device, &SegmentHeader::spare(index, file_bytes))?)
}

/// A write of a header. Only its first sector is ever anything but zeros, so no power cut leaves half of a header.
fn header_transfer(device: &dyn Device, header: &SegmentHeader) -> Result<Transfer, DeviceError> {
    let mut block = buffer(device.name(), DATA_OFFSET as usize)?;
    block[..size_of::<SegmentHeader>()].copy_from_slice(header.as_bytes());
    let extents = vec![Extent { offset: 0, start: 0, len: DATA_OFFSET as usize }];
    Ok(Transfer { direction: Direction::Write, buffer: block, extents, tag: 0 })
}

/// Memory for transfers to or from the file `name`.
pub(crate) fn buffer(name: &str, len: usize) -> Result<Buffer, DeviceError> {
    let refused = |_| DeviceError::new(DeviceOperation::Buffers, name, &std::io::ErrorKind::OutOfMemory.into());
    Buffer::new(len).map_err(refused)
}
