//! Truncations: what they take away, when the slow device is truncated, and when the log is told of it.
//!
//! A truncation counts when its record is durable; the slow device follows in a job of its own, for all truncations that
//! came by then. That waits for what is under way to the device behind the lowest of their lengths, and nothing else is
//! begun there meanwhile.
//!
//! Relies on one writer of a volume at a time (its order), so that nothing behind a truncation is written while its record is.

use quire_device::DeviceError;

use crate::cache_state::{CacheState, IssueRules, PendingRecord};
use crate::format::RecordKind;
use crate::ids::{BLOCK_BYTES, BlockAddr, VolumeId};
use crate::jobs::{LogJob, TruncateJob};

impl CacheState {
    /// Whether anything of the volume beyond `blocks` is under way to its device.
    pub fn is_moving_beyond(&self, volume: VolumeId, blocks: u64) -> bool {
        let first = BlockAddr { volume, block: blocks };
        let drained = self.drain.step.is_some_and(|(_, last)| last.volume == volume && last >= first);
        let tally = self.volumes.get(&volume).map(|volume| volume.tally).unwrap_or_default();
        let range = first..=BlockAddr { volume, block: u64::MAX };
        drained
            || tally.issued + tally.overtaken > 0 && self.versions.slots.range(range).any(|(_, slot)| slot.in_flight())
    }

    /// The record of a truncation, which ends at `end_lsn`, is durable: the volume has `len` bytes from now on.
    pub(super) fn apply_truncation(&mut self, id: VolumeId, len: u64, end_lsn: u64) {
        self.forget_beyond(id, len.div_ceil(BLOCK_BYTES as u64));
        if let Some(volume) = self.volumes.get_mut(&id) {
            volume.len = len;
            volume.truncations.push(len, end_lsn);
            self.untold.open_truncations.insert(id);
        }
        self.judge_refused(id);
    }

    /// The record of a truncation may be in the dead log or not. That holds from now on, whatever becomes of the task that wanted
    /// the truncation.
    pub(super) fn doubt_truncation(&mut self, id: VolumeId) {
        if let Some(volume) = self.volumes.get_mut(&id) {
            volume.truncations.is_uncertain = true;
        }
    }

    /// The next truncation of a slow device, if there is one that need not wait.
    pub(super) fn begin_truncate(&mut self, rules: &IssueRules) -> Option<TruncateJob> {
        let id = self.untold.open_truncations.iter().copied().find(|id| self.may_truncate(*id, rules))?;
        let volume = self.volumes.get_mut(&id)?;
        let (device, truncation, incarnation) =
            (volume.alive()?.clone(), volume.truncations.open()?, volume.incarnation);
        volume.truncations.begin();
        volume.jobs += 1;
        self.issue.jobs += 1;
        Some(TruncateJob { volume: id, incarnation, device, truncation })
    }

    fn may_truncate(&self, id: VolumeId, rules: &IssueRules) -> bool {
        let Some(volume) = self.volumes.get(&id) else { return false };
        let Some(truncation) = volume.truncations.open() else { return false };
        let is_waited_for = self.is_hasty(id) || self.drain.wanted || self.fast.dead.is_some();
        let makes_way = rules.hold_back && !is_waited_for;
        let ready =
            volume.alive().is_some() && !volume.truncations.is_under_way() && !makes_way && !self.is_busy(id, rules);
        ready && !self.is_moving_beyond(id, truncation.floor / BLOCK_BYTES as u64)
    }

    /// The job has ended.
    pub fn finish_truncate(&mut self, job: &TruncateJob, result: &Result<(), DeviceError>, now_ns: u64) {
        let id = job.volume;
        self.issue.jobs -= 1;
        let ours = self.volumes.get_mut(&id).filter(|volume| volume.incarnation == job.incarnation);
        let Some(volume) = ours else { return };
        volume.jobs -= 1;
        volume.truncations.end();
        match result {
            Ok(()) if volume.dead.is_none() => {
                self.truncations_are_carried_out(id, job.truncation.end_lsn);
                self.has_taken(id);
            }
            // To be carried out on the device that takes its place.
            Ok(()) => {}
            Err(error) => self.lose_slow(id, error, now_ns),
        }
    }

    /// The volume's device has its truncations up to this one, durably; the log is to be told.
    pub fn truncations_are_carried_out(&mut self, id: VolumeId, upto_lsn: u64) {
        let Some(volume) = self.volumes.get_mut(&id) else { return };
        volume.truncations.carried_out(upto_lsn);
        if volume.truncations.open().is_none() {
            self.untold.open_truncations.remove(&id);
        }
        if let Some(untold) = volume.truncations.untold().filter(|_| self.fast.dead.is_none()) {
            self.untold
                .closing
                .entry(id)
                .and_modify(|pending| pending.what = untold)
                .or_insert(PendingRecord::new(untold));
        }
        self.judge_refused(id);
    }

    /// The record that tells the log of truncations of the volume that are on its device. `None`: there are none, a thread is
    /// writing it, or there is no room.
    pub fn begin_truncate_done(&mut self, id: VolumeId, now_ns: u64) -> Option<LogJob> {
        if self.fast.dead.is_some() {
            // They stay pending until that log is abandoned.
            self.untold.closing.remove(&id);
        }
        let untold = self.untold.closing.get(&id).filter(|pending| !pending.busy)?.what;
        let mut job = self.begin_control(RecordKind::TruncateDone, id, 0, None, now_ns).ok()?;
        job.drafts.iter_mut().for_each(|draft| draft.done_lsn = untold);
        self.untold.closing.insert(id, PendingRecord { what: untold, busy: true });
        Some(job)
    }

    /// Whether nothing keeps the log from being told of the volume's truncations, or there is nothing to be told yet.
    pub(super) fn may_close_truncation(&self, id: VolumeId) -> bool {
        let is_waiting = self.untold.closing.get(&id).is_some_and(|pending| !pending.busy);
        !is_waiting || self.log.ring.has_room_reserved(self.log.granule_bytes)
    }

    /// The record has ended.
    pub(super) fn finish_truncate_done(&mut self, id: VolumeId, upto_lsn: u64, ok: bool) {
        if ok {
            self.close_truncations(id, upto_lsn);
        }
        if let Some(pending) = self.untold.closing.get_mut(&id) {
            pending.busy = false;
            if !ok || pending.what <= upto_lsn {
                self.untold.closing.remove(&id);
            }
        }
    }

    /// The log's tail has passed the record of a truncation, which ends at `end_lsn`.
    pub(super) fn pass_truncation(&mut self, id: VolumeId, end_lsn: u64) {
        self.close_truncations(id, end_lsn);
        if self.untold.closing.get(&id).is_some_and(|pending| !pending.busy && pending.what <= end_lsn) {
            self.untold.closing.remove(&id);
        }
    }

    fn close_truncations(&mut self, id: VolumeId, upto_lsn: u64) {
        if let Some(volume) = self.volumes.get_mut(&id) {
            volume.truncations.close(upto_lsn);
        }
    }

    /// Nothing is known of the volume's truncations any more. Whether there were any.
    pub fn forget_truncations(&mut self, id: VolumeId) -> bool {
        self.untold.open_truncations.remove(&id);
        self.untold.closing.remove(&id);
        let Some(volume) = self.volumes.get_mut(&id) else { return false };
        let had_any = !volume.truncations.is_empty();
        volume.truncations.clear();
        self.judge_refused(id);
        had_any
    }

    /// Volumes whose slow devices lack truncations.
    pub fn open_truncations(&self) -> usize {
        self.untold.open_truncations.len()
    }

    /// Whether slow devices lack truncations.
    pub fn has_open_truncations(&self) -> bool {
        !self.untold.open_truncations.is_empty()
    }
}
