//! Specifications of the list commands.

use crate::cmd::{blocking_lists, lists};
use crate::table::*;

const O_1: &str = "O(1)";
const O_PUSH: &str =
    "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments.";
const O_POP: &str = "O(N) where N is the number of elements returned";
const O_INDEX: &str = "O(N) where N is the number of elements to traverse to get to the element at index. This makes asking for the first or the last element of the list O(1).";

const WALK: &str = "As in Redis the way to an element goes from node to node, here with a look-up each: with nodes of 8 KiB the middle of 10 million elements of 10 bytes is 1 ms away.";
const SCAN: &str =
    "As in Redis it is one step, in which elements are compared: 10 million of 10 bytes take about 0.2 s.";
const TRIM: &str = "What goes of a long list is freed in steps. Where more than 512 nodes go and more than 512 stay, the nodes are parted in steps before, between which other clients are served; what would change the list waits meanwhile. The way to the range is one step, and in a transaction all of it is.";
const POP_STEPS: &str = "As LTRIM: where more than 512 nodes go and more than 512 stay, these are parted in steps before. Nothing is removed, and the command refused, if the reply would be larger than what a client may leave unread.";

const KEY: Arg = Arg::key("key");
const ELEMENT: Arg = Arg::string("element");
const PUSH: &[Arg] = &[KEY, ELEMENT.multiple()];
const POP: &[Arg] = &[KEY, Arg::int("count").optional().since("6.2.0")];
const SIDES: &[Arg] = &[Arg::word("left", "LEFT"), Arg::word("right", "RIGHT")];
const RANGE: &[Arg] = &[KEY, Arg::int("start"), Arg::int("stop")];
const INSERTS: &[KeySpec] = &[KeySpec::one(1, RW | INSERT)];
const POPS: &[KeySpec] = &[KeySpec::one(1, RW | ACCESS | DELETE)];
const DELETES: &[KeySpec] = &[KeySpec::one(1, RW | DELETE)];
const READ: &[KeySpec] = &[KeySpec::one(1, RO | ACCESS)];
const MOVES: &[KeySpec] = &[KeySpec::one(1, RW | ACCESS | DELETE), KeySpec::one(2, RW | INSERT)];

const fn list(spec: CommandSpec, since: &'static str, complexity: &'static str) -> CommandSpec {
    spec.group(CommandGroup::List, since, complexity)
}

const TIMEOUT: Arg = Arg::double("timeout");
const ANY_POPS: &[KeySpec] = &[KeySpec::range(1, -2, 1, RW | ACCESS | DELETE)];
const O_KEYS: &str = "O(N) where N is the number of provided keys.";
/// A script may call them, and does not wait, as from Redis 7.2 on.
const WAITS: Flags = WRITE | BLOCKING;

/// The specifications.
pub static SPECS: &[CommandSpec] = &[
    list(CommandSpec::new("blmove", 6, blocking_lists::blmove), "6.2.0", O_1).flags(WAITS | DENYOOM).keys(MOVES).summary("As LMOVE, but waits until there is an element.")
        .args(&[Arg::key("source"), Arg::key("destination"), Arg::one_of("wherefrom", SIDES), Arg::one_of("whereto", SIDES), TIMEOUT]),
    list(CommandSpec::new("blmpop", -5, blocking_lists::blmpop), "7.0.0", "O(N+M) where N is the number of provided keys and M is the number of elements returned.").flags(WRITE | BLOCKING).keys(&[KeySpec::counted(2, RW | ACCESS | DELETE)]).summary("As LMPOP, but waits until there is an element.")
        .args(&[TIMEOUT, Arg::int("numkeys"), KEY.multiple(), Arg::one_of("where", SIDES), Arg::int("count").token("COUNT").optional()]),
    list(CommandSpec::new("blpop", -3, blocking_lists::blpop), "2.0.0", O_KEYS).flags(WAITS).keys(ANY_POPS).summary("Removes and returns the first element of the first list that is there, and waits until there is one.").args(&[KEY.multiple(), TIMEOUT]),
    list(CommandSpec::new("brpop", -3, blocking_lists::brpop), "2.0.0", O_KEYS).flags(WAITS).keys(ANY_POPS).summary("Removes and returns the last element of the first list that is there, and waits until there is one.").args(&[KEY.multiple(), TIMEOUT]),
    list(CommandSpec::new("brpoplpush", 4, blocking_lists::brpoplpush), "2.2.0", O_1).flags(WAITS | DENYOOM).keys(MOVES).summary("As RPOPLPUSH, but waits until there is an element.").args(&[Arg::key("source"), Arg::key("destination"), TIMEOUT]),
    list(CommandSpec::new("lindex", 3, lists::lindex), "1.0.0", O_INDEX).flags(READONLY).keys(READ).differs(WALK).summary("Returns the element at an index.").args(&[KEY, Arg::int("index")]),
    list(CommandSpec::new("linsert", 5, lists::linsert), "2.2.0", "O(N) where N is the number of elements to traverse before seeing the value pivot. This means that inserting somewhere on the left end on the list (head) can be considered O(1) and inserting somewhere on the right end (tail) is O(N).").flags(WRITE | DENYOOM).keys(INSERTS).differs(SCAN).summary("Adds an element before or behind another one.")
        .args(&[KEY, Arg::one_of("where", &[Arg::word("before", "BEFORE"), Arg::word("after", "AFTER")]), Arg::string("pivot"), ELEMENT]),
    list(CommandSpec::new("llen", 2, lists::llen), "1.0.0", O_1).flags(READONLY | FAST).keys(&[KeySpec::one(1, RO)]).summary("Returns the number of elements.").args(&[KEY]),
    list(CommandSpec::new("lmove", 5, lists::lmove), "6.2.0", O_1).flags(WRITE | DENYOOM).keys(MOVES).summary("Moves an element from an end of a list to an end of another one, and returns it.")
        .args(&[Arg::key("source"), Arg::key("destination"), Arg::one_of("wherefrom", SIDES), Arg::one_of("whereto", SIDES)]),
    list(CommandSpec::new("lmpop", -4, lists::lmpop), "7.0.0", "O(N+M) where N is the number of provided keys and M is the number of elements returned.").flags(WRITE).keys(&[KeySpec::counted(1, RW | ACCESS | DELETE)]).differs(POP_STEPS).summary("Removes and returns elements at an end of the first list that is there.")
        .args(&[Arg::int("numkeys"), KEY.multiple(), Arg::one_of("where", SIDES), Arg::int("count").token("COUNT").optional()]),
    list(CommandSpec::new("lpop", -2, lists::lpop), "1.0.0", O_POP).flags(WRITE | FAST).keys(POPS).differs(POP_STEPS).summary("Removes and returns the first elements; the last one takes the key with it.").args(POP),
    list(CommandSpec::new("lpos", -3, lists::lpos), "6.0.6", "O(N) where N is the number of elements in the list, for the average case. When searching for elements near the head or the tail of the list, or when the MAXLEN option is provided, the command may run in constant time.").flags(READONLY).keys(READ).differs(SCAN).summary("Returns the indices of elements that equal another.")
        .args(&[KEY, ELEMENT, Arg::int("rank").token("RANK").optional(), Arg::int("num-matches").token("COUNT").optional(), Arg::int("len").token("MAXLEN").optional()]),
    list(CommandSpec::new("lpush", -3, lists::lpush), "1.0.0", O_PUSH).flags(WRITE | DENYOOM | FAST).keys(INSERTS).summary("Adds elements at the front.").args(PUSH),
    list(CommandSpec::new("lpushx", -3, lists::lpushx), "2.2.0", O_PUSH).flags(WRITE | DENYOOM | FAST).keys(INSERTS).summary("Adds elements at the front of a list that exists.").args(PUSH),
    list(CommandSpec::new("lrange", 4, lists::lrange), "1.0.0", "O(S+N) where S is the distance of start offset from HEAD for small lists, from nearest end (HEAD or TAIL) for large lists; and N is the number of elements in the specified range.").flags(READONLY).keys(READ).differs(WALK).summary("Returns the elements of a range.").args(RANGE),
    list(CommandSpec::new("lrem", 4, lists::lrem), "1.0.0", "O(N+M) where N is the length of the list and M is the number of elements removed.").flags(WRITE).keys(DELETES).differs(SCAN).summary("Removes elements that equal another; the last one takes the key with it.").args(&[KEY, Arg::int("count"), ELEMENT]),
    list(CommandSpec::new("lset", 4, lists::lset), "1.0.0", "O(N) where N is the length of the list. Setting either the first or the last element of the list is O(1).").flags(WRITE | DENYOOM).keys(&[KeySpec::one(1, RW | UPDATE)]).differs(WALK).summary("Replaces the element at an index.").args(&[KEY, Arg::int("index"), ELEMENT]),
    list(CommandSpec::new("ltrim", 4, lists::ltrim), "1.0.0", "O(N) where N is the number of elements to be removed by the operation.").flags(WRITE).keys(DELETES).differs(TRIM).summary("Removes the elements outside a range.").args(RANGE),
    list(CommandSpec::new("rpop", -2, lists::rpop), "1.0.0", O_POP).flags(WRITE | FAST).keys(POPS).differs(POP_STEPS).summary("Removes and returns the last elements; the last one of all takes the key with it.").args(POP),
    list(CommandSpec::new("rpoplpush", 3, lists::rpoplpush), "1.2.0", O_1).flags(WRITE | DENYOOM).keys(MOVES).summary("Moves the last element of a list to the front of another one, and returns it.").args(&[Arg::key("source"), Arg::key("destination")]),
    list(CommandSpec::new("rpush", -3, lists::rpush), "1.0.0", O_PUSH).flags(WRITE | DENYOOM | FAST).keys(INSERTS).summary("Adds elements at the end.").args(PUSH),
    list(CommandSpec::new("rpushx", -3, lists::rpushx), "2.2.0", O_PUSH).flags(WRITE | DENYOOM | FAST).keys(INSERTS).summary("Adds elements at the end of a list that exists.").args(PUSH),
];
