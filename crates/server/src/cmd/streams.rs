//! Streams: entries that are added, looked at and deleted. Reading on with XREAD is in `stream_reads`, groups are in `stream_groups`.
//!
//! Relies on the store for everything but the request's words. What is added by the clock is told to the log with its ID, what is trimmed
//! approximately by the length that was left.

use quire_store::stream::{self, MAX_BLOCK_ENTRIES, StreamTrim};
use quire_store::{StreamId, StreamOrder};

use super::stream_words::{GivenId, TrimOptions, range_end, range_start, strict_id, write_entries, write_id};
use crate::ctx::{CmdError, Ctx};
use crate::effects::EffectWord;

const ZERO_ID: CmdError = CmdError::fixed("ERR The ID specified in XADD must be greater than 0-0");
const NO_MORE_IDS: CmdError =
    CmdError::fixed("ERR The stream has exhausted the last possible ID, unable to add more items");
const SMALL_ID: CmdError =
    CmdError::fixed("ERR The ID specified in XADD is equal or smaller than the target stream top item");

/// XADD key [NOMKSTREAM] [MAXLEN|MINID [=|~] threshold [LIMIT count]] *|id field value …
pub fn xadd(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let args = ctx.args;
    let options = TrimOptions::parse(args, true, ctx.store.limits().get(&MAX_BLOCK_ENTRIES))?;
    let words = args.from(options.at + 1);
    if words.len() < 2 || !words.len().is_multiple_of(2) {
        return Err(CmdError::wrong_args("xadd"));
    }
    if options.id == GivenId::Whole(StreamId::MIN) {
        return Err(ZERO_ID);
    }
    let now_ms = ctx.store.now_ms().max(0) as u64;
    let mut stream = stream::open_mut(ctx.store, ctx.client.db, args.at(1))?;
    if options.no_stream && !stream.exists() {
        ctx.reply.null();
        return Ok(());
    }
    let last = stream.view()?.last_id();
    if last == StreamId::MAX {
        return Err(NO_MORE_IDS);
    }
    // Also where the millisecond has no number left.
    let id = options.id.choose(last, now_ms).ok_or(SMALL_ID)?;
    let values: Vec<&[u8]> = words.iter().collect();
    stream.add(id, &values)?;
    let trim = match options.trim {
        Some(trim) if stream.view()?.may_trim(&trim)? => Some(trim),
        Some(_) | None => None,
    };
    drop(stream);
    // A change of its own, since it has a notification of its own.
    let trimmed = trim.map_or(Ok(None), |trim| trim_to(ctx, &trim))?;
    if options.trim.is_some() || !matches!(options.id, GivenId::Whole(_)) {
        say_added(ctx, id, options.at, trimmed);
    }
    write_id(ctx.reply, id);
    Ok(())
}

/// Trims the stream; returns how many entries are left if any went.
fn trim_to(ctx: &mut Ctx<'_>, trim: &StreamTrim) -> Result<Option<u64>, CmdError> {
    let mut stream = stream::open_mut(ctx.store, ctx.client.db, ctx.args.at(1))?;
    let removed = stream.trim(trim)?;
    Ok(if removed > 0 { Some(stream.view()?.len()?) } else { None })
}

fn say_added(ctx: &mut Ctx<'_>, id: StreamId, id_at: usize, left: Option<u64>) {
    if !ctx.says_effects() {
        return;
    }
    let id = id.to_string();
    let mut words = vec![EffectWord::Bytes(b"XADD"), EffectWord::Arg(1)];
    if let Some(left) = left {
        let exactly = [EffectWord::Bytes(b"MAXLEN"), EffectWord::Bytes(b"="), EffectWord::Int(left as i64)];
        words.extend(exactly);
    }
    words.push(EffectWord::Bytes(id.as_bytes()));
    words.extend((id_at + 1..ctx.args.len()).map(EffectWord::Arg));
    ctx.say_effect(&words);
}

/// XTRIM key MAXLEN|MINID [=|~] threshold [LIMIT count]
pub fn xtrim(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let options = TrimOptions::parse(ctx.args, false, ctx.store.limits().get(&MAX_BLOCK_ENTRIES))?;
    let trim = options.trim.ok_or(CmdError::SYNTAX)?;
    let mut stream = stream::open_mut(ctx.store, ctx.client.db, ctx.args.at(1))?;
    let removed = stream.trim(&trim)?;
    let left = stream.view()?.len()?;
    drop(stream);
    let exactly = [
        EffectWord::Bytes(b"XTRIM"),
        EffectWord::Arg(1),
        EffectWord::Bytes(b"MAXLEN"),
        EffectWord::Bytes(b"="),
        EffectWord::Int(left as i64),
    ];
    ctx.say_effect(&exactly);
    ctx.reply.int(removed as i64);
    Ok(())
}

/// XLEN key
pub fn xlen(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let len = stream::view(ctx.store, ctx.client.db, ctx.args.at(1))?.len()?;
    ctx.reply.int(len as i64);
    Ok(())
}

/// XRANGE key start end [COUNT count]
pub fn xrange(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    range(ctx, StreamOrder::Up)
}

/// XREVRANGE key end start [COUNT count]
pub fn xrevrange(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    range(ctx, StreamOrder::Down)
}

fn range(ctx: &mut Ctx<'_>, order: StreamOrder) -> Result<(), CmdError> {
    let args = ctx.args;
    let (first, second) = if order == StreamOrder::Up { (2, 3) } else { (3, 2) };
    let ids = (range_start(args.at(first))?, range_end(args.at(second))?);
    let mut most = None;
    for at in (4..args.len()).step_by(2) {
        if !args.is(at, "COUNT") || at + 1 >= args.len() {
            return Err(CmdError::SYNTAX);
        }
        most = Some(u64::try_from(args.int(at + 1)?).unwrap_or(0));
    }
    let stream = stream::view(ctx.store, ctx.client.db, args.at(1))?;
    if !stream.exists() {
        ctx.reply.array(0);
        return Ok(());
    }
    if most == Some(0) {
        ctx.reply.null_array();
        return Ok(());
    }
    write_entries(ctx.reply, &stream, ids, (order, most.unwrap_or(u64::MAX)), |_| {})
}

/// XDEL key id …
pub fn xdel(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let args = ctx.args;
    let mut stream = stream::open_mut(ctx.store, ctx.client.db, args.at(1))?;
    if !stream.exists() {
        ctx.reply.int(0);
        return Ok(());
    }
    let ids = args.from(2).iter().map(|word| strict_id(word, 0)).collect::<Result<Vec<_>, _>>()?;
    let mut deleted = 0;
    for (at, id) in ids.into_iter().enumerate() {
        match stream.delete(id) {
            Ok(was_there) => deleted += i64::from(was_there),
            Err(error) => {
                drop(stream);
                ctx.did_only(2 + at);
                return Err(error.into());
            }
        }
    }
    ctx.reply.int(deleted);
    Ok(())
}

/// XSETID key last-id [ENTRIESADDED count] [MAXDELETEDID id]
pub fn xsetid(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let args = ctx.args;
    let (id, replayed) = (strict_id(args.at(2), 0)?, ctx.is_replayed());
    let (mut added, mut max_deleted) = (None, StreamId::MIN);
    for at in (3..args.len()).step_by(2) {
        let more = at + 1 < args.len();
        if more && args.is(at, "ENTRIESADDED") {
            let count = u64::try_from(args.int(at + 1)?);
            added = Some(count.map_err(|_| CmdError::fixed("ERR entries_added must be positive"))?);
        } else if more && args.is(at, "MAXDELETEDID") {
            max_deleted = strict_id(args.at(at + 1), 0)?;
            if id < max_deleted {
                return Err(CmdError::fixed(
                    "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                ));
            }
        } else {
            return Err(CmdError::SYNTAX);
        }
    }
    let mut stream = stream::open_mut(ctx.store, ctx.client.db, args.at(1))?;
    if !stream.exists() {
        return Err(CmdError::NO_SUCH_KEY);
    }
    let view = stream.view()?;
    let summary = view.summary()?;
    // Logs of programs before this check have such IDs.
    if id < summary.max_deleted_id && !replayed {
        return Err(CmdError::fixed("ERR The ID specified in XSETID is smaller than current max_deleted_entry_id"));
    }
    let mut top = StreamId::MIN;
    view.range((StreamId::MIN, StreamId::MAX), StreamOrder::Down, |id, _| {
        top = id;
        false
    })?;
    if summary.entries > 0 && id < top {
        return Err(CmdError::fixed("ERR The ID specified in XSETID is smaller than the target stream top item"));
    }
    if added.is_some_and(|added| summary.entries > added) {
        return Err(CmdError::fixed(
            "ERR The entries_added specified in XSETID is smaller than the target stream length",
        ));
    }
    stream.set_ids(id, added, Some(max_deleted).filter(|id| !id.is_zero()))?;
    ctx.reply.ok();
    Ok(())
}
