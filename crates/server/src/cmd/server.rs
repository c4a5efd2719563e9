//! What the server tells about itself: INFO, TIME, LATENCY, SLOWLOG, LOLWUT; and that it stands alone: ROLE, REPLICAOF, MODULE.
//!
//! Relies on `info` for the text, on `latency` and `slowlog` for what they keep, on `latency_graph` to draw it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::COMPATIBLE_VERSION;
use crate::ctx::{CmdError, Ctx};
use crate::info::{self, InfoSource};
use crate::latency_graph;
use crate::registry::{Command, registry};

/// Entries that SLOWLOG GET gives unless told.
const SLOWLOG_DEFAULT_COUNT: usize = 10;

const NO_REPLICATION: CmdError = CmdError::fixed("ERR there is no replication");
const BAD_PORT: CmdError = CmdError::fixed("ERR Invalid master port");
// Client libraries know these errors by their texts.
const NOT_LOADED: CmdError = CmdError::fixed("ERR Error loading the extension. Please check the server logs.");
const NO_SUCH_MODULE: CmdError = CmdError::fixed("ERR Error unloading module: no such module with that name");

/// INFO [section …]
pub fn info(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let wanted: Vec<&[u8]> = ctx.args.from(1).iter().collect();
    let text = info::text(&InfoSource { store: ctx.store, server: ctx.server, client: ctx.client }, &wanted);
    ctx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// TIME
pub fn time(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let now = if ctx.server.scripts.is_running() {
        // To a script no time passes.
        Duration::from_millis(ctx.server.clock.unix_ms.max(0).cast_unsigned())
    } else {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    };
    ctx.reply.array(2);
    ctx.reply.bulk_int(now.as_secs() as i64);
    ctx.reply.bulk_int(i64::from(now.subsec_micros()));
    Ok(())
}

/// LATENCY LATEST
pub fn latency_latest(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
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
pub fn latency_history(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
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

/// LATENCY HISTOGRAM [command …]
pub fn latency_histogram(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let named: Vec<&Command> = match ctx.args.len() {
        2 => registry().all().iter().collect(),
        _ => ctx.args.from(2).iter().flat_map(with_subcommands).collect(),
    };
    let stats = &ctx.server.stats.commands;
    let counted = |command: &Command| stats.get(command.id.0 as usize).filter(|stats| !stats.durations.is_empty());
    let shown: Vec<_> = named.into_iter().filter_map(|command| Some((command.name, counted(command)?))).collect();
    ctx.reply.map(shown.len());
    for (name, stats) in shown {
        ctx.reply.bulk_str(name);
        ctx.reply.map(2);
        ctx.reply.bulk_str("calls");
        ctx.reply.int(stats.durations.runs() as i64);
        ctx.reply.bulk_str("histogram_usec");
        let ranges: Vec<_> = stats.durations.doublings().filter(|(_, count)| *count > 0).collect();
        ctx.reply.map(ranges.len());
        let mut runs = 0;
        for (bound_ns, count) in ranges {
            runs += count;
            ctx.reply.int((bound_ns / 1000) as i64);
            ctx.reply.int(runs as i64);
        }
    }
    Ok(())
}

/// The command of this name, and its subcommands; none if there is no such command.
fn with_subcommands(name: &[u8]) -> Vec<&'static Command> {
    let Some(command) = registry().find_full(name) else { return Vec::new() };
    let subcommands = command.subcommands.iter().map(|id| registry().command(*id));
    std::iter::once(command).chain(subcommands).collect()
}

/// LATENCY GRAPH event
pub fn latency_graph(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let wanted = ctx.args.at(2);
    let found = ctx.server.monitoring.latency.events().iter().find(|(name, _)| name.as_bytes() == wanted);
    let Some((name, history)) = found else {
        return Err(CmdError::owned(format!("ERR No samples available for event '{}'", ctx.args.text(2))));
    };
    let text = latency_graph::latency_graph(name, history, ctx.server.unix_s());
    ctx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// LATENCY DOCTOR
pub fn latency_doctor(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let text = ctx.server.monitoring.latency.report(ctx.server.config.latency.threshold_ms);
    ctx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// LATENCY RESET [event …]
pub fn latency_reset(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let forgotten = if ctx.args.len() == 2 {
        ctx.server.monitoring.latency.reset(None)
    } else {
        ctx.args.from(2).iter().map(|event| ctx.server.monitoring.latency.reset(Some(event))).sum()
    };
    ctx.reply.int(forgotten as i64);
    Ok(())
}

/// SLOWLOG GET [count]
pub fn slowlog_get(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let count = match ctx.args.len() {
        2 => SLOWLOG_DEFAULT_COUNT,
        3 => {
            let count = ctx.args.int(2).ok().filter(|count| *count >= -1);
            match count.ok_or(CmdError::fixed("ERR count should be greater than or equal to -1"))? {
                -1 => usize::MAX,
                count => count as usize,
            }
        }
        _ => return Err(CmdError::wrong_args("slowlog|get")),
    };
    let entries = ctx.server.monitoring.slowlog.entries();
    let count = count.min(entries.len());
    ctx.reply.array(count);
    for entry in entries.iter().take(count) {
        ctx.reply.array(6);
        ctx.reply.int(entry.id as i64);
        ctx.reply.int(entry.unix_s);
        ctx.reply.int(entry.duration_us as i64);
        ctx.reply.array(entry.words.len());
        for word in &entry.words {
            ctx.reply.bulk(word);
        }
        ctx.reply.bulk_str(&entry.address);
        ctx.reply.bulk_str(&entry.client_name);
    }
    Ok(())
}

/// SLOWLOG LEN
pub fn slowlog_len(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    ctx.reply.int(ctx.server.monitoring.slowlog.entries().len() as i64);
    Ok(())
}

/// SLOWLOG RESET
pub fn slowlog_reset(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    ctx.server.monitoring.slowlog.reset();
    ctx.reply.ok();
    Ok(())
}

/// LOLWUT [VERSION version] [argument …]
pub fn lolwut(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    if ctx.args.len() >= 3 && ctx.args.is(1, "VERSION") {
        ctx.args.int(2)?;
    }
    ctx.reply.verbatim("txt", format!("Redis ver. {COMPATIBLE_VERSION}\n").as_bytes());
    Ok(())
}

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

/// MONITOR
pub fn monitor(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    if ctx.client.in_exec {
        return Err(CmdError::fixed("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    ctx.client.options.monitors = true;
    ctx.server.clients.set_monitoring(ctx.client.id, true);
    ctx.client.subscriptions.announced = true;
    ctx.reply.ok();
    Ok(())
}
