//! The arguments of `quire`. Those of `serve` are made from the server's table of directives, so that a setting exists in
//! the file, as a flag and in the environment by being in that table.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgGroup, Args as _, Command, value_parser};
use quire_server::config::{env_name, table};

use crate::{image_copy, mount};

const ABOUT: &str = "A Redis-compatible server that saves without stalling and restarts at once";

const SERVE_HELP: &str = "\
Settings are taken from the configuration file, then from the environment (QUIRE_PORT for port), then from flags; the \
last one wins.

Examples:
  quire serve                                   127.0.0.1:6379, data in ./data
  quire serve --port 7000 --dir /var/lib/quire
  quire serve --save \"900 1\" --save \"60 10000\"    save after 900 s with a change, or 60 s with 10000
  quire serve --save \"\"                         save only when told to (SAVE, BGSAVE)
  quire serve --clone data/dump.quire --port 7001 --read-only
                                                a second server on an image of the first: its data as of that save, at
                                                once, without copying it
  quire serve --clone localhost:6379 --port 7001
                                                the same as of now: the first is asked to save before
  quire serve quire.conf --requirepass secret
  quire serve redis.conf --supervised systemd   what redis.conf may have and changes nothing here is a flag, too
  QUIRE_PORT=7000 quire serve";

const HELP: &str = "\
Examples:
  quire                            start the server on 127.0.0.1:6379, data in ./data
  quire --port 7000 --dir DIR      the same elsewhere; `quire serve --help` lists all settings
  quire serve quire.conf           with a configuration file
  quire image verify data/dump.quire
  quire image import --rdb dump.rdb data/dump.quire
                                   data of Redis becomes an image (export: the other way)
  quire image import --aof appendonlydir data/dump.quire
                                   the same from its append-only files
  quire log dump data              what was written since the last image
  quire mount /slow/pg /mnt/pg --log /fast/log --allow-other
                                   a directory behind a write cache for those who wait
  quire top                        a running server, live
  quire doctor                     what this kernel offers
  quire measure -m all -s 1024 -p  six ways to a snapshot of 1 GiB, side by side
  quire bench server --quick       Quire beside redis-server on this machine
  quire report --from DIR --out DIR
                                   a page of what such experiments have measured";

/// All commands.
pub fn command() -> Command {
    Command::new("quire")
        .about(ABOUT)
        .long_about(format!("{ABOUT}.\n\nWithout a command, `quire` is `quire serve`."))
        .version(env!("CARGO_PKG_VERSION"))
        .after_help(HELP)
        .subcommand_required(true)
        .subcommand(serve())
        .subcommand(image())
        .subcommand(log())
        .subcommand(top())
        .subcommand(mount::mount())
        .subcommand(mount::unmount())
        .subcommand(mount::critical())
        .subcommand(mount::stats())
        .subcommand(doctor())
        .subcommand(
            quire_bench::measure::args::MeasureArgs::augment_args(Command::new("measure"))
                .about("Time snapshots of memory, mechanism beside mechanism"),
        )
        .subcommand(quire_bench::command())
        .subcommand(
            quire_bench::page::PageArgs::augment_args(Command::new("report")).about(quire_bench::page::ABOUT),
        )
        .subcommand(
            Command::new("docs")
                .about("Print documents that are made from the program's own tables, or write manual pages and completions")
                .arg(Arg::new("document").required(true).value_parser(["compat", "info", "metrics", "man", "completions"]))
                .arg(
                    Arg::new("out")
                        .long("out")
                        .value_name("DIR")
                        .value_parser(value_parser!(PathBuf))
                        .required_if_eq_any([("document", "man"), ("document", "completions")])
                        .help("Where manual pages and completions are written"),
                ),
        )
}

/// `quire --port 7000`, `quire quire.conf` and plain `quire` mean `serve`.
pub fn with_default_command(mut words: Vec<OsString>) -> Vec<OsString> {
    let own = ["--help", "-h", "--version", "-V"];
    let serves = match words.get(1).map(|word| word.to_string_lossy()) {
        None => true,
        Some(word) if word.starts_with('-') => !own.contains(&&*word),
        // A word that is no command may be meant as one; a path can't be.
        Some(word) => word.contains(['/', '.']),
    };
    if serves {
        words.insert(1.min(words.len()), "serve".into());
    }
    words
}

/// Whether a flag of `serve` takes the word behind it, also one that looks like a flag.
pub fn takes_any_word(name: &str) -> bool {
    table::find(name).is_some_and(|directive| !directive.is_list() && !is_switch(directive))
}

/// Whether a flag may stand alone, which means yes.
fn is_switch(directive: &table::Directive) -> bool {
    ["yes", "no"].contains(&&*directive.default)
}

fn serve() -> Command {
    let mut command = Command::new("serve").about("Start the server").after_help(SERVE_HELP).arg(
        Arg::new("config")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help("Configuration file, in the syntax of redis.conf"),
    );
    command = command
        .arg(Arg::new("clone").long("clone").value_name("FILE|HOST:PORT").help(
            "Serve the image FILE of another server, which stays as it is: reads share its pages with other clones, writes are \
             private. Nothing is saved unless --dir names a directory for it. HOST:PORT is a server of this machine, which is \
             asked to save first",
        ))
        .arg(
            Arg::new("clone-max-age")
                .long("clone-max-age")
                .value_name("SECONDS")
                .value_parser(value_parser!(u64))
                .requires("clone")
                .help("Take the newest image of HOST:PORT, without a save, if its data is no older"),
        )
        .args(credentials().map(|arg| arg.requires("clone")));
    for directive in table::directives() {
        let default = if directive.default.is_empty() { "\"\"" } else { &directive.default };
        let mut arg = Arg::new(directive.name)
            .long(directive.name)
            .value_name("VALUE")
            .allow_hyphen_values(true)
            .value_parser(ValueParser::string())
            .action(ArgAction::Append)
            .help(format!("{} [default: {default}] [env: {}]", directive.doc, env_name(directive.name)));
        if directive.is_list() {
            // With values that may begin with a hyphen it would take the flags that follow it.
            arg = arg.num_args(1..).allow_hyphen_values(false);
        }
        if is_switch(directive) {
            // `--accept-damaged-image` alone means yes.
            arg = arg.num_args(0..=1).default_missing_value("yes").allow_hyphen_values(false);
        }
        for alias in directive.aliases {
            arg = arg.alias(*alias);
        }
        command = command.arg(arg);
    }
    command
}

/// How to get in where a server asks for a password. The password itself is no argument: other users see those.
fn credentials() -> [Arg; 2] {
    [
        Arg::new("clone-user")
            .long("clone-user")
            .value_name("NAME")
            .help("The user to be at HOST:PORT [default: the default user]"),
        Arg::new("clone-password-file")
            .long("clone-password-file")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help("File with the password for HOST:PORT; without it the environment's QUIRE_CLONE_PASSWORD is taken"),
    ]
}

fn file() -> Arg {
    Arg::new("file").value_name("FILE").required(true).value_parser(value_parser!(PathBuf)).help("The image")
}

fn rdb(help: &'static str) -> Arg {
    Arg::new("rdb").long("rdb").value_name("RDB").value_parser(value_parser!(PathBuf)).help(help)
}

/// What exchanges images with Redis.
fn exchange() -> [Command; 2] {
    [
        Command::new("import")
            .about("Make an image of the data of Redis or Valkey; what has no place in it is told")
            .arg(rdb("The file to read, of versions 1 to 12"))
            .arg(
                Arg::new("aof")
                    .long("aof")
                    .value_name("PATH")
                    .value_parser(value_parser!(PathBuf))
                    .help("The append-only files to read: the directory with their manifest (appendonlydir), or a single file"),
            )
            .group(ArgGroup::new("source").args(["rdb", "aof"]).required(true))
            .arg(file()),
        Command::new("export")
            .about("Write an image as a file that redis-server 7.0 and later load. The image's server may be running. Ctrl-C cancels it")
            .arg(rdb("The file to write, which must not exist").required(true))
            .arg(file()),
    ]
}

fn image() -> Command {
    Command::new("image")
        .about("Look at an image that a save has written, copy it, exchange it with Redis, or watch a save")
        .subcommand_required(true)
        .subcommand(
            Command::new("info")
                .about("Say what an image holds (reads its header, table and footer)")
                .arg(file())
                .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("As JSON")),
        )
        .subcommand(
            Command::new("verify")
                .about("Read all of an image; exit code 1 and the places if it is not what was written")
                .arg(file()),
        )
        .subcommand(
            Command::new("copy")
                .about("Copy an image with the deltas over it; the copy is verified and complete, or there is none. Ctrl-C cancels it")
                .arg(file())
                .arg(
                    Arg::new("dir")
                        .value_name("DIR")
                        .required(true)
                        .value_parser(value_parser!(PathBuf))
                        .help("A directory without an image of that name"),
                )
                .arg(
                    Arg::new("max-bytes-per-second")
                        .long("max-bytes-per-second")
                        .value_name("SIZE")
                        .value_parser(crate::mount::args::parse_size)
                        .help("Most bytes a second that are written, and after that read back [default: no limit]"),
                )
                .arg(
                    Arg::new("io-priority")
                        .long("io-priority")
                        .value_name("PRIORITY")
                        .value_parser(image_copy::IO_PRIORITIES)
                        .default_value(image_copy::IO_PRIORITIES[0])
                        .help("idle: the disk serves the copy when no other request wants it (where BFQ or mq-deadline schedule it)"),
                ),
        )
        .subcommands(exchange())
        .subcommand(
            Command::new("watch")
                .about("Show how far the running save of a server is: bytes, rate, time left; exit code 1 if it fails")
                .arg(Arg::new("server").value_name("HOST:PORT").default_value("127.0.0.1:6379").help("The server"))
                .arg(
                    Arg::new("wait")
                        .long("wait")
                        .action(ArgAction::SetTrue)
                        .help("If no save is running, wait for one"),
                )
                .args(credentials()),
        )
}

fn log() -> Command {
    let directory = || {
        Arg::new("dir").value_name("DIR").required(true).value_parser(value_parser!(PathBuf)).help("Where the log lies")
    };
    Command::new("log")
        .about("Look at the log of writes in a data directory; the server may be running")
        .subcommand_required(true)
        .subcommand(
            Command::new("info")
                .about("Say which segments there are (reads their headers)")
                .arg(directory())
                .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("As JSON")),
        )
        .subcommand(
            Command::new("verify")
                .about("Read all records; exit code 1 and the place if one is missing or not what was written")
                .arg(directory()),
        )
        .subcommand(
            Command::new("dump").about("Print all commands: record, time, database, words").arg(directory()).arg(
                Arg::new("from")
                    .long("from")
                    .value_name("RECORD")
                    .value_parser(value_parser!(u64))
                    .help("Begin with this record"),
            ),
        )
}

fn top() -> Command {
    Command::new("top")
        .about("Show a running server live: throughput, latency, memory, saves, the log, commands (? shows the keys)")
        .arg(Arg::new("server").value_name("HOST:PORT").default_value("127.0.0.1:6379").help("The server"))
        .arg(
            Arg::new("interval")
                .long("interval")
                .value_name("MILLISECONDS")
                .value_parser(value_parser!(u64).range(100..=60_000))
                .default_value("1000")
                .help("How often the server is asked"),
        )
        .arg(
            Arg::new("once")
                .long("once")
                .action(ArgAction::SetTrue)
                .help("Print one frame, of one interval, and end: for a pipe or a file"),
        )
        .args(credentials())
}

fn doctor() -> Command {
    Command::new("doctor")
        .about("Probe the kernel features that Quire uses, and say what it does without")
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("As JSON"))
        .arg(
            Arg::new("dir")
                .long("dir")
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .help("Where images are to lie [default: .]"),
        )
        .arg(
            Arg::new("preload")
                .long("preload")
                .value_name("PROGRAM")
                .value_parser(value_parser!(PathBuf))
                .help("Say instead whether libquire_preload.so can work in this program, and how to start it with it"),
        )
        .arg(
            Arg::new("file")
                .long("file")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .conflicts_with("preload")
                .help("Say instead how much of this file the system's page cache holds, and where in it"),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_definition_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn serve_is_what_quire_does_without_a_command() {
        assert_eq!(with_default_command(words("quire")), words("quire serve"));
        assert_eq!(with_default_command(words("quire --port 7")), words("quire serve --port 7"));
        assert_eq!(with_default_command(words("quire quire.conf --port 7")), words("quire serve quire.conf --port 7"));
        assert_eq!(with_default_command(words("quire --help")), words("quire --help"));
        assert_eq!(with_default_command(words("quire doctor")), words("quire doctor"));
    }

    #[test]
    fn every_directive_is_a_flag() {
        let matches = command().get_matches_from([
            "quire",
            "serve",
            "--save",
            "",
            "--accept-damaged-image",
            "--port",
            "1",
            "--protected-mode",
            "no",
            "--slowlog-log-slower-than",
            "-1",
        ]);
        let serve = matches.subcommand_matches("serve").unwrap();
        for directive in table::directives() {
            assert!(serve.try_contains_id(directive.name).is_ok(), "{}", directive.name);
        }
        let values = |name| serve.get_many::<String>(name).unwrap().map(String::as_str).collect::<Vec<_>>();
        assert_eq!((values("save"), values("port")), (vec![""], vec!["1"]));
        assert_eq!((values("accept-damaged-image"), values("protected-mode")), (vec!["yes"], vec!["no"]));
        assert_eq!(values("slowlog-log-slower-than"), ["-1"]);
    }
}
