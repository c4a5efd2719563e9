//! Specifications of the strings commands.

use crate::cmd::{lcs, strings};
use crate::key_uses;
use crate::table::*;

const O_1: &str = "O(1)";
const O_N_KEYS: &str = "O(N) where N is the number of keys";
const O_N_RETURNED: &str = "O(N) where N is the number of bytes returned";
const GROWS: &str = "A string that outgrows its place, or gets more than 1 MiB of zeros, is copied and filled in steps of 1 MiB before the command runs, between which other clients are served; what would change it waits meanwhile. The second place counts as memory. In a transaction it is one step.";

const KEY: Arg = Arg::key("key");
const VALUE: Arg = Arg::string("value");
const PAIRS: &[Arg] = &[Arg::block("key_value", &[KEY, VALUE]).multiple()];
const KEY_VALUE: &[Arg] = &[KEY, VALUE];
const ONE_KEY: &[Arg] = &[KEY];
const PART: &[Arg] = &[KEY, Arg::int("start"), Arg::int("end")];

const READ: &[KeySpec] = &[KeySpec::one(1, RO | ACCESS)];
const CHANGE: &[KeySpec] = &[KeySpec::one(1, RW | ACCESS | UPDATE)];
const OVERWRITE: &[KeySpec] = &[KeySpec::one(1, OW | UPDATE)];

const fn string(spec: CommandSpec, since: &'static str, complexity: &'static str) -> CommandSpec {
    spec.group(CommandGroup::String, since, complexity)
}

/// The specifications.
pub static SPECS: &[CommandSpec] = &[
    string(
        CommandSpec::new("append", 3, strings::append),
        "2.0.0",
        "O(N) where N is the number of bytes appended, amortized",
    )
    .flags(WRITE | DENYOOM | FAST)
    .keys(&[KeySpec::one(1, RW | INSERT)])
    .differs(GROWS)
    .summary("Adds bytes to the end of a string, which is created if need be.")
    .args(KEY_VALUE),
    string(CommandSpec::new("decr", 2, strings::decr), "1.0.0", O_1)
        .flags(WRITE | DENYOOM | FAST)
        .keys(CHANGE)
        .summary("Takes one from the integer that a key holds; a missing one counts as 0.")
        .args(ONE_KEY),
    string(CommandSpec::new("decrby", 3, strings::decrby), "1.0.0", O_1)
        .flags(WRITE | DENYOOM | FAST)
        .keys(CHANGE)
        .summary("Subtracts from the integer that a key holds; a missing one counts as 0.")
        .args(&[KEY, Arg::int("decrement")]),
    string(CommandSpec::new("get", 2, strings::get), "1.0.0", O_1)
        .flags(READONLY | FAST)
        .keys(READ)
        .summary("Returns a string.")
        .args(ONE_KEY),
    string(CommandSpec::new("getdel", 2, strings::getdel), "6.2.0", O_1)
        .flags(WRITE | FAST)
        .keys(&[KeySpec::one(1, RW | ACCESS | DELETE)])
        .summary("Returns a string and deletes its key.")
        .args(ONE_KEY),
    string(CommandSpec::new("getex", -2, strings::getex), "6.2.0", O_1)
        .flags(WRITE | FAST)
        .keys(CHANGE)
        .summary("Returns a string and, if asked to, changes its time to live.")
        .args(&[KEY, Arg::one_of("expiration", GETEX_EXPIRATION).optional()]),
    string(CommandSpec::new("getrange", 4, strings::getrange), "2.4.0", O_N_RETURNED)
        .flags(READONLY)
        .keys(READ)
        .summary("Returns a part of a string.")
        .args(PART),
    string(CommandSpec::new("getset", 3, strings::getset), "1.0.0", O_1)
        .flags(WRITE | DENYOOM | FAST)
        .keys(CHANGE)
        .summary("Sets a string and returns the one before; SET with GET does the same.")
        .args(KEY_VALUE),
    string(CommandSpec::new("incr", 2, strings::incr), "1.0.0", O_1)
        .flags(WRITE | DENYOOM | FAST)
        .keys(CHANGE)
        .summary("Adds one to the integer that a key holds; a missing one counts as 0.")
        .args(ONE_KEY),
    string(CommandSpec::new("incrby", 3, strings::incrby), "1.0.0", O_1)
        .flags(WRITE | DENYOOM | FAST)
        .keys(CHANGE)
        .summary("Adds to the integer that a key holds; a missing one counts as 0.")
        .args(&[KEY, Arg::int("increment")]),
    string(CommandSpec::new("incrbyfloat", 3, strings::incrbyfloat), "2.6.0", O_1)
        .flags(WRITE | DENYOOM | FAST)
        .keys(CHANGE)
        .summary("Adds to the floating-point number that a key holds; a missing one counts as 0.")
        .args(&[KEY, Arg::double("increment")]),
    string(CommandSpec::new("lcs", -3, lcs::lcs), "7.0.0", "O(N*M) where N and M are the lengths of the strings")
        .flags(READONLY)
        .keys(&[KeySpec::range(1, 2, 1, RO | ACCESS)])
        .summary("Finds the longest sequence of bytes that two strings share.")
        .args(&[
            Arg::key("key1"),
            Arg::key("key2"),
            Arg::word("len", "LEN").optional(),
            Arg::word("idx", "IDX").optional(),
            Arg::int("len").token("MINMATCHLEN").optional(),
            Arg::word("withmatchlen", "WITHMATCHLEN").optional(),
        ]),
    string(CommandSpec::new("mget", -2, strings::mget), "1.0.0", O_N_KEYS)
        .flags(READONLY | FAST)
        .keys(&[KeySpec::range(1, -1, 1, RO | ACCESS)])
        .summary("Returns several strings.")
        .args(&[KEY.multiple()])
        .tips(&["request_policy:multi_shard"]),
    string(CommandSpec::new("mset", -3, strings::mset), "1.0.1", O_N_KEYS)
        .flags(WRITE | DENYOOM)
        .keys(&[KeySpec::range(1, -1, 2, OW | UPDATE)])
        .summary("Sets several strings at once.")
        .args(PAIRS)
        .tips(&["request_policy:multi_shard", "response_policy:all_succeeded"]),
    string(CommandSpec::new("msetnx", -3, strings::msetnx), "1.0.1", O_N_KEYS)
        .flags(WRITE | DENYOOM)
        .keys(&[KeySpec::range(1, -1, 2, OW | INSERT)])
        .summary("Sets several strings at once if none of the keys exists.")
        .args(PAIRS)
        .tips(&["request_policy:multi_shard", "response_policy:agg_min"]),
    string(CommandSpec::new("psetex", 4, strings::psetex), "2.6.0", O_1)
        .flags(WRITE | DENYOOM)
        .keys(OVERWRITE)
        .summary("Sets a string and its time to live in milliseconds.")
        .args(&[KEY, Arg::int("milliseconds"), VALUE]),
    string(CommandSpec::new("set", -3, strings::set), "1.0.0", O_1)
        .flags(WRITE | DENYOOM)
        .keys(&[KeySpec::one(1, RW | ACCESS | UPDATE | VARIABLE)])
        .key_uses_by(key_uses::of_set)
        .summary("Sets a string, whatever the key held before.")
        .args(&[
            KEY,
            VALUE,
            Arg::one_of("condition", &[Arg::word("nx", "NX"), Arg::word("xx", "XX")]).optional().since("2.6.12"),
            Arg::word("get", "GET").optional().since("6.2.0"),
            Arg::one_of("expiration", SET_EXPIRATION).optional(),
        ]),
    string(CommandSpec::new("setex", 4, strings::setex), "2.0.0", O_1)
        .flags(WRITE | DENYOOM)
        .keys(OVERWRITE)
        .summary("Sets a string and its time to live in seconds.")
        .args(&[KEY, Arg::int("seconds"), VALUE]),
    string(CommandSpec::new("setnx", 3, strings::setnx), "1.0.0", O_1)
        .flags(WRITE | DENYOOM | FAST)
        .keys(&[KeySpec::one(1, OW | INSERT)])
        .summary("Sets a string if the key does not exist.")
        .args(KEY_VALUE),
    string(CommandSpec::new("setrange", 4, strings::setrange), "2.2.0", "O(N) where N is the number of bytes written")
        .flags(WRITE | DENYOOM)
        .keys(&[KeySpec::one(1, RW | UPDATE)])
        .differs(GROWS)
        .summary("Writes over a part of a string, which is padded with zeros if need be.")
        .args(&[KEY, Arg::int("offset"), VALUE]),
    string(CommandSpec::new("strlen", 2, strings::strlen), "2.2.0", O_1)
        .flags(READONLY | FAST)
        .keys(&[KeySpec::one(1, RO)])
        .summary("Returns the length of a string.")
        .args(ONE_KEY),
    string(CommandSpec::new("substr", 4, strings::getrange), "1.0.0", O_N_RETURNED)
        .flags(READONLY)
        .keys(READ)
        .summary("Returns a part of a string; the old name of GETRANGE.")
        .args(PART),
];

static SET_EXPIRATION: &[Arg] = &[
    Arg::int("seconds").token("EX").since("2.6.12"),
    Arg::int("milliseconds").token("PX").since("2.6.12"),
    Arg::unix_time("unix-time-seconds").token("EXAT").since("6.2.0"),
    Arg::unix_time("unix-time-milliseconds").token("PXAT").since("6.2.0"),
    Arg::word("keepttl", "KEEPTTL").since("6.0.0"),
];

static GETEX_EXPIRATION: &[Arg] = &[
    Arg::int("seconds").token("EX"),
    Arg::int("milliseconds").token("PX"),
    Arg::unix_time("unix-time-seconds").token("EXAT"),
    Arg::unix_time("unix-time-milliseconds").token("PXAT"),
    Arg::word("persist", "PERSIST"),
];
