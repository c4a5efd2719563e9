//! Index ranges as commands count them: both ends included, negative numbers from the end. Relies on nothing.

use std::ops::Range;

/// The part of `total` elements from `start` to `end`. What lies outside is cut off, except that an end before the
/// first element means the first.
pub fn span(total: u64, start: i64, end: i64) -> Range<u64> {
    let from_front = |index: i64| {
        if index < 0 { total.saturating_sub(index.unsigned_abs()) } else { index as u64 }
    };
    let (start, end) = (from_front(start), from_front(end));
    if total == 0 || start > end.min(total - 1) {
        return 0..0;
    }
    start..end.min(total - 1) + 1
}

/// As [`span`], but a range that is given backwards from the end is empty however short the whole is.
pub fn forward_span(total: u64, start: i64, end: i64) -> Range<u64> {
    if start < 0 && end < 0 && start > end { 0..0 } else { span(total, start, end) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_counted_from_both_ends_and_cut_off() {
        for (start, end, expected) in [
            (0, -1, 0..5),
            (1, 3, 1..4),
            (-2, -1, 3..5),
            (-100, 1, 0..2),
            (2, 100, 2..5),
            (3, 2, 0..0),
            (5, 9, 0..0),
            (-1, -3, 0..0),
            (0, -100, 0..1),
            (i64::MIN, i64::MAX, 0..5),
            (i64::MAX, i64::MIN, 0..0),
        ] {
            assert_eq!(span(5, start, end), expected, "{start} {end}");
            assert_eq!(forward_span(5, start, end), expected, "{start} {end}");
        }
        assert_eq!(span(0, 0, -1), 0..0);
    }

    #[test]
    fn backward_ranges_beyond_the_start_differ() {
        assert_eq!(span(1, -2, -5), 0..1);
        assert_eq!(forward_span(1, -2, -5), 0..0);
    }
}
