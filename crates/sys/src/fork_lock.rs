//! A lock between forks and stretches of code during which memory is not what it seems: a child must not be forked then, or it
//! would have that memory for ever.
//!
//! Relies on `pthread_atfork`, so every `fork` of the C library waits, and [`crate::child`] waits too. A process that calls `clone`
//! by itself is not noticed. `vfork` and `posix_spawn` copy no memory and need not wait.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::atfork;
use crate::futex::{self, Scope};

/// A fork waits or is under way; the other bits count the stretches that are.
const FORK: u32 = 1 << 31;

static STATE: AtomicU32 = AtomicU32::new(0);

/// No fork happens while it lives. Whoever holds it must not fork, nor wait for a thread that may fork.
#[derive(Debug)]
pub struct NoFork(());

impl NoFork {
    /// Waits for the fork that is under way, if one is.
    ///
    /// # Errors
    /// As `pthread_atfork`: forks could not be held up.
    pub fn begin() -> io::Result<Self> {
        static WATCHED: OnceLock<Result<(), i32>> = OnceLock::new();
        // SAFETY: the functions use atomics and futexes only.
        let watch = || unsafe { atfork::around_forks(before, in_parent, in_child) };
        WATCHED
            .get_or_init(|| watch().map_err(|error| error.raw_os_error().unwrap_or(libc::ENOMEM)))
            .map_err(io::Error::from_raw_os_error)?;
        loop {
            let state = STATE.load(Ordering::Relaxed);
            if state & FORK != 0 {
                futex::wait(&STATE, state, None, Scope::Process);
            } else if STATE.compare_exchange(state, state + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Ok(Self(()));
            }
        }
    }
}

impl Drop for NoFork {
    fn drop(&mut self) {
        if STATE.fetch_sub(1, Ordering::AcqRel) == FORK + 1 {
            futex::wake_all(&STATE, Scope::Process);
        }
    }
}

/// Whether a fork waits for a stretch to end, or is under way.
pub fn is_fork_waiting() -> bool {
    STATE.load(Ordering::Acquire) & FORK != 0
}

/// Before a fork: waits until nothing is in the way, and keeps it so.
pub(crate) extern "C" fn before() {
    loop {
        let state = STATE.load(Ordering::Relaxed);
        if state & FORK != 0 {
            futex::wait(&STATE, state, None, Scope::Process);
        } else if STATE.compare_exchange(state, state | FORK, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            break;
        }
    }
    loop {
        let state = STATE.load(Ordering::Acquire);
        if state == FORK {
            return;
        }
        futex::wait(&STATE, state, None, Scope::Process);
    }
}

/// After it, in the parent.
pub(crate) extern "C" fn in_parent() {
    STATE.fetch_and(!FORK, Ordering::AcqRel);
    futex::wake_all(&STATE, Scope::Process);
}

/// After it, in the child, where only the thread that forked is left.
pub(crate) extern "C" fn in_child() {
    STATE.store(0, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::{Child, Ending, fork, socket_pair};
    use std::os::fd::AsFd;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_fork_of_either_kind_waits_until_the_stretch_is_over() {
        for by_library in [true, false] {
            let is_over = AtomicBool::new(false);
            let stretch = NoFork::begin().unwrap();
            let ending = std::thread::scope(|scope| {
                let forker = scope.spawn(|| {
                    let verdict = || i32::from(!is_over.load(Ordering::SeqCst));
                    if by_library {
                        // SAFETY: the child looks at a word and ends.
                        let pid = unsafe { libc::fork() };
                        if pid == 0 {
                            crate::child::exit(verdict());
                        }
                        return Child::adopt(pid.cast_unsigned()).unwrap().wait();
                    }
                    let (_ours, theirs) = socket_pair().unwrap();
                    // SAFETY: as above.
                    unsafe { fork(theirs.as_fd(), &mut || verdict()) }.unwrap().wait()
                });
                while !is_fork_waiting() {
                    std::thread::yield_now();
                }
                is_over.store(true, Ordering::SeqCst);
                drop(stretch);
                forker.join().unwrap()
            });
            assert_eq!(ending, Ending::Exited(0), "by the library: {by_library}");
            drop(NoFork::begin().unwrap());
        }
    }
}
