//! The server as a program or a test starts it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mio::{Poll, Waker};
use quire_metrics::EndpointError;
use quire_store::{DbId, Store};

use super::busy::BusySockets;
use super::engine::Engine;
use super::listen::{self, ListenError};
use super::worker::Worker;
use crate::config::Config;
use crate::log_control;
use crate::metrics_desk;
use crate::persistence;
use crate::registry;
use crate::replay::{ReplayError, ReplaySummary, replay};
use crate::save_state::RestoreSummary;
use crate::specs;
use crate::state::{FILES_BESIDES, ServerHooks, ServerState};
use crate::tls::TlsAcceptor;
use crate::users;

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
    /// The log of writes can't be brought back.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The users that are declared, in the configuration or in a file of their own, say nothing that can be done.
    #[error("the users can't be read: {0}")]
    Users(String),
    /// What the server itself can't go on with.
    #[error("{0}")]
    Fault(String),
}

/// A server that listens and has not begun to serve.
pub struct Server {
    engine: Engine,
    handle: ServerHandle,
}

/// Ends a running server from another thread.
#[derive(Clone)]
pub struct ServerHandle {
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
}

impl ServerHandle {
    /// Ends it without a save.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        // If the loop is gone already there is none to wake.
        let _ = self.waker.wake();
    }
}

/// A log continues an image, so there must be one.
fn begin_log(store: &mut Store, state: &mut ServerState) -> Result<(), String> {
    // The image of a clone is not the clone's.
    if store.image_epoch() == 0 || state.saves.restored.clone_of.is_some() {
        tracing::info!("taking the image that the log will begin with");
        persistence::save_now(store, state)?;
    }
    log_control::start(store, state)
}

/// What was recovered of a damaged log goes into an image, so that the damaged files can be set aside.
fn keep_recovered(store: &mut Store, state: &mut ServerState, replayed: &ReplaySummary) -> Result<(), String> {
    persistence::save_now(store, state)?;
    log_control::set_damaged_aside(state, replayed)
}

impl Server {
    /// Replays the log, opens the sockets, and begins to log if the configuration says so.
    pub fn start(
        mut config: Config,
        mut store: Store,
        restored: RestoreSummary,
        hooks: ServerHooks,
    ) -> Result<Server, ServerError> {
        if hooks.image_lock.is_none() {
            // Who has locked it has followed its links before. Where there is no directory yet none is changed.
            let _ = config.resolve_dir();
        }
        let registry = registry::install(specs::ALL);
        let log_directory = log_control::directory(&config.dir, hooks.log_directory.as_ref());
        let lock = log_control::lock(&config, &hooks, None).map_err(ServerError::Fault)?;
        let changes_before = store.changes();
        let replayed = match &restored.clone_of {
            // What a log in its own directory holds belongs to other data.
            Some(_) => ReplaySummary::default(),
            None => replay(registry, &config, &mut store, &*log_directory)?,
        };
        let files = quire_sys::limits::raise_open_files(u64::from(config.maxclients) + FILES_BESIDES);
        let mut state = ServerState::new(config);
        let room = files.saturating_sub(FILES_BESIDES).max(1);
        if room < u64::from(state.config.maxclients) {
            tracing::warn!(maxclients = room, "the limit on open files allows fewer clients than maxclients");
            state.config.maxclients = u32::try_from(room).unwrap_or(u32::MAX);
        }
        state.clients.acl = users::of_config(&state.config).map_err(ServerError::Users)?;
        if state.config.tls.port != 0 {
            state.instance.tls = Some(TlsAcceptor::new(&state.config.tls).map_err(ListenError::Tls)?);
        }
        let listeners = listen::open(&state.config)?;
        state.instance.addresses = listeners.iter().map(|listener| listener.address().0).collect();
        state.instance.port = listeners.iter().find_map(|listener| listener.address().1).unwrap_or(0);
        state.saves.restored = restored;
        state.saves.changes_at_last_save = changes_before;
        state.hooks = hooks;
        state.log_state.lock = lock;
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), Engine::wake_token())?);
        state.instance.waker = Some(Arc::clone(&waker));
        if state.config.metrics.port != 0 {
            let (ip, port) = (state.config.metrics.bind, state.config.metrics.port);
            state.instance.metrics = Some(metrics_desk::serve(ip, port, Arc::clone(&waker))?);
        }
        if !replayed.recovered.damaged_files.is_empty() {
            keep_recovered(&mut store, &mut state, &replayed).map_err(ServerError::Fault)?;
        }
        log_control::note_replay(&mut state, &replayed);
        if state.config.appendonly {
            begin_log(&mut store, &mut state).map_err(ServerError::Fault)?;
        }
        state.hooks.busy = Some(Box::new(BusySockets::new(&listeners, poll.registry())?));
        let stop = Arc::new(AtomicBool::new(false));
        let worker = Worker::new(store, state, registry);
        let engine = Engine::new(poll, listeners, worker, Arc::clone(&stop))?;
        Ok(Server { engine, handle: ServerHandle { stop, waker } })
    }

    /// Has SIGTERM and SIGINT end the server.
    pub fn watch_signals(&mut self) -> Result<(), ServerError> {
        Ok(self.engine.watch_signals()?)
    }

    /// Keys that it has, and commands of the log that were replayed to get there.
    pub fn brought_back(&self) -> (u64, u64) {
        let Worker { store, state, .. } = &self.engine.worker;
        let keys = (0..store.databases()).map(|db| store.len(DbId(db))).sum();
        (keys, state.log_state.replayed_commands)
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
