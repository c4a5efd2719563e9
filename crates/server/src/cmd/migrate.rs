//! MIGRATE: keys go to another server. They are taken away here when the target has them, unless they were changed meanwhile.
//!
//! Relies on `migration` to talk to the target in the background; in a transaction or a script, which can't wait, it is done at once.
//! What is on its way may take the memory that clients leave of what all of them may take together.

use std::time::Duration;

use quire_rdb::PayloadWriter;
use quire_store::StoreError;

use crate::blocked::BlockReason;
use crate::ctx::{Args, CmdError, Ctx};
use crate::effects::EffectWord;
use crate::migration::{self, MigrationJob, MigrationReport, MigrationState, SentKey, write_request};
use crate::rdb::encode::{encode_value, kind_of};

/// How long an operation may take where the client says nothing.
const DEFAULT_TIMEOUT_MS: i64 = 1000;
const CHANGED: CmdError = CmdError::fixed(
    "ERR a key was changed while it was moved: it is still here, and the target has what it was before",
);

const TOO_LARGE: CmdError = CmdError::fixed(
    "ERR the keys can't be moved now: on their way they would take more memory than maxmemory-clients leaves; move fewer at a time",
);

/// What the words ask for.
struct MigrateRequest<'a> {
    copy: bool,
    replace: bool,
    /// The user, if one is named, and the password.
    login: Option<Vec<&'a [u8]>>,
    keys: Args<'a>,
    db: i64,
    timeout_ms: i64,
}

impl<'a> MigrateRequest<'a> {
    fn parse(args: Args<'a>) -> Result<Self, CmdError> {
        let (mut copy, mut replace, mut login) = (false, false, None);
        let mut keys = args.range(3, 4);
        let mut at = 6;
        while at < args.len() {
            let more = args.len() - 1 - at;
            if args.is(at, "COPY") {
                copy = true;
            } else if args.is(at, "REPLACE") {
                replace = true;
            } else if args.is(at, "AUTH") && more > 0 {
                login = Some(vec![args.at(at + 1)]);
                at += 1;
            } else if args.is(at, "AUTH2") && more > 1 {
                login = Some(vec![args.at(at + 1), args.at(at + 2)]);
                at += 2;
            } else if args.is(at, "KEYS") {
                if !args.at(3).is_empty() {
                    return Err(CmdError::fixed(
                        "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
                    ));
                }
                keys = args.from(at + 1);
                break;
            } else {
                return Err(CmdError::SYNTAX);
            }
            at += 1;
        }
        let timeout_ms = args.int(5)?;
        let db = args.int(4)?;
        let timeout_ms = if timeout_ms <= 0 { DEFAULT_TIMEOUT_MS } else { timeout_ms };
        Ok(Self { copy, replace, login, keys, db, timeout_ms })
    }
}

/// MIGRATE host port key|"" destination-db timeout [COPY] [REPLACE] [AUTH password | AUTH2 username password] [KEYS key …]
pub fn migrate(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    if ctx.is_replayed() {
        // What it has taken away is told as deleted.
        return Err(CmdError::fixed("ERR MIGRATE can't be done again"));
    }
    let request = MigrateRequest::parse(ctx.args)?;
    let asker = (ctx.client.id, ctx.client.db.0, ctx.args);
    match ctx.server.blocked.migrations.state(asker) {
        MigrationState::Running => return Err(ctx.not_yet(BlockReason::Migration)),
        MigrationState::Ended(keys, report) => return finish(ctx, &request, &keys, report),
        MigrationState::None => {}
    }
    let mut job = job_of(ctx, &request);
    let keys = add_keys(ctx, &request, &mut job)?;
    if keys.is_empty() {
        ctx.reply.simple("NOKEY");
        return Ok(());
    }
    let waker = ctx.server.instance.waker.clone().filter(|_| !ctx.client.in_exec);
    let Some(waker) = waker else {
        let report = migration::perform(&job, keys.len());
        return finish(ctx, &request, &keys, report);
    };
    let begun = ctx.server.blocked.migrations.begin(asker, keys, job, waker);
    begun.map_err(|error| CmdError::owned(format!("ERR the keys can't be moved now: {error}")))?;
    Err(ctx.not_yet(BlockReason::Migration))
}

/// The target, and what it is told before the keys.
fn job_of(ctx: &Ctx<'_>, request: &MigrateRequest<'_>) -> MigrationJob {
    let (mut opening, mut opening_replies) = (Vec::new(), 1);
    if let Some(login) = &request.login {
        let words: Vec<&[u8]> = [&b"AUTH"[..]].into_iter().chain(login.iter().copied()).collect();
        write_request(&mut opening, &words);
        opening_replies += 1;
    }
    write_request(&mut opening, &[b"SELECT", request.db.to_string().as_bytes()]);
    let is_bad_target = ctx.client.in_exec || request.db == i64::from(ctx.client.db.0) && !request.copy;
    let addresses = ctx.server.instance.addresses.iter().filter(|_| is_bad_target);
    MigrationJob {
        host: ctx.args.text(1).into_owned(),
        // As atoi reads it.
        port: ctx.args.text(2).parse().unwrap_or(0),
        timeout: Duration::from_millis(request.timeout_ms as u64),
        // Sockets in the file system are no targets.
        own_addresses: addresses.filter_map(|address| address.parse().ok()).collect(),
        opening,
        opening_replies,
        restores: Vec::new(),
    }
}

/// Adds a RESTORE for each key that exists.
fn add_keys(ctx: &mut Ctx<'_>, request: &MigrateRequest<'_>, job: &mut MigrationJob) -> Result<Vec<SentKey>, CmdError> {
    let mut keys = Vec::new();
    let most_bytes = room_bytes(ctx);
    for key in request.keys.iter() {
        // A value takes about as much in its payload, of which there are two while it is written.
        let payloads_bytes = ctx.store.memory_usage(ctx.client.db, key)?.map_or(0, |bytes| bytes.saturating_mul(2));
        if payloads_bytes.saturating_add(job.restores.len() as u64) > most_bytes {
            return Err(TOO_LARGE);
        }
        let found = payload_of(ctx, key)?;
        ctx.store.note_read(ctx.client.db, key, found.is_some());
        let Some((payload, sent)) = found else { continue };
        let now_ms = ctx.store.now_ms();
        let ttl_ms = sent.expire_ms.map_or(0, |at_ms| at_ms.saturating_sub(now_ms).max(1)).to_string();
        let mut words = vec![&b"RESTORE"[..], key, ttl_ms.as_bytes(), &payload];
        if request.replace {
            words.push(b"REPLACE");
        }
        write_request(&mut job.restores, &words);
        if job.restores.len() as u64 > most_bytes {
            return Err(TOO_LARGE);
        }
        keys.push(sent);
    }
    Ok(keys)
}

/// What clients leave of the memory that they may take, with what is on its way for others.
fn room_bytes(ctx: &Ctx<'_>) -> u64 {
    let taken_bytes = ctx.server.clients.memory_bytes() as u64 + ctx.server.blocked.migrations.memory_bytes();
    ctx.server.client_memory_limit_bytes().saturating_sub(taken_bytes)
}

/// A key's value as it is sent, and what tells that from any other.
fn payload_of(ctx: &mut Ctx<'_>, key: &[u8]) -> Result<Option<(Vec<u8>, SentKey)>, StoreError> {
    let db = ctx.client.db;
    let Some(kind) = ctx.store.kind(db, key)? else { return Ok(None) };
    let Some(form) = kind_of(ctx.store, db, key, kind)? else { return Ok(None) };
    let expire_ms = ctx.store.expiry(db, key)?.flatten();
    let mut writer = PayloadWriter::new(form);
    encode_value(ctx.store, db, key, kind, writer.encoder())?;
    let payload = writer.finish();
    let fingerprint = ctx.server.blocked.migrations.fingerprint(&payload);
    let sent = SentKey { key: key.to_vec(), payload: (payload.len(), fingerprint), expire_ms };
    Ok(Some((payload, sent)))
}

/// Takes away what the target has taken, and is still as it was sent.
fn finish(
    ctx: &mut Ctx<'_>,
    request: &MigrateRequest<'_>,
    keys: &[SentKey],
    report: MigrationReport,
) -> Result<(), CmdError> {
    let mut moved = vec![EffectWord::Bytes(b"DEL")];
    let mut failed = report.error.map(CmdError::owned);
    let taken = keys.iter().zip(&report.taken).filter(|(_, taken)| **taken && !request.copy);
    for (sent, _) in taken {
        match take_away(ctx, sent) {
            Ok(true) => moved.push(EffectWord::Bytes(&sent.key)),
            Ok(false) => failed = failed.or(Some(CHANGED)),
            Err(error) => {
                failed = Some(error.into());
                break;
            }
        }
    }
    if moved.len() > 1 {
        ctx.say_effect(&moved);
    }
    match failed {
        Some(error) => Err(error),
        None => {
            ctx.reply.ok();
            Ok(())
        }
    }
}

/// Removes a key; false if it is not as it was sent. One that is gone is where it should be, and so is a hash of which the time of all fields
/// has come.
fn take_away(ctx: &mut Ctx<'_>, sent: &SentKey) -> Result<bool, StoreError> {
    match payload_of(ctx, &sent.key)? {
        Some((_, now)) if now != *sent => Ok(false),
        Some(_) | None => ctx.store.remove(ctx.client.db, &sent.key).map(|_| true),
    }
}
