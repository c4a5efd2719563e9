//! List commands that wait for an element: BLPOP and its kin.
//!
//! Relies on `lists` for what they do when there is one, and on `key_waits` for the rest. What a request has done is told to the log in
//! words of the command that does not wait.

use quire_store::{End, ValueType};

use crate::cmd::key_waits::{deadline_ms, is_over, wait};
use crate::cmd::lists::{MultiPop, end, move_element, pop_first};
use crate::ctx::{CmdError, Ctx};
use crate::effects::EffectWord;

/// The command that takes elements from an end.
fn pop_at(end: End) -> EffectWord<'static> {
    EffectWord::Bytes(if end == End::Front { b"LPOP" } else { b"RPOP" })
}

/// BLPOP key … timeout
pub fn blpop(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    pop(ctx, End::Front)
}

/// BRPOP key … timeout
pub fn brpop(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    pop(ctx, End::Back)
}

fn pop(ctx: &mut Ctx<'_>, end: End) -> Result<(), CmdError> {
    let keys = 1..ctx.args.len() - 1;
    let deadline_ms = deadline_ms(ctx, keys.end)?;
    if is_over(ctx)? {
        return Ok(());
    }
    match pop_first(ctx, keys.clone(), end, None, None)? {
        Some(at) => ctx.say_effect(&[pop_at(end), EffectWord::Arg(at)]),
        // A transaction doesn't wait.
        None if ctx.client.in_exec => ctx.reply.null_array(),
        None => return wait(ctx, ValueType::List, keys, deadline_ms),
    }
    Ok(())
}

/// BLMPOP timeout numkeys key … LEFT|RIGHT [COUNT count]
pub fn blmpop(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    // The time is looked at last, as in Redis.
    let MultiPop { keys, end, count } = MultiPop::parse(ctx.args, 2)?;
    let deadline_ms = deadline_ms(ctx, 1)?;
    if is_over(ctx)? {
        return Ok(());
    }
    // A client that waits on the keys cannot wait for steps as well.
    let owner = ctx.steps_owner().filter(|_| !ctx.client.waits_on_keys());
    match pop_first(ctx, keys.clone(), end, Some(count), owner)? {
        Some(at) => ctx.say_effect(&[pop_at(end), EffectWord::Arg(at), EffectWord::Int(count as i64)]),
        None if ctx.client.in_exec => ctx.reply.null_array(),
        None => return wait(ctx, ValueType::List, keys, deadline_ms),
    }
    Ok(())
}

/// BLMOVE source destination LEFT|RIGHT LEFT|RIGHT timeout
pub fn blmove(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (from, to) = (end(ctx.args, 3)?, end(ctx.args, 4)?);
    move_or_wait(ctx, from, to, 5, b"LMOVE")
}

/// BRPOPLPUSH source destination timeout
pub fn brpoplpush(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    move_or_wait(ctx, End::Back, End::Front, 3, b"RPOPLPUSH")
}

/// `timeout_at` is the last word; without it and with the name `effect` the request is one that does not wait.
fn move_or_wait(ctx: &mut Ctx<'_>, from: End, to: End, timeout_at: usize, effect: &[u8]) -> Result<(), CmdError> {
    let deadline_ms = deadline_ms(ctx, timeout_at)?;
    if is_over(ctx)? {
        return Ok(());
    }
    if move_element(ctx, from, to)? {
        let words: Vec<EffectWord<'_>> =
            std::iter::once(EffectWord::Bytes(effect)).chain((1..timeout_at).map(EffectWord::Arg)).collect();
        ctx.say_effect(&words);
    } else if ctx.client.in_exec {
        ctx.reply.null();
    } else {
        return wait(ctx, ValueType::List, 1..2, deadline_ms);
    }
    Ok(())
}
