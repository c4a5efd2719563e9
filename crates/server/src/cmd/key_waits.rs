//! How a command waits for what one of some keys has: its time, and how it ends without.
//!
//! Relies on the server's one way to wait: a request that finds nothing to take is run again when one of its keys was changed.

use std::ops::Range;

use quire_store::{ValueType, numbers};

use crate::awaited_keys::UnblockOutcome;
use crate::ctx::{CmdError, Ctx};
use crate::durability::UNBLOCKED;

const NOT_A_TIMEOUT: CmdError = CmdError::fixed("ERR timeout is not a float or out of range");
const NOT_AN_INTEGER: CmdError = CmdError::fixed("ERR timeout is not an integer or out of range");
const TIMEOUT_TOO_LONG: CmdError = CmdError::fixed("ERR timeout is out of range");
const NEGATIVE_TIMEOUT: CmdError = CmdError::fixed("ERR timeout is negative");

/// When a client that begins to wait now has waited for the seconds that a word says, on the server's monotonic clock; 0 stands for ever.
/// A client that waits already keeps its deadline.
pub(super) fn deadline_ms(ctx: &Ctx<'_>, at: usize) -> Result<Option<u64>, CmdError> {
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

/// The same for milliseconds that a word says.
pub(super) fn deadline_after(ctx: &Ctx<'_>, at: usize) -> Result<Option<u64>, CmdError> {
    if ctx.client.waits_on_keys() {
        return Ok(None);
    }
    let ms = ctx.args.int(at).map_err(|_| NOT_AN_INTEGER)?;
    if ms > i64::MAX.saturating_sub(ctx.server.clock.unix_ms) {
        Err(TIMEOUT_TOO_LONG)
    } else if ms < 0 {
        Err(NEGATIVE_TIMEOUT)
    } else {
        Ok((ms > 0).then(|| ctx.server.clock_ms().saturating_add(ms as u64)))
    }
}

/// Whether the time of the waiting is up, or another client has ended it as if it was; the reply to that is given here.
pub(super) fn is_over(ctx: &mut Ctx<'_>) -> Result<bool, CmdError> {
    match ctx.wait_ended() {
        None => Ok(false),
        Some(UnblockOutcome::TimeOut) => {
            ctx.reply.null_array();
            Ok(true)
        }
        Some(UnblockOutcome::Error) => Err(UNBLOCKED),
    }
}

/// None of the keys that these words are has a value of the type: the client waits.
pub(super) fn wait(
    ctx: &mut Ctx<'_>,
    kind: ValueType,
    keys: Range<usize>,
    deadline_ms: Option<u64>,
) -> Result<(), CmdError> {
    Err(ctx.wait_on_keys(kind, ctx.args.iter().skip(keys.start).take(keys.len()), deadline_ms))
}
