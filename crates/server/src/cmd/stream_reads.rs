//! Reading streams on: XREAD, and XREADGROUP in a group's name, which wait for entries if they are asked to.
//!
//! Relies on `key_waits` for waiting. A client that waits is run again with the IDs that it began with: `$` is the end of the stream
//! as it was then. What a group delivers is told to the log by entries that are pending and by how far the group has read.

use quire_store::stream::{self, StreamConsumer, StreamGroup, StreamSummary};
use quire_store::{StreamId, StreamOrder, ValueType};

use super::key_waits::{deadline_after, is_over, wait};
use super::stream_claims::{Claimed, consumer_for, say_claimed, say_delivered_again};
use super::stream_groups::say_position;
use super::stream_info::has_gaps_behind;
use super::stream_words::{strict_id, write_entries, write_entry, write_id};
use crate::ctx::{CmdError, Ctx};

/// A client that has waited gets at most so many entries of a stream if it didn't say how many.
const COUNT_AFTER_WAIT: u64 = 1000;
const GROUP_ALONE: CmdError =
    CmdError::fixed("ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.");
const NOACK_ALONE: CmdError =
    CmdError::fixed("ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.");
const UNBALANCED: CmdError =
    CmdError::fixed("ERR Unbalanced 'xread' list of streams: for each stream key an ID or '$' must be specified.");
const UNBALANCED_FOR_GROUP: CmdError =
    CmdError::fixed("ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified.");
const NO_GROUP: CmdError = CmdError::fixed("ERR Missing GROUP option for XREADGROUP");
const LAST_IN_GROUP: CmdError = CmdError::fixed(
    "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by specifying a \
     proper ID, or use the > ID to get new messages. The $ ID would just return an empty result set.",
);
const NEW_WITHOUT_GROUP: CmdError = CmdError::fixed(
    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
);

/// What is to be read.
struct ReadRequest {
    /// Whether to wait, and until when.
    waits: bool,
    deadline_ms: Option<u64>,
    /// Entries of each stream at most.
    most: u64,
    /// Where the group and the consumer stand.
    group: Option<(usize, usize)>,
    no_ack: bool,
    /// Where the first key stands, and how many there are.
    first: usize,
    streams: usize,
}

impl ReadRequest {
    fn parse(ctx: &Ctx<'_>, grouped: bool) -> Result<ReadRequest, CmdError> {
        let args = ctx.args;
        let mut request =
            ReadRequest { waits: false, deadline_ms: None, most: 0, group: None, no_ack: false, first: 0, streams: 0 };
        let mut at = 1;
        while at < args.len() && request.first == 0 {
            let more = args.len() - at - 1;
            if more > 0 && args.is(at, "BLOCK") {
                if ctx.server.scripts.is_running() {
                    let name = args.text(0);
                    return Err(CmdError::owned(format!(
                        "ERR {name} command is not allowed with BLOCK option from scripts"
                    )));
                }
                (request.waits, request.deadline_ms) = (true, deadline_after(ctx, at + 1)?);
                at += 2;
            } else if more > 0 && args.is(at, "COUNT") {
                request.most = u64::try_from(args.int(at + 1)?).unwrap_or(0);
                at += 2;
            } else if more > 0 && args.is(at, "STREAMS") {
                if !more.is_multiple_of(2) {
                    return Err(if grouped { UNBALANCED_FOR_GROUP } else { UNBALANCED });
                }
                (request.first, request.streams) = (at + 1, more / 2);
            } else if more > 1 && args.is(at, "GROUP") {
                request.group = Some((at + 1, at + 2)).filter(|_| grouped);
                request.group.ok_or(GROUP_ALONE)?;
                at += 3;
            } else if args.is(at, "NOACK") {
                request.no_ack = grouped;
                if !grouped {
                    return Err(NOACK_ALONE);
                }
                at += 1;
            } else {
                return Err(CmdError::SYNTAX);
            }
        }
        if request.first == 0 {
            return Err(CmdError::SYNTAX);
        }
        if grouped && request.group.is_none() {
            return Err(NO_GROUP);
        }
        if request.most == 0 {
            request.most = if ctx.client.waits_on_keys() { COUNT_AFTER_WAIT } else { u64::MAX };
        }
        Ok(request)
    }

    /// Where a stream's ID stands.
    fn id_at(&self, stream: usize) -> usize {
        self.first + self.streams + stream
    }

    /// The group of a stream, which has to be there.
    fn group_of(&self, ctx: &mut Ctx<'_>, key: usize, group: usize) -> Result<StreamGroup, CmdError> {
        let args = ctx.args;
        let stream = stream::view(ctx.store, ctx.client.db, args.at(key))?;
        match stream.group(args.at(group))? {
            Some(group) => Ok(group),
            None => Err(CmdError::owned(format!(
                "NOGROUP No such key '{}' or consumer group '{}' in XREADGROUP with GROUP option",
                args.text(key),
                args.text(group)
            ))),
        }
    }

    /// Behind which ID each stream is read; the last of all stands for what the group has not delivered.
    fn ids(&self, ctx: &mut Ctx<'_>) -> Result<Vec<StreamId>, CmdError> {
        let args = ctx.args;
        let known = ctx.server.blocked.keys.of(ctx.client.id).map(|wait| wait.stream_ids.clone());
        let mut ids = Vec::with_capacity(self.streams);
        for stream in 0..self.streams {
            if let Some((group, _)) = self.group {
                self.group_of(ctx, self.first + stream, group)?;
            }
            let view = stream::view(ctx.store, ctx.client.db, args.at(self.first + stream));
            // Who has begun to wait goes on, whatever the key is meanwhile.
            let last_id = if known.is_some() { StreamId::MIN } else { view?.last_id() };
            ids.push(match args.at(self.id_at(stream)) {
                b"$" if self.group.is_some() => return Err(LAST_IN_GROUP),
                b">" if self.group.is_none() => return Err(NEW_WITHOUT_GROUP),
                b"$" => last_id,
                b">" => StreamId::MAX,
                word => strict_id(word, 0)?,
            });
        }
        Ok(known.filter(|known| known.len() == ids.len()).unwrap_or(ids))
    }
}

/// XREAD [COUNT count] [BLOCK ms] STREAMS key … id …
pub fn xread(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    read(ctx, false)
}

/// XREADGROUP GROUP group consumer [COUNT count] [BLOCK ms] [NOACK] STREAMS key … id …
pub fn xreadgroup(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    read(ctx, true)
}

fn read(ctx: &mut Ctx<'_>, grouped: bool) -> Result<(), CmdError> {
    let request = ReadRequest::parse(ctx, grouped)?;
    if is_over(ctx)? {
        return Ok(());
    }
    let ids = request.ids(ctx)?;
    let start = ctx.reply.len();
    let (mark, mut shown) = (ctx.reply.begin_array(), 0);
    for (stream, &id) in ids.iter().enumerate() {
        let read = match request.group {
            Some((group, consumer)) => read_for_group(ctx, &request, (request.first + stream, group, consumer), id),
            None => read_stream(ctx, &request, request.first + stream, id),
        };
        match read {
            Ok(read) => shown += usize::from(read),
            Err(error) => {
                ctx.reply.truncate(start);
                return Err(error);
            }
        }
    }
    if shown > 0 {
        if ctx.reply.is_resp3() {
            ctx.reply.end_map(mark, shown);
        } else {
            ctx.reply.end_array(mark, shown);
        }
        return Ok(());
    }
    ctx.reply.abandon_array(mark);
    // A transaction doesn't wait.
    if !request.waits || ctx.client.in_exec {
        ctx.reply.null_array();
        return Ok(());
    }
    let waiting = wait(ctx, ValueType::Stream, request.first..request.first + request.streams, request.deadline_ms);
    ctx.server.blocked.keys.remember_ids(ctx.client.id, ids, grouped);
    waiting
}

/// Begins what is shown of a stream: its key, and its entries, which follow.
fn begin_stream(ctx: &mut Ctx<'_>, key: usize) {
    if !ctx.reply.is_resp3() {
        ctx.reply.array(2);
    }
    ctx.reply.bulk(ctx.args.at(key));
}

/// Shows the entries of a stream behind an ID; false, and nothing is written, if there are none.
fn read_stream(ctx: &mut Ctx<'_>, request: &ReadRequest, key: usize, id: StreamId) -> Result<bool, CmdError> {
    let Some(from) = id.next() else { return Ok(false) };
    let start = ctx.reply.len();
    begin_stream(ctx, key);
    let stream = match stream::view(ctx.store, ctx.client.db, ctx.args.at(key)) {
        // It was a stream when the client began to wait.
        Err(quire_store::StoreError::WrongType) if ctx.client.waits_on_keys() => {
            ctx.reply.truncate(start);
            return Ok(false);
        }
        stream => stream?,
    };
    let mut read = false;
    write_entries(ctx.reply, &stream, (from, StreamId::MAX), (StreamOrder::Up, request.most), |_| read = true)?;
    if !read {
        ctx.reply.truncate(start);
    }
    Ok(read)
}

/// The same in a group's name; the words are the key, the group and the consumer.
fn read_for_group(
    ctx: &mut Ctx<'_>,
    request: &ReadRequest,
    words: (usize, usize, usize),
    id: StreamId,
) -> Result<bool, CmdError> {
    let (key, group_at, _) = words;
    let group = request.group_of(ctx, key, group_at)?;
    if id != StreamId::MAX {
        let consumer = consumer_for(ctx, words, &group)?;
        begin_stream(ctx, key);
        show_history(ctx, request, words, (&group, &consumer), id)?;
        return Ok(true);
    }
    // A consumer to which nothing is delivered is made, too. A client that waits doesn't ask again when the key is changed: if another
    // client has deleted its consumer since, that is made anew when there is an entry for it.
    let asked = if ctx.client.waits_on_keys() { None } else { Some(consumer_for(ctx, words, &group)?) };
    let Some(from) = group.last_id.next() else { return Ok(false) };
    let start = ctx.reply.len();
    begin_stream(ctx, key);
    let stream = stream::view(ctx.store, ctx.client.db, ctx.args.at(key))?;
    let (summary, mut ids) = (stream.summary()?, Vec::new());
    write_entries(ctx.reply, &stream, (from, StreamId::MAX), (StreamOrder::Up, request.most), |id| ids.push(id))?;
    if ids.is_empty() {
        ctx.reply.truncate(start);
        return Ok(false);
    }
    let consumer = match asked {
        Some(consumer) => consumer,
        None => consumer_for(ctx, words, &group)?,
    };
    deliver(ctx, request, words, (&group, consumer), (&summary, &ids))?;
    Ok(true)
}

/// How many entries a group has read when it has read some more.
fn read_after(stream: &StreamSummary, group: &StreamGroup, ids: &[StreamId]) -> Option<i64> {
    ids.iter().fold(group.entries_read, |read, &id| match read {
        Some(read) if !has_gaps_behind(stream, id) => Some(read.saturating_add(1)),
        read if stream.added == 0 => read,
        _ => stream.entries_up_to(id),
    })
}

/// Entries were shown to a consumer for the first time: they are pending now, unless it needn't acknowledge them.
fn deliver(
    ctx: &mut Ctx<'_>,
    request: &ReadRequest,
    (key, group_at, consumer_at): (usize, usize, usize),
    (group, consumer): (&StreamGroup, StreamConsumer),
    (summary, ids): (&StreamSummary, &[StreamId]),
) -> Result<(), CmdError> {
    let time_ms = ctx.store.now_ms();
    let mut stream = stream::open_mut(ctx.store, ctx.client.db, ctx.args.at(key))?;
    stream.tell_no_watcher();
    let (mut delivered, mut failed) = (Vec::with_capacity(ids.len()), None);
    for &id in ids {
        if !request.no_ack
            && let Err(error) = stream.set_pending(group, &consumer, (id, time_ms, 1))
        {
            failed = Some(error);
            break;
        }
        delivered.push(Claimed { id, time_ms, count: 1 });
    }
    let done: Vec<StreamId> = delivered.iter().map(|entry| entry.id).collect();
    let (read, last_id) = (read_after(summary, group, &done), done.last().copied().unwrap_or(group.last_id));
    if !done.is_empty() {
        stream.set_group(group, last_id, read)?;
    }
    if !done.is_empty()
        && !request.no_ack
        && let Err(error) = stream.note_activity(consumer, time_ms)
    {
        failed = failed.or(Some(error));
    }
    drop(stream);
    if !request.no_ack {
        say_claimed(ctx, (key, group_at, consumer_at), &delivered);
    }
    say_position(ctx, key, group_at, last_id, read);
    failed.map_or(Ok(()), |error| Err(error.into()))
}

/// Shows what is pending for a consumer behind an ID, which counts as delivered again.
fn show_history(
    ctx: &mut Ctx<'_>,
    request: &ReadRequest,
    words: (usize, usize, usize),
    (group, consumer): (&StreamGroup, &StreamConsumer),
    id: StreamId,
) -> Result<(), CmdError> {
    let time_ms = ctx.store.now_ms();
    let stream = stream::view(ctx.store, ctx.client.db, ctx.args.at(words.0))?;
    let mut pending = Vec::new();
    if let Some(from) = id.next() {
        stream.pending_of(group, consumer, (from, StreamId::MAX), |entry| {
            pending.push(entry);
            (pending.len() as u64) < request.most
        })?;
    }
    ctx.reply.array(pending.len());
    let mut again = Vec::new();
    for entry in pending {
        match stream.entry(entry.id)? {
            Some(fields) => {
                write_entry(ctx.reply, entry.id, fields);
                again.push(Claimed { id: entry.id, time_ms, count: entry.count.saturating_add(1) });
            }
            None => {
                ctx.reply.array(2);
                write_id(ctx.reply, entry.id);
                ctx.reply.null_array();
            }
        }
    }
    if again.is_empty() {
        return Ok(());
    }
    let mut stream = stream::open_mut(ctx.store, ctx.client.db, ctx.args.at(words.0))?;
    stream.tell_no_watcher();
    for entry in &again {
        stream.set_pending(group, consumer, (entry.id, entry.time_ms, entry.count))?;
    }
    drop(stream);
    say_delivered_again(ctx, words, &again);
    Ok(())
}
