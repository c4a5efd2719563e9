//! What the cache counts: traffic, stalls, waits by cause, and of what the critical writes consist.
//!
//! As JSON (`serde`) the names are those of the fields, of [`AdmissionReason::name`], [`WaitCause::name`] and
//! [`ContentKind::name`]; they stay.
//!
//! Relies on atomics for waits, which many threads count, and on the cache state's lock for the rest.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::decision_trace::ReasonCount;
use crate::policy::{AdmissionPolicy, AdmissionReason};

/// What a task waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitCause {
    /// A write of its own to the log.
    LogWrite,
    /// Space in the log.
    LogRoom,
    /// Space in the queue to the slow device.
    QueueRoom,
    /// A write to the slow device, its own or another's, queued or under way.
    PendingWrite,
    /// A flush of the slow device.
    SlowFlush,
    /// A read from the slow device.
    SlowRead,
    /// A lock.
    Lock,
    /// A signal.
    Signal,
}

impl WaitCause {
    /// All of them, in order of their index.
    pub const EVERY: [Self; 8] = [
        Self::LogWrite,
        Self::LogRoom,
        Self::QueueRoom,
        Self::PendingWrite,
        Self::SlowFlush,
        Self::SlowRead,
        Self::Lock,
        Self::Signal,
    ];

    /// A word for tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::LogWrite => "log_write",
            Self::LogRoom => "log_room",
            Self::QueueRoom => "queue_room",
            Self::PendingWrite => "pending_write",
            Self::SlowFlush => "slow_flush",
            Self::SlowRead => "slow_read",
            Self::Lock => "lock",
            Self::Signal => "signal",
        }
    }
}

/// Waits of one cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WaitStats {
    /// How many.
    pub count: u64,
    /// How long in all.
    pub total_ns: u64,
    /// The longest.
    pub longest_ns: u64,
}

#[derive(Debug, Default)]
struct Cell {
    count: AtomicU64,
    total_ns: AtomicU64,
    longest_ns: AtomicU64,
}

/// Waits by cause, those of critical tasks apart.
#[derive(Debug, Default)]
pub struct WaitCounters {
    cells: [[Cell; WaitCause::EVERY.len()]; 2],
}

impl WaitCounters {
    /// A wait has ended.
    pub fn note(&self, cause: WaitCause, critical: bool, ns: u64) {
        let cell = &self.cells[usize::from(critical)][cause as usize];
        cell.count.fetch_add(1, Relaxed);
        cell.total_ns.fetch_add(ns, Relaxed);
        cell.longest_ns.fetch_max(ns, Relaxed);
    }

    /// Waits of critical tasks (or of the others), by cause.
    pub fn read(&self, critical: bool) -> [WaitStats; WaitCause::EVERY.len()] {
        std::array::from_fn(|index| {
            let cell = &self.cells[usize::from(critical)][index];
            WaitStats {
                count: cell.count.load(Relaxed),
                total_ns: cell.total_ns.load(Relaxed),
                longest_ns: cell.longest_ns.load(Relaxed),
            }
        })
    }
}

/// What a write holds, as its writer says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContentKind {
    /// Data of the application.
    #[default]
    Data,
    /// The application's log.
    Log,
    /// What the file system needs for itself.
    Meta,
}

impl ContentKind {
    /// All of them, in order of their index.
    pub const EVERY: [Self; 3] = [Self::Data, Self::Log, Self::Meta];

    /// A word for tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Log => "log",
            Self::Meta => "meta",
        }
    }
}

/// Blocks cached for a critical task, by what they hold and how they came: the paper's Table 3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CriticalWrites {
    /// By [`ContentKind::EVERY`]: written by a critical task that waited.
    #[serde(serialize_with = "by_content")]
    pub direct_blocks: [u64; 3],
    /// Written by a task that held up a critical one.
    #[serde(serialize_with = "by_content")]
    pub inherited_blocks: [u64; 3],
    /// Re-issued on their way to the slow device.
    #[serde(serialize_with = "by_content")]
    pub reissued_blocks: [u64; 3],
}

/// Everything counted since the cache was opened.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CacheStats {
    /// The policy in force.
    #[serde(serialize_with = "as_name")]
    pub policy: AdmissionPolicy,
    /// Bytes that were written to the cache.
    pub written_bytes: u64,
    /// Bytes of blocks written to the log.
    pub logged_bytes: u64,
    /// Bytes written to the fast device in all, headers and superblocks too.
    pub fast_bytes: u64,
    /// Bytes of blocks that went straight to the slow device.
    pub direct_bytes: u64,
    /// Bytes written back from the log to the slow device.
    pub written_back_bytes: u64,
    /// Bytes in the log that were replaced there by newer ones before write-back reached them.
    pub absorbed_bytes: u64,
    /// Bytes of blocks that were moved from the tail of the log to its head, since their volumes can't be written to.
    pub relocated_bytes: u64,
    /// Blocks in the log of volumes that can't be written to.
    pub refused_blocks: u64,
    /// Bytes of blocks of logs that were written again as they were, and so not at all.
    pub unchanged_bytes: u64,
    /// Flushes of slow devices.
    pub slow_flushes: u64,
    /// Times that a critical task read, truncated or flushed on a slow device by itself, while others made way.
    pub critical_slow_uses: u64,
    /// Blocks now in the log and not yet on the slow device.
    pub cached_blocks: u64,
    /// Bytes of the log in use, and of the log.
    pub log_used_bytes: u64,
    /// Size of the log.
    pub log_bytes: u64,
    /// Bytes waiting for the slow device or under way to it.
    pub pending_bytes: u64,
    /// Volumes whose slow devices lack truncations that the log holds.
    pub open_truncations: u64,
    /// Writes that should have been cached and were not, or had to wait, for lack of space.
    pub stalls: u64,
    /// Flights whose end was discarded because the log had overtaken them.
    pub discarded_flights: u64,
    /// Decisions by [`AdmissionReason::index`].
    #[serde(serialize_with = "by_reason")]
    pub reasons: [ReasonCount; AdmissionReason::EVERY.len()],
    /// What was cached for a critical task.
    pub critical_writes: CriticalWrites,
    /// Waits of critical tasks by [`WaitCause::EVERY`].
    #[serde(serialize_with = "by_cause")]
    pub critical_waits: [WaitStats; WaitCause::EVERY.len()],
    /// Waits of all other tasks.
    #[serde(serialize_with = "by_cause")]
    pub other_waits: [WaitStats; WaitCause::EVERY.len()],
}

fn as_name<S: Serializer>(policy: &AdmissionPolicy, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(policy.name())
}

fn by_name<'a, S: Serializer, T: Serialize + 'a>(
    entries: impl Iterator<Item = (&'static str, &'a T)>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    for (name, value) in entries {
        map.serialize_entry(name, value)?;
    }
    map.end()
}

fn by_content<S: Serializer>(blocks: &[u64; 3], serializer: S) -> Result<S::Ok, S::Error> {
    by_name(ContentKind::EVERY.into_iter().map(ContentKind::name).zip(blocks), serializer)
}

fn by_reason<S: Serializer>(
    counts: &[ReasonCount; AdmissionReason::EVERY.len()],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    by_name(AdmissionReason::EVERY.into_iter().map(AdmissionReason::name).zip(counts), serializer)
}

fn by_cause<S: Serializer>(waits: &[WaitStats; WaitCause::EVERY.len()], serializer: S) -> Result<S::Ok, S::Error> {
    by_name(WaitCause::EVERY.into_iter().map(WaitCause::name).zip(waits), serializer)
}

impl CacheStats {
    /// Share of the blocks decided on that entered the cache.
    pub fn cached_share(&self) -> f64 {
        let blocks = |fast: bool| -> u64 {
            let fits = |reason: &&AdmissionReason| reason.is_fast() == fast;
            AdmissionReason::EVERY.iter().filter(fits).map(|reason| self.reasons[reason.index()].blocks).sum()
        };
        let (fast, slow) = (blocks(true), blocks(false));
        if fast + slow == 0 { 0.0 } else { fast as f64 / (fast + slow) as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_counted_by_cause_and_by_who_waited() {
        let waits = WaitCounters::default();
        waits.note(WaitCause::Lock, true, 5);
        waits.note(WaitCause::Lock, true, 9);
        waits.note(WaitCause::LogWrite, false, 3);
        let critical = waits.read(true)[WaitCause::Lock as usize];
        assert_eq!(critical, WaitStats { count: 2, total_ns: 14, longest_ns: 9 });
        assert_eq!(waits.read(false)[WaitCause::LogWrite as usize].count, 1);
        for (index, cause) in WaitCause::EVERY.into_iter().enumerate() {
            assert_eq!(cause as usize, index, "{}", cause.name());
        }
    }

    #[test]
    fn as_json_every_count_has_a_name() {
        let mut stats = CacheStats::default();
        stats.critical_writes.inherited_blocks[ContentKind::Log as usize] = 3;
        stats.reasons[AdmissionReason::InheritedTask.index()].blocks = 3;
        stats.critical_waits[WaitCause::SlowFlush as usize].total_ns = 7;
        let json = serde_json::to_value(&stats).unwrap();
        assert_eq!(json["policy"], "CP+PI+IOI");
        assert_eq!(json["critical_writes"]["inherited_blocks"]["log"], 3);
        assert_eq!(json["reasons"]["inherited_task"]["blocks"], 3);
        assert_eq!(json["critical_waits"]["slow_flush"]["total_ns"], 7);
        assert_eq!(json["other_waits"]["log_write"]["count"], 0);
    }
}
