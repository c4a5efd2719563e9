//! The text that Prometheus reads. Relies on `prometheus-client`, which writes it.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::metric::{Metric, MetricKind, Sample, SampleValue};

/// What HTTP calls the format.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics of one moment.
#[derive(Debug)]
struct Gathered(Vec<Metric>);

impl Collector for Gathered {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for metric in self.0.iter().filter(|metric| !metric.samples.is_empty()) {
            let kind = match metric.kind {
                MetricKind::Counter => MetricType::Counter,
                MetricKind::Gauge => MetricType::Gauge,
                MetricKind::Histogram => MetricType::Histogram,
            };
            let mut family = encoder.encode_descriptor(metric.name, metric.help, None, kind)?;
            for sample in &metric.samples {
                if sample.labels.is_empty() {
                    encode_sample(&mut family, metric.kind, sample)?;
                } else {
                    encode_sample(&mut family.encode_family(&sample.labels)?, metric.kind, sample)?;
                }
            }
        }
        Ok(())
    }
}

fn encode_sample(encoder: &mut MetricEncoder<'_>, kind: MetricKind, sample: &Sample) -> Result<(), fmt::Error> {
    match (&sample.value, kind) {
        (SampleValue::Number(number), MetricKind::Counter) => {
            encoder.encode_counter::<NoLabelSet, f64, f64>(number, None)
        }
        (SampleValue::Number(number), _) => encoder.encode_gauge(number),
        (SampleValue::Histogram(histogram), _) => {
            let count = histogram.buckets.iter().map(|(_, count)| count).sum();
            encoder.encode_histogram::<NoLabelSet>(histogram.sum, count, &histogram.buckets, None)
        }
    }
}

/// The text of these metrics.
pub fn encode(metrics: Vec<Metric>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Gathered(metrics)));
    let mut text = String::new();
    // A string takes whatever is written to it.
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Histogram;

    #[test]
    fn metrics_are_written_with_their_kinds_labels_and_meanings() {
        let buckets = vec![(0.001, 3), (0.002, 1), (f64::INFINITY, 2)];
        let histogram = SampleValue::Histogram(Histogram { sum: 0.5, buckets });
        let text = encode(vec![
            Metric::number("a_bytes", MetricKind::Gauge, "Bytes.", 1.5),
            Metric::labelled("b", MetricKind::Counter, "Calls.", "command", [("ge\"t\n".to_owned(), 7.0)]),
            Metric {
                name: "c_seconds",
                help: "Times.",
                kind: MetricKind::Histogram,
                samples: vec![Sample { labels: vec![("command", "set".to_owned())], value: histogram }],
            },
            Metric::labelled("none", MetricKind::Gauge, "Nothing yet.", "x", []),
        ]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "# HELP a_bytes Bytes.",
                "# TYPE a_bytes gauge",
                "a_bytes 1.5",
                "# HELP b Calls.",
                "# TYPE b counter",
                "b_total{command=\"ge\\\"t\\n\"} 7.0",
                "# HELP c_seconds Times.",
                "# TYPE c_seconds histogram",
                "c_seconds_sum{command=\"set\"} 0.5",
                "c_seconds_count{command=\"set\"} 6",
                "c_seconds_bucket{le=\"0.001\",command=\"set\"} 3",
                "c_seconds_bucket{le=\"0.002\",command=\"set\"} 4",
                "c_seconds_bucket{le=\"+Inf\",command=\"set\"} 6",
                "# EOF",
            ]
        );
    }
}
