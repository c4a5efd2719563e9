//! The table of directives: name, default, whether it can change while the server runs, what it is for.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::LazyLock;

use quire_store::{EncodingLimit, declared_limits};

use super::Config;
use super::acl;
use super::defrag;
pub use super::directive::Directive;
use super::directive::{Setting, directive, flag, integer, memory, text};
use super::latency;
use super::maxmemory;
use super::metrics;
use super::scripts;
use super::tls;
use super::value::{self, RejectReason};
use crate::acl::MOST_PASSWORD_BYTES;

const FIXED: bool = false;
const MUTABLE: bool = true;
const MAX_INT: i64 = i32::MAX as i64;
/// Offsets into an input buffer have 32 bits.
const MAX_QUERY_BYTES: u64 = (4 << 30) - (1 << 20);

/// The server's own directives.
static OWN: &[Directive] = &[
    directive!(
        "bind",
        "127.0.0.1 ::1",
        FIXED,
        "Addresses to listen on; a leading '-' means: skip it if the machine lacks it.",
        |c| c.bind.join(" "),
        |c, v| {
            c.bind = v.split_ascii_whitespace().map(str::to_owned).collect();
            Ok(())
        }
    ),
    integer!(
        "port",
        "6379",
        FIXED,
        0,
        65535,
        "TCP port to listen on; 0 means none, or any free one without a unixsocket.",
        port
    ),
    text!("unixsocket", "", "Path of a Unix socket to listen on.", unixsocket),
    directive!(
        "unixsocketperm",
        "0",
        FIXED,
        "Permission bits of the Unix socket, in octal; 0 leaves them alone.",
        |c| format!("{:o}", c.unixsocketperm),
        |c, v| {
            c.unixsocketperm =
                u32::from_str_radix(v, 8).ok().filter(|bits| *bits <= 0o777).ok_or("argument must be an octal mode")?;
            Ok(())
        }
    ),
    integer!("tcp-backlog", "511", FIXED, 0, MAX_INT, "Connections that may wait to be accepted.", tcp_backlog),
    integer!(
        "tcp-keepalive",
        "300",
        MUTABLE,
        0,
        MAX_INT,
        "Seconds of silence after which a connection is probed; 0 means never.",
        tcp_keepalive_s
    ),
    integer!(
        "timeout",
        "0",
        MUTABLE,
        0,
        MAX_INT,
        "Seconds after which an idle client is closed; 0 means never.",
        timeout_s
    ),
    flag!("protected-mode", "yes", "Refuse clients of other machines while no password is set.", acl.protected_mode),
    // A password may be any bytes.
    Directive {
        name: "requirepass",
        aliases: &[],
        default: Cow::Borrowed(""),
        mutable: MUTABLE,
        doc: "The password that clients must give; empty means none.",
        setting: Setting::Field {
            get: |c| c.requirepass.clone(),
            set: |c, v| {
                if v.len() > MOST_PASSWORD_BYTES {
                    return Err("the password is too long".into());
                }
                c.requirepass = v.to_vec();
                Ok(())
            },
        },
    },
    integer!("maxclients", "10000", MUTABLE, 1, 1_000_000, "Clients that may be connected at once.", maxclients),
    memory!(
        "client-query-buffer-limit",
        "1gb",
        1 << 20,
        MAX_QUERY_BYTES,
        "Bytes of requests that a client may leave unprocessed.",
        client_query_buffer_limit
    ),
    directive!(
        "client-output-buffer-limit",
        "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
        MUTABLE,
        "Bytes of replies that a client may leave unread: class, hard limit, soft limit, seconds.",
        |c| value::output_limits_text(&c.output_limits),
        |c, v| value::output_limits(&mut c.output_limits, v)
    ),
    memory!("proto-max-bulk-len", "512mb", 1 << 20, 512 << 20, "Longest word of a request.", proto_max_bulk_len),
    directive!(
        "maxmemory-clients",
        "0",
        MUTABLE,
        "Bytes of requests and replies that all clients together may have waiting, or n% of maxmemory; 0 means a quarter \
         of the machine's memory.",
        |c| c.maxmemory_clients.to_string(),
        |c, v| {
            c.maxmemory_clients = value::client_memory(v)?;
            Ok(())
        }
    ),
    directive!(
        "io-threads",
        "1",
        FIXED,
        "Threads that serve sockets; only 1 for now.",
        |c| c.io_threads.to_string(),
        |c, v| {
            match value::integer(v, 1, 128)? {
                1 => {
                    c.io_threads = 1;
                    Ok(())
                }
                _ => Err("more than one I/O thread is not supported yet".into()),
            }
        }
    ),
    integer!("databases", "16", FIXED, 1, 16, "Number of databases.", databases),
    integer!(
        "hz",
        "10",
        MUTABLE,
        1,
        500,
        "How often per second expired keys, timeouts and save rules are looked at.",
        hz
    ),
    flag!("dynamic-hz", "yes", "Accepted for compatibility; has no effect.", ignored.dynamic_hz),
    directive!(
        "dir",
        "./data",
        MUTABLE,
        "Directory of the image; links are followed when it is set.",
        |c| c.dir.display().to_string(),
        |c, v| {
            if v.is_empty() {
                return Err("argument must be a directory".into());
            }
            c.dir = PathBuf::from(v);
            Ok(())
        }
    ),
    directive!(
        "dbfilename",
        "dump.quire",
        MUTABLE,
        "Name of the image in its directory.",
        |c| c.dbfilename.clone(),
        |c, v| {
            if v.is_empty() || v.contains('/') {
                return Err("dbfilename can't be a path, just a filename".into());
            }
            if quire_store::is_delta_name(v) {
                // A full save of the image that the name begins with would remove this one.
                return Err("that is the name of a delta over an image, so no image can have it".into());
            }
            if quire_store::is_temporary_name(v) {
                // A start with the image that the name begins with would remove this one.
                return Err("that is the name of an image that is being saved, so no image can have it".into());
            }
            c.dbfilename = v.to_owned();
            Ok(())
        }
    ),
    directive!(
        "save",
        "3600 1 300 100 60 10000",
        MUTABLE,
        "Save rules, pairs of seconds and changes; \"\" means none.",
        |c| value::save_rules_text(&c.save),
        |c, v| {
            c.save = value::save_rules(v)?;
            Ok(())
        }
    ),
    flag!(
        "stop-writes-on-bgsave-error",
        "yes",
        "Refuse writes after a background save failed.",
        stop_writes_on_save_error
    ),
    memory!(
        "checkpoint-max-extra-memory",
        "64mb",
        1 << 20,
        1 << 36,
        "Memory that a save may use beyond the data.",
        checkpoint_budget_bytes
    ),
    memory!(
        "checkpoint-max-bytes-per-second",
        "0",
        0,
        1 << 40,
        "Most bytes a second that a background save writes; 0 is no limit. SAVE and SHUTDOWN have none.",
        checkpoint_max_bytes_per_s
    ),
    directive!(
        "checkpoint-io-priority",
        "idle",
        MUTABLE,
        "I/O priority of a background save: idle (served when no other request wants the disk, until a command waits for the \
         save) or normal. BFQ and mq-deadline heed it; other disk schedulers ignore it. SAVE, SHUTDOWN and a save that \
         the log needs are normal.",
        |c| value::choice_name(&c.save_io_priority, value::SAVE_IO_PRIORITIES),
        |c, v| {
            c.save_io_priority = value::choice(v, value::SAVE_IO_PRIORITIES)?;
            Ok(())
        }
    ),
    flag!(
        "checkpoint-incremental",
        "no",
        "Save only what has changed since the last save, as a delta over the image. A backup needs the deltas, too: copy \
         dump.quire.delta-* first, then dump.quire. The disk needs room for 2.5 images: a full save replaces the chain.",
        checkpoint_incremental
    ),
    integer!(
        "checkpoint-max-deltas",
        "8",
        MUTABLE,
        1,
        64,
        "Most deltas over an image; then the next save is a full image.",
        checkpoint_max_deltas
    ),
    directive!(
        "checkpoint-compression",
        "no",
        MUTABLE,
        "How saves compress regions of 2 MiB: no, lz4 or zstd, on the thread that saves. A region that gets smaller by less than an \
         eighth is stored as it is. A restart maps what is stored as it is, and loads what is compressed before the first command.",
        |c| value::choice_name(&c.checkpoint_compression, value::COMPRESSIONS),
        |c, v| {
            c.checkpoint_compression = value::choice(v, value::COMPRESSIONS)?;
            Ok(())
        }
    ),
    directive!(
        "restore-mode",
        "map",
        MUTABLE,
        "How the image is brought back: map (serve at once) or load (read all first).",
        |c| value::choice_name(&c.restore_mode, value::RESTORE_MODES),
        |c, v| {
            c.restore_mode = value::choice(v, value::RESTORE_MODES)?;
            Ok(())
        }
    ),
    directive!(
        "accept-damaged-image",
        "no",
        FIXED,
        "Start on a damaged image with what is left of it.",
        |c| value::yes_no(c.accept_damaged_image),
        |c, v| {
            c.accept_damaged_image = value::boolean(v)?;
            Ok(())
        }
    ),
    directive!(
        "accept-damaged-log",
        "no",
        FIXED,
        "Start on a damaged log with the writes that can be read, and keep the damaged files under other names.",
        |c| value::yes_no(c.accept_damaged_log),
        |c, v| {
            c.accept_damaged_log = value::boolean(v)?;
            Ok(())
        }
    ),
    flag!("read-only", "no", "Refuse commands that write, as a read-only replica does.", read_only),
    integer!(
        "clone-nice",
        "10",
        FIXED,
        0,
        19,
        "By how many nice values a clone that starts as read-only runs behind other programs, such as its original; 0: not at all.",
        clone_nice
    ),
    flag!(
        "appendonly",
        "no",
        "Log writes, so that those after the last image survive a crash. On a full disk writes are refused until there is room.",
        appendonly
    ),
    directive!(
        "appendfsync",
        "everysec",
        MUTABLE,
        "When logged writes are made durable: always (before the reply), everysec or no.",
        |c| value::choice_name(&c.appendfsync, value::APPEND_SYNCS),
        |c, v| {
            c.appendfsync = value::choice(v, value::APPEND_SYNCS)?;
            Ok(())
        }
    ),
    memory!(
        "log-max-bytes",
        "4gb",
        8 << 20,
        1 << 50,
        "Most bytes of the log's files: at half of it an image is taken, at all of it writes wait for that.",
        log_max_bytes
    ),
    directive!(
        "log-segment-bytes",
        "64mb",
        FIXED,
        "Bytes of each of the log's files; a larger record gets a file of its own size.",
        |c| c.log_segment_bytes.to_string(),
        |c, v| {
            c.log_segment_bytes = value::memory(v, 1 << 20, 1 << 32)?.next_multiple_of(4096);
            Ok(())
        }
    ),
    flag!(
        "lazyfree-lazy-user-flush",
        "no",
        "Accepted for compatibility: flushing never waits for memory to be freed.",
        lazyfree.user_flush
    ),
    flag!(
        "lazyfree-lazy-user-del",
        "no",
        "Accepted for compatibility: deleting never waits for memory to be freed.",
        lazyfree.user_del
    ),
    flag!("lazyfree-lazy-server-del", "no", "Accepted for compatibility.", lazyfree.server_del),
    flag!("lazyfree-lazy-expire", "no", "Accepted for compatibility.", lazyfree.expire),
    flag!("lazyfree-lazy-eviction", "no", "Accepted for compatibility.", lazyfree.eviction),
    integer!(
        "list-compress-depth",
        "0",
        MUTABLE,
        0,
        MAX_INT,
        "Accepted for compatibility: the nodes of lists are never compressed.",
        ignored.list_compress_depth
    ),
    memory!(
        "hll-sparse-max-bytes",
        "3000",
        0,
        i64::MAX as u64,
        "Length up to which a HyperLogLog is kept sparse; a longer one is dense, 12 KiB.",
        hll_sparse_max_bytes
    ),
    integer!(
        "slowlog-log-slower-than",
        "10000",
        MUTABLE,
        -1,
        i64::MAX,
        "Microseconds from which a command is logged as slow; negative means never.",
        slowlog_slower_than_us
    ),
    integer!("slowlog-max-len", "128", MUTABLE, 0, 1_000_000, "Entries that the slow log keeps.", slowlog_max_len),
    directive!(
        "tracking-table-max-keys",
        "1000000",
        MUTABLE,
        "Keys that the server remembers for clients that track what they read (CLIENT TRACKING); 0 means no limit. Beyond it, and beyond a \
         quarter of maxmemory-clients, random ones are told to have changed.",
        |c| c.maxmemory.tracking_max_keys.to_string(),
        |c, v| {
            c.maxmemory.tracking_max_keys = value::integer(v, 0, i64::MAX)? as u64;
            Ok(())
        }
    ),
    directive!(
        "notify-keyspace-events",
        "",
        MUTABLE,
        "Which events of keys are told by publish/subscribe, a letter for each class, with K or E or both.",
        |c| c.notify_keyspace_events.to_string(),
        |c, v| value::event_classes(v).map(|classes| c.notify_keyspace_events = classes)
    ),
    directive!(
        "loglevel",
        "notice",
        MUTABLE,
        "How much to log: debug, verbose, notice, warning or nothing.",
        |c| value::choice_name(&c.loglevel, value::LOG_LEVELS),
        |c, v| {
            c.loglevel = value::choice(v, value::LOG_LEVELS)?;
            Ok(())
        }
    ),
    text!("logfile", "", "File to log to; empty means standard error.", logfile),
    directive!(
        "log-format",
        "text",
        FIXED,
        "How log lines look: text or json.",
        |c| value::choice_name(&c.log_format, value::LOG_FORMATS),
        |c, v| {
            c.log_format = value::choice(v, value::LOG_FORMATS)?;
            Ok(())
        }
    ),
    directive!(
        "enable-debug-command",
        "no",
        FIXED,
        "Who may use DEBUG: no, local or yes.",
        |c| c.enable_debug_command.clone(),
        |c, v| {
            c.enable_debug_command = value::choice(v, &[("no", "no"), ("yes", "yes"), ("local", "local")])?.to_owned();
            Ok(())
        }
    ),
    directive!(
        "enable-protected-configs",
        "no",
        FIXED,
        "Who may change dir and dbfilename with CONFIG SET: no, local or yes.",
        |c| c.enable_protected_configs.clone(),
        |c, v| {
            c.enable_protected_configs =
                value::choice(v, &[("no", "no"), ("yes", "yes"), ("local", "local")])?.to_owned();
            Ok(())
        }
    ),
    text!("pidfile", "", "File to write the process id to.", pidfile),
    directive!(
        "daemonize",
        "no",
        FIXED,
        "Only no: let a service manager put the server into the background.",
        |_| value::yes_no(false),
        |_, v| {
            if value::boolean(v)? {
                return Err("not supported; let a service manager start the server".into());
            }
            Ok(())
        }
    ),
];

/// The directives that the types' limits are set by.
static LIMITS: LazyLock<Vec<Directive>> = LazyLock::new(|| {
    let directive = |limit: &'static EncodingLimit| Directive {
        name: limit.name,
        aliases: limit.aliases,
        default: Cow::Owned(limit.default.to_string()),
        mutable: MUTABLE,
        doc: limit.doc,
        setting: Setting::EncodingLimit(limit),
    };
    declared_limits().map(directive).collect()
});

/// All directives.
pub fn directives() -> impl Iterator<Item = &'static Directive> {
    let families = [
        OWN,
        acl::DIRECTIVES,
        tls::DIRECTIVES,
        metrics::DIRECTIVES,
        maxmemory::DIRECTIVES,
        defrag::DIRECTIVES,
        latency::DIRECTIVES,
        scripts::DIRECTIVES,
    ];
    families.into_iter().flatten().chain(LIMITS.iter())
}

/// The directive of this name or alias.
pub fn find(name: &str) -> Option<&'static Directive> {
    directives().find(|directive| {
        directive.name.eq_ignore_ascii_case(name)
            || directive.aliases.iter().any(|alias| alias.eq_ignore_ascii_case(name))
    })
}
