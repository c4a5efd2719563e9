//! Work for devices: what the cache state has begun, as transfers.
//!
//! Relies on [`Device::run`] and [`Device::write_durable`]; holds no lock. The thread that runs a job must finish it with the
//! cache state, whatever came of it.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use quire_device::{Device, DeviceError, Direction, Extent, Transfer};
use zerocopy::IntoBytes;

use crate::block_sums::{ExpectedSums, sums_of};
use crate::buffer_pool::BufferPool;
use crate::config::VolumeLength;
use crate::format::{
    AREA_OFFSET, HEADER_BYTES, RECORD_MAGIC, RecordHeader, RecordKind, SUPERBLOCK_BYTES, Superblock, blocks_checksum,
};
use crate::ids::{BLOCK_BYTES, BlockAddr, BlockData, VolumeId};
use crate::pending_truncations::OpenTruncation;
use crate::recover::{LogGap, RecoveredLog};

/// Gaps that are marked with one write.
const GAPS_AT_ONCE: usize = 64;

/// A record to be written.
#[derive(Clone, Debug)]
pub struct RecordDraft {
    /// Where.
    pub lsn: u64,
    /// Where it ends.
    pub end: u64,
    /// Where the record before it ends.
    pub previous_end: u64,
    /// Every record that began before this was durable when it was begun.
    pub settled: u64,
    /// What it does.
    pub kind: RecordKind,
    /// Its volume and first block.
    pub first: BlockAddr,
    /// Bytes of the volume after it.
    pub volume_len: u64,
    /// See [`RecordHeader::done_lsn`].
    pub done_lsn: u64,
    /// See [`RecordHeader::floor`].
    pub floor: u64,
    /// Its blocks.
    pub pieces: Vec<BlockData>,
}

/// Records to be written to the log and to be durable there.
#[derive(Clone, Debug)]
pub struct LogJob {
    /// The records, in order.
    pub drafts: Vec<RecordDraft>,
    /// The cache's number.
    pub identity: u64,
    /// Unit of records.
    pub granule: u64,
    /// Bytes of the area.
    pub area: u64,
    /// Others may wait for what it writes.
    pub is_awaited: bool,
    /// Its blocks lie further back in the log already.
    pub is_relocation: bool,
    /// Checksums of the blocks, by record, once it has run.
    pub sums: OnceLock<Vec<Box<[u32]>>>,
}

impl LogJob {
    /// Writes the records.
    ///
    /// # Errors
    /// The device fails; what of them is there is unknown.
    pub fn run(&self, fast: &dyn Device, buffers: &BufferPool) -> Result<(), DeviceError> {
        let bytes: u64 = self.drafts.iter().map(|draft| draft.end - draft.lsn).sum();
        let mut buffer = buffers.take(bytes as usize)?;
        let mut extents: Vec<Extent> = Vec::new();
        let mut sums = Vec::with_capacity(self.drafts.len());
        let mut start = 0;
        for draft in &self.drafts {
            let len = (draft.end - draft.lsn) as usize;
            self.fill(draft, &mut buffer[start..start + len]);
            sums.push(sums_of(&buffer[start + self.granule as usize..start + len]));
            join(&mut extents, Extent { offset: AREA_OFFSET + draft.lsn % self.area, start, len });
            start += len;
        }
        let mut transfer = Transfer { direction: Direction::Write, buffer, extents, tag: 0 };
        let result = fast.write_durable(&mut transfer);
        buffers.put(transfer.buffer);
        // A job that is run twice writes the same.
        let _ = self.sums.set(sums);
        result
    }

    fn fill(&self, draft: &RecordDraft, record: &mut [u8]) {
        let (head, blocks) = record.split_at_mut(self.granule as usize);
        for (block, piece) in blocks.chunks_exact_mut(BLOCK_BYTES).zip(&draft.pieces) {
            block.copy_from_slice(piece.bytes());
        }
        let mut header = RecordHeader {
            magic: RECORD_MAGIC,
            identity: self.identity.into(),
            lsn: draft.lsn.into(),
            volume: draft.first.volume.0.into(),
            first_block: draft.first.block.into(),
            block_count: (draft.pieces.len() as u32).into(),
            kind: draft.kind.number().into(),
            volume_len: draft.volume_len.into(),
            blocks_checksum: blocks_checksum(draft.lsn, blocks).into(),
            previous_end: draft.previous_end.into(),
            settled_lsn: draft.settled.into(),
            done_lsn: draft.done_lsn.into(),
            floor: draft.floor.into(),
            unused: [0; 408],
            checksum: 0.into(),
        };
        header.checksum = header.own_checksum().into();
        head[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        head[HEADER_BYTES..].fill(0);
    }
}

/// Adds an extent, to the last one if it goes on where that ends.
fn join(extents: &mut Vec<Extent>, next: Extent) {
    match extents.last_mut() {
        Some(last) if last.offset + last.len as u64 == next.offset && last.start + last.len == next.start => {
            last.len += next.len;
        }
        _ => extents.push(next),
    }
}

/// The slow device of a job.
#[derive(Clone)]
pub struct SlowTarget {
    /// The volume.
    pub volume: VolumeId,
    /// Which of its devices.
    pub incarnation: u64,
    /// The device.
    pub device: Arc<dyn Device>,
    /// Whether it may grow.
    pub growth: VolumeLength,
    /// Bytes of the volume when the job was begun.
    pub len: u64,
}

impl SlowTarget {
    /// How many bytes of the block at `offset` are the volume's.
    fn len_at(&self, offset: u64) -> usize {
        match self.growth {
            VolumeLength::Fixed => BLOCK_BYTES,
            VolumeLength::Growable => self.len.saturating_sub(offset).min(BLOCK_BYTES as u64) as usize,
        }
    }

    /// Where blocks, which follow each other in a buffer in this order, belong on the device.
    fn extents(&self, addrs: impl Iterator<Item = BlockAddr>) -> Vec<Extent> {
        let mut extents = Vec::new();
        for (index, addr) in addrs.enumerate() {
            let len = self.len_at(addr.offset());
            if len > 0 {
                join(&mut extents, Extent { offset: addr.offset(), start: index * BLOCK_BYTES, len });
            }
        }
        extents
    }
}

/// Versions to be written to a slow device.
pub struct SlowJob {
    /// Where.
    pub target: SlowTarget,
    /// Blocks in order, with the numbers of their flights.
    pub blocks: Vec<(BlockAddr, u64, BlockData)>,
}

impl SlowJob {
    /// Writes the blocks. They are durable after a flush that begins later.
    ///
    /// # Errors
    /// The device fails; what of them is there is unknown.
    pub fn run(&self, buffers: &BufferPool) -> Result<(), DeviceError> {
        let mut buffer = buffers.take(self.blocks.len() * BLOCK_BYTES)?;
        for (chunk, (_, _, piece)) in buffer.chunks_exact_mut(BLOCK_BYTES).zip(&self.blocks) {
            chunk.copy_from_slice(piece.bytes());
        }
        let extents = self.target.extents(self.blocks.iter().map(|(addr, ..)| *addr));
        write(&*self.target.device, buffer, extents, buffers)
    }
}

fn write(
    device: &dyn Device,
    buffer: quire_device::Buffer,
    extents: Vec<Extent>,
    buffers: &BufferPool,
) -> Result<(), DeviceError> {
    let mut transfer = Transfer { direction: Direction::Write, buffer, extents, tag: 0 };
    let result = if transfer.extents.is_empty() { Ok(()) } else { device.run(&mut transfer) };
    buffers.put(transfer.buffer);
    result
}

/// A flush of a slow device.
pub struct FlushJob {
    /// Which volume.
    pub volume: VolumeId,
    /// Which of its devices.
    pub incarnation: u64,
    /// The device.
    pub device: Arc<dyn Device>,
    /// Number of the flush on this volume.
    pub epoch: u64,
}

/// Truncations to be carried out on a slow device.
pub struct TruncateJob {
    /// Which volume.
    pub volume: VolumeId,
    /// Which of its devices.
    pub incarnation: u64,
    /// The device.
    pub device: Arc<dyn Device>,
    /// The truncations.
    pub truncation: OpenTruncation,
}

impl TruncateJob {
    /// Truncates the device, durably.
    ///
    /// # Errors
    /// It fails; what of it was done is unknown.
    pub fn run(&self) -> Result<(), DeviceError> {
        self.truncation.carry_out(&*self.device)
    }
}

/// A block, its position in the log, and up to where its record says that the volume reaches.
pub type LoggedBlock = (BlockAddr, u64, u64);

/// Blocks and truncations to be moved to the head of the log, since their volumes can't be written to and the log is to be
/// freed behind them.
pub struct RelocationJob {
    /// Blocks in order of place.
    pub blocks: Vec<LoggedBlock>,
    /// Volumes of which truncations are to be moved that their devices lack.
    pub truncated: Vec<VolumeId>,
    /// Most bytes of the log that their new records take.
    pub bytes: u64,
    /// Bytes of the area.
    pub area: u64,
    /// What the blocks are to be.
    pub sums: ExpectedSums,
}

impl RelocationJob {
    /// Reads the blocks, in order, and verifies them: their new records get checksums of what is read here.
    ///
    /// # Errors
    /// The fast device fails, or has other bytes than were written to it.
    pub fn read(&self, fast: &dyn Device, buffers: &BufferPool) -> Result<Vec<BlockData>, DeviceError> {
        let len = self.blocks.len() * BLOCK_BYTES;
        if len == 0 {
            return Ok(Vec::new());
        }
        let buffer = buffers.take(len)?;
        let positions = || self.blocks.iter().map(|&(_, position, _)| position);
        let extents = log_extents(positions(), self.area);
        let mut transfer = Transfer { direction: Direction::Read, buffer, extents, tag: 0 };
        let read = fast.run(&mut transfer);
        let sound = read.and_then(|()| self.sums.check(positions(), &transfer.buffer[..len], fast, self.area));
        let result = sound.map(|()| BlockData::split_blocks(&transfer.buffer[..len]));
        buffers.put(transfer.buffer);
        result
    }
}

/// Where blocks at these positions lie on the fast device, to be read into a buffer in this order.
fn log_extents(positions: impl Iterator<Item = u64>, area: u64) -> Vec<Extent> {
    let mut extents = Vec::new();
    for (index, position) in positions.enumerate() {
        let offset = AREA_OFFSET + position % area;
        join(&mut extents, Extent { offset, start: index * BLOCK_BYTES, len: BLOCK_BYTES });
    }
    extents
}

/// Which device stopped a write-back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainError {
    /// The fast one.
    Fast(DeviceError),
    /// A slow one.
    Slow(VolumeId, DeviceError),
}

/// Who follows a write-back, step by step.
pub trait DrainWatch {
    /// These blocks, which lie in order on one volume, are about to be moved. Those that no longer need it are taken away.
    fn before(&mut self, step: &mut Vec<(BlockAddr, u64)>);

    /// They have been moved, and with them so many of the batch.
    fn after(&mut self, done: usize);
}

/// Blocks to be taken from the log to the slow devices, after which the log may begin further on.
pub struct DrainJob {
    /// Blocks in order of place, with their positions in the log.
    pub blocks: Vec<(BlockAddr, u64)>,
    /// The devices.
    pub targets: Vec<SlowTarget>,
    /// Where the log begins afterwards.
    pub end_lsn: u64,
    /// What says so.
    pub superblock: Superblock,
    /// The fast device is dead: read what can be read, write nothing there.
    pub salvage: bool,
    /// Bytes of the area.
    pub area: u64,
    /// Most blocks and most separate runs moved at a time.
    pub most_blocks: usize,
    /// See `most_blocks`.
    pub most_runs: usize,
    /// Volumes whose devices have taken blocks; of others all had newer versions by then.
    pub moved: BTreeSet<VolumeId>,
    /// Blocks that could not be read, or were damaged, with [`DrainJob::salvage`].
    pub lost: Vec<BlockAddr>,
    /// What the blocks are to be.
    pub sums: ExpectedSums,
}

impl DrainJob {
    /// Moves the blocks, each verified before.
    ///
    /// # Errors
    /// A device fails, or the fast one has other bytes than were written to it. The log is as it was.
    pub fn run(
        &mut self,
        fast: &dyn Device,
        buffers: &BufferPool,
        watch: &mut dyn DrainWatch,
    ) -> Result<(), DrainError> {
        let mut done = 0;
        while done < self.blocks.len() {
            let count = step_len(&self.blocks[done..], self.most_blocks, self.most_runs);
            let mut step = self.blocks[done..done + count].to_vec();
            watch.before(&mut step);
            let result = if step.is_empty() { Ok(()) } else { self.step(&step, fast, buffers) };
            done += count;
            watch.after(done);
            result?;
        }
        for target in self.targets.iter().filter(|target| self.moved.contains(&target.volume)) {
            target.device.flush_data().map_err(|error| DrainError::Slow(target.volume, error))?;
        }
        if self.salvage {
            return Ok(());
        }
        write_superblock(&self.superblock, fast, buffers).map_err(DrainError::Fast)
    }

    fn step(&mut self, blocks: &[(BlockAddr, u64)], fast: &dyn Device, buffers: &BufferPool) -> Result<(), DrainError> {
        let volume = blocks[0].0.volume;
        let Some(target) = self.targets.iter().find(|target| target.volume == volume) else { return Ok(()) };
        let buffer = buffers.take(blocks.len() * BLOCK_BYTES).map_err(DrainError::Fast)?;
        let positions = || blocks.iter().map(|&(_, position)| position);
        let extents = log_extents(positions(), self.area);
        let mut transfer = Transfer { direction: Direction::Read, buffer, extents, tag: 0 };
        let mut kept: Vec<BlockAddr> = blocks.iter().map(|(addr, _)| *addr).collect();
        let read = fast.run(&mut transfer);
        if let Err(error) = read.and_then(|()| self.sums.check(positions(), &transfer.buffer, fast, self.area)) {
            if !self.salvage {
                return Err(DrainError::Fast(error));
            }
            kept = self.read_one_by_one(blocks, fast, &mut transfer.buffer);
            self.lost.extend(blocks.iter().map(|(addr, _)| *addr).filter(|addr| !kept.contains(addr)));
        }
        if kept.is_empty() {
            return Ok(());
        }
        let extents = target.extents(kept.into_iter());
        write(&*target.device, transfer.buffer, extents, buffers).map_err(|error| DrainError::Slow(volume, error))?;
        self.moved.insert(volume);
        Ok(())
    }

    /// Reads what can be read, and is as it was written, to the front of the buffer; returns which blocks.
    fn read_one_by_one(&self, blocks: &[(BlockAddr, u64)], fast: &dyn Device, buffer: &mut [u8]) -> Vec<BlockAddr> {
        let mut kept = Vec::new();
        for &(addr, position) in blocks {
            let into = &mut buffer[kept.len() * BLOCK_BYTES..][..BLOCK_BYTES];
            let is_read = fast.read_at(AREA_OFFSET + position % self.area, into) == Ok(BLOCK_BYTES);
            if is_read && self.sums.fits(position, into) {
                kept.push(addr);
            }
        }
        kept
    }
}

/// How many of these blocks, in order of place, are moved at a time: of one volume, in a bounded number of separate runs, so
/// that the task that needs the slow device next doesn't find a long queue there.
fn step_len(blocks: &[(BlockAddr, u64)], most_blocks: usize, most_runs: usize) -> usize {
    let (mut count, mut runs) = (1, 1);
    for pair in blocks.windows(2).take(most_blocks.saturating_sub(1)) {
        let ((last, _), (next, _)) = (pair[0], pair[1]);
        runs += usize::from(last.plus(1) != next);
        if next.volume != last.volume || runs > most_runs.max(1) {
            break;
        }
        count += 1;
    }
    count
}

/// Marks what a crash left between records as spare, durably, so that a record which is missing there later is known to be
/// damaged.
///
/// # Errors
/// The device fails.
pub fn mark_gaps(found: &RecoveredLog, fast: &dyn Device, buffers: &BufferPool) -> Result<(), DeviceError> {
    let draft = |gap: &LogGap| RecordDraft {
        lsn: gap.lsn,
        end: gap.lsn + found.granule_bytes,
        previous_end: gap.lsn,
        settled: 0,
        kind: RecordKind::Spare,
        first: BlockAddr { volume: VolumeId(0), block: 0 },
        volume_len: gap.end,
        done_lsn: 0,
        floor: 0,
        pieces: Vec::new(),
    };
    for gaps in found.gaps.chunks(GAPS_AT_ONCE) {
        let drafts = gaps.iter().map(draft).collect();
        let (identity, granule, area) = (found.identity, found.granule_bytes, found.area_bytes);
        let job =
            LogJob { drafts, identity, granule, area, is_awaited: false, is_relocation: false, sums: OnceLock::new() };
        job.run(fast, buffers)?;
    }
    Ok(())
}

/// Writes a superblock to its place, durably.
///
/// # Errors
/// The device fails.
pub fn write_superblock(superblock: &Superblock, fast: &dyn Device, buffers: &BufferPool) -> Result<(), DeviceError> {
    let mut buffer = buffers.take(SUPERBLOCK_BYTES)?;
    buffer[..SUPERBLOCK_BYTES].copy_from_slice(superblock.as_bytes());
    let offset = superblock.sector.generation.get() % 2 * SUPERBLOCK_BYTES as u64;
    let extents = vec![Extent { offset, start: 0, len: SUPERBLOCK_BYTES }];
    let mut transfer = Transfer { direction: Direction::Write, buffer, extents, tag: 0 };
    let result = fast.write_durable(&mut transfer);
    buffers.put(transfer.buffer);
    result
}
