//! What a command tells on its standard output. `println!` panics when that fails; here a failure is an error.
//!
//! A command that ends because of [`OutputError`] calls [`OutputError::end`]: a closed pipe is no fault, whatever reads it
//! has read enough.

use std::fmt;
use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

/// Standard output took no more.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to standard output: {0}")]
pub struct OutputError(#[from] io::Error);

impl OutputError {
    /// Ends the command as other tools do: by SIGPIPE if the pipe is closed, else with a message.
    pub fn end(&self) -> ExitCode {
        if self.0.kind() == ErrorKind::BrokenPipe {
            crate::signal::end_by_closed_pipe();
        }
        complain(format_args!("quire: {self}\n"));
        ExitCode::FAILURE
    }
}

/// Writes text.
///
/// # Errors
/// The pipe is closed, the device is full.
pub fn write(text: fmt::Arguments<'_>) -> Result<(), OutputError> {
    Ok(io::stdout().lock().write_fmt(text)?)
}

/// Writes what is still in the process; without it an incomplete last line may be lost.
///
/// # Errors
/// As `write`.
pub fn finish() -> Result<(), OutputError> {
    Ok(io::stdout().lock().flush()?)
}

/// Writes to standard error. If that fails there is no place left to tell it.
pub fn complain(text: fmt::Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(text);
}

/// Writes text to standard output; a [`Result`] with [`OutputError`].
#[macro_export]
macro_rules! out {
    ($($text:tt)*) => { $crate::output::write(format_args!($($text)*)) };
}

/// The same with the end of a line.
#[macro_export]
macro_rules! outln {
    () => { $crate::output::write(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::write(format_args!("{}\n", format_args!($($text)*))) };
}

/// Writes a line to standard error, if that takes it.
#[macro_export]
macro_rules! errln {
    ($($text:tt)*) => { $crate::output::complain(format_args!("{}\n", format_args!($($text)*))) };
}
