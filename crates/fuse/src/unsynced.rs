//! Files whose names, lengths or permissions were changed and have not been made durable since, while no program has them open; and
//! files of which bytes are lost without a program having been told.
//!
//! A later `fsync` must make the former durable, too, and tell of the latter. Relies on inode numbers, and on being told
//! ([`Unsynced::begin`]) when one is used again.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// Most files that are remembered.
const MOST: usize = 100_000;

/// What a flush of a file must bring to the slow device besides its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owed {
    /// Its name or length: every flush.
    pub always: bool,
    /// Permissions, owner, times, attributes: flushes that are not for data only.
    pub attributes: bool,
    /// A failure: a flush that no program waited for lost bytes, and no program has been told.
    pub failure: bool,
}

impl Owed {
    /// The name or the length.
    pub const NAME: Self = Self { always: true, attributes: false, failure: false };
    /// What is known about the file besides name and length.
    pub const ATTRIBUTES: Self = Self { always: false, attributes: true, failure: false };
    /// Both.
    pub const ALL: Self = Self { always: true, attributes: true, failure: false };
}

#[derive(Debug, Default)]
struct State {
    always: HashSet<u64>,
    attributes: HashSet<u64>,
    /// Never too many to be kept: each is a failure of the device.
    failures: HashSet<u64>,
    /// There were too many: every file owes everything.
    overflowed: bool,
}

/// The files.
#[derive(Debug, Default)]
pub struct Unsynced {
    state: Mutex<State>,
}

impl Unsynced {
    /// A file owes something when the last who had it open is gone, or when it was changed without being open.
    pub fn note(&self, ino: u64, owed: Owed) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if owed.always {
            state.always.insert(ino);
        }
        if owed.attributes {
            state.attributes.insert(ino);
        }
        if owed.failure {
            state.failures.insert(ino);
        }
        if state.always.len() + state.attributes.len() > MOST {
            state.always.clear();
            state.attributes.clear();
            state.overflowed = true;
        }
    }

    /// What the file owes; from now on whoever opened it keeps that in mind.
    pub fn take(&self, ino: u64) -> Owed {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (always, attributes) = (state.always.remove(&ino), state.attributes.remove(&ino));
        let failure = state.failures.remove(&ino);
        Owed { always: always || state.overflowed, attributes: attributes || state.overflowed, failure }
    }

    /// The file with this inode number is gone: the next that has the number owes nothing of this one's.
    pub fn begin(&self, ino: u64) {
        self.take(ino);
    }

    /// Inode numbers of the files of which bytes are lost without a program having been told, in order.
    pub fn failures(&self) -> Vec<u64> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut failures: Vec<u64> = state.failures.iter().copied().collect();
        failures.sort_unstable();
        failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_owed_is_told_once_and_never_forgotten() {
        let unsynced = Unsynced::default();
        unsynced.note(1, Owed::NAME);
        assert_eq!(unsynced.take(1), Owed::NAME);
        assert_eq!(unsynced.take(1), Owed::default());
        unsynced.note(7, Owed { failure: true, ..Owed::NAME });
        for ino in 0..=MOST as u64 {
            unsynced.note(ino, Owed::ATTRIBUTES);
        }
        assert_eq!(unsynced.take(5), Owed::ALL);
        assert_eq!(unsynced.failures(), [7]);
        assert_eq!(unsynced.take(7), Owed { failure: true, ..Owed::ALL });
        assert_eq!(unsynced.take(7), Owed::ALL);
    }

    #[test]
    fn a_new_file_owes_nothing_of_the_one_that_had_its_number() {
        let unsynced = Unsynced::default();
        unsynced.note(1, Owed { failure: true, ..Owed::ALL });
        unsynced.begin(1);
        assert_eq!((unsynced.take(1), unsynced.failures().len()), (Owed::default(), 0));
    }
}
