//! Keyspace notifications: messages that tell what happened to which key (`notify-keyspace-events`).
//!
//! The store notes that a key was changed, went or expired; what that is called depends on the command, and stands here for all of
//! them. If that is wanted, it also notes that a key was read and is not there. Clients that keep keys in caches of their own are
//! told of the same changes (`invalidation`). Relies on the store to note each change once, and on `pubsub` to send the messages.

use quire_store::{KeyEvent, KeyFate, Store};

use crate::args::Args;
use crate::ctx::Ctx;
use crate::event_classes::{
    EVICTED, EXPIRED, EventClass, GENERIC, HASH, KEYEVENT, KEYSPACE, LIST, MISS, NEW, SET, STREAM, STRING, ZSET,
};
use crate::invalidation;
use crate::registry::Command;
use crate::state::ServerState;

/// What happened, as it is told: the class, the event's name and which of the noted events' keys it is about.
type Told = (EventClass, &'static str, usize);

/// Keys that a command has found expired or missing are told before it ends once they are so many.
const MOST_FOUND: usize = 4096;

/// How a command's changes are called.
enum Naming {
    /// So; a key that is gone is also told as deleted.
    Named(EventClass, &'static str),
    /// So, or only as deleted where the key is gone.
    Replaced(EventClass, &'static str),
    /// As this function says.
    By(fn(Args<'_>, &[KeyEvent]) -> Vec<Told>),
    /// As this function says, which is also told the time.
    ByTime(fn(Args<'_>, &[KeyEvent], i64) -> Vec<Told>),
    /// A command that tells of no single key.
    Untold,
}

use Naming::{By, ByTime, Named, Replaced, Untold};

/// How the changes of a command are called; `None` for a command that this table lacks.
fn naming(command: &str) -> Option<Naming> {
    Some(match command {
        "del" | "unlink" | "getdel" | "migrate" => Replaced(GENERIC, "del"),
        "expire" | "pexpire" | "expireat" | "pexpireat" => Replaced(GENERIC, "expire"),
        "restore" => Replaced(GENERIC, "restore"),
        "persist" => Named(GENERIC, "persist"),
        "copy" => Named(GENERIC, "copy_to"),
        "rename" | "renamenx" => By(renamed),
        "move" => By(moved),
        "set" | "setex" | "psetex" => By(set),
        "getex" => By(got),
        "setnx" | "getset" | "mset" | "msetnx" => Named(STRING, "set"),
        "bitop" => Replaced(STRING, "set"),
        "incr" | "decr" | "incrby" | "decrby" => Named(STRING, "incrby"),
        "incrbyfloat" => Named(STRING, "incrbyfloat"),
        "append" => Named(STRING, "append"),
        "setrange" => Named(STRING, "setrange"),
        "setbit" | "bitfield" => Named(STRING, "setbit"),
        "pfadd" | "pfmerge" => Named(STRING, "pfadd"),
        "hset" | "hmset" | "hsetnx" => Named(HASH, "hset"),
        "hdel" => Named(HASH, "hdel"),
        "hexpire" | "hpexpire" => By(|args, events| fields_got_expiry(args, events, 0)),
        "hexpireat" => ByTime(|args, events, now_ms| fields_got_expiry(args, events, now_ms.div_euclid(1000))),
        "hpexpireat" => ByTime(fields_got_expiry),
        "hpersist" => Named(HASH, "hpersist"),
        "hincrby" => Named(HASH, "hincrby"),
        "hincrbyfloat" => Named(HASH, "hincrbyfloat"),
        "sadd" => Named(SET, "sadd"),
        "srem" => Named(SET, "srem"),
        "spop" => Named(SET, "spop"),
        "smove" => By(set_member_moved),
        "sinterstore" => Replaced(SET, "sinterstore"),
        "sunionstore" => Replaced(SET, "sunionstore"),
        "sdiffstore" => Replaced(SET, "sdiffstore"),
        "lpush" | "lpushx" => Named(LIST, "lpush"),
        "rpush" | "rpushx" => Named(LIST, "rpush"),
        "lpop" | "blpop" => Named(LIST, "lpop"),
        "rpop" | "brpop" => Named(LIST, "rpop"),
        "lmpop" | "blmpop" => By(list_popped),
        "lmove" | "blmove" | "rpoplpush" | "brpoplpush" => By(element_moved),
        "linsert" => Named(LIST, "linsert"),
        "lset" => Named(LIST, "lset"),
        "lrem" => Named(LIST, "lrem"),
        "ltrim" => Named(LIST, "ltrim"),
        "sort" => Replaced(LIST, "sortstore"),
        _ => return sorted_set_naming(command),
    })
}

/// The same for commands on sorted sets, and those that tell of no key.
fn sorted_set_naming(command: &str) -> Option<Naming> {
    Some(match command {
        "zadd" => By(members_added),
        "geoadd" => Named(ZSET, "zadd"),
        "geosearchstore" => Replaced(ZSET, "geosearchstore"),
        "georadius" | "georadiusbymember" => Replaced(ZSET, "georadiusstore"),
        "zincrby" => Named(ZSET, "zincr"),
        "zrem" => Named(ZSET, "zrem"),
        "zpopmin" | "bzpopmin" => Named(ZSET, "zpopmin"),
        "zpopmax" | "bzpopmax" => Named(ZSET, "zpopmax"),
        "zmpop" | "bzmpop" => By(members_popped),
        "zremrangebyrank" => Named(ZSET, "zremrangebyrank"),
        "zremrangebyscore" => Named(ZSET, "zremrangebyscore"),
        "zremrangebylex" => Named(ZSET, "zremrangebylex"),
        "zunionstore" => Replaced(ZSET, "zunionstore"),
        "zinterstore" => Replaced(ZSET, "zinterstore"),
        "zdiffstore" => Replaced(ZSET, "zdiffstore"),
        "zrangestore" => Replaced(ZSET, "zrangestore"),
        "flushall" | "flushdb" | "swapdb" | "pfdebug" => Untold,
        "function|load" | "function|delete" | "function|flush" | "function|restore" => Untold,
        _ => return stream_naming(command),
    })
}

/// The same for commands on streams.
fn stream_naming(command: &str) -> Option<Naming> {
    Some(match command {
        "xadd" => By(entry_added),
        "xtrim" => Named(STREAM, "xtrim"),
        "xdel" => Named(STREAM, "xdel"),
        "xsetid" => Named(STREAM, "xsetid"),
        "xgroup|create" => Named(STREAM, "xgroup-create"),
        "xgroup|setid" => Named(STREAM, "xgroup-setid"),
        "xgroup|destroy" => Named(STREAM, "xgroup-destroy"),
        "xgroup|delconsumer" => Named(STREAM, "xgroup-delconsumer"),
        // What these do to pending entries is noted for no watcher.
        "xgroup|createconsumer" | "xreadgroup" | "xclaim" | "xautoclaim" => Named(STREAM, "xgroup-createconsumer"),
        "xack" => Untold,
        _ => return None,
    })
}

/// A key that is gone after something is told as deleted, too.
fn with_end(told: Told, events: &[KeyEvent]) -> Vec<Told> {
    let gone = events.get(told.2).is_some_and(|event| event.fate == KeyFate::Gone);
    if gone { vec![told, (GENERIC, "del", told.2)] } else { vec![told] }
}

/// The first noted change of a key, or `otherwise` without any.
fn about(events: &[KeyEvent], key: &[u8], otherwise: usize) -> usize {
    events.iter().position(|event| event.fate.is_change() && *event.key == *key).unwrap_or(otherwise)
}

fn renamed(args: Args<'_>, events: &[KeyEvent]) -> Vec<Told> {
    let (from, to) = (about(events, args.at(1), 0), about(events, args.at(2), 0));
    vec![(GENERIC, "rename_from", from), (GENERIC, "rename_to", to)]
}

fn moved(_: Args<'_>, events: &[KeyEvent]) -> Vec<Told> {
    let name = |event: &KeyEvent| if event.fate == KeyFate::Gone { "move_from" } else { "move_to" };
    changes(events).map(|(index, event)| (GENERIC, name(event), index)).collect()
}

fn has_option(args: Args<'_>, from: usize, names: &[&str]) -> bool {
    (from..args.len()).any(|index| names.iter().any(|name| args.is(index, name)))
}

const TIMES: [&str; 4] = ["EX", "PX", "EXAT", "PXAT"];

fn set(args: Args<'_>, events: &[KeyEvent]) -> Vec<Told> {
    let at = about(events, args.at(1), 0);
    let mut told = vec![(STRING, "set", at)];
    if !args.is(0, "SET") || has_option(args, 3, &TIMES) {
        told.push((GENERIC, "expire", at));
    }
    if events[at].fate == KeyFate::Gone {
        // Its time is past already.
        told = vec![(GENERIC, "del", at)];
    }
    told
}

fn got(args: Args<'_>, events: &[KeyEvent]) -> Vec<Told> {
    let at = about(events, args.at(1), 0);
    let name = match events[at].fate {
        KeyFate::Changed if has_option(args, 2, &["PERSIST"]) => "persist",
        KeyFate::Changed => "expire",
        _ => "del",
    };
    vec![(GENERIC, name, at)]
}

/// Fields that get an expiry that is past are removed, all of them. `now` is the time as the command counts it.
fn fields_got_expiry(args: Args<'_>, events: &[KeyEvent], now: i64) -> Vec<Told> {
    let is_past = args.int(2).is_ok_and(|given| given <= now);
    with_end((HASH, if is_past { "hdel" } else { "hexpire" }, about(events, args.at(1), 0)), events)
}

fn set_member_moved(args: Args<'_>, events: &[KeyEvent]) -> Vec<Told> {
    let (from, to) = (about(events, args.at(1), 0), about(events, args.at(2), usize::MAX));
    let mut told = with_end((SET, "srem", from), events);
    if to != usize::MAX {
        told.push((SET, "sadd", to));
    }
    told
}

/// Where the word stands that says from which end a command takes: behind as many keys as the word before them says. The one that
/// waits has a time to wait for in front of it.
fn side_of(args: Args<'_>, waiting: &str) -> usize {
    let count_at = if args.is(0, waiting) { 2 } else { 1 };
    args.int(count_at).ok().and_then(|keys| usize::try_from(keys).ok()).map_or(0, |keys| count_at + keys + 1)
}

fn list_popped(args: Args<'_>, events: &[KeyEvent]) -> Vec<Told> {
    let name = if args.is(side_of(args, "BLMPOP"), "RIGHT") { "rpop" } else { "lpop" };
    with_end((LIST, name, first_changed(events)), events)
}

/// The noted changes, with their places: not that a key was found expired, or missing.
fn changes(events: &[KeyEvent]) -> impl Iterator<Item = (usize, &KeyEvent)> {
    events.iter().enumerate().filter(|(_, event)| event.fate.is_change())
}

/// The first noted change.
fn first_changed(events: &[KeyEvent]) -> usize {
    changes(events).next().map_or(0, |(index, _)| index)
}

fn members_added(args: Args<'_>, events: &[KeyEvent]) -> Vec<Told> {
    // The options end where the first score begins, which is none of these words.
    let options = ["NX", "XX", "GT", "LT", "CH", "INCR"];
    let mut given = (2..args.len()).take_while(|&index| options.iter().any(|option| args.is(index, option)));
    let name = if given.any(|index| args.is(index, "INCR")) { "zincr" } else { "zadd" };
    vec![(ZSET, name, first_changed(events))]
}

fn members_popped(args: Args<'_>, events: &[KeyEvent]) -> Vec<Told> {
    let name = if args.is(side_of(args, "BZMPOP"), "MAX") { "zpopmax" } else { "zpopmin" };
    with_end((ZSET, name, first_changed(events)), events)
}

/// What is trimmed after an entry was added is a change of its own.
fn entry_added(_: Args<'_>, events: &[KeyEvent]) -> Vec<Told> {
    let changed = events.iter().enumerate().filter(|(_, event)| event.fate == KeyFate::Changed);
    changed.zip(["xadd", "xtrim"]).map(|((index, _), name)| (STREAM, name, index)).collect()
}

fn element_moved(args: Args<'_>, events: &[KeyEvent]) -> Vec<Told> {
    // The older commands name no sides.
    let (from, to) = match args.get(4) {
        Some(_) => (args.is(3, "RIGHT"), args.is(4, "RIGHT")),
        None => (true, false),
    };
    let (source, target) = (about(events, args.at(1), 0), about(events, args.at(2), 0));
    let mut told = vec![(LIST, if to { "rpush" } else { "lpush" }, target)];
    told.extend(with_end((LIST, if from { "rpop" } else { "lpop" }, source), events));
    told
}

/// Tells what the command that has just run did to keys, and which it has found expired or missing before. None is evicted while a
/// command runs. One that has waited for keys and is run `again` has missed none: that was told when it began to wait.
#[cold]
pub fn tell(command: &Command, ctx: &mut Ctx<'_>, again: bool) {
    let events = ctx.store.take_key_events();
    if ctx.server.clients.tracking.any() {
        invalidation::tell_changed(ctx.server, &events, ctx.client.id);
    }
    if !ctx.server.config.notify_keyspace_events.any() {
        return;
    }
    let mut told: Vec<Told> = found(&events, !again).collect();
    if changes(&events).next().is_some() {
        match naming(command.name) {
            Some(Named(class, name)) => {
                told.extend(changes(&events).flat_map(|(index, _)| with_end((class, name, index), &events)));
            }
            Some(Replaced(class, name)) => told.extend(changes(&events).map(|(index, event)| match event.fate {
                KeyFate::Changed => (class, name, index),
                _ => (GENERIC, "del", index),
            })),
            Some(By(name)) => told.extend(name(ctx.args, &events)),
            Some(ByTime(name)) => told.extend(name(ctx.args, &events, ctx.store.now_ms())),
            Some(Untold) | None => {}
        }
        if ctx.server.config.notify_keyspace_events.bits() & NEW != 0 {
            tell_new(command.name, &mut told, &events);
        }
    }
    send_all(ctx.server, &told, &events);
}

/// What a command has found out about keys that are not there, which it tells before what it has done: Redis tells it of each when it
/// looks for it, and no command changes data before it has looked for all that it reads.
fn found(events: &[KeyEvent], with_misses: bool) -> impl Iterator<Item = Told> {
    events.iter().enumerate().filter_map(move |(index, event)| match event.fate {
        KeyFate::Expired => Some((EXPIRED, "expired", index)),
        KeyFate::Missed if with_misses => Some((MISS, "keymiss", index)),
        // Fields expire, and keys are evicted, while no command runs.
        _ => None,
    })
}

/// A command looks for more and more keys and is still to change any: tells what it has found so far if that is much, so that it does not
/// take memory without bound.
#[inline]
pub fn tell_found(store: &mut Store, state: &mut ServerState, by: u64) {
    if store.key_event_count() >= MOST_FOUND {
        tell_found_now(store, state, by);
    }
}

#[cold]
fn tell_found_now(store: &mut Store, state: &mut ServerState, by: u64) {
    let events = store.take_key_events();
    if state.clients.tracking.any() {
        invalidation::tell_changed(state, &events, by);
    }
    let told: Vec<Told> = found(&events, true).collect();
    send_all(state, &told, &events);
}

/// Has keys that are new be told as that, before what has made them.
fn tell_new(command: &str, told: &mut Vec<Told>, events: &[KeyEvent]) {
    // In Redis these delete what they replace.
    let replaces = matches!(command, "rename" | "renamenx" | "copy" | "restore");
    let moves = matches!(command, "rename" | "renamenx" | "move");
    let found = told.iter().take_while(|one| matches!(one.0, EXPIRED | MISS)).count();
    for (index, event) in events.iter().enumerate() {
        if event.fate != KeyFate::Changed || !(event.is_new || replaces) {
            continue;
        }
        let first = told.iter().position(|one| one.2 == index);
        if let Some(first) = first {
            // Where a key is told to have left, that it has come was told before, and before that that the former one has expired.
            told.insert(if moves { found } else { first }, (NEW, "new", index));
        }
    }
}

/// Tells which keys have expired or were evicted with no command running, and of which hashes fields have expired.
#[cold]
pub fn tell_gone(store: &mut Store, state: &mut ServerState) {
    let events = store.take_key_events();
    if state.clients.tracking.any() {
        invalidation::tell_changed(state, &events, 0);
    }
    let gone = events.iter().enumerate().flat_map(|(index, event)| match event.fate {
        KeyFate::Expired => vec![(EXPIRED, "expired", index)],
        KeyFate::Evicted => vec![(EVICTED, "evicted", index)],
        KeyFate::FieldsExpired => vec![(HASH, "hexpired", index)],
        KeyFate::LastFieldsExpired => vec![(HASH, "hexpired", index), (GENERIC, "del", index)],
        KeyFate::Changed | KeyFate::Gone | KeyFate::Missed => Vec::new(),
    });
    let told: Vec<Told> = gone.collect();
    send_all(state, &told, &events);
}

fn send_all(state: &mut ServerState, told: &[Told], events: &[KeyEvent]) {
    for (class, name, index) in told {
        if let Some(event) = events.get(*index) {
            send(state, *class, name, event);
        }
    }
}

fn send(state: &mut ServerState, class: EventClass, name: &str, event: &KeyEvent) {
    let wanted = state.config.notify_keyspace_events.bits();
    if wanted & class == 0 {
        return;
    }
    let channel = |kind: &str, rest: &[u8]| [format!("__{kind}@{}__:", event.db.0).as_bytes(), rest].concat();
    if wanted & KEYSPACE != 0 {
        state.publish(&channel("keyspace", &event.key), name.as_bytes());
    }
    if wanted & KEYEVENT != 0 {
        state.publish(&channel("keyevent", name.as_bytes()), &event.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use crate::specs;
    use crate::table::WRITE;

    #[test]
    fn every_command_that_writes_has_names_for_what_it_does() {
        let registry = Registry::build(specs::ALL);
        let writes = registry.all().iter().filter(|command| command.spec.has(WRITE));
        let lacking: Vec<&str> = writes.map(|command| command.name).filter(|name| naming(name).is_none()).collect();
        assert!(lacking.is_empty(), "without a name for keyspace notifications: {lacking:?}");
    }
}
