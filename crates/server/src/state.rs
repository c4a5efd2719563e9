//! Everything of the server but the data.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use mio::Waker;
use quire_device::Directory;
use quire_store::Store;

use crate::acl::DenialLog;
use crate::blocked::BlockedClients;
use crate::clients::Clients;
use crate::config::{ClientMemory, Config, LogLevel};
use crate::defrag_state::DefragState;
use crate::effects::Effects;
use crate::event_classes::MISS;
use crate::eviction_state::EvictionState;
use crate::latency::LatencyMonitor;
use crate::leftover_logs::LeftoverLogs;
use crate::load_progress::LoadProgress;
use crate::lock_file::SharedLock;
use crate::log_writer::LogWriter;
use crate::metrics_desk::MetricsDesk;
use crate::save_state::SaveState;
use crate::scripts::Scripts;
use crate::slowlog::SlowLog;
use crate::stats::ServerStats;
use crate::tls::TlsAcceptor;

/// Files that the server needs besides its clients' sockets.
pub const FILES_BESIDES: u64 = 64;

/// How the server is to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shutdown {
    /// Save first, whatever the rules say.
    pub save: bool,
    /// Do not save, whatever the rules say.
    pub no_save: bool,
    /// End even if the save fails.
    pub force: bool,
}

/// Serves other clients while a command keeps the event loop.
pub trait BusyServer {
    /// Accepts those that wait, and runs what they may have run now.
    fn serve(&mut self, store: &mut Store, state: &mut ServerState);
}

/// What the program around the server offers it.
#[derive(Default)]
pub struct ServerHooks {
    /// Changes how much is logged.
    pub set_log_level: Option<Box<dyn Fn(LogLevel) + Send>>,
    /// Where the log of writes lies, if not beside the image: tests put failing devices there.
    pub log_directory: Option<Arc<dyn Directory>>,
    /// Where images are saved, if not where the configuration says: the same.
    pub image_directory: Option<Arc<dyn Directory>>,
    /// Keeps other servers from the image that the configuration names.
    pub image_lock: Option<SharedLock>,
    /// Serves clients while a script keeps the event loop.
    pub busy: Option<Box<dyn BusyServer + Send>>,
    /// Ends the program at once, while its data is loaded: no step of that waits for an end that was asked for.
    pub leave_loading: Option<Box<dyn Fn() + Send>>,
}

impl std::fmt::Debug for ServerHooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hooks").field("set_log_level", &self.set_log_level.is_some()).finish_non_exhaustive()
    }
}

/// What is known of the log of writes, whether it is on or off.
#[derive(Debug, Default)]
pub struct LogState {
    /// Writes are refused because the last background save failed, or because of the log; decided once per turn.
    pub writes_stopped: bool,
    /// Earlier logs whose segments lie beside their images.
    pub leftovers: LeftoverLogs,
    /// Keeps other servers from the log of the configured directory, if there is or was one.
    pub lock: Option<SharedLock>,
    /// The last record of the log that is in a durable image of this run.
    pub image_position: u64,
    /// Why the last attempt to begin a log, or the log itself, failed.
    pub last_error: String,
    /// Records that were replayed at the start.
    pub replayed_records: u64,
    /// Commands in them.
    pub replayed_commands: u64,
    /// How long that took.
    pub replayed_us: u64,
    /// Bytes that were cut off at the end.
    pub torn_bytes: u64,
    /// Writes that were refused because of the log.
    pub refused: u64,
    /// Why writes are refused now, if it is because of the log; decided once per turn.
    pub refusal: Option<Cow<'static, str>>,
    /// The command that is running has given up the log, of which this was the last durable record.
    pub given_up_at: Option<u64>,
    /// Until the log has room again keys whose time has come stay, since their removal would have to be logged.
    pub holds_expired: bool,
}

/// How this run of the server is known to others.
#[derive(Debug)]
pub struct ServerIdentity {
    /// Forty random hexadecimal digits.
    pub run_id: String,
    /// Where the server listens, for people.
    pub addresses: Vec<String>,
    /// The TCP port that it really listens on.
    pub port: u16,
    /// Wakes the event loop from other threads.
    pub waker: Option<Arc<Waker>>,
    /// What TLS connections are accepted with, if the server serves any.
    pub tls: Option<TlsAcceptor>,
    /// Where metrics are asked for, if they are served.
    pub metrics: Option<MetricsDesk>,
}

/// The server's clocks.
#[derive(Debug)]
pub struct Clock {
    /// When the server started.
    pub started: Instant,
    /// Now, taken once per turn of the event loop, and before clients are served that have waited for keys.
    pub now: Instant,
    /// When the turn of the event loop began.
    pub turn_start: Instant,
    /// Now, Unix milliseconds, taken at the same moment.
    pub unix_ms: i64,
    /// When the last command ended: the next one's start.
    pub command_start: Instant,
}

/// What is known of the server's end.
#[derive(Default, Debug)]
pub struct ShutdownState {
    /// The server is to end.
    pub request: Option<Shutdown>,
    /// The last save is done, or none is wanted: no command runs any more, since nothing would keep what it changes.
    pub ended: bool,
    /// Why it must end, if no client and no signal asks for it.
    pub fault: Option<String>,
}

/// What is done in steps between commands, as far as the store does not know it.
#[derive(Default, Debug)]
pub struct StepState {
    /// All of it waits (DEBUG PAUSE-CRON).
    pub paused: bool,
    /// Keys whose time has come are deleted only when a command touches them (DEBUG SET-ACTIVE-EXPIRE).
    pub expiry_paused: bool,
    /// Room is made for data that has outgrown `maxmemory`.
    pub eviction: EvictionState,
    /// What lives among holes is moved together (`activedefrag`).
    pub defrag: DefragState,
    /// The data is being loaded on another thread. What is here until that ends is empty, and must be saved nowhere.
    pub loading: Option<Arc<LoadProgress>>,
}

/// What is recorded of slow commands, of latency spikes and of denials.
#[derive(Default, Debug)]
pub struct Monitoring {
    /// Slow commands.
    pub slowlog: SlowLog,
    /// Latency spikes.
    pub latency: LatencyMonitor,
    /// What was denied to clients.
    pub denials: DenialLog,
}

/// Configuration, statistics and the other clients.
#[derive(Debug)]
pub struct ServerState {
    /// All settings.
    pub config: Config,
    /// All connections but the one whose command is running.
    pub clients: Clients,
    /// Which of them wait, and for what.
    pub blocked: BlockedClients,
    /// Counters.
    pub stats: ServerStats,
    /// Slow commands, latency spikes and denials.
    pub monitoring: Monitoring,
    /// Saves.
    pub saves: SaveState,
    /// The log of writes, if there is one.
    pub log_writer: Option<Box<LogWriter>>,
    /// What is known of it.
    pub log_state: LogState,
    /// What the command that is running has done.
    pub effects: Effects,
    /// Whether and why the server is to end.
    pub ending: ShutdownState,
    /// What is done in steps between commands.
    pub steps: StepState,
    /// Scripts, and the one that is running.
    pub scripts: Scripts,
    /// What the program around offers.
    pub hooks: ServerHooks,
    /// How this run of the server is known to others.
    pub instance: ServerIdentity,
    /// The clocks.
    pub clock: Clock,
}

impl ServerState {
    /// The state at the start.
    pub fn new(config: Config) -> Self {
        let now = Instant::now();
        let now_unix_ms = unix_ms();
        let mut random = [0u8; 20];
        // Without randomness the id is merely not unique.
        let _ = getrandom::fill(&mut random);
        let run_id = quire_store::numbers::hex(&random);
        Self {
            config,
            clients: Clients::default(),
            blocked: BlockedClients::default(),
            stats: ServerStats::default(),
            monitoring: Monitoring::default(),
            saves: SaveState::new(now_unix_ms / 1000, 0),
            log_writer: None,
            log_state: LogState::default(),
            effects: Effects::default(),
            ending: ShutdownState::default(),
            steps: StepState::default(),
            scripts: Scripts::default(),
            hooks: ServerHooks::default(),
            instance: ServerIdentity { run_id, addresses: Vec::new(), port: 0, waker: None, tls: None, metrics: None },
            clock: Clock { started: now, now, turn_start: now, unix_ms: now_unix_ms, command_start: now },
        }
    }

    /// Looks at the clocks.
    pub fn take_time(&mut self) {
        self.clock.now = Instant::now();
        self.clock.command_start = self.clock.now;
        self.clock.unix_ms = unix_ms();
    }

    /// Memory that the requests and replies of all clients together may take.
    #[inline]
    pub fn client_memory_limit_bytes(&self) -> u64 {
        match self.config.maxmemory_clients {
            ClientMemory::Bytes(bytes) => bytes,
            ClientMemory::Percent(percent) if self.config.maxmemory.limit_bytes > 0 => {
                (u128::from(self.config.maxmemory.limit_bytes) * u128::from(percent) / 100) as u64
            }
            ClientMemory::Automatic | ClientMemory::Percent(_) => self.clients.automatic_limit_bytes(),
        }
    }

    /// What `maxmemory` limits: the data, what clients hold, what is known of their caches, and keys on their way to other servers.
    pub fn memory_bytes(&self, store: &Store) -> u64 {
        let clients_bytes = self.clients.memory_bytes() + self.clients.tracking.memory_bytes();
        store.arena().stats().allocated_bytes + clients_bytes as u64 + self.blocked.migrations.memory_bytes()
    }

    /// The monotonic clock: milliseconds since the start.
    #[inline]
    pub fn clock_ms(&self) -> u64 {
        self.clock.now.duration_since(self.clock.started).as_millis() as u64
    }

    /// Now, Unix seconds.
    pub fn unix_s(&self) -> i64 {
        self.clock.unix_ms.div_euclid(1000)
    }

    /// The last record of the log that is durable; without a log no client waits for one.
    #[inline]
    pub fn durable(&self) -> u64 {
        self.log_writer.as_ref().map_or(u64::MAX, |log_writer| log_writer.durable())
    }

    /// Whether keys whose time has come stay where they are, out of sight: while clients that write are paused, where none may, and
    /// while the log has no room.
    pub fn holds_expired(&self) -> bool {
        self.clients.pause.is_some() || self.config.read_only || self.log_state.holds_expired
    }

    /// Whether deleted data is not freed little by little: in a clone that takes no writes that would only make pages its own.
    pub fn holds_deleted(&self) -> bool {
        self.config.read_only && self.saves.restored.clone_of.is_some()
    }

    /// Whether what happens to keys is of interest to clients.
    pub fn wants_key_events(&self) -> bool {
        self.config.notify_keyspace_events.any() || self.clients.tracking.any()
    }

    /// Whether reads of keys that are not there are.
    pub fn wants_misses(&self) -> bool {
        self.config.notify_keyspace_events.tells(MISS)
    }

    /// True when a command may not run now because clients are paused.
    #[inline]
    pub fn is_paused(&self, writes: bool) -> bool {
        self.clients.pause.is_some_and(|pause| pause.all || writes)
    }

    /// Marks clients whose watched keys were changed. The one whose command is running is not among them; true when
    /// it should have been.
    pub fn mark_touched(&mut self, touched: &[u64], running: u64) -> bool {
        for id in touched {
            if let Some(client) = self.clients.by_id_mut(*id) {
                client.watch.touched = true;
            }
        }
        touched.contains(&running)
    }
}

/// The wall clock, Unix milliseconds.
pub fn unix_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_millis() as i64)
}
