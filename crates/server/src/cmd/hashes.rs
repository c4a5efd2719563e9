//! Hashes: fields and their values.
//!
//! Relies on the store for everything but the request's words. Values go from the store's memory straight into the reply.

use quire_store::LongDouble;

use crate::cmd::scan::{self, Filter};
use crate::ctx::{CmdError, Ctx};
use crate::numbers;

/// More random fields than this are refused: no client has use for them, and the reply would take all memory.
const MOST_RANDOM: i64 = 1 << 24;

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
    let (db, key) = (ctx.client.db, ctx.args.at(1));
    let mut created = 0;
    for at in (2..ctx.args.len()).step_by(2) {
        created += i64::from(ctx.store.hash_set(db, key, ctx.args.at(at), ctx.args.at(at + 1))?);
    }
    Ok(created)
}

/// HSETNX key field value
pub fn hsetnx(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let created = ctx.store.hash_set_new(ctx.client.db, ctx.args.at(1), ctx.args.at(2), ctx.args.at(3))?;
    ctx.reply.int(i64::from(created));
    Ok(())
}

/// HGET key field
#[inline]
pub fn hget(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    match ctx.store.hash_get(ctx.client.db, ctx.args.at(1), ctx.args.at(2))? {
        Some(value) => ctx.reply.bulk(value),
        None => ctx.reply.null(),
    }
    Ok(())
}

/// HMGET key field …
pub fn hmget(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let fields = ctx.args.from(2);
    let start = ctx.reply.len();
    ctx.reply.array(fields.len());
    for field in fields.iter() {
        match ctx.store.hash_get(ctx.client.db, ctx.args.at(1), field) {
            Ok(Some(value)) => ctx.reply.bulk(value),
            Ok(None) => ctx.reply.null(),
            Err(error) => {
                ctx.reply.truncate(start);
                return Err(error.into());
            }
        }
    }
    Ok(())
}

/// HGETALL key
pub fn hgetall(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let count = ctx.store.hash_len(ctx.client.db, ctx.args.at(1))?;
    ctx.reply.map(count);
    let reply = &mut *ctx.reply;
    walk(ctx.store, ctx.client.db, ctx.args.at(1), &mut |field, value| {
        reply.bulk(field);
        reply.bulk(value);
    })
}

/// HKEYS key
pub fn hkeys(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let count = ctx.store.hash_len(ctx.client.db, ctx.args.at(1))?;
    ctx.reply.array(count);
    let reply = &mut *ctx.reply;
    walk(ctx.store, ctx.client.db, ctx.args.at(1), &mut |field, _| reply.bulk(field))
}

/// HVALS key
pub fn hvals(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let count = ctx.store.hash_len(ctx.client.db, ctx.args.at(1))?;
    ctx.reply.array(count);
    let reply = &mut *ctx.reply;
    walk(ctx.store, ctx.client.db, ctx.args.at(1), &mut |_, value| reply.bulk(value))
}

fn walk(
    store: &mut quire_store::Store,
    db: quire_store::DbId,
    key: &[u8],
    f: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<(), CmdError> {
    Ok(store.hash_for_each(db, key, f)?)
}

/// HDEL key field …
pub fn hdel(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let mut deleted = 0;
    for field in ctx.args.from(2).iter() {
        deleted += i64::from(ctx.store.hash_del(ctx.client.db, ctx.args.at(1), field)?);
    }
    ctx.reply.int(deleted);
    Ok(())
}

/// HLEN key
pub fn hlen(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let count = ctx.store.hash_len(ctx.client.db, ctx.args.at(1))?;
    ctx.reply.int(count as i64);
    Ok(())
}

/// HEXISTS key field
pub fn hexists(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let found = ctx.store.hash_get(ctx.client.db, ctx.args.at(1), ctx.args.at(2))?.is_some();
    ctx.reply.int(i64::from(found));
    Ok(())
}

/// HSTRLEN key field
pub fn hstrlen(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let len = ctx.store.hash_field_len(ctx.client.db, ctx.args.at(1), ctx.args.at(2))?;
    ctx.reply.int(len as i64);
    Ok(())
}

/// HINCRBY key field increment
pub fn hincrby(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let by = ctx.args.int(3)?;
    let sum = ctx.store.hash_incr_by(ctx.client.db, ctx.args.at(1), ctx.args.at(2), by)?;
    ctx.reply.int(sum);
    Ok(())
}

/// HINCRBYFLOAT key field increment
pub fn hincrbyfloat(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let by = LongDouble::parse(ctx.args.at(3)).ok_or(CmdError::NOT_FLOAT)?;
    if !by.is_finite() {
        return Err(CmdError::fixed("ERR value is NaN or Infinity"));
    }
    let sum = ctx.store.hash_incr_by_float(ctx.client.db, ctx.args.at(1), ctx.args.at(2), by)?;
    ctx.reply.bulk_str(&sum);
    Ok(())
}

/// HSCAN key cursor [MATCH pattern] [COUNT count]
pub fn hscan(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let cursor = scan::cursor(ctx.args.at(2))?;
    let filter = Filter::parse(ctx.args.from(3), false)?;
    ctx.store.hash_len(ctx.client.db, ctx.args.at(1))?;
    let reply = &mut *ctx.reply;
    let start = reply.len();
    reply.array(2);
    let next = scan::with_cursor(reply, |reply| {
        let items = reply.begin_array();
        let mut count = 0;
        let next = ctx.store.hash_scan(ctx.client.db, ctx.args.at(1), cursor, filter.count, &mut |field, value| {
            if filter.matches(field) {
                reply.bulk(field);
                reply.bulk(value);
                count += 2;
            }
        })?;
        reply.end_array(items, count);
        Ok(next)
    });
    if next.is_err() {
        reply.truncate(start);
    }
    next
}

/// HRANDFIELD key [count [WITHVALUES]]
pub fn hrandfield(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    if ctx.args.len() == 2 {
        return one_random(ctx);
    }
    let count = numbers::parse_i64(ctx.args.at(2)).ok_or(CmdError::NOT_INTEGER)?;
    if count == i64::MIN {
        return Err(CmdError::owned(format!(
            "ERR value is out of range, value must between {} and {}",
            -i64::MAX,
            i64::MAX
        )));
    }
    let with_values = ctx.args.is(3, "WITHVALUES");
    if ctx.args.len() > 4 || ctx.args.len() == 4 && !with_values {
        return Err(CmdError::SYNTAX);
    }
    if with_values && count.unsigned_abs() > i64::MAX as u64 / 2 || count < -MOST_RANDOM {
        return Err(CmdError::OUT_OF_RANGE);
    }
    let distinct = count >= 0;
    let held = ctx.store.hash_len(ctx.client.db, ctx.args.at(1))?;
    let wanted = if distinct { held.min(count as usize) } else { count.unsigned_abs() as usize };
    let wanted = if held == 0 { 0 } else { wanted };
    let nested = with_values && ctx.reply.is_resp3();
    ctx.reply.array(if with_values && !nested { wanted * 2 } else { wanted });
    let reply = &mut *ctx.reply;
    ctx.store.hash_random_fields(ctx.client.db, ctx.args.at(1), wanted, distinct, &mut |field, value| {
        if nested {
            reply.array(2);
        }
        reply.bulk(field);
        if with_values {
            reply.bulk(value);
        }
    })?;
    Ok(())
}

fn one_random(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let reply = &mut *ctx.reply;
    let mut found = false;
    ctx.store.hash_random_fields(ctx.client.db, ctx.args.at(1), 1, true, &mut |field, _| {
        reply.bulk(field);
        found = true;
    })?;
    if !found {
        reply.null();
    }
    Ok(())
}
