//! XINFO: what a stream, its groups and their consumers say of themselves.

use quire_store::stream::{self, PendingEntry, StreamConsumer, StreamGroup, StreamSummary};
use quire_store::{StreamId, StreamOrder, StreamView};

use super::stream_groups::no_such_group;
use super::stream_words::{write_entries, write_entry, write_id};
use crate::ctx::{CmdError, Ctx};
use crate::resp::Reply;

/// All IDs.
const ALL: (StreamId, StreamId) = (StreamId::MIN, StreamId::MAX);
/// Entries that XINFO STREAM FULL shows if it isn't told how many.
const DEFAULT_COUNT: u64 = 10;

/// Whether an entry behind an ID may have been deleted.
pub(super) fn has_gaps_behind(stream: &StreamSummary, id: StreamId) -> bool {
    stream.entries > 0 && !stream.max_deleted_id.is_zero() && id <= stream.max_deleted_id
}

/// How many entries a group has yet to read; `None` if that can't be told.
fn lag(stream: &StreamSummary, group: &StreamGroup) -> Option<i64> {
    let added = stream.added as i64;
    match group.entries_read {
        _ if stream.added == 0 => Some(0),
        Some(read) if !has_gaps_behind(stream, group.last_id) => Some(added.wrapping_sub(read)),
        _ => stream.entries_up_to(group.last_id).map(|read| added.wrapping_sub(read)),
    }
}

fn write_option(reply: &mut Reply, number: Option<i64>) {
    match number {
        Some(number) => reply.int(number),
        None => reply.null(),
    }
}

/// XINFO GROUPS key
pub fn groups(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let stream = stream::view(ctx.store, ctx.client.db, ctx.args.at(2))?;
    if !stream.exists() {
        return Err(CmdError::NO_SUCH_KEY);
    }
    let (summary, groups) = (stream.summary()?, stream.groups()?);
    let reply = &mut *ctx.reply;
    reply.array(groups.len());
    for group in groups {
        reply.map(6);
        reply.bulk_str("name");
        reply.bulk(&group.name);
        reply.bulk_str("consumers");
        reply.int(group.consumers as i64);
        reply.bulk_str("pending");
        reply.int(group.pending as i64);
        write_progress(reply, &summary, &group);
    }
    Ok(())
}

/// How far a group has read.
fn write_progress(reply: &mut Reply, summary: &StreamSummary, group: &StreamGroup) {
    reply.bulk_str("last-delivered-id");
    write_id(reply, group.last_id);
    reply.bulk_str("entries-read");
    write_option(reply, group.entries_read);
    reply.bulk_str("lag");
    write_option(reply, lag(summary, group));
}

/// XINFO CONSUMERS key group
pub fn consumers(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (args, now_ms) = (ctx.args, ctx.store.now_ms());
    let stream = stream::view(ctx.store, ctx.client.db, args.at(2))?;
    if !stream.exists() {
        return Err(CmdError::NO_SUCH_KEY);
    }
    let group = stream.group(args.at(3))?.ok_or_else(|| no_such_group(args, 2, 3))?;
    let consumers = stream.consumers(&group)?;
    let reply = &mut *ctx.reply;
    reply.array(consumers.len());
    for consumer in consumers {
        reply.map(4);
        reply.bulk_str("name");
        reply.bulk(&consumer.name);
        reply.bulk_str("pending");
        reply.int(consumer.pending as i64);
        reply.bulk_str("idle");
        reply.int(now_ms.saturating_sub(consumer.seen_ms).max(0));
        reply.bulk_str("inactive");
        reply.int(consumer.active_ms.map_or(-1, |active_ms| now_ms.saturating_sub(active_ms).max(0)));
    }
    Ok(())
}

/// XINFO STREAM key [FULL [COUNT count]]
pub fn stream(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let args = ctx.args;
    let stream = stream::view(ctx.store, ctx.client.db, args.at(2))?;
    if !stream.exists() {
        return Err(CmdError::NO_SUCH_KEY);
    }
    let most = match args.len() {
        3 => None,
        4 if args.is(3, "FULL") => Some(DEFAULT_COUNT),
        6 if args.is(3, "FULL") && args.is(4, "COUNT") => Some(u64::try_from(args.int(5)?).unwrap_or(DEFAULT_COUNT)),
        _ => return Err(CmdError::subcommand_syntax(args.at(0), args.at(1))),
    };
    let start = ctx.reply.len();
    let written = match most {
        None => show_briefly(ctx.reply, &stream),
        Some(most) => show_all(ctx.reply, &stream, if most == 0 { u64::MAX } else { most }),
    };
    if written.is_err() {
        ctx.reply.truncate(start);
    }
    written
}

fn write_summary(reply: &mut Reply, summary: &StreamSummary) {
    for (name, number) in
        [("length", summary.entries), ("radix-tree-keys", summary.blocks), ("radix-tree-nodes", summary.blocks + 1)]
    {
        reply.bulk_str(name);
        reply.int(number as i64);
    }
    reply.bulk_str("last-generated-id");
    write_id(reply, summary.last_id);
    reply.bulk_str("max-deleted-entry-id");
    write_id(reply, summary.max_deleted_id);
    reply.bulk_str("entries-added");
    reply.int(summary.added as i64);
    reply.bulk_str("recorded-first-entry-id");
    write_id(reply, summary.first_id);
}

fn show_briefly(reply: &mut Reply, stream: &StreamView<'_>) -> Result<(), CmdError> {
    let summary = stream.summary()?;
    reply.map(10);
    write_summary(reply, &summary);
    reply.bulk_str("groups");
    reply.int(summary.groups as i64);
    for (name, order) in [("first-entry", StreamOrder::Up), ("last-entry", StreamOrder::Down)] {
        reply.bulk_str(name);
        let mut found = None;
        stream.range(ALL, order, |id, fields| {
            found = Some((id, fields));
            false
        })?;
        match found {
            Some((id, fields)) => write_entry(reply, id, fields),
            None => reply.null(),
        }
    }
    Ok(())
}

fn show_all(reply: &mut Reply, stream: &StreamView<'_>, most: u64) -> Result<(), CmdError> {
    let (summary, groups) = (stream.summary()?, stream.groups()?);
    reply.map(9);
    write_summary(reply, &summary);
    reply.bulk_str("entries");
    write_entries(reply, stream, ALL, (StreamOrder::Up, most), |_| {})?;
    reply.bulk_str("groups");
    reply.array(groups.len());
    for group in groups {
        reply.map(7);
        reply.bulk_str("name");
        reply.bulk(&group.name);
        write_progress(reply, &summary, &group);
        reply.bulk_str("pel-count");
        reply.int(group.pending as i64);
        reply.bulk_str("pending");
        write_pending(reply, stream, &group, most)?;
        reply.bulk_str("consumers");
        let consumers = stream.consumers(&group)?;
        reply.array(consumers.len());
        for consumer in consumers {
            write_consumer(reply, stream, (&group, &consumer), most)?;
        }
    }
    Ok(())
}

/// Collects up to `most` pending entries.
fn up_to(most: u64, entries: &mut Vec<PendingEntry>) -> impl FnMut(PendingEntry) -> bool {
    move |entry| {
        entries.push(entry);
        (entries.len() as u64) < most
    }
}

fn write_pending(reply: &mut Reply, stream: &StreamView<'_>, group: &StreamGroup, most: u64) -> Result<(), CmdError> {
    let mut entries = Vec::new();
    stream.pending(group, ALL, StreamOrder::Up, up_to(most, &mut entries))?;
    reply.array(entries.len());
    for entry in entries {
        reply.array(4);
        write_id(reply, entry.id);
        reply.bulk(&stream.consumer_of(group, &entry)?.name);
        reply.int(entry.time_ms);
        reply.int(entry.count as i64);
    }
    Ok(())
}

fn write_consumer(
    reply: &mut Reply,
    stream: &StreamView<'_>,
    (group, consumer): (&StreamGroup, &StreamConsumer),
    most: u64,
) -> Result<(), CmdError> {
    reply.map(5);
    reply.bulk_str("name");
    reply.bulk(&consumer.name);
    reply.bulk_str("seen-time");
    reply.int(consumer.seen_ms);
    reply.bulk_str("active-time");
    reply.int(consumer.active_ms.unwrap_or(-1));
    reply.bulk_str("pel-count");
    reply.int(consumer.pending as i64);
    reply.bulk_str("pending");
    let mut entries = Vec::new();
    stream.pending_of(group, consumer, ALL, up_to(most, &mut entries))?;
    reply.array(entries.len());
    for entry in entries {
        reply.array(3);
        write_id(reply, entry.id);
        reply.int(entry.time_ms);
        reply.int(entry.count as i64);
    }
    Ok(())
}
