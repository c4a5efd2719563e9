//! Specifications of the set commands.

use super::{PATTERN_LENGTH, TAKEN_WITH_REPLY};
use crate::cmd::sets;
use crate::table::*;

const O_1: &str = "O(1)";
const O_ALL: &str = "O(N) where N is the total number of elements in all given sets.";
const O_INTER: &str = "O(N*M) worst case where N is the cardinality of the smallest set and M is the number of sets.";

const KEY: Arg = Arg::key("key");
const MEMBER: Arg = Arg::string("member");
const MEMBERS: Arg = MEMBER.multiple();
const KEYS: &[Arg] = &[KEY.multiple()];
const INTO: &[Arg] = &[Arg::key("destination"), KEY.multiple()];
const SCAN: &[Arg] = &[
    KEY,
    Arg::int("cursor"),
    Arg::pattern("pattern").token("MATCH").optional(),
    Arg::int("count").token("COUNT").optional(),
];
const LOOK: &[KeySpec] = &[KeySpec::one(1, RO)];
const READ: &[KeySpec] = &[KeySpec::one(1, RO | ACCESS)];
const READ_ALL: &[KeySpec] = &[KeySpec::range(1, -1, 1, RO | ACCESS)];
/// As Redis tells it.
const INTER_STORE: &[KeySpec] = &[KeySpec::one(1, RW | UPDATE), KeySpec::range(2, -1, 1, RO | ACCESS)];
const STORE: &[KeySpec] = &[KeySpec::one(1, OW | UPDATE), KeySpec::range(2, -1, 1, RO | ACCESS)];

const fn set(spec: CommandSpec, since: &'static str, complexity: &'static str) -> CommandSpec {
    spec.group(CommandGroup::Set, since, complexity)
}

/// The specifications.
pub static SPECS: &[CommandSpec] = &[
    set(CommandSpec::new("sadd", -3, sets::sadd), "1.0.0", "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments.").flags(WRITE | DENYOOM | FAST).keys(&[KeySpec::one(1, RW | INSERT)]).summary("Adds members; those that the set has are passed over.").args(&[KEY, MEMBERS]),
    set(CommandSpec::new("scard", 2, sets::scard), "1.0.0", O_1).flags(READONLY | FAST).keys(LOOK).summary("Returns the number of members.").args(&[KEY]),
    set(CommandSpec::new("sdiff", -2, sets::sdiff), "1.0.0", O_ALL).flags(READONLY).keys(READ_ALL).summary("Returns the members of the first set that no other has.").args(KEYS).tips(&["nondeterministic_output_order"]),
    set(CommandSpec::new("sdiffstore", -3, sets::sdiffstore), "1.0.0", O_ALL).flags(WRITE | DENYOOM).keys(STORE).summary("Stores the members of the first set that no other has.").args(INTO),
    set(CommandSpec::new("sinter", -2, sets::sinter), "1.0.0", O_INTER).flags(READONLY).keys(READ_ALL).summary("Returns the members that all sets have.").args(KEYS).tips(&["nondeterministic_output_order"]),
    set(CommandSpec::new("sintercard", -3, sets::sintercard), "7.0.0", O_INTER).flags(READONLY).keys(&[KeySpec::counted(1, RO | ACCESS)]).summary("Returns how many members all sets have.")
        .args(&[Arg::int("numkeys"), KEY.multiple(), Arg::int("limit").token("LIMIT").optional()]),
    set(CommandSpec::new("sinterstore", -3, sets::sinterstore), "1.0.0", O_INTER).flags(WRITE | DENYOOM).keys(INTER_STORE).summary("Stores the members that all sets have.").args(INTO),
    set(CommandSpec::new("sismember", 3, sets::sismember), "1.0.0", O_1).flags(READONLY | FAST).keys(LOOK).summary("Tells whether a set has a member.").args(&[KEY, MEMBER]),
    set(CommandSpec::new("smembers", 2, sets::smembers), "1.0.0", "O(N) where N is the set cardinality.").flags(READONLY).keys(READ).summary("Returns all members.").args(&[KEY]).tips(&["nondeterministic_output_order"]),
    set(CommandSpec::new("smismember", -3, sets::smismember), "6.2.0", "O(N) where N is the number of elements being checked for membership").flags(READONLY | FAST).keys(READ).summary("Tells of several members whether a set has them.").args(&[KEY, MEMBERS]),
    set(CommandSpec::new("smove", 4, sets::smove), "1.0.0", O_1).flags(WRITE | FAST).keys(&[KeySpec::one(1, RW | ACCESS | DELETE), KeySpec::one(2, RW | INSERT)]).summary("Moves a member to another set.").args(&[Arg::key("source"), Arg::key("destination"), MEMBER]),
    set(CommandSpec::new("spop", -2, sets::spop), "1.0.0", "Without the count argument O(1), otherwise O(N) where N is the value of the passed count.").flags(WRITE | FAST).keys(&[KeySpec::one(1, RW | ACCESS | DELETE)]).differs(TAKEN_WITH_REPLY).summary("Removes and returns random members; the last one takes the key with it.").args(&[KEY, Arg::int("count").optional().since("3.2.0")]).tips(&["nondeterministic_output"]),
    set(CommandSpec::new("srandmember", -2, sets::srandmember), "1.0.0", "Without the count argument O(1), otherwise O(N) where N is the absolute value of the passed count.").flags(READONLY).keys(READ).summary("Returns random members.").args(&[KEY, Arg::int("count").optional().since("2.6.0")]).tips(&["nondeterministic_output"]),
    set(CommandSpec::new("srem", -3, sets::srem), "1.0.0", "O(N) where N is the number of members to be removed.").flags(WRITE | FAST).keys(&[KeySpec::one(1, RW | DELETE)]).summary("Removes members; the last one takes the key with it.").args(&[KEY, MEMBERS]),
    set(CommandSpec::new("sscan", -3, sets::sscan), "2.8.0", "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of elements inside the collection.").flags(READONLY).keys(READ).differs(PATTERN_LENGTH).summary("Goes through the members a few at a time.").args(SCAN).tips(&["nondeterministic_output"]),
    set(CommandSpec::new("sunion", -2, sets::sunion), "1.0.0", O_ALL).flags(READONLY).keys(READ_ALL).summary("Returns the members that any of the sets has.").args(KEYS).tips(&["nondeterministic_output_order"]),
    set(CommandSpec::new("sunionstore", -3, sets::sunionstore), "1.0.0", O_ALL).flags(WRITE | DENYOOM).keys(STORE).summary("Stores the members that any of the sets has.").args(INTO),
];
