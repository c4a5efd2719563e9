//! Everything the cache knows, under one lock: which version of which block is where, and what may be done next.
//!
//! The cache state does no I/O and reads no clock. Work is *begun* here (it returns a job), carried out by the thread that
//! took it without the lock, and *finished* here with its result. So threads can drive it, and so can a simulation that
//! takes the steps in any order.
//!
//! Newest version of a block: queued, else on its way to the log, else in the log, else in flight, else on the slow device.
//! [`Slot`] keeps the rules of those in memory; `logged` is the map of the log; [`Ring`] its space.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use quire_device::DeviceError;

use crate::block_sums::BlockSums;
use crate::decision_trace::DecisionTrace;
use crate::error::CacheError;
use crate::format::RecordKind;
use crate::ids::{BLOCK_BYTES, BlockAddr, BlockData, SequenceNumber, VolumeId};
use crate::log_identity::Epoch;
use crate::policy::{AdmissionFacts, AdmissionPolicy};
use crate::protocol::{InflightState, QueuedVersion, Slot};
use crate::ring::Ring;
use crate::stats::{CacheStats, ContentKind};
use crate::tail;
use crate::tasks::Criticality;
use crate::volume::{VersionCounts, Volume};

mod append;
mod drain;
mod flush;
mod issue;
mod opened;
mod relocation;
mod sweep;
mod wait;

pub use append::{AppendOutcome, LogItem};
pub use drain::DrainState;
pub use issue::{IssueRules, NextJob};
pub use relocation::RefusedVolumes;
pub use wait::WaitProgress;

/// In place of a position: the block was saved from a dead fast device.
const SALVAGED: u64 = u64::MAX;

/// The bytes of a block, and what they are.
#[derive(Clone, Debug)]
pub struct BlockVersion {
    /// The bytes.
    pub piece: BlockData,
    /// What they are.
    pub content: ContentKind,
}

/// A write whose durability can be waited for: blocks `first` to `end` (not included) as of `seqno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteTicket {
    /// The volume.
    pub volume: VolumeId,
    /// First block.
    pub first: u64,
    /// Behind the last block.
    pub end: u64,
    /// Writes up to this one.
    pub seqno: SequenceNumber,
}

impl WriteTicket {
    /// Everything written to `volume` up to `seqno`, and its length.
    pub(crate) fn everything(volume: VolumeId, seqno: SequenceNumber) -> Self {
        Self { volume, first: 0, end: u64::MAX, seqno }
    }

    fn is_everything(&self) -> bool {
        self.end == u64::MAX
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryState {
    Writing,
    Durable,
    /// It never got there.
    Void,
}

/// A record of the log.
#[derive(Clone, Copy, Debug)]
struct Entry {
    lsn: u64,
    end: u64,
    kind: RecordKind,
    first: BlockAddr,
    count: u32,
    /// Bytes that it says the volume has.
    volume_len: u64,
    state: EntryState,
    since_ns: u64,
}

impl Entry {
    /// Whether it says of a truncation that the volume's device may lack.
    fn is_lacked_by(&self, volume: &Volume) -> bool {
        self.kind.is_truncation() && volume.truncations.lacks(self.end)
    }
}

/// Where the newest bytes of a block are.
#[derive(Clone, Debug)]
pub enum BlockLocation {
    /// In memory.
    Memory(BlockData),
    /// In the log, at this position.
    Log(u64),
    /// On the slow device.
    Slow,
}

/// Something that the log has to be told, once.
#[derive(Clone, Copy, Debug)]
pub struct PendingRecord<T> {
    /// What.
    pub what: T,
    /// A thread is writing it.
    pub busy: bool,
}

impl<T> PendingRecord<T> {
    /// A record that no thread writes yet.
    pub fn new(what: T) -> Self {
        Self { what, busy: false }
    }
}

/// The log: its space, its records, and which blocks it holds.
pub struct LogIndex {
    /// Its space.
    pub ring: Ring,
    granule_bytes: u64,
    identity: u64,
    /// The epoch of log and volumes, and the one that is being begun.
    pub epochs: [Epoch; 2],
    generation: u64,
    records: VecDeque<Entry>,
    logged: BTreeMap<BlockAddr, u64>,
    /// What its blocks are to be.
    pub sums: BlockSums,
    /// Volumes that can't be written to, and what the log holds of them.
    pub refused: RefusedVolumes,
}

/// The health of the fast device.
#[derive(Default)]
pub struct FastHealth {
    /// Why it takes no more writes.
    pub dead: Option<DeviceError>,
    /// After that: everything it held has been brought to the slow devices, or given up.
    pub salvaged: bool,
    /// The dead log will never be used again.
    pub abandoned: bool,
}

/// What the log is still to be told of volumes, and what their devices lack.
#[derive(Default)]
pub struct UnreportedChanges {
    /// Volumes whose devices have truncations of which the log is to be told: where the record of the last of them ends.
    pub closing: BTreeMap<VolumeId, PendingRecord<u64>>,
    /// Volumes whose devices lack truncations.
    open_truncations: BTreeSet<VolumeId>,
    /// Volumes that are gone, and whether the log has to be told that still.
    pub forgetting: BTreeMap<VolumeId, PendingRecord<bool>>,
}

/// The versions in memory. The sets spare looking through all slots.
#[derive(Default)]
struct VersionIndex {
    slots: BTreeMap<BlockAddr, Slot<BlockVersion>>,
    /// Slots with a version that is queued.
    waiting: BTreeSet<BlockAddr>,
    /// Those with one that a task waits for.
    urgent: BTreeSet<BlockAddr>,
    /// Those with one that is written and not flushed.
    written: BTreeSet<BlockAddr>,
    /// When versions were queued, and which.
    ages: BTreeSet<(u64, BlockAddr)>,
}

/// How far the issuers are.
struct IssueState {
    /// Where the elevator goes on.
    cursor: BlockAddr,
    /// When a sleeping issuer looks by itself, as far as known.
    next_look_ns: u64,
    /// Counts jobs for slow devices, for fairness between those that a task waits for and the others.
    turn: u64,
    /// Jobs under way on slow devices.
    jobs: usize,
    /// The last job that was begun carries out a truncation.
    is_after_truncation: bool,
}

/// Which volumes are to be flushed.
pub struct FlushState {
    /// Volumes of which a flush should begin now.
    due: BTreeSet<VolumeId>,
    /// The last one that was begun: the next in turn comes next.
    last: VolumeId,
    /// When the oldest version was written that no flush covers, by volume.
    unflushed: BTreeSet<(u64, VolumeId)>,
    /// Volumes whose device was full, and when it is tried again or the trial ends.
    retries: BTreeSet<(u64, VolumeId)>,
    /// The slow devices may hold what an earlier run wrote and never flushed.
    pub unsynced: bool,
}

/// Numbers that only grow.
#[derive(Default)]
struct Sequences {
    /// Of the last write.
    seqno: u64,
    /// Of the last flight to a slow device.
    flights: u64,
    /// Of the last device that was attached.
    incarnations: u64,
    /// How often versions had to wait anew because a device failed or was replaced.
    setbacks: u64,
}

/// The cache state.
pub struct CacheState {
    /// Which writes are cached.
    pub policy: AdmissionPolicy,
    /// The log.
    pub log: LogIndex,
    /// The fast device.
    pub fast: FastHealth,
    /// The slow devices.
    pub volumes: BTreeMap<VolumeId, Volume>,
    /// Changes of these that the log does not know.
    pub untold: UnreportedChanges,
    /// Versions in memory, over all volumes.
    pub totals: VersionCounts,
    versions: VersionIndex,
    /// Decisions.
    pub trace: DecisionTrace,
    /// Counts.
    pub stats: CacheStats,
    /// Nothing new is taken.
    pub closed: bool,
    /// Blocks that may wait in memory; an eighth of it or more that was written and not flushed is flushed.
    pub queue_blocks: usize,
    issue: IssueState,
    /// Flushes of slow devices.
    pub flush: FlushState,
    numbers: Sequences,
    drain: DrainState,
}

fn tally_of(slot: &Slot<BlockVersion>) -> VersionCounts {
    let state = slot.flight.as_ref().map(|flight| flight.state);
    VersionCounts {
        queued: usize::from(slot.queued.is_some()),
        urgent: usize::from(slot.queued.as_ref().is_some_and(|queued| queued.urgent)),
        issued: usize::from(state == Some(InflightState::Issued)),
        overtaken: usize::from(matches!(state, Some(InflightState::Reissued | InflightState::Void))),
        written: usize::from(matches!(state, Some(InflightState::Written(_)))),
        logging: slot.logging.len(),
    }
}

/// Keeps a set of those places of which there is something.
fn keep(set: &mut BTreeSet<BlockAddr>, addr: BlockAddr, old: usize, new: usize) {
    match (old, new) {
        (0, 1..) => drop(set.insert(addr)),
        (1.., 0) => drop(set.remove(&addr)),
        _ => {}
    }
}

impl CacheState {
    /// Changes a slot and keeps the tallies.
    fn with_slot<R>(&mut self, addr: BlockAddr, change: impl FnOnce(&mut Slot<BlockVersion>) -> R) -> R {
        let slot = self.versions.slots.entry(addr).or_default();
        let since = |slot: &Slot<BlockVersion>| slot.queued.as_ref().map(|queued| queued.since_ns);
        let (old, old_ns) = (tally_of(slot), since(slot));
        let result = change(slot);
        let (new, new_ns) = (tally_of(slot), since(slot));
        if slot.is_empty() {
            self.versions.slots.remove(&addr);
        }
        if old_ns != new_ns {
            old_ns.map(|ns| self.versions.ages.remove(&(ns, addr)));
            new_ns.map(|ns| self.versions.ages.insert((ns, addr)));
        }
        if old != new {
            keep(&mut self.versions.waiting, addr, old.queued, new.queued);
            keep(&mut self.versions.urgent, addr, old.urgent, new.urgent);
            keep(&mut self.versions.written, addr, old.written, new.written);
            self.totals.change(old, new);
            if let Some(volume) = self.volumes.get_mut(&addr.volume) {
                volume.tally.change(old, new);
                self.judge_flush(addr.volume);
            }
        }
        result
    }

    /// The attached volume, if it may be written to.
    ///
    /// # Errors
    /// It is not attached, parts of it are lost, or the cache is closed.
    pub fn writable(&self, id: VolumeId) -> Result<&Volume, CacheError> {
        if self.closed {
            return Err(CacheError::Closed);
        }
        let volume = self.volumes.get(&id).filter(|volume| volume.device.is_some());
        let volume = volume.ok_or(CacheError::Unattached(id))?;
        self.check_lost(id, volume)?;
        if let Some(cause) = self.fast.dead.as_ref().filter(|_| self.is_barred(volume) && volume.dead.is_none()) {
            // Should the dead log come back, it would cut off what is written now.
            return Err(CacheError::Fast(cause.clone()));
        }
        Ok(volume)
    }

    /// Whether a dead log, that may come back, holds truncations of the volume: nothing more of it can be made durable.
    fn is_barred(&self, volume: &Volume) -> bool {
        self.fast.dead.is_some() && self.fast.salvaged && !self.fast.abandoned && !volume.truncations.is_empty()
    }

    /// Nothing is left of the volume.
    pub fn remove_volume(&mut self, id: VolumeId) {
        self.set_unflushed(id, None);
        self.set_retry(id, None);
        self.flush.due.remove(&id);
        self.untold.forgetting.remove(&id);
        self.untold.open_truncations.remove(&id);
        self.volumes.remove(&id);
        self.judge_refused(id);
    }

    /// A number for a device that is being attached.
    pub fn next_incarnation(&mut self) -> u64 {
        self.numbers.incarnations += 1;
        self.numbers.incarnations
    }

    fn check_lost(&self, id: VolumeId, volume: &Volume) -> Result<(), CacheError> {
        match (volume.lost.first(), &self.fast.dead) {
            (Some(&first), Some(cause)) => Err(CacheError::Lost {
                cause: cause.clone(),
                volume: id,
                lost_bytes: (volume.lost.len() * BLOCK_BYTES) as u64,
                first_offset: first * BLOCK_BYTES as u64,
            }),
            _ => Ok(()),
        }
    }

    /// A number for a new write, higher than all before.
    pub fn next_seqno(&mut self) -> SequenceNumber {
        self.numbers.seqno += 1;
        SequenceNumber(self.numbers.seqno)
    }

    /// The cache's number.
    pub fn identity(&self) -> u64 {
        self.log.identity
    }

    /// The number of the last write.
    pub fn last_seqno(&self) -> SequenceNumber {
        SequenceNumber(self.numbers.seqno)
    }

    /// The volume is at least `len` bytes long now. Whether it was shorter.
    pub fn grow(&mut self, id: VolumeId, len: u64) -> bool {
        let Some(volume) = self.volumes.get_mut(&id) else { return false };
        let grows = volume.len < len;
        volume.len = volume.len.max(len);
        grows
    }

    /// What the volume ends with is not certain any more.
    pub fn forget_tail(&mut self, id: VolumeId) {
        if let Some(volume) = self.volumes.get_mut(&id) {
            volume.tail.forget();
        }
    }

    /// How many of these blocks of a log, from the first on, the volume has as they are, so that writing them changes
    /// nothing. From now on it has all of them. `len`: where the write ends. `grows`: the volume is longer than before,
    /// which a record must say.
    pub fn pass_by_known(
        &mut self,
        first: BlockAddr,
        pieces: &[BlockData],
        content: ContentKind,
        len: u64,
        grows: bool,
    ) -> usize {
        let Some(volume) = self.volumes.get_mut(&first.volume) else { return 0 };
        if self.fast.dead.is_some() || volume.dead.is_some() {
            volume.tail.forget();
            return 0;
        }
        let is_log = content == ContentKind::Log;
        let known = if is_log && !grows { volume.tail.known(first.block, pieces) } else { 0 };
        // Of other files only a block that will be continued.
        let most = if is_log { tail::BLOCKS } else { usize::from(!len.is_multiple_of(BLOCK_BYTES as u64)) };
        volume.tail.note(first.block + known as u64, &pieces[known..], most);
        self.stats.unchanged_bytes += (known * BLOCK_BYTES) as u64;
        known
    }

    /// A version waits for the slow device (or for what the policy will say when it is issued).
    pub fn queue(
        &mut self,
        addr: BlockAddr,
        version: BlockVersion,
        seqno: SequenceNumber,
        urgent: bool,
        task: u64,
        now_ns: u64,
    ) {
        let queued = QueuedVersion { data: version, oldest: seqno.0, since_ns: now_ns, urgent, task, direct: false };
        self.with_slot(addr, |slot| slot.put(queued));
    }

    /// What the policy needs to know about a block's next version.
    fn facts(&self, addr: BlockAddr, content: ContentKind, is_sync: bool, criticality: Criticality) -> AdmissionFacts {
        let slot_over_log = self.versions.slots.get(&addr).is_some_and(|slot| !slot.logging.is_empty());
        let volume = self.volumes.get(&addr.volume);
        AdmissionFacts {
            is_sync,
            is_log: content == ContentKind::Log,
            critical: criticality.critical,
            inherited: criticality.inherited,
            reissue: false,
            cached: slot_over_log || self.log.logged.contains_key(&addr),
            slow_dead: volume.is_some_and(|volume| volume.dead.is_some()),
            fast_dead: self.fast.dead.is_some(),
            len_pending: volume.is_some_and(|volume| volume.flush.len_change.is_some()),
            log_full: false,
            is_direct: false,
        }
    }

    /// What is known of a write of `count` blocks: one that is cached makes all of them.
    pub fn facts_of_run(
        &self,
        first: BlockAddr,
        count: u64,
        content: ContentKind,
        is_sync: bool,
        criticality: Criticality,
    ) -> AdmissionFacts {
        let mut facts = self.facts(first, content, is_sync, criticality);
        facts.cached = (0..count).any(|index| self.facts(first.plus(index), content, is_sync, criticality).cached);
        facts
    }

    /// Where the newest bytes of a block are.
    pub fn find(&self, addr: BlockAddr) -> BlockLocation {
        let slot = self.versions.slots.get(&addr);
        if let Some(version) = slot.and_then(Slot::above_log) {
            return BlockLocation::Memory(version.piece.clone());
        }
        match self.log.logged.get(&addr) {
            Some(&SALVAGED) => return BlockLocation::Slow,
            Some(&position) => return BlockLocation::Log(position),
            None => {}
        }
        slot.and_then(Slot::below_log)
            .map_or(BlockLocation::Slow, |version| BlockLocation::Memory(version.piece.clone()))
    }

    /// Whether position `position` of the log still holds the newest durable version of `addr`.
    pub fn still_logged(&self, addr: BlockAddr, position: u64) -> bool {
        self.log.logged.get(&addr) == Some(&position)
    }

    /// Bytes in memory that wait for devices.
    pub fn pending_bytes(&self) -> usize {
        self.totals.total() * BLOCK_BYTES
    }

    /// Volumes that the log names and that are not attached.
    pub fn unattached(&self) -> Vec<VolumeId> {
        let loose = self.volumes.iter().filter(|(_, volume)| volume.device.is_none());
        loose.map(|(id, _)| *id).collect()
    }

    /// Whether the log holds what a slow device lacks: blocks, or a truncation.
    pub fn is_needed(&self) -> bool {
        !self.log.logged.is_empty() || self.volumes.values().any(|volume| !volume.truncations.is_empty())
    }

    /// Blocks in the log.
    pub fn cached_blocks(&self) -> u64 {
        self.log.logged.len() as u64
    }
}
