//! The parent's side of a fork: what is prepared before it, and what is told to the worker after it.
//!
//! Relies on running in whatever thread of the program forks, a signal handler included: it takes no lock that the program
//! could hold, allocates nothing from the program, and gives up quietly. Sentinel and stats page are made at the first fork
//! that is worth it, the worker at each that finds none.

use std::sync::atomic::{AtomicU32, Ordering};

use quire_sys::guest;

use crate::settings::PreloadSettings;
use crate::state::{self, WorkerState};
use crate::stats_page::{SlotId, StatsPage};
use crate::{child, confinement, log, process, worker};

/// So often the worker's process may be killed before no more is started.
const MOST_KILLED: u32 = 3;

static KILLED: AtomicU32 = AtomicU32::new(0);

/// What was prepared for a fork.
#[derive(Clone, Copy, Debug)]
pub struct PreparedFork {
    stats_page: &'static StatsPage,
    slot_id: SlotId,
}

/// Whether a fork shall be prepared for in a program that has held so much memory.
fn is_worth_it(settings: Option<&PreloadSettings>, worker: WorkerState, peak_bytes: impl Fn() -> u64) -> bool {
    settings.is_some_and(|settings| {
        settings.enabled && worker != WorkerState::GivenUp && peak_bytes() >= settings.min_bytes
    })
}

/// Before a fork: `None` if nothing shall be done about it.
pub fn before_fork() -> Option<PreparedFork> {
    confinement::unmute();
    if confinement::is_quiesced() {
        return None;
    }
    if !is_worth_it(state::configured(), state::worker(), guest::resident_peak_bytes) || !state::begin_forking() {
        return None;
    }
    let prepared = state::next_slot().map(|(stats_page, slot_id)| PreparedFork { stats_page, slot_id });
    if prepared.is_none() {
        state::end_forking();
    }
    prepared
}

/// After a fork, in the parent.
pub fn after_fork(prepared: Option<PreparedFork>, pid: i32) {
    let Some(prepared) = prepared else { return };
    if pid > 0 {
        state::set_latest(pid, prepared.slot_id);
        start_worker();
        prepared.stats_page.report();
    }
    state::end_forking();
}

/// Starts a worker if there is none, and there shall be one.
fn start_worker() {
    if state::worker() == WorkerState::Started && !process::is_alive() {
        // It did not say that it leaves: no memory, a filter of seccomp, a signal.
        state::set_worker(WorkerState::None);
        if KILLED.fetch_add(1, Ordering::Relaxed) + 1 == MOST_KILLED {
            state::set_worker(WorkerState::GivenUp);
            log::line_of_program(format_args!("not active any more: its process was killed {MOST_KILLED} times"));
        }
    }
    // The worker would live where the children do. When the first of them ends, the kernel ends all who live there, and has it wait
    // until each was waited for: the worker by the program, which may wait for that child and nothing else, for ever.
    if guest::children_live_elsewhere() {
        return;
    }
    // One that is about to end is left to that: this child goes without.
    if state::worker() != WorkerState::None || !process::is_free() || !state::begin_work() {
        return;
    }
    // SAFETY: `worker::run` neither allocates nor uses anything thread-local but `errno`: what it keeps lies in mappings of
    // its own (`FixedVec`, `AnonymousMap`), and a panic ends it without unwinding.
    if let Err(why) = unsafe { process::start(worker::run) } {
        state::set_worker(WorkerState::GivenUp);
        log::line_of_program(format_args!("not active: {why}"));
    }
}

/// After a fork, in the child.
pub fn in_child(prepared: Option<PreparedFork>) {
    confinement::forget();
    state::forget();
    process::forget();
    worker::forget();
    KILLED.store(0, Ordering::Relaxed);
    child::born(prepared.map(|prepared| (prepared.stats_page, prepared.slot_id)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_programs_and_those_that_do_not_want_it_are_left_alone() {
        let settings = PreloadSettings::default();
        let off = PreloadSettings { enabled: false, ..settings };
        let large = || settings.min_bytes;
        assert!(
            is_worth_it(Some(&settings), WorkerState::None, large)
                && is_worth_it(Some(&settings), WorkerState::Started, large)
        );
        assert!(!is_worth_it(None, WorkerState::None, large) && !is_worth_it(Some(&off), WorkerState::None, large));
        assert!(!is_worth_it(Some(&settings), WorkerState::GivenUp, large));
        assert!(!is_worth_it(Some(&settings), WorkerState::None, || settings.min_bytes - 1));
    }

    #[test]
    fn a_fork_that_was_not_prepared_for_leaves_no_trace() {
        let _alone = state::alone();
        after_fork(None, 7);
        assert!(state::latest_fork().is_none());
    }
}
