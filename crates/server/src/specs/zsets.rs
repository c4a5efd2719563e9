//! Specifications of the commands on sorted sets.

use super::{PATTERN_LENGTH, TAKEN_WITH_REPLY};
use crate::cmd::{blocking_zsets, zset_algebra as algebra, zset_ranges as ranges, zsets};
use crate::table::*;

const O_1: &str = "O(1)";
const O_LOG: &str = "O(log(N)) where N is the number of elements in the sorted set.";
const O_COUNT: &str = "O(log(N)) with N being the number of elements in the sorted set.";
const O_DIFF: &str = "O(L + (N-K)log(N)) worst case where L is the total number of elements in all the sets, N is the size of the first set, and K is the size of the result set.";
const O_INTER: &str = "O(N*K)+O(M*log(M)) worst case with N being the smallest input sorted set, K being the number of input sorted sets and M being the number of elements in the resulting sorted set.";
const O_UNION: &str = "O(N)+O(M*log(M)) with N being the sum of the sizes of the input sorted sets, and M being the number of elements in the resulting sorted set.";
const O_MULTI_POP: &str = "O(K) + O(M*log(N)) where K is the number of provided keys, N being the number of elements in the sorted set, and M being the number of elements popped.";
const O_POP: &str =
    "O(log(N)*M) with N being the number of elements in the sorted set, and M being the number of elements popped.";
const O_RANGE: &str =
    "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements returned.";
const O_PART: &str = "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements being returned. If M is constant (e.g. always asking for the first 10 elements with LIMIT), you can consider it O(log(N)).";
const O_REMOVE: &str = "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements removed by the operation.";

const REMOVE: &str = "As in Redis it is one step, in which members are removed one by one; a range of all members goes at once and is freed in steps.";
const COMBINE: &str = "As in Redis it is one step.";
const COMBINE_SHOWN: &str =
    "As in Redis it is one step. Refused if what it collects is larger than what a client may leave unread.";
const WAKES: &str = "A sorted set that ZUNIONSTORE and its kin put in the place of another value wakes clients, too; in Redis they go on waiting.";
const NO_SIGN: &str = "No score is -0: a large sorted set has 0 in its place, too, as Redis' small ones do.";

const KEY: Arg = Arg::key("key");
const MEMBER: Arg = Arg::string("member");
const KEYS: Arg = KEY.multiple();
const NUM_KEYS: Arg = Arg::int("numkeys");
const WITH_SCORES: Arg = Arg::word("withscores", "WITHSCORES").optional();
const WEIGHTS: Arg = Arg::int("weight").token("WEIGHTS").optional().multiple();
const AGGREGATES: &[Arg] = &[Arg::word("sum", "SUM"), Arg::word("min", "MIN"), Arg::word("max", "MAX")];
const AGGREGATE: Arg = Arg::one_of("aggregate", AGGREGATES).token("AGGREGATE").optional();
const LIMIT: Arg = Arg::block("offset_count", &[Arg::int("offset"), Arg::int("count")]).token("LIMIT").optional();
const SORTED_BY: Arg =
    Arg::one_of("sortby", &[Arg::word("byscore", "BYSCORE"), Arg::word("bylex", "BYLEX")]).optional();
const REV: Arg = Arg::word("rev", "REV").optional();
const ENDS: Arg = Arg::one_of("where", &[Arg::word("min", "MIN"), Arg::word("max", "MAX")]);
const COUNT: Arg = Arg::int("count").token("COUNT").optional();
const TIMEOUT: Arg = Arg::double("timeout");
const WAIT: &[Arg] = &[KEYS, TIMEOUT];
const POP: &[Arg] = &[KEY, Arg::int("count").optional()];
const COMBINED: &[Arg] = &[NUM_KEYS, KEYS, WEIGHTS, AGGREGATE, WITH_SCORES];
const STORED: &[Arg] = &[Arg::key("destination"), NUM_KEYS, KEYS, WEIGHTS, AGGREGATE];
const RANK: &[Arg] = &[KEY, MEMBER, Arg::word("withscore", "WITHSCORE").optional().since("7.2.0")];
const BY_SCORE: &[Arg] = &[KEY, Arg::double("min"), Arg::double("max")];
const BY_LEX: &[Arg] = &[KEY, Arg::string("min"), Arg::string("max")];

const LOOK: &[KeySpec] = &[KeySpec::one(1, RO)];
const READ: &[KeySpec] = &[KeySpec::one(1, RO | ACCESS)];
const READ_ALL: &[KeySpec] = &[KeySpec::counted(1, RO | ACCESS)];
const DELETES: &[KeySpec] = &[KeySpec::one(1, RW | DELETE)];
const POPS: &[KeySpec] = &[KeySpec::one(1, RW | ACCESS | DELETE)];
const ANY_POPS: &[KeySpec] = &[KeySpec::range(1, -2, 1, RW | ACCESS | DELETE)];
/// A script may call them, and does not wait, as from Redis 7.2 on.
const WAITS: Flags = WRITE | FAST | BLOCKING;
const STORE: &[KeySpec] = &[KeySpec::one(1, OW | UPDATE), KeySpec::counted(2, RO | ACCESS)];

const fn zset(spec: CommandSpec, since: &'static str, complexity: &'static str) -> CommandSpec {
    spec.group(CommandGroup::SortedSet, since, complexity)
}

/// The specifications.
pub static SPECS: &[CommandSpec] = &[
    zset(CommandSpec::new("bzmpop", -5, blocking_zsets::bzmpop), "7.0.0", O_MULTI_POP).flags(WRITE | BLOCKING).keys(&[KeySpec::counted(2, RW | ACCESS | DELETE)]).differs(WAKES).summary("As ZMPOP, but waits until there is a member.")
        .args(&[TIMEOUT, NUM_KEYS, KEYS, ENDS, COUNT]),
    zset(CommandSpec::new("bzpopmax", -3, blocking_zsets::bzpopmax), "5.0.0", O_COUNT).flags(WAITS).keys(ANY_POPS).differs(WAKES).summary("Removes and returns the member with the highest score of the first sorted set that is there, and waits until there is one.").args(WAIT),
    zset(CommandSpec::new("bzpopmin", -3, blocking_zsets::bzpopmin), "5.0.0", O_COUNT).flags(WAITS).keys(ANY_POPS).differs(WAKES).summary("Removes and returns the member with the lowest score of the first sorted set that is there, and waits until there is one.").args(WAIT),
    zset(CommandSpec::new("zadd", -4, zsets::zadd), "1.2.0", "O(log(N)) for each item added, where N is the number of elements in the sorted set.").flags(WRITE | DENYOOM | FAST).keys(&[KeySpec::one(1, RW | UPDATE)]).differs(NO_SIGN).summary("Adds members, or gives them other scores.")
        .args(&[
            KEY,
            Arg::one_of("condition", &[Arg::word("nx", "NX"), Arg::word("xx", "XX")]).optional().since("3.0.2"),
            Arg::one_of("comparison", &[Arg::word("gt", "GT"), Arg::word("lt", "LT")]).optional().since("6.2.0"),
            Arg::word("change", "CH").optional().since("3.0.2"),
            Arg::word("increment", "INCR").optional().since("3.0.2"),
            Arg::block("score_member", &[Arg::double("score"), MEMBER]).multiple(),
        ]),
    zset(CommandSpec::new("zcard", 2, zsets::zcard), "1.2.0", O_1).flags(READONLY | FAST).keys(LOOK).summary("Returns the number of members.").args(&[KEY]),
    zset(CommandSpec::new("zcount", 4, ranges::zcount), "2.0.0", O_COUNT).flags(READONLY | FAST).keys(READ).summary("Returns the number of members between two scores.").args(BY_SCORE),
    zset(CommandSpec::new("zdiff", -3, algebra::zdiff), "6.2.0", O_DIFF).flags(READONLY).keys(READ_ALL).differs(COMBINE_SHOWN).summary("Returns the members of the first sorted set that no other has.").args(&[NUM_KEYS, KEYS, WITH_SCORES]),
    zset(CommandSpec::new("zdiffstore", -4, algebra::zdiffstore), "6.2.0", O_DIFF).flags(WRITE | DENYOOM).keys(STORE).differs(COMBINE).summary("Stores the members of the first sorted set that no other has.").args(&[Arg::key("destination"), NUM_KEYS, KEYS]),
    zset(CommandSpec::new("zincrby", 4, zsets::zincrby), "1.2.0", O_LOG).flags(WRITE | DENYOOM | FAST).keys(&[KeySpec::one(1, RW | ACCESS | UPDATE)]).summary("Adds to the score of a member; that of a new one is 0.").args(&[KEY, Arg::int("increment"), MEMBER]),
    zset(CommandSpec::new("zinter", -3, algebra::zinter), "6.2.0", O_INTER).flags(READONLY).keys(READ_ALL).differs(COMBINE_SHOWN).summary("Returns the members that all sorted sets have.").args(COMBINED),
    zset(CommandSpec::new("zintercard", -3, algebra::zintercard), "7.0.0", "O(N*K) worst case with N being the smallest input sorted set, K being the number of input sorted sets.").flags(READONLY).keys(READ_ALL).summary("Returns how many members all sorted sets have.")
        .args(&[NUM_KEYS, KEYS, Arg::int("limit").token("LIMIT").optional()]),
    zset(CommandSpec::new("zinterstore", -4, algebra::zinterstore), "2.0.0", O_INTER).flags(WRITE | DENYOOM).keys(STORE).differs(COMBINE).summary("Stores the members that all sorted sets have.").args(STORED),
    zset(CommandSpec::new("zlexcount", 4, ranges::zlexcount), "2.8.9", O_COUNT).flags(READONLY | FAST).keys(READ).summary("Returns the number of members between two in the order of their bytes.").args(BY_LEX),
    zset(CommandSpec::new("zmpop", -4, zsets::zmpop), "7.0.0", O_MULTI_POP).flags(WRITE).keys(&[KeySpec::counted(1, RW | ACCESS | DELETE)]).differs(TAKEN_WITH_REPLY).summary("Removes and returns members at an end of the first sorted set that is there.")
        .args(&[NUM_KEYS, KEYS, ENDS, COUNT]),
    zset(CommandSpec::new("zmscore", -3, zsets::zmscore), "6.2.0", "O(N) where N is the number of members being requested.").flags(READONLY | FAST).keys(READ).summary("Returns the scores of several members.").args(&[KEY, MEMBER.multiple()]),
    zset(CommandSpec::new("zpopmax", -2, zsets::zpopmax), "5.0.0", O_POP).flags(WRITE | FAST).keys(POPS).differs(TAKEN_WITH_REPLY).summary("Removes and returns the members with the highest scores; the last one takes the key with it.").args(POP),
    zset(CommandSpec::new("zpopmin", -2, zsets::zpopmin), "5.0.0", O_POP).flags(WRITE | FAST).keys(POPS).differs(TAKEN_WITH_REPLY).summary("Removes and returns the members with the lowest scores; the last one takes the key with it.").args(POP),
    zset(CommandSpec::new("zrandmember", -2, zsets::zrandmember), "6.2.0", "O(N) where N is the number of members returned").flags(READONLY).keys(READ).summary("Returns random members.")
        .args(&[KEY, Arg::block("options", &[Arg::int("count"), WITH_SCORES]).optional()]).tips(&["nondeterministic_output"]).differs("A negative count below -16777216, or one whose reply would exceed 256 MiB, is refused."),
    zset(CommandSpec::new("zrange", -4, ranges::zrange), "1.2.0", O_RANGE).flags(READONLY).keys(READ).summary("Returns the members of a range of ranks, scores or members.")
        .args(&[KEY, Arg::string("start"), Arg::string("stop"), SORTED_BY.since("6.2.0"), REV.since("6.2.0"), LIMIT.since("6.2.0"), WITH_SCORES]),
    zset(CommandSpec::new("zrangebylex", -4, ranges::zrangebylex), "2.8.9", O_PART).flags(READONLY).keys(READ).summary("Returns the members between two in the order of their bytes.").args(&[KEY, Arg::string("min"), Arg::string("max"), LIMIT]),
    zset(CommandSpec::new("zrangebyscore", -4, ranges::zrangebyscore), "1.0.5", O_PART).flags(READONLY).keys(READ).summary("Returns the members between two scores.").args(&[KEY, Arg::double("min"), Arg::double("max"), WITH_SCORES.since("2.0.0"), LIMIT]),
    zset(CommandSpec::new("zrangestore", -5, ranges::zrangestore), "6.2.0", "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements stored into the destination key.").flags(WRITE | DENYOOM).keys(&[KeySpec::one(1, OW | UPDATE), KeySpec::one(2, RO | ACCESS)]).differs(COMBINE).summary("Stores the members of a range.")
        .args(&[Arg::key("dst"), Arg::key("src"), Arg::string("min"), Arg::string("max"), SORTED_BY, REV, LIMIT]),
    zset(CommandSpec::new("zrank", -3, zsets::zrank), "2.0.0", "O(log(N))").flags(READONLY | FAST).keys(READ).summary("Returns how many members come before one.").args(RANK),
    zset(CommandSpec::new("zrem", -3, zsets::zrem), "1.2.0", "O(M*log(N)) with N being the number of elements in the sorted set and M the number of elements to be removed.").flags(WRITE | FAST).keys(DELETES).summary("Removes members; the last one takes the key with it.").args(&[KEY, MEMBER.multiple()]),
    zset(CommandSpec::new("zremrangebylex", 4, ranges::zremrangebylex), "2.8.9", O_REMOVE).flags(WRITE).keys(DELETES).differs(REMOVE).summary("Removes the members between two in the order of their bytes.").args(BY_LEX),
    zset(CommandSpec::new("zremrangebyrank", 4, ranges::zremrangebyrank), "2.0.0", O_REMOVE).flags(WRITE).keys(DELETES).differs(REMOVE).summary("Removes the members of a range of ranks.").args(&[KEY, Arg::int("start"), Arg::int("stop")]),
    zset(CommandSpec::new("zremrangebyscore", 4, ranges::zremrangebyscore), "1.2.0", O_REMOVE).flags(WRITE).keys(DELETES).differs(REMOVE).summary("Removes the members between two scores.").args(BY_SCORE),
    zset(CommandSpec::new("zrevrange", -4, ranges::zrevrange), "1.2.0", O_RANGE).flags(READONLY).keys(READ).summary("Returns the members of a range of ranks, from the highest score on.").args(&[KEY, Arg::int("start"), Arg::int("stop"), WITH_SCORES]),
    zset(CommandSpec::new("zrevrangebylex", -4, ranges::zrevrangebylex), "2.8.9", O_PART).flags(READONLY).keys(READ).summary("Returns the members between two in the order of their bytes, the last one first.").args(&[KEY, Arg::string("max"), Arg::string("min"), LIMIT]),
    zset(CommandSpec::new("zrevrangebyscore", -4, ranges::zrevrangebyscore), "2.2.0", O_PART).flags(READONLY).keys(READ).summary("Returns the members between two scores, the highest one first.").args(&[KEY, Arg::double("max"), Arg::double("min"), WITH_SCORES, LIMIT]),
    zset(CommandSpec::new("zrevrank", -3, zsets::zrevrank), "2.0.0", "O(log(N))").flags(READONLY | FAST).keys(READ).summary("Returns how many members come behind one.").args(RANK),
    zset(CommandSpec::new("zscan", -3, zsets::zscan), "2.8.0", "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of elements inside the collection.").flags(READONLY).keys(READ).differs(PATTERN_LENGTH).summary("Goes through the members and their scores a few at a time.")
        .args(&[KEY, Arg::int("cursor"), Arg::pattern("pattern").token("MATCH").optional(), Arg::int("count").token("COUNT").optional()]).tips(&["nondeterministic_output"]),
    zset(CommandSpec::new("zscore", 3, zsets::zscore), "1.2.0", O_1).flags(READONLY | FAST).keys(READ).summary("Returns the score of a member.").args(&[KEY, MEMBER]),
    zset(CommandSpec::new("zunion", -3, algebra::zunion), "6.2.0", O_UNION).flags(READONLY).keys(READ_ALL).differs(COMBINE_SHOWN).summary("Returns the members that any of the sorted sets has.").args(COMBINED),
    zset(CommandSpec::new("zunionstore", -4, algebra::zunionstore), "2.0.0", O_UNION).flags(WRITE | DENYOOM).keys(STORE).differs(COMBINE).summary("Stores the members that any of the sorted sets has.").args(STORED),
];
