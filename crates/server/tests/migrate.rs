//! MIGRATE between two servers over real sockets: what moves, what stays, who waits meanwhile.

use std::io::{Read, Write};
use std::net::TcpListener;

use quire_rng::SplitMix64;

use crate::common::{self, Client, Running, Value, start, start_in};

fn migrate(client: &mut Client, port: u16, rest: &str) -> String {
    client.text(&format!("MIGRATE 127.0.0.1 {port} {rest}"))
}

/// The same of all keys that are named behind the options.
fn migrate_keys(client: &mut Client, port: u16, options: &[&str], keys: &[&str]) -> String {
    let port = port.to_string();
    let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "30000"];
    words.extend(options);
    words.push("KEYS");
    words.extend(keys);
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    client.words(&words).text()
}

fn pair() -> (Running, Running) {
    (start(&[]), start(&[]))
}

#[test]
fn keys_of_all_types_move_with_their_times_to_live() {
    let (source, target) = pair();
    let (mut here, mut there) = (source.client(), target.client());
    for line in
        ["SET s v", "RPUSH l a b", "HSET h f v", "ZADD z 1.5 m", "SADD t a", "XADD x 1-1 f v", "PEXPIRE l 1000000"]
    {
        here.call(line);
    }
    let digest = here.text("DEBUG DIGEST");
    assert_eq!(migrate(&mut here, target.port, "s 0 30000"), "OK");
    assert_eq!((here.call("GET s"), there.text("GET s")), (Value::Null, "v".to_owned()));
    assert_eq!(migrate_keys(&mut here, target.port, &[], &["l", "none", "h", "z", "t", "x"]), "OK");
    assert_eq!((here.call("DBSIZE").int(), there.call("DBSIZE").int()), (0, 6));
    assert!((900_000..=1_000_000).contains(&there.call("PTTL l").int()));
    assert_eq!(digest, there.text("DEBUG DIGEST"));
    assert_eq!(migrate(&mut here, target.port, "s 0 30000"), "NOKEY");
    assert_eq!(migrate_keys(&mut here, target.port, &[], &["l"]), "NOKEY");
}

#[test]
fn a_key_that_the_target_has_is_replaced_or_stays_and_a_copy_leaves_it() {
    let (source, target) = pair();
    let (mut here, mut there) = (source.client(), target.client());
    there.text("SET b old");
    for key in ["a", "b", "c"] {
        here.text(&format!("SET {key} new"));
    }
    let refused = migrate_keys(&mut here, target.port, &[], &["a", "b", "c"]);
    assert_eq!(refused, "ERR Target instance replied with error: BUSYKEY Target key name already exists.");
    assert_eq!(
        (here.call("KEYS *").items()[0].text().as_str(), there.call("DBSIZE").int()),
        ("b", 3),
        "the others have moved"
    );
    assert_eq!(migrate(&mut here, target.port, "b 0 30000 COPY REPLACE"), "OK");
    assert_eq!((here.text("GET b"), there.text("GET b")), ("new".to_owned(), "new".to_owned()));
    assert_eq!(
        migrate(&mut here, target.port, "b 99 30000"),
        "ERR Target instance replied with error: ERR DB index is out of range"
    );
    assert_eq!(migrate(&mut here, target.port, "b 3 30000"), "OK");
    there.text("SELECT 3");
    assert_eq!(there.text("GET b"), "new");
}

#[test]
fn what_cannot_be_done_is_told() {
    let (source, target) = (start(&[]), start(&[("requirepass", "secret")]));
    let mut here = source.client();
    here.text("SET k v");
    let refused = migrate(&mut here, target.port, "k 0 30000");
    assert_eq!(refused, "ERR Target instance replied with error: NOAUTH Authentication required.");
    let refused = migrate(&mut here, target.port, "k 0 30000 AUTH wrong");
    assert!(refused.starts_with("ERR Target instance replied with error: WRONGPASS "), "{refused}");
    let free = common::free_port();
    assert_eq!(migrate(&mut here, free, "k 0 30000"), "IOERR error or timeout writing to target instance");
    assert_eq!(migrate(&mut here, target.port, "k x 30000"), "ERR value is not an integer or out of range");
    assert_eq!(migrate(&mut here, target.port, "k 0 30000 AUTH"), "ERR syntax error");
    assert!(migrate(&mut here, target.port, "k 0 30000 KEYS k").starts_with("ERR When using MIGRATE KEYS option"));
    assert_eq!(migrate(&mut here, target.port, "k 0 30000 AUTH2 default secret"), "OK");
    here.text("SET k v");
    assert_eq!(migrate(&mut here, target.port, "k 0 30000 REPLACE AUTH secret"), "OK");
    assert_eq!(here.call("DBSIZE").int(), 0);
}

/// Reads a request from `source`'s server and has `meanwhile` done before the target replies that it has taken the key.
fn while_it_waits(source: &Running, meanwhile: impl FnOnce(&mut Client)) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let mut asking = source.client();
    let line = format!("MIGRATE 127.0.0.1 {} k 0 30000\r\n", listener.local_addr().unwrap().port());
    asking.send(line);
    let (mut socket, _) = listener.accept().unwrap();
    assert!(socket.read(&mut [0; 16]).unwrap() > 0);
    meanwhile(&mut source.client());
    socket.write_all(b"+OK\r\n+OK\r\n").unwrap();
    asking.reply().text()
}

#[test]
fn other_clients_are_served_meanwhile_and_a_key_that_they_change_stays() {
    let source = start(&[]);
    let mut here = source.client();
    here.text("SET k v");
    let changed = while_it_waits(&source, |other| assert_eq!(other.text("SET k w"), "OK"));
    assert!(changed.starts_with("ERR a key was changed while it was moved"), "{changed}");
    assert_eq!(here.text("GET k"), "w");
    let expiring = while_it_waits(&source, |other| assert_eq!(other.call("EXPIRE k 1000"), Value::Int(1)));
    assert!(expiring.starts_with("ERR a key was changed"), "{expiring}");
    assert_eq!(while_it_waits(&source, |other| assert_eq!(other.text("GET k"), "w")), "OK");
    assert_eq!(here.call("EXISTS k"), Value::Int(0));
    here.text("SET k v");
    assert_eq!(while_it_waits(&source, |other| assert_eq!(other.call("DEL k"), Value::Int(1))), "OK");
}

#[test]
fn a_value_of_the_same_checksum_is_another_one() {
    let source = start(&[]);
    let mut here = source.client();
    // What may be added to a value without a change of the checksum: its polynomial, the highest power first.
    let same_checksum = (1_u128 | 0x95ac_9329_ac4b_c9b5 << 1).to_le_bytes();
    let old = *b"AAAAAAAAA";
    let new: Vec<u8> = old.iter().zip(same_checksum).map(|(old, same)| old ^ same).collect();
    here.words(&[b"SET", b"k", &old]);
    here.words(&[b"SET", b"other", &new]);
    let [first, second] = [b"k".as_slice(), b"other"].map(|key| match here.words(&[b"DUMP", key]) {
        Value::Bulk(payload) => payload,
        other => panic!("{other:?}"),
    });
    assert!(first != second && first[first.len() - 8..] == second[second.len() - 8..], "{first:?} {second:?}");
    let changed = while_it_waits(&source, |other| assert_eq!(other.words(&[b"SET", b"k", &new]).text(), "OK"));
    assert!(changed.starts_with("ERR a key was changed while it was moved"), "{changed}");
    assert_eq!(here.words(&[b"GET", b"k"]), Value::Bulk(new));
}

#[test]
fn a_key_that_is_deleted_and_made_anew_meanwhile_stays() {
    let source = start(&[]);
    let mut here = source.client();
    here.text("RPUSH k a b");
    let changed = while_it_waits(&source, |other| {
        other.call("DEL k");
        other.call("SADD k a b");
    });
    assert!(changed.starts_with("ERR a key was changed while it was moved"), "{changed}");
    assert_eq!(here.text("TYPE k"), "set");
}

#[test]
fn keys_that_have_moved_are_gone_after_a_restart_and_in_a_transaction_it_is_done_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let settings = [("appendonly", "yes"), ("appendfsync", "no")];
    let target = start(&[]);
    {
        let server = start_in(dir.path(), &settings);
        let mut here = server.client();
        here.call("MSET a 1 b 2 c 3 d 4");
        assert_eq!(migrate_keys(&mut here, target.port, &[], &["a", "b"]), "OK");
        here.text("MULTI");
        migrate(&mut here, target.port, "c 0 30000");
        assert_eq!(here.call("EXEC").items()[0].text(), "OK");
    }
    let server = start_in(dir.path(), &settings);
    let mut here = server.client();
    assert_eq!((here.call("KEYS *").items()[0].text().as_str(), target.client().call("DBSIZE").int()), ("d", 3));
}

#[test]
fn a_key_is_not_lost_to_a_server_that_is_its_own_target() {
    let server = start(&[]);
    let mut here = server.client();
    here.text("SET k v");
    let refused = migrate(&mut here, server.port, "k 0 30000 REPLACE");
    assert_eq!(refused, "ERR the target is this server: it would lose the keys, or wait for itself");
    here.text("MULTI");
    migrate(&mut here, server.port, "k 5 9999999999 COPY");
    assert_eq!(here.call("EXEC").items()[0].text(), refused);
    assert_eq!(here.text("GET k"), "v");
    assert_eq!(migrate(&mut here, server.port, "k 0 30000 COPY REPLACE"), "OK");
    assert_eq!(migrate(&mut here, server.port, "k 5 30000"), "OK");
    assert_eq!(here.call("DBSIZE"), Value::Int(0));
    here.text("SELECT 5");
    assert_eq!(here.text("GET k"), "v");
}

#[test]
fn a_key_is_not_lost_to_a_target_that_is_no_server_for_it() {
    let source = start(&[]);
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let mut asking = source.client();
    asking.text("SET k v");
    asking.send(format!("MIGRATE 127.0.0.1 {} k 0 30000\r\n", listener.local_addr().unwrap().port()));
    let (mut socket, _) = listener.accept().unwrap();
    assert!(socket.read(&mut [0; 16]).unwrap() > 0);
    socket.write_all(b"HTTP/1.1 400 Bad Request\r\nServer: some\r\nConnection: close\r\n\r\n").unwrap();
    let refused = asking.reply().text();
    assert_eq!(refused, "ERR Target instance replied with what is no answer: HTTP/1.1 400 Bad Request");
    assert_eq!(asking.text("GET k"), "v");
}

#[test]
fn what_a_target_has_said_is_forgotten_when_its_request_is_refused_meanwhile() {
    let source = start(&[]);
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let (mut asking, mut other) = (source.client(), source.client());
    other.text("SET k v");
    let line = format!("MIGRATE 127.0.0.1 {} k 0 30000\r\n", listener.local_addr().unwrap().port());
    asking.send(&line);
    let (mut socket, _) = listener.accept().unwrap();
    assert_eq!(other.text("CONFIG SET read-only yes"), "OK");
    socket.write_all(b"+OK\r\n+OK\r\n").unwrap();
    assert_eq!(asking.reply().text(), "READONLY You can't write against a read only replica.");
    assert_eq!(other.text("CONFIG SET read-only no"), "OK");
    // The same words again are a request of their own, for which the target must be asked.
    asking.send(&line);
    listener.set_nonblocking(true).unwrap();
    let mut again = None;
    common::eventually("the target is asked again", || {
        again = listener.accept().ok();
        again.is_some()
    });
    assert_eq!(other.text("GET k"), "v");
    let (mut socket, _) = again.unwrap();
    socket.set_nonblocking(false).unwrap();
    socket.write_all(b"+OK\r\n+OK\r\n").unwrap();
    assert_eq!(asking.reply().text(), "OK");
    assert_eq!(other.call("EXISTS k"), Value::Int(0));
}

#[test]
fn what_is_on_its_way_takes_no_more_memory_than_clients_may() {
    let source = start(&[("maxmemory-clients", "4mb")]);
    let mut here = source.client();
    let mut random = SplitMix64::new(1);
    for key in ["a", "b", "c", "d"] {
        let noise: Vec<u8> = (0..900_000).map(|_| random.below(256) as u8).collect();
        here.words(&[b"SET", key.as_bytes(), &noise]);
    }
    here.call("SETRANGE large 2999999 x");
    let free = common::free_port();
    for keys in [&["large"][..], &["a", "b", "c", "d"]] {
        let refused = migrate_keys(&mut here, free, &[], keys);
        assert!(
            refused.starts_with("ERR the keys can't be moved now: on their way they would take more memory"),
            "{refused}"
        );
    }
    assert_eq!(migrate_keys(&mut here, free, &[], &["a"]), "IOERR error or timeout writing to target instance");
    assert_eq!(here.call("DBSIZE"), Value::Int(5));
}
