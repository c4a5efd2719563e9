//! KEYS, SCAN, and what the scans of keys and of fields have in common.
//!
//! Relies on the store's promise: what exists during a whole scan is passed at least once.

use quire_store::{StoreError, ValueType};

use crate::ctx::{Args, CmdError, Ctx};
use crate::glob::{self, Glob};
use crate::resp::Reply;

/// Elements that a call looks at if it isn't told how many.
const COUNT: usize = 10;
/// Elements that a call looks at at most, whatever count it is told: some milliseconds.
const MOST_ELEMENTS: usize = 32 * 1024;
/// Elements between two looks at how much was written.
const STEP: usize = 64;
/// A call that has written so much ends.
const ENOUGH_BYTES: usize = 1 << 20;

/// What a scan goes through, which decides the options that it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scanned {
    Keys,
    Fields,
    Members,
}

/// What a scan passes on.
pub(super) struct Filter {
    pattern: Option<Glob>,
    /// About how many elements to look at.
    pub count: usize,
    /// Only keys of this type; the inner `None` is a type that no key has.
    kind: Option<Option<ValueType>>,
    /// Only the names of fields, as since Redis 7.4.
    pub without_values: bool,
}

impl Filter {
    /// Reads `[MATCH pattern] [COUNT count] [TYPE type] [NOVALUES]`.
    pub fn parse(args: Args<'_>, scanned: Scanned) -> Result<Self, CmdError> {
        let mut filter = Self { pattern: None, count: COUNT, kind: None, without_values: false };
        let mut next = 0;
        while next < args.len() {
            let at = next;
            if scanned == Scanned::Fields && args.is(at, "NOVALUES") {
                filter.without_values = true;
                next += 1;
                continue;
            }
            next += 2;
            let value = args.get(at + 1).ok_or(CmdError::SYNTAX)?;
            if args.is(at, "COUNT") {
                let count = args.int(at + 1)?;
                filter.count = usize::try_from(count).ok().filter(|&count| count > 0).ok_or(CmdError::SYNTAX)?;
            } else if args.is(at, "MATCH") {
                filter.pattern = (value != b"*").then(|| glob_of(value)).transpose()?;
            } else if scanned == Scanned::Keys && args.is(at, "TYPE") {
                filter.kind = Some(ValueType::of_name(value));
            } else {
                return Err(CmdError::SYNTAX);
            }
        }
        Ok(filter)
    }

    /// Whether an element of this name is passed on.
    pub fn matches(&self, name: &[u8]) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| pattern.matches(name))
    }

    fn is_kind(&self, kind: ValueType) -> bool {
        self.kind.is_none_or(|wanted| wanted == Some(kind))
    }
}

/// A pattern that is not too long.
pub(super) fn glob_of(pattern: &[u8]) -> Result<Glob, CmdError> {
    check_length(pattern)?;
    Ok(Glob::new(pattern, false))
}

/// Refuses a pattern that is too long.
pub(super) fn check_length(pattern: &[u8]) -> Result<(), CmdError> {
    if pattern.len() > glob::LONGEST_BYTES {
        return Err(CmdError::owned(format!("ERR a pattern may have at most {} bytes", glob::LONGEST_BYTES)));
    }
    Ok(())
}

/// Reads a cursor as strtoul does, which takes leading zeros, nothing at all for 0, and signs.
pub(super) fn cursor(text: &[u8]) -> Result<u64, CmdError> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] if !digits.is_empty() => (true, digits),
        [b'+', digits @ ..] if !digits.is_empty() => (false, digits),
        digits => (false, digits),
    };
    let value = digits.iter().try_fold(0u64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    });
    let value = value.ok_or(CmdError::INVALID_CURSOR)?;
    Ok(if negative { value.wrapping_neg() } else { value })
}

/// Replies with the cursor after a scan of about `count` elements, and what it has passed on. `walk` goes on from a cursor
/// with about so many elements, writes them, adds to the number of written elements, and returns the next cursor.
///
/// A scan of any count ends early when it has looked at or written much: a client asks again with the cursor anyway.
pub(super) fn reply(
    reply: &mut Reply,
    cursor: u64,
    count: usize,
    mut walk: impl FnMut(u64, usize, &mut Reply, &mut usize) -> Result<u64, StoreError>,
) -> Result<(), CmdError> {
    // The cursor stands in front but is known last.
    let mut written = reply.part();
    let (mut next, mut elements, mut left) = (cursor, 0, count.clamp(1, MOST_ELEMENTS));
    loop {
        let step = left.min(STEP);
        next = walk(next, step, &mut written, &mut elements)?;
        left -= step;
        if next == 0 || left == 0 || written.len() >= ENOUGH_BYTES {
            break;
        }
    }
    reply.array(2);
    reply.bulk_str(itoa::Buffer::new().format(next));
    reply.array(elements);
    reply.append(&written);
    Ok(())
}

/// KEYS pattern
pub fn keys(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let pattern = Some(ctx.args.at(1)).filter(|pattern| *pattern != b"*");
    let glob = pattern.map(glob_of).transpose()?;
    let reply = &mut *ctx.reply;
    let mark = reply.begin_array();
    let mut count = 0;
    let done = ctx.store.for_each_key(ctx.client.db, &mut |key, _| {
        if glob.as_ref().is_none_or(|glob| glob.matches(key)) {
            reply.bulk(key);
            count += 1;
        }
    });
    match done {
        Ok(()) => reply.end_array(mark, count),
        Err(_) => reply.abandon_array(mark),
    }
    Ok(done?)
}

/// SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]
pub fn scan(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let cursor = cursor(ctx.args.at(1))?;
    let filter = Filter::parse(ctx.args.from(2), Scanned::Keys)?;
    let (store, db) = (&mut *ctx.store, ctx.client.db);
    reply(ctx.reply, cursor, filter.count, |cursor, count, reply, elements| {
        store.scan_expiring(db, cursor, count, &mut |key, kind| {
            if filter.is_kind(kind) && filter.matches(key) {
                reply.bulk(key);
                *elements += 1;
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_what_strtoul_takes() {
        for (text, value) in [
            ("0", 0),
            ("", 0),
            ("0012", 12),
            ("+12", 12),
            ("-0", 0),
            ("-1", u64::MAX),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(cursor(text.as_bytes()).unwrap(), value, "{text}");
        }
        for text in ["x", "-", "+", "+-1", " 1", "1 ", "0x1", "18446744073709551616"] {
            assert!(cursor(text.as_bytes()).is_err(), "{text}");
        }
    }
}
