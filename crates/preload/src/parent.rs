//! The parent's side of a fork: what is prepared before it, and what is told to the thread after it.
//!
//! Relies on running in whatever thread of the program forks, a signal handler included: it takes no lock that the program
//! could hold, allocates nothing from the program, and gives up quietly. Pages, board and thread are made at the first fork that is worth it.

use quire_sys::area::Area;
use quire_sys::{bare_thread, guest};

use crate::board::{Board, Place};
use crate::settings::Settings;
use crate::state::{self, Thread};
use crate::{child, worker};

const STACK_BYTES: usize = 256 << 10;

/// What was prepared for a fork.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    board: &'static Board,
    place: Place,
}

/// Whether a fork shall be prepared for in a program that has held so much memory.
fn is_worth_it(settings: Option<&Settings>, thread: Thread, peak_bytes: impl Fn() -> u64) -> bool {
    settings.is_some_and(|settings| settings.enabled && thread != Thread::GivenUp && peak_bytes() >= settings.min_bytes)
}

/// Before a fork: `None` if nothing shall be done about it.
pub fn before_fork() -> Option<Ticket> {
    if !is_worth_it(state::configured(), state::thread(), guest::resident_peak_bytes) || !state::begin_forking() {
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
        if state::thread() == Thread::None {
            start_thread();
        }
        ticket.board.report();
    }
    state::end_forking();
}

fn start_thread() {
    let started = Area::private(STACK_BYTES).is_ok_and(|stack| {
        // The child has no such thread and needs no stack for it.
        stack.keep_from_children();
        // SAFETY: the stack is this thread's alone, and kept for as long as the process; the worker keeps the duty of a
        // bare thread: it neither allocates nor calls the C library.
        let started = unsafe { bare_thread::start(&stack, worker::run) }.is_ok();
        if started {
            std::mem::forget(stack);
        }
        started
    });
    state::set_thread(if started { Thread::Started } else { Thread::GivenUp });
}

/// After a fork, in the child.
pub fn in_child(ticket: Option<Ticket>) {
    state::forget();
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
            is_worth_it(Some(&settings), Thread::None, large) && is_worth_it(Some(&settings), Thread::Started, large)
        );
        assert!(!is_worth_it(None, Thread::None, large) && !is_worth_it(Some(&off), Thread::None, large));
        assert!(!is_worth_it(Some(&settings), Thread::GivenUp, large));
        assert!(!is_worth_it(Some(&settings), Thread::None, || settings.min_bytes - 1));
    }

    #[test]
    fn a_fork_that_was_not_prepared_for_leaves_no_trace() {
        let _alone = state::alone();
        after_fork(None, 7);
        assert!(state::latest().is_none());
    }
}
