//! Threads for requests that may have to wait for a device, so that those never keep others from being served.
//!
//! A few threads read requests from the kernel and serve them in place, which costs no hand-over. Only as many as
//! [`Crew::new`] is told may wait at a time; further such requests go to helpers, which are started as needed and end when
//! idle. There is no queue: if all helpers are busy, the reader does the work itself, and the kernel keeps the rest.
//!
//! Relies on jobs ending by themselves: they wait for devices, never for each other.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Most helpers.
const MOST_HELPERS: usize = 256;
/// An idle helper ends after this time.
const IDLE: Duration = Duration::from_secs(5);

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    helpers: usize,
    idle: usize,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
    inside: AtomicUsize,
}

/// The threads.
#[derive(Clone)]
pub struct Crew {
    shared: Arc<Shared>,
    most_inside: usize,
}

/// The reader does the work itself while this lives.
pub struct Inside {
    shared: Arc<Shared>,
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.shared.inside.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Crew {
    /// At most `most_inside` readers wait at a time.
    pub fn new(most_inside: usize) -> Self {
        Self { shared: Arc::default(), most_inside }
    }

    /// Whether the calling reader may do work that waits, in place.
    pub fn enter(&self) -> Option<Inside> {
        let inside = Inside { shared: Arc::clone(&self.shared) };
        let before = self.shared.inside.fetch_add(1, Ordering::AcqRel);
        (before < self.most_inside).then_some(inside)
    }

    /// Has a helper do `job`; does it here if there is none.
    pub fn hand_over(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.state();
        if state.idle > state.jobs.len() {
            state.jobs.push_back(Box::new(job));
            self.shared.work.notify_one();
            return;
        }
        if state.helpers == MOST_HELPERS {
            drop(state);
            return job();
        }
        state.helpers += 1;
        state.jobs.push_back(Box::new(job));
        drop(state);
        let shared = Arc::clone(&self.shared);
        let started = std::thread::Builder::new().name("quire-helper".into()).spawn(move || shared.help());
        if started.is_err() {
            let mut state = self.shared.state();
            state.helpers -= 1;
            let job = state.jobs.pop_back();
            drop(state);
            if let Some(job) = job {
                job();
            }
        }
    }

    /// Does `job` in place if allowed, else through a helper.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        match self.enter() {
            Some(_inside) => job(),
            None => self.hand_over(job),
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn help(&self) {
        let mut state = self.state();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.state();
                continue;
            }
            state.idle += 1;
            let (woken, waited) = self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if waited.timed_out() && state.jobs.is_empty() {
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
        let crew = Crew::new(0);
        let (done, ends) = channel();
        let barrier = Arc::new(std::sync::Barrier::new(20));
        for _ in 0..20 {
            let (done, barrier) = (done.clone(), Arc::clone(&barrier));
            crew.run(move || {
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
        let crew = Crew::new(1);
        let first = crew.enter();
        assert!(first.is_some() && crew.enter().is_none());
        drop(first);
        assert!(crew.enter().is_some());
    }
}
