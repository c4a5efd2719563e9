//! Spinning before sleeping, where the wait tends to be short: putting a thread to sleep and waking it costs a good part of a
//! commit. As adaptive mutexes do, it spins only if the last wait was short.
//!
//! Knows nothing of what is waited for. Each turn yields the processor, so a thread that has work to do gets it.

use std::num::NonZero;
use std::thread::{available_parallelism, yield_now};
use std::time::{Duration, Instant};

/// Whether one kind of wait is worth spinning for: it was short the last time, spun or slept.
#[derive(Clone, Copy, Debug)]
pub struct AdaptiveSpin {
    most: Duration,
    /// What is waited for comes from another thread, which must be able to run: there is more than one processor.
    possible: bool,
    worth: bool,
}

impl AdaptiveSpin {
    /// For waits of which those shorter than `most` are spun.
    pub fn new(most: Duration) -> Self {
        let possible = available_parallelism().map_or(1, NonZero::get) > 1;
        Self { most, possible, worth: true }
    }

    /// Spins until `come` says that it has, or it isn't worth it. True if it has come; otherwise the caller has to
    /// sleep, and [`AdaptiveSpin::note`] how long the wait took in all.
    pub fn wait(&mut self, mut come: impl FnMut() -> bool) -> bool {
        if !self.possible || !self.worth {
            return false;
        }
        let began = Instant::now();
        loop {
            if come() {
                return true;
            }
            if began.elapsed() >= self.most {
                self.worth = false;
                return false;
            }
            yield_now();
        }
    }

    /// A wait that had to be slept through took so long.
    pub fn note(&mut self, took: Duration) {
        self.worth = took < self.most;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_long_wait_no_thread_spins_until_a_wait_is_short() {
        let mut spin = AdaptiveSpin { most: Duration::ZERO, possible: true, worth: true };
        assert!(spin.wait(|| true));
        assert!(!spin.wait(|| false));
        assert!(!spin.wait(|| panic!("asked although it isn't worth it")));
        spin.most = Duration::from_secs(9);
        spin.note(Duration::from_secs(10));
        assert!(!spin.wait(|| panic!("asked although it isn't worth it")));
        spin.note(Duration::from_secs(1));
        let mut looks = 0;
        assert!(spin.wait(|| {
            looks += 1;
            looks == 3
        }));
    }

    #[test]
    fn with_one_processor_no_thread_spins() {
        let mut spin = AdaptiveSpin { most: Duration::from_secs(9), possible: false, worth: true };
        assert!(!spin.wait(|| panic!("asked although no other thread can run")));
    }
}
