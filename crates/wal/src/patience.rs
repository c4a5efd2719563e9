//! Waiting awake for what tends to come soon, since putting a thread to sleep and waking it costs a good part of a commit.
//!
//! Knows nothing of what is waited for. Each turn of the wait gives the processor away, so whoever has work to do does it.

use std::num::NonZero;
use std::thread::{available_parallelism, yield_now};
use std::time::{Duration, Instant};

/// Whether one kind of wait is worth staying awake for: it was short the last time, however it was spent.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    most: Duration,
    /// What is waited for comes from another thread, which must be able to run.
    possible: bool,
    worth: bool,
}

impl Patience {
    /// For waits of which those shorter than `most` are spent awake.
    pub fn new(most: Duration) -> Self {
        let possible = available_parallelism().map_or(1, NonZero::get) > 1;
        Self { most, possible, worth: true }
    }

    /// Stays awake until `come` says that it has, or it isn't worth it. True if it has come; otherwise the caller has to
    /// sleep, and [`Patience::note`] how long the wait took in all.
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
    fn a_wait_that_was_long_makes_the_next_one_asleep_until_one_is_short() {
        let mut patience = Patience { most: Duration::ZERO, possible: true, worth: true };
        assert!(patience.wait(|| true));
        assert!(!patience.wait(|| false));
        assert!(!patience.wait(|| panic!("asked although it isn't worth it")));
        patience.most = Duration::from_secs(9);
        patience.note(Duration::from_secs(10));
        assert!(!patience.wait(|| panic!("asked although it isn't worth it")));
        patience.note(Duration::from_secs(1));
        let mut looks = 0;
        assert!(patience.wait(|| {
            looks += 1;
            looks == 3
        }));
    }

    #[test]
    fn with_one_processor_nobody_waits_awake() {
        let mut patience = Patience { most: Duration::from_secs(9), possible: false, worth: true };
        assert!(!patience.wait(|| panic!("asked although nobody else can run")));
    }
}
