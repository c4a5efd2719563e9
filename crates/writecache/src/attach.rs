//! Attaching a volume, and giving one up.
//!
//! Relies on what a crash left of a truncation being carried out before anything of the volume is read or written.

use std::sync::Arc;

use quire_device::{Device, DeviceError};

use crate::cache_state::PendingRecord;
use crate::config::{VolumeLength, VolumeSpec};
use crate::error::CacheError;
use crate::format::RecordKind;
use crate::ids::{BLOCK_BYTES, VolumeId};
use crate::pending_truncations::OpenTruncation;
use crate::shared::SharedCache;
use crate::volume::Volume;

/// What is known of a volume before it is attached.
struct Known {
    /// Truncations that its device may lack.
    open_truncation: Option<OpenTruncation>,
    /// Its length, if another device was attached before.
    len: Option<u64>,
}

fn is_taken(volume: &Volume) -> bool {
    volume.leaving || (volume.device.is_some() && volume.dead.is_none())
}

impl SharedCache {
    /// Attaches a device: a new volume, one that the log names, or the replacement of a dead one.
    pub(crate) fn attach(&self, spec: &VolumeSpec) -> Result<(), CacheError> {
        self.attach_open(spec)?;
        self.close_truncation(spec.id);
        Ok(())
    }

    /// As [`SharedCache::attach`], but the log is not told yet of truncations that were carried out.
    pub(crate) fn attach_open(&self, spec: &VolumeSpec) -> Result<(), CacheError> {
        let failed = |cause: DeviceError| CacheError::Slow { volume: spec.id, cause };
        let (mut cache_state, known, device_len) = loop {
            let known = self.await_attachable(spec.id)?;
            let device_len = prepare(&*spec.device, spec.growth, &known).map_err(failed)?;
            let cache_state = self.cache_state();
            if cache_state.volumes.get(&spec.id).is_some_and(is_taken) {
                return Err(CacheError::Attached(spec.id));
            }
            // Unless it was truncated meanwhile, or a record is on its way that says the same of it once more: that would have the
            // device truncated again after a crash.
            let volume = cache_state.volumes.get(&spec.id);
            let is_same = volume.and_then(|volume| volume.truncations.open()) == known.open_truncation;
            if is_same && !volume.is_some_and(|volume| volume.truncations.is_under_way()) {
                break (cache_state, known, device_len);
            }
        };
        let (incarnation, unsynced) = (cache_state.next_incarnation(), cache_state.flush.unsynced);
        let tasks = &self.config.tasks;
        let volume = cache_state.volumes.entry(spec.id).or_insert_with(|| Volume::new(None, spec.growth, 0, tasks));
        volume.plug(Arc::clone(&spec.device), spec.growth, device_len, incarnation);
        volume.flush.unsynced = unsynced || known.len.is_some();
        if let Some(truncation) = known.open_truncation {
            cache_state.truncations_are_carried_out(spec.id, truncation.end_lsn);
        }
        cache_state.unstick();
        cache_state.salvage_again();
        cache_state.judge_flush(spec.id);
        drop(cache_state);
        self.rouse();
        Ok(())
    }

    /// Waits until write-back has done with the volume's old device, and what truncations concern, too.
    fn await_attachable(&self, id: VolumeId) -> Result<Known, CacheError> {
        let mut cache_state = self.cache_state();
        loop {
            let Some(volume) = cache_state.volumes.get(&id) else {
                return Ok(Known { open_truncation: None, len: None });
            };
            if is_taken(volume) {
                return Err(CacheError::Attached(id));
            }
            let open_truncation = volume.truncations.open();
            // The device may be the same one, opened anew: what a truncation took away while it was under way must not land
            // there after the truncation, nor an older one after what is written next.
            let is_moving =
                |truncation: OpenTruncation| cache_state.is_moving_beyond(id, truncation.floor / BLOCK_BYTES as u64);
            let is_cutting = volume.truncations.is_under_way() || open_truncation.is_some_and(is_moving);
            if !is_cutting && (volume.device.is_none() || !cache_state.drains_to(id)) {
                let len = volume.device.is_some().then_some(volume.len);
                return Ok(Known { open_truncation, len });
            }
            cache_state = self.wait_log_changed(cache_state);
        }
    }

    /// Forgets everything about a volume that is being removed. Writes of it that are under way end when they end.
    pub(crate) fn forget(&self, id: VolumeId) -> Result<(), CacheError> {
        let mut cache_state = self.cache_state();
        while cache_state.is_logging_beyond(id, 0) || cache_state.volumes.get(&id).is_some_and(|volume| volume.leaving)
        {
            cache_state = self.wait_log_changed(cache_state);
        }
        let Some(volume) = cache_state.volumes.get_mut(&id) else { return Ok(()) };
        volume.leaving = true;
        volume.device = None;
        let has_blocks = volume.logged_blocks > 0;
        // Write-back need not wait for its blocks any more, whatever becomes of the record.
        let named = cache_state.forget_truncations(id) || has_blocks;
        cache_state.drop_versions(id);
        cache_state.forget_beyond(id, 0);
        cache_state.unstick();
        cache_state.untold.forgetting.insert(id, PendingRecord::new(named));
        drop(cache_state);
        while !self.try_forget(id) {
            let mut cache_state = self.cache_state();
            if !cache_state.untold.forgetting.contains_key(&id)
                || cache_state.no_room_ever()
                || cache_state.fast.dead.is_some()
            {
                // Until the log knows, the number can't be attached again; write-back sees to it.
                break;
            }
            cache_state.drain_now();
            self.call_drain();
            drop(self.wait_log_changed(cache_state));
        }
        Ok(())
    }

    /// Tries to say in the log that a volume is gone, which makes its earlier records void; whether it is done.
    fn try_forget(&self, id: VolumeId) -> bool {
        let mut cache_state = self.cache_state();
        let Some(&PendingRecord { what: named, busy }) = cache_state.untold.forgetting.get(&id) else { return true };
        if busy {
            return false;
        }
        if named && !cache_state.fast.abandoned {
            if cache_state.fast.dead.is_some() {
                return false;
            }
            let Ok(job) = cache_state.begin_control(RecordKind::Forget, id, 0, None, self.now_ns()) else {
                return false;
            };
            cache_state.untold.forgetting.insert(id, PendingRecord { what: named, busy: true });
            drop(cache_state);
            self.run_log(&job, self.criticality(crate::critical::current()));
            cache_state = self.cache_state();
            if cache_state.fast.dead.is_some() && !cache_state.fast.abandoned {
                cache_state.untold.forgetting.insert(id, PendingRecord::new(named));
                return false;
            }
        }
        cache_state.remove_volume(id);
        drop(cache_state);
        self.rouse();
        true
    }

    /// Tries again what could not be said for lack of room.
    pub(crate) fn finish_forgetting(&self) {
        let ids: Vec<VolumeId> = self.cache_state().untold.forgetting.keys().copied().collect();
        for id in ids {
            self.try_forget(id);
        }
    }
}

/// Makes the device as long as the cache knows it to be. Returns its length.
fn prepare(device: &dyn Device, growth: VolumeLength, known: &Known) -> Result<u64, DeviceError> {
    if let Some(truncation) = known.open_truncation {
        truncation.carry_out(device)?;
    }
    let device_len = device.len()?;
    match known.len {
        Some(len) if len != device_len && growth == VolumeLength::Growable => {
            device.set_len(len)?;
            device.flush()?;
            Ok(len)
        }
        _ => Ok(device_len),
    }
}
