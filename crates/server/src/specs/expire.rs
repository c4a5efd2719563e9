//! Facts of the commands about times to live.

use crate::cmd::expire;
use crate::ctx::Handler;
use crate::table::*;

const O_1: &str = "O(1)";

const KEY: Arg = Arg::key("key");
const CONDITION: Arg = Arg::one_of(
    "condition",
    &[Arg::word("nx", "NX"), Arg::word("xx", "XX"), Arg::word("gt", "GT"), Arg::word("lt", "LT")],
)
.optional()
.since("7.0.0");
const UPDATES: &[KeySpec] = &[KeySpec::one(1, RW | UPDATE)];
const READ: &[KeySpec] = &[KeySpec::one(1, RO | ACCESS)];
const ONLY_KEY: &[Arg] = &[KEY];
const RANDOM: &[&str] = &["nondeterministic_output"];

const fn sets(name: &'static str, handler: Handler, since: &'static str) -> CommandSpec {
    CommandSpec::new(name, -3, handler).flags(WRITE | FAST).keys(UPDATES).group(CommandGroup::Generic, since, O_1)
}

const fn tells(name: &'static str, handler: Handler, since: &'static str) -> CommandSpec {
    CommandSpec::new(name, 2, handler)
        .flags(READONLY | FAST)
        .keys(READ)
        .group(CommandGroup::Generic, since, O_1)
        .args(ONLY_KEY)
}

/// The specifications.
pub static SPECS: &[CommandSpec] = &[
    sets("expire", expire::expire, "1.0.0").summary("Gives a key a time to live, in seconds.").args(&[
        KEY,
        Arg::int("seconds"),
        CONDITION,
    ]),
    sets("expireat", expire::expireat, "1.2.0").summary("Gives a key an end, as a Unix time in seconds.").args(&[
        KEY,
        Arg::unix_time("unix-time-seconds"),
        CONDITION,
    ]),
    tells("expiretime", expire::expiretime, "7.0.0").summary("Tells a key's end, as a Unix time in seconds."),
    CommandSpec::new("persist", 2, expire::persist)
        .flags(WRITE | FAST)
        .keys(UPDATES)
        .group(CommandGroup::Generic, "2.2.0", O_1)
        .summary("Lets a key live for ever.")
        .args(&[KEY]),
    sets("pexpire", expire::pexpire, "2.6.0").summary("Gives a key a time to live, in milliseconds.").args(&[
        KEY,
        Arg::int("milliseconds"),
        CONDITION,
    ]),
    sets("pexpireat", expire::pexpireat, "2.6.0")
        .summary("Gives a key an end, as a Unix time in milliseconds.")
        .args(&[KEY, Arg::unix_time("unix-time-milliseconds"), CONDITION]),
    tells("pexpiretime", expire::pexpiretime, "7.0.0").summary("Tells a key's end, as a Unix time in milliseconds."),
    tells("pttl", expire::pttl, "2.6.0").summary("Tells for how many milliseconds a key still lives.").tips(RANDOM),
    tells("ttl", expire::ttl, "1.0.0").summary("Tells for how many seconds a key still lives.").tips(RANDOM),
];
