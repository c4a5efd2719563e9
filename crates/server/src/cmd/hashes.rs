//! Hashes: fields and their values.
//!
//! Relies on the store for everything but the request's words. Values go from the store's memory straight into the reply.

use quire_store::{LongDouble, StoreError, hash};

use super::hash_expiry;
use super::random_draw::{self, RandomDraw};
use crate::cmd::scan::{self, Filter, Scanned};
use crate::ctx::{Args, CmdError, Ctx};
use crate::effects::EffectWord;
use crate::resp::Reply;

/// More random fields that may be the same are refused: no client has use for them, and the reply would take all memory.
const MOST_RANDOM: i64 = 1 << 24;
const BELOW_RANGE: &str = "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";

/// HSET key field value …
#[inline]
pub fn hset(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let created = set_pairs(ctx, "hset")?;
    ctx.reply.int(created);
    Ok(())
}

/// HMSET key field value …
pub fn hmset(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    set_pairs(ctx, "hmset")?;
    ctx.reply.ok();
    Ok(())
}

fn set_pairs(ctx: &mut Ctx<'_>, command: &str) -> Result<i64, CmdError> {
    if !ctx.args.len().is_multiple_of(2) {
        return Err(CmdError::wrong_args(command));
    }
    let args = ctx.args;
    let mut hash = hash::open_mut(ctx.store, ctx.client.db, args.at(1))?;
    let mut created = 0;
    for at in (2..args.len()).step_by(2) {
        match hash.set(args.at(at), args.at(at + 1)) {
            Ok(new) => created += i64::from(new),
            Err(error) => {
                drop(hash);
                ctx.did_only(at);
                return Err(error.into());
            }
        }
    }
    Ok(created)
}

/// HSETNX key field value
pub fn hsetnx(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let args = ctx.args;
    let mut hash = hash::open_mut(ctx.store, ctx.client.db, args.at(1))?;
    let is_over_expired = hash.has_expired(args.at(2))?;
    let created = hash.set_new(args.at(2), args.at(3))?;
    drop(hash);
    if is_over_expired {
        say_set(ctx, args.at(3));
    }
    ctx.reply.int(i64::from(created));
    Ok(())
}

/// Says that the field has this value now, and no time to live: by another clock it might have been there before.
fn say_set(ctx: &mut Ctx<'_>, value: &[u8]) {
    ctx.say_effect(&[EffectWord::Bytes(b"HSET"), EffectWord::Arg(1), EffectWord::Arg(2), EffectWord::Bytes(value)]);
}

/// HGET key field
#[inline]
pub fn hget(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    match hash::get(ctx.store, ctx.client.db, ctx.args.at(1), ctx.args.at(2))? {
        Some(value) => ctx.reply.bulk(value),
        None => ctx.reply.null(),
    }
    Ok(())
}

/// HMGET key field …
pub fn hmget(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (args, reply) = (ctx.args, &mut *ctx.reply);
    let hash = hash::view(ctx.store, ctx.client.db, args.at(1))?;
    or_take_back(reply, |reply| {
        reply.array(args.len() - 2);
        for field in args.from(2).iter() {
            match hash.get(field)? {
                Some(value) => reply.bulk(value),
                None => reply.null(),
            }
        }
        Ok(())
    })
}

/// HGETALL key
pub fn hgetall(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let hash = hash::view(ctx.store, ctx.client.db, ctx.args.at(1))?;
    or_take_back(ctx.reply, |reply| {
        reply.map(hash.field_count()?);
        hash.for_each(&mut |field, value| {
            reply.bulk(field);
            reply.bulk(value);
        })
    })
}

/// HKEYS key
pub fn hkeys(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let hash = hash::view(ctx.store, ctx.client.db, ctx.args.at(1))?;
    or_take_back(ctx.reply, |reply| {
        reply.array(hash.field_count()?);
        hash.for_each(&mut |field, _| reply.bulk(field))
    })
}

/// HVALS key
pub fn hvals(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let hash = hash::view(ctx.store, ctx.client.db, ctx.args.at(1))?;
    or_take_back(ctx.reply, |reply| {
        reply.array(hash.field_count()?);
        hash.for_each(&mut |_, value| reply.bulk(value))
    })
}

/// Writes a reply while the hash is walked through; what was written is taken back if the hash proves damaged.
fn or_take_back(reply: &mut Reply, write: impl FnOnce(&mut Reply) -> Result<(), StoreError>) -> Result<(), CmdError> {
    let start = reply.len();
    let done = write(reply);
    if done.is_err() {
        reply.truncate(start);
    }
    Ok(done?)
}

/// HDEL key field …
pub fn hdel(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let args = ctx.args;
    let mut hash = hash::open_mut(ctx.store, ctx.client.db, args.at(1))?;
    let mut deleted = 0;
    for field in args.from(2).iter() {
        deleted += i64::from(hash.remove(field)?);
    }
    ctx.reply.int(deleted);
    Ok(())
}

/// HLEN key
pub fn hlen(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let count = hash::len(ctx.store, ctx.client.db, ctx.args.at(1))?;
    ctx.reply.int(count as i64);
    Ok(())
}

/// HEXISTS key field
pub fn hexists(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let found = hash::get(ctx.store, ctx.client.db, ctx.args.at(1), ctx.args.at(2))?.is_some();
    ctx.reply.int(i64::from(found));
    Ok(())
}

/// HSTRLEN key field
pub fn hstrlen(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let len = hash::field_len(ctx.store, ctx.client.db, ctx.args.at(1), ctx.args.at(2))?;
    ctx.reply.int(len as i64);
    Ok(())
}

/// HINCRBY key field increment
pub fn hincrby(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (args, by) = (ctx.args, ctx.args.int(3)?);
    let mut hash = hash::open_mut(ctx.store, ctx.client.db, args.at(1))?;
    let is_over_expired = hash.has_expired(args.at(2))?;
    let sum = hash.incr_by(args.at(2), by)?;
    drop(hash);
    if is_over_expired {
        say_set(ctx, itoa::Buffer::new().format(sum).as_bytes());
    }
    ctx.reply.int(sum);
    Ok(())
}

/// HINCRBYFLOAT key field increment
pub fn hincrbyfloat(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let by = LongDouble::parse(ctx.args.at(3)).ok_or(CmdError::NOT_FLOAT)?;
    if !by.is_finite() {
        return Err(CmdError::fixed("ERR value is NaN or Infinity"));
    }
    let args = ctx.args;
    let mut hash = hash::open_mut(ctx.store, ctx.client.db, args.at(1))?;
    let sum = hash.incr_by_float(args.at(2), by)?;
    let expiry_ms = if hash.has_times_to_live()? { hash.expiry(args.at(2))?.flatten() } else { None };
    drop(hash);
    say_set(ctx, sum.as_bytes());
    if let Some(at_ms) = expiry_ms {
        hash_expiry::say_kept(ctx, at_ms);
    }
    ctx.reply.bulk_str(&sum);
    Ok(())
}

/// HSCAN key cursor [MATCH pattern] [COUNT count]
pub fn hscan(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let cursor = scan::cursor(ctx.args.at(2))?;
    let hash = hash::view(ctx.store, ctx.client.db, ctx.args.at(1))?;
    // As in Redis, the options of a scan through nothing are not looked at.
    let options = if hash.exists() { ctx.args.from(3) } else { Args::new(&[], &[]) };
    let filter = Filter::parse(options, Scanned::Fields)?;
    scan::reply(ctx.reply, cursor, filter.count, |cursor, count, reply, elements| {
        hash.scan(cursor, count, &mut |field, value| {
            if filter.matches(field) {
                reply.bulk(field);
                *elements += 1;
                if !filter.without_values {
                    reply.bulk(value);
                    *elements += 1;
                }
            }
        })
    })
}

/// HRANDFIELD key [count [WITHVALUES]]
pub fn hrandfield(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    if ctx.args.len() == 2 {
        return one_random(ctx);
    }
    let count = ctx.args.int(2)?;
    if count == i64::MIN {
        return Err(CmdError::fixed(BELOW_RANGE));
    }
    let with_values = ctx.args.is(3, "WITHVALUES");
    if ctx.args.len() > 4 || ctx.args.len() == 4 && !with_values {
        return Err(CmdError::SYNTAX);
    }
    if with_values && count.unsigned_abs() > i64::MAX as u64 / 2 || count < -MOST_RANDOM {
        return Err(CmdError::OUT_OF_RANGE);
    }
    random_draw::reply_with(ctx, count, |ctx, draw| show_random(ctx, draw, with_values))
}

/// Writes random fields; returns how many elements of the reply that were. Fails if the reply passes the limit.
fn show_random(ctx: &mut Ctx<'_>, draw: RandomDraw, with_values: bool) -> Result<usize, CmdError> {
    let RandomDraw { wanted, distinct, limit_bytes } = draw;
    let reply = &mut *ctx.reply;
    let nested = with_values && reply.is_resp3();
    let (mut elements, mut full) = (0, false);
    hash::random_fields(ctx.store, ctx.client.db, ctx.args.at(1), wanted, distinct, &mut |field, value| {
        full |= reply.len() > limit_bytes;
        if full {
            return;
        }
        if nested {
            reply.array(2);
        }
        reply.bulk(field);
        if with_values {
            reply.bulk(value);
        }
        elements += if with_values && !nested { 2 } else { 1 };
    })?;
    if full { Err(CmdError::OUT_OF_RANGE) } else { Ok(elements) }
}

fn one_random(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let reply = &mut *ctx.reply;
    let mut found = false;
    hash::random_fields(ctx.store, ctx.client.db, ctx.args.at(1), 1, true, &mut |field, _| {
        reply.bulk(field);
        found = true;
    })?;
    if !found {
        reply.null();
    }
    Ok(())
}
