//! Ranges of sorted sets: by rank, by score and in the order of bytes; shown, counted, kept and taken away.
//!
//! Every range is a range of ranks in the end. Relies on the store for finding those.

use std::ops::Range;

use quire_store::{Cut, Direction, ZsetView, numbers, zset};

use crate::cmd::range::span;
use crate::cmd::zsets::{say_removed, write_pair};
use crate::ctx::{Args, CmdError, Ctx};
use crate::effects::EffectWord;

const NOT_SCORES: CmdError = CmdError::fixed("ERR min or max is not a float");
const NOT_MEMBERS: CmdError = CmdError::fixed("ERR min or max not valid string range item");

/// By what a range is given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Member,
}

/// Which end of a range a bound is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Lower,
    Upper,
}

/// A range that a request asks for.
#[derive(Clone, Copy)]
enum Bounds<'a> {
    /// Both included, negative ones from the end.
    Ranks(i64, i64),
    /// What lies between two places.
    Cuts(Cut<'a>, Cut<'a>),
}

/// Reads a score, in front of which a bracket leaves it out. As in C the text ends at a zero byte, and nothing at all is 0.
fn score_cut(text: &[u8], side: Side) -> Option<Cut<'static>> {
    let (exclusive, text) = match text {
        [b'(', rest @ ..] => (true, rest),
        text => (false, text),
    };
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    let (score, len) = numbers::read_f64(&text[..end]);
    let below = exclusive == (side == Side::Upper);
    (len == end && !score.is_nan()).then_some(if below { Cut::BelowScore(score) } else { Cut::UpToScore(score) })
}

/// Reads a member behind a bracket, or a sign for an end, behind which the text ends or has a zero byte.
fn member_cut(text: &[u8], side: Side) -> Option<Cut<'_>> {
    match (text, side) {
        ([b'-'] | [b'-', 0, ..], _) => Some(Cut::Start),
        ([b'+'] | [b'+', 0, ..], _) => Some(Cut::End),
        ([b'(', member @ ..], Side::Upper) | ([b'[', member @ ..], Side::Lower) => Some(Cut::BelowMember(member)),
        ([b'(', member @ ..], Side::Lower) | ([b'[', member @ ..], Side::Upper) => Some(Cut::UpToMember(member)),
        _ => None,
    }
}

impl<'a> Bounds<'a> {
    fn parse(args: Args<'a>, by: By, min: usize, max: usize) -> Result<Bounds<'a>, CmdError> {
        let (min_text, max_text) = (args.at(min), args.at(max));
        let (from, to, error) = match by {
            By::Rank => return Ok(Bounds::Ranks(args.int(min)?, args.int(max)?)),
            By::Score => (score_cut(min_text, Side::Lower), score_cut(max_text, Side::Upper), NOT_SCORES),
            By::Member => (member_cut(min_text, Side::Lower), member_cut(max_text, Side::Upper), NOT_MEMBERS),
        };
        from.zip(to).map(|(from, to)| Bounds::Cuts(from, to)).ok_or(error)
    }

    /// The ranks that lie in the range, which counts ranks from this end.
    fn ranks(&self, zset: &ZsetView<'_>, direction: Direction) -> Result<Range<u64>, CmdError> {
        let (start, stop) = match *self {
            Bounds::Ranks(start, stop) => (start, stop),
            Bounds::Cuts(from, to) => return Ok(zset.ranks_between(&from, &to)?),
        };
        Ok(ranks_between(zset.len()?, start, stop, direction))
    }
}

/// The ranks from `start` to `stop`, which are counted from this end.
fn ranks_between(len: u64, start: i64, stop: i64, direction: Direction) -> Range<u64> {
    // Unlike in a string, there is none if the stop lies before the first one.
    let is_before = stop < 0 && stop.unsigned_abs() > len;
    let range = if is_before { 0..0 } else { span(len, start, stop) };
    match direction {
        Direction::Up => range,
        Direction::Down => len - range.end..len - range.start,
    }
}

/// Which part of a range is asked for, as LIMIT says it.
#[derive(Clone, Copy)]
struct Limit {
    offset: i64,
    /// All if negative.
    count: i64,
}

impl Limit {
    fn part(self, ranks: Range<u64>, direction: Direction) -> Range<u64> {
        let all = ranks.end - ranks.start;
        let skipped = u64::try_from(self.offset).map_or(all, |offset| offset.min(all));
        let shown = u64::try_from(self.count).map_or(u64::MAX, |count| count).min(all - skipped);
        match direction {
            Direction::Up => ranks.start + skipped..ranks.start + skipped + shown,
            Direction::Down => ranks.end - skipped - shown..ranks.end - skipped,
        }
    }
}

/// A request for a range.
struct RangeRequest<'a> {
    by: By,
    bounds: Bounds<'a>,
    direction: Direction,
    limit: Limit,
    with_scores: bool,
}

impl<'a> RangeRequest<'a> {
    /// Reads the words behind the key at `key`. What the command's name doesn't say may be said by options.
    fn parse(
        args: Args<'a>,
        key: usize,
        stores: bool,
        by: Option<By>,
        direction: Option<Direction>,
    ) -> Result<Self, CmdError> {
        let (mut own_by, mut own_direction) = (by, direction);
        let (mut limit, mut with_scores, mut at) = (Limit { offset: 0, count: -1 }, false, key + 3);
        while at < args.len() {
            if !stores && args.is(at, "WITHSCORES") {
                with_scores = true;
            } else if args.is(at, "LIMIT") && at + 2 < args.len() {
                limit = Limit { offset: args.int(at + 1)?, count: args.int(at + 2)? };
                at += 2;
            } else if own_direction.is_none() && args.is(at, "REV") {
                own_direction = Some(Direction::Down);
            } else if own_by.is_none() && args.is(at, "BYLEX") {
                own_by = Some(By::Member);
            } else if own_by.is_none() && args.is(at, "BYSCORE") {
                own_by = Some(By::Score);
            } else {
                return Err(CmdError::SYNTAX);
            }
            at += 1;
        }
        let (by, direction) = (own_by.unwrap_or(By::Rank), own_direction.unwrap_or(Direction::Up));
        if limit.count != -1 && by == By::Rank {
            return Err(CmdError::fixed(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if with_scores && by == By::Member {
            return Err(CmdError::fixed("ERR syntax error, WITHSCORES not supported in combination with BYLEX"));
        }
        let backwards = direction == Direction::Down && by != By::Rank;
        let (min, max) = if backwards { (key + 2, key + 1) } else { (key + 1, key + 2) };
        let bounds = Bounds::parse(args, by, min, max)?;
        // By ranks there is no limit, but an offset may have been given.
        let limit = if by == By::Rank { Limit { offset: 0, count: -1 } } else { limit };
        Ok(Self { by, bounds, direction, limit, with_scores })
    }

    fn ranks(&self, zset: &ZsetView<'_>) -> Result<Range<u64>, CmdError> {
        Ok(self.limit.part(self.bounds.ranks(zset, self.direction)?, self.direction))
    }
}

/// ZRANGE key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]
pub fn zrange(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    show(ctx, None, None)
}

/// ZREVRANGE key start stop [WITHSCORES]
pub fn zrevrange(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    show(ctx, Some(By::Rank), Some(Direction::Down))
}

/// ZRANGEBYSCORE key min max [WITHSCORES] [LIMIT offset count]
pub fn zrangebyscore(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    show(ctx, Some(By::Score), Some(Direction::Up))
}

/// ZREVRANGEBYSCORE key max min [WITHSCORES] [LIMIT offset count]
pub fn zrevrangebyscore(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    show(ctx, Some(By::Score), Some(Direction::Down))
}

/// ZRANGEBYLEX key min max [LIMIT offset count]
pub fn zrangebylex(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    show(ctx, Some(By::Member), Some(Direction::Up))
}

/// ZREVRANGEBYLEX key max min [LIMIT offset count]
pub fn zrevrangebylex(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    show(ctx, Some(By::Member), Some(Direction::Down))
}

fn show(ctx: &mut Ctx<'_>, by: Option<By>, direction: Option<Direction>) -> Result<(), CmdError> {
    let request = RangeRequest::parse(ctx.args, 1, false, by, direction)?;
    let zset = zset::view(ctx.store, ctx.client.db, ctx.args.at(1))?;
    let ranks = request.ranks(&zset)?;
    let reply = &mut *ctx.reply;
    let (start, count) = (reply.len(), (ranks.end - ranks.start) as usize);
    let nested = request.with_scores && reply.is_resp3();
    reply.array(if request.with_scores && !nested { 2 * count } else { count });
    let done = zset.range(ranks, request.direction, |score, member| {
        if request.with_scores {
            write_pair(reply, nested, score, member);
        } else {
            reply.bulk(member);
        }
        true
    });
    if done.is_err() {
        ctx.reply.truncate(start);
    }
    Ok(done?)
}

/// ZRANGESTORE destination source min max [BYSCORE | BYLEX] [REV] [LIMIT offset count]
pub fn zrangestore(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (db, args) = (ctx.client.db, ctx.args);
    let request = RangeRequest::parse(args, 2, true, None, None)?;
    let ranks = request.ranks(&zset::view(ctx.store, db, args.at(2))?)?;
    let stored = zset::store_range(ctx.store, db, args.at(1), args.at(2), ranks.clone())?;
    if request.by == By::Member {
        say_stored(ctx, &ranks);
    }
    ctx.reply.int(stored as i64);
    Ok(())
}

/// Says of ZRANGESTORE which ranks it stored. Where scores differ, a range of members is another one for each encoding, and which of
/// them a sorted set has depends on limits, which may be others when the log is replayed.
fn say_stored(ctx: &mut Ctx<'_>, ranks: &Range<u64>) {
    if ranks.is_empty() {
        return ctx.say_effect(&[EffectWord::Bytes(b"DEL"), EffectWord::Arg(1)]);
    }
    ctx.say_effect(&[
        EffectWord::Arg(0),
        EffectWord::Arg(1),
        EffectWord::Arg(2),
        EffectWord::Int(ranks.start as i64),
        EffectWord::Int((ranks.end - 1) as i64),
    ]);
}

/// ZCOUNT key min max
pub fn zcount(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    count(ctx, By::Score)
}

/// ZLEXCOUNT key min max
pub fn zlexcount(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    count(ctx, By::Member)
}

fn count(ctx: &mut Ctx<'_>, by: By) -> Result<(), CmdError> {
    let bounds = Bounds::parse(ctx.args, by, 2, 3)?;
    let ranks = bounds.ranks(&zset::view(ctx.store, ctx.client.db, ctx.args.at(1))?, Direction::Up)?;
    ctx.reply.int((ranks.end - ranks.start) as i64);
    Ok(())
}

/// ZREMRANGEBYRANK key start stop
pub fn zremrangebyrank(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    remove(ctx, By::Rank)
}

/// ZREMRANGEBYSCORE key min max
pub fn zremrangebyscore(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    remove(ctx, By::Score)
}

/// ZREMRANGEBYLEX key min max
pub fn zremrangebylex(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    remove(ctx, By::Member)
}

fn remove(ctx: &mut Ctx<'_>, by: By) -> Result<(), CmdError> {
    let bounds = Bounds::parse(ctx.args, by, 2, 3)?;
    let mut zset = zset::open_mut(ctx.store, ctx.client.db, ctx.args.at(1))?;
    let ranks = match bounds {
        Bounds::Ranks(start, stop) => ranks_between(zset.len()?, start, stop, Direction::Up),
        Bounds::Cuts(from, to) => zset.ranks_between(&from, &to)?,
    };
    let start = ranks.start;
    let done = zset.remove_ranks(ranks);
    let removed = zset.removed();
    drop(zset);
    // A range of members is another one for each encoding, where scores differ.
    if by == By::Member || done.is_err() {
        say_removed(ctx, 1, start, removed);
    }
    ctx.reply.int(done? as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read_as_redis_reads_them() {
        assert_eq!(score_cut(b"1.5", Side::Lower), Some(Cut::BelowScore(1.5)));
        assert_eq!(score_cut(b"(1.5", Side::Lower), Some(Cut::UpToScore(1.5)));
        assert_eq!(score_cut(b" 0x10", Side::Upper), Some(Cut::UpToScore(16.0)));
        assert_eq!(score_cut(b"(-inf", Side::Upper), Some(Cut::BelowScore(f64::NEG_INFINITY)));
        assert_eq!(score_cut(b"", Side::Upper), Some(Cut::UpToScore(0.0)));
        assert_eq!(score_cut(b"(3\0x", Side::Upper), Some(Cut::BelowScore(3.0)));
        for text in ["nan", "1 ", "((1", "x", "1,5", " "] {
            assert_eq!(score_cut(text.as_bytes(), Side::Lower), None, "{text}");
        }
        assert_eq!(member_cut(b"[a", Side::Lower), Some(Cut::BelowMember(b"a")));
        assert_eq!(member_cut(b"(a", Side::Lower), Some(Cut::UpToMember(b"a")));
        assert_eq!(member_cut(b"[", Side::Upper), Some(Cut::UpToMember(b"")));
        assert_eq!((member_cut(b"-", Side::Upper), member_cut(b"+", Side::Lower)), (Some(Cut::Start), Some(Cut::End)));
        assert_eq!(member_cut(b"+\0x", Side::Upper), Some(Cut::End));
        for text in ["", "a", "+a", "-1", "]a"] {
            assert_eq!(member_cut(text.as_bytes(), Side::Upper), None, "{text}");
        }
    }

    #[test]
    fn a_part_of_a_range_is_counted_from_the_end_from_which_it_is_shown() {
        let part = |offset, count, direction| Limit { offset, count }.part(10..20, direction);
        assert_eq!((part(0, -1, Direction::Up), part(0, -1, Direction::Down)), (10..20, 10..20));
        assert_eq!((part(2, 3, Direction::Up), part(2, 3, Direction::Down)), (12..15, 15..18));
        assert_eq!((part(-1, 3, Direction::Up), part(99, -1, Direction::Down)), (20..20, 10..10));
        assert_eq!(part(8, i64::MAX, Direction::Up), 18..20);
        assert_eq!(ranks_between(5, 0, -2, Direction::Down), 1..5);
        assert_eq!(ranks_between(5, -2, 99, Direction::Down), 0..2);
        assert!(ranks_between(5, 0, -6, Direction::Up).is_empty());
    }
}
