//! CONFIG and its subcommands.

use std::collections::BTreeSet;

use super::scan::check_length;
use crate::cloning;
use crate::config::foreign::{self, ForeignDirective};
use crate::config::table::{self, Directive};
use crate::config::{Config, ConfigError};
use crate::ctx::{CmdError, Ctx};
use crate::eviction;
use crate::file_identity::is_same_directory;
use crate::glob::Glob;
use crate::lock_file::{self, SharedLock};
use crate::log_control;
use crate::log_writer::LOST;
use crate::persistence;
use crate::state::FILES_BESIDES;
use crate::tls::TlsAcceptor;
use crate::users;

/// CONFIG GET pattern …
pub fn get(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let mut pairs = Vec::new();
    let names_of = |directive: &'static Directive| std::iter::once(&directive.name).chain(directive.aliases);
    let mut names: Vec<_> = table::directives()
        .flat_map(|directive| names_of(directive).map(move |name| (*name, directive, false)))
        .collect();
    for pattern in ctx.args.from(2).iter() {
        check_length(pattern)?;
        let glob = Glob::new(pattern, true);
        names.iter_mut().for_each(|(name, _, wanted)| *wanted |= glob.matches(name.as_bytes()));
    }
    for (name, directive, _) in names.iter().filter(|(_, _, wanted)| *wanted) {
        pairs.push((*name, directive.get(&ctx.server.config)));
    }
    ctx.reply.map(pairs.len());
    for (name, value) in pairs {
        ctx.reply.bulk_str(name);
        ctx.reply.bulk(&value);
    }
    Ok(())
}

/// CONFIG SET directive value …
pub fn set(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    if !ctx.args.len().is_multiple_of(2) {
        return Err(CmdError::SYNTAX);
    }
    // All or nothing: the settings are tried on a copy.
    let mut config = ctx.server.config.clone();
    let mut seen = BTreeSet::new();
    let mut changed = Vec::new();
    for index in (2..ctx.args.len()).step_by(2) {
        let name = ctx.args.text(index);
        let Some(directive) = table::find(&name) else {
            check_foreign(&name, &ctx.args.text(index + 1))?;
            continue;
        };
        if !seen.insert(directive.name) {
            return Err(refused(&name, "duplicate parameter"));
        }
        check_allowed(ctx, directive, &name, ctx.args.at(index + 1))?;
        directive.set(&mut config, ctx.args.at(index + 1)).map_err(|reason| refused(&name, &reason))?;
        changed.push(directive.name);
    }
    check_dir(&mut config, &changed)?;
    check_files(&config, &changed)?;
    check_memory(ctx, &config, &changed)?;
    check_log(ctx, &config, &changed)?;
    let tls = new_tls(&config, &changed)?;
    let image_lock = lock_image(ctx, &config)?;
    // The last part that can fail: nothing has taken effect yet when it does, and the lock is given up again. A log that ends, ends by
    // the settings that it was kept by.
    switch_log(ctx, &config)?;
    if let Some(lock) = image_lock {
        // A background save that is running has the lock before, too, until it ends.
        ctx.server.hooks.image_lock = lock;
    }
    if tls.is_some() {
        // Connections that are open go on as they began.
        ctx.server.instance.tls = tls;
    }
    let before = std::mem::replace(&mut ctx.server.config, config);
    if before.dir != ctx.server.config.dir {
        log_control::directory_changed(ctx.server);
    }
    take_effect(ctx, &changed);
    ctx.reply.ok();
    Ok(())
}

fn refused(name: &str, reason: &str) -> CmdError {
    CmdError::owned(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}"))
}

/// Whether a directive of Redis that this server does not have can be taken, since it changes nothing here.
fn check_foreign(name: &str, value: &str) -> Result<(), CmdError> {
    match foreign::find(&name.to_ascii_lowercase(), value) {
        Some(ForeignDirective::NoEffect) => {
            tracing::info!(directive = name, "CONFIG SET changes nothing: the directive has no effect here");
            Ok(())
        }
        Some(ForeignDirective::Refused(reason)) => Err(refused(name, reason)),
        None => {
            let text = format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'");
            Err(CmdError::owned(text))
        }
    }
}

fn check_allowed(ctx: &Ctx<'_>, directive: &Directive, name: &str, value: &[u8]) -> Result<(), CmdError> {
    // Programs that set all that they know may set one that cannot change to what it is.
    if !directive.mutable && !is_unchanged(&ctx.server.config, directive, value) {
        return Err(refused(name, "can't set immutable config"));
    }
    // A client that may choose where a file is written can do much harm, so that needs a permission of its own.
    let guarded = matches!(directive.name, "dir" | "dbfilename");
    let allowed = match ctx.server.config.enable_protected_configs.as_str() {
        "yes" => true,
        "local" => ctx.client.peer.is_local,
        _ => false,
    };
    if guarded && !allowed {
        return Err(refused(name, "can't set protected config"));
    }
    Ok(())
}

fn is_unchanged(config: &Config, directive: &Directive, value: &[u8]) -> bool {
    let mut set = config.clone();
    directive.set(&mut set, value).is_ok() && directive.get(&set) == directive.get(config)
}

/// What TLS is served with from now on, if a setting of it changes; the files are read anew even if their names are the same.
fn new_tls(config: &Config, changed: &[&str]) -> Result<Option<TlsAcceptor>, CmdError> {
    match changed.iter().find(|name| name.starts_with("tls-")) {
        Some(name) if config.tls.port != 0 => {
            TlsAcceptor::new(&config.tls).map(Some).map_err(|error| refused(name, &error.to_string()))
        }
        _ => Ok(None),
    }
}

/// The directory must be there. From here on it goes by its real path.
fn check_dir(config: &mut Config, changed: &[&str]) -> Result<(), CmdError> {
    if !changed.contains(&"dir") {
        return Ok(());
    }
    match config.resolve_dir().and_then(|()| std::fs::metadata(&config.dir)) {
        Ok(meta) if meta.is_dir() => Ok(()),
        Ok(_) => Err(refused("dir", "Not a directory")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(refused("dir", "No such file or directory")),
        Err(error) => Err(refused("dir", &error.to_string())),
    }
}

/// Takes the lock on the image that the server is to save to from now on, if that is another one.
fn lock_image(ctx: &Ctx<'_>, config: &Config) -> Result<Option<Option<SharedLock>>, CmdError> {
    let now = &ctx.server.config;
    if !config.has_dir() {
        return Ok(None);
    }
    // Of what other ways lead to the directory the server has the lock already.
    let same_dir = is_same_directory(&config.dir, &now.dir);
    if same_dir && config.dbfilename == now.dbfilename {
        return Ok(None);
    }
    let name = if same_dir { "dbfilename" } else { "dir" };
    if let Some(origin) = &ctx.server.saves.restored.clone_of {
        cloning::check_new_place(config, origin).map_err(|reason| refused(name, &reason))?;
    }
    // It has the lock, too, if it comes back to where a save is still running.
    let held = [&ctx.server.hooks.image_lock, &ctx.server.saves.cut.image_lock].into_iter().flatten();
    lock_file::of_image_or_held(config, held).map(Some).map_err(|reason| refused(name, &reason))
}

/// The system must allow an open file for each client.
fn check_files(config: &Config, changed: &[&str]) -> Result<(), CmdError> {
    if !changed.contains(&"maxclients") {
        return Ok(());
    }
    let wanted = u64::from(config.maxclients) + FILES_BESIDES;
    let files = quire_sys::limits::raise_open_files(wanted);
    if files >= wanted {
        return Ok(());
    }
    let reason = format!(
        "The operating system is not able to handle the specified number of clients, try with {}",
        files.saturating_sub(FILES_BESIDES)
    );
    Err(refused("maxclients", &reason))
}

/// No limit is set that the arena can't reach, so that keys are evicted before it is full.
fn check_memory(ctx: &Ctx<'_>, config: &Config, changed: &[&str]) -> Result<(), CmdError> {
    // While data is loaded there is another arena, whose size says nothing.
    if !changed.contains(&"maxmemory") || ctx.server.steps.loading.is_some() {
        return Ok(());
    }
    let most_bytes = ctx.store.arena().stats().max_bytes;
    if config.maxmemory.limit_bytes <= most_bytes {
        return Ok(());
    }
    let reason =
        format!("the arena has at most {most_bytes} bytes since the start; set it in the file, and start again");
    Err(refused("maxmemory", &reason))
}

/// Image and log belong together, so neither moves away from the other.
fn check_log(ctx: &Ctx<'_>, config: &Config, changed: &[&str]) -> Result<(), CmdError> {
    let guarded = ["dir", "dbfilename", "appendonly"];
    if ctx.server.steps.loading.is_some()
        && let Some(name) = changed.iter().find(|name| guarded.contains(name))
    {
        return Err(refused(name, "the data is not loaded yet"));
    }
    let moved = changed.iter().find(|name| matches!(**name, "dir" | "dbfilename"));
    match moved {
        Some(name) if ctx.server.log_writer.is_some() && config.appendonly => {
            Err(refused(name, "writes are logged beside the image; CONFIG SET appendonly no first"))
        }
        _ => Ok(()),
    }
}

/// Begins or ends the log as `config` says, which is not in force yet.
fn switch_log(ctx: &mut Ctx<'_>, config: &Config) -> Result<(), CmdError> {
    match (config.appendonly, ctx.server.log_writer.is_some()) {
        (true, false) => {
            log_control::switch_on(ctx.store, ctx.server, config).map_err(|reason| refused("appendonly", &reason))
        }
        (false, true) => {
            let held = ctx.server.log_writer.as_ref().is_some_and(|log_writer| log_writer.holds_replies());
            if !log_control::switch_off(ctx.store, ctx.server) && held && ctx.client.log.owes > 0 {
                // It has written in the same turn, and what became of that is not known.
                ctx.client.log.owes = LOST;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Makes settings hold that are kept elsewhere too.
fn take_effect(ctx: &mut Ctx<'_>, changed: &[&str]) {
    let server = &mut *ctx.server;
    ctx.store.set_limits(server.config.limits);
    for name in changed {
        match *name {
            "checkpoint-max-extra-memory" => {
                ctx.store.set_save_budget(server.config.checkpoint_budget_bytes as usize);
            }
            "checkpoint-max-bytes-per-second" => {
                ctx.store.limit_save_rate(server.config.checkpoint_max_bytes_per_s);
            }
            "checkpoint-incremental" | "checkpoint-max-deltas" => {
                ctx.store.set_max_deltas(crate::saving::max_deltas(&server.config));
            }
            "checkpoint-compression" => ctx.store.set_compression(server.config.checkpoint_compression),
            "appendfsync" => {
                if let Some(log_writer) = &mut server.log_writer {
                    log_writer.set_sync(server.config.appendfsync);
                }
            }
            "read-only" => ctx.store.set_holding_expired(server.holds_expired()),
            "notify-keyspace-events" => {
                ctx.store.set_noting_key_events(server.wants_key_events());
                ctx.store.set_noting_misses(server.wants_misses());
            }
            "maxmemory" | "maxmemory-policy" => eviction::limit_changed(ctx.store, server),
            "lfu-log-factor" | "lfu-decay-time" => {
                ctx.store.set_access_counting(server.config.maxmemory.access_counting())
            }
            "slowlog-max-len" => server.monitoring.slowlog.shorten(server.config.slowlog_max_len as usize),
            "loglevel" => {
                if let Some(set) = &server.hooks.set_log_level {
                    set(server.config.loglevel);
                }
            }
            "requirepass" => server.clients.acl.set_default_password(&server.config.requirepass),
            "acllog-max-len" => server.monitoring.denials.shorten(server.config.acl.log_max_len as usize),
            _ => {}
        }
    }
    log_control::judge(ctx.store, server);
    persistence::judge_writes(server);
    if changed.contains(&"requirepass") {
        users::refresh(ctx);
    }
}

/// CONFIG RESETSTAT
pub fn resetstat(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    ctx.server.stats.reset();
    ctx.server.steps.eviction.reset_stats();
    ctx.server.steps.defrag.reset_stats();
    ctx.server.monitoring.denials.reset_counts();
    ctx.store.reset_stats();
    ctx.reply.ok();
    Ok(())
}

/// CONFIG REWRITE
pub fn rewrite(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let Some(path) = ctx.server.config.file.path.clone() else {
        return Err(CmdError::fixed("ERR The server is running without a config file"));
    };
    let mut config = ctx.server.config.clone();
    config.acl.users = users::to_declare(&config, &ctx.server.clients.acl);
    match config.rewrite(&path) {
        Ok(()) => {
            tracing::info!(file = %path.display(), "configuration rewritten");
            ctx.reply.ok();
            Ok(())
        }
        Err(error) => {
            let reason = ConfigError::File { file: path.display().to_string(), reason: error.to_string() };
            tracing::warn!(%reason, "CONFIG REWRITE failed");
            Err(CmdError::owned(format!("ERR Rewriting config file: {error}")))
        }
    }
}
