//! What the log brings back: after a restart the data is the same, whichever commands made it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use quire_device::{Directory, MemoryDirectory};
use quire_rng::SplitMix64;
use quire_server::specs;
use quire_server::table::WRITE;
use quire_wal::{DirectoryScan, Log, LogIdentity, LogOptions};

use crate::common::{Client, Running, eventually, start_in, start_within};

const KEYS: u64 = 12;
const DATABASES: u64 = 3;
/// Before the keys of strings, hashes, sets, lists, sorted sets, HyperLogLogs and streams.
const PREFIXES: [&str; 7] = ["", "h", "t", "l", "z", "p", "x"];
/// Streams that have a group, and how far back in all entries a command looks for some.
const STREAMS: u64 = 2;
const RECENT_ENTRIES: u64 = 40;

fn logging(dir: &Path) -> Running {
    start_in(dir, &[("appendonly", "yes"), ("appendfsync", "no"), ("log-segment-bytes", "1mb")])
}

/// The number of the last record.
fn appended(client: &mut Client) -> String {
    let text = client.text("INFO persistence");
    text.lines().find(|line| line.starts_with("log_appended_record:")).expect("there is a log").to_owned()
}

/// Arguments that are the same in every run.
struct RandomArgs {
    rng: SplitMix64,
    /// Entries that were added to streams.
    entries: u64,
}

impl RandomArgs {
    fn below(&mut self, bound: u64) -> u64 {
        self.rng.below(bound)
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len() as u64) as usize]
    }

    fn key(&mut self) -> String {
        format!("k{}", self.below(KEYS))
    }

    fn field(&mut self) -> String {
        format!("f{}", self.below(200))
    }

    fn value(&mut self) -> String {
        match self.below(4) {
            0 => self.below(1000).to_string(),
            1 => format!("{}.25", self.below(50)),
            2 => "x".repeat(self.below(3000) as usize + 1),
            _ => format!("v{}", self.below(1 << 40)),
        }
    }

    /// Enough fields that some are there, as commands on times to live of fields name them.
    fn fields(&mut self) -> String {
        format!("FIELDS 30 {}", (0..30).map(|_| self.field()).collect::<Vec<_>>().join(" "))
    }

    /// Numbers and words, so that sets change their encoding.
    fn member(&mut self) -> String {
        let number = self.below(12);
        if self.below(3) == 0 { format!("member{number}") } else { number.to_string() }
    }

    fn stream(&mut self) -> String {
        format!("xk{}", self.below(STREAMS))
    }

    /// IDs of entries that were added lately, to any stream.
    fn entry_ids(&mut self) -> String {
        let ids = (0..12).map(|_| format!("{}-1", self.entries.saturating_sub(self.below(RECENT_ENTRIES)) + 1));
        ids.collect::<Vec<_>>().join(" ")
    }

    /// A time to live: over before the test is, or long after.
    fn millis(&mut self) -> u64 {
        if self.below(2) == 0 { 1 + self.below(4) } else { 1_000_000 + self.below(1_000_000) }
    }
}

/// The words that follow a command's name; `None` for a command that this test doesn't know.
fn arguments(name: &str, random: &mut RandomArgs, now_ms: u64) -> Option<String> {
    let (key, other, prefix) = (random.key(), random.key(), PREFIXES[random.below(PREFIXES.len() as u64) as usize]);
    let any = format!("{prefix}{key}");
    let later = |random: &mut RandomArgs| now_ms + random.millis();
    Some(match name {
        "append" | "getset" | "setnx" => format!("{key} {}", random.value()),
        "incr" | "decr" | "getdel" => key,
        "persist" => any,
        "incrby" | "decrby" => format!("{key} {}", random.below(1000)),
        "incrbyfloat" => format!("{key} {}", random.pick(&["0.1", "-1.5e3", "3", "1e-7"])),
        "del" | "unlink" => format!("{key} {any}"),
        "mset" | "msetnx" => format!("{key} {} {other} {}", random.value(), random.value()),
        "set" => {
            let option = match random.below(8) {
                0 => format!(" PX {}", random.millis()),
                1 => format!(" EX {}", 1 + random.below(3) * 1_000_000),
                2 => format!(" PXAT {}", later(random)),
                3 => format!(" EXAT {}", later(random) / 1000),
                4 => " KEEPTTL GET".to_owned(),
                5 => " NX".to_owned(),
                6 => " XX GET".to_owned(),
                _ => String::new(),
            };
            format!("{key} {}{option}", random.value())
        }
        "getex" => {
            let option = match random.below(4) {
                0 => format!(" PX {}", random.millis()),
                1 => format!(" PXAT {}", later(random)),
                2 => " PERSIST".to_owned(),
                _ => String::new(),
            };
            format!("{key}{option}")
        }
        "setex" => format!("{key} {} {}", 1 + random.below(2) * 1_000_000, random.value()),
        "psetex" => format!("{key} {} {}", random.millis(), random.value()),
        "expire" => {
            format!("{any} {} {}", random.pick(&["1000000", "-1", "2000000"]), random.pick(&["NX", "XX", "GT", "LT"]))
        }
        "pexpire" => format!("{any} {}", random.millis()),
        "expireat" => format!("{any} {}", later(random) / 1000),
        "pexpireat" => format!("{any} {}", later(random)),
        "setrange" => format!("{key} {} {}", random.below(100), random.value()),
        "setbit" => format!("{key} {} {}", random.below(5000), random.below(2)),
        "bitfield" => format!("{key} SET u8 {} {} INCRBY i5 3 1", random.below(100), random.below(256)),
        "pfadd" => format!("p{key} {} {} {}", random.member(), random.value(), random.field()),
        "pfmerge" => format!("p{key} p{other}"),
        "pfdebug" => format!("TODENSE p{key}"),
        "bitop" => format!("{} {key} {other} {}", random.pick(&["AND", "OR", "XOR"]), random.key()),
        "copy" => format!("{prefix}{key} {prefix}{other} DB {} REPLACE", random.below(DATABASES)),
        "move" => format!("{any} {}", random.below(DATABASES)),
        "rename" | "renamenx" => format!("{prefix}{key} {prefix}{other}"),
        "swapdb" => format!("{} {}", random.below(DATABASES), random.below(DATABASES)),
        // Not so often that nothing is ever there.
        "flushdb" | "flushall" if random.below(12) > 0 => return Some("NOSUCH".to_owned()),
        "flushdb" | "flushall" => random.pick(&["ASYNC", "SYNC"]).to_owned(),
        _ => return collection_arguments(name, random),
    })
}

/// The same for commands on hashes, sets and lists.
fn collection_arguments(name: &str, random: &mut RandomArgs) -> Option<String> {
    let (key, other) = (random.key(), random.key());
    let pairs = |random: &mut RandomArgs| {
        (0..1 + random.below(4)).map(|_| format!(" {} {}", random.field(), random.value())).collect::<String>()
    };
    Some(match name {
        "hset" | "hmset" => format!("h{key}{}", pairs(random)),
        "hsetnx" => format!("h{key} {} {}", random.field(), random.value()),
        "hdel" => format!("h{key} {}", (0..40).map(|_| random.field()).collect::<Vec<_>>().join(" ")),
        "hincrby" => format!("h{key} {} {}", random.field(), random.below(100)),
        "hincrbyfloat" => format!("h{key} {} 0.3", random.field()),
        // None of these is over before the test is, but for those that remove fields at once.
        "hexpire" => format!("h{key} {} {}", random.pick(&["0", "1000000"]), random.fields()),
        "hpexpire" => format!("h{key} 1000000000 {} {}", random.pick(&["NX", "XX", "GT", "LT"]), random.fields()),
        "hexpireat" => format!("h{key} 4000000000 {}", random.fields()),
        "hpexpireat" => format!("h{key} {} {}", 4_000_000_000_000 + random.below(1000), random.fields()),
        "hpersist" => format!("h{key} {}", random.fields()),
        "sadd" => format!("t{key} {} {} {}", random.member(), random.member(), random.member()),
        "srem" => format!("t{key} {}", (0..6).map(|_| random.member()).collect::<Vec<_>>().join(" ")),
        "spop" => format!("t{key}{}", random.pick(&["", "", " 3", " 100"])),
        "smove" => format!("t{key} t{other} {}", random.member()),
        "sinterstore" | "sunionstore" | "sdiffstore" => format!("t{other} t{key} t{}", random.key()),
        _ => return list_arguments(name, random),
    })
}

/// The same for commands on lists.
fn list_arguments(name: &str, random: &mut RandomArgs) -> Option<String> {
    let (key, other) = (random.key(), random.key());
    let end = |random: &mut RandomArgs| random.pick(&["LEFT", "RIGHT"]).to_owned();
    Some(match name {
        // Enough members that commands which look for one find it, however many commands take elements away.
        "lpush" | "rpush" => {
            format!("l{key} {} {} {} {}", random.member(), random.member(), random.member(), random.value())
        }
        "lpushx" | "rpushx" => format!("l{key} {}", random.value()),
        "lpop" | "rpop" => format!("l{key}{}", random.pick(&["", "", " 2", " 0"])),
        "lset" => format!("l{key} {} {}", random.below(4), random.value()),
        "linsert" => {
            format!("l{key} {} {} {}", random.pick(&["BEFORE", "AFTER"]), random.member(), random.value())
        }
        "lrem" => format!("l{key} {} {}", random.pick(&["0", "1", "-1"]), random.member()),
        "ltrim" => format!("l{key} {} {}", random.below(2), random.pick(&["-1", "-2", "40"])),
        "lmove" => format!("l{key} l{other} {} {}", end(random), end(random)),
        "rpoplpush" => format!("l{key} l{other}"),
        // The client of this test has to go on.
        "blpop" | "brpop" => format!("l{key} l{other} 0.001"),
        "blmove" => format!("l{key} l{other} {} {} 0.001", end(random), end(random)),
        "brpoplpush" => format!("l{key} l{other} 0.001"),
        "blmpop" => format!("0.001 2 l{key} l{other} {} COUNT {}", end(random), 1 + random.below(3)),
        "sort" => format!("l{key} ALPHA STORE l{other}"),
        "lmpop" => format!("2 l{key} l{other} {} COUNT {}", end(random), 1 + random.below(3)),
        _ => return sorted_set_arguments(name, random),
    })
}

/// The same for commands on sorted sets.
fn sorted_set_arguments(name: &str, random: &mut RandomArgs) -> Option<String> {
    let (key, other) = (random.key(), random.key());
    let score = |random: &mut RandomArgs| format!("{}.{}", random.below(100), random.below(1000));
    let pairs = |random: &mut RandomArgs| {
        (0..1 + random.below(4)).map(|_| format!(" {} {}", score(random), random.member())).collect::<String>()
    };
    Some(match name {
        "zadd" => format!("z{key} {}{}", random.pick(&["CH", "GT", "LT", "NX", "CH"]), pairs(random)),
        "zincrby" => format!("z{key} {} {}", score(random), random.member()),
        "zrem" => format!("z{key} {} {} {}", random.member(), random.member(), random.member()),
        "zpopmin" | "zpopmax" => format!("z{key}{}", random.pick(&["", "", " 2", " 0"])),
        "zmpop" => format!("2 z{key} z{other} {} COUNT {}", random.pick(&["MIN", "MAX"]), 1 + random.below(3)),
        "bzpopmin" | "bzpopmax" => format!("z{key} z{other} 0.001"),
        "bzmpop" => format!("0.001 2 z{key} z{other} {} COUNT {}", random.pick(&["MIN", "MAX"]), 1 + random.below(3)),
        "zremrangebyrank" => format!("z{key} {} {}", random.below(3), random.pick(&["3", "-5"])),
        "zremrangebyscore" => format!("z{key} {} {}", random.below(100), random.pick(&["(50", "+inf", "90"])),
        "zremrangebylex" => format!("z{key} {} {}", random.pick(&["-", "[5"]), random.pick(&["(7", "[9"])),
        "zrangestore" => format!("z{other} z{key} 0 {}", random.below(20)),
        "zunionstore" | "zinterstore" => {
            format!("z{other} 2 z{key} {}{} WEIGHTS 0.1 3", random.pick(&["z", "t"]), random.key())
        }
        "zdiffstore" => format!("z{other} 2 z{key} t{}", random.key()),
        "geoadd" => format!("z{key} {} {} {}", random.below(180), random.below(80), random.member()),
        "georadius" => format!("z{key} 15 37 22000 km STORE z{other}"),
        "georadiusbymember" => format!("z{key} {} 22000 km STORE z{other}", random.member()),
        "geosearchstore" => format!("z{other} z{key} FROMLONLAT 15 37 BYRADIUS 22000 km"),
        _ => return stream_arguments(name, random),
    })
}

/// The same for commands on streams.
fn stream_arguments(name: &str, random: &mut RandomArgs) -> Option<String> {
    let key = random.stream();
    Some(match name {
        "xadd" => {
            random.entries += 1;
            let entry = random.entries;
            format!("{key} {entry}-1 {} {}", random.field(), random.value())
        }
        "xtrim" => format!("{key} MAXLEN {}", random.below(2)),
        "xdel" => format!("{key} {}", random.entry_ids()),
        "xsetid" => format!("{key} {}-2", random.entries),
        "xreadgroup" => format!("GROUP g c{} COUNT 3 STREAMS {key} >", random.below(3)),
        "xack" => format!("{key} g {}", random.entry_ids()),
        "xclaim" => format!("{key} g c{} 0 {}", random.below(3), random.entry_ids()),
        "xautoclaim" => format!("{key} g c{} 0 0 COUNT 3", random.below(3)),
        _ => return None,
    })
}

/// The digest when all short times to live are over and nothing changes by itself any more.
fn settled_digest(client: &mut Client) -> String {
    eventually("short times to live are over", || {
        let mut left = 0;
        for db in 0..DATABASES {
            client.text(&format!("SELECT {db}"));
            for key in 0..KEYS {
                for prefix in PREFIXES {
                    let ttl_ms = client.call(&format!("PTTL {prefix}k{key}")).int();
                    left += u32::from((0..10_000).contains(&ttl_ms));
                }
            }
        }
        left == 0
    });
    client.text("DEBUG DIGEST")
}

/// Makes the groups that commands on streams name, where they are not there.
fn make_groups(client: &mut Client) {
    for stream in 0..STREAMS {
        client.call(&format!("XGROUP CREATE xk{stream} g 0 MKSTREAM"));
    }
}

#[test]
fn every_command_that_writes_comes_back_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let writes = specs::ALL.iter().copied().flatten().filter(|spec| spec.has(WRITE)).map(|spec| spec.name);
    // The payload of one is no text, the other needs a target; `dump.rs` and `migrate.rs` restart a server with them.
    let writes: Vec<&str> = writes.filter(|name| !["restore", "migrate"].contains(name)).collect();
    assert!(writes.len() > 30, "{writes:?}");
    let mut random = RandomArgs { rng: SplitMix64::new(0x5eed), entries: 0 };
    let mut effective = BTreeSet::new();
    for round in 0..3 {
        let server = logging(dir.path());
        let mut client = server.client();
        let now_ms = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
        let mut queued = 0;
        for number in 0..8000 {
            if number % 50 == 0 {
                client.text(&format!("SELECT {}", random.below(DATABASES)));
                make_groups(&mut client);
            }
            // Some of them in transactions.
            if queued == 0 && random.below(20) == 0 {
                assert_eq!(client.text("MULTI"), "OK");
                queued = 3;
            }
            let name = writes[random.below(writes.len() as u64) as usize];
            let words = arguments(name, &mut random, now_ms())
                .unwrap_or_else(|| panic!("{name} writes: say here what words it takes"));
            let line = format!("{name} {words}");
            let before = if queued == 0 { appended(&mut client) } else { String::new() };
            client.call(&line);
            if queued == 0 && appended(&mut client) != before {
                effective.insert(name);
            }
            if queued > 0 {
                queued -= 1;
                if queued == 0 {
                    client.call("EXEC");
                }
            }
            // Reads let keys expire, too.
            client.call(&format!("GET {}", random.key()));
        }
        if queued > 0 {
            client.call("EXEC");
        }
        let digest = settled_digest(&mut client);
        drop(server);
        let server = logging(dir.path());
        let mut client = server.client();
        assert_ne!(client.info("log_replayed_records"), "0");
        assert_eq!(settled_digest(&mut client), digest, "round {round}");
        // The next round replays on top of an image.
        if round == 1 {
            client.text("FLUSHDB");
            assert_eq!(client.text("SAVE"), "OK");
        }
    }
    let without: Vec<_> = writes.iter().filter(|name| !effective.contains(**name)).collect();
    assert!(without.is_empty(), "never changed anything: {without:?}");
}

#[test]
fn a_restart_with_the_setting_off_replays_what_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let server = logging(dir.path());
    server.client().text("SET a 1");
    drop(server);
    // What is in the log was acknowledged; without logging, what comes after is not in it.
    let server = start_in(dir.path(), &[]);
    let mut client = server.client();
    assert_eq!(client.text("GET a"), "1");
    assert_eq!((client.info("aof_enabled"), client.info("log_replayed_records")), ("0".into(), "1".into()));
    client.text("SET b 2");
    drop(server);
    let server = start_in(dir.path(), &[]);
    let mut client = server.client();
    assert_eq!((client.text("GET a"), client.text("GET b")), ("1".into(), "(nil)".into()));
    // An image covers the log, which goes.
    client.text("SET c 3");
    assert_eq!(client.text("SAVE"), "OK");
    let segments = || {
        let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with("quire-log-")).count()
    };
    eventually("the log is removed", || segments() == 0);
    drop(server);
    let server = logging(dir.path());
    let mut client = server.client();
    assert_eq!((client.text("GET a"), client.text("GET c")), ("1".into(), "3".into()));
}

#[test]
fn a_save_inside_a_transaction_does_nothing_twice() {
    let dir = tempfile::tempdir().unwrap();
    let server = logging(dir.path());
    let mut client = server.client();
    let before = client.info("rdb_saves");
    client.text("MULTI");
    for line in ["INCR n", "BGSAVE", "INCR n"] {
        client.text(line);
    }
    client.call("EXEC");
    eventually("the save ends", || client.info("rdb_saves") != before);
    client.text("INCR n");
    drop(server);
    let server = logging(dir.path());
    let mut client = server.client();
    assert_eq!(client.text("GET n"), "3");
    assert_eq!(client.info("log_replayed_commands"), "1", "the image holds the whole transaction");
}

#[test]
fn populated_and_reloaded_data_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let server = logging(dir.path());
    let mut client = server.client();
    client.text("DEBUG POPULATE 1000 k 50");
    client.text("DEL k:5");
    assert_eq!(client.text("DEBUG RELOAD"), "OK");
    client.text("SET after reload PX 3");
    eventually("it expires", || client.text("EXISTS after") == "0");
    client.text("INCR n");
    let digest = client.text("DEBUG DIGEST");
    drop(server);
    let server = logging(dir.path());
    assert_eq!(server.client().text("DEBUG DIGEST"), digest);
}

#[test]
fn a_record_larger_than_a_segment_gets_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let server = logging(dir.path());
    let mut client = server.client();
    let large = vec![b'x'; 3 << 20];
    for key in [b"a", b"b", b"c"] {
        client.words(&[b"SET", key, &large]);
        client.text("INCR n");
    }
    let digest = client.text("DEBUG DIGEST");
    drop(server);
    let server = logging(dir.path());
    let mut client = server.client();
    assert_eq!(client.text("DEBUG DIGEST"), digest);
    // The limit of the log's size doesn't forbid a record that is larger: it would wait for ever.
    assert_eq!(client.text("CONFIG SET log-max-bytes 8mb"), "OK");
    let larger = vec![b'x'; 9 << 20];
    client.words(&[b"SET", b"a", &larger]);
    eventually("an image makes room for more", || client.text("INCR n").parse::<i64>().is_ok());
    // A few of these fit behind the record.
    for _ in 0..100 {
        client.text("INCR n");
    }
    eventually("large segments are removed", || {
        client.call("BGREWRITEAOF");
        client.info("log_segments") == "1"
    });
    eventually("their files are gone", || {
        let mut files = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap());
        files.all(|file| {
            !file.file_name().to_string_lossy().contains("log")
                || file.metadata().is_ok_and(|metadata| metadata.len() <= 1 << 20)
        })
    });
}

/// Adds records to the log of a server that has ended, each of a command and the time at which it was run.
fn add_records(memory: &MemoryDirectory, records: &[(i64, &str)]) {
    let directory: Arc<dyn Directory> = Arc::new(memory.clone());
    let last = DirectoryScan::of(memory, 0).unwrap().segments.pop().unwrap().meta;
    let identity = LogIdentity { dataset: last.dataset, base_epoch: last.base_epoch, in_force: true };
    let options = LogOptions { segment_bytes: 1 << 20, ..LogOptions::default() };
    let mut log = Log::start(&directory, options, identity, last.first_sequence, Box::new(|| ())).unwrap();
    for (now_ms, line) in records {
        let words: Vec<&str> = line.split(' ').collect();
        log.command(*now_ms, 0, words.len());
        words.iter().for_each(|word| log.word(word.as_bytes()));
        log.seal().unwrap();
    }
    log.finish().unwrap();
}

#[test]
fn a_replay_goes_by_the_times_in_the_log_however_the_clock_has_jumped() {
    const YEAR_MS: i64 = 365 * 86_400_000;
    let memory = MemoryDirectory::new();
    let logging = [("appendonly", "yes"), ("log-segment-bytes", "1mb")];
    drop(start_within(&memory, &logging).unwrap());
    let now_ms = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64;
    let (past, future) = (now_ms - YEAR_MS, now_ms + YEAR_MS);
    add_records(
        &memory,
        &[
            // The clock was a year ahead, then a year behind, and was right at the end.
            (future, "SET ahead 1 PX 100000"),
            (past, "INCR ahead"),
            (past, "SET behind 1 PX 100000"),
            (past, "INCR behind"),
            (past, "SET met 1 PX 100000"),
            (past, "SET lasting 1"),
            (past, &format!("PEXPIREAT lasting {}", now_ms + YEAR_MS)),
            (future - 1, "INCR lasting"),
            (now_ms, "SETNX met 7"),
        ],
    );
    let server = start_within(&memory, &logging).unwrap();
    let mut client = server.client();
    // What had not been seen to expire was there: INCR kept the time to live, which is over by today's clock or is not.
    assert_eq!(client.text("GET ahead"), "2");
    assert_eq!(client.call("PEXPIRETIME ahead").int(), future + 100_000);
    assert_eq!((client.text("GET lasting"), client.call("PEXPIRETIME lasting").int()), ("2".into(), future));
    // One was met when it was over, the other one wasn't.
    assert_eq!((client.text("GET met"), client.text("GET behind")), ("7".into(), "(nil)".into()));
    let digest = client.text("DEBUG DIGEST");
    drop(client);
    drop(server);
    let server = start_within(&memory, &logging).unwrap();
    assert_eq!(server.client().text("DEBUG DIGEST"), digest);
}

#[test]
fn what_is_loaded_anew_from_image_and_log_is_the_same_and_the_log_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let server = logging(dir.path());
    let mut client = server.client();
    for line in ["SET a 1", "SAVE", "RPUSH l a b c", "XADD s 1-1 f v", "PEXPIRE l 1000000", "LPOP l", "INCR a"] {
        client.call(line);
    }
    let (digest, last) = (client.text("DEBUG DIGEST"), appended(&mut client));
    assert_eq!(client.text("DEBUG LOADAOF"), "OK");
    assert_eq!((client.text("DEBUG DIGEST"), appended(&mut client)), (digest, last));
    assert_eq!(client.info("log_replayed_commands"), "5");
    client.call("INCR a");
    client.call("MULTI");
    client.call("DEBUG LOADAOF");
    let refused = client.call("EXEC").items()[0].text();
    assert_eq!(refused, "ERR DEBUG LOADAOF is not possible inside a transaction");
    let digest = client.text("DEBUG DIGEST");
    drop(server);
    let again = logging(dir.path());
    assert_eq!(again.client().text("DEBUG DIGEST"), digest);
    let mut client = again.client();
    for line in ["CONFIG SET appendonly no", "SAVE", "SET a lost"] {
        client.call(line);
    }
    assert_eq!(client.text("DEBUG LOADAOF"), "OK");
    assert_eq!(client.text("DEBUG DIGEST"), digest, "without a log the image is all there is");
}
