//! A server at its start: the sockets are open, the data is loaded on a thread of its own, and meanwhile the loop serves what needs no data.
//!
//! The loop is the one that serves afterwards, over a store that is empty and that nothing saves. When the data is there it takes the
//! store's place, and clients that have come meanwhile go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use mio::{Poll, Waker};
use quire_device::Directory;
use quire_store::{Store, StoreConfig};
use quire_sys::thread::spawn_scoped_unsignalled;

use super::busy::BusySockets;
use super::engine::Engine;
use super::listen::{self, ListenError};
use super::server::{Server, ServerError, ServerHandle};
use super::worker::Worker;
use crate::config::Config;
use crate::library_store;
use crate::load_progress::LoadProgress;
use crate::log_control;
use crate::metrics_desk;
use crate::persistence;
use crate::registry::{self, Registry};
use crate::replay::{ReplaySummary, replay};
use crate::save_state::RestoreSummary;
use crate::saving;
use crate::specs;
use crate::state::{FILES_BESIDES, ServerHooks, ServerState, unix_ms};
use crate::tls::TlsAcceptor;
use crate::users;

/// What the empty store may take that stands in the data's place.
const EMPTY_STORE_BYTES: u64 = 64 << 20;

/// A server that listens and has no data yet.
pub struct LoadingServer {
    engine: Engine,
    handle: ServerHandle,
}

/// Data that was brought back.
struct LoadedData {
    store: Store,
    restored: RestoreSummary,
    replayed: ReplaySummary,
    /// The store's count of changes before the log was replayed.
    changes_before: u64,
}

/// Tells the loop, however the loading ends, that it has.
struct EndOfLoading<'a> {
    done: &'a AtomicBool,
    waker: &'a Waker,
}

impl Drop for EndOfLoading<'_> {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Release);
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

impl LoadingServer {
    /// Opens the sockets.
    pub fn open(mut config: Config, hooks: ServerHooks) -> Result<Self, ServerError> {
        if hooks.image_lock.is_none() {
            // Who has locked it has followed its links before. Where there is no directory yet none is changed.
            let _ = config.resolve_dir();
        }
        let registry = registry::install(specs::ALL);
        let lock = log_control::lock(&config, &hooks, None).map_err(ServerError::Fault)?;
        let files = quire_sys::limits::raise_open_files(u64::from(config.maxclients) + FILES_BESIDES);
        let empty = StoreConfig { max_memory_bytes: EMPTY_STORE_BYTES, ..saving::settings(&config) };
        let empty = Store::create(empty).map_err(|error| ServerError::Data(error.to_string()))?;
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
        state.hooks = hooks;
        state.log_state.lock = lock;
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), Engine::wake_token())?);
        state.instance.waker = Some(Arc::clone(&waker));
        if state.config.metrics.port != 0 {
            let (ip, port) = (state.config.metrics.bind, state.config.metrics.port);
            state.instance.metrics = Some(metrics_desk::serve(ip, port, Arc::clone(&waker))?);
        }
        state.hooks.busy = Some(Box::new(BusySockets::new(&listeners, poll.registry())?));
        state.steps.loading = Some(Arc::new(LoadProgress::new(unix_ms() / 1000)));
        let stop = Arc::new(AtomicBool::new(false));
        let engine = Engine::new(poll, listeners, Worker::new(empty, state, registry), Arc::clone(&stop))?;
        Ok(Self { engine, handle: ServerHandle { stop, waker } })
    }

    /// Has SIGTERM and SIGINT end the server, also while its data is loaded.
    pub fn watch_signals(&mut self) -> Result<(), ServerError> {
        Ok(self.engine.watch_signals()?)
    }

    /// Its TCP port; 0 if it has none.
    pub fn port(&self) -> u16 {
        self.engine.worker.state.instance.port
    }

    /// Brings the data back by `bring` and replays the log, and serves what needs no data meanwhile. Then begins to log if the
    /// configuration says so.
    ///
    /// # Errors
    /// The data or the log can't be brought back, or the server was asked to end before that.
    pub fn load(
        mut self,
        bring: impl FnOnce(&Config, &LoadProgress) -> Result<(Store, RestoreSummary), String> + Send,
    ) -> Result<Server, ServerError> {
        let Worker { state, registry, .. } = &self.engine.worker;
        let (config, registry) = (state.config.clone(), *registry);
        let log_directory = log_control::directory(&config.dir, state.hooks.log_directory.as_ref());
        let progress = state.steps.loading.clone().unwrap_or_else(|| Arc::new(LoadProgress::new(0)));
        let (done, waker) = (AtomicBool::new(false), Arc::clone(&self.handle.waker));
        let mut loaded = None;
        let served = std::thread::scope(|scope| {
            let load = || {
                let _end = EndOfLoading { done: &done, waker: &waker };
                loaded = Some(bring_back(bring, &config, registry, &*log_directory, &progress));
            };
            let loader = spawn_scoped_unsignalled(scope, "quire-load", load)?;
            let served = self.engine.run_until(&done);
            if let (Ok(false), Some(leave)) = (&served, &self.engine.worker.state.hooks.leave_loading) {
                leave();
            }
            if let Err(panic) = loader.join() {
                std::panic::resume_unwind(panic);
            }
            served
        });
        match (served?, loaded) {
            (true, Some(loaded)) => self.begin(loaded?, &config),
            (false, _) | (_, None) => Err(ServerError::Left),
        }
    }

    /// The data is here, brought back by the settings of `before`: it takes the place of the empty store.
    fn begin(mut self, loaded: LoadedData, before: &Config) -> Result<Server, ServerError> {
        let LoadedData { mut store, restored, replayed, changes_before } = loaded;
        saving::tell_changed_settings(&mut store, before, &self.engine.worker.state.config);
        self.engine.worker.install(store);
        self.engine.steps_left = true;
        let Worker { store, state, .. } = &mut self.engine.worker;
        if let Some(progress) = state.steps.loading.take() {
            let took_ms = progress.elapsed().as_millis() as u64;
            tracing::debug!(took_ms, "the data is loaded");
        }
        state.take_time();
        state.saves.restored = restored;
        state.saves.changes_at_last_save = changes_before;
        (state.saves.last_save, state.saves.last_save_unix_s) = (Instant::now(), state.unix_s());
        library_store::load_all(store, state).map_err(ServerError::Fault)?;
        if !replayed.recovered.damaged_files.is_empty() {
            keep_recovered(store, state, &replayed).map_err(ServerError::Fault)?;
        }
        log_control::note_replay(state, &replayed);
        if state.config.appendonly {
            begin_log(store, state).map_err(ServerError::Fault)?;
        }
        Ok(Server::of(self.engine, self.handle))
    }
}

impl Server {
    /// A server with this data: replays the log, opens the sockets, and begins to log if the configuration says so.
    pub fn start(
        config: Config,
        store: Store,
        restored: RestoreSummary,
        hooks: ServerHooks,
    ) -> Result<Server, ServerError> {
        LoadingServer::open(config, hooks)?.load(move |_, _| Ok((store, restored)))
    }
}

/// Brings the data back, on a thread of its own.
fn bring_back(
    bring: impl FnOnce(&Config, &LoadProgress) -> Result<(Store, RestoreSummary), String>,
    config: &Config,
    registry: &Registry,
    log_directory: &dyn Directory,
    progress: &LoadProgress,
) -> Result<LoadedData, ServerError> {
    let (mut store, restored) = bring(config, progress).map_err(ServerError::Data)?;
    let changes_before = store.changes();
    let replayed = match &restored.clone_of {
        // What a log in its own directory holds belongs to other data.
        Some(_) => ReplaySummary::default(),
        None => replay(registry, config, &mut store, log_directory, progress)?,
    };
    Ok(LoadedData { store, restored, replayed, changes_before })
}
