//! The latency monitor: per kind of event the last spikes and the worst. Relies on nothing.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::fmt::Write as _;

const MAX_SPIKES: usize = 160;
/// Where the reasons of spikes are to be found.
const ADVICE: &str = "\
`command` and `fast-command`: SLOWLOG GET shows slow commands if slowlog-log-slower-than is low enough.
`expire-cycle` and `eviction-cycle`: keys are removed in short steps; where these are long the processor was taken away, or slow.
`active-defrag-cycle`: data is moved in slices of half a millisecond; where these are long the processor was taken away, or slow.
`cut`: INFO persistence tells how long the last save has stopped all commands (last_cut_stall_us).
";
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

    /// What the spikes say, for people; `threshold_ms` is how long one has to take to be recorded, 0 if none is.
    pub fn report(&self, threshold_ms: u64) -> String {
        if self.events.is_empty() {
            return match threshold_ms {
                0 => {
                    "No latency is watched: CONFIG SET latency-monitor-threshold MILLISECONDS begins that.\n".to_owned()
                }
                _ => format!("No latency spike of {threshold_ms} ms or more was recorded.\n"),
            };
        }
        let mut text = String::new();
        for (event, history) in &self.events {
            let durations = || history.spikes.iter().map(|spike| spike.duration_ms);
            let count = history.spikes.len().max(1) as u64;
            let seconds = match (history.spikes.front(), history.spikes.back()) {
                (Some(first), Some(last)) => last.unix_s.saturating_sub(first.unix_s),
                _ => 0,
            };
            // A string takes whatever is written to it.
            let _ = writeln!(
                text,
                "{event}: {count} latency spikes in {seconds} s, of {} ms on average and {} ms at most; the worst ever took {} ms.",
                durations().sum::<u64>() / count,
                durations().max().unwrap_or(0),
                history.max_ms,
            );
        }
        text.push_str(ADVICE);
        text
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
    fn the_report_says_what_was_recorded_or_why_nothing_was() {
        let mut latency = LatencyMonitor::default();
        assert!(latency.report(0).contains("latency-monitor-threshold"));
        assert_eq!(latency.report(100), "No latency spike of 100 ms or more was recorded.\n");
        for (unix_s, duration_ms) in [(1, 900), (11, 100), (21, 200)] {
            latency.record("command", unix_s, duration_ms);
        }
        let line =
            "command: 3 latency spikes in 20 s, of 400 ms on average and 900 ms at most; the worst ever took 900 ms.\n";
        assert!(latency.report(100).starts_with(line), "{}", latency.report(100));
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
