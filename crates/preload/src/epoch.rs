//! One child's life as the worker goes through it: wait until the child proves to stay, copy ahead, look at
//! memory just before its end, learn.
//!
//! Relies on the sentinel page to tell whether the child still shares memory: it does not after `exec` or its end, and
//! a look that was taken then says nothing. A child that ends without a word (killed) is learned from by the last of the
//! looks that are taken all along, at times that the life of the child before it suggests.

use std::time::{Duration, Instant};

use quire_sys::guest::PidFd;
use quire_sys::pagemap::PagemapEntry;

use crate::context::WorkerContext;
use crate::epoch_stats::EpochStats;
use crate::host_monitor::HostMonitor;
use crate::log;
use crate::precopy::Precopy;
use crate::sampler::WriteSampler;
use crate::state::{self, ForkRecord};

/// A child that lives no longer, or has called `exec` by then, is of no interest.
const LEAST_LIFE: Duration = Duration::from_millis(5);
/// How often it is checked whether the child has ended without a word.
const CHECK: Duration = Duration::from_millis(20);
/// Looks are taken after each such part of the life that is expected.
const LOOKS_PER_LIFE: u32 = 4;
/// The life that is expected of the first child, and the shortest that is.
const FIRST_LIFE: Duration = Duration::from_secs(2);
const SHORTEST_LIFE: Duration = Duration::from_millis(200);

/// How an epoch ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EpochOutcome {
    /// The child was of no interest.
    Ignored,
    /// Nothing could be learned.
    Blind,
    /// It was learned from.
    Learned {
        /// What was.
        epoch_stats: EpochStats,
        /// Whether the child said that it was about to end.
        announced: bool,
    },
}

/// What a pause ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    Time,
    Ending,
    Gone,
}

/// One child's life.
#[derive(Debug)]
pub struct Epoch<'a> {
    context: &'a mut WorkerContext,
    life: ChildLife,
    sampler: WriteSampler,
    stopped: Option<&'static str>,
}

/// The child.
#[derive(Debug)]
struct ChildLife {
    fork: ForkRecord,
    watched: PidFd,
    began: Instant,
}

impl<'a> Epoch<'a> {
    /// The epoch of `fork`; `None` if its child is gone already.
    pub fn open(context: &'a mut WorkerContext, fork: ForkRecord) -> Option<Self> {
        let watched = PidFd::open(fork.pid).ok()?;
        let sampler = WriteSampler::new(fork.slot_id.raw());
        Some(Self { context, life: ChildLife { fork, watched, began: Instant::now() }, sampler, stopped: None })
    }

    /// The child's process.
    pub fn watched(&self) -> &PidFd {
        &self.life.watched
    }

    /// The program.
    pub fn host_monitor(&self) -> &HostMonitor {
        &self.context.host_monitor
    }

    /// How long it has gone on.
    pub fn elapsed(&self) -> Duration {
        self.life.began.elapsed()
    }

    /// Why copying ahead stopped early, if it did.
    pub fn stopped(&self) -> Option<&'static str> {
        self.stopped
    }

    /// Goes through it; `expected_life` is how long the child before lived.
    pub fn run(&mut self, expected_life: Option<Duration>) -> EpochOutcome {
        if self.life.pause(self.context, LEAST_LIFE) == Wake::Gone || !is_shared(self.context) {
            return EpochOutcome::Ignored;
        }
        let slot_id = self.life.fork.slot_id;
        self.context.stats_page.track(slot_id);
        if let Err(error) = self.context.regions.renew(&self.context.pagemap) {
            log::at(1, format_args!("memory can't be looked at (error {})", error.raw_os_error().unwrap_or(0)));
            self.context.stats_page.release(slot_id);
            return EpochOutcome::Blind;
        }
        let life = &self.life;
        self.stopped = Precopy::new(self.context, self.sampler, life.fork.forker)
            .run(|context, sleep| life.pause(context, sleep) == Wake::Time);
        let (seen, announced) = self.watch(expected_life);
        self.context.stats_page.release(slot_id);
        if !seen {
            return EpochOutcome::Blind;
        }
        EpochOutcome::Learned { epoch_stats: EpochStats::settle(self.context.regions.all_mut()), announced }
    }

    /// Waits for the child's end; returns whether there is a valid look, and whether the child announced its end.
    fn watch(&mut self, expected_life: Option<Duration>) -> (bool, bool) {
        let step = expected_life.unwrap_or(FIRST_LIFE).max(SHORTEST_LIFE) / LOOKS_PER_LIFE;
        let mut seen = false;
        loop {
            match self.life.pause(self.context, step) {
                Wake::Time => seen |= self.look(),
                Wake::Ending => {
                    let looked = self.look();
                    return (looked || seen, looked);
                }
                Wake::Gone => return (seen, false),
            }
        }
    }

    /// Looks at memory; false if the child had gone by then.
    fn look(&mut self) -> bool {
        let context = &mut *self.context;
        if context.regions.look(&context.pagemap, self.sampler).is_err() || !is_shared(context) {
            return false;
        }
        context.regions.accept();
        true
    }
}

impl ChildLife {
    /// Sleeps for `time` unless something about this child, or a newer one, happens before.
    fn pause(&self, context: &WorkerContext, time: Duration) -> Wake {
        let until = Instant::now() + time;
        loop {
            let events = context.stats_page.events();
            if state::latest_fork() != Some(self.fork)
                || self.watched.has_ended()
                || !context.host_monitor.is_unchanged()
            {
                return Wake::Gone;
            }
            if context.stats_page.is_ending(self.fork.slot_id) {
                return Wake::Ending;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Wake::Time;
            }
            context.stats_page.wait(events, Some(left.min(CHECK)));
        }
    }
}

/// Whether the latest child still shares memory with the program.
fn is_shared(context: &WorkerContext) -> bool {
    let mut word = [0];
    let read = context.pagemap.read_words(state::sentinel(), &mut word);
    read.is_ok() && PagemapEntry::is_shared_anonymous(word[0])
}
