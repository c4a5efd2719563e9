//! How many bytes a second a dump writes at most.
//!
//! Relies on nothing but the clock that the caller reads. The limit may change at any time.

use std::time::{Duration, Instant};

/// A dump that was hurried may be ahead of its rate by so much time; what is beyond is forgiven.
const MOST_AHEAD: Duration = Duration::from_secs(1);

/// When more may be written.
pub(crate) struct RateLimit {
    due: Instant,
}

impl RateLimit {
    /// The first bytes may be written at once.
    pub(crate) fn new(now: Instant) -> Self {
        Self { due: now }
    }

    /// `bytes` are written, of `bytes_per_s` at most; 0 is no limit.
    pub(crate) fn add(&mut self, bytes: u64, bytes_per_s: u64, now: Instant) {
        if bytes_per_s == 0 {
            self.due = now;
            return;
        }
        let takes = Duration::from_secs_f64((bytes as f64 / bytes_per_s as f64).min(3600.0));
        self.due = self.due.max(now).min(now + MOST_AHEAD) + takes;
    }

    /// How long the next bytes have to wait.
    pub(crate) fn wait(&self, now: Instant) -> Duration {
        self.due.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn bytes_go_at_the_rate_and_a_pause_is_not_made_up_for() {
        let start = Instant::now();
        let mut limit = RateLimit::new(start);
        assert_eq!(limit.wait(start), Duration::ZERO);
        limit.add(500, 1000, start);
        assert_eq!(limit.wait(start), SECOND / 2);
        limit.add(500, 1000, start + SECOND / 2);
        assert_eq!(limit.wait(start + SECOND / 2), SECOND / 2);
        let later = start + 100 * SECOND;
        assert_eq!(limit.wait(later), Duration::ZERO);
        limit.add(1000, 1000, later);
        assert_eq!(limit.wait(later), SECOND);
    }

    #[test]
    fn what_was_written_in_a_hurry_is_waited_for_a_second_at_most_and_no_limit_waits_for_nothing() {
        let start = Instant::now();
        let mut limit = RateLimit::new(start);
        for _ in 0..100 {
            limit.add(1000, 1000, start);
        }
        assert_eq!(limit.wait(start), 2 * SECOND);
        limit.add(1 << 40, 0, start);
        assert_eq!(limit.wait(start), Duration::ZERO);
        limit.add(u64::MAX, 1, start);
        assert_eq!(limit.wait(start), 3600 * SECOND);
    }
}
