//! Medians and spreads of repeated measurements, and percentiles of latencies.
//!
//! Relies on nothing but the numbers given. Latencies are whole microseconds.

use hdrhistogram::Histogram;

/// A figure that was measured several times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The middle value.
    pub median: f64,
    /// The smallest value.
    pub least: f64,
    /// The largest value.
    pub most: f64,
}

impl Spread {
    /// The spread of `values`; `None` when there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Some(Self { median, least, most })
    }

    /// The spread of `values`; no numbers when there are none.
    pub fn or_nan(values: &[f64]) -> Self {
        Self::of(values).unwrap_or(Self { median: f64::NAN, least: f64::NAN, most: f64::NAN })
    }

    /// Of the ratios of each round, `over` by `under`; no numbers when there was no round.
    pub fn of_ratios(over: &[f64], under: &[f64]) -> Self {
        Self::or_nan(&over.iter().zip(under).map(|(over, under)| over / under).collect::<Vec<_>>())
    }
}

/// Latencies from 1 µs to 10 minutes, to three digits.
pub fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000, 3).expect("the bounds are constant and valid")
}

/// The 99.9th percentile of latencies; `None` when fewer than 1000 were recorded, as it would only be the maximum.
pub fn p999_us(histogram: &Histogram<u64>) -> Option<f64> {
    (histogram.len() >= 1000).then(|| histogram.value_at_quantile(0.999) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_or_the_mean_of_the_two_middles() {
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]).unwrap().median, 2.0);
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]).unwrap(), Spread { median: 2.5, least: 1.0, most: 4.0 });
        assert_eq!(Spread::of(&[]), None);
        assert!(Spread::or_nan(&[]).median.is_nan() && Spread::of_ratios(&[1.0], &[]).most.is_nan());
        assert_eq!(Spread::of_ratios(&[2.0, 9.0], &[1.0, 3.0]), Spread { median: 2.5, least: 2.0, most: 3.0 });
    }

    #[test]
    fn a_percentile_of_too_few_latencies_is_not_claimed() {
        let mut histogram = latency_histogram();
        histogram.record(5).unwrap();
        assert_eq!(p999_us(&histogram), None);
        histogram.record_n(7, 5000).unwrap();
        assert_eq!(p999_us(&histogram), Some(7.0));
    }
}
