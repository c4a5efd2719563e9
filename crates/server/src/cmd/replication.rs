//! ROLE and REPLICAOF: the server is a master without replicas, and stays one.
//!
//! Relies on nothing else.

use crate::ctx::{CmdError, Ctx};

const NO_REPLICATION: CmdError = CmdError::fixed("ERR there is no replication");
const BAD_PORT: CmdError = CmdError::fixed("ERR Invalid master port");

/// ROLE
pub fn role(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    ctx.reply.array(3);
    ctx.reply.bulk_str("master");
    ctx.reply.int(0);
    ctx.reply.array(0);
    Ok(())
}

/// REPLICAOF host port | NO ONE, and SLAVEOF
pub fn replicaof(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    if ctx.args.is(1, "NO") && ctx.args.is(2, "ONE") {
        ctx.reply.ok();
        return Ok(());
    }
    match ctx.args.int(2) {
        Ok(0..=65535) => Err(NO_REPLICATION),
        _ => Err(BAD_PORT),
    }
}
