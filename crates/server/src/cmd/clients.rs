//! CLIENT and its subcommands.

use super::client_filter::{Filter, class_of};
use super::connection::{is_name, set_name};
use crate::awaited_keys::UnblockOutcome;
use crate::client::{Client, CloseState, ReplyMode};
use crate::clients::Pause;
use crate::clients::Slot;
use crate::ctx::{CmdError, Ctx};

/// CLIENT ID
pub fn id(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    ctx.reply.int(ctx.client.id as i64);
    Ok(())
}

/// CLIENT GETNAME
pub fn getname(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    if ctx.client.identity.name.is_empty() {
        ctx.reply.null();
    } else {
        ctx.reply.bulk_str(&ctx.client.identity.name);
    }
    Ok(())
}

/// CLIENT SETNAME name
pub fn setname(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    set_name(ctx.client, ctx.args.at(2))?;
    ctx.reply.ok();
    Ok(())
}

/// CLIENT SETINFO LIB-NAME name | LIB-VER version
pub fn setinfo(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let value = ctx.args.at(3);
    let place = if ctx.args.is(2, "LIB-NAME") {
        &mut ctx.client.identity.lib_name
    } else if ctx.args.is(2, "LIB-VER") {
        &mut ctx.client.identity.lib_version
    } else {
        return Err(CmdError::owned(format!("ERR Unrecognized option '{}'", ctx.args.text(2))));
    };
    if !is_name(value) {
        let field = ctx.args.text(2);
        let text = format!("ERR {field} cannot contain spaces, newlines or special characters.");
        return Err(CmdError::owned(text));
    }
    *place = String::from_utf8_lossy(value).into_owned();
    ctx.reply.ok();
    Ok(())
}

/// CLIENT INFO
pub fn info(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let tracking = ctx.server.clients.tracking.of(ctx.client.id);
    let line = ctx.client.describe(ctx.server.clock_ms(), tracking) + "\n";
    ctx.reply.verbatim("txt", line.as_bytes());
    Ok(())
}

/// CLIENT LIST [TYPE type] [ID id …]
pub fn list(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let args = ctx.args;
    let (mut ids, mut class): (Option<Vec<u64>>, _) = (None, None);
    if args.len() == 4 && args.is(2, "TYPE") {
        class = Some(class_of(args.at(3))?);
    } else if args.len() > 3 && args.is(2, "ID") {
        let mut wanted = Vec::new();
        for index in 3..args.len() {
            let id = args.int(index).ok().filter(|id| *id > 0);
            wanted.push(id.ok_or(CmdError::fixed("ERR Invalid client ID"))? as u64);
        }
        ids = Some(wanted);
    } else if args.len() != 2 {
        return Err(CmdError::SYNTAX);
    }
    let now_ms = ctx.server.clock_ms();
    let mut lines: Vec<(u64, String)> = every_client(ctx)
        .filter(|client| ids.as_ref().is_none_or(|ids| ids.contains(&client.id)))
        .filter(|client| class.is_none_or(|class| class == Some(client.class())))
        .map(|client| (client.id, client.describe(now_ms, ctx.server.clients.tracking.of(client.id))))
        .collect();
    lines.sort_unstable_by_key(|(id, _)| *id);
    let text: String = lines.into_iter().map(|(_, line)| line + "\n").collect();
    ctx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

fn every_client<'c>(ctx: &'c Ctx<'_>) -> impl Iterator<Item = &'c Client> {
    let others = ctx.server.clients.iter().map(|(_, connection)| &connection.client);
    others.chain(std::iter::once(&*ctx.client))
}

/// CLIENT KILL address | filters
pub fn kill(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let old_form = ctx.args.len() == 3;
    let filter =
        if old_form { Filter::address(ctx.args.at(2)) } else { Filter::parse(ctx.args, &ctx.server.clients.acl)? };
    let now_ms = ctx.server.clock_ms();
    let doomed: Vec<Slot> = ctx
        .server
        .clients
        .iter()
        .filter(|(_, connection)| filter.matches(&connection.client, false, now_ms))
        .map(|(slot, _)| slot)
        .collect();
    let mut killed = doomed.len();
    for slot in doomed {
        ctx.server.clients.doom(slot);
    }
    if filter.matches(ctx.client, true, now_ms) {
        // It is told before it goes.
        ctx.client.closing = CloseState::AfterReply;
        killed += 1;
    }
    match (old_form, killed) {
        (true, 0) => return Err(CmdError::fixed("ERR No such client")),
        (true, _) => ctx.reply.ok(),
        (false, killed) => ctx.reply.int(killed as i64),
    }
    Ok(())
}

/// CLIENT PAUSE timeout [WRITE | ALL]
pub fn pause(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let all = match ctx.args.len() {
        3 => true,
        4 if ctx.args.is(3, "ALL") => true,
        4 if ctx.args.is(3, "WRITE") => false,
        4 => return Err(CmdError::fixed("ERR CLIENT PAUSE mode must be WRITE or ALL")),
        _ => return Err(CmdError::subcommand_syntax(ctx.args.at(0), ctx.args.at(1))),
    };
    let timeout = ctx.args.int(2).map_err(|_| CmdError::fixed("ERR timeout is not an integer or out of range"))?;
    let timeout_ms = u64::try_from(timeout).map_err(|_| CmdError::fixed("ERR timeout is negative"))?;
    // A century is as good as for ever, and does not overflow a clock.
    let until_ms = ctx.server.clock_ms() + timeout_ms.min(100 * 365 * 86_400_000);
    let pause = match ctx.server.clients.pause {
        Some(old) => Pause { until_ms: until_ms.max(old.until_ms), all: all || old.all },
        None => Pause { until_ms, all },
    };
    ctx.server.clients.pause = Some(pause);
    // What a pause is for, such as a copy of the data, must not see keys go: no client is told that they have expired but by reading.
    ctx.store.set_holding_expired(true);
    ctx.reply.ok();
    Ok(())
}

/// CLIENT UNPAUSE
pub fn unpause(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let now_ms = ctx.server.clock_ms();
    if let Some(pause) = &mut ctx.server.clients.pause {
        // The loop lets clients go on when it sees that the time is over.
        pause.until_ms = now_ms;
    }
    ctx.reply.ok();
    Ok(())
}

/// CLIENT UNBLOCK id [TIMEOUT | ERROR]
pub fn unblock(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let how = match ctx.args.len() {
        3 => UnblockOutcome::TimeOut,
        4 if ctx.args.is(3, "TIMEOUT") => UnblockOutcome::TimeOut,
        4 if ctx.args.is(3, "ERROR") => UnblockOutcome::Error,
        4 => return Err(CmdError::fixed("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
        _ => return Err(CmdError::subcommand_syntax(ctx.args.at(0), ctx.args.at(1))),
    };
    let id = ctx.args.int(2)?;
    let client = u64::try_from(id).ok().and_then(|id| ctx.server.clients.by_id_mut(id));
    let waiting =
        client.filter(|client| client.is_blocked()).and_then(|client| Some((client.id, client.blocked.as_mut()?)));
    let ended = match waiting {
        Some((id, blocked)) if blocked.unblocked.is_none() => {
            blocked.unblocked = Some(how);
            ctx.server.blocked.unblock(id);
            true
        }
        Some(_) | None => false,
    };
    ctx.reply.int(i64::from(ended));
    Ok(())
}

fn on_off(ctx: &Ctx<'_>) -> Result<bool, CmdError> {
    if ctx.args.is(2, "ON") {
        Ok(true)
    } else if ctx.args.is(2, "OFF") {
        Ok(false)
    } else {
        Err(CmdError::SYNTAX)
    }
}

/// CLIENT NO-EVICT ON | OFF
pub fn no_evict(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    ctx.client.options.no_evict = on_off(ctx)?;
    ctx.reply.ok();
    Ok(())
}

/// CLIENT NO-TOUCH ON | OFF
pub fn no_touch(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    ctx.client.options.no_touch = on_off(ctx)?;
    ctx.store.set_touching(!ctx.client.options.no_touch);
    ctx.reply.ok();
    Ok(())
}

/// CLIENT REPLY ON | OFF | SKIP
pub fn reply(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    if ctx.args.is(2, "ON") {
        ctx.client.options.reply_mode = ReplyMode::On;
        ctx.reply.ok();
    } else if ctx.args.is(2, "OFF") {
        ctx.client.options.reply_mode = ReplyMode::Off;
    } else if ctx.args.is(2, "SKIP") {
        if ctx.client.options.reply_mode != ReplyMode::Off {
            ctx.client.options.reply_mode = ReplyMode::SkipNext;
        }
    } else {
        return Err(CmdError::SYNTAX);
    }
    Ok(())
}
