//! WAITAOF: waits until what the client has written is durable.
//!
//! Relies on the log's numbers for what that is. The loop holds the client's further requests and ends the waiting.

use crate::client::Waits;
use crate::ctx::{CmdError, Ctx};
use crate::journaling;
use crate::resp::Reply;
use crate::state::ServerState;

const NO_LOG: CmdError = CmdError::fixed("ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.");
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
    let sequence = ctx.client.last_write;
    let waits = Waits { local, sequence, replicas, until_ms: None, silent: false };
    if let Some(journal) = &mut ctx.server.journal
        && local
        && !journal.is_safe(sequence)
    {
        journal.hurry();
    }
    let answer = if ctx.client.in_exec {
        // A transaction is run to its end.
        Some(state_now(ctx.server, &waits))
    } else {
        answer(ctx.server, &waits)
    };
    if let Some(answer) = answer {
        reply(ctx.reply, answer?);
        return Ok(());
    }
    // Half a turn may have passed since the clock was looked at; 0 waits for ever.
    let until_ms = (timeout_ms > 0).then(|| ctx.server.clock_ms().saturating_add(timeout_ms));
    ctx.client.waits = Some(Waits { until_ms, ..waits });
    ctx.server.journal_state.waiting.push(ctx.client.id);
    Ok(())
}

/// Whether what the client has written is durable.
fn state_now(server: &ServerState, waits: &Waits) -> Result<bool, CmdError> {
    match &server.journal {
        None if waits.local => Err(NO_LOG),
        None => Ok(false),
        Some(journal) if journal.is_safe(waits.sequence) => Ok(true),
        Some(journal) => match journal.failure().filter(|_| waits.local) {
            Some(error) => Err(CmdError::owned(journaling::failed(error))),
            None => Ok(false),
        },
    }
}

/// What to reply to a client that waits: whether what it has written is durable. `None` while it has to wait on.
///
/// # Errors
/// It waits in vain: there is no log, or it has failed.
pub fn answer(server: &ServerState, waits: &Waits) -> Option<Result<bool, CmdError>> {
    let late = waits.until_ms.is_some_and(|until_ms| until_ms <= server.clock_ms());
    match state_now(server, waits) {
        Ok(safe) if !late && (waits.replicas || waits.local && !safe) => None,
        answer => Some(answer),
    }
}

/// The reply: on how many logs and replicas it is durable. There are no replicas.
pub fn reply(reply: &mut Reply, local: bool) {
    reply.array(2);
    reply.int(i64::from(local));
    reply.int(0);
}
