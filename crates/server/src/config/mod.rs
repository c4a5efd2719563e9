//! The configuration: one typed struct, one table of directives ([`table`]) from which the file, the flags, the
//! environment, CONFIG GET, CONFIG SET and CONFIG REWRITE all work. Knows nothing of clients or commands.

use std::path::PathBuf;

use crate::event_classes::NotifyClasses;

mod acl;
mod defrag;
pub mod directive;
pub mod file;
pub mod foreign;
mod latency;
mod maxmemory;
mod metrics;
mod scripts;
pub mod table;
mod tls;
pub mod value;

pub use acl::AclSettings;
pub use defrag::DefragSettings;
pub use latency::LatencySettings;
pub use maxmemory::{MaxMemory, POLICIES as EVICTION_POLICIES};
pub use metrics::MetricsSettings;
pub use scripts::ScriptLimits;
pub use tls::{TlsClients, TlsSettings};
pub use value::{
    AppendSync, ClientMemory, LogFormat, LogLevel, OutputLimit, OutputLimits, RestoreMode, SaveIoPriority, SaveRule,
};

/// Why a setting was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// No directive has this name.
    #[error("unknown directive '{name}'{}", .suggestion.map(|known| format!("; did you mean '{known}'?")).unwrap_or_default())]
    Unknown {
        /// As it was written.
        name: String,
        /// The directive that looks most like it.
        suggestion: Option<&'static str>,
    },
    /// The directive does not take this value.
    #[error("directive '{name}' with value '{value}': {reason}")]
    BadValue {
        /// The directive.
        name: &'static str,
        /// The value.
        value: String,
        /// What is wrong with it, in Redis' words where Redis has such a directive.
        reason: String,
    },
    /// A line of a configuration file cannot be read.
    #[error("{file}, line {line}: {reason}")]
    Line {
        /// The file.
        file: String,
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// What a flag sets cannot be taken.
    #[error("--{name}: {reason}")]
    Flag {
        /// As it was written.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A configuration file asks for what the server does not do.
    #[error("these lines ask for what this server does not do; remove them to start without it: {}", .lines.join("; "))]
    Refused {
        /// Place, directive and reason of each.
        lines: Vec<String>,
    },
    /// A configuration file cannot be read.
    #[error("cannot read the configuration file {file}: {reason}")]
    File {
        /// The file.
        file: String,
        /// The system's reason.
        reason: String,
    },
}

/// What Redis may free in the background, which here never makes a command wait: accepted for compatibility.
#[derive(Clone, Copy, Default, Debug)]
#[allow(missing_docs)] // as those of Config
pub struct LazyFree {
    pub user_flush: bool,
    pub user_del: bool,
    pub server_del: bool,
    pub expire: bool,
    pub eviction: bool,
}

/// Further settings of Redis that change nothing here: accepted for compatibility.
#[derive(Clone, Copy, Default, Debug)]
#[allow(missing_docs)] // as those of Config
pub struct IgnoredSettings {
    pub dynamic_hz: bool,
    pub list_compress_depth: i64,
}

/// The file that settings were read from.
#[derive(Clone, Default, Debug)]
pub struct ConfigFile {
    /// Its path, for CONFIG REWRITE.
    pub path: Option<PathBuf>,
    /// Its directives, and those of flags, that change nothing here.
    pub without_effect: Vec<String>,
}

/// All settings.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // every field is described by its directive in the table
pub struct Config {
    pub bind: Vec<String>,
    pub port: u16,
    pub unixsocket: String,
    pub unixsocketperm: u32,
    pub tls: TlsSettings,
    pub metrics: MetricsSettings,
    pub tcp_backlog: u32,
    pub tcp_keepalive_s: u32,
    pub timeout_s: u64,
    pub requirepass: Vec<u8>,
    pub acl: AclSettings,
    pub maxclients: u32,
    pub client_query_buffer_limit: u64,
    pub output_limits: OutputLimits,
    pub maxmemory_clients: ClientMemory,
    pub proto_max_bulk_len: u64,
    pub io_threads: u32,
    pub databases: u8,
    pub hz: u32,
    /// Empty in a clone that was given none.
    pub dir: PathBuf,
    pub dbfilename: String,
    pub save: Vec<SaveRule>,
    pub stop_writes_on_save_error: bool,
    pub checkpoint_budget_bytes: u64,
    pub checkpoint_incremental: bool,
    /// Most bytes a second that a save in the background writes; 0 is no limit.
    pub checkpoint_max_bytes_per_s: u64,
    pub save_io_priority: SaveIoPriority,
    pub checkpoint_max_deltas: u32,
    /// How saves compress regions, if they do.
    pub checkpoint_compression: Option<quire_store::Codec>,
    pub restore_mode: RestoreMode,
    pub accept_damaged_image: bool,
    /// Start on a damaged log with the writes that can be read.
    pub accept_damaged_log: bool,
    pub read_only: bool,
    /// By how many nice values a read-only clone runs behind other programs.
    pub clone_nice: u8,
    pub appendonly: bool,
    pub appendfsync: AppendSync,
    pub log_max_bytes: u64,
    pub log_segment_bytes: u64,
    pub maxmemory: MaxMemory,
    pub defrag: DefragSettings,
    pub limits: quire_store::EncodingLimits,
    pub lazyfree: LazyFree,
    pub ignored: IgnoredSettings,
    /// Length up to which a HyperLogLog stays sparse.
    pub hll_sparse_max_bytes: u64,
    pub scripts: ScriptLimits,
    pub slowlog_slower_than_us: i64,
    pub slowlog_max_len: u64,
    pub latency: LatencySettings,
    /// Which events of keys are told (publish/subscribe).
    pub notify_keyspace_events: NotifyClasses,
    pub loglevel: LogLevel,
    pub logfile: String,
    pub log_format: LogFormat,
    pub enable_debug_command: String,
    pub enable_protected_configs: String,
    pub pidfile: String,
    pub file: ConfigFile,
}

impl Default for Config {
    fn default() -> Self {
        let mut config = Config::blank();
        for directive in table::directives() {
            // A test below checks that every default is accepted.
            let _ = directive.set(&mut config, directive.default.as_bytes());
        }
        config
    }
}

impl Config {
    fn blank() -> Self {
        Config {
            bind: Vec::new(),
            port: 0,
            unixsocket: String::new(),
            unixsocketperm: 0,
            tls: TlsSettings::default(),
            metrics: MetricsSettings::default(),
            tcp_backlog: 0,
            tcp_keepalive_s: 0,
            timeout_s: 0,
            requirepass: Vec::new(),
            acl: AclSettings::default(),
            maxclients: 0,
            client_query_buffer_limit: 0,
            output_limits: OutputLimits::default(),
            maxmemory_clients: ClientMemory::default(),
            proto_max_bulk_len: 0,
            io_threads: 1,
            databases: 16,
            hz: 10,
            dir: PathBuf::new(),
            dbfilename: String::new(),
            save: Vec::new(),
            stop_writes_on_save_error: true,
            checkpoint_budget_bytes: 0,
            checkpoint_incremental: false,
            checkpoint_max_bytes_per_s: 0,
            save_io_priority: SaveIoPriority::Idle,
            checkpoint_max_deltas: 0,
            checkpoint_compression: None,
            restore_mode: RestoreMode::Map,
            accept_damaged_image: false,
            accept_damaged_log: false,
            read_only: false,
            clone_nice: 0,
            appendonly: false,
            appendfsync: AppendSync::EverySecond,
            log_max_bytes: 0,
            log_segment_bytes: 0,
            maxmemory: MaxMemory::default(),
            defrag: DefragSettings::default(),
            limits: quire_store::EncodingLimits::default(),
            lazyfree: LazyFree::default(),
            ignored: IgnoredSettings::default(),
            hll_sparse_max_bytes: 0,
            scripts: ScriptLimits::default(),
            slowlog_slower_than_us: 0,
            slowlog_max_len: 0,
            latency: LatencySettings::default(),
            notify_keyspace_events: NotifyClasses::default(),
            loglevel: LogLevel::Notice,
            logfile: String::new(),
            log_format: LogFormat::Text,
            enable_debug_command: String::new(),
            enable_protected_configs: String::new(),
            pidfile: String::new(),
            file: ConfigFile::default(),
        }
    }

    /// Sets one directive by its name or an alias, whatever the case of its letters.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        self.set_bytes(name, value.as_bytes())
    }

    /// The same with a value of any bytes.
    pub fn set_bytes(&mut self, name: &str, value: &[u8]) -> Result<(), ConfigError> {
        let directive = table::find(name)
            .ok_or_else(|| ConfigError::Unknown { name: name.to_owned(), suggestion: closest_directive(name) })?;
        directive.set(self, value).map_err(|reason| ConfigError::BadValue {
            name: directive.name,
            value: match directive.name {
                "requirepass" => "(redacted)".to_owned(),
                _ => String::from_utf8_lossy(value).into_owned(),
            },
            reason: reason.into_owned(),
        })
    }

    /// Takes the settings of the environment: `QUIRE_` and the directive's name in capitals, `_` for `-`.
    pub fn apply_env(&mut self, lookup: impl Fn(&str) -> Option<String>) -> Result<(), ConfigError> {
        for directive in table::directives() {
            if let Some(value) = lookup(&env_name(directive.name)) {
                self.set(directive.name, &value)?;
            }
        }
        Ok(())
    }

    /// What a clone begins with: it saves nothing, and has no place to save to.
    pub fn of_clone() -> Self {
        Config { dir: PathBuf::new(), save: Vec::new(), ..Config::default() }
    }

    /// Whether there is a directory for images and logs.
    pub fn has_dir(&self) -> bool {
        !self.dir.as_os_str().is_empty()
    }

    /// Replaces the directory's path by the one without links, so that image, deltas, log and their locks stay together when a link is
    /// changed. To be done before the first of them is opened or locked. A path that the file of CONFIG REWRITE could not hold stays as it is.
    ///
    /// # Errors
    /// The path leads nowhere, or the system does not tell where.
    pub fn resolve_dir(&mut self) -> std::io::Result<()> {
        if self.has_dir() {
            let real = std::fs::canonicalize(&self.dir)?;
            if real.to_str().is_some() {
                self.dir = real;
            }
        }
        Ok(())
    }

    /// Where the image lies.
    pub fn image_path(&self) -> PathBuf {
        self.dir.join(&self.dbfilename)
    }
}

/// The environment variable of a directive.
pub fn env_name(directive: &str) -> String {
    format!("QUIRE_{}", directive.to_ascii_uppercase().replace('-', "_"))
}

/// The directive whose name differs least from `name`, if it is close enough to be meant.
fn closest_directive(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase().replace('_', "-");
    let (distance, closest) =
        table::directives().map(|directive| (distance(&name, directive.name), directive.name)).min()?;
    (distance <= 1 + name.len() / 4).then_some(closest)
}

/// Letters to insert, delete or replace to turn one word into the other.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_accepted_and_reads_back() {
        let mut config = Config::blank();
        for directive in table::directives() {
            let default = directive.default.as_bytes();
            directive.set(&mut config, default).unwrap_or_else(|e| panic!("{}: {e}", directive.name));
            let text = directive.get(&config);
            directive.set(&mut config, &text).unwrap_or_else(|e| panic!("{} = {text:?}: {e}", directive.name));
            assert_eq!(directive.get(&config), text, "{}", directive.name);
        }
        assert_eq!((config.port, config.maxclients, config.save.len()), (6379, 10_000, 3));
    }

    #[test]
    fn only_a_password_may_be_any_bytes() {
        for directive in table::directives() {
            for value in [&b"a\0b"[..], b"\xff"] {
                let mut config = Config::default();
                let taken = config.set_bytes(directive.name, value).is_ok();
                assert_eq!(taken, directive.name == "requirepass", "{} = {value:?}", directive.name);
            }
        }
    }

    #[test]
    fn an_unknown_name_brings_a_suggestion() {
        let error = Config::default().set("maxclient", "3").unwrap_err();
        assert_eq!(error.to_string(), "unknown directive 'maxclient'; did you mean 'maxclients'?");
        assert!(!Config::default().set("zzzzzzzzzz", "3").unwrap_err().to_string().contains("mean"));
    }

    #[test]
    fn the_environment_sets_directives() {
        let mut config = Config::default();
        config.apply_env(|name| (name == "QUIRE_TCP_KEEPALIVE").then(|| "7".to_owned())).unwrap();
        assert_eq!(config.tcp_keepalive_s, 7);
        let error = config.apply_env(|name| (name == "QUIRE_PORT").then(|| "x".to_owned())).unwrap_err();
        assert!(error.to_string().contains("'port' with value 'x'"), "{error}");
    }

    #[test]
    fn limits_that_a_type_declares_are_directives() {
        let mut config = Config::default();
        for limit in quire_store::declared_limits() {
            config.set(limit.name, "5").unwrap();
            assert_eq!(config.limits.get(limit), 5, "{}", limit.name);
            for alias in limit.aliases {
                config.set(alias, "6").unwrap();
                assert_eq!(config.limits.get(limit), 6, "{alias}");
            }
        }
        assert_eq!(config.limits.get(&quire_store::set::MAX_INTS), 5);
        let error = config.set("set-max-intset-entries", "8193").unwrap_err().to_string();
        assert!(error.contains("between 0 and 8192 inclusive"), "{error}");
        assert!(
            config.set("set-max-intset-entries", "-1").is_err() && config.set("set-max-intset-entries", "x").is_err()
        );
        let mut names: Vec<&str> =
            table::directives().flat_map(|one| one.aliases.iter().copied().chain([one.name])).collect();
        names.sort_unstable();
        assert!(names.is_sorted_by(|one, next| one < next), "a name stands for one directive");
    }

    #[test]
    fn an_image_is_never_called_as_a_delta_or_a_leftover_is() {
        let mut config = Config::default();
        for name in ["dump.quire.delta-1", "a.delta-20", "a.delta-1.delta-2"] {
            let by_flag = config.set("dbfilename", name).unwrap_err().to_string();
            let by_environment =
                config.apply_env(|variable| (variable == "QUIRE_DBFILENAME").then(|| name.to_owned())).unwrap_err();
            let by_file = config.apply_text(format!("dbfilename {name}\n").as_bytes(), "quire.conf").unwrap_err();
            for error in [by_flag, by_environment.to_string(), by_file.to_string()] {
                assert!(error.contains("of a delta over an image") && error.contains(name), "{error}");
            }
        }
        for name in ["dump.quire.tmp-5", "a.tmp-x.tmp-07"] {
            let error = config.set("dbfilename", name).unwrap_err().to_string();
            assert!(error.contains("that is being saved") && error.contains(name), "{error}");
        }
        for name in [
            "dump.quire.tmp",
            "dump.quire.tmp-",
            "dump.tmp-5x",
            "tmp-5",
            "dump.quire.delta",
            "dump.quire.delta-0",
            "delta-1",
            "dump.delta-1.quire",
        ] {
            config.set("dbfilename", name).unwrap();
        }
    }

    #[test]
    fn what_is_not_there_yet_is_said() {
        let mut config = Config::default();
        for (name, value) in [("io-threads", "4"), ("daemonize", "yes")] {
            let error = config.set(name, value).unwrap_err().to_string();
            assert!(error.contains("not"), "{error}");
        }
    }
}
