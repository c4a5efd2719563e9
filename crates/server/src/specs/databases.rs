//! Facts of the commands about whole databases.

use crate::cmd::databases;
use crate::ctx::Handler;
use crate::table::*;

const FLUSH: &[Arg] =
    &[Arg::one_of("async", &[Arg::word("async", "ASYNC").since("4.0.0"), Arg::word("sync", "SYNC").since("6.2.0")])
        .optional()];

const fn flushes(name: &'static str, handler: Handler, complexity: &'static str) -> CommandSpec {
    CommandSpec::new(name, -1, handler)
        .flags(WRITE | DANGEROUS | KEYSPACE)
        .group(CommandGroup::Server, "1.0.0", complexity)
        .args(FLUSH)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .differs("Memory is always freed afterwards, in steps between commands.")
}

/// The specifications.
pub static SPECS: &[CommandSpec] = &[
    CommandSpec::new("dbsize", 1, databases::dbsize)
        .flags(READONLY | FAST | KEYSPACE)
        .group(CommandGroup::Server, "1.0.0", "O(1)")
        .summary("Tells how many keys the database has.")
        .tips(&["request_policy:all_shards", "response_policy:agg_sum"]),
    flushes("flushall", databases::flushall, "O(N) where N is the total number of keys in all databases")
        .summary("Deletes all keys of all databases."),
    flushes("flushdb", databases::flushdb, "O(N) where N is the number of keys in the selected database")
        .summary("Deletes all keys of the database."),
    CommandSpec::new("select", 2, databases::select)
        .flags(LOADING | STALE | FAST)
        .group(CommandGroup::Connection, "1.0.0", "O(1)")
        .summary("Chooses the connection's database.")
        .args(&[Arg::int("index")]),
    CommandSpec::new("swapdb", 3, databases::swapdb)
        .flags(WRITE | FAST | DANGEROUS | KEYSPACE)
        .group(
            CommandGroup::Server,
            "4.0.0",
            "O(N) where N is the count of clients watching or blocking on keys from both databases.",
        )
        .summary("Exchanges two databases.")
        .args(&[Arg::int("index1"), Arg::int("index2")]),
];
