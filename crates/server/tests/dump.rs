//! DUMP and RESTORE over real sockets: what the log brings back, what is changed when a payload is refused, and the data of Redis
//! that a server finds at its start.

use std::path::Path;

use quire_rdb::{KeyFacts, PayloadWriter, ValueKind, Writer};

use crate::common::{self, Client, Value, config_in, start, start_in};

fn payload(client: &mut Client, key: &str) -> Vec<u8> {
    match client.call(&format!("DUMP {key}")) {
        Value::Bulk(bytes) => bytes,
        other => panic!("{other:?} is no payload"),
    }
}

fn fill(client: &mut Client) -> Vec<String> {
    client.text("SET s abc");
    client.text("SET n 12");
    client.text("RPUSH l a b 3");
    client.text("SADD i 1 2 3");
    client.text("SADD t a b");
    client.text("HSET h f v g w");
    client.text("HSET ht f v g w");
    client.call("HPEXPIREAT ht 30000000000000 FIELDS 1 g");
    client.text("ZADD z 1.5 a -inf b");
    client.text("XGROUP CREATE e g 0 MKSTREAM");
    client.text("XADD x 5-1 f v g 12");
    client.text("XGROUP CREATE bx g 0 MKSTREAM");
    for number in 0..700 {
        client.call(&format!("XADD bx {number}-{number} field {number} {number} x"));
        client.call(&format!("RPUSH bl {number} {number}x"));
        client.call(&format!("SADD bt {number} {number}x"));
        client.call(&format!("HSET bh {number} {number}x"));
        client.call(&format!("HSET bht {number} {number}x"));
        client.call(&format!("HPEXPIREAT bht {} FIELDS 1 {}", 30_000_000_000_000u64 + number, number / 2 * 2));
        client.call(&format!("ZADD bz {number}.25 {number}x"));
    }
    client.text("XDEL bx 3-3 650-650");
    client.call("XREADGROUP GROUP g c COUNT 300 STREAMS bx >");
    client.call("XREADGROUP GROUP g d COUNT 20 STREAMS bx >");
    client.text("XDEL bx 5-5");
    client.call("XCLAIM bx g d 0 7-7 9-9 JUSTID");
    ["s", "n", "l", "i", "t", "h", "ht", "z", "e", "x", "bl", "bt", "bh", "bht", "bz", "bx"].map(str::to_owned).to_vec()
}

#[test]
fn a_list_is_restored_in_nodes_where_it_is_too_long_to_be_packed() {
    let server = start(&[]);
    let mut client = server.client();
    let (long, many) = ("x".repeat(9000), (0..1200).map(|number| format!(" element:{number}")).collect::<String>());
    for elements in [format!(" {long}"), format!(" a {long} b"), many, " a b c".to_owned()] {
        client.call("DEL l copy");
        client.call(&format!("RPUSH l{elements}"));
        let bytes = payload(&mut client, "l");
        assert_eq!(client.words(&[b"RESTORE", b"copy", b"0", &bytes]).text(), "OK");
        let encoding = client.text("OBJECT ENCODING l");
        assert_eq!(client.text("OBJECT ENCODING copy"), encoding);
        assert_eq!(client.call("LRANGE copy 0 -1"), client.call("LRANGE l 0 -1"));
        assert_eq!(encoding, if elements.len() > 100 { "quicklist" } else { "listpack" });
    }
}

#[test]
fn values_of_all_types_are_restored_and_come_back_from_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let settings = [("appendonly", "yes"), ("appendfsync", "no")];
    let server = start_in(dir.path(), &settings);
    let mut client = server.client();
    let keys = fill(&mut client);
    for key in &keys {
        let bytes = payload(&mut client, key);
        let copy = format!("copy:{key}");
        let before = client.info("rdb_changes_since_last_save").parse::<i64>().unwrap();
        assert_eq!(client.words(&[b"RESTORE", copy.as_bytes(), b"100000000", &bytes]).text(), "OK");
        assert_eq!(client.info("rdb_changes_since_last_save").parse::<i64>().unwrap() - before, 1, "{key}");
        assert_eq!(client.text(&format!("OBJECT ENCODING {copy}")), client.text(&format!("OBJECT ENCODING {key}")));
        assert_eq!(
            client.words(&[b"RESTORE", copy.as_bytes(), b"0", &bytes]).text(),
            "BUSYKEY Target key name already exists."
        );
        assert_eq!(client.words(&[b"RESTORE", b"kept", b"0", &bytes, b"REPLACE"]).text(), "OK");
        let value =
            |client: &mut Client, key: &str| client.call(&format!("DEBUG DIGEST-VALUE {key}")).items()[0].text();
        assert_eq!(value(&mut client, "kept"), value(&mut client, key), "{key}");
        let full = |client: &mut Client, key: &str| client.call(&format!("XINFO STREAM {key} FULL COUNT 0"));
        if client.text(&format!("TYPE {key}")) == "stream" {
            assert_eq!(full(&mut client, "kept"), full(&mut client, key), "{key}");
        }
    }
    let ends = |client: &mut Client| {
        keys.iter().map(|key| client.text(&format!("PEXPIRETIME copy:{key}"))).collect::<Vec<_>>()
    };
    let (digest, known) = (client.text("DEBUG DIGEST"), ends(&mut client));
    drop(server);
    std::thread::sleep(std::time::Duration::from_millis(20));
    let server = start_in(dir.path(), &settings);
    let mut client = server.client();
    assert_ne!(client.info("log_replayed_records"), "0");
    assert_eq!((client.text("DEBUG DIGEST"), ends(&mut client)), (digest, known));
}

#[test]
fn how_a_restored_key_was_used_is_as_the_client_says() {
    let server = start(&[("lfu-decay-time", "0")]);
    let mut client = server.client();
    client.text("SET s abc");
    client.text("RPUSH l a b");
    for key in ["s", "l"] {
        let bytes = payload(&mut client, key);
        let restore = |client: &mut Client, option: &[u8], value: &[u8]| {
            client.words(&[b"RESTORE", b"k", b"0", &bytes, b"REPLACE", option, value]).text()
        };
        client.text("CONFIG SET maxmemory-policy allkeys-lru");
        assert_eq!(restore(&mut client, b"IDLETIME", b"1000"), "OK");
        assert!((1000..1100).contains(&client.call("OBJECT IDLETIME k").int()));
        client.text("CONFIG SET maxmemory-policy allkeys-lfu");
        for count in ["0", "77", "255"] {
            assert_eq!(restore(&mut client, b"FREQ", count.as_bytes()), "OK");
            assert_eq!(client.call("OBJECT FREQ k").int(), count.parse::<i64>().unwrap());
        }
        assert_eq!(restore(&mut client, b"IDLETIME", b"1000000"), "OK");
        assert_eq!(client.call("OBJECT FREQ k").int(), 5, "as new, since nothing else was said");
    }
}

#[test]
fn a_payload_that_is_refused_changes_nothing() {
    let server = start(&[]);
    let mut client = server.client();
    client.text("RPUSH k a b");
    let digest = client.text("DEBUG DIGEST");
    let refused = |client: &mut Client, kind: ValueKind, words: &[&[u8]], claimed: u64| {
        let mut writer = PayloadWriter::new(kind);
        writer.encoder().length(claimed);
        words.iter().for_each(|word| writer.encoder().string(word));
        let bytes = writer.finish();
        let reply = client.words(&[b"RESTORE", b"k", b"0", &bytes, b"REPLACE"]).text();
        assert_eq!(reply, "ERR Bad data format", "{kind:?}");
    };
    refused(&mut client, ValueKind::Set, &[b"a", b"a"], 2);
    refused(&mut client, ValueKind::Hash, &[b"f", b"1", b"f", b"2"], 2);
    refused(&mut client, ValueKind::List, &[b"a"], 2);
    refused(&mut client, ValueKind::List, &[], 0);
    refused(&mut client, ValueKind::Zset, &[b"a"], 1);
    refused(&mut client, ValueKind::Set, &[], 1 << 60);
    assert_eq!(client.text("DEBUG DIGEST"), digest);
    assert_eq!(client.text("DBSIZE"), "1");
}

#[test]
fn a_restored_value_is_told_to_watchers_and_to_clients_that_wait_for_it() {
    let server = start(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    client.text("RPUSH l a b");
    let bytes = payload(&mut client, "l");
    client.text("WATCH k");
    assert_eq!(other.words(&[b"RESTORE", b"k", b"0", &bytes]).text(), "OK");
    client.text("MULTI");
    client.text("GET x");
    assert_eq!(client.call("EXEC"), Value::Null);
    other.text("DEL k");
    common::wait(&mut other, &mut client, "BLPOP k 0");
    assert_eq!(other.words(&[b"RESTORE", b"k", b"0", &bytes]).text(), "OK");
    let reply = client.reply();
    assert_eq!(reply.items().iter().map(Value::text).collect::<Vec<_>>(), ["k", "a"]);
}

fn write_rdb(path: &Path, keys: u64) {
    let mut writer = Writer::new(Vec::new(), &[("redis-ver", "7.0.15")]);
    writer.database(2, keys, 0);
    for number in 0..keys {
        writer.key(format!("k{number}").as_bytes(), KeyFacts::default(), ValueKind::String).string(b"v");
    }
    let past = KeyFacts { expire_ms: Some(1), ..KeyFacts::default() };
    writer.key(b"gone", past, ValueKind::String).string(b"v");
    std::fs::write(path, writer.finish().unwrap()).unwrap();
}

#[test]
fn a_server_without_an_image_takes_the_data_of_redis_and_logs_on_top_of_it() {
    let dir = tempfile::tempdir().unwrap();
    write_rdb(&dir.path().join("dump.rdb"), 100);
    let settings = [("appendonly", "yes"), ("appendfsync", "no")];
    let server = start_in(dir.path(), &settings);
    let mut client = server.client();
    client.text("SELECT 2");
    assert_eq!((client.text("DBSIZE"), client.info("restore_mode")), ("100".into(), "rdb".into()));
    client.text("SET more 1");
    drop(server);
    let server = start_in(dir.path(), &settings);
    let mut client = server.client();
    client.text("SELECT 2");
    assert_eq!(client.text("DBSIZE"), "101");
    assert!(dir.path().join("dump.rdb").exists());
}

#[test]
fn a_damaged_file_of_redis_is_refused_and_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dump.rdb");
    write_rdb(&path, 10);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let reason = quire_server::saving::open(&config_in(dir.path(), &[])).unwrap_err();
    assert!(
        reason.contains("dump.rdb is a Redis RDB file that cannot be read: at byte")
            && reason.contains("move it away to start empty"),
        "{reason}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

#[test]
fn append_only_files_of_redis_are_not_passed_over_where_redis_would_start_with_them() {
    for (files, dbfilename, place) in [
        ("appendonlydir", "dump.quire", "dump.rdb"),
        ("appendonlydir", "dump.rdb", "dump.rdb"),
        ("appendonly.aof", "dump.quire", "none.rdb"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        write_rdb(&dir.path().join(place), 3);
        std::fs::create_dir(dir.path().join(files)).unwrap();
        let config = |appendonly| config_in(dir.path(), &[("appendonly", appendonly), ("dbfilename", dbfilename)]);
        let reason = quire_server::saving::open(&config("yes")).unwrap_err();
        let advice = format!("{files} {})", dir.path().join(dbfilename).display());
        assert!(reason.contains("append-only files") && reason.contains(&advice), "{reason}");
        assert_eq!(reason.contains("dump.rdb away"), dbfilename == "dump.rdb", "{reason}");
        // Redis would start with the RDB file.
        let (_, restored) = quire_server::saving::open(&config("no")).unwrap();
        assert_eq!(restored.keys, if place == "dump.rdb" { 3 } else { 0 });
    }
}
