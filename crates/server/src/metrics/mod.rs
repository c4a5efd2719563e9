//! What the server tells Prometheus. The endpoint has a thread of its own (`quire-metrics`); for each request it asks the event loop,
//! which alone may look at the data, and waits for the answer (`metrics_desk`). The numbers are those of INFO ([`table`]), and what
//! INFO has no single field for: commands, errors, databases ([`gather`]).

pub mod gather;
pub mod table;

pub use table::metrics_markdown;
