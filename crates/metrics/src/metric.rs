//! What is served: metrics with their samples. Relies on nothing.

/// What kind of number a metric is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricKind {
    /// It only grows, until the program starts again.
    Counter,
    /// It goes up and down.
    Gauge,
    /// How often values fell into each of some ranges.
    Histogram,
}

impl MetricKind {
    /// The format's word for it.
    pub const fn name(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// How values are spread.
#[derive(Clone, PartialEq, Debug)]
pub struct Histogram {
    /// All values together.
    pub sum: f64,
    /// Upper bounds, in order, and how many values lie in each range up to its bound but above the one before. What lies above the last
    /// bound is counted by one whose bound is [`f64::INFINITY`].
    pub buckets: Vec<(f64, u64)>,
}

/// The number of a sample.
#[derive(Clone, PartialEq, Debug)]
pub enum SampleValue {
    /// Of a counter or gauge.
    Number(f64),
    /// Of a histogram.
    Histogram(Histogram),
}

/// One number, and the labels that tell which.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    /// Names and values.
    pub labels: Vec<(&'static str, String)>,
    /// The number.
    pub value: SampleValue,
}

/// A metric.
#[derive(Clone, PartialEq, Debug)]
pub struct Metric {
    /// Its name with its unit, without the ending `_total` that the format gives counters.
    pub name: &'static str,
    /// What it tells, in a sentence.
    pub help: &'static str,
    /// What kind of number it is.
    pub kind: MetricKind,
    /// Its samples, of one kind.
    pub samples: Vec<Sample>,
}

impl Metric {
    /// A metric of one number without labels.
    pub fn number(name: &'static str, kind: MetricKind, help: &'static str, number: f64) -> Self {
        let samples = vec![Sample { labels: Vec::new(), value: SampleValue::Number(number) }];
        Self { name, help, kind, samples }
    }

    /// A metric of several numbers that one label tells apart.
    pub fn labelled(
        name: &'static str,
        kind: MetricKind,
        help: &'static str,
        label: &'static str,
        numbers: impl IntoIterator<Item = (String, f64)>,
    ) -> Self {
        let sample = |(value, number)| Sample { labels: vec![(label, value)], value: SampleValue::Number(number) };
        Self { name, help, kind, samples: numbers.into_iter().map(sample).collect() }
    }
}
