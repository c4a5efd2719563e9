//! The settings of what is kept of commands' durations: of slow events for LATENCY, and of all runs for percentiles. Named and worded as in
//! Redis. Relies on `directive` and `value`.

use std::borrow::Cow;

use super::Config;
use super::directive::{Directive, Setting, directive, flag, integer};
use super::value::{self, RejectReason};

const MUTABLE: bool = true;
const PERCENTILES: &str = "latency-tracking-info-percentiles";

/// What is kept of durations.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct LatencySettings {
    /// Milliseconds from which an event is recorded; 0 means never.
    pub threshold_ms: u64,
    /// How long each run of a command took is counted.
    pub keeps_durations: bool,
    /// Those that INFO tells, from 0 to 100.
    pub percentiles: Vec<f64>,
}

/// The directives.
pub(super) static DIRECTIVES: &[Directive] = &[
    integer!(
        "latency-monitor-threshold",
        "0",
        MUTABLE,
        0,
        i64::MAX,
        "Milliseconds from which an event is recorded; 0 means never.",
        latency.threshold_ms
    ),
    flag!(
        "latency-tracking",
        "yes",
        "Count how long each run of a command takes, for `INFO latencystats`, LATENCY HISTOGRAM and the metrics.",
        latency.keeps_durations
    ),
    directive!(
        "latency-tracking-info-percentiles",
        "50 99 99.9",
        MUTABLE,
        "Percentiles of commands' durations that `INFO latencystats` tells, from 0 to 100, separated by spaces.",
        |c| percentiles_text(&c.latency.percentiles),
        |c, v| {
            c.latency.percentiles = percentiles(v)?;
            Ok(())
        }
    ),
];

/// Reads percentiles; an empty text means none.
fn percentiles(text: &str) -> Result<Vec<f64>, RejectReason> {
    let number = |word: &str| match word.parse::<f64>() {
        // Zero has no sign.
        Ok(number) if (0.0..=100.0).contains(&number) => Ok(number + 0.0),
        Ok(number) if !number.is_nan() => {
            Err(format!("{PERCENTILES} parameters should sit between [0.0,100.0]").into())
        }
        _ => Err(format!("Invalid {PERCENTILES} parameters").into()),
    };
    text.split_ascii_whitespace().map(number).collect()
}

/// Writes percentiles as they are read.
fn percentiles_text(percentiles: &[f64]) -> String {
    percentiles.iter().map(f64::to_string).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_read_and_written_as_in_redis() {
        for (text, written) in
            [("50 99 99.9", "50 99 99.9"), ("99.999 0 100.0 50.10", "99.999 0 100 50.1"), ("", ""), ("1e1 -0", "10 0")]
        {
            assert_eq!(percentiles_text(&percentiles(text).unwrap()), written);
        }
    }

    #[test]
    fn what_is_no_percentile_is_refused_in_redis_words() {
        for text in ["101", "-1", "inf", "50 1000"] {
            assert!(percentiles(text).unwrap_err().contains("between [0.0,100.0]"), "{text}");
        }
        for text in ["abc", "nan", "50 x", "50,99"] {
            assert!(percentiles(text).unwrap_err().starts_with("Invalid"), "{text}");
        }
    }
}
