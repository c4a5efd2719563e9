//! MULTI, EXEC, DISCARD, WATCH and UNWATCH.

use crate::client::MultiState;
use crate::ctx::{CmdError, Ctx};
use crate::dispatch;
use crate::permission;
use crate::persistence;
use crate::registry::registry;

/// MULTI
pub fn multi(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    if ctx.client.multi.is_some() {
        return Err(CmdError::fixed("ERR MULTI calls can not be nested"));
    }
    ctx.client.multi = Some(Box::default());
    ctx.reply.ok();
    Ok(())
}

/// DISCARD
pub fn discard(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    if ctx.client.multi.take().is_none() {
        return Err(CmdError::fixed("ERR DISCARD without MULTI"));
    }
    ctx.forget_watched();
    ctx.reply.ok();
    Ok(())
}

/// WATCH key …
pub fn watch(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    if ctx.client.multi.is_some() {
        return Err(CmdError::fixed("ERR WATCH inside MULTI is not allowed"));
    }
    // Nothing that follows can make a transaction valid that has failed already.
    if !ctx.client.watch.touched {
        for key in ctx.args.from(1).iter() {
            let bytes = ctx.store.watch(ctx.client.id, ctx.client.db, key);
            ctx.client.watch.keys += usize::from(bytes > 0);
            ctx.client.watch.bytes += bytes;
        }
    }
    ctx.reply.ok();
    Ok(())
}

/// UNWATCH
pub fn unwatch(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    ctx.forget_watched();
    ctx.reply.ok();
    Ok(())
}

/// Whether a key that the client watches was changed, or has expired, since WATCH.
fn is_touched(ctx: &mut Ctx<'_>) -> Result<bool, CmdError> {
    if ctx.client.watch.keys == 0 {
        return Ok(false);
    }
    let touched = ctx.store.take_touched();
    if ctx.server.mark_touched(&touched, ctx.client.id) {
        ctx.client.watch.touched = true;
    }
    Ok(ctx.client.watch.touched || ctx.store.watched_expired(ctx.client.id)?)
}

/// EXEC
pub fn exec(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let Some(multi) = ctx.client.multi.take() else {
        return Err(CmdError::fixed("ERR EXEC without MULTI"));
    };
    let touched = is_touched(ctx);
    ctx.forget_watched();
    if multi.failed {
        return Err(CmdError::fixed("EXECABORT Transaction discarded because of previous errors."));
    }
    if touched? {
        ctx.reply.null_array();
        return Ok(());
    }
    if let Some(error) = dispatch::refuse_write(ctx, multi.flags) {
        return Err(CmdError::owned(format!("EXECABORT Transaction discarded because of: {}", error.line())));
    }
    ctx.reply.array(multi.commands.len());
    run_all(ctx, &multi);
    persistence::begin_scheduled(ctx.store, ctx.server);
    Ok(())
}

fn run_all(ctx: &mut Ctx<'_>, multi: &MultiState) {
    ctx.client.in_exec = true;
    for queued in &multi.commands {
        let mut inner = Ctx {
            store: &mut *ctx.store,
            server: &mut *ctx.server,
            client: &mut *ctx.client,
            args: multi.args(queued),
            reply: &mut *ctx.reply,
        };
        let command = registry().command(queued.command);
        if !inner.client.login.is_unrestricted()
            && let Some(error) = permission::refusal_in_exec(&mut inner, command)
        {
            dispatch::refuse(&mut inner, command, &error);
            continue;
        }
        dispatch::call(command, &mut inner);
    }
    ctx.client.in_exec = false;
}
