//! A lock and a condition that know who holds them and who waits, so that criticality passes through them.
//!
//! Relies on [`TaskGraph`] for the graph and on the standard lock and condition for everything else. A panic of a holder does
//! not poison them.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use crate::critical;
use crate::stats::WaitCause;
use crate::tasks::{BlockedOn, HeldResource, ResourceId, TaskGraph};

/// A mutual exclusion lock. While a critical task waits for it, its holder inherits.
pub struct CacheMutex<T> {
    tasks: Arc<TaskGraph>,
    id: ResourceId,
    ceiling: bool,
    inner: Mutex<T>,
}

impl<T> CacheMutex<T> {
    /// A lock around `value` for tasks of [`TaskGraph::global`].
    pub fn new(value: T) -> Self {
        Self::new_in(TaskGraph::global(), value)
    }

    /// A lock around `value` for these tasks.
    pub fn new_in(tasks: Arc<TaskGraph>, value: T) -> Self {
        Self { tasks, id: ResourceId::next(), ceiling: false, inner: Mutex::new(value) }
    }

    /// Makes every holder critical, whichever task waits: for locks that requests need all the time.
    #[must_use]
    pub fn always_critical(mut self) -> Self {
        self.ceiling = true;
        self
    }

    /// Takes the lock for the current task; sleeps until it is free.
    pub fn lock(&self) -> CacheGuard<'_, T> {
        let task = critical::current();
        let guard = match self.inner.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let began = Instant::now();
                let (blocked, criticality) = self.tasks.block(task, BlockedOn::Resource(self.id));
                let guard = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
                drop(blocked);
                self.tasks.waits.note(WaitCause::Lock, criticality.any(), began.elapsed().as_nanos() as u64);
                guard
            }
        };
        CacheGuard { hold: self.tasks.hold(task, self.id, self.ceiling), guard, lock: self }
    }
}

/// Access to what a [`CacheMutex`] protects.
pub struct CacheGuard<'a, T> {
    // Dropped first: no task inherits from a lock that is being released.
    hold: HeldResource,
    guard: MutexGuard<'a, T>,
    lock: &'a CacheMutex<T>,
}

impl<T> Deref for CacheGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for CacheGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// A condition. While a critical task waits for it, those who have promised its signal inherit; if no task has, the task that
/// gave it last.
pub struct CacheCondvar {
    tasks: Arc<TaskGraph>,
    id: ResourceId,
    inner: Condvar,
}

impl Default for CacheCondvar {
    fn default() -> Self {
        Self::new_in(TaskGraph::global())
    }
}

impl CacheCondvar {
    /// A condition for these tasks.
    pub fn new_in(tasks: Arc<TaskGraph>) -> Self {
        Self { tasks, id: ResourceId::next(), inner: Condvar::new() }
    }

    /// The current task owes the signal until the promise is dropped.
    pub fn promise(&self) -> HeldResource {
        self.tasks.hold(critical::current(), self.id, false)
    }

    /// Releases the lock, sleeps until there is a signal (or for no reason), takes the lock again.
    pub fn wait<'a, T>(&self, guard: CacheGuard<'a, T>) -> CacheGuard<'a, T> {
        let CacheGuard { hold, guard, lock } = guard;
        let task = critical::current();
        let began = Instant::now();
        let (blocked, criticality) = self.tasks.block(task, BlockedOn::Resource(self.id));
        drop(hold);
        let guard = self.inner.wait(guard).unwrap_or_else(PoisonError::into_inner);
        drop(blocked);
        self.tasks.waits.note(WaitCause::Signal, criticality.any(), began.elapsed().as_nanos() as u64);
        CacheGuard { hold: lock.tasks.hold(task, lock.id, lock.ceiling), guard, lock }
    }

    /// Wakes one that waits.
    pub fn notify_one(&self) {
        self.tasks.signalled(critical::current(), self.id);
        self.inner.notify_one();
    }

    /// Wakes all that wait.
    pub fn notify_all(&self) {
        self.tasks.signalled(critical::current(), self.id);
        self.inner.notify_all();
    }
}

impl Drop for CacheCondvar {
    fn drop(&mut self) {
        self.tasks.forget(self.id);
    }
}
