//! What an experiment is at, for people who wait: a line on standard error.
//!
//! Relies on nothing; progress that cannot be shown is no reason to stop.

use std::io::{IsTerminal, Write};
use std::time::Instant;

/// When the experiment began.
#[derive(Debug, Clone, Copy)]
pub struct Progress(Instant);

impl Progress {
    /// Begins now.
    pub fn begin() -> Self {
        Self(Instant::now())
    }

    /// Says `what`, in place of what was said before where that is possible.
    pub fn say(self, what: &str) {
        let mut err = std::io::stderr().lock();
        let at_s = self.0.elapsed().as_secs_f64();
        let _ = if err.is_terminal() {
            write!(err, "\r\x1b[K{at_s:6.1} s  {what}").and_then(|()| err.flush())
        } else {
            writeln!(err, "{at_s:6.1} s  {what}")
        };
    }
    /// Takes the line away.
    pub fn clear(self) {
        let mut err = std::io::stderr().lock();
        if err.is_terminal() {
            let _ = write!(err, "\r\x1b[K").and_then(|()| err.flush());
        }
    }
}
