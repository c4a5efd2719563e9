//! Whether the program that the worker works for is still there, and still what it was when the worker was started.
//!
//! Relies on being asked often: the worker shares the program's memory, and keeps it after the program's end.

use std::cell::Cell;
use std::time::{Duration, Instant};

use quire_sys::guest::{self, Credentials};
use quire_sys::helper::HostProcess;

use crate::confinement;

/// How often it is looked whether the program acts as another user or confines itself.
const LOOK: Duration = Duration::from_secs(1);

/// The program as it was.
#[derive(Debug)]
pub struct HostMonitor {
    host: HostProcess,
    standing: Option<Credentials>,
    looked: Cell<Instant>,
    changed: Cell<bool>,
}

impl HostMonitor {
    /// The program as it was when a thread of it started the calling worker, which has kept what it was born with: the
    /// program may have become another user since.
    pub fn new(host: HostProcess) -> Self {
        let standing = guest::standing(guest::process_id());
        Self { host, standing, looked: Cell::new(Instant::now()), changed: Cell::new(false) }
    }

    /// The program's process number.
    pub fn process(&self) -> i32 {
        self.host.process()
    }

    /// Whether there is still something to work for. Not so when the program, or its thread that started the worker, has
    /// ended, when it has become another program, or acts as another user than the worker does.
    pub fn is_unchanged(&self) -> bool {
        if crate::process::shall_leave() || !self.host.is_there() {
            return false;
        }
        if self.looked.get().elapsed() >= LOOK {
            self.looked.set(Instant::now());
            confinement::look_at(self.host.thread());
            self.changed.set(guest::standing(self.host.thread()) != self.standing);
        }
        !self.changed.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_not_our_parent_is_not_worked_for() {
        let host = HostProcess::of_caller().unwrap();
        let host_monitor = HostMonitor::new(host);
        assert!(!host_monitor.is_unchanged() && host_monitor.process() == guest::process_id());
    }
}
