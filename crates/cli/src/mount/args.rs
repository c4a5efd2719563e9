//! Arguments of the commands about mounts, with examples.

use std::path::PathBuf;

use clap::{Arg, ArgAction, Command, value_parser};

const MOUNT_HELP: &str = "\
BACKING is a directory on the slow device. It appears at MOUNTPOINT, where writes that a request waits for become durable in
the log on the fast device and reach the directory later; other writes go straight to the directory. While mounted, and
after a crash until the next mount, use the files through MOUNTPOINT only.

Policies, each with what it sends to the log:
  all          every write
  sync         writes that a task waits for
  wal          files that the rules call logs
  cp           writes that a critical task waits for
  cp+pi        and those of tasks on which a critical one depends
  cp+pi+ioi    and those under way when a critical task begins to wait for them (default)

Rules, one a line, first match wins (the default knows PostgreSQL, Redis and SQLite):
  critical comm=postgres title~\"^postgres: .*(idle|SELECT|INSERT|COMMIT)\"
  log      comm=postgres title~\"(checkpointer|walwriter|autovacuum)\"
  normal   comm=postgres
  critical comm=redis-server main
  wal      path~\"pg_wal/\"

Examples:
  quire mount /slow/pg /var/lib/pg --log /fast/pg.log --allow-other
  quire mount /slow/data /mnt/data --log /dev/nvme0n1p3 --policy all --daemon
  quire mount data mnt --log /dev/shm/log --capacity 64MiB --critical 'myserver*' --auto-critical
  quire stats mnt
  quire critical 4711 mnt
  quire unmount mnt";

const CRITICAL_HELP: &str = "\
Tells a mount for whom requests wait. Hints come before rules, and end with the process or the mount.

Examples:
  quire critical 4711 /mnt/data                this process is critical
  quire critical --comm 'post*' /mnt/data      programs with such a name are
  quire critical --forget 4711 /mnt/data       it is not, any more
  quire critical /mnt/data                     list the hints in force

A program can say it of itself without this command:
  setxattr(\"/mnt/data\", \"user.quire.critical\", \"4711\", 4, 0)";

fn path(name: &'static str, value: &'static str) -> Arg {
    Arg::new(name).value_name(value).value_parser(value_parser!(PathBuf))
}

fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

/// `quire mount`.
pub fn mount() -> Command {
    let command = Command::new("mount")
        .about("Serve a directory on a slow device through a write cache on a fast one")
        .after_help(MOUNT_HELP)
        .arg(path("backing", "BACKING").required_unless_present("stats").help("The directory on the slow device"))
        .arg(path("mountpoint", "MOUNTPOINT").required_unless_present("stats").help("Where it is to appear"))
        .arg(
            path("log", "FILE")
                .long("log")
                .required_unless_present("stats")
                .help("File or block device on the fast device; made if it is not there"),
        )
        .arg(
            Arg::new("capacity")
                .long("capacity")
                .value_name("SIZE")
                .value_parser(|text: &str| parse_size(text))
                .default_value("512MiB")
                .help("Size of the log when it is made; at most that of a block device"),
        )
        .arg(
            Arg::new("memory")
                .long("memory")
                .value_name("SIZE")
                .value_parser(|text: &str| parse_size(text))
                .help("Most memory for bytes on their way to the directory; 16 MiB at least; by default an eighth of what is available"),
        );
    output(criticality(command))
}

/// Options of `quire mount` that say which writes go to the log.
fn criticality(command: Command) -> Command {
    command
        .arg(
            Arg::new("policy")
                .long("policy")
                .value_name("POLICY")
                .ignore_case(true)
                .value_parser(["all", "sync", "wal", "cp", "cp+pi", "cp+pi+ioi"])
                .default_value("cp+pi+ioi")
                .help("Which writes are sent to the log"),
        )
        .arg(path("rules", "FILE").long("rules").help("Rules that say who is critical, instead of the built-in ones"))
        .arg(
            Arg::new("critical")
                .long("critical")
                .value_name("PATTERN")
                .action(ArgAction::Append)
                .help("Programs with such a name are critical (* and ? stand for anything)"),
        )
        .arg(flag("auto-critical", "Find out who answers requests over sockets, where no rule says anything"))
}

/// Options of `quire mount` that say how it serves, and where figures and messages go.
fn output(command: Command) -> Command {
    command
        .arg(flag("allow-other", "Let other users in, as far as permissions allow"))
        .arg(flag("read-only", "Refuse every change"))
        .arg(flag("drain", "When it ends, bring everything in the log to the directory; shows how long that takes"))
        .arg(flag(
            "accept-damaged-log",
            "Open a log of which parts are damaged without these: what only they held is lost, and said",
        ))
        .arg(flag("foreground", "Stay in the foreground (the default)").conflicts_with("daemon"))
        .arg(flag("daemon", "Go to the background once mounted"))
        .arg(path("log-file", "FILE").long("log-file").help("Where messages go, instead of standard error"))
        .arg(path("stats-file", "FILE").long("stats-file").help("Write figures there every second, as JSON"))
        .arg(
            Arg::new("metrics-port")
                .long("metrics-port")
                .value_name("PORT")
                .value_parser(value_parser!(u16).range(1..))
                .help("Serve metrics for Prometheus at http://127.0.0.1:PORT/metrics"),
        )
        .arg(
            Arg::new("metrics-bind")
                .long("metrics-bind")
                .value_name("ADDRESS")
                .value_parser(value_parser!(std::net::IpAddr))
                .default_value("127.0.0.1")
                .help("The address that metrics are served on; they are open to all that reach it"),
        )
        .arg(
            path("stats", "MOUNTPOINT")
                .long("stats")
                .conflicts_with_all(["backing", "mountpoint", "log"])
                .help("Print the figures of a mount, as `quire stats` does"),
        )
        .arg(flag("json", "With --stats: as JSON").requires("stats"))
}

/// `quire unmount`.
pub fn unmount() -> Command {
    Command::new("unmount")
        .about("End a mount; returns when everything written to it is durable")
        .arg(path("mountpoint", "MOUNTPOINT").required(true).help("Where it is"))
        .arg(flag(
            "drain",
            "Bring everything in the log to the directory first, so that it can be used without the log",
        ))
        .arg(flag(
            "lazy",
            "Even if it is in use: it ends with its last user; what others write there meanwhile goes past the log",
        ))
}

/// `quire critical`.
pub fn critical() -> Command {
    Command::new("critical")
        .about("Tell a mount for whom requests wait")
        .after_help(CRITICAL_HELP)
        .arg(
            Arg::new("words")
                .value_names(["PID", "MOUNTPOINT"])
                .num_args(1..=2)
                .required(true)
                .help("The process, and where the mount is; with --comm only that"),
        )
        .arg(
            Arg::new("comm").long("comm").value_name("PATTERN").help("Programs with such a name, instead of a process"),
        )
        .arg(flag("forget", "Take the hint back"))
}

/// `quire stats`.
pub fn stats() -> Command {
    Command::new("stats")
        .about("Print what a mount has done: traffic, waits, who was critical, and why")
        .arg(path("mountpoint", "MOUNTPOINT").required(true).help("Where it is"))
        .arg(flag("trace", "The last decisions instead, newest first"))
        .arg(flag("json", "As JSON"))
}

/// Bytes of a size.
///
/// # Errors
/// The text is no size; the message says how to write one.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    quire_units::parse_bytes(text)
        .ok_or_else(|| format!("{text:?} is no size: write bytes, or a number with K, M, G or T (256MiB)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_what_is_none_is_told() {
        for (text, bytes) in [("7", 7), ("64k", 64 << 10), ("256MiB", 256 << 20), ("2GB", 2 << 30), ("1t", 1 << 40)] {
            assert_eq!(parse_size(text), Ok(bytes));
        }
        for text in ["", "MiB", "-1", "1x", "99999999999T"] {
            assert!(parse_size(text).unwrap_err().contains("256MiB"), "{text}");
        }
    }
}
