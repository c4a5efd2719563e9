//! Specifications of what replicas say to their master.

use crate::cmd::replication;
use crate::table::*;

const SYNCS: Flags = NO_ASYNC_LOADING | ADMIN | NO_MULTI | NOSCRIPT;
/// How SYNC and PSYNC differ.
const ONE_FILE: &str = "There are no replicas: only a client that has said `REPLCONF rdb-only 1`, as `redis-cli --rdb` does, is sent the data, \
    as an RDB file, and its connection ends with it. At most four clients are sent files at a time; one that takes nothing for 60 s is closed.";

/// The specifications.
pub static SPECS: &[CommandSpec] = &[
    CommandSpec::new("psync", -3, replication::psync)
        .flags(SYNCS)
        .group(CommandGroup::Server, "2.8.0", "O(N) where N is the size of the data")
        .summary("Sends the client the data as a file.")
        .args(&[Arg::string("replicationid"), Arg::int("offset")])
        .differs(ONE_FILE),
    CommandSpec::new("replconf", -1, replication::replconf)
        .flags(ADMIN | NOSCRIPT | LOADING | STALE | ALLOW_BUSY)
        .group(CommandGroup::Server, "3.0.0", "O(1)")
        .summary("Says what the client wants of SYNC.")
        .differs("Of the options `rdb-only`, `rdb-filter-only` and `capa eof` have an effect."),
    CommandSpec::new("sync", 1, replication::sync)
        .flags(SYNCS)
        .group(CommandGroup::Server, "1.0.0", "O(N) where N is the size of the data")
        .summary("Sends the client the data as a file.")
        .differs(ONE_FILE),
];
