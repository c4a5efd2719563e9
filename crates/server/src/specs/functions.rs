//! Specifications of the commands on functions.

use crate::cmd::functions;
use crate::table::*;

const CALL: Flags = NOSCRIPT | STALE | SKIP_MONITOR | NO_MANDATORY_KEYS;
const KEYS: &[KeySpec] = &[KeySpec::counted(2, RW | ACCESS | UPDATE)];
const KEYS_RO: &[KeySpec] = &[KeySpec::counted(2, RO | ACCESS)];
const COMPLEXITY: &str = "Depends on the function that is executed.";
const ALL_SHARDS: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];
const ARGS: &[Arg] = &[
    Arg::string("function"),
    Arg::int("numkeys"),
    Arg::key("key").optional().multiple(),
    Arg::string("arg").optional().multiple(),
];

const fn subcommand(spec: CommandSpec, complexity: &'static str) -> CommandSpec {
    spec.group(CommandGroup::Scripting, "7.0.0", complexity)
}

static SUBCOMMANDS: &[CommandSpec] = &[
    subcommand(CommandSpec::new("delete", 3, functions::delete), "O(1)")
        .flags(NOSCRIPT | WRITE)
        .tips(ALL_SHARDS)
        .summary("Deletes a library and its functions.")
        .args(&[Arg::string("library-name")]),
    subcommand(CommandSpec::new("dump", 2, functions::dump), "O(N) where N is the number of functions")
        .flags(NOSCRIPT)
        .summary("Dumps all libraries into a serialized binary payload."),
    subcommand(CommandSpec::new("flush", -2, functions::flush), "O(N) where N is the number of functions deleted")
        .flags(NOSCRIPT | WRITE)
        .tips(ALL_SHARDS)
        .summary("Deletes all libraries and functions.")
        .args(&[Arg::one_of("async", &[Arg::word("async", "ASYNC"), Arg::word("sync", "SYNC")]).optional()]),
    subcommand(CommandSpec::new("help", 2, functions::help), "O(1)")
        .flags(LOADING | STALE)
        .summary("Shows what the subcommands do."),
    subcommand(CommandSpec::new("kill", 2, functions::kill), "O(1)")
        .flags(NOSCRIPT | ALLOW_BUSY | NEVER_PAUSED)
        .tips(&["request_policy:all_shards", "response_policy:one_succeeded"])
        .summary("Ends the function that is running, if it has not written."),
    subcommand(CommandSpec::new("list", -2, functions::list), "O(N) where N is the number of functions")
        .flags(NOSCRIPT)
        .tips(&["nondeterministic_output_order"])
        .summary("Shows libraries and their functions.")
        .args(&[
            Arg::string("library-name-pattern").token("LIBRARYNAME").optional(),
            Arg::word("withcode", "WITHCODE").optional(),
        ]),
    subcommand(CommandSpec::new("load", -3, functions::load), "O(1) (considering compilation time is redundant)")
        .flags(NOSCRIPT | WRITE | DENYOOM)
        .tips(ALL_SHARDS)
        .summary("Loads a library, which is kept with the data.")
        .args(&[Arg::word("replace", "REPLACE").optional(), Arg::string("function-code")])
        .differs("The interpreter of all libraries takes at most script-max-memory."),
    subcommand(
        CommandSpec::new("restore", -3, functions::restore),
        "O(N) where N is the number of functions on the payload",
    )
    .flags(NOSCRIPT | WRITE | DENYOOM)
    .tips(ALL_SHARDS)
    .summary("Brings back all libraries of a payload.")
    .args(&[
        Arg::string("serialized-value"),
        Arg::one_of(
            "policy",
            &[Arg::word("flush", "FLUSH"), Arg::word("append", "APPEND"), Arg::word("replace", "REPLACE")],
        )
        .optional(),
    ]),
    subcommand(CommandSpec::new("stats", 2, functions::stats), "O(1)")
        .flags(NOSCRIPT | ALLOW_BUSY)
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
        .summary("Shows which function is running, and how many there are."),
];

/// The specifications.
pub static SPECS: &[CommandSpec] = &[
    CommandSpec::new("fcall", -3, functions::fcall)
        .flags(CALL | MAY_WRITE)
        .keys(KEYS)
        .group(CommandGroup::Scripting, "7.0.0", COMPLEXITY)
        .summary("Calls a function.")
        .args(ARGS),
    CommandSpec::new("fcall_ro", -3, functions::fcall_ro)
        .flags(CALL | READONLY)
        .keys(KEYS_RO)
        .group(CommandGroup::Scripting, "7.0.0", COMPLEXITY)
        .summary("Calls a function that may not write.")
        .args(ARGS),
    CommandSpec::container("function", SUBCOMMANDS)
        .group(CommandGroup::Scripting, "7.0.0", "Depends on subcommand.")
        .summary("A container for commands on functions."),
];
