//! What commands on hashes whose fields have times to live are logged as.
//!
//! Relies on the log of a server without sockets.

use quire_store::{DbId, EncodingLimits, Store, ValueType, hash};

use super::{KEYS, Logging, START_MS, assert_logged_after};

#[test]
fn times_to_live_of_fields_are_logged_by_their_result() {
    let later = |ms: i64| START_MS + ms;
    let before = ["HSET h x 1 y 2", &format!("HPEXPIREAT h {} FIELDS 1 x", later(9000))];
    for (line, effect) in [
        ("HINCRBYFLOAT h x 0.5", format!("HSET h x 1.5; HPEXPIREAT h {} FIELDS 1 x", later(9000))),
        ("HEXPIRE h 10 GT FIELDS 3 x none y", format!("HPEXPIREAT h {} FIELDS 1 x", later(10_000))),
        ("HPEXPIREAT h 1 FIELDS 2 none y", "HDEL h y".to_owned()),
        ("HEXPIRE h 5 GT FIELDS 1 x", String::new()),
        ("hpersist h FIELDS 2 x y", "hpersist h FIELDS 1 x".to_owned()),
        ("HPERSIST h FIELDS 1 y", String::new()),
        ("HSET h x 2", "HSET h x 2".to_owned()),
        ("HINCRBY h x 1", "HINCRBY h x 1".to_owned()),
    ] {
        assert_logged_after(&before, line, &effect);
    }
}

#[test]
fn a_field_whose_time_has_come_is_logged_as_removed_or_overwritten() {
    let made = ["HSET h x 1 y 2", &format!("HPEXPIREAT h {} FIELDS 1 x", START_MS + 10)];
    for (line, effect) in [
        ("HINCRBY h x 5", "HSET h x 5"),
        ("HSETNX h x 5", "HSET h x 5"),
        ("HDEL h x", "HDEL h x"),
        ("HPERSIST h FIELDS 1 x", ""),
        ("HPEXPIRE h 100 FIELDS 1 x", ""),
        ("HGETALL h", ""),
        ("expire-step", "HDEL h x"),
    ] {
        let mut server = Logging::new();
        made.iter().for_each(|line| server.run(line));
        server.wait_ms(10);
        server.run(line);
        server.state.log_writer.as_mut().unwrap().note_expired(&mut server.store);
        assert_eq!(server.logged()[2..].join("; "), effect, "{line}");
    }
}

#[test]
fn elements_that_are_read_from_fields_are_logged_as_they_are_stored() {
    let made = ["RPUSH l 1 2", "HSET h1 x a", "HSET h2 x b", "SORT l GET h*->x STORE q"];
    let got = "SORT l GET h*->x STORE q";
    for (expires, line, effect) in [
        (false, got, got),
        (true, got, "DEL q; RPUSH q a b"),
        (true, "SORT l BY h*->x ALPHA DESC STORE q", "DEL q; RPUSH q 2 1"),
        (true, "SORT none GET h*->x STORE q", "DEL q"),
        (true, "SORT l STORE q", "SORT l STORE q"),
    ] {
        let expiry = format!("HPEXPIREAT h1 {} FIELDS 1 x", START_MS + 9000);
        let before: Vec<&str> = made.into_iter().chain(expires.then_some(expiry.as_str())).collect();
        assert_logged_after(&before, line, effect);
    }
    let mut server = Logging::new();
    let expires = format!("HPEXPIREAT h1 {} FIELDS 1 x", START_MS + 10);
    made.into_iter().chain([expires.as_str()]).for_each(|line| server.run(line));
    server.wait_ms(10);
    server.run(got);
    let digest = server.store.digest().unwrap();
    assert_eq!(server.replayed(START_MS, EncodingLimits::default()).digest().unwrap(), digest, "by another clock");
}

#[test]
fn an_expiry_that_only_files_and_payloads_give_is_replayed() {
    let mut server = Logging::new();
    let key = KEYS[3].as_bytes();
    for (field, expiry_ms) in [(b"x", hash::MAX_EXPIRY_MS), (b"y", 1 << 46)] {
        assert!(hash::open_mut(&mut server.store, DbId(0), key).unwrap().load(field, b"1", Some(expiry_ms)).unwrap());
    }
    // The log has them whole, with fields and values.
    for line in ["HINCRBYFLOAT h x 0.5", "HINCRBYFLOAT h y 0.5"] {
        server.run(line);
    }
    let mut expiries = field_expiries(&mut server.replayed(0, EncodingLimits::default()));
    expiries.sort();
    assert_eq!(expiries, [(b"x".to_vec(), Some(hash::MAX_EXPIRY_MS)), (b"y".to_vec(), Some(1 << 46))]);
}

/// The fields of all hashes, and when they expire, by a clock at whose time nothing has.
pub(super) fn field_expiries(store: &mut Store) -> Vec<(Vec<u8>, Option<i64>)> {
    let mut found = Vec::new();
    for (db, key) in (0..2).flat_map(|db| KEYS.map(|key| (DbId(db), key))) {
        if store.kind(db, key.as_bytes()).unwrap() == Some(ValueType::Hash) {
            let hash = hash::view(store, db, key.as_bytes()).unwrap();
            hash.for_each_with_expiry(&mut |field, _, at_ms| found.push((field.to_vec(), at_ms))).unwrap();
        }
    }
    found.sort();
    found
}
