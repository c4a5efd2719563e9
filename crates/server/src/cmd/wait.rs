//! WAIT and WAITAOF: wait until what the client has written is where it should be.
//!
//! Relies on `durability` for what that is. The loop holds the client's further requests and ends the waiting.

use super::key_waits::deadline_after;
use crate::blocked::{BlockReason, Durability};
use crate::ctx::{CmdError, Ctx};
use crate::durability;

const BAD_LOCAL: CmdError = CmdError::fixed("ERR value is out of range, value must between 0 and 1");
const NOT_POSITIVE: CmdError = CmdError::fixed("ERR value is out of range, must be positive");

/// WAIT numreplicas timeout
pub fn wait(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let replicas = ctx.args.int(1)? > 0;
    let deadline_ms = deadline_after(ctx, 2)?;
    let sequence = ctx.client.log.last_write;
    wait_for(ctx, Durability { local: false, sequence, replicas, tells_log: false }, deadline_ms)
}

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
    let deadline_ms = deadline_after(ctx, 3)?;
    let wanted = Durability { local, sequence: ctx.client.log.last_write, replicas, tells_log: true };
    if let Some(log_writer) = &mut ctx.server.log_writer
        && local
        && !log_writer.is_safe(wanted.sequence)
    {
        log_writer.hurry();
    }
    wait_for(ctx, wanted, deadline_ms)
}

fn wait_for(ctx: &mut Ctx<'_>, wanted: Durability, deadline_ms: Option<u64>) -> Result<(), CmdError> {
    let durable = durability::state_now(ctx.server, &wanted)?;
    // A transaction is run to its end.
    if ctx.client.in_exec || durability::is_met(&wanted, durable) {
        durability::reply(ctx.reply, &wanted, durable);
        return Ok(());
    }
    ctx.block(BlockReason::Durability(wanted), deadline_ms);
    Ok(())
}
