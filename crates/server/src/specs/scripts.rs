//! Specifications of the scripting commands.

use crate::cmd::scripts;
use crate::table::*;

const SCRIPT: Flags = NOSCRIPT | STALE | SKIP_MONITOR | NO_MANDATORY_KEYS;
const SCRIPT_RO: Flags = SCRIPT | READONLY;
const KEYS: &[KeySpec] = &[KeySpec::counted(2, RW | ACCESS | UPDATE)];
const KEYS_RO: &[KeySpec] = &[KeySpec::counted(2, RO | ACCESS)];
const COMPLEXITY: &str = "Depends on the script that is executed.";
const TEXT_ARGS: &[Arg] = &[
    Arg::string("script"),
    Arg::int("numkeys"),
    Arg::key("key").optional().multiple(),
    Arg::string("arg").optional().multiple(),
];
const DIGEST_ARGS: &[Arg] = &[
    Arg::string("sha1"),
    Arg::int("numkeys"),
    Arg::key("key").optional().multiple(),
    Arg::string("arg").optional().multiple(),
];

const fn subcommand(spec: CommandSpec, since: &'static str, complexity: &'static str) -> CommandSpec {
    spec.group(CommandGroup::Scripting, since, complexity)
}

static SUBCOMMANDS: &[CommandSpec] = &[
    subcommand(CommandSpec::new("debug", 3, scripts::debug), "3.2.0", "O(1)")
        .flags(NOSCRIPT)
        .summary("Sets the debug mode of server-side Lua scripts.")
        .args(&[Arg::one_of("mode", &[Arg::word("yes", "YES"), Arg::word("sync", "SYNC"), Arg::word("no", "NO")])])
        .differs("Only NO is taken: there is no debugger."),
    subcommand(
        CommandSpec::new("exists", -3, scripts::exists),
        "2.6.0",
        "O(N) with N being the number of scripts to check (so checking a single script is an O(1) operation).",
    )
    .flags(NOSCRIPT)
    .tips(&["request_policy:all_shards", "response_policy:agg_logical_and"])
    .summary("Tells which scripts are known.")
    .args(&[Arg::string("sha1").multiple()]),
    subcommand(
        CommandSpec::new("flush", -2, scripts::flush),
        "2.6.0",
        "O(N) with N being the number of scripts in cache",
    )
    .flags(NOSCRIPT)
    .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
    .summary("Forgets all scripts.")
    .args(&[Arg::one_of("async", &[Arg::word("async", "ASYNC"), Arg::word("sync", "SYNC")]).optional().since("6.2.0")]),
    subcommand(CommandSpec::new("help", 2, scripts::help), "5.0.0", "O(1)")
        .flags(LOADING | STALE)
        .summary("Shows what the subcommands do."),
    subcommand(CommandSpec::new("kill", 2, scripts::kill), "2.6.0", "O(1)")
        .flags(NOSCRIPT | ALLOW_BUSY | NEVER_PAUSED)
        .tips(&["request_policy:all_shards", "response_policy:one_succeeded"])
        .summary("Ends the script that is running, if it has not written."),
    subcommand(
        CommandSpec::new("load", 3, scripts::load),
        "2.6.0",
        "O(N) with N being the length in bytes of the script body.",
    )
    .flags(NOSCRIPT | STALE)
    .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
    .summary("Keeps a script without running it.")
    .args(&[Arg::string("script")]),
];

/// The specifications.
pub static SPECS: &[CommandSpec] = &[
    CommandSpec::new("eval", -3, scripts::eval)
        .flags(SCRIPT | MAY_WRITE)
        .keys(KEYS)
        .group(CommandGroup::Scripting, "2.6.0", COMPLEXITY)
        .summary("Runs a script.")
        .args(TEXT_ARGS)
        .differs(
            "A script takes at most script-max-memory. After 500 newer ones a script that only EVAL has brought is \
             forgotten, as in Redis 7.4.",
        ),
    CommandSpec::new("eval_ro", -3, scripts::eval_ro)
        .flags(SCRIPT_RO)
        .keys(KEYS_RO)
        .group(CommandGroup::Scripting, "7.0.0", COMPLEXITY)
        .summary("Runs a script that may not write.")
        .args(TEXT_ARGS),
    CommandSpec::new("evalsha", -3, scripts::evalsha)
        .flags(SCRIPT | MAY_WRITE)
        .keys(KEYS)
        .group(CommandGroup::Scripting, "2.6.0", COMPLEXITY)
        .summary("Runs a script that is known by its digest.")
        .args(DIGEST_ARGS),
    CommandSpec::new("evalsha_ro", -3, scripts::evalsha_ro)
        .flags(SCRIPT_RO)
        .keys(KEYS_RO)
        .group(CommandGroup::Scripting, "7.0.0", COMPLEXITY)
        .summary("Runs a script that is known by its digest and may not write.")
        .args(DIGEST_ARGS),
    CommandSpec::container("script", SUBCOMMANDS)
        .group(CommandGroup::Scripting, "2.6.0", "Depends on subcommand.")
        .summary("A container for commands on scripts."),
];
