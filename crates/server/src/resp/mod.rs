//! The wire protocol: reading requests and writing replies. Knows nothing of commands, clients or sockets.

pub mod inline;
pub mod parser;
pub mod reply;

pub use parser::{Batch, Limits, Partial, ProtocolError, Request, parse};
pub use reply::{ArrayMark, Protocol, Reply};
