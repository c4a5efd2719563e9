//! Waiting for a word of memory to change, between threads and between processes.
//!
//! Relies on `futex`. The calls neither allocate nor set `errno`, so they may be made where only async-signal-safe calls
//! are allowed, such as in the child of a fork.

use std::sync::atomic::{AtomicI32, AtomicU32};
use std::time::Duration;

use rustix::thread::futex::{self, Flags, Timespec};

/// Who may wait at a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FutexScope {
    /// Threads of this process.
    Process,
    /// Every process that has the word's memory mapped shared.
    Shared,
}

impl FutexScope {
    fn flags(self) -> Flags {
        match self {
            Self::Process => Flags::PRIVATE,
            Self::Shared => Flags::empty(),
        }
    }
}

/// Sleeps while `word` is `value`, at most for `limit`. Wakes up for no reason now and then: look at the word again.
pub fn wait(word: &AtomicU32, value: u32, limit: Option<Duration>, scope: FutexScope) {
    let limit = limit.map(|limit| Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    });
    // Another value, a signal and the end of the time all mean the same to the caller: look again.
    let _ = futex::wait(word, scope.flags(), value, limit.as_ref());
}

/// Sleeps while `word` is `value`, at most for `limit`: a word that the kernel clears at the end of a thread or helper, which
/// wakes as it does [`FutexScope::Shared`].
pub fn wait_signed(word: &AtomicI32, value: i32, limit: Duration) {
    // SAFETY: `from_ptr` demands an aligned word that stays as long as the reference, and that is reached by atomic operations only. `word` is
    // borrowed for the whole call, and both types have the size and alignment of 32 bits.
    let word = unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) };
    wait(word, value.cast_unsigned(), Some(limit), FutexScope::Shared);
}

/// Wakes all threads that wait at `word`.
pub fn wake_all(word: &AtomicU32, scope: FutexScope) {
    wake(word, i32::MAX as u32, scope);
}

/// Wakes up to `most` of those who wait at `word`.
pub fn wake(word: &AtomicU32, most: u32, scope: FutexScope) {
    // It fails only for an address that is none.
    let _ = futex::wake(word, scope.flags(), most);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_waiter_is_woken_by_the_change_and_by_the_end_of_its_time() {
        for scope in [FutexScope::Process, FutexScope::Shared] {
            let word = AtomicU32::new(0);
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    while word.load(Ordering::Acquire) == 0 {
                        wait(&word, 0, None, scope);
                    }
                });
                word.store(1, Ordering::Release);
                wake_all(&word, scope);
            });
            wait(&word, 1, Some(Duration::from_millis(1)), scope);
        }
    }
}
