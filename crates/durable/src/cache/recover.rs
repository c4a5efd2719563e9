//! What a log on the fast device still says: a pure walk over its bytes.
//!
//! Relies on [`crate::cache::format`]. Any bytes end in a result; nothing that is read is believed before it has been
//! checked. Work and memory are bounded by the size of the area.

use quire_device::DeviceError;
use zerocopy::FromBytes;

use crate::cache::format::{
    AREA_OFFSET, CLEAN, HEADER_BYTES, Header, IN_FLIGHT_BYTES, Kind, MOST_BLOCK, MOST_BLOCKS, RECORD_MAGIC,
    SUPERBLOCK_BYTES, Superblock, blocks_checksum, record_bytes,
};
use crate::cache::ids::{BLOCK_BYTES, VolumeId};

/// Reads bytes of the device from an offset on; all of them.
pub type Reader<'a> = dyn FnMut(u64, &mut [u8]) -> Result<(), DeviceError> + 'a;

/// Bytes read from the device at a time.
const CHUNK_BYTES: u64 = 1 << 20;

/// Why a log can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoverError {
    /// Neither superblock is one.
    #[error("no write cache on the fast device: both superblocks are damaged or were never written")]
    NoSuperblock,
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
pub struct Record {
    /// Where it begins.
    pub lsn: u64,
    /// Where it ends.
    pub end: u64,
    /// What it does.
    pub kind: Kind,
    /// To which volume.
    pub volume: VolumeId,
    /// Its first block there.
    pub first_block: u64,
    /// How many blocks.
    pub block_count: u32,
    /// Bytes of the volume after it.
    pub volume_len: u64,
}

/// A log as found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
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
    pub records: Vec<Record>,
    /// Bytes between valid records that were none: writes that were cut off.
    pub skipped_bytes: u64,
}

/// Reads the log of a fast device of `device_bytes`.
///
/// # Errors
/// [`RecoverError`].
pub fn recover(read: &mut Reader<'_>, device_bytes: u64) -> Result<Recovered, RecoverError> {
    let superblock = newest_superblock(read, device_bytes)?;
    let mut found = check(&superblock, device_bytes)?;
    let mut scan = Scan { read, found: &found, chunk: Vec::new(), chunk_start: 0 };
    let (records, skipped_bytes) = scan.run()?;
    if let Some(last) = records.last() {
        found.head_lsn = if found.clean { found.head_lsn.max(last.end) } else { last.end };
    }
    if found.clean {
        let end_lsn = records.last().map_or(found.tail_lsn, |last| last.end);
        if end_lsn != superblock.head_lsn.get() {
            return Err(RecoverError::Damaged { head_lsn: superblock.head_lsn.get(), end_lsn });
        }
    }
    found.records = records;
    found.skipped_bytes = skipped_bytes;
    Ok(found)
}

fn newest_superblock(read: &mut Reader<'_>, device_bytes: u64) -> Result<Superblock, RecoverError> {
    if device_bytes < AREA_OFFSET {
        return Err(RecoverError::NoSuperblock);
    }
    let mut both = vec![0; 2 * SUPERBLOCK_BYTES];
    read(0, &mut both)?;
    both.chunks_exact(SUPERBLOCK_BYTES)
        .filter_map(|bytes| Superblock::read_from_bytes(bytes).ok())
        .filter(Superblock::is_sound)
        .max_by_key(|superblock| superblock.generation.get())
        .ok_or(RecoverError::NoSuperblock)
}

fn check(superblock: &Superblock, device_bytes: u64) -> Result<Recovered, RecoverError> {
    let wrong = |what, value| Err(RecoverError::Superblock { what, value });
    let granule_bytes = u64::from(superblock.granule_bytes.get());
    if granule_bytes != 512 && granule_bytes != 4096 {
        return wrong("granule_bytes", granule_bytes);
    }
    if superblock.block_bytes.get() as usize != BLOCK_BYTES {
        return wrong("block_bytes", u64::from(superblock.block_bytes.get()));
    }
    let area_bytes = superblock.area_bytes.get();
    if area_bytes == 0 || !area_bytes.is_multiple_of(granule_bytes) || area_bytes > device_bytes - AREA_OFFSET {
        return wrong("area_bytes", area_bytes);
    }
    let (tail_lsn, head_lsn) = (superblock.tail_lsn.get(), superblock.head_lsn.get());
    if !tail_lsn.is_multiple_of(granule_bytes) || tail_lsn > u64::MAX / 4 {
        return wrong("tail_lsn", tail_lsn);
    }
    let clean = superblock.flags.get() & CLEAN != 0;
    if clean && (head_lsn < tail_lsn || head_lsn - tail_lsn > area_bytes) {
        return wrong("head_lsn", head_lsn);
    }
    Ok(Recovered {
        identity: superblock.identity.get(),
        generation: superblock.generation.get(),
        granule_bytes,
        area_bytes,
        clean,
        tail_lsn,
        head_lsn: if clean { head_lsn } else { tail_lsn },
        records: Vec::new(),
        skipped_bytes: 0,
    })
}

struct Scan<'a, 'b> {
    read: &'a mut Reader<'b>,
    found: &'a Recovered,
    chunk: Vec<u8>,
    /// Offset in the area of the chunk's first byte.
    chunk_start: u64,
}

impl Scan<'_, '_> {
    fn run(&mut self) -> Result<(Vec<Record>, u64), RecoverError> {
        let (tail, area, granule) = (self.found.tail_lsn, self.found.area_bytes, self.found.granule_bytes);
        let limit = tail + area;
        let (mut at, mut end, mut skipped) = (tail, tail, 0);
        let mut records = Vec::new();
        while at < limit && at - end <= IN_FLIGHT_BYTES {
            if let Some(record) = self.record_at(at, limit)? {
                skipped += at - end;
                (at, end) = (record.end, record.end);
                records.push(record);
            } else {
                at += granule;
            }
        }
        Ok((records, skipped))
    }

    /// The valid record at `lsn`, if there is one.
    fn record_at(&mut self, lsn: u64, limit: u64) -> Result<Option<Record>, RecoverError> {
        let (area, granule) = (self.found.area_bytes, self.found.granule_bytes);
        let at = lsn % area;
        let identity = self.found.identity;
        let bytes = self.bytes(at, HEADER_BYTES as u64)?;
        if bytes[..8] != RECORD_MAGIC {
            return Ok(None);
        }
        let Ok(header) = Header::read_from_bytes(bytes) else { return Ok(None) };
        let sound = header.identity.get() == identity && header.checksum.get() == header.own_checksum();
        if sound && header.lsn.get() > lsn && header.lsn.get() % area == at {
            // Space is used again only after a superblock says so: one that is newer than ours has been lost.
            return Err(RecoverError::Outdated { tail_lsn: self.found.tail_lsn, found_lsn: header.lsn.get() });
        }
        let sound = sound && header.lsn.get() == lsn;
        let Some(kind) = Kind::from_number(header.kind.get()).filter(|_| sound) else { return Ok(None) };
        let (count, first_block) = (header.block_count.get(), header.first_block.get());
        let holds_blocks = match kind {
            Kind::Write => (1..=MOST_BLOCKS).contains(&count),
            Kind::Cut => count <= 1,
            Kind::CutDone | Kind::Forget => count == 0,
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
        }
        let (volume, volume_len) = (VolumeId(header.volume.get()), header.volume_len.get());
        Ok(Some(Record { lsn, end: lsn + len, kind, volume, first_block, block_count: count, volume_len }))
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
