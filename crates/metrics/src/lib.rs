//! Metrics in the OpenMetrics text format, which Prometheus reads, and the HTTP endpoint that serves them.
//!
//! A program gathers [`Metric`]s, plain values with a name and a meaning; [`encode`] makes the text, and an [`Endpoint`] serves it on
//! a thread of its own. Relies on `prometheus-client` for the format and on `httparse` for requests; knows nothing of what is measured.

mod endpoint;
mod exposition;
mod metric;
mod request;

pub use endpoint::{Endpoint, EndpointError};
pub use exposition::{CONTENT_TYPE, encode};
pub use metric::{Histogram, Metric, MetricKind, Sample, SampleValue};
