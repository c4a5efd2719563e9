//! COPY of a long string: other clients' commands run between its steps, none of them sees half of it, and neither an image nor
//! the log has anything of it before it is whole.

use quire_device::{MemoryDirectory, PowerCut};

use crate::common::{
    Client, Value, ask_for_copy, eventually, framed, go_on, request, start, start_small, start_within,
};

/// A string of this length takes several steps to copy.
const LEN: usize = 6 << 20;
const LOGGING: &[(&str, &str)] = &[("appendonly", "yes"), ("appendfsync", "always")];

/// Bytes that differ from place to place.
fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
}

fn set_source(client: &mut Client) {
    assert_eq!(client.words(&[b"SET", b"source", &content(LEN)]).text(), "OK");
}

fn get(client: &mut Client, key: &str) -> Vec<u8> {
    match client.call(&format!("GET {key}")) {
        Value::Bulk(bytes) => bytes,
        Value::Null => Vec::new(),
        other => panic!("{other:?}"),
    }
}

fn data_bytes(client: &mut Client) -> usize {
    client.info("used_memory_dataset").parse().unwrap()
}

#[test]
fn other_clients_are_served_while_a_long_string_is_copied_and_see_nothing_of_it() {
    let server = start(&[]);
    let mut client = server.client();
    set_source(&mut client);
    let before = data_bytes(&mut client);
    let mut copier = ask_for_copy(&server, &mut client, "COPY source target");
    assert_eq!((client.text("EXISTS target"), client.text("DBSIZE")), ("0".into(), "1".into()));
    assert_eq!((client.text("SET other value"), client.call("STRLEN source").int()), ("OK".into(), LEN as i64));
    let used = data_bytes(&mut client);
    assert!(used >= before + LEN, "the copy's memory is counted before it is made: {used} after {before}");
    go_on(&mut client);
    assert_eq!(copier.reply(), Value::Int(1));
    assert!(get(&mut client, "target") == content(LEN));
}

#[test]
fn a_write_of_a_long_string_waits_for_its_copy_and_is_not_in_it() {
    let long = content(100);
    let writes: [&[&[u8]]; 6] = [
        &[b"APPEND", b"source", b"more"],
        &[b"SETRANGE", b"source", b"6291000", b"other"],
        &[b"SETBIT", b"source", b"50331647", b"0"],
        &[b"SET", b"source", &long],
        &[b"GETDEL", b"source"],
        &[b"DEL", b"source"],
    ];
    for words in writes {
        let server = start(&[]);
        let mut client = server.client();
        set_source(&mut client);
        let mut copier = ask_for_copy(&server, &mut client, "COPY source target");
        let mut writer = server.client();
        writer.call("CLIENT SETNAME writer");
        writer.send(framed(words));
        let is_held = |entry: &str| entry.contains(" name=writer ") && !entry.contains(" qbuf=0 ");
        eventually("it is held", || client.text("CLIENT LIST").lines().any(is_held));
        go_on(&mut client);
        assert_eq!(copier.reply(), Value::Int(1));
        writer.reply();
        let name = String::from_utf8_lossy(words[0]);
        assert!(get(&mut client, "target") == content(LEN), "{name}");
        assert!(get(&mut client, "source") != content(LEN), "{name}");
    }
}

#[test]
fn a_copy_of_a_long_string_within_a_transaction_is_one_step() {
    let server = start(&[]);
    let mut client = server.client();
    set_source(&mut client);
    for line in ["MULTI", "COPY source target", "STRLEN target", "APPEND source more", "STRLEN target", "EXEC"] {
        client.send(request(line));
    }
    (0..5).for_each(|_| drop(client.reply()));
    let replies: Vec<i64> = client.reply().items().iter().map(Value::int).collect();
    assert_eq!(replies, [1, LEN as i64, LEN as i64 + 4, LEN as i64]);
}

#[test]
fn a_client_that_leaves_takes_its_copy_of_a_string_with_it() {
    let server = start(&[]);
    let mut client = server.client();
    set_source(&mut client);
    let before = data_bytes(&mut client);
    let mut copier = ask_for_copy(&server, &mut client, "COPY source target");
    assert_eq!(client.text("CLIENT KILL SKIPME yes"), "1");
    copier.closed();
    assert_eq!(client.call("SETRANGE source 0 more").int(), LEN as i64, "it can be written when the client is gone");
    go_on(&mut client);
    eventually("what it took is freed", || data_bytes(&mut client) < before + LEN / 2);
    assert_eq!((client.text("EXISTS target"), client.text("DBSIZE")), ("0".into(), "1".into()));
}

#[test]
fn a_copy_for_which_the_server_has_no_memory_is_refused_and_leaves_nothing() {
    let server = start_small(&MemoryDirectory::new(), &[], 16 << 20).unwrap();
    let mut client = server.client();
    set_source(&mut client);
    client.call("SET target old");
    let (digest, before) = (client.text("DEBUG DIGEST"), data_bytes(&mut client));
    let refused = client.call("COPY source target REPLACE");
    assert!(matches!(&refused, Value::Error(line) if line.starts_with("OOM")), "{refused:?}");
    assert_eq!(client.text("DEBUG DIGEST"), digest);
    assert!(data_bytes(&mut client) < before + LEN / 2);
    assert_eq!(client.call("SETRANGE source 0 x").int(), LEN as i64, "nothing is under way that holds it");
}

/// What a server finds after the power went in `memory`: the lengths of both strings.
fn found_after_power_cut(memory: &MemoryDirectory, cut: PowerCut) -> (usize, usize) {
    let server = start_within(&memory.after_power_cut(cut), LOGGING).unwrap();
    let mut client = server.client();
    let (source, target) = (get(&mut client, "source"), get(&mut client, "target"));
    assert!(target.is_empty() || target == content(LEN), "half a copy");
    (source.len(), target.len())
}

#[test]
fn a_power_cut_finds_no_copy_before_it_is_whole_and_the_whole_one_afterwards() {
    let memory = MemoryDirectory::new();
    let server = start_within(&memory, LOGGING).unwrap();
    let mut client = server.client();
    set_source(&mut client);
    let mut copier = ask_for_copy(&server, &mut client, "COPY source target");
    client.call("SET other value");
    for cut in [PowerCut::LoseAll, PowerCut::KeepAll] {
        assert_eq!(found_after_power_cut(&memory, cut), (LEN, 0), "only the log has the source");
    }
    let saves = client.info("rdb_saves");
    client.call("BGSAVE");
    eventually("an image is there", || client.info("rdb_saves") != saves);
    for cut in [PowerCut::LoseAll, PowerCut::KeepAll] {
        assert_eq!(found_after_power_cut(&memory, cut), (LEN, 0), "the image was cut within the copy");
    }
    go_on(&mut client);
    assert_eq!(copier.reply(), Value::Int(1));
    client.call("APPEND source more");
    for cut in [PowerCut::LoseAll, PowerCut::KeepAll] {
        assert_eq!(found_after_power_cut(&memory, cut), (LEN + 4, LEN));
    }
}

#[test]
fn a_power_cut_at_any_step_of_the_disk_finds_no_copy_or_the_whole_one() {
    let play = |memory: &MemoryDirectory| {
        let Ok(server) = start_within(memory, LOGGING) else { return false };
        let mut client = server.client();
        client.try_send(framed(&[b"SET", b"source", &content(LEN)]));
        client.try_send([request("COPY source target"), request("APPEND source more")].concat());
        let replies: Vec<Option<Value>> = (0..3).map(|_| client.try_reply()).collect();
        matches!(replies[1], Some(Value::Int(1)))
    };
    let rehearsal = MemoryDirectory::new();
    assert!(play(&rehearsal));
    for step in 0..rehearsal.steps() {
        let memory = MemoryDirectory::new();
        memory.power_off_at(step);
        let acknowledged = play(&memory);
        for cut in [PowerCut::LoseAll, PowerCut::KeepSome(step)] {
            let (source, target) = found_after_power_cut(&memory, cut);
            assert!(!acknowledged || target == LEN, "step {step}: the copy was acknowledged");
            assert!(target == 0 || source >= LEN, "step {step}: a copy of nothing");
        }
    }
}
