//! Sorted sets over real sockets: what is counted, what replies look like in both protocols, and what comes back after a restart.

use crate::common::{Client, Value, start, start_in};

fn changes(client: &mut Client) -> i64 {
    client.info("rdb_changes_since_last_save").parse().unwrap()
}

#[test]
fn look_ups_and_changes_are_counted_as_redis_counts_them() {
    let server = start(&[]);
    let mut client = server.client();
    client.call("ZADD z 1 a 2 b 3 c 4 d 5 e 6 f 7 g 8 h");
    client.call("CONFIG RESETSTAT");
    for command in ["ZCARD z", "ZSCORE z a", "ZRANGE z 0 -1", "ZCOUNT z 1 2", "ZRANK z c", "TYPE z", "ZSCORE none a"] {
        client.call(command);
    }
    let stats = client.text("INFO stats");
    assert!(stats.contains("keyspace_hits:6\r\n") && stats.contains("keyspace_misses:1\r\n"), "{stats}");
    for (command, counted) in [
        ("ZADD z 1 a 2 b", 0),
        ("ZADD z 1 a 9 b 5 new", 2),
        ("ZADD z NX 1 a 2 other", 1),
        ("ZINCRBY z 1 a", 1),
        ("ZINCRBY z 0 a", 0),
        ("ZREM z other new none", 2),
        ("ZREMRANGEBYRANK z 0 1", 2),
        ("ZREMRANGEBYSCORE z 100 200", 0),
        ("ZPOPMIN z", 1),
        ("ZPOPMAX z 2", 2),
        ("ZPOPMAX z 0", 0),
        ("ZUNIONSTORE to 2 z z", 1),
        ("ZRANGESTORE part z 0 1", 1),
        ("ZINTERSTORE to 2 z none", 1),
        ("ZINTERSTORE to 2 z none", 0),
        ("ZMPOP 1 part MIN COUNT 5", 2),
        ("ZRANGE z 0 -1", 0),
    ] {
        let before = changes(&mut client);
        client.call(command);
        assert_eq!(changes(&mut client) - before, counted, "{command}");
    }
}

#[test]
fn scores_are_doubles_beside_their_members_in_the_newer_protocol() {
    let server = start(&[]);
    let mut client = server.client();
    client.call("ZADD z 0.1 a 1e17 b -inf c");
    let texts = |value: &Value| value.items().iter().map(Value::text).collect::<Vec<_>>();
    let flat = client.call("ZRANGE z 0 -1 WITHSCORES");
    assert_eq!(texts(&flat), ["c", "-inf", "a", "0.1", "b", "100000000000000000"]);
    assert_eq!(texts(&client.call("ZPOPMAX other")), [] as [&str; 0]);
    assert_eq!(texts(&client.call("ZRANK z a WITHSCORE")), ["1", "0.1"]);
    assert_eq!(texts(&client.call("ZREVRANK z c WITHSCORE")), ["2", "-inf"]);
    assert_eq!(client.text("ZRANK z a WITHSCORES"), "ERR syntax error");
    assert_eq!(client.text("ZRANK z a WITHSCORE x"), "ERR wrong number of arguments for 'zrank' command");
    client.call("HELLO 3");
    let pair = |value: &Value| match value.items() {
        [member, Value::Double(score)] => (member.text(), score.clone()),
        other => panic!("{other:?}"),
    };
    for line in ["ZRANGE z 0 -1 WITHSCORES", "ZUNION 2 z none WITHSCORES", "ZRANGEBYSCORE z -inf inf WITHSCORES"] {
        let pairs: Vec<_> = client.call(line).items().iter().map(pair).collect();
        let expected = [("c", "-inf"), ("a", "0.1"), ("b", "100000000000000000")];
        assert_eq!(pairs, expected.map(|(member, score)| (member.to_owned(), score.to_owned())), "{line}");
    }
    assert!(matches!(client.call("ZSCORE z a"), Value::Double(score) if score == "0.1"));
    assert!(matches!(client.call("ZINCRBY z 0.2 a"), Value::Double(score) if score == "0.30000000000000004"));
    // One member without a count lies flat, as many as a count says lie in pairs.
    assert!(matches!(client.call("ZPOPMIN z").items(), [Value::Bulk(_), Value::Double(_)]));
    assert_eq!(pair(&client.call("ZPOPMIN z 1").items()[0]).0, "a");
    let popped = client.call("ZMPOP 1 z MAX");
    assert_eq!((popped.items()[0].text(), pair(&popped.items()[1].items()[0]).0), ("z".to_owned(), "b".to_owned()));
}

#[test]
fn a_sorted_set_of_another_type_or_that_is_none_is_told() {
    let server = start(&[]);
    let mut client = server.client();
    for line in ["SADD set 1", "HSET hash f v", "SET string x", "RPUSH list a", "ZADD z 1 a"] {
        client.call(line);
    }
    for key in ["hash", "string", "list"] {
        for line in
            ["ZADD KEY 1 a", "ZCARD KEY", "ZPOPMIN KEY", "ZRANGE KEY 0 -1", "ZUNION 2 z KEY", "ZDIFFSTORE to 1 KEY"]
        {
            let reply = client.text(&line.replace("KEY", key));
            assert!(reply.starts_with("WRONGTYPE"), "{line} {key}: {reply}");
        }
    }
    for line in ["GET z", "SADD z a", "HGET z f", "LPUSH z a", "SUNION z", "SSCAN z 0"] {
        assert!(client.text(line).starts_with("WRONGTYPE"), "{line}");
    }
    assert_eq!(client.text("ZUNIONSTORE to 2 z set"), "2");
    let scanned = client.call("SCAN 0 TYPE zset COUNT 100");
    assert_eq!(scanned.items()[1].items().len(), 2);
    assert_eq!(client.text("SET z x"), "OK", "SET replaces a sorted set");
}

#[test]
fn large_and_small_sorted_sets_come_back_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let server = start_in(dir.path(), &[]);
    let mut client = server.client();
    client.call("ZADD small 1 a 2.5 b");
    for first in (0..20_000).step_by(1000) {
        let words: Vec<String> =
            (first..first + 1000).map(|number| format!("{} member:{number}", number % 977)).collect();
        client.call(&format!("ZADD large {}", words.join(" ")));
    }
    assert_eq!(client.text("OBJECT ENCODING large"), "skiplist");
    let digest = client.text("DEBUG DIGEST");
    assert_eq!(client.text("SAVE"), "OK");
    drop(server);
    let server = start_in(dir.path(), &[]);
    let mut client = server.client();
    assert_eq!((client.text("DEBUG DIGEST"), client.text("ZCARD large")), (digest, "20000".to_owned()));
    assert_eq!(client.text("ZCOUNT large 10 (12"), "42");
    assert_eq!(client.text("COPY large copy"), "1");
    assert_eq!(client.text("ZREMRANGEBYRANK large 0 9999"), "10000");
    assert_eq!(client.text("ZCARD copy"), "20000");
}
