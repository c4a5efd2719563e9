//! What INFO tells, section by section, in Redis' field names and Quire's own beside them.

use std::fmt::{Display, Write as _};

use quire_store::Store;

use crate::acl::DenialReason;
use crate::client::{Client, CommandId};
use crate::config::Config;
use crate::config::value;
use crate::pubsub::TopicKind;
use crate::registry::registry;
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
    ("Memory", true, memory),
    ("Persistence", true, persistence),
    ("Stats", true, stats),
    ("Replication", true, replication),
    ("CPU", true, cpu),
    ("Modules", true, |_, _| {}),
    ("Commandstats", false, command_stats),
    ("Errorstats", true, error_stats),
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
    text.field("redis_mode", "standalone");
    text.field("os", format_args!("Linux {} {}", quire_sys::proc::kernel_release(), std::env::consts::ARCH));
    text.field("arch_bits", usize::BITS);
    text.field("multiplexing_api", "epoll");
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

fn memory(source: &InfoSource<'_>, text: &mut InfoText) {
    let stats = source.store.stats();
    let arena = &stats.arena;
    let resident = quire_sys::proc::resident_bytes(None).unwrap_or(0);
    let used = source.server.memory_bytes(source.store);
    let peak = source.server.stats.used_memory_peak_bytes.max(used);
    let dataset = arena.allocated_bytes.saturating_sub(stats.overhead_bytes);
    let percent = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 };
    text.bytes("used_memory", used);
    text.bytes("used_memory_rss", resident);
    text.bytes("used_memory_peak", peak);
    text.field("used_memory_peak_perc", format_args!("{:.2}%", percent(used, peak)));
    text.field("used_memory_overhead", stats.overhead_bytes + (used - arena.allocated_bytes));
    text.field("used_memory_dataset", dataset);
    text.field("used_memory_dataset_perc", format_args!("{:.2}%", percent(dataset, used)));
    text.field("allocator_allocated", arena.allocated_bytes);
    text.field("allocator_active", arena.used_bytes);
    text.field("allocator_resident", arena.backed_bytes());
    text.field("arena_objects", arena.objects);
    text.field("arena_committed_bytes", arena.committed_bytes);
    text.field("arena_free_bytes", arena.free_bytes);
    text.field("arena_released_bytes", arena.released_bytes);
    text.field("arena_max_bytes", arena.max_bytes);
    let scripts = &source.server.scripts;
    let (functions, libraries) = (&scripts.functions, &scripts.functions.libraries);
    text.bytes("used_memory_lua", scripts.memory_bytes() as u64);
    text.field("used_memory_vm_eval", scripts.memory_bytes());
    text.field("used_memory_scripts_eval", scripts.cache.memory_bytes());
    text.field("number_of_cached_scripts", scripts.cache.len());
    text.field("number_of_functions", libraries.functions());
    text.field("number_of_libraries", libraries.len());
    text.field("used_memory_vm_functions", functions.memory_bytes());
    text.bytes("used_memory_vm_total", (scripts.memory_bytes() + functions.memory_bytes()) as u64);
    text.field("used_memory_functions", libraries.memory_bytes());
    text.bytes("used_memory_scripts", (scripts.cache.memory_bytes() + libraries.memory_bytes()) as u64);
    let total = quire_sys::proc::meminfo_bytes("MemTotal").unwrap_or(0);
    text.bytes("total_system_memory", total);
    text.bytes("maxmemory", source.server.config.maxmemory.limit_bytes);
    text.field("maxmemory_policy", source.server.config.maxmemory.policy_name());
    text.field("mem_fragmentation_ratio", format_args!("{:.2}", arena.fragmentation()));
    text.field("mem_fragmentation_bytes", arena.backed_bytes().saturating_sub(arena.allocated_bytes));
    text.field("mem_clients_slaves", 0);
    text.field("mem_clients_normal", source.server.clients.memory_bytes());
    text.field("mem_clients_limit", source.server.client_memory_limit_bytes());
    let waiting = source.server.log_writer.as_ref().map_or(0, |log_writer| log_writer.waiting_bytes());
    text.field("mem_aof_buffer", waiting);
    // What waits for the log is not among what `used_memory` counts.
    text.field("mem_not_counted_for_evict", 0);
    text.field("mem_allocator", "quire-arena");
    text.field("active_defrag_running", source.server.steps.defrag.share_percent());
    text.field("active_defrag_released_pages", source.server.steps.defrag.stats.released_pages);
    text.field("lazyfree_pending_objects", stats.reclaim_pending);
    text.field("lazyfreed_objects", stats.freed_in_steps);
}

fn persistence(source: &InfoSource<'_>, text: &mut InfoText) {
    let server = source.server;
    let (saves, restored) = (&server.saves, &server.saves.restored);
    let figures = source.store.save_stats();
    let restoring = source.store.restore_progress().is_some();
    text.field("loading", u8::from(server.steps.loading.is_some()));
    text.field("async_loading", 0);
    text.field("current_cow_peak", figures.preimage_bytes_peak);
    text.field("current_cow_size", figures.preimage_bytes_now);
    let progress = source.store.save_progress();
    let (done, total) = progress.map_or((0, 0), |save| (save.pages_done, save.pages_total));
    let left = progress.and_then(|save| save.time_left());
    let percent = if total == 0 { 0.0 } else { done as f64 * 100.0 / total as f64 };
    text.field("current_fork_perc", format_args!("{percent:.2}"));
    text.field("current_save_pages_done", done);
    text.field("current_save_pages_total", total);
    text.field("current_save_bytes_written", progress.map_or(0, |save| save.bytes_written));
    text.field("current_save_time_left_sec", left.map_or(-1, |left| left.as_secs().cast_signed()));
    text.field("image_path", image_path(&server.config).display());
    last_image(source, text);
    text.field("rdb_changes_since_last_save", saves.unsaved(source.store.changes()));
    // One that waits until the image below is verified has begun, as far as clients that wait for its end can tell.
    let in_progress = saves.running_since.is_some() || saves.scheduled && restoring;
    text.field("rdb_bgsave_in_progress", u8::from(in_progress));
    text.field("rdb_bgsave_scheduled", u8::from(saves.scheduled));
    text.field("rdb_last_save_time", saves.last_save_unix_s);
    text.field("rdb_last_bgsave_status", if saves.last_ok { "ok" } else { "err" });
    text.field("rdb_last_bgsave_error", saves.last_error.replace(['\r', '\n'], " "));
    text.field("rdb_last_bgsave_time_sec", saves.last_duration_s.map_or(-1, |seconds| seconds as i64));
    text.field("rdb_current_bgsave_time_sec", saves.running_since.map_or(-1, |since| since.elapsed().as_secs() as i64));
    text.field("rdb_saves", saves.saves);
    text.field("rdb_last_cow_size", figures.preimage_bytes_peak);
    text.field("rdb_last_load_keys_expired", 0);
    text.field("rdb_last_load_keys_loaded", restored.keys);
    text.field("last_cut_stall_us", format_args!("{:.1}", figures.last_cut_ns as f64 / 1000.0));
    text.field("preimage_bytes_now", figures.preimage_bytes_now);
    text.field("preimage_bytes_peak", figures.preimage_bytes_peak);
    text.field("preimage_budget_bytes", figures.budget_bytes);
    text.field("writer_waits", figures.waits);
    text.field("writer_wait_total_us", figures.wait_total_ns / 1000);
    text.field("writer_wait_longest_us", figures.wait_longest_ns / 1000);
    let lowered = quire_sys::thread::can_raise_again();
    text.field("save_thread_priority", if lowered { "lowered" } else { "normal" });
    text.field("save_io_priority", value::choice_name(&server.config.save_io_priority, value::SAVE_IO_PRIORITIES));
    text.field("dump_bytes_per_sec", figures.dump_bytes_per_s);
    text.field("last_image_bytes", saves.last_bytes);
    checkpoint(source, text);
    text.field("restore_mode", restored.mode);
    text.field("restore_in_progress", u8::from(restoring || source.server.steps.loading.is_some()));
    text.field("restore_image_bytes", restored.image_bytes);
    text.field("restore_regions_loaded_first", restored.regions_loaded);
    text.field("restore_first_read_us", restored.first_read_us);
    text.field("restore_full_us", restored.full_us.map_or(-1, |us| us as i64));
    clone(source, text);
    log(source, text);
    loading(source, text);
}

/// How far the data is loaded, while it is.
fn loading(source: &InfoSource<'_>, text: &mut InfoText) {
    let Some(progress) = &source.server.steps.loading else { return };
    let figures = progress.figures();
    text.field("loading_start_time", figures.began_unix_s);
    text.field("loading_total_bytes", figures.total_bytes);
    text.field("loading_loaded_bytes", figures.loaded_bytes);
    text.field("loading_loaded_perc", format_args!("{:.2}", figures.percent));
    text.field("loading_eta_seconds", figures.eta_s);
}

/// Which save the image and its deltas are, in the words of their headers.
fn last_image(source: &InfoSource<'_>, text: &mut InfoText) {
    let image = source.store.last_image();
    let digits = |number: Option<u64>| number.map_or_else(String::new, |number| format!("{number:016x}"));
    text.field("image_history", digits(image.map(|image| image.history)));
    text.field("image_epoch", image.map_or(0, |image| image.epoch));
    text.field("image_checksum", digits(image.map(|image| image.checksum)));
}

/// What saves write: all or what has changed, and how much smaller.
fn checkpoint(source: &InfoSource<'_>, text: &mut InfoText) {
    let (server, figures) = (source.server, source.store.save_stats());
    text.field("checkpoint_incremental", u8::from(server.config.checkpoint_incremental));
    text.field("checkpoint_chain_deltas", figures.chain_deltas);
    text.field("checkpoint_chain_delta_bytes", figures.chain_delta_bytes);
    text.field("checkpoint_last_delta_bytes", figures.last_delta_bytes);
    text.field("checkpoint_changed_bytes", figures.changed_bytes.map_or(-1, |bytes| bytes as i64));
    text.field(
        "checkpoint_compression",
        value::choice_name(&server.config.checkpoint_compression, value::COMPRESSIONS),
    );
    text.field("checkpoint_last_compression_savings_bytes", figures.last_compression_savings_bytes);
    text.field("rdb_transfers_in_progress", server.blocked.transfers.len());
}

/// Where images are saved, whatever directory a reader is in; empty in a clone that has no place for them.
fn image_path(config: &Config) -> std::path::PathBuf {
    if !config.has_dir() {
        return std::path::PathBuf::new();
    }
    let path = config.image_path();
    std::path::absolute(&path).unwrap_or(path)
}

/// What a clone's data is, how old it is, and how much of it is the clone's own.
fn clone(source: &InfoSource<'_>, text: &mut InfoText) {
    let restored = &source.server.saves.restored;
    let Some(origin) = &restored.clone_of else { return };
    let (checked, total) = source.store.restore_progress().unwrap_or((1, 1));
    text.field("clone_of", &origin.named);
    text.field("clone_image", origin.path().display());
    text.field("clone_data_unix_ms", restored.created_unix_ms);
    text.field("clone_data_age_seconds", restored.age().as_secs());
    text.field("clone_deltas", restored.deltas);
    text.field("clone_verified", u8::from(source.store.restore_progress().is_none()));
    text.field("clone_verified_perc", format_args!("{:.2}", checked as f64 * 100.0 / total.max(1) as f64));
    text.field("clone_first_read_us", restored.first_read_us);
    let memory = quire_sys::proc::resident_kinds();
    text.field("clone_private_bytes", memory.map_or(-1, |memory| memory.anonymous_bytes.cast_signed()));
    text.field("clone_shared_bytes", memory.map_or(-1, |memory| memory.file_bytes.cast_signed()));
}

/// The log of writes, in the words that Redis has for its append-only file, then in Quire's own.
fn log(source: &InfoSource<'_>, text: &mut InfoText) {
    let (saves, known) = (&source.server.saves, &source.server.log_state);
    let log_writer = source.server.log_writer.as_deref();
    // A log without room fails before its device does.
    let failed = log_writer.is_some_and(|log_writer| log_writer.failure().is_some())
        || source.server.log_state.refusal.is_some();
    let rewriting = saves.running_since.filter(|_| saves.for_log);
    text.field("aof_enabled", u8::from(log_writer.is_some()));
    text.field("aof_rewrite_in_progress", u8::from(rewriting.is_some()));
    text.field("aof_rewrite_scheduled", u8::from(saves.rewrites.scheduled));
    text.field("aof_last_rewrite_time_sec", saves.rewrites.last_duration_s.map_or(-1, |seconds| seconds as i64));
    text.field("aof_current_rewrite_time_sec", rewriting.map_or(-1, |since| since.elapsed().as_secs() as i64));
    text.field("aof_last_bgrewrite_status", if saves.rewrites.last_ok { "ok" } else { "err" });
    text.field("aof_rewrites", saves.rewrites.count);
    text.field("aof_last_write_status", if failed { "err" } else { "ok" });
    text.field("aof_last_cow_size", source.store.save_stats().preimage_bytes_peak);
    text.field("log_last_error", known.last_error.replace(['\r', '\n'], " "));
    text.field("log_replayed_records", known.replayed_records);
    text.field("log_replayed_commands", known.replayed_commands);
    text.field("log_replay_us", known.replayed_us);
    text.field("log_torn_bytes", known.torn_bytes);
    text.field("log_refused_writes", known.refused);
    let Some(log_writer) = log_writer else { return };
    let stats = log_writer.stats();
    text.field("aof_current_size", stats.live_bytes);
    text.field("aof_base_size", saves.last_bytes);
    text.field("aof_pending_rewrite", u8::from(log_writer.awaits_image()));
    text.field("aof_buffer_length", log_writer.waiting_bytes());
    text.field("aof_pending_bio_fsync", u8::from(log_writer.appended() > log_writer.durable()));
    text.field("aof_delayed_fsync", log_writer.delayed);
    text.field("log_appended_record", log_writer.appended());
    text.field("log_durable_record", log_writer.durable());
    text.field("log_behind", u8::from(log_writer.behind));
    text.field("log_segments", stats.segments);
    text.field("log_file_bytes", stats.file_bytes);
    text.field("log_spare_bytes", stats.spare_bytes);
    text.field("log_next_segment", log_writer.next_segment().name());
    text.field("log_bytes_written", stats.bytes_written);
    text.field("log_commits", stats.commits);
    text.field("log_commit_last_us", stats.commit_last_ns / 1000);
    text.field("log_commit_longest_us", stats.commit_longest_ns / 1000);
    text.field("log_flushes", stats.flushes);
    text.field("log_flush_longest_us", stats.flush_longest_ns / 1000);
}

fn stats(source: &InfoSource<'_>, text: &mut InfoText) {
    let stats = &source.server.stats;
    let store = source.store.stats();
    let kilobytes = |bytes: u64| format!("{:.2}", bytes as f64 / 1024.0);
    text.field("total_connections_received", stats.connections_received);
    text.field("total_commands_processed", stats.commands_processed);
    text.field("instantaneous_ops_per_sec", stats.command_rate.per_second());
    text.field("total_net_input_bytes", stats.input_bytes);
    text.field("total_net_output_bytes", stats.output_bytes);
    text.field("instantaneous_input_kbps", kilobytes(stats.input_rate.per_second()));
    text.field("instantaneous_output_kbps", kilobytes(stats.output_rate.per_second()));
    text.field("rejected_connections", stats.connections_rejected);
    text.field("sync_full", 0);
    text.field("sync_partial_ok", 0);
    text.field("sync_partial_err", 0);
    text.field("expired_subkeys", store.expired_subkeys);
    text.field("expired_keys", store.expired);
    text.field("expire_cycle_cpu_milliseconds", stats.expire_cycle_us / 1000);
    text.field("evicted_keys", store.evicted);
    text.field("evicted_clients", stats.clients_evicted);
    let (exceeded_now, exceeded) = source.server.steps.eviction.exceeded(source.server.clock.now);
    text.field("total_eviction_exceeded_time", exceeded.as_millis());
    text.field("current_eviction_exceeded_time", exceeded_now.as_millis());
    text.field("keyspace_hits", store.hits);
    text.field("keyspace_misses", store.misses);
    for (name, kind) in [
        ("pubsub_channels", TopicKind::Channel),
        ("pubsub_patterns", TopicKind::Pattern),
        ("pubsubshard_channels", TopicKind::Shard),
    ] {
        text.field(name, source.server.clients.pubsub.count(kind));
    }
    defragmentation(source, text);
    let tracking = &source.server.clients.tracking;
    text.field("tracking_total_keys", tracking.keys.len());
    text.field("tracking_total_items", tracking.keys.items());
    text.field("tracking_total_prefixes", tracking.prefix_count());
    // What stands where Redis forks: the cut.
    text.field("latest_fork_usec", source.store.save_stats().last_cut_ns / 1000);
    text.field("total_forks", 0);
    text.field("total_error_replies", stats.error_replies);
    text.field("total_reads_processed", stats.reads);
    text.field("total_writes_processed", stats.writes);
    text.field("client_query_buffer_limit_disconnections", stats.query_limit_closed);
    text.field("client_output_buffer_limit_disconnections", stats.output_limit_closed);
    let denied = |reason| source.server.monitoring.denials.count(reason);
    text.field("acl_access_denied_auth", denied(DenialReason::Auth));
    text.field("acl_access_denied_cmd", denied(DenialReason::Command));
    text.field("acl_access_denied_key", denied(DenialReason::Key));
    text.field("acl_access_denied_channel", denied(DenialReason::Channel));
}

/// What has been moved together.
fn defragmentation(source: &InfoSource<'_>, text: &mut InfoText) {
    let defrag = &source.server.steps.defrag;
    text.field("active_defrag_hits", defrag.stats.moved);
    text.field("active_defrag_misses", defrag.stats.stayed);
    // Objects are counted, whatever keys they belong to.
    text.field("active_defrag_key_hits", 0);
    text.field("active_defrag_key_misses", 0);
    let (running_now, running) = defrag.running(source.server.clock.now);
    text.field("total_active_defrag_time", running.as_millis());
    text.field("current_active_defrag_time", running_now.as_millis());
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
}

fn cpu(_: &InfoSource<'_>, text: &mut InfoText) {
    let (user_s, system_s) = cpu_seconds().unwrap_or((0.0, 0.0));
    text.field("used_cpu_sys", format_args!("{system_s:.6}"));
    text.field("used_cpu_user", format_args!("{user_s:.6}"));
    text.field("used_cpu_sys_children", "0.000000");
    text.field("used_cpu_user_children", "0.000000");
    text.field("used_cpu_engine_thread", format_args!("{:.6}", quire_sys::thread::cpu_time_ns() as f64 / 1e9));
}

/// Seconds that the process spent in user code and in the kernel. The kernel counts them in hundredths.
fn cpu_seconds() -> Option<(f64, f64)> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name in parentheses may hold spaces; the figures begin behind it.
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<f64>().ok().map(|ticks| ticks / 100.0);
    Some((next()?, next()?))
}

fn command_stats(source: &InfoSource<'_>, text: &mut InfoText) {
    for (index, stats) in source.server.stats.commands.iter().enumerate() {
        if stats.calls == 0 && stats.rejected == 0 && stats.failed == 0 {
            continue;
        }
        let usec = stats.total_ns as f64 / 1000.0;
        let per_call = if stats.calls == 0 { 0.0 } else { usec / stats.calls as f64 };
        text.field(
            &format!("cmdstat_{}", registry().command(CommandId(index as u16)).name),
            format_args!(
                "calls={},usec={usec:.0},usec_per_call={per_call:.2},rejected_calls={},failed_calls={}",
                stats.calls, stats.rejected, stats.failed
            ),
        );
    }
}

fn error_stats(source: &InfoSource<'_>, text: &mut InfoText) {
    for (code, count) in &source.server.stats.errors {
        text.field(&format!("errorstat_{code}"), format_args!("count={count}"));
    }
}

fn keyspace(source: &InfoSource<'_>, text: &mut InfoText) {
    for (number, db) in source.store.stats().databases.iter().enumerate() {
        if db.keys > 0 {
            let value = format_args!("keys={},expires={},avg_ttl={}", db.keys, db.expires, db.avg_ttl_ms).to_string();
            text.field(&format!("db{number}"), value);
        }
    }
}
