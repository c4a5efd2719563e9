//! Lines on standard error.
//!
//! Relies on standard error still being what it was when the program started: a program that has closed or redirected it
//! may have something else there by now, and gets no lines from us. The thread has no descriptors of the program's, so it
//! fetches this one for the time of a line.

use std::fmt::{self, Write};

use quire_sys::guest::{self, FileId, Watched};

use crate::state;

/// Text of a fixed length; what doesn't fit is cut.
struct Text {
    bytes: [u8; 700],
    len: usize,
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.len() - 1 - self.len;
        let count = text.len().min(room);
        self.bytes[self.len..self.len + count].copy_from_slice(&text.as_bytes()[..count]);
        self.len += count;
        Ok(())
    }
}

/// Prints a line.
pub fn line(words: fmt::Arguments<'_>) {
    let mut text = Text { bytes: [0; 700], len: 0 };
    // Writing to memory does not fail.
    let _ = text.write_str("quire-preload: ");
    let _ = text.write_fmt(words);
    text.bytes[text.len] = b'\n';
    let Ok(standard_error) = Watched::open(guest::process_id()).and_then(|this| this.descriptor(2)) else { return };
    use std::os::fd::AsFd;
    let is = FileId::of(standard_error.as_fd());
    if is.is_some() && is == state::standard_error() {
        guest::write_once(&standard_error, &text.bytes[..=text.len]);
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
        let mut text = Text { bytes: [0; 700], len: 0 };
        for _ in 0..100 {
            text.write_str("0123456789").unwrap();
        }
        assert_eq!(text.len, 699);
    }
}
