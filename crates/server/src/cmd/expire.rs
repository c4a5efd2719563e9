//! Times to live: EXPIRE and its relatives, TTL and its relatives, PERSIST.
//!
//! Relies on the store, which keeps instants as Unix milliseconds and deletes a key that is given one in the past.

use crate::ctx::{Args, CmdError, Ctx};
use crate::effects::EffectWord;

/// How a request gives an instant.
#[derive(Clone, Copy)]
struct ExpireForm {
    command: &'static str,
    unit_ms: i64,
    /// From now, rather than from 1970.
    relative: bool,
}

/// EXPIRE key seconds [NX | XX | GT | LT]
pub fn expire(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    set(ctx, ExpireForm { command: "expire", unit_ms: 1000, relative: true })
}

/// PEXPIRE key milliseconds [NX | XX | GT | LT]
pub fn pexpire(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    set(ctx, ExpireForm { command: "pexpire", unit_ms: 1, relative: true })
}

/// EXPIREAT key unix-seconds [NX | XX | GT | LT]
pub fn expireat(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    set(ctx, ExpireForm { command: "expireat", unit_ms: 1000, relative: false })
}

/// PEXPIREAT key unix-milliseconds [NX | XX | GT | LT]
pub fn pexpireat(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    set(ctx, ExpireForm { command: "pexpireat", unit_ms: 1, relative: false })
}

/// When a new instant is taken.
#[derive(Clone, Copy, Default)]
pub(super) struct ExpireCondition {
    missing: bool,
    present: bool,
    greater: bool,
    less: bool,
}

impl ExpireCondition {
    /// The condition that one word names, if it names one.
    pub(super) fn of_word(args: Args<'_>, at: usize) -> Option<Self> {
        let mut condition = Self::default();
        *condition.named(args, at)? = true;
        Some(condition)
    }

    fn named(&mut self, args: Args<'_>, at: usize) -> Option<&mut bool> {
        let Self { missing, present, greater, less } = self;
        let conditions = [("NX", missing), ("XX", present), ("GT", greater), ("LT", less)];
        conditions.into_iter().find(|(word, _)| args.is(at, word)).map(|(_, condition)| condition)
    }

    fn parse(ctx: &Ctx<'_>) -> Result<Self, CmdError> {
        let mut condition = Self::default();
        for at in 3..ctx.args.len() {
            let unsupported = || CmdError::owned(format!("ERR Unsupported option {}", ctx.args.text(at)));
            *condition.named(ctx.args, at).ok_or_else(unsupported)? = true;
        }
        if condition.missing && (condition.present || condition.greater || condition.less) {
            return Err(CmdError::fixed("ERR NX and XX, GT or LT options at the same time are not compatible"));
        }
        if condition.greater && condition.less {
            return Err(CmdError::fixed("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(condition)
    }

    /// Whether `at_ms` may replace `old_ms`. A key without an instant lives for ever.
    pub(super) fn allows(self, old_ms: Option<i64>, at_ms: i64) -> bool {
        let refused = match old_ms {
            None => self.present || self.greater,
            Some(old_ms) => self.missing || self.greater && at_ms <= old_ms || self.less && at_ms >= old_ms,
        };
        !refused
    }
}

#[inline]
fn set(ctx: &mut Ctx<'_>, form: ExpireForm) -> Result<(), CmdError> {
    let condition = ExpireCondition::parse(ctx)?;
    let given = ctx.args.int(2)?;
    let since_ms = if form.relative { ctx.store.now_ms() } else { 0 };
    let at_ms = given
        .checked_mul(form.unit_ms)
        .and_then(|ms| ms.checked_add(since_ms))
        .ok_or_else(|| CmdError::invalid_expire(form.command))?;
    let (db, key) = (ctx.client.db, ctx.args.at(1));
    let done = match ctx.store.expiry(db, key)? {
        Some(old_ms) if condition.allows(old_ms, at_ms) => ctx.store.set_expiry(db, key, Some(at_ms))?,
        _ => false,
    };
    if done {
        say_expiry(ctx, at_ms);
    }
    ctx.reply.int(i64::from(done));
    Ok(())
}

/// Says that the first key was given an instant until which it lives, or was deleted as that has passed.
pub(super) fn say_expiry(ctx: &mut Ctx<'_>, at_ms: i64) {
    if at_ms <= ctx.store.now_ms() {
        ctx.say_effect(&[EffectWord::Bytes(b"DEL"), EffectWord::Arg(1)]);
    } else {
        ctx.say_effect(&[EffectWord::Bytes(b"PEXPIREAT"), EffectWord::Arg(1), EffectWord::Int(at_ms)]);
    }
}

/// TTL key
pub fn ttl(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    tell(ctx, |at_ms, now_ms| ((at_ms - now_ms).max(0) + 500) / 1000)
}

/// PTTL key
pub fn pttl(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    tell(ctx, |at_ms, now_ms| (at_ms - now_ms).max(0))
}

/// EXPIRETIME key
pub fn expiretime(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    // Rounded to the nearest, as TTL is, where adding half a second might overflow.
    tell(ctx, |at_ms, _| at_ms / 1000 + i64::from(at_ms % 1000 >= 500))
}

/// PEXPIRETIME key
pub fn pexpiretime(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    tell(ctx, |at_ms, _| at_ms)
}

#[inline]
fn tell(ctx: &mut Ctx<'_>, figure: impl Fn(i64, i64) -> i64) -> Result<(), CmdError> {
    let now_ms = ctx.store.now_ms();
    let (db, key) = (ctx.client.db, ctx.args.at(1));
    let expiry = ctx.store.expiry(db, key)?;
    ctx.store.note_read(db, key, expiry.is_some());
    ctx.reply.int(match expiry {
        None => -2,
        Some(None) => -1,
        Some(Some(at_ms)) => figure(at_ms, now_ms),
    });
    Ok(())
}

/// PERSIST key
pub fn persist(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (db, key) = (ctx.client.db, ctx.args.at(1));
    let had = matches!(ctx.store.expiry(db, key)?, Some(Some(_)));
    if had {
        ctx.store.set_expiry(db, key, None)?;
    }
    ctx.reply.int(i64::from(had));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_without_an_instant_lives_for_ever() {
        let with = |field: fn(&mut ExpireCondition) -> &mut bool| {
            let mut condition = ExpireCondition::default();
            *field(&mut condition) = true;
            condition
        };
        let greater = with(|condition| &mut condition.greater);
        assert!(!greater.allows(None, 5) && greater.allows(Some(4), 5) && !greater.allows(Some(5), 5));
        let less = with(|condition| &mut condition.less);
        assert!(less.allows(None, 5) && less.allows(Some(6), 5) && !less.allows(Some(5), 5));
        let missing = with(|condition| &mut condition.missing);
        assert!(missing.allows(None, 5) && !missing.allows(Some(4), 5));
        let present = with(|condition| &mut condition.present);
        assert!(!present.allows(None, 5) && present.allows(Some(4), 5));
    }
}
