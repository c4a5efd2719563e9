//! Keys and hashes over real sockets: what scans promise, forms of replies, and requests that ask for too much.

use std::collections::HashSet;

use crate::common::{Client, Value, framed, start};

/// The elements that a whole scan passes, while `meanwhile` runs between its steps.
fn scanned(client: &mut Client, command: &str, mut meanwhile: impl FnMut(&mut Client, usize)) -> HashSet<Vec<u8>> {
    let mut seen = HashSet::new();
    let mut cursor = "0".to_owned();
    for step in 0.. {
        let Value::Array(reply) = client.call(&format!("{command} {cursor} COUNT 20")) else { panic!("an array") };
        cursor = reply[0].text();
        seen.extend(reply[1].items().iter().map(|item| item.text().into_bytes()));
        if cursor == "0" {
            break;
        }
        meanwhile(client, step);
    }
    seen
}

#[test]
fn a_scan_misses_nothing_that_stays_while_keys_come_and_go() {
    let server = start(&[]);
    let mut client = server.client();
    for hash in [false, true] {
        let set = |name: String| if hash { format!("HSET h {name} v") } else { format!("SET {name} v") };
        let remove = |name: String| if hash { format!("HDEL h {name}") } else { format!("DEL {name}") };
        for number in 0..500 {
            client.call(&set(format!("stays:{number}")));
        }
        // First the table grows under the scan, then it shrinks.
        for grows in [true, false] {
            let seen = scanned(&mut client, if hash { "HSCAN h" } else { "SCAN" }, |client, step| {
                for number in step * 40..(step + 1) * 40 {
                    let name = format!("goes:{}", number % 2000);
                    client.call(&if grows { set(name) } else { remove(name) });
                }
            });
            for number in 0..500 {
                assert!(seen.contains(format!("stays:{number}").as_bytes()), "{number} {hash} {grows}");
            }
        }
    }
}

#[test]
fn random_fields_have_the_form_of_the_protocol() {
    let server = start(&[]);
    let mut client = server.client();
    client.call("HSET h f v");
    assert_eq!(client.call("HRANDFIELD h -2 WITHVALUES").items().len(), 4);
    client.call("HELLO 3");
    let pair = Value::Array(vec![Value::Bulk(b"f".to_vec()), Value::Bulk(b"v".to_vec())]);
    assert_eq!(client.call("HRANDFIELD h -2 WITHVALUES"), Value::Array(vec![pair.clone(), pair]));
    assert_eq!(client.call("HRANDFIELD missing 5"), Value::Array(vec![]));
    assert_eq!(client.call("HRANDFIELD missing"), Value::Null);
}

#[test]
fn random_fields_that_would_take_all_memory_are_refused() {
    let server = start(&[]);
    let mut client = server.client();
    client.send(framed(&[b"HSET", b"fat", b"f", &vec![b'x'; 8 << 20]]));
    assert_eq!(client.reply(), Value::Int(1));
    assert_eq!(client.text("HRANDFIELD fat -1000 WITHVALUES"), "ERR value is out of range");
    assert_eq!(client.text("HRANDFIELD fat -9223372036854775807"), "ERR value is out of range");
    assert_eq!(client.call("HRANDFIELD fat 9223372036854775807").items().len(), 1);
    assert_eq!(client.text("PING"), "PONG");
}

#[test]
fn a_key_that_is_copied_moved_or_renamed_onto_itself_stays() {
    let server = start(&[]);
    let mut client = server.client();
    client.call("SET key v EX 100");
    let same = "ERR source and destination objects are the same";
    assert_eq!(client.text("COPY key key REPLACE"), same);
    assert_eq!(client.text("COPY key key DB 0 REPLACE"), same);
    assert_eq!(client.text("MOVE key 0"), same);
    assert_eq!(client.text("RENAME key key"), "OK");
    assert_eq!(client.text("RENAMENX key key"), "0");
    assert_eq!((client.text("GET key"), client.text("TTL key")), ("v".into(), "100".into()));
    assert_eq!(client.text("COPY key key DB 1"), "1");
    assert_eq!(client.text("MOVE key 1"), "0");
}

#[test]
fn hscan_tells_the_names_of_fields_alone_if_it_is_asked_to() {
    let server = start(&[]);
    let mut client = server.client();
    client.call("HSET h a 1");
    for line in ["HSCAN h 0 NOVALUES", "HSCAN h 0 novalues COUNT 10", "HSCAN h 0 MATCH a NOVALUES COUNT 10"] {
        assert_eq!(client.call(line).items()[1].items(), [Value::Bulk(b"a".to_vec())], "{line}");
    }
    client.call("SADD s a");
    client.call("ZADD z 1 a");
    for line in ["SCAN 0 NOVALUES", "SSCAN s 0 NOVALUES", "ZSCAN z 0 NOVALUES", "HSCAN h 0 COUNT NOVALUES"] {
        assert!(client.text(line).starts_with("ERR "), "{line}");
    }
}

#[test]
fn look_ups_are_counted_once_a_command() {
    let server = start(&[]);
    let mut client = server.client();
    client.call("HSET h a 1 b 2");
    client.call("CONFIG RESETSTAT");
    for command in [
        "HGETALL h",
        "HMGET h a b c",
        "HSCAN h 0",
        "HRANDFIELD h -3",
        "TTL h",
        "TYPE h",
        "OBJECT ENCODING h",
        "COPY h i",
    ] {
        client.call(command);
    }
    client.call("TTL missing");
    let stats = client.text("INFO stats");
    assert!(stats.contains("keyspace_hits:8\r\n") && stats.contains("keyspace_misses:1\r\n"), "{stats}");
}

#[test]
fn sets_are_sets_in_the_third_protocol_only() {
    let server = start(&[]);
    let mut client = server.client();
    client.call("SADD s 1 2 3");
    client.call("SADD t 2 3 4");
    assert_eq!(client.call("SMEMBERS s").items().len(), 3);
    client.call("HELLO 3");
    for command in ["SMEMBERS s", "SINTER s t", "SUNION s t", "SDIFF s t", "SPOP none 3"] {
        assert!(matches!(client.call(command), Value::Set(_)), "{command}");
    }
    for command in ["SRANDMEMBER s 2", "SRANDMEMBER s -5", "SMISMEMBER s 1 9"] {
        assert!(matches!(client.call(command), Value::Array(_)), "{command}");
    }
}

#[test]
fn limits_of_sets_hold_from_the_next_change_on() {
    let server = start(&[]);
    let mut client = server.client();
    client.call("SADD ints 1 2 3");
    client.call("SADD words a b c");
    assert_eq!(client.text("OBJECT ENCODING ints"), "intset");
    assert_eq!(client.text("OBJECT ENCODING words"), "listpack");
    client.call("CONFIG SET set-max-intset-entries 3 set-max-listpack-entries 3");
    assert_eq!(client.text("OBJECT ENCODING words"), "listpack");
    client.call("SADD ints 4");
    client.call("SADD words d");
    assert_eq!(client.text("OBJECT ENCODING ints"), "hashtable");
    assert_eq!(client.text("OBJECT ENCODING words"), "hashtable");
    let refused = client.text("CONFIG SET set-max-intset-entries 1000000");
    assert!(refused.contains("ERR"), "{refused}");
}

#[test]
fn a_scan_deletes_the_expired_keys_that_it_meets() {
    let server = start(&[]);
    let mut client = server.client();
    client.call("DEBUG SET-ACTIVE-EXPIRE 0");
    client.call("DEBUG POPULATE 100");
    for line in ["SET a 1 PX 1", "HSET h f v", "PEXPIRE h 1"] {
        client.call(line);
    }
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(client.call("DBSIZE"), Value::Int(102));
    let reply = client.call("SCAN 0 COUNT 1000 TYPE nosuch");
    assert_eq!((reply.items()[0].text(), reply.items()[1].items().len()), ("0".into(), 0));
    assert_eq!((client.call("DBSIZE"), client.info("expired_keys")), (Value::Int(100), "2".into()));
    assert_eq!(scanned(&mut client, "SCAN", |_, _| {}).len(), 100);
}
