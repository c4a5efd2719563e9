//! Groups of a stream: made, changed and destroyed, and what is pending acknowledged and shown.
//!
//! Relies on `stream_words` for IDs. How far a group has read is told to the log by its ID and its count.

use quire_store::stream::{self, PendingEntry, StreamGroup};
use quire_store::{StreamId, StreamMut, StreamOrder, StreamView};

use super::stream_words::{any_id, range_end, range_start, strict_id, write_id};
use crate::ctx::{Args, CmdError, Ctx};
use crate::effects::EffectWord;
use crate::resp::Reply;

const NO_KEY: CmdError = CmdError::fixed(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to \
     create an empty stream automatically.",
);
const BUSY: CmdError = CmdError::fixed("BUSYGROUP Consumer Group name already exists");

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

/// Neither the stream nor its group is there.
pub(super) fn no_group(args: Args<'_>, key: usize, group: usize) -> CmdError {
    CmdError::owned(format!(
        "NOGROUP No such key '{}' or consumer group '{}'",
        text(args.at(key)),
        text(args.at(group))
    ))
}

/// The stream has no such group.
pub(super) fn no_such_group(args: Args<'_>, key: usize, group: usize) -> CmdError {
    CmdError::owned(format!(
        "NOGROUP No such consumer group '{}' for key name '{}'",
        text(args.at(group)),
        text(args.at(key))
    ))
}

/// The options of XGROUP CREATE and SETID.
struct GroupOptions {
    make_stream: bool,
    entries_read: Option<i64>,
}

impl GroupOptions {
    fn parse(args: Args<'_>, creates: bool) -> Result<GroupOptions, CmdError> {
        let mut options = GroupOptions { make_stream: false, entries_read: None };
        let mut at = 5;
        while at < args.len() {
            if creates && args.is(at, "MKSTREAM") {
                options.make_stream = true;
                at += 1;
            } else if args.is(at, "ENTRIESREAD") && at + 1 < args.len() {
                let count = args.int(at + 1)?;
                if count < -1 {
                    return Err(CmdError::fixed("ERR value for ENTRIESREAD must be positive or -1"));
                }
                options.entries_read = Some(count).filter(|&count| count >= 0);
                at += 2;
            } else {
                return Err(CmdError::subcommand_syntax(args.at(0), args.at(1)));
            }
        }
        Ok(options)
    }
}

/// The stream that a subcommand of XGROUP is about, and the group, if it is there.
fn open<'a>(ctx: &'a mut Ctx<'_>) -> Result<(StreamMut<'a>, Option<StreamGroup>), CmdError> {
    let stream = stream::open_mut(ctx.store, ctx.client.db, ctx.args.at(2))?;
    let group = stream.view()?.group(ctx.args.at(3))?;
    Ok((stream, group))
}

/// As [`open`], of a group that has to be there.
fn open_group<'a>(ctx: &'a mut Ctx<'_>) -> Result<(StreamMut<'a>, StreamGroup), CmdError> {
    let args = ctx.args;
    let (stream, group) = open(ctx)?;
    if !stream.exists() {
        return Err(NO_KEY);
    }
    Ok((stream, group.ok_or_else(|| no_such_group(args, 2, 3))?))
}

/// XGROUP CREATE key group id|$ [MKSTREAM] [ENTRIESREAD count]
pub fn create(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let args = ctx.args;
    let options = GroupOptions::parse(args, true)?;
    let (mut stream, group) = open(ctx)?;
    if !stream.exists() && !options.make_stream {
        return Err(NO_KEY);
    }
    if args.len() > 8 {
        drop(stream);
        return Err(CmdError::subcommand_syntax(args.at(0), args.at(1)));
    }
    let id = if args.at(4) == b"$" { stream.view()?.last_id() } else { strict_id(args.at(4), 0)? };
    if group.is_some() {
        return Err(BUSY);
    }
    stream.create()?;
    stream.create_group(args.at(3), id, options.entries_read)?;
    drop(stream);
    ctx.reply.ok();
    Ok(())
}

/// XGROUP SETID key group id|$ [ENTRIESREAD count]
pub fn set_id(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let args = ctx.args;
    let options = GroupOptions::parse(args, false)?;
    let (mut stream, group) = open_group(ctx)?;
    if args.len() > 7 {
        return Err(CmdError::subcommand_syntax(args.at(0), args.at(1)));
    }
    let id = if args.at(4) == b"$" { stream.view()?.last_id() } else { any_id(args.at(4), 0)? };
    stream.set_group(&group, id, options.entries_read)?;
    drop(stream);
    ctx.reply.ok();
    Ok(())
}

/// XGROUP DESTROY key group
pub fn destroy(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (mut stream, group) = open(ctx)?;
    if !stream.exists() {
        return Err(NO_KEY);
    }
    let done = group.map(|group| stream.destroy_group(&group)).transpose()?;
    drop(stream);
    ctx.reply.int(i64::from(done.is_some()));
    Ok(())
}

/// XGROUP CREATECONSUMER key group consumer
pub fn create_consumer(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (args, now_ms) = (ctx.args, ctx.store.now_ms());
    let (mut stream, group) = open_group(ctx)?;
    let is_new = stream.view()?.consumer(&group, args.at(4))?.is_none();
    if is_new {
        stream.create_consumer(&group, args.at(4), now_ms)?;
    }
    drop(stream);
    ctx.reply.int(i64::from(is_new));
    Ok(())
}

/// XGROUP DELCONSUMER key group consumer
pub fn delete_consumer(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let args = ctx.args;
    let (mut stream, group) = open_group(ctx)?;
    let found = stream.view()?.consumer(&group, args.at(4))?;
    if let Some(consumer) = &found {
        stream.delete_consumer(&group, consumer)?;
    }
    drop(stream);
    ctx.reply.int(found.map_or(0, |consumer| consumer.pending as i64));
    Ok(())
}

/// XACK key group id …
pub fn xack(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let args = ctx.args;
    let mut stream = stream::open_mut(ctx.store, ctx.client.db, args.at(1))?;
    let view = stream.view()?;
    let (exists, group) = (view.exists(), view.group(args.at(2))?);
    let Some(group) = group else {
        drop(stream);
        if !exists {
            ctx.store.note_read(ctx.client.db, args.at(1), false);
        }
        ctx.reply.int(0);
        return Ok(());
    };
    let ids = args.from(3).iter().map(|word| strict_id(word, 0)).collect::<Result<Vec<_>, _>>()?;
    let mut acknowledged = 0;
    stream.tell_no_watcher();
    for (at, id) in ids.into_iter().enumerate() {
        match stream.remove_pending(&group, id) {
            Ok(was_pending) => acknowledged += i64::from(was_pending),
            Err(error) => {
                drop(stream);
                ctx.did_only(3 + at);
                return Err(error.into());
            }
        }
    }
    ctx.reply.int(acknowledged);
    Ok(())
}

/// What XPENDING with a range is asked for.
struct PendingRange {
    ids: (StreamId, StreamId),
    most: u64,
    min_idle_ms: i64,
    /// Where the consumer stands.
    consumer: Option<usize>,
}

impl PendingRange {
    /// `None` for the summary.
    fn parse(args: Args<'_>) -> Result<Option<PendingRange>, CmdError> {
        if args.len() == 3 {
            return Ok(None);
        }
        if !(6..=9).contains(&args.len()) {
            return Err(CmdError::SYNTAX);
        }
        let (mut at, mut min_idle_ms) = (3, 0);
        if args.is(3, "IDLE") {
            min_idle_ms = args.int(4)?;
            if args.len() < 8 {
                return Err(CmdError::SYNTAX);
            }
            at = 5;
        }
        let most = u64::try_from(args.int(at + 2)?).unwrap_or(0);
        let ids = (range_start(args.at(at))?, range_end(args.at(at + 1))?);
        let consumer = Some(at + 3).filter(|&at| at < args.len());
        Ok(Some(PendingRange { ids, most, min_idle_ms, consumer }))
    }
}

/// XPENDING key group [[IDLE min-idle-time] start end count [consumer]]
pub fn xpending(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let args = ctx.args;
    let range = PendingRange::parse(args)?;
    let now_ms = ctx.store.now_ms();
    let stream = stream::view(ctx.store, ctx.client.db, args.at(1))?;
    let group = stream.group(args.at(2))?.ok_or_else(|| no_group(args, 1, 2))?;
    match range {
        None => show_summary(ctx.reply, &stream, &group),
        Some(range) => show_range(ctx.reply, args, &stream, &group, &range, now_ms),
    }
}

/// How many entries are pending, the first and the last one, and how many of which consumer.
fn show_summary(reply: &mut Reply, stream: &StreamView<'_>, group: &StreamGroup) -> Result<(), CmdError> {
    let mut ends = [None, None];
    for (end, order) in ends.iter_mut().zip([StreamOrder::Up, StreamOrder::Down]) {
        stream.pending(group, (StreamId::MIN, StreamId::MAX), order, |entry| {
            *end = Some(entry.id);
            false
        })?;
    }
    let mut consumers = stream.consumers(group)?;
    consumers.retain(|consumer| consumer.pending > 0);
    reply.array(4);
    reply.int(group.pending as i64);
    for end in ends {
        match end {
            Some(id) => write_id(reply, id),
            None => reply.null(),
        }
    }
    if group.pending == 0 {
        reply.null_array();
        return Ok(());
    }
    reply.array(consumers.len());
    for consumer in consumers {
        reply.array(2);
        reply.bulk(&consumer.name);
        reply.bulk_int(consumer.pending as i64);
    }
    Ok(())
}

fn show_range(
    reply: &mut Reply,
    args: Args<'_>,
    stream: &StreamView<'_>,
    group: &StreamGroup,
    range: &PendingRange,
    now_ms: i64,
) -> Result<(), CmdError> {
    let consumer = range.consumer.map(|at| stream.consumer(group, args.at(at))).transpose()?;
    if consumer.as_ref().is_some_and(Option::is_none) {
        reply.array(0);
        return Ok(());
    }
    let mark = reply.begin_array();
    let (mut shown, mut failed) = (0, None);
    let mut show = |entry: PendingEntry| {
        let idle_ms = now_ms.saturating_sub(entry.time_ms);
        if range.min_idle_ms != 0 && idle_ms < range.min_idle_ms {
            return true;
        }
        match stream.consumer_of(group, &entry) {
            Err(error) => failed = Some(error),
            Ok(consumer) => {
                reply.array(4);
                write_id(reply, entry.id);
                reply.bulk(&consumer.name);
                reply.int(idle_ms.max(0));
                reply.int(entry.count as i64);
                shown += 1;
            }
        }
        shown < range.most && failed.is_none()
    };
    let walked = match consumer.flatten() {
        _ if range.most == 0 => Ok(()),
        Some(consumer) => stream.pending_of(group, &consumer, range.ids, &mut show),
        None => stream.pending(group, range.ids, StreamOrder::Up, &mut show),
    };
    if let Err(error) = failed.map_or(walked, Err) {
        reply.abandon_array(mark);
        return Err(error.into());
    }
    reply.end_array(mark, shown as usize);
    Ok(())
}

/// Says how far a group has read.
pub(super) fn say_position(ctx: &mut Ctx<'_>, key: usize, group: usize, last_id: StreamId, read: Option<i64>) {
    let id = last_id.to_string();
    ctx.say_also(&[
        EffectWord::Bytes(b"XGROUP"),
        EffectWord::Bytes(b"SETID"),
        EffectWord::Arg(key),
        EffectWord::Arg(group),
        EffectWord::Bytes(id.as_bytes()),
        EffectWord::Bytes(b"ENTRIESREAD"),
        EffectWord::Int(read.unwrap_or(-1)),
    ]);
}

/// Says that a consumer was made.
pub(super) fn say_consumer(ctx: &mut Ctx<'_>, key: usize, group: usize, consumer: usize) {
    ctx.say_also(&[
        EffectWord::Bytes(b"XGROUP"),
        EffectWord::Bytes(b"CREATECONSUMER"),
        EffectWord::Arg(key),
        EffectWord::Arg(group),
        EffectWord::Arg(consumer),
    ]);
}
