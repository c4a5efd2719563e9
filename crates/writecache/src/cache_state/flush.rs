//! Flushes of the slow devices: when one begins, and what its end means.
//!
//! A flush begins when a task waits for it, when what it would make durable takes much memory, or after a while. Which
//! volumes that concerns is kept up to date with every change, so that no thread ever looks through all of them.
//!
//! Relies on at most one flush of a volume at a time.

use quire_device::{DeviceError, DeviceOperation};

use crate::cache_state::CacheState;
use crate::ids::{BlockAddr, VolumeId};
use crate::jobs::FlushJob;
use crate::volume::FlushWanted;

/// What was written is flushed after this time even if no task waits: until then its bytes are kept in memory.
pub(super) const FLUSH_AFTER_NS: u64 = 1_000_000_000;
/// A device that was full is tried again after this time: a program may have made room.
const RETRY_AFTER_NS: u64 = 1_000_000_000;

/// All blocks of a volume.
pub(super) fn whole(id: VolumeId) -> std::ops::RangeInclusive<BlockAddr> {
    BlockAddr { volume: id, block: 0 }..=BlockAddr { volume: id, block: u64::MAX }
}

/// Whether a device that answers with this error has lost what it had taken before, and is not believed any more.
fn poisons(error: &DeviceError) -> bool {
    matches!(error.action, DeviceOperation::Flush | DeviceOperation::DurableWrite)
}

impl CacheState {
    /// Keeps account of whether a flush of the volume should begin, and of whether it can be written to at all.
    pub fn judge_flush(&mut self, id: VolumeId) {
        self.judge_refused(id);
        let many = self.queue_blocks / 4;
        let Some(volume) = self.volumes.get_mut(&id) else { return };
        if volume.tally.is_calm() && !volume.flush.is_under_way && !volume.is_unflushed() {
            volume.flush.wanted = FlushWanted::No;
        }
        if volume.flush_is_due(many) {
            self.flush.due.insert(id);
        } else {
            self.flush.due.remove(&id);
        }
    }

    pub(super) fn set_unflushed(&mut self, id: VolumeId, since_ns: Option<u64>) {
        let Some(volume) = self.volumes.get_mut(&id) else { return };
        let old = std::mem::replace(&mut volume.flush.unflushed_since_ns, since_ns);
        old.map(|ns| self.flush.unflushed.remove(&(ns, id)));
        since_ns.map(|ns| self.flush.unflushed.insert((ns, id)));
    }

    /// The next flush, if one is due. `hold_back`: only of what critical tasks wait for.
    pub fn begin_flush(&mut self, now_ns: u64, hold_back: bool) -> Option<FlushJob> {
        use std::ops::Bound::{Excluded, Unbounded};
        let after = (Excluded(self.flush.last), Unbounded);
        let wanted = self.flush.due.range(after).next().or_else(|| self.flush.due.first()).copied();
        let tight = self.totals.written * 2 >= self.queue_blocks.max(1);
        let aged = || {
            let old = self.flush.unflushed.iter().take_while(|(ns, _)| tight || ns + FLUSH_AFTER_NS <= now_ns);
            let idle = |id: &VolumeId| {
                self.volumes.get(id).is_some_and(|volume| {
                    !volume.flush.is_under_way && volume.alive().is_some() && volume.is_unflushed()
                })
            };
            old.map(|(_, id)| *id).find(idle)
        };
        let hasty = || self.flush.due.iter().find(|id| self.is_hasty(**id)).copied();
        let id = if hold_back { hasty() } else { wanted.or_else(aged) }?;
        self.flush.last = id;
        self.set_unflushed(id, None);
        let volume = self.volumes.get_mut(&id)?;
        volume.flush.epoch += 1;
        volume.flush.is_under_way = true;
        volume.flush.wanted = FlushWanted::No;
        self.stats.slow_flushes += 1;
        let (device, epoch, incarnation) = (volume.device.clone()?, volume.flush.epoch, volume.incarnation);
        self.judge_flush(id);
        Some(FlushJob { volume: id, incarnation, device, epoch })
    }

    /// The flush has ended. A flush may settle very many versions, and others need the cache state meanwhile: about `most` are
    /// settled, from block `from` on (0 at first), and the block to go on with is returned. `None`: that was all.
    pub fn finish_flush(
        &mut self,
        job: &FlushJob,
        result: &Result<(), DeviceError>,
        now_ns: u64,
        from: u64,
        most: usize,
    ) -> Option<u64> {
        let id = job.volume;
        let volume = self.volumes.get_mut(&id).filter(|volume| volume.incarnation == job.incarnation)?;
        if let Err(error) = result {
            volume.flush.is_under_way = false;
            self.lose_slow(id, error, now_ns);
            return None;
        }
        if volume.dead.is_none() {
            let range = BlockAddr { volume: id, block: from }..=BlockAddr { volume: id, block: u64::MAX };
            let addrs: Vec<BlockAddr> = self.versions.written.range(range).take(most.max(1)).copied().collect();
            for addr in &addrs {
                self.with_slot(*addr, |slot| slot.flushed(job.epoch));
            }
            if let Some(last) = addrs.last().filter(|_| addrs.len() == most.max(1)) {
                return Some(last.block + 1);
            }
        }
        if let Some(volume) = self.volumes.get_mut(&id) {
            volume.flush.is_under_way = false;
            if volume.dead.is_none() {
                volume.flush.unsynced = false;
                volume.flush.len_change = volume.flush.len_change.filter(|change| change.epoch >= job.epoch);
            }
            if volume.tally.written > 0 && volume.flush.unflushed_since_ns.is_none() {
                self.set_unflushed(id, Some(now_ns));
            }
        }
        self.judge_flush(id);
        None
    }

    /// A slow device is dead: what it was to get, and what it got and was not flushed, goes to the log.
    pub fn lose_slow(&mut self, id: VolumeId, error: &DeviceError, now_ns: u64) {
        let Some(volume) = self.volumes.get_mut(&id) else { return };
        volume.flush.trial = None;
        let dead = volume.dead.get_or_insert_with(|| error.clone());
        if poisons(error) && !poisons(dead) {
            *dead = error.clone();
        }
        if poisons(dead) {
            // Whatever it died of before: what it has lost now, a later flush that goes well would seem to have made durable.
            self.set_retry(id, None);
        } else if error.is_full() {
            self.set_retry(id, Some(now_ns.saturating_add(RETRY_AFTER_NS)));
        }
        let addrs: Vec<BlockAddr> = self.versions.written.range(whole(id)).copied().collect();
        for addr in addrs {
            self.with_slot(addr, |slot| slot.unwrite(now_ns));
        }
        self.numbers.setbacks += 1;
        self.set_unflushed(id, None);
        self.judge_flush(id);
    }

    /// Volumes that died because they were full are tried again after a while. A trial ends after as long if a task waits and
    /// the device got nothing: it may wait for what never comes, such as room in the log. Whether anything has changed.
    pub fn revive(&mut self, now_ns: u64) -> bool {
        let mut has_changed = false;
        let due: Vec<VolumeId> =
            self.flush.retries.iter().take_while(|(at_ns, _)| *at_ns <= now_ns).map(|(_, id)| *id).collect();
        for id in due {
            self.set_retry(id, None);
            let is_tried_now = self.drains_to(id);
            let Some(volume) = self.volumes.get_mut(&id) else { continue };
            // A change of length that failed, and that the log does not know, must be asked for again.
            let is_full = volume.dead.as_ref().is_some_and(|dead| dead.is_full() && !poisons(dead))
                && volume.flush.len_change.is_none();
            if is_full {
                volume.flush.trial = volume.dead.take();
                self.drain.stuck_on = None;
                self.judge_flush(id);
            } else if let Some(cause) = volume.flush.trial.clone() {
                let is_tried_now = is_tried_now || volume.jobs > 0 || volume.flush.is_under_way;
                if !is_tried_now && volume.tally.urgent > 0 {
                    self.lose_slow(id, &cause, now_ns);
                    has_changed = true;
                    continue;
                }
            } else {
                continue;
            }
            has_changed |= is_full;
            self.set_retry(id, Some(now_ns.saturating_add(RETRY_AFTER_NS)));
        }
        has_changed
    }

    /// When the volume's device is tried again, or its trial ends: once at a time.
    pub(super) fn set_retry(&mut self, id: VolumeId, at_ns: Option<u64>) {
        let Some(volume) = self.volumes.get_mut(&id) else { return };
        let old = std::mem::replace(&mut volume.flush.retry_at_ns, at_ns);
        old.map(|ns| self.flush.retries.remove(&(ns, id)));
        at_ns.map(|ns| self.flush.retries.insert((ns, id)));
    }

    /// The volume's device has taken something.
    pub(super) fn has_taken(&mut self, id: VolumeId) {
        if let Some(volume) = self.volumes.get_mut(&id).filter(|volume| volume.flush.trial.is_some()) {
            volume.flush.trial = None;
            self.judge_refused(id);
        }
    }

    /// Blocks of the volume with versions in memory.
    pub(super) fn addrs_of(&self, id: VolumeId) -> Vec<BlockAddr> {
        self.versions.slots.range(whole(id)).map(|(addr, _)| *addr).collect()
    }
}
