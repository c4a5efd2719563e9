//! Write-back: which records leave the log next, when, and how far it has come.
//!
//! The log is freed from its tail. A batch is a stretch of the oldest records; those of their blocks that are still the
//! newest in the log are written to the slow devices in order of place, the devices are flushed, the new tail is made
//! durable, and only then the map forgets the blocks and the space is used again. Until then newer versions of these blocks
//! go to the log, so nothing overtakes the batch, and the batch waits for flights of its blocks, so it overtakes nothing.
//!
//! Relies on one batch at a time.

use std::collections::BTreeSet;

use crate::cache_state::{CacheState, EntryState, SALVAGED};
use crate::error::{CacheError, LostRange};
use crate::format::{CLEAN, MAGIC, SECTOR_BYTES, Superblock, SuperblockSector, VERSION};
use crate::ids::{BLOCK_BYTES, BlockAddr, VolumeId};
use crate::jobs::{DrainError, DrainJob, SlowTarget};
use crate::volume::Volume;

/// How write-back stands.
#[derive(Clone, Debug, Default)]
pub struct DrainState {
    /// A batch is under way.
    pub running: bool,
    /// A task waits for space, or everything is to be written back.
    pub wanted: bool,
    /// Batches done.
    pub batches: u64,
    /// Blocks of the batch under way, and how many of them have been moved.
    pub batch_blocks: usize,
    /// See `batch_blocks`.
    pub batch_done: usize,
    /// Bytes a second of the last batches, smoothed; 0 while unknown.
    pub bytes_per_s: u64,
    /// The volume that the oldest record needs and that couldn't be written to when write-back last looked.
    pub(super) stuck_on: Option<VolumeId>,
    /// There was no room to move along what the log holds of it.
    pub(super) lacks_room: bool,
    /// Volumes that the running batch writes to.
    pub targets: BTreeSet<VolumeId>,
    /// First and last block that are being written to a slow device now.
    pub step: Option<(BlockAddr, BlockAddr)>,
}

impl CacheState {
    /// Write-back is needed now.
    pub fn drain_now(&mut self) {
        self.drain.wanted = true;
    }

    /// What held write-back up may be gone.
    pub fn unstick(&mut self) {
        self.drain.stuck_on = None;
    }

    /// How write-back stands.
    pub fn drain_state(&self) -> &DrainState {
        &self.drain
    }

    /// When the oldest record came, if the log has any.
    pub fn oldest_ns(&self) -> Option<u64> {
        self.log.records.front().map(|entry| entry.since_ns)
    }

    /// Used share of the log, in percent.
    pub fn used_percent(&self) -> u8 {
        (self.log.ring.used_bytes() * 100 / self.log.ring.area_bytes().max(1)) as u8
    }

    /// The volume that holds write-back up for good: it can't be written to, and what the log holds of it is not moved along.
    /// What has come to the log since write-back looked may have made that worth while.
    pub fn stuck_on(&self) -> Option<VolumeId> {
        self.drain.stuck_on.filter(|_| self.drain.lacks_room || !self.is_worth_relocating())
    }

    /// Whether a record can never be placed again: the log is full and what it holds can't be written back.
    pub fn no_room_ever(&self) -> bool {
        self.stuck_on().is_some() && !self.log.ring.has_room_reserved(self.log.granule_bytes + BLOCK_BYTES as u64)
    }

    /// Whether blocks that must go to the log can hope for room there.
    ///
    /// # Errors
    /// It is full, and write-back is stuck at a volume that can't be written to; or it holds as much as it may of volumes that
    /// can't be written to, and this is one.
    pub fn check_room(&self, id: VolumeId) -> Result<(), CacheError> {
        self.check_share(id)?;
        self.check_control_room(id)
    }

    /// As [`CacheState::check_room`], for a record that makes blocks void: it takes nothing of the share, and gives some back.
    ///
    /// # Errors
    /// The log is full, and write-back is stuck at a volume that can't be written to.
    pub fn check_control_room(&self, id: VolumeId) -> Result<(), CacheError> {
        let Some(stuck_on) = self.stuck_on().filter(|_| self.no_room_ever()) else { return Ok(()) };
        let cause = |id| self.volumes.get(&id).and_then(|volume| volume.dead.clone());
        let stuck = cause(id).map(|cause| (id, cause)).or_else(|| cause(stuck_on).map(|cause| (stuck_on, cause)));
        Err(stuck.map_or(CacheError::Unattached(stuck_on), |(volume, cause)| CacheError::SlowFull { volume, cause }))
    }

    /// A batch of the oldest records, of about `most_bytes`, to be moved in steps of `most_blocks` and `most_runs`. `None`
    /// if there are none, one is running, or the oldest must wait.
    pub fn begin_drain(&mut self, most_bytes: u64, most_blocks: usize, most_runs: usize) -> Option<DrainJob> {
        if self.drain.running {
            return None;
        }
        (self.drain.stuck_on, self.drain.lacks_room) = (None, false);
        let most_bytes = most_bytes.min(self.log.ring.area_bytes() / 8);
        let (blocks, end_lsn) = match &self.fast.dead {
            None => self.batch(most_bytes)?,
            Some(_) => (self.salvage_batch(most_bytes)?, self.log.ring.tail()),
        };
        let targets = self.targets(&blocks);
        let sums = self.log.sums.expected(blocks.iter().map(|(_, position)| *position));
        self.drain.targets = targets.iter().map(|target| target.volume).collect();
        self.drain.running = true;
        self.drain.batch_blocks = blocks.len();
        self.drain.batch_done = 0;
        Some(DrainJob {
            blocks,
            targets,
            end_lsn,
            superblock: self.superblock(self.log.generation + 1, end_lsn, None),
            salvage: self.fast.dead.is_some(),
            area: self.log.ring.area_bytes(),
            most_blocks,
            most_runs,
            moved: BTreeSet::new(),
            lost: Vec::new(),
            sums,
        })
    }

    /// The live blocks of the oldest records, and where these end.
    fn batch(&mut self, most_bytes: u64) -> Option<(Vec<(BlockAddr, u64)>, u64)> {
        let mut blocks = Vec::new();
        let mut end_lsn = None;
        let mut stuck_on = None;
        'records: for entry in &self.log.records {
            let volume = self.volumes.get(&entry.first.volume);
            // The log keeps a truncation until the device has it.
            let is_lacking = volume.is_some_and(|volume| entry.is_lacked_by(volume));
            if is_lacking && end_lsn.is_none() && volume.is_some_and(|volume| volume.alive().is_none()) {
                stuck_on = Some(entry.first.volume);
            }
            let enough = end_lsn.is_some() && entry.end - self.log.ring.tail() > most_bytes;
            if entry.state == EntryState::Writing || is_lacking || enough {
                break;
            }
            let before = blocks.len();
            for index in 0..entry.count as usize {
                let addr = entry.first.plus(index as u64);
                let position = entry.lsn + self.log.granule_bytes + (index * BLOCK_BYTES) as u64;
                if !self.still_logged(addr, position) {
                    continue;
                }
                let writable = volume.is_some_and(|volume| volume.alive().is_some());
                let in_flight = self.versions.slots.get(&addr).is_some_and(|slot| slot.in_flight());
                if !writable || in_flight {
                    blocks.truncate(before);
                    stuck_on = (!writable && end_lsn.is_none()).then_some(entry.first.volume);
                    break 'records;
                }
                blocks.push((addr, position));
            }
            end_lsn = Some(entry.end);
        }
        self.drain.stuck_on = stuck_on;
        blocks.sort_unstable();
        Some((blocks, end_lsn?))
    }

    /// Blocks that are only in a dead log and can be written elsewhere, after the truncations of their volume. Other
    /// volumes don't wait for one that can't be written to.
    fn salvage_batch(&self, most_bytes: u64) -> Option<Vec<(BlockAddr, u64)>> {
        if self.fast.salvaged {
            return None;
        }
        let movable = |addr: &BlockAddr| {
            let in_flight = self.versions.slots.get(addr).is_some_and(|slot| slot.in_flight());
            let ready = |volume: &Volume| volume.alive().is_some() && volume.truncations.open().is_none();
            self.volumes.get(&addr.volume).is_some_and(ready) && !in_flight
        };
        let here = self.log.logged.iter().filter(|(addr, position)| **position != SALVAGED && movable(addr));
        let most = (most_bytes as usize / BLOCK_BYTES).max(1);
        let blocks: Vec<_> = here.map(|(addr, position)| (*addr, *position)).take(most).collect();
        (!blocks.is_empty()).then_some(blocks)
    }

    /// Whether everything that can be had of a dead log has been, and nothing more is coming.
    pub fn salvage_is_over(&self) -> bool {
        let writing = || self.log.records.iter().any(|entry| entry.state == EntryState::Writing);
        let left = |(addr, position): (&BlockAddr, &u64)| {
            let alive = self.volumes.get(&addr.volume).is_some_and(|volume| volume.alive().is_some());
            *position != SALVAGED && alive
        };
        let over = self.fast.dead.is_some() && !self.fast.salvaged && !self.drain.running;
        let is_alive = |id: &VolumeId| self.volumes.get(id).is_some_and(|volume| volume.alive().is_some());
        over && !writing() && !self.log.logged.iter().any(left) && !self.untold.open_truncations.iter().any(is_alive)
    }

    /// Whether volumes that can't be written to have blocks in the dead log.
    pub fn salvage_left_some(&self) -> bool {
        self.log.logged.values().any(|position| *position != SALVAGED) || self.has_open_truncations()
    }

    /// Takes away blocks of a step of write-back that no longer need it, and notes the rest as being written.
    pub fn begin_step(&mut self, step: &mut Vec<(BlockAddr, u64)>) {
        step.retain(|(addr, position)| self.still_logged(*addr, *position));
        self.drain.step = step.first().zip(step.last()).map(|((first, _), (last, _))| (*first, *last));
    }

    /// The step has ended; so many blocks of the batch have been moved.
    pub fn end_step(&mut self, done: usize) {
        self.drain.step = None;
        self.drain.batch_done = done;
    }

    fn targets(&self, blocks: &[(BlockAddr, u64)]) -> Vec<SlowTarget> {
        let mut targets: Vec<SlowTarget> = Vec::new();
        for (addr, _) in blocks {
            if targets.last().is_some_and(|target| target.volume == addr.volume) {
                continue;
            }
            if let Some(volume) = self.volumes.get(&addr.volume)
                && let Some(device) = &volume.device
            {
                let (growth, len, incarnation) = (volume.growth, volume.len, volume.incarnation);
                targets.push(SlowTarget { volume: addr.volume, incarnation, device: device.clone(), growth, len });
            }
        }
        targets
    }

    /// Whether the running batch may write to the volume.
    pub fn drains_to(&self, id: VolumeId) -> bool {
        self.drain.running && self.drain.targets.contains(&id)
    }

    /// The batch has ended after `took_ns`.
    pub fn finish_drain(&mut self, job: &DrainJob, result: &Result<(), DrainError>, took_ns: u64, now_ns: u64) {
        self.drain.running = false;
        self.drain.step = None;
        self.drain.batch_blocks = 0;
        self.drain.batch_done = 0;
        self.drain.wanted = false;
        match result {
            Ok(()) => self.leave_log(job, took_ns),
            Err(DrainError::Slow(id, error)) => {
                let target = job.targets.iter().find(|target| target.volume == *id);
                let incarnation = self.volumes.get(id).map(|volume| volume.incarnation);
                if target.map(|target| target.incarnation) == incarnation {
                    self.lose_slow(*id, error, now_ns);
                }
            }
            Err(DrainError::Fast(error)) => {
                self.fast.dead.get_or_insert_with(|| error.clone());
            }
        }
    }

    fn leave_log(&mut self, job: &DrainJob, took_ns: u64) {
        if !job.salvage {
            self.log.generation = job.superblock.sector.generation.get();
        }
        job.moved.iter().for_each(|id| self.has_taken(*id));
        for (addr, position) in &job.blocks {
            if !self.still_logged(*addr, *position) {
                continue;
            }
            if job.salvage {
                // Still closed to direct writes: the dead device's log would be replayed over them.
                self.log.logged.insert(*addr, SALVAGED);
            } else {
                self.log.logged.remove(addr);
                if let Some(volume) = self.volumes.get_mut(&addr.volume) {
                    volume.logged_blocks -= 1;
                }
                self.judge_refused(addr.volume);
            }
        }
        for addr in &job.lost {
            // A newer version in memory makes good for it, and so does a truncation.
            let newer = self.versions.slots.get(addr).is_some_and(|slot| slot.above_log().is_some());
            if !newer
                && self.log.logged.contains_key(addr)
                && let Some(volume) = self.volumes.get_mut(&addr.volume)
            {
                volume.lost.push(addr.block);
            }
        }
        while let Some(entry) = self.log.records.front().copied().filter(|entry| entry.end <= job.end_lsn) {
            self.log.records.pop_front();
            if entry.kind.is_truncation() {
                self.pass_truncation(entry.first.volume, entry.end);
            }
        }
        self.log.ring.free_up_to(job.end_lsn);
        self.log.sums.free_up_to(job.end_lsn);
        let bytes = (job.blocks.len() * BLOCK_BYTES) as u64;
        self.stats.written_back_bytes += bytes;
        self.drain.batches += 1;
        if bytes > 0 && took_ns > 0 {
            let rate = (u128::from(bytes) * 1_000_000_000 / u128::from(took_ns)) as u64;
            let before = self.drain.bytes_per_s;
            self.drain.bytes_per_s = if before == 0 { rate } else { (before * 3 + rate) / 4 };
        }
    }

    /// The superblock that begins the log at `tail_lsn` and, if it is closed, ends it at `head_lsn`. Generations that are
    /// written have no gaps: the two places of the superblock are written in turn, so the newest is never overwritten.
    fn superblock(&self, generation: u64, tail_lsn: u64, head_lsn: Option<u64>) -> Superblock {
        let mut superblock = Superblock {
            sector: SuperblockSector {
                magic: MAGIC,
                version: VERSION.into(),
                flags: if head_lsn.is_some() { CLEAN } else { 0 }.into(),
                identity: self.log.identity.into(),
                generation: generation.into(),
                granule_bytes: (self.log.granule_bytes as u32).into(),
                block_bytes: (BLOCK_BYTES as u32).into(),
                area_bytes: self.log.ring.area_bytes().into(),
                tail_lsn: tail_lsn.into(),
                head_lsn: head_lsn.unwrap_or(0).into(),
                epoch: self.log.epochs[0].0.into(),
                next_epoch: self.log.epochs[1].0.into(),
                settled_lsn: self.log.ring.settled().into(),
                unused: [0; 416],
                sector_checksum: 0.into(),
            },
            copy: [0; SECTOR_BYTES],
            rest: [0; 3064],
            checksum: 0.into(),
        };
        superblock.seal();
        superblock
    }

    /// The superblock of a log that is opened (not clean) or closed (clean) as it is now.
    pub fn next_superblock(&mut self, clean: bool) -> Superblock {
        self.log.generation += 1;
        // The end of the last record that is there; what lies behind it never was.
        let last = self.log.records.iter().rev().find(|entry| entry.state == EntryState::Durable);
        let end = last.map_or(self.log.ring.tail(), |entry| entry.end);
        self.superblock(self.log.generation, self.log.ring.tail(), clean.then_some(end))
    }

    /// The fast device is dead and the slow devices have all that could be read of it. `abandoned`: it is noted that its log
    /// must never be used again, so from now on everything may go to the slow devices; else what it held stays as it is.
    pub fn finish_salvage(&mut self, abandoned: bool) {
        self.fast.salvaged = true;
        self.fast.abandoned = abandoned;
        self.log.records.clear();
        self.untold.closing.clear();
        if abandoned {
            self.log.logged.clear();
            self.log.sums.clear();
            self.untold.open_truncations.clear();
            for volume in self.volumes.values_mut() {
                volume.logged_blocks = 0;
                volume.truncations.clear();
            }
            self.judge_all_refused();
        }
    }

    /// A volume can be written to again: what the dead log holds of it may be saved after all.
    pub fn salvage_again(&mut self) {
        let has_truncations = self.volumes.values().any(|volume| !volume.truncations.is_empty());
        self.fast.salvaged &= self.fast.abandoned || !(self.salvage_left_some() || has_truncations);
    }

    /// What was lost with the fast device, as ranges.
    pub fn lost(&self) -> Vec<LostRange> {
        let ranges = |(id, volume): (&VolumeId, &Volume)| {
            let mut blocks = volume.lost.clone();
            blocks.sort_unstable();
            let mut ranges: Vec<LostRange> = Vec::new();
            for block in blocks {
                let offset = block * BLOCK_BYTES as u64;
                match ranges.last_mut() {
                    Some(last) if last.offset + last.len == offset => last.len += BLOCK_BYTES as u64,
                    _ => ranges.push(LostRange { volume: *id, offset, len: BLOCK_BYTES as u64 }),
                }
            }
            ranges
        };
        self.volumes.iter().flat_map(ranges).collect()
    }
}
