//! What a log on the fast device still says: a pure walk over its bytes.
//!
//! Whatever does not parse is damage until it is proven spare.
//!
//! Relies on [`crate::format`]. Any bytes end in a result; nothing that is read is believed before it has been
//! checked. Work and memory are bounded by the size of the area.

use quire_device::DeviceError;
use zerocopy::FromBytes;

use crate::block_sums::{BlockSums, sums_of};
use crate::format::{
    AREA_OFFSET, CLEAN, HEADER_BYTES, IN_FLIGHT_BYTES, MOST_BLOCK, MOST_BLOCKS, NEWEST_VERSION, OLDEST_VERSION,
    RECORD_MAGIC, RecordHeader, RecordKind, SUPERBLOCK_BYTES, Superblock, SuperblockState, blocks_checksum,
    record_bytes,
};
use crate::ids::{BLOCK_BYTES, VolumeId};
use crate::log_identity::Epoch;

/// Reads bytes of the device from an offset on; all of them.
pub type ReadAt<'a> = dyn FnMut(u64, &mut [u8]) -> Result<(), DeviceError> + 'a;

/// Bytes read from the device at a time.
const CHUNK_BYTES: u64 = 1 << 20;

/// Why a log can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoverError {
    /// There is none: nothing was ever written there.
    #[error("no write cache on the fast device: there is nothing where its superblocks would be")]
    NoSuperblock,
    /// There is something, and it is no write cache.
    #[error("it holds something that is no write cache, or one of which both superblocks are damaged")]
    Foreign,
    /// A newer Quire wrote it.
    #[error(
        "the write cache's log has version {found} of the format, and this Quire reads versions {OLDEST_VERSION} to \
         {NEWEST_VERSION}: use the Quire that wrote it, or a newer one"
    )]
    BlockVersion {
        /// Its version.
        found: u32,
    },
    /// The place of a superblock holds something else.
    #[error("no superblock of a write cache at byte {offset}, where the newest one may have been")]
    SuperblockDamaged {
        /// Where.
        offset: u64,
    },
    /// A record is missing that was durable.
    #[error("the record at byte {offset} (position {lsn} of the log) was durable and is damaged")]
    RecordDamaged {
        /// Its position.
        lsn: u64,
        /// Where that lies on the device.
        offset: u64,
    },
    /// A superblock with a right checksum says what can't be.
    #[error("the write cache's superblock makes no sense: {what} is {value}")]
    Superblock {
        /// Which field.
        what: &'static str,
        /// What it holds.
        value: u64,
    },
    /// The log was closed, yet it does not end where it was closed.
    #[error(
        "the write cache's log was closed at {head_lsn} but can be read up to {end_lsn} only: the fast device is damaged"
    )]
    Damaged {
        /// Where it was closed.
        head_lsn: u64,
        /// Where the last valid record ends.
        end_lsn: u64,
    },
    /// The superblock is older than the log.
    #[error(
        "the write cache's superblock says that its log begins at {tail_lsn}, but that has been overwritten by {found_lsn}: \
         the newer superblock is damaged"
    )]
    Outdated {
        /// Where the log would begin.
        tail_lsn: u64,
        /// What lies in it.
        found_lsn: u64,
    },
    /// The device fails.
    #[error("reading the write cache's log: {0}")]
    Device(#[from] DeviceError),
}

/// A valid record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// Where it begins.
    pub lsn: u64,
    /// Where it ends.
    pub end: u64,
    /// What it does.
    pub kind: RecordKind,
    /// To which volume.
    pub volume: VolumeId,
    /// Its first block there.
    pub first_block: u64,
    /// How many blocks.
    pub block_count: u32,
    /// Bytes of the volume after it.
    pub volume_len: u64,
    /// Of a `TruncateDone`: where the record of the last truncation ends that it is about; 0: the one before it.
    pub done_lsn: u64,
    /// Of an `OpenTruncation`: the lowest of the lengths that the volume may lack.
    pub floor: u64,
}

/// A log as found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredLog {
    /// The cache's number.
    pub identity: u64,
    /// Generation of the superblock that counts.
    pub generation: u64,
    /// Unit of records, in bytes.
    pub granule_bytes: u64,
    /// Bytes of the area.
    pub area_bytes: u64,
    /// Whether it was closed.
    pub clean: bool,
    /// Where the oldest record that counts may begin.
    pub tail_lsn: u64,
    /// Where the next record may begin.
    pub head_lsn: u64,
    /// The valid records in order.
    pub records: Vec<LogRecord>,
    /// Bytes between valid records that were none: writes that were cut off.
    pub skipped_bytes: u64,
    /// Where those are: to be marked as spare before anything is written behind them.
    pub gaps: Vec<LogGap>,
    /// Epoch of the log and its volumes, and the one that was being begun.
    pub epochs: [Epoch; 2],
    /// Damage that was accepted, in words.
    pub accepted: Vec<RecoverError>,
    /// Checksums of the valid records' blocks.
    pub sums: BlockSums,
}

/// A stretch of the log in which there is no valid record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogGap {
    /// Where the last valid record ends.
    pub lsn: u64,
    /// Where the next one begins.
    pub end: u64,
}

/// Reads the log of a fast device of `device_bytes`.
///
/// # Errors
/// [`RecoverError`]. Whatever is neither valid nor proven to be spare is damage.
pub fn recover(read: &mut ReadAt<'_>, device_bytes: u64) -> Result<RecoveredLog, RecoverError> {
    recover_as_told(read, device_bytes, false)
}

/// As [`recover`]; with `accept_damaged` what is damaged is left out, where that leaves a log at all.
///
/// # Errors
/// [`RecoverError`].
pub fn recover_as_told(
    read: &mut ReadAt<'_>,
    device_bytes: u64,
    accept_damaged: bool,
) -> Result<RecoveredLog, RecoverError> {
    let mut accepted = Vec::new();
    let mut judge = |damage: RecoverError| {
        if !accept_damaged {
            return Err(damage);
        }
        accepted.push(damage);
        Ok(())
    };
    let superblock = newest_superblock(read, device_bytes, &mut judge)?;
    let mut found = check(&superblock, device_bytes)?;
    let settled = superblock.sector.settled_lsn.get();
    let (chunk, sums) = (Vec::new(), BlockSums::default());
    let mut scan = Scan { read, found: &found, chunk, chunk_start: 0, settled, sums };
    let Scanned { records, mut gaps, mut end } = scan.run()?;
    let (settled, sums) = (scan.settled, scan.sums);
    let first_lost = gaps.iter().map(|gap| gap.lsn).chain([end]).find(|&lsn| lsn < settled);
    if let Some(lsn) = first_lost {
        judge(RecoverError::RecordDamaged { lsn, offset: AREA_OFFSET + lsn % found.area_bytes })?;
    }
    if found.clean && end != superblock.sector.head_lsn.get() {
        judge(RecoverError::Damaged { head_lsn: superblock.sector.head_lsn.get(), end_lsn: end })?;
    }
    if end < settled {
        // The damage was accepted; nothing may ever be found there again.
        gaps.push(LogGap { lsn: end, end: settled });
        end = settled;
    }
    found.head_lsn = if found.clean { found.head_lsn.max(end) } else { end };
    found.skipped_bytes = gaps.iter().map(|gap| gap.end - gap.lsn).sum();
    found.clean &= accepted.is_empty();
    (found.records, found.gaps, found.accepted, found.sums) = (records, gaps, accepted, sums);
    Ok(found)
}

/// The superblock that counts.
fn newest_superblock(
    read: &mut ReadAt<'_>,
    device_bytes: u64,
    judge: &mut dyn FnMut(RecoverError) -> Result<(), RecoverError>,
) -> Result<Superblock, RecoverError> {
    let mut both = [[0; SUPERBLOCK_BYTES]; 2];
    let there = device_bytes.min(AREA_OFFSET) as usize;
    if there > 0 {
        read(0, &mut both.as_flattened_mut()[..there])?;
    }
    let place = |index: usize| RecoverError::SuperblockDamaged { offset: (index * SUPERBLOCK_BYTES) as u64 };
    let mut sound: [Option<Box<Superblock>>; 2] = [None, None];
    let mut damaged = None;
    for (index, bytes) in both.iter().enumerate() {
        match SuperblockState::read(bytes) {
            SuperblockState::Blank => {}
            // Whatever damage is accepted: what that version means is not known here.
            SuperblockState::Newer(found) => return Err(RecoverError::BlockVersion { found }),
            // Each generation has its place.
            SuperblockState::Sound(superblock) if superblock.sector.generation.get() % 2 == index as u64 => {
                sound[index] = Some(superblock);
            }
            SuperblockState::Sound(_) | SuperblockState::Damaged => damaged = Some(index),
        }
    }
    match sound {
        [None, None] if both.as_flattened().iter().all(|&byte| byte == 0) => Err(RecoverError::NoSuperblock),
        [None, None] => Err(RecoverError::Foreign),
        [Some(only), None] | [None, Some(only)] if damaged.is_some() => {
            judge(place(damaged.unwrap_or_default()))?;
            Ok(*only)
        }
        [Some(even), Some(odd)] => {
            let (newer, older) =
                if even.sector.generation.get() > odd.sector.generation.get() { (even, odd) } else { (odd, even) };
            if newer.sector.generation.get() - older.sector.generation.get() != 1 {
                // They are written in turn: the one between was lost.
                judge(place((older.sector.generation.get() % 2) as usize))?;
            }
            Ok(*newer)
        }
        [Some(only), None] | [None, Some(only)] => {
            if only.sector.generation.get() > 1 {
                judge(place((1 - only.sector.generation.get() % 2) as usize))?;
            }
            Ok(*only)
        }
    }
}

fn check(superblock: &Superblock, device_bytes: u64) -> Result<RecoveredLog, RecoverError> {
    let wrong = |what, value| Err(RecoverError::Superblock { what, value });
    let granule_bytes = u64::from(superblock.sector.granule_bytes.get());
    if granule_bytes != 512 && granule_bytes != 4096 {
        return wrong("granule_bytes", granule_bytes);
    }
    if superblock.sector.block_bytes.get() as usize != BLOCK_BYTES {
        return wrong("block_bytes", u64::from(superblock.sector.block_bytes.get()));
    }
    let area_bytes = superblock.sector.area_bytes.get();
    // A device that was cut short may end before its area begins.
    let room_bytes = device_bytes.saturating_sub(AREA_OFFSET);
    if area_bytes == 0 || !area_bytes.is_multiple_of(granule_bytes) || area_bytes > room_bytes {
        return wrong("area_bytes", area_bytes);
    }
    let (tail_lsn, head_lsn) = (superblock.sector.tail_lsn.get(), superblock.sector.head_lsn.get());
    if !tail_lsn.is_multiple_of(granule_bytes) || tail_lsn > u64::MAX / 4 {
        return wrong("tail_lsn", tail_lsn);
    }
    let settled_lsn = superblock.sector.settled_lsn.get();
    if settled_lsn > tail_lsn + area_bytes || !settled_lsn.is_multiple_of(granule_bytes) {
        return wrong("settled_lsn", settled_lsn);
    }
    let clean = superblock.sector.flags.get() & CLEAN != 0;
    if clean && (head_lsn < tail_lsn || head_lsn - tail_lsn > area_bytes) {
        return wrong("head_lsn", head_lsn);
    }
    Ok(RecoveredLog {
        identity: superblock.sector.identity.get(),
        generation: superblock.sector.generation.get(),
        granule_bytes,
        area_bytes,
        clean,
        tail_lsn,
        head_lsn: if clean { head_lsn } else { tail_lsn },
        records: Vec::new(),
        skipped_bytes: 0,
        gaps: Vec::new(),
        epochs: [Epoch(superblock.sector.epoch.get()), Epoch(superblock.sector.next_epoch.get())],
        accepted: Vec::new(),
        sums: BlockSums::default(),
    })
}

/// What a walk over the area found.
struct Scanned {
    records: Vec<LogRecord>,
    gaps: Vec<LogGap>,
    /// Where the last record ends.
    end: u64,
}

/// A valid record, and what it says of those before it.
struct Trailed {
    record: LogRecord,
    previous_end: u64,
    settled: u64,
}

struct Scan<'a, 'b> {
    read: &'a mut ReadAt<'b>,
    found: &'a RecoveredLog,
    chunk: Vec<u8>,
    /// Offset in the area of the chunk's first byte.
    chunk_start: u64,
    /// Every record that began before this lsn was durable.
    settled: u64,
    sums: BlockSums,
}

impl Scan<'_, '_> {
    fn run(&mut self) -> Result<Scanned, RecoverError> {
        let (tail, area, granule) = (self.found.tail_lsn, self.found.area_bytes, self.found.granule_bytes);
        let limit = tail + area;
        let (mut at, mut end) = (tail, tail);
        let (mut records, mut gaps) = (Vec::new(), Vec::new());
        while at < limit && (at - end <= IN_FLIGHT_BYTES || at < self.settled) {
            let Some(Trailed { record, previous_end, settled }) = self.record_at(at, limit)? else {
                at += granule;
                continue;
            };
            // Between the end of a lap and the last record that found room before it there is nothing.
            if at > end && previous_end != end {
                gaps.push(LogGap { lsn: end, end: at });
            }
            self.settled = self.settled.max(settled);
            (at, end) = (record.end, record.end);
            if record.kind != RecordKind::Spare {
                records.push(record);
            }
        }
        Ok(Scanned { records, gaps, end })
    }

    /// The valid record at `lsn`, if there is one.
    fn record_at(&mut self, lsn: u64, limit: u64) -> Result<Option<Trailed>, RecoverError> {
        let (area, granule) = (self.found.area_bytes, self.found.granule_bytes);
        let at = lsn % area;
        let identity = self.found.identity;
        let bytes = self.bytes(at, HEADER_BYTES as u64)?;
        if bytes[..8] != RECORD_MAGIC {
            return Ok(None);
        }
        let Ok(header) = RecordHeader::read_from_bytes(bytes) else { return Ok(None) };
        let sound = header.identity.get() == identity && header.checksum.get() == header.own_checksum();
        if sound && header.lsn.get() > lsn && header.lsn.get() % area == at {
            // Space is used again only after a superblock says so: one that is newer than ours has been lost.
            return Err(RecoverError::Outdated { tail_lsn: self.found.tail_lsn, found_lsn: header.lsn.get() });
        }
        let sound = sound && header.lsn.get() == lsn;
        let Some(kind) = RecordKind::from_number(header.kind.get()).filter(|_| sound) else { return Ok(None) };
        let (count, first_block) = (header.block_count.get(), header.first_block.get());
        let holds_blocks = match kind {
            RecordKind::Write => (1..=MOST_BLOCKS).contains(&count),
            RecordKind::Truncate => count <= 1,
            RecordKind::TruncateDone | RecordKind::Forget | RecordKind::Spare | RecordKind::OpenTruncation => {
                count == 0
            }
        };
        if !holds_blocks || first_block > MOST_BLOCK {
            return Ok(None);
        }
        let len = record_bytes(granule, count);
        if at + len > area || lsn + len > limit {
            return Ok(None);
        }
        if count > 0 {
            let blocks = self.bytes(at + granule, len - granule)?;
            if blocks_checksum(lsn, blocks) != header.blocks_checksum.get() {
                return Ok(None);
            }
            let sums = sums_of(blocks);
            self.sums.note(lsn + granule, sums);
        }
        let (volume, volume_len) = (VolumeId(header.volume.get()), header.volume_len.get());
        let end = if kind == RecordKind::Spare { volume_len } else { lsn + len };
        if end < lsn + len || end > limit || !end.is_multiple_of(granule) {
            return Ok(None);
        }
        let (done_lsn, floor) = (header.done_lsn.get(), header.floor.get().min(volume_len));
        let record = LogRecord { lsn, end, kind, volume, first_block, block_count: count, volume_len, done_lsn, floor };
        // No record can speak of what comes after it.
        let settled = header.settled_lsn.get().min(lsn);
        Ok(Some(Trailed { record, previous_end: header.previous_end.get(), settled }))
    }

    /// `len` bytes of the area, which has them, read in larger chunks.
    fn bytes(&mut self, at: u64, len: u64) -> Result<&[u8], RecoverError> {
        let inside = at >= self.chunk_start && at + len <= self.chunk_start + self.chunk.len() as u64;
        if !inside {
            let ahead = len.max(CHUNK_BYTES).min(self.found.area_bytes - at);
            self.chunk.resize(ahead as usize, 0);
            self.chunk_start = at;
            (self.read)(AREA_OFFSET + at, &mut self.chunk)?;
        }
        let start = (at - self.chunk_start) as usize;
        Ok(&self.chunk[start..start + len as usize])
    }
}
