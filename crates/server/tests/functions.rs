//! Functions through the wire: what libraries survive, what the log holds of them, how functions are ended.

use crate::common::{self, Client, Running, Value, framed, start, start_clone, start_in};

const LIBRARY: &[u8] = b"#!lua name=lib\n\
    redis.register_function('put', function(keys, args) return redis.call('set', keys[1], args[1]) end)\n\
    redis.register_function{function_name='see', callback=function(keys) return redis.call('get', keys[1]) end, \
    flags={'no-writes'}, description='reads'}";

fn load(client: &mut Client, text: &[u8]) -> String {
    client.words(&[b"FUNCTION", b"LOAD", b"REPLACE", text]).text()
}

/// A library of one function that returns what it is.
fn library(name: &str, function: &str) -> Vec<u8> {
    format!("#!lua name={name}\nredis.register_function('{function}', function() return '{name}' end)").into_bytes()
}

/// Which of the functions `a` to `e` there are, each by the library that it is of.
fn known(client: &mut Client) -> String {
    let called = ["a", "b", "c", "d", "e"].map(|name| client.text(&format!("FCALL {name} 0")));
    called.into_iter().filter(|text| !text.starts_with("ERR ")).collect::<Vec<_>>().join(" ")
}

#[test]
fn functions_run_with_their_keys_and_arguments_and_obey_their_flags() {
    let server = start(&[]);
    let mut client = server.client();
    assert_eq!(load(&mut client, LIBRARY), "lib");
    assert_eq!(client.text("FCALL put 1 k v"), "OK");
    assert_eq!(client.text("FCALL SEE 1 k"), "v");
    assert_eq!(client.text("FCALL_RO see 1 k"), "v");
    let refused = client.text("FCALL_RO put 1 k v");
    assert_eq!(refused, "ERR Can not execute a script with write flag using *_ro command.");
    let text = b"#!lua name=bad\nredis.register_function{function_name='bad', flags={'no-writes'}, \
        callback=function() return redis.call('set', 'k', 1) end}";
    load(&mut client, text);
    assert!(
        client
            .text("FCALL bad 0")
            .starts_with("ERR Write commands are not allowed from read-only scripts. script: bad, on ")
    );
    assert_eq!(client.info("number_of_libraries"), "2");
    assert_eq!(client.info("number_of_functions"), "3");
    assert_eq!(client.text("FUNCTION FLUSH"), "OK");
    assert_eq!(client.info("used_memory_vm_functions"), "0");
}

#[test]
fn libraries_for_valkey_find_the_server_by_its_name_there() {
    let server = start(&[]);
    let mut client = server.client();
    let text = b"#!lua name=v\nserver.register_function('v', function() return server.call('echo', 'here') end)";
    assert_eq!(load(&mut client, text), "v");
    assert_eq!(client.text("FCALL v 0"), "here");
}

#[test]
fn libraries_come_back_from_the_log_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let settings = [("appendonly", "yes"), ("appendfsync", "no")];
    let wanted = {
        let server = start_in(dir.path(), &settings);
        let mut client = server.client();
        load(&mut client, &library("one", "a"));
        load(&mut client, &library("two", "b"));
        let Value::Bulk(both) = client.call("FUNCTION DUMP") else { panic!("no payload") };
        load(&mut client, &library("three", "c"));
        assert_eq!(client.text("FUNCTION DELETE one"), "OK");
        assert_eq!(client.words(&[b"FUNCTION", b"RESTORE", &both, b"FLUSH"]).text(), "OK");
        load(&mut client, &library("two", "d"));
        load(&mut client, &library("four", "e"));
        assert!(load(&mut client, &library("five", "d")).starts_with("ERR Function d already exists"));
        assert!(load(&mut client, b"#!lua name=four\nx y").starts_with("ERR Error compiling function"));
        // Replaced by one that fails only when all of it has run.
        let late = b"#!lua name=four\nredis.register_function('e', function() end) error('late')";
        assert!(load(&mut client, late).starts_with("ERR Error registering functions"));
        let record: u64 = client.info("log_appended_record").parse().unwrap();
        client.text("FCALL a 0");
        client.words(&[b"FUNCTION", b"LOAD", LIBRARY]);
        client.text("FCALL put 1 k v");
        assert_eq!(
            client.info("log_appended_record").parse::<u64>().unwrap(),
            record + 2,
            "no record of what changes nothing"
        );
        known(&mut client)
    };
    assert_eq!(wanted, "one two four");
    for _ in 0..2 {
        let server = start_in(dir.path(), &settings);
        let mut client = server.client();
        assert_eq!(known(&mut client), wanted);
        assert_eq!(client.text("FCALL see 1 k"), "v");
        assert_eq!(client.info("number_of_libraries"), "4");
        // The next start has them from an image.
        assert_eq!(client.text("SAVE"), "OK");
    }
}

#[test]
fn libraries_outlive_all_keys_and_are_in_images_and_clones() {
    let dir = tempfile::tempdir().unwrap();
    let start_again = || start_in(dir.path(), &[]);
    {
        let server = start_again();
        let mut client = server.client();
        load(&mut client, &library("one", "a"));
        client.text("SET k v");
        client.text("FLUSHALL");
        assert_eq!(client.text("SAVE"), "OK");
        load(&mut client, &library("two", "b"));
    }
    let is_one = |server: &Running| assert_eq!(known(&mut server.client()), "one");
    let server = start_again();
    is_one(&server);
    let clone = start_clone(&dir.path().join("dump.quire"), &[]).unwrap();
    is_one(&clone);
    assert!(server.client().text("FUNCTION FLUSH SYNC") == "OK" && server.client().text("SAVE") == "OK");
    is_one(&clone);
    drop(server);
    assert_eq!(known(&mut start_again().client()), "");
}

#[test]
fn a_function_that_goes_on_is_told_and_may_be_ended() {
    let server = start(&[("busy-reply-threshold", "1")]);
    let (mut slow, mut other) = (server.client(), server.client());
    load(&mut other, b"#!lua name=slow\nredis.register_function('slow', function() while true do end end)");
    slow.send(framed(&[b"FCALL", b"slow", b"0", b"x"]));
    common::eventually("others are refused", || {
        other.text("PING") == "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE."
    });
    let stats = other.call("FUNCTION STATS");
    let running = stats.items()[1].items();
    assert_eq!((running[1].text(), running[3].items().len()), ("slow".to_owned(), 4));
    assert!(other.text("SCRIPT KILL").starts_with("BUSY ") && other.text("FUNCTION LIST").starts_with("BUSY "));
    assert_eq!(other.text("FUNCTION KILL"), "OK");
    let reply = slow.reply().text();
    assert!(reply.starts_with("ERR Script killed by user with FUNCTION KILL. script: slow, on "), "{reply}");
    assert_eq!(other.text("FUNCTION KILL"), "NOTBUSY No scripts in execution right now.");
    slow.send(framed(&[b"EVAL", b"while true do end", b"0"]));
    common::eventually("others are refused", || other.text("PING").starts_with("BUSY "));
    assert!(
        other.text("FUNCTION KILL").contains("call SCRIPT KILL") && other.text("FUNCTION STATS").starts_with("BUSY ")
    );
    assert_eq!(other.text("SCRIPT KILL"), "OK");
    slow.reply();
    let endless = load(&mut other, b"#!lua name=endless\nwhile true do end");
    assert!(endless.ends_with("FUNCTION LOAD timeout"), "{endless}");
    assert_eq!(other.text("FCALL slow 0 x".replace("slow", "none").as_str()), "ERR Function not found");
}

#[test]
fn payloads_that_are_damaged_or_collide_change_nothing() {
    let server = start(&[]);
    let mut client = server.client();
    load(&mut client, &library("one", "a"));
    let Value::Bulk(payload) = client.call("FUNCTION DUMP") else { panic!("no payload") };
    let restore = |client: &mut Client, payload: &[u8], policy: &[u8]| {
        client.words(&[b"FUNCTION", b"RESTORE", payload, policy]).text()
    };
    for at in 0..payload.len() {
        let mut damaged = payload.clone();
        damaged[at] ^= 1;
        assert_eq!(restore(&mut client, &damaged, b"FLUSH"), "ERR DUMP payload version or checksum are wrong", "{at}");
    }
    assert_eq!(restore(&mut client, &payload, b"APPEND"), "ERR Library one already exists");
    assert_eq!(restore(&mut client, &payload, b"replace"), "OK");
    load(&mut client, &library("one", "b"));
    load(&mut client, &library("two", "a"));
    assert_eq!(restore(&mut client, &payload, b"REPLACE"), "ERR Function a already exists");
    assert_eq!(known(&mut client), "two one");
    assert_eq!(restore(&mut client, &payload, b"FLUSH"), "OK");
    assert_eq!(known(&mut client), "one");
}
