//! Sockets and the event loop. One thread waits for sockets, runs the commands and writes the replies.

mod busy;
mod engine;
mod exchange;
mod feed;
mod listen;
mod loading;
mod server;
mod signals;
mod tick;
mod waking;
mod worker;

pub use listen::ListenError;
pub use loading::LoadingServer;
pub use server::{Server, ServerError, ServerHandle};
