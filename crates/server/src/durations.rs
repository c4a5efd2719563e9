//! How long the runs of a command took, in ranges that double: enough for percentiles, and one increment a command. Relies on nothing.

/// Ranges: up to about a microsecond, two, four and so on to 17 seconds; the last holds what is longer, too.
const RANGES: usize = 25;
/// Nanoseconds up to which the first range goes.
const FIRST_NS: u64 = 1024;

/// Counts of runs by their duration.
#[derive(Clone, Copy, Debug)]
pub struct DurationCounts([u64; RANGES]);

impl Default for DurationCounts {
    fn default() -> Self {
        Self([0; RANGES])
    }
}

impl DurationCounts {
    /// Counts a run.
    #[inline]
    pub fn count(&mut self, duration_ns: u64) {
        self.0[range_of(duration_ns)] += 1;
    }

    /// The ranges: the longest duration of each, in nanoseconds, and how many runs fell into it.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().enumerate().map(|(range, count)| (FIRST_NS << range, *count))
    }
}

#[inline]
fn range_of(duration_ns: u64) -> usize {
    let beyond_first = duration_ns.saturating_sub(1) >> FIRST_NS.trailing_zeros();
    (u64::BITS - beyond_first.leading_zeros()).min(RANGES as u32 - 1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_counted_in_the_first_range_that_reaches_it() {
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
            let mut counts = DurationCounts::default();
            counts.count(duration_ns);
            let found: Vec<u64> = counts.buckets().filter(|(_, count)| *count > 0).map(|(bound, _)| bound).collect();
            assert_eq!(found, [bound_ns], "{duration_ns}");
        }
    }
}
