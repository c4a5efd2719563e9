//! What is known of making room for data that has outgrown `maxmemory`: whether steps go on, and whether commands wait for them.
//! Relies on nothing; `eviction` makes the room.

use std::time::{Duration, Instant};

/// The part of the limit by which the data may grow while room is being made.
const MARGIN_PARTS: u64 = 16;

/// Whether there is room for what a command needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoomState {
    /// The data is within the limit.
    Enough,
    /// It is not yet, but there is more to free.
    Making,
    /// It is not, and no key may go.
    Lacking,
}

/// What is known of making room.
#[derive(Debug, Default)]
pub struct EvictionState {
    /// Room is made in steps between commands.
    running: bool,
    /// Beyond this, commands that need memory wait for the steps.
    ceiling_bytes: u64,
    /// The data is beyond the ceiling.
    crowded: bool,
    /// Since when the data was beyond the limit.
    exceeded_since: Option<Instant>,
    /// For how long it was before.
    exceeded_before: Duration,
}

impl EvictionState {
    /// Whether commands that need memory wait for the steps.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// For how long the data has been beyond the limit this time, and in all.
    pub fn exceeded(&self, now: Instant) -> (Duration, Duration) {
        let current = self.exceeded_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        (current, self.exceeded_before + current)
    }

    /// Starts counting again (CONFIG RESETSTAT).
    pub fn reset_stats(&mut self) {
        self.exceeded_before = Duration::ZERO;
        self.exceeded_since = self.exceeded_since.map(|_| Instant::now());
    }

    /// Whether room is made in steps between commands.
    #[inline]
    pub fn is_running(&self) -> bool {
        self.running
    }

    /// Whether the data was beyond the limit when that was last noted.
    #[inline]
    pub fn is_exceeded(&self) -> bool {
        self.exceeded_since.is_some()
    }

    /// Steps are to make room for data of so many bytes, unless they do already.
    pub fn begin(&mut self, used_bytes: u64, limit_bytes: u64) {
        if !self.running {
            self.ceiling_bytes = ceiling_bytes(used_bytes, limit_bytes);
            self.running = true;
        }
    }

    /// No steps are made for now.
    pub fn pause(&mut self) {
        (self.running, self.crowded) = (false, false);
    }

    /// Notes whether there is room after some was made.
    pub fn note(&mut self, room: RoomState, used_bytes: u64, limit_bytes: u64) {
        let ceiling_bytes = ceiling_bytes(used_bytes, limit_bytes);
        self.ceiling_bytes = if self.running { self.ceiling_bytes.min(ceiling_bytes) } else { ceiling_bytes };
        self.running = room == RoomState::Making;
        self.crowded = self.running && used_bytes > self.ceiling_bytes;
        if room != RoomState::Enough {
            self.exceeded_since.get_or_insert_with(Instant::now);
        } else if let Some(since) = self.exceeded_since.take() {
            self.exceeded_before += since.elapsed();
        }
    }
}

fn ceiling_bytes(used_bytes: u64, limit_bytes: u64) -> u64 {
    used_bytes.saturating_add(limit_bytes / MARGIN_PARTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_wait_while_the_data_runs_away_from_the_steps() {
        let mut state = EvictionState::default();
        let limit_bytes = 16_000;
        // One command has added much: the next ones may run on.
        state.note(RoomState::Making, 50_000, limit_bytes);
        assert!((state.is_running(), state.is_crowded()) == (true, false));
        state.note(RoomState::Making, 51_001, limit_bytes);
        assert!(state.is_crowded());
        // What the steps have freed is not given away again.
        state.note(RoomState::Making, 40_000, limit_bytes);
        assert!(!state.is_crowded());
        state.note(RoomState::Making, 41_001, limit_bytes);
        assert!(state.is_crowded());
        state.note(RoomState::Enough, 15_000, limit_bytes);
        assert!((state.is_running(), state.is_crowded()) == (false, false));
    }
}
