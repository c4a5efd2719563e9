//! INFO and TIME.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::ctx::{CmdError, Ctx};
use crate::info::{self, InfoSource};

/// INFO [section …]
pub fn info(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let wanted: Vec<&[u8]> = ctx.args.from(1).iter().collect();
    let text = info::text(&InfoSource { store: ctx.store, server: ctx.server, client: ctx.client }, &wanted);
    ctx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// TIME
pub fn time(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    ctx.reply.array(2);
    ctx.reply.bulk_int(now.as_secs() as i64);
    ctx.reply.bulk_int(i64::from(now.subsec_micros()));
    Ok(())
}
