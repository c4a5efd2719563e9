//! How long the runs of a command took: counts in ranges, eight to each doubling, so that a percentile between 64 ns and 17 s is told at most an
//! eighth too high. Two additions a command. Relies on nothing.

/// Runs of up to so many nanoseconds are not told apart.
const SHORTEST_NS: u64 = 64;
/// The longest range also holds what is longer: 17 seconds.
const LONGEST_NS: u64 = 1 << 34;
/// Ranges in each doubling of a duration.
const PARTS: u64 = 8;
/// The first range, and those of all doublings between the two bounds.
const RANGES: usize = 1 + (LONGEST_NS.ilog2() - SHORTEST_NS.ilog2()) as usize * PARTS as usize;
/// Nanoseconds up to which the first of the ranges goes that double.
const FIRST_DOUBLING_NS: u64 = 1024;

/// Counts of runs by their duration; without memory until the first one.
#[derive(Clone, Default, Debug)]
pub struct DurationCounts {
    ranges: Option<Box<[u64; RANGES]>>,
    /// Of all runs together.
    sum_ns: u64,
}

impl DurationCounts {
    /// Counts a run.
    #[inline]
    pub fn count(&mut self, duration_ns: u64) {
        self.ranges.get_or_insert_with(|| Box::new([0; RANGES]))[range_of(duration_ns)] += 1;
        self.sum_ns = self.sum_ns.saturating_add(duration_ns);
    }

    /// Whether no run was counted.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_none()
    }

    /// Runs that were counted.
    pub fn runs(&self) -> u64 {
        self.ranges().map(|(_, count)| count).sum()
    }

    /// Nanoseconds that these runs took together.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// Ranges that double: the longest duration of each, in nanoseconds, and how many runs fell into it. The last one holds what is
    /// longer, too.
    pub fn doublings(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut ranges = self.ranges().peekable();
        let doublings = (FIRST_DOUBLING_NS.ilog2()..=LONGEST_NS.ilog2()).map(|power| 1u64 << power);
        doublings.map(move |bound_ns| {
            let mut count = 0;
            while let Some((_, runs)) = ranges.next_if(|(end_ns, _)| *end_ns <= bound_ns) {
                count += runs;
            }
            (bound_ns, count)
        })
    }

    /// Nanoseconds within which `percent` of the runs ended, as far as 17 s: the end of the range in which the last of them fell. 0 if there was no
    /// run. The number of runs is rounded as in Redis.
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        let runs = self.runs();
        let wanted = ((percent / 100.0 * runs as f64 + 0.5) as u64).clamp(1, runs.max(1));
        let mut counted = 0;
        let reached = self.ranges().find(|(_, count)| {
            counted += count;
            counted >= wanted
        });
        reached.map_or(0, |(end_ns, _)| end_ns)
    }

    /// The longest duration of each range, in nanoseconds, and how many runs fell into it.
    fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().flat_map(|counts| counts.iter().enumerate().map(|(range, count)| (end_ns(range), *count)))
    }
}

#[inline]
fn range_of(duration_ns: u64) -> usize {
    if duration_ns <= SHORTEST_NS {
        return 0;
    }
    // A range ends with its bound, so the place of what lies below it is asked for.
    let below = duration_ns.min(LONGEST_NS) - 1;
    let doubling = below.ilog2();
    let part = (below >> (doubling - PARTS.ilog2())) & (PARTS - 1);
    1 + (doubling - SHORTEST_NS.ilog2()) as usize * PARTS as usize + part as usize
}

fn end_ns(range: usize) -> u64 {
    let Some(range) = range.checked_sub(1) else { return SHORTEST_NS };
    let (doubling, part) = (range as u64 / PARTS, range as u64 % PARTS);
    (SHORTEST_NS << doubling) / PARTS * (PARTS + part + 1)
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
            (1025, 2048),
            (2048, 2048),
            (2049, 4096),
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
    fn each_range_begins_where_the_one_before_ends() {
        for range in 0..RANGES {
            assert_eq!(range_of(end_ns(range)), range);
            let next = (range + 1).min(RANGES - 1);
            assert_eq!(range_of(end_ns(range) + 1), next, "behind {} ns", end_ns(range));
        }
        assert_eq!(end_ns(RANGES - 1), LONGEST_NS);
    }

    #[test]
    fn a_percentile_is_at_most_an_eighth_above_the_run_that_it_names() {
        let counts = counted((1..=1000).map(|number| number * 1000));
        assert_eq!((counts.runs(), counts.sum_ns()), (1000, 500_500_000));
        for (percent, exact_ns) in
            [(0.0, 1000), (0.1, 1000), (50.0, 500_000), (99.0, 990_000), (99.96, 1_000_000), (100.0, 1_000_000)]
        {
            let told_ns = counts.percentile_ns(percent);
            assert!((exact_ns..=exact_ns * 9 / 8).contains(&told_ns), "{percent}: {told_ns} for {exact_ns}");
        }
        let slow_last = counted((0..999).map(|_| 1000).chain([1_000_000]));
        assert!(slow_last.percentile_ns(99.9) < 2000, "999 of 1000 were fast");
        assert!(slow_last.percentile_ns(99.96) >= 1_000_000);
        assert_eq!(DurationCounts::default().percentile_ns(50.0), 0);
    }
}
