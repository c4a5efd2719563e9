//! Eviction: what makes room when the data has outgrown `maxmemory`.
//!
//! Before a command that may need memory, memory that waits to be freed is freed and keys are evicted until the data is within the
//! limit, for as long as `maxmemory-eviction-tenacity` allows; the rest is done in steps between commands. While these go on, commands
//! run, but the data must not run away from them: a command that needs memory waits its turn when the data has grown by more than a
//! sixteenth of the limit beyond what it was when the steps began.
//!
//! Relies on the store to choose the key (`evict_key`), and to note its end for the log (as DEL) and for notifications.

use std::time::{Duration, Instant};

use quire_store::{Store, StoreError};

use crate::config::Config;
use crate::ctx::Ctx;
use crate::eviction_state::RoomState;
use crate::state::ServerState;
use crate::table::WRITE;
use crate::{invalidation, notifications};

/// Objects that are freed between two looks at the memory.
const RECLAIM_BUDGET: usize = 512;
/// Up to this tenacity, 50 microseconds each.
const USUAL_TENACITY: u32 = 10;
/// At this one, however long it takes.
const MOST_TENACITY: u32 = 100;
/// The event of the latency monitor.
const EVICTION_CYCLE: &str = "eviction-cycle";

/// How long a command may make room.
fn share(tenacity: u32) -> Duration {
    match tenacity {
        0..=USUAL_TENACITY => Duration::from_micros(50 * u64::from(tenacity)),
        MOST_TENACITY.. => Duration::MAX,
        // Up to about two minutes, as in Redis.
        more => Duration::from_secs_f64(500e-6 * 1.15_f64.powi((more - USUAL_TENACITY) as i32)),
    }
}

/// Whether a command that may need memory is refused for lack of it.
#[inline]
pub fn lacks_room(ctx: &mut Ctx<'_>, flags: u32) -> bool {
    let limit_bytes = ctx.server.config.maxmemory.limit_bytes;
    limit_bytes > 0
        && (ctx.server.memory_bytes(ctx.store) > limit_bytes || ctx.server.steps.eviction.is_exceeded())
        && lacks_room_still(ctx, flags)
}

#[cold]
fn lacks_room_still(ctx: &mut Ctx<'_>, flags: u32) -> bool {
    let stopped = may_not_evict(ctx.server) || ctx.server.log_state.writes_stopped && flags & WRITE != 0;
    if stopped && ctx.server.config.maxmemory.policy.is_some() {
        // The command waits, or is refused for another reason.
        return false;
    }
    let room = make_room(ctx.store, ctx.server);
    invalidation::tell_before_reply(ctx);
    if room != RoomState::Lacking {
        return false;
    }
    // A copy that was admitted isn't refused for the memory that it has taken itself; all other requests are.
    let (used_bytes, limit_bytes) = (ctx.server.memory_bytes(ctx.store), ctx.server.config.maxmemory.limit_bytes);
    used_bytes > limit_bytes && used_bytes.saturating_sub(ctx.store.copied_bytes(ctx.client.id)) > limit_bytes
}

/// Keys stay while clients that write are paused, where none may, and while the log has no room for their removal.
fn may_not_evict(server: &ServerState) -> bool {
    server.holds_expired()
}

/// Frees memory until the data is within the limit, or time is up.
pub fn make_room(store: &mut Store, server: &mut ServerState) -> RoomState {
    let (began, share) = (Instant::now(), share(server.config.maxmemory.tenacity));
    let limit_bytes = server.config.maxmemory.limit_bytes;
    let is_within = |server: &ServerState, store: &Store| limit_bytes == 0 || server.memory_bytes(store) <= limit_bytes;
    let room = loop {
        if is_within(server, store) {
            break RoomState::Enough;
        }
        match free_some(store, &server.config) {
            Ok(true) if is_within(server, store) => break RoomState::Enough,
            Ok(true) if began.elapsed() >= share => break RoomState::Making,
            Ok(true) => {}
            Ok(false) => break RoomState::Lacking,
            Err(error) => {
                tracing::error!(%error, "cannot evict keys");
                break RoomState::Lacking;
            }
        }
    };
    let used_bytes = server.memory_bytes(store);
    server.steps.eviction.note(room, used_bytes, limit_bytes);
    if store.has_key_events() {
        notifications::tell_gone(store, server);
    }
    let took_ms = began.elapsed().as_millis() as u64;
    if server.config.latency.threshold_ms > 0 && took_ms >= server.config.latency.threshold_ms {
        let unix_s = server.unix_s();
        server.monitoring.latency.record(EVICTION_CYCLE, unix_s, took_ms);
    }
    room
}

/// Frees some of what waits to be freed, which costs no key; evicts one only if nothing does. False if no key may go.
fn free_some(store: &mut Store, config: &Config) -> Result<bool, StoreError> {
    if store.reclaim_step(RECLAIM_BUDGET)? > 0 {
        return Ok(true);
    }
    match config.maxmemory.policy {
        None => Ok(false),
        Some(policy) => quire_store::evict_key(store, policy, config.maxmemory.samples as usize),
    }
}

/// Looks whether the data has outgrown the limit without a command that needs memory: by a lower limit, or by what clients hold.
pub fn look(store: &mut Store, server: &mut ServerState) {
    let (used_bytes, limit_bytes) = (server.memory_bytes(store), server.config.maxmemory.limit_bytes);
    let exceeds = limit_bytes > 0 && used_bytes > limit_bytes;
    let evicts = exceeds && server.config.maxmemory.policy.is_some() && !may_not_evict(server);
    if evicts {
        server.steps.eviction.begin(used_bytes, limit_bytes);
    } else if !exceeds && server.steps.eviction.is_exceeded() {
        make_room(store, server);
    } else {
        server.steps.eviction.pause();
    }
}

/// A turn of the loop ends: if its commands have made the data outgrow the limit, steps begin at once, so that clients hear of keys that go
/// before what they ask for next.
#[inline]
pub fn notice(store: &Store, server: &mut ServerState) {
    let limit_bytes = server.config.maxmemory.limit_bytes;
    if limit_bytes > 0 && !server.steps.eviction.is_exceeded() && !server.steps.eviction.is_running() {
        let used_bytes = server.memory_bytes(store);
        if used_bytes > limit_bytes && server.config.maxmemory.policy.is_some() && !may_not_evict(server) {
            server.steps.eviction.begin(used_bytes, limit_bytes);
        }
    }
}

/// Makes some room between commands; true if there is more to do.
pub fn step(store: &mut Store, server: &mut ServerState) -> bool {
    if !server.steps.eviction.is_running() {
        return false;
    }
    if may_not_evict(server) {
        server.steps.eviction.pause();
        return false;
    }
    make_room(store, server) == RoomState::Making
}

/// Has another limit or policy take effect.
pub fn limit_changed(store: &mut Store, server: &mut ServerState) {
    store.set_access_counting(server.config.maxmemory.access_counting());
    let (used_bytes, limit_bytes) = (server.memory_bytes(store), server.config.maxmemory.limit_bytes);
    if limit_bytes > 0 && used_bytes > limit_bytes {
        tracing::warn!(
            used_bytes,
            limit_bytes,
            "the data has outgrown maxmemory: keys are evicted or writes refused, as maxmemory-policy says"
        );
    }
    look(store, server);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use quire_store::{DbId, StoreConfig, ValueType};

    use super::*;
    use crate::acl::Login;
    use crate::args::{ArgRange, Args};
    use crate::client::Client;
    use crate::dispatch;
    use crate::registry::Registry;
    use crate::resp::Reply;
    use crate::specs;

    /// The most that one of the requests below adds: its value, twice while it is replaced, and a table that grows.
    const MOST_GROWTH_BYTES: u64 = 32 * 1024;
    const OOM: &[u8] = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n";

    /// A server without sockets.
    struct Limited {
        registry: Registry,
        store: Store,
        server: ServerState,
        client: Client,
    }

    impl Limited {
        fn new(settings: &[(&str, &str)], room_bytes: u64) -> Self {
            let mut store = Store::create(StoreConfig { seed: Some(1), ..StoreConfig::default() }).unwrap();
            let mut config = Config::default();
            settings.iter().for_each(|(name, value)| config.set(name, value).unwrap());
            store.set_now_ms(1_767_225_600_000);
            store.set_access_counting(config.maxmemory.access_counting());
            let mut server = ServerState::new(config);
            server.config.maxmemory.limit_bytes = server.memory_bytes(&store) + room_bytes;
            let mut client = Client::new(1, String::new(), String::new(), 0);
            client.login = Login::unrestricted();
            Self { registry: Registry::build(specs::ALL), store, server, client }
        }

        fn run(&mut self, line: &str) -> Vec<u8> {
            let mut ranges = Vec::new();
            for word in line.split(' ') {
                let start = word.as_ptr() as usize - line.as_ptr() as usize;
                ranges.push(ArgRange { start: start as u32, len: word.len() as u32 });
            }
            let args = Args::new(line.as_bytes(), &ranges);
            let found = self.registry.find(args.at(0)).map(|command| command.id);
            let mut reply = Reply::default();
            let (store, server, client) = (&mut self.store, &mut self.server, &mut self.client);
            dispatch::run(&self.registry, found, &mut Ctx { store, server, client, args, reply: &mut reply });
            reply.as_bytes().to_vec()
        }

        fn used_bytes(&self) -> u64 {
            self.server.memory_bytes(&self.store)
        }
    }

    fn request() -> impl Strategy<Value = String> {
        let lines = vec![
            "SET k v",
            "SET k v",
            "SET k v EX 1000",
            "SET k v EX 1000",
            "APPEND k v",
            "SADD s v",
            "RPUSH l v v",
            "HSET h v v",
            "ZADD z 1 v",
            "EXPIRE s 100",
            "EXPIRE k 100",
            "PERSIST k",
            "GET k",
            "DEL k",
            "GETSET k v",
            "SMEMBERS s",
            "FLUSHALL",
        ];
        (prop::sample::select(lines), 0..300u32, 0..4000usize).prop_map(|(line, key, len)| {
            let word = |word: &str| match word {
                "k" | "s" | "l" | "h" | "z" => format!("{word}{}", key % if word == "k" { 300 } else { 5 }),
                "v" => format!("{key}{}", "x".repeat(len)),
                fixed => fixed.to_owned(),
            };
            line.split(' ').map(word).collect::<Vec<_>>().join(" ")
        })
    }

    fn keys(store: &Store) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        store.for_each_key(DbId(0), &mut |key, _: ValueType| keys.push(key.to_vec())).unwrap();
        keys
    }

    /// Keys without a time to live.
    fn lasting(store: &mut Store) -> Vec<Vec<u8>> {
        let mut keys = keys(store);
        keys.retain(|key| store.expiry(DbId(0), key).unwrap() == Some(None));
        keys
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn the_data_never_exceeds_the_limit_by_more_than_one_command_adds(
            (policy, _) in prop::sample::select(crate::config::EVICTION_POLICIES),
            requests in prop::collection::vec(request(), 1..400),
            room_kib in 20..500u64,
        ) {
            // However long it takes, so that the outcome depends on no clock.
            let settings = [("maxmemory-policy", policy), ("maxmemory-eviction-tenacity", "100")];
            let mut server = Limited::new(&settings, room_kib * 1024);
            let most_bytes = server.server.config.maxmemory.limit_bytes + MOST_GROWTH_BYTES;
            for line in requests {
                let before = lasting(&mut server.store);
                let reply = server.run(&line);
                let flushes = line == "FLUSHALL";
                if reply == OOM {
                    let used_bytes = server.used_bytes();
                    prop_assert!(used_bytes > server.server.config.maxmemory.limit_bytes, "{} at {}", line, used_bytes);
                    prop_assert!(!policy.starts_with("allkeys"), "{} left", keys(&server.store).len());
                    prop_assert!(policy == "noeviction" || lasting(&mut server.store) == keys(&server.store));
                } else {
                    prop_assert!(server.used_bytes() <= most_bytes, "{} after {:.20}", server.used_bytes(), line);
                }
                if policy.starts_with("volatile") && !flushes && !line.starts_with("DEL") {
                    // Only the command itself may have made a key go.
                    let named = line.split(' ').nth(1).unwrap_or_default().as_bytes();
                    let left = keys(&server.store);
                    let lost = before.iter().find(|key| **key != named && !left.contains(key));
                    prop_assert!(lost.is_none(), "{:?} after {:.20}", lost, line);
                }
            }
        }
    }

    #[test]
    fn a_share_of_time_follows_the_tenacity() {
        for (tenacity, least_us, most_us) in
            [(0, 0, 0), (1, 50, 50), (10, 500, 500), (11, 574, 576), (99, 100_000_000, 130_000_000)]
        {
            let us = share(tenacity).as_micros();
            assert!((least_us..=most_us).contains(&us), "{us} at {tenacity}");
        }
        assert_eq!(share(100), Duration::MAX);
    }
}
