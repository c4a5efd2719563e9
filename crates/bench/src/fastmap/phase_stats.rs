//! What one phase of a trial cost and achieved, and the timer that measures it.
//!
//! Relies on `getrusage` for what the process cost (a pool's threads included, the kernel's own writeback threads not), and
//! on the device's statistics for the time that its requests took.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use quire_sys::usage::ResourceUsage;
use serde::{Deserialize, Serialize};

use super::pages::Counters;
use super::testbed::Testbed;

/// Figures of one phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseStats {
    /// What was done, as its trial names it.
    pub name: String,
    /// Operations.
    pub ops: u64,
    /// How long they took.
    pub elapsed_s: f64,
    /// Percentiles of an operation's latency, in nanoseconds: 50th, 99th, 99.9th, and the longest; zeros if not taken.
    pub latency_ns: [u64; 4],
    /// Processor time of all threads.
    pub cpu_s: f64,
    /// Page faults that waited for the device.
    pub major_faults: u64,
    /// Page faults that did not.
    pub minor_faults: u64,
    /// Times that a thread waited.
    pub voluntary_switches: u64,
    /// Times that a thread was interrupted.
    pub involuntary_switches: u64,
    /// Requests in the device on average; `None` where it doesn't tell.
    pub queue_depth: Option<f64>,
    /// What the candidate itself counted during the phase.
    pub counters: Counters,
}

impl PhaseStats {
    /// Operations a second.
    pub fn per_s(&self) -> f64 {
        self.ops as f64 / self.elapsed_s
    }

    /// `sum` for each operation.
    pub fn per_op(&self, sum: f64) -> f64 {
        sum / self.ops.max(1) as f64
    }

    /// Nanoseconds of processor time for each operation.
    pub fn cpu_ns_per_op(&self) -> f64 {
        self.per_op(self.cpu_s * 1e9)
    }
}

/// Latencies in nanoseconds, from 1 ns to ten minutes, to two digits.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000_000, 2).expect("the bounds are constant and valid")
}

/// A phase that is being measured.
#[derive(Debug)]
pub struct PhaseTimer<'a> {
    testbed: &'a Testbed,
    began: Instant,
    usage: ResourceUsage,
    busy: Option<Duration>,
    counters: Counters,
}

impl<'a> PhaseTimer<'a> {
    /// Begins; `counters` are the candidate's as they are now.
    pub fn begin(testbed: &'a Testbed, counters: Counters) -> Self {
        Self { testbed, busy: testbed.busy(), counters, usage: ResourceUsage::of_process(), began: Instant::now() }
    }

    /// Ends with `ops` operations of these latencies; `counters` are the candidate's as they are now.
    pub fn end(self, name: &str, ops: u64, latencies: &Histogram<u64>, counters: Counters) -> PhaseStats {
        let elapsed_s = self.began.elapsed().as_secs_f64();
        let used = ResourceUsage::of_process().since(&self.usage);
        let busy = self.testbed.busy().zip(self.busy).map(|(now, then)| now.saturating_sub(then).as_secs_f64());
        let at = |quantile| latencies.value_at_quantile(quantile);
        let grown = |(name, now): (String, f64)| {
            let then = self.counters.get(&name).copied().unwrap_or(0.0);
            (name, now - then)
        };
        PhaseStats {
            name: name.to_owned(),
            ops,
            elapsed_s,
            latency_ns: [at(0.5), at(0.99), at(0.999), latencies.max()],
            cpu_s: (used.user_ns + used.system_ns) as f64 / 1e9,
            major_faults: used.major_faults,
            minor_faults: used.minor_faults,
            voluntary_switches: used.voluntary_switches,
            involuntary_switches: used.involuntary_switches,
            queue_depth: busy.map(|busy| busy / elapsed_s),
            counters: counters.into_iter().map(grown).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fastmap::testbed::DeviceKind;

    #[test]
    fn counters_and_latencies_are_of_the_phase() {
        let testbed = Testbed { kind: DeviceKind::Disk, path: "/no/such/file".into(), pages: 1 };
        let timer = PhaseTimer::begin(&testbed, [("misses".to_owned(), 10.0)].into());
        let mut latencies = histogram();
        (1..=1000).for_each(|nanos| latencies.record(nanos).unwrap());
        let counters = [("misses".to_owned(), 15.0), ("waits".to_owned(), 2.0)].into();
        let stats = timer.end("read", 1000, &latencies, counters);
        assert_eq!((stats.counters["misses"], stats.counters["waits"], stats.queue_depth), (5.0, 2.0, None));
        assert!((495..=505).contains(&stats.latency_ns[0]) && stats.latency_ns[3] >= 1000, "{:?}", stats.latency_ns);
        assert!(stats.per_s() > 0.0);
    }
}
