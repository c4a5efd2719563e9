//! Processes that this one started, and those whose parents have ended since: taken over, waited for, ended.
//!
//! Relies on `PR_SET_CHILD_SUBREAPER`, `wait` and `/proc`. What is here waits for any child, so it is for processes that keep no
//! [`std::process::Child`] that another thread waits for at the time.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitOptions};

use crate::ask::{TerminationSignal, to_end};

/// Between two looks at what is left.
const INTERVAL: Duration = Duration::from_millis(10);

/// From now on descendants of this process whose parents end become its own children.
///
/// # Errors
/// As `prctl`.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// A child that has ended and was not waited for until now: its process id and how it ended.
pub fn reap() -> Option<(u32, ExitStatus)> {
    let (pid, status) = rustix::process::wait(WaitOptions::NOHANG).ok()??;
    Some((pid.as_raw_pid().cast_unsigned(), ExitStatus::from_raw(status.as_raw())))
}

/// Children of this process that have not been waited for.
fn children() -> Vec<u32> {
    let own = rustix::process::getpid();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| parent(&std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default()) == Some(own))
        .collect()
}

/// The parent that a process' `stat` names. The program's name stands before it, in brackets, and may hold anything.
fn parent(stat: &str) -> Option<Pid> {
    let after = stat.rsplit_once(')')?.1;
    Pid::from_raw(after.split_ascii_whitespace().nth(1)?.parse().ok()?)
}

/// Asks all children to end, kills those that have not after `patience`, and waits for them. With [`adopt_orphans`] their children are
/// next. Returns how many processes are left after twice the time: those that the kernel can't end now.
pub fn end_children(patience: Duration) -> usize {
    let began = Instant::now();
    let mut asked = Vec::new();
    loop {
        while reap().is_some() {}
        // A child's number names no other process before it was waited for, which only this thread does.
        let children = children();
        let is_late = began.elapsed() >= patience;
        if children.is_empty() || began.elapsed() >= 2 * patience {
            return children.len();
        }
        for child in children {
            // A stopped one is not asked in vain: it is killed when it is late.
            if is_late {
                let _ = to_end(child, TerminationSignal::Kill);
            } else if !asked.contains(&child) {
                asked.push(child);
                let _ = to_end(child, TerminationSignal::Terminate);
            }
        }
        std::thread::sleep(INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_parent_is_found_whatever_the_program_is_called() {
        assert_eq!(parent("12 (a) b) S 7 12 12"), Pid::from_raw(7));
        assert_eq!((parent("12 (a) S"), parent("")), (None, None));
    }

    #[test]
    fn children_and_what_they_leave_behind_are_ended_though_some_ignore_it() {
        let asks = "QUIRE_TEST_END_CHILDREN";
        if std::env::var_os(asks).is_none() {
            // A process of its own: the children of this one are other tests'.
            let this = std::env::args_os().next().unwrap();
            let name = "descendants::tests::children_and_what_they_leave_behind_are_ended_though_some_ignore_it";
            let output = Command::new(this).args([name, "--exact"]).env(asks, "1").output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
            return;
        }
        adopt_orphans().unwrap();
        let (mut said, writer) = io::pipe().unwrap();
        // One that ignores the signal, whose parent ends at once, and one in a session of its own.
        let script =
            "(trap '' TERM; echo; while :; do sleep 1; done) & (setsid sh -c 'echo; exec sleep 1000' &) ; exit 0";
        let mut shell = Command::new("sh").args(["-c", script]).stdout(writer).spawn().unwrap();
        assert!(shell.wait().unwrap().success());
        io::Read::read_exact(&mut said, &mut [0; 2]).unwrap();
        assert_eq!(children().len(), 2, "both are ours now");
        assert_eq!(end_children(Duration::from_millis(300)), 0);
        assert_eq!(children().len(), 0);
    }
}
