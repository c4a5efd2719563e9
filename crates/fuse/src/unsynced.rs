//! Files whose names, lengths or permissions were changed and have not been made durable since, while nobody has them open.
//!
//! A later `fsync` must make those durable, too. Relies on inode numbers; one that is used again costs a needless flush.

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
}

#[derive(Debug, Default)]
struct State {
    always: HashSet<u64>,
    attributes: HashSet<u64>,
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
        Owed { always: always || state.overflowed, attributes: attributes || state.overflowed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_owed_is_told_once_and_never_forgotten() {
        let unsynced = Unsynced::default();
        unsynced.note(1, Owed { always: true, attributes: false });
        assert_eq!(unsynced.take(1), Owed { always: true, attributes: false });
        assert_eq!(unsynced.take(1), Owed::default());
        for ino in 0..=MOST as u64 {
            unsynced.note(ino, Owed { always: false, attributes: true });
        }
        assert_eq!(unsynced.take(5), Owed { always: true, attributes: true });
    }
}
