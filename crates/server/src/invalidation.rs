//! Tells clients that keep keys in caches of their own which of them are not valid any more, and remembers what they read.
//!
//! A client of RESP3 is sent pushes; another one names a client that is told in its place, which listens to a channel if it speaks RESP2.
//! What concerns the client whose command is running follows its reply, but for keys that went to make room for the command, or because
//! the table was too large when it came. Relies on `tracking` for who is to be told, on `key_spec` for the keys of a request, on the store
//! for what has changed, and on the clients' outputs, which are bounded.

use std::collections::BTreeMap;

use quire_store::{KeyEvent, KeyFate};

use crate::client::{Client, ReplyMode};
use crate::ctx::Ctx;
use crate::invalid_keys::InvalidKeys;
use crate::pubsub::PushMessage;
use crate::registry::Command;
use crate::resp::Protocol;
use crate::state::ServerState;
use crate::table::{CommandGroup, PUBSUB, READONLY};
use crate::tracked_keys::TrackedKey;

/// The channel whose messages a client of RESP2 is told by.
const CHANNEL: &[u8] = b"__redis__:invalidate";
/// Requests that begin with it do not end what CLIENT CACHING has said.
const CLIENT: &str = "CLIENT";
/// Keys that leave the table at least when a request has made it too large, and in a step between requests.
const LEAST_EVICTED: usize = 100;
/// Entries of an emptied table that are freed in a step.
const FREE_BUDGET: usize = 512;
/// All remembered keys may take this part of what all clients may take together.
const TABLE_MEMORY_PART: u64 = 4;

/// What decides how a client can be told.
#[derive(Clone, Copy)]
struct Receiver {
    id: u64,
    protocol: Protocol,
    /// It listens to some channel.
    listens: bool,
}

impl Receiver {
    fn of(client: &Client) -> Self {
        Self { id: client.id, protocol: client.protocol, listens: client.subscriptions.any() }
    }
}

/// Tells that keys have changed, or are gone. `by` is the client whose command has run, 0 if none has.
#[cold]
pub fn tell_changed(state: &mut ServerState, events: &[KeyEvent], by: u64) {
    // What a script changes is, as in Redis, also told to a client in broadcast mode that does not want its own changes.
    let is_script = state.scripts.is_running();
    // That a key was missed changes nothing.
    for event in events.iter().filter(|event| event.fate != KeyFate::Missed) {
        let tracking = &mut state.clients.tracking;
        let is_own = event.fate.is_change() && !is_script;
        tracking.note_changed(&event.key, if is_own { by } else { 0 });
        if let Some(TrackedKey { key, clients }) = tracking.keys.take(&event.key) {
            let keys = InvalidKeys::One(key);
            for id in clients {
                if state.clients.tracking.of(id).is_some_and(|of| !(of.mode.no_loop && id == by)) {
                    tell_reader(state, id, &keys);
                }
            }
        }
        if state.clients.tracking.is_crowded() {
            broadcast(state);
        }
    }
}

/// Tells that no key is what it was.
#[cold]
pub fn tell_all_changed(state: &mut ServerState) {
    for id in state.clients.tracking.ids() {
        tell(state, None, id, &InvalidKeys::All);
    }
    state.clients.tracking.keys.clear();
}

/// Tells clients in broadcast mode what has changed.
#[cold]
pub fn broadcast(state: &mut ServerState) {
    for pending in state.clients.tracking.take_pending() {
        let keys = changed_but_by(&pending.changed, None);
        for id in pending.clients {
            let no_loop = state.clients.tracking.of(id).is_some_and(|of| of.mode.no_loop);
            let told = if no_loop { changed_but_by(&pending.changed, Some(id)) } else { keys.clone() };
            if let Some(told) = told {
                tell(state, None, id, &told);
            }
        }
    }
}

/// The keys that this client has not changed last itself; `None` if there are none.
fn changed_but_by(changed: &BTreeMap<Box<[u8]>, u64>, client: Option<u64>) -> Option<InvalidKeys> {
    let keys = || changed.iter().filter(|(_, by)| client != Some(**by)).map(|(key, _)| &**key);
    let count = keys().count();
    (count > 0).then(|| InvalidKeys::several(keys(), count))
}

/// Tells a client that may have a key, unless it has gone to broadcast mode since it read it.
fn tell_reader(state: &mut ServerState, id: u64, keys: &InvalidKeys) {
    if state.clients.tracking.of(id).is_some_and(|of| !of.mode.broadcasts) {
        tell(state, None, id, keys);
    }
}

/// Tells a client that tracks, or the one in its place. If it concerns the client whose command is running, of which nothing is known
/// here, it waits for the end of the command, which knows `running`.
fn tell(state: &mut ServerState, running: Option<Receiver>, id: u64, keys: &InvalidKeys) {
    let known = |state: &ServerState, id: u64| {
        running.filter(|one| one.id == id).or_else(|| state.clients.by_id(id).map(Receiver::of))
    };
    let Some(redirect) = state.clients.tracking.of(id).map(|of| of.mode.redirect) else { return };
    let receiver_id = if redirect == 0 { id } else { redirect };
    let is_broken = state.clients.slot_of(receiver_id).is_none();
    let receiver = if is_broken { None } else { known(state, receiver_id) };
    let (Some(tracks), true) = (known(state, id), is_broken || receiver.is_some()) else {
        let together_bytes = state.client_memory_limit_bytes();
        let most_bytes = match state.config.output_limits.pubsub.hard_bytes {
            0 => together_bytes,
            of_one_bytes => of_one_bytes.min(together_bytes),
        };
        state.clients.tell_later(id, keys.clone(), most_bytes);
        return;
    };
    let Some(receiver) = receiver else {
        if let Some(of) = state.clients.tracking.of_mut(id) {
            of.is_broken = true;
        }
        if tracks.protocol == Protocol::Resp3 {
            let number = format!(":{redirect}\r\n");
            state.send(&[id], &PushMessage::with_tail(&[b"tracking-redir-broken"], number.as_bytes()));
        }
        return;
    };
    let tail = keys.encoded(tracks.protocol);
    let message = match receiver.protocol {
        Protocol::Resp3 => PushMessage::with_tail(&[b"invalidate"], &tail),
        Protocol::Resp2 if redirect != 0 && receiver.listens => PushMessage::with_tail(&[b"message", CHANNEL], &tail),
        Protocol::Resp2 => return,
    };
    state.send(&[receiver.id], &message);
}

/// The client's command has run: it is told what concerns it.
#[cold]
pub fn tell_running(ctx: &mut Ctx<'_>) {
    let running = Receiver::of(ctx.client);
    for (id, keys) in ctx.server.clients.take_told_later() {
        tell(ctx.server, Some(running), id, &keys);
    }
}

/// Keys went before the client's command runs: it is told ahead of the reply, which may show one of them as it is then. Within a transaction
/// or a script, or without a reply, it hears of them with all else.
pub fn tell_before_reply(ctx: &mut Ctx<'_>) {
    let begins = !ctx.client.in_exec && !ctx.server.scripts.is_running();
    if begins && ctx.server.clients.has_own_messages() && ctx.client.options.reply_mode == ReplyMode::On {
        tell_running(ctx);
        ctx.take_own_messages();
        ctx.reply.begin_here();
    }
}

/// Some client tracks, and a command was run: what it has read is remembered if it was one of theirs.
#[cold]
pub fn remember(command: &Command, ctx: &mut Ctx<'_>) {
    let Some(of) = ctx.server.clients.tracking.of(ctx.client.id) else { return };
    // Of a script the keys are remembered that its commands read.
    let reads =
        command.spec.has(READONLY) && !command.spec.has(PUBSUB) && command.spec.group != CommandGroup::Scripting;
    if reads && of.remembers() && !ctx.server.scripts.is_running() {
        remember_keys(ctx, command);
    }
    if !ctx.client.in_exec {
        end_choice(ctx);
    }
}

/// A script of the client has run a command that reads.
#[cold]
pub fn remember_in_script(command: &Command, ctx: &mut Ctx<'_>) {
    if ctx.server.clients.tracking.of(ctx.client.id).is_some_and(|of| of.remembers()) {
        remember_keys(ctx, command);
    }
}

fn remember_keys(ctx: &mut Ctx<'_>, command: &Command) {
    let mut most_evicted = LEAST_EVICTED;
    for at in command.spec.key_positions(ctx.args) {
        most_evicted += 2;
        let displaced = ctx.server.clients.tracking.keys.remember(ctx.args.at(at), ctx.client.id);
        if let Some(displaced) = displaced {
            tell_evicted(ctx.server, displaced);
        }
    }
    bound_table(ctx.server, most_evicted);
}

/// A request has ended: what CLIENT CACHING has said holds no longer, but while a transaction is put together.
#[cold]
pub fn end_choice(ctx: &mut Ctx<'_>) {
    if ctx.client.multi.is_none()
        && !ctx.args.is(0, CLIENT)
        && let Some(of) = ctx.server.clients.tracking.of_mut(ctx.client.id)
    {
        of.caching_given = false;
    }
}

/// A request is about to run, or to be queued: what is in the table beyond its limit, which may have been lowered since, leaves it before,
/// and the client is told of that ahead of the reply, as in Redis.
#[cold]
pub fn bound_before(ctx: &mut Ctx<'_>) {
    bound_table(ctx.server, LEAST_EVICTED);
    tell_before_reply(ctx);
}

/// Removes random keys while the table has more than it may, but not more than so many; true if it still has.
fn bound_table(state: &mut ServerState, most: usize) -> bool {
    let limit_keys = match state.config.maxmemory.tracking_max_keys {
        0 => u64::MAX,
        keys => keys,
    };
    let limit_bytes = state.client_memory_limit_bytes() / TABLE_MEMORY_PART;
    let exceeds = |state: &ServerState| {
        let keys = &state.clients.tracking.keys;
        !keys.is_empty() && (keys.len() as u64 > limit_keys || keys.memory_bytes() as u64 > limit_bytes)
    };
    for _ in 0..most {
        if !exceeds(state) {
            return false;
        }
        if let Some(evicted) = state.clients.tracking.keys.take_any() {
            tell_evicted(state, evicted);
        }
    }
    exceeds(state)
}

/// A key was taken out of the table: its changes would be told to none of the clients that may have it.
fn tell_evicted(state: &mut ServerState, evicted: TrackedKey) {
    let keys = InvalidKeys::One(evicted.key);
    for id in evicted.clients {
        tell_reader(state, id, &keys);
    }
}

/// A step between requests; true if there is more to do.
pub fn step(state: &mut ServerState) -> bool {
    let more = state.clients.tracking.keys.free(FREE_BUDGET);
    more | bound_table(state, LEAST_EVICTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_does_not_loop_is_not_told_of_its_own_changes() {
        let changed: BTreeMap<Box<[u8]>, u64> =
            [("a", 1), ("b", 2), ("c", 0)].map(|(key, by)| (Box::from(key.as_bytes()), by)).into();
        let text = |client| {
            let keys = changed_but_by(&changed, client)?;
            Some(String::from_utf8(keys.encoded(Protocol::Resp2).into_owned()).unwrap())
        };
        assert_eq!(text(None).unwrap(), "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n");
        assert_eq!(text(Some(2)).unwrap(), "*2\r\n$1\r\na\r\n$1\r\nc\r\n");
        assert_eq!(changed_but_by(&[(Box::from(&b"a"[..]), 7)].into(), Some(7)), None);
    }
}
