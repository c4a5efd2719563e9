//! Puts batches of records into segments, one after the other.
//!
//! Relies on `format` for the bytes and on an allocator of files. Every write covers whole blocks, from the one in which the last
//! record ended. After an error nothing more must be written: what became of the bytes is unknown.

use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use quire_device::{DIRECT_ALIGN, Device, DeviceError, Direction, Extent, Transfer};
use zerocopy::{FromBytes, IntoBytes};

use super::error::LogError;
use super::format::{DATA_OFFSET, END, RECORD_ALIGN, RECORD_HEADER_BYTES, RecordHeader, SegmentMeta, record_checksum};
use super::preallocation::lock;
use super::segment_allocator::SegmentAllocator;
use super::segment_chain::SegmentChain;
use super::segment_pool::{ClosedSegment, buffer, is_shortage, mark_in_force, write_header};

/// Written at once at most.
const STAGING_BYTES: usize = 1 << 20;

/// Which log it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogIdentity {
    /// The dataset that the records change.
    pub dataset: u64,
    /// Number of the image that the log builds on.
    pub base_epoch: u64,
    /// Whether that image is durable. Until it is, the log doesn't count.
    pub in_force: bool,
}

/// The segment that is written to.
struct OpenSegment {
    device: Arc<dyn Device>,
    meta: SegmentMeta,
    salt: u64,
}

/// Writes records.
pub(crate) struct SegmentWriter {
    allocator: SegmentAllocator,
    current: OpenSegment,
    pub(crate) chain: Arc<Mutex<SegmentChain>>,
    transfer: Transfer,
    /// Where the staged bytes belong in the file: a block's beginning.
    staged_at: u64,
    /// Bytes staged.
    fill: usize,
    /// The last record that is staged.
    staged: u64,
    /// The last record that was written.
    pub(crate) written: u64,
    /// The last record that is durable.
    pub(crate) durable: u64,
    /// Something was written and not flushed.
    pub(crate) dirty: bool,
    pub(crate) bytes_written: u64,
}

impl SegmentWriter {
    /// Begins a segment whose first record will be `first_sequence`, behind those that are `closed`. Returns when that is
    /// durable.
    pub(crate) fn new(
        mut allocator: SegmentAllocator,
        identity: LogIdentity,
        first_sequence: u64,
        closed: Vec<ClosedSegment>,
        chain: Arc<Mutex<SegmentChain>>,
    ) -> Result<Self, LogError> {
        let prepared = allocator.next(0)?;
        let device = prepared.device;
        let meta = SegmentMeta {
            index: prepared.index,
            first_sequence,
            dataset: identity.dataset,
            base_epoch: identity.base_epoch,
            segment_bytes: prepared.bytes,
            created_unix_ms: unix_ms(),
            in_force: identity.in_force,
        };
        let salt = write_header(&*device, &meta)?;
        let staging = buffer(device.name(), STAGING_BYTES)?;
        let unmarked = lock(&chain).begin(closed, &device, meta);
        if unmarked {
            // The image that was waited for was faster.
            mark_in_force(&*device, &meta)?;
        }
        Ok(Self {
            allocator,
            chain,
            current: OpenSegment { device, meta, salt },
            transfer: Transfer { direction: Direction::Write, buffer: staging, extents: Vec::new(), tag: 0 },
            staged_at: DATA_OFFSET,
            fill: 0,
            staged: first_sequence - 1,
            written: first_sequence - 1,
            durable: first_sequence - 1,
            dirty: false,
            bytes_written: 0,
        })
    }

    /// Writes the records of a batch from byte `at` on, whose headers are still without checksums. With `durable` it returns when
    /// they are. Returns why there is no room for the segment that the record at `at` needs, if there is none: what stands before
    /// that is durable, and the caller may go on there when there is room.
    pub(crate) fn write(
        &mut self,
        batch: &mut [u8],
        at: &mut usize,
        durable: bool,
    ) -> Result<Option<DeviceError>, LogError> {
        while *at < batch.len() {
            let Ok((header, _)) = RecordHeader::mut_from_prefix(&mut batch[*at..]) else { break };
            let sequence = header.sequence.get();
            let bare = RECORD_HEADER_BYTES + header.body_bytes.get() as usize;
            let undurable = (sequence - 1).saturating_sub(self.durable);
            header.undurable = u32::try_from(undurable).unwrap_or(u32::MAX).into();
            let whole = bare.next_multiple_of(RECORD_ALIGN);
            if self.end() + whole as u64 > self.current.meta.segment_bytes
                && let Some(shortage) = self.rotate(sequence, whole as u64)?
            {
                return Ok(Some(shortage));
            }
            let record = &mut batch[*at..*at + whole];
            let checksum = record_checksum(self.current.salt, &record[..bare]);
            record[..size_of::<u64>()].copy_from_slice(&checksum.to_le_bytes());
            self.stage(record)?;
            self.staged = sequence;
            *at += whole;
        }
        self.put(durable)?;
        Ok(None)
    }

    /// Makes known that there is no room for the next segment. From here on nothing is written to this one: an image that covers it frees
    /// it, if that has not come to pass already.
    pub(crate) fn stand_still(&self, shortage: DeviceError) {
        self.allocator.stand_still(shortage);
        let covered = lock(&self.chain).rest(self.closing());
        if let Some(covered) = covered {
            self.allocator.give_back(covered);
        }
    }

    /// The segment that is written to, as one that is no longer.
    fn closing(&self) -> ClosedSegment {
        let OpenSegment { device, meta, .. } = &self.current;
        let (index, bytes) = (meta.index, meta.segment_bytes);
        ClosedSegment { index, device: Arc::clone(device), bytes, last_sequence: self.written }
    }

    /// Waits until there may be room for it.
    ///
    /// # Errors
    /// The log ends, and there was no room to the last.
    pub(crate) fn await_room(&self) -> Result<(), LogError> {
        let durable = self.durable;
        self.allocator.await_room().map_err(|cause| LogError::NoRoom { durable, cause })
    }

    /// Makes durable what was written.
    pub(crate) fn flush(&mut self) -> Result<(), LogError> {
        if self.dirty {
            self.current.device.flush()?;
            self.dirty = false;
        }
        self.durable = self.written;
        Ok(())
    }

    /// Says behind the last record that all of them are durable, so that damage to one isn't taken for a torn end. The next
    /// record is written over this. The log can do without: on a full disk, where a file system that copies on write has no room
    /// for it, there is no mark.
    pub(crate) fn mark_end(&mut self) -> Result<(), DeviceError> {
        let at = self.fill;
        let len = RECORD_HEADER_BYTES + size_of::<i64>();
        let idle = self.staged == self.written && self.durable == self.written;
        if !idle || self.end() + len as u64 > self.current.meta.segment_bytes {
            return Ok(());
        }
        let header = RecordHeader {
            checksum: 0.into(),
            sequence: (self.written + 1).into(),
            undurable: 0.into(),
            body_bytes: (size_of::<i64>() as u32).into(),
            commands: 0.into(),
            kind: END.into(),
        };
        let blocks = (at + len).next_multiple_of(DIRECT_ALIGN);
        self.transfer.buffer[at..blocks].fill(0);
        self.transfer.buffer[at..at + RECORD_HEADER_BYTES].copy_from_slice(header.as_bytes());
        let checksum = record_checksum(self.current.salt, &self.transfer.buffer[at..at + len]);
        self.transfer.buffer[at..at + size_of::<u64>()].copy_from_slice(&checksum.to_le_bytes());
        self.transfer.extents.clear();
        self.transfer.extents.push(Extent { offset: self.staged_at, start: 0, len: blocks });
        self.bytes_written += blocks as u64;
        match self.current.device.run(&mut self.transfer) {
            // Whatever part of it was written, the bytes of records in it are the ones that were there.
            Err(error) if error.is_full() => Ok(()),
            marked => marked,
        }
    }

    /// Where the next record begins.
    pub(crate) fn end(&self) -> u64 {
        self.staged_at + self.fill as u64
    }

    fn stage(&mut self, mut bytes: &[u8]) -> Result<(), LogError> {
        while !bytes.is_empty() {
            let room = self.transfer.buffer.len() - self.fill;
            let (part, rest) = bytes.split_at(bytes.len().min(room));
            self.transfer.buffer[self.fill..self.fill + part.len()].copy_from_slice(part);
            self.fill += part.len();
            bytes = rest;
            if self.fill == self.transfer.buffer.len() {
                self.transfer_out(self.fill, false)?;
                self.staged_at += self.fill as u64;
                self.fill = 0;
            }
        }
        Ok(())
    }

    /// Writes what is staged.
    fn put(&mut self, durable: bool) -> Result<(), LogError> {
        if self.staged != self.written {
            let blocks = self.fill.next_multiple_of(DIRECT_ALIGN);
            self.transfer.buffer[self.fill..blocks].fill(0);
            if blocks > 0 {
                self.transfer_out(blocks, durable && !self.dirty)?;
            }
            // The last block is written again with what comes next.
            let done = self.fill - self.fill % DIRECT_ALIGN;
            self.transfer.buffer.copy_within(done..self.fill, 0);
            self.staged_at += done as u64;
            self.fill -= done;
            self.written = self.staged;
            if self.staged_at > self.current.meta.segment_bytes / 2 {
                self.allocator.ask();
            }
        }
        if durable { self.flush() } else { Ok(()) }
    }

    fn transfer_out(&mut self, len: usize, durable: bool) -> Result<(), DeviceError> {
        self.transfer.extents.clear();
        self.transfer.extents.push(Extent { offset: self.staged_at, start: 0, len });
        self.bytes_written += len as u64;
        if durable {
            return self.current.device.write_durable(&mut self.transfer);
        }
        self.dirty = true;
        self.current.device.run(&mut self.transfer)
    }

    /// Goes on in the next segment, which must have room for so many bytes of records. Returns the cause if the disk has none:
    /// then everything is as it was, and durable.
    fn rotate(&mut self, first_sequence: u64, record_bytes: u64) -> Result<Option<DeviceError>, LogError> {
        // A reader may believe that what stands before a segment is whole.
        self.put(true)?;
        let prepared = match self.allocator.next(DATA_OFFSET + record_bytes) {
            Ok(prepared) => prepared,
            Err(error) if is_shortage(&error) => return Ok(Some(error)),
            Err(error) => return Err(error.into()),
        };
        let meta = SegmentMeta {
            index: prepared.index,
            first_sequence,
            segment_bytes: prepared.bytes,
            created_unix_ms: unix_ms(),
            in_force: lock(&self.chain).is_in_force(),
            ..self.current.meta
        };
        let salt = match write_header(&*prepared.device, &meta) {
            Ok(salt) => salt,
            // A file system that copies on write needs space for this, too. What is in the file now is not known.
            Err(error) if is_shortage(&error) => {
                self.allocator.discard(prepared)?;
                return Ok(Some(error));
            }
            Err(error) => return Err(error.into()),
        };
        self.allocator.go_on();
        let full = self.closing();
        self.current = OpenSegment { device: prepared.device, meta, salt };
        (self.staged_at, self.fill) = (DATA_OFFSET, 0);
        let unmarked = lock(&self.chain).rotate(full, &self.current.device, meta);
        if unmarked {
            mark_in_force(&*self.current.device, &meta)?;
        }
        Ok(None)
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
