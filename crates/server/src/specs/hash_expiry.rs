//! Facts of the commands about times to live of hashes' fields.

use crate::cmd::hash_expiry;
use crate::ctx::Handler;
use crate::table::*;

const SINCE: &str = "7.4.0";
const O_N: &str = "O(N) where N is the number of specified fields";

const KEY: Arg = Arg::key("key");
const CONDITION: Arg = Arg::one_of(
    "condition",
    &[Arg::word("nx", "NX"), Arg::word("xx", "XX"), Arg::word("gt", "GT"), Arg::word("lt", "LT")],
)
.optional();
const FIELDS: Arg = Arg::block("fields", &[Arg::int("numfields"), Arg::string("field").multiple()]).token("FIELDS");
const UPDATES: &[KeySpec] = &[KeySpec::one(1, RW | UPDATE)];
const READ: &[KeySpec] = &[KeySpec::one(1, RO | ACCESS)];
const ONLY_FIELDS: &[Arg] = &[KEY, FIELDS];
/// How these differ from redis-server 7.4.
const GONE_AT_ONCE: &str =
    "A field whose time has come is gone for every command at once: HLEN doesn't count it, HDEL doesn't find it.";

const fn sets(name: &'static str, handler: Handler) -> CommandSpec {
    CommandSpec::new(name, -6, handler)
        .flags(WRITE | DENYOOM | FAST)
        .keys(UPDATES)
        .group(CommandGroup::Hash, SINCE, O_N)
        .differs(GONE_AT_ONCE)
}

const fn tells(name: &'static str, handler: Handler) -> CommandSpec {
    CommandSpec::new(name, -5, handler)
        .flags(READONLY | FAST)
        .keys(READ)
        .group(CommandGroup::Hash, SINCE, O_N)
        .args(ONLY_FIELDS)
}

/// The specifications.
pub static SPECS: &[CommandSpec] = &[
    sets("hexpire", hash_expiry::hexpire).summary("Gives fields a time to live, in seconds.").args(&[
        KEY,
        Arg::int("seconds"),
        CONDITION,
        FIELDS,
    ]),
    sets("hexpireat", hash_expiry::hexpireat).summary("Gives fields an end, as a Unix time in seconds.").args(&[
        KEY,
        Arg::unix_time("unix-time-seconds"),
        CONDITION,
        FIELDS,
    ]),
    tells("hexpiretime", hash_expiry::hexpiretime).summary("Tells the end of fields, as a Unix time in seconds."),
    CommandSpec::new("hpersist", -5, hash_expiry::hpersist)
        .flags(WRITE | FAST)
        .keys(UPDATES)
        .group(CommandGroup::Hash, SINCE, O_N)
        .summary("Lets fields live as long as their hash.")
        .args(ONLY_FIELDS),
    sets("hpexpire", hash_expiry::hpexpire).summary("Gives fields a time to live, in milliseconds.").args(&[
        KEY,
        Arg::int("milliseconds"),
        CONDITION,
        FIELDS,
    ]),
    sets("hpexpireat", hash_expiry::hpexpireat)
        .summary("Gives fields an end, as a Unix time in milliseconds.")
        .args(&[KEY, Arg::unix_time("unix-time-milliseconds"), CONDITION, FIELDS]),
    tells("hpexpiretime", hash_expiry::hpexpiretime)
        .summary("Tells the end of fields, as a Unix time in milliseconds."),
    tells("hpttl", hash_expiry::hpttl).summary("Tells for how many milliseconds fields still live."),
    tells("httl", hash_expiry::httl).summary("Tells for how many seconds fields still live."),
];
