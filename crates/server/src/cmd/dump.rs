//! DUMP and RESTORE: a key's value as bytes that Redis reads, too.
//!
//! Relies on `rdb` for the bytes. A value is restored aside, so that the key has what it had until the new value is whole.

use quire_rdb::{PayloadError, PayloadReader, PayloadWriter, RdbError, Value};
use quire_store::{ExpiryChange, StoreError, string};

use crate::ctx::{CmdError, Ctx};
use crate::effects::EffectWord;
use crate::rdb::encode::{encode_value, kind_of};
use crate::rdb::load::{LoadError, LoadTarget, Loaded, load_value};

const WRONG_FOOTER: CmdError = CmdError::fixed("ERR DUMP payload version or checksum are wrong");
const BAD_FORMAT: CmdError = CmdError::fixed("ERR Bad data format");
const BUSY_KEY: CmdError = CmdError::fixed("BUSYKEY Target key name already exists.");

/// How often a key seems to be used of which nothing is said: it is a new one, also where it takes the place of another.
const NEW_FREQUENCY: u8 = 5;

/// DUMP key
pub fn dump(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (db, key) = (ctx.client.db, ctx.args.at(1));
    let Some(kind) = ctx.store.kind(db, key)? else {
        ctx.store.note_read(db, key, false);
        ctx.reply.null();
        return Ok(());
    };
    let Some(form) = kind_of(ctx.store, db, key, kind)? else {
        ctx.reply.null();
        return Ok(());
    };
    let mut writer = PayloadWriter::new(form);
    encode_value(ctx.store, db, key, kind, writer.encoder())?;
    ctx.reply.bulk(&writer.finish());
    Ok(())
}

/// What RESTORE's words ask for.
#[derive(Default)]
struct RestoreOptions {
    replace: bool,
    absolute: bool,
    idle_s: Option<u64>,
    frequency: Option<u8>,
}

impl RestoreOptions {
    fn parse(ctx: &Ctx<'_>) -> Result<Self, CmdError> {
        let args = ctx.args;
        let mut options = Self::default();
        let mut at = 4;
        while at < args.len() {
            if args.is(at, "REPLACE") {
                options.replace = true;
            } else if args.is(at, "ABSTTL") {
                options.absolute = true;
            } else if args.is(at, "IDLETIME") && at + 1 < args.len() && options.frequency.is_none() {
                at += 1;
                let idle_s = u64::try_from(args.int(at)?);
                options.idle_s = Some(idle_s.map_err(|_| CmdError::fixed("ERR Invalid IDLETIME value, must be >= 0"))?);
            } else if args.is(at, "FREQ") && at + 1 < args.len() && options.idle_s.is_none() {
                at += 1;
                let invalid = CmdError::fixed("ERR Invalid FREQ value, must be >= 0 and <= 255");
                options.frequency = Some(u8::try_from(args.int(at)?).map_err(|_| invalid)?);
            } else {
                return Err(CmdError::SYNTAX);
            }
            at += 1;
        }
        Ok(options)
    }
}

/// RESTORE key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]
pub fn restore(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let options = RestoreOptions::parse(ctx)?;
    let (db, key) = (ctx.client.db, ctx.args.at(1));
    if !options.replace && ctx.store.kind(db, key)?.is_some() {
        return Err(BUSY_KEY);
    }
    let ttl_ms = ctx.args.int(2)?;
    if ttl_ms < 0 {
        return Err(CmdError::fixed("ERR Invalid TTL value, must be >= 0"));
    }
    let since_ms = if options.absolute { 0 } else { ctx.store.now_ms() };
    let expire_ms = (ttl_ms != 0).then(|| ttl_ms.saturating_add(since_ms));
    let mut payload = PayloadReader::open(ctx.args.at(3)).map_err(|error| match error {
        PayloadError::Footer => WRONG_FOOTER,
        PayloadError::Value(error) => told(&error),
    })?;
    let value = payload.value().map_err(|error| told(&error))?;
    let past_ms = expire_ms.filter(|at_ms| *at_ms <= ctx.store.now_ms());
    match value {
        Value::String(bytes) if past_ms.is_none() => {
            let expiry = expire_ms.map_or(ExpiryChange::Clear, ExpiryChange::At);
            string::set(ctx.store, db, key, &bytes, expiry)?;
        }
        value => {
            let aside = ctx.store.aside_key();
            let done = restore_aside(ctx, &aside, value, expire_ms, past_ms.is_some());
            if done.is_err() {
                ctx.store.discard_aside(db, &aside)?;
            }
            done?;
        }
    }
    if past_ms.is_some() {
        ctx.say_effect(&[EffectWord::Bytes(b"DEL"), EffectWord::Arg(1)]);
    } else {
        set_use(ctx, &options)?;
        say_restored(ctx, expire_ms.filter(|_| !options.absolute));
    }
    ctx.reply.ok();
    Ok(())
}

/// Sets how the key was used, as far as the policy of eviction goes by that, as in Redis.
fn set_use(ctx: &mut Ctx<'_>, options: &RestoreOptions) -> Result<(), CmdError> {
    let (db, key) = (ctx.client.db, ctx.args.at(1));
    let counts = ctx.server.config.maxmemory.access_counting().is_some();
    if counts {
        ctx.store.set_access_count(db, key, options.frequency.unwrap_or(NEW_FREQUENCY))?;
    } else if let Some(idle_s) = options.idle_s {
        ctx.store.set_idle_seconds(db, key, idle_s)?;
    }
    Ok(())
}

/// Reads a value aside, and then gives it its key; one whose time has come only takes away what the key had.
fn restore_aside(
    ctx: &mut Ctx<'_>,
    aside: &[u8],
    value: Value<'_, &[u8]>,
    expire_ms: Option<i64>,
    is_past: bool,
) -> Result<(), CmdError> {
    let (db, key) = (ctx.client.db, ctx.args.at(1));
    if let Value::String(_) = value {
        return Ok(ctx.store.remove(db, key).map(drop)?);
    }
    match load_value(ctx.store, LoadTarget { db, key: aside, is_aside: true }, value) {
        Ok(Loaded::Whole) if is_past => {
            ctx.store.discard_aside(db, aside)?;
            Ok(ctx.store.remove(db, key).map(drop)?)
        }
        Ok(Loaded::Whole) => Ok(ctx.store.publish_aside(db, aside, key, expire_ms)?),
        Ok(Loaded::Empty | Loaded::Unsupported(_)) => Err(BAD_FORMAT),
        Err(LoadError::Store(error @ (StoreError::OutOfMemory { .. } | StoreError::Damaged { .. }))) => {
            Err(error.into())
        }
        Err(LoadError::Rdb(error)) => Err(told(&error)),
        Err(LoadError::Store(_) | LoadError::Content(_)) => Err(BAD_FORMAT),
    }
}

/// A value that can't be read is told as Redis tells it; what exactly is wrong is in the log.
fn told(error: &RdbError) -> CmdError {
    tracing::debug!(%error, "a payload of RESTORE can't be read");
    BAD_FORMAT
}

/// A time to live from now is told as the instant at which it ends.
fn say_restored(ctx: &mut Ctx<'_>, expire_ms: Option<i64>) {
    let Some(expire_ms) = expire_ms else { return };
    let fixed = [EffectWord::Arg(0), EffectWord::Arg(1), EffectWord::Int(expire_ms), EffectWord::Arg(3)];
    let options = (4..ctx.args.len()).map(EffectWord::Arg);
    let words: Vec<_> = fixed.into_iter().chain(options).chain([EffectWord::Bytes(b"ABSTTL")]).collect();
    ctx.say_effect(&words);
}
