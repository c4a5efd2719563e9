//! What holds for every command: look-up, arity, authentication, memory and disk checks, queueing in a transaction,
//! the call itself, its time and its statistics. Knows no particular command.

use std::time::Instant;

use crate::client::{CloseState, CommandId, MultiState, ReplyMode};
use crate::ctx::{Args, CmdError, Ctx};
use crate::effects::ExecutedCommand;
use crate::eviction;
use crate::invalidation;
use crate::latency;
use crate::log_writer::LOST;
use crate::monitor;
use crate::notifications;
use crate::permission;
use crate::registry::{Command, Registry};
use crate::request_flags;
use crate::slowlog::SlowCommand;
use crate::table::{
    ADMIN, ALLOW_BUSY, DENYOOM, FAST, Flags, LOADING, NO_MULTI, NOT_QUEUED, PUBSUB, REFUSED_WITH_WRITES, RUNS_QUEUED,
    SKIP_MONITOR, SKIP_SLOWLOG, WHILE_SUBSCRIBED, WRITE,
};

/// Words of an unknown command that its error shows.
const UNKNOWN_SHOWN_BYTES: usize = 128;
/// Clients know this text from replicas: some then look for the server that takes writes.
const READONLY: &str = "READONLY You can't write against a read only replica.";
const SUBSCRIBED: &str = "only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context";
/// Why a command is refused while the data is loaded.
pub const NOT_LOADED: &str = "LOADING Redis is loading the dataset in memory";
const IN_TRANSACTION: &str = "ERR Command not allowed inside a transaction";
/// Why writes are refused after a background save failed; clients know this text.
pub const MISCONF: &str = "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to \
    disk. Commands that may modify the data set are disabled, because this instance is configured to report errors \
    during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for \
    details about the RDB error.";

/// The command that a request names, its subcommand if it has any; `found` is what its first word names.
pub fn resolve<'r>(registry: &'r Registry, found: Option<CommandId>, args: Args<'_>) -> Result<&'r Command, CmdError> {
    let Some(id) = found else {
        return Err(unknown_command(args));
    };
    let command = registry.command(id);
    if command.subcommands.is_empty() {
        return Ok(command);
    }
    match args.get(1) {
        None if command.spec.arity == -1 => Ok(command),
        None => Err(CmdError::wrong_args(command.name)),
        Some(name) => registry.find_sub(command, name).ok_or_else(|| unknown_subcommand(command, name)),
    }
}

fn unknown_command(args: Args<'_>) -> CmdError {
    let shown = |word: &[u8], limit: usize| String::from_utf8_lossy(&word[..word.len().min(limit)]).into_owned();
    let mut words = String::new();
    for word in args.from(1).iter() {
        if words.len() >= UNKNOWN_SHOWN_BYTES {
            break;
        }
        words.push_str(&format!("'{}' ", shown(word, UNKNOWN_SHOWN_BYTES - words.len())));
    }
    CmdError::owned(format!(
        "ERR unknown command '{}', with args beginning with: {words}",
        shown(args.at(0), UNKNOWN_SHOWN_BYTES)
    ))
}

fn unknown_subcommand(command: &Command, name: &[u8]) -> CmdError {
    CmdError::owned(format!(
        "ERR unknown subcommand '{}'. Try {} HELP.",
        String::from_utf8_lossy(&name[..name.len().min(128)]),
        command.name.to_ascii_uppercase()
    ))
}

/// Runs one request: checks it, then queues or calls it. The reply is written, statistics are kept. `found` is the
/// command that the request's first word names.
#[inline]
pub fn run(registry: &Registry, found: Option<CommandId>, ctx: &mut Ctx<'_>) {
    let before = ctx.reply.len();
    match check(registry, found, ctx) {
        Ok(Some(command)) => {
            call(command, ctx);
            // What a script does that is running is a record when it ends.
            if !ctx.server.scripts.is_running() {
                seal(ctx);
            }
        }
        Ok(None) => ctx.reply.raw(b"+QUEUED\r\n"),
        Err(_) if found.is_none() && is_http(ctx.args.at(0)) => refuse_http(ctx),
        Err(error) if found.is_some_and(|id| registry.command(id).spec.has(RUNS_QUEUED)) => {
            abort_transaction(ctx, &error)
        }
        Err(error) => reject(ctx, &error),
    }
    ctx.client.stats.commands += 1;
    if ctx.client.options.reply_mode != ReplyMode::On {
        let listens = found.is_some_and(|id| {
            let spec = registry.command(id).spec;
            spec.has(PUBSUB) && spec.has(WHILE_SUBSCRIBED)
        });
        apply_reply_mode(ctx, before, listens);
    }
    if ctx.server.clients.has_own_messages() {
        invalidation::tell_running(ctx);
        ctx.take_own_messages();
    }
}

/// A browser that some page has made send a request here; what follows in it must not be run.
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

#[cold]
fn refuse_http(ctx: &mut Ctx<'_>) {
    tracing::warn!(address = %ctx.client.peer.address, "closing a client that speaks HTTP: possibly an attack by a web page");
    ctx.client.closing = CloseState::Now;
}

/// What the request has changed becomes a record of the log.
#[inline]
fn seal(ctx: &mut Ctx<'_>) {
    if let Some(log_writer) = &mut ctx.server.log_writer
        && log_writer.needs_seal()
        && let Some(sequence) = log_writer.seal()
    {
        ctx.client.log.owes = sequence;
        if sequence != LOST {
            ctx.client.log.last_write = sequence;
        }
    }
}

fn reject(ctx: &mut Ctx<'_>, error: &CmdError) {
    if let Some(multi) = &mut ctx.client.multi {
        multi.failed = true;
    }
    give_up_copy(ctx);
    // It may be the request that has waited for its keys to be moved: what the target says was not acted on, and is old later.
    ctx.server.blocked.migrations.forget(ctx.client.id);
    if ctx.server.clients.tracking.any() {
        invalidation::end_choice(ctx);
    }
    let line = error.line();
    ctx.reply.error(&line);
    ctx.server.stats.count_error(line.as_bytes());
}

/// A command that was queued may not run now.
pub fn refuse(ctx: &mut Ctx<'_>, command: &Command, error: &CmdError) {
    ctx.server.stats.command(command.id).rejected += 1;
    reject(ctx, error);
}

/// The client's request has failed. If a copy was made for it, it was this one that asked for it.
#[cold]
fn give_up_copy(ctx: &mut Ctx<'_>) {
    if let Err(error) = ctx.store.cancel_copy(ctx.client.id) {
        tracing::error!(%error, "cannot free what a copy has taken");
    }
}

/// The end of a transaction is refused, which ends it, too.
#[cold]
fn abort_transaction(ctx: &mut Ctx<'_>, error: &CmdError) {
    ctx.client.multi = None;
    ctx.forget_watched();
    let line = error.line();
    let reason = line.strip_prefix("ERR ").unwrap_or(&line);
    reject(ctx, &CmdError::owned(format!("EXECABORT Transaction discarded because of: {reason}")));
}

/// What a client is told that begins or ends to listen is a message, and no reply: it is sent whatever the mode.
#[cold]
fn apply_reply_mode(ctx: &mut Ctx<'_>, before: usize, listens: bool) {
    if let Some(blocked) = &mut ctx.client.blocked {
        if !blocked.is_in_command() {
            // The request is still to be run.
            return;
        }
        blocked.silent = matches!(ctx.client.options.reply_mode, ReplyMode::Off | ReplyMode::Skip);
    }
    let len =
        if listens && matches!(ctx.reply.as_bytes().get(before), Some(b'*' | b'>')) { ctx.reply.len() } else { before };
    match ctx.client.options.reply_mode {
        ReplyMode::On => {}
        ReplyMode::Off => ctx.reply.truncate(len),
        ReplyMode::SkipNext => ctx.client.options.reply_mode = ReplyMode::Skip,
        ReplyMode::Skip => {
            ctx.reply.truncate(len);
            ctx.client.options.reply_mode = ReplyMode::On;
        }
    }
}

/// The command to call now; `None` when it was queued.
#[inline]
fn check<'r>(
    registry: &'r Registry,
    found: Option<CommandId>,
    ctx: &mut Ctx<'_>,
) -> Result<Option<&'r Command>, CmdError> {
    let command = resolve(registry, found, ctx.args)?;
    let spec = command.spec;
    ctx.client.stats.last_command = command.name;
    let refused = if !spec.takes(ctx.args.len()) {
        Some(CmdError::wrong_args(command.name))
    } else if let Some(error) = permission::protection(ctx, command) {
        Some(error)
    } else if !ctx.client.login.is_unrestricted()
        && let Some(error) = permission::refusal(ctx, command)
    {
        Some(error)
    } else if ctx.client.subscriptions.any() && !ctx.reply.is_resp3() && !spec.has(WHILE_SUBSCRIBED) {
        Some(CmdError::owned(format!("ERR Can't execute '{}': {SUBSCRIBED}", command.name)))
    } else if ctx.server.steps.loading.is_some() && !spec.has(LOADING) {
        Some(CmdError::fixed(NOT_LOADED))
    } else if let Some(running) = &ctx.server.scripts.running
        && !spec.has(ALLOW_BUSY)
    {
        Some(CmdError::fixed(running.kind.busy_line()))
    } else if ctx.client.multi.is_some() && spec.has(NO_MULTI) {
        Some(CmdError::fixed(IN_TRANSACTION))
    } else if spec.flags & (DENYOOM | WRITE) != 0 {
        refuse_write(ctx, spec.flags)
    } else if ctx.server.log_state.writes_stopped && spec.has(REFUSED_WITH_WRITES) {
        Some(misconf(ctx))
    } else {
        None
    };
    if let Some(error) = refused {
        ctx.server.stats.command(command.id).rejected += 1;
        return Err(error);
    }
    if ctx.server.clients.tracking.any() {
        invalidation::bound_before(ctx);
    }
    if let Some(multi) = &mut ctx.client.multi
        && !spec.has(NOT_QUEUED)
    {
        let flags = request_flags::of(&ctx.server.scripts, spec, ctx.args);
        let limit_bytes = ctx.server.config.client_query_buffer_limit;
        return queue(multi, (command, flags), ctx.args, limit_bytes, &mut ctx.client.closing);
    }
    Ok(Some(command))
}

#[cold]
fn misconf(ctx: &Ctx<'_>) -> CmdError {
    ctx.server.log_state.refusal.clone().map_or(CmdError::fixed(MISCONF), CmdError::Text)
}

/// Why a command with these properties may not change data now.
pub fn refuse_write(ctx: &mut Ctx<'_>, flags: u32) -> Option<CmdError> {
    if ctx.wait_ended().is_some() {
        // It changes nothing any more.
        return None;
    }
    if ctx.server.config.read_only && flags & WRITE != 0 {
        return Some(CmdError::fixed(READONLY));
    }
    if flags & DENYOOM != 0 && eviction::lacks_room(ctx, flags) {
        return Some(CmdError::OUT_OF_MEMORY);
    }
    if !ctx.server.log_state.writes_stopped || flags & WRITE == 0 {
        return None;
    }
    ctx.server.log_state.refused += u64::from(ctx.server.log_state.refusal.is_some());
    Some(misconf(ctx))
}

fn queue<'r>(
    multi: &mut MultiState,
    (command, flags): (&'r Command, Flags),
    args: Args<'_>,
    limit_bytes: u64,
    closing: &mut CloseState,
) -> Result<Option<&'r Command>, CmdError> {
    // A transaction that was refused already is only checked, not kept.
    if !multi.failed {
        multi.push(command.id, flags, args);
    }
    if multi.bytes() as u64 > limit_bytes {
        tracing::warn!(bytes = multi.bytes(), limit_bytes, "closing a client whose transaction is too large");
        *closing = CloseState::Now;
    }
    Ok(None)
}

/// Calls a command that has passed the checks, and keeps its time.
#[inline]
pub fn call(command: &Command, ctx: &mut Ctx<'_>) {
    let before = ctx.reply.len();
    let changes = ctx.store.changes();
    let has_waited = ctx.client.waits_on_keys();
    let result = (command.spec.handler)(ctx);
    if let Some(log_writer) = &mut ctx.server.log_writer {
        let done = ExecutedCommand {
            writes: command.spec.has(WRITE),
            changed: ctx.store.changes() != changes,
            db: ctx.client.db.0,
            args: ctx.args,
        };
        ctx.server.effects.tell(log_writer, ctx.store, done);
    }
    if ctx.store.has_key_events() {
        notifications::tell(command, ctx, has_waited);
    }
    if ctx.server.clients.tracking.any() {
        invalidation::remember(command, ctx);
    }
    let mut failed = false;
    if let Err(error) = result {
        if matches!(error, CmdError::NotYet) {
            // What counts requests counts this one when it runs. Monitors are shown it when it begins to wait on keys.
            if !has_waited && ctx.client.waits_on_keys() {
                show_to_monitors(command, ctx);
            }
            return;
        }
        give_up_copy(ctx);
        ctx.reply.error(&error.line());
    }
    if !has_waited {
        show_to_monitors(command, ctx);
    }
    let start = ctx.reply.begins_at(before);
    if ctx.reply.as_bytes().get(start) == Some(&b'-') {
        failed = true;
        if !std::mem::take(&mut ctx.server.scripts.error_counted) {
            ctx.server.stats.count_error(&ctx.reply.as_bytes()[start + 1..]);
        }
    }
    count_run(command, ctx, failed);
}

/// Counts a run that ends now, with its time.
#[inline]
fn count_run(command: &Command, ctx: &mut Ctx<'_>, failed: bool) {
    // The end of one command is the start of the next, so that one look at the clock per command is enough.
    let end = Instant::now();
    let duration = end.saturating_duration_since(ctx.server.clock.command_start);
    ctx.server.clock.command_start = end;
    let duration_ns = duration.as_nanos() as u64;
    let keeps_durations = ctx.server.config.latency.keeps_durations;
    // The time of a script is that of its commands, too.
    if !ctx.server.scripts.is_running() {
        ctx.server.stats.turns.commands_ns += duration_ns;
    }
    let stats = ctx.server.stats.command(command.id);
    stats.calls += 1;
    stats.total_ns += duration_ns;
    if keeps_durations {
        stats.durations.count(duration_ns);
    }
    stats.failed += u64::from(failed);
    ctx.server.stats.commands_processed += 1;
    // No limit below a microsecond matters, so that most commands are done here.
    let limit_us = ctx.server.config.slowlog_slower_than_us;
    if limit_us >= 0 && duration_ns >= (limit_us as u64).saturating_mul(1000) || duration_ns >= 1_000_000 {
        note_slow(command, ctx, duration_ns / 1000);
    }
}

#[inline]
fn show_to_monitors(command: &Command, ctx: &mut Ctx<'_>) {
    if !ctx.server.clients.monitors.is_empty() && command.spec.flags & (SKIP_MONITOR | ADMIN) == 0 {
        monitor::show(command, ctx);
    }
}

#[cold]
fn note_slow(command: &Command, ctx: &mut Ctx<'_>, duration_us: u64) {
    let threshold_ms = ctx.server.config.latency.threshold_ms;
    let duration_ms = duration_us / 1000;
    if threshold_ms > 0 && duration_ms >= threshold_ms {
        let event = if command.spec.has(FAST) { latency::FAST_COMMAND } else { latency::COMMAND };
        let unix_s = ctx.server.unix_s();
        ctx.server.monitoring.latency.record(event, unix_s, duration_ms);
    }
    let limit_us = ctx.server.config.slowlog_slower_than_us;
    if limit_us < 0 || duration_us < limit_us as u64 || command.spec.has(SKIP_SLOWLOG) {
        return;
    }
    let max = ctx.server.config.slowlog_max_len as usize;
    let unix_s = ctx.server.unix_s();
    let when =
        SlowCommand { unix_s, duration_us, address: &ctx.client.peer.address, client_name: &ctx.client.identity.name };
    ctx.server.monitoring.slowlog.push(max, command.name, ctx.args, when);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::specs;

    /// The texts between quotation marks, without those of comments.
    fn literals(source: &str) -> impl Iterator<Item = &str> {
        let lines = source.lines().filter(|line| !line.trim_start().starts_with("//"));
        lines.flat_map(|line| line.split('"').skip(1).step_by(2))
    }

    #[test]
    fn no_command_is_named_where_all_are_run() {
        let registry = Registry::build(specs::ALL);
        let is_name = |text: &str| {
            registry
                .all()
                .iter()
                .any(|command| command.spec.name.eq_ignore_ascii_case(text) || command.name.eq_ignore_ascii_case(text))
        };
        for (file, source) in [
            ("dispatch.rs", include_str!("dispatch.rs")),
            ("effects.rs", include_str!("effects.rs")),
            ("net/worker.rs", include_str!("net/worker.rs")),
            ("net/exchange.rs", include_str!("net/exchange.rs")),
            ("net/engine.rs", include_str!("net/engine.rs")),
        ] {
            let source = source.split("#[cfg(test)]").next().unwrap();
            let named: Vec<&str> = literals(source).filter(|text| is_name(text)).collect();
            assert!(named.is_empty(), "{file} names commands: {named:?}; a flag in their specifications does instead");
            assert!(!source.contains("crate::cmd"), "{file} knows a family of commands");
        }
    }
}
