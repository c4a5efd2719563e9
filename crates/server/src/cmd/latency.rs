//! LATENCY and its subcommands.

use crate::ctx::{CmdError, Ctx};

/// LATENCY LATEST
pub fn latest(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let events = ctx.server.monitoring.latency.events();
    ctx.reply.array(events.len());
    for (name, history) in events {
        let last = history.spikes.back();
        ctx.reply.array(4);
        ctx.reply.bulk_str(name);
        ctx.reply.int(last.map_or(0, |spike| spike.unix_s));
        ctx.reply.int(last.map_or(0, |spike| spike.duration_ms as i64));
        ctx.reply.int(history.max_ms as i64);
    }
    Ok(())
}

/// LATENCY HISTORY event
pub fn history(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let wanted = ctx.args.at(2);
    let found = ctx.server.monitoring.latency.events().iter().find(|(name, _)| name.as_bytes() == wanted);
    let Some((_, history)) = found else {
        ctx.reply.array(0);
        return Ok(());
    };
    ctx.reply.array(history.spikes.len());
    for spike in &history.spikes {
        ctx.reply.array(2);
        ctx.reply.int(spike.unix_s);
        ctx.reply.int(spike.duration_ms as i64);
    }
    Ok(())
}

/// LATENCY RESET [event …]
pub fn reset(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let forgotten = if ctx.args.len() == 2 {
        ctx.server.monitoring.latency.reset(None)
    } else {
        ctx.args.from(2).iter().map(|event| ctx.server.monitoring.latency.reset(Some(event))).sum()
    };
    ctx.reply.int(forgotten as i64);
    Ok(())
}
