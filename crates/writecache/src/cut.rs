//! Changing a volume's length.
//!
//! A cut must not be undone by an older record at recovery, nor be done again after something was written behind it. So the
//! log says `Cut`, then the device is cut and flushed, then the log says `CutDone` (or forgets the `Cut`: its tail passes
//! it); a `Cut` without `CutDone` is carried out again. A volume without blocks in the log needs neither: the device is cut,
//! and until that is flushed nothing of the volume goes to the log, so no later write is durable without it.
//!
//! While a cut is under way nothing behind the new end is on its way to the device, write-back included: it would make the
//! file long again.
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
use crate::ledger::{Errand, Found, Item, Ledger, Version};
use crate::shared::Shared;
use crate::stats::Content;
use crate::tasks::TaskId;
use crate::volume::{Cutting, FlushWanted, LenChange, OpenCut};

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
        let mut ledger = self.ledger();
        if !ledger.closing.contains_key(&id)
            && let Some(volume) = ledger.volumes.get_mut(&id)
        {
            volume.cutting = None;
        }
        drop(ledger);
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
        let mut unknown = None;
        loop {
            let (ledger, job) = self.settle(cut, unknown)?;
            let Some(job) = job else { return self.cut_device(ledger, cut) };
            drop(ledger);
            self.run_log(&job, self.standing(crate::critical::current()));
            if self.ledger().fast_dead.is_none() {
                return self.cut_logged(cut, job.drafts[0].end);
            }
            // Without the log it is done on the device alone, once that has what can be had of the log.
            unknown = Some(job.drafts[0].end);
        }
    }

    /// Waits until nothing behind the new end is under way, and keeps it so; what is queued there waits: a cut that fails in the
    /// end must have taken nothing away. If the log knows the volume, the record of the
    /// cut is begun in the same moment. `unknown`: where one ends that a dead log may hold.
    fn settle(&self, cut: &Cut, unknown: Option<u64>) -> Result<(MutexGuard<'_, Ledger>, Option<LogJob>), CacheError> {
        let mut ledger = self.ledger();
        loop {
            ledger.writable(cut.id)?;
            if ledger.closing.contains_key(&cut.id) {
                // The cut before this one has not found room for its end.
                ledger.check_room(cut.id)?;
                ledger = self.wait_log_changed(ledger);
                continue;
            }
            let salvaging = ledger.fast_dead.is_some() && !ledger.salvaged;
            let under_way = ledger.under_way_beyond(cut.id, cut.from());
            let dead = ledger.fast_dead.clone();
            let closed = dead.is_some() && ledger.salvaged && !ledger.abandoned;
            let Some(volume) = ledger.volumes.get_mut(&cut.id) else { return Err(CacheError::Unattached(cut.id)) };
            volume.cutting = (!salvaging).then_some(Cutting { from: cut.from(), on_device: false });
            if let Some(cause) = dead.clone().filter(|_| closed && (volume.logged_blocks > 0 || unknown.is_some())) {
                // Should the dead log come back, it would undo the cut, or cut off what is written from now on.
                volume.open_cut =
                    unknown.map(|end_lsn| OpenCut { len: cut.len, floor: cut.len, end_lsn }).or(volume.open_cut);
                return Err(CacheError::Fast(cause));
            }
            if !salvaging && !under_way {
                if dead.is_some() || volume.logged_blocks == 0 {
                    return Ok((ledger, None));
                }
                let stamp = ledger.next_stamp();
                let place = Place { volume: cut.id, block: cut.from() };
                let item = cut.last.clone().map(|piece| Item {
                    place,
                    version: Version { piece, content: Content::Data },
                    oldest: stamp,
                });
                if let Ok(job) = ledger.begin_control(Kind::Cut, cut.id, cut.len, item.as_ref(), self.now_ns()) {
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

    /// The log has the cut; now the device.
    fn cut_logged(&self, cut: &Cut, end_lsn: u64) -> Result<(), CacheError> {
        let (device, before) = {
            let mut ledger = self.ledger();
            let device = Self::apply(&mut ledger, cut)?;
            (device, ledger.volumes.get(&cut.id).and_then(|volume| volume.open_cut))
        };
        let floor = before.map_or(cut.len, |before| before.floor.min(cut.len));
        let open = OpenCut { len: cut.len, floor, end_lsn };
        if let Err(cause) = open.carry_out(&*device) {
            let mut ledger = self.ledger();
            // To be carried out before the device is used, now or after a restart.
            if let Some(volume) = ledger.volumes.get_mut(&cut.id) {
                volume.open_cut = Some(open);
            }
            ledger.lose_slow(cut.id, &cause, self.now_ns());
            return Err(CacheError::Slow { volume: cut.id, cause });
        }
        self.close_cut(cut.id, open);
        Ok(())
    }

    /// The device has been cut, durably. Until the log knows that, or no longer knows the cut, nothing of the volume behind the
    /// cut goes to the device directly. Waits for that unless it would be for a dead volume; write-back sees to it then.
    pub(crate) fn close_cut(&self, id: VolumeId, cut: OpenCut) {
        let mut ledger = self.ledger();
        if let Some(volume) = ledger.volumes.get_mut(&id) {
            volume.cutting = Some(Cutting { from: cut.len / BLOCK_BYTES as u64, on_device: true });
        }
        ledger.closing.insert(id, Errand::new(cut));
        drop(ledger);
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

    /// Tries to close a cut; whether it is.
    fn try_close(&self, id: VolumeId) -> bool {
        let mut ledger = self.ledger();
        let Some(cut) = ledger.closing.get(&id).map(|errand| errand.what) else { return true };
        if ledger.closing.get(&id).is_some_and(|errand| errand.busy) {
            return false;
        }
        if ledger.fast_dead.is_some() && !ledger.salvaged {
            return false;
        }
        if ledger.fast_dead.is_none() && ledger.ring.tail() < cut.end_lsn {
            let Ok(job) = ledger.begin_control(Kind::CutDone, id, cut.len, None, self.now_ns()) else { return false };
            ledger.closing.insert(id, Errand { what: cut, busy: true });
            drop(ledger);
            self.run_log(&job, self.standing(crate::critical::current()));
            ledger = self.ledger();
            if ledger.fast_dead.is_some() && ledger.closing.get(&id).is_some_and(|errand| errand.what == cut) {
                ledger.closing.insert(id, Errand::new(cut));
                return false;
            }
        }
        // Unless the volume was forgotten meanwhile.
        if ledger.closing.get(&id).is_some_and(|errand| errand.what == cut) {
            ledger.closing.remove(&id);
            // Should a dead log come back, it would cut again: until it is abandoned, nothing may be written.
            let stays_open = ledger.fast_dead.is_some() && !ledger.abandoned;
            if let Some(volume) = ledger.volumes.get_mut(&id) {
                volume.cutting = None;
                volume.open_cut = stays_open.then_some(cut);
            }
        }
        drop(ledger);
        self.rouse();
        true
    }

    /// Tries again to close what could not be closed for lack of room.
    pub(crate) fn close_cuts(&self) {
        let ids: Vec<VolumeId> = self.ledger().closing.keys().copied().collect();
        for id in ids {
            self.try_close(id);
        }
    }
}
