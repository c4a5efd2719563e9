//! SUBSCRIBE and its kin, PUBLISH, SPUBLISH and PUBSUB. Relies on `pubsub` for who listens to what, and on the other clients' outputs,
//! which take the messages.

use super::scan::{check_length, glob_of};
use crate::client::CloseState;
use crate::ctx::{CmdError, Ctx};
use crate::pubsub::TopicKind;

const NOT_IN_EXEC: CmdError = CmdError::fixed("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client");

/// SUBSCRIBE channel …
pub fn subscribe(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    listen(ctx, TopicKind::Channel)
}

/// PSUBSCRIBE pattern …
pub fn psubscribe(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    for pattern in ctx.args.from(1).iter() {
        check_length(pattern)?;
    }
    listen(ctx, TopicKind::Pattern)
}

/// SSUBSCRIBE channel …
pub fn ssubscribe(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    // Redis allows the older ones in a transaction, and this one not.
    if ctx.client.in_exec {
        return Err(NOT_IN_EXEC);
    }
    listen(ctx, TopicKind::Shard)
}

/// UNSUBSCRIBE [channel …]
pub fn unsubscribe(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    listen_no_more(ctx, TopicKind::Channel)
}

/// PUNSUBSCRIBE [pattern …]
pub fn punsubscribe(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    listen_no_more(ctx, TopicKind::Pattern)
}

/// SUNSUBSCRIBE [channel …]
pub fn sunsubscribe(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    listen_no_more(ctx, TopicKind::Shard)
}

fn listen(ctx: &mut Ctx<'_>, kind: TopicKind) -> Result<(), CmdError> {
    for name in ctx.args.from(1).iter() {
        let of = &mut ctx.client.subscriptions;
        ctx.server.clients.pubsub.subscribe(ctx.client.id, of, kind, name);
        let held_bytes = ctx.client.held_bytes() + ctx.reply.len() + ctx.server.clients.memory_bytes();
        if held_bytes as u64 > ctx.server.client_memory_limit_bytes() {
            // The names of one request can take many times its size.
            tracing::warn!(
                client = ctx.client.id,
                held_bytes,
                "closing a client whose subscriptions take more than maxmemory-clients allows"
            );
            ctx.client.closing = CloseState::Now;
            return Ok(());
        }
        tell(ctx, kind.subscribed(), kind, Some(name));
    }
    Ok(())
}

fn listen_no_more(ctx: &mut Ctx<'_>, kind: TopicKind) -> Result<(), CmdError> {
    if ctx.args.len() == 1 {
        let names: Vec<Box<[u8]>> = ctx.client.subscriptions.names(kind).map(Box::from).collect();
        if names.is_empty() {
            tell(ctx, kind.unsubscribed(), kind, None);
        }
        for name in &names {
            end(ctx, kind, name);
        }
    } else {
        let args = ctx.args;
        args.from(1).iter().for_each(|name| end(ctx, kind, name));
    }
    Ok(())
}

fn end(ctx: &mut Ctx<'_>, kind: TopicKind, name: &[u8]) {
    let of = &mut ctx.client.subscriptions;
    ctx.server.clients.pubsub.unsubscribe(ctx.client.id, of, kind, name);
    tell(ctx, kind.unsubscribed(), kind, Some(name));
}

fn tell(ctx: &mut Ctx<'_>, word: &str, kind: TopicKind, name: Option<&[u8]>) {
    ctx.reply.push(3);
    ctx.reply.bulk_str(word);
    match name {
        Some(name) => ctx.reply.bulk(name),
        None => ctx.reply.null(),
    }
    ctx.reply.int(ctx.client.subscriptions.told(kind) as i64);
}

/// PUBLISH channel message
pub fn publish(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (channel, message) = (ctx.args.at(1), ctx.args.at(2));
    let receivers = ctx.publish(channel, message);
    ctx.reply.int(receivers as i64);
    Ok(())
}

/// SPUBLISH channel message
pub fn spublish(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    let (channel, message) = (ctx.args.at(1), ctx.args.at(2));
    let receivers = ctx.server.clients.pubsub.shard_receivers(channel);
    ctx.send(&receivers, &[b"smessage", channel, message]);
    ctx.reply.int(receivers.len() as i64);
    Ok(())
}

/// PUBSUB CHANNELS [pattern]
pub fn channels(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    names_of(ctx, TopicKind::Channel)
}

/// PUBSUB SHARDCHANNELS [pattern]
pub fn shardchannels(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    names_of(ctx, TopicKind::Shard)
}

fn names_of(ctx: &mut Ctx<'_>, kind: TopicKind) -> Result<(), CmdError> {
    if ctx.args.len() > 3 {
        return Err(CmdError::subcommand_syntax(ctx.args.at(0), ctx.args.at(1)));
    }
    let pattern = ctx.args.get(2);
    let glob = pattern.map(glob_of).transpose()?;
    // As for messages, no star matches the empty name.
    let matches_empty = pattern.is_none_or(<[u8]>::is_empty);
    let matches = |name: &&[u8]| {
        if name.is_empty() { matches_empty } else { glob.as_ref().is_none_or(|glob| glob.matches(name)) }
    };
    let names: Vec<&[u8]> = ctx.server.clients.pubsub.channels(kind).filter(matches).collect();
    ctx.reply.array(names.len());
    names.iter().for_each(|name| ctx.reply.bulk(name));
    Ok(())
}

/// PUBSUB NUMSUB [channel …]
pub fn numsub(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    count_of(ctx, TopicKind::Channel)
}

/// PUBSUB SHARDNUMSUB [channel …]
pub fn shardnumsub(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    count_of(ctx, TopicKind::Shard)
}

fn count_of(ctx: &mut Ctx<'_>, kind: TopicKind) -> Result<(), CmdError> {
    let channels = ctx.args.from(2);
    ctx.reply.array(2 * channels.len());
    for channel in channels.iter() {
        ctx.reply.bulk(channel);
        ctx.reply.int(ctx.server.clients.pubsub.subscribers(kind, channel) as i64);
    }
    Ok(())
}

/// PUBSUB NUMPAT
pub fn numpat(ctx: &mut Ctx<'_>) -> Result<(), CmdError> {
    ctx.reply.int(ctx.server.clients.pubsub.count(TopicKind::Pattern) as i64);
    Ok(())
}
