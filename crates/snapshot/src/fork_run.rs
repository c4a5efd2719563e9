//! Work done on a copy of the whole process: a closure runs in a forked child and sends bytes back.
//!
//! Relies on `quire_sys::child`. This is what programs do that save by forking: all memory is as it was at the fork, for as
//! long as the work takes, while the parent goes on.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use quire_sys::child::{self, Child, WaitStatus};

use crate::mechanism::Mechanism;
use crate::origin::{MechanismError, ViewError};

/// Exit status of a child whose work was broken off.
const BROKEN_OFF: i32 = 101;

/// Where the work in the child puts what it has to tell. Nothing is buffered.
#[derive(Debug)]
pub struct ChildOutput<'a> {
    socket: BorrowedFd<'a>,
}

/// The parent reads no more: the work may as well stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the parent process no longer reads the bytes that its child sends")]
pub struct ParentDisconnected;

impl ChildOutput<'_> {
    /// Sends all of `bytes`; waits while the parent is slow to read. Allocates nothing.
    ///
    /// # Errors
    /// [`ParentDisconnected`] when the parent is gone or no longer listens.
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), ParentDisconnected> {
        child::send_all(self.socket, bytes).map_err(|_| ParentDisconnected)
    }

    /// As [`ChildOutput::put`], from memory that other processes or devices may be changing.
    ///
    /// # Safety
    /// `len` bytes at `from` may be shown to the parent.
    ///
    /// # Errors
    /// [`ParentDisconnected`], also when the memory is not there.
    pub unsafe fn put_memory(&mut self, from: *const u8, len: usize) -> Result<(), ParentDisconnected> {
        // SAFETY: `send_memory` demands memory that may be shown to the receiver; `put_memory` demands the same of its caller.
        unsafe { child::send_memory(self.socket, from, len) }.map_err(|_| ParentDisconnected)
    }
}

/// Work going on in a child. Reading it gives the bytes as they come; dropping it ends the child.
#[derive(Debug)]
pub struct ForkedWork {
    socket: OwnedFd,
    child: Child,
}

impl ForkedWork {
    /// Process id of the child.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Waits for the end of the work and returns all bytes that were not read before.
    ///
    /// # Errors
    /// [`ViewError::Gone`] if the child was killed, or broke off.
    pub fn finish(mut self) -> Result<Vec<u8>, ViewError> {
        let mut bytes = Vec::new();
        self.read_to_end(&mut bytes).map_err(|error| ViewError::Gone(error.to_string()))?;
        match self.child.wait() {
            WaitStatus::Exited(0) => Ok(bytes),
            other => Err(ViewError::Gone(other.to_string())),
        }
    }
}

impl Read for ForkedWork {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        child::receive_some(self.socket.as_fd(), to)
    }
}

/// Ends the process if it is dropped: whatever happens in the work, the child never returns into the parent's program.
struct NoReturn;

impl Drop for NoReturn {
    fn drop(&mut self) {
        child::exit(BROKEN_OFF);
    }
}

/// Runs `work` in a forked child, which sees all memory as it is now, and returns at once.
///
/// The child has no descriptor but the one behind the [`ChildOutput`], all signals are blocked in it, and `work` is not dropped
/// there.
///
/// # Safety
/// Of the threads of this process only the calling one exists in the child, and locks that others held stay locked. So
/// `work` makes only async-signal-safe calls in the child:
/// - it neither allocates nor frees;
/// - it takes no lock (printing does) and touches nothing that another thread may have been changing, except through
///   [`ChildOutput::put_memory`] or raw pointers;
/// - it doesn't panic (a panic prints and allocates), and starts no threads.
///
/// # Errors
/// [`MechanismError`] when the system can't or won't fork.
///
/// ```
/// let numbers: Vec<u8> = (1..=4).collect();
/// // SAFETY: the closure reads memory of its own and sends it; it allocates nothing.
/// let running = unsafe { quire_snapshot::fork_and_run(&mut |sink| { let _ = sink.put(&numbers); }) }?;
/// assert_eq!(running.finish()?, [1, 2, 3, 4]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub unsafe fn fork_and_run(work: &mut dyn FnMut(&mut ChildOutput<'_>)) -> Result<ForkedWork, MechanismError> {
    let refused = |call| {
        move |source| MechanismError::System {
            mechanism: Mechanism::Fork,
            call,
            source,
            suggestion: "If memory is short, see vm.overcommit_memory; if processes are, raise RLIMIT_NPROC.",
        }
    };
    let (socket, theirs) = child::socket_pair().map_err(refused("socketpair"))?;
    let mut run = || {
        let guard = NoReturn;
        work(&mut ChildOutput { socket: theirs.as_fd() });
        std::mem::forget(guard);
        0
    };
    // SAFETY: `child::fork` demands async-signal-safe work: `fork_and_run` demands that of `work`, and the rest of `run` makes
    // no call but `forget`.
    let child = unsafe { child::fork(theirs.as_fd(), &mut run) }.map_err(refused("clone"))?;
    Ok(ForkedWork { socket, child })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn the_work_sees_memory_as_it_was_while_the_parent_goes_on() {
        let numbers: Vec<AtomicU64> = (0..100_000).map(AtomicU64::new).collect();
        let mut work = |sink: &mut ChildOutput<'_>| {
            for number in &numbers {
                if sink.put(&number.load(Ordering::Relaxed).to_ne_bytes()).is_err() {
                    return;
                }
            }
        };
        // SAFETY: loads and sends only.
        let running = unsafe { fork_and_run(&mut work) }.unwrap();
        numbers.iter().for_each(|number| number.store(0, Ordering::Relaxed));
        let bytes = running.finish().unwrap();
        let expected: Vec<u8> = (0..100_000u64).flat_map(u64::to_ne_bytes).collect();
        assert!(bytes == expected);
    }

    #[test]
    fn work_that_is_dropped_is_ended() {
        // SAFETY: sends only.
        let mut running = unsafe { fork_and_run(&mut |sink| while sink.put(&[1; 4096]).is_ok() {}) }.unwrap();
        let folder = format!("/proc/{}", running.pid());
        let mut some = [0; 10];
        running.read_exact(&mut some).unwrap();
        drop(running);
        assert!(!std::path::Path::new(&folder).exists());
    }

    #[test]
    fn a_child_that_dies_is_reported_not_mistaken_for_the_end() {
        // SAFETY: sends and ends.
        let running = unsafe { fork_and_run(&mut |sink| sink.put(b"half").map_or((), |()| child::exit(9))) }.unwrap();
        let error = running.finish().unwrap_err();
        assert!(error.to_string().contains("status 9"), "{error}");
    }
}
