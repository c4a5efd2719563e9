//! ROLE, REPLICAOF and MODULE: the server stands alone. It is a master without replicas, has no modules, and stays so.
//!
//! Relies on nothing else.

use crate::ctx::{CmdError, Ctx};

const NO_REPLICATION: CmdError = CmdError::fixed("ERR there is no replication");
const BAD_PORT: CmdError = CmdError::fixed("ERR Invalid master port");
// Client libraries know these errors by their texts.
const NOT_LOADED: CmdError = CmdError::fixed("ERR Error loading the extension. Please check the server logs.");
const NO_SUCH_MODULE: CmdError = CmdError::fixed("ERR Error unloading module: no such module with that name");

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

/// MODULE LIST
pub fn module_list(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    ctx.reply.array(0);
    Ok(())
}

/// MODULE LOAD path [arg …], and MODULE LOADEX
pub fn module_load(_: &mut Ctx<'_>) -> Result<(), CmdError> {
    Err(NOT_LOADED)
}

/// MODULE UNLOAD name
pub fn module_unload(_: &mut Ctx<'_>) -> Result<(), CmdError> {
    Err(NO_SUCH_MODULE)
}
