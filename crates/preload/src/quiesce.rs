//! What the library does before the kernel confines the program: it ends its worker and falls silent.
//!
//! Relies on being called by the [hooks](crate::hooks) before the kernel is asked. [`confinement`] remembers the outcome.

use std::time::Duration;

use quire_sys::{bare_thread, guest};

use crate::confinement::{self, CallingProcess};
use crate::{parent, process, state, zread};

/// A thread that is about to be confined waits no longer for another that prepares a fork.
const LONGEST_FORK: Duration = Duration::from_millis(50);
const NAP: Duration = Duration::from_micros(200);

/// What was done before the kernel is asked to confine the process.
#[derive(Debug, PartialEq, Eq)]
enum Quiesced {
    /// Nothing: it is silent already.
    Nothing,
    /// The library is off in this process.
    Off,
    /// The library is silent in this thread, which is a child by `vfork`.
    Muted,
}

/// Has the kernel confine the calling thread by `ask`, which says whether it has. The library falls silent before, as it
/// may make no call after; where the kernel refuses, it goes on as before.
pub fn around<T>(ask: impl FnOnce() -> T, has_confined: impl FnOnce(&T) -> bool) -> T {
    let errno = guest::errno();
    let done = quiesce();
    guest::set_errno(errno);
    let result = ask();
    if !has_confined(&result) {
        match done {
            Quiesced::Nothing => {}
            Quiesced::Off => confinement::turn_on(),
            Quiesced::Muted => confinement::mute(false),
        }
    }
    result
}

fn quiesce() -> Quiesced {
    if confinement::is_quiesced() {
        return Quiesced::Nothing;
    }
    match confinement::caller() {
        CallingProcess::InItsParentsMemory => {
            confinement::mute(true);
            return Quiesced::Muted;
        }
        CallingProcess::Unseen => parent::in_child(None),
        CallingProcess::Owner => {}
    }
    zread::lease_process::close();
    confinement::turn_off();
    wait_for_forks();
    process::stop();
    Quiesced::Off
}

/// Waits until no other thread is between the preparation and the end of a fork, where it makes calls.
fn wait_for_forks() {
    let mut left = LONGEST_FORK;
    while !state::begin_forking() {
        // It may be this thread, which a signal handler has interrupted there.
        if left.is_zero() {
            return;
        }
        bare_thread::sleep(NAP);
        left = left.saturating_sub(NAP);
    }
    state::end_forking();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_the_kernel_leaves_the_library_as_it_was() {
        let _alone = state::alone();
        confinement::begin();
        guest::set_errno(5);
        let seen = around(|| (confinement::is_quiesced(), guest::errno()), |_| false);
        assert_eq!((seen, confinement::is_quiesced()), ((true, 5), false));
    }
}
