//! How fast write-back may go, and how long it will take.
//!
//! Relies on nothing: pure functions of how full the log is.

use std::time::Duration;

use crate::ids::VolumeId;

/// Longest pause between two steps of write-back.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// Share of the time, in percent, that write-back takes while the log is nearly empty.
const LEAST_DUTY: u64 = 10;

/// What write-back knows between two steps.
#[derive(Clone, Copy, Debug)]
pub struct WritebackPressure {
    /// Used share of the log, in percent.
    pub used_percent: u8,
    /// From here on it works all the time.
    pub high_percent: u8,
    /// Below this it works as little as it may.
    pub low_percent: u8,
    /// A task waits for space, a deadline is near, or everything is to be written back.
    pub hurry: bool,
    /// A task waits for the slow device now.
    pub foreground: bool,
}

/// How long to leave the slow device to others after a step that took `took`. Bounded, so write-back always ends.
pub fn pause(pressure: &WritebackPressure, took: Duration) -> Duration {
    let WritebackPressure { used_percent, high_percent, low_percent, hurry, foreground } = *pressure;
    if hurry || used_percent >= high_percent {
        return Duration::ZERO;
    }
    let above = u64::from(used_percent.saturating_sub(low_percent));
    let width = u64::from(high_percent.saturating_sub(low_percent).max(1));
    let mut duty = LEAST_DUTY + (100 - LEAST_DUTY) * above / width;
    if foreground {
        duty = (duty / 2).max(LEAST_DUTY / 2);
    }
    let ns = took.as_nanos() as u64 * (100 - duty.min(100)) / duty.max(1);
    Duration::from_nanos(ns).min(LONGEST_PAUSE)
}

/// How write-back stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct WritebackProgress {
    /// Blocks in the log.
    pub cached_blocks: u64,
    /// Used share of the log, in percent.
    pub used_percent: u8,
    /// Blocks of the batch under way.
    pub batch_blocks: usize,
    /// Of those, moved already.
    pub batch_done: usize,
    /// Batches done since the cache was opened.
    pub batches: u64,
    /// Bytes a second of the last batches.
    pub bytes_per_s: u64,
    /// How long it would take to write everything back at that rate; `None` while that is unknown.
    pub eta_ms: Option<u64>,
    /// The volume that holds write-back up because it can't be written to, while what the log holds of it can't be moved along.
    pub stuck_on: Option<VolumeId>,
    /// A volume of which the log holds blocks and that can't be written to.
    pub refused: Option<VolumeId>,
    /// Share of the log that blocks of such volumes have, in percent.
    pub refused_percent: u8,
}

/// Time to move `blocks` at `bytes_per_s`.
pub fn eta_ms(blocks: u64, bytes_per_s: u64) -> Option<u64> {
    if blocks == 0 {
        return Some(0);
    }
    let bytes = u128::from(blocks) * crate::ids::BLOCK_BYTES as u128;
    (bytes_per_s > 0).then(|| (bytes * 1000 / u128::from(bytes_per_s)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fuller_the_log_the_shorter_the_pause_and_none_in_a_hurry() {
        let took = Duration::from_millis(10);
        let at = |used_percent, hurry, foreground| {
            pause(&WritebackPressure { used_percent, high_percent: 75, low_percent: 25, hurry, foreground }, took)
        };
        assert!(at(0, false, false) > at(50, false, false));
        assert!(at(50, false, false) > at(70, false, false));
        assert!(at(50, false, true) > at(50, false, false), "a task that waits for the slow device comes first");
        assert_eq!(at(75, false, true), Duration::ZERO);
        assert_eq!(at(0, true, true), Duration::ZERO);
        assert!(at(0, false, true) <= LONGEST_PAUSE);
    }

    #[test]
    fn the_time_left_follows_from_the_rate() {
        assert_eq!(eta_ms(256, 1 << 20), Some(1000));
        assert_eq!(eta_ms(256, 0), None);
        assert_eq!(eta_ms(0, 0), Some(0));
    }
}
