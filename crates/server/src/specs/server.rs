//! Facts of the server commands: configuration, figures, persistence, logs.

use crate::cmd::introspect::help;
use crate::cmd::{config, debug, introspect, persistence, server as cmd_server};
use crate::table::*;

const OPERATOR: Flags = ADMIN | NOSCRIPT | LOADING | STALE;
const REPLICATION: Flags = NO_ASYNC_LOADING | ADMIN | NOSCRIPT | STALE;
const ON_MODULES: Flags = NO_ASYNC_LOADING | ADMIN | NOSCRIPT;
const NO_MODULES: &str = "Always an error: there are no modules.";
const O_1: &str = "O(1)";

const fn server(spec: CommandSpec, since: &'static str, complexity: &'static str) -> CommandSpec {
    spec.group(CommandGroup::Server, since, complexity)
}

const fn helps(since: &'static str) -> CommandSpec {
    server(CommandSpec::new("help", 2, help).flags(LOADING | STALE), since, O_1)
        .summary("Tells what the subcommands are.")
}

/// The specifications.
pub static SPECS: &[CommandSpec] = &[
    server(CommandSpec::new("bgrewriteaof", 1, persistence::bgrewriteaof), "1.0.0", O_1)
        .flags(NO_ASYNC_LOADING | ADMIN | NOSCRIPT)
        .summary("Saves an image in the background, which makes the log before it unnecessary.")
        .differs("The log is never rewritten: an image stands in for it."),
    server(CommandSpec::new("bgsave", -1, persistence::bgsave), "1.0.0", O_1)
        .flags(NO_ASYNC_LOADING | ADMIN | NOSCRIPT)
        .summary("Saves an image in the background.")
        .args(&[Arg::one_of(
            "operation",
            &[Arg::word("schedule", "SCHEDULE").since("3.2.2"), Arg::word("cancel", "CANCEL").since("8.1.0")],
        )
        .optional()])
        .differs("Inside MULTI the data is fixed at the end of the transaction, not later. CANCEL as in Valkey 8.1."),
    server(CommandSpec::container("command", COMMAND), "2.8.13", "O(N) where N is the total number of commands")
        .bare(introspect::command)
        .flags(LOADING | STALE | CONNECTION)
        .summary("Tells about all commands.")
        .tips(&["nondeterministic_output_order"]),
    server(CommandSpec::container("config", CONFIG), "2.0.0", "Depends on subcommand.")
        .summary("Container of commands about the configuration."),
    server(CommandSpec::new("debug", -2, debug::debug), "1.0.0", "Depends on subcommand.")
        .flags(OPERATOR | PROTECTED)
        .summary("Helps to test the server and to find faults.")
        .args(&[Arg::string("subcommand"), Arg::string("argument").multiple().optional()])
        .differs("Has DIGEST, DIGEST-VALUE, ERROR, LOADAOF, OBJECT, PAUSE-CRON, POPULATE, PROTOCOL, QUICKLIST-PACKED-THRESHOLD, RELOAD, SET-ACTIVE-EXPIRE, SET-DISABLE-DENY-SCRIPTS and SLEEP."),
    server(CommandSpec::new("info", -1, cmd_server::info), "1.0.0", O_1)
        .flags(LOADING | STALE | DANGEROUS)
        .summary("Tells figures of the server.")
        .args(&[Arg::string("section").multiple().optional()])
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
        .differs("Has further fields about saves, restores and the log of writes."),
    server(CommandSpec::new("lastsave", 1, persistence::lastsave), "1.0.0", O_1)
        .flags(LOADING | STALE | FAST | OPERATORS)
        .summary("Tells when the data was last saved.")
        .tips(&["nondeterministic_output"]),
    server(CommandSpec::container("latency", LATENCY), "2.8.13", "Depends on subcommand.")
        .summary("Container of commands about latency spikes."),
    server(CommandSpec::new("lolwut", -1, cmd_server::lolwut), "5.0.0", O_1)
        .flags(READONLY | FAST)
        .summary("Tells the version.")
        .args(&[Arg::int("version").token("VERSION").optional()])
        .differs("Draws nothing, whatever the version."),
    server(CommandSpec::container("module", MODULE), "4.0.0", "Depends on subcommand.")
        .summary("Container of commands about modules."),
    server(CommandSpec::new("replicaof", 3, cmd_server::replicaof), "5.0.0", O_1)
        .flags(REPLICATION)
        .summary("Has the server be a master, which it is.")
        .args(MASTER)
        .differs("Only with NO ONE: there is no replication."),
    server(CommandSpec::new("role", 1, cmd_server::role), "2.8.12", O_1)
        .flags(NOSCRIPT | LOADING | STALE | FAST | OPERATORS)
        .summary("Tells that the server is a master without replicas."),
    server(CommandSpec::new("save", 1, persistence::save), "1.0.0", "O(N) where N is the size of the data")
        .flags(NO_ASYNC_LOADING | ADMIN | NOSCRIPT | NO_MULTI)
        .summary("Saves an image while clients wait."),
    server(
        CommandSpec::new("shutdown", -1, persistence::shutdown),
        "1.0.0",
        "O(N) when saving, where N is the size of the data, otherwise O(1)",
    )
    .flags(OPERATOR | NO_MULTI | ALLOW_BUSY)
    .summary("Ends the server, after a save if there are save rules.")
    .args(&[
        Arg::one_of("save-selector", &[Arg::word("nosave", "NOSAVE"), Arg::word("save", "SAVE")]).optional(),
        Arg::word("now", "NOW").optional().since("7.0.0"),
        Arg::word("force", "FORCE").optional().since("7.0.0"),
        Arg::word("abort", "ABORT").optional().since("7.0.0"),
    ])
    .differs("There are no replicas to wait for, so NOW changes nothing and ABORT finds nothing to abort."),
    server(CommandSpec::new("slaveof", 3, cmd_server::replicaof), "1.0.0", O_1)
        .flags(REPLICATION)
        .summary("REPLICAOF by its former name.")
        .args(MASTER)
        .differs("Only with NO ONE: there is no replication."),
    server(CommandSpec::new("monitor", 1, cmd_server::monitor), "1.0.0", O_1)
        .flags(ADMIN | NOSCRIPT | LOADING | STALE)
        .summary("Shows each command that the server runs.")
        .differs("A client that does not read is closed by the limits of the class `pubsub`. Of a request the first MiB is shown."),
    server(CommandSpec::container("slowlog", SLOWLOG), "2.2.12", "Depends on subcommand.")
        .summary("Container of commands about the log of slow commands."),
    server(CommandSpec::new("time", 1, cmd_server::time), "2.6.0", O_1)
        .flags(LOADING | STALE | FAST)
        .summary("Tells the server's time.")
        .tips(&["nondeterministic_output"]),
];

static COMMAND: &[CommandSpec] = &[
    server(CommandSpec::new("count", 2, introspect::count), "2.8.13", O_1)
        .flags(LOADING | STALE | CONNECTION)
        .summary("Tells how many commands there are."),
    server(
        CommandSpec::new("docs", -2, introspect::docs),
        "7.0.0",
        "O(N) where N is the number of commands to look up",
    )
    .flags(LOADING | STALE | CONNECTION)
    .summary("Tells what commands do and take.")
    .args(&[Arg::string("command-name").multiple().optional()])
    .tips(&["nondeterministic_output_order"]),
    server(
        CommandSpec::new("getkeys", -4, introspect::getkeys),
        "2.8.13",
        "O(N) where N is the number of arguments to the command",
    )
    .flags(LOADING | STALE | CONNECTION)
    .summary("Tells which words of a command are keys.")
    .args(FULL_COMMAND),
    server(
        CommandSpec::new("getkeysandflags", -4, introspect::getkeysandflags),
        "7.0.0",
        "O(N) where N is the number of arguments to the command",
    )
    .flags(LOADING | STALE | CONNECTION)
    .summary("Tells which words of a command are keys, and what is done with them.")
    .args(FULL_COMMAND),
    helps("5.0.0").flags(LOADING | STALE | CONNECTION),
    server(
        CommandSpec::new("info", -2, introspect::info),
        "2.8.13",
        "O(N) where N is the number of commands to look up",
    )
    .flags(LOADING | STALE | CONNECTION)
    .summary("Tells about commands in the form of COMMAND.")
    .args(&[Arg::string("command-name").multiple().optional()])
    .tips(&["nondeterministic_output_order"]),
    server(CommandSpec::new("list", -2, introspect::list), "7.0.0", "O(N) where N is the total number of commands")
        .flags(LOADING | STALE | CONNECTION)
        .summary("Tells the names of commands.")
        .args(&[Arg::one_of(
            "filterby",
            &[
                Arg::string("module-name").token("MODULE"),
                Arg::string("category").token("ACLCAT"),
                Arg::pattern("pattern").token("PATTERN"),
            ],
        )
        .token("FILTERBY")
        .optional()])
        .tips(&["nondeterministic_output_order"]),
];

static FULL_COMMAND: &[Arg] = &[Arg::string("command"), Arg::string("arg").multiple().optional()];

static CONFIG: &[CommandSpec] = &[
    server(
        CommandSpec::new("get", -3, config::get),
        "2.0.0",
        "O(N) when N is the number of configuration parameters provided",
    )
    .flags(OPERATOR)
    .summary("Tells the values of directives.")
    .args(&[Arg::block("parameter", &[Arg::string("parameter")]).multiple()]),
    helps("5.0.0"),
    server(CommandSpec::new("resetstat", 2, config::resetstat), "2.0.0", O_1)
        .flags(OPERATOR)
        .summary("Sets the counters of INFO to zero."),
    server(CommandSpec::new("rewrite", 2, config::rewrite), "2.8.0", O_1)
        .flags(OPERATOR)
        .summary("Writes the configuration to its file."),
    server(
        CommandSpec::new("set", -4, config::set),
        "2.0.0",
        "O(N) when N is the number of configuration parameters provided",
    )
    .flags(OPERATOR)
    .summary("Changes directives, all of them or none.")
    .differs("Takes the directives, too, that a configuration file may have without an effect, and for one that cannot change the value that it has.")
    .args(&[Arg::block("parameter_value", &[Arg::string("parameter"), Arg::string("value")]).multiple()])
    .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
];

const TOLD_BY_EACH: &[&str] = &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"];

static LATENCY: &[CommandSpec] = &[
    server(CommandSpec::new("doctor", 2, cmd_server::latency_doctor), "2.8.13", O_1)
        .flags(OPERATOR)
        .summary("Tells what the spikes say.")
        .tips(TOLD_BY_EACH)
        .differs("The report is Quire's own."),
    server(CommandSpec::new("graph", 3, cmd_server::latency_graph), "2.8.13", O_1)
        .flags(OPERATOR)
        .summary("Draws the last spikes of an event.")
        .args(&[Arg::string("event")])
        .tips(TOLD_BY_EACH),
    helps("2.8.13"),
    server(
        CommandSpec::new("histogram", -2, cmd_server::latency_histogram),
        "7.0.0",
        "O(N) where N is the number of commands with latency information being retrieved.",
    )
    .flags(OPERATOR)
    .summary("Tells how long runs of commands took, in ranges that double.")
    .args(&[Arg::string("command").multiple().optional()])
    .tips(TOLD_BY_EACH),
    server(CommandSpec::new("history", 3, cmd_server::latency_history), "2.8.13", O_1)
        .flags(OPERATOR)
        .summary("Tells the last spikes of an event.")
        .args(&[Arg::string("event")])
        .tips(TOLD_BY_EACH),
    server(CommandSpec::new("latest", 2, cmd_server::latency_latest), "2.8.13", O_1)
        .flags(OPERATOR)
        .summary("Tells the last and the worst spike of every event.")
        .tips(TOLD_BY_EACH)
        .differs("Events: `command`, `fast-command`, `expire-cycle`, `eviction-cycle` and `cut`."),
    server(CommandSpec::new("reset", -2, cmd_server::latency_reset), "2.8.13", O_1)
        .flags(OPERATOR)
        .summary("Forgets spikes.")
        .args(&[Arg::string("event").multiple().optional()])
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
];

static MASTER: &[Arg] = &[Arg::one_of(
    "args",
    &[
        Arg::block("host-port", &[Arg::string("host"), Arg::int("port")]),
        Arg::block("no-one", &[Arg::word("no", "NO"), Arg::word("one", "ONE")]),
    ],
)];

static MODULE: &[CommandSpec] = &[
    helps("5.0.0"),
    server(
        CommandSpec::new("list", 2, cmd_server::module_list),
        "4.0.0",
        "O(N) where N is the number of loaded modules.",
    )
    .flags(ADMIN | NOSCRIPT)
    .summary("Tells the modules: none.")
    .tips(&["nondeterministic_output_order"]),
    server(CommandSpec::new("load", -3, cmd_server::module_load), "4.0.0", O_1)
        .flags(ON_MODULES)
        .summary("Loads a module.")
        .args(&[Arg::string("path"), Arg::string("arg").multiple().optional()])
        .differs(NO_MODULES),
    server(CommandSpec::new("loadex", -3, cmd_server::module_load), "7.0.0", O_1)
        .flags(ON_MODULES)
        .summary("Loads a module with values for its directives.")
        .args(&[
            Arg::string("path"),
            Arg::block("configs", &[Arg::string("name"), Arg::string("value")])
                .token("CONFIG")
                .optional()
                .multiple_token(),
            Arg::block("args", &[Arg::string("arg")]).token("ARGS").multiple().optional(),
        ])
        .differs(NO_MODULES),
    server(CommandSpec::new("unload", 3, cmd_server::module_unload), "4.0.0", O_1)
        .flags(ON_MODULES)
        .summary("Unloads a module.")
        .args(&[Arg::string("name")])
        .differs(NO_MODULES),
];

static SLOWLOG: &[CommandSpec] = &[
    server(
        CommandSpec::new("get", -2, cmd_server::slowlog_get),
        "2.2.12",
        "O(N) where N is the number of entries returned",
    )
    .flags(ADMIN | LOADING | STALE)
    .summary("Tells the last slow commands.")
    .args(&[Arg::int("count").optional()])
    .tips(&["request_policy:all_nodes", "nondeterministic_output"]),
    helps("6.2.0"),
    server(CommandSpec::new("len", 2, cmd_server::slowlog_len), "2.2.12", O_1)
        .flags(ADMIN | LOADING | STALE)
        .summary("Tells how many slow commands are kept.")
        .tips(&["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"]),
    server(
        CommandSpec::new("reset", 2, cmd_server::slowlog_reset),
        "2.2.12",
        "O(N) where N is the number of entries in the slowlog",
    )
    .flags(ADMIN | LOADING | STALE)
    .summary("Forgets slow commands.")
    .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
];
