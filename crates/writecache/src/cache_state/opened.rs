//! The cache state of a log that has just been read, or of a new one.
//!
//! Relies on [`recover`](crate::recover::recover) for the records; here they are put together in order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::cache_state::{
    CacheState, Entry, EntryState, FastHealth, FlushState, IssueState, LogIndex, RefusedVolumes, Sequences,
    UnreportedChanges, VersionIndex,
};
use crate::config::VolumeLength;
use crate::decision_trace::DecisionTrace;
use crate::format::RecordKind;
use crate::ids::{BLOCK_BYTES, BlockAddr, VolumeId};
use crate::policy::AdmissionPolicy;
use crate::recover::{LogRecord, RecoveredLog};
use crate::ring::Ring;
use crate::stats::CacheStats;
use crate::tasks::TaskGraph;
use crate::volume::{VersionCounts, Volume};

impl RecoveredLog {
    /// The cache state of a log as self. Volumes that the log names are there, without devices.
    pub fn cache_state(
        &self,
        policy: AdmissionPolicy,
        trace_len: usize,
        tasks: &std::sync::Arc<TaskGraph>,
    ) -> CacheState {
        let mut cache_state = CacheState {
            policy,
            log: LogIndex {
                ring: Ring::new(self.area_bytes, self.tail_lsn, self.head_lsn),
                granule_bytes: self.granule_bytes,
                identity: self.identity,
                epochs: self.epochs,
                generation: self.generation,
                records: VecDeque::new(),
                logged: BTreeMap::new(),
                sums: self.sums.clone(),
                refused: RefusedVolumes::default(),
            },
            fast: FastHealth::default(),
            volumes: BTreeMap::new(),
            untold: UnreportedChanges::default(),
            totals: VersionCounts::default(),
            versions: VersionIndex::default(),
            trace: DecisionTrace::new(trace_len),
            stats: CacheStats { policy, ..CacheStats::default() },
            closed: false,
            queue_blocks: 4096,
            issue: IssueState {
                cursor: BlockAddr { volume: VolumeId(0), block: 0 },
                next_look_ns: u64::MAX,
                turn: 0,
                jobs: 0,
                is_after_truncation: false,
            },
            flush: FlushState {
                due: BTreeSet::new(),
                last: VolumeId(0),
                unflushed: BTreeSet::new(),
                retries: BTreeSet::new(),
                unsynced: !self.clean,
            },
            numbers: Sequences::default(),
            drain: super::DrainState::default(),
        };
        for record in &self.records {
            replay(&mut cache_state, record, tasks);
        }
        for addr in cache_state.log.logged.keys() {
            if let Some(volume) = cache_state.volumes.get_mut(&addr.volume) {
                volume.logged_blocks += 1;
            }
        }
        cache_state.volumes.retain(|_, volume| volume.logged_blocks > 0 || !volume.truncations.is_empty());
        let open = |(id, volume): (&VolumeId, &Volume)| volume.truncations.open().map(|_| *id);
        cache_state.untold.open_truncations = cache_state.volumes.iter().filter_map(open).collect();
        cache_state.judge_all_refused();
        cache_state
    }
}

fn replay(cache_state: &mut CacheState, record: &LogRecord, tasks: &std::sync::Arc<TaskGraph>) {
    let LogRecord { lsn, end, kind, volume: id, first_block, block_count: count, volume_len, done_lsn, floor } =
        *record;
    let first = BlockAddr { volume: id, block: first_block };
    let (state, since_ns) = (EntryState::Durable, 0);
    cache_state.log.records.push_back(Entry { lsn, end, kind, first, count, volume_len, state, since_ns });
    let volume = cache_state.volumes.entry(id).or_insert_with(|| Volume::new(None, VolumeLength::Growable, 0, tasks));
    match kind {
        RecordKind::Write => volume.len = volume.len.max(volume_len),
        RecordKind::Truncate | RecordKind::Forget => {
            let len = if kind == RecordKind::Truncate { volume_len } else { 0 };
            // The device has the length, or gets it when it is attached. It may have been truncated again since, alone.
            volume.len = 0;
            match kind {
                RecordKind::Truncate => volume.truncations.push_apart(len, end),
                _ => volume.truncations.clear(),
            }
            let beyond = BlockAddr { volume: id, block: len.div_ceil(BLOCK_BYTES as u64) };
            let range = beyond..=BlockAddr { volume: id, block: u64::MAX };
            let gone: Vec<BlockAddr> = cache_state.log.logged.range(range).map(|(addr, _)| *addr).collect();
            for addr in gone {
                cache_state.log.logged.remove(&addr);
            }
        }
        // One of version 1 names none: it is about all truncations before it.
        RecordKind::TruncateDone => volume.truncations.close(if done_lsn == 0 { lsn } else { done_lsn }),
        // Those for which it stands have made blocks void themselves, if they are still there, and writes behind them may
        // have made the volume longer.
        RecordKind::OpenTruncation => volume.truncations.push_open(floor, volume_len, end),
        // The reader keeps these for itcache_state.
        RecordKind::Spare => {}
    }
    for index in 0..u64::from(count) {
        let position = lsn + cache_state.log.granule_bytes + index * BLOCK_BYTES as u64;
        cache_state.log.logged.insert(first.plus(index), position);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pending_truncations::OpenTruncation;

    const FILE: VolumeId = VolumeId(1);

    /// What is left to be truncated of a log with these records: kinds, lengths, and what truncate-done name.
    fn open_truncation(records: &[(RecordKind, u64, u64)]) -> Option<OpenTruncation> {
        let record = |(index, &(kind, volume_len, done_lsn)): (usize, &(RecordKind, u64, u64))| {
            let lsn = index as u64 * 512;
            let (end, floor) = (lsn + 512, volume_len / 2);
            LogRecord { lsn, end, kind, volume: FILE, first_block: 0, block_count: 0, volume_len, done_lsn, floor }
        };
        let found = RecoveredLog {
            identity: 1,
            generation: 1,
            granule_bytes: 512,
            area_bytes: 1 << 20,
            clean: false,
            tail_lsn: 0,
            head_lsn: records.len() as u64 * 512,
            records: records.iter().enumerate().map(record).collect(),
            skipped_bytes: 0,
            gaps: Vec::new(),
            epochs: Default::default(),
            accepted: Vec::new(),
            sums: Default::default(),
        };
        let cache_state = found.cache_state(AdmissionPolicy::All, 1, &TaskGraph::new());
        cache_state.volumes.get(&FILE).and_then(|volume| volume.truncations.open())
    }

    #[test]
    fn a_truncate_done_leaves_the_truncations_that_came_after_the_one_it_names() {
        let truncations =
            [(RecordKind::Truncate, 5000, 0), (RecordKind::Truncate, 3000, 0), (RecordKind::Truncate, 9000, 0)];
        assert_eq!(open_truncation(&truncations), Some(OpenTruncation { len: 9000, floor: 3000, end_lsn: 1536 }));
        let done = |named: u64| [&truncations[..], &[(RecordKind::TruncateDone, 0, named)]].concat();
        assert_eq!(open_truncation(&done(512)), Some(OpenTruncation { len: 9000, floor: 3000, end_lsn: 1536 }));
        assert_eq!(open_truncation(&done(1024)), Some(OpenTruncation { len: 9000, floor: 9000, end_lsn: 1536 }));
        assert_eq!(open_truncation(&done(1536)), None);
        assert_eq!(open_truncation(&done(0)), None, "one of version 1 is about all before it");
        assert_eq!(open_truncation(&[truncations[0], (RecordKind::Forget, 0, 0)]), None);
    }

    #[test]
    fn a_relocated_truncation_is_open_until_one_says_that_it_is_done_itself() {
        let relocated = [(RecordKind::Truncate, 5000, 0), (RecordKind::OpenTruncation, 8000, 0)];
        assert_eq!(open_truncation(&relocated), Some(OpenTruncation { len: 8000, floor: 4000, end_lsn: 1024 }));
        let done = |named: u64| [&relocated[..], &[(RecordKind::TruncateDone, 0, named)]].concat();
        assert_eq!(open_truncation(&done(512)), Some(OpenTruncation { len: 8000, floor: 4000, end_lsn: 1024 }));
        assert_eq!(open_truncation(&done(1024)), None);
    }
}
