//! What a waiter finds when it looks at its write: whether it is durable, what it could do about it, whether it is hopeless.
//!
//! Relies on the waiter holding the cache state's lock from the look to its sleep.

use crate::cache_state::{BlockVersion, CacheState, LogItem, WriteTicket};
use crate::error::CacheError;
use crate::ids::{BlockAddr, SequenceNumber};
use crate::policy::{AdmissionFacts, AdmissionReason, admit};
use crate::protocol::Slot;
use crate::tasks::Criticality;
use crate::volume::FlushWanted;

/// Blocks in the way of a write that one look takes in, so that the lock is not held for long. What lies behind them comes
/// when they are on their way.
const MOST_LOOKED_AT: usize = 1024;

/// How far a waiter has seen its write come, so that it doesn't look at all of it at each wake-up.
#[derive(Clone, Copy, Debug, Default)]
pub struct WaitProgress {
    /// Before this block everything is durable, and stays so.
    settled: u64,
    /// Before this block only a flush was lacking, or less.
    ready: u64,
    /// The cache state's setbacks when that was found.
    setbacks: u64,
}

/// What keeps a write from being durable, in one walk over its blocks.
#[derive(Default)]
pub struct WaitSurvey {
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

impl WriteTicket {
    fn slots<'a>(
        &self,
        cache_state: &'a CacheState,
        from: u64,
    ) -> impl Iterator<Item = (&'a BlockAddr, &'a Slot<BlockVersion>)> + use<'a> {
        let addr = |block| BlockAddr { volume: self.volume, block };
        cache_state.versions.slots.range(addr(self.first.max(from).min(self.end))..addr(self.end))
    }

    /// Whether the write is not durable yet.
    pub fn is_unsettled(&self, cache_state: &CacheState, progress: &mut WaitProgress) -> bool {
        let first = self.slots(cache_state, progress.settled).find(|(_, slot)| slot.unsettled(self.seqno.0));
        progress.settled = first.map_or(self.end, |(addr, _)| addr.block);
        first.is_some() || self.is_len_unsettled(cache_state)
    }

    /// Whether the volume's length, or what an earlier run wrote to it, must be flushed first.
    fn is_len_unsettled(&self, cache_state: &CacheState) -> bool {
        cache_state.volumes.get(&self.volume).is_some_and(|volume| {
            volume.flush.len_change.is_some_and(|change| change.seqno <= self.seqno.0)
                || (volume.flush.unsynced && self.is_everything())
        })
    }

    /// Looks at the write for a task of this standing, which could write about `most` blocks to the log.
    pub fn survey(
        &self,
        cache_state: &CacheState,
        progress: &mut WaitProgress,
        criticality: Criticality,
        most: usize,
    ) -> WaitSurvey {
        if progress.setbacks != cache_state.numbers.setbacks {
            *progress = WaitProgress { ready: 0, setbacks: cache_state.numbers.setbacks, ..*progress };
        }
        let mut found = WaitSurvey { flush_only: true, ..WaitSurvey::default() };
        // What has been written may still be adopted, by a task that may at all.
        let adopts_written = cache_state.policy.inherits_io() && criticality.any();
        let from = if adopts_written { progress.settled } else { progress.settled.max(progress.ready) };
        let mut in_the_way = 0;
        for (&addr, slot) in self.slots(cache_state, from) {
            if !slot.unsettled(self.seqno.0) {
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
                found.queued_over_log |= cache_state.log.logged.contains_key(&addr);
                let volume = cache_state.volumes.get(&addr.volume);
                found.queued_behind_truncation |= volume.is_some_and(|volume| volume.is_fenced(addr.block));
                if !queued.urgent {
                    found.calm.push(addr);
                }
            }
            if found.items.len() < most {
                found.items.extend(adoptable(cache_state, addr, slot, self.seqno, criticality));
            }
            if in_the_way == MOST_LOOKED_AT || (most > 0 && found.items.len() == most) {
                found.flush_only = false;
                break;
            }
        }
        if found.flush_only {
            progress.ready = self.end;
        }
        found
    }

    /// A task waits for the write: what is queued is issued next, what is written is flushed.
    pub fn press(&self, cache_state: &mut CacheState, survey: &WaitSurvey, task: u64) {
        for &addr in &survey.calm {
            cache_state.with_slot(addr, |slot| {
                if let Some(queued) = &mut slot.queued {
                    queued.urgent = true;
                    queued.task = task;
                }
            });
        }
        let wanted = if survey.flush_only { FlushWanted::Now } else { FlushWanted::Soon };
        if let Some(volume) = cache_state.volumes.get_mut(&self.volume)
            && volume.flush.wanted < wanted
        {
            volume.flush.wanted = wanted;
            cache_state.judge_flush(self.volume);
        }
    }

    /// Why waiting for the write makes no sense, if so. Nothing is dropped: the versions stay queued.
    ///
    /// # Errors
    /// That.
    pub fn hopeless(&self, cache_state: &CacheState, survey: &WaitSurvey) -> Result<(), CacheError> {
        let Some(volume) = cache_state.volumes.get(&self.volume) else {
            return Err(CacheError::Unattached(self.volume));
        };
        cache_state.check_lost(self.volume, volume)?;
        if let Some(cause) =
            cache_state.fast.dead.as_ref().filter(|_| cache_state.fast.salvaged && survey.queued_over_log)
        {
            return Err(CacheError::Fast(cause.clone()));
        }
        if let Some(cause) = cache_state.fast.dead.as_ref().filter(|_| survey.queued && cache_state.is_barred(volume)) {
            return Err(CacheError::Fast(cause.clone()));
        }
        if let Some(cause) = volume.dead.as_ref().filter(|_| self.is_len_unsettled(cache_state)) {
            return Err(CacheError::Slow { volume: self.volume, cause: cause.clone() });
        }
        match &volume.dead {
            Some(cause) if survey.queued && cache_state.fast.dead.is_some() => {
                Err(CacheError::SlowFull { volume: self.volume, cause: cause.clone() })
            }
            Some(_) if survey.queued => cache_state.check_room(self.volume),
            None if survey.queued_over_log => cache_state.check_room(self.volume),
            None if survey.queued_behind_truncation && !cache_state.may_close_truncation(self.volume) => {
                cache_state.check_room(self.volume)
            }
            _ => Ok(()),
        }
    }
}

/// What of a block may be written to the log in the name of a task of this standing.
fn adoptable(
    cache_state: &CacheState,
    addr: BlockAddr,
    slot: &Slot<BlockVersion>,
    seqno: SequenceNumber,
    criticality: Criticality,
) -> Option<(LogItem, AdmissionReason)> {
    let (version, oldest) = slot.adoptable()?;
    if cache_state.volumes.get(&addr.volume).is_some_and(|volume| volume.holds_still(addr.block)) {
        return None;
    }
    let mut facts = cache_state.facts(addr, version.content, true, criticality);
    if slot.queued.as_ref().is_none_or(|queued| queued.oldest > seqno.0) {
        // What the ticket needs is under way: only inheritance reaches it.
        if !cache_state.policy.inherits_io() {
            return None;
        }
        facts = AdmissionFacts { is_sync: false, is_log: false, cached: false, slow_dead: false, ..facts };
        facts.reissue = criticality.any();
    }
    let reason = admit(cache_state.policy, &facts);
    let item = || LogItem { addr, version: version.clone(), oldest: SequenceNumber(oldest) };
    reason.is_fast().then(|| (item(), reason))
}
