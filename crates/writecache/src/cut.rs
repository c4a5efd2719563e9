//! Changing a volume's length.
//!
//! The log says `Cut`, and when that is durable the volume has its new length. The slow device follows in the background
//! (`ledger/cuts.rs`), and then the log says `CutDone` (or forgets the `Cut`: its tail passes it). Cuts without `CutDone` are
//! carried out again when the volume is attached. Until the log knows that the device was cut, nothing behind the new end goes to the
//! device directly; the log takes it.
//!
//! A volume that the log does not know is cut on its device alone, and until that is flushed nothing of the volume goes to the log,
//! so no later write is durable without it. That waits until nothing behind the new end is on its way to the device: it would
//! make the file long again.
//!
//! A device that is to grow does so first of all, and again when the log knows: whether it takes the length must be known before.
//! Behind the old end nothing is on its way, so that changes nothing that a program sees but, after a crash, the length.
//!
//! Relies on the volume's order being held, so nobody writes meanwhile.

use std::sync::{Arc, MutexGuard};

use quire_device::Device;

use crate::config::Growth;
use crate::error::CacheError;
use crate::format::{Kind, MOST_BLOCK};
use crate::ids::{BLOCK_BYTES, Piece, Place, VolumeId};
use crate::jobs::LogJob;
use crate::ledger::{Found, Item, Ledger, Version};
use crate::shared::Shared;
use crate::stats::Content;
use crate::tasks::TaskId;
use crate::volume::{FlushWanted, LenChange};

/// A change of length.
struct Cut {
    id: VolumeId,
    len: u64,
    /// The block in which the volume ends from now on, with zeros behind the end, if the device may not have it.
    last: Option<Piece>,
}

impl Cut {
    /// First block that must hold still.
    fn from(&self) -> u64 {
        self.len / BLOCK_BYTES as u64
    }

    /// First block that is void.
    fn void(&self) -> u64 {
        self.len.div_ceil(BLOCK_BYTES as u64)
    }
}

impl Shared {
    /// Makes the volume `len` bytes long. Durable with the next flush of the volume.
    pub(crate) fn set_len(self: &Arc<Self>, id: VolumeId, len: u64, task: TaskId) -> Result<(), CacheError> {
        {
            let ledger = self.ledger();
            let volume = ledger.writable(id)?;
            if volume.len == len {
                return Ok(());
            }
            if volume.growth == Growth::Fixed || len > MOST_BLOCK * BLOCK_BYTES as u64 {
                return Err(CacheError::Beyond { volume: id, len: volume.len, end: len });
            }
            // A device that refuses a length does so before the log knows of it; else the log would wait for it for ever.
            let device = volume.alive().filter(|_| len > volume.len).cloned();
            drop(ledger);
            device
                .map_or(Ok(()), |device| device.set_len(len))
                .map_err(|cause| CacheError::Slow { volume: id, cause })?;
        }
        let cut = Cut { id, len, last: self.last_block(id, len, task)? };
        let result = self.carry_out(&cut);
        if let Some(volume) = self.ledger().volumes.get_mut(&id) {
            volume.cutting = None;
        }
        // What was held back may go on, and the device be cut.
        self.rouse();
        result
    }

    /// The block at a new end within it, unless the device has its newest version.
    fn last_block(&self, id: VolumeId, len: u64, task: TaskId) -> Result<Option<Piece>, CacheError> {
        let place = Place { volume: id, block: len / BLOCK_BYTES as u64 };
        let kept = (len % BLOCK_BYTES as u64) as usize;
        if kept == 0 || matches!(self.ledger().find(place), Found::Slow) {
            return Ok(None);
        }
        let mut block = vec![0; BLOCK_BYTES];
        self.read_block(place, &mut block, task)?;
        block[kept..].fill(0);
        Ok(Piece::cut(&block).pop())
    }

    fn carry_out(self: &Arc<Self>, cut: &Cut) -> Result<(), CacheError> {
        let mut is_uncertain = false;
        loop {
            let (ledger, job) = self.settle(cut, is_uncertain)?;
            let Some(job) = job else { return self.cut_device(ledger, cut) };
            drop(ledger);
            if self.run_log(&job, self.standing(crate::critical::current())) {
                return Ok(());
            }
            // Without the log it is done on the device alone, once that has what can be had of the log.
            is_uncertain = true;
        }
    }

    /// Waits until nothing behind the new end is in the way, and keeps it so; what is queued there waits: a cut that fails in the
    /// end must have taken nothing away. If the log knows the volume, only what is on its way to the log is waited for, and the
    /// record of the cut is begun in the same moment. `is_uncertain`: a dead log may hold that.
    fn settle(&self, cut: &Cut, is_uncertain: bool) -> Result<(MutexGuard<'_, Ledger>, Option<LogJob>), CacheError> {
        let mut ledger = self.ledger();
        loop {
            ledger.writable(cut.id)?;
            let salvaging = ledger.fast_dead.is_some() && !ledger.salvaged;
            let is_logging = ledger.is_logging_beyond(cut.id, cut.from());
            let is_moving = ledger.is_moving_beyond(cut.id, cut.from());
            let dead = ledger.fast_dead.clone();
            let closed = dead.is_some() && ledger.salvaged && !ledger.abandoned;
            let Some(volume) = ledger.volumes.get_mut(&cut.id) else { return Err(CacheError::Unattached(cut.id)) };
            volume.cutting = Some(cut.from());
            if let Some(cause) = dead.clone().filter(|_| closed && (volume.logged_blocks > 0 || is_uncertain)) {
                // Should the dead log come back, it would undo the cut, or cut off what is written from now on.
                return Err(CacheError::Fast(cause));
            }
            let by_log = dead.is_none() && (volume.logged_blocks > 0 || !volume.cuts.is_empty());
            if !by_log && !salvaging && !is_logging && !is_moving {
                return Ok((ledger, None));
            }
            if by_log && !is_logging {
                if let Some(job) = self.begin_record(&mut ledger, cut) {
                    return Ok((ledger, Some(job)));
                }
                // Write-back must make room, with blocks of this volume too.
                if let Some(volume) = ledger.volumes.get_mut(&cut.id) {
                    volume.cutting = None;
                }
                ledger.check_room(cut.id)?;
                ledger.drain_now();
                self.call_drain();
            }
            ledger = self.wait_log_changed(ledger);
        }
    }

    /// The record of the cut, if there is room for it. When it is durable, the volume has its new length.
    fn begin_record(&self, ledger: &mut Ledger, cut: &Cut) -> Option<LogJob> {
        let place = Place { volume: cut.id, block: cut.from() };
        let version = |piece| Version { piece, content: Content::Data };
        let stamp = ledger.next_stamp();
        let item = cut.last.clone().map(|piece| Item { place, version: version(piece), oldest: stamp });
        ledger.begin_control(Kind::Cut, cut.id, cut.len, item.as_ref(), self.now_ns()).ok()
    }

    /// The volume has its new length in memory from now on.
    fn apply(ledger: &mut Ledger, cut: &Cut) -> Result<Arc<dyn Device>, CacheError> {
        ledger.forget_beyond(cut.id, cut.void());
        let volume = ledger.volumes.get_mut(&cut.id).ok_or(CacheError::Unattached(cut.id))?;
        volume.len = cut.len;
        volume.device.clone().ok_or(CacheError::Unattached(cut.id))
    }

    /// The device alone, for a volume that the log does not know.
    fn cut_device(&self, mut ledger: MutexGuard<'_, Ledger>, cut: &Cut) -> Result<(), CacheError> {
        let device = Self::apply(&mut ledger, cut)?;
        let stamp = ledger.next_stamp();
        if let Some(piece) = cut.last.clone() {
            let place = Place { volume: cut.id, block: cut.from() };
            let version = Version { piece, content: Content::Data };
            ledger.queue(place, version, stamp, false, 0, self.now_ns());
        }
        if let Some(volume) = ledger.volumes.get_mut(&cut.id) {
            // From now on nothing of it goes to the log; the flush that makes it durable must begin after the change.
            volume.len_change = Some(LenChange { stamp: stamp.0, epoch: u64::MAX });
        }
        drop(ledger);
        let result = device.set_len(cut.len);
        let mut ledger = self.ledger();
        if let Some(volume) = ledger.volumes.get_mut(&cut.id) {
            volume.len_change = Some(LenChange { stamp: stamp.0, epoch: volume.epoch });
            volume.flush_wanted = FlushWanted::Now;
        }
        if let Err(cause) = &result {
            ledger.lose_slow(cut.id, cause, self.now_ns());
        }
        ledger.judge_flush(cut.id);
        drop(ledger);
        self.call_issuers();
        result.map_err(|cause| CacheError::Slow { volume: cut.id, cause })
    }

    /// The log is told which cuts the volume's device has, if that is not so yet. Waits for that unless it would be for a dead
    /// volume; write-back sees to it then.
    pub(crate) fn close_cut(&self, id: VolumeId) {
        while !self.try_close(id) {
            let mut ledger = self.ledger();
            if !ledger.closing.contains_key(&id) || ledger.no_room_ever() {
                return;
            }
            ledger.drain_now();
            self.call_drain();
            drop(self.wait_log_changed(ledger));
        }
    }

    /// Tries to tell the log which cuts the volume's device has; whether there is nothing left to tell.
    pub(crate) fn try_close(&self, id: VolumeId) -> bool {
        let mut ledger = self.ledger();
        let Some(job) = ledger.begin_cut_done(id, self.now_ns()) else { return !ledger.closing.contains_key(&id) };
        drop(ledger);
        self.run_log(&job, self.standing(crate::critical::current()));
        self.rouse();
        !self.ledger().closing.contains_key(&id)
    }

    /// Tries again to tell what could not be told for lack of room.
    pub(crate) fn close_cuts(&self) {
        let ids: Vec<VolumeId> = self.ledger().closing.keys().copied().collect();
        for id in ids {
            self.try_close(id);
        }
    }

    /// Waits until the volume's device has every cut.
    pub(crate) fn await_cuts(&self, id: VolumeId, task: TaskId) -> Result<(), CacheError> {
        let hasty = usize::from(self.standing(task).any());
        let mut ledger = self.ledger();
        let volume = ledger.volumes.get_mut(&id).ok_or(CacheError::Unattached(id))?;
        volume.hasty += hasty;
        let result = loop {
            let Some(volume) = ledger.volumes.get(&id) else { return Err(CacheError::Unattached(id)) };
            if volume.cuts.open().is_none() {
                break Ok(());
            }
            if let Some(cause) = volume.dead.clone() {
                break Err(CacheError::Slow { volume: id, cause });
            }
            if ledger.closed {
                break Err(CacheError::Closed);
            }
            ledger = self.wait_changed(ledger);
        };
        if let Some(volume) = ledger.volumes.get_mut(&id) {
            volume.hasty = volume.hasty.saturating_sub(hasty);
        }
        result
    }
}
