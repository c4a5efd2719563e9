//! Everything the cache knows, under one lock: which version of which block is where, and what may be done next.
//!
//! The ledger does no I/O and reads no clock. Work is *begun* here (it returns a job), carried out by whoever took it
//! without the lock, and *finished* here with its result. So threads can drive it, and so can a simulation that takes the
//! steps in any order.
//!
//! Newest version of a block: queued, else on its way to the log, else in the log, else in flight, else on the slow device.
//! [`Slot`] keeps the rules of those in memory; `logged` is the map of the log; [`Ring`] its space.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use quire_device::DeviceError;

use crate::error::CacheError;
use crate::format::Kind;
use crate::ids::{BLOCK_BYTES, Piece, Place, Stamp, VolumeId};
use crate::policy::{Facts, Policy};
use crate::protocol::{FlightState, Queued, Slot};
use crate::ring::Ring;
use crate::stats::{CacheStats, Content};
use crate::tail;
use crate::tasks::Standing;
use crate::trace::Trace;
use crate::volume::{Tally, Volume};
use crate::witness::Epoch;

mod append;
mod cuts;
mod drain;
mod flush;
mod issue;
mod opened;
mod wait;

pub use append::{Appended, Item};
pub use drain::DrainState;
pub use issue::{IssueRules, Next};
pub(crate) use wait::Headway;

/// In place of a position: the block was saved from a dead fast device.
const SALVAGED: u64 = u64::MAX;

/// The bytes of a block, and what they are.
#[derive(Clone, Debug)]
pub struct Version {
    /// The bytes.
    pub piece: Piece,
    /// What they are.
    pub content: Content,
}

/// A write whose durability can be waited for: blocks `first` to `end` (not included) as of `stamp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The volume.
    pub volume: VolumeId,
    /// First block.
    pub first: u64,
    /// Behind the last block.
    pub end: u64,
    /// Writes up to this one.
    pub stamp: Stamp,
}

impl Ticket {
    /// Everything written to `volume` up to `stamp`, and its length.
    pub(crate) fn everything(volume: VolumeId, stamp: Stamp) -> Self {
        Self { volume, first: 0, end: u64::MAX, stamp }
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
    kind: Kind,
    first: Place,
    count: u32,
    state: EntryState,
    since_ns: u64,
}

/// Where the newest bytes of a block are.
#[derive(Clone, Debug)]
pub enum Found {
    /// In memory.
    Memory(Piece),
    /// In the log, at this position.
    Log(u64),
    /// On the slow device.
    Slow,
}

/// Something that the log has to be told, once.
#[derive(Clone, Copy, Debug)]
pub struct Errand<T> {
    /// What.
    pub what: T,
    /// Somebody is about it.
    pub busy: bool,
}

impl<T> Errand<T> {
    /// An errand that waits for somebody.
    pub fn new(what: T) -> Self {
        Self { what, busy: false }
    }
}

/// The ledger.
pub struct Ledger {
    /// Which writes are cached.
    pub policy: Policy,
    /// Space of the log.
    pub ring: Ring,
    /// The slow devices.
    pub volumes: BTreeMap<VolumeId, Volume>,
    /// Versions in memory, over all volumes.
    pub totals: Tally,
    /// Decisions.
    pub trace: Trace,
    /// Counts.
    pub stats: CacheStats,
    /// Why the fast device takes no more writes.
    pub fast_dead: Option<DeviceError>,
    /// After that: everything it held has been brought to the slow devices, or given up.
    pub salvaged: bool,
    /// The dead log will never be used again.
    pub abandoned: bool,
    /// Volumes whose devices have cuts of which the log is to be told: where the record of the last of them ends.
    pub closing: BTreeMap<VolumeId, Errand<u64>>,
    /// Volumes whose devices lack cuts.
    open_cuts: BTreeSet<VolumeId>,
    /// The last job that was begun carries out a cut.
    is_after_cut: bool,
    /// Volumes that are gone, and whether the log has to be told that still.
    pub forgetting: BTreeMap<VolumeId, Errand<bool>>,
    /// Nothing new is taken.
    pub closed: bool,
    /// Blocks that may wait in memory; an eighth of it or more that was written and not flushed is flushed.
    pub queue_blocks: usize,
    /// The slow devices may hold what an earlier run wrote and never flushed.
    pub unsynced: bool,
    granule_bytes: u64,
    identity: u64,
    /// The epoch of log and volumes, and the one that is being begun.
    pub epochs: [Epoch; 2],
    generation: u64,
    records: VecDeque<Entry>,
    logged: BTreeMap<Place, u64>,
    slots: BTreeMap<Place, Slot<Version>>,
    /// Places of slots with a version that is queued; with one that somebody waits for; with one that is written and not
    /// flushed. So nobody looks through all slots for these.
    waiting: BTreeSet<Place>,
    urgent: BTreeSet<Place>,
    written: BTreeSet<Place>,
    stamp: u64,
    /// Where the elevator goes on.
    cursor: Place,
    /// When a sleeping issuer looks by itself, as far as known.
    next_look_ns: u64,
    /// When versions were queued, and which.
    ages: BTreeSet<(u64, Place)>,
    /// Volumes of which a flush should begin now.
    flushes: BTreeSet<VolumeId>,
    /// The last one that was begun: the next in turn comes next.
    flushed_last: VolumeId,
    /// When the oldest version was written that no flush covers, by volume.
    unflushed: BTreeSet<(u64, VolumeId)>,
    /// Counts jobs for slow devices, for fairness between those that somebody waits for and the others.
    turn: u64,
    /// Jobs under way on slow devices.
    jobs: usize,
    /// Counts flights to the slow devices, and devices attached.
    flights: u64,
    incarnations: u64,
    /// How often versions had to wait anew because a device failed or was replaced.
    setbacks: u64,
    /// Volumes whose device was full, and when to try again.
    retries: BTreeSet<(u64, VolumeId)>,
    drain: DrainState,
}

fn tally_of(slot: &Slot<Version>) -> Tally {
    let state = slot.flight.as_ref().map(|flight| flight.state);
    Tally {
        queued: usize::from(slot.queued.is_some()),
        urgent: usize::from(slot.queued.as_ref().is_some_and(|queued| queued.urgent)),
        issued: usize::from(state == Some(FlightState::Issued)),
        overtaken: usize::from(matches!(state, Some(FlightState::Reissued | FlightState::Void))),
        written: usize::from(matches!(state, Some(FlightState::Written(_)))),
        logging: slot.logging.len(),
    }
}

/// Keeps a set of those places of which there is something.
fn keep(set: &mut BTreeSet<Place>, place: Place, old: usize, new: usize) {
    match (old, new) {
        (0, 1..) => drop(set.insert(place)),
        (1.., 0) => drop(set.remove(&place)),
        _ => {}
    }
}

impl Ledger {
    /// Changes a slot and keeps the tallies.
    fn with_slot<R>(&mut self, place: Place, change: impl FnOnce(&mut Slot<Version>) -> R) -> R {
        let slot = self.slots.entry(place).or_default();
        let since = |slot: &Slot<Version>| slot.queued.as_ref().map(|queued| queued.since_ns);
        let (old, old_ns) = (tally_of(slot), since(slot));
        let result = change(slot);
        let (new, new_ns) = (tally_of(slot), since(slot));
        if slot.is_empty() {
            self.slots.remove(&place);
        }
        if old_ns != new_ns {
            old_ns.map(|ns| self.ages.remove(&(ns, place)));
            new_ns.map(|ns| self.ages.insert((ns, place)));
        }
        if old != new {
            keep(&mut self.waiting, place, old.queued, new.queued);
            keep(&mut self.urgent, place, old.urgent, new.urgent);
            keep(&mut self.written, place, old.written, new.written);
            self.totals.change(old, new);
            if let Some(volume) = self.volumes.get_mut(&place.volume) {
                volume.tally.change(old, new);
                self.judge_flush(place.volume);
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
        if let Some(cause) = self.fast_dead.as_ref().filter(|_| self.is_barred(volume) && volume.dead.is_none()) {
            // Should the dead log come back, it would cut off what is written now.
            return Err(CacheError::Fast(cause.clone()));
        }
        Ok(volume)
    }

    /// Whether a dead log, that may come back, holds cuts of the volume: nothing more of it can be made durable.
    fn is_barred(&self, volume: &Volume) -> bool {
        self.fast_dead.is_some() && self.salvaged && !self.abandoned && !volume.cuts.is_empty()
    }

    /// Nothing is left of the volume.
    pub fn remove_volume(&mut self, id: VolumeId) {
        self.set_unflushed(id, None);
        self.flushes.remove(&id);
        self.forgetting.remove(&id);
        self.open_cuts.remove(&id);
        self.volumes.remove(&id);
    }

    /// A number for a device that is being attached.
    pub fn next_incarnation(&mut self) -> u64 {
        self.incarnations += 1;
        self.incarnations
    }

    fn check_lost(&self, id: VolumeId, volume: &Volume) -> Result<(), CacheError> {
        match (volume.lost.first(), &self.fast_dead) {
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
    pub fn next_stamp(&mut self) -> Stamp {
        self.stamp += 1;
        Stamp(self.stamp)
    }

    /// The cache's number.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// The number of the last write.
    pub fn last_stamp(&self) -> Stamp {
        Stamp(self.stamp)
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

    /// How many of these blocks of a log, from the first on, the volume has as they are, so that writing them changes nothing. From
    /// now on it has all of them. `len`: where the write ends. `grows`: the volume is longer than before, which a record must say.
    pub fn pass_by_known(&mut self, first: Place, pieces: &[Piece], content: Content, len: u64, grows: bool) -> usize {
        let Some(volume) = self.volumes.get_mut(&first.volume) else { return 0 };
        if self.fast_dead.is_some() || volume.dead.is_some() {
            volume.tail.forget();
            return 0;
        }
        let is_log = content == Content::Log;
        let known = if is_log && !grows { volume.tail.known(first.block, pieces) } else { 0 };
        // Of other files only a block that will be continued.
        let most = if is_log { tail::BLOCKS } else { usize::from(!len.is_multiple_of(BLOCK_BYTES as u64)) };
        volume.tail.note(first.block + known as u64, &pieces[known..], most);
        self.stats.unchanged_bytes += (known * BLOCK_BYTES) as u64;
        known
    }

    /// A version waits for the slow device (or for what the policy will say when it is issued).
    pub fn queue(&mut self, place: Place, version: Version, stamp: Stamp, urgent: bool, task: u64, now_ns: u64) {
        let queued = Queued { data: version, oldest: stamp.0, since_ns: now_ns, urgent, task, direct: false };
        self.with_slot(place, |slot| slot.put(queued));
    }

    /// What the policy needs to know about a block's next version.
    fn facts(&self, place: Place, content: Content, is_sync: bool, standing: Standing) -> Facts {
        let slot_over_log = self.slots.get(&place).is_some_and(|slot| !slot.logging.is_empty());
        let volume = self.volumes.get(&place.volume);
        Facts {
            is_sync,
            is_log: content == Content::Log,
            critical: standing.critical,
            inherited: standing.inherited,
            reissue: false,
            cached: slot_over_log || self.logged.contains_key(&place),
            slow_dead: volume.is_some_and(|volume| volume.dead.is_some()),
            fast_dead: self.fast_dead.is_some(),
            len_pending: volume.is_some_and(|volume| volume.len_change.is_some()),
        }
    }

    /// Facts about a write of `count` blocks: one that is cached makes all of them.
    pub fn facts_of_run(&self, first: Place, count: u64, content: Content, is_sync: bool, standing: Standing) -> Facts {
        let mut facts = self.facts(first, content, is_sync, standing);
        facts.cached = (0..count).any(|index| self.facts(first.plus(index), content, is_sync, standing).cached);
        facts
    }

    /// Where the newest bytes of a block are.
    pub fn find(&self, place: Place) -> Found {
        let slot = self.slots.get(&place);
        if let Some(version) = slot.and_then(Slot::above_log) {
            return Found::Memory(version.piece.clone());
        }
        match self.logged.get(&place) {
            Some(&SALVAGED) => return Found::Slow,
            Some(&position) => return Found::Log(position),
            None => {}
        }
        slot.and_then(Slot::below_log).map_or(Found::Slow, |version| Found::Memory(version.piece.clone()))
    }

    /// Whether position `position` of the log still holds the newest durable version of `place`.
    pub fn still_logged(&self, place: Place, position: u64) -> bool {
        self.logged.get(&place) == Some(&position)
    }

    /// Bytes in memory that wait for devices.
    pub fn pending_bytes(&self) -> usize {
        self.totals.total() * BLOCK_BYTES
    }

    /// Volumes that the log names and nobody has attached.
    pub fn unattached(&self) -> Vec<VolumeId> {
        let loose = self.volumes.iter().filter(|(_, volume)| volume.device.is_none());
        loose.map(|(id, _)| *id).collect()
    }

    /// Whether the log holds what a slow device lacks: blocks, or a cut.
    pub fn is_needed(&self) -> bool {
        !self.logged.is_empty() || self.volumes.values().any(|volume| !volume.cuts.is_empty())
    }

    /// Blocks in the log.
    pub fn cached_blocks(&self) -> u64 {
        self.logged.len() as u64
    }
}
