//! The cache's threads: issuers, which write to the slow devices what is queued, and write-back, which frees the log.
//!
//! Relies on the cache state for what to do next; the threads only carry it out, and wait for more.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::cache_state::{CacheState, NextJob};
use crate::error::CacheError;
use crate::ids::BlockAddr;
use crate::jobs::{DrainWatch, RelocationJob};
use crate::log_identity::{self, LogIdentity, LogState};
use crate::shared::SharedCache;
use crate::tasks::{Criticality, TaskId};
use crate::writeback_rate::{WritebackPressure, pause};

/// Blocks that write-back moves between two looks at the pressure, and runs in which they may lie.
const STEP_BLOCKS: usize = 256;
const STEP_RUNS: usize = 16;
/// Shortest sleep of an idle thread: whatever changes wakes it.
const LEAST_SLEEP: Duration = Duration::from_millis(5);
/// Longest sleep of an idle thread.
const IDLE: Duration = Duration::from_secs(1);

/// Starts the threads.
pub(crate) fn start(shared: &Arc<SharedCache>) -> Result<Vec<JoinHandle<()>>, CacheError> {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let issuers = std::iter::repeat_n(("wcache-issue", issue as fn(&SharedCache)), shared.config.issuers.max(1));
    for (name, run) in issuers.chain([("wcache-back", write_back as fn(&SharedCache))]) {
        let ours = Arc::clone(shared);
        match std::thread::Builder::new().name(name.to_owned()).spawn(move || run(&ours)) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                shared.stop.store(true, Ordering::Relaxed);
                shared.rouse();
                for thread in threads {
                    let _ = thread.join();
                }
                return Err(CacheError::Threads(error.kind()));
            }
        }
    }
    Ok(threads)
}

fn issue(shared: &SharedCache) {
    let mut cache_state = shared.cache_state();
    while !shared.stop.load(Ordering::Relaxed) {
        let rules = shared.rules();
        let criticality = |task: TaskId| shared.criticality(task);
        if let Some(next) = cache_state.next_job(&rules, &criticality, shared.now_ns()) {
            drop(cache_state);
            // Another issuer may find more.
            shared.call_issuers();
            // What is begun while others are held back is not theirs, and not their turn.
            if !rules.hold_back && !matches!(next, NextJob::Log(_)) {
                shared.note_slow_begun();
            }
            shared.run_next(next);
            cache_state = shared.cache_state();
            continue;
        }
        if cache_state.drain_state().wanted {
            shared.call_drain();
        }
        let due_ns = cache_state.next_due_ns(&rules).map_or(u64::MAX, |due_ns| due_ns.saturating_sub(shared.now_ns()));
        let limit = Duration::from_nanos(due_ns).clamp(LEAST_SLEEP, IDLE);
        cache_state.sleeps_until(shared.now_ns() + limit.as_nanos() as u64);
        cache_state = shared.wait_work(cache_state, limit);
        cache_state.has_woken();
    }
}

/// How soon write-back is needed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Now,
    Within(Duration),
}

fn need(shared: &SharedCache, cache_state: &CacheState) -> Need {
    let salvaging = cache_state.fast.dead.is_some() && !cache_state.fast.salvaged;
    if salvaging {
        return Need::Now;
    }
    let Some(oldest_ns) = cache_state.oldest_ns().filter(|_| cache_state.fast.dead.is_none()) else {
        return Need::Within(IDLE);
    };
    let wanted = cache_state.drain_state().wanted || shared.drain_all.load(Ordering::Relaxed);
    if wanted || cache_state.used_percent() >= shared.config.low_percent {
        return Need::Now;
    }
    // Half of the deadline to wait, half to do it.
    let age = Duration::from_nanos(shared.now_ns().saturating_sub(oldest_ns));
    let left = (shared.config.deadline / 2).saturating_sub(age);
    if left.is_zero() { Need::Now } else { Need::Within(left.min(IDLE)) }
}

fn write_back(shared: &SharedCache) {
    let mut cache_state = shared.cache_state();
    while !shared.stop.load(Ordering::Relaxed) {
        if cache_state.revive(shared.now_ns()) {
            shared.announce();
        }
        if !cache_state.untold.closing.is_empty() || !cache_state.untold.forgetting.is_empty() {
            drop(cache_state);
            shared.close_truncations();
            shared.finish_forgetting();
            cache_state = shared.cache_state();
        }
        if let Need::Within(limit) = need(shared, &cache_state) {
            cache_state = shared.wait_drain(cache_state, limit);
            continue;
        }
        let Some(mut job) = cache_state.begin_drain(shared.config.batch_bytes, STEP_BLOCKS, STEP_RUNS) else {
            let relocation = cache_state.begin_relocation(shared.config.batch_bytes, STEP_BLOCKS);
            let over = cache_state.salvage_is_over();
            drop(cache_state);
            if let Some(job) = relocation {
                relocate(shared, &job);
                cache_state = shared.cache_state();
                continue;
            }
            if over {
                end_salvage(shared);
            }
            shared.announce();
            cache_state = shared.wait_drain(shared.cache_state(), Duration::from_millis(20));
            continue;
        };
        drop(cache_state);
        let began = Instant::now();
        let result = job.run(&*shared.fast, &shared.buffers, &mut Watch { shared, step_began: began });
        if let Err(error) = &result {
            tracing::error!(?error, "write-back failed");
        }
        let took_ns = began.elapsed().as_nanos() as u64;
        shared.cache_state().finish_drain(&job, &result, took_ns, shared.now_ns());
        shared.announce();
        cache_state = shared.cache_state();
    }
}

/// Moves blocks from the log's tail to its head, a step of write-back's size at a time, with the same pauses between them.
fn relocate(shared: &SharedCache, job: &RelocationJob) {
    let began = Instant::now();
    let read = job.read(&*shared.fast, &shared.buffers);
    if let Err(error) = &read {
        tracing::error!(%error, "the fast device of the write cache failed");
    }
    let pieces = read.as_deref().unwrap_or_default();
    let log_job = shared.cache_state().begin_relocated(job, pieces, shared.now_ns());
    if let Some(log_job) = &log_job {
        shared.run_log(log_job, Criticality::default());
    }
    let pressure = {
        let mut cache_state = shared.cache_state();
        cache_state.end_relocation(read.err());
        pressure(shared, &cache_state)
    };
    shared.announce();
    // Newer records, or unfinished ones, were in the way.
    let rest = if log_job.is_none() { LEAST_SLEEP } else { pause(&pressure, began.elapsed()) };
    if !rest.is_zero() && !shared.stop.load(Ordering::Relaxed) {
        drop(shared.wait_drain(shared.cache_state(), rest));
    }
}

/// Nothing more can be had of a dead fast device.
fn end_salvage(shared: &SharedCache) {
    let (told, left_some) = {
        let cache_state = shared.cache_state();
        let told = LogIdentity {
            identity: cache_state.identity(),
            state: LogState::Abandoned,
            epoch: cache_state.log.epochs[0],
        };
        (told, cache_state.salvage_left_some())
    };
    // While a volume that can't be written to has blocks in the log, that must not be given up.
    let abandoned = !left_some && abandon(shared, told);
    let mut cache_state = shared.cache_state();
    cache_state.finish_salvage(abandoned);
    let lost = cache_state.lost();
    tracing::warn!(?lost, abandoned, "the fast device of the write cache is given up");
}

/// Notes that the log must never be used again. Whether that is now certain.
fn abandon(shared: &SharedCache, told: LogIdentity) -> bool {
    let Some(witness) = &shared.config.witness else { return false };
    let result = log_identity::write(&**witness, told, &shared.buffers);
    if let Err(error) = &result {
        tracing::error!(%error, "the witness of the write cache failed");
    }
    result.is_ok()
}

/// Follows a batch: keeps out of the way of truncations, and leaves the slow device to others now and then.
struct Watch<'a> {
    shared: &'a SharedCache,
    step_began: Instant,
}

impl DrainWatch for Watch<'_> {
    fn before(&mut self, step: &mut Vec<(BlockAddr, u64)>) {
        let mut cache_state = self.shared.cache_state();
        // Not in the way of a critical task that waits for the slow device, unless a task waits for this.
        while self.shared.holds_back() && !cache_state.drain_state().wanted && !self.shared.stop.load(Ordering::Relaxed)
        {
            cache_state = self.shared.wait_drain(cache_state, LEAST_SLEEP);
        }
        cache_state.begin_step(step);
        drop(cache_state);
        self.shared.note_slow_begun();
        self.step_began = Instant::now();
    }

    fn after(&mut self, done: usize) {
        let shared = self.shared;
        let (pressure, has_truncations) = {
            let mut cache_state = shared.cache_state();
            cache_state.end_step(done);
            (pressure(shared, &cache_state), cache_state.has_open_truncations())
        };
        // A truncation may wait for this step.
        shared.announce_to_log_sleepers();
        if has_truncations {
            shared.call_issuers();
        }
        let rest = pause(&pressure, self.step_began.elapsed());
        if !rest.is_zero() && !shared.stop.load(Ordering::Relaxed) {
            // A wake-up for write-back means haste: it ends the pause early.
            drop(shared.wait_drain(shared.cache_state(), rest));
        }
    }
}

fn pressure(shared: &SharedCache, cache_state: &CacheState) -> WritebackPressure {
    let age_ns = cache_state.oldest_ns().map_or(0, |oldest_ns| shared.now_ns().saturating_sub(oldest_ns));
    let overdue = u128::from(age_ns) * 4 >= shared.config.deadline.as_nanos() * 3;
    let hurry = cache_state.drain_state().wanted
        || overdue
        || cache_state.fast.dead.is_some()
        || shared.drain_all.load(Ordering::Relaxed);
    WritebackPressure {
        used_percent: cache_state.used_percent(),
        high_percent: shared.config.high_percent,
        low_percent: shared.config.low_percent,
        hurry,
        foreground: cache_state.totals.urgent > 0 || shared.is_slow_used(),
    }
}
