//! Lines on standard error.
//!
//! Relies on standard error still being what it was when the program started: a program that has closed or redirected it
//! may have something else there by now, and gets no lines from the library. The worker has no descriptors of the
//! program's, so it fetches this one for the time of a line.

use std::fmt::{self, Write};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use quire_sys::bare_thread;
use quire_sys::guest::{self, FileId, PidFd};

use crate::{process, state};

/// Text of a fixed length; what doesn't fit is cut.
struct LineBuffer {
    bytes: [u8; 700],
    len: usize,
}

impl LineBuffer {
    /// `words` as a line.
    fn of(words: fmt::Arguments<'_>) -> Self {
        let mut text = Self { bytes: [0; 700], len: 0 };
        // Writing to memory does not fail.
        let _ = text.write_str("quire-preload: ");
        let _ = text.write_fmt(words);
        text.bytes[text.len] = b'\n';
        text
    }

    /// The line with its end.
    fn bytes(&self) -> &[u8] {
        &self.bytes[..=self.len]
    }
}

impl Write for LineBuffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.len() - 1 - self.len;
        let count = text.len().min(room);
        self.bytes[self.len..self.len + count].copy_from_slice(&text.as_bytes()[..count]);
        self.len += count;
        Ok(())
    }
}

/// The worker has standard error open, as it may not fetch it.
static IS_KEPT: AtomicBool = AtomicBool::new(false);

/// In the worker: gives it a table of descriptors of its own, in which standard error stays open only where it can't be
/// fetched from the program when there is something to say (Yama's `ptrace_scope`).
///
/// # Errors
/// As `close_range`.
pub fn take_own_descriptors(program: i32) -> io::Result<()> {
    bare_thread::take_own_descriptors_but_standard_error()?;
    let can_fetch = PidFd::open(program).and_then(|program| program.descriptor(2)).is_ok();
    let is_same = FileId::of(guest::standard_error()) == state::standard_error();
    IS_KEPT.store(!can_fetch && is_same, Ordering::Relaxed);
    if can_fetch || !is_same {
        // SAFETY: `take_own_descriptors_but_standard_error` has given the worker a table of its own, in which no value owns
        // number 2.
        unsafe { bare_thread::close_number(2) };
    }
    Ok(())
}

/// Another process of the library's beside the program, and the program.
static HELPER: AtomicI32 = AtomicI32::new(0);
static HELPED: AtomicI32 = AtomicI32::new(0);

/// In such a process: its lines go to the standard error of `program`.
pub fn in_helper_of(program: i32) {
    HELPED.store(program, Ordering::Relaxed);
    HELPER.store(guest::process_id(), Ordering::Relaxed);
}

/// The program's standard error.
fn standard_error() -> io::Result<OwnedFd> {
    if HELPER.load(Ordering::Relaxed) == guest::process_id() {
        return PidFd::open(HELPED.load(Ordering::Relaxed))?.descriptor(2);
    }
    if !process::is_current() {
        return PidFd::open(guest::process_id())?.descriptor(2);
    }
    if IS_KEPT.load(Ordering::Relaxed) {
        return guest::duplicate(2);
    }
    let program = process::host().ok_or(io::ErrorKind::NotFound)?.process();
    PidFd::open(program)?.descriptor(2)
}

/// Prints a line from a thread of the program's, by calls that a program makes anyway: its sandbox may end it for others.
pub fn line_of_program(words: fmt::Arguments<'_>) {
    let standard_error = guest::standard_error();
    let is = FileId::of(standard_error);
    if is.is_some() && is == state::standard_error() {
        guest::write_once(standard_error, LineBuffer::of(words).bytes());
    }
}

/// Prints a line.
pub fn line(words: fmt::Arguments<'_>) {
    let Ok(standard_error) = standard_error() else { return };
    use std::os::fd::AsFd;
    let is = FileId::of(standard_error.as_fd());
    if is.is_some() && is == state::standard_error() {
        guest::write_once(&standard_error, LineBuffer::of(words).bytes());
    }
}

/// Prints a line if the level that was set is at least `level`.
pub fn at(level: u8, words: fmt::Arguments<'_>) {
    if state::settings().log >= level {
        line(words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_cut() {
        let mut text = LineBuffer { bytes: [0; 700], len: 0 };
        for _ in 0..100 {
            text.write_str("0123456789").unwrap();
        }
        assert_eq!(text.len, 699);
    }
}
