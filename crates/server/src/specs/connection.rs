//! Specifications of the connection commands.

use crate::cmd::introspect::help;
use crate::cmd::{clients, connection, tracking};
use crate::table::*;

const HANDSHAKE: Flags = NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY;
const QUIET: Flags = NOSCRIPT | LOADING | STALE;
const O_1: &str = "O(1)";
const O_N_CLIENTS: &str = "O(N) where N is the number of client connections";

/// The specifications.
pub static SPECS: &[CommandSpec] = &[
    CommandSpec::new("auth", -2, connection::auth)
        .flags(HANDSHAKE)
        .group(CommandGroup::Connection, "1.0.0", O_1)
        .summary("Gives a password, of the default user or of another.")
        .args(&[Arg::string("username").optional().since("6.0.0"), Arg::string("password")]),
    CommandSpec::container("client", CLIENT)
        .flags(NEVER_PAUSED)
        .group(CommandGroup::Connection, "2.4.0", "Depends on subcommand.")
        .summary("Container of commands about client connections."),
    CommandSpec::new("echo", 2, connection::echo)
        .flags(LOADING | STALE | FAST)
        .group(CommandGroup::Connection, "1.0.0", O_1)
        .summary("Returns the message.")
        .args(&[Arg::string("message")]),
    CommandSpec::new("hello", -1, connection::hello)
        .flags(HANDSHAKE)
        .group(CommandGroup::Connection, "6.0.0", O_1)
        .summary("Chooses the protocol and, if asked to, logs in and names the connection.")
        .args(HELLO),
    CommandSpec::new("ping", -1, connection::ping)
        .flags(FAST | REFUSED_WITH_WRITES | WHILE_SUBSCRIBED)
        .group(CommandGroup::Connection, "1.0.0", O_1)
        .summary("Answers PONG, or with the message.")
        .args(&[Arg::string("message").optional()])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    CommandSpec::new("quit", -1, connection::quit)
        .flags(HANDSHAKE | NOT_QUEUED | WHILE_SUBSCRIBED)
        .group(CommandGroup::Connection, "1.0.0", O_1)
        .summary("Closes the connection."),
    CommandSpec::new("reset", 1, connection::reset)
        .flags(HANDSHAKE | NOT_QUEUED | WHILE_SUBSCRIBED)
        .group(CommandGroup::Connection, "6.2.0", O_1)
        .summary("Puts the connection into the state that it had at its start."),
];

static HELLO: &[Arg] = &[Arg::block(
    "arguments",
    &[
        Arg::int("protover"),
        Arg::block("username_password", &[Arg::string("username"), Arg::string("password")]).token("AUTH").optional(),
        Arg::string("clientname").token("SETNAME").optional(),
    ],
)
.optional()];

static CLIENT: &[CommandSpec] = &[
    CommandSpec::new("caching", 3, tracking::caching)
        .flags(QUIET)
        .group(CommandGroup::Connection, "6.0.0", O_1)
        .summary("Says whether the server is to track the keys of the next request.")
        .args(&[Arg::one_of("mode", &[Arg::word("yes", "YES"), Arg::word("no", "NO")])]),
    CommandSpec::new("getname", 2, clients::getname)
        .flags(QUIET)
        .group(CommandGroup::Connection, "2.6.9", O_1)
        .summary("Tells the connection's name."),
    CommandSpec::new("getredir", 2, tracking::getredir)
        .flags(QUIET)
        .group(CommandGroup::Connection, "6.0.0", O_1)
        .summary("Tells which client is told in the connection's place of keys that have changed."),
    CommandSpec::new("help", 2, help)
        .flags(LOADING | STALE)
        .group(CommandGroup::Connection, "5.0.0", O_1)
        .summary("Tells what the subcommands are."),
    CommandSpec::new("id", 2, clients::id)
        .flags(QUIET)
        .group(CommandGroup::Connection, "5.0.0", O_1)
        .summary("Tells the connection's number."),
    CommandSpec::new("info", 2, clients::info)
        .flags(QUIET)
        .group(CommandGroup::Connection, "6.2.0", O_1)
        .summary("Tells about the connection.")
        .tips(&["nondeterministic_output"]),
    CommandSpec::new("kill", -3, clients::kill)
        .flags(ADMIN | QUIET)
        .group(CommandGroup::Connection, "2.4.0", O_N_CLIENTS)
        .summary("Closes connections.")
        .args(KILL)
        .differs("Of the types `master` has no clients, and `replica` those that are sent a file (SYNC); MAXAGE as in Redis 7.4."),
    CommandSpec::new("list", -2, clients::list)
        .flags(ADMIN | QUIET)
        .group(CommandGroup::Connection, "2.4.0", O_N_CLIENTS)
        .summary("Tells about all connections.")
        .args(&[
            Arg::one_of("normal_master_replica_pubsub", CLIENT_TYPES).token("TYPE").optional().since("5.0.0"),
            Arg::block("id", &[Arg::int("client-id").multiple()]).token("ID").optional().since("6.2.0"),
        ])
        .tips(&["nondeterministic_output"])
        .differs("`lib-name` and `lib-ver` as in Redis 7.2."),
    CommandSpec::new("no-evict", 3, clients::no_evict)
        .flags(ADMIN | QUIET)
        .group(CommandGroup::Connection, "7.0.0", O_1)
        .summary("Excepts the connection from being closed for want of memory.")
        .args(ON_OFF),
    CommandSpec::new("no-touch", 3, clients::no_touch)
        .flags(QUIET)
        .group(CommandGroup::Connection, "7.2.0", O_1)
        .summary("Chooses whether the connection's reads count as accesses.")
        .args(ON_OFF),
    CommandSpec::new("pause", -3, clients::pause)
        .flags(ADMIN | QUIET)
        .group(CommandGroup::Connection, "2.9.50", O_1)
        .summary("Makes commands of clients wait.")
        .args(&[
            Arg::int("timeout"),
            Arg::one_of("mode", &[Arg::word("write", "WRITE"), Arg::word("all", "ALL")]).optional().since("6.2.0"),
        ])
        .differs("CLIENT itself is never paused, so that CLIENT UNPAUSE always works."),
    CommandSpec::new("reply", 3, clients::reply)
        .flags(QUIET)
        .group(CommandGroup::Connection, "3.2.0", O_1)
        .summary("Chooses whether commands are replied to.")
        .args(&[Arg::one_of(
            "on_off_skip",
            &[Arg::word("on", "ON"), Arg::word("off", "OFF"), Arg::word("skip", "SKIP")],
        )]),
    CommandSpec::new("setinfo", 4, clients::setinfo)
        .flags(QUIET)
        .group(CommandGroup::Connection, "7.2.0", O_1)
        .summary("Tells the server which library the client uses.")
        .args(&[Arg::one_of(
            "attr",
            &[Arg::string("libname").token("LIB-NAME"), Arg::string("libver").token("LIB-VER")],
        )]),
    CommandSpec::new("setname", 3, clients::setname)
        .flags(QUIET)
        .group(CommandGroup::Connection, "2.6.9", O_1)
        .summary("Names the connection.")
        .args(&[Arg::string("connection-name")]),
    CommandSpec::new("tracking", -3, tracking::tracking)
        .flags(QUIET)
        .group(CommandGroup::Connection, "6.0.0", "O(1). Some options may introduce additional complexity.")
        .summary("Chooses whether the connection is told when keys change that it keeps in a cache of its own.")
        .args(TRACKING)
        .differs("Of prefixes that overlap one another none is taken, whichever they are; keys that leave the server's table are told with NOLOOP, too."),
    CommandSpec::new("trackinginfo", 2, tracking::trackinginfo)
        .flags(QUIET)
        .group(CommandGroup::Connection, "6.2.0", O_1)
        .summary("Tells what the connection has asked for with CLIENT TRACKING."),
    CommandSpec::new("unblock", -3, clients::unblock)
        .flags(ADMIN | QUIET)
        .group(CommandGroup::Connection, "5.0.0", "O(log N) where N is the number of client connections")
        .summary("Ends the waiting of a client that waits in a command.")
        .args(&[
            Arg::int("client-id"),
            Arg::one_of("timeout_error", &[Arg::word("timeout", "TIMEOUT"), Arg::word("error", "ERROR")]).optional(),
        ]),
    CommandSpec::new("unpause", 2, clients::unpause)
        .flags(ADMIN | QUIET)
        .group(CommandGroup::Connection, "6.2.0", O_N_CLIENTS)
        .summary("Lets paused clients go on."),
];

static TRACKING: &[Arg] = &[
    Arg::one_of("status", &[Arg::word("on", "ON"), Arg::word("off", "OFF")]),
    Arg::int("client-id").token("REDIRECT").optional(),
    Arg::string("prefix").token("PREFIX").optional().multiple_token(),
    Arg::word("bcast", "BCAST").optional(),
    Arg::word("optin", "OPTIN").optional(),
    Arg::word("optout", "OPTOUT").optional(),
    Arg::word("noloop", "NOLOOP").optional(),
];

static ON_OFF: &[Arg] = &[Arg::one_of("enabled", &[Arg::word("on", "ON"), Arg::word("off", "OFF")])];

static CLIENT_TYPES: &[Arg] = &[
    Arg::word("normal", "NORMAL"),
    Arg::word("master", "MASTER"),
    Arg::word("replica", "REPLICA"),
    Arg::word("pubsub", "PUBSUB"),
];

static KILL: &[Arg] = &[Arg::one_of(
    "filter",
    &[
        Arg::string("ip:port"),
        Arg::one_of(
            "new-format",
            &[
                Arg::int("client-id").token("ID").optional(),
                Arg::one_of("client-type", CLIENT_TYPES).token("TYPE").optional(),
                Arg::string("username").token("USER").optional(),
                Arg::string("ip:port").token("ADDR").optional(),
                Arg::string("ip:port").token("LADDR").optional(),
                Arg::one_of("skipme", &[Arg::word("yes", "YES"), Arg::word("no", "NO")]).token("SKIPME").optional(),
                Arg::int("maxage").token("MAXAGE").optional(),
            ],
        )
        .multiple(),
    ],
)];
