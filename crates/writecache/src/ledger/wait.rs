//! What a waiter finds when it looks at its write: whether it is durable, what it could do about it, whether it is hopeless.
//!
//! Relies on the waiter holding the ledger's lock from the look to its sleep.

use crate::error::CacheError;
use crate::ids::{Place, Stamp, VolumeId};
use crate::ledger::flush::whole;
use crate::ledger::{Item, Ledger, Ticket, Version};
use crate::policy::{Facts, Reason, admit};
use crate::protocol::Slot;
use crate::tasks::Standing;
use crate::volume::FlushWanted;

/// Blocks in the way of a write that one look takes in, so that the lock is not held for long. What lies behind them comes
/// when they are on their way.
const MOST_LOOKED_AT: usize = 1024;

/// How far a waiter has seen its write come, so that it doesn't look at all of it at each wake-up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Headway {
    /// Before this block everything is durable, and stays so.
    settled: u64,
    /// Before this block only a flush was lacking, or less.
    ready: u64,
    /// The ledger's setbacks when that was found.
    setbacks: u64,
}

/// What keeps a write from being durable, in one walk over its blocks.
#[derive(Default)]
pub(crate) struct Survey {
    /// What may be written to the log so that the write is settled without the slow device, as far as the policy lets a task
    /// of this standing have it; in order of place.
    pub items: Vec<(Item, Reason)>,
    /// Only a flush of the slow device is lacking.
    pub flush_only: bool,
    /// Versions are on their way to the log, in others' names.
    pub logging: bool,
    /// Versions are queued, and some of them over blocks in the log.
    queued: bool,
    queued_over_log: bool,
    /// Some of those wait for the log to be told of cuts.
    queued_behind_cut: bool,
    /// Queued for nobody so far.
    calm: Vec<Place>,
}

impl Ledger {
    fn slots_of(&self, ticket: &Ticket, from: u64) -> impl Iterator<Item = (&Place, &Slot<Version>)> {
        let place = |block| Place { volume: ticket.volume, block };
        self.slots.range(place(ticket.first.max(from).min(ticket.end))..place(ticket.end))
    }

    /// Whether the ticket's write is not durable yet.
    pub fn unsettled(&self, ticket: &Ticket, headway: &mut Headway) -> bool {
        let first = self.slots_of(ticket, headway.settled).find(|(_, slot)| slot.unsettled(ticket.stamp.0));
        headway.settled = first.map_or(ticket.end, |(place, _)| place.block);
        first.is_some() || self.len_unsettled(ticket)
    }

    /// Whether the volume's length, or what an earlier run wrote to it, must be flushed first.
    fn len_unsettled(&self, ticket: &Ticket) -> bool {
        self.volumes.get(&ticket.volume).is_some_and(|volume| {
            volume.len_change.is_some_and(|change| change.stamp <= ticket.stamp.0)
                || (volume.unsynced && ticket.is_everything())
        })
    }

    /// Looks at the ticket's write for a task of this standing, which could write about `most` blocks to the log.
    pub fn survey(&self, ticket: &Ticket, headway: &mut Headway, standing: Standing, most: usize) -> Survey {
        if headway.setbacks != self.setbacks {
            *headway = Headway { ready: 0, setbacks: self.setbacks, ..*headway };
        }
        let mut found = Survey { flush_only: true, ..Survey::default() };
        // What has been written may still be adopted, by whoever may at all.
        let adopts_written = self.policy.inherits_io() && standing.any();
        let from = if adopts_written { headway.settled } else { headway.settled.max(headway.ready) };
        let mut in_the_way = 0;
        for (&place, slot) in self.slots_of(ticket, from) {
            if !slot.unsettled(ticket.stamp.0) {
                continue;
            }
            let lacks_flush = slot.queued.is_none() && slot.logging.is_empty() && slot.written_at().is_some();
            if !lacks_flush {
                if found.flush_only {
                    headway.ready = headway.ready.max(place.block);
                }
                found.flush_only = false;
                in_the_way += 1;
            }
            found.logging |= !slot.logging.is_empty();
            if let Some(queued) = &slot.queued {
                found.queued = true;
                found.queued_over_log |= self.logged.contains_key(&place);
                let volume = self.volumes.get(&place.volume);
                found.queued_behind_cut |= volume.is_some_and(|volume| volume.is_fenced(place.block));
                if !queued.urgent {
                    found.calm.push(place);
                }
            }
            if found.items.len() < most {
                found.items.extend(self.adoptable(place, slot, ticket.stamp, standing));
            }
            if in_the_way == MOST_LOOKED_AT || (most > 0 && found.items.len() == most) {
                found.flush_only = false;
                break;
            }
        }
        if found.flush_only {
            headway.ready = ticket.end;
        }
        found
    }

    fn adoptable(
        &self,
        place: Place,
        slot: &Slot<Version>,
        stamp: Stamp,
        standing: Standing,
    ) -> Option<(Item, Reason)> {
        let (version, oldest) = slot.adoptable()?;
        if self.volumes.get(&place.volume).is_some_and(|volume| volume.holds_still(place.block)) {
            return None;
        }
        let mut facts = self.facts(place, version.content, true, standing);
        if slot.queued.as_ref().is_none_or(|queued| queued.oldest > stamp.0) {
            // What the ticket needs is under way: only inheritance reaches it.
            if !self.policy.inherits_io() {
                return None;
            }
            facts = Facts { is_sync: false, is_log: false, cached: false, slow_dead: false, ..facts };
            facts.reissue = standing.any();
        }
        let reason = admit(self.policy, &facts);
        let item = || Item { place, version: version.clone(), oldest: Stamp(oldest) };
        reason.is_fast().then(|| (item(), reason))
    }

    /// A task waits for the ticket: what is queued is issued next, what is written is flushed.
    pub fn press(&mut self, ticket: &Ticket, survey: &Survey, task: u64) {
        for &place in &survey.calm {
            self.with_slot(place, |slot| {
                if let Some(queued) = &mut slot.queued {
                    queued.urgent = true;
                    queued.task = task;
                }
            });
        }
        let wanted = if survey.flush_only { FlushWanted::Now } else { FlushWanted::Soon };
        if let Some(volume) = self.volumes.get_mut(&ticket.volume)
            && volume.flush_wanted < wanted
        {
            volume.flush_wanted = wanted;
            self.judge_flush(ticket.volume);
        }
    }

    /// Sends what is queued of the volume straight to its device.
    pub fn send_direct(&mut self, id: VolumeId) {
        let places: Vec<Place> = self.waiting.range(whole(id)).copied().collect();
        for place in places {
            self.with_slot(place, |slot| {
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
    pub fn hopeless(&self, ticket: &Ticket, survey: &Survey) -> Result<(), CacheError> {
        let Some(volume) = self.volumes.get(&ticket.volume) else { return Err(CacheError::Unattached(ticket.volume)) };
        self.check_lost(ticket.volume, volume)?;
        if let Some(cause) = self.fast_dead.as_ref().filter(|_| self.salvaged && survey.queued_over_log) {
            return Err(CacheError::Fast(cause.clone()));
        }
        if let Some(cause) = self.fast_dead.as_ref().filter(|_| survey.queued && self.is_barred(volume)) {
            return Err(CacheError::Fast(cause.clone()));
        }
        if let Some(cause) = volume.dead.as_ref().filter(|_| self.len_unsettled(ticket)) {
            return Err(CacheError::Slow { volume: ticket.volume, cause: cause.clone() });
        }
        match &volume.dead {
            Some(cause) if survey.queued && self.fast_dead.is_some() => {
                Err(CacheError::SlowFull { volume: ticket.volume, cause: cause.clone() })
            }
            Some(_) if survey.queued => self.check_room(ticket.volume),
            None if survey.queued_over_log => self.check_room(ticket.volume),
            None if survey.queued_behind_cut && !self.may_close_cut(ticket.volume) => self.check_room(ticket.volume),
            _ => Ok(()),
        }
    }

    /// Whether something that must go to the log can hope for room there.
    ///
    /// # Errors
    /// It is full, and write-back is stuck at a volume that can't be written to.
    pub fn check_room(&self, id: VolumeId) -> Result<(), CacheError> {
        let Some(stuck_on) = self.drain_state().stuck_on.filter(|_| self.no_room_ever()) else { return Ok(()) };
        let cause = |id| self.volumes.get(&id).and_then(|volume| volume.dead.clone());
        let stuck = cause(id).map(|cause| (id, cause)).or_else(|| cause(stuck_on).map(|cause| (stuck_on, cause)));
        Err(stuck.map_or(CacheError::Unattached(stuck_on), |(volume, cause)| CacheError::SlowFull { volume, cause }))
    }

    /// Whether so many blocks more would be too many in memory. What waits for a volume at which write-back is stuck does
    /// not count for others.
    pub fn queue_is_full(&self, id: VolumeId, blocks: usize) -> bool {
        let stuck = self.drain_state().stuck_on.filter(|stuck| *stuck != id && self.no_room_ever());
        let stuck_blocks = stuck.and_then(|id| self.volumes.get(&id)).map_or(0, |volume| volume.tally.total());
        let pending = self.totals.total().saturating_sub(stuck_blocks);
        pending > 0 && pending + blocks > self.queue_blocks
    }
}
