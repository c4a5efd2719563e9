//! The log and memory that runs out: what a command did before it failed is what a restart brings back, and a restart with
//! less memory says what to do.

use quire_device::MemoryDirectory;

use crate::common::{Client, Value, start_small, start_within};

const LOGGING: &[(&str, &str)] = &[("appendonly", "yes"), ("appendfsync", "no"), ("log-segment-bytes", "1mb")];
const ARENA_BYTES: u64 = 32 << 20;
const VALUE_BYTES: usize = 1 << 20;

/// A command with so many pairs of a name and a large value.
fn pairs(client: &mut Client, words: &[&str], name: &str, count: usize) -> Value {
    let value = vec![b'x'; VALUE_BYTES];
    let names: Vec<String> = (0..count).map(|number| format!("{name}{number}")).collect();
    let mut all: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    for name in &names {
        all.extend([name.as_bytes(), &value]);
    }
    client.words(&all)
}

#[test]
fn a_command_that_fails_of_memory_midway_comes_back_as_it_was() {
    let cases: &[(&str, &[&str])] = &[("MSET", &["MSET"]), ("MSETNX", &["MSETNX"]), ("HSET", &["HSET", "h"])];
    for (what, words) in cases {
        let memory = MemoryDirectory::new();
        let server = start_small(&memory, LOGGING, ARENA_BYTES).unwrap();
        let mut client = server.client();
        let reply = pairs(&mut client, words, "k", 60);
        assert!(matches!(&reply, Value::Error(text) if text.starts_with("OOM")), "{what}: {reply:?}");
        let size = client.text("DBSIZE").parse::<u64>().unwrap();
        assert!(size > 0, "{what} did some of it");
        let digest = client.text("DEBUG DIGEST");
        drop(client);
        drop(server);
        // With the same memory, and with more, where the whole command would do more.
        for bytes in [ARENA_BYTES, 4 * ARENA_BYTES] {
            let server = start_small(&memory, LOGGING, bytes).unwrap_or_else(|reason| panic!("{what}: {reason}"));
            assert_eq!(server.client().text("DEBUG DIGEST"), digest, "{what}");
        }
    }
}

#[test]
fn a_transaction_and_a_population_that_fail_of_memory_midway_come_back_as_they_were() {
    let memory = MemoryDirectory::new();
    let server = start_small(&memory, LOGGING, ARENA_BYTES).unwrap();
    let mut client = server.client();
    client.text("SET before 1");
    client.text("MULTI");
    client.text("INCR n");
    pairs(&mut client, &["MSET"], "k", 60);
    client.text("INCR n");
    client.call("EXEC");
    assert_eq!(client.text("GET n"), "2");
    client.text("DEL k0 k1 k2");
    let reply = client.text("DEBUG POPULATE 10000000 p 1000");
    assert!(reply.starts_with("OOM"), "{reply}");
    let digest = client.text("DEBUG DIGEST");
    drop(client);
    drop(server);
    for bytes in [ARENA_BYTES, 4 * ARENA_BYTES] {
        let server = start_small(&memory, LOGGING, bytes).unwrap();
        assert_eq!(server.client().text("DEBUG DIGEST"), digest);
    }
}

/// Fills the arena until not even a small value has room.
fn fill(client: &mut Client) {
    let mut count = 0;
    for bytes in [1 << 20, 64 << 10, 4096, 512, 64, 8] {
        let value = vec![b'f'; bytes];
        loop {
            match client.words(&[b"SET", format!("fill:{count}").as_bytes(), &value]) {
                Value::Error(text) => break assert!(text.starts_with("OOM"), "{text}"),
                _ => count += 1,
            }
        }
    }
}

#[test]
fn a_member_that_is_refused_as_its_set_takes_another_encoding_is_not_in_the_log() {
    let memory = MemoryDirectory::new();
    let server = start_small(&memory, LOGGING, ARENA_BYTES).unwrap();
    let mut client = server.client();
    (0..500).for_each(|number| drop(client.text(&format!("SADD ints {number}"))));
    (0..100).for_each(|number| drop(client.text(&format!("SADD packed member:{number}"))));
    (0..100).for_each(|number| drop(client.text(&format!("HSET hash field:{number} value"))));
    fill(&mut client);
    let long = "x".repeat(100);
    let refused = [
        format!("SADD ints {long}"),
        format!("SADD packed {long}"),
        format!("SADD packed member:1 member:2 {long}"),
        format!("HSET hash {long} value"),
        format!("HSET hash field:1 other {long} value"),
    ];
    for command in &refused {
        let reply = client.text(command);
        assert!(reply.starts_with("OOM"), "{command}: {reply}");
    }
    let encodings = ["ints", "packed", "hash"].map(|key| client.text(&format!("OBJECT ENCODING {key}")));
    assert_eq!(encodings, ["intset", "listpack", "listpack"]);
    assert_eq!(
        [client.text("SCARD ints"), client.text("SCARD packed"), client.text("HLEN hash")],
        ["500", "100", "100"]
    );
    let (digest, field) = (client.text("DEBUG DIGEST"), client.text("HGET hash field:1"));
    drop(client);
    drop(server);
    for bytes in [ARENA_BYTES, 4 * ARENA_BYTES] {
        let server = start_small(&memory, LOGGING, bytes).unwrap();
        let mut client = server.client();
        assert_eq!((client.text("DEBUG DIGEST"), client.text("HGET hash field:1")), (digest.clone(), field.clone()));
        // With room the same commands are carried out, from the state that was acknowledged.
        if bytes > ARENA_BYTES {
            assert_eq!(client.text(&refused[0]), "1");
            assert_eq!(client.text("OBJECT ENCODING ints"), "hashtable");
        }
    }
}

#[test]
fn a_restart_with_a_lower_maxmemory_brings_all_back_and_refuses_more() {
    let memory = MemoryDirectory::new();
    let server = start_within(&memory, LOGGING).unwrap();
    let mut client = server.client();
    pairs(&mut client, &["MSET"], "k", 20);
    let digest = client.text("DEBUG DIGEST");
    drop(client);
    drop(server);
    let server = start_within(&memory, &[LOGGING, &[("maxmemory", "1mb")]].concat()).unwrap();
    let mut client = server.client();
    assert_eq!(client.text("DEBUG DIGEST"), digest);
    assert!(client.text("SET more 1").starts_with("OOM"));
    assert_eq!(client.text("DEL k0"), "1");
}

#[test]
fn a_restart_with_less_memory_than_the_data_needs_says_what_to_do() {
    let memory = MemoryDirectory::new();
    let server = start_small(&memory, LOGGING, 4 * ARENA_BYTES).unwrap();
    let mut client = server.client();
    pairs(&mut client, &["MSET"], "k", 60);
    drop(client);
    drop(server);
    let reason = match start_small(&memory, LOGGING, ARENA_BYTES) {
        Ok(_) => panic!("it starts"),
        Err(reason) => reason,
    };
    assert!(reason.contains("quire-log-") && reason.contains("as much memory as"), "{reason}");
    let server = start_small(&memory, LOGGING, 4 * ARENA_BYTES).unwrap();
    assert_eq!(server.client().text("DBSIZE"), "60");
}

#[test]
fn what_was_deleted_before_takes_no_memory_while_the_log_is_replayed() {
    const FIELDS: usize = 20_000;
    let memory = MemoryDirectory::new();
    let server = start_small(&memory, LOGGING, ARENA_BYTES).unwrap();
    let mut client = server.client();
    let fields: Vec<String> = (0..FIELDS).map(|number| format!("field:{number}")).collect();
    let mut words: Vec<&[u8]> = vec![b"HSET", b"h"];
    words.extend(fields.iter().flat_map(|field| [field.as_bytes(), &[b'x'; 300]]));
    for _ in 0..8 {
        assert_eq!(client.words(&words).text(), FIELDS.to_string());
        assert_eq!(client.text("DEL h"), "1");
        // The server frees a deleted hash little by little.
        client.text("MEMORY PURGE");
    }
    client.text("SET last write");
    drop(client);
    drop(server);
    let server = start_small(&memory, LOGGING, ARENA_BYTES).unwrap();
    assert_eq!((server.client().text("GET last"), server.client().text("DBSIZE")), ("write".into(), "1".into()));
}
