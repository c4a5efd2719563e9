//! How long the runs of a command took: a histogram of two digits, as Redis keeps one. Relies on `hdrhistogram`.

use hdrhistogram::Histogram;

/// Digits of a duration that are told apart, as in Redis.
const DIGITS: u8 = 2;
/// What takes longer is counted as this: 17 seconds.
const LONGEST_NS: u64 = 1 << 34;
/// Nanoseconds up to which the first of the ranges goes that double.
const FIRST_DOUBLING_NS: u64 = 1024;

/// Counts of runs by their duration; without memory until the first one, of some 30 KiB from then on.
#[derive(Clone, Default, Debug)]
pub struct DurationCounts {
    histogram: Option<Histogram<u64>>,
    /// Of all runs together.
    sum_ns: u64,
}

impl DurationCounts {
    /// Counts a run.
    #[inline]
    pub fn count(&mut self, duration_ns: u64) {
        self.histogram.get_or_insert_with(empty).saturating_record(duration_ns);
        self.sum_ns = self.sum_ns.saturating_add(duration_ns);
    }

    /// Whether no run was counted.
    pub fn is_empty(&self) -> bool {
        self.histogram.is_none()
    }

    /// Runs that were counted.
    pub fn runs(&self) -> u64 {
        self.histogram.as_ref().map_or(0, Histogram::len)
    }

    /// Nanoseconds that these runs took together.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// Ranges that double: the longest duration of each, in nanoseconds, but for its third digit, and how many runs fell into it. The last one
    /// holds what is longer, too.
    pub fn doublings(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let recorded = self.histogram.iter().flat_map(|histogram| {
            let shortest_ns = |value| histogram.lowest_equivalent(value);
            histogram.iter_recorded().map(move |step| (shortest_ns(step.value_iterated_to()), step.count_at_value()))
        });
        let mut recorded = recorded.peekable();
        let doublings = (FIRST_DOUBLING_NS.ilog2()..=LONGEST_NS.ilog2()).map(|power| 1u64 << power);
        doublings.map(move |bound_ns| {
            let mut count = 0;
            while let Some((_, runs)) = recorded.next_if(|(shortest_ns, _)| *shortest_ns <= bound_ns) {
                count += runs;
            }
            (bound_ns, count)
        })
    }

    /// Nanoseconds within which `percent` of the runs ended; 0 if there was no run.
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        // 99.9 percent of 1000 runs are 999, whichever way the division was rounded.
        let part = (percent / 100.0).next_down().max(0.0);
        self.histogram.as_ref().map_or(0, |histogram| histogram.value_at_quantile(part))
    }
}

#[cold]
fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("these bounds and digits make a histogram")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(durations_ns: impl IntoIterator<Item = u64>) -> DurationCounts {
        let mut counts = DurationCounts::default();
        durations_ns.into_iter().for_each(|duration_ns| counts.count(duration_ns));
        counts
    }

    #[test]
    fn a_duration_is_counted_in_the_first_doubling_that_reaches_it() {
        for (duration_ns, bound_ns) in [
            (0, 1024),
            (1024, 1024),
            (1040, 2048),
            (2048, 2048),
            (2080, 4096),
            (1_000_000, 1 << 20),
            (1 << 34, 1 << 34),
            (u64::MAX, 1 << 34),
        ] {
            let counts = counted([duration_ns]);
            let found: Vec<u64> = counts.doublings().filter(|(_, count)| *count > 0).map(|(bound, _)| bound).collect();
            assert_eq!(found, [bound_ns], "{duration_ns}");
        }
    }

    #[test]
    fn a_percentile_has_two_digits_of_the_run_that_it_names() {
        let counts = counted((1..=1000).map(|number| number * 1000));
        assert_eq!((counts.runs(), counts.sum_ns()), (1000, 500_500_000));
        for (percent, exact_ns) in [(0.0, 1000), (50.0, 500_000), (99.0, 990_000), (99.9, 999_000), (100.0, 1_000_000)]
        {
            let told_ns = counts.percentile_ns(percent);
            assert!((exact_ns..=exact_ns * 101 / 100).contains(&told_ns), "{percent}: {told_ns} for {exact_ns}");
        }
        let slow_last = counted((0..999).map(|_| 1000).chain([1_000_000]));
        assert!(slow_last.percentile_ns(99.9) < 2000, "999 of 1000 were fast");
        assert!(slow_last.percentile_ns(99.99) >= 1_000_000);
        assert_eq!(DurationCounts::default().percentile_ns(50.0), 0);
    }
}
