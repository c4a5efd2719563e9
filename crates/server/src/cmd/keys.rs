//! What can be done with a key whatever its value is: EXISTS, DEL, TYPE, RENAME, COPY, MOVE, OBJECT and their
//! relatives.
//!
//! Relies on the store; databases are chosen as `databases` reads them.

use quire_store::{CopyProgress, ValueType};

use crate::cmd::databases::db_of;
use crate::ctx::{CmdError, Ctx};

const SAME: CmdError = CmdError::fixed("ERR source and destination objects are the same");
const NO_LRU: CmdError = CmdError::fixed(
    "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching between policies at \
     runtime LRU and LFU data will take some time to adjust.",
);
const NO_LFU: CmdError = CmdError::fixed(
    "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between \
     policies at runtime LRU and LFU data will take some time to adjust.",
);

/// EXISTS key …
pub fn exists(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let mut count = 0;
    for key in ctx.args.from(1).iter() {
        count += i64::from(ctx.store.exists(ctx.client.db, key)?);
    }
    ctx.reply.int(count);
    Ok(())
}

/// DEL key …, and UNLINK key …: big values are freed later, whichever of the two is asked for.
#[inline]
pub fn del(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let mut count = 0;
    for key in ctx.args.from(1).iter() {
        count += i64::from(ctx.store.remove(ctx.client.db, key)?);
    }
    ctx.reply.int(count);
    Ok(())
}

/// TYPE key
pub fn kind(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (db, key) = (ctx.client.db, ctx.args.at(1));
    let kind = ctx.store.kind(db, key)?;
    ctx.store.note_read(db, key, kind.is_some());
    ctx.reply.simple(kind.map_or("none", ValueType::name));
    Ok(())
}

/// TOUCH key …
pub fn touch(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let mut count = 0;
    for key in ctx.args.from(1).iter() {
        count += i64::from(ctx.store.touch(ctx.client.db, key)?);
    }
    ctx.reply.int(count);
    Ok(())
}

/// RANDOMKEY
pub fn randomkey(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    match ctx.store.random_key(ctx.client.db)? {
        Some(key) => ctx.reply.bulk(&key),
        None => ctx.reply.null(),
    }
    Ok(())
}

/// RENAME key newkey
pub fn rename(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (db, from, to) = (ctx.client.db, ctx.args.at(1), ctx.args.at(2));
    let found = if from == to { ctx.store.kind(db, from)?.is_some() } else { ctx.store.rename(db, from, to)? };
    if !found {
        return Err(CmdError::NO_SUCH_KEY);
    }
    ctx.reply.ok();
    Ok(())
}

/// RENAMENX key newkey
pub fn renamenx(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (db, from, to) = (ctx.client.db, ctx.args.at(1), ctx.args.at(2));
    if ctx.store.kind(db, from)?.is_none() {
        return Err(CmdError::NO_SUCH_KEY);
    }
    let free = ctx.store.kind(db, to)?.is_none();
    if free {
        ctx.store.rename(db, from, to)?;
    }
    ctx.reply.int(i64::from(free));
    Ok(())
}

/// COPY source destination [DB db] [REPLACE]: large values are copied in steps between other commands, except in a transaction.
pub fn copy(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (from, to) = (ctx.args.at(1), ctx.args.at(2));
    let (mut to_db, mut replace) = (ctx.client.db, false);
    let mut at = 3;
    while at < ctx.args.len() {
        if ctx.args.is(at, "REPLACE") {
            replace = true;
        } else if ctx.args.is(at, "DB") && at + 1 < ctx.args.len() {
            at += 1;
            to_db = db_of(ctx, at)?;
        } else {
            return Err(CmdError::SYNTAX);
        }
        at += 1;
    }
    if from == to && to_db == ctx.client.db {
        return Err(SAME);
    }
    let (id, db) = (ctx.client.id, ctx.client.db);
    let found = ctx.store.kind(db, from)?.is_some();
    let copied = if ctx.client.in_exec {
        ctx.store.copy(db, from, to_db, to, replace)?
    } else {
        match ctx.store.copy_in_steps(id, db, from, to_db, to, replace)? {
            CopyProgress::Done(copied) => copied,
            CopyProgress::UnderWay | CopyProgress::Busy => return Err(ctx.not_made_yet()),
        }
    };
    ctx.store.note_read(db, from, found);
    ctx.reply.int(i64::from(copied));
    Ok(())
}

/// MOVE key db
pub fn move_key(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let to_db = db_of(ctx, 2)?;
    if to_db == ctx.client.db {
        return Err(SAME);
    }
    let moved = ctx.store.move_key(ctx.client.db, ctx.args.at(1), to_db)?;
    ctx.reply.int(i64::from(moved));
    Ok(())
}

/// OBJECT ENCODING key
pub fn object_encoding(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    match encoding_of(ctx)? {
        Some(name) => ctx.reply.bulk_str(name),
        None => ctx.reply.null(),
    }
    Ok(())
}

/// OBJECT FREQ key
pub fn object_freq(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let exists = encoding_of(ctx)?.is_some();
    if exists && ctx.server.config.maxmemory.access_counting().is_none() {
        return Err(NO_LFU);
    }
    match ctx.store.access_count(ctx.client.db, ctx.args.at(2))? {
        Some(count) => ctx.reply.int(i64::from(count)),
        None => ctx.reply.null(),
    }
    Ok(())
}

/// OBJECT IDLETIME key
pub fn object_idletime(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let exists = encoding_of(ctx)?.is_some();
    if exists && ctx.server.config.maxmemory.access_counting().is_some() {
        return Err(NO_LRU);
    }
    match ctx.store.idle_seconds(ctx.client.db, ctx.args.at(2))? {
        Some(seconds) => ctx.reply.int(seconds as i64),
        None => ctx.reply.null(),
    }
    Ok(())
}

/// OBJECT REFCOUNT key
pub fn object_refcount(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    match encoding_of(ctx)? {
        // Nothing is shared between keys.
        Some(_) => ctx.reply.int(1),
        None => ctx.reply.null(),
    }
    Ok(())
}

/// How the value is stored, if the key exists. Counts as a look-up but is no access, which would reset what is asked for. No client is
/// told of a miss.
fn encoding_of(ctx: &mut Ctx<'_>) -> Result<Option<&'static str>, CmdError> {
    let encoding = ctx.store.encoding(ctx.client.db, ctx.args.at(2))?;
    ctx.store.count_read(encoding.is_some());
    Ok(encoding)
}
