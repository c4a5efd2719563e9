//! Specifications of the commands on streams.

use crate::cmd::{
    introspect, stream_claims as claims, stream_groups as groups, stream_info as info, stream_reads as reads, streams,
};
use crate::key_uses;
use crate::table::*;

const O_1: &str = "O(1)";
const O_RANGE: &str = "O(N) with N being the number of elements being returned. If N is constant (e.g. always asking for the first 10 elements with COUNT), you can consider it O(1).";
const O_TRIM: &str = "O(N), with N being the number of evicted entries. Constant times are very small however, since entries are organized in macro nodes containing multiple entries that can be released with a single deallocation.";

const TRIM: &str = "As in Redis it is one step, in which nodes are freed one by one.";
const INACTIVE: &str =
    "DUMP, MIGRATE and RDB files have the form of Redis 7.0, without the active time: behind them it is the seen time.";
const NODES: &str = "radix-tree-nodes is the number of nodes with entries and one more. DUMP, MIGRATE and RDB files have the form of Redis 7.0, without active-time: behind them it is seen-time.";
const WAITS: &str = "A client that waited is given the entries of all its streams that have any, as by Redis 7.2; XGROUP SETID wakes it, too.";

const KEY: Arg = Arg::key("key");
const GROUP: Arg = Arg::string("group");
const GROUP_NAME: Arg = Arg::string("groupname");
const CONSUMER: Arg = Arg::string("consumer");
const ID: Arg = Arg::string("id");
const COUNT: Arg = Arg::int("count").token("COUNT").optional();
const RANGE: &[Arg] = &[KEY, Arg::string("start"), Arg::string("end"), COUNT];
const STRATEGY: Arg =
    Arg::one_of("strategy", &[Arg::word("maxlen", "MAXLEN"), Arg::word("minid", "MINID").since("6.2.0")]);
const OPERATOR: Arg = Arg::one_of("operator", &[Arg::word("equal", "="), Arg::word("approximately", "~")]).optional();
const LIMIT: Arg = Arg::int("count").token("LIMIT").optional().since("6.2.0");
const TRIMMED: &[Arg] = &[STRATEGY, OPERATOR, Arg::string("threshold"), LIMIT];
const ID_OR_NEW: Arg = Arg::one_of("id", &[ID, Arg::word("new_id", "$")]);
const READ: Arg = Arg::int("entries_read").token("ENTRIESREAD").optional();
const STREAMS: Arg = Arg::block("streams", &[KEY.multiple(), ID.multiple()]).token("STREAMS");
const BLOCK: Arg = Arg::int("milliseconds").token("BLOCK").optional();

const LOOK: &[KeySpec] = &[KeySpec::one(1, RO)];
const READS: &[KeySpec] = &[KeySpec::one(1, RO | ACCESS)];
const SUB_READS: &[KeySpec] = &[KeySpec::one(2, RO | ACCESS)];
const UPDATES: &[KeySpec] = &[KeySpec::one(1, RW | UPDATE)];
const DELETES: &[KeySpec] = &[KeySpec::one(1, RW | DELETE)];
const SUB_DELETES: &[KeySpec] = &[KeySpec::one(2, RW | DELETE)];
const SUB_INSERTS: &[KeySpec] = &[KeySpec::one(2, RW | INSERT)];
const NONDETERMINISTIC: &[&str] = &["nondeterministic_output"];

const fn stream(spec: CommandSpec, since: &'static str, complexity: &'static str) -> CommandSpec {
    spec.group(CommandGroup::Stream, since, complexity)
}

static XGROUP: &[CommandSpec] = &[
    stream(CommandSpec::new("create", -5, groups::create), "5.0.0", O_1)
        .flags(WRITE | DENYOOM)
        .keys(SUB_INSERTS)
        .summary("Makes a group.")
        .args(&[KEY, GROUP_NAME, ID_OR_NEW, Arg::word("mkstream", "MKSTREAM").optional(), READ]),
    stream(CommandSpec::new("createconsumer", 5, groups::create_consumer), "6.2.0", O_1)
        .flags(WRITE | DENYOOM)
        .keys(SUB_INSERTS)
        .summary("Makes a consumer of a group.")
        .args(&[KEY, GROUP_NAME, Arg::string("consumername")]),
    stream(CommandSpec::new("delconsumer", 5, groups::delete_consumer), "5.0.0", O_1)
        .flags(WRITE)
        .keys(SUB_DELETES)
        .summary("Deletes a consumer of a group, with what is pending for it.")
        .args(&[KEY, GROUP_NAME, Arg::string("consumername")]),
    stream(
        CommandSpec::new("destroy", 4, groups::destroy),
        "5.0.0",
        "O(N) where N is the number of entries in the group's pending entries list (PEL).",
    )
    .flags(WRITE)
    .keys(SUB_DELETES)
    .summary("Deletes a group.")
    .args(&[KEY, GROUP_NAME]),
    stream(CommandSpec::new("help", 2, introspect::help), "5.0.0", O_1).flags(LOADING | STALE).summary("Shows help."),
    stream(CommandSpec::new("setid", -5, groups::set_id), "5.0.0", O_1)
        .flags(WRITE)
        .keys(&[KeySpec::one(2, RW | UPDATE)])
        .summary("Says which entry a group has delivered last.")
        .args(&[KEY, GROUP_NAME, ID_OR_NEW, READ]),
];

static XINFO: &[CommandSpec] = &[
    stream(CommandSpec::new("consumers", 4, info::consumers), "5.0.0", O_1)
        .flags(READONLY)
        .keys(SUB_READS)
        .differs(INACTIVE)
        .summary("Returns the consumers of a group.")
        .args(&[KEY, GROUP_NAME])
        .tips(NONDETERMINISTIC),
    stream(CommandSpec::new("groups", 3, info::groups), "5.0.0", O_1)
        .flags(READONLY)
        .keys(SUB_READS)
        .summary("Returns the groups of a stream.")
        .args(&[KEY]),
    stream(CommandSpec::new("help", 2, introspect::help), "5.0.0", O_1).flags(LOADING | STALE).summary("Shows help."),
    stream(CommandSpec::new("stream", -3, info::stream), "5.0.0", O_1)
        .flags(READONLY)
        .keys(SUB_READS)
        .differs(NODES)
        .summary("Returns what a stream says of itself.")
        .args(&[KEY, Arg::block("full", &[COUNT]).token("FULL").optional()]),
];

/// The specifications.
pub static SPECS: &[CommandSpec] = &[
    stream(CommandSpec::new("xack", -4, groups::xack), "5.0.0", "O(1) for each message ID processed.").flags(WRITE | FAST).keys(UPDATES).summary("Acknowledges entries, which are not pending any more.").args(&[KEY, GROUP, ID.multiple()]),
    stream(CommandSpec::new("xadd", -5, streams::xadd), "5.0.0", "O(1) when adding a new entry, O(N) when trimming where N being the number of entries evicted.").flags(WRITE | DENYOOM | FAST).keys(UPDATES).differs(TRIM).summary("Adds an entry.")
        .args(&[
            KEY,
            Arg::word("nomkstream", "NOMKSTREAM").optional().since("6.2.0"),
            Arg::block("trim", TRIMMED).optional(),
            Arg::one_of("id_or_auto", &[Arg::word("auto_id", "*"), ID]),
            Arg::block("field_value", &[Arg::string("field"), Arg::string("value")]).multiple(),
        ])
        .tips(NONDETERMINISTIC),
    stream(CommandSpec::new("xautoclaim", -6, claims::xautoclaim), "6.2.0", "O(1) if COUNT is small.").flags(WRITE | FAST).keys(&[KeySpec::one(1, RW | DELETE)]).summary("Has a consumer take over entries that have been pending for long.")
        .args(&[KEY, GROUP, CONSUMER, Arg::string("min-idle-time"), Arg::string("start"), COUNT, Arg::word("justid", "JUSTID").optional()]).tips(NONDETERMINISTIC),
    stream(CommandSpec::new("xclaim", -6, claims::xclaim), "5.0.0", "O(log N) with N being the number of messages in the PEL of the consumer group.").flags(WRITE | FAST).keys(UPDATES).summary("Has a consumer take over pending entries.")
        .args(&[
            KEY,
            GROUP,
            CONSUMER,
            Arg::string("min-idle-time"),
            ID.multiple(),
            Arg::int("ms").token("IDLE").optional(),
            Arg::unix_time("unix-time-milliseconds").token("TIME").optional(),
            Arg::int("count").token("RETRYCOUNT").optional(),
            Arg::word("force", "FORCE").optional(),
            Arg::word("justid", "JUSTID").optional(),
            Arg::string("id").token("LASTID").optional(),
        ])
        .tips(NONDETERMINISTIC),
    stream(CommandSpec::new("xdel", -3, streams::xdel), "5.0.0", "O(1) for each single item to delete in the stream, regardless of the stream size.").flags(WRITE | FAST).keys(DELETES).summary("Deletes entries.").args(&[KEY, ID.multiple()]),
    stream(CommandSpec::container("xgroup", XGROUP), "5.0.0", "Depends on subcommand.").summary("Container of commands about the groups of a stream."),
    stream(CommandSpec::container("xinfo", XINFO), "5.0.0", "Depends on subcommand.").summary("Container of commands about what a stream is."),
    stream(CommandSpec::new("xlen", 2, streams::xlen), "5.0.0", O_1).flags(READONLY | FAST).keys(LOOK).summary("Returns the number of entries.").args(&[KEY]),
    stream(CommandSpec::new("xpending", -3, groups::xpending), "5.0.0", "O(N) with N being the number of elements returned, so asking for a small fixed number of entries per call is O(1). O(M), where M is the total number of entries scanned when used with the IDLE filter. When the command returns just the summary and the list of consumers is small, it runs in O(1) time; otherwise, an additional O(N) time for iterating every consumer.").flags(READONLY).keys(READS).summary("Returns what is pending.")
        .args(&[
            KEY,
            GROUP,
            Arg::block(
                "filters",
                &[Arg::int("min-idle-time").token("IDLE").optional().since("6.2.0"), Arg::string("start"), Arg::string("end"), Arg::int("count"), CONSUMER.optional()],
            )
            .optional(),
        ])
        .tips(NONDETERMINISTIC),
    stream(CommandSpec::new("xrange", -4, streams::xrange), "5.0.0", O_RANGE).flags(READONLY).keys(READS).summary("Returns the entries between two IDs.").args(RANGE),
    stream(CommandSpec::new("xread", -4, reads::xread), "5.0.0", "For each stream mentioned: O(N) with N being the number of elements being returned, it means that XREAD-ing with a fixed COUNT is O(1). Note that when the BLOCK option is used, XADD will pay O(M) time in order to serve the M clients blocked on the stream getting new data.").flags(BLOCKING | READONLY).keys(&[KeySpec::keyword_half("STREAMS", 1, RO | ACCESS)]).differs(WAITS).summary("Returns the entries of streams behind IDs, and may wait for some.")
        .args(&[COUNT, BLOCK, STREAMS]),
    stream(CommandSpec::new("xreadgroup", -7, reads::xreadgroup), "5.0.0", "For each stream mentioned: O(M) with M being the number of elements returned. If M is constant (e.g. always asking for the first 10 elements with COUNT), you can consider it O(1). On the other side when XREADGROUP blocks, XADD will pay the O(N) time in order to serve the N clients blocked on the stream getting new data.").flags(BLOCKING | WRITE).keys(&[KeySpec::keyword_half("STREAMS", 4, RO | ACCESS)]).key_uses_by(key_uses::of_xreadgroup).differs(WAITS).summary("As XREAD, in the name of a consumer of a group.")
        .args(&[Arg::block("group_consumer", &[GROUP, CONSUMER]).token("GROUP"), COUNT, BLOCK, Arg::word("noack", "NOACK").optional(), STREAMS]),
    stream(CommandSpec::new("xrevrange", -4, streams::xrevrange), "5.0.0", "O(N) with N being the number of elements returned. If N is constant (e.g. always asking for the first 10 elements with COUNT), you can consider it O(1).").flags(READONLY).keys(READS).summary("Returns the entries between two IDs, the last one first.").args(&[KEY, Arg::string("end"), Arg::string("start"), COUNT]),
    stream(CommandSpec::new("xsetid", -3, streams::xsetid), "5.0.0", O_1).flags(WRITE | DENYOOM | FAST).keys(UPDATES).summary("Says which ID was the last one.")
        .args(&[KEY, Arg::string("last-id"), Arg::int("entries_added").token("ENTRIESADDED").optional().since("7.0.0"), Arg::string("max_deleted_entry_id").token("MAXDELETEDID").optional().since("7.0.0")]),
    stream(CommandSpec::new("xtrim", -4, streams::xtrim), "5.0.0", O_TRIM).flags(WRITE).keys(DELETES).differs(TRIM).summary("Deletes the first entries.").args(&[KEY, Arg::block("trim", TRIMMED)]).tips(NONDETERMINISTIC),
];
