//! The parent's side of a fork: what is prepared before it, and what is told to the worker after it.
//!
//! Relies on running in whatever thread of the program forks, a signal handler included: it takes no lock that the program
//! could hold, allocates nothing from the program, and gives up quietly. Pages and board are made at the first fork that is
//! worth it, the worker at each that finds none.

use std::sync::atomic::{AtomicU32, Ordering};

use quire_sys::guest;

use crate::board::{Board, Place};
use crate::settings::Settings;
use crate::state::{self, Worker};
use crate::{child, confinement, log, process, worker};

/// So often the worker's process may be killed before no more is started.
const MOST_KILLED: u32 = 3;

static KILLED: AtomicU32 = AtomicU32::new(0);

/// What was prepared for a fork.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    board: &'static Board,
    place: Place,
}

/// Whether a fork shall be prepared for in a program that has held so much memory.
fn is_worth_it(settings: Option<&Settings>, worker: Worker, peak_bytes: impl Fn() -> u64) -> bool {
    settings.is_some_and(|settings| settings.enabled && worker != Worker::GivenUp && peak_bytes() >= settings.min_bytes)
}

/// Before a fork: `None` if nothing shall be done about it.
pub fn before_fork() -> Option<Ticket> {
    confinement::unmute();
    if confinement::is_silent() {
        return None;
    }
    if !is_worth_it(state::configured(), state::worker(), guest::resident_peak_bytes) || !state::begin_forking() {
        return None;
    }
    let ticket = state::next_place().map(|(board, place)| Ticket { board, place });
    if ticket.is_none() {
        state::end_forking();
    }
    ticket
}

/// After a fork, in the parent.
pub fn after_fork(ticket: Option<Ticket>, pid: i32) {
    let Some(ticket) = ticket else { return };
    if pid > 0 {
        state::set_latest(pid, ticket.place);
        start_worker();
        ticket.board.report();
    }
    state::end_forking();
}

/// Starts a worker if there is none, and there shall be one.
fn start_worker() {
    if state::worker() == Worker::Started && !process::is_alive() {
        // It did not say that it leaves: no memory, a filter of seccomp, a signal.
        state::set_worker(Worker::None);
        if KILLED.fetch_add(1, Ordering::Relaxed) + 1 == MOST_KILLED {
            state::set_worker(Worker::GivenUp);
            log::line_of_program(format_args!("not active any more: its process was killed {MOST_KILLED} times"));
        }
    }
    // One that is about to end is left to that: this child goes without.
    if state::worker() != Worker::None || !process::is_free() || !state::begin_work() {
        return;
    }
    // SAFETY: the worker keeps the duty of a bare thread.
    if let Err(why) = unsafe { process::start(worker::run) } {
        state::set_worker(Worker::GivenUp);
        log::line_of_program(format_args!("not active: {why}"));
    }
}

/// After a fork, in the child.
pub fn in_child(ticket: Option<Ticket>) {
    confinement::forget();
    state::forget();
    process::forget();
    worker::forget();
    KILLED.store(0, Ordering::Relaxed);
    child::born(ticket.map(|ticket| (ticket.board, ticket.place)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_programs_and_those_that_do_not_want_it_are_left_alone() {
        let settings = Settings::default();
        let off = Settings { enabled: false, ..settings };
        let large = || settings.min_bytes;
        assert!(
            is_worth_it(Some(&settings), Worker::None, large) && is_worth_it(Some(&settings), Worker::Started, large)
        );
        assert!(!is_worth_it(None, Worker::None, large) && !is_worth_it(Some(&off), Worker::None, large));
        assert!(!is_worth_it(Some(&settings), Worker::GivenUp, large));
        assert!(!is_worth_it(Some(&settings), Worker::None, || settings.min_bytes - 1));
    }

    #[test]
    fn a_fork_that_was_not_prepared_for_leaves_no_trace() {
        let _alone = state::alone();
        after_fork(None, 7);
        assert!(state::latest().is_none());
    }
}
