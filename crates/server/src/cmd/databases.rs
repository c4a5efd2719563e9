//! Databases: SELECT, SWAPDB, DBSIZE, FLUSHDB, FLUSHALL.

use quire_store::DbId;

use crate::ctx::{CmdError, Ctx};
use crate::invalidation;

const NOT_AN_INT: CmdError =
    CmdError::fixed("ERR value is out of range, value must between -2147483648 and 2147483647");

/// The database that word `index` of the request names.
pub(super) fn db_of(ctx: &Ctx<'_>, index: usize) -> Result<DbId, CmdError> {
    u8::try_from(number(ctx, index)?)
        .ok()
        .filter(|&db| db < ctx.store.databases())
        .map(DbId)
        .ok_or(CmdError::DB_OUT_OF_RANGE)
}

fn number(ctx: &Ctx<'_>, index: usize) -> Result<i32, CmdError> {
    i32::try_from(ctx.args.int(index)?).map_err(|_| NOT_AN_INT)
}

/// SELECT index
pub fn select(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    ctx.client.db = db_of(ctx, 1)?;
    ctx.reply.ok();
    Ok(())
}

/// SWAPDB index1 index2
pub fn swapdb(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    // Both words are read before either database is looked for.
    number(ctx, 1).map_err(|_| CmdError::fixed("ERR invalid first DB index"))?;
    number(ctx, 2).map_err(|_| CmdError::fixed("ERR invalid second DB index"))?;
    let (first, second) = (db_of(ctx, 1)?, db_of(ctx, 2)?);
    ctx.store.swap(first, second)?;
    ctx.reply.ok();
    Ok(())
}

/// DBSIZE
pub fn dbsize(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    ctx.reply.int(ctx.store.len(ctx.client.db) as i64);
    Ok(())
}

/// ASYNC and SYNC are the same: the database is empty at once, its memory is freed afterwards, step by step.
fn check_mode(ctx: &Ctx<'_>) -> Result<(), CmdError> {
    match ctx.args.len() {
        1 => Ok(()),
        2 if ctx.args.is(1, "ASYNC") || ctx.args.is(1, "SYNC") => Ok(()),
        _ => Err(CmdError::SYNTAX),
    }
}

/// Clients that keep keys in caches of their own do not know of which database they are.
fn tell_flushed(ctx: &mut Ctx<'_>) {
    if ctx.server.clients.tracking.any() {
        invalidation::tell_all_changed(ctx.server);
    }
}

/// FLUSHDB [ASYNC | SYNC]
pub fn flushdb(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    check_mode(ctx)?;
    ctx.store.flush(ctx.client.db)?;
    tell_flushed(ctx);
    ctx.reply.ok();
    Ok(())
}

/// FLUSHALL [ASYNC | SYNC]
pub fn flushall(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    check_mode(ctx)?;
    ctx.store.flush_all()?;
    tell_flushed(ctx);
    ctx.reply.ok();
    Ok(())
}
