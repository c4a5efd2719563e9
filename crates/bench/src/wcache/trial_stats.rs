//! The statistics of one trial: operations, their latencies, and what the cache counted meanwhile.
//!
//! Relies on latencies being whole microseconds.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::testbed::counters::CacheCounters;
use crate::stats::latency_histogram;

/// The name of the latencies of everything together.
pub const EVERYTHING: &str = "all";

/// One trial's counts.
#[derive(Clone, Debug, Default)]
pub struct TrialStats {
    /// What counts: new orders, transactions, requests.
    pub ops: u64,
    /// In how long.
    pub elapsed_s: f64,
    /// Latencies by kind; [`EVERYTHING`] has all.
    pub latency: BTreeMap<String, Histogram<u64>>,
    /// Further counts: retries, snapshots, ….
    pub counts: BTreeMap<String, f64>,
    /// What the cache counted.
    pub cache: CacheCounters,
}

impl TrialStats {
    /// Operations a second.
    pub fn per_s(&self) -> f64 {
        self.ops as f64 / self.elapsed_s
    }

    /// An operation of kind `kind` took `micros`.
    pub fn note(&mut self, kind: &str, micros: u64) {
        for name in [kind, EVERYTHING] {
            if !self.latency.contains_key(name) {
                self.latency.insert(name.to_owned(), latency_histogram());
            }
            if let Some(histogram) = self.latency.get_mut(name) {
                histogram.saturating_record(micros.max(1));
            }
        }
    }

    /// Counts one more of `what`.
    pub fn count(&mut self, what: &str, number: f64) {
        *self.counts.entry(what.to_owned()).or_default() += number;
    }

    /// Takes in what another thread counted at the same time.
    pub fn join(&mut self, other: Self) {
        self.ops += other.ops;
        for (kind, histogram) in other.latency {
            match self.latency.get_mut(&kind) {
                // Both have the same bounds.
                Some(own) => own.add(&histogram).unwrap_or_default(),
                None => drop(self.latency.insert(kind, histogram)),
            }
        }
        for (what, number) in other.counts {
            self.count(&what, number);
        }
    }

    /// A percentile of a kind's latencies in nanoseconds. `None` when there are too few for it to be more than the
    /// maximum.
    pub fn latency_ns(&self, kind: &str, percent: f64) -> Option<f64> {
        let histogram = self.latency.get(kind)?;
        // A little less than one, for what is lost in binary fractions.
        let is_enough = histogram.len() as f64 * (100.0 - percent) >= 99.999;
        is_enough.then(|| histogram.value_at_quantile(percent / 100.0) as f64 * 1e3)
    }

    /// Bytes that entered the cache for each operation.
    pub fn cached_bytes_per_op(&self) -> Option<f64> {
        (self.ops > 0).then(|| self.cache.cached_bytes().map(|bytes| bytes / self.ops as f64)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_added_up() {
        let mut one = TrialStats { ops: 2, elapsed_s: 2.0, ..TrialStats::default() };
        one.note("read", 10);
        let mut other = TrialStats { ops: 4, ..TrialStats::default() };
        other.note("read", 30);
        other.note("update", 50);
        other.count("retries", 1.0);
        one.join(other);
        assert_eq!((one.ops, one.per_s()), (6, 3.0));
        assert_eq!(one.latency[EVERYTHING].len(), 3);
        assert_eq!(one.latency["update"].len(), 1);
        assert_eq!(one.counts["retries"], 1.0);
    }

    #[test]
    fn a_percentile_of_too_few_is_not_claimed() {
        let mut stats = TrialStats::default();
        (0..1000).for_each(|_| stats.note("read", 5));
        assert_eq!(stats.latency_ns("read", 99.9), Some(5000.0));
        assert_eq!(stats.latency_ns("read", 99.99), None);
        assert_eq!(stats.latency_ns("none", 50.0), None);
    }
}
