//! Times to live of hashes' fields: HEXPIRE and its relatives, HTTL and its relatives, HPERSIST.
//!
//! Relies on the store, which keeps instants as Unix milliseconds. A field whose instant is past is removed here; the store has no
//! operation find one whose time has come. What is logged names the fields that have changed, so that it does not depend on the clock.

use quire_store::{StoreError, hash};

use super::expire::ExpireCondition;
use crate::ctx::{Args, CmdError, Ctx};
use crate::effects::EffectWord;

/// The last instant that a client gives a field, as in Redis.
const LAST_MS: i64 = (1 << 46) - 1;
/// There is no such field.
const MISSING: i64 = -2;
/// The field has no time to live.
const LASTING: i64 = -1;
/// The condition is not met.
const REFUSED: i64 = 0;
const DONE: i64 = 1;
/// The field was removed: its instant is past.
const REMOVED: i64 = 2;

const NO_FIELDS: CmdError = CmdError::fixed("ERR Mandatory argument FIELDS is missing or not at the right position");
const NO_COUNT: CmdError = CmdError::fixed("ERR Number of fields must be a positive integer");
const NO_COUNT_TO_SET: CmdError = CmdError::fixed("ERR Parameter `numFields` should be greater than 0");
const OTHER_COUNT: CmdError = CmdError::fixed("ERR The `numfields` parameter must match the number of arguments");

/// How a request gives an instant.
#[derive(Clone, Copy)]
struct ExpiryForm {
    command: &'static str,
    unit_ms: i64,
    /// From now, rather than from 1970.
    relative: bool,
}

impl ExpiryForm {
    /// The instant that the second word behind the command's name gives, `last_ms` at the latest.
    fn instant(self, args: Args<'_>, now_ms: i64, last_ms: i64) -> Result<i64, CmdError> {
        let given = args.int(2)?;
        if given < 0 {
            return Err(CmdError::fixed("ERR invalid expire time, must be >= 0"));
        }
        let since_ms = if self.relative { now_ms } else { 0 };
        let at_ms = given.checked_mul(self.unit_ms).and_then(|ms| ms.checked_add(since_ms));
        at_ms.filter(|at_ms| *at_ms <= last_ms).ok_or_else(|| CmdError::invalid_expire(self.command))
    }
}

/// HEXPIRE key seconds [NX | XX | GT | LT] FIELDS numfields field …
pub fn hexpire(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    set(ctx, ExpiryForm { command: "hexpire", unit_ms: 1000, relative: true })
}

/// HPEXPIRE key milliseconds [NX | XX | GT | LT] FIELDS numfields field …
pub fn hpexpire(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    set(ctx, ExpiryForm { command: "hpexpire", unit_ms: 1, relative: true })
}

/// HEXPIREAT key unix-seconds [NX | XX | GT | LT] FIELDS numfields field …
pub fn hexpireat(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    set(ctx, ExpiryForm { command: "hexpireat", unit_ms: 1000, relative: false })
}

/// HPEXPIREAT key unix-milliseconds [NX | XX | GT | LT] FIELDS numfields field …
pub fn hpexpireat(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    set(ctx, ExpiryForm { command: "hpexpireat", unit_ms: 1, relative: false })
}

/// Where the fields begin that follow the word FIELDS, which stands at `at`, and their number.
fn fields_behind(args: Args<'_>, at: usize, no_count: CmdError) -> Result<usize, CmdError> {
    if !args.is(at, "FIELDS") {
        return Err(NO_FIELDS);
    }
    let count = args.get(at + 1).and_then(|_| args.int(at + 1).ok()).filter(|count| *count > 0);
    let count = count.ok_or(no_count)?;
    let first = at + 2;
    if usize::try_from(count).ok() == args.len().checked_sub(first) { Ok(first) } else { Err(OTHER_COUNT) }
}

/// What became of the fields of a request.
#[derive(Default)]
struct ChangedFields {
    /// The replies, one for each field that was looked at.
    replies: Vec<i64>,
    /// Where the words stand that name fields which have changed.
    changed: Vec<usize>,
}

fn set(ctx: &mut Ctx<'_>, form: ExpiryForm) -> Result<(), CmdError> {
    let (args, now_ms) = (ctx.args, ctx.store.now_ms());
    // A file or a payload gives later ones, and so does the log.
    let last_ms = if ctx.is_replayed() { hash::MAX_EXPIRY_MS } else { LAST_MS };
    let mut hash = hash::open_mut(ctx.store, ctx.client.db, args.at(1))?;
    let at_ms = form.instant(args, now_ms, last_ms)?;
    let condition = ExpireCondition::of_word(args, 3);
    let first = fields_behind(args, 3 + usize::from(condition.is_some()), NO_COUNT_TO_SET)?;
    let condition = condition.unwrap_or_default();
    let mut done = ChangedFields::default();
    let mut change = |at: usize| -> Result<i64, StoreError> {
        let field = args.at(at);
        let reply = match hash.expiry(field)? {
            None => MISSING,
            Some(old_ms) if !condition.allows(old_ms, at_ms) => REFUSED,
            Some(_) if at_ms <= now_ms => {
                hash.remove(field)?;
                REMOVED
            }
            Some(_) => {
                hash.set_expiry(field, Some(at_ms))?;
                DONE
            }
        };
        Ok(reply)
    };
    let failed = for_each_field(first..args.len(), &mut done, |reply| reply >= DONE, &mut change);
    drop(hash);
    say_changed(ctx, &done.changed, (at_ms > now_ms).then_some(at_ms));
    reply_with(ctx, &done.replies, failed)
}

/// Changes fields one after the other until that fails, and notes which have changed, as `is_change` says of a reply.
fn for_each_field(
    words: std::ops::Range<usize>,
    done: &mut ChangedFields,
    is_change: impl Fn(i64) -> bool,
    change: &mut dyn FnMut(usize) -> Result<i64, StoreError>,
) -> Result<(), StoreError> {
    for at in words {
        let reply = change(at)?;
        done.replies.push(reply);
        if is_change(reply) {
            done.changed.push(at);
        }
    }
    Ok(())
}

/// Says which fields have got an instant, or were removed.
fn say_changed(ctx: &mut Ctx<'_>, changed: &[usize], at_ms: Option<i64>) {
    if changed.is_empty() || !ctx.says_effects() {
        return;
    }
    let fields = changed.iter().map(|at| EffectWord::Arg(*at));
    let words: Vec<EffectWord<'_>> = match at_ms {
        Some(at_ms) => expiry_words(at_ms, changed.len()).into_iter().chain(fields).collect(),
        None => [EffectWord::Bytes(b"HDEL"), EffectWord::Arg(1)].into_iter().chain(fields).collect(),
    };
    ctx.say_effect(&words);
}

/// The words before the fields of an effect that gives them an instant.
fn expiry_words(at_ms: i64, fields: usize) -> [EffectWord<'static>; 5] {
    [
        EffectWord::Bytes(b"HPEXPIREAT"),
        EffectWord::Arg(1),
        EffectWord::Int(at_ms),
        EffectWord::Bytes(b"FIELDS"),
        EffectWord::Int(fields as i64),
    ]
}

/// Says that a field, which the second word behind the command's name names, has kept its instant in a command whose effect is told by another
/// one, which takes it away.
pub(super) fn say_kept(ctx: &mut Ctx<'_>, at_ms: i64) {
    let words: Vec<EffectWord<'_>> = expiry_words(at_ms, 1).into_iter().chain([EffectWord::Arg(2)]).collect();
    ctx.say_also(&words);
}

fn reply_with(ctx: &mut Ctx<'_>, replies: &[i64], done: Result<(), StoreError>) -> Result<(), CmdError> {
    done?;
    ctx.reply.array(replies.len());
    replies.iter().for_each(|reply| ctx.reply.int(*reply));
    Ok(())
}

/// HTTL key FIELDS numfields field …
pub fn httl(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    tell(ctx, |at_ms, now_ms| seconds_up(at_ms - now_ms))
}

/// HPTTL key FIELDS numfields field …
pub fn hpttl(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    tell(ctx, |at_ms, now_ms| at_ms - now_ms)
}

/// HEXPIRETIME key FIELDS numfields field …
pub fn hexpiretime(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    tell(ctx, |at_ms, _| seconds_up(at_ms))
}

/// HPEXPIRETIME key FIELDS numfields field …
pub fn hpexpiretime(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    tell(ctx, |at_ms, _| at_ms)
}

/// A part of a second counts as one, where TTL rounds.
fn seconds_up(ms: i64) -> i64 {
    (ms + 999) / 1000
}

fn tell(ctx: &mut Ctx<'_>, figure: impl Fn(i64, i64) -> i64) -> Result<(), CmdError> {
    let (args, now_ms) = (ctx.args, ctx.store.now_ms());
    let hash = hash::view(ctx.store, ctx.client.db, args.at(1))?;
    let first = fields_behind(args, 2, NO_COUNT)?;
    let mut replies = Vec::with_capacity(args.len() - first);
    for field in args.from(first).iter() {
        replies.push(match hash.expiry(field)? {
            None => MISSING,
            Some(None) => LASTING,
            Some(Some(at_ms)) => figure(at_ms, now_ms),
        });
    }
    reply_with(ctx, &replies, Ok(()))
}

/// HPERSIST key FIELDS numfields field …
pub fn hpersist(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let args = ctx.args;
    let mut hash = hash::open_mut(ctx.store, ctx.client.db, args.at(1))?;
    let first = fields_behind(args, 2, NO_COUNT)?;
    let mut done = ChangedFields::default();
    let mut change = |at: usize| -> Result<i64, StoreError> {
        let field = args.at(at);
        Ok(match hash.expiry(field)? {
            None => MISSING,
            Some(None) => LASTING,
            Some(Some(_)) => {
                hash.set_expiry(field, None)?;
                DONE
            }
        })
    };
    let failed = for_each_field(first..args.len(), &mut done, |reply| reply == DONE, &mut change);
    drop(hash);
    if !done.changed.is_empty() {
        let count = EffectWord::Int(done.changed.len() as i64);
        let fixed = [EffectWord::Arg(0), EffectWord::Arg(1), EffectWord::Bytes(b"FIELDS"), count];
        let words: Vec<_> = fixed.into_iter().chain(done.changed.iter().map(|at| EffectWord::Arg(*at))).collect();
        ctx.say_effect(&words);
    }
    reply_with(ctx, &done.replies, failed)
}
