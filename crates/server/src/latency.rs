//! The latency monitor: per kind of event the last spikes and the worst. Relies on nothing.

use std::collections::BTreeMap;
use std::collections::VecDeque;

const MAX_SPIKES: usize = 160;
/// The event of a slow command.
pub const COMMAND: &str = "command";
/// The event of a slow command that should take constant or logarithmic time.
pub const FAST_COMMAND: &str = "fast-command";

/// A spike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LatencySpike {
    /// When, Unix seconds.
    pub unix_s: i64,
    /// How long.
    pub duration_ms: u64,
}

/// What is known of one kind of event.
#[derive(Default, Debug)]
pub struct LatencyHistory {
    /// The last spikes, the oldest first; one a second at most.
    pub spikes: VecDeque<LatencySpike>,
    /// The worst ever.
    pub max_ms: u64,
}

/// The monitor.
#[derive(Default, Debug)]
pub struct LatencyMonitor {
    events: BTreeMap<&'static str, LatencyHistory>,
}

impl LatencyMonitor {
    /// Records a spike.
    pub fn record(&mut self, event: &'static str, unix_s: i64, duration_ms: u64) {
        let history = self.events.entry(event).or_default();
        history.max_ms = history.max_ms.max(duration_ms);
        match history.spikes.back_mut() {
            Some(last) if last.unix_s == unix_s => last.duration_ms = last.duration_ms.max(duration_ms),
            _ => {
                if history.spikes.len() == MAX_SPIKES {
                    history.spikes.pop_front();
                }
                history.spikes.push_back(LatencySpike { unix_s, duration_ms });
            }
        }
    }

    /// All kinds of events that had a spike.
    pub fn events(&self) -> &BTreeMap<&'static str, LatencyHistory> {
        &self.events
    }

    /// Forgets an event, or all; how many were forgotten.
    pub fn reset(&mut self, event: Option<&[u8]>) -> usize {
        let before = self.events.len();
        match event {
            None => self.events.clear(),
            Some(name) => self.events.retain(|event, _| !event.as_bytes().eq_ignore_ascii_case(name)),
        }
        before - self.events.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spikes_of_one_second_are_one() {
        let mut latency = LatencyMonitor::default();
        for (unix_s, duration_ms) in [(1, 5), (1, 9), (1, 3), (2, 4)] {
            latency.record("command", unix_s, duration_ms);
        }
        let history = &latency.events()["command"];
        assert_eq!((history.spikes.len(), history.spikes[0].duration_ms, history.max_ms), (2, 9, 9));
        assert_eq!((latency.reset(Some(b"nothing")), latency.reset(None)), (0, 1));
    }

    #[test]
    fn old_spikes_leave() {
        let mut latency = LatencyMonitor::default();
        for second in 0..200 {
            latency.record("command", second, 1);
        }
        assert_eq!(latency.events()["command"].spikes.len(), MAX_SPIKES);
    }
}
