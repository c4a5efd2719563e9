//! Threads for requests that may have to wait for a device, so that those never keep others from being served.
//!
//! A few threads read requests from the kernel and serve them in place, which costs no hand-over. Only as many as
//! [`OffloadPool::new`] is told may wait at a time; further such requests go to helpers, which are started as needed and end when
//! idle. A reader never does a request in place beyond that: a request for which there is no helper waits in a queue, so
//! there is always a reader for the next one, which may be what the others wait for. The queue is as long as there are
//! threads that wait for an answer: each of them has asked for one thing.
//!
//! Some helpers are kept for requests that should not wait behind those that do: of critical tasks, and such as tell the
//! mount who is critical, or ask for names and figures.
//!
//! Relies on jobs ending by themselves: they wait for devices, or for each other while both have a thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Most helpers for requests of any kind.
const MOST_HELPERS: usize = 256;
/// Further helpers, for requests that should not wait behind others.
const KEPT_HELPERS: usize = 64;
/// An idle helper ends after this time.
const IDLE: Duration = Duration::from_secs(5);

type Job = Box<dyn FnOnce() + Send>;

/// Whether a request may wait behind others that wait for devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// It may.
    Ordinary,
    /// It should not, and waits for no device for long.
    Urgent,
}

#[derive(Default)]
struct Queues {
    ordinary: VecDeque<Job>,
    urgent: VecDeque<Job>,
    helpers: usize,
    idle: usize,
    /// Helpers that do ordinary jobs.
    at_ordinary: usize,
}

impl Queues {
    /// A job for a helper that is free.
    fn next(&mut self) -> Option<(Job, Priority)> {
        if let Some(job) = self.urgent.pop_front() {
            return Some((job, Priority::Urgent));
        }
        if self.at_ordinary == MOST_HELPERS {
            return None;
        }
        let job = self.ordinary.pop_front()?;
        self.at_ordinary += 1;
        Some((job, Priority::Ordinary))
    }

    /// Jobs for which there may be a helper.
    fn ready(&self) -> usize {
        self.urgent.len() + self.ordinary.len().min(MOST_HELPERS - self.at_ordinary)
    }
}

#[derive(Default)]
struct Shared {
    state: Mutex<Queues>,
    work: Condvar,
    inline: AtomicUsize,
}

/// The threads.
#[derive(Clone)]
pub struct OffloadPool {
    shared: Arc<Shared>,
    most_inline: usize,
}

/// The reader does the work itself while this lives.
pub struct InlinePermit {
    shared: Arc<Shared>,
}

impl Drop for InlinePermit {
    fn drop(&mut self) {
        self.shared.inline.fetch_sub(1, Ordering::AcqRel);
    }
}

impl OffloadPool {
    /// At most `most_inline` readers wait at a time.
    pub fn new(most_inline: usize) -> Self {
        Self { shared: Arc::default(), most_inline }
    }

    /// Whether the calling reader may do work that waits, in place.
    pub fn try_inline(&self) -> Option<InlinePermit> {
        let inline = InlinePermit { shared: Arc::clone(&self.shared) };
        let before = self.shared.inline.fetch_add(1, Ordering::AcqRel);
        (before < self.most_inline).then_some(inline)
    }

    /// Has a helper do `job`, at once or when one is free. Returns at once.
    pub fn offload(&self, priority: Priority, job: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.state();
        match priority {
            Priority::Ordinary => state.ordinary.push_back(Box::new(job)),
            Priority::Urgent => state.urgent.push_back(Box::new(job)),
        }
        if state.idle >= state.ready() {
            self.shared.work.notify_one();
            return;
        }
        if state.helpers == MOST_HELPERS + KEPT_HELPERS || state.ready() == 0 {
            return;
        }
        state.helpers += 1;
        drop(state);
        let shared = Arc::clone(&self.shared);
        let started = std::thread::Builder::new().name("quire-helper".into()).spawn(move || shared.help());
        if started.is_err() {
            let mut state = self.shared.state();
            state.helpers -= 1;
            // Without any helper no thread would ever come for it.
            let job = if state.helpers == 0 { state.next() } else { None };
            drop(state);
            if let Some((job, priority)) = job {
                job();
                self.shared.done(priority);
            }
        }
    }

    /// Does `job` in place if allowed, else through a helper.
    pub fn run(&self, priority: Priority, job: impl FnOnce() + Send + 'static) {
        match self.try_inline() {
            Some(_inside) => job(),
            None => self.offload(priority, job),
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, Queues> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn done(&self, priority: Priority) {
        if priority == Priority::Ordinary {
            let mut state = self.state();
            state.at_ordinary -= 1;
            if !state.ordinary.is_empty() {
                // This helper may find something urgent to do first.
                self.work.notify_one();
            }
        }
    }

    fn help(&self) {
        let mut state = self.state();
        loop {
            if let Some((job, priority)) = state.next() {
                drop(state);
                job();
                self.done(priority);
                state = self.state();
                continue;
            }
            state.idle += 1;
            let (woken, waited) = self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if waited.timed_out() && state.ready() == 0 {
                state.helpers -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn jobs_that_wait_for_each_others_end_all_get_a_thread() {
        let offload_pool = OffloadPool::new(0);
        let (done, ends) = channel();
        let barrier = Arc::new(std::sync::Barrier::new(20));
        for _ in 0..20 {
            let (done, barrier) = (done.clone(), Arc::clone(&barrier));
            offload_pool.run(Priority::Ordinary, move || {
                barrier.wait();
                done.send(()).unwrap();
            });
        }
        for _ in 0..20 {
            ends.recv().unwrap();
        }
    }

    #[test]
    fn readers_work_in_place_up_to_the_limit() {
        let offload_pool = OffloadPool::new(1);
        let first = offload_pool.try_inline();
        assert!(first.is_some() && offload_pool.try_inline().is_none());
        drop(first);
        assert!(offload_pool.try_inline().is_some());
    }

    #[test]
    fn a_reader_is_never_held_by_requests_that_wait_and_the_urgent_are_served_among_them() {
        let offload_pool = OffloadPool::new(0);
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let (done, ends) = channel();
        let jobs = MOST_HELPERS + 200;
        for _ in 0..jobs {
            let (done, gate) = (done.clone(), Arc::clone(&gate));
            // Returns at once, though the job waits until the last line but one.
            offload_pool.run(Priority::Ordinary, move || {
                let (open, opened) = &*gate;
                drop(opened.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
                done.send(false).unwrap();
            });
        }
        for _ in 0..KEPT_HELPERS {
            let done = done.clone();
            offload_pool.run(Priority::Urgent, move || done.send(true).unwrap());
        }
        for _ in 0..KEPT_HELPERS {
            assert!(ends.recv().unwrap(), "an urgent job ends first");
        }
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        for _ in 0..jobs {
            assert!(!ends.recv().unwrap());
        }
    }
}
