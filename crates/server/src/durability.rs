//! Whether what a client has written is durable, and what is replied to a client that waits for that.
//!
//! Relies on the log's numbers.

use crate::awaited_keys::UnblockOutcome;
use crate::blocked::{BlockReason, BlockedClient, Durability};
use crate::ctx::CmdError;
use crate::log_control;
use crate::resp::Reply;
use crate::state::ServerState;

const NO_LOG: CmdError = CmdError::fixed("ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.");
/// CLIENT UNBLOCK with ERROR has ended a client's waiting.
pub const UNBLOCKED: CmdError = CmdError::fixed("UNBLOCKED client unblocked via CLIENT UNBLOCK");

/// Whether the writes are durable where they should be.
///
/// # Errors
/// They never will be: there is no log, or it has failed.
pub fn state_now(server: &ServerState, wanted: &Durability) -> Result<bool, CmdError> {
    match &server.log_writer {
        None if wanted.local => Err(NO_LOG),
        None => Ok(false),
        Some(log_writer) if log_writer.is_safe(wanted.sequence) => Ok(true),
        Some(log_writer) => match log_writer.failure().filter(|_| wanted.local) {
            Some(error) => Err(CmdError::owned(log_control::failed(error))),
            None => Ok(false),
        },
    }
}

/// Whether there is nothing (more) to wait for.
pub fn is_met(wanted: &Durability, durable: bool) -> bool {
    !wanted.replicas && (durable || !wanted.local)
}

/// What to reply to a client that waits: whether what it has written is durable. `None` while it has to wait on.
///
/// # Errors
/// It waits in vain, or was unblocked with an error.
pub fn answer(server: &ServerState, blocked: &BlockedClient) -> Option<Result<bool, CmdError>> {
    let BlockReason::Durability(wanted) = &blocked.on else { return None };
    let late = blocked.deadline_ms.is_some_and(|deadline_ms| deadline_ms <= server.clock_ms());
    match (blocked.unblocked, state_now(server, wanted)) {
        (Some(UnblockOutcome::Error), _) => Some(Err(UNBLOCKED)),
        (None, Ok(durable)) if !late && !is_met(wanted, durable) => None,
        (Some(UnblockOutcome::TimeOut) | None, answer) => Some(answer),
    }
}

/// The reply: on how many logs, if it tells that, and on how many replicas it is durable. There are no replicas.
pub fn reply(reply: &mut Reply, wanted: &Durability, durable: bool) {
    if wanted.tells_log {
        reply.array(2);
        reply.int(i64::from(durable));
    }
    reply.int(0);
}
