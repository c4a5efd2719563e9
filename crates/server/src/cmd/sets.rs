//! Sets: different members without order, and what can be calculated with them.
//!
//! Relies on the store for everything but the request's words. Members go from the store's memory straight into the reply.

use quire_store::set::{Popped, SetOperation};
use quire_store::{SetMember, StoreError, set};

use super::random_draw::{self, RandomDraw};
use crate::cmd::scan::{self, Filter, Scanned};
use crate::ctx::{Args, CmdError, Ctx};
use crate::effects::EffectWord;
use crate::resp::{Reply, bulk_bytes};

/// More random members that may be the same are refused: no client has use for them, and the reply would take all memory.
const MOST_RANDOM: i64 = 1 << 24;
const BELOW_RANGE: &str = "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";

#[inline]
fn write(reply: &mut Reply, member: SetMember<'_>) {
    match member {
        SetMember::Int(number) => reply.bulk_int(number),
        SetMember::Bytes(bytes) => reply.bulk(bytes),
    }
}

/// SADD key member …
#[inline]
pub fn sadd(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let args = ctx.args;
    let mut set = set::open_mut(ctx.store, ctx.client.db, args.at(1))?;
    let mut added = 0;
    for at in 2..args.len() {
        match set.add(args.at(at)) {
            Ok(new) => added += i64::from(new),
            Err(error) => {
                drop(set);
                ctx.did_only(at);
                return Err(error.into());
            }
        }
    }
    ctx.reply.int(added);
    Ok(())
}

/// SREM key member …
pub fn srem(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let args = ctx.args;
    let mut set = set::open_mut(ctx.store, ctx.client.db, args.at(1))?;
    let mut removed = 0;
    for member in args.from(2).iter() {
        removed += i64::from(set.remove(member)?);
    }
    ctx.reply.int(removed);
    Ok(())
}

/// SMOVE source destination member
pub fn smove(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let moved = set::move_member(ctx.store, ctx.client.db, ctx.args.at(1), ctx.args.at(2), ctx.args.at(3))?;
    ctx.reply.int(i64::from(moved));
    Ok(())
}

/// SCARD key
pub fn scard(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let count = set::view(ctx.store, ctx.client.db, ctx.args.at(1))?.len()?;
    ctx.reply.int(count as i64);
    Ok(())
}

/// SISMEMBER key member
#[inline]
pub fn sismember(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let set = set::view(ctx.store, ctx.client.db, ctx.args.at(1))?;
    let found = set.contains(&SetMember::Bytes(ctx.args.at(2)))?;
    ctx.reply.int(i64::from(found));
    Ok(())
}

/// SMISMEMBER key member …
pub fn smismember(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (args, reply) = (ctx.args, &mut *ctx.reply);
    let set = set::view(ctx.store, ctx.client.db, args.at(1))?;
    let start = reply.len();
    reply.array(args.len() - 2);
    for member in args.from(2).iter() {
        match set.contains(&SetMember::Bytes(member)) {
            Ok(found) => reply.int(i64::from(found)),
            Err(error) => {
                reply.truncate(start);
                return Err(error.into());
            }
        }
    }
    Ok(())
}

/// SMEMBERS key
pub fn smembers(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let set = set::view(ctx.store, ctx.client.db, ctx.args.at(1))?;
    reply_set(ctx.reply, |show| set.for_each(show))
}

/// Replies with the members that `walk` shows, whose number is known when all are written. Nothing is left of the reply if
/// the walk fails.
#[inline]
fn reply_set(
    reply: &mut Reply,
    walk: impl FnOnce(&mut dyn FnMut(SetMember<'_>) -> bool) -> Result<(), StoreError>,
) -> Result<(), CmdError> {
    let mark = reply.begin_array();
    let mut count = 0;
    let done = walk(&mut |member| {
        write(reply, member);
        count += 1;
        true
    });
    match done {
        Ok(()) => reply.end_set(mark, count),
        Err(_) => reply.abandon_array(mark),
    }
    Ok(done?)
}

/// SINTER key …
pub fn sinter(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    combine(ctx, SetOperation::Intersection)
}

/// SUNION key …
pub fn sunion(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    combine(ctx, SetOperation::Union)
}

/// SDIFF key …
pub fn sdiff(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    combine(ctx, SetOperation::Difference)
}

fn combine(ctx: &mut Ctx<'_>, how: SetOperation) -> Result<(), CmdError> {
    let sets = set::views(ctx.store, ctx.client.db, ctx.args.from(1).iter())?;
    reply_set(ctx.reply, |show| set::combine(how, &sets, show))
}

/// SINTERSTORE destination key …
pub fn sinterstore(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    combine_into(ctx, SetOperation::Intersection)
}

/// SUNIONSTORE destination key …
pub fn sunionstore(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    combine_into(ctx, SetOperation::Union)
}

/// SDIFFSTORE destination key …
pub fn sdiffstore(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    combine_into(ctx, SetOperation::Difference)
}

fn combine_into(ctx: &mut Ctx<'_>, how: SetOperation) -> Result<(), CmdError> {
    let (db, args) = (ctx.client.db, ctx.args);
    let stored = set::store_combination(ctx.store, db, args.at(1), how, args.from(2).iter())?;
    ctx.reply.int(stored as i64);
    Ok(())
}

/// SINTERCARD numkeys key … [LIMIT limit]
pub fn sintercard(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (end, limit) = cardinality_words(ctx.args)?;
    let sets = set::views(ctx.store, ctx.client.db, ctx.args.iter().take(end).skip(2))?;
    let mut count = 0;
    set::combine(SetOperation::Intersection, &sets, |_| {
        count += 1;
        count != limit
    })?;
    ctx.reply.int(count);
    Ok(())
}

/// Where the keys of SINTERCARD end, and at how many members it stops; 0 is nowhere.
fn cardinality_words(args: Args<'_>) -> Result<(usize, i64), CmdError> {
    let count = args.int(1).ok().filter(|&count| count > 0);
    let count = count.ok_or(CmdError::fixed("ERR numkeys should be greater than 0"))?;
    if count > args.len() as i64 - 2 {
        return Err(CmdError::fixed("ERR Number of keys can't be greater than number of args"));
    }
    let end = 2 + count as usize;
    let mut limit = 0;
    for at in (end..args.len()).step_by(2) {
        if !args.is(at, "LIMIT") || at + 1 >= args.len() {
            return Err(CmdError::SYNTAX);
        }
        let given = args.int(at + 1).ok().filter(|&limit| limit >= 0);
        limit = given.ok_or(CmdError::fixed("ERR LIMIT can't be negative"))?;
    }
    Ok((end, limit))
}

/// SSCAN key cursor [MATCH pattern] [COUNT count]
pub fn sscan(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let cursor = scan::cursor(ctx.args.at(2))?;
    let set = set::view(ctx.store, ctx.client.db, ctx.args.at(1))?;
    // As in Redis, the options of a scan through nothing are not looked at.
    let options = if set.exists() { ctx.args.from(3) } else { Args::new(&[], &[]) };
    let filter = Filter::parse(options, Scanned::Members)?;
    scan::reply(ctx.reply, cursor, filter.count, |cursor, count, reply, elements| {
        set.scan(cursor, count, &mut |member| {
            if filter.matches(member.text(&mut itoa::Buffer::new())) {
                write(reply, member);
                *elements += 1;
            }
        })
    })
}

/// SPOP key [count]
pub fn spop(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (db, key) = (ctx.client.db, ctx.args.at(1));
    let wanted = match ctx.args.len() {
        2 => None,
        3 => {
            let count = ctx.args.int(2).ok().and_then(|count| usize::try_from(count).ok());
            Some(count.ok_or(CmdError::fixed("ERR value is out of range, must be positive"))?)
        }
        _ => return Err(CmdError::SYNTAX),
    };
    let (mut popped, mut room) = (set::MemberBuffer::default(), ctx.reply.room());
    let mut fits = |member: SetMember<'_>| {
        let has_room = room.is_some();
        room = room.and_then(|left| left.checked_sub(bulk_bytes(member.text(&mut itoa::Buffer::new()))));
        has_room
    };
    let done = set::pop(ctx.store, db, key, wanted.unwrap_or(1), &mut fits, &mut |member| popped.push(member));
    // Chance must not be asked again: the log is told which members went, even if it failed at a later one.
    match &done {
        Ok(Popped::All) if !popped.is_empty() => ctx.say_effect(&[EffectWord::Bytes(b"DEL"), EffectWord::Arg(1)]),
        Ok(_) | Err(_) => say_removed(ctx, &popped),
    }
    if done? == Popped::None {
        return Err(CmdError::REPLY_TOO_LARGE);
    }
    let reply = &mut *ctx.reply;
    match (wanted, popped.iter().next()) {
        (None, Some(member)) => reply.bulk(member),
        (None, None) => reply.null(),
        (Some(_), _) => {
            reply.set(popped.len());
            popped.iter().for_each(|member| reply.bulk(member));
        }
    }
    Ok(())
}

/// SRANDMEMBER key [count]
pub fn srandmember(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    if ctx.args.len() == 2 {
        let mut found = false;
        let reply = &mut *ctx.reply;
        set::random_members(ctx.store, ctx.client.db, ctx.args.at(1), 1, true, &mut |member| {
            write(reply, member);
            found = true;
        })?;
        if !found {
            reply.null();
        }
        return Ok(());
    }
    if ctx.args.len() > 3 {
        return Err(CmdError::SYNTAX);
    }
    let count = ctx.args.int(2)?;
    if count == i64::MIN {
        return Err(CmdError::fixed(BELOW_RANGE));
    }
    if count < -MOST_RANDOM {
        return Err(CmdError::OUT_OF_RANGE);
    }
    random_draw::reply_with(ctx, count, show_random)
}

/// Writes random members; returns how many. Fails if the reply passes the limit.
fn show_random(ctx: &mut Ctx<'_>, draw: RandomDraw) -> Result<usize, CmdError> {
    let RandomDraw { wanted, distinct, limit_bytes } = draw;
    let reply = &mut *ctx.reply;
    let (mut elements, mut full) = (0, false);
    set::random_members(ctx.store, ctx.client.db, ctx.args.at(1), wanted, distinct, &mut |member| {
        full |= reply.len() > limit_bytes;
        if !full {
            write(reply, member);
            elements += 1;
        }
    })?;
    if full { Err(CmdError::OUT_OF_RANGE) } else { Ok(elements) }
}

/// Says that these members were removed, instead of how many were to be popped.
fn say_removed(ctx: &mut Ctx<'_>, members: &set::MemberBuffer) {
    let words: Vec<EffectWord<'_>> = [EffectWord::Bytes(b"SREM"), EffectWord::Arg(1)]
        .into_iter()
        .chain(members.iter().map(EffectWord::Bytes))
        .collect();
    ctx.say_effect(&words);
}
