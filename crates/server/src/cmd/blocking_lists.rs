//! List commands that wait for an element: BLPOP and its kin.
//!
//! Relies on `lists` for what they do when there is one, and on the server's one way to wait for the rest: a request that finds no element
//! is run again when one of its keys was changed. What it has done then is told to the log in words of the command that
//! does not wait.

use std::ops::Range;

use quire_store::{End, numbers};

use crate::awaited_keys::UnblockOutcome;
use crate::cmd::lists::{MultiPop, end, move_element, pop_first};
use crate::ctx::{CmdError, Ctx};
use crate::durability::UNBLOCKED;
use crate::effects::EffectWord;

const NOT_A_TIMEOUT: CmdError = CmdError::fixed("ERR timeout is not a float or out of range");
const TIMEOUT_TOO_LONG: CmdError = CmdError::fixed("ERR timeout is out of range");
const NEGATIVE_TIMEOUT: CmdError = CmdError::fixed("ERR timeout is negative");

/// When a client that begins to wait now has waited for the seconds that a word says, on the server's monotonic clock; 0 stands for ever.
/// A client that waits already keeps its deadline.
fn deadline_ms(ctx: &Ctx<'_>, at: usize) -> Result<Option<u64>, CmdError> {
    if ctx.client.waits_on_keys() {
        return Ok(None);
    }
    let ms = (numbers::parse_f64(ctx.args.at(at)).ok_or(NOT_A_TIMEOUT)? * 1000.0).ceil();
    // As in Redis the instant has to be one that its clock can tell.
    let latest_ms = i64::MAX.saturating_sub(ctx.server.clock.unix_ms);
    if ms > latest_ms as f64 {
        Err(TIMEOUT_TOO_LONG)
    } else if ms < 0.0 {
        Err(NEGATIVE_TIMEOUT)
    } else {
        Ok((ms > 0.0).then(|| ctx.server.clock_ms().saturating_add(ms as u64)))
    }
}

/// Whether the time of the waiting is up, or another client has ended it as if it was; the reply to that is given here.
fn is_over(ctx: &mut Ctx<'_>) -> Result<bool, CmdError> {
    match ctx.wait_ended() {
        None => Ok(false),
        Some(UnblockOutcome::TimeOut) => {
            ctx.reply.null_array();
            Ok(true)
        }
        Some(UnblockOutcome::Error) => Err(UNBLOCKED),
    }
}

/// None of the keys has an element: the client waits.
fn wait(ctx: &mut Ctx<'_>, keys: Range<usize>, deadline_ms: Option<u64>) -> Result<(), CmdError> {
    Err(ctx.wait_on_keys(ctx.args.iter().skip(keys.start).take(keys.len()), deadline_ms))
}

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
        None => return wait(ctx, keys, deadline_ms),
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
        None => return wait(ctx, keys, deadline_ms),
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
        return wait(ctx, 1..2, deadline_ms);
    }
    Ok(())
}
