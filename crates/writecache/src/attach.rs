//! Attaching a volume, and giving one up.
//!
//! Relies on what a crash left of a cut being carried out before anything of the volume is read or written.

use std::sync::Arc;

use quire_device::{Device, DeviceError};

use crate::config::{Growth, VolumeSpec};
use crate::cuts::OpenCut;
use crate::error::CacheError;
use crate::format::Kind;
use crate::ids::{BLOCK_BYTES, VolumeId};
use crate::ledger::Errand;
use crate::shared::Shared;
use crate::volume::Volume;

/// What is known of a volume before it is attached.
struct Known {
    /// Cuts that its device may lack.
    open_cut: Option<OpenCut>,
    /// Its length, if another device was attached before.
    len: Option<u64>,
}

fn is_taken(volume: &Volume) -> bool {
    volume.leaving || (volume.device.is_some() && volume.dead.is_none())
}

impl Shared {
    /// Attaches a device: a new volume, one that the log names, or the replacement of a dead one.
    pub(crate) fn attach(&self, spec: &VolumeSpec) -> Result<(), CacheError> {
        self.attach_open(spec)?;
        self.close_cut(spec.id);
        Ok(())
    }

    /// As [`Shared::attach`], but the log is not told yet of cuts that were carried out.
    pub(crate) fn attach_open(&self, spec: &VolumeSpec) -> Result<(), CacheError> {
        let failed = |cause: DeviceError| CacheError::Slow { volume: spec.id, cause };
        let (mut ledger, known, device_len) = loop {
            let known = self.await_attachable(spec.id)?;
            let device_len = prepare(&*spec.device, spec.growth, &known).map_err(failed)?;
            let ledger = self.ledger();
            if ledger.volumes.get(&spec.id).is_some_and(is_taken) {
                return Err(CacheError::Attached(spec.id));
            }
            // Unless it was cut meanwhile.
            if ledger.volumes.get(&spec.id).and_then(|volume| volume.cuts.open()) == known.open_cut {
                break (ledger, known, device_len);
            }
        };
        let (incarnation, unsynced) = (ledger.next_incarnation(), ledger.unsynced);
        let tasks = &self.config.tasks;
        let volume = ledger.volumes.entry(spec.id).or_insert_with(|| Volume::new(None, spec.growth, 0, tasks));
        volume.plug(Arc::clone(&spec.device), spec.growth, device_len, incarnation);
        volume.unsynced = unsynced || known.len.is_some();
        if let Some(cut) = known.open_cut {
            ledger.cuts_are_carried_out(spec.id, cut.end_lsn);
        }
        ledger.unstick();
        ledger.salvage_again();
        ledger.judge_flush(spec.id);
        drop(ledger);
        self.rouse();
        Ok(())
    }

    /// Waits until write-back has done with the volume's old device, and what cuts concern, too.
    fn await_attachable(&self, id: VolumeId) -> Result<Known, CacheError> {
        let mut ledger = self.ledger();
        loop {
            let Some(volume) = ledger.volumes.get(&id) else { return Ok(Known { open_cut: None, len: None }) };
            if is_taken(volume) {
                return Err(CacheError::Attached(id));
            }
            let open_cut = volume.cuts.open();
            // The device may be the same one, opened anew: what a cut took away while it was under way must not land there after the
            // cut, nor an older cut after what is written next.
            let is_moving = |cut: OpenCut| ledger.is_moving_beyond(id, cut.floor / BLOCK_BYTES as u64);
            let is_cutting = volume.cuts.is_under_way() || open_cut.is_some_and(is_moving);
            if volume.device.is_none() || !(ledger.drains_to(id) || is_cutting) {
                let len = volume.device.is_some().then_some(volume.len);
                return Ok(Known { open_cut, len });
            }
            ledger = self.wait_log_changed(ledger);
        }
    }

    /// Forgets everything about a volume that is being removed. Writes of it that are under way end when they end.
    pub(crate) fn forget(&self, id: VolumeId) -> Result<(), CacheError> {
        let mut ledger = self.ledger();
        while ledger.is_logging_beyond(id, 0) || ledger.volumes.get(&id).is_some_and(|volume| volume.leaving) {
            ledger = self.wait_log_changed(ledger);
        }
        let Some(volume) = ledger.volumes.get_mut(&id) else { return Ok(()) };
        volume.leaving = true;
        volume.device = None;
        let has_blocks = volume.logged_blocks > 0;
        // Write-back need not wait for its blocks any more, whatever becomes of the record.
        let named = ledger.forget_cuts(id) || has_blocks;
        ledger.drop_versions(id);
        ledger.forget_beyond(id, 0);
        ledger.unstick();
        ledger.forgetting.insert(id, Errand::new(named));
        drop(ledger);
        while !self.try_forget(id) {
            let mut ledger = self.ledger();
            if !ledger.forgetting.contains_key(&id) || ledger.no_room_ever() || ledger.fast_dead.is_some() {
                // Until the log knows, the number can't be attached again; write-back sees to it.
                break;
            }
            ledger.drain_now();
            self.call_drain();
            drop(self.wait_log_changed(ledger));
        }
        Ok(())
    }

    /// Tries to say in the log that a volume is gone, which makes its earlier records void; whether it is done.
    fn try_forget(&self, id: VolumeId) -> bool {
        let mut ledger = self.ledger();
        let Some(&Errand { what: named, busy }) = ledger.forgetting.get(&id) else { return true };
        if busy {
            return false;
        }
        if named && !ledger.abandoned {
            if ledger.fast_dead.is_some() {
                return false;
            }
            let Ok(job) = ledger.begin_control(Kind::Forget, id, 0, None, self.now_ns()) else { return false };
            ledger.forgetting.insert(id, Errand { what: named, busy: true });
            drop(ledger);
            self.run_log(&job, self.standing(crate::critical::current()));
            ledger = self.ledger();
            if ledger.fast_dead.is_some() && !ledger.abandoned {
                ledger.forgetting.insert(id, Errand::new(named));
                return false;
            }
        }
        ledger.remove_volume(id);
        drop(ledger);
        self.rouse();
        true
    }

    /// Tries again what could not be said for lack of room.
    pub(crate) fn finish_forgetting(&self) {
        let ids: Vec<VolumeId> = self.ledger().forgetting.keys().copied().collect();
        for id in ids {
            self.try_forget(id);
        }
    }
}

/// Makes the device as long as the cache knows it to be. Returns its length.
fn prepare(device: &dyn Device, growth: Growth, known: &Known) -> Result<u64, DeviceError> {
    if let Some(cut) = known.open_cut {
        cut.carry_out(device)?;
    }
    let device_len = device.len()?;
    match known.len {
        Some(len) if len != device_len && growth == Growth::Grows => {
            device.set_len(len)?;
            device.flush()?;
            Ok(len)
        }
        _ => Ok(device_len),
    }
}
