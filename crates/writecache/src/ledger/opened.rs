//! The ledger of a log that has just been read, or of a new one.
//!
//! Relies on [`recover`](crate::recover::recover) for the records; here they are put together in order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::config::Growth;
use crate::format::Kind;
use crate::ids::{BLOCK_BYTES, Place, VolumeId};
use crate::ledger::{Entry, EntryState, Ledger};
use crate::policy::Policy;
use crate::recover::{Record, Recovered};
use crate::ring::Ring;
use crate::stats::CacheStats;
use crate::tasks::Tasks;
use crate::trace::Trace;
use crate::volume::{Tally, Volume};

impl Ledger {
    /// The ledger of a log as found. Volumes that the log names are there, without devices.
    pub fn opened(found: &Recovered, policy: Policy, trace_len: usize, tasks: &std::sync::Arc<Tasks>) -> Self {
        let mut ledger = Self {
            policy,
            ring: Ring::new(found.area_bytes, found.tail_lsn, found.head_lsn),
            volumes: BTreeMap::new(),
            totals: Tally::default(),
            trace: Trace::new(trace_len),
            stats: CacheStats { policy, ..CacheStats::default() },
            fast_dead: None,
            salvaged: false,
            abandoned: false,
            closing: BTreeMap::new(),
            open_cuts: BTreeSet::new(),
            is_after_cut: false,
            forgetting: BTreeMap::new(),
            retries: BTreeSet::new(),
            closed: false,
            queue_blocks: 4096,
            unsynced: !found.clean,
            granule_bytes: found.granule_bytes,
            identity: found.identity,
            epochs: found.epochs,
            generation: found.generation,
            records: VecDeque::new(),
            logged: BTreeMap::new(),
            slots: BTreeMap::new(),
            waiting: BTreeSet::new(),
            urgent: BTreeSet::new(),
            written: BTreeSet::new(),
            stamp: 0,
            cursor: Place { volume: VolumeId(0), block: 0 },
            next_look_ns: u64::MAX,
            ages: BTreeSet::new(),
            flushes: BTreeSet::new(),
            flushed_last: VolumeId(0),
            unflushed: BTreeSet::new(),
            turn: 0,
            jobs: 0,
            flights: 0,
            incarnations: 0,
            setbacks: 0,
            drain: super::DrainState::default(),
        };
        for record in &found.records {
            ledger.replay(record, tasks);
        }
        for place in ledger.logged.keys() {
            if let Some(volume) = ledger.volumes.get_mut(&place.volume) {
                volume.logged_blocks += 1;
            }
        }
        ledger.volumes.retain(|_, volume| volume.logged_blocks > 0 || !volume.cuts.is_empty());
        let open = |(id, volume): (&VolumeId, &Volume)| volume.cuts.open().map(|_| *id);
        ledger.open_cuts = ledger.volumes.iter().filter_map(open).collect();
        ledger
    }

    fn replay(&mut self, record: &Record, tasks: &std::sync::Arc<Tasks>) {
        let Record { lsn, end, kind, volume: id, first_block, block_count: count, volume_len, done_lsn } = *record;
        let first = Place { volume: id, block: first_block };
        let (state, since_ns) = (EntryState::Durable, 0);
        self.records.push_back(Entry { lsn, end, kind, first, count, state, since_ns });
        let volume = self.volumes.entry(id).or_insert_with(|| Volume::new(None, Growth::Grows, 0, tasks));
        match kind {
            Kind::Write => volume.len = volume.len.max(volume_len),
            Kind::Cut | Kind::Forget => {
                let len = if kind == Kind::Cut { volume_len } else { 0 };
                // The device has the length, or gets it when it is attached. It may have been cut again since, alone.
                volume.len = 0;
                match kind {
                    Kind::Cut => volume.cuts.push_apart(len, end),
                    _ => volume.cuts.clear(),
                }
                let beyond = Place { volume: id, block: len.div_ceil(BLOCK_BYTES as u64) };
                let range = beyond..=Place { volume: id, block: u64::MAX };
                let gone: Vec<Place> = self.logged.range(range).map(|(place, _)| *place).collect();
                for place in gone {
                    self.logged.remove(&place);
                }
            }
            // One of version 1 names none: it is about all cuts before it.
            Kind::CutDone => volume.cuts.close(if done_lsn == 0 { lsn } else { done_lsn }),
            // The reader keeps these for itself.
            Kind::Spare => {}
        }
        for index in 0..u64::from(count) {
            let position = lsn + self.granule_bytes + index * BLOCK_BYTES as u64;
            self.logged.insert(first.plus(index), position);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuts::OpenCut;

    const FILE: VolumeId = VolumeId(1);

    /// What is left to be cut of a log with these records: kinds, lengths, and what cut-dones name.
    fn open_cut(records: &[(Kind, u64, u64)]) -> Option<OpenCut> {
        let record = |(index, &(kind, volume_len, done_lsn)): (usize, &(Kind, u64, u64))| {
            let lsn = index as u64 * 512;
            Record { lsn, end: lsn + 512, kind, volume: FILE, first_block: 0, block_count: 0, volume_len, done_lsn }
        };
        let found = Recovered {
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
        };
        let ledger = Ledger::opened(&found, Policy::All, 1, &Tasks::new());
        ledger.volumes.get(&FILE).and_then(|volume| volume.cuts.open())
    }

    #[test]
    fn a_cut_done_leaves_the_cuts_that_came_after_the_one_it_names() {
        let cuts = [(Kind::Cut, 5000, 0), (Kind::Cut, 3000, 0), (Kind::Cut, 9000, 0)];
        assert_eq!(open_cut(&cuts), Some(OpenCut { len: 9000, floor: 3000, end_lsn: 1536 }));
        let done = |named: u64| [&cuts[..], &[(Kind::CutDone, 0, named)]].concat();
        assert_eq!(open_cut(&done(512)), Some(OpenCut { len: 9000, floor: 3000, end_lsn: 1536 }));
        assert_eq!(open_cut(&done(1024)), Some(OpenCut { len: 9000, floor: 9000, end_lsn: 1536 }));
        assert_eq!(open_cut(&done(1536)), None);
        assert_eq!(open_cut(&done(0)), None, "one of version 1 is about all before it");
        assert_eq!(open_cut(&[cuts[0], (Kind::Forget, 0, 0)]), None);
    }
}
