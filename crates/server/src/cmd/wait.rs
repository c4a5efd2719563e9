//! WAITAOF: waits until what the client has written is durable.
//!
//! Relies on `durability` for what that is. The loop holds the client's further requests and ends the waiting.

use crate::blocked::{BlockReason, Durability};
use crate::ctx::{CmdError, Ctx};
use crate::durability;

const BAD_LOCAL: CmdError = CmdError::fixed("ERR value is out of range, value must between 0 and 1");
const NOT_POSITIVE: CmdError = CmdError::fixed("ERR value is out of range, must be positive");
const BAD_TIMEOUT: CmdError = CmdError::fixed("ERR timeout is not an integer or out of range");
const NEGATIVE_TIMEOUT: CmdError = CmdError::fixed("ERR timeout is negative");

/// WAITAOF numlocal numreplicas timeout
pub fn waitaof(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let local = match ctx.args.int(1)? {
        local @ 0..=1 => local == 1,
        _ => return Err(BAD_LOCAL),
    };
    let replicas = match ctx.args.int(2)? {
        0 => false,
        1.. => true,
        _ => return Err(NOT_POSITIVE),
    };
    let timeout_ms = match ctx.args.int(3).map_err(|_| BAD_TIMEOUT)? {
        timeout_ms @ 0.. => timeout_ms as u64,
        _ => return Err(NEGATIVE_TIMEOUT),
    };
    let wanted = Durability { local, sequence: ctx.client.log.last_write, replicas };
    if let Some(log_writer) = &mut ctx.server.log_writer
        && local
        && !log_writer.is_safe(wanted.sequence)
    {
        log_writer.hurry();
    }
    let durable = durability::state_now(ctx.server, &wanted)?;
    // A transaction is run to its end.
    if ctx.client.in_exec || durability::is_met(&wanted, durable) {
        durability::reply(ctx.reply, durable);
        return Ok(());
    }
    // 0 waits for ever.
    let deadline_ms = (timeout_ms > 0).then(|| ctx.server.clock_ms().saturating_add(timeout_ms));
    ctx.block(BlockReason::Durability(wanted), deadline_ms);
    Ok(())
}
