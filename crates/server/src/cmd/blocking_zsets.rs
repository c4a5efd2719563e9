//! Sorted-set commands that wait for a member: BZPOPMIN and its kin.
//!
//! Relies on `zsets` for what they do when there is one, which also tells the log what was taken, and on `key_waits` for the rest.

use quire_store::{Direction, ValueType};

use crate::cmd::key_waits::{deadline_ms, is_over, wait};
use crate::cmd::zsets::{MultiPop, pop_first, write_pair};
use crate::ctx::{CmdError, Ctx};

/// BZPOPMIN key … timeout
pub fn bzpopmin(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    pop(ctx, Direction::Up)
}

/// BZPOPMAX key … timeout
pub fn bzpopmax(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    pop(ctx, Direction::Down)
}

fn pop(ctx: &mut Ctx<'_>, from: Direction) -> Result<(), CmdError> {
    let keys = 1..ctx.args.len() - 1;
    let deadline_ms = deadline_ms(ctx, keys.end)?;
    if is_over(ctx)? {
        return Ok(());
    }
    let Some((at, popped)) = pop_first(ctx, keys.clone(), from, 1)? else {
        // A transaction doesn't wait.
        if ctx.client.in_exec {
            ctx.reply.null_array();
            return Ok(());
        }
        return wait(ctx, ValueType::Zset, keys, deadline_ms);
    };
    ctx.reply.array(1 + 2 * popped.len());
    ctx.reply.bulk(ctx.args.at(at));
    popped.iter().for_each(|(score, member)| write_pair(ctx.reply, false, score, member));
    Ok(())
}

/// BZMPOP timeout numkeys key … MIN|MAX [COUNT count]
pub fn bzmpop(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    // The time is looked at last, as in Redis.
    let request = MultiPop::parse(ctx.args, 2)?;
    let deadline_ms = deadline_ms(ctx, 1)?;
    if is_over(ctx)? {
        return Ok(());
    }
    if request.run(ctx)? {
        return Ok(());
    }
    if ctx.client.in_exec {
        ctx.reply.null_array();
        return Ok(());
    }
    wait(ctx, ValueType::Zset, request.keys, deadline_ms)
}
