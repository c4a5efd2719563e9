//! The share of time in which tasks waited for a resource, from one look to the next.
//!
//! Relies on the kernel's total of such time (pressure stall information), which only rises.

use std::time::{Duration, Instant};

/// Two looks that are closer together than this count as so far apart: a single wait would seem to be all of the time.
const LEAST_PERIOD: Duration = Duration::from_millis(100);

/// What the last look has found.
#[derive(Debug, Default)]
pub(super) struct StallMeter {
    last: Option<(Instant, u64)>,
}

impl StallMeter {
    /// The share since the last look, in percent; `None` for the first look, and where the kernel doesn't tell.
    pub(super) fn percent(&mut self, now: Instant, total_us: Option<u64>) -> Option<f64> {
        let total_us = total_us?;
        let (then, before_us) = self.last.replace((now, total_us))?;
        let period = now.saturating_duration_since(then).max(LEAST_PERIOD);
        Some(total_us.saturating_sub(before_us) as f64 / period.as_micros() as f64 * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_counts_in_the_period_that_it_was_in_and_in_no_later_one() {
        let (mut meter, begun) = (StallMeter::default(), Instant::now());
        let at = |ms| begun + Duration::from_millis(ms);
        assert_eq!(meter.percent(at(0), Some(7_000_000)), None, "it may have been long ago");
        assert_eq!(meter.percent(at(250), Some(7_050_000)), Some(20.0));
        assert_eq!(meter.percent(at(500), Some(7_050_000)), Some(0.0));
        assert_eq!(meter.percent(at(501), Some(7_051_000)), Some(1.0));
        assert_eq!(meter.percent(at(700), None), None);
    }
}
