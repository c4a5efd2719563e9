//! Cuts: what they take away, when the slow device is cut, and when the log is told of it.
//!
//! A cut counts when its record is durable; the slow device follows in a job of its own, for all cuts that came by then. That
//! waits for what is under way to the device behind the lowest of their lengths, and nothing else is begun there meanwhile.
//!
//! Relies on one writer of a volume at a time (its order), so that nothing behind a cut is written while its record is.

use quire_device::DeviceError;

use crate::format::Kind;
use crate::ids::{BLOCK_BYTES, Place, VolumeId};
use crate::jobs::{CutJob, LogJob};
use crate::ledger::{Errand, IssueRules, Ledger};

impl Ledger {
    /// Whether anything of the volume beyond `blocks` is under way to its device.
    pub fn is_moving_beyond(&self, volume: VolumeId, blocks: u64) -> bool {
        let first = Place { volume, block: blocks };
        let drained = self.drain.step.is_some_and(|(_, last)| last.volume == volume && last >= first);
        let tally = self.volumes.get(&volume).map(|volume| volume.tally).unwrap_or_default();
        let range = first..=Place { volume, block: u64::MAX };
        drained || tally.issued + tally.overtaken > 0 && self.slots.range(range).any(|(_, slot)| slot.in_flight())
    }

    /// The record of a cut, which ends at `end_lsn`, is durable: the volume has `len` bytes from now on.
    pub(super) fn apply_cut(&mut self, id: VolumeId, len: u64, end_lsn: u64) {
        self.forget_beyond(id, len.div_ceil(BLOCK_BYTES as u64));
        if let Some(volume) = self.volumes.get_mut(&id) {
            volume.len = len;
            volume.cuts.push(len, end_lsn);
            self.open_cuts.insert(id);
        }
    }

    /// The record of a cut may be in the dead log or not. That holds from now on, whatever becomes of whoever wanted the cut.
    pub(super) fn doubt_cut(&mut self, id: VolumeId) {
        if let Some(volume) = self.volumes.get_mut(&id) {
            volume.cuts.is_uncertain = true;
        }
    }

    /// The next cut of a slow device, if there is one that need not wait.
    pub(super) fn begin_cut(&mut self, rules: &IssueRules) -> Option<CutJob> {
        let id = self.open_cuts.iter().copied().find(|id| self.may_cut(*id, rules))?;
        let volume = self.volumes.get_mut(&id)?;
        let (device, cut, incarnation) = (volume.alive()?.clone(), volume.cuts.open()?, volume.incarnation);
        volume.cuts.begin();
        volume.jobs += 1;
        self.jobs += 1;
        Some(CutJob { volume: id, incarnation, device, cut })
    }

    fn may_cut(&self, id: VolumeId, rules: &IssueRules) -> bool {
        let Some(volume) = self.volumes.get(&id) else { return false };
        let Some(cut) = volume.cuts.open() else { return false };
        let is_waited_for = self.is_hasty(id) || self.drain.wanted || self.fast_dead.is_some();
        let makes_way = rules.hold_back && !is_waited_for;
        let ready = volume.alive().is_some() && !volume.cuts.is_under_way() && !makes_way && !self.is_busy(id, rules);
        ready && !self.is_moving_beyond(id, cut.floor / BLOCK_BYTES as u64)
    }

    /// The job has ended.
    pub fn finish_cut(&mut self, job: &CutJob, result: &Result<(), DeviceError>, now_ns: u64) {
        let id = job.volume;
        self.jobs -= 1;
        let ours = self.volumes.get_mut(&id).filter(|volume| volume.incarnation == job.incarnation);
        let Some(volume) = ours else { return };
        volume.jobs -= 1;
        volume.cuts.end();
        match result {
            Ok(()) if volume.dead.is_none() => self.cuts_are_carried_out(id, job.cut.end_lsn),
            // To be carried out on the device that takes its place.
            Ok(()) => {}
            Err(error) => self.lose_slow(id, error, now_ns),
        }
    }

    /// The volume's device has its cuts up to this one, durably; the log is to be told.
    pub fn cuts_are_carried_out(&mut self, id: VolumeId, upto_lsn: u64) {
        let Some(volume) = self.volumes.get_mut(&id) else { return };
        volume.cuts.carried_out(upto_lsn);
        if volume.cuts.open().is_none() {
            self.open_cuts.remove(&id);
        }
        if let Some(untold) = volume.cuts.untold().filter(|_| self.fast_dead.is_none()) {
            self.closing.entry(id).and_modify(|errand| errand.what = untold).or_insert(Errand::new(untold));
        }
    }

    /// The record that tells the log of cuts of the volume that are on its device. `None`: there are none, somebody is about it, or
    /// there is no room.
    pub fn begin_cut_done(&mut self, id: VolumeId, now_ns: u64) -> Option<LogJob> {
        if self.fast_dead.is_some() {
            // They stay pending until that log is abandoned.
            self.closing.remove(&id);
        }
        let untold = self.closing.get(&id).filter(|errand| !errand.busy)?.what;
        let mut job = self.begin_control(Kind::CutDone, id, 0, None, now_ns).ok()?;
        job.drafts.iter_mut().for_each(|draft| draft.done_lsn = untold);
        self.closing.insert(id, Errand { what: untold, busy: true });
        Some(job)
    }

    /// Whether nothing keeps the log from being told of the volume's cuts, or there is nothing to be told yet.
    pub(super) fn may_close_cut(&self, id: VolumeId) -> bool {
        let is_waiting = self.closing.get(&id).is_some_and(|errand| !errand.busy);
        !is_waiting || self.ring.has_room_reserved(self.granule_bytes)
    }

    /// The record has ended.
    pub(super) fn finish_cut_done(&mut self, id: VolumeId, upto_lsn: u64, ok: bool) {
        if ok {
            self.close_cuts(id, upto_lsn);
        }
        if let Some(errand) = self.closing.get_mut(&id) {
            errand.busy = false;
            if !ok || errand.what <= upto_lsn {
                self.closing.remove(&id);
            }
        }
    }

    /// The log's tail has passed the record of a cut, which ends at `end_lsn`.
    pub(super) fn pass_cut(&mut self, id: VolumeId, end_lsn: u64) {
        self.close_cuts(id, end_lsn);
        if self.closing.get(&id).is_some_and(|errand| !errand.busy && errand.what <= end_lsn) {
            self.closing.remove(&id);
        }
    }

    fn close_cuts(&mut self, id: VolumeId, upto_lsn: u64) {
        if let Some(volume) = self.volumes.get_mut(&id) {
            volume.cuts.close(upto_lsn);
        }
    }

    /// Nothing is known of the volume's cuts any more. Whether there were any.
    pub fn forget_cuts(&mut self, id: VolumeId) -> bool {
        self.open_cuts.remove(&id);
        self.closing.remove(&id);
        let Some(volume) = self.volumes.get_mut(&id) else { return false };
        let had_any = !volume.cuts.is_empty();
        volume.cuts.clear();
        had_any
    }

    /// Volumes whose slow devices lack cuts.
    pub fn open_cuts(&self) -> usize {
        self.open_cuts.len()
    }

    /// Whether slow devices lack cuts.
    pub fn has_open_cuts(&self) -> bool {
        !self.open_cuts.is_empty()
    }
}
