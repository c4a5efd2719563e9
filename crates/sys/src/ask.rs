//! Asking other processes to end, in the four ways that programs tell apart, and whether this one may do everything.
//!
//! Relies on `kill` and `geteuid`. A pid names a process only until that has been waited for: ask children of one's
//! own, or processes that were recognised a moment ago.

use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, Signal};

/// How a process is asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminationSignal {
    /// `SIGINT`: as Ctrl-C.
    Interrupt,
    /// `SIGTERM`: in good order.
    Terminate,
    /// `SIGQUIT`: at once, by its own hand.
    Quit,
    /// `SIGKILL`: it isn't asked.
    Kill,
}

/// Asks process `pid` to end.
///
/// # Errors
/// When there is no such process, or it belongs to another user.
pub fn to_end(pid: u32, how: TerminationSignal) -> io::Result<()> {
    let pid = Pid::from_raw(pid.cast_signed()).filter(|pid| !pid.is_init()).ok_or(Errno::SRCH)?;
    let signal = match how {
        TerminationSignal::Interrupt => Signal::INT,
        TerminationSignal::Terminate => Signal::TERM,
        TerminationSignal::Quit => Signal::QUIT,
        TerminationSignal::Kill => Signal::KILL,
    };
    Ok(rustix::process::kill_process(pid, signal)?)
}

/// Whether this process may do everything.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_child_that_is_asked_ends_by_that_signal() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        to_end(child.id(), TerminationSignal::Terminate).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(15));
    }

    #[test]
    fn neither_process_0_nor_the_first_process_is_asked() {
        assert!(to_end(0, TerminationSignal::Kill).is_err());
        assert!(to_end(1, TerminationSignal::Kill).is_err());
    }
}
