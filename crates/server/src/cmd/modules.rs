//! MODULE: there are no modules, and none can be loaded.
//!
//! Relies on nothing else.

use crate::ctx::{CmdError, Ctx};

// Client libraries know these errors by their texts.
const NOT_LOADED: CmdError = CmdError::fixed("ERR Error loading the extension. Please check the server logs.");
const NO_SUCH_MODULE: CmdError = CmdError::fixed("ERR Error unloading module: no such module with that name");

/// MODULE LIST
pub fn list(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    ctx.reply.array(0);
    Ok(())
}

/// MODULE LOAD path [arg …], and MODULE LOADEX
pub fn load(_: &mut Ctx<'_>) -> Result<(), CmdError> {
    Err(NOT_LOADED)
}

/// MODULE UNLOAD name
pub fn unload(_: &mut Ctx<'_>) -> Result<(), CmdError> {
    Err(NO_SUCH_MODULE)
}
