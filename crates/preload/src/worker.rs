//! The worker: it goes through the life of a child with the program, and ends when there is no child to work for.
//!
//! Relies on being the only one of its program. It runs in a process of its own that shares the program's memory
//! ([`crate::process`]): the C library does not know it, and it must neither allocate nor use anything thread-local. It has
//! all signals blocked and a table of file descriptors of its own; should it panic or be killed, the program goes on as
//! without the library. What it has learned lies in memory, where the next one finds it.

use std::fmt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::time::{Duration, Instant};

use quire_sys::area::AnonymousMap;
use quire_sys::mem::HUGE_PAGE_SIZE;
use quire_sys::{bare_thread, guest, thread};

use crate::context::WorkerContext;
use crate::epoch::{Epoch, EpochOutcome};
use crate::epoch_stats::EpochStats;
use crate::host_monitor::HostMonitor;
use crate::process;
use crate::state::{self, ForkRecord, WorkerState};
use crate::{copy, log, recollapse};

/// A child that is waited for after it announced its end.
const LONGEST_END: Duration = Duration::from_secs(2);

/// What one worker leaves to the next.
struct LearnedState {
    context: WorkerContext,
    expected_life: Option<Duration>,
    epochs: u64,
}

static KEPT: AtomicPtr<LearnedState> = AtomicPtr::new(null_mut());
/// A worker uses what is kept. Still so when the next starts: it was killed, and what is kept may be half changed.
static IN_USE: AtomicBool = AtomicBool::new(false);
static GREETED: AtomicBool = AtomicBool::new(false);

/// In a new child of the program: nothing is known of its memory, and the tables are not its own.
pub fn forget() {
    KEPT.store(null_mut(), Ordering::Relaxed);
    IN_USE.store(false, Ordering::Relaxed);
    GREETED.store(false, Ordering::Relaxed);
}

/// The life of the worker.
pub extern "C" fn run() {
    std::panic::set_hook(Box::new(give_up));
    // What has ended of its own accord has said so; the other reasons are for good, or for the next worker.
    match live() {
        ExitReason::Idle => {}
        ExitReason::ForAnother => state::set_worker(WorkerState::None),
        ExitReason::ForGood => state::set_worker(WorkerState::GivenUp),
    }
    process::leave();
}

/// A panic of the worker ends the worker, and nothing else: it must not unwind, and the program goes on without it.
fn give_up(info: &std::panic::PanicHookInfo<'_>) {
    let at = info.location().map_or(0, std::panic::Location::line);
    let file = info.location().map_or("", std::panic::Location::file);
    log::line(format_args!("error at {file}:{at}"));
    if process::is_current() {
        log::line(format_args!("gives up; the program goes on without it"));
        state::set_worker(WorkerState::GivenUp);
        process::leave();
        bare_thread::end();
    }
}

/// Why the worker ends before the program.
enum ExitReason {
    /// It can't work here.
    ForGood,
    /// There is no child to work for.
    Idle,
    /// The program acts as another user now, or the thread that started the worker has ended: the next fork starts a new one.
    ForAnother,
}

fn live() -> ExitReason {
    guest::name_thread(process::NAME);
    guest::stand_aside();
    let Some(host) = process::host() else { return ExitReason::ForGood };
    // Without descriptors of its own the worker could disturb the program, and could not even say so.
    if log::take_own_descriptors(host.process()).is_err() {
        return ExitReason::ForGood;
    }
    guest::sharpen_timer();
    let host_monitor = HostMonitor::new(host);
    let program = Program::of(host.process());
    let kept = match take_up(host_monitor) {
        Ok(kept) => kept,
        Err((what, why)) => {
            log::line(format_args!("not active in {program}: {what} (error {})", why.raw_os_error().unwrap_or(0)));
            return ExitReason::ForGood;
        }
    };
    if !GREETED.swap(true, Ordering::Relaxed) {
        let context = &mut kept.context;
        let forbidden =
            copy::huge_pages_forbidden(context.settings.huge && context.settings.region_bytes == HUGE_PAGE_SIZE);
        context.huge = forbidden.is_none();
        greet(context, &program, forbidden);
    }
    let mut seen = None;
    loop {
        if !work(kept, &mut seen) {
            IN_USE.store(false, Ordering::SeqCst);
            return ExitReason::ForAnother;
        }
        // From here on a fork starts another; one that came before is still this worker's.
        IN_USE.store(false, Ordering::SeqCst);
        state::set_worker(WorkerState::None);
        if state::latest_fork() == seen || !state::begin_work() {
            return ExitReason::Idle;
        }
        IN_USE.store(true, Ordering::SeqCst);
    }
}

/// What the worker before has left, or all of it anew.
fn take_up(host_monitor: HostMonitor) -> Result<&'static mut LearnedState, crate::context::MissingFeature> {
    let kept = KEPT.load(Ordering::Relaxed);
    // What was left half changed is given up, with its memory: that happens a few times at most.
    let was_in_use = IN_USE.swap(true, Ordering::SeqCst);
    if !kept.is_null() && !was_in_use {
        // SAFETY: this function has made it for an earlier worker and leaked it. That worker has cleared `IN_USE` as its
        // last use of it, and one worker runs at a time.
        let kept = unsafe { &mut *kept };
        kept.context.take_up(host_monitor)?;
        return Ok(kept);
    }
    let stats_page = state::stats_page().ok_or(("no memory", std::io::ErrorKind::OutOfMemory.into()))?;
    let context = WorkerContext::new(state::settings(), stats_page, host_monitor)?;
    let place = AnonymousMap::private(size_of::<LearnedState>()).map_err(|why| ("no memory", why))?;
    let kept = place.base().cast::<LearnedState>();
    std::mem::forget(place);
    // SAFETY: a fresh mapping of that size, aligned to a page, leaked in the statement before.
    unsafe { kept.write(LearnedState { context, expected_life: None, epochs: 0 }) };
    KEPT.store(kept, Ordering::Relaxed);
    // SAFETY: just written, in leaked memory; the next worker reads it only after this one has cleared `IN_USE`.
    Ok(unsafe { &mut *kept })
}

/// Goes through the lives of all children that are made meanwhile; false if there is nothing to work for any more.
fn work(kept: &mut LearnedState, seen: &mut Option<ForkRecord>) -> bool {
    while kept.context.host_monitor.is_unchanged() {
        match state::latest_fork() {
            Some(fork) if *seen != Some(fork) => {
                *seen = Some(fork);
                if let Some(life) = go_through(&mut kept.context, fork, kept.expected_life, &mut kept.epochs) {
                    kept.expected_life = Some(life);
                }
            }
            _ => return true,
        }
    }
    false
}

fn greet(context: &WorkerContext, program: &Program, forbidden: Option<&str>) {
    let settings = &context.settings;
    if let Some(name) = settings.misread {
        log::line(format_args!("{name} has a value that is not understood; its default holds"));
    }
    log::line(format_args!(
        "active in {}: while a forked child lives, regions of {} KiB that were {} % written during earlier ones are \
         copied ahead of the program, {}{}",
        program,
        settings.region_bytes >> 10,
        settings.threshold_permille / 10,
        if forbidden.is_none() { "into huge pages" } else { "in small pages: " },
        forbidden.unwrap_or_default(),
    ));
}

/// Goes through the life of `fork`'s child, tells what was learned and recollapses torn regions; returns how long the child
/// lived.
fn go_through(
    context: &mut WorkerContext,
    fork: ForkRecord,
    expected_life: Option<Duration>,
    epochs: &mut u64,
) -> Option<Duration> {
    let processor_ns = thread::cpu_time_ns();
    let mut epoch = Epoch::open(context, fork)?;
    let ended = epoch.run(expected_life);
    let (life, stopped) = (epoch.elapsed(), epoch.stopped());
    wait_until_gone(&epoch, fork);
    drop(epoch);
    if ended == EpochOutcome::Ignored {
        log::at(2, format_args!("child {} has ended or become another program; nothing is done", fork.pid));
        return None;
    }
    *epochs += 1;
    if context.huge {
        recollapse::recollapse(context, fork);
    }
    let processor_ms = (thread::cpu_time_ns() - processor_ns) / 1_000_000;
    match ended {
        EpochOutcome::Learned { epoch_stats, announced } => {
            context.adapt(&epoch_stats);
            tell(context, &epoch_stats, &EpochReport { epochs: *epochs, fork, life, announced, stopped, processor_ms });
        }
        _ => log::at(1, format_args!("child {} ended without notice before its first look; nothing learned", fork.pid)),
    }
    Some(life)
}

/// A child that is ending still shares memory for as long as its address space is taken down.
fn wait_until_gone(epoch: &Epoch<'_>, fork: ForkRecord) {
    let until = Instant::now() + LONGEST_END;
    let goes_on = || state::latest_fork() == Some(fork) && epoch.host_monitor().is_unchanged();
    while !epoch.watched().has_ended() && goes_on() && Instant::now() < until {
        bare_thread::sleep(Duration::from_millis(2));
    }
}

struct EpochReport {
    epochs: u64,
    fork: ForkRecord,
    life: Duration,
    announced: bool,
    stopped: Option<&'static str>,
    processor_ms: u64,
}

/// The line of an epoch. `quire bench forkers` reads it.
fn tell(context: &WorkerContext, epoch_stats: &EpochStats, told: &EpochReport) {
    log::at(
        1,
        format_args!(
            "epoch {}: child {} lived {:.3} s; pages: {} present, {} copied by the program, {} precopied, {} needed, \
             {} unneeded (estimated); {} of {} regions, threshold {} %; {} ms of processor time; {}{}{}",
            told.epochs,
            told.fork.pid,
            told.life.as_secs_f64(),
            epoch_stats.present,
            epoch_stats.own,
            epoch_stats.precopied,
            epoch_stats.needed,
            epoch_stats.unneeded(),
            epoch_stats.regions_precopied,
            epoch_stats.regions,
            context.threshold_permille / 10,
            told.processor_ms,
            if told.announced { "seen at its end" } else { "seen some time before its end" },
            if told.stopped.is_some() { "; stopped: " } else { "" },
            told.stopped.unwrap_or_default(),
        ),
    );
}

/// What the program is called, for lines.
struct Program {
    comm: [u8; 32],
    pid: i32,
}

impl Program {
    fn of(pid: i32) -> Self {
        let mut comm = [0; 32];
        // A program without a name is still known by its number.
        let _ = guest::read_proc(pid, "comm", &mut comm);
        Self { comm, pid }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.comm.iter().position(|&byte| byte < b' ').unwrap_or(0);
        write!(to, "{} (pid {})", self.comm[..end].escape_ascii(), self.pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_named() {
        let own = Program::of(guest::process_id());
        assert!(own.to_string().ends_with(&format!(" (pid {})", std::process::id())));
    }
}
