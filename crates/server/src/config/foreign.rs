//! Directives of Redis and of Valkey that this server does not have. In a configuration file, and by CONFIG SET, those are taken that cannot
//! matter here; those that promise something which would not be kept are refused. Relies on nothing.

/// What is done with a line of a configuration file, and with CONFIG SET.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ForeignDirective {
    /// It is taken, and changes nothing.
    NoEffect,
    /// It is refused, for this reason.
    Refused(&'static str),
}

use ForeignDirective::{NoEffect, Refused};

/// What begins so is about replication, a cluster, or modules' memory.
const PREFIXES: &[&str] =
    &["repl-", "replica-", "slave-", "cluster-", "rdma-", "dual-channel-replication-", "commandlog-"];

/// Directives that change nothing whatever their values are: what they are about is not there, goes by itself, or is another program's.
const NO_EFFECT: &[&str] = &[
    "active-defrag-cycle-us",
    "active-defrag-max-scan-fields",
    "active-expire-effort",
    "activerehashing",
    "always-show-logo",
    "aof-rewrite-incremental-fsync",
    "aof-timestamp-enabled",
    "aof-use-rdb-preamble",
    "aof_rewrite_cpulist",
    "appenddirname",
    "appendfilename",
    "auto-aof-rewrite-min-size",
    "auto-aof-rewrite-percentage",
    "availability-zone",
    "bgsave_cpulist",
    "bind-source-addr",
    "bio_cpulist",
    "crash-log-enabled",
    "crash-memcheck-enabled",
    "disable-thp",
    "enable-module-command",
    "events-per-io-thread",
    "extended-redis-compatibility",
    "hide-user-data-from-log",
    "ignore-warnings",
    "io-threads-do-reads",
    "jemalloc-bg-thread",
    "key-load-delay",
    "locale-collate",
    "lua-enable-deprecated-api",
    "lua-enable-insecure-api",
    "masterauth",
    "masteruser",
    "max-new-connections-per-cycle",
    "max-new-tls-connections-per-cycle",
    "min-replicas-max-lag",
    "min-slaves-max-lag",
    "mptcp",
    "no-appendfsync-on-rewrite",
    "oom-score-adj",
    "oom-score-adj-values",
    "prefetch-batch-max-size",
    "primaryauth",
    "primaryuser",
    "proc-title-template",
    "propagation-error-behavior",
    "rdb-del-sync-files",
    "rdb-key-save-delay",
    "rdb-save-incremental-fsync",
    "rdb-version-check",
    "rdbchecksum",
    "rdbcompression",
    "sanitize-dump-payload",
    "server-cpulist",
    "server_cpulist",
    "set-proc-title",
    "shutdown-timeout",
    "socket-mark-id",
    "supervised",
    "syslog-enabled",
    "syslog-facility",
    "syslog-ident",
    "tls-cluster",
    "tls-replication",
    "tls-session-cache-size",
    "tls-session-cache-timeout",
    "tls-session-caching",
    "watchdog-period",
];

/// What is done with a directive that the table lacks; `None` for a name that Redis lacks, too. `value` is the rest of the line.
pub fn find(name: &str, value: &str) -> Option<ForeignDirective> {
    let value = value.trim();
    let unless = |is_harmless: bool, reason| Some(if is_harmless { NoEffect } else { Refused(reason) });
    match name {
        "cluster-enabled" => unless(value.eq_ignore_ascii_case("no"), "there is no cluster"),
        "replicaof" | "slaveof" => unless(value.eq_ignore_ascii_case("no one"), "there is no replication"),
        "min-replicas-to-write" | "min-slaves-to-write" => unless(value == "0", "there is no replication"),
        "shutdown-on-sigint" | "shutdown-on-sigterm" => {
            let saves = value.split_ascii_whitespace().any(|word| word.eq_ignore_ascii_case("save"));
            unless(
                !saves,
                "what is saved at the end is decided by save rules and by the log; save 3600 1 is such a rule",
            )
        }
        "aof-load-truncated" => {
            unless(value.eq_ignore_ascii_case("yes"), "a log that was cut off at its end is used as far as it goes")
        }
        "import-mode" => unless(value.eq_ignore_ascii_case("no"), "keys expire, and are evicted, at any time"),
        "unixsocketgroup" => unless(value.is_empty(), "the group of the socket is the server's; see unixsocketperm"),
        "loadmodule" => Some(Refused("there are no modules")),
        "rename-command" => Some(Refused("commands keep their names")),
        "tls-ciphers" | "tls-ciphersuites" => unless(value.is_empty(), "OpenSSL's lists of ciphers are not known"),
        "tls-key-file-pass" => unless(value.is_empty(), "a key with a password can't be read"),
        "tls-dh-params-file" | "tls-client-cert-file" | "tls-client-key-file" | "tls-client-key-file-pass" => {
            Some(NoEffect)
        }
        name if PREFIXES.iter().any(|prefix| name.starts_with(prefix)) => Some(NoEffect),
        name => NO_EFFECT.contains(&name).then_some(NoEffect),
    }
}

/// The names that are taken without an effect whatever their values are; those that end in a star stand for all that begin so.
pub fn names_without_effect() -> impl Iterator<Item = String> {
    let all = PREFIXES.iter().map(|prefix| format!("{prefix}*"));
    NO_EFFECT.iter().map(|name| (*name).to_owned()).chain(all)
}

/// Whether a file may set a directive of the table to this value though it can't be as it says, since no client would notice.
pub(super) fn is_taken_as_default(name: &str, value: &str) -> bool {
    match name {
        "daemonize" => value.eq_ignore_ascii_case("yes"),
        "io-threads" => value.parse::<u8>().is_ok_and(|threads| (2..=128).contains(&threads)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::table;

    #[test]
    fn no_directive_that_the_server_has_is_foreign() {
        for name in NO_EFFECT {
            assert!(table::find(name).is_none(), "{name}");
        }
        assert!(NO_EFFECT.is_sorted());
        for prefix in PREFIXES {
            let own = table::directives().find(|directive| directive.name.starts_with(prefix));
            assert!(own.is_none(), "{prefix}");
        }
    }

    #[test]
    fn a_value_decides_whether_a_promise_would_be_broken() {
        for (name, value, expected) in [
            ("cluster-enabled", "no", Some(NoEffect)),
            ("cluster-enabled", "yes", Some(Refused("there is no cluster"))),
            ("cluster-node-timeout", "15000", Some(NoEffect)),
            ("replicaof", "NO ONE", Some(NoEffect)),
            ("slaveof", "10.0.0.1 6379", Some(Refused("there is no replication"))),
            ("min-replicas-to-write", "0", Some(NoEffect)),
            ("min-replicas-to-write", "3", Some(Refused("there is no replication"))),
            ("tls-ciphers", "DEFAULT:!MEDIUM", Some(Refused("OpenSSL's lists of ciphers are not known"))),
            ("tls-dh-params-file", "x.dh", Some(NoEffect)),
            ("rdbcompression", "maybe", Some(NoEffect)),
            ("shutdown-on-sigterm", "nosave force", Some(NoEffect)),
            (
                "shutdown-on-sigterm",
                "SAVE now",
                Some(Refused(
                    "what is saved at the end is decided by save rules and by the log; save 3600 1 is such a rule",
                )),
            ),
            ("aof-load-truncated", "Yes", Some(NoEffect)),
            ("aof-load-truncated", "no", Some(Refused("a log that was cut off at its end is used as far as it goes"))),
            ("import-mode", "no", Some(NoEffect)),
            ("import-mode", "yes", Some(Refused("keys expire, and are evicted, at any time"))),
            ("unixsocketgroup", "", Some(NoEffect)),
            ("unixsocketgroup", "redis", Some(Refused("the group of the socket is the server's; see unixsocketperm"))),
            ("prot", "1", None),
        ] {
            assert_eq!(find(name, value), expected, "{name} {value}");
        }
    }
}
