//! The cache's threads: issuers, which write to the slow devices what is queued, and write-back, which frees the log.
//!
//! Relies on the ledger for what to do next; the threads only carry it out, and wait for more.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::CacheError;
use crate::ids::Place;
use crate::jobs::DrainWatch;
use crate::ledger::{Ledger, Next};
use crate::pace::{Pressure, pause};
use crate::shared::Shared;
use crate::tasks::TaskId;
use crate::witness::{self, LogState, Told};

/// Blocks that write-back moves between two looks at the pressure, and runs in which they may lie.
const STEP_BLOCKS: usize = 256;
const STEP_RUNS: usize = 16;
/// Shortest sleep of an idle thread: whatever changes wakes it.
const LEAST_SLEEP: Duration = Duration::from_millis(5);
/// Longest sleep of an idle thread.
const IDLE: Duration = Duration::from_secs(1);

/// Starts the threads.
pub(crate) fn start(shared: &Arc<Shared>) -> Result<Vec<JoinHandle<()>>, CacheError> {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let issuers = std::iter::repeat_n(("wcache-issue", issue as fn(&Shared)), shared.config.issuers.max(1));
    for (name, run) in issuers.chain([("wcache-back", write_back as fn(&Shared))]) {
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

fn issue(shared: &Shared) {
    let mut ledger = shared.ledger();
    while !shared.stop.load(Ordering::Relaxed) {
        let rules = shared.rules();
        let standing = |task: TaskId| shared.standing(task);
        if let Some(next) = ledger.next_job(&rules, &standing, shared.now_ns()) {
            drop(ledger);
            // Another issuer may find more.
            shared.call_issuers();
            // What is begun while others are held back is not theirs, and not their turn.
            if !rules.hold_back && !matches!(next, Next::Log(_)) {
                shared.note_slow_begun();
            }
            shared.run_next(next);
            ledger = shared.ledger();
            continue;
        }
        if ledger.drain_state().wanted {
            shared.call_drain();
        }
        let due_ns = ledger.next_due_ns(&rules).map_or(u64::MAX, |due_ns| due_ns.saturating_sub(shared.now_ns()));
        let limit = Duration::from_nanos(due_ns).clamp(LEAST_SLEEP, IDLE);
        ledger.sleeps_until(shared.now_ns() + limit.as_nanos() as u64);
        ledger = shared.wait_work(ledger, limit);
        ledger.has_woken();
    }
}

/// How soon write-back is needed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Now,
    Within(Duration),
}

fn need(shared: &Shared, ledger: &Ledger) -> Need {
    let salvaging = ledger.fast_dead.is_some() && !ledger.salvaged;
    if salvaging {
        return Need::Now;
    }
    let Some(oldest_ns) = ledger.oldest_ns().filter(|_| ledger.fast_dead.is_none()) else { return Need::Within(IDLE) };
    let wanted = ledger.drain_state().wanted || shared.drain_all.load(Ordering::Relaxed);
    if wanted || ledger.used_percent() >= shared.config.low_percent {
        return Need::Now;
    }
    // Half of the deadline to wait, half to do it.
    let age = Duration::from_nanos(shared.now_ns().saturating_sub(oldest_ns));
    let left = (shared.config.deadline / 2).saturating_sub(age);
    if left.is_zero() { Need::Now } else { Need::Within(left.min(IDLE)) }
}

fn write_back(shared: &Shared) {
    let mut ledger = shared.ledger();
    while !shared.stop.load(Ordering::Relaxed) {
        if ledger.revive(shared.now_ns()) {
            shared.announce();
        }
        if !ledger.closing.is_empty() || !ledger.forgetting.is_empty() {
            drop(ledger);
            shared.close_cuts();
            shared.finish_forgetting();
            ledger = shared.ledger();
        }
        if let Need::Within(limit) = need(shared, &ledger) {
            ledger = shared.wait_drain(ledger, limit);
            continue;
        }
        let Some(mut job) = ledger.begin_drain(shared.config.batch_bytes, STEP_BLOCKS, STEP_RUNS) else {
            let over = ledger.salvage_is_over();
            drop(ledger);
            if over {
                end_salvage(shared);
            }
            shared.announce();
            ledger = shared.wait_drain(shared.ledger(), Duration::from_millis(20));
            continue;
        };
        drop(ledger);
        let began = Instant::now();
        let result = job.run(&*shared.fast, &shared.buffers, &mut Watch { shared, step_began: began });
        if let Err(error) = &result {
            tracing::error!(?error, "write-back failed");
        }
        let took_ns = began.elapsed().as_nanos() as u64;
        shared.ledger().finish_drain(&job, &result, took_ns, shared.now_ns());
        shared.announce();
        ledger = shared.ledger();
    }
}

/// Nothing more can be had of a dead fast device.
fn end_salvage(shared: &Shared) {
    let (told, left_some) = {
        let ledger = shared.ledger();
        let told = Told { identity: ledger.identity(), state: LogState::Abandoned, epoch: ledger.epochs[0] };
        (told, ledger.salvage_left_some())
    };
    // While a volume that can't be written to has blocks in the log, that must not be given up.
    let abandoned = !left_some && abandon(shared, told);
    let mut ledger = shared.ledger();
    ledger.finish_salvage(abandoned);
    let lost = ledger.lost();
    tracing::warn!(?lost, abandoned, "the fast device of the write cache is given up");
}

/// Notes that the log must never be used again. Whether that is now certain.
fn abandon(shared: &Shared, told: Told) -> bool {
    let Some(witness) = &shared.config.witness else { return false };
    let result = witness::write(&**witness, told, &shared.buffers);
    if let Err(error) = &result {
        tracing::error!(%error, "the witness of the write cache failed");
    }
    result.is_ok()
}

/// Follows a batch: keeps out of the way of cuts, and leaves the slow device to others now and then.
struct Watch<'a> {
    shared: &'a Shared,
    step_began: Instant,
}

impl DrainWatch for Watch<'_> {
    fn before(&mut self, step: &mut Vec<(Place, u64)>) {
        let mut ledger = self.shared.ledger();
        // Not in the way of somebody critical who waits for the slow device, unless somebody waits for this.
        while self.shared.holds_back() && !ledger.drain_state().wanted && !self.shared.stop.load(Ordering::Relaxed) {
            ledger = self.shared.wait_drain(ledger, LEAST_SLEEP);
        }
        ledger.begin_step(step);
        drop(ledger);
        self.shared.note_slow_begun();
        self.step_began = Instant::now();
    }

    fn after(&mut self, done: usize) {
        let shared = self.shared;
        let (pressure, has_cuts) = {
            let mut ledger = shared.ledger();
            ledger.end_step(done);
            (pressure(shared, &ledger), ledger.has_open_cuts())
        };
        // A cut may wait for this step.
        shared.announce_to_log_sleepers();
        if has_cuts {
            shared.call_issuers();
        }
        let rest = pause(&pressure, self.step_began.elapsed());
        if !rest.is_zero() && !shared.stop.load(Ordering::Relaxed) {
            // A wake-up for write-back means haste: it ends the pause early.
            drop(shared.wait_drain(shared.ledger(), rest));
        }
    }
}

fn pressure(shared: &Shared, ledger: &Ledger) -> Pressure {
    let age_ns = ledger.oldest_ns().map_or(0, |oldest_ns| shared.now_ns().saturating_sub(oldest_ns));
    let overdue = u128::from(age_ns) * 4 >= shared.config.deadline.as_nanos() * 3;
    let hurry = ledger.drain_state().wanted
        || overdue
        || ledger.fast_dead.is_some()
        || shared.drain_all.load(Ordering::Relaxed);
    Pressure {
        used_percent: ledger.used_percent(),
        high_percent: shared.config.high_percent,
        low_percent: shared.config.low_percent,
        hurry,
        foreground: ledger.totals.urgent > 0 || shared.is_slow_used(),
    }
}
