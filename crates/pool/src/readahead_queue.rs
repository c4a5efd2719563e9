//! A readahead queue: a device queue on which pages are read ahead of their use, shared by the threads that happen to use it.
//!
//! Relies on one thread at a time having the queue: it takes the device queue out, waits on it without the lock, deals
//! with what has arrived, and puts it back; the others wait for that, and one of them goes next. So no thread of its own is
//! needed: a thread that needs a page that is on its way sees to its arrival.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use quire_device::{Device, Queue};

/// What is behind the lock.
#[derive(Default)]
pub(crate) struct QueueState {
    queue: Option<Box<dyn Queue>>,
    /// A thread has the device queue.
    is_away: bool,
    /// Threads that wait for a change. A wake-up costs a system call even where no thread waits.
    waiting: usize,
}

/// A device queue that one thread at a time uses.
#[derive(Default)]
pub(crate) struct ReadaheadQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

/// What a thread that asks for the device queue gets.
pub(crate) enum TakenQueue {
    /// The device queue, to be put back.
    Queue(Box<dyn Queue>),
    /// None: no thread has opened it yet, or the device gives none.
    None,
    /// What the thread was waiting for has come.
    Done,
}

impl ReadaheadQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the device queue, waiting for the thread that has it, unless `done`.
    ///
    /// With `only_if_busy`, it also waits while nothing is in flight: the thread that has claimed pages is about to
    /// submit them, or to give them up.
    pub(crate) fn take(&self, only_if_busy: bool, done: impl Fn() -> bool) -> TakenQueue {
        let mut state = self.lock();
        loop {
            if done() {
                return TakenQueue::Done;
            }
            let is_busy = state.queue.as_ref().is_some_and(|queue| queue.in_flight() > 0);
            if !state.is_away && (is_busy || !only_if_busy) {
                state.is_away = true;
                return state.queue.take().map_or(TakenQueue::None, TakenQueue::Queue);
            }
            state.waiting += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
    }

    /// Takes the device queue if no thread has it and something is in flight.
    pub(crate) fn try_take(&self) -> Option<Box<dyn Queue>> {
        let mut state = self.state.try_lock().ok()?;
        if state.is_away || state.queue.as_ref().is_none_or(|queue| queue.in_flight() == 0) {
            return None;
        }
        state.is_away = true;
        state.queue.take()
    }

    /// Opens a device queue where there is none yet. The caller has taken the place of it.
    pub(crate) fn open(device: &dyn Device, depth: usize) -> Option<Box<dyn Queue>> {
        device.queue(depth).inspect_err(|error| tracing::warn!(%error, "no queue for reading ahead")).ok()
    }

    /// Puts back what was taken, and wakes the threads that wait.
    pub(crate) fn put_back(&self, queue: Option<Box<dyn Queue>>) {
        let mut state = self.lock();
        state.queue = queue;
        state.is_away = false;
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            self.changed.notify_all();
        }
    }
}
