//! What a waiter finds when it looks at its write: whether it is durable, what it could do about it, whether it is hopeless.
//!
//! Relies on the waiter holding the cache state's lock from the look to its sleep.

use crate::cache_state::flush::whole;
use crate::cache_state::{BlockVersion, CacheState, LogItem, WriteTicket};
use crate::error::CacheError;
use crate::ids::{BlockAddr, SequenceNumber, VolumeId};
use crate::policy::{AdmissionFacts, AdmissionReason, admit};
use crate::protocol::Slot;
use crate::tasks::Criticality;
use crate::volume::FlushWanted;

/// Blocks in the way of a write that one look takes in, so that the lock is not held for long. What lies behind them comes
/// when they are on their way.
const MOST_LOOKED_AT: usize = 1024;

/// How far a waiter has seen its write come, so that it doesn't look at all of it at each wake-up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaitProgress {
    /// Before this block everything is durable, and stays so.
    settled: u64,
    /// Before this block only a flush was lacking, or less.
    ready: u64,
    /// The cache state's setbacks when that was found.
    setbacks: u64,
}

/// What keeps a write from being durable, in one walk over its blocks.
#[derive(Default)]
pub(crate) struct WaitSurvey {
    /// What may be written to the log so that the write is settled without the slow device, as far as the policy lets a task
    /// of this standing have it; in order of place.
    pub items: Vec<(LogItem, AdmissionReason)>,
    /// Only a flush of the slow device is lacking.
    pub flush_only: bool,
    /// Versions are on their way to the log, in others' names.
    pub logging: bool,
    /// Versions are queued, and some of them over blocks in the log.
    queued: bool,
    queued_over_log: bool,
    /// Some of those wait for the log to be told of truncations.
    queued_behind_truncation: bool,
    /// Queued, and no task waits so far.
    calm: Vec<BlockAddr>,
}

impl CacheState {
    fn slots_of(&self, ticket: &WriteTicket, from: u64) -> impl Iterator<Item = (&BlockAddr, &Slot<BlockVersion>)> {
        let addr = |block| BlockAddr { volume: ticket.volume, block };
        self.versions.slots.range(addr(ticket.first.max(from).min(ticket.end))..addr(ticket.end))
    }

    /// Whether the ticket's write is not durable yet.
    pub fn unsettled(&self, ticket: &WriteTicket, progress: &mut WaitProgress) -> bool {
        let first = self.slots_of(ticket, progress.settled).find(|(_, slot)| slot.unsettled(ticket.seqno.0));
        progress.settled = first.map_or(ticket.end, |(addr, _)| addr.block);
        first.is_some() || self.len_unsettled(ticket)
    }

    /// Whether the volume's length, or what an earlier run wrote to it, must be flushed first.
    fn len_unsettled(&self, ticket: &WriteTicket) -> bool {
        self.volumes.get(&ticket.volume).is_some_and(|volume| {
            volume.flush.len_change.is_some_and(|change| change.seqno <= ticket.seqno.0)
                || (volume.flush.unsynced && ticket.is_everything())
        })
    }

    /// Looks at the ticket's write for a task of this standing, which could write about `most` blocks to the log.
    pub fn survey(
        &self,
        ticket: &WriteTicket,
        progress: &mut WaitProgress,
        criticality: Criticality,
        most: usize,
    ) -> WaitSurvey {
        if progress.setbacks != self.numbers.setbacks {
            *progress = WaitProgress { ready: 0, setbacks: self.numbers.setbacks, ..*progress };
        }
        let mut found = WaitSurvey { flush_only: true, ..WaitSurvey::default() };
        // What has been written may still be adopted, by a task that may at all.
        let adopts_written = self.policy.inherits_io() && criticality.any();
        let from = if adopts_written { progress.settled } else { progress.settled.max(progress.ready) };
        let mut in_the_way = 0;
        for (&addr, slot) in self.slots_of(ticket, from) {
            if !slot.unsettled(ticket.seqno.0) {
                continue;
            }
            let lacks_flush = slot.queued.is_none() && slot.logging.is_empty() && slot.written_at().is_some();
            if !lacks_flush {
                if found.flush_only {
                    progress.ready = progress.ready.max(addr.block);
                }
                found.flush_only = false;
                in_the_way += 1;
            }
            found.logging |= !slot.logging.is_empty();
            if let Some(queued) = &slot.queued {
                found.queued = true;
                found.queued_over_log |= self.log.logged.contains_key(&addr);
                let volume = self.volumes.get(&addr.volume);
                found.queued_behind_truncation |= volume.is_some_and(|volume| volume.is_fenced(addr.block));
                if !queued.urgent {
                    found.calm.push(addr);
                }
            }
            if found.items.len() < most {
                found.items.extend(self.adoptable(addr, slot, ticket.seqno, criticality));
            }
            if in_the_way == MOST_LOOKED_AT || (most > 0 && found.items.len() == most) {
                found.flush_only = false;
                break;
            }
        }
        if found.flush_only {
            progress.ready = ticket.end;
        }
        found
    }

    fn adoptable(
        &self,
        addr: BlockAddr,
        slot: &Slot<BlockVersion>,
        seqno: SequenceNumber,
        criticality: Criticality,
    ) -> Option<(LogItem, AdmissionReason)> {
        let (version, oldest) = slot.adoptable()?;
        if self.volumes.get(&addr.volume).is_some_and(|volume| volume.holds_still(addr.block)) {
            return None;
        }
        let mut facts = self.facts(addr, version.content, true, criticality);
        if slot.queued.as_ref().is_none_or(|queued| queued.oldest > seqno.0) {
            // What the ticket needs is under way: only inheritance reaches it.
            if !self.policy.inherits_io() {
                return None;
            }
            facts = AdmissionFacts { is_sync: false, is_log: false, cached: false, slow_dead: false, ..facts };
            facts.reissue = criticality.any();
        }
        let reason = admit(self.policy, &facts);
        let item = || LogItem { addr, version: version.clone(), oldest: SequenceNumber(oldest) };
        reason.is_fast().then(|| (item(), reason))
    }

    /// A task waits for the ticket: what is queued is issued next, what is written is flushed.
    pub fn press(&mut self, ticket: &WriteTicket, survey: &WaitSurvey, task: u64) {
        for &addr in &survey.calm {
            self.with_slot(addr, |slot| {
                if let Some(queued) = &mut slot.queued {
                    queued.urgent = true;
                    queued.task = task;
                }
            });
        }
        let wanted = if survey.flush_only { FlushWanted::Now } else { FlushWanted::Soon };
        if let Some(volume) = self.volumes.get_mut(&ticket.volume)
            && volume.flush.wanted < wanted
        {
            volume.flush.wanted = wanted;
            self.judge_flush(ticket.volume);
        }
    }

    /// Sends what is queued of the volume straight to its device.
    pub fn send_direct(&mut self, id: VolumeId) {
        let addrs: Vec<BlockAddr> = self.versions.waiting.range(whole(id)).copied().collect();
        for addr in addrs {
            self.with_slot(addr, |slot| {
                if let Some(queued) = &mut slot.queued {
                    (queued.direct, queued.urgent) = (true, true);
                }
            });
        }
    }

    /// Why waiting for the ticket makes no sense, if so. Nothing is dropped: the versions stay queued.
    ///
    /// # Errors
    /// That.
    pub fn hopeless(&self, ticket: &WriteTicket, survey: &WaitSurvey) -> Result<(), CacheError> {
        let Some(volume) = self.volumes.get(&ticket.volume) else { return Err(CacheError::Unattached(ticket.volume)) };
        self.check_lost(ticket.volume, volume)?;
        if let Some(cause) = self.fast.dead.as_ref().filter(|_| self.fast.salvaged && survey.queued_over_log) {
            return Err(CacheError::Fast(cause.clone()));
        }
        if let Some(cause) = self.fast.dead.as_ref().filter(|_| survey.queued && self.is_barred(volume)) {
            return Err(CacheError::Fast(cause.clone()));
        }
        if let Some(cause) = volume.dead.as_ref().filter(|_| self.len_unsettled(ticket)) {
            return Err(CacheError::Slow { volume: ticket.volume, cause: cause.clone() });
        }
        match &volume.dead {
            Some(cause) if survey.queued && self.fast.dead.is_some() => {
                Err(CacheError::SlowFull { volume: ticket.volume, cause: cause.clone() })
            }
            Some(_) if survey.queued => self.check_room(ticket.volume),
            None if survey.queued_over_log => self.check_room(ticket.volume),
            None if survey.queued_behind_truncation && !self.may_close_truncation(ticket.volume) => {
                self.check_room(ticket.volume)
            }
            _ => Ok(()),
        }
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

    /// Whether so many blocks more would be too many in memory. What waits for volumes that can't be written to, and for which
    /// the log has no room, does not count for others, as far as [`CacheState::set_aside_blocks`] goes.
    pub fn queue_is_full(&self, id: VolumeId, blocks: usize) -> bool {
        let pending = self.totals.total().saturating_sub(self.set_aside_blocks(id));
        pending > 0 && pending + blocks > self.queue_blocks
    }
}
