//! Strings: SET, GET and their relatives, counters, parts of strings.
//!
//! Relies on the store for everything but the request's words. Values go from the store's memory straight into the
//! reply. A command that replies with what it then changes takes the reply back should the change fail.

use quire_store::{ExpiryChange, LongDouble, StoreError, ValueType, string};

use crate::cmd::expire;
use crate::cmd::range::forward_span;
use crate::cmd::set_options::{self, ExpiryOption, OptionContext, SetCondition, TimeUnit, instant_ms};
use crate::ctx::{CmdError, Ctx};
use crate::effects::EffectWord;

/// GET key
#[inline]
pub fn get(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    match string::get(ctx.store, ctx.client.db, ctx.args.at(1))? {
        Some(value) => ctx.reply.bulk(value),
        None => ctx.reply.null(),
    }
    Ok(())
}

/// SET key value [NX | XX] [GET] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]
#[inline]
pub fn set(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    if ctx.args.len() > 3 {
        return set_with_options(ctx);
    }
    string::set(ctx.store, ctx.client.db, ctx.args.at(1), ctx.args.at(2), ExpiryChange::Clear)?;
    ctx.reply.ok();
    Ok(())
}

fn set_with_options(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let options = set_options::parse(ctx.args.from(3), OptionContext::Set)?;
    let expiry = options.lifetime.expiry(ctx.store.now_ms(), "set")?;
    let (db, key) = (ctx.client.db, ctx.args.at(1));
    if options.get {
        needs_room(ctx)?;
    }
    let start = ctx.reply.len();
    let exists =
        if options.get { reply_value(ctx)? } else { options.condition.is_some() && ctx.store.kind(db, key)?.is_some() };
    let allowed = match options.condition {
        None => true,
        Some(SetCondition::Missing) => !exists,
        Some(SetCondition::Present) => exists,
    };
    if allowed {
        let done = string::set(ctx.store, db, key, ctx.args.at(2), expiry);
        or_take_back(ctx, start, done)?;
        if let ExpiryChange::At(at_ms) = expiry {
            say_set_until(ctx, 2, at_ms);
        }
    }
    match (options.get, allowed) {
        (true, _) => {}
        (false, true) => ctx.reply.ok(),
        (false, false) => ctx.reply.null(),
    }
    Ok(())
}

/// Says that the word at `value` was set as the value of the first key, which lives until `at_ms`.
fn say_set_until(ctx: &mut Ctx<'_>, value: usize, at_ms: i64) {
    let pxat = EffectWord::Bytes(b"PXAT");
    ctx.say_effect(&[
        EffectWord::Bytes(b"SET"),
        EffectWord::Arg(1),
        EffectWord::Arg(value),
        pxat,
        EffectWord::Int(at_ms),
    ]);
}

/// Replies with the value of the request's first key; true if there is one.
fn reply_value(ctx: &mut Ctx<'_>) -> Result<bool, CmdError> {
    let value = string::get(ctx.store, ctx.client.db, ctx.args.at(1))?;
    let exists = value.is_some();
    match value {
        Some(value) => ctx.reply.bulk(value),
        None => ctx.reply.null(),
    }
    Ok(exists)
}

/// Passes on what was done; if it failed, the reply that began at `start` is taken back.
fn or_take_back<T>(ctx: &mut Ctx<'_>, start: usize, done: Result<T, StoreError>) -> Result<T, CmdError> {
    if done.is_err() {
        ctx.reply.truncate(start);
    }
    Ok(done?)
}

/// SETNX key value
pub fn setnx(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (db, key) = (ctx.client.db, ctx.args.at(1));
    let missing = ctx.store.kind(db, key)?.is_none();
    if missing {
        string::set(ctx.store, db, key, ctx.args.at(2), ExpiryChange::Clear)?;
    }
    ctx.reply.int(i64::from(missing));
    Ok(())
}

/// SETEX key seconds value
pub fn setex(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    set_for(ctx, TimeUnit::Seconds, "setex")
}

/// PSETEX key milliseconds value
pub fn psetex(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    set_for(ctx, TimeUnit::Millis, "psetex")
}

fn set_for(ctx: &mut Ctx<'_>, unit: TimeUnit, command: &str) -> Result<(), CmdError> {
    let at_ms = instant_ms(ctx.args.at(2), unit, ctx.store.now_ms(), command)?;
    string::set(ctx.store, ctx.client.db, ctx.args.at(1), ctx.args.at(3), ExpiryChange::At(at_ms))?;
    say_set_until(ctx, 3, at_ms);
    ctx.reply.ok();
    Ok(())
}

/// GETEX key [EX s | PX ms | EXAT s | PXAT ms | PERSIST]
pub fn getex(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let lifetime = set_options::parse(ctx.args.from(2), OptionContext::GetEx)?.lifetime;
    let (db, key) = (ctx.client.db, ctx.args.at(1));
    let start = ctx.reply.len();
    if !reply_value(ctx)? {
        return Ok(());
    }
    // A time that makes no sense matters only now that there is something to give it to.
    let expiry = match lifetime.expiry(ctx.store.now_ms(), "getex") {
        Ok(expiry) => expiry,
        Err(error) => {
            ctx.reply.truncate(start);
            return Err(error);
        }
    };
    let done = match (lifetime, expiry) {
        (_, ExpiryChange::At(at_ms)) => ctx.store.set_expiry(db, key, Some(at_ms)),
        (ExpiryOption::Persist, _) => ctx.store.set_expiry(db, key, None),
        _ => return Ok(()),
    };
    or_take_back(ctx, start, done)?;
    if let ExpiryChange::At(at_ms) = expiry {
        expire::say_expiry(ctx, at_ms);
    }
    Ok(())
}

/// GETDEL key
pub fn getdel(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    needs_room(ctx)?;
    let start = ctx.reply.len();
    if reply_value(ctx)? {
        let done = ctx.store.remove(ctx.client.db, ctx.args.at(1));
        or_take_back(ctx, start, done)?;
    }
    Ok(())
}

/// Fails if a value would be dropped that the command is to take away and reply with.
fn needs_room(ctx: &Ctx<'_>) -> Result<(), CmdError> {
    ctx.reply.room().map(drop).ok_or(CmdError::REPLY_TOO_LARGE)
}

/// GETSET key value
pub fn getset(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    needs_room(ctx)?;
    let start = ctx.reply.len();
    reply_value(ctx)?;
    let done = string::set(ctx.store, ctx.client.db, ctx.args.at(1), ctx.args.at(2), ExpiryChange::Clear);
    or_take_back(ctx, start, done)
}

/// MGET key …
pub fn mget(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let keys = ctx.args.from(1);
    let start = ctx.reply.len();
    ctx.reply.array(keys.len());
    for key in keys.iter() {
        match string::get(ctx.store, ctx.client.db, key) {
            Ok(Some(value)) => ctx.reply.bulk(value),
            Ok(None) | Err(StoreError::WrongType) => ctx.reply.null(),
            Err(error) => {
                ctx.reply.truncate(start);
                return Err(error.into());
            }
        }
    }
    Ok(())
}

/// MSET key value …
pub fn mset(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    if ctx.args.len().is_multiple_of(2) {
        return Err(CmdError::wrong_args("mset"));
    }
    set_pairs(ctx)?;
    ctx.reply.ok();
    Ok(())
}

/// MSETNX key value …
pub fn msetnx(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    if ctx.args.len().is_multiple_of(2) {
        return Err(CmdError::wrong_args("msetnx"));
    }
    for key in ctx.args.from(1).iter().step_by(2) {
        if ctx.store.kind(ctx.client.db, key)?.is_some() {
            ctx.reply.int(0);
            return Ok(());
        }
    }
    set_pairs(ctx)?;
    ctx.reply.int(1);
    Ok(())
}

fn set_pairs(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    for at in (1..ctx.args.len()).step_by(2) {
        if let Err(error) =
            string::set(ctx.store, ctx.client.db, ctx.args.at(at), ctx.args.at(at + 1), ExpiryChange::Clear)
        {
            ctx.did_only(at);
            return Err(error.into());
        }
    }
    Ok(())
}

/// APPEND key value
pub fn append(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (db, key, value) = (ctx.client.db, ctx.args.at(1), ctx.args.at(2));
    let len = match ctx.steps_owner() {
        Some(owner) => string::append_in_steps(ctx.store, owner, db, key, value)?,
        None => Some(string::append(ctx.store, db, key, value)?),
    };
    let Some(len) = len else { return Err(ctx.not_made_yet()) };
    ctx.reply.int(len as i64);
    Ok(())
}

/// STRLEN key
pub fn strlen(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let len = string::strlen(ctx.store, ctx.client.db, ctx.args.at(1))?;
    ctx.reply.int(len as i64);
    Ok(())
}

/// GETRANGE key start end, also SUBSTR
pub fn getrange(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (start, end) = (ctx.args.int(2)?, ctx.args.int(3)?);
    let value = string::get(ctx.store, ctx.client.db, ctx.args.at(1))?.unwrap_or_default();
    let span = forward_span(value.len() as u64, start, end);
    ctx.reply.bulk(&value[span.start as usize..span.end as usize]);
    Ok(())
}

/// SETRANGE key offset value
pub fn setrange(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let offset = ctx.args.int(2)?;
    let offset = u64::try_from(offset).map_err(|_| CmdError::fixed("ERR offset is out of range"))?;
    let (db, key, value) = (ctx.client.db, ctx.args.at(1), ctx.args.at(3));
    let len = match ctx.steps_owner() {
        Some(owner) => string::set_range_in_steps(ctx.store, owner, db, key, offset, value)?,
        None => Some(string::set_range(ctx.store, db, key, offset, value)?),
    };
    let Some(len) = len else { return Err(ctx.not_made_yet()) };
    ctx.reply.int(len as i64);
    Ok(())
}

/// INCR key
pub fn incr(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    add(ctx, 1)
}

/// DECR key
pub fn decr(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    add(ctx, -1)
}

/// INCRBY key increment
pub fn incrby(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let by = ctx.args.int(2)?;
    add(ctx, by)
}

/// DECRBY key decrement
pub fn decrby(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let by = ctx.args.int(2)?.checked_neg().ok_or(CmdError::fixed("ERR decrement would overflow"))?;
    add(ctx, by)
}

fn add(ctx: &mut Ctx<'_>, by: i64) -> Result<(), CmdError> {
    let sum = string::incr_by(ctx.store, ctx.client.db, ctx.args.at(1), by)?;
    ctx.reply.int(sum);
    Ok(())
}

/// INCRBYFLOAT key increment
pub fn incrbyfloat(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (db, key) = (ctx.client.db, ctx.args.at(1));
    let Some(by) = LongDouble::parse(ctx.args.at(2)) else {
        // A key of another type is the graver error.
        let wrong_type = ctx.store.kind(db, key)?.is_some_and(|kind| kind != ValueType::String);
        return Err(if wrong_type { CmdError::WRONG_TYPE } else { CmdError::NOT_FLOAT });
    };
    let sum = string::incr_by_float(ctx.store, db, key, by)?;
    let keep = EffectWord::Bytes(b"KEEPTTL");
    ctx.say_effect(&[EffectWord::Bytes(b"SET"), EffectWord::Arg(1), EffectWord::Bytes(sum.as_bytes()), keep]);
    ctx.reply.bulk_str(&sum);
    Ok(())
}
