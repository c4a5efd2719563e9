//! The server as a program or a test starts it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mio::Waker;
use quire_metrics::EndpointError;
use quire_store::DbId;

use super::engine::Engine;
use super::listen::ListenError;
use super::worker::Worker;
use crate::replay::ReplayError;
use crate::save_state::RestoreSummary;

/// Why the server could not start or had to end.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// No socket to listen on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// No metrics.
    #[error(transparent)]
    Metrics(#[from] EndpointError),
    /// The system refused what the event loop needs.
    #[error("the event loop failed: {0}")]
    Loop(#[from] io::Error),
    /// The data can't be brought back.
    #[error("{0}")]
    Data(String),
    /// The log of writes can't be brought back.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The users that are declared, in the configuration or in a file of their own, say nothing that can be done.
    #[error("the users can't be read: {0}")]
    Users(String),
    /// It was asked to end before it had its data.
    #[error("the server was asked to end while its data was loaded")]
    Left,
    /// What the server itself can't go on with.
    #[error("{0}")]
    Fault(String),
}

/// A server that listens, has its data and has not begun to serve it.
pub struct Server {
    engine: Engine,
    handle: ServerHandle,
}

/// Ends a running server from another thread.
#[derive(Clone)]
pub struct ServerHandle {
    pub(super) stop: Arc<AtomicBool>,
    pub(super) waker: Arc<Waker>,
}

impl ServerHandle {
    /// Ends it without a save.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        // If the loop is gone already there is none to wake.
        let _ = self.waker.wake();
    }
}

impl Server {
    pub(super) fn of(engine: Engine, handle: ServerHandle) -> Self {
        Self { engine, handle }
    }

    /// Keys that it has, and commands of the log that were replayed to get there.
    pub fn brought_back(&self) -> (u64, u64) {
        let Worker { store, state, .. } = &self.engine.worker;
        let keys = (0..store.databases()).map(|db| store.len(DbId(db))).sum();
        (keys, state.log_state.replayed_commands)
    }

    /// How its data was brought back.
    pub fn restored(&self) -> &RestoreSummary {
        &self.engine.worker.state.saves.restored
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[String] {
        &self.engine.worker.state.instance.addresses
    }

    /// Whether clients have to give a password.
    pub fn asks_for_password(&self) -> bool {
        !self.engine.worker.state.clients.acl.default_user().needs_no_password()
    }

    /// Its TCP port; 0 if it has none.
    pub fn port(&self) -> u16 {
        self.engine.worker.state.instance.port
    }

    /// Ends it from another thread.
    pub fn handle(&self) -> ServerHandle {
        self.handle.clone()
    }

    /// Serves until it is asked to end.
    pub fn run(mut self) -> Result<(), ServerError> {
        self.engine.run()?;
        self.engine.worker.state.ending.fault.take().map_or(Ok(()), |reason| Err(ServerError::Fault(reason)))
    }
}
