//! A simulation of the cache state without threads: every step of every job may come at any time, chosen by a seed, and the
//! power of both devices may go between any two steps (or within one).
//!
//! A model remembers, for each block, every version that was written and the newest that was acknowledged. After a power
//! cut each sector must hold a version no older than that; while running, a read must find the newest version.

use std::sync::Arc;

use quire_device::{Device, DeviceError, DeviceOperation, Directory, MemoryDirectory, PowerCut, errno};
use quire_rng::SplitMix64;

use crate::buffer_pool::BufferPool;
use crate::cache_state::{
    AppendOutcome, BlockVersion, CacheState, IssueRules, LogItem, NextJob, WaitProgress, WriteTicket,
};
use crate::config::VolumeLength;
use crate::format::{AREA_OFFSET, RecordKind};
use crate::ids::{BLOCK_BYTES, BlockAddr, BlockData, SequenceNumber, VolumeId};
use crate::jobs::{
    DrainError, DrainJob, DrainWatch, FlushJob, LogJob, RelocationJob, SlowJob, TruncateJob, mark_gaps,
    write_superblock,
};
use crate::policy::{Admission, AdmissionPolicy, admit};
use crate::recover::{RecoveredLog, recover};
use crate::stats::ContentKind;
use crate::tasks::{Criticality, TaskGraph};
use crate::volume::Volume;

mod cuts;
mod model;
mod refused;
mod tests;

use model::{Model, block_of, empty_log};

const VOLUMES: [VolumeId; 2] = [VolumeId(3), VolumeId(9)];
const BLOCKS: u64 = 12;
const AREA_BYTES: u64 = 192 << 10;
const RULES: IssueRules = IssueRules {
    linger_ns: 20,
    queue_bytes: 64 << 10,
    runs_per_job: 3,
    jobs_per_volume: 2,
    everything: false,
    hold_back: false,
};

/// A job that a thread has begun, and its result once it has run.
enum Under {
    Log(LogJob, Option<Result<(), DeviceError>>),
    Slow(SlowJob, Option<Result<(), DeviceError>>),
    /// With the block from which on its end has still to be told.
    Flush(FlushJob, Option<Result<(), DeviceError>>, u64),
    Drain(Box<DrainJob>, Option<Result<(), DrainError>>),
    Truncate(TruncateJob, Option<Result<(), DeviceError>>),
    Relocation(RelocationJob, Option<Vec<BlockData>>),
}

impl Under {
    fn has_run(&self) -> bool {
        match self {
            Self::Log(_, result) | Self::Slow(_, result) | Self::Flush(_, result, _) => result.is_some(),
            Self::Truncate(_, result) => result.is_some(),
            Self::Drain(_, result) => result.is_some(),
            Self::Relocation(_, pieces) => pieces.is_some(),
        }
    }
}

/// What slow devices do wrong.
#[derive(Clone, Copy, Default)]
struct SlowFaults {
    sick: bool,
    refuses: Option<VolumeId>,
}

struct World {
    rng: SplitMix64,
    policy: AdmissionPolicy,
    fast_home: MemoryDirectory,
    slow_homes: [MemoryDirectory; 2],
    fast: Arc<dyn Device>,
    cache_state: CacheState,
    buffers: BufferPool,
    under: Vec<Under>,
    tickets: Vec<(WriteTicket, WaitProgress)>,
    /// Truncations whose records are on their way: blocks behind the end, and where the record is.
    truncations: Vec<(WriteTicket, u64)>,
    model: Model,
    /// Versions are numbered over restarts; the cache state's stamps begin anew.
    base: u64,
    /// Slow devices fail now and then, and this one refuses everything that comes to it.
    faults: SlowFaults,
    /// Nothing new comes.
    settles: bool,
    now_ns: u64,
}

/// While write-back is about a step of its batch, anything else may happen.
struct Watched<'a>(&'a mut World);

impl DrainWatch for Watched<'_> {
    fn before(&mut self, step: &mut Vec<(BlockAddr, u64)>) {
        self.0.cache_state.begin_step(step);
        let most = if self.0.rng.below(4) == 0 { 60 } else { 6 };
        self.0.others_step(most);
    }

    fn after(&mut self, done: usize) {
        self.0.cache_state.end_step(done);
        self.0.others_step(3);
    }
}

impl World {
    fn new(seed: u64, policy: AdmissionPolicy) -> Self {
        let (fast_home, slow_homes) = (MemoryDirectory::new(), [MemoryDirectory::new(), MemoryDirectory::new()]);
        fast_home.put("fast", &vec![0; (AREA_OFFSET + AREA_BYTES) as usize]);
        for home in &slow_homes {
            home.put("slow", &vec![0; (BLOCKS as usize) * BLOCK_BYTES]);
        }
        let found = empty_log(seed, AREA_BYTES);
        Self::start(SplitMix64::new(seed), policy, fast_home, slow_homes, &found, Model::default())
    }

    fn start(
        rng: SplitMix64,
        policy: AdmissionPolicy,
        fast_home: MemoryDirectory,
        slow_homes: [MemoryDirectory; 2],
        found: &RecoveredLog,
        model: Model,
    ) -> Self {
        let fast = fast_home.open("fast").unwrap();
        let mut cache_state = found.cache_state(policy, 16, &TaskGraph::new());
        cache_state.queue_blocks = RULES.queue_bytes / BLOCK_BYTES;
        for (id, home) in VOLUMES.into_iter().zip(&slow_homes) {
            let (device, tasks) = (home.open("slow").unwrap(), TaskGraph::new());
            cache_state.volumes.entry(id).or_insert_with(|| Volume::new(None, VolumeLength::Growable, 0, &tasks));
            Self::plug(&mut cache_state, id, device, None);
        }
        let buffers = BufferPool::default();
        mark_gaps(found, &*fast, &buffers).unwrap();
        write_superblock(&cache_state.next_superblock(false), &*fast, &buffers).unwrap();
        let base = model.written.values().flatten().map(|(seqno, _)| *seqno).max().unwrap_or(0);
        let (under, tickets, truncations) = (Vec::new(), Vec::new(), Vec::new());
        let (faults, settles, now_ns) = (SlowFaults::default(), false, 0);
        Self {
            rng,
            policy,
            fast_home,
            slow_homes,
            fast,
            cache_state,
            buffers,
            under,
            tickets,
            truncations,
            model,
            base,
            faults,
            settles,
            now_ns,
        }
    }

    /// As `SharedCache::attach_open` does it.
    fn plug(cache_state: &mut CacheState, id: VolumeId, device: Arc<dyn Device>, len: Option<u64>) {
        let open = cache_state.volumes[&id].truncations.open();
        if let Some(truncation) = open {
            truncation.carry_out(&*device).unwrap();
        }
        if let Some(len) = len {
            device.set_len(len).unwrap();
            device.flush().unwrap();
        }
        let (incarnation, len) = (cache_state.next_incarnation(), device.len().unwrap());
        cache_state.volumes.get_mut(&id).unwrap().plug(device, VolumeLength::Growable, len, incarnation);
        if let Some(truncation) = open {
            cache_state.truncations_are_carried_out(id, truncation.end_lsn);
        }
        cache_state.unstick();
        cache_state.judge_flush(id);
    }

    /// The number of the next write; versions go on over restarts.
    fn next_seqno(&mut self) -> SequenceNumber {
        while self.cache_state.last_seqno().0 < self.base {
            self.cache_state.next_seqno();
        }
        self.cache_state.next_seqno()
    }

    /// A truncation of a volume that the log knows, if nothing behind it is on its way to the log: as `SharedCache::settle` does it.
    fn truncate(&mut self) {
        let (id, blocks) = (VOLUMES[self.rng.below(2) as usize], self.rng.below(BLOCKS + 1));
        let len = blocks * BLOCK_BYTES as u64;
        let volume = &self.cache_state.volumes[&id];
        let is_known = volume.logged_blocks > 0 || !volume.truncations.is_empty();
        let is_busy = volume.truncations.truncating.is_some() || self.cache_state.is_logging_beyond(id, blocks);
        if !is_known || is_busy || volume.len == len || self.cache_state.fast.dead.is_some() {
            return;
        }
        let seqno = self.next_seqno();
        if let Ok(job) = self.cache_state.begin_control(RecordKind::Truncate, id, len, None, self.now_ns) {
            let ticket = WriteTicket { volume: id, first: blocks, end: BLOCKS, seqno };
            for block in blocks..BLOCKS {
                self.model.written.entry(BlockAddr { volume: id, block }).or_default().push((seqno.0, 0));
            }
            self.cache_state.volumes.get_mut(&id).unwrap().truncations.truncating = Some(blocks);
            self.truncations.push((ticket, job.drafts[0].lsn));
            self.under.push(Under::Log(job, None));
        }
    }

    /// The records of truncations among these are durable.
    fn end_truncations(&mut self, job: &LogJob) {
        for (ticket, lsn) in std::mem::take(&mut self.truncations) {
            if job.drafts.iter().any(|draft| draft.lsn == lsn) {
                self.model.acknowledge(&ticket);
                self.cache_state.volumes.get_mut(&ticket.volume).unwrap().truncations.truncating = None;
            } else {
                self.truncations.push((ticket, lsn));
            }
        }
    }

    /// The log is told of truncations that are on their devices.
    fn tell(&mut self) -> bool {
        let ids: Vec<VolumeId> = self.cache_state.untold.closing.keys().copied().collect();
        let jobs: Vec<LogJob> =
            ids.iter().filter_map(|id| self.cache_state.begin_truncate_done(*id, self.now_ns)).collect();
        let begun = !jobs.is_empty();
        self.under.extend(jobs.into_iter().map(|job| Under::Log(job, None)));
        begun
    }

    fn criticality(&mut self) -> Criticality {
        Criticality { critical: self.rng.below(3) == 0, inherited: self.rng.below(3) == 0 }
    }

    fn write(&mut self) {
        let volume = VOLUMES[self.rng.below(2) as usize];
        self.write_to(volume);
    }

    fn write_to(&mut self, volume: VolumeId) {
        let first = BlockAddr { volume, block: self.rng.below(BLOCKS) };
        let count = (1 + self.rng.below(4)).min(BLOCKS - first.block);
        if self.cache_state.volumes[&volume].truncations.truncating.is_some() {
            // The task that truncates it holds its order.
            return;
        }
        let seqno = self.next_seqno();
        self.cache_state.grow(volume, first.plus(count).offset());
        let is_sync = self.rng.below(2) == 0;
        let criticality = self.criticality();
        for index in 0..count {
            self.model.written.entry(first.plus(index)).or_default().push((seqno.0, seqno.0));
        }
        let ticket = WriteTicket { volume, first: first.block, end: first.block + count, seqno };
        self.tickets.push((ticket, WaitProgress::default()));
        let mut must = false;
        if is_sync {
            let facts = self.cache_state.facts_of_run(first, count, ContentKind::Data, true, criticality);
            let reason = admit(self.policy, &facts);
            must = facts.cached;
            if reason.admission() == Admission::Fast {
                let items: Vec<_> = (0..count).map(|index| (Self::item(first.plus(index), seqno), reason)).collect();
                if let AppendOutcome::Job { job, taken } = self.cache_state.begin_log(&items, must, 1, self.now_ns) {
                    self.under.push(Under::Log(job, None));
                    self.queue(first.plus(taken as u64), count - taken as u64, seqno, true);
                    return;
                }
            }
        }
        self.queue(first, count, seqno, is_sync || must);
    }

    fn item(addr: BlockAddr, seqno: SequenceNumber) -> LogItem {
        CacheState::item(addr, block_of(seqno.0), ContentKind::Data, seqno)
    }

    fn queue(&mut self, first: BlockAddr, count: u64, seqno: SequenceNumber, urgent: bool) {
        for index in 0..count {
            let version = BlockVersion { piece: block_of(seqno.0), content: ContentKind::Data };
            self.cache_state.queue(first.plus(index), version, seqno, urgent, 1, self.now_ns);
        }
    }

    /// A waiter looks at its ticket, as `SharedCache::wait` does.
    fn look(&mut self, index: usize, criticality: Criticality) {
        let (ticket, progress) = &mut self.tickets[index];
        let (survey, ticket) = (ticket.survey(&self.cache_state, progress, criticality, 64), *ticket);
        if !survey.items.is_empty()
            && let AppendOutcome::Job { job, .. } = self.cache_state.begin_log(&survey.items, true, 1, self.now_ns)
        {
            self.under.push(Under::Log(job, None));
            return;
        }
        ticket.press(&mut self.cache_state, &survey, 1);
    }

    fn run(&mut self, index: usize) {
        let is_refused = |id: VolumeId| self.faults.refuses == Some(id);
        let refused = match &self.under[index] {
            Under::Slow(job, _) => is_refused(job.target.volume),
            Under::Flush(job, ..) => is_refused(job.volume),
            Under::Truncate(job, _) => is_refused(job.volume),
            Under::Drain(job, _) => job.targets.first().is_some_and(|target| is_refused(target.volume)),
            Under::Log(..) | Under::Relocation(..) => false,
        };
        let fails = refused || self.faults.sick && self.rng.below(12) == 0;
        let error = || DeviceError::from_errno(DeviceOperation::Write, "slow", errno::EIO);
        let (fast, buffers) = (&*self.fast, &self.buffers);
        match &mut self.under[index] {
            Under::Slow(job, result) if fails => {
                // It may be there all the same.
                if self.rng.below(2) == 0 {
                    job.run(buffers).unwrap();
                }
                *result = Some(Err(error()));
            }
            Under::Flush(_, result, _) if fails => *result = Some(Err(error())),
            Under::Truncate(job, result) if fails => {
                if self.rng.below(2) == 0 {
                    job.run().unwrap();
                }
                *result = Some(Err(error()));
            }
            Under::Truncate(job, result) => *result = Some(job.run()),
            Under::Drain(job, result) if fails && !job.targets.is_empty() => {
                *result = Some(Err(DrainError::Slow(job.targets[0].volume, error())));
            }
            Under::Log(job, result) => *result = Some(job.run(fast, buffers)),
            Under::Slow(job, result) => *result = Some(job.run(buffers)),
            Under::Flush(job, result, _) => *result = Some(job.device.flush_data()),
            Under::Relocation(job, pieces) => *pieces = Some(job.read(fast, buffers).unwrap_or_default()),
            Under::Drain(..) => self.run_drain(index),
        }
    }

    fn others_step(&mut self, most: u64) {
        for _ in 0..if self.settles { 0 } else { self.rng.below(most) } {
            self.step();
        }
    }

    fn run_drain(&mut self, index: usize) {
        let Under::Drain(mut job, _) = self.under.swap_remove(index) else { unreachable!("it is write-back") };
        let fast = Arc::clone(&self.fast);
        let result = job.run(&*fast, &BufferPool::default(), &mut Watched(self));
        self.under.push(Under::Drain(job, Some(result)));
    }

    fn finish(&mut self, index: usize) {
        let now_ns = self.now_ns;
        match self.under.swap_remove(index) {
            Under::Log(job, result) => {
                let result = result.unwrap();
                self.cache_state.finish_log(&job, &result, now_ns);
                if job.is_relocation {
                    self.cache_state.end_relocation(None);
                }
                if result.is_ok() {
                    self.end_truncations(&job);
                }
            }
            Under::Truncate(job, result) => self.cache_state.finish_truncate(&job, &result.unwrap(), now_ns),
            Under::Slow(job, result) => self.cache_state.finish_slow(&job, &result.unwrap(), now_ns),
            Under::Flush(job, result, from) => {
                let next = job.finish(&mut self.cache_state, result.as_ref().unwrap(), now_ns, from, 2);
                self.under.extend(next.map(|from| Under::Flush(job, result, from)));
            }
            Under::Drain(job, result) => self.cache_state.finish_drain(&job, &result.unwrap(), 1, now_ns),
            Under::Relocation(job, pieces) => match self.cache_state.begin_relocated(&job, &pieces.unwrap(), now_ns) {
                Some(job) => self.under.push(Under::Log(job, None)),
                None => self.cache_state.end_relocation(None),
            },
        }
    }

    /// Dead devices are replaced by ones that lack what was never flushed.
    fn replace_dead(&mut self) {
        for (index, id) in VOLUMES.into_iter().enumerate() {
            let volume = &self.cache_state.volumes[&id];
            if volume.dead.is_none()
                || volume.truncations.is_under_way()
                || self.faults.refuses == Some(id)
                || self.cache_state.drains_to(id)
            {
                continue;
            }
            let home = self.slow_homes[index].after_power_cut(PowerCut::KeepSome(self.rng.below(u64::MAX)));
            let device = home.open("slow").unwrap();
            self.slow_homes[index] = home;
            let len = self.cache_state.volumes[&id].len;
            Self::plug(&mut self.cache_state, id, device, Some(len));
        }
    }

    fn begin(&mut self, everything: bool) -> bool {
        let rules = IssueRules { everything, ..RULES };
        let criticality = self.criticality();
        let next = self.cache_state.next_job(&rules, &|_| criticality, self.now_ns);
        let begun = next.is_some();
        self.under.extend(next.map(|next| match next {
            NextJob::Log(job) => Under::Log(job, None),
            NextJob::Slow(job) => Under::Slow(job, None),
            NextJob::Flush(job) => Under::Flush(job, None, 0),
            NextJob::Truncate(job) => Under::Truncate(job, None),
        }));
        begun
    }

    fn drain(&mut self) -> bool {
        let job = self.cache_state.begin_drain(32 << 10, 3, 2);
        let relocation = if job.is_none() { self.cache_state.begin_relocation(32 << 10, 4) } else { None };
        let begun = job.is_some() || relocation.is_some();
        self.under.extend(job.map(|job| Under::Drain(Box::new(job), None)));
        self.under.extend(relocation.map(|job| Under::Relocation(job, None)));
        begun
    }

    fn step(&mut self) {
        self.now_ns += 1;
        let some = |under: &[Under], rng: &mut SplitMix64, ran: bool| {
            let fitting: Vec<usize> = (0..under.len()).filter(|&index| under[index].has_run() == ran).collect();
            (!fitting.is_empty()).then(|| fitting[rng.below(fitting.len() as u64) as usize])
        };
        match self.rng.below(12) {
            0 | 1 if self.tickets.len() < 40 => self.write(),
            10 => self.truncate(),
            11 => drop(self.tell()),
            2 if !self.tickets.is_empty() => {
                let index = self.rng.below(self.tickets.len() as u64) as usize;
                let criticality = self.criticality();
                self.look(index, criticality);
            }
            3 | 4 => drop(self.begin(false)),
            5 if self.faults.sick && self.rng.below(8) == 0 => self.replace_dead(),
            5 => drop(self.drain()),
            6 | 7 => {
                if let Some(index) = some(&self.under, &mut self.rng, false) {
                    self.run(index);
                }
            }
            _ => {
                if let Some(index) = some(&self.under, &mut self.rng, true) {
                    self.finish(index);
                }
            }
        }
        self.acknowledge();
    }

    /// Everything under way ends and everything is written back.
    fn settle(&mut self) {
        (self.faults.sick, self.settles) = (false, true);
        for _ in 0..10_000 {
            self.now_ns += 1;
            self.replace_dead();
            while let Some(index) = self.under.iter().position(|under| !under.has_run()) {
                self.run(index);
            }
            while let Some(last) = self.under.len().checked_sub(1) {
                if !self.under[last].has_run() {
                    self.run(last);
                    continue;
                }
                self.finish(last);
            }
            for (ticket, progress) in &mut self.tickets {
                let survey = ticket.survey(&self.cache_state, progress, Criticality::default(), 0);
                ticket.press(&mut self.cache_state, &survey, 1);
            }
            let begun = self.begin(true) | self.drain() | self.tell();
            if !begun && self.under.is_empty() && self.cache_state.totals.total() == 0 {
                break;
            }
            if !begun {
                self.now_ns += 2_000_000_000;
            }
        }
        self.acknowledge();
        assert!(self.tickets.is_empty(), "a write was never settled");
        assert_eq!(self.cache_state.cached_blocks(), 0, "write-back does not end");
        assert_eq!(self.cache_state.totals, crate::volume::VersionCounts::default());
        self.check_newest();
    }
}
