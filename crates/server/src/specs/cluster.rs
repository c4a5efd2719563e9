//! Specifications of the commands on clusters, all of which say that this server is in none.

use crate::cmd::cluster::refuse;
use crate::table::*;

const CHANGES: Flags = NO_ASYNC_LOADING | ADMIN | STALE;
const HERE: Flags = FAST | LOADING | STALE | CONNECTION;
const O_1: &str = "O(1)";
const O_NODES: &str = "O(N) where N is the total number of nodes.";
const O_SLOTS: &str = "O(N) where N is the number of slots.";
const CHANGING: &[&str] = &["nondeterministic_output"];
const SLOT: Arg = Arg::int("slot");
const SLOT_RANGE: Arg = Arg::block("start-slot_end-slot", &[Arg::int("start-slot"), Arg::int("end-slot")]);
const NODE: Arg = Arg::string("node-id");
const SETSLOT: Arg = Arg::one_of(
    "subcommand",
    &[
        Arg::string("node-id").token("IMPORTING"),
        Arg::string("node-id").token("MIGRATING"),
        Arg::string("node-id").token("NODE"),
        Arg::word("stable", "STABLE"),
    ],
);
const REFUSED: &str = "Replies that there is no cluster, as Redis does outside of one.";

const fn cluster(name: &'static str, arity: i16, since: &'static str, complexity: &'static str) -> CommandSpec {
    CommandSpec::new(name, arity, refuse).group(CommandGroup::Cluster, since, complexity).differs(REFUSED)
}

/// The specifications.
#[rustfmt::skip] // a line each
pub static SPECS: &[CommandSpec] = &[
    cluster("asking", 1, "3.0.0", O_1).flags(FAST | CONNECTION).summary("Has the next command served though its slot is on its way here."),
    CommandSpec::container("cluster", SUBCOMMANDS)
        .group(CommandGroup::Cluster, "3.0.0", "Depends on subcommand.")
        .summary("Container of commands about clusters."),
    cluster("readonly", 1, "3.0.0", O_1).flags(HERE).summary("Has a replica serve reads."),
    cluster("readwrite", 1, "3.0.0", O_1).flags(HERE).summary("Ends what READONLY began."),
];

#[rustfmt::skip] // a line each
static SUBCOMMANDS: &[CommandSpec] = &[
    cluster("addslots", -3, "3.0.0", O_SLOTS).flags(CHANGES).summary("Takes slots over.").args(&[SLOT.multiple()]),
    cluster("addslotsrange", -4, "7.0.0", O_SLOTS).flags(CHANGES).summary("Takes ranges of slots over.").args(&[SLOT_RANGE.multiple()]),
    cluster("bumpepoch", 2, "3.0.0", O_1).flags(CHANGES).summary("Raises the epoch of the configuration.").tips(CHANGING),
    cluster("count-failure-reports", 3, "3.0.0", "O(N) where N is the number of failure reports.").flags(ADMIN | STALE).summary("Tells how many nodes call a node failed.").args(&[NODE]).tips(CHANGING),
    cluster("countkeysinslot", 3, "3.0.0", O_1).flags(STALE).summary("Tells how many keys a slot has.").args(&[SLOT]),
    cluster("delslots", -3, "3.0.0", O_SLOTS).flags(CHANGES).summary("Gives slots up.").args(&[SLOT.multiple()]),
    cluster("delslotsrange", -4, "7.0.0", O_SLOTS).flags(CHANGES).summary("Gives ranges of slots up.").args(&[SLOT_RANGE.multiple()]),
    cluster("failover", -2, "3.0.0", O_1).flags(CHANGES).summary("Has a replica take its master's place.").args(&[Arg::one_of("options", &[Arg::word("force", "FORCE"), Arg::word("takeover", "TAKEOVER")]).optional()]),
    cluster("flushslots", 2, "3.0.0", O_1).flags(CHANGES).summary("Gives all slots up."),
    cluster("forget", 3, "3.0.0", O_1).flags(CHANGES).summary("Takes a node out of the cluster.").args(&[NODE]),
    cluster("getkeysinslot", 4, "3.0.0", "O(N) where N is the number of requested keys.").flags(STALE).summary("Returns names of keys of a slot.").args(&[SLOT, Arg::int("count")]).tips(CHANGING),
    cluster("help", 2, "5.0.0", O_1).flags(LOADING | STALE).summary("Tells what the subcommands are."),
    cluster("info", 2, "3.0.0", O_1).flags(STALE).summary("Tells the state of the node.").tips(CHANGING),
    cluster("keyslot", 3, "3.0.0", "O(N) where N is the number of bytes in the key.").flags(STALE).summary("Tells the slot of a key.").args(&[Arg::string("key")]),
    cluster("links", 2, "7.0.0", O_NODES).flags(STALE).summary("Tells the connections to other nodes.").tips(CHANGING),
    cluster("meet", -4, "3.0.0", O_1).flags(CHANGES).summary("Makes a node part of the cluster.").args(&[Arg::string("ip"), Arg::int("port"), Arg::int("cluster_bus_port").optional().since("4.0.0")]),
    cluster("myid", 2, "3.0.0", O_1).flags(STALE).summary("Tells the node's identifier."),
    cluster("nodes", 2, "3.0.0", O_NODES).flags(STALE).summary("Tells the nodes.").tips(CHANGING),
    cluster("replicas", 3, "5.0.0", O_1).flags(ADMIN | STALE).summary("Tells the replicas of a node.").args(&[NODE]).tips(CHANGING),
    cluster("replicate", 3, "3.0.0", O_1).flags(CHANGES).summary("Makes the node a replica of another.").args(&[NODE]),
    cluster("reset", -2, "3.0.0", "O(N) where N is the number of known nodes.").flags(ADMIN | STALE | NOSCRIPT).summary("Makes the node what it was before it came to the cluster.").args(&[Arg::one_of("hard_soft", &[Arg::word("hard", "HARD"), Arg::word("soft", "SOFT")]).optional()]),
    cluster("saveconfig", 2, "3.0.0", O_1).flags(CHANGES).summary("Writes the configuration of the cluster to its file."),
    cluster("set-config-epoch", 3, "3.0.0", O_1).flags(CHANGES).summary("Sets the epoch of the configuration of a new node.").args(&[Arg::int("config-epoch")]),
    cluster("setslot", -4, "3.0.0", O_1).flags(CHANGES).summary("Gives a slot to a node.").args(&[SLOT, SETSLOT]),
    cluster("shards", 2, "7.0.0", O_NODES).flags(STALE).summary("Tells which nodes have which slots.").tips(CHANGING),
    cluster("slaves", 3, "3.0.0", O_1).flags(ADMIN | STALE).summary("Tells the replicas of a node.").args(&[NODE]).tips(CHANGING),
    cluster("slots", 2, "3.0.0", O_NODES).flags(STALE).summary("Tells which nodes have which slots.").tips(CHANGING),
];
