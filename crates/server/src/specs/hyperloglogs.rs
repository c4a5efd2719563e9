//! Specifications of the commands on HyperLogLogs.

use crate::cmd::hyperloglogs as hll;
use crate::table::*;

const KEY: Arg = Arg::key("key");
const LONG: &str = "A sparse string of more than 32 KiB, which can't be valid, is refused as corrupted.";

const fn hyperloglog(spec: CommandSpec, complexity: &'static str) -> CommandSpec {
    spec.group(CommandGroup::HyperLogLog, "2.8.9", complexity)
}

/// The specifications.
pub static SPECS: &[CommandSpec] = &[
    hyperloglog(CommandSpec::new("pfadd", -2, hll::pfadd), "O(1) to add every element.")
        .flags(WRITE | DENYOOM | FAST)
        .keys(&[KeySpec::one(1, RW | INSERT)])
        .differs(LONG)
        .summary("Adds elements to a HyperLogLog, and says whether its estimate may have changed.")
        .args(&[KEY, Arg::string("element").optional().multiple()]),
    hyperloglog(
        CommandSpec::new("pfcount", -2, hll::pfcount),
        "O(1) with a very small average constant time when called with a single key. O(N) with N being the number of keys, and much bigger constant times, when called with multiple keys.",
    )
    .flags(READONLY | COUNTS_AS_WRITE)
    .keys(&[KeySpec::range(1, -1, 1, RW | ACCESS)])
    .differs(LONG)
    .summary("Estimates how many different elements were added to any of some HyperLogLogs. That of one is kept in it.")
    .args(&[KEY.multiple()]),
    hyperloglog(CommandSpec::new("pfdebug", 3, hll::pfdebug), "N/A")
        .flags(WRITE | DENYOOM | ADMIN)
        .keys(&[KeySpec::one(2, RW | ACCESS)])
        .summary("Shows the registers of a HyperLogLog, its runs or its encoding, or makes it dense.")
        .args(&[Arg::string("subcommand"), KEY]),
    hyperloglog(CommandSpec::new("pfmerge", -2, hll::pfmerge), "O(N) to merge N HyperLogLogs, but with high constant times.")
        .flags(WRITE | DENYOOM)
        .keys(&[KeySpec::one(1, RW | ACCESS | INSERT), KeySpec::range(2, -1, 1, RO | ACCESS)])
        .differs(LONG)
        .summary("Adds to a HyperLogLog all elements of others.")
        .args(&[Arg::key("destkey"), Arg::key("sourcekey").multiple()]),
    hyperloglog(CommandSpec::new("pfselftest", 1, hll::pfselftest), "N/A")
        .flags(ADMIN)
        .differs("Tests with a hundred thousand elements, Redis with ten million.")
        .summary("Tests HyperLogLogs of both encodings."),
];
