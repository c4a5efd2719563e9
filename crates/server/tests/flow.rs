//! Clients that are slow, greedy, many or gone: what the server keeps for them is bounded, and others are served meanwhile.

#[allow(dead_code, reason = "the other tests use other parts of it")]
mod common;

use std::net::TcpStream;
use std::time::Duration;

use common::{Client, Running, Value, eventually, framed, request, start};

const MIB: usize = 1 << 20;

/// A server with a value of so many bytes under `big`.
fn with_big(bytes: usize, settings: &[(&str, &str)]) -> Running {
    let server = start(settings);
    assert_eq!(server.client().words(&[b"SET", b"big", &vec![b'x'; bytes]]).text(), "OK");
    server
}

/// A number from the line that CLIENT LIST has for this client.
fn listed(asker: &mut Client, id: i64, field: &str) -> usize {
    let line = asker.text(&format!("CLIENT LIST ID {id}"));
    let prefix = format!("{field}=");
    line.split_whitespace().find_map(|pair| pair.strip_prefix(&prefix)).unwrap_or("0").parse().unwrap()
}

#[test]
fn a_slow_reader_gets_everything_and_no_other_client_waits_for_it() {
    let server = with_big(MIB, &[]);
    let (mut slow, mut other) = (server.client(), server.client());
    let id = slow.call("CLIENT ID").int();
    for _ in 0..300 {
        slow.send(request("GET big"));
    }
    slow.send(request("ECHO end"));
    eventually("replies pile up", || listed(&mut other, id, "omem") > 16 * MIB);
    for _ in 0..100 {
        assert_eq!(other.text("PING"), "PONG");
        assert!(listed(&mut other, id, "omem") < 48 * MIB, "the pile is bounded");
    }
    for _ in 0..300 {
        assert!(matches!(slow.reply(), Value::Bulk(value) if value.len() == MIB));
    }
    assert_eq!(slow.reply().text(), "end");
    eventually("its buffers are gone", || listed(&mut other, id, "omem") == 0);
}

#[test]
fn all_clients_of_one_turn_get_their_replies_short_and_long_in_order() {
    let server = with_big(MIB, &[]);
    let mut sleeper = server.client();
    let mut clients: Vec<Client> = (0..40).map(|_| server.client()).collect();
    for round in 0..5 {
        // All of them are ready when the loop looks again.
        sleeper.send(request("DEBUG SLEEP 0.1"));
        for (number, client) in clients.iter_mut().enumerate() {
            for line in [format!("ECHO {round}:{number}"), format!("INCR own:{number}")] {
                client.send(request(&line));
            }
            if number % 7 == 3 {
                client.send(request("GET big"));
            }
            client.send(request("ECHO end"));
        }
        assert_eq!(sleeper.reply().text(), "OK");
        for (number, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.reply().text(), format!("{round}:{number}"));
            assert_eq!(client.reply().int(), round + 1);
            if number % 7 == 3 {
                assert!(matches!(client.reply(), Value::Bulk(value) if value.len() == MIB));
            }
            assert_eq!(client.reply().text(), "end");
        }
    }
}

#[test]
fn a_client_that_leaves_in_the_turn_of_others_gets_its_last_replies() {
    let server = start(&[]);
    let mut sleeper = server.client();
    let mut leaving: Vec<Client> = (0..20).map(|_| server.client()).collect();
    sleeper.send(request("DEBUG SLEEP 0.1"));
    for (number, client) in leaving.iter_mut().enumerate() {
        client.send(request("INCR counter"));
        if number % 2 == 0 {
            client.send(request("QUIT"));
        }
        client.end();
    }
    assert_eq!(sleeper.reply().text(), "OK");
    let mut told: Vec<i64> = leaving.iter_mut().map(|client| client.reply().int()).collect();
    told.sort_unstable();
    assert_eq!(told, (1..=20).collect::<Vec<i64>>());
    for (number, client) in leaving.iter_mut().enumerate() {
        if number % 2 == 0 {
            assert_eq!(client.reply().text(), "OK");
        }
        client.closed();
    }
}

#[test]
fn requests_of_a_client_that_does_not_read_stay_with_it() {
    let server = with_big(MIB, &[]);
    let stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut flooding = Client::over(stream);
    let mut other = server.client();
    let id = flooding.call("CLIENT ID").int();
    let requests = request("GET big").repeat(10_000);
    let mut taken = 0;
    while taken < 400 && flooding.try_send(&requests) {
        taken += 1;
    }
    assert!(taken < 400, "the server reads on although its replies are not read");
    assert!(listed(&mut other, id, "tot-mem") < 64 * MIB);
    // It is noticed when such a client leaves.
    drop(flooding);
    eventually("it is gone", || other.text(&format!("CLIENT LIST ID {id}")).is_empty());
}

#[test]
fn strangers_who_do_not_read_get_little() {
    let server = start(&[("requirepass", "secret")]);
    let stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut stranger = Client::over(stream);
    let mut other = server.client();
    other.text("AUTH secret");
    let id = other.call("CLIENT ID").int() - 1;
    let requests = b"x\r\n".repeat(100_000);
    let mut taken = 0;
    while taken < 400 && stranger.try_send(&requests) {
        taken += 1;
    }
    assert!(taken < 400);
    assert!(listed(&mut other, id, "tot-mem") < MIB);
}

#[test]
fn replies_beyond_the_hard_limit_end_the_connection() {
    let server = with_big(16 * MIB, &[("client-output-buffer-limit", "normal 4mb 0 0")]);
    let mut other = server.client();
    for line in ["GET big", "MGET big big big big big big big big big big"] {
        let mut greedy = server.client();
        greedy.send(request(line));
        // It never reads; what the kernel holds for it is not counted.
        eventually("it is closed", || other.info("connected_clients") == "1");
    }
    let mut greedy = server.client();
    greedy.send("MULTI\r\nSET done 1\r\n");
    greedy.send(b"GET big\r\n".repeat(50));
    greedy.send("SET done 2\r\nEXEC\r\n");
    eventually("it is closed", || other.info("connected_clients") == "1");
    assert_eq!(other.text("GET done"), "2", "a transaction runs to its end all the same");
    assert_eq!(other.info("client_output_buffer_limit_disconnections"), "3");
}

#[test]
fn the_soft_limit_leaves_some_time() {
    let server = with_big(16 * MIB, &[("client-output-buffer-limit", "normal 0 1mb 1")]);
    let (mut slow, mut other) = (server.client(), server.client());
    let id = slow.call("CLIENT ID").int();
    slow.send(request("GET big"));
    eventually("it waits", || listed(&mut other, id, "omem") > MIB);
    eventually("it is closed", || other.info("connected_clients") == "1");
    assert_eq!(other.info("client_output_buffer_limit_disconnections"), "1");
}

#[test]
fn requests_beyond_the_query_limit_end_the_connection() {
    let server = start(&[("client-query-buffer-limit", "1mb")]);
    let mut client = server.client();
    client.try_send(framed(&[b"SET", b"k", &vec![b'x'; 4 * MIB]]));
    client.closed();
    let mut client = server.client();
    client.send("MULTI\r\n");
    let value = vec![b'x'; MIB / 4];
    while client.try_send(framed(&[b"SET", b"k", &value])) {}
    let mut other = server.client();
    assert_eq!(other.call("EXISTS k"), Value::Int(0));
    assert_eq!(other.info("client_query_buffer_limit_disconnections"), "1");
}

#[test]
fn a_long_pipeline_leaves_others_their_turn() {
    let server = start(&[]);
    let (mut long, mut other) = (server.client(), server.client());
    let pipeline = [request("DEBUG SLEEP 0.01").repeat(100), request("SET done 1")].concat();
    // The other client may come too late, however long the pipeline is. Without a turn of its own it would come too late always.
    eventually("another client has its turn amid the pipeline", || {
        other.text("DEL done");
        long.send(pipeline.clone());
        assert_eq!(long.reply().text(), "OK");
        let is_amid = other.call("EXISTS done") == Value::Int(0);
        (0..100).for_each(|_| assert_eq!(long.reply().text(), "OK"));
        is_amid
    });
    drop(long);
    eventually("it is gone", || other.info("connected_clients") == "1");
}

#[test]
fn who_stops_sending_still_gets_its_replies() {
    let server = with_big(40 * MIB, &[]);
    let mut client = server.client();
    client.send(request("GET big"));
    client.end();
    assert!(matches!(client.reply(), Value::Bulk(value) if value.len() == 40 * MIB));
    assert_eq!(client.try_reply(), None);
}

#[test]
fn what_was_sent_before_the_end_is_executed_and_answered() {
    let server = with_big(MIB, &[]);
    let mut client = server.client();
    // Far more than its share of one turn of the loop.
    let requests: Vec<u8> = (0..500).flat_map(|_| [request("BITCOUNT big"), request("INCR n")].concat()).collect();
    client.send(requests);
    client.end();
    for count in 1..=500 {
        assert_eq!((client.reply(), client.reply()), (Value::Int(MIB as i64 * 4), Value::Int(count)));
    }
    assert_eq!(client.try_reply(), None);
    eventually("its connection is closed", || server.client().info("connected_clients") == "1");
}

#[test]
fn all_clients_together_take_no_more_than_they_may() {
    let limit = 64 * MIB;
    let server = with_big(MIB, &[("maxmemory-clients", "64mb")]);
    let mut other = server.client();
    let bytes = |other: &mut Client| other.info("mem_clients_normal").parse::<usize>().unwrap();
    assert_eq!(other.info("mem_clients_limit"), limit.to_string());
    // Each of them alone may leave half of it unread.
    let mut slow: Vec<Client> = (0..10).map(|_| server.client()).collect();
    for client in &mut slow {
        client.send(request("GET big").repeat(50));
        assert!(bytes(&mut other) <= limit);
    }
    eventually("all wait", || other.info("paused_clients") == "10");
    assert!(bytes(&mut other) <= limit);
    assert_eq!(other.info("evicted_clients"), "0", "they wait, and none is closed");
    for client in &mut slow {
        for _ in 0..50 {
            assert!(matches!(client.reply(), Value::Bulk(value) if value.len() == MIB));
        }
    }
    eventually("nothing is counted any more", || bytes(&mut other) == 0);
}

#[test]
fn the_client_that_takes_most_is_closed_first() {
    let server = with_big(40 * MIB, &[]);
    let (mut other, mut small, mut large) = (server.client(), server.client(), server.client());
    other.text("SETRANGE less 20971520 x");
    // Not before: requests count, too, and the one that set the large value was as large.
    other.text("CONFIG SET maxmemory-clients 50mb");
    small.send(request("GET less"));
    eventually("its reply waits", || listed(&mut other, 3, "omem") > 15 * MIB);
    large.send(request("GET big"));
    eventually("one is closed", || other.info("evicted_clients") == "1");
    assert!(matches!(small.reply(), Value::Bulk(value) if value.len() == 20 * MIB + 1));
    assert_eq!(large.try_reply(), None, "it is the larger one");
    // One that may not be evicted stays, and the other one goes.
    let (mut kept, mut small) = (server.client(), server.client());
    kept.text("CLIENT NO-EVICT ON");
    kept.send(request("GET big"));
    eventually("its reply waits", || other.info("mem_clients_normal").parse::<usize>().unwrap() > 30 * MIB);
    small.send(request("GET less"));
    eventually("the other one is closed", || other.info("evicted_clients") == "2");
    assert!(matches!(kept.reply(), Value::Bulk(value) if value.len() == 40 * MIB));
    // A reply that alone is larger than all of it closes its client.
    other.text("CONFIG SET maxmemory-clients 1mb");
    let mut greedy = server.client();
    greedy.send([request("GET less"), request("GET less")].concat());
    assert!(greedy.try_reply().is_none_or(|reply| matches!(reply, Value::Bulk(_))));
    assert_eq!(other.text("PING"), "PONG");
}

#[test]
fn a_share_of_maxmemory_limits_clients() {
    let server = start(&[("maxmemory", "100mb"), ("maxmemory-clients", "25%")]);
    let mut client = server.client();
    assert_eq!(client.info("mem_clients_limit"), (25 * MIB).to_string());
    assert_eq!(client.call("CONFIG GET maxmemory-clients").items()[1].text(), "25%");
    client.text("CONFIG SET maxmemory 0");
    assert!(client.info("mem_clients_limit").parse::<usize>().unwrap() >= 1 << 30, "what suits the machine");
    for bad in ["-1%", "%", "x"] {
        let answer = client.text(&format!("CONFIG SET maxmemory-clients {bad}"));
        assert!(answer.ends_with("argument must be a memory or percent value"), "{answer}");
    }
    let answer = client.text("CONFIG SET maxmemory-clients 101%");
    assert!(answer.ends_with("percentage argument must be less or equal to 100"), "{answer}");
}

/// What has a client hold memory, and the command that lets it go.
type Way<'a> = (&'a dyn Fn(&mut Client), &'a str);

#[test]
fn what_clients_hold_counts_for_maxmemory() {
    let server = start(&[("maxmemory", "20mb")]);
    let (mut holder, mut other) = (server.client(), server.client());
    let oom = "OOM command not allowed when used memory > 'maxmemory'.";
    assert_eq!(other.text("SET a 1"), "OK");
    let queue = |holder: &mut Client| {
        holder.text("MULTI");
        (0..30).for_each(|_| assert_eq!(holder.text(&format!("ECHO {}", "x".repeat(MIB))), "QUEUED"));
    };
    let watch = |holder: &mut Client| {
        (0..300).for_each(|key| assert_eq!(holder.text(&format!("WATCH {key}{}", "x".repeat(100_000))), "OK"));
    };
    let name = |holder: &mut Client| assert_eq!(holder.text(&format!("CLIENT SETNAME {}", "x".repeat(30 * MIB))), "OK");
    let ways: [Way<'_>; 3] = [(&queue, "DISCARD"), (&watch, "UNWATCH"), (&name, "RESET")];
    for (hold, let_go) in ways {
        hold(&mut holder);
        assert_eq!(other.text("SET a 2"), oom, "before {let_go}");
        assert!(other.info("used_memory").parse::<usize>().unwrap() > 20 * MIB);
        holder.text(let_go);
        eventually("it is free again", || other.text("SET a 2") == "OK");
    }
}

#[test]
fn clients_that_write_in_the_same_turn_do_not_pass_maxmemory() {
    let server = start(&[("maxmemory", "4mb")]);
    let mut busy = server.client();
    let mut clients: Vec<Client> = (0..100).map(|_| server.client()).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.text("PING"), "PONG"));
    // While it sleeps the requests of the others come together.
    busy.send(request("DEBUG SLEEP 1"));
    let value = "x".repeat(200_000);
    for (key, client) in clients.iter_mut().enumerate() {
        client.send(request(&format!("SET {key} {value}")));
    }
    let done = clients.iter_mut().filter_map(|client| (client.reply().text() == "OK").then_some(())).count();
    assert!((15..=22).contains(&done), "{done} values of 200 kB in 4 MiB");
}

#[test]
fn a_scan_of_any_count_is_bounded_and_complete() {
    let server = start(&[]);
    let mut client = server.client();
    client.text("DEBUG POPULATE 50000");
    let requests: Vec<Vec<u8>> = (0..5000).map(|n| request(&format!("HSET h f{n} {}", "v".repeat(1000)))).collect();
    client.send(requests.concat());
    (0..5000).for_each(|_| assert_eq!(client.reply(), Value::Int(1)));
    let most = i64::MAX;
    for (command, words, least_calls) in [("SCAN", 1, 2), ("HSCAN h", 2, 5)] {
        let (mut cursor, mut calls, mut found) = ("0".to_owned(), 0, std::collections::HashSet::new());
        loop {
            let reply = client.call(&format!("{command} {cursor} COUNT {most}"));
            let items = reply.items()[1].items();
            let bytes: usize = items.iter().map(|item| item.text().len()).sum();
            assert!(bytes < 2 * MIB && items.len() <= 100_000, "{command}: {bytes} bytes");
            found.extend(items.iter().step_by(words).map(Value::text));
            calls += 1;
            cursor = reply.items()[0].text();
            if cursor == "0" {
                break;
            }
        }
        assert!(calls >= least_calls, "{command}: {calls} calls");
        assert_eq!(found.len(), if words == 1 { 50_001 } else { 5000 });
    }
}

#[test]
fn clients_beyond_maxclients_are_told_so() {
    let server = start(&[("maxclients", "2")]);
    let (mut first, mut second) = (server.client(), server.client());
    assert_eq!((first.text("PING"), second.text("PING")), ("PONG".into(), "PONG".into()));
    let mut third = server.client();
    assert_eq!(third.reply(), Value::Error("ERR max number of clients reached".into()));
    assert_eq!(third.try_reply(), None);
    assert_eq!(first.info("rejected_connections"), "1");
    drop(second);
    eventually("there is room again", || {
        let mut fourth = server.client();
        // It may be refused, and gone before it can ask.
        fourth.try_send("PING\r\n") && fourth.try_reply() == Some(Value::Simple("PONG".into()))
    });
}

#[test]
fn silent_clients_are_closed_after_the_timeout() {
    let server = start(&[("timeout", "1")]);
    let (mut silent, mut busy) = (server.client(), server.client());
    silent.text("PING");
    eventually("the silent one is closed", || busy.info("connected_clients") == "1");
    assert_eq!(silent.try_reply(), None);
}

#[test]
fn thousands_of_connections_are_served_and_cost_little() {
    // Both ends of each connection are in this process.
    let room = (quire_sys::limits::raise_open_files(21_000) - 500) / 2;
    let count = room.min(10_000) as usize;
    let server = start(&[("maxclients", "10000")]);
    let mut clients: Vec<Client> = (0..count - 1).map(|_| server.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(request(&format!("SET key:{number} {number}")));
    }
    for client in &mut clients {
        assert_eq!(client.reply().text(), "OK");
    }
    let mut asker = server.client();
    assert_eq!(asker.info("connected_clients"), count.to_string());
    assert_eq!(asker.call("DBSIZE"), Value::Int(count as i64 - 1));
    assert_eq!(asker.info("mem_clients_normal"), "0", "idle connections hold no buffers");
    drop(clients);
    eventually("all are gone", || asker.info("connected_clients") == "1");
}

#[test]
fn what_is_too_large_to_be_replied_with_is_not_taken_away() {
    let server = start(&[("client-output-buffer-limit", "normal 1mb 0 0")]);
    let mut client = server.client();
    let mut values = Vec::new();
    for number in 0..400 {
        values.push(format!("{number}{}", "x".repeat(10_000)));
    }
    for (command, key) in [("RPUSH", "list"), ("SADD", "set")] {
        for part in values.chunks(50) {
            client.call(&format!("{command} {key} {}", part.join(" ")));
        }
    }
    for (number, value) in values.iter().enumerate() {
        client.call(&format!("ZADD zset {number} {value}"));
    }
    let refusal = "ERR the reply would be larger than what a client may leave unread (client-output-buffer-limit, maxmemory-clients)";
    for line in [
        "LPOP list 400",
        "RPOP list 399",
        "LMPOP 1 list LEFT COUNT 200",
        "SPOP set 1000",
        "SPOP set 120",
        "ZPOPMIN zset 400",
        "ZPOPMAX zset 150",
        "ZMPOP 2 none zset MIN COUNT 500",
        "ZUNION 2 zset set",
        "ZINTER 2 zset set",
        "ZDIFF 2 zset none",
    ] {
        assert_eq!(client.call(line), Value::Error(refusal.into()), "{line}");
    }
    assert_eq!(
        (client.text("LLEN list"), client.text("SCARD set"), client.text("ZCARD zset")),
        ("400".into(), "400".into(), "400".into())
    );
    // In a transaction all replies are one.
    client.call("MULTI");
    for _ in 0..4 {
        client.call("LPOP list 40");
    }
    client.call("SET small x");
    client.call("GETDEL small");
    let replies = client.call("EXEC");
    assert_eq!((replies.items()[1].items().len(), &replies.items()[2]), (40, &Value::Error(refusal.into())));
    assert_eq!((client.text("LLEN list"), client.text("EXISTS small")), ("320".into(), "0".into()));
    for (line, replies) in [("LPOP list 50", 50), ("SPOP set 90", 90), ("ZPOPMIN zset 50", 100)] {
        assert_eq!(client.call(line).items().len(), replies, "{line}");
    }
    for _ in 0..3 {
        client.call("SPOP set 90");
    }
    assert_eq!(client.call("ZUNION 1 set").items().len(), 40);
    assert_eq!((client.text("LLEN list"), client.text("ZCARD zset")), ("270".into(), "350".into()));
}
