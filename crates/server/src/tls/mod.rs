//! TLS for clients: the settings become what rustls accepts connections with, and a stream that the event loop reads and writes
//! like any other socket. Relies on rustls for the protocol; knows neither requests nor replies.

mod acceptor;
mod stream;

pub use acceptor::{TlsAcceptor, TlsError};
pub use stream::TlsStream;
