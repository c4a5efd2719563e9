//! Times to live of hashes' fields over real sockets: replies and errors as redis-server 7.4 gives them, what commands find of a field whose
//! time has come, and what the search for such fields tells, logs and counts.

use crate::common::{Client, Value, eventually, start, start_in};

/// Long after any test.
const LATER_MS: i64 = 30_000_000_000_000;

fn ints(client: &mut Client, line: &str) -> Vec<i64> {
    client.call(line).items().iter().map(Value::int).collect()
}

fn pause(ms: u64) {
    std::thread::sleep(std::time::Duration::from_millis(ms));
}

#[test]
fn each_field_has_a_reply_of_its_own() {
    let server = start(&[]);
    let mut client = server.client();
    client.call("HSET h a 1 b 2 c 3 d 4");
    assert_eq!(ints(&mut client, "HEXPIRE none 10 FIELDS 2 a b"), [-2, -2]);
    assert_eq!(ints(&mut client, "HPEXPIREAT h 30000000000000 FIELDS 3 a x b"), [1, -2, 1]);
    for (condition, replies) in [("NX", [0, 1]), ("XX", [1, 0]), ("GT", [0, 0]), ("LT", [0, 1]), ("nx", [0, 1])] {
        client.call("HPERSIST h FIELDS 1 c");
        let line = format!("HPEXPIREAT h {LATER_MS} {condition} FIELDS 2 a c");
        assert_eq!(ints(&mut client, &line), replies, "{condition}");
    }
    client.call("HPERSIST h FIELDS 1 c");
    assert_eq!(ints(&mut client, "HPEXPIREAT h 30000000000001 GT FIELDS 1 a"), [1]);
    assert_eq!(ints(&mut client, "HPEXPIREAT h 30000000000000 LT FIELDS 2 a c"), [1, 1]);
    assert_eq!(ints(&mut client, "HPEXPIRETIME h FIELDS 4 a b d x"), [LATER_MS, LATER_MS, -1, -2]);
    assert_eq!(ints(&mut client, "HEXPIRETIME h FIELDS 1 a"), [LATER_MS / 1000]);
    assert_eq!(ints(&mut client, "HPEXPIREAT h 29999999999001 FIELDS 1 a"), [1]);
    assert_eq!(ints(&mut client, "HEXPIRETIME h FIELDS 1 a"), [LATER_MS / 1000], "a part of a second counts as one");
    assert_eq!(ints(&mut client, "HEXPIRE h 100 FIELDS 1 b"), [1]);
    assert!((90..=100).contains(&ints(&mut client, "HTTL h FIELDS 1 b")[0]));
    assert!((90_000..=100_000).contains(&ints(&mut client, "HPTTL h FIELDS 1 b")[0]));
    assert_eq!(ints(&mut client, "HTTL none FIELDS 1 b"), [-2]);
    assert_eq!(ints(&mut client, "HPERSIST h FIELDS 3 b d x"), [1, -1, -2]);
    assert_eq!(ints(&mut client, "HPERSIST none FIELDS 1 b"), [-2]);
    assert_eq!(ints(&mut client, "HEXPIRE h 0 FIELDS 2 b x"), [2, -2]);
    assert_eq!(ints(&mut client, "HEXPIREAT h 1 NX FIELDS 2 a d"), [0, 2]);
    assert_eq!(client.call("HLEN h").int(), 2);
    assert_eq!(ints(&mut client, "HPEXPIREAT h 1 FIELDS 3 a c a"), [2, 2, -2]);
    assert_eq!(client.call("EXISTS h").int(), 0, "the last field takes its key with it");
}

#[test]
fn requests_that_are_no_good_are_refused_in_redis_words() {
    let server = start(&[]);
    let mut client = server.client();
    client.call("HSET h a 1");
    client.call("SET s 1");
    let (missing, count) = (
        "ERR Mandatory argument FIELDS is missing or not at the right position",
        "ERR The `numfields` parameter must match the number of arguments",
    );
    for (line, error) in [
        ("HEXPIRE h 10 FIELDS 1", "ERR wrong number of arguments for 'hexpire' command"),
        ("HTTL h FIELDS 1", "ERR wrong number of arguments for 'httl' command"),
        ("HPERSIST h FIELDS 1", "ERR wrong number of arguments for 'hpersist' command"),
        ("HEXPIRE s x FIELDS 1 a", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("HTTL s x 1 a", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("HPERSIST s x 1 a", "WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("HEXPIRE h x FIELDS 1 a", "ERR value is not an integer or out of range"),
        ("HEXPIRE none -1 x 1 a", "ERR invalid expire time, must be >= 0"),
        ("HEXPIRE h 70368744178 FIELDS 1 a", "ERR invalid expire time in 'hexpire' command"),
        ("HPEXPIRE h 70368744177663 FIELDS 1 a", "ERR invalid expire time in 'hpexpire' command"),
        ("HEXPIREAT h 70368744178 FIELDS 1 a", "ERR invalid expire time in 'hexpireat' command"),
        ("HPEXPIREAT h 70368744177664 FIELDS 1 a", "ERR invalid expire time in 'hpexpireat' command"),
        ("HEXPIRE h 9223372036854775807 FIELDS 1 a", "ERR invalid expire time in 'hexpire' command"),
        ("HEXPIRE h 10 AB FIELDS 1 a", missing),
        ("HEXPIRE h 10 NX XX FIELDS 1 a", missing),
        ("HEXPIRE h 10 1 a b", missing),
        ("HEXPIRE h 10 NX FIELDS 1", "ERR The `numfields` parameter must match the number of arguments"),
        ("HTTL h 1 a b", missing),
        ("HPERSIST h 1 a b", missing),
        ("HEXPIRE h 10 FIELDS 0 a", "ERR Parameter `numFields` should be greater than 0"),
        ("HEXPIRE h 10 FIELDS x a", "ERR Parameter `numFields` should be greater than 0"),
        ("HTTL h FIELDS 0 a", "ERR Number of fields must be a positive integer"),
        ("HPERSIST h FIELDS -1 a", "ERR Number of fields must be a positive integer"),
        ("HEXPIRE h 10 FIELDS 2 a", count),
        ("HEXPIRE h 10 FIELDS 1 a b", count),
        ("HTTL h FIELDS 9223372036854775807 a", count),
        ("HPERSIST h FIELDS 2 a", count),
    ] {
        assert_eq!(client.text(line), error, "{line}");
    }
    assert_eq!(ints(&mut client, "HPEXPIREAT h 70368744177663 FIELDS 1 a"), [1], "the last instant that there is");
}

#[test]
fn no_command_finds_a_field_whose_time_has_come() {
    for limit in ["128", "0"] {
        let server = start(&[("hash-max-listpack-entries", limit)]);
        let mut client = server.client();
        // Fields stay until they are searched for.
        client.call("DEBUG PAUSE-CRON 1");
        client.call("HSET h a 1 b 2 c 3 n 4");
        let encoding = if limit == "0" { "hashtable" } else { "listpackex" };
        assert_eq!(ints(&mut client, "HPEXPIRE h 1 FIELDS 3 a b n"), [1, 1, 1]);
        assert_eq!(client.text("OBJECT ENCODING h"), encoding);
        pause(20);
        for (line, reply) in [("HGET h a", "(nil)"), ("HEXISTS h a", "0"), ("HSTRLEN h a", "0"), ("HLEN h", "1")] {
            assert_eq!(client.text(line), reply, "{line}");
        }
        assert_eq!(client.call("HMGET h a c").items(), [Value::Null, Value::Bulk(b"3".to_vec())]);
        for (line, items) in
            [("HGETALL h", 2), ("HKEYS h", 1), ("HVALS h", 1), ("HRANDFIELD h 9", 1), ("HRANDFIELD h -9", 9)]
        {
            assert_eq!(client.call(line).items().len(), items, "{line}");
        }
        assert_eq!(client.text("HRANDFIELD h"), "c");
        assert_eq!(client.call("HSCAN h 0 COUNT 100").items()[1].items().len(), 2);
        assert_eq!(ints(&mut client, "HTTL h FIELDS 2 a c"), [-2, -1]);
        assert_eq!(ints(&mut client, "HEXPIRE h 10 FIELDS 2 a c"), [-2, 1]);
        assert_eq!(ints(&mut client, "HPERSIST h FIELDS 2 a c"), [-2, 1]);
        assert_eq!(client.call("HDEL h a").int(), 0);
        assert_eq!(client.call("HSETNX h b 5").int(), 1);
        assert_eq!(client.call("HINCRBY h n 1").int(), 1, "begun anew");
        assert_eq!(ints(&mut client, "HTTL h FIELDS 2 b n"), [-1, -1]);
        assert_eq!(client.call("HLEN h").int(), 3);
        let plain = if limit == "0" { "hashtable" } else { "listpack" };
        assert_eq!(client.text("OBJECT ENCODING h"), plain, "without times to live it is what it was");
    }
}

#[test]
fn writing_a_field_takes_its_time_to_live_and_counting_it_up_does_not() {
    let server = start(&[]);
    let mut client = server.client();
    client.call("HSET h a 1 b 1 c 1 d 1");
    client.call(&format!("HPEXPIREAT h {LATER_MS} FIELDS 4 a b c d"));
    client.call("HSET h a 2");
    client.call("HSETNX h b 2");
    client.call("HINCRBY h c 2");
    client.call("HINCRBYFLOAT h d 2.5");
    assert_eq!(ints(&mut client, "HPEXPIRETIME h FIELDS 4 a b c d"), [-1, LATER_MS, LATER_MS, LATER_MS]);
    client.call("COPY h copy");
    client.call("RENAME h renamed");
    for key in ["copy", "renamed"] {
        assert_eq!(ints(&mut client, &format!("HPEXPIRETIME {key} FIELDS 2 a d")), [-1, LATER_MS], "{key}");
    }
}

#[test]
fn fields_are_searched_for_told_counted_and_logged_as_removed() {
    let dir = tempfile::tempdir().unwrap();
    let settings = [("appendonly", "yes"), ("appendfsync", "no"), ("notify-keyspace-events", "EA")];
    let server = start_in(dir.path(), &settings);
    let (mut client, mut listener) = (server.client(), server.client());
    listener.call("PSUBSCRIBE __*");
    client.call("HSET h a 1 b 2");
    client.call("HSET last a 1");
    client.call("HPEXPIRE h 20 FIELDS 1 a");
    eventually("a field is removed", || client.info("expired_subkeys") == "1");
    client.call("HPEXPIRE last 1 FIELDS 1 a");
    eventually("the last field is removed", || client.info("expired_subkeys") == "2");
    assert_eq!((client.call("EXISTS last").int(), client.call("HLEN h").int()), (0, 1));
    client.call("PUBLISH __end__ x");
    let mut told = Vec::new();
    loop {
        let message = listener.reply();
        let channel = message.items()[2].text();
        if channel == "__end__" {
            break;
        }
        let event = channel.strip_prefix("__keyevent@0__:").unwrap_or(&channel).to_owned();
        told.push(format!("{event} {}", message.items()[3].text()));
    }
    let expected = ["hset h", "hset last", "hexpire h", "hexpired h", "hexpire last", "hexpired last", "del last"];
    assert_eq!(told, expected);
    let digest = client.text("DEBUG DIGEST");
    drop(server);
    let server = start_in(dir.path(), &settings);
    let mut client = server.client();
    assert_ne!(client.info("log_replayed_records"), "0");
    assert_eq!(client.text("DEBUG DIGEST"), digest);
}

#[test]
fn times_to_live_come_back_with_an_image_and_fields_expire_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let server = start_in(dir.path(), &[]);
    let mut client = server.client();
    // The image has fields whose time has come.
    client.call("DEBUG PAUSE-CRON 1");
    for number in 0..300 {
        client.call(&format!("HSET big {number} x"));
        client.call(&format!("HSET small:{number} a 1 b 2"));
        client.call(&format!("HPEXPIREAT small:{number} {LATER_MS} FIELDS 1 a"));
        client.call(&format!("HPEXPIRE big {} FIELDS 1 {number}", if number % 2 == 0 { 1 } else { 100_000_000 }));
    }
    assert_eq!(client.text("SAVE"), "OK");
    drop(server);
    let server = start_in(dir.path(), &[]);
    let mut client = server.client();
    assert_eq!(ints(&mut client, "HPEXPIRETIME small:7 FIELDS 2 a b"), [LATER_MS, -1]);
    eventually("fields expire", || client.call("HLEN big").int() == 150);
}

#[test]
fn a_watched_key_changes_when_a_field_expires() {
    let server = start(&[]);
    let mut client = server.client();
    let mut other = server.client();
    other.call("DEBUG PAUSE-CRON 1");
    client.call("HSET h a 1 b 2");
    client.call("HPEXPIRE h 1 FIELDS 1 a");
    client.call("WATCH h");
    other.call("DEBUG PAUSE-CRON 0");
    eventually("the field is removed", || other.info("expired_subkeys") == "1");
    client.call("MULTI");
    client.call("PING");
    assert_eq!(client.call("EXEC"), Value::Null);
}

#[test]
fn a_hash_of_expired_fields_has_no_payload() {
    let server = start(&[]);
    let mut client = server.client();
    client.call("DEBUG PAUSE-CRON 1");
    client.call("HSET h a 1");
    client.call("HPEXPIRE h 1 FIELDS 1 a");
    pause(20);
    assert_eq!((client.call("DUMP h"), client.call("EXISTS h").int()), (Value::Null, 1));
}
