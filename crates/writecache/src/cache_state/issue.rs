//! Issuing to the slow devices: which queued versions go there next, which go to the log instead, when a device is to be
//! flushed, and what its failure means.
//!
//! An elevator over all volumes: places in rising order from where the last job ended, runs of neighbours in one piece.
//! What a task waits for comes first, but one job in [`FAIR_SHARE`] takes whatever comes, so that the rest gets on too.
//! Relies on jobs being finished, whatever their result.

use quire_device::{DeviceError, DeviceOperation};

use crate::cache_state::flush::FLUSH_AFTER_NS;
use crate::cache_state::sweep::{Chosen, Round, Sweep};
use crate::cache_state::{AppendOutcome, BlockVersion, CacheState, LogItem};
use crate::format::{MOST_BLOCKS, record_bytes};
use crate::ids::{BLOCK_BYTES, BlockAddr, BlockData, SequenceNumber, VolumeId};
use crate::jobs::{FlushJob, LogJob, SlowJob, SlowTarget, TruncateJob};
use crate::policy::{AdmissionFacts, AdmissionPolicy, AdmissionReason, admit};
use crate::protocol::{CompletionOutcome, Slot};
use crate::stats::ContentKind;
use crate::tasks::{Criticality, TaskId};
use crate::volume::FlushWanted;

/// Versions looked at for one job, so that the lock is not held for long.
const MOST_LOOKED_AT: usize = 4096;
/// One job in so many is for everything that is due, however many wait for something else.
const FAIR_SHARE: u64 = 4;
/// A device that was full is tried again after this time: a program may have made room.
const RETRY_AFTER_NS: u64 = 1_000_000_000;

/// When and how much to issue.
#[derive(Clone, Copy, Debug)]
pub struct IssueRules {
    /// How long a version may wait if no task waits for it.
    pub linger_ns: u64,
    /// Most bytes in memory; from half of that on nothing lingers.
    pub queue_bytes: usize,
    /// Most separate runs in one job.
    pub runs_per_job: usize,
    /// Most jobs under way on one volume.
    pub jobs_per_volume: usize,
    /// Issue everything now.
    pub everything: bool,
    /// A critical task waits for a slow device: begin nothing else there.
    pub hold_back: bool,
}

/// Work for an issuer.
pub enum NextJob {
    /// To the log.
    Log(LogJob),
    /// To a slow device.
    Slow(SlowJob),
    /// Make durable what a slow device has.
    Flush(FlushJob),
    /// Truncate a slow device.
    Truncate(TruncateJob),
}

/// Whether a device that answers with this error has lost what it had taken before, and is not believed any more.
fn poisons(error: &DeviceError) -> bool {
    matches!(error.action, DeviceOperation::Flush | DeviceOperation::DurableWrite)
}

/// All blocks of a volume.
pub(super) fn whole(id: VolumeId) -> std::ops::RangeInclusive<BlockAddr> {
    BlockAddr { volume: id, block: 0 }..=BlockAddr { volume: id, block: u64::MAX }
}

/// How the task stands; neighbours are mostly of the same one, and `known` says how the last one stands.
fn standing(
    known: &mut Option<(u64, Criticality)>,
    task: u64,
    criticality: &dyn Fn(TaskId) -> Criticality,
) -> Criticality {
    match known {
        Some((last, stands)) if *last == task => *stands,
        _ => known.insert((task, criticality(TaskId(task)))).1,
    }
}

impl CacheState {
    /// The next piece of work, if there is one. `criticality` says how a task stands.
    pub fn next_job(
        &mut self,
        rules: &IssueRules,
        criticality: &dyn Fn(TaskId) -> Criticality,
        now_ns: u64,
    ) -> Option<NextJob> {
        // A task that is held back for long fills the memory, for which critical tasks may have to wait, too.
        let hold_back = rules.hold_back && self.pending_bytes() * 2 < rules.queue_bytes;
        let rules = &IssueRules { hold_back, ..*rules };
        // In turn with the rest: many files may have been truncated, and others wait for a flush or a write.
        let comes_first = !std::mem::replace(&mut self.issue.is_after_truncation, false);
        let truncation = if comes_first { self.begin_truncate(rules) } else { None };
        let next = truncation.map(NextJob::Truncate).or_else(|| self.next_but_truncations(rules, criticality, now_ns));
        let next = next.or_else(|| if comes_first { None } else { self.begin_truncate(rules).map(NextJob::Truncate) });
        self.issue.is_after_truncation = matches!(next, Some(NextJob::Truncate(_)));
        next
    }

    fn next_but_truncations(
        &mut self,
        rules: &IssueRules,
        criticality: &dyn Fn(TaskId) -> Criticality,
        now_ns: u64,
    ) -> Option<NextJob> {
        if let Some(flush) = FlushJob::begin(self, now_ns, rules.hold_back) {
            return Some(NextJob::Flush(flush));
        }
        let due = self.is_due(rules, now_ns);
        if self.totals.queued == 0 || (!due && self.totals.urgent == 0) {
            return None;
        }
        self.issue.turn += 1;
        let urgent_only = self.totals.urgent > 0 && !(due && self.issue.turn.is_multiple_of(FAIR_SHARE));
        let next = self.choose_and_begin(rules, criticality, urgent_only, now_ns);
        // What a task waits for may all be held up; the rest need not be.
        if next.is_none() && urgent_only && due {
            return self.choose_and_begin(rules, criticality, false, now_ns);
        }
        next
    }

    fn choose_and_begin(
        &mut self,
        rules: &IssueRules,
        criticality: &dyn Fn(TaskId) -> Criticality,
        urgent_only: bool,
        now_ns: u64,
    ) -> Option<NextJob> {
        let (fast, slow) = self.choose(rules, criticality, urgent_only);
        if !fast.is_empty()
            && let Some(job) = self.log_queued(&fast, now_ns)
        {
            return Some(NextJob::Log(job));
        }
        self.begin_slow(&slow, now_ns).map(NextJob::Slow)
    }

    /// Whether versions for which no task waits are to be issued now.
    fn is_due(&self, rules: &IssueRules, now_ns: u64) -> bool {
        rules.everything
            || self.pending_bytes() * 2 >= rules.queue_bytes
            || self.versions.ages.first().is_some_and(|(since_ns, _)| since_ns + rules.linger_ns <= now_ns)
    }

    /// When [`CacheState::next_job`] will have something that it has not now, if nothing else happens.
    pub fn next_due_ns(&self, rules: &IssueRules) -> Option<u64> {
        let queued = self.versions.ages.first().map(|(since_ns, _)| since_ns + rules.linger_ns);
        let unflushed = self.flush.unflushed.first().map(|(since_ns, _)| since_ns + FLUSH_AFTER_NS);
        queued.into_iter().chain(unflushed).min()
    }

    /// An issuer found nothing, and looks again at `until_ns` if no thread calls it.
    pub fn sleeps_until(&mut self, until_ns: u64) {
        self.issue.next_look_ns = self.issue.next_look_ns.min(until_ns);
    }

    /// An issuer woke up; when the others will is not known.
    pub fn has_woken(&mut self) {
        self.issue.next_look_ns = u64::MAX;
    }

    /// Whether an issuer has to be called for what was queued and no task waits for: it is due before one looks by itself.
    pub fn needs_issuer(&self, rules: &IssueRules, now_ns: u64) -> bool {
        self.is_due(rules, now_ns) || self.next_due_ns(rules).is_some_and(|due_ns| due_ns < self.issue.next_look_ns)
    }

    fn choose(
        &self,
        rules: &IssueRules,
        criticality: &dyn Fn(TaskId) -> Criticality,
        urgent_only: bool,
    ) -> (Vec<Chosen>, Vec<Chosen>) {
        let mut fast: Vec<Chosen> = Vec::new();
        let (mut slow, mut stalled) = (Sweep::new(rules.runs_per_job), Sweep::new(rules.runs_per_job));
        let room = self.fast.dead.is_none() && self.log.ring.has_room(record_bytes(self.log.granule_bytes, 1));
        let mut known: Option<(u64, Criticality)> = None;
        let set = if urgent_only { &self.versions.urgent } else { &self.versions.waiting };
        let mut round = Round::new(set, self.issue.cursor);
        let mut looked_at = 0;
        while let Some(addr) = round.next().filter(|_| looked_at < MOST_LOOKED_AT) {
            looked_at += 1;
            let Some(slot) = self.versions.slots.get(&addr) else { continue };
            let Some(queued) = slot.queued.as_ref() else { continue };
            let stands = standing(&mut known, queued.task, criticality);
            let facts = self.facts(addr, queued.data.content, queued.urgent, stands);
            // What the log takes no more of is tried at the device, if that is alive.
            let is_over_share = self.is_over_share(addr.volume);
            let facts = AdmissionFacts { log_full: !room || is_over_share, is_direct: queued.direct, ..facts };
            let reason = admit(self.policy, &facts);
            let chosen = Chosen { addr, reason, task: queued.task, demanded: facts.needs_log() };
            let many = fast.len() == MOST_BLOCKS as usize;
            if many && room {
                break;
            }
            if reason.is_fast() && !many && !is_over_share {
                if !self.holds_still(addr) {
                    fast.push(chosen);
                }
                continue;
            }
            // A full log may never take what must go there; other volumes go on. Of one that is alive some of the rest may
            // go to its device all the same.
            let has_waiter = queued.urgent && stands.any();
            let needs_slow = !reason.is_fast();
            let is_left = facts.slow_dead || is_over_share;
            let is_held = if needs_slow { self.is_held_up(addr, slot, has_waiter, rules) } else { is_left };
            if is_held {
                round.note_held();
                continue;
            }
            if !needs_slow || !slot.may_issue(facts.cached) {
                continue;
            }
            // What the log should have taken comes first: a critical task waits for it.
            let is_critical = self.policy >= AdmissionPolicy::Critical && urgent_only;
            let sweep = if reason == AdmissionReason::Full && is_critical { &mut stalled } else { &mut slow };
            sweep.take(chosen);
            // Without a full log there is nothing to look for further on.
            if slow.ended && (room || !urgent_only) || stalled.ended {
                break;
            }
        }
        fast.sort_by_key(|chosen| chosen.addr);
        (fast, if stalled.chosen.is_empty() { slow.chosen } else { stalled.chosen })
    }

    /// Whether a version can't go to its slow device now. `has_waiter`: a critical task waits for it.
    fn is_held_up(&self, addr: BlockAddr, slot: &Slot<BlockVersion>, has_waiter: bool, rules: &IssueRules) -> bool {
        let is_waited_for = self.is_hasty(addr.volume) || has_waiter;
        let makes_way = (rules.hold_back || self.is_crowded()) && !is_waited_for;
        makes_way || self.is_busy(addr.volume, rules) || slot.in_flight() || !self.takes_block(addr, slot)
    }

    /// Whether the volume takes a job with this block now.
    fn takes_block(&self, addr: BlockAddr, slot: &Slot<BlockVersion>) -> bool {
        let Some(volume) = self.volumes.get(&addr.volume) else { return false };
        // A version that the flush under way makes durable is not replaced before it has: a task may wait for it, and
        // would for ever if a newer one always came in between.
        let awaits_flush = volume.flush.is_under_way && slot.written_at().is_some_and(|at| at < volume.flush.epoch);
        volume.alive().is_some() && !awaits_flush && !volume.is_fenced(addr.block)
    }

    /// Whether a task waits for room in the log, and write-back, which makes it, is not to find a long queue at the slow
    /// device: what no critical task waits for goes there one job at a time.
    fn is_crowded(&self) -> bool {
        let drain = self.drain_state();
        drain.wanted && drain.running && self.issue.jobs > 0
    }

    /// Whether a critical task waits for the volume's device itself.
    pub(super) fn is_hasty(&self, id: VolumeId) -> bool {
        self.volumes.get(&id).is_some_and(|volume| volume.hasty > 0)
    }

    /// Whether the volume has as many jobs under way as it may.
    pub(super) fn is_busy(&self, id: VolumeId, rules: &IssueRules) -> bool {
        self.volumes.get(&id).is_some_and(|volume| volume.jobs >= rules.jobs_per_volume.max(1))
    }

    fn holds_still(&self, addr: BlockAddr) -> bool {
        self.volumes.get(&addr.volume).is_some_and(|volume| volume.holds_still(addr.block))
    }

    /// Queued versions that belong to the log.
    fn log_queued(&mut self, chosen: &[Chosen], now_ns: u64) -> Option<LogJob> {
        let task = chosen.first().map_or(0, |first| first.task);
        let mut items = Vec::new();
        for Chosen { addr, reason, .. } in chosen {
            let Some(queued) = self.versions.slots.get(addr).and_then(|slot| slot.queued.as_ref()) else { continue };
            let (version, oldest) = (queued.data.clone(), SequenceNumber(queued.oldest));
            items.push((LogItem { addr: *addr, version, oldest }, *reason));
        }
        let privileged = chosen.iter().all(|chosen| chosen.demanded);
        match self.begin_log(&items, privileged, task, now_ns) {
            AppendOutcome::Job { job, .. } => Some(job),
            AppendOutcome::NoRoom(_) => {
                self.drain_now();
                None
            }
        }
    }

    fn begin_slow(&mut self, chosen: &[Chosen], now_ns: u64) -> Option<SlowJob> {
        let first = chosen.first()?;
        let volume = self.volumes.get_mut(&first.addr.volume)?;
        let device = volume.alive()?.clone();
        volume.jobs += 1;
        self.issue.jobs += 1;
        let (growth, len, incarnation) = (volume.growth, volume.len, volume.incarnation);
        let target = SlowTarget { volume: first.addr.volume, incarnation, device, growth, len };
        let mut blocks: Vec<(BlockAddr, u64, BlockData)> = Vec::with_capacity(chosen.len());
        for Chosen { addr, reason, task, .. } in chosen {
            self.trace.note(*addr, *reason, *task, now_ns);
            if *reason == AdmissionReason::Full {
                self.stats.stalls += 1;
            }
            self.numbers.flights += 1;
            let number = self.numbers.flights;
            let version = self.with_slot(*addr, |slot| {
                let version = slot.queued.as_ref().map(|queued| queued.data.clone());
                slot.issue(number);
                version
            });
            blocks.extend(version.map(|version| (*addr, number, version.piece)));
            self.issue.cursor = addr.plus(1);
        }
        Some(SlowJob { target, blocks })
    }

    /// The job has ended.
    pub fn finish_slow(&mut self, job: &SlowJob, result: &Result<(), DeviceError>, now_ns: u64) {
        let id = job.target.volume;
        self.issue.jobs -= 1;
        let ours = self.volumes.get_mut(&id).filter(|volume| volume.incarnation == job.target.incarnation);
        let (ok, epoch) = match ours {
            Some(volume) => {
                volume.jobs -= 1;
                // A device that has failed meanwhile won't be flushed.
                (result.is_ok() && volume.dead.is_none(), volume.flush.epoch)
            }
            // Another device has taken its place, and lacks these blocks.
            None => (false, 0),
        };
        self.numbers.setbacks += u64::from(!ok);
        for (addr, number, _) in &job.blocks {
            let ended = self.with_slot(*addr, |slot| slot.completed(*number, ok, epoch, now_ns));
            self.stats.discarded_flights += u64::from(ended == CompletionOutcome::Discarded);
        }
        let Some(volume) = self.volumes.get(&id).filter(|volume| volume.incarnation == job.target.incarnation) else {
            return;
        };
        match result {
            Ok(()) => {
                self.stats.direct_bytes += (job.blocks.len() * BLOCK_BYTES) as u64;
                if volume.tally.written > 0 && volume.flush.unflushed_since_ns.is_none() {
                    self.set_unflushed(id, Some(now_ns));
                }
                self.has_taken(id);
            }
            Err(error) => self.lose_slow(id, error, now_ns),
        }
    }

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

    /// Whether so many blocks more would be too many in memory. What waits for volumes that can't be written to, and for which
    /// the log has no room, does not count for others, as far as [`CacheState::set_aside_blocks`] goes.
    pub fn queue_is_full(&self, id: VolumeId, blocks: usize) -> bool {
        let pending = self.totals.total().saturating_sub(self.set_aside_blocks(id));
        pending > 0 && pending + blocks > self.queue_blocks
    }

    /// A version that goes straight to the log in the writer's own name.
    pub fn item(addr: BlockAddr, piece: BlockData, content: ContentKind, seqno: SequenceNumber) -> LogItem {
        LogItem { addr, version: BlockVersion { piece, content }, oldest: seqno }
    }
}
