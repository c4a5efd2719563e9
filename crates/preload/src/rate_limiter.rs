//! How fast to copy ahead: a rate that is halved right after the fork, where the program feels it most.
//!
//! Relies on the caller saying what it did and sleeping as long as it is told.

use std::time::Duration;

/// For that long after the beginning only half the rate is allowed.
const GENTLE: Duration = Duration::from_millis(100);
/// A sleep shorter than that costs more than it spares.
const LEAST_SLEEP: Duration = Duration::from_micros(50);

/// The pace of one child's copying.
#[derive(Clone, Copy, Debug)]
pub struct RateLimiter {
    rate_bytes_per_s: u64,
    done_bytes: u64,
}

impl RateLimiter {
    /// At most `rate_bytes_per_s`.
    pub fn new(rate_bytes_per_s: u64) -> Self {
        Self { rate_bytes_per_s: rate_bytes_per_s.max(1), done_bytes: 0 }
    }

    /// Counts `bytes` more.
    pub fn count(&mut self, bytes: u64) {
        self.done_bytes += bytes;
    }

    /// How long to sleep now that `elapsed` has passed since the beginning.
    pub fn sleep(&self, elapsed: Duration) -> Option<Duration> {
        let counted = elapsed - elapsed.min(GENTLE) / 2;
        let due = Duration::from_secs_f64(self.done_bytes as f64 / self.rate_bytes_per_s as f64);
        due.checked_sub(counted).filter(|&sleep| sleep >= LEAST_SLEEP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_and_halved_at_first() {
        let mut rate_limiter = RateLimiter::new(1 << 20);
        assert_eq!(rate_limiter.sleep(Duration::ZERO), None);
        rate_limiter.count(1 << 20);
        assert_eq!(rate_limiter.sleep(Duration::ZERO), Some(Duration::from_secs(1)));
        assert_eq!(rate_limiter.sleep(Duration::from_millis(100)), Some(Duration::from_millis(950)));
        assert_eq!(rate_limiter.sleep(Duration::from_millis(1050)), None);
    }
}
