//! Counters of what the server did. Relies on `durations`.

use std::collections::BTreeMap;

use crate::client::CommandId;
use crate::durations::DurationCounts;

/// What is counted per command.
#[derive(Clone, Default, Debug)]
pub struct CommandStats {
    /// Runs.
    pub calls: u64,
    /// Time that they took together.
    pub total_ns: u64,
    /// Refused before they ran.
    pub rejected: u64,
    /// Ended with an error.
    pub failed: u64,
    /// How long they took, while `latency-tracking` is on.
    pub durations: DurationCounts,
}

/// Samples from which a rate per second is told.
const RATE_SAMPLES: usize = 16;

/// The rate at which a counter grew lately.
#[derive(Clone, Copy, Default, Debug)]
pub struct RateSampler {
    samples: [u64; RATE_SAMPLES],
    next: usize,
    last_total: u64,
    last_ms: u64,
}

impl RateSampler {
    /// Takes a sample of the counter.
    pub fn sample(&mut self, total: u64, now_ms: u64) {
        let passed_ms = now_ms.saturating_sub(self.last_ms);
        if passed_ms == 0 {
            return;
        }
        self.samples[self.next] = total.saturating_sub(self.last_total) * 1000 / passed_ms;
        self.next = (self.next + 1) % RATE_SAMPLES;
        (self.last_total, self.last_ms) = (total, now_ms);
    }

    /// The mean of the samples.
    pub fn per_second(&self) -> u64 {
        self.samples.iter().sum::<u64>() / RATE_SAMPLES as u64
    }
}

/// Turns of the loop that serves clients.
#[derive(Default, Debug)]
pub struct TurnStats {
    /// All of them.
    pub count: u64,
    /// Time that they took together, without the waiting between them.
    pub duration_ns: u64,
    /// The part of it in which commands ran.
    pub commands_ns: u64,
    /// Turns per second.
    pub rate: RateSampler,
    /// Nanoseconds of turns per second.
    pub duration_rate: RateSampler,
}

impl TurnStats {
    /// Takes samples of the counters.
    pub fn sample(&mut self, now_ms: u64) {
        self.rate.sample(self.count, now_ms);
        self.duration_rate.sample(self.duration_ns, now_ms);
    }
}

/// All counters that CONFIG RESETSTAT clears.
#[derive(Default, Debug)]
pub struct ServerStats {
    /// Per command.
    pub commands: Vec<CommandStats>,
    /// Replies that were errors, by their code.
    pub errors: BTreeMap<String, u64>,
    /// All of them.
    pub error_replies: u64,
    /// Commands that ran.
    pub commands_processed: u64,
    /// Connections that were accepted.
    pub connections_received: u64,
    /// Connections that were refused.
    pub connections_rejected: u64,
    /// Bytes read.
    pub input_bytes: u64,
    /// Bytes written.
    pub output_bytes: u64,
    /// Times that a client was read from.
    pub reads: u64,
    /// Times that a client was written to.
    pub writes: u64,
    /// Clients closed because they left too much output unread.
    pub output_limit_closed: u64,
    /// Clients closed because they sent too much.
    pub query_limit_closed: u64,
    /// Clients closed because all clients together took too much memory.
    pub clients_evicted: u64,
    /// Most memory that the data took.
    pub used_memory_peak_bytes: u64,
    /// Commands per second.
    pub command_rate: RateSampler,
    /// Bytes read per second.
    pub input_rate: RateSampler,
    /// Bytes written per second.
    pub output_rate: RateSampler,
    /// Turns of the loop.
    pub turns: TurnStats,
    /// Time spent looking for expired keys.
    pub expire_cycle_us: u64,
}

/// More codes than this can only be an attack or a mistake.
const MAX_ERROR_CODES: usize = 128;

impl ServerStats {
    /// The counters of a command.
    #[inline]
    pub fn command(&mut self, id: CommandId) -> &mut CommandStats {
        let index = id.0 as usize;
        if index >= self.commands.len() {
            self.commands.resize(index + 1, CommandStats::default());
        }
        &mut self.commands[index]
    }

    /// Counts an error by the first word of its line.
    pub fn count_error(&mut self, line: &[u8]) {
        self.error_replies += 1;
        let code = line.split(|byte| matches!(byte, b' ' | b'\r')).next().unwrap_or_default();
        let code = String::from_utf8_lossy(code);
        if let Some(count) = self.errors.get_mut(code.as_ref()) {
            *count += 1;
        } else if self.errors.len() < MAX_ERROR_CODES {
            self.errors.insert(code.into_owned(), 1);
        }
    }

    /// Starts again from zero.
    pub fn reset(&mut self) {
        let peak = self.used_memory_peak_bytes;
        *self = ServerStats { used_memory_peak_bytes: peak, ..ServerStats::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_code() {
        let mut stats = ServerStats::default();
        stats.count_error(b"ERR a b\r\n");
        stats.count_error(b"ERR c\r\n");
        stats.count_error(b"NOAUTH\r\n");
        assert_eq!((stats.errors["ERR"], stats.errors["NOAUTH"], stats.error_replies), (2, 1, 3));
    }

    #[test]
    fn a_rate_is_per_second() {
        let mut rate = RateSampler::default();
        for turn in 1..=20 {
            rate.sample(turn * 50, turn * 100);
        }
        assert_eq!(rate.per_second(), 500);
    }
}
