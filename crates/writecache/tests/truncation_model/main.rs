//! A model of truncations that are acknowledged when their record in the log is durable and reach the slow device later: one
//! file of a few blocks, a log, a slow device that loses what was not flushed, and every step in any order, chosen by a seed.
//! Power goes at any step; the fast device dies at any write, which may have arrived or not.
//!
//! The protocol:
//! - A `Truncate` record holds a length. It is begun when no version behind that is on its way to the log. When it is
//!   durable, the file has the length; versions behind it that are in memory or in the log are void. The truncation is
//!   *pending* from the moment when its record is begun.
//! - *Fence*: the lowest length of all pending truncations. Behind it no version is issued to the slow device and
//!   write-back moves nothing; the log takes new versions; what neither memory nor the log has reads as zeros.
//! - The truncator carries out all pending truncations at once: no flight behind the fence is under way; set the lowest
//!   length, then the last; flush; then the record `TruncateDone`, which names the last truncation that this covers.
//!   Truncations that came meanwhile stay pending.
//! - The log's tail passes a `Truncate` only when that is flushed on the slow device.
//! - Recovery takes all truncations behind the last that a `TruncateDone` names as pending; the truncator carries them out
//!   as any others.
//! - A version that is under way to the slow device when a truncation takes it away is *void*: its end only ends the
//!   flight. Found by this model: otherwise it is read again once the file has grown.
//! - A dead fast device: what it holds, its truncations first, goes to the slow device, is flushed, and the witness says
//!   *abandoned*. Until then nothing behind the fence, the one of a truncation whose record's fate is unknown included, is
//!   acknowledged on the slow device alone; without a witness never.
//!
//! Each rule is proven needed by a mutation ([`Mutant`]) that the simulation must find.
//!
//! Relies on nothing of the cache: it is the design, small enough to be looked at as a whole.

use quire_rng::SplitMix64;
use std::collections::{BTreeMap, BTreeSet};

mod background;
mod records;

const BLOCKS: usize = 6;

/// A rule that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    None,
    /// Versions behind the fence are issued.
    NoFence,
    /// The truncator does not wait for the running step of write-back.
    TruncatesUnderWriteBack,
    /// What lies behind the fence on the slow device is read.
    ReadsBehindFence,
    /// Recovery forgets all pending truncations but the last.
    LastCutOnly,
    /// `TruncateDone` covers truncations that began after the truncator had looked.
    DoneCoversAll,
    /// The truncator does not wait for flights.
    CutsUnderFlights,
    /// `TruncateDone` without a flush.
    DoneWithoutFlush,
    /// The tail passes pending truncations.
    TailPassesTruncations,
    /// The fence falls when the device is truncated, before the log knows.
    FenceFallsEarly,
    /// A truncation begins while versions behind it are on their way to the log.
    TruncationOvertakesLog,
    /// After the fast device died the file goes on with the slow one at once.
    GoesOnAtOnce,
    /// As before, but only for a truncation whose record's fate is unknown.
    ForgetsUnknownTruncation,
    /// The witness says abandoned before what the log held is flushed.
    AbandonsEarly,
    /// The truncation counts before its record is durable.
    AcknowledgesEarly,
    /// A dead log's blocks go to the slow device without its truncations.
    SalvagesWithoutCuts,
}

const MUTANTS: [Mutant; 15] = [
    Mutant::NoFence,
    Mutant::TruncatesUnderWriteBack,
    Mutant::ReadsBehindFence,
    Mutant::LastCutOnly,
    Mutant::DoneCoversAll,
    Mutant::CutsUnderFlights,
    Mutant::DoneWithoutFlush,
    Mutant::TailPassesTruncations,
    Mutant::FenceFallsEarly,
    Mutant::TruncationOvertakesLog,
    Mutant::GoesOnAtOnce,
    Mutant::ForgetsUnknownTruncation,
    Mutant::AbandonsEarly,
    Mutant::AcknowledgesEarly,
    Mutant::SalvagesWithoutCuts,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// A block's version; the file has at least so many blocks.
    Write {
        block: usize,
        version: u32,
    },
    Truncate {
        len: usize,
    },
    /// Truncations up to this position are on the slow device.
    TruncateDone {
        upto: usize,
    },
}

#[derive(Clone, Copy, Debug)]
struct LogRecord {
    lsn: usize,
    what: What,
    durable: bool,
}

#[derive(Clone, Debug)]
enum SlowOp {
    Write(usize, u32),
    SetLen(usize),
}

/// What a file is: versions of its blocks; 0 is a block of zeros.
type ContentKind = Vec<u32>;

fn apply(content: &mut ContentKind, op: &SlowOp) {
    match *op {
        SlowOp::Write(block, version) => {
            if content.len() <= block {
                content.resize(block + 1, 0);
            }
            content[block] = version;
        }
        SlowOp::SetLen(len) => content.resize(len, 0),
    }
}

fn put(content: &mut ContentKind, block: usize, version: u32) {
    if let Some(addr) = content.get_mut(block) {
        *addr = version;
    }
}

#[derive(Default)]
struct Slow {
    durable: ContentKind,
    /// Since the last flush.
    volatile: Vec<SlowOp>,
    /// The log that was used last must not be used again.
    abandoned: bool,
}

impl Slow {
    fn now(&self) -> ContentKind {
        let mut content = self.durable.clone();
        self.volatile.iter().for_each(|op| apply(&mut content, op));
        content
    }

    fn flush(&mut self) {
        self.durable = self.now();
        self.volatile.clear();
    }

    /// Of what was not flushed any part may be there; lengths keep their order with what came before.
    fn lose_power(&mut self, rng: &mut SplitMix64) {
        let ops = std::mem::take(&mut self.volatile);
        let style = rng.index(3);
        for op in ops {
            if style == 1 || style == 2 && rng.index(2) == 0 {
                apply(&mut self.durable, &op);
            }
        }
    }
}

/// What is known of a version that is not durable.
#[derive(Clone, Copy, Debug)]
struct InflightWrite {
    version: u32,
    /// The slow device has it, since this flush was the last to have begun.
    written: Option<u32>,
    /// A truncation took it away while it was under way: its end only ends the flight, and it is no version of the block.
    void: bool,
}

/// Blocks that write-back moves, where their records end, and whether they are flushed (1) or not (0).
type Batch = (Vec<(usize, u32)>, usize, usize);

/// How far the truncator has come: covers truncations up to a position, lengths to set, then a flush, then the record.
#[derive(Clone, Debug)]
enum Truncator {
    Idle,
    Set { upto: usize, floor: usize, last: usize, step: usize },
    Flushed { upto: usize },
    Telling,
}

/// The fast device and its log.
struct Fast {
    /// What is on the device, or on its way there.
    log: Vec<LogRecord>,
    tail: usize,
    next_lsn: usize,
    /// Before this position there may be gaps.
    opened_at: usize,
    is_dead: bool,
    is_salvaged: bool,
}

/// What the cache has in memory.
#[derive(Default)]
struct Memory {
    queued: BTreeMap<usize, u32>,
    flights: BTreeMap<usize, InflightWrite>,
    logged: BTreeMap<usize, (usize, u32)>,
    /// Blocks that a dead log may hold, in versions that never counted.
    closed: BTreeSet<usize>,
}

/// Truncations that are not finished.
struct Truncation {
    /// Those that the slow device may lack: position and length.
    pending: Vec<(usize, usize)>,
    truncator: Truncator,
    /// The one whose record is on its way.
    recording: Option<(usize, usize)>,
    /// One that must be done on the slow device once the log is out of the way.
    retry: Option<usize>,
}

#[derive(Default)]
struct Flush {
    epoch: u32,
    under_way: Option<u32>,
    /// The directly truncated device was not flushed since this epoch.
    len_change: Option<u32>,
}

struct World {
    rng: SplitMix64,
    mutant: Mutant,
    has_witness: bool,
    slow: Slow,
    fast: Fast,
    /// Blocks of the file, as programs see them.
    len: usize,
    memory: Memory,
    truncation: Truncation,
    /// The file takes nothing more.
    refused: bool,
    flush: Flush,
    drain: Option<Batch>,
    /// The block that write-back is writing.
    drain_step: Option<(usize, u32)>,
    version: u32,
    /// Contents that the file had since it was last made durable; the newest last.
    history: Vec<ContentKind>,
}

impl World {
    fn new(seed: u64, mutant: Mutant) -> Self {
        let mut rng = SplitMix64::new(seed);
        let has_witness = rng.index(2) == 0;
        let content = vec![1; 3];
        let slow = Slow { durable: content.clone(), ..Slow::default() };
        Self::start(rng, mutant, has_witness, slow, Vec::new(), 0, 1, vec![content])
    }

    #[allow(clippy::too_many_arguments)]
    fn start(
        rng: SplitMix64,
        mutant: Mutant,
        has_witness: bool,
        slow: Slow,
        log: Vec<LogRecord>,
        tail: usize,
        version: u32,
        history: Vec<ContentKind>,
    ) -> Self {
        let next_lsn = log.iter().map(|record| record.lsn + 1).max().unwrap_or(tail).max(tail);
        Self {
            rng,
            mutant,
            has_witness,
            len: slow.durable.len(),
            slow,
            fast: Fast { log, tail, next_lsn, opened_at: 0, is_dead: false, is_salvaged: false },
            memory: Memory::default(),
            truncation: Truncation { pending: Vec::new(), truncator: Truncator::Idle, recording: None, retry: None },
            refused: false,
            flush: Flush::default(),
            drain: None,
            drain_step: None,
            version,
            history,
        }
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == mutant
    }

    /// Behind this nothing goes to the slow device.
    fn fence(&self) -> usize {
        let pending = self.truncation.pending.iter().map(|&(_, len)| len).min().unwrap_or(usize::MAX);
        let begun = self.truncation.recording.map_or(usize::MAX, |(_, len)| len);
        pending.min(begun).min(self.truncation.retry.unwrap_or(usize::MAX))
    }

    fn abandoned(&self) -> bool {
        self.fast.is_dead && self.slow.abandoned
    }

    /// The content as programs see it.
    fn content(&self) -> ContentKind {
        let mut content = self.slow.now();
        let floor = self.truncation.pending.iter().map(|&(_, len)| len).min().unwrap_or(usize::MAX);
        if !self.is(Mutant::ReadsBehindFence) && floor < content.len() {
            content.truncate(floor);
        }
        content.resize(self.len, 0);
        for (block, flight) in self.memory.flights.iter().filter(|(_, flight)| !flight.void) {
            put(&mut content, *block, flight.version);
        }
        let mut in_log = self.memory.logged.clone();
        for record in self.fast.log.iter().filter(|record| !record.durable && !self.fast.is_dead) {
            if let What::Write { block, version } = record.what {
                let newest = in_log.entry(block).or_insert((record.lsn, version));
                *newest = (record.lsn, version).max(*newest);
            }
        }
        in_log.iter().for_each(|(block, (_, version))| put(&mut content, *block, *version));
        self.memory.queued.iter().for_each(|(block, version)| put(&mut content, *block, *version));
        content
    }

    fn check_reads(&self) {
        if self.truncation.retry.is_none() && self.truncation.recording.is_none() && !self.refused {
            assert_eq!(&self.content(), self.history.last().unwrap(), "what a program reads");
        }
    }

    fn append(&mut self, what: What) -> usize {
        let lsn = self.fast.next_lsn;
        self.fast.next_lsn += 1;
        self.fast.log.push(LogRecord { lsn, what, durable: false });
        lsn
    }

    fn logging(&self) -> impl Iterator<Item = (usize, usize)> {
        self.fast.log.iter().filter(|record| !record.durable).filter_map(|record| match record.what {
            What::Write { block, .. } => Some((record.lsn, block)),
            _ => None,
        })
    }

    fn is_logging(&self, block: usize) -> bool {
        self.logging().any(|(_, other)| other == block)
    }

    /// Whether anything holds the file's operations up.
    fn is_held(&self) -> bool {
        self.truncation.recording.is_some() || self.truncation.retry.is_some() || self.refused
    }

    fn write(&mut self) {
        if self.is_held() {
            return;
        }
        let block = self.rng.index(BLOCKS);
        self.version += 1;
        self.memory.queued.insert(block, self.version);
        self.len = self.len.max(block + 1);
        let mut content = self.history.last().unwrap().clone();
        apply(&mut content, &SlowOp::Write(block, self.version));
        self.history.push(content);
    }

    fn truncate(&mut self) {
        let len = self.rng.index(BLOCKS + 1);
        let blocked = self.logging().any(|(_, block)| block >= len) && !self.is(Mutant::TruncationOvertakesLog);
        if self.is_held() || blocked {
            return;
        }
        let mut content = self.history.last().unwrap().clone();
        content.resize(len, 0);
        self.history.push(content);
        let unknown =
            self.memory.logged.is_empty() && self.truncation.pending.is_empty() && self.logging().next().is_none();
        if self.fast.is_dead || unknown {
            self.truncation.retry = Some(len);
        } else {
            let lsn = self.append(What::Truncate { len });
            self.truncation.recording = Some((lsn, len));
            if self.is(Mutant::AcknowledgesEarly) {
                self.apply_truncation(lsn, len);
            }
        }
    }

    fn apply_truncation(&mut self, lsn: usize, len: usize) {
        self.truncation.recording = None;
        self.truncation.pending.push((lsn, len));
        self.forget(len);
    }

    fn forget(&mut self, len: usize) {
        self.len = len;
        self.memory.queued.retain(|block, _| *block < len);
        self.memory.logged.retain(|block, _| *block < len);
        self.memory.flights.retain(|block, flight| *block < len || flight.written.is_none());
        self.memory.flights.range_mut(len..).for_each(|(_, flight)| flight.void = true);
    }

    /// Truncates the slow device in the foreground: the log does not know the file, or is gone.
    fn truncate_directly(&mut self) {
        let Some(len) = self.truncation.retry else { return };
        let flies = self.memory.flights.iter().any(|(block, flight)| *block >= len && flight.written.is_none());
        if flies || self.fast.is_dead && !self.fast.is_salvaged {
            return;
        }
        let is_closed = self.fast.is_dead && !self.abandoned();
        if is_closed && !self.is(Mutant::GoesOnAtOnce) && !self.is(Mutant::ForgetsUnknownTruncation) {
            // The file keeps its old length, as far as this run goes.
            (self.refused, self.truncation.retry) = (true, None);
            return;
        }
        self.slow.volatile.push(SlowOp::SetLen(len));
        self.forget(len);
        (self.truncation.retry, self.flush.len_change) = (None, Some(self.flush.epoch));
    }

    fn issue(&mut self) {
        let fence = if self.is(Mutant::NoFence) { usize::MAX } else { self.fence() };
        let may = |block: usize| {
            let over_log = self.memory.logged.contains_key(&block)
                || self.is_logging(block)
                || self.memory.closed.contains(&block);
            let flies = self.memory.flights.get(&block).is_some_and(|flight| flight.written.is_none());
            !flies && !over_log && block < fence
        };
        let blocks: Vec<usize> = self.memory.queued.keys().copied().filter(|&block| may(block)).collect();
        if blocks.is_empty() || self.refused {
            return;
        }
        let block = blocks[self.rng.index(blocks.len())];
        let version = self.memory.queued.remove(&block).unwrap();
        self.memory.flights.insert(block, InflightWrite { version, written: None, void: false });
    }

    fn land(&mut self) {
        let flying: Vec<usize> = self
            .memory
            .flights
            .iter()
            .filter(|(_, flight)| flight.written.is_none())
            .map(|(block, _)| *block)
            .collect();
        if flying.is_empty() {
            return;
        }
        let block = flying[self.rng.index(flying.len())];
        let flight = self.memory.flights[&block];
        self.slow.volatile.push(SlowOp::Write(block, flight.version));
        // Overtaken by the log, or void: its end only ends the flight.
        if self.memory.logged.contains_key(&block) || flight.void {
            self.memory.flights.remove(&block);
        } else {
            self.memory.flights.insert(block, InflightWrite { written: Some(self.flush.epoch), ..flight });
        }
    }
}

/// Panics if a file with this history can't have come to be this.
fn check(history: &[ContentKind], found: &ContentKind) {
    let lens = || history.iter().map(Vec::len);
    let (least, most) = (lens().min().unwrap(), lens().max().unwrap());
    assert!((least..=most).contains(&found.len()), "{} blocks, never: {least} to {most}", found.len());
    for (block, version) in found.iter().enumerate() {
        let was = history.iter().any(|content| content.get(block).copied().unwrap_or(0) == *version);
        assert!(was, "block {block} is version {version}, which it never was since: {history:?}, found {found:?}");
    }
}

fn run(seed: u64, mutant: Mutant) {
    let mut world = World::new(seed, mutant);
    for _ in 0..4 {
        for _ in 0..(20 + world.rng.index(400)) {
            world.step();
            world.check_reads();
        }
        world = world.lose_power();
    }
}

fn seeds() -> u64 {
    let scale = std::env::var("QUIRE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1_u64);
    20_000 * scale
}

#[test]
fn no_acknowledged_byte_is_cut_off_and_no_truncation_is_undone() {
    for seed in 0..seeds() {
        let ended = std::panic::catch_unwind(|| run(seed, Mutant::None));
        assert!(ended.is_ok(), "seed {seed}");
    }
}

#[test]
fn every_rule_is_needed() {
    std::panic::set_hook(Box::new(|_| {}));
    let mut survivors = Vec::new();
    for mutant in MUTANTS {
        let found = (0..seeds() * 3).find(|&seed| std::panic::catch_unwind(|| run(seed, mutant)).is_err());
        match found {
            Some(seed) => println!("{mutant:?}: seed {seed}"),
            None => survivors.push(mutant),
        }
    }
    let _ = std::panic::take_hook();
    assert!(survivors.is_empty(), "not needed: {survivors:?}");
}
