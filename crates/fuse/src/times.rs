//! When a file that is a volume was written and changed, as programs are to see it: see `backing.rs`.
//!
//! Relies on being told of what programs do.

use std::fs::File;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use quire_sys::at::{self, NewTime};

/// How much later than a write the file may learn its time.
const LAG: Duration = Duration::from_secs(1);

/// When the file was last written, as programs are to see it.
#[derive(Debug, Default)]
pub struct FileTimes {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    modified: Option<SystemTime>,
    /// When a program last changed anything about it.
    changed: Option<SystemTime>,
    /// The file itself has another time.
    is_ahead: bool,
    told: Option<Instant>,
}

impl FileTimes {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time, if it isn't simply the file's.
    pub fn modified(&self) -> Option<SystemTime> {
        self.state().modified
    }

    /// When a program last changed anything about the file, if that isn't simply the file's own time.
    pub fn changed(&self) -> Option<SystemTime> {
        self.state().changed
    }

    /// A program writes.
    pub fn touch(&self) {
        let mut state = self.state();
        let now = SystemTime::now();
        (state.modified, state.changed) = (Some(now), Some(now));
        state.is_ahead = true;
    }

    /// A program has changed something besides the bytes.
    pub fn change(&self) {
        let mut state = self.state();
        if state.changed.is_some() {
            state.changed = Some(SystemTime::now());
        }
    }

    /// A program has set the time, on the file too.
    pub fn set(&self, modified: SystemTime) {
        let mut state = self.state();
        (state.modified, state.changed) = (Some(modified), Some(SystemTime::now()));
        // A late write may have put the old time back in between.
        state.is_ahead = true;
    }

    /// From now on these are kept, unless there are others.
    pub fn adopt(&self, modified: SystemTime, changed: SystemTime) {
        let mut state = self.state();
        state.modified.get_or_insert(modified);
        state.changed.get_or_insert(changed);
    }

    /// Tells the file, if it lags; with `at_once` even if only by little.
    pub fn tell(&self, file: &File, at_once: bool) {
        let mut state = self.state();
        let recently = state.told.is_some_and(|told| told.elapsed() < LAG);
        if state.is_ahead && (at_once || !recently) {
            put(&mut state, file);
        }
    }

    /// A late write has changed it: puts it back.
    pub fn restore(&self, file: &File) {
        put(&mut self.state(), file);
    }
}

fn put(state: &mut State, file: &File) {
    if let Some(modified) = state.modified {
        // A wrong time is no reason to fail a write.
        let _ = at::set_times(file, NewTime::Keep, NewTime::At(modified));
        state.is_ahead = false;
        state.told = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_a_late_write_has_put_back_over_a_new_one_is_put_right() {
        let file = tempfile::tempfile().unwrap();
        let at = |s| SystemTime::UNIX_EPOCH + Duration::from_secs(s);
        let times = FileTimes::default();
        times.adopt(at(5), at(5));
        // The program's call, then the late write's, and only then does the mount learn of the former.
        at::set_times(&file, NewTime::Keep, NewTime::At(at(7))).unwrap();
        times.restore(&file);
        times.set(at(7));
        times.tell(&file, true);
        assert_eq!(at::facts(&file).unwrap().modified, at(7));
    }
}
