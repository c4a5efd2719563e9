//! Commands that wait for sorted sets: what wakes them and what does not, who is served, and what the log and a restart have of it.
//! What holds of all waiting is in `blocking`.

use crate::common::{Client, Running, Value, awaited, blocked, request, start, start_in, wait};

/// A server, one client that looks on, and others.
fn with_clients(count: usize) -> (Running, Client, Vec<Client>) {
    let server = start(&[]);
    let admin = server.client();
    let clients = (0..count).map(|_| server.client()).collect();
    (server, admin, clients)
}

fn texts(reply: &Value) -> Vec<String> {
    reply.items().iter().map(Value::text).collect()
}

#[test]
fn whatever_brings_a_sorted_set_wakes_who_waits_for_it() {
    let (_server, mut admin, mut clients) = with_clients(1);
    for line in [
        "ZADD a 1 x",
        "ZADD a INCR 1 x",
        "ZINCRBY a 1 x",
        "ZUNIONSTORE a 1 source",
        "ZINTERSTORE a 2 source source WEIGHTS 1 0",
        "ZDIFFSTORE a 2 source none",
        "ZRANGESTORE a source 0 -1",
        "RENAME source a",
        "RENAMENX source a",
        "COPY source a",
    ] {
        admin.call("ZADD source 1 x");
        wait(&mut admin, &mut clients[0], "BZPOPMIN none a 0");
        admin.call(line);
        assert_eq!(texts(&clients[0].reply()), ["a", "x", "1"], "{line}");
        assert_eq!((admin.text("EXISTS a").as_str(), awaited(&mut admin).as_str()), ("0", "0"), "{line}");
    }
    // From another database, and with it.
    for line in ["MOVE a 0", "SWAPDB 0 1"] {
        wait(&mut admin, &mut clients[0], "BZMPOP 0 1 a MAX");
        admin.send(["SELECT 1", "ZADD a 7 x", line, "SELECT 0"].map(request).concat());
        (0..4).for_each(|_| assert!(!matches!(admin.reply(), Value::Error(_)), "{line}"));
        let reply = clients[0].reply();
        assert_eq!(
            (reply.items()[0].text(), texts(&reply.items()[1].items()[0])),
            ("a".into(), vec!["x".into(), "7".into()])
        );
    }
}

#[test]
fn a_sorted_set_in_the_place_of_another_value_wakes_who_waits_for_it() {
    let (_server, mut admin, mut clients) = with_clients(1);
    admin.call("ZADD source 1 x 2 y");
    wait(&mut admin, &mut clients[0], "BZPOPMAX a 0");
    admin.call("SET a string");
    assert_eq!(blocked(&mut admin), 1, "a string is no sorted set that has come");
    admin.call("ZUNIONSTORE a 1 source");
    assert_eq!(texts(&clients[0].reply()), ["a", "y", "2"]);
    assert_eq!(texts(&admin.call("ZRANGE a 0 -1")), ["x"]);
}

#[test]
fn those_who_wait_for_a_list_and_for_a_sorted_set_of_one_key_get_each_their_own() {
    let (_server, mut admin, mut clients) = with_clients(4);
    for (client, line) in clients.iter_mut().zip(["BZPOPMIN a 0", "BLPOP a 0", "BZMPOP 0 1 a MAX", "BRPOP a 0"]) {
        wait(&mut admin, client, line);
    }
    assert_eq!(awaited(&mut admin), "1");
    admin.call("RPUSH a 1");
    assert_eq!(texts(&clients[1].reply()), ["a", "1"]);
    admin.call("SADD a 1");
    admin.call("DEL a");
    assert_eq!(blocked(&mut admin), 3);
    admin.call("ZADD a 1 x 2 y 3 z");
    assert_eq!(texts(&clients[0].reply()), ["a", "x", "1"]);
    assert_eq!(texts(&clients[2].reply().items()[1].items()[0]), ["z", "3"]);
    assert_eq!((texts(&admin.call("ZRANGE a 0 -1")), blocked(&mut admin)), (vec!["y".to_owned()], 1));
    admin.call("DEL a");
    admin.call("RPUSH a 4");
    assert_eq!(texts(&clients[3].reply()), ["a", "4"]);
    assert_eq!(awaited(&mut admin), "0");
}

#[test]
fn members_go_to_those_who_came_first_as_long_as_there_are_some() {
    let (_server, mut admin, mut clients) = with_clients(60);
    for (number, client) in clients.iter_mut().enumerate() {
        wait(&mut admin, client, if number % 2 == 0 { "BZPOPMIN other z 0" } else { "BZPOPMAX z 0" });
    }
    for first in [0, 20, 40] {
        let words: Vec<String> = (first..first + 20).map(|number| format!("{number} m{number}")).collect();
        assert_eq!(admin.text(&format!("ZADD z {}", words.join(" "))), "20");
        assert_eq!((admin.text("EXISTS z").as_str(), blocked(&mut admin)), ("0", 40 - first));
    }
    for (number, client) in clients.iter_mut().enumerate() {
        let (round, turn) = (number / 20 * 20, number % 20 / 2);
        let score = if number % 2 == 0 { round + turn } else { round + 19 - turn };
        assert_eq!(texts(&client.reply()), ["z".to_owned(), format!("m{score}"), score.to_string()]);
        assert_eq!(client.text("PING"), "PONG");
    }
}

#[test]
fn a_wait_that_ends_without_a_member_takes_none() {
    let (_server, mut admin, mut clients) = with_clients(1);
    let client = &mut clients[0];
    let id = client.call("CLIENT ID").int();
    for line in ["BZPOPMIN a b 0.01", "BZPOPMAX a 0.001", "BZMPOP 0.01 2 a b MIN COUNT 3"] {
        client.send([request(line), request("PING")].concat());
        assert_eq!((client.reply(), client.reply().text()), (Value::Null, "PONG".into()), "{line}");
    }
    for (how, expected) in [("TIMEOUT", "(nil)"), ("ERROR", "UNBLOCKED client unblocked via CLIENT UNBLOCK")] {
        wait(&mut admin, client, "BZMPOP 0 1 a MIN");
        admin.send([format!("CLIENT UNBLOCK {id} {how}").as_str(), "ZADD a 1 x", "ZCARD a"].map(request).concat());
        assert_eq!([admin.reply().int(), admin.reply().int(), admin.reply().int()], [1, 1, 1], "{how}");
        assert_eq!(client.reply().text(), expected);
        admin.call("DEL a");
    }
    for line in ["MULTI", "BZPOPMIN a 0", "BZMPOP 0 1 a MAX"] {
        client.call(line);
    }
    assert_eq!(client.call("EXEC").items(), [Value::Null, Value::Null], "a transaction doesn't wait");
    assert_eq!((awaited(&mut admin).as_str(), blocked(&mut admin)), ("0", 0));
}

#[test]
fn an_earlier_key_of_another_type_ends_the_waiting_when_the_request_is_run_again() {
    let (_server, mut admin, mut clients) = with_clients(2);
    wait(&mut admin, &mut clients[0], "BZPOPMIN a b 0");
    wait(&mut admin, &mut clients[1], "BZPOPMIN b 0");
    admin.call("RPUSH a 1");
    assert_eq!(blocked(&mut admin), 2);
    admin.call("ZADD b 1 x");
    let reply = clients[0].reply();
    assert!(matches!(&reply, Value::Error(line) if line.starts_with("WRONGTYPE")), "{reply:?}");
    assert_eq!(texts(&clients[1].reply()), ["b", "x", "1"], "what was refused to one client is there for the next");
}

#[test]
fn scores_are_doubles_in_the_newer_protocol() {
    let (_server, mut admin, mut clients) = with_clients(1);
    let client = &mut clients[0];
    client.call("HELLO 3");
    wait(&mut admin, client, "BZPOPMAX a 0");
    admin.call("ZADD a 0.5 x 1e17 y -inf z");
    let is_double = |value: &Value, score: &str| matches!(value, Value::Double(text) if text == score);
    assert!(matches!(client.reply().items(), [_, Value::Bulk(_), score] if is_double(score, "100000000000000000")));
    let reply = client.call("BZMPOP 0 2 none a MIN COUNT 5");
    let members = reply.items()[1].items();
    assert!(is_double(&members[0].items()[1], "-inf") && is_double(&members[1].items()[1], "0.5"), "{reply:?}");
    assert_eq!(members.len(), 2);
    assert_eq!(client.call("BZPOPMIN a 0.001"), Value::Null);
}

#[test]
fn the_log_has_what_was_taken_and_a_restart_takes_it_again() {
    let dir = tempfile::tempdir().unwrap();
    let settings = [("appendonly", "yes"), ("appendfsync", "always"), ("zset-max-listpack-entries", "5")];
    let expected = {
        let server = start_in(dir.path(), &settings);
        let (mut admin, mut client) = (server.client(), server.client());
        for line in ["BZPOPMIN none a 0", "BZPOPMAX a 0", "BZMPOP 0 2 none a MAX COUNT 2", "BZMPOP 0 1 a MIN COUNT 9"] {
            // Once when it has waited, and once at once; from a small sorted set, and from a large one.
            for many in ["1 u 2 v 3 w 4 x", "1 u 2 v 3 w 4 x 5 y 6 z 7 uu 8 vv 9 ww"] {
                wait(&mut admin, &mut client, line);
                admin.call(&format!("ZADD a {many}"));
                assert_eq!(client.reply().items()[0].text(), "a", "{line}");
                admin.call("ZADD a 50 again 51 again2");
                assert_eq!(client.call(line).items()[0].text(), "a", "{line}");
                admin.call("RENAME a b");
                admin.call("ZUNIONSTORE sum 2 sum b");
                admin.call("DEL b");
            }
        }
        wait(&mut admin, &mut client, "BZPOPMIN a 0");
        admin.send(["MULTI", "ZADD a 1 x 2 y", "SET x 1", "EXEC"].map(request).concat());
        (0..4).for_each(|_| drop(admin.reply()));
        assert_eq!(texts(&client.reply()), ["a", "x", "1"]);
        // The record of the client's own effect is what WAITAOF asks about.
        assert_eq!(client.call("WAITAOF 1 0 0").items()[0], Value::Int(1));
        admin.text("DEBUG DIGEST")
    };
    let server = start_in(dir.path(), &settings);
    let mut admin = server.client();
    assert_eq!((admin.text("DEBUG DIGEST"), texts(&admin.call("ZRANGE a 0 -1"))), (expected, vec!["y".to_owned()]));
    assert!(admin.call("ZCARD sum").int() > 4);
}
