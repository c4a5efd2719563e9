//! The metrics' names: which field of INFO each one shows, and those with labels. The page `docs/metrics.md` is made from this table.
//!
//! Names follow Prometheus' conventions: `quire_`, then what, then the unit, seconds and bytes only; the text gives counters the ending
//! `_total`. A test holds the table against INFO.

use std::collections::HashMap;
use std::fmt::Write as _;

use quire_metrics::{Metric, MetricKind};

const GAUGE: MetricKind = MetricKind::Gauge;
const COUNTER: MetricKind = MetricKind::Counter;

/// How a field of INFO becomes a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FieldValue {
    /// It is one.
    Number,
    /// It is one, of microseconds, and becomes seconds.
    Micros,
    /// `ok` is 1, anything else is 0.
    Ok,
}

/// A metric that shows a field of INFO.
#[derive(Clone, Copy, Debug)]
pub struct FieldMetric {
    /// The metric's name.
    pub name: &'static str,
    /// Its kind.
    pub kind: MetricKind,
    /// The field.
    pub field: &'static str,
    /// How it is read.
    pub value: FieldValue,
    /// What it tells.
    pub help: &'static str,
}

const fn row(
    name: &'static str,
    kind: MetricKind,
    field: &'static str,
    value: FieldValue,
    help: &'static str,
) -> FieldMetric {
    FieldMetric { name, kind, field, value, help }
}

impl FieldMetric {
    /// The metric, if INFO has the field now.
    pub fn read(&self, info: &HashMap<&str, &str>) -> Option<Metric> {
        let text = info.get(self.field)?;
        let number = match self.value {
            FieldValue::Number => text.parse().ok()?,
            FieldValue::Micros => text.parse::<f64>().ok()? / 1e6,
            FieldValue::Ok => f64::from(u8::from(*text == "ok")),
        };
        Some(Metric::number(self.name, self.kind, self.help, number))
    }
}

/// A metric of several numbers.
#[derive(Clone, Copy, Debug)]
pub struct LabelledMetric {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: MetricKind,
    /// The label that tells them apart.
    pub label: &'static str,
    /// What it tells.
    pub help: &'static str,
}

const fn labelled(name: &'static str, kind: MetricKind, label: &'static str, help: &'static str) -> LabelledMetric {
    LabelledMetric { name, kind, label, help }
}

/// The version.
pub const VERSION: LabelledMetric = labelled("quire_build_info", GAUGE, "version", "1; the label tells the version.");
/// What each database holds.
pub const DATABASES: [LabelledMetric; 2] = [
    labelled("quire_db_keys", GAUGE, "db", "Keys of a database that has any."),
    labelled("quire_db_keys_expiring", GAUGE, "db", "Keys of it that have a time to live."),
];
/// What each command did.
pub const COMMANDS: [LabelledMetric; 4] = [
    labelled("quire_command_calls", COUNTER, "command", "Runs of a command."),
    labelled("quire_command_seconds", COUNTER, "command", "Seconds that they took together."),
    labelled("quire_command_rejected", COUNTER, "command", "Requests of it that were refused before they ran."),
    labelled("quire_command_failed", COUNTER, "command", "Runs of it that ended with an error."),
];
/// How long each command took.
pub const LATENCY: LabelledMetric = labelled(
    "quire_command_duration_seconds",
    MetricKind::Histogram,
    "command",
    "How long runs of a command took, without waits for the socket or the log, while `latency-tracking` is on.",
);
/// Denials.
pub const DENIALS: LabelledMetric = labelled(
    "quire_access_denied",
    COUNTER,
    "reason",
    "Requests that a user was denied: a wrong password (auth), a command, a key or a channel.",
);
/// Errors.
pub const ERRORS: LabelledMetric =
    labelled("quire_errors", COUNTER, "code", "Replies that were errors, by their first word.");

/// All that show a field of INFO.
#[rustfmt::skip] // a line each
pub const FIELDS: &[FieldMetric] = &[
    row("quire_uptime_seconds", GAUGE, "uptime_in_seconds", FieldValue::Number, "Seconds since the server started."),
    row("quire_clients_connected", GAUGE, "connected_clients", FieldValue::Number, "Clients that are connected."),
    row("quire_clients_max", GAUGE, "maxclients", FieldValue::Number, "Clients that may be connected (maxclients)."),
    row("quire_clients_blocked", GAUGE, "blocked_clients", FieldValue::Number, "Clients that wait for an element or for durability."),
    row("quire_clients_paused", GAUGE, "paused_clients", FieldValue::Number, "Clients whose requests wait for anything."),
    row("quire_clients_memory_bytes", GAUGE, "mem_clients_normal", FieldValue::Number, "Bytes that requests and replies of all clients take."),
    row("quire_clients_memory_limit_bytes", GAUGE, "mem_clients_limit", FieldValue::Number, "Bytes that they may take together."),
    row("quire_connections_received", COUNTER, "total_connections_received", FieldValue::Number, "Connections that were accepted."),
    row("quire_connections_rejected", COUNTER, "rejected_connections", FieldValue::Number, "Connections that were refused, for maxclients or protected mode."),
    row("quire_clients_evicted", COUNTER, "evicted_clients", FieldValue::Number, "Clients that were closed because all together took too much memory."),
    row("quire_clients_closed_for_input", COUNTER, "client_query_buffer_limit_disconnections", FieldValue::Number, "Clients that were closed because they sent too much that could not be run."),
    row("quire_clients_closed_for_output", COUNTER, "client_output_buffer_limit_disconnections", FieldValue::Number, "Clients that were closed because they left too many replies unread."),
    row("quire_commands_processed", COUNTER, "total_commands_processed", FieldValue::Number, "Commands that were run."),
    row("quire_error_replies", COUNTER, "total_error_replies", FieldValue::Number, "Replies that were errors."),
    row("quire_net_input_bytes", COUNTER, "total_net_input_bytes", FieldValue::Number, "Bytes that were read from clients."),
    row("quire_net_output_bytes", COUNTER, "total_net_output_bytes", FieldValue::Number, "Bytes that were written to clients."),
    row("quire_memory_used_bytes", GAUGE, "used_memory", FieldValue::Number, "Bytes that the data takes."),
    row("quire_memory_peak_bytes", GAUGE, "used_memory_peak", FieldValue::Number, "The most bytes that the data has taken."),
    row("quire_memory_rss_bytes", GAUGE, "used_memory_rss", FieldValue::Number, "Bytes of memory that the process has."),
    row("quire_memory_max_bytes", GAUGE, "maxmemory", FieldValue::Number, "Bytes that the data may take (maxmemory); 0 means no limit."),
    row("quire_arena_committed_bytes", GAUGE, "arena_committed_bytes", FieldValue::Number, "Bytes from the arena's base to its end, free ones included."),
    row("quire_arena_free_bytes", GAUGE, "arena_free_bytes", FieldValue::Number, "Bytes of free runs of pages in the arena."),
    row("quire_defrag_running_percent", GAUGE, "active_defrag_running", FieldValue::Number, "Percent of a processor that active defragmentation takes; 0 while it moves nothing."),
    row("quire_defrag_moved", COUNTER, "active_defrag_hits", FieldValue::Number, "Objects that active defragmentation has moved."),
    row("quire_keyspace_hits", COUNTER, "keyspace_hits", FieldValue::Number, "Look-ups of keys that were there."),
    row("quire_keyspace_misses", COUNTER, "keyspace_misses", FieldValue::Number, "Look-ups of keys that were not there."),
    row("quire_keys_expired", COUNTER, "expired_keys", FieldValue::Number, "Keys that were removed because their time had come."),
    row("quire_fields_expired", COUNTER, "expired_subkeys", FieldValue::Number, "Fields of hashes that were removed because their time had come."),
    row("quire_keys_evicted", COUNTER, "evicted_keys", FieldValue::Number, "Keys that were removed because maxmemory was reached."),
    row("quire_tracking_clients", GAUGE, "tracking_clients", FieldValue::Number, "Clients that are told when keys change that they have read (CLIENT TRACKING)."),
    row("quire_tracking_keys", GAUGE, "tracking_total_keys", FieldValue::Number, "Keys that such clients have read."),
    row("quire_tracking_memory_bytes", GAUGE, "tracking_memory_bytes", FieldValue::Number, "Bytes that it takes to know these."),
    row("quire_pubsub_channels", GAUGE, "pubsub_channels", FieldValue::Number, "Channels with subscribers."),
    row("quire_pubsub_patterns", GAUGE, "pubsub_patterns", FieldValue::Number, "Patterns with subscribers."),
    row("quire_scripts_cached", GAUGE, "number_of_cached_scripts", FieldValue::Number, "Scripts that EVALSHA finds."),
    row("quire_functions", GAUGE, "number_of_functions", FieldValue::Number, "Functions that FCALL finds."),
    row("quire_scripts_memory_bytes", GAUGE, "used_memory_vm_total", FieldValue::Number, "Bytes that the interpreters of scripts and functions take."),
    row("quire_save_running", GAUGE, "rdb_bgsave_in_progress", FieldValue::Number, "1 while a save runs in the background."),
    row("quire_save_pages_done", GAUGE, "current_save_pages_done", FieldValue::Number, "Pages that the running save has written."),
    row("quire_save_pages", GAUGE, "current_save_pages_total", FieldValue::Number, "Pages that the running save will write; 0 if no save runs."),
    row("quire_saves", COUNTER, "rdb_saves", FieldValue::Number, "Saves that were done."),
    row("quire_save_last_ok", GAUGE, "rdb_last_bgsave_status", FieldValue::Ok, "1 if the last save in the background was done, 0 if it failed."),
    row("quire_save_last_timestamp_seconds", GAUGE, "rdb_last_save_time", FieldValue::Number, "When the last save was done, Unix seconds."),
    row("quire_save_last_duration_seconds", GAUGE, "rdb_last_bgsave_time_sec", FieldValue::Number, "Seconds that the last save in the background took; -1 before the first."),
    row("quire_save_last_bytes", GAUGE, "last_image_bytes", FieldValue::Number, "Bytes that the last save wrote."),
    row("quire_save_cut_stall_seconds", GAUGE, "last_cut_stall_us", FieldValue::Micros, "Seconds for which the last save stopped all commands."),
    row("quire_save_changes_pending", GAUGE, "rdb_changes_since_last_save", FieldValue::Number, "Changes since the last save."),
    row("quire_save_extra_memory_bytes", GAUGE, "preimage_bytes_now", FieldValue::Number, "Bytes of old page contents that the running save still has to write: its extra memory."),
    row("quire_save_extra_memory_peak_bytes", GAUGE, "preimage_bytes_peak", FieldValue::Number, "The most of these since the last save began."),
    row("quire_save_extra_memory_limit_bytes", GAUGE, "preimage_budget_bytes", FieldValue::Number, "The most that there may be (checkpoint-max-extra-memory)."),
    row("quire_save_writer_waits", COUNTER, "writer_waits", FieldValue::Number, "Times that a command waited for a save because its extra memory was used up."),
    row("quire_save_writer_wait_seconds", COUNTER, "writer_wait_total_us", FieldValue::Micros, "Seconds of these waits together."),
    row("quire_save_writer_wait_longest_seconds", GAUGE, "writer_wait_longest_us", FieldValue::Micros, "Seconds of the longest of these waits."),
    row("quire_checkpoint_deltas", GAUGE, "checkpoint_chain_deltas", FieldValue::Number, "Deltas over the image on the disk."),
    row("quire_restore_running", GAUGE, "restore_in_progress", FieldValue::Number, "1 while the data is loaded, and while the image is still read and verified."),
    row("quire_log_enabled", GAUGE, "aof_enabled", FieldValue::Number, "1 if writes are logged (appendonly)."),
    row("quire_log_last_write_ok", GAUGE, "aof_last_write_status", FieldValue::Ok, "1 unless the log of writes has failed or refuses writes."),
    row("quire_log_refused_writes", COUNTER, "log_refused_writes", FieldValue::Number, "Writes that were refused because of the log."),
    row("quire_log_behind", GAUGE, "log_behind", FieldValue::Number, "1 while the log's disk does not keep up, so that clients that write wait."),
    row("quire_log_records_appended", COUNTER, "log_appended_record", FieldValue::Number, "The number of the last record of the log."),
    row("quire_log_records_durable", COUNTER, "log_durable_record", FieldValue::Number, "The number of the last record that is on the disk."),
    row("quire_log_file_bytes", GAUGE, "log_file_bytes", FieldValue::Number, "Bytes of the log's files."),
    row("quire_log_written_bytes", COUNTER, "log_bytes_written", FieldValue::Number, "Bytes that were written to the log."),
    row("quire_log_commits", COUNTER, "log_commits", FieldValue::Number, "Writes to the log; each holds the records of many clients."),
    row("quire_log_commit_longest_seconds", GAUGE, "log_commit_longest_us", FieldValue::Micros, "Seconds of the longest write to the log, with its flush."),
    row("quire_cpu_system_seconds", COUNTER, "used_cpu_sys", FieldValue::Number, "Seconds of processor time in the kernel."),
    row("quire_cpu_user_seconds", COUNTER, "used_cpu_user", FieldValue::Number, "Seconds of processor time outside the kernel."),
    row("quire_cpu_engine_seconds", COUNTER, "used_cpu_engine_thread", FieldValue::Number, "Seconds of processor time of the thread that runs commands."),
];

/// The page that lists them.
pub fn metrics_markdown() -> String {
    let mut page = String::from(
        "# Metrics\n\nWhat `quire serve --metrics-port PORT` serves at `http://127.0.0.1:PORT/metrics`, in the OpenMetrics format that \
         Prometheus reads. Made by `cargo xtask docs` from the server's table of metrics; do not edit by hand. Dashboards for Grafana \
         and alert rules lie in [packaging/monitoring](../packaging/monitoring). The format adds `_total` to the names of counters.\n\n\
         | metric | kind | label | what it tells | INFO |\n|---|---|---|---|---|\n",
    );
    let mut line = |name: &str, kind: MetricKind, label: &str, help: &str, field: &str| {
        // A string takes whatever is written to it.
        let _ = writeln!(page, "| `{name}` | {} | {label} | {help} | {field} |", kind.name());
    };
    for metric in FIELDS {
        line(metric.name, metric.kind, "", metric.help, &format!("`{}`", metric.field));
    }
    for metric in [VERSION].iter().chain(&DATABASES).chain(&COMMANDS).chain([&LATENCY, &DENIALS, &ERRORS]) {
        line(metric.name, metric.kind, &format!("`{}`", metric.label), metric.help, "");
    }
    page
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_and_of_prometheus_kind() {
        let labelled = [VERSION].into_iter().chain(DATABASES).chain(COMMANDS).chain([LATENCY, DENIALS, ERRORS]);
        let names: Vec<&str> =
            FIELDS.iter().map(|metric| metric.name).chain(labelled.map(|metric| metric.name)).collect();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        for name in names {
            let well = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            assert!(name.starts_with("quire_") && well && !name.ends_with("_total"), "{name}");
            assert!(!name.ends_with("_us") && !name.ends_with("_ms"), "{name} is not in seconds");
        }
    }

    #[test]
    fn fields_become_numbers_and_what_is_no_number_is_left_out() {
        let info = HashMap::from([("a", "7"), ("b", "1500000"), ("c", "ok"), ("d", "err"), ("e", "text")]);
        let read = |field, value| row("quire_x", GAUGE, field, value, "").read(&info);
        let number = |number| Some(Metric::number("quire_x", GAUGE, "", number));
        assert_eq!(read("a", FieldValue::Number), number(7.0));
        assert_eq!(read("b", FieldValue::Micros), number(1.5));
        assert_eq!((read("c", FieldValue::Ok), read("d", FieldValue::Ok)), (number(1.0), number(0.0)));
        assert_eq!((read("e", FieldValue::Number), read("none", FieldValue::Number)), (None, None));
    }
}
