//! Specifications of the hash commands.

use super::PATTERN_LENGTH;
use crate::cmd::hashes;
use crate::table::*;

const O_1: &str = "O(1)";
const O_N: &str = "O(N) where N is the size of the hash.";

const KEY: Arg = Arg::key("key");
const FIELD: Arg = Arg::string("field");
const PAIRS: &[Arg] = &[KEY, Arg::block("field_value", &[FIELD, Arg::string("value")]).multiple()];
const LOOK: &[KeySpec] = &[KeySpec::one(1, RO)];
const READ: &[KeySpec] = &[KeySpec::one(1, RO | ACCESS)];
const UPDATES: &[KeySpec] = &[KeySpec::one(1, RW | UPDATE)];
const COUNTS: &[KeySpec] = &[KeySpec::one(1, RW | ACCESS | UPDATE)];

const fn hash(spec: CommandSpec, since: &'static str, complexity: &'static str) -> CommandSpec {
    spec.group(CommandGroup::Hash, since, complexity)
}

/// The specifications.
pub static SPECS: &[CommandSpec] = &[
    hash(CommandSpec::new("hdel", -3, hashes::hdel), "2.0.0", "O(N) where N is the number of fields to be removed.")
        .flags(WRITE | FAST)
        .keys(&[KeySpec::one(1, RW | DELETE)])
        .summary("Removes fields; the last one takes the key with it.")
        .args(&[KEY, FIELD.multiple()]),
    hash(CommandSpec::new("hexists", 3, hashes::hexists), "2.0.0", O_1)
        .flags(READONLY | FAST)
        .keys(LOOK)
        .summary("Tells whether a field exists.")
        .args(&[KEY, FIELD]),
    hash(CommandSpec::new("hget", 3, hashes::hget), "2.0.0", O_1)
        .flags(READONLY | FAST)
        .keys(READ)
        .summary("Returns the value of a field.")
        .args(&[KEY, FIELD]),
    hash(CommandSpec::new("hgetall", 2, hashes::hgetall), "2.0.0", O_N)
        .flags(READONLY)
        .keys(READ)
        .summary("Returns all fields with their values.")
        .args(&[KEY])
        .tips(&["nondeterministic_output_order"]),
    hash(CommandSpec::new("hincrby", 4, hashes::hincrby), "2.0.0", O_1)
        .flags(WRITE | DENYOOM | FAST)
        .keys(COUNTS)
        .summary("Adds to the integer that a field holds; a missing one counts as 0.")
        .args(&[KEY, FIELD, Arg::int("increment")]),
    hash(CommandSpec::new("hincrbyfloat", 4, hashes::hincrbyfloat), "2.6.0", O_1)
        .flags(WRITE | DENYOOM | FAST)
        .keys(COUNTS)
        .summary("Adds to the number that a field holds; a missing one counts as 0.")
        .args(&[KEY, FIELD, Arg::double("increment")]),
    hash(CommandSpec::new("hkeys", 2, hashes::hkeys), "2.0.0", O_N)
        .flags(READONLY)
        .keys(READ)
        .summary("Returns all fields.")
        .args(&[KEY])
        .tips(&["nondeterministic_output_order"]),
    hash(CommandSpec::new("hlen", 2, hashes::hlen), "2.0.0", O_1)
        .flags(READONLY | FAST)
        .keys(LOOK)
        .summary("Tells how many fields there are.")
        .args(&[KEY]),
    hash(
        CommandSpec::new("hmget", -3, hashes::hmget),
        "2.0.0",
        "O(N) where N is the number of fields being requested.",
    )
    .flags(READONLY | FAST)
    .keys(READ)
    .summary("Returns the values of several fields.")
    .args(&[KEY, FIELD.multiple()]),
    hash(CommandSpec::new("hmset", -4, hashes::hmset), "2.0.0", "O(N) where N is the number of fields being set.")
        .flags(WRITE | DENYOOM | FAST)
        .keys(UPDATES)
        .summary("Sets several fields.")
        .args(PAIRS),
    hash(
        CommandSpec::new("hrandfield", -2, hashes::hrandfield),
        "6.2.0",
        "O(N) where N is the number of fields returned",
    )
    .flags(READONLY)
    .keys(READ)
    .summary("Returns random fields.")
    .args(&[
        KEY,
        Arg::block("options", &[Arg::int("count"), Arg::word("withvalues", "WITHVALUES").optional()]).optional(),
    ])
    .tips(&["nondeterministic_output"])
    .differs("A negative count below -16777216, or one whose reply would exceed 256 MiB, is refused."),
    hash(
        CommandSpec::new("hscan", -3, hashes::hscan),
        "2.8.0",
        "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return \
         back to 0. N is the number of elements inside the collection.",
    )
    .flags(READONLY)
    .keys(READ)
    .differs(PATTERN_LENGTH)
    .summary("Goes through the fields a few at a time.")
    .args(&[
        KEY,
        Arg::int("cursor"),
        Arg::pattern("pattern").token("MATCH").optional(),
        Arg::int("count").token("COUNT").optional(),
        Arg::word("novalues", "NOVALUES").optional().since("7.4.0"),
    ])
    .tips(&["nondeterministic_output"]),
    hash(
        CommandSpec::new("hset", -4, hashes::hset),
        "2.0.0",
        "O(1) for each field/value pair added, so O(N) to add N field/value pairs when the command is called with \
         multiple field/value pairs.",
    )
    .flags(WRITE | DENYOOM | FAST)
    .keys(UPDATES)
    .summary("Sets fields; tells how many are new.")
    .args(PAIRS),
    hash(CommandSpec::new("hsetnx", 4, hashes::hsetnx), "2.0.0", O_1)
        .flags(WRITE | DENYOOM | FAST)
        .keys(&[KeySpec::one(1, RW | INSERT)])
        .summary("Sets a field only if it does not exist.")
        .args(&[KEY, FIELD, Arg::string("value")]),
    hash(CommandSpec::new("hstrlen", 3, hashes::hstrlen), "3.2.0", O_1)
        .flags(READONLY | FAST)
        .keys(LOOK)
        .summary("Tells how long the value of a field is.")
        .args(&[KEY, FIELD]),
    hash(CommandSpec::new("hvals", 2, hashes::hvals), "2.0.0", O_N)
        .flags(READONLY)
        .keys(READ)
        .summary("Returns the values of all fields.")
        .args(&[KEY])
        .tips(&["nondeterministic_output_order"]),
];
