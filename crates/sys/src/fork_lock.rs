//! A lock between forks and stretches of code during which memory is not what it seems: a child must not be forked then, or it
//! would have that memory for ever.
//!
//! Relies on `pthread_atfork`, so every `fork` of the C library waits, and [`crate::child`] waits too. A process that calls `clone`
//! by itself, or `_Fork`, is not noticed. `vfork` and `posix_spawn` copy no memory and need not wait.
//!
//! A fork waits for the stretches that are under way, which are short and wait for no fork. A stretch waits for forks only for a
//! while: between two handlers of `pthread_atfork` a fork may wait for a lock of the program's that the thread before us holds.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::atfork;
use crate::futex::{self, FutexScope};
use crate::thread::BlockedSignals;

/// One fork that waits or is under way: they are counted in the upper half. The lower one counts the stretches that are.
const FORK: u32 = 1 << 16;

static STATE: AtomicU32 = AtomicU32::new(0);

/// So long a stretch waits for forks; one takes a second for a hundred gigabytes.
const PATIENCE: Duration = Duration::from_secs(5);

/// No fork happens while it lives, and no handler of a signal that is sent runs in the thread: one that forks would wait for
/// itself. The thread that holds it must not fork, nor wait for a thread that may fork.
#[derive(Debug)]
pub struct NoFork(#[expect(dead_code, reason = "held")] BlockedSignals);

impl NoFork {
    /// Waits for the forks that are under way, if there are such.
    ///
    /// # Errors
    /// As `pthread_atfork`: forks could not be held up. [`io::ErrorKind::TimedOut`]: a fork is under way and does not end.
    pub fn begin() -> io::Result<Self> {
        Self::begin_within(PATIENCE)
    }

    fn begin_within(patience: Duration) -> io::Result<Self> {
        let signals = BlockedSignals::new();
        watch_forks()?;
        let mut until = None;
        loop {
            let state = STATE.load(Ordering::Relaxed);
            if state < FORK {
                if STATE.compare_exchange(state, state + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                    return Ok(Self(signals));
                }
                continue;
            }
            let left = until.get_or_insert_with(|| Instant::now() + patience).saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            futex::wait(&STATE, state, Some(left), FutexScope::Process);
        }
    }
}

impl Drop for NoFork {
    fn drop(&mut self) {
        let before = STATE.fetch_sub(1, Ordering::AcqRel);
        if before >= FORK && before % FORK == 1 {
            futex::wake_all(&STATE, FutexScope::Process);
        }
    }
}

/// Has forks wait from now on, unless they do already.
///
/// Threads that race here all register the handlers, which then run several times around a fork: each counts it, and takes its count back.
/// A lock (`OnceLock`) would be found held for ever by the child of a fork that another thread has begun.
fn watch_forks() -> io::Result<()> {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !WATCHED.load(Ordering::Acquire) {
        // SAFETY: the functions use atomics and futexes only.
        unsafe { atfork::around_forks(before, in_parent, in_child) }?;
        WATCHED.store(true, Ordering::Release);
    }
    Ok(())
}

/// Whether a fork waits for a stretch to end, or is under way.
pub fn is_fork_waiting() -> bool {
    STATE.load(Ordering::Acquire) >= FORK
}

/// Before a fork: waits until nothing is in the way, and keeps it so. Forks don't wait for each other.
pub(crate) extern "C" fn before() {
    STATE.fetch_add(FORK, Ordering::AcqRel);
    loop {
        let state = STATE.load(Ordering::Acquire);
        if state.is_multiple_of(FORK) {
            return;
        }
        futex::wait(&STATE, state, None, FutexScope::Process);
    }
}

/// After it, in the parent.
pub(crate) extern "C" fn in_parent() {
    if STATE.fetch_sub(FORK, Ordering::AcqRel) < 2 * FORK {
        futex::wake_all(&STATE, FutexScope::Process);
    }
}

/// After it, in the child, where only the thread that forked is left.
pub(crate) extern "C" fn in_child() {
    STATE.store(0, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::{Child, WaitStatus, fork, socket_pair};
    use std::os::fd::AsFd;
    use std::sync::atomic::AtomicBool;

    /// Held by each test: what is in this file is one for the whole process.
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

    #[test]
    fn a_fork_of_either_kind_waits_until_the_stretch_is_over() {
        let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
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
                    // SAFETY: the child looks at a word and ends.
                    unsafe { fork(theirs.as_fd(), &mut || verdict()) }.unwrap().wait()
                });
                while !is_fork_waiting() {
                    std::thread::yield_now();
                }
                is_over.store(true, Ordering::SeqCst);
                drop(stretch);
                forker.join().unwrap()
            });
            assert_eq!(ending, WaitStatus::Exited(0), "by the library: {by_library}");
            drop(NoFork::begin().unwrap());
        }
    }

    #[test]
    fn a_stretch_does_not_wait_for_ever_for_a_fork_that_does_not_end() {
        let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        drop(NoFork::begin().unwrap());
        // As a fork that waits for a lock which the thread that begins a stretch holds; and a second one beside it.
        before();
        before();
        let short = Duration::from_millis(50);
        assert_eq!(NoFork::begin_within(short).unwrap_err().kind(), io::ErrorKind::TimedOut);
        in_parent();
        assert!(is_fork_waiting() && NoFork::begin_within(short).is_err());
        in_parent();
        drop(NoFork::begin().unwrap());
    }

    /// Forks a child that ends at once.
    extern "C" fn fork_in_handler(_: libc::c_int) {
        // SAFETY: the child ends, and the parent waits for it.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::_exit(0);
            }
            libc::waitpid(pid, std::ptr::null_mut(), 0);
        }
    }

    #[test]
    fn a_handler_that_forks_runs_after_the_stretch() {
        let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut run = || {
            // SAFETY: a handler for this process, which is ended should it wait for itself; the signals are its own.
            unsafe {
                libc::alarm(30);
                libc::signal(libc::SIGUSR1, fork_in_handler as *const () as usize);
                let Ok(stretch) = NoFork::begin() else { return 1 };
                libc::raise(libc::SIGUSR1);
                drop(stretch);
            }
            0
        };
        // SAFETY: the child forks and makes system calls.
        let ending = unsafe { crate::child::fork_by_library(&mut run) }.unwrap().wait();
        assert_eq!(ending, WaitStatus::Exited(0), "killed by signal 14: it waited for itself");
    }
}
