//! SAVE, BGSAVE, LASTSAVE and SHUTDOWN.

use crate::ctx::{CmdError, Ctx};
use crate::persistence;
use crate::state::Shutdown;

const IN_PROGRESS: CmdError = CmdError::fixed("ERR Background save already in progress");
const REWRITE_IN_PROGRESS: CmdError = CmdError::fixed("ERR Background append only file rewriting already in progress");
const NOT_IN_PROGRESS: CmdError = CmdError::fixed("ERR Background saving is currently not in progress or scheduled");

/// SAVE
pub fn save(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    persistence::poll(ctx.store, ctx.server);
    if ctx.server.saves.running_since.is_some() {
        return Err(IN_PROGRESS);
    }
    persistence::save_now(ctx.store, ctx.server).map_err(|reason| CmdError::owned(format!("ERR {reason}")))?;
    ctx.reply.ok();
    Ok(())
}

/// BGSAVE [SCHEDULE | CANCEL]
pub fn bgsave(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let mut schedule = false;
    match ctx.args.len() {
        1 => {}
        2 if ctx.args.is(1, "SCHEDULE") => schedule = true,
        2 if ctx.args.is(1, "CANCEL") => return cancel(ctx),
        _ => return Err(CmdError::SYNTAX),
    }
    check_place(ctx)?;
    persistence::poll(ctx.store, ctx.server);
    if ctx.server.saves.running_since.is_some() {
        return Err(IN_PROGRESS);
    }
    if ctx.client.in_exec || !persistence::may_begin(ctx.store, ctx.server) {
        // At the end of the transaction, since an image must not hold half of it, or of the restore, since it must not hold
        // what was not verified.
        ctx.server.saves.scheduled = true;
        ctx.reply.simple("Background saving scheduled");
        return Ok(());
    }
    match persistence::begin(ctx.store, ctx.server) {
        Ok(()) => ctx.reply.simple("Background saving started"),
        Err(_) if schedule => {
            ctx.server.saves.scheduled = true;
            ctx.reply.simple("Background saving scheduled");
        }
        Err(reason) => return Err(CmdError::owned(format!("ERR {reason}"))),
    }
    Ok(())
}

/// A save that can't be is refused now, even if it would have to wait for something else first.
fn check_place(ctx: &Ctx<'_>) -> Result<(), CmdError> {
    persistence::may_save(ctx.server).map_err(|reason| CmdError::owned(format!("ERR {reason}")))
}

fn cancel(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    if persistence::cancel(ctx.store, ctx.server) {
        ctx.reply.simple("Background saving cancelled");
    } else if std::mem::take(&mut ctx.server.saves.scheduled) {
        ctx.reply.simple("Scheduled background saving cancelled");
    } else {
        return Err(NOT_IN_PROGRESS);
    }
    Ok(())
}

/// BGREWRITEAOF: an image makes the log that it covers unnecessary.
pub fn bgrewriteaof(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    check_place(ctx)?;
    persistence::poll(ctx.store, ctx.server);
    let running = ctx.server.saves.running_since.is_some();
    if running && ctx.server.saves.for_log {
        return Err(REWRITE_IN_PROGRESS);
    }
    if ctx.client.in_exec || !persistence::may_begin(ctx.store, ctx.server) {
        ctx.server.saves.rewrites.scheduled = true;
        ctx.reply.simple("Background append only file rewriting scheduled");
        return Ok(());
    }
    persistence::begin_for_log(ctx.store, ctx.server).map_err(|reason| CmdError::owned(format!("ERR {reason}")))?;
    ctx.reply.simple("Background append only file rewriting started");
    Ok(())
}

/// LASTSAVE
pub fn lastsave(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    ctx.reply.int(ctx.server.saves.last_save_unix_s);
    Ok(())
}

/// SHUTDOWN [NOSAVE | SAVE] [NOW] [FORCE] [ABORT]
pub fn shutdown(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let mut shutdown = Shutdown::default();
    let (mut abort, mut others) = (false, false);
    for index in 1..ctx.args.len() {
        if ctx.args.is(index, "ABORT") {
            abort = true;
            continue;
        }
        others = true;
        if ctx.args.is(index, "SAVE") {
            shutdown.save = true;
        } else if ctx.args.is(index, "NOSAVE") {
            shutdown.no_save = true;
        } else if ctx.args.is(index, "FORCE") {
            shutdown.force = true;
        } else if !ctx.args.is(index, "NOW") {
            return Err(CmdError::SYNTAX);
        }
    }
    if abort && others || shutdown.save && shutdown.no_save {
        return Err(CmdError::SYNTAX);
    }
    if abort {
        // Without replicas to wait for, the end never takes long enough to be called off.
        return Err(CmdError::fixed("ERR No shutdown in progress."));
    }
    if let Some(running) = ctx.server.scripts.running.as_ref().filter(|_| !shutdown.no_save) {
        return Err(CmdError::fixed(running.kind.busy_line()));
    }
    tracing::info!(client = %ctx.client.peer.address, "SHUTDOWN");
    if !persistence::shut_down(ctx.store, ctx.server, shutdown) {
        return Err(CmdError::fixed("ERR Errors trying to SHUTDOWN. Check logs."));
    }
    // All is saved that should be; the loop ends after this command, without a reply, and no other command runs.
    ctx.server.ending.request = Some(Shutdown { no_save: true, force: true, ..Shutdown::default() });
    ctx.client.closing = crate::client::CloseState::Now;
    Ok(())
}
