//! A simulation of the ledger without threads: every step of every job may come at any time, chosen by a seed, and the
//! power of both devices may go between any two steps (or within one).
//!
//! A model remembers, for each block, every version that was written and the newest that was acknowledged. After a power
//! cut each sector must hold a version no older than that; while running, a read must find the newest version.

use std::collections::BTreeMap;
use std::sync::Arc;

use quire_device::{Action, Device, DeviceError, Directory, MemoryDirectory, PowerCut, errno};

use crate::buffers::Buffers;
use crate::config::Growth;
use crate::format::{AREA_OFFSET, Kind};
use crate::ids::{BLOCK_BYTES, Piece, Place, Stamp, VolumeId};
use crate::jobs::{CutJob, DrainError, DrainJob, DrainWatch, FlushJob, LogJob, SlowJob, mark_gaps, write_superblock};
use crate::ledger::{Appended, Found, Headway, IssueRules, Item, Ledger, Next, Ticket, Version};
use crate::policy::{Admission, Policy, admit};
use crate::recover::{Recovered, recover};
use crate::stats::Content;
use crate::tasks::{Standing, Tasks};
use crate::volume::Volume;

mod tests;

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

struct Dice(u64);

impl Dice {
    fn roll(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }
}

/// A job that somebody has begun, and its result once it has run.
enum Under {
    Log(LogJob, Option<Result<(), DeviceError>>),
    Slow(SlowJob, Option<Result<(), DeviceError>>),
    /// With the block from which on its end has still to be told.
    Flush(FlushJob, Option<Result<(), DeviceError>>, u64),
    Drain(Box<DrainJob>, Option<Result<(), DrainError>>),
    Cut(CutJob, Option<Result<(), DeviceError>>),
}

impl Under {
    fn has_run(&self) -> bool {
        match self {
            Self::Log(_, result) | Self::Slow(_, result) | Self::Flush(_, result, _) => result.is_some(),
            Self::Cut(_, result) => result.is_some(),
            Self::Drain(_, result) => result.is_some(),
        }
    }
}

#[derive(Default)]
struct Model {
    /// What each block was given, in order: the stamp of the write or cut, and the version from then on, which is 0 behind a cut.
    written: BTreeMap<Place, Vec<(u64, u64)>>,
    acknowledged: BTreeMap<Place, u64>,
}

impl Model {
    fn newest(&self, place: Place) -> u64 {
        self.written.get(&place).and_then(|versions| versions.last()).map_or(0, |(_, version)| *version)
    }

    fn acknowledge(&mut self, ticket: &Ticket) {
        for block in ticket.first..ticket.end {
            let place = Place { volume: ticket.volume, block };
            let stamps = self.written.get(&place).into_iter().flatten().map(|(stamp, _)| *stamp);
            let newest = stamps.filter(|stamp| *stamp <= ticket.stamp.0).max().unwrap_or(0);
            let known = self.acknowledged.entry(place).or_default();
            *known = newest.max(*known);
        }
    }
}

struct World {
    dice: Dice,
    policy: Policy,
    fast_home: MemoryDirectory,
    slow_homes: [MemoryDirectory; 2],
    fast: Arc<dyn Device>,
    ledger: Ledger,
    buffers: Buffers,
    under: Vec<Under>,
    tickets: Vec<(Ticket, Headway)>,
    /// Cuts whose records are on their way: blocks behind the end, and where the record is.
    cuts: Vec<(Ticket, u64)>,
    model: Model,
    /// Versions are numbered over restarts; the ledger's stamps begin anew.
    base: u64,
    /// Slow devices fail now and then.
    sick: bool,
    /// Nothing new comes.
    settles: bool,
    now_ns: u64,
}

/// While write-back is about a step of its batch, anything else may happen.
struct Watched<'a>(&'a mut World);

impl DrainWatch for Watched<'_> {
    fn before(&mut self, step: &mut Vec<(Place, u64)>) {
        self.0.ledger.begin_step(step);
        let most = if self.0.dice.roll(4) == 0 { 60 } else { 6 };
        self.0.others_step(most);
    }

    fn after(&mut self, done: usize) {
        self.0.ledger.end_step(done);
        self.0.others_step(3);
    }
}

/// A block whose every sector says which version it is.
fn block_of(version: u64) -> Piece {
    let mut bytes = vec![0; BLOCK_BYTES];
    for sector in bytes.chunks_exact_mut(512) {
        sector[..8].copy_from_slice(&version.to_le_bytes());
    }
    Piece::cut(&bytes).remove(0)
}

impl World {
    fn new(seed: u64, policy: Policy) -> Self {
        let (fast_home, slow_homes) = (MemoryDirectory::new(), [MemoryDirectory::new(), MemoryDirectory::new()]);
        fast_home.put("fast", &vec![0; (AREA_OFFSET + AREA_BYTES) as usize]);
        for home in &slow_homes {
            home.put("slow", &vec![0; (BLOCKS as usize) * BLOCK_BYTES]);
        }
        let found = Recovered {
            identity: seed,
            generation: 0,
            granule_bytes: if seed.is_multiple_of(2) { 512 } else { 4096 },
            area_bytes: AREA_BYTES,
            clean: false,
            tail_lsn: 0,
            head_lsn: 0,
            records: Vec::new(),
            skipped_bytes: 0,
            gaps: Vec::new(),
            epochs: Default::default(),
            accepted: Vec::new(),
        };
        Self::start(Dice(seed), policy, fast_home, slow_homes, &found, Model::default())
    }

    fn start(
        dice: Dice,
        policy: Policy,
        fast_home: MemoryDirectory,
        slow_homes: [MemoryDirectory; 2],
        found: &Recovered,
        model: Model,
    ) -> Self {
        let fast = fast_home.open("fast").unwrap();
        let mut ledger = Ledger::opened(found, policy, 16, &Tasks::new());
        ledger.queue_blocks = RULES.queue_bytes / BLOCK_BYTES;
        for (id, home) in VOLUMES.into_iter().zip(&slow_homes) {
            let (device, tasks) = (home.open("slow").unwrap(), Tasks::new());
            ledger.volumes.entry(id).or_insert_with(|| Volume::new(None, Growth::Grows, 0, &tasks));
            Self::plug(&mut ledger, id, device, None);
        }
        let buffers = Buffers::default();
        mark_gaps(found, &*fast, &buffers).unwrap();
        write_superblock(&ledger.next_superblock(false), &*fast, &buffers).unwrap();
        let base = model.written.values().flatten().map(|(stamp, _)| *stamp).max().unwrap_or(0);
        let (under, tickets, cuts) = (Vec::new(), Vec::new(), Vec::new());
        let (sick, settles, now_ns) = (false, false, 0);
        Self {
            dice,
            policy,
            fast_home,
            slow_homes,
            fast,
            ledger,
            buffers,
            under,
            tickets,
            cuts,
            model,
            base,
            sick,
            settles,
            now_ns,
        }
    }

    /// As `Shared::attach_open` does it.
    fn plug(ledger: &mut Ledger, id: VolumeId, device: Arc<dyn Device>, len: Option<u64>) {
        let open = ledger.volumes[&id].cuts.open();
        if let Some(cut) = open {
            cut.carry_out(&*device).unwrap();
        }
        if let Some(len) = len {
            device.set_len(len).unwrap();
            device.flush().unwrap();
        }
        let (incarnation, len) = (ledger.next_incarnation(), device.len().unwrap());
        ledger.volumes.get_mut(&id).unwrap().plug(device, Growth::Grows, len, incarnation);
        if let Some(cut) = open {
            ledger.cuts_are_carried_out(id, cut.end_lsn);
        }
        ledger.unstick();
        ledger.judge_flush(id);
    }

    /// The number of the next write; versions go on over restarts.
    fn next_stamp(&mut self) -> Stamp {
        while self.ledger.last_stamp().0 < self.base {
            self.ledger.next_stamp();
        }
        self.ledger.next_stamp()
    }

    /// A cut of a volume that the log knows, if nothing behind it is on its way to the log: as `Shared::settle` does it.
    fn cut(&mut self) {
        let (id, blocks) = (VOLUMES[self.dice.roll(2) as usize], self.dice.roll(BLOCKS + 1));
        let len = blocks * BLOCK_BYTES as u64;
        let volume = &self.ledger.volumes[&id];
        let is_known = volume.logged_blocks > 0 || !volume.cuts.is_empty();
        if !is_known || volume.cutting.is_some() || volume.len == len || self.ledger.fast_dead.is_some() {
            return;
        }
        if self.ledger.is_logging_beyond(id, blocks) {
            return;
        }
        let stamp = self.next_stamp();
        if let Ok(job) = self.ledger.begin_control(Kind::Cut, id, len, None, self.now_ns) {
            let ticket = Ticket { volume: id, first: blocks, end: BLOCKS, stamp };
            for block in blocks..BLOCKS {
                self.model.written.entry(Place { volume: id, block }).or_default().push((stamp.0, 0));
            }
            self.ledger.volumes.get_mut(&id).unwrap().cutting = Some(blocks);
            self.cuts.push((ticket, job.drafts[0].lsn));
            self.under.push(Under::Log(job, None));
        }
    }

    /// The records of cuts among these are durable.
    fn end_cuts(&mut self, job: &LogJob) {
        for (ticket, lsn) in std::mem::take(&mut self.cuts) {
            if job.drafts.iter().any(|draft| draft.lsn == lsn) {
                self.model.acknowledge(&ticket);
                self.ledger.volumes.get_mut(&ticket.volume).unwrap().cutting = None;
            } else {
                self.cuts.push((ticket, lsn));
            }
        }
    }

    /// The log is told of cuts that are on their devices.
    fn tell(&mut self) -> bool {
        let ids: Vec<VolumeId> = self.ledger.closing.keys().copied().collect();
        let jobs: Vec<LogJob> = ids.iter().filter_map(|id| self.ledger.begin_cut_done(*id, self.now_ns)).collect();
        let begun = !jobs.is_empty();
        self.under.extend(jobs.into_iter().map(|job| Under::Log(job, None)));
        begun
    }

    fn standing(&mut self) -> Standing {
        Standing { critical: self.dice.roll(3) == 0, inherited: self.dice.roll(3) == 0 }
    }

    fn write(&mut self) {
        let volume = VOLUMES[self.dice.roll(2) as usize];
        let first = Place { volume, block: self.dice.roll(BLOCKS) };
        let count = (1 + self.dice.roll(4)).min(BLOCKS - first.block);
        if self.ledger.volumes[&volume].cutting.is_some() {
            // Whoever cuts it holds its order.
            return;
        }
        let stamp = self.next_stamp();
        self.ledger.grow(volume, first.plus(count).offset());
        let is_sync = self.dice.roll(2) == 0;
        let standing = self.standing();
        for index in 0..count {
            self.model.written.entry(first.plus(index)).or_default().push((stamp.0, stamp.0));
        }
        let ticket = Ticket { volume, first: first.block, end: first.block + count, stamp };
        self.tickets.push((ticket, Headway::default()));
        let mut must = false;
        if is_sync {
            let facts = self.ledger.facts_of_run(first, count, Content::Data, true, standing);
            let reason = admit(self.policy, &facts);
            must = facts.cached;
            if reason.admission() == Admission::Fast {
                let items: Vec<_> = (0..count).map(|index| (Self::item(first.plus(index), stamp), reason)).collect();
                if let Appended::Job { job, taken } = self.ledger.begin_log(&items, must, 1, self.now_ns) {
                    self.under.push(Under::Log(job, None));
                    self.queue(first.plus(taken as u64), count - taken as u64, stamp, true);
                    return;
                }
            }
        }
        self.queue(first, count, stamp, is_sync || must);
    }

    fn item(place: Place, stamp: Stamp) -> Item {
        Ledger::item(place, block_of(stamp.0), Content::Data, stamp)
    }

    fn queue(&mut self, first: Place, count: u64, stamp: Stamp, urgent: bool) {
        for index in 0..count {
            let version = Version { piece: block_of(stamp.0), content: Content::Data };
            self.ledger.queue(first.plus(index), version, stamp, urgent, 1, self.now_ns);
        }
    }

    /// A waiter looks at its ticket, as `Shared::wait` does.
    fn look(&mut self, index: usize, standing: Standing) {
        let (ticket, headway) = &mut self.tickets[index];
        let (survey, ticket) = (self.ledger.survey(ticket, headway, standing, 64), *ticket);
        if !survey.items.is_empty()
            && let Appended::Job { job, .. } = self.ledger.begin_log(&survey.items, true, 1, self.now_ns)
        {
            self.under.push(Under::Log(job, None));
            return;
        }
        self.ledger.press(&ticket, &survey, 1);
    }

    fn run(&mut self, index: usize) {
        let fails = self.sick && self.dice.roll(12) == 0;
        let error = || DeviceError::from_errno(Action::Write, "slow", errno::EIO);
        let (fast, buffers) = (&*self.fast, &self.buffers);
        match &mut self.under[index] {
            Under::Slow(job, result) if fails => {
                // It may be there all the same.
                if self.dice.roll(2) == 0 {
                    job.run(buffers).unwrap();
                }
                *result = Some(Err(error()));
            }
            Under::Flush(_, result, _) if fails => *result = Some(Err(error())),
            Under::Cut(job, result) if fails => {
                if self.dice.roll(2) == 0 {
                    job.run().unwrap();
                }
                *result = Some(Err(error()));
            }
            Under::Cut(job, result) => *result = Some(job.run()),
            Under::Drain(job, result) if fails && !job.targets.is_empty() => {
                *result = Some(Err(DrainError::Slow(job.targets[0].volume, error())));
            }
            Under::Log(job, result) => *result = Some(job.run(fast, buffers)),
            Under::Slow(job, result) => *result = Some(job.run(buffers)),
            Under::Flush(job, result, _) => *result = Some(job.device.flush_data()),
            Under::Drain(..) => self.run_drain(index),
        }
    }

    fn others_step(&mut self, most: u64) {
        for _ in 0..if self.settles { 0 } else { self.dice.roll(most) } {
            self.step();
        }
    }

    fn run_drain(&mut self, index: usize) {
        let Under::Drain(mut job, _) = self.under.swap_remove(index) else { unreachable!("it is write-back") };
        let fast = Arc::clone(&self.fast);
        let result = job.run(&*fast, &Buffers::default(), &mut Watched(self));
        self.under.push(Under::Drain(job, Some(result)));
    }

    fn finish(&mut self, index: usize) {
        let now_ns = self.now_ns;
        match self.under.swap_remove(index) {
            Under::Log(job, result) => {
                let result = result.unwrap();
                self.ledger.finish_log(&job, &result, now_ns);
                if result.is_ok() {
                    self.end_cuts(&job);
                }
            }
            Under::Cut(job, result) => self.ledger.finish_cut(&job, &result.unwrap(), now_ns),
            Under::Slow(job, result) => self.ledger.finish_slow(&job, &result.unwrap(), now_ns),
            Under::Flush(job, result, from) => {
                let next = self.ledger.finish_flush(&job, result.as_ref().unwrap(), now_ns, from, 2);
                self.under.extend(next.map(|from| Under::Flush(job, result, from)));
            }
            Under::Drain(job, result) => self.ledger.finish_drain(&job, &result.unwrap(), 1, now_ns),
        }
    }

    /// Dead devices are replaced by ones that lack what was never flushed.
    fn replace_dead(&mut self) {
        for (index, id) in VOLUMES.into_iter().enumerate() {
            if self.ledger.volumes[&id].dead.is_none() || self.ledger.drains_to(id) {
                continue;
            }
            let home = self.slow_homes[index].after_power_cut(PowerCut::KeepSome(self.dice.roll(u64::MAX)));
            let device = home.open("slow").unwrap();
            self.slow_homes[index] = home;
            let len = self.ledger.volumes[&id].len;
            Self::plug(&mut self.ledger, id, device, Some(len));
        }
    }

    fn begin(&mut self, everything: bool) -> bool {
        let rules = IssueRules { everything, ..RULES };
        let standing = self.standing();
        let next = self.ledger.next_job(&rules, &|_| standing, self.now_ns);
        let begun = next.is_some();
        self.under.extend(next.map(|next| match next {
            Next::Log(job) => Under::Log(job, None),
            Next::Slow(job) => Under::Slow(job, None),
            Next::Flush(job) => Under::Flush(job, None, 0),
            Next::Cut(job) => Under::Cut(job, None),
        }));
        begun
    }

    fn drain(&mut self) -> bool {
        let job = self.ledger.begin_drain(32 << 10, 3, 2);
        let begun = job.is_some();
        self.under.extend(job.map(|job| Under::Drain(Box::new(job), None)));
        begun
    }

    fn step(&mut self) {
        self.now_ns += 1;
        let some = |under: &[Under], dice: &mut Dice, ran: bool| {
            let fitting: Vec<usize> = (0..under.len()).filter(|&index| under[index].has_run() == ran).collect();
            (!fitting.is_empty()).then(|| fitting[dice.roll(fitting.len() as u64) as usize])
        };
        match self.dice.roll(12) {
            0 | 1 if self.tickets.len() < 40 => self.write(),
            10 => self.cut(),
            11 => drop(self.tell()),
            2 if !self.tickets.is_empty() => {
                let index = self.dice.roll(self.tickets.len() as u64) as usize;
                let standing = self.standing();
                self.look(index, standing);
            }
            3 | 4 => drop(self.begin(false)),
            5 if self.sick && self.dice.roll(8) == 0 => self.replace_dead(),
            5 => drop(self.drain()),
            6 | 7 => {
                if let Some(index) = some(&self.under, &mut self.dice, false) {
                    self.run(index);
                }
            }
            _ => {
                if let Some(index) = some(&self.under, &mut self.dice, true) {
                    self.finish(index);
                }
            }
        }
        self.acknowledge();
    }

    fn acknowledge(&mut self) {
        for (ticket, mut headway) in std::mem::take(&mut self.tickets) {
            if self.ledger.unsettled(&ticket, &mut headway) {
                self.tickets.push((ticket, headway));
            } else {
                self.model.acknowledge(&ticket);
            }
        }
    }

    fn places() -> impl Iterator<Item = Place> {
        VOLUMES.into_iter().flat_map(|volume| (0..BLOCKS).map(move |block| Place { volume, block }))
    }

    fn read(&self, place: Place) -> Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES];
        match self.ledger.find(place) {
            Found::Memory(piece) => block.copy_from_slice(piece.bytes()),
            Found::Log(position) => {
                self.fast.read_at(AREA_OFFSET + position % AREA_BYTES, &mut block).unwrap();
            }
            Found::Slow => {
                let volume = &self.ledger.volumes[&place.volume];
                // As `Shared::read_slow` does it.
                if place.offset() < volume.cuts.floor().min(volume.len) {
                    volume.device.as_ref().unwrap().read_at(place.offset(), &mut block).unwrap();
                }
            }
        }
        block
    }

    fn check_newest(&self) {
        let holds_still = |place: &Place| self.ledger.volumes[&place.volume].holds_still(place.block);
        for place in Self::places().filter(|place| !holds_still(place)) {
            let expected = block_of(self.model.newest(place));
            let found = u64::from_le_bytes(self.read(place)[..8].try_into().unwrap());
            let known = self.model.written.get(&place);
            assert!(
                self.read(place) == expected.bytes(),
                "{place:?} is version {found} by {:?}, not the last of {known:?}; {:?}",
                self.ledger.find(place),
                self.ledger.volumes[&place.volume].cuts
            );
        }
    }

    /// The power goes; what is left is checked and the cache opened again.
    fn lose_power(mut self) -> Self {
        let cut = |dice: &mut Dice| match dice.roll(4) {
            0 => PowerCut::LoseAll,
            1 => PowerCut::KeepAll,
            _ => PowerCut::KeepSome(dice.roll(u64::MAX)),
        };
        let fast_home = self.fast_home.after_power_cut(cut(&mut self.dice));
        let slow_homes = [0, 1].map(|index: usize| self.slow_homes[index].after_power_cut(cut(&mut self.dice)));
        let fast = fast_home.open("fast").unwrap();
        let mut read = |offset: u64, into: &mut [u8]| fast.read_at(offset, into).map(drop);
        let found = recover(&mut read, AREA_OFFSET + AREA_BYTES).unwrap();
        let model = std::mem::take(&mut self.model);
        let mut found_again = Self::start(self.dice, self.policy, fast_home, slow_homes, &found, model);
        found_again.check_after_cut();
        found_again
    }

    fn check_after_cut(&mut self) {
        for place in Self::places() {
            let acknowledged = self.model.acknowledged.get(&place).copied().unwrap_or(0);
            let versions = self.model.written.get(&place).cloned().unwrap_or_default();
            let block = self.read(place);
            for sector in block.chunks_exact(512) {
                let version = u64::from_le_bytes(sector[..8].try_into().unwrap());
                let was = versions.iter().any(|&(stamp, known)| known == version && stamp >= acknowledged);
                let begins_so = version == 0 && acknowledged == 0;
                assert!(
                    was || begins_so,
                    "{place:?} is version {version}, which it never was since {acknowledged}: {versions:?}"
                );
            }
            // What is there now is what the next steps begin with. A torn block stays one: write it anew.
            let sectors = block.chunks_exact(512).map(|sector| u64::from_le_bytes(sector[..8].try_into().unwrap()));
            let newest = sectors.clone().max().unwrap();
            if sectors.min() != Some(newest) {
                self.rewrite(place);
                continue;
            }
            let begins_so = newest == 0 && acknowledged == 0;
            let now = if begins_so { Vec::new() } else { vec![(acknowledged, newest)] };
            self.model.written.insert(place, now);
        }
    }

    fn rewrite(&mut self, place: Place) {
        let stamp = self.next_stamp();
        self.ledger.grow(place.volume, place.plus(1).offset());
        self.model.written.entry(place).or_default().push((stamp.0, stamp.0));
        self.queue(place, 1, stamp, true);
    }

    /// Everything under way ends and everything is written back.
    fn settle(&mut self) {
        (self.sick, self.settles) = (false, true);
        for _ in 0..10_000 {
            self.now_ns += 1;
            self.replace_dead();
            while let Some(index) = self.under.iter().position(|under| !under.has_run()) {
                self.run(index);
            }
            while let Some(last) = self.under.len().checked_sub(1) {
                self.finish(last);
            }
            for (ticket, headway) in &mut self.tickets {
                let survey = self.ledger.survey(ticket, headway, Standing::default(), 0);
                self.ledger.press(ticket, &survey, 1);
            }
            let begun = self.begin(true) | self.drain() | self.tell();
            if !begun && self.under.is_empty() && self.ledger.totals.total() == 0 {
                break;
            }
            if !begun {
                self.now_ns += 2_000_000_000;
            }
        }
        self.acknowledge();
        assert!(self.tickets.is_empty(), "a write was never settled");
        assert_eq!(self.ledger.cached_blocks(), 0, "write-back does not end");
        assert_eq!(self.ledger.totals, crate::volume::Tally::default());
        self.check_newest();
    }
}
