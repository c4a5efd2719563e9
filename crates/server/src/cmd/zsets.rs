//! Sorted sets: members with scores, given, asked for and taken away one by one.
//!
//! Relies on the store for everything but the request's words. Ranges are in `zset_ranges`, what is calculated with several sorted sets
//! in `zset_algebra`.

use std::ops::Range;

use quire_store::numbers::{format_f64, format_g17};
use quire_store::zset::ScoredMembers;
use quire_store::{Direction, StoreError, zset};

use super::random_draw::{self, RandomDraw};
use crate::cmd::scan::{self, Filter, Scanned};
use crate::ctx::{Args, CmdError, Ctx};
use crate::effects::EffectWord;
use crate::resp::{Reply, bulk_bytes};

/// More random members that may be the same are refused: no client has use for them, and the reply would take all memory.
const MOST_RANDOM: i64 = 1 << 24;
const BELOW_RANGE: &str = "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";
/// What a score takes in a reply at most.
const SCORE_BYTES: usize = 40;
const NAN: CmdError = CmdError::fixed("ERR resulting score is not a number (NaN)");
const MUST_BE_POSITIVE: CmdError = CmdError::fixed("ERR value is out of range, must be positive");

/// Writes a member with its score, as an array of two or as two elements of the array around it.
pub(super) fn write_pair(reply: &mut Reply, nested: bool, score: f64, member: &[u8]) {
    if nested {
        reply.array(2);
    }
    reply.bulk(member);
    reply.double(score);
}

fn write_score(reply: &mut Reply, score: Option<f64>) {
    match score {
        Some(score) => reply.double(score),
        None => reply.null(),
    }
}

/// The words of ZADD before the first score.
#[derive(Clone, Copy, Default)]
pub(super) struct AddOptions {
    pub(super) only_new: bool,
    pub(super) only_existing: bool,
    only_greater: bool,
    only_less: bool,
    /// The reply counts changed scores too.
    pub(super) counts_changed: bool,
    /// The score is added to the member's.
    increments: bool,
    /// Where the scores begin.
    pub(super) first: usize,
}

impl AddOptions {
    /// None, before scores that begin at this word.
    pub(super) fn before(first: usize) -> Self {
        Self { first, ..Self::default() }
    }

    fn parse(args: Args<'_>, increments: bool) -> Result<Self, CmdError> {
        let mut options = Self { increments, first: 2, ..Self::default() };
        while let Some(word) = args.get(options.first) {
            if !word.first().is_some_and(u8::is_ascii_alphabetic) {
                // No option, but a score, as nearly always.
                break;
            }
            let flags: [(&[u8], &mut bool); 6] = [
                (b"NX", &mut options.only_new),
                (b"XX", &mut options.only_existing),
                (b"GT", &mut options.only_greater),
                (b"LT", &mut options.only_less),
                (b"CH", &mut options.counts_changed),
                (b"INCR", &mut options.increments),
            ];
            let Some((_, flag)) = flags.into_iter().find(|(name, _)| word.eq_ignore_ascii_case(name)) else { break };
            *flag = true;
            options.first += 1;
        }
        let words = args.len() - options.first;
        if words == 0 || !words.is_multiple_of(2) {
            return Err(CmdError::SYNTAX);
        }
        if options.only_new && options.only_existing {
            return Err(CmdError::fixed("ERR XX and NX options at the same time are not compatible"));
        }
        let exclusive = [options.only_new, options.only_greater, options.only_less];
        if exclusive.into_iter().filter(|&given| given).count() > 1 {
            return Err(CmdError::fixed("ERR GT, LT, and/or NX options at the same time are not compatible"));
        }
        if options.increments && words > 2 {
            return Err(CmdError::fixed("ERR INCR option supports a single increment-element pair"));
        }
        Ok(options)
    }

    /// The score that a member gets; `None` if nothing is to be done.
    #[inline]
    fn decide(&self, before: Option<f64>, given: f64) -> Option<f64> {
        let Some(old) = before else { return (!self.only_existing).then_some(given) };
        let score = if self.increments { old + given } else { given };
        let refused = self.only_new || self.only_greater && score <= old || self.only_less && score >= old;
        (!refused).then_some(score)
    }
}

/// The scores of a request; a single one, as most are, needs no memory of its own.
enum Scores {
    One([f64; 1]),
    Several(Vec<f64>),
}

impl Scores {
    /// Those before every second word from `first` on.
    fn read(args: Args<'_>, first: usize) -> Result<Self, CmdError> {
        if args.len() == first + 2 {
            return Ok(Scores::One([args.float(first)?]));
        }
        (first..args.len()).step_by(2).map(|at| args.float(at)).collect::<Result<_, _>>().map(Scores::Several)
    }

    fn as_slice(&self) -> &[f64] {
        match self {
            Scores::One(score) => score,
            Scores::Several(scores) => scores,
        }
    }
}

/// ZADD key [NX | XX] [GT | LT] [CH] [INCR] score member …
#[inline]
pub fn zadd(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    add(ctx, false)
}

/// ZINCRBY key increment member
pub fn zincrby(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    add(ctx, true)
}

#[inline]
fn add(ctx: &mut Ctx<'_>, increments: bool) -> Result<(), CmdError> {
    let args = ctx.args;
    let options = AddOptions::parse(args, increments)?;
    // A score that is none is told before anything is done.
    let scores = Scores::read(args, options.first)?;
    let Some(result) = add_scored(ctx, &options, scores.as_slice(), 2)? else { return Ok(()) };
    if let Some(score) = result.filter(|_| options.increments) {
        let text = format_f64(score);
        ctx.say_effect(&[
            EffectWord::Bytes(b"ZADD"),
            EffectWord::Arg(1),
            EffectWord::Bytes(text.as_bytes()),
            EffectWord::Arg(args.len() - 1),
        ]);
    }
    Ok(())
}

/// Gives members these scores. Each is the last of so many words, from the first one behind the options on. Replies, and returns what
/// became of the last score; `None` if there was nothing that could be done.
#[inline]
pub(super) fn add_scored(
    ctx: &mut Ctx<'_>,
    options: &AddOptions,
    scores: &[f64],
    words: usize,
) -> Result<Option<Option<f64>>, CmdError> {
    let args = ctx.args;
    let mut zset = zset::open_mut(ctx.store, ctx.client.db, args.at(1))?;
    let (mut added, mut updated, mut result) = (0, 0, None);
    if options.only_existing && !zset.exists() {
        write_added(ctx.reply, options, 0, result);
        return Ok(None);
    }
    for (number, &score) in scores.iter().enumerate() {
        let at = options.first + words * number;
        let done = zset.update(args.at(at + words - 1), |before| {
            result = options.decide(before, score);
            result
        });
        match done {
            Ok(change) => {
                added += i64::from(change.is_added());
                updated += i64::from(change.is_updated());
            }
            Err(StoreError::NotFloat) => return Err(NAN),
            Err(error) => {
                drop(zset);
                ctx.did_only(at);
                return Err(error.into());
            }
        }
    }
    drop(zset);
    let counted = if options.counts_changed { added + updated } else { added };
    write_added(ctx.reply, options, counted, result);
    Ok(Some(result))
}

fn write_added(reply: &mut Reply, options: &AddOptions, counted: i64, score: Option<f64>) {
    if options.increments { write_score(reply, score) } else { reply.int(counted) }
}

/// ZREM key member …
pub fn zrem(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let args = ctx.args;
    let mut zset = zset::open_mut(ctx.store, ctx.client.db, args.at(1))?;
    let mut removed = 0;
    for member in args.from(2).iter() {
        removed += i64::from(zset.remove(member)?);
    }
    ctx.reply.int(removed);
    Ok(())
}

/// ZCARD key
pub fn zcard(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let len = zset::view(ctx.store, ctx.client.db, ctx.args.at(1))?.len()?;
    ctx.reply.int(len as i64);
    Ok(())
}

/// ZSCORE key member
#[inline]
pub fn zscore(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let score = zset::view(ctx.store, ctx.client.db, ctx.args.at(1))?.score(ctx.args.at(2))?;
    write_score(ctx.reply, score);
    Ok(())
}

/// ZMSCORE key member …
pub fn zmscore(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (args, reply) = (ctx.args, &mut *ctx.reply);
    let zset = zset::view(ctx.store, ctx.client.db, args.at(1))?;
    let start = reply.len();
    reply.array(args.len() - 2);
    for member in args.from(2).iter() {
        match zset.score(member) {
            Ok(score) => write_score(reply, score),
            Err(error) => {
                reply.truncate(start);
                return Err(error.into());
            }
        }
    }
    Ok(())
}

/// ZRANK key member [WITHSCORE]
pub fn zrank(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    rank(ctx, Direction::Up, "zrank")
}

/// ZREVRANK key member [WITHSCORE]
pub fn zrevrank(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    rank(ctx, Direction::Down, "zrevrank")
}

fn rank(ctx: &mut Ctx<'_>, direction: Direction, command: &str) -> Result<(), CmdError> {
    let args = ctx.args;
    if args.len() > 4 {
        return Err(CmdError::wrong_args(command));
    }
    let with_score = args.len() == 4;
    if with_score && !args.is(3, "WITHSCORE") {
        return Err(CmdError::SYNTAX);
    }
    let zset = zset::view(ctx.store, ctx.client.db, args.at(1))?;
    let Some((before, score)) = zset.rank(args.at(2))? else {
        if with_score {
            ctx.reply.null_array();
        } else {
            ctx.reply.null();
        }
        return Ok(());
    };
    let rank = if direction == Direction::Up { before } else { zset.len()?.saturating_sub(before + 1) };
    if with_score {
        ctx.reply.array(2);
    }
    ctx.reply.int(rank as i64);
    if with_score {
        ctx.reply.double(score);
    }
    Ok(())
}

/// ZPOPMIN key [count]
pub fn zpopmin(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    pop(ctx, Direction::Up)
}

/// ZPOPMAX key [count]
pub fn zpopmax(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    pop(ctx, Direction::Down)
}

fn pop(ctx: &mut Ctx<'_>, from: Direction) -> Result<(), CmdError> {
    let args = ctx.args;
    let wanted = match args.len() {
        2 => None,
        3 => {
            let count = args.int(2).ok().and_then(|count| u64::try_from(count).ok());
            Some(count.ok_or(MUST_BE_POSITIVE)?)
        }
        _ => return Err(CmdError::SYNTAX),
    };
    let popped = pop_members(ctx, 1, from, wanted.unwrap_or(1))?.unwrap_or_default();
    let nested = wanted.is_some() && ctx.reply.is_resp3();
    ctx.reply.array(if nested { popped.len() } else { 2 * popped.len() });
    popped.iter().for_each(|(score, member)| write_pair(ctx.reply, nested, score, member));
    Ok(())
}

/// Takes members off the sorted set whose key is the word at `at`; `None` if there is none.
fn pop_members(ctx: &mut Ctx<'_>, at: usize, from: Direction, count: u64) -> Result<Option<ScoredMembers>, CmdError> {
    let mut zset = zset::open_mut(ctx.store, ctx.client.db, ctx.args.at(at))?;
    if !zset.exists() {
        return Ok(None);
    }
    let (len, mut popped, mut room) = (zset.len()?, ScoredMembers::default(), ctx.reply.room());
    let mut has_room = true;
    let done = match count {
        0 => Ok(0),
        count => zset.pop(from, count, &mut |score, member| {
            has_room = room.is_some();
            room = room.and_then(|left| left.checked_sub(bulk_bytes(member) + SCORE_BYTES));
            if has_room {
                popped.push(score, member);
            }
            has_room
        }),
    };
    let (removed, is_gone) = (zset.removed(), !zset.exists());
    drop(zset);
    // Members go from the lowest one on, also from the upper end: if that fails midway, some of the first ones are gone.
    let start = if from == Direction::Up { 0 } else { len.saturating_sub(count) };
    if is_gone {
        ctx.say_effect(&[EffectWord::Bytes(b"DEL"), EffectWord::Arg(at)]);
    } else {
        say_removed(ctx, at, start, removed);
    }
    done?;
    if !has_room {
        return Err(CmdError::REPLY_TOO_LARGE);
    }
    Ok(Some(popped))
}

/// Says that the sorted set whose key is the word at `at` lost so many members from a rank on. The words are as many however many
/// members these are, and unlike a range of members mean the same for every encoding.
pub(super) fn say_removed(ctx: &mut Ctx<'_>, at: usize, start: u64, removed: u64) {
    let Some(last) = start.saturating_add(removed).checked_sub(1).filter(|_| removed > 0) else { return };
    ctx.say_effect(&[
        EffectWord::Bytes(b"ZREMRANGEBYRANK"),
        EffectWord::Arg(at),
        EffectWord::Int(start as i64),
        EffectWord::Int(last as i64),
    ]);
}

/// Takes members off the first of the sorted sets whose keys these words are that is there. Returns which word names it, and the
/// members; `None` if none of them is there.
pub(super) fn pop_first(
    ctx: &mut Ctx<'_>,
    keys: Range<usize>,
    from: Direction,
    count: u64,
) -> Result<Option<(usize, ScoredMembers)>, CmdError> {
    for at in keys {
        if let Some(popped) = pop_members(ctx, at, from, count)? {
            return Ok(Some((at, popped)));
        }
    }
    Ok(None)
}

/// What ZMPOP and BZMPOP are asked for.
pub(super) struct MultiPop {
    /// The words that are keys.
    pub keys: Range<usize>,
    /// The end from which members go.
    from: Direction,
    /// How many go at most.
    count: u64,
}

impl MultiPop {
    /// Reads the words from the number of keys on.
    pub fn parse(args: Args<'_>, at: usize) -> Result<Self, CmdError> {
        let keys = args.int(at).ok().and_then(|keys| usize::try_from(keys).ok()).filter(|&keys| keys > 0);
        let keys = keys.ok_or(CmdError::fixed("ERR numkeys should be greater than 0"))?;
        let side = keys.checked_add(at + 1).filter(|&at| at < args.len()).ok_or(CmdError::SYNTAX)?;
        let from = match (args.is(side, "MIN"), args.is(side, "MAX")) {
            (true, _) => Direction::Up,
            (_, true) => Direction::Down,
            _ => return Err(CmdError::SYNTAX),
        };
        let mut count = None;
        for at in (side + 1..args.len()).step_by(2) {
            if count.is_some() || !args.is(at, "COUNT") || at + 1 >= args.len() {
                return Err(CmdError::SYNTAX);
            }
            let given = args.int(at + 1).ok().and_then(|count| u64::try_from(count).ok()).filter(|&count| count > 0);
            count = Some(given.ok_or(CmdError::fixed("ERR count should be greater than 0"))?);
        }
        Ok(Self { keys: at + 1..side, from, count: count.unwrap_or(1) })
    }

    /// Takes the members, and replies with the key and them; false, and without a reply, if none of the keys is there.
    pub fn run(&self, ctx: &mut Ctx<'_>) -> Result<bool, CmdError> {
        let Some((at, popped)) = pop_first(ctx, self.keys.clone(), self.from, self.count)? else { return Ok(false) };
        ctx.reply.array(2);
        ctx.reply.bulk(ctx.args.at(at));
        ctx.reply.array(popped.len());
        popped.iter().for_each(|(score, member)| write_pair(ctx.reply, true, score, member));
        Ok(true)
    }
}

/// ZMPOP numkeys key … MIN|MAX [COUNT count]
pub fn zmpop(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    if !MultiPop::parse(ctx.args, 1)?.run(ctx)? {
        ctx.reply.null_array();
    }
    Ok(())
}

/// ZSCAN key cursor [MATCH pattern] [COUNT count]
pub fn zscan(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let cursor = scan::cursor(ctx.args.at(2))?;
    let zset = zset::view(ctx.store, ctx.client.db, ctx.args.at(1))?;
    // As in Redis, the options of a scan through nothing are not looked at.
    let options = if zset.exists() { ctx.args.from(3) } else { Args::new(&[], &[]) };
    let filter = Filter::parse(options, Scanned::Members)?;
    // Redis shows the scores of small ones as it keeps them, those of large ones with seventeen digits.
    let text = if zset.is_packed() { format_f64 } else { format_g17 };
    scan::reply(ctx.reply, cursor, filter.count, |cursor, count, reply, elements| {
        zset.scan(cursor, count, &mut |score, member| {
            if filter.matches(member) {
                reply.bulk(member);
                reply.bulk_str(&text(score));
                *elements += 2;
            }
        })
    })
}

/// ZRANDMEMBER key [count [WITHSCORES]]
pub fn zrandmember(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    if ctx.args.len() == 2 {
        return one_random(ctx);
    }
    let count = ctx.args.int(2)?;
    if count == i64::MIN {
        return Err(CmdError::fixed(BELOW_RANGE));
    }
    let with_scores = ctx.args.is(3, "WITHSCORES");
    if ctx.args.len() > 4 || ctx.args.len() == 4 && !with_scores {
        return Err(CmdError::SYNTAX);
    }
    if with_scores && count.unsigned_abs() > i64::MAX as u64 / 2 || count < -MOST_RANDOM {
        return Err(CmdError::OUT_OF_RANGE);
    }
    random_draw::reply_with(ctx, count, |ctx, draw| show_random(ctx, draw, with_scores))
}

/// Writes random members; returns how many elements of the reply that were. Fails if the reply passes the limit.
fn show_random(ctx: &mut Ctx<'_>, draw: RandomDraw, with_scores: bool) -> Result<usize, CmdError> {
    let RandomDraw { wanted, distinct, limit_bytes } = draw;
    let reply = &mut *ctx.reply;
    let nested = with_scores && reply.is_resp3();
    let (mut elements, mut full) = (0, false);
    zset::random_members(ctx.store, ctx.client.db, ctx.args.at(1), wanted as u64, distinct, &mut |score, member| {
        full |= reply.len() > limit_bytes;
        if full {
            return;
        }
        if with_scores {
            write_pair(reply, nested, score, member);
        } else {
            reply.bulk(member);
        }
        elements += if with_scores && !nested { 2 } else { 1 };
    })?;
    if full { Err(CmdError::OUT_OF_RANGE) } else { Ok(elements) }
}

fn one_random(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let reply = &mut *ctx.reply;
    let mut found = false;
    zset::random_members(ctx.store, ctx.client.db, ctx.args.at(1), 1, true, &mut |_, member| {
        reply.bulk(member);
        found = true;
    })?;
    if !found {
        reply.null();
    }
    Ok(())
}
