//! A slow device as the cache state sees it: its length, its health, and how much of it is pending.
//!
//! Relies on the cache state's lock.

use std::sync::Arc;

use quire_device::{Device, DeviceError};

use crate::config::VolumeLength;
use crate::ids::BLOCK_BYTES;
use crate::lock::CacheMutex;
use crate::pending_truncations::PendingTruncations;
use crate::tail::VolumeTail;
use crate::tasks::TaskGraph;

/// How many versions of a volume's blocks are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VersionCounts {
    /// Waiting to be issued.
    pub queued: usize,
    /// Of those, a task waits for so many.
    pub urgent: usize,
    /// Under way to the slow device.
    pub issued: usize,
    /// Under way to the slow device, but overtaken by the log.
    pub overtaken: usize,
    /// Written, not flushed.
    pub written: usize,
    /// On their way to the log.
    pub logging: usize,
}

impl VersionCounts {
    /// Adds `new` and takes `old` away.
    pub fn change(&mut self, old: Self, new: Self) {
        let change = |mine: &mut usize, old: usize, new: usize| *mine = (*mine + new).saturating_sub(old);
        change(&mut self.queued, old.queued, new.queued);
        change(&mut self.urgent, old.urgent, new.urgent);
        change(&mut self.issued, old.issued, new.issued);
        change(&mut self.overtaken, old.overtaken, new.overtaken);
        change(&mut self.written, old.written, new.written);
        change(&mut self.logging, old.logging, new.logging);
    }

    /// Whether a flush or its end would change nothing.
    pub fn is_calm(&self) -> bool {
        self.queued == 0 && self.issued == 0 && self.written == 0
    }

    /// Versions held in memory.
    pub fn total(&self) -> usize {
        self.queued + self.issued + self.overtaken + self.written + self.logging
    }
}

/// Whether a task waits for a flush.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum FlushWanted {
    /// No task does.
    #[default]
    No,
    /// Once the writes that a task waits for have ended: one flush serves them all.
    Soon,
    /// At once: a task waits for nothing else.
    Now,
}

/// The device's length was changed, and no flush covers that yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LenChange {
    /// Number of the change among the writes.
    pub seqno: u64,
    /// Flushes of the volume begun by then.
    pub epoch: u64,
}

/// How a volume stands, for its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeState {
    /// Bytes, pending writes included.
    pub len: u64,
    /// Blocks whose newest version is in the log only.
    pub logged_blocks: u64,
    /// Everything that was written is on the slow device, so the volume may be forgotten without loss. What was written
    /// last may still wait for a flush of that device.
    pub is_idle: bool,
    /// A change of its length waits for a flush of its device. Otherwise the log holds the last one, or the device has it
    /// durably.
    pub is_len_pending: bool,
    /// Why it takes no more writes.
    pub dead: Option<DeviceError>,
}

/// The flushes of a slow device, and what they are to make durable besides blocks.
#[derive(Debug, Default)]
pub struct VolumeFlush {
    /// Flushes begun.
    pub epoch: u64,
    /// A flush is under way.
    pub is_under_way: bool,
    /// A task waits for a flush.
    pub wanted: FlushWanted,
    /// The volume's length was changed and not flushed since. Until it is, writes can't be durable by the log alone.
    pub len_change: Option<LenChange>,
    /// The device may hold what an earlier run, which crashed, wrote and never flushed.
    pub unsynced: bool,
    /// When the oldest version was written that has not been flushed.
    pub unflushed_since_ns: Option<u64>,
    /// The device was full, as this says, and is being tried again: until it has taken something, the volume counts as one
    /// that can't be written to. Else a writer could have its way with the log for a moment at each attempt.
    pub trial: Option<DeviceError>,
    /// When the device is tried again, or the trial ends.
    pub retry_at_ns: Option<u64>,
}

/// A slow device.
pub struct Volume {
    /// The device; `None` while the log names a volume that is not attached.
    pub device: Option<Arc<dyn Device>>,
    /// Tells this device from another one attached under the same number: jobs for that don't concern this one.
    pub incarnation: u64,
    /// Whether it may grow.
    pub growth: VolumeLength,
    /// Bytes, writes that are pending or in the log included.
    pub len: u64,
    /// Why it takes no more writes.
    pub dead: Option<DeviceError>,
    /// Pending versions.
    pub tally: VersionCounts,
    /// Blocks whose newest durable version is in the log.
    pub logged_blocks: u64,
    /// Blocks that were in a dead fast device only.
    pub lost: Vec<u64>,
    /// Its flushes.
    pub flush: VolumeFlush,
    /// Jobs under way on the device.
    pub jobs: usize,
    /// Truncations that the log holds and of which it does not know yet that they are on the device.
    pub truncations: PendingTruncations,
    /// Critical tasks that wait for the device itself: others make way for its jobs and flushes.
    pub hasty: usize,
    /// Its end as it was last written, if it is a log.
    pub tail: VolumeTail,
    /// It is being forgotten.
    pub leaving: bool,
    /// Held while a write finds its place in the order.
    pub order: Arc<CacheMutex<()>>,
}

impl Volume {
    /// A volume of `len` bytes with nothing pending.
    pub fn new(device: Option<Arc<dyn Device>>, growth: VolumeLength, len: u64, tasks: &Arc<TaskGraph>) -> Self {
        Self {
            device,
            incarnation: 0,
            growth,
            len,
            dead: None,
            tally: VersionCounts::default(),
            logged_blocks: 0,
            lost: Vec::new(),
            flush: VolumeFlush::default(),
            jobs: 0,
            truncations: PendingTruncations::default(),
            hasty: 0,
            tail: VolumeTail::default(),
            leaving: false,
            order: Arc::new(CacheMutex::new_in(Arc::clone(tasks), ())),
        }
    }

    /// The volume has a device now, or another one. Jobs for the old one no longer concern it.
    pub fn plug(&mut self, device: Arc<dyn Device>, growth: VolumeLength, device_len: u64, incarnation: u64) {
        self.len = match growth {
            VolumeLength::Fixed => device_len,
            VolumeLength::Growable => self.len.max(device_len),
        };
        self.device = Some(device);
        self.incarnation = incarnation;
        self.growth = growth;
        self.dead = None;
        self.truncations.end();
        (self.flush.len_change, self.flush.trial) = (None, None);
        self.tail.forget();
        (self.jobs, self.flush.is_under_way) = (0, false);
    }

    /// What others may know.
    pub fn state(&self) -> VolumeState {
        let busy =
            self.tally.total() + self.jobs > 0 || self.flush.is_under_way || self.truncations.truncating.is_some();
        VolumeState {
            len: self.len,
            logged_blocks: self.logged_blocks,
            is_idle: !busy && self.logged_blocks == 0 && self.truncations.is_empty(),
            is_len_pending: self.flush.len_change.is_some(),
            dead: self.dead.clone(),
        }
    }

    /// The device, if it can be written to.
    pub fn alive(&self) -> Option<&Arc<dyn Device>> {
        self.device.as_ref().filter(|_| self.dead.is_none())
    }

    /// Whether it can't be written to, as far as is known.
    pub fn is_refused(&self) -> bool {
        self.alive().is_none() || self.flush.trial.is_some()
    }

    /// Why it can't be written to, as far as is known. `None`: it can, or it is not attached.
    pub fn refusal(&self) -> Option<&DeviceError> {
        self.dead.as_ref().or(self.flush.trial.as_ref())
    }

    /// Whether a block must go nowhere because the volume is being truncated.
    pub fn holds_still(&self, block: u64) -> bool {
        self.truncations.truncating.is_some_and(|first| block >= first)
    }

    /// Whether a block must not go to the device because of a truncation that this may lack, or of which the log does not
    /// know otherwise.
    pub fn is_fenced(&self, block: u64) -> bool {
        self.holds_still(block)
            || self.truncations.is_uncertain
            || block >= self.truncations.fence() / BLOCK_BYTES as u64
    }

    /// Whether a flush would make something durable.
    pub fn is_unflushed(&self) -> bool {
        self.tally.written > 0 || self.flush.len_change.is_some() || self.flush.unsynced
    }

    /// Whether a flush should begin now. `many`: so many written versions take too much memory.
    pub fn flush_is_due(&self, many: usize) -> bool {
        let wanted = match self.flush.wanted {
            FlushWanted::No => false,
            FlushWanted::Soon => self.tally.urgent == 0 && self.tally.issued == 0,
            FlushWanted::Now => true,
        };
        let idle = !self.flush.is_under_way && self.alive().is_some();
        idle && self.is_unflushed() && (wanted || self.tally.written >= many.max(1))
    }
}
