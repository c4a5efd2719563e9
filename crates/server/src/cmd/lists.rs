//! Lists: elements in order, added, read and taken away at either end or in the middle.
//!
//! Relies on the store for everything but the request's words. Elements go from the store's memory straight into the reply.

use std::ops::Range;

use quire_store::{Element, End, ListMut, list};

use crate::cmd::range::span;
use crate::ctx::{Args, CmdError, Ctx};
use crate::resp::Reply;

#[inline]
fn write(reply: &mut Reply, element: Element<'_>) {
    match element {
        Element::Int(number) => reply.bulk_int(number),
        Element::Bytes(bytes) => reply.bulk(bytes),
    }
}

/// The end that a word names: LEFT or RIGHT.
pub(super) fn end(args: Args<'_>, at: usize) -> Result<End, CmdError> {
    if args.is(at, "LEFT") {
        Ok(End::Front)
    } else if args.is(at, "RIGHT") {
        Ok(End::Back)
    } else {
        Err(CmdError::SYNTAX)
    }
}

/// The place of an index that counts from the end if it is negative; `None` before the first element.
fn place(index: i64, len: u64) -> Option<u64> {
    if index < 0 { len.checked_sub(index.unsigned_abs()) } else { Some(index as u64) }
}

/// LPUSH key element …
#[inline]
pub fn lpush(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    push(ctx, End::Front, false)
}

/// RPUSH key element …
#[inline]
pub fn rpush(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    push(ctx, End::Back, false)
}

/// LPUSHX key element …
pub fn lpushx(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    push(ctx, End::Front, true)
}

/// RPUSHX key element …
pub fn rpushx(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    push(ctx, End::Back, true)
}

#[inline]
fn push(ctx: &mut Ctx<'_>, end: End, must_exist: bool) -> Result<(), CmdError> {
    let args = ctx.args;
    let mut list = list::open_mut(ctx.store, ctx.client.db, args.at(1))?;
    if must_exist && !list.exists() {
        ctx.reply.int(0);
        return Ok(());
    }
    list.make_room(args.from(2).iter())?;
    let mut len = 0;
    for at in 2..args.len() {
        len = match list.push(end, args.at(at)) {
            Ok(len) => len,
            Err(error) => {
                drop(list);
                ctx.did_only(at);
                return Err(error.into());
            }
        };
    }
    ctx.reply.int(len as i64);
    Ok(())
}

/// LPOP key [count]
pub fn lpop(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    pop(ctx, End::Front)
}

/// RPOP key [count]
pub fn rpop(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    pop(ctx, End::Back)
}

fn pop(ctx: &mut Ctx<'_>, end: End) -> Result<(), CmdError> {
    let args = ctx.args;
    let wanted = match args.len() {
        2 => None,
        3 => {
            let count = args.int(2).ok().and_then(|count| u64::try_from(count).ok());
            Some(count.ok_or(CmdError::fixed("ERR value is out of range, must be positive"))?)
        }
        _ => return Err(CmdError::wrong_args(if end == End::Front { "lpop" } else { "rpop" })),
    };
    let owner = ctx.steps_owner();
    let mut list = list::open_mut(ctx.store, ctx.client.db, args.at(1))?;
    let reply = &mut *ctx.reply;
    if !list.exists() {
        if wanted.is_some() {
            reply.null_array()
        } else {
            reply.null()
        }
        return Ok(());
    }
    let start = reply.len();
    if let Some(wanted) = wanted {
        reply.array(wanted.min(list.len()?) as usize);
    }
    let popped = pop_elements(&mut list, owner, end, wanted.unwrap_or(1), reply);
    drop(list);
    end_pop(ctx, start, popped)
}

/// Takes elements off a list, and writes them; none if the reply has no room for them. False if they are still on it: their nodes are being
/// divided from the others, for `owner`.
fn pop_elements(
    list: &mut ListMut<'_>,
    owner: Option<u64>,
    end: End,
    count: u64,
    reply: &mut Reply,
) -> Result<bool, CmdError> {
    let mut has_room = true;
    let mut f = |element: Element<'_>| {
        has_room = reply.room().is_some();
        if has_room {
            write(reply, element);
        }
        has_room
    };
    let is_done = match owner {
        Some(owner) => list.pop_in_steps(owner, end, count, &mut f)?.is_some(),
        None => list.pop(end, count, &mut f).map(|_| true)?,
    };
    if has_room { Ok(is_done) } else { Err(CmdError::REPLY_TOO_LARGE) }
}

/// Ends a pop whose reply begins at `start`, and is not given if nothing was popped.
fn end_pop(ctx: &mut Ctx<'_>, start: usize, popped: Result<bool, CmdError>) -> Result<(), CmdError> {
    if !matches!(popped, Ok(true)) {
        ctx.reply.truncate(start);
    }
    if popped? { Ok(()) } else { Err(ctx.not_made_yet()) }
}

/// LLEN key
pub fn llen(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let len = list::view(ctx.store, ctx.client.db, ctx.args.at(1))?.len()?;
    ctx.reply.int(len as i64);
    Ok(())
}

/// LINDEX key index
pub fn lindex(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let list = list::view(ctx.store, ctx.client.db, ctx.args.at(1))?;
    if !list.exists() {
        ctx.reply.null();
        return Ok(());
    }
    let index = ctx.args.int(2)?;
    let found = place(index, list.len()?).map_or(Ok(None), |at| list.get(at))?;
    match found {
        Some(element) => write(ctx.reply, element),
        None => ctx.reply.null(),
    }
    Ok(())
}

/// LRANGE key start stop
pub fn lrange(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (start, stop) = (ctx.args.int(2)?, ctx.args.int(3)?);
    let list = list::view(ctx.store, ctx.client.db, ctx.args.at(1))?;
    let range = elements(list.len()?, start, stop);
    let reply = &mut *ctx.reply;
    let before = reply.len();
    reply.array((range.end - range.start) as usize);
    let done = list.range(range, |element| write(reply, element));
    if done.is_err() {
        reply.truncate(before);
    }
    Ok(done?)
}

/// The elements from `start` to `stop`. Unlike those of a string, none if the stop lies before the first one.
fn elements(len: u64, start: i64, stop: i64) -> Range<u64> {
    if place(stop, len).is_none() { 0..0 } else { span(len, start, stop) }
}

/// LSET key index element
pub fn lset(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let args = ctx.args;
    let mut list = list::open_mut(ctx.store, ctx.client.db, args.at(1))?;
    if !list.exists() {
        return Err(CmdError::NO_SUCH_KEY);
    }
    let index = args.int(2)?;
    let len = list.len()?;
    let at = place(index, len).filter(|&at| at < len).ok_or(CmdError::INDEX_OUT_OF_RANGE)?;
    list.make_room([args.at(3)])?;
    list.set(at, args.at(3))?;
    ctx.reply.ok();
    Ok(())
}

/// LINSERT key BEFORE|AFTER pivot element
pub fn linsert(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let args = ctx.args;
    let behind = args.is(2, "AFTER");
    if !behind && !args.is(2, "BEFORE") {
        return Err(CmdError::SYNTAX);
    }
    let mut list = list::open_mut(ctx.store, ctx.client.db, args.at(1))?;
    if !list.exists() {
        ctx.reply.int(0);
        return Ok(());
    }
    let inserted = list.insert(args.at(3), behind, args.at(4))?;
    let len = list.len()?;
    ctx.reply.int(if inserted { len as i64 } else { -1 });
    Ok(())
}

/// LREM key count element
pub fn lrem(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let count = ctx.args.int(2)?;
    let from = if count < 0 { End::Back } else { End::Front };
    let most = if count == 0 { u64::MAX } else { count.unsigned_abs() };
    let mut list = list::open_mut(ctx.store, ctx.client.db, ctx.args.at(1))?;
    let removed = list.remove(from, ctx.args.at(3), most)?;
    ctx.reply.int(removed as i64);
    Ok(())
}

/// LTRIM key start stop
pub fn ltrim(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (start, stop) = (ctx.args.int(2)?, ctx.args.int(3)?);
    let owner = ctx.steps_owner();
    let mut list = list::open_mut(ctx.store, ctx.client.db, ctx.args.at(1))?;
    let len = list.len()?;
    let range = elements(len, start, stop);
    let keeps_all = len > 0 && range == (0..len);
    let is_done = match owner {
        Some(owner) => list.keep_in_steps(owner, range)?,
        None => list.keep(range).map(|()| true)?,
    };
    drop(list);
    if !is_done {
        return Err(ctx.not_made_yet());
    }
    if keeps_all {
        // As in Redis it is told all the same.
        ctx.store.note_key_event(ctx.client.db, ctx.args.at(1));
    }
    ctx.reply.ok();
    Ok(())
}

/// What LPOS is asked for besides the element.
struct PositionOptions {
    /// Where it begins, and how many of the elements found it passes over.
    from: End,
    skip: u64,
    /// How many it shows, all if 0; without this option the first one is shown alone.
    count: Option<u64>,
    /// How many elements it compares.
    most: u64,
}

impl PositionOptions {
    fn parse(args: Args<'_>) -> Result<Self, CmdError> {
        let mut options = Self { from: End::Front, skip: 0, count: None, most: u64::MAX };
        for at in (3..args.len()).step_by(2) {
            let positive = |text| {
                let number = args.int(at + 1).ok().and_then(|number| u64::try_from(number).ok());
                number.ok_or(CmdError::fixed(text))
            };
            if at + 1 >= args.len() {
                return Err(CmdError::SYNTAX);
            } else if args.is(at, "RANK") {
                let rank = args.int(at + 1)?;
                if rank == 0 {
                    return Err(CmdError::fixed(
                        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list",
                    ));
                }
                if rank == i64::MIN {
                    return Err(CmdError::fixed(
                        "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
                    ));
                }
                options.from = if rank < 0 { End::Back } else { End::Front };
                options.skip = rank.unsigned_abs() - 1;
            } else if args.is(at, "COUNT") {
                options.count = Some(positive("ERR COUNT can't be negative")?);
            } else if args.is(at, "MAXLEN") {
                let most = positive("ERR MAXLEN can't be negative")?;
                options.most = if most == 0 { u64::MAX } else { most };
            } else {
                return Err(CmdError::SYNTAX);
            }
        }
        Ok(options)
    }
}

/// LPOS key element [RANK rank] [COUNT count] [MAXLEN len]
pub fn lpos(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let options = PositionOptions::parse(ctx.args)?;
    let list = list::view(ctx.store, ctx.client.db, ctx.args.at(1))?;
    let mut skip = options.skip;
    let shown = match options.count {
        None => 1,
        Some(0) => u64::MAX,
        Some(count) => count,
    };
    let reply = &mut *ctx.reply;
    let mark = options.count.map(|_| reply.begin_array());
    let mut found = 0;
    let done = list.positions(options.from, ctx.args.at(2), options.most, |index| {
        if skip > 0 {
            skip -= 1;
            return true;
        }
        reply.int(index as i64);
        found += 1;
        (found as u64) < shown
    });
    match (mark, &done) {
        (Some(mark), Ok(())) => reply.end_array(mark, found),
        (Some(mark), Err(_)) => reply.abandon_array(mark),
        (None, Ok(())) if found == 0 => reply.null(),
        (None, _) => {}
    }
    Ok(done?)
}

/// RPOPLPUSH source destination
pub fn rpoplpush(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    move_or_null(ctx, End::Back, End::Front)
}

/// LMOVE source destination LEFT|RIGHT LEFT|RIGHT
pub fn lmove(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (from, to) = (end(ctx.args, 3)?, end(ctx.args, 4)?);
    move_or_null(ctx, from, to)
}

fn move_or_null(ctx: &mut Ctx<'_>, from: End, to: End) -> Result<(), CmdError> {
    if !move_element(ctx, from, to)? {
        ctx.reply.null();
    }
    Ok(())
}

/// Moves an element from the list that the first word names to the one that the second does, and replies with it; false, and without a
/// reply, if there is none.
pub(super) fn move_element(ctx: &mut Ctx<'_>, from: End, to: End) -> Result<bool, CmdError> {
    let args = ctx.args;
    let moved = list::move_element(ctx.store, ctx.client.db, (args.at(1), from), (args.at(2), to))?;
    if let Some(element) = &moved {
        ctx.reply.bulk(element);
    }
    Ok(moved.is_some())
}

/// What LMPOP and BLMPOP are asked for.
pub(super) struct MultiPop {
    /// The words that are keys.
    pub keys: Range<usize>,
    /// The end from which elements go.
    pub end: End,
    /// How many go at most.
    pub count: u64,
}

impl MultiPop {
    /// Reads the words from the number of keys on.
    pub fn parse(args: Args<'_>, at: usize) -> Result<Self, CmdError> {
        let keys = args.int(at).ok().and_then(|keys| usize::try_from(keys).ok()).filter(|&keys| keys > 0);
        let keys = keys.ok_or(CmdError::fixed("ERR numkeys should be greater than 0"))?;
        let side = keys.checked_add(at + 1).filter(|&at| at < args.len()).ok_or(CmdError::SYNTAX)?;
        let end = end(args, side)?;
        let mut count = None;
        for at in (side + 1..args.len()).step_by(2) {
            if count.is_some() || !args.is(at, "COUNT") || at + 1 >= args.len() {
                return Err(CmdError::SYNTAX);
            }
            let given = args.int(at + 1).ok().and_then(|count| u64::try_from(count).ok()).filter(|&count| count > 0);
            count = Some(given.ok_or(CmdError::fixed("ERR count should be greater than 0"))?);
        }
        Ok(Self { keys: at + 1..side, end, count: count.unwrap_or(1) })
    }
}

/// LMPOP numkeys key … LEFT|RIGHT [COUNT count]
pub fn lmpop(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let MultiPop { keys, end, count } = MultiPop::parse(ctx.args, 1)?;
    let owner = ctx.steps_owner();
    if pop_first(ctx, keys, end, Some(count), owner)?.is_none() {
        ctx.reply.null_array();
    }
    Ok(())
}

/// Takes elements from the first of the keys that is there, and replies with its name and an array of them, or the one element if
/// there is no count. Returns which word names the key; none, and without a reply, if none of them is there. With an `owner`, in its
/// name and in steps if they are many.
pub(super) fn pop_first(
    ctx: &mut Ctx<'_>,
    keys: Range<usize>,
    end: End,
    count: Option<u64>,
    owner: Option<u64>,
) -> Result<Option<usize>, CmdError> {
    for at in keys {
        let key = ctx.args.at(at);
        let mut list = list::open_mut(ctx.store, ctx.client.db, key)?;
        if !list.exists() {
            continue;
        }
        let popped_len = count.map(|count| Ok::<_, CmdError>(count.min(list.len()?))).transpose()?;
        let reply = &mut *ctx.reply;
        let start = reply.len();
        reply.array(2);
        reply.bulk(key);
        if let Some(len) = popped_len {
            reply.array(len as usize);
        }
        let popped = pop_elements(&mut list, owner, end, count.unwrap_or(1), reply);
        drop(list);
        return end_pop(ctx, start, popped).map(|()| Some(at));
    }
    Ok(None)
}
