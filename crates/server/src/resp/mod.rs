//! The wire protocol: reading requests and writing replies. Knows nothing of commands, clients or sockets.

pub mod deferred;
pub mod inline;
pub mod parser;
pub mod reply;
pub mod request_batch;

pub use deferred::ArrayMark;
pub use parser::{ParseOutcome, PartialRequest, ProtocolError, RequestLimits, parse};
pub use reply::{Protocol, Reply, bulk_bytes};
pub use request_batch::{Request, RequestBatch};
