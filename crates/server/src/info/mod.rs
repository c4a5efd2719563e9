//! What INFO tells, section by section, in Redis' field names and Quire's own beside them.

mod cpu;
mod memory;
mod persistence;
mod stats;

use std::fmt::{Display, Write as _};

use quire_store::Store;

use crate::client::Client;
use crate::state::ServerState;
use crate::{COMPATIBLE_VERSION, VERSION};
use quire_units::redis::format_bytes;

/// What the sections are made from.
pub struct InfoSource<'a> {
    /// The data.
    pub store: &'a Store,
    /// The rest of the server.
    pub server: &'a ServerState,
    /// The client that asks; not among the server's clients while its command runs.
    pub client: &'a Client,
}

type Section = fn(&InfoSource<'_>, &mut InfoText);

/// All sections in their order; the flag tells whether plain INFO shows them.
const SECTIONS: &[(&str, bool, Section)] = &[
    ("Server", true, server),
    ("Clients", true, clients),
    ("Memory", true, memory::write),
    ("Persistence", true, persistence::write),
    ("Stats", true, stats::write),
    ("Replication", true, replication),
    ("CPU", true, cpu::write),
    ("Modules", true, |_, _| {}),
    ("Commandstats", false, stats::calls),
    ("Errorstats", true, stats::errors),
    ("Latencystats", false, stats::latencies),
    ("Cluster", true, |_, text| text.field("cluster_enabled", 0)),
    ("Keyspace", true, keyspace),
];

/// Lines of `name:value`.
#[derive(Default)]
struct InfoText(String);

impl InfoText {
    fn field(&mut self, name: &str, value: impl Display) {
        let _ = write!(self.0, "{name}:{value}\r\n");
    }

    fn bytes(&mut self, name: &str, bytes: u64) {
        self.field(name, bytes);
        self.field(&format!("{name}_human"), format_bytes(bytes));
    }
}

/// The sections that `wanted` says; none named means the usual ones.
pub fn text(source: &InfoSource<'_>, wanted: &[&[u8]]) -> String {
    let named = |name: &str| wanted.iter().any(|word| word.eq_ignore_ascii_case(name.as_bytes()));
    let every = named("all") || named("everything");
    let usual = wanted.is_empty() || named("default");
    let mut text = InfoText::default();
    for (name, is_usual, write) in SECTIONS {
        if every || usual && *is_usual || named(name) {
            if !text.0.is_empty() {
                text.0.push_str("\r\n");
            }
            let _ = write!(text.0, "# {name}\r\n");
            write(source, &mut text);
        }
    }
    text.0
}

fn server(source: &InfoSource<'_>, text: &mut InfoText) {
    let server = source.server;
    let uptime_s = server.clock.now.duration_since(server.clock.started).as_secs();
    text.field("redis_version", COMPATIBLE_VERSION);
    text.field("quire_version", VERSION);
    text.field("server_name", "quire");
    text.field("redis_git_sha1", "00000000");
    text.field("redis_git_dirty", 0);
    text.field("redis_build_id", 0);
    text.field("redis_mode", "standalone");
    text.field("os", format_args!("Linux {} {}", quire_sys::proc::kernel_release(), std::env::consts::ARCH));
    text.field("arch_bits", usize::BITS);
    text.field("monotonic_clock", "POSIX clock_gettime");
    text.field("multiplexing_api", "epoll");
    text.field("process_supervised", "no");
    text.field("process_id", std::process::id());
    text.field("run_id", &server.instance.run_id);
    text.field("tcp_port", server.instance.port);
    text.field("server_time_usec", server.clock.unix_ms * 1000);
    text.field("uptime_in_seconds", uptime_s);
    text.field("uptime_in_days", uptime_s / 86_400);
    text.field("hz", server.config.hz);
    text.field("configured_hz", server.config.hz);
    text.field("lru_clock", server.unix_s() & 0xFF_FFFF);
    let executable = std::env::current_exe().map(|path| path.display().to_string()).unwrap_or_default();
    text.field("executable", executable);
    let file = server.config.file.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    text.field("config_file", file);
    text.field("io_threads_active", 0);
}

fn clients(source: &InfoSource<'_>, text: &mut InfoText) {
    let every = || {
        let others = source.server.clients.iter().map(|(_, connection)| &connection.client);
        others.chain(std::iter::once(source.client))
    };
    text.field("connected_clients", source.server.clients.len());
    text.field("cluster_connections", 0);
    text.field("maxclients", source.server.config.maxclients);
    text.field("client_recent_max_input_buffer", every().map(|client| client.stats.input_bytes).max().unwrap_or(0));
    text.field("client_recent_max_output_buffer", every().map(|client| client.stats.output_bytes).max().unwrap_or(0));
    // As in Redis, clients that CLIENT PAUSE holds up are blocked ones.
    text.field("blocked_clients", source.server.blocked.counted());
    text.field("total_blocking_keys", source.server.blocked.keys.len());
    text.field("total_blocking_keys_on_nokey", source.server.blocked.keys.len_told_of_loss());
    text.field("tracking_clients", source.server.clients.tracking.len());
    text.field("tracking_memory_bytes", source.server.clients.tracking.memory_bytes());
    text.field("paused_clients", source.server.blocked.len());
    text.field("woken_clients", source.server.blocked.woken);
    text.field("watching_clients", every().filter(|client| client.watch.keys > 0).count());
}

fn replication(source: &InfoSource<'_>, text: &mut InfoText) {
    text.field("role", "master");
    text.field("connected_slaves", 0);
    text.field("master_failover_state", "no-failover");
    text.field("master_replid", &source.server.instance.run_id);
    text.field("master_replid2", "0".repeat(40));
    text.field("master_repl_offset", 0);
    text.field("second_repl_offset", -1);
    text.field("repl_backlog_active", 0);
    text.field("repl_backlog_size", 0);
    text.field("repl_backlog_first_byte_offset", 0);
    text.field("repl_backlog_histlen", 0);
}

fn keyspace(source: &InfoSource<'_>, text: &mut InfoText) {
    for (number, db) in source.store.stats().databases.iter().enumerate() {
        if db.keys > 0 {
            let value = format_args!("keys={},expires={},avg_ttl={}", db.keys, db.expires, db.avg_ttl_ms).to_string();
            text.field(&format!("db{number}"), value);
        }
    }
}
