//! Changing a volume's length.
//!
//! The log says `Truncate`, and when that is durable the volume has its new length. The slow device follows in the
//! background (`cache_state/truncations.rs`), and then the log says `TruncateDone` (or forgets the `Truncate`: its tail
//! passes it). Truncations without `TruncateDone` are carried out again when the volume is attached. Until the log knows
//! that the device was truncated, nothing behind the new end goes to the device directly; the log takes it.
//!
//! A volume that the log does not know is truncated on its device alone, and until that is flushed nothing of the volume
//! goes to the log, so no later write is durable without it. That waits until nothing behind the new end is on its way to
//! the device: it would make the file long again.
//!
//! A device that is to grow does so first of all, and again when the log knows: whether it takes the length must be known
//! before. Behind the old end nothing is on its way, so that changes nothing that a program sees but, after a crash, the
//! length.
//!
//! Relies on the volume's order being held, so no other task writes meanwhile.

use std::sync::{Arc, MutexGuard};

use quire_device::Device;

use crate::cache_state::{BlockLocation, BlockVersion, CacheState, LogItem};
use crate::config::VolumeLength;
use crate::error::CacheError;
use crate::format::{MOST_BLOCK, RecordKind};
use crate::ids::{BLOCK_BYTES, BlockAddr, BlockData, VolumeId};
use crate::jobs::LogJob;
use crate::shared::SharedCache;
use crate::stats::ContentKind;
use crate::tasks::TaskId;
use crate::volume::{FlushWanted, LenChange};

/// A change of length.
struct Truncation {
    id: VolumeId,
    len: u64,
    /// The block in which the volume ends from now on, with zeros behind the end, if the device may not have it.
    last: Option<BlockData>,
}

impl Truncation {
    /// First block that must hold still.
    fn from(&self) -> u64 {
        self.len / BLOCK_BYTES as u64
    }

    /// First block that is void.
    fn void(&self) -> u64 {
        self.len.div_ceil(BLOCK_BYTES as u64)
    }
}

impl SharedCache {
    /// Makes the volume `len` bytes long. Durable with the next flush of the volume.
    pub(crate) fn set_len(self: &Arc<Self>, id: VolumeId, len: u64, task: TaskId) -> Result<(), CacheError> {
        {
            let cache_state = self.cache_state();
            let volume = cache_state.writable(id)?;
            if volume.len == len {
                return Ok(());
            }
            if volume.growth == VolumeLength::Fixed || len > MOST_BLOCK * BLOCK_BYTES as u64 {
                return Err(CacheError::Beyond { volume: id, len: volume.len, end: len });
            }
            // A device that refuses a length does so before the log knows of it; else the log would wait for it for ever.
            let device = volume.alive().filter(|_| len > volume.len).cloned();
            drop(cache_state);
            device
                .map_or(Ok(()), |device| device.set_len(len))
                .map_err(|cause| CacheError::Slow { volume: id, cause })?;
        }
        let truncation = Truncation { id, len, last: self.last_block(id, len, task)? };
        let result = self.carry_out(&truncation);
        if let Some(volume) = self.cache_state().volumes.get_mut(&id) {
            volume.truncations.truncating = None;
        }
        // What was held back may go on, and the device be truncated.
        self.rouse();
        result
    }

    /// The block at a new end within it, unless the device has its newest version.
    fn last_block(&self, id: VolumeId, len: u64, task: TaskId) -> Result<Option<BlockData>, CacheError> {
        let addr = BlockAddr { volume: id, block: len / BLOCK_BYTES as u64 };
        let kept = (len % BLOCK_BYTES as u64) as usize;
        if kept == 0 || matches!(self.cache_state().find(addr), BlockLocation::Slow) {
            return Ok(None);
        }
        let mut block = vec![0; BLOCK_BYTES];
        self.read_block(addr, &mut block, task)?;
        block[kept..].fill(0);
        Ok(BlockData::split_blocks(&block).pop())
    }

    fn carry_out(self: &Arc<Self>, truncation: &Truncation) -> Result<(), CacheError> {
        let mut is_uncertain = false;
        loop {
            let (cache_state, job) = self.settle(truncation, is_uncertain)?;
            let Some(job) = job else { return self.truncate_device(cache_state, truncation) };
            drop(cache_state);
            if self.run_log(&job, self.criticality(crate::critical::current())) {
                return Ok(());
            }
            // Without the log it is done on the device alone, once that has what can be had of the log.
            is_uncertain = true;
        }
    }

    /// Waits until nothing behind the new end is in the way, and keeps it so; what is queued there waits: a truncation that
    /// fails in the end must have taken nothing away. If the log knows the volume, only what is on its way to the log is
    /// waited for, and the record of the truncation is begun in the same moment. `is_uncertain`: a dead log may hold that.
    fn settle(
        &self,
        truncation: &Truncation,
        is_uncertain: bool,
    ) -> Result<(MutexGuard<'_, CacheState>, Option<LogJob>), CacheError> {
        let mut cache_state = self.cache_state();
        loop {
            cache_state.writable(truncation.id)?;
            let salvaging = cache_state.fast.dead.is_some() && !cache_state.fast.salvaged;
            let is_logging = cache_state.is_logging_beyond(truncation.id, truncation.from());
            let is_moving = cache_state.is_moving_beyond(truncation.id, truncation.from());
            let dead = cache_state.fast.dead.clone();
            let closed = dead.is_some() && cache_state.fast.salvaged && !cache_state.fast.abandoned;
            let Some(volume) = cache_state.volumes.get_mut(&truncation.id) else {
                return Err(CacheError::Unattached(truncation.id));
            };
            volume.truncations.truncating = Some(truncation.from());
            if let Some(cause) = dead.clone().filter(|_| closed && (volume.logged_blocks > 0 || is_uncertain)) {
                // Should the dead log come back, it would undo the truncation, or cut off what is written from now on.
                return Err(CacheError::Fast(cause));
            }
            let by_log = dead.is_none() && (volume.logged_blocks > 0 || !volume.truncations.is_empty());
            if !by_log && !salvaging && !is_logging && !is_moving {
                return Ok((cache_state, None));
            }
            if by_log && !is_logging {
                if let Some(job) = self.begin_record(&mut cache_state, truncation) {
                    return Ok((cache_state, Some(job)));
                }
                // Write-back must make room, with blocks of this volume too.
                if let Some(volume) = cache_state.volumes.get_mut(&truncation.id) {
                    volume.truncations.truncating = None;
                }
                cache_state.check_control_room(truncation.id)?;
                cache_state.drain_now();
                self.call_drain();
            }
            cache_state = self.wait_log_changed(cache_state);
        }
    }

    /// The record of the truncation, if there is room for it. When it is durable, the volume has its new length.
    fn begin_record(&self, cache_state: &mut CacheState, truncation: &Truncation) -> Option<LogJob> {
        let addr = BlockAddr { volume: truncation.id, block: truncation.from() };
        let version = |piece| BlockVersion { piece, content: ContentKind::Data };
        let seqno = cache_state.next_seqno();
        let item = truncation.last.clone().map(|piece| LogItem { addr, version: version(piece), oldest: seqno });
        cache_state
            .begin_control(RecordKind::Truncate, truncation.id, truncation.len, item.as_ref(), self.now_ns())
            .ok()
    }

    /// The volume has its new length in memory from now on.
    fn apply(cache_state: &mut CacheState, truncation: &Truncation) -> Result<Arc<dyn Device>, CacheError> {
        cache_state.forget_beyond(truncation.id, truncation.void());
        let volume = cache_state.volumes.get_mut(&truncation.id).ok_or(CacheError::Unattached(truncation.id))?;
        volume.len = truncation.len;
        volume.device.clone().ok_or(CacheError::Unattached(truncation.id))
    }

    /// The device alone, for a volume that the log does not know.
    fn truncate_device(
        &self,
        mut cache_state: MutexGuard<'_, CacheState>,
        truncation: &Truncation,
    ) -> Result<(), CacheError> {
        let device = Self::apply(&mut cache_state, truncation)?;
        let seqno = cache_state.next_seqno();
        if let Some(piece) = truncation.last.clone() {
            let addr = BlockAddr { volume: truncation.id, block: truncation.from() };
            let version = BlockVersion { piece, content: ContentKind::Data };
            cache_state.queue(addr, version, seqno, false, 0, self.now_ns());
        }
        if let Some(volume) = cache_state.volumes.get_mut(&truncation.id) {
            // From now on nothing of it goes to the log; the flush that makes it durable must begin after the change.
            volume.flush.len_change = Some(LenChange { seqno: seqno.0, epoch: u64::MAX });
        }
        drop(cache_state);
        let result = device.set_len(truncation.len);
        let mut cache_state = self.cache_state();
        if let Some(volume) = cache_state.volumes.get_mut(&truncation.id) {
            volume.flush.len_change = Some(LenChange { seqno: seqno.0, epoch: volume.flush.epoch });
            volume.flush.wanted = FlushWanted::Now;
        }
        if let Err(cause) = &result {
            cache_state.lose_slow(truncation.id, cause, self.now_ns());
        }
        cache_state.judge_flush(truncation.id);
        drop(cache_state);
        self.call_issuers();
        result.map_err(|cause| CacheError::Slow { volume: truncation.id, cause })
    }

    /// The log is told which truncations the volume's device has, if that is not so yet. Waits for that unless it would be
    /// for a dead volume; write-back sees to it then.
    pub(crate) fn close_truncation(&self, id: VolumeId) {
        while !self.try_close(id) {
            let mut cache_state = self.cache_state();
            if !cache_state.untold.closing.contains_key(&id) || cache_state.no_room_ever() {
                return;
            }
            cache_state.drain_now();
            self.call_drain();
            drop(self.wait_log_changed(cache_state));
        }
    }

    /// Tries to tell the log which truncations the volume's device has; whether there is nothing left to tell.
    pub(crate) fn try_close(&self, id: VolumeId) -> bool {
        let mut cache_state = self.cache_state();
        let Some(job) = cache_state.begin_truncate_done(id, self.now_ns()) else {
            return !cache_state.untold.closing.contains_key(&id);
        };
        drop(cache_state);
        self.run_log(&job, self.criticality(crate::critical::current()));
        self.rouse();
        !self.cache_state().untold.closing.contains_key(&id)
    }

    /// Tries again to tell what could not be told for lack of room.
    pub(crate) fn close_truncations(&self) {
        let ids: Vec<VolumeId> = self.cache_state().untold.closing.keys().copied().collect();
        for id in ids {
            self.try_close(id);
        }
    }

    /// Waits until the volume's device has every truncation.
    pub(crate) fn await_truncations(&self, id: VolumeId, task: TaskId) -> Result<(), CacheError> {
        let hasty = usize::from(self.criticality(task).any());
        let mut cache_state = self.cache_state();
        let volume = cache_state.volumes.get_mut(&id).ok_or(CacheError::Unattached(id))?;
        volume.hasty += hasty;
        let result = loop {
            let Some(volume) = cache_state.volumes.get(&id) else { return Err(CacheError::Unattached(id)) };
            if volume.truncations.open().is_none() {
                break Ok(());
            }
            if let Some(cause) = volume.dead.clone() {
                break Err(CacheError::Slow { volume: id, cause });
            }
            if cache_state.closed {
                break Err(CacheError::Closed);
            }
            cache_state = self.wait_changed(cache_state);
        };
        if let Some(volume) = cache_state.volumes.get_mut(&id) {
            volume.hasty = volume.hasty.saturating_sub(hasty);
        }
        result
    }
}
