//! Writing to the log: places for records, and what changes when they are there.
//!
//! A truncation counts when its record is durable; the slow device follows in a job of its own, for all truncations that
//! came by then. That waits for what is under way to the device behind the lowest of their lengths, and nothing else is
//! begun there meanwhile. When the device has them, the log is told.
//!
//! Relies on [`LogJob`] being finished once, whatever its result, and on one writer of a volume at a time (its order), so that
//! nothing behind a truncation is written while its record is.

use std::sync::OnceLock;

use quire_device::DeviceError;

use crate::cache_state::{BlockVersion, CacheState, Entry, EntryState, IssueRules, PendingRecord, SALVAGED};
use crate::format::{MOST_BLOCKS, RecordKind, record_bytes};
use crate::ids::{BLOCK_BYTES, BlockAddr, SequenceNumber, VolumeId};
use crate::jobs::{LogJob, RecordDraft, TruncateJob};
use crate::policy::AdmissionReason;
use crate::protocol::Slot;
use crate::ring::{LogExtent, NoRoom, RecordPurpose};
use crate::stats::ContentKind;

/// Most blocks that one job writes to the log.
const JOB_BLOCKS: usize = MOST_BLOCKS as usize;

/// A version for the log.
#[derive(Clone, Debug)]
pub struct LogItem {
    /// Its block.
    pub addr: BlockAddr,
    /// Its bytes.
    pub version: BlockVersion,
    /// The oldest write that it stands for.
    pub oldest: SequenceNumber,
}

/// What became of an attempt to write to the log.
pub enum AppendOutcome {
    /// The first `taken` items have a place; the job writes them.
    Job {
        /// To be run and finished.
        job: LogJob,
        /// How many items it writes.
        taken: usize,
    },
    /// None has.
    NoRoom(NoRoom),
}

impl CacheState {
    /// Gives places in the log to as many of `items` (sorted by place) as fit into one job. `privileged`: a critical task
    /// waits, or the order demands it.
    pub fn begin_log(
        &mut self,
        items: &[(LogItem, AdmissionReason)],
        privileged: bool,
        task: u64,
        now_ns: u64,
    ) -> AppendOutcome {
        let mut drafts = Vec::new();
        let (mut taken, mut is_awaited) = (0, false);
        while taken < items.len().min(JOB_BLOCKS) {
            if self.is_over_share(items[taken].0.addr.volume) {
                if drafts.is_empty() {
                    return AppendOutcome::NoRoom(NoRoom::Full);
                }
                break;
            }
            let mut count = run_len(&items[taken..items.len().min(JOB_BLOCKS)]).min(self.most_record_blocks());
            is_awaited |=
                items[taken..taken + count].iter().any(|(item, _)| self.versions.slots.contains_key(&item.addr));
            let begun = loop {
                match self.begin_record(&items[taken..taken + count], privileged, now_ns) {
                    // Nothing will be freed: the rest of the log is used up, so that it is certain that no more fits.
                    Err(NoRoom::Full) if drafts.is_empty() && count > 1 && self.stuck_on().is_some() => count /= 2,
                    begun => break begun,
                }
            };
            match begun {
                Ok(draft) => drafts.push(draft),
                Err(no_room) if drafts.is_empty() => return AppendOutcome::NoRoom(no_room),
                Err(_) => break,
            }
            let run = &items[taken..taken + count];
            for (item, reason) in run {
                self.trace.note(item.addr, *reason, task, now_ns);
                self.count_critical(*reason, item.version.content);
            }
            taken += count;
        }
        AppendOutcome::Job { job: self.log_job(drafts, is_awaited), taken }
    }

    fn begin_record(
        &mut self,
        run: &[(LogItem, AdmissionReason)],
        privileged: bool,
        now_ns: u64,
    ) -> Result<RecordDraft, NoRoom> {
        let (first, count) = (run[0].0.addr, run.len() as u32);
        let purpose = if privileged { RecordPurpose::Privileged } else { RecordPurpose::Ordinary };
        let span = self.log.ring.take(record_bytes(self.log.granule_bytes, count), purpose)?;
        let LogExtent { lsn, end, previous_end, settled } = span;
        // No further than these blocks reach: what lies between them and the end may never become durable.
        let reach = first.plus(u64::from(count)).offset();
        let volume_len = self.volumes.get(&first.volume).map_or(0, |volume| volume.len.min(reach));
        let (kind, state) = (RecordKind::Write, EntryState::Writing);
        self.log.records.push_back(Entry { lsn, end, kind, first, count, volume_len, state, since_ns: now_ns });
        for (index, (item, _)) in run.iter().enumerate() {
            let position = self.position(lsn, index);
            let (version, oldest) = (item.version.clone(), item.oldest.0);
            self.with_slot(item.addr, |slot| slot.begin_log(position, version, oldest));
        }
        let pieces = run.iter().map(|(item, _)| item.version.piece.clone()).collect();
        Ok(RecordDraft {
            lsn,
            end,
            previous_end,
            settled,
            kind: RecordKind::Write,
            first,
            volume_len,
            done_lsn: 0,
            floor: 0,
            pieces,
        })
    }

    /// Most blocks of one record: a log must be able to take it wherever it begins.
    pub fn most_record_blocks(&self) -> usize {
        let blocks = self.log.ring.most_record_bytes().saturating_sub(self.log.granule_bytes) / BLOCK_BYTES as u64;
        blocks.clamp(1, u64::from(MOST_BLOCKS)) as usize
    }

    /// A record that says something about a volume; a truncation may hold the block in which the volume ends from now on.
    ///
    /// # Errors
    /// There is no room for it now.
    pub fn begin_control(
        &mut self,
        kind: RecordKind,
        volume: VolumeId,
        len: u64,
        last: Option<&LogItem>,
        now_ns: u64,
    ) -> Result<LogJob, NoRoom> {
        let count = u32::from(last.is_some());
        let span = self.log.ring.take(record_bytes(self.log.granule_bytes, count), RecordPurpose::Privileged)?;
        let LogExtent { lsn, end, previous_end, settled } = span;
        let state = EntryState::Writing;
        let first = last.map_or(BlockAddr { volume, block: 0 }, |item| item.addr);
        self.log.records.push_back(Entry { lsn, end, kind, first, count, volume_len: len, state, since_ns: now_ns });
        if let Some(LogItem { addr, version, oldest }) = last {
            let (position, version, oldest) = (self.position(lsn, 0), version.clone(), oldest.0);
            self.with_slot(*addr, |slot| slot.begin_log(position, version, oldest));
        }
        let pieces = last.map(|item| item.version.piece.clone()).into_iter().collect();
        let draft = RecordDraft {
            lsn,
            end,
            previous_end,
            settled,
            kind,
            first,
            volume_len: len,
            done_lsn: 0,
            floor: 0,
            pieces,
        };
        Ok(self.log_job(vec![draft], true))
    }

    pub(super) fn log_job(&self, drafts: Vec<RecordDraft>, is_awaited: bool) -> LogJob {
        let (identity, granule, area) = (self.log.identity, self.log.granule_bytes, self.log.ring.area_bytes());
        LogJob { drafts, identity, granule, area, is_awaited, is_relocation: false, sums: OnceLock::new() }
    }

    /// The job has ended.
    pub fn finish_log(&mut self, job: &LogJob, result: &Result<(), DeviceError>, now_ns: u64) {
        if result.is_ok() {
            self.note_sums(job);
        }
        for draft in &job.drafts {
            self.log.ring.finish(draft.lsn);
            let ok = result.is_ok();
            if let Ok(index) = self.log.records.binary_search_by_key(&draft.lsn, |entry| entry.lsn) {
                self.log.records[index].state = if ok { EntryState::Durable } else { EntryState::Void };
            }
            for index in 0..draft.pieces.len() {
                let (addr, position) = (draft.first.plus(index as u64), self.position(draft.lsn, index));
                if job.is_relocation {
                    self.finish_relocated_block(addr, position, ok);
                } else if ok {
                    self.with_slot(addr, |slot| slot.logged(position));
                    self.map_block(addr, position);
                } else {
                    self.with_slot(addr, |slot| slot.log_failed(position, now_ns));
                    // It may be there all the same, and be found if the device comes back: nothing newer may go to the
                    // slow device before the log is known to be abandoned.
                    self.close_block(addr);
                }
            }
            match draft.kind {
                RecordKind::Truncate if ok => self.apply_truncation(draft.first.volume, draft.volume_len, draft.end),
                RecordKind::Truncate => self.doubt_truncation(draft.first.volume),
                RecordKind::OpenTruncation => self.finish_relocated_truncation(draft.first.volume, draft.end, ok),
                RecordKind::TruncateDone => self.finish_truncate_done(draft.first.volume, draft.done_lsn, ok),
                _ => {}
            }
            if ok {
                let bytes = (draft.pieces.len() * BLOCK_BYTES) as u64;
                let counter =
                    if job.is_relocation { &mut self.stats.relocated_bytes } else { &mut self.stats.logged_bytes };
                *counter += bytes;
                self.stats.fast_bytes += draft.end - draft.lsn;
            }
        }
        if let Err(error) = result {
            self.numbers.setbacks += 1;
            self.fast.dead.get_or_insert_with(|| error.clone());
        }
    }

    fn note_sums(&mut self, job: &LogJob) {
        for (draft, sums) in job.drafts.iter().zip(job.sums.get().into_iter().flatten()) {
            let first = self.position(draft.lsn, 0);
            self.log.sums.note(first, sums.clone());
        }
    }

    fn close_block(&mut self, addr: BlockAddr) {
        if let std::collections::btree_map::Entry::Vacant(vacant) = self.log.logged.entry(addr) {
            vacant.insert(SALVAGED);
            if let Some(volume) = self.volumes.get_mut(&addr.volume) {
                volume.logged_blocks += 1;
            }
            self.judge_refused(addr.volume);
        }
    }

    fn map_block(&mut self, addr: BlockAddr, position: u64) {
        match self.log.logged.get_mut(&addr) {
            // A record may still come through while the device is being given up.
            Some(older) if *older == SALVAGED => *older = position,
            Some(older) => {
                *older = position.max(*older);
                self.stats.absorbed_bytes += BLOCK_BYTES as u64;
            }
            None => {
                self.log.logged.insert(addr, position);
                if let Some(volume) = self.volumes.get_mut(&addr.volume) {
                    volume.logged_blocks += 1;
                }
                self.judge_refused(addr.volume);
            }
        }
    }

    /// Forgets what the cache holds of a volume beyond `blocks`; nothing of it may be on its way to the log.
    pub fn forget_beyond(&mut self, volume: VolumeId, blocks: u64) {
        let range = BlockAddr { volume, block: blocks }..=BlockAddr { volume, block: u64::MAX };
        let gone: Vec<BlockAddr> = self.log.logged.range(range.clone()).map(|(addr, _)| *addr).collect();
        for addr in &gone {
            self.log.logged.remove(addr);
        }
        if let Some(volume) = self.volumes.get_mut(&volume) {
            volume.logged_blocks -= gone.len() as u64;
            volume.tail.forget();
        }
        self.judge_refused(volume);
        self.drop_queued(volume, blocks);
    }

    /// Forgets every version of the volume that is in memory: its device is being removed.
    pub fn drop_versions(&mut self, volume: VolumeId) {
        for addr in self.addrs_of(volume) {
            self.with_slot(addr, |slot| {
                slot.queued = None;
                slot.flight = None;
            });
        }
    }

    /// Whether a version of the volume beyond `blocks` is on its way to the log, be it one that a newer one has overtaken
    /// there: when its record ends, that is mapped.
    pub fn is_logging_beyond(&self, volume: VolumeId, blocks: u64) -> bool {
        self.log.ring.unfinished().any(|lsn| {
            let entry =
                self.log.records.binary_search_by_key(&lsn, |entry| entry.lsn).map(|index| self.log.records[index]);
            entry.is_ok_and(|entry| {
                entry.first.volume == volume && entry.count > 0 && entry.first.block + u64::from(entry.count) > blocks
            })
        })
    }

    /// Forgets versions beyond `blocks`: the truncation makes them void.
    pub fn drop_queued(&mut self, volume: VolumeId, blocks: u64) {
        let range = BlockAddr { volume, block: blocks }..=BlockAddr { volume, block: u64::MAX };
        let addrs: Vec<BlockAddr> = self.versions.slots.range(range).map(|(addr, _)| *addr).collect();
        for addr in addrs {
            self.with_slot(addr, Slot::truncate_away);
        }
    }

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
    fn apply_truncation(&mut self, id: VolumeId, len: u64, end_lsn: u64) {
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
    fn doubt_truncation(&mut self, id: VolumeId) {
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
    fn finish_truncate_done(&mut self, id: VolumeId, upto_lsn: u64, ok: bool) {
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

    pub(super) fn position(&self, lsn: u64, index: usize) -> u64 {
        lsn + self.log.granule_bytes + (index * BLOCK_BYTES) as u64
    }

    fn count_critical(&mut self, reason: AdmissionReason, content: ContentKind) {
        let writes = &mut self.stats.critical_writes;
        match reason {
            AdmissionReason::CriticalTask => writes.direct_blocks[content as usize] += 1,
            AdmissionReason::InheritedTask => writes.inherited_blocks[content as usize] += 1,
            AdmissionReason::InheritedIo => writes.reissued_blocks[content as usize] += 1,
            _ => {}
        }
    }
}

/// How many items from the first on lie side by side.
fn run_len(items: &[(LogItem, AdmissionReason)]) -> usize {
    let first = items[0].0.addr;
    items.iter().enumerate().take_while(|(index, (item, _))| item.addr == first.plus(*index as u64)).count()
}
