//! A lock that a fork waits for, so that no child finds it held by a thread that it does not have.
//!
//! Relies on `pthread_atfork` calling [`PoolLock::acquire`] before a fork and [`PoolLock::release`] after it on both sides.

use std::sync::atomic::{AtomicU32, Ordering};

use quire_sys::futex::{self, FutexScope};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and a thread may be asleep.
const AWAITED: u32 = 2;

pub(super) struct PoolLock(AtomicU32);

/// Releases the lock when it is dropped.
pub(super) struct PoolLockGuard<'a>(&'a PoolLock);

impl PoolLock {
    pub(super) const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    pub(super) fn hold(&self) -> PoolLockGuard<'_> {
        self.acquire();
        PoolLockGuard(self)
    }

    pub(super) fn acquire(&self) {
        if self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return;
        }
        // What the holder wrote before its `release` is seen by the thread that finds the lock free here.
        while self.0.swap(AWAITED, Ordering::Acquire) != FREE {
            futex::wait(&self.0, AWAITED, None, FutexScope::Process);
        }
    }

    #[cfg(test)]
    pub(super) fn is_held(&self) -> bool {
        self.0.load(Ordering::Acquire) != FREE
    }

    pub(super) fn release(&self) {
        if self.0.swap(FREE, Ordering::Release) == AWAITED {
            futex::wake(&self.0, 1, FutexScope::Process);
        }
    }
}

impl Drop for PoolLockGuard<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}
