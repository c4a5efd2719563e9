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
use crate::volume::{OpenCut, Tally, Volume};

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
        ledger.volumes.retain(|_, volume| volume.logged_blocks > 0 || volume.open_cut.is_some());
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
                let floor = volume.open_cut.map_or(len, |before| before.floor.min(len));
                volume.open_cut = (kind == Kind::Cut).then_some(OpenCut { len, floor, end_lsn: end });
                let beyond = Place { volume: id, block: len.div_ceil(BLOCK_BYTES as u64) };
                let range = beyond..=Place { volume: id, block: u64::MAX };
                let gone: Vec<Place> = self.logged.range(range).map(|(place, _)| *place).collect();
                for place in gone {
                    self.logged.remove(&place);
                }
            }
            Kind::CutDone => volume.open_cut = volume.open_cut.filter(|cut| done_lsn != 0 && cut.end_lsn > done_lsn),
            // The reader keeps these for itself.
            Kind::Spare => {}
        }
        for index in 0..u64::from(count) {
            let position = lsn + self.granule_bytes + index * BLOCK_BYTES as u64;
            self.logged.insert(first.plus(index), position);
        }
    }
}
