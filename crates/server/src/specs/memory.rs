//! Facts of the commands about memory.

use crate::cmd::introspect::help;
use crate::cmd::memory;
use crate::table::*;

const fn server(spec: CommandSpec, complexity: &'static str) -> CommandSpec {
    spec.group(CommandGroup::Server, "4.0.0", complexity)
}

/// The specifications.
pub static SPECS: &[CommandSpec] = &[server(CommandSpec::container("memory", MEMORY), "Depends on subcommand.")
    .summary("Container of commands about memory.")];

static MEMORY: &[CommandSpec] = &[
    server(CommandSpec::new("doctor", 2, memory::doctor), "O(1)")
        .summary("Says what could be better about the memory.")
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
    server(CommandSpec::new("help", 2, help), "O(1)").flags(LOADING | STALE).summary("Tells what the subcommands are."),
    server(CommandSpec::new("malloc-stats", 2, memory::malloc_stats), "O(1)")
        .summary("Tells the arena's figures.")
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
        .differs("There is no malloc: the arena's own figures."),
    server(CommandSpec::new("purge", 2, memory::purge), "Depends on how much memory is allocated, could be slow")
        .summary("Gives free memory back to the system.")
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    server(CommandSpec::new("stats", 2, memory::stats), "O(1)")
        .summary("Tells how memory is used.")
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
        .differs("Has figures of the arena and of saves besides."),
    server(CommandSpec::new("usage", -3, memory::usage), "O(N) where N is the number of samples.")
        .flags(READONLY)
        .keys(&[KeySpec::one(2, RO)])
        .summary("Tells how much memory a key takes.")
        .args(&[Arg::key("key"), Arg::int("count").token("SAMPLES").optional()])
        .differs("Exact; SAMPLES makes no difference."),
];
