//! Pending entries that another consumer takes over: XCLAIM and XAUTOCLAIM, and what is said of that to the log.
//!
//! Entries that are pending and not there any more are forgotten. Relies on `stream_words` for IDs. The log is told what became of each
//! entry, by its consumer, the time and the count.

use quire_store::stream::{self, PendingEntry, StreamConsumer, StreamGroup};
use quire_store::{StreamId, StreamMut, StreamOrder};

use super::stream_groups::{no_group, say_consumer, say_position};
use super::stream_words::{range_start, strict_id, write_entry, write_id};
use crate::ctx::{Args, CmdError, Ctx};
use crate::effects::EffectWord;
use crate::resp::Reply;

/// Pending entries that XAUTOCLAIM looks at for each one that it may return.
const ATTEMPTS: u64 = 10;
/// XAUTOCLAIM returns at most so many entries if it isn't told.
const DEFAULT_COUNT: i64 = 100;
/// What it may be told at most.
const MOST_COUNT: i64 = i64::MAX / 16;
/// IDs in one command of the log.
const SAID_AT_ONCE: usize = 256;

/// An entry that was claimed, or has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claimed {
    pub(super) id: StreamId,
    pub(super) time_ms: i64,
    pub(super) count: u64,
}

/// What a claim came to.
#[derive(Default)]
struct ClaimResult {
    claimed: Vec<Claimed>,
    /// Pending entries that are not there any more.
    gone: Vec<StreamId>,
}

/// Says that a consumer was given entries, which are pending for it now.
pub(super) fn say_claimed(ctx: &mut Ctx<'_>, words: (usize, usize, usize), claimed: &[Claimed]) {
    say_pending(ctx, words, claimed, &["FORCE", "JUSTID"]);
}

/// Says that entries that were pending for a consumer were delivered to it again, which doesn't count as giving it something.
pub(super) fn say_delivered_again(ctx: &mut Ctx<'_>, words: (usize, usize, usize), again: &[Claimed]) {
    say_pending(ctx, words, again, &["JUSTID"]);
}

/// Says that entries are pending for a consumer; those of the same time and count in one command, as many as are few words.
fn say_pending(
    ctx: &mut Ctx<'_>,
    (key, group, consumer): (usize, usize, usize),
    pending: &[Claimed],
    options: &[&'static str],
) {
    for part in pending.chunk_by(|one, other| (one.time_ms, one.count) == (other.time_ms, other.count)) {
        for part in part.chunks(SAID_AT_ONCE) {
            let ids: Vec<String> = part.iter().map(|entry| entry.id.to_string()).collect();
            let mut words = vec![EffectWord::Bytes(b"XCLAIM"), EffectWord::Arg(key), EffectWord::Arg(group)];
            words.extend([EffectWord::Arg(consumer), EffectWord::Int(0)]);
            words.extend(ids.iter().map(|id| EffectWord::Bytes(id.as_bytes())));
            words.extend([EffectWord::Bytes(b"TIME"), EffectWord::Int(part[0].time_ms)]);
            words.extend([EffectWord::Bytes(b"RETRYCOUNT"), EffectWord::Int(part[0].count as i64)]);
            words.extend(options.iter().map(|option| EffectWord::Bytes(option.as_bytes())));
            ctx.say_also(&words);
        }
    }
}

/// Says that entries are not pending any more.
fn say_gone(ctx: &mut Ctx<'_>, gone: &[StreamId]) {
    for part in gone.chunks(SAID_AT_ONCE) {
        let ids: Vec<String> = part.iter().map(StreamId::to_string).collect();
        let mut words = vec![EffectWord::Bytes(b"XACK"), EffectWord::Arg(1), EffectWord::Arg(2)];
        words.extend(ids.iter().map(|id| EffectWord::Bytes(id.as_bytes())));
        ctx.say_also(&words);
    }
}

/// The options of XCLAIM.
struct ClaimOptions {
    min_idle_ms: i64,
    ids: Vec<StreamId>,
    force: bool,
    just_id: bool,
    time_ms: i64,
    retry_count: Option<u64>,
    last_id: StreamId,
}

/// A number with an error of its own.
fn number(args: Args<'_>, at: usize, error: &'static str) -> Result<i64, CmdError> {
    args.int(at).map_err(|_| CmdError::fixed(error))
}

impl ClaimOptions {
    fn parse(args: Args<'_>, now_ms: i64) -> Result<ClaimOptions, CmdError> {
        let min_idle_ms = number(args, 4, "ERR Invalid min-idle-time argument for XCLAIM")?.max(0);
        let ids: Vec<StreamId> = args.from(5).iter().map_while(|word| strict_id(word, 0).ok()).collect();
        let mut at = 5 + ids.len();
        let mut options = ClaimOptions {
            min_idle_ms,
            ids,
            force: false,
            just_id: false,
            time_ms: -1,
            retry_count: None,
            last_id: StreamId::MIN,
        };
        while at < args.len() {
            let more = at + 1 < args.len();
            if args.is(at, "FORCE") {
                options.force = true;
            } else if args.is(at, "JUSTID") {
                options.just_id = true;
            } else if more && args.is(at, "IDLE") {
                at += 1;
                let idle_ms = number(args, at, "ERR Invalid IDLE option argument for XCLAIM")?;
                options.time_ms = now_ms.wrapping_sub(idle_ms);
            } else if more && args.is(at, "TIME") {
                at += 1;
                options.time_ms = number(args, at, "ERR Invalid TIME option argument for XCLAIM")?;
            } else if more && args.is(at, "RETRYCOUNT") {
                at += 1;
                let count = number(args, at, "ERR Invalid RETRYCOUNT option argument for XCLAIM")?;
                options.retry_count = u64::try_from(count).ok();
            } else if more && args.is(at, "LASTID") {
                at += 1;
                options.last_id = strict_id(args.at(at), 0)?;
            } else {
                return Err(CmdError::owned(format!("ERR Unrecognized XCLAIM option '{}'", args.text(at))));
            }
            at += 1;
        }
        Ok(options)
    }

    /// How often an entry that is there will have been delivered; `None` if it isn't taken over.
    fn count_of(&self, pending: Option<PendingEntry>, now_ms: i64) -> Option<u64> {
        let before = match pending {
            Some(entry) if self.min_idle_ms > 0 && now_ms.wrapping_sub(entry.time_ms) < self.min_idle_ms => {
                return None;
            }
            Some(entry) => entry.count,
            None if self.force => 1,
            None => return None,
        };
        Some(self.retry_count.unwrap_or(before.saturating_add(u64::from(!self.just_id))))
    }
}

/// The consumer of this name, which is made if there is none, in a change of its own. As in Redis that is notified, and is no change for
/// clients that watch the key or wait for it.
pub(super) fn consumer_for(
    ctx: &mut Ctx<'_>,
    (key, group_at, at): (usize, usize, usize),
    group: &StreamGroup,
) -> Result<StreamConsumer, CmdError> {
    let (args, now_ms) = (ctx.args, ctx.store.now_ms());
    let mut stream = stream::open_mut(ctx.store, ctx.client.db, args.at(key))?;
    if let Some(consumer) = stream.view()?.consumer(group, args.at(at))? {
        stream.touch_consumer(&consumer, now_ms)?;
        return Ok(consumer);
    }
    stream.tell_no_watcher();
    let consumer = stream.create_consumer(group, args.at(at), now_ms)?;
    drop(stream);
    ctx.store.note_key_event(ctx.client.db, args.at(key));
    say_consumer(ctx, key, group_at, at);
    Ok(consumer)
}

/// Notes that a consumer was given entries, if it was.
fn note_claims(
    stream: &mut StreamMut<'_>,
    consumer: StreamConsumer,
    result: &ClaimResult,
    now_ms: i64,
) -> Result<(), CmdError> {
    if !result.claimed.is_empty() {
        stream.note_activity(consumer, now_ms)?;
    }
    Ok(())
}

/// The group of XCLAIM and XAUTOCLAIM.
fn group(ctx: &mut Ctx<'_>) -> Result<StreamGroup, CmdError> {
    let args = ctx.args;
    let stream = stream::view(ctx.store, ctx.client.db, args.at(1))?;
    stream.group(args.at(2))?.ok_or_else(|| no_group(args, 1, 2))
}

/// XCLAIM key group consumer min-idle-time id … [IDLE ms] [TIME unix-time-ms] [RETRYCOUNT count] [FORCE] [JUSTID] [LASTID id]
pub fn xclaim(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (args, now_ms, is_replayed) = (ctx.args, ctx.store.now_ms(), ctx.is_replayed());
    let mut group = group(ctx)?;
    let mut options = ClaimOptions::parse(args, now_ms)?;
    // The log tells a time by a clock that may have gone back since.
    if options.time_ms < 0 || options.time_ms > now_ms && !is_replayed {
        options.time_ms = now_ms;
    }
    if options.last_id > group.last_id {
        let mut stream = stream::open_mut(ctx.store, ctx.client.db, args.at(1))?;
        stream.tell_no_watcher();
        stream.set_group(&group, options.last_id, group.entries_read)?;
        drop(stream);
        group.last_id = options.last_id;
        say_position(ctx, 1, 2, group.last_id, group.entries_read);
    }
    let consumer = consumer_for(ctx, (1, 2, 3), &group)?;
    let mut result = ClaimResult::default();
    let mut stream = stream::open_mut(ctx.store, ctx.client.db, args.at(1))?;
    stream.tell_no_watcher();
    let mut claim = || -> Result<(), CmdError> {
        for &id in &options.ids {
            let pending = stream.view()?.pending_entry(&group, id)?;
            if stream.view()?.entry(id)?.is_none() {
                if stream.remove_pending(&group, id)? {
                    result.gone.push(id);
                }
                continue;
            }
            let Some(count) = options.count_of(pending, now_ms) else { continue };
            stream.set_pending(&group, &consumer, (id, options.time_ms, count))?;
            result.claimed.push(Claimed { id, time_ms: options.time_ms, count });
        }
        Ok(())
    };
    let done = claim();
    // Without FORCE the log tells that a consumer has read what was pending for it.
    let gives = options.force || !is_replayed;
    let noted = if gives { note_claims(&mut stream, consumer, &result, now_ms) } else { Ok(()) };
    drop(stream);
    say_gone(ctx, &result.gone);
    say_claimed(ctx, (1, 2, 3), &result.claimed);
    done.and(noted)?;
    let claimed: Vec<StreamId> = result.claimed.iter().map(|entry| entry.id).collect();
    show(ctx, &claimed, options.just_id)
}

/// Writes entries that were claimed.
fn show(ctx: &mut Ctx<'_>, ids: &[StreamId], just_id: bool) -> Result<(), CmdError> {
    let stream = stream::view(ctx.store, ctx.client.db, ctx.args.at(1))?;
    let (mark, mut shown) = (ctx.reply.begin_array(), 0);
    for &id in ids {
        if just_id {
            write_id(ctx.reply, id);
            shown += 1;
            continue;
        }
        match stream.entry(id) {
            Ok(Some(fields)) => write_entry(ctx.reply, id, fields),
            Ok(None) => continue,
            Err(error) => {
                ctx.reply.abandon_array(mark);
                return Err(error.into());
            }
        }
        shown += 1;
    }
    ctx.reply.end_array(mark, shown);
    Ok(())
}

/// The options of XAUTOCLAIM.
struct AutoClaim {
    min_idle_ms: i64,
    start: StreamId,
    most: u64,
    just_id: bool,
}

impl AutoClaim {
    fn parse(args: Args<'_>) -> Result<AutoClaim, CmdError> {
        let min_idle_ms = number(args, 4, "ERR Invalid min-idle-time argument for XAUTOCLAIM")?.max(0);
        let (start, mut most, mut just_id, mut at) = (range_start(args.at(5))?, DEFAULT_COUNT, false, 6);
        while at < args.len() {
            if args.is(at, "COUNT") && at + 1 < args.len() {
                let count = args.int(at + 1).ok().filter(|count| (1..=MOST_COUNT).contains(count));
                most = count.ok_or(CmdError::fixed("ERR COUNT must be > 0"))?;
                at += 2;
            } else if args.is(at, "JUSTID") {
                just_id = true;
                at += 1;
            } else {
                return Err(CmdError::SYNTAX);
            }
        }
        Ok(AutoClaim { min_idle_ms, start, most: most as u64, just_id })
    }

    /// Whether an entry has been pending for long enough.
    fn takes(&self, entry: &PendingEntry, now_ms: i64) -> bool {
        self.min_idle_ms == 0 || now_ms.wrapping_sub(entry.time_ms) >= self.min_idle_ms
    }

    /// Claims entries from the start on; returns where to go on.
    fn run(
        &self,
        stream: &mut StreamMut<'_>,
        (group, consumer): (&StreamGroup, &StreamConsumer),
        now_ms: i64,
        result: &mut ClaimResult,
    ) -> Result<StreamId, CmdError> {
        let (mut next, mut attempts) = (Some(self.start), self.most.saturating_mul(ATTEMPTS));
        while let Some(from) = next {
            let mut found = None;
            stream.view()?.pending(group, (from, StreamId::MAX), StreamOrder::Up, |entry| {
                found = Some(entry);
                false
            })?;
            let Some(entry) = found else { break };
            let done = (result.claimed.len() + result.gone.len()) as u64;
            if attempts == 0 || done >= self.most {
                return Ok(entry.id);
            }
            attempts -= 1;
            next = entry.id.next();
            if stream.view()?.entry(entry.id)?.is_none() {
                stream.remove_pending(group, entry.id)?;
                result.gone.push(entry.id);
            } else if self.takes(&entry, now_ms) {
                let count = entry.count.saturating_add(u64::from(!self.just_id));
                stream.set_pending(group, consumer, (entry.id, now_ms, count))?;
                result.claimed.push(Claimed { id: entry.id, time_ms: now_ms, count });
            }
        }
        Ok(StreamId::MIN)
    }
}

/// XAUTOCLAIM key group consumer min-idle-time start [COUNT count] [JUSTID]
pub fn xautoclaim(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (args, now_ms) = (ctx.args, ctx.store.now_ms());
    // As in Redis the key is looked up first, and what is wrong with the words said before what is wrong with the key.
    let group = group(ctx);
    let request = AutoClaim::parse(args)?;
    let group = group?;
    let consumer = consumer_for(ctx, (1, 2, 3), &group)?;
    let mut result = ClaimResult::default();
    let mut stream = stream::open_mut(ctx.store, ctx.client.db, args.at(1))?;
    stream.tell_no_watcher();
    let done = request.run(&mut stream, (&group, &consumer), now_ms, &mut result);
    let noted = note_claims(&mut stream, consumer, &result, now_ms);
    drop(stream);
    say_gone(ctx, &result.gone);
    say_claimed(ctx, (1, 2, 3), &result.claimed);
    let cursor = done?;
    noted?;
    let claimed: Vec<StreamId> = result.claimed.iter().map(|entry| entry.id).collect();
    let start = ctx.reply.len();
    ctx.reply.array(3);
    write_id(ctx.reply, cursor);
    if let Err(error) = show(ctx, &claimed, request.just_id) {
        ctx.reply.truncate(start);
        return Err(error);
    }
    write_ids(ctx.reply, &result.gone);
    Ok(())
}

fn write_ids(reply: &mut Reply, ids: &[StreamId]) {
    reply.array(ids.len());
    ids.iter().for_each(|&id| write_id(reply, id));
}
