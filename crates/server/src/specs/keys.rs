//! Facts of the commands that work on keys of any type.

use super::PATTERN_LENGTH;
use crate::cmd::introspect::help;
use crate::cmd::{dump, keys, migrate, scan, sort, wait};
use crate::key_uses;
use crate::table::*;

const O_1: &str = "O(1)";

const O_SORT: &str = "O(N+M*log(M)) where N is the number of elements in the list or set to sort, and M the number of returned elements. When the elements are not sorted, complexity is O(N).";
const SORTS: &str = "As in Redis it is one step. Elements and weights of more than 1 GiB are refused. ALPHA compares all bytes, as in the C locale but for zero bytes. A weight is looked at by itself: in Redis a number that was out of range in an earlier command can make it an error. A small sorted set stays packed.";

const KEY: Arg = Arg::key("key");
const BY: Arg = Arg::pattern("pattern").token("BY").key_spec(1).optional();
const LIMIT: Arg = Arg::block("offset_count", &[Arg::int("offset"), Arg::int("count")]).token("LIMIT").optional();
const GETS: Arg = Arg::pattern("pattern").token("GET").key_spec(1).optional().multiple_token();
const ORDER: Arg = Arg::one_of("order", &[Arg::word("asc", "ASC"), Arg::word("desc", "DESC")]).optional();
const ALPHA: Arg = Arg::word("sorting", "ALPHA").optional();
const KEYS: &[Arg] = &[KEY.multiple()];
const LOOK_ALL: &[KeySpec] = &[KeySpec::range(1, -1, 1, RO)];
const DELETE_ALL: &[KeySpec] = &[KeySpec::range(1, -1, 1, RM | DELETE)];
const LOOK_SECOND: &[KeySpec] = &[KeySpec::one(2, RO)];
const ONLY_KEY: &[Arg] = &[KEY];
const RANDOM: &[&str] = &["nondeterministic_output"];
const SUM: &[&str] = &["request_policy:multi_shard", "response_policy:agg_sum"];

const fn generic(spec: CommandSpec, since: &'static str, complexity: &'static str) -> CommandSpec {
    spec.group(CommandGroup::Generic, since, complexity)
}

/// The specifications.
pub static SPECS: &[CommandSpec] = &[
    generic(
        CommandSpec::new("copy", -3, keys::copy),
        "6.2.0",
        "O(N) worst case for collections, where N is the number of nested items. O(1) for string values.",
    )
    .flags(WRITE | DENYOOM)
    .keys(&[KeySpec::one(1, RO | ACCESS), KeySpec::one(2, OW | UPDATE)])
    .summary("Copies a key.")
    .differs(
        "A large value is copied in steps, between which other clients are served; what would change it waits meanwhile. In a \
         transaction it is one step.",
    )
    .args(&[
        Arg::key("source"),
        Arg::key("destination"),
        Arg::int("destination-db").token("DB").optional(),
        Arg::word("replace", "REPLACE").optional(),
    ]),
    generic(
        CommandSpec::new("del", -2, keys::del),
        "1.0.0",
        "O(N) where N is the number of keys that will be removed.",
    )
    .flags(WRITE)
    .keys(DELETE_ALL)
    .summary("Deletes keys.")
    .args(KEYS)
    .tips(SUM),
    generic(
        CommandSpec::new("dump", 2, dump::dump),
        "2.6.0",
        "O(1) to access the key and additional O(N*M) to serialize it, where N is the number of Redis objects composing the \
         value and M their average size. For small string values the time complexity is thus O(1)+O(1*M) where M is small, so \
         simply O(1).",
    )
    .flags(READONLY)
    .keys(&[KeySpec::one(1, RO | ACCESS)])
    .summary("Returns a key's value as bytes for RESTORE.")
    .args(ONLY_KEY)
    .tips(RANDOM)
    .differs("The payload has the plain form of its type, of version 10, which Redis loads and packs by its own limits. It lacks when a stream's consumer was last active."),
    generic(CommandSpec::new("exists", -2, keys::exists), "1.0.0", "O(N) where N is the number of keys to check.")
        .flags(READONLY | FAST)
        .keys(LOOK_ALL)
        .summary("Counts which keys exist.")
        .args(KEYS)
        .tips(SUM),
    generic(CommandSpec::new("keys", 2, scan::keys), "1.0.0", "O(N) with N being the number of keys in the database")
        .flags(READONLY | DANGEROUS)
        .differs(PATTERN_LENGTH)
        .summary("Returns the names of all keys that match a pattern.")
        .args(&[Arg::pattern("pattern")])
        .tips(&["request_policy:all_shards", "nondeterministic_output_order"]),
    generic(CommandSpec::new("move", 3, keys::move_key), "1.0.0", O_1)
        .flags(WRITE | FAST)
        .keys(&[KeySpec::one(1, RW | ACCESS | UPDATE)])
        .summary("Moves a key to another database.")
        .args(&[KEY, Arg::int("db")]),
    generic(CommandSpec::container("object", OBJECT), "2.2.3", "Depends on subcommand.")
        .summary("Container of commands about how a value is stored."),
    generic(CommandSpec::new("randomkey", 1, keys::randomkey), "1.0.0", O_1)
        .flags(READONLY)
        .summary("Returns the name of some key.")
        .tips(&["request_policy:all_shards", "nondeterministic_output"]),
    generic(CommandSpec::new("rename", 3, keys::rename), "1.0.0", O_1)
        .flags(WRITE)
        .keys(&[KeySpec::one(1, RW | ACCESS | DELETE), KeySpec::one(2, OW | UPDATE)])
        .summary("Gives a key another name.")
        .args(&[KEY, Arg::key("newkey")]),
    generic(CommandSpec::new("renamenx", 3, keys::renamenx), "1.0.0", O_1)
        .flags(WRITE | FAST)
        .keys(&[KeySpec::one(1, RW | ACCESS | DELETE), KeySpec::one(2, OW | INSERT)])
        .summary("Gives a key another name if that is free.")
        .args(&[KEY, Arg::key("newkey")]),
    generic(
        CommandSpec::new("migrate", -6, migrate::migrate),
        "2.6.0",
        "This command actually executes a DUMP+DEL in the source instance, and a RESTORE in the target instance. See the pages of \
         these commands for time complexity. Also an O(N) data transfer between the two instances is performed.",
    )
    .flags(WRITE | DANGEROUS)
    .keys(MIGRATED_KEYS)
    .key_uses_by(key_uses::of_migrate)
    .summary("Moves keys to another server.")
    .differs(
        "Other clients are served meanwhile, except in a transaction or a script. A key that is changed, or made anew, meanwhile \
         stays, which is an error, while the target has what it was; one that is deleted meanwhile is gone here, and the target has it, as if it \
         were deleted after it has moved. One whose client has left by the end stays, too. Connections are not kept, and there is no TLS.",
    )
    .args(MIGRATE_ARGS)
    .tips(RANDOM),
    generic(
        CommandSpec::new("restore", -4, dump::restore),
        "2.6.0",
        "O(1) to create the new key and additional O(N*M) to reconstruct the serialized value, where N is the number of Redis \
         objects composing the value and M their average size. For small string values the time complexity is thus O(1)+O(1*M) \
         where M is small, so simply O(1). However for sorted set values the complexity is O(N*M*log(N)) because inserting \
         values into sorted sets is O(log(N)).",
    )
    .flags(WRITE | DENYOOM | DANGEROUS)
    .keys(&[KeySpec::one(1, OW | UPDATE)])
    .summary("Makes a key of what DUMP returned.")
    .differs(
        "Payloads up to version 12 (Redis 7.4) are taken and always checked in full. A time to live beyond the last instant ends at that; in Redis the key is gone at once.",
    )
    .args(&[
        KEY,
        Arg::int("ttl"),
        Arg::string("serialized-value"),
        Arg::word("replace", "REPLACE").optional().since("3.0.0"),
        Arg::word("absttl", "ABSTTL").optional().since("5.0.0"),
        Arg::int("seconds").token("IDLETIME").optional().since("5.0.0"),
        Arg::int("frequency").token("FREQ").optional().since("5.0.0"),
    ]),
    generic(
        CommandSpec::new("scan", -2, scan::scan),
        "2.8.0",
        "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return \
         back to 0. N is the number of elements inside the collection.",
    )
    .flags(READONLY)
    .differs(PATTERN_LENGTH)
    .summary("Goes through the names of the keys a few at a time.")
    .args(&[
        Arg::int("cursor"),
        Arg::pattern("pattern").token("MATCH").optional(),
        Arg::int("count").token("COUNT").optional(),
        Arg::string("type").token("TYPE").optional().since("6.0.0"),
    ])
    .tips(&["nondeterministic_output", "request_policy:special"]),
    generic(CommandSpec::new("sort", -2, sort::sort), "1.0.0", O_SORT)
        .flags(WRITE | DENYOOM | COLLECTIONS | DANGEROUS)
        .keys(&[KeySpec::one(1, RO | ACCESS), KeySpec::unknown(RO | ACCESS), KeySpec::unknown(OW | UPDATE)])
        .key_uses_by(key_uses::of_sort)
        .summary("Returns or stores the elements of a list, a set or a sorted set in an order, or what belongs to them.")
        .differs(SORTS)
        .args(&[KEY, BY, LIMIT, GETS, ORDER, ALPHA, Arg::key("destination").token("STORE").key_spec(2).optional()]),
    generic(CommandSpec::new("sort_ro", -2, sort::sort_ro), "7.0.0", O_SORT)
        .flags(READONLY | COLLECTIONS | DANGEROUS)
        .keys(&[KeySpec::one(1, RO | ACCESS), KeySpec::unknown(RO | ACCESS)])
        .summary("Returns the elements of a list, a set or a sorted set in an order, or what belongs to them.")
        .differs(SORTS)
        .args(&[KEY, BY, LIMIT, GETS, ORDER, ALPHA]),
    generic(
        CommandSpec::new("touch", -2, keys::touch),
        "3.2.1",
        "O(N) where N is the number of keys that will be touched.",
    )
    .flags(READONLY | FAST)
    .keys(LOOK_ALL)
    .summary("Notes an access to keys.")
    .args(KEYS)
    .tips(SUM),
    generic(CommandSpec::new("type", 2, keys::kind), "1.0.0", O_1)
        .flags(READONLY | FAST)
        .keys(&[KeySpec::one(1, RO)])
        .summary("Tells the type of a key's value.")
        .args(&[KEY]),
    generic(CommandSpec::new("wait", 3, wait::wait), "3.0.0", O_1)
        .flags(CONNECTION)
        .summary("Waits until replicas have what the client has written.")
        .args(&[Arg::int("numreplicas"), Arg::int("timeout")])
        .tips(&["request_policy:all_shards", "response_policy:agg_min"])
        .differs("There are no replicas: the reply is 0, for a client that asks for any when the time is up. Scripts may call it, as from Redis 7.2 on."),
    generic(CommandSpec::new("waitaof", 4, wait::waitaof), "7.2.0", O_1)
        .flags(BLOCKING | CONNECTION)
        .summary("Waits until what the client has written is durable.")
        .args(&[Arg::int("numlocal"), Arg::int("numreplicas"), Arg::int("timeout")])
        .tips(&["request_policy:all_shards", "response_policy:agg_min"])
        .differs("Has the log made durable at once, and waits while the log has no room on a full disk; there are no replicas to wait for."),
    generic(CommandSpec::new("unlink", -2, keys::del), "4.0.0", "O(1) for each key removed regardless of its size.")
        .flags(WRITE | FAST)
        .keys(DELETE_ALL)
        .summary("Deletes keys; memory is freed afterwards.")
        .args(KEYS)
        .tips(SUM),
];

const fn about_value(name: &'static str, handler: crate::ctx::Handler, summary: &'static str) -> CommandSpec {
    generic(CommandSpec::new(name, 3, handler), "2.2.3", O_1)
        .flags(READONLY)
        .keys(LOOK_SECOND)
        .summary(summary)
        .args(ONLY_KEY)
        .tips(RANDOM)
}

const MIGRATED: KeyUse = RW | ACCESS | DELETE;
const MIGRATED_KEYS: &[KeySpec] = &[
    KeySpec::one(3, MIGRATED),
    KeySpec {
        begin: KeyBegin::Keyword { word: "KEYS", from: -2 },
        find: KeyFind::Range { last: -1, step: 1, limit: 0 },
        usage: MIGRATED | INCOMPLETE,
    },
];
const MIGRATE_ARGS: &[Arg] = &[
    Arg::string("host"),
    Arg::int("port"),
    Arg::one_of("key_or_empty_string", &[Arg::key("key"), Arg::word("empty_string", "")]),
    Arg::int("destination-db"),
    Arg::int("timeout"),
    Arg::word("copy", "COPY").optional().since("3.0.0"),
    Arg::word("replace", "REPLACE").optional().since("3.0.0"),
    Arg::one_of(
        "authentication",
        &[
            Arg::string("password").token("AUTH").optional().since("4.0.7"),
            Arg::block("username_password", &[Arg::string("username"), Arg::string("password")])
                .token("AUTH2")
                .optional()
                .since("6.0.0"),
        ],
    )
    .optional(),
    Arg::key("key").token("KEYS").key_spec(1).optional().multiple().since("3.0.6"),
];

static OBJECT: &[CommandSpec] = &[
    about_value("encoding", keys::object_encoding, "Tells how a value is stored."),
    about_value("freq", keys::object_freq, "Tells how often a key is used, where that is counted.").group(
        CommandGroup::Generic,
        "4.0.0",
        O_1,
    ),
    generic(CommandSpec::new("help", 2, help), "6.2.0", O_1)
        .flags(LOADING | STALE)
        .summary("Tells what the subcommands are."),
    about_value("idletime", keys::object_idletime, "Tells for how many seconds a key was not used."),
    about_value("refcount", keys::object_refcount, "Tells how many references a value has.")
        .differs("Always 1: small integers are not shared."),
];
