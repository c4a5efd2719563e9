//! Target `restored_values`: any bytes, restored as the payload of DUMP, are refused, or give a key that the commands of all types can be used on.
//!
//! Relies on the server's own commands, run as the replay of a log runs them, without sockets. The input is a payload's value; it gets
//! the version and the checksum that it should have. The promise: what is taken is sound, is dumped and restored again as the same value,
//! stays sound whatever is done with it, and no command panics.

use quire_rdb::checksum;
use quire_server::acl::Login;
use quire_server::client::{Client, LOG_CLIENT};
use quire_server::config::Config;
use quire_server::ctx::{ArgRange, Args, Ctx};
use quire_server::registry::{self, Registry};
use quire_server::resp::Reply;
use quire_server::state::ServerState;
use quire_server::{dispatch, specs};
use quire_store::{DbId, Store};

use crate::{contents, rdb};

const ZERO: DbId = DbId(0);
/// The version in a payload's last bytes, and how many these are with its checksum.
const VERSION: u16 = 10;
const FOOTER_BYTES: usize = 10;
/// Commands that compare all of a value with all of it are left out for payloads that are larger.
const MOST_TO_COMPARE: usize = 2048;

/// The key that is restored.
const KEY: &str = "K";

#[rustfmt::skip] // by type
const READS: &[&str] = &[
    "TYPE K", "EXISTS K", "TTL K", "OBJECT ENCODING K", "OBJECT IDLETIME K", "MEMORY USAGE K", "DEBUG OBJECT K", "SCAN 0 MATCH K COUNT 9", "RANDOMKEY",
    "GET K", "STRLEN K", "GETRANGE K 1 -2", "BITCOUNT K", "BITPOS K 1", "GETBIT K 7", "BITFIELD_RO K GET i5 3", "PFCOUNT K", "MGET K K",
    "LLEN K", "LRANGE K 0 -1", "LINDEX K -1", "LPOS K b COUNT 0 RANK -1",
    "SCARD K", "SMEMBERS K", "SISMEMBER K a", "SMISMEMBER K 1 b", "SRANDMEMBER K 5", "SRANDMEMBER K -5", "SINTER K K", "SUNION K K", "SDIFF K none",
    "SINTERCARD 2 K K LIMIT 3", "SSCAN K 0 COUNT 5",
    "HLEN K", "HGETALL K", "HKEYS K", "HVALS K", "HGET K a", "HMGET K a b", "HEXISTS K a", "HSTRLEN K a", "HRANDFIELD K 5 WITHVALUES", "HRANDFIELD K -5", "HSCAN K 0 COUNT 5",
    "HTTL K FIELDS 1 a", "HPTTL K FIELDS 2 a b", "HEXPIRETIME K FIELDS 1 a", "HPEXPIRETIME K FIELDS 2 a none",
    "ZCARD K", "ZRANGE K 0 -1 WITHSCORES", "ZREVRANGE K 1 5", "ZRANGEBYSCORE K -inf (3 LIMIT 1 4", "ZREVRANGEBYSCORE K +inf 1", "ZRANGEBYLEX K [a +", "ZREVRANGEBYLEX K + -",
    "ZCOUNT K 0 +inf", "ZLEXCOUNT K - (b", "ZSCORE K a", "ZMSCORE K a b", "ZRANK K a", "ZREVRANK K b", "ZRANDMEMBER K 5 WITHSCORES", "ZRANDMEMBER K -5", "ZSCAN K 0 COUNT 5",
    "ZUNION 2 K K WITHSCORES", "ZINTER 1 K", "ZDIFF 2 K none", "ZINTERCARD 1 K",
    "GEOPOS K a b", "GEOHASH K a", "GEODIST K a b", "GEOSEARCH K FROMLONLAT 1 1 BYRADIUS 30000 km WITHDIST", "GEORADIUSBYMEMBER_RO K a 300 km",
    "XLEN K", "XRANGE K - +", "XREVRANGE K + - COUNT 5", "XREAD COUNT 5 STREAMS K 0", "XINFO STREAM K", "XINFO STREAM K FULL COUNT 0", "XINFO GROUPS K",
    "XINFO CONSUMERS K first", "XPENDING K first", "XPENDING K first - + 10", "XPENDING K first - + 10 consumer",
    "SORT_RO K ALPHA DESC", "SORT_RO K BY nosort GET #", "SORT_RO K LIMIT 1 5", "DUMP K", "DEBUG DIGEST-VALUE K",
];
const COMPARISONS: &[&str] = &["LCS K K IDX", "LCS K K LEN"];

#[rustfmt::skip] // by type
const WRITES: &[&str] = &[
    "COPY K copy REPLACE", "RENAME K other", "RENAME other K", "MOVE K 1", "MOVE none 1", "COPY copy K REPLACE", "EXPIRE K 1000", "PERSIST K",
    "APPEND K x", "SETRANGE K 3 abc", "SETBIT K 9 1", "BITFIELD K INCRBY i7 3 60 SET u16 #2 65535", "BITOP NOT bits K", "INCRBY K 3", "INCRBYFLOAT K 0.5", "PFADD K a b c", "PFMERGE merged K",
    "LPUSH K a", "RPUSH K b 12", "LPOP K", "RPOP K 2", "LSET K 0 z", "LINSERT K BEFORE z y", "LREM K -1 b", "LMOVE K K LEFT RIGHT", "LTRIM K 1 100", "LMPOP 1 K LEFT COUNT 2",
    "SADD K a 7 90000", "SREM K b 1", "SMOVE K moved a", "SPOP K 2", "SUNIONSTORE united K K", "SDIFFSTORE less K moved",
    "HSET K a 1 new v", "HINCRBY K n 7", "HINCRBYFLOAT K n 0.5", "HDEL K b", "HSETNX K a 2",
    "HEXPIRE K 1000 FIELDS 2 a b", "HPEXPIREAT K 1500000 NX FIELDS 2 n new", "HPEXPIRE K 5000 GT FIELDS 1 a", "HEXPIREAT K 1 FIELDS 1 b", "HPERSIST K FIELDS 1 a",
    "ZADD K 1 a 2.5 new", "ZADD K GT CH 9 a", "ZINCRBY K 1 b", "ZREM K b", "ZPOPMIN K", "ZPOPMAX K 2", "ZUNIONSTORE summed 2 K K WEIGHTS 2 1", "ZRANGESTORE part K 0 5",
    "ZREMRANGEBYRANK K 0 1", "ZREMRANGEBYSCORE K 5 6", "ZREMRANGEBYLEX K [x [y", "GEOADD K 1 1 a", "GEOSEARCHSTORE near K FROMLONLAT 1 1 BYBOX 900 900 km",
    "XADD K * a b", "XADD K MAXLEN ~ 100 * a b c d", "XREADGROUP GROUP first consumer COUNT 5 STREAMS K >", "XREADGROUP GROUP first consumer STREAMS K 0", "XACK K first 1-0 1005-15",
    "XCLAIM K first other 0 1-0 1006-18 FORCE", "XAUTOCLAIM K first other 0 0 COUNT 9", "XGROUP CREATE K third 0", "XGROUP CREATECONSUMER K third c", "XGROUP SETID K first 5",
    "XGROUP DELCONSUMER K first consumer", "XGROUP DESTROY K second", "XDEL K 1-0 1010-30", "XTRIM K MAXLEN 5", "XSETID K 99999999999999-0",
    "SORT K ALPHA STORE sorted", "GETEX K", "SWAPDB 0 1", "SWAPDB 0 1",
];

/// Restores a value and uses it.
pub fn run(data: &[u8]) {
    let Some(mut server) = InProcessServer::new() else { return };
    let payload = with_footer(data);
    let reply = server.words(&[b"RESTORE", KEY.as_bytes(), b"0", &payload]);
    if reply != b"+OK\r\n" {
        assert_eq!(reply.first(), Some(&b'-'), "RESTORE gives an error or OK");
        assert_eq!(server.line("EXISTS K"), b":0\r\n", "a refused value leaves no key");
        return;
    }
    server.check("restored");
    for line in READS {
        server.line(line);
    }
    if data.len() <= MOST_TO_COMPARE {
        COMPARISONS.iter().for_each(|line| drop(server.line(line)));
    }
    server.check("read");
    restore_again(&mut server);
    for line in WRITES {
        server.line(line);
    }
    server.check("changed");
    server.store.set_now_ms(10_000_000);
    while server.store.expire_step(10_000).expect("what is sound can be searched").expired > 0 {}
    server.check("searched");
    server.store.digest().expect("all that came of it is sound");
    server.line("DEL K");
    server.line("FLUSHALL");
    for _ in 0..1000 {
        if server.store.reclaim_step(1000).expect("what was sound can be freed") == 0 {
            break;
        }
    }
}

/// What is dumped is the same value when it is restored, but for fields whose time has come, which are in no payload.
fn restore_again(server: &mut InProcessServer) {
    let mut steps_without = 0;
    while steps_without < 20 {
        let expired = server.store.expire_step(10_000).expect("what is sound can be searched").expired;
        steps_without = if expired == 0 { steps_without + 1 } else { 0 };
    }
    if server.line("EXISTS K") == b":0\r\n" {
        return;
    }
    let payload = server.dump(KEY.as_bytes()).expect("a sound value can be dumped");
    assert_eq!(server.words(&[b"RESTORE", b"again", b"0", &payload]), b"+OK\r\n", "what was dumped is refused");
    let digest = |server: &mut InProcessServer, key: &str| server.line(&format!("DEBUG DIGEST-VALUE {key}"));
    assert_eq!(digest(server, "again"), digest(server, KEY), "another value is restored than was dumped");
    server.line("DEL again");
}

fn with_footer(value: &[u8]) -> Vec<u8> {
    let mut payload = [value, &VERSION.to_le_bytes()].concat();
    payload.extend_from_slice(&checksum(&payload).to_le_bytes());
    payload
}

/// A store and what commands need beside it.
struct InProcessServer {
    registry: &'static Registry,
    store: Store,
    state: ServerState,
    client: Client,
    reply: Reply,
}

impl InProcessServer {
    fn new() -> Option<Self> {
        let store = Store::create(contents::store_config()).ok()?;
        Some(Self::over(store))
    }

    fn over(mut store: Store) -> Self {
        store.set_now_ms(1_000_000);
        let mut state = ServerState::new(Config::default());
        state.config.enable_debug_command = "yes".to_owned();
        let mut client = Client::new(LOG_CLIENT, "fuzzer".to_owned(), String::new(), 0);
        client.login = Login::unrestricted();
        // As in a transaction: no command waits, and none is done in steps.
        client.in_exec = true;
        Self { registry: registry::install(specs::ALL), store, state, client, reply: Reply::default() }
    }

    /// Runs a command of words between blanks.
    fn line(&mut self, line: &str) -> Vec<u8> {
        self.words(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>())
    }

    /// Runs a command; its reply.
    fn words(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let buffer = words.concat();
        let mut ranges = Vec::with_capacity(words.len());
        let mut start = 0;
        for word in words {
            ranges.push(ArgRange { start, len: word.len() as u32 });
            start += word.len() as u32;
        }
        let args = Args::new(&buffer, &ranges);
        let found = self.registry.find(words[0]).map(|command| command.id);
        assert!(found.is_some(), "there is no command {}", words[0].escape_ascii());
        let Self { registry, store, state, client, reply } = self;
        dispatch::run(registry, found, &mut Ctx { store, server: state, client, args, reply });
        self.reply.take()
    }

    /// The payload of a key.
    fn dump(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let reply = self.words(&[b"DUMP", key]);
        let body = reply.strip_prefix(b"$")?;
        let head = body.windows(2).position(|two| two == b"\r\n")?;
        body.get(head + 2..body.len() - 2).map(<[u8]>::to_vec)
    }

    fn check(&mut self, when: &str) {
        let checked = self.store.check_value(ZERO, KEY.as_bytes());
        assert!(checked.is_ok(), "{when}, the value is not sound: {checked:?}");
    }
}

/// The values of a store with all types and encodings, as they are dumped, and the packed forms that are only read.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut server = InProcessServer::over(contents::filled_store());
    let keys = [
        "number",
        "string:1",
        "string:3",
        "small",
        "large",
        "ints",
        "words",
        "members",
        "row",
        "chain",
        "ranks",
        "tree",
        "events",
        "log",
        "expiring",
        "few expire",
    ];
    server.line("PFADD visitors a b c d e f g");
    server.line("GEOADD places 13.361389 38.115556 a 15.087269 37.502669 b");
    server.line("SETRANGE bits 300 x");
    let mut seeds = Vec::new();
    for key in keys.into_iter().chain(["visitors", "places", "bits"]) {
        let payload = server.dump(key.as_bytes()).unwrap_or_else(|| panic!("{key} is not there"));
        seeds.push(payload[..payload.len() - FOOTER_BYTES].to_vec());
    }
    // A first byte tells that target a value from a file.
    seeds.extend(rdb::seeds().into_iter().filter(|seed| seed[0] != 0).map(|seed| seed[1..].to_vec()));
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_all_types_are_restored_and_no_command_is_unknown() {
        let mut types = std::collections::BTreeSet::new();
        for seed in seeds() {
            run(&seed);
            let mut server = InProcessServer::new().unwrap();
            server.words(&[b"RESTORE", KEY.as_bytes(), b"0", &with_footer(&seed)]);
            types.insert(server.line("TYPE K"));
        }
        let names = types.iter().map(|reply| String::from_utf8_lossy(reply).trim().to_owned()).collect::<Vec<_>>();
        assert_eq!(names, ["+hash", "+list", "+none", "+set", "+stream", "+string", "+zset"]);
    }

    #[test]
    fn every_command_of_the_lists_does_something_on_a_value_of_some_type() {
        let mut refused: Vec<&str> = READS.iter().chain(COMPARISONS).chain(WRITES).copied().collect();
        for seed in seeds() {
            let (mut server, payload) = (InProcessServer::new().unwrap(), with_footer(&seed));
            refused.retain(|line| {
                server.line("FLUSHALL");
                server.words(&[b"RESTORE", KEY.as_bytes(), b"0", &payload]);
                server.line(line).starts_with(b"-")
            });
        }
        // These need what the ones before them have made.
        refused.retain(|line| !["RENAME other K", "XGROUP CREATECONSUMER K third c"].contains(line));
        assert!(refused.is_empty(), "for every seed these are refused: {refused:?}");
    }
}
