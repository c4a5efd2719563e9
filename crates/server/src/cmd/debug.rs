//! DEBUG: what tests and people hunting a fault need. Off unless `enable-debug-command` allows it, for which `permission` looks.

use std::time::Duration;

use quire_store::numbers::hex;
use quire_store::{ExpiryChange, Store, string};
use quire_units::redis;

use crate::cmd::debug_protocol;
use crate::ctx::{CmdError, Ctx};
use crate::dispatch::{NOT_LOADED, refuse_write};
use crate::effects::EffectWord;
use crate::invalidation;
use crate::load_progress::LoadProgress;
use crate::registry::registry;
use crate::replay::{ReplaySummary, replay};
use crate::save_state::RestoreSummary;
use crate::state::ServerState;
use crate::table::WRITE;
use crate::{log_control, persistence, saving};

/// What concerns the data, and can't be done before that is loaded.
const ABOUT_DATA: [&str; 5] = ["DIGEST", "DIGEST-VALUE", "OBJECT", "POPULATE", "RELOAD"];
/// Longer sleeps are cut to this: a typo must not cost a restart.
const LONGEST_SLEEP_S: f64 = 3600.0;

/// DEBUG subcommand …
pub fn debug(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (args, words) = (ctx.args, ctx.args.len());
    if ctx.server.steps.loading.is_some() && ABOUT_DATA.into_iter().any(|name| args.is(1, name)) {
        return Err(CmdError::fixed(NOT_LOADED));
    }
    if args.is(1, "HELP") && words == 2 {
        help(ctx)
    } else if args.is(1, "SLEEP") && words == 3 {
        sleep(ctx)
    } else if args.is(1, "PAUSE-CRON") && words == 3 {
        pause_steps(ctx)
    } else if args.is(1, "SET-ACTIVE-EXPIRE") && words == 3 {
        set_active_expiry(ctx)
    } else if args.is(1, "SET-DISABLE-DENY-SCRIPTS") && words == 3 {
        open_to_scripts(ctx)
    } else if args.is(1, "QUICKLIST-PACKED-THRESHOLD") && words == 3 {
        pack_elements(ctx)
    } else if args.is(1, "PROTOCOL") && words == 3 {
        debug_protocol::reply_as(ctx)
    } else if args.is(1, "ERROR") && words == 3 {
        ctx.reply.error(&args.text(2));
        Ok(())
    } else if args.is(1, "POPULATE") && (3..=5).contains(&words) {
        populate(ctx)
    } else if args.is(1, "RELOAD") && words == 2 {
        reload(ctx)
    } else if args.is(1, "LOADAOF") && words == 2 {
        load_log(ctx)
    } else if args.is(1, "DIGEST") && words == 2 {
        let digest = ctx.store.digest()?;
        ctx.reply.simple(&hex(&digest));
        Ok(())
    } else if args.is(1, "DIGEST-VALUE") && words >= 2 {
        digest_values(ctx)
    } else if args.is(1, "OBJECT") && words == 3 {
        object(ctx)
    } else {
        Err(CmdError::subcommand_syntax(args.at(0), args.at(1)))
    }
}

fn help(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let lines = [
        "DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "DIGEST",
        "    Tell a digest of all data.",
        "DIGEST-VALUE <key> [<key> ...]",
        "    Tell digests of the values of keys.",
        "ERROR <line>",
        "    Reply with this error.",
        "LOADAOF",
        "    Bring the data back from the image and the log, as a start does.",
        "OBJECT <key>",
        "    Tell how a key is stored.",
        "PAUSE-CRON <0|1>",
        "    Stop, or go on with, what is done in steps between commands: expiring, copying, freeing.",
        "POPULATE <count> [<prefix>] [<size>]",
        "    Make <count> string keys named <prefix>:<number>, with values of <size> bytes.",
        "PROTOCOL <type>",
        "    Reply with a test value of the type: string, integer, double, null, array, set, map, attrib, push, verbatim,",
        "    bignum, true or false.",
        "QUICKLIST-PACKED-THRESHOLD <size>",
        "    Changes nothing: list-max-listpack-size alone decides which element has a node of its own.",
        "RELOAD",
        "    Save the data and bring it back from the image.",
        "SET-ACTIVE-EXPIRE <0|1>",
        "    Stop, or go on with, deleting expired keys that no command touches.",
        "SET-DISABLE-DENY-SCRIPTS <0|1>",
        "    Let scripts call DEBUG and the other commands of operators that transactions may, or no more.",
        "SLEEP <seconds>",
        "    Do nothing for so long.",
        "HELP",
        "    Prints this help.",
    ];
    ctx.reply.array(lines.len());
    for line in lines {
        ctx.reply.simple(line);
    }
    Ok(())
}

/// Redis' name of what is looked after from time to time.
fn pause_steps(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    ctx.server.steps.paused = ctx.args.int(2)? != 0;
    ctx.reply.ok();
    Ok(())
}

fn set_active_expiry(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    ctx.server.steps.expiry_paused = ctx.args.int(2)? == 0;
    ctx.reply.ok();
    Ok(())
}

fn open_to_scripts(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    ctx.server.scripts.may_operate = ctx.args.int(2)? != 0;
    ctx.reply.ok();
    Ok(())
}

/// Tests of lists set it. Here an element has a node of its own when it is longer than a node may be.
fn pack_elements(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    if redis::parse_bytes(&ctx.args.text(2)).is_none() {
        return Err(CmdError::fixed("ERR argument must be a memory value bigger than 1 and smaller than 4gb"));
    }
    ctx.reply.ok();
    Ok(())
}

fn sleep(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let seconds: f64 = ctx.args.text(2).parse().unwrap_or(0.0);
    if seconds > 0.0 {
        std::thread::sleep(Duration::from_secs_f64(seconds.min(LONGEST_SLEEP_S)));
    }
    ctx.reply.ok();
    Ok(())
}

fn positive(ctx: &Ctx<'_>, index: usize) -> Result<usize, CmdError> {
    let number = ctx.args.int(index).ok().and_then(|number| usize::try_from(number).ok());
    number.ok_or(CmdError::fixed("ERR value is out of range, must be positive"))
}

fn populate(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    // DEBUG itself is no command that writes.
    if let Some(error) = refuse_write(ctx, WRITE) {
        return Err(error);
    }
    let count = positive(ctx, 2)?;
    let prefix = ctx.args.get(3).unwrap_or(b"key");
    let size = if ctx.args.len() == 5 { Some(positive(ctx, 4)?) } else { None };
    let limit = ctx.server.config.proto_max_bulk_len as usize;
    if size.is_some_and(|size| size > limit) {
        return Err(CmdError::fixed("ERR value is out of range"));
    }
    let db = ctx.client.db;
    let (mut key, mut value) = (Vec::new(), Vec::new());
    for number in 0..count {
        let digits = number.to_string();
        key.clear();
        key.extend_from_slice(prefix);
        key.push(b':');
        key.extend_from_slice(digits.as_bytes());
        if ctx.store.kind(db, &key)?.is_some() {
            continue;
        }
        value.clear();
        value.extend_from_slice(b"value:");
        value.extend_from_slice(digits.as_bytes());
        if let Some(size) = size {
            value.resize(size, 0);
        }
        if let Err(error) = string::set(ctx.store, db, &key, &value, ExpiryChange::Clear) {
            let rest = (3..ctx.args.len()).map(EffectWord::Arg);
            let begun: Vec<EffectWord<'_>> =
                [EffectWord::Arg(0), EffectWord::Arg(1), EffectWord::Bytes(digits.as_bytes())]
                    .into_iter()
                    .chain(rest)
                    .collect();
            ctx.say_effect(&begun);
            return Err(error.into());
        }
    }
    ctx.say_changed();
    ctx.reply.ok();
    Ok(())
}

/// Whether the data may be brought back now by a subcommand of this name.
fn may_bring_back(ctx: &Ctx<'_>, name: &str) -> Result<(), CmdError> {
    if ctx.client.in_exec {
        // What is brought back would hold half of the transaction.
        return Err(CmdError::owned(format!("ERR DEBUG {name} is not possible inside a transaction")));
    }
    if ctx.server.saves.restored.clone_of.is_some() {
        // It would go on as a server that knows nothing of its original, whose image it must not replace.
        return Err(CmdError::owned(format!("ERR DEBUG {name} is not possible in a clone")));
    }
    Ok(())
}

fn reload(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    may_bring_back(ctx, "RELOAD")?;
    persistence::cancel(ctx.store, ctx.server);
    persistence::save_now(ctx.store, ctx.server).map_err(|reason| CmdError::owned(format!("ERR {reason}")))?;
    let (store, restored) = saving::open(&ctx.server.config)
        .map_err(|reason| CmdError::owned(format!("ERR Error trying to load the image: {reason}")))?;
    let changes = store.changes();
    take_over(ctx, store, restored, changes);
    tracing::info!("reloaded");
    ctx.reply.ok();
    Ok(())
}

/// What a start would find of the data: image and log, and the count of changes without those of the log.
type FoundData = (Store, RestoreSummary, ReplaySummary, u64);

fn find_data(server: &ServerState) -> Result<FoundData, String> {
    let config = &server.config;
    let directory = log_control::directory(&config.dir, server.hooks.log_directory.as_ref());
    let (mut store, restored) = saving::open(config)?;
    let changes = store.changes();
    let replayed = replay(registry(), config, &mut store, &*directory, &LoadProgress::new(0));
    replayed.map(|replayed| (store, restored, replayed, changes)).map_err(|error| error.to_string())
}

fn load_log(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    may_bring_back(ctx, "LOADAOF")?;
    let logs = ctx.server.log_writer.is_some();
    let awaits_image = ctx.server.log_writer.as_ref().is_some_and(|log_writer| log_writer.awaits_image());
    if awaits_image || ctx.server.saves.running_since.is_some() {
        persistence::cancel(ctx.store, ctx.server);
        persistence::save_now(ctx.store, ctx.server).map_err(|reason| CmdError::owned(format!("ERR {reason}")))?;
    }
    if !log_control::switch_off(ctx.store, ctx.server) {
        return Err(CmdError::fixed("ERR the log could not be made durable"));
    }
    let found = find_data(ctx.server);
    let found = found.map(|(store, restored, replayed, changes)| {
        take_over(ctx, store, restored, changes);
        log_control::note_replay(ctx.server, &replayed);
    });
    // Also over the data as it was, if nothing else is found.
    if logs && let Err(reason) = log_control::start(ctx.store, ctx.server) {
        ctx.server.ending.fault = Some(reason);
    }
    found.map_err(|reason| CmdError::owned(format!("ERR Error trying to load the log: {reason}")))?;
    tracing::info!("loaded from the image and the log");
    ctx.reply.ok();
    Ok(())
}

/// Data that was brought back takes the place of what was there.
fn take_over(ctx: &mut Ctx<'_>, store: Store, restored: RestoreSummary, changes_at_last_save: u64) {
    *ctx.store = store;
    tell_store(ctx);
    ctx.server.blocked.keys.await_all(ctx.store);
    ctx.server.saves.restored = restored;
    ctx.server.saves.changes_at_last_save = changes_at_last_save;
    if ctx.server.clients.tracking.any() {
        invalidation::tell_all_changed(ctx.server);
    }
    // What they watched is gone with the old store.
    for (_, connection) in ctx.server.clients.iter_mut() {
        connection.client.watch.touched |= connection.client.watch.keys > 0;
    }
    ctx.client.watch.touched |= ctx.client.watch.keys > 0;
}

/// What the store before was told since it was opened, and one that takes its place in mid-course has to know, too. What settings say,
/// it knows from its opening.
fn tell_store(ctx: &mut Ctx<'_>) {
    ctx.store.set_now_ms(ctx.server.clock.unix_ms);
    // The image has all that was logged before it.
    ctx.store.set_noting_expired(ctx.server.log_writer.is_some());
    ctx.store.set_noting_key_events(ctx.server.wants_key_events());
    ctx.store.set_noting_misses(ctx.server.wants_misses());
    // The client that reloads may be the one that has paused all others.
    ctx.store.set_holding_expired(ctx.server.holds_expired());
    ctx.store.set_touching(!ctx.client.options.no_touch);
    ctx.store.set_access_counting(ctx.server.config.maxmemory.access_counting());
}

fn digest_values(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let keys = ctx.args.from(2);
    let mut digests = Vec::with_capacity(keys.len());
    for key in keys.iter() {
        digests.push(ctx.store.digest_value(ctx.client.db, key)?.unwrap_or_default());
    }
    ctx.reply.array(digests.len());
    for digest in digests {
        ctx.reply.simple(&hex(&digest));
    }
    Ok(())
}

fn object(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (db, key) = (ctx.client.db, ctx.args.at(2));
    let (encoding, bytes, idle_s) = ctx.store.stored_as(db, key)?.ok_or(CmdError::NO_SUCH_KEY)?;
    let clock = (ctx.server.unix_s() - idle_s as i64) & 0xFF_FFFF;
    ctx.reply.simple(&format!(
        "Value at:0x0 refcount:1 encoding:{encoding} serializedlength:{bytes} lru:{clock} lru_seconds_idle:{idle_s}"
    ));
    Ok(())
}
