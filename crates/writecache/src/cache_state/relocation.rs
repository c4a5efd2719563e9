//! Relocation: what the tail of the log holds of volumes that can't be written to is moved to its head, so that the log is
//! freed behind it and other volumes go on.
//!
//! The thread of write-back reads the oldest such blocks and writes them once more, as new records at the head; when these
//! are durable, the map names the new places, and the next batch passes the old records, which have no live blocks any more.
//! It never takes the versions in memory into account: those are newer.
//!
//! A position is a version's age, and a relocated block gets a higher one than it had. So no newer version may have one
//! between the two: a block with a version on its way to the log is left out, and a block that a truncation has hold still.
//! One that finds its place later has a higher position, and wins.
//!
//! How much: only while what may be freed is at least a part of what must be moved ([`CacheState::is_worth_relocating`]), so
//! for each byte that is freed at most three are moved, and a log of nothing else is left alone. And volumes that can't be
//! written to get no more than a quarter of the log ([`CacheState::is_over_share`]): beyond that their writers are told.
//!
//! A block is verified before it is moved ([`crate::block_sums`]): its new record would make damage valid.
//!
//! Relies on one batch of write-back or one relocation at a time: a batch that took a block to its device meanwhile would
//! have it go back into the map.

use std::collections::BTreeMap;

use quire_device::DeviceError;

use crate::block_sums::ExpectedSums;
use crate::cache_state::{CacheState, Entry, EntryState};
use crate::error::CacheError;
use crate::format::{MOST_BLOCKS, RecordKind, record_bytes};
use crate::ids::{BLOCK_BYTES, BlockAddr, BlockData, VolumeId};
use crate::jobs::{LogJob, LoggedBlock, RecordDraft, RelocationJob};
use crate::ring::{LogExtent, NoRoom, RecordPurpose};
use crate::volume::Volume;

/// Of a log that is shared with other volumes, those that can't be written to get one part in so many.
const SHARE: u64 = 4;

/// Of one volume that can't be written to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RefusedVolume {
    /// Blocks in the log.
    logged_blocks: u64,
    /// Blocks on their way there.
    logging_blocks: u64,
    /// Versions in memory.
    pending_blocks: usize,
    /// 1 if its device lacks truncations.
    truncated: u64,
    /// Its device is being tried again.
    is_on_trial: bool,
}

impl RefusedVolume {
    fn exchange(&mut self, before: Self, now: Self) {
        self.logged_blocks = self.logged_blocks + now.logged_blocks - before.logged_blocks;
        self.logging_blocks = self.logging_blocks + now.logging_blocks - before.logging_blocks;
        self.pending_blocks = self.pending_blocks + now.pending_blocks - before.pending_blocks;
        self.truncated = self.truncated + now.truncated - before.truncated;
    }

    /// Most bytes that moving what the log holds of it may take: each block in a record of its own.
    fn log_bytes(&self, granule_bytes: u64) -> u64 {
        let blocks = self.logged_blocks + self.logging_blocks;
        blocks * record_bytes(granule_bytes, 1) + self.truncated * granule_bytes
    }
}

/// Volumes that can't be written to (dead, not attached, or full and being tried again), and what there is of them. Kept up to date with every change, so
/// that no thread ever looks through all volumes.
#[derive(Debug, Default)]
pub struct RefusedVolumes {
    volumes: BTreeMap<VolumeId, RefusedVolume>,
    total: RefusedVolume,
    /// Of `total`, those whose devices are being tried again.
    on_trial: RefusedVolume,
}

impl RefusedVolumes {
    /// Their blocks in the log.
    pub fn logged_blocks(&self) -> u64 {
        self.total.logged_blocks
    }

    /// Their versions in memory.
    pub fn pending_blocks(&self) -> usize {
        self.total.pending_blocks
    }

    /// One with versions in memory.
    fn with_pending(&self) -> Option<VolumeId> {
        self.volumes.iter().find(|(_, volume)| volume.pending_blocks > 0).map(|(id, _)| *id)
    }

    /// One of which the log holds blocks, always the same while it does.
    pub fn with_blocks(&self) -> Option<VolumeId> {
        self.volumes.iter().find(|(_, volume)| volume.logged_blocks > 0).map(|(id, _)| *id)
    }

    /// How many they are.
    pub fn count(&self) -> usize {
        self.volumes.len()
    }

    fn set(&mut self, id: VolumeId, now: Option<RefusedVolume>) {
        let before = match now {
            Some(now) => self.volumes.insert(id, now),
            None => self.volumes.remove(&id),
        };
        let (before, now) = (before.unwrap_or_default(), now.unwrap_or_default());
        self.total.exchange(before, now);
        let on_trial = |volume: RefusedVolume| if volume.is_on_trial { volume } else { RefusedVolume::default() };
        self.on_trial.exchange(on_trial(before), on_trial(now));
    }
}

impl CacheState {
    fn as_refused(&self, id: VolumeId) -> Option<RefusedVolume> {
        let volume = self.volumes.get(&id).filter(|volume| volume.is_refused())?;
        Some(RefusedVolume {
            logged_blocks: volume.logged_blocks,
            logging_blocks: volume.tally.logging as u64,
            pending_blocks: volume.tally.total(),
            truncated: u64::from(volume.truncations.open().is_some()),
            is_on_trial: volume.alive().is_some(),
        })
    }

    /// Keeps account of whether the volume can be written to.
    pub fn judge_refused(&mut self, id: VolumeId) {
        let now = self.as_refused(id);
        if now.is_some() || self.log.refused.volumes.contains_key(&id) {
            self.log.refused.set(id, now);
        }
    }

    pub(super) fn judge_all_refused(&mut self) {
        let ids: Vec<VolumeId> = self.volumes.keys().copied().collect();
        ids.into_iter().for_each(|id| self.judge_refused(id));
    }

    /// Bytes that the log holds of volumes that can't be written to.
    fn refused_bytes(&self) -> u64 {
        self.log.refused.total.log_bytes(self.log.granule_bytes)
    }

    /// Share of the log that they have, in percent.
    pub fn refused_percent(&self) -> u8 {
        let bytes = self.log.refused.logged_blocks() * BLOCK_BYTES as u64;
        (bytes * 100 / self.log.ring.area_bytes().max(1)) as u8
    }

    /// Whether volumes that can't be written to have got their share of the log, which they have with others.
    pub fn is_share_used_up(&self) -> bool {
        let has_others = self.volumes.len() > self.log.refused.count();
        has_others && self.refused_bytes() * SHARE >= self.log.ring.area_bytes()
    }

    /// Whether the log takes no more of this volume.
    pub fn is_over_share(&self, id: VolumeId) -> bool {
        let is_refused = self.volumes.get(&id).is_some_and(Volume::is_refused);
        is_refused && self.is_share_used_up()
    }

    /// Whether the log takes more of this volume.
    ///
    /// # Errors
    /// It can't be written to, and the log holds as much as it may of such volumes.
    pub(super) fn check_share(&self, id: VolumeId) -> Result<(), CacheError> {
        let cause = self.volumes.get(&id).and_then(|volume| volume.refusal().cloned());
        match cause.filter(|_| self.is_over_share(id)) {
            Some(cause) => Err(CacheError::SlowFull { volume: id, cause }),
            None => Ok(()),
        }
    }

    /// Blocks in memory that don't count for writers of this volume: they wait for volumes that can't be written to, and the
    /// log has no room for them. No more than the queue holds, however many volumes fail one after the other.
    pub(super) fn set_aside_blocks(&self, id: VolumeId) -> usize {
        self.stranded_blocks(id).min(self.queue_blocks)
    }

    fn stranded_blocks(&self, id: VolumeId) -> usize {
        let is_writable = self.volumes.get(&id).is_some_and(|volume| !volume.is_refused());
        let is_hopeless = is_writable && (self.is_share_used_up() || self.no_room_ever());
        if is_hopeless { self.log.refused.pending_blocks() } else { 0 }
    }

    /// Whether there is room in memory for so many blocks of the volume, which the log has not taken. `may_be_logged`: it would,
    /// had it room, and may have soon.
    ///
    /// # Errors
    /// There is none, and can't be.
    pub fn has_queue_room(&self, id: VolumeId, blocks: usize, may_be_logged: bool) -> Result<bool, CacheError> {
        let is_full = self.queue_is_full(id, blocks);
        if is_full && !(may_be_logged && self.stuck_on().is_none()) {
            self.check_queue(id, blocks)?;
        }
        Ok(!is_full)
    }

    /// Whether so many blocks of the volume can hope for room in memory.
    ///
    /// # Errors
    /// They would not fit if volumes that can't be written to had all of the rest of it.
    pub fn check_queue(&self, id: VolumeId, blocks: usize) -> Result<(), CacheError> {
        let in_the_way = self.stranded_blocks(id).saturating_sub(self.queue_blocks);
        if in_the_way == 0 || in_the_way + blocks <= self.queue_blocks {
            return Ok(());
        }
        let Some(volume) = self.log.refused.with_pending() else { return Ok(()) };
        let cause = self.volumes.get(&volume).and_then(|volume| volume.refusal().cloned());
        Err(cause.map_or(CacheError::Unattached(volume), |cause| CacheError::SlowFull { volume, cause }))
    }

    /// Whether at least a quarter of the used bytes may be freed when the rest is moved. What belongs to devices that are being
    /// tried again is not moved: write-back tries them with it, once it has come to the tail.
    pub(super) fn is_worth_relocating(&self) -> bool {
        let moved_bytes = self.refused_bytes() - self.log.refused.on_trial.log_bytes(self.log.granule_bytes);
        moved_bytes * 4 <= self.log.ring.used_bytes() * 3
    }

    /// What is to be moved so that write-back, which found at the tail what it can't write, can go on: about `most_blocks` of
    /// the oldest blocks of volumes that can't be written to. `None` if write-back isn't stuck, or stays so.
    pub fn begin_relocation(&mut self, most_bytes: u64, most_blocks: usize) -> Option<RelocationJob> {
        let is_stuck = !self.drain.running && self.fast.dead.is_none() && self.drain.stuck_on.is_some();
        if !is_stuck || !self.is_worth_relocating() {
            return None;
        }
        let Some(mut job) = self.oldest_refused(most_bytes, most_blocks) else {
            self.drain.lacks_room = true;
            return None;
        };
        // Others may hope for room.
        self.drain.stuck_on = None;
        if job.blocks.is_empty() && job.truncated.is_empty() {
            return None;
        }
        self.drain.running = true;
        self.drain.targets.clear();
        job.sums = self.log.sums.expected(job.blocks.iter().map(|(_, position, _)| *position));
        Some(job)
    }

    /// What of the oldest records is to be moved, in order of place: all of the very oldest, since the tail passes a record as
    /// a whole. Empty if that must wait. `None`: there is no room for it.
    fn oldest_refused(&self, most_bytes: u64, most_blocks: usize) -> Option<RelocationJob> {
        let (free, granule) = (self.log.ring.free_bytes(), self.log.granule_bytes);
        // Where a lap ends, less than a record of one block may stay unused, and one record become two.
        let (bytes, area) = (record_bytes(granule, 1) + granule, self.log.ring.area_bytes());
        let sums = ExpectedSums::default();
        let mut job = RelocationJob { blocks: Vec::new(), truncated: Vec::new(), bytes, area, sums };
        for entry in &self.log.records {
            let is_first = job.blocks.is_empty() && job.truncated.is_empty();
            let is_enough = !is_first && entry.end - self.log.ring.tail() > most_bytes;
            if entry.state == EntryState::Writing || is_enough {
                break;
            }
            let Some((found, is_lacked)) = self.refused_of(entry) else {
                // Newer records, which are on their way, are in place of this one soon.
                break;
            };
            let is_lacked = is_lacked && !job.truncated.contains(&entry.first.volume);
            let runs = (1..found.len()).filter(|&at| found[at - 1].0.plus(1) != found[at].0).count();
            let records = 1 + runs + found.len() / self.most_record_blocks() + usize::from(is_lacked);
            let bytes = job.bytes + records as u64 * granule + (found.len() * BLOCK_BYTES) as u64;
            if bytes > free {
                return (!is_first).then_some(job).map(in_order);
            }
            if !is_first && job.blocks.len() + found.len() > most_blocks {
                break;
            }
            job.bytes = bytes;
            job.blocks.extend(found);
            job.truncated.extend(is_lacked.then_some(entry.first.volume));
        }
        Some(in_order(job))
    }

    /// Of a record whose volume can't be written to: the live blocks, and whether it says of a truncation that the device lacks.
    /// `None`: one of these can't be moved now.
    fn refused_of(&self, entry: &Entry) -> Option<(Vec<LoggedBlock>, bool)> {
        let volume = self.volumes.get(&entry.first.volume);
        if volume.is_some_and(|volume| volume.alive().is_some()) {
            return Some((Vec::new(), false));
        }
        let is_lacked = volume.is_some_and(|volume| entry.is_lacked_by(volume));
        if is_lacked && !self.is_movable_truncation(entry.first.volume) {
            return None;
        }
        let mut found = Vec::new();
        for index in 0..entry.count as usize {
            let (addr, position) = (entry.first.plus(index as u64), self.position(entry.lsn, index));
            if !self.still_logged(addr, position) {
                continue;
            }
            if !self.is_movable(addr) {
                return None;
            }
            // What an append that is not durable yet has made of the volume's length is not this record's.
            found.push((addr, position, entry.volume_len.min(addr.plus(1).offset())));
        }
        Some((found, is_lacked))
    }

    /// Whether no truncation of the volume is on its way to the log, nor a record that stands for those that its device lacks.
    fn is_movable_truncation(&self, id: VolumeId) -> bool {
        let is_still = |volume: &Volume| volume.truncations.truncating.is_none() && !volume.truncations.is_under_way();
        self.volumes.get(&id).is_some_and(is_still)
    }

    /// Whether the newest version of the block, memory aside, is the one in the log, and stays so until this lock is given up.
    fn is_movable(&self, addr: BlockAddr) -> bool {
        let is_logging = self.versions.slots.get(&addr).is_some_and(|slot| !slot.logging.is_empty());
        let holds_still = self.volumes.get(&addr.volume).is_some_and(|volume| volume.holds_still(addr.block));
        !is_logging && !holds_still
    }

    /// The blocks have been read: places for those that may still be moved. `None` if none may, or others must finish
    /// first.
    pub fn begin_relocated(&mut self, job: &RelocationJob, pieces: &[BlockData], now_ns: u64) -> Option<LogJob> {
        if self.fast.dead.is_some() {
            return None;
        }
        // Others may have taken room meanwhile, all but what is kept for relocation. That is enough for the oldest record; some
        // blocks of each of several would use it up, and the tail could pass none of them.
        let fits = job.bytes <= self.log.ring.free_bytes();
        let oldest = self.log.records.front().map(|entry| (entry.first.volume, entry.end));
        let is_oldest = |position: u64| oldest.is_some_and(|(_, end)| position < end);
        let here = |(addr, position, _): &LoggedBlock| {
            (fits || is_oldest(*position)) && self.still_logged(*addr, *position) && self.is_movable(*addr)
        };
        let blocks: Vec<(BlockAddr, u64, BlockData)> = job
            .blocks
            .iter()
            .zip(pieces)
            .filter(|(block, _)| here(block))
            .map(|((addr, _, len), piece)| (*addr, *len, piece.clone()))
            .collect();
        let truncated = job.truncated.iter().filter(|id| fits || oldest.is_some_and(|(volume, _)| volume == **id));
        let mut drafts: Vec<RecordDraft> =
            truncated.filter_map(|id| self.begin_relocated_truncation(*id, now_ns)).collect();
        let mut done = 0;
        while done < blocks.len() {
            let Ok(draft) = self.begin_relocated_run(&blocks[done..], now_ns) else { break };
            done += draft.pieces.len();
            drafts.push(draft);
        }
        let is_empty = drafts.is_empty();
        (!is_empty).then(|| LogJob { is_relocation: true, ..self.log_job(drafts, true) })
    }

    /// A record of as many of the blocks, from the first on, as lie side by side and fit.
    fn begin_relocated_run(
        &mut self,
        blocks: &[(BlockAddr, u64, BlockData)],
        now_ns: u64,
    ) -> Result<RecordDraft, NoRoom> {
        let (first, granule) = (blocks[0].0, self.log.granule_bytes);
        let run =
            blocks.iter().enumerate().take_while(|(index, (addr, ..))| *addr == first.plus(*index as u64)).count();
        let mut count = run.min(self.most_record_blocks()).min(MOST_BLOCKS as usize);
        // No more than fits before the lap's end, unless that is none: room is scarce.
        let lap = self.log.ring.lap_bytes();
        if lap >= record_bytes(granule, 1) {
            count = count.min(((lap - granule) / BLOCK_BYTES as u64) as usize);
        }
        let span = self.log.ring.take(record_bytes(granule, count as u32), RecordPurpose::Relocation)?;
        let LogExtent { lsn, end, previous_end, settled } = span;
        let reach = blocks[..count].iter().map(|(_, len, _)| *len).max().unwrap_or(0);
        let volume_len = self.volumes.get(&first.volume).map_or(reach, |volume| volume.len.min(reach));
        let (kind, state) = (RecordKind::Write, EntryState::Writing);
        let entry = Entry { lsn, end, kind, first, count: count as u32, volume_len, state, since_ns: now_ns };
        self.log.records.push_back(entry);
        let pieces = blocks[..count].iter().map(|(.., piece)| piece.clone()).collect();
        Ok(RecordDraft { lsn, end, previous_end, settled, kind, first, volume_len, done_lsn: 0, floor: 0, pieces })
    }

    /// A record that stands for all truncations that the volume's device lacks. Until it has ended they count as being carried
    /// out: a device that got them meanwhile would get them again after a crash, when newer bytes may lie there.
    fn begin_relocated_truncation(&mut self, id: VolumeId, now_ns: u64) -> Option<RecordDraft> {
        let open = self.volumes.get(&id).filter(|volume| volume.alive().is_none())?.truncations.open()?;
        if !self.is_movable_truncation(id) {
            return None;
        }
        let span = self.log.ring.take(record_bytes(self.log.granule_bytes, 0), RecordPurpose::Relocation).ok()?;
        let LogExtent { lsn, end, previous_end, settled } = span;
        self.volumes.get_mut(&id)?.truncations.begin();
        let (first, volume_len) = (BlockAddr { volume: id, block: 0 }, open.len);
        let (kind, state) = (RecordKind::OpenTruncation, EntryState::Writing);
        self.log.records.push_back(Entry { lsn, end, kind, first, count: 0, volume_len, state, since_ns: now_ns });
        let (floor, pieces) = (open.floor, Vec::new());
        Some(RecordDraft { lsn, end, previous_end, settled, kind, first, volume_len, done_lsn: 0, floor, pieces })
    }

    /// That record has ended.
    pub(super) fn finish_relocated_truncation(&mut self, id: VolumeId, end_lsn: u64, ok: bool) {
        match self.volumes.get_mut(&id) {
            Some(volume) if ok => volume.truncations.relocated(end_lsn),
            Some(volume) => volume.truncations.end(),
            None => {}
        }
    }

    /// The block is at `position`, too, if `ok`. A newer version has a higher one.
    pub(super) fn finish_relocated_block(&mut self, addr: BlockAddr, position: u64, ok: bool) {
        // What a failing device holds of it says what the older record says, and that one keeps the block closed.
        if let Some(older) = self.log.logged.get_mut(&addr).filter(|older| ok && **older < position) {
            *older = position;
        }
    }

    /// The relocation has ended. `error`: the fast device could not be read, or had damaged blocks.
    pub fn end_relocation(&mut self, error: Option<DeviceError>) {
        self.drain.running = false;
        if let Some(error) = error {
            self.numbers.setbacks += 1;
            self.fast.dead.get_or_insert(error);
        }
    }
}

fn in_order(mut job: RelocationJob) -> RelocationJob {
    job.blocks.sort_unstable();
    job
}
