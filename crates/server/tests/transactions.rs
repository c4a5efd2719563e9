//! MULTI, EXEC, DISCARD, WATCH and UNWATCH between connections.

use crate::common::{self, Client, Value, start};

fn ok() -> Value {
    Value::Simple("OK".into())
}

fn queued(client: &mut Client, line: &str) {
    assert_eq!(client.text(line), "QUEUED", "{line}");
}

#[test]
fn a_transaction_runs_as_one_and_errors_stay_inside() {
    let server = start(&[]);
    let mut client = server.client();
    assert_eq!(client.call("MULTI"), ok());
    for line in ["SET a 1", "INCR a", "HSET a f v", "SELECT 2", "SET a 5", "GET a"] {
        queued(&mut client, line);
    }
    assert_eq!(server.client().call("EXISTS a"), Value::Int(0));
    let results = client.call("EXEC");
    let wrong = Value::Error("WRONGTYPE Operation against a key holding the wrong kind of value".into());
    assert_eq!(results.items(), [ok(), Value::Int(2), wrong, ok(), ok(), Value::Bulk(b"5".to_vec())]);
    assert_eq!(server.client().text("GET a"), "2");
    assert_eq!(client.text("GET a"), "5", "SELECT inside holds afterwards");
}

#[test]
fn a_bad_command_makes_exec_refuse() {
    let server = start(&[]);
    let mut client = server.client();
    client.text("MULTI");
    queued(&mut client, "SET a 1");
    assert!(client.text("NOSUCH").starts_with("ERR unknown command"));
    queued(&mut client, "SET a 2");
    assert_eq!(client.text("EXEC"), "EXECABORT Transaction discarded because of previous errors.");
    assert_eq!(client.call("EXISTS a"), Value::Int(0));
    client.text("MULTI");
    assert_eq!(client.text("GET"), "ERR wrong number of arguments for 'get' command");
    assert!(client.text("EXEC").starts_with("EXECABORT"));
}

#[test]
fn what_does_not_belong_is_refused() {
    let server = start(&[]);
    let mut client = server.client();
    assert_eq!(client.text("EXEC"), "ERR EXEC without MULTI");
    assert_eq!(client.text("DISCARD"), "ERR DISCARD without MULTI");
    client.text("MULTI");
    assert_eq!(client.text("MULTI"), "ERR MULTI calls can not be nested");
    assert_eq!(client.text("WATCH a"), "ERR WATCH inside MULTI is not allowed");
    queued(&mut client, "PING");
    assert_eq!(client.call("EXEC"), Value::Array(vec![Value::Simple("PONG".into())]));
    client.text("MULTI");
    assert_eq!(client.text("SAVE"), "ERR Command not allowed inside a transaction");
    assert!(client.text("EXEC").starts_with("EXECABORT"));
    client.text("MULTI");
    queued(&mut client, "SET a 1");
    assert_eq!(client.call("DISCARD"), ok());
    assert_eq!(client.call("EXISTS a"), Value::Int(0));
}

/// Whether EXEC refuses after WATCH of `a`, the given commands of the client itself, then those of another one.
fn is_stopped(own: &[&str], others: &[&str]) -> bool {
    let server = start(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    client.text("SET a 1");
    client.text("SET b 1");
    client.text("WATCH a b");
    for line in own {
        client.call(line);
    }
    for line in others {
        other.call(line);
    }
    client.text("MULTI");
    queued(&mut client, "SET ran 1");
    let result = client.call("EXEC");
    assert_eq!(result == Value::Null, client.call("EXISTS ran") == Value::Int(0));
    result == Value::Null
}

#[test]
fn watched_keys_stop_a_transaction_when_they_change() {
    for line in [
        "SET a 1",
        "DEL b",
        "APPEND a x",
        "EXPIRE b 100",
        "RENAME a c",
        "RENAME ran b",
        "FLUSHALL",
        "FLUSHDB",
        "SWAPDB 0 1",
        "MOVE a 1",
    ] {
        let expected = line != "RENAME ran b";
        assert_eq!(is_stopped(&[], &[line]), expected, "{line}");
        assert_eq!(is_stopped(&[line], &[]), expected, "by the client itself: {line}");
    }
}

#[test]
fn what_is_not_watched_does_not_stop_a_transaction() {
    assert!(!is_stopped(&[], &["SET c 1", "GET a", "TOUCH a", "DEL none", "SETNX a 5", "PERSIST a"]));
    assert!(!is_stopped(&["UNWATCH"], &["SET a 2"]));
    assert!(!is_stopped(&["MULTI", "DISCARD"], &["SET a 2"]));
    assert!(!is_stopped(&["MULTI", "EXEC"], &["SET a 2"]));
    assert!(!is_stopped(&[], &["SELECT 1", "SET a 2"]));
}

#[test]
fn a_watched_key_that_expires_stops_a_transaction() {
    // It must not be gone before it is watched, on a machine that stalls for a while, either.
    assert!(is_stopped(&["PEXPIRE a 1500", "UNWATCH", "WATCH a", "DEBUG SLEEP 1.6"], &[]));
}

#[test]
fn what_has_expired_before_it_is_watched_may_go_and_come_again_expired() {
    let server = start(&[]);
    let mut client = server.client();
    client.call("DEBUG SET-ACTIVE-EXPIRE 0");
    // What `x` is in the databases 0 and 1, what happens while it is watched, and whether that stops the transaction.
    let (stale, live, none) = (Some("SET x old PX 1"), Some("SET x new"), None);
    for (here, there, meanwhile, stops) in [
        (stale, none, "FLUSHALL", false),
        (stale, none, "DEL x", false),
        (live, none, "FLUSHDB", true),
        (stale, none, "SWAPDB 0 1", false),
        (none, stale, "SWAPDB 0 1", false),
        (stale, stale, "SWAPDB 0 1", false),
        (live, stale, "SWAPDB 0 1", true),
        (none, live, "SWAPDB 0 1", true),
        (stale, live, "SWAPDB 0 1", true),
    ] {
        client.call("FLUSHALL");
        for (db, line) in [(1, there), (0, here)] {
            client.call(&format!("SELECT {db}"));
            line.map(|line| client.call(line));
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
        for line in ["WATCH x", meanwhile, "MULTI", "PING"] {
            client.call(line);
        }
        assert_eq!(client.call("EXEC") == Value::Null, stops, "{here:?} {there:?} {meanwhile}");
    }
}

#[test]
fn the_watch_of_a_client_that_left_is_forgotten() {
    let server = start(&[]);
    let mut client = server.client();
    client.text("WATCH a");
    assert_eq!(client.info("watching_clients"), "1");
    drop(client);
    let mut other = server.client();
    common::eventually("it is gone", || other.info("watching_clients") == "0");
    assert_eq!(other.text("SET a 1"), "OK");
}
