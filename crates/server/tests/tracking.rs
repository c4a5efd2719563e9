//! Client-side caching: who is told of which keys, in which order with its replies, by which connection; and that what the server
//! remembers for it is bounded and goes with its clients.

use crate::common::{Client, Running, Value, eventually, framed, request, start};

fn bulk(text: &str) -> Value {
    Value::Bulk(text.into())
}

/// What a client of RESP3 is told.
fn invalid(keys: &[&str]) -> Value {
    Value::Array(vec![bulk("invalidate"), Value::Array(keys.iter().copied().map(bulk).collect())])
}

/// What a client of RESP2 is told in another one's place.
fn message(keys: Value) -> Value {
    Value::Array(vec![bulk("message"), bulk("__redis__:invalidate"), keys])
}

/// A client of RESP3 that tracks.
fn tracking(server: &Running, options: &str) -> Client {
    let mut client = server.client();
    client.call("HELLO 3");
    assert_eq!(client.text(&format!("CLIENT TRACKING ON{options}")), "OK", "{options}");
    client
}

/// What CLIENT TRACKINGINFO tells of a client of RESP3.
fn flags(client: &mut Client) -> Vec<String> {
    match client.call("CLIENT TRACKINGINFO") {
        Value::Map(pairs) => match &pairs[0] {
            (name, Value::Set(flags)) if *name == bulk("flags") => flags.iter().map(Value::text).collect(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn counts(admin: &mut Client) -> Vec<String> {
    ["tracking_clients", "tracking_total_keys", "tracking_total_items", "tracking_total_prefixes"]
        .iter()
        .map(|name| admin.info(name))
        .collect()
}

#[test]
fn a_client_is_told_once_of_a_key_that_it_has_read() {
    let server = start(&[]);
    let (mut reader, mut writer) = (tracking(&server, ""), server.client());
    for line in ["SET a 1", "MSET b 2 c 3", "SET d 4"] {
        assert_eq!(writer.text(line), "OK");
    }
    assert_eq!(reader.call("MGET a b none"), Value::Array(vec![bulk("1"), bulk("2"), Value::Null]));
    assert_eq!(counts(&mut writer), ["1", "3", "3", "0"]);
    for (line, told) in [
        ("INCR a", Some("a")),
        ("INCR a", None),
        ("SET d 5", None),
        ("DEL b", Some("b")),
        ("LPUSH none x", Some("none")),
    ] {
        writer.call(line);
        match told {
            Some(key) => assert_eq!(reader.reply(), invalid(&[key]), "{line}"),
            None => assert!(reader.is_silent(), "{line}"),
        }
    }
    reader.call("GET a");
    assert_eq!(reader.text("CLIENT TRACKING OFF"), "OK");
    writer.call("INCR a");
    assert!(reader.is_silent(), "it does not track any more");
    assert_eq!(counts(&mut writer), ["0", "0", "0", "0"]);
}

#[test]
fn own_changes_follow_the_reply_or_are_not_told() {
    let server = start(&[]);
    let mut client = tracking(&server, "");
    client.call("GET a");
    assert_eq!((client.text("SET a 1"), client.reply()), ("OK".into(), invalid(&["a"])));
    client.call("MGET a b");
    for line in ["MULTI", "SET a 2", "SET b 2", "GET a"] {
        client.call(line);
    }
    assert_eq!(client.call("EXEC").items().len(), 3);
    assert_eq!((client.reply(), client.reply()), (invalid(&["a"]), invalid(&["b"])));
    // It was read after it was changed.
    assert_eq!((client.text("SET a 3"), client.reply()), ("OK".into(), invalid(&["a"])));
    let mut quiet = tracking(&server, " NOLOOP");
    quiet.call("GET a");
    assert_eq!(quiet.text("SET a 4"), "OK");
    assert!(quiet.is_silent());
    quiet.call("GET a");
    assert_eq!(client.text("SET a 5"), "OK");
    assert_eq!(quiet.reply(), invalid(&["a"]), "it is told of what others change");
    client.call("GET a");
    client.send(request("CLIENT REPLY OFF"));
    client.send(request("SET a 6"));
    assert_eq!(client.reply(), invalid(&["a"]), "a push is no reply");
}

#[test]
fn another_connection_is_told_in_a_clients_place_until_it_is_gone() {
    let server = start(&[]);
    let (mut listener, mut reader, mut writer) = (server.client(), server.client(), server.client());
    let id = listener.call("CLIENT ID").int();
    assert_eq!(reader.text(&format!("CLIENT TRACKING ON REDIRECT {id}")), "OK");
    assert_eq!((reader.call("CLIENT GETREDIR").int(), writer.call("CLIENT GETREDIR").int()), (id, -1));
    assert!(reader.text("CLIENT INFO").contains(" flags=t db=0 "));
    assert!(reader.text("CLIENT INFO").contains(&format!(" redir={id} ")));
    reader.call("GET a");
    writer.call("SET a 1");
    assert!(listener.is_silent(), "it does not listen to anything");
    listener.call("SUBSCRIBE __redis__:invalidate");
    reader.call("GET a");
    writer.call("SET a 2");
    assert_eq!(listener.reply(), message(Value::Array(vec![bulk("a")])));
    reader.call("GET a");
    assert_eq!(reader.text("FLUSHDB"), "OK");
    assert_eq!(listener.reply(), message(Value::Null));
    // One of RESP3 is told as if it tracked itself.
    let mut third = server.client();
    third.call("HELLO 3");
    let third_id = third.call("CLIENT ID").int();
    assert_eq!(
        reader.text(&format!("CLIENT TRACKING ON REDIRECT {third_id} BCAST")),
        "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode."
    );
    assert_eq!(reader.text(&format!("CLIENT TRACKING ON REDIRECT {third_id}")), "OK");
    reader.call("GET a");
    writer.call("SET a 3");
    assert_eq!(third.reply(), invalid(&["a"]));
    // What it changes itself, for a client that redirects to it, follows its reply.
    reader.call("GET a");
    assert_eq!((third.text("SET a 4"), third.reply()), ("OK".into(), invalid(&["a"])));
    drop(third);
    eventually("it is gone", || !writer.text("CLIENT LIST").contains(&format!("id={third_id} ")));
    reader.call("HELLO 3");
    reader.call("GET a");
    writer.call("SET a 5");
    assert_eq!(reader.reply(), Value::Array(vec![bulk("tracking-redir-broken"), Value::Int(third_id)]));
    assert!(reader.text("CLIENT INFO").contains(" flags=tR "));
    assert_eq!(flags(&mut reader), ["on", "broken_redirect"]);
}

#[test]
fn in_broadcast_mode_the_changes_of_a_turn_come_in_one_message() {
    let server = start(&[]);
    let (mut some, mut all) = (tracking(&server, " BCAST PREFIX user: PREFIX x"), tracking(&server, " BCAST NOLOOP"));
    let mut writer = server.client();
    assert_eq!(counts(&mut writer), ["2", "0", "0", "3"]);
    assert!(some.text("CLIENT INFO").contains(" flags=tB "));
    let lines = ["SET user:2 a", "SET user:1 a", "SET other a", "DEL user:2", "SET nothing a"];
    writer.send(lines.iter().flat_map(|line| request(line)).collect::<Vec<u8>>());
    lines.iter().for_each(|_| drop(writer.reply()));
    assert_eq!(some.reply(), invalid(&["user:1", "user:2"]));
    assert_eq!(all.reply(), invalid(&["nothing", "other", "user:1", "user:2"]));
    all.send([request("SET user:1 a"), request("SET user:3 a")].concat());
    assert_eq!((all.reply(), all.reply()), (Value::Simple("OK".into()), Value::Simple("OK".into())));
    assert!(all.is_silent(), "it is not told of its own changes");
    assert_eq!(some.reply(), invalid(&["user:1", "user:3"]));
    some.call("SET x 1");
    assert_eq!((some.reply(), all.reply()), (invalid(&["x"]), invalid(&["x"])));
    // What is read is not remembered.
    some.call("GET other");
    assert_eq!(counts(&mut writer)[1], "0");
    assert_eq!(
        some.text("CLIENT TRACKING ON BCAST PREFIX user"),
        "ERR Prefix 'user' overlaps with an existing prefix 'user:'. Prefixes for a single client must not overlap."
    );
    assert_eq!(
        some.text("CLIENT TRACKING ON BCAST PREFIX z PREFIX za"),
        "ERR Prefix 'z' overlaps with another provided prefix 'za'. Prefixes for a single client must not overlap."
    );
    assert_eq!(some.text("RESET"), "RESET");
    assert_eq!(counts(&mut writer), ["1", "0", "0", "1"]);
}

#[test]
fn many_changes_of_one_request_do_not_wait_for_its_end() {
    let server = start(&[]);
    let (mut all, mut writer) = (tracking(&server, " BCAST"), server.client());
    let keys: Vec<Vec<u8>> = (0..4).map(|number| vec![b'0' + number; 600 << 10]).collect();
    let mut words: Vec<&[u8]> = vec![b"MSET"];
    keys.iter().for_each(|key| words.extend([key, &b"x"[..]]));
    writer.send(framed(&words));
    assert_eq!(writer.reply(), Value::Simple("OK".into()));
    let mut told = Vec::new();
    while told.len() < keys.len() {
        let (items, before) = (all.reply().items()[1].items().to_vec(), told.len());
        told.extend(items);
        assert!(told.len() - before < keys.len(), "not all in one message");
    }
    assert_eq!(told, keys.into_iter().map(Value::Bulk).collect::<Vec<_>>());
}

#[test]
fn a_client_says_which_requests_are_tracked() {
    let server = start(&[]);
    let (mut chosen, mut rest, mut writer) =
        (tracking(&server, " OPTIN"), tracking(&server, " OPTOUT"), server.client());
    chosen.call("GET a");
    rest.call("GET a");
    assert_eq!((chosen.text("CLIENT CACHING YES"), rest.text("CLIENT CACHING NO")), ("OK".into(), "OK".into()));
    assert_eq!(flags(&mut chosen), ["on", "optin", "caching-yes"]);
    for client in [&mut chosen, &mut rest] {
        client.call("GET b");
        client.call("GET c");
    }
    writer.call("MSET a 1 b 1 c 1");
    assert_eq!((chosen.reply(), rest.reply(), rest.reply()), (invalid(&["b"]), invalid(&["a"]), invalid(&["c"])));
    // It holds for a whole transaction.
    chosen.call("CLIENT CACHING YES");
    for line in ["MULTI", "GET a", "GET b", "EXEC", "GET c"] {
        chosen.call(line);
    }
    writer.call("MSET a 1 b 1 c 1");
    assert_eq!((chosen.reply(), chosen.reply()), (invalid(&["a"]), invalid(&["b"])));
    assert!(chosen.is_silent() && rest.is_silent());
    // A request that is refused ends it, too.
    chosen.call("CLIENT CACHING YES");
    chosen.call("NOSUCH");
    chosen.call("GET a");
    writer.call("SET a 1");
    assert!(chosen.is_silent());
}

#[test]
fn keys_that_expire_or_are_flushed_are_told() {
    let server = start(&[]);
    let (mut reader, mut writer) = (tracking(&server, ""), server.client());
    writer.call("SET a 1 PX 30");
    reader.call("GET a");
    assert_eq!(reader.reply(), invalid(&["a"]), "it has expired");
    reader.call("GET b");
    writer.call("FLUSHALL");
    assert_eq!(reader.reply(), Value::Array(vec![bulk("invalidate"), Value::Null]));
    assert_eq!(counts(&mut writer), ["1", "0", "0", "0"]);
    assert_eq!(
        (reader.text("FLUSHDB"), reader.reply()),
        ("OK".into(), Value::Array(vec![bulk("invalidate"), Value::Null]))
    );
}

#[test]
fn keys_that_are_evicted_are_told() {
    let server = start(&[("maxmemory-policy", "allkeys-random")]);
    let (mut reader, mut writer) = (tracking(&server, ""), server.client());
    writer.call("SET a 1");
    reader.call("GET a");
    writer.call("CONFIG SET maxmemory 1");
    assert_eq!(reader.reply(), invalid(&["a"]));
    writer.call("CONFIG SET maxmemory 0");
    // A command of the client itself may be the one that room is made for.
    reader.call("SET a 1");
    reader.call("GET a");
    reader.send(request("CONFIG SET maxmemory 1"));
    let (first, second) = (reader.reply(), reader.reply());
    assert!([first.clone(), second.clone()].contains(&invalid(&["a"])), "{first:?} {second:?}");
}

#[test]
fn keys_that_go_to_make_room_for_a_command_are_told_before_its_reply() {
    let server = start(&[("maxmemory-policy", "allkeys-random"), ("maxmemory-eviction-tenacity", "100")]);
    let (mut reader, mut admin) = (tracking(&server, ""), server.client());
    reader.call("SET a 1");
    reader.call("GET a");
    // No room is made between commands.
    admin.call("DEBUG PAUSE-CRON 1");
    admin.call("CONFIG SET maxmemory 1");
    reader.send(request("SET b 1"));
    assert_eq!(reader.reply(), invalid(&["a"]));
    assert!(matches!(reader.reply(), Value::Error(_)), "nothing is left to go");
}

#[test]
fn what_is_told_before_a_reply_does_not_hide_that_it_is_an_error() {
    let server = start(&[("maxmemory-policy", "allkeys-random"), ("maxmemory-eviction-tenacity", "100")]);
    let (mut reader, mut admin) = (tracking(&server, ""), server.client());
    // No room is made between commands.
    admin.call("DEBUG PAUSE-CRON 1");
    let requests: [(&[&[u8]], &str, &str); 3] = [
        (&[b"EXEC"], "EXECABORT", "exec"),
        (&[b"EVAL", b"return redis.error_reply('MINE returned')", b"0"], "MINE", "eval"),
        (&[b"EVAL_RO", b"error({err = 'RAISED here'})", b"0"], "RAISED", "eval_ro"),
    ];
    for (words, error, command) in requests {
        reader.call("SET a 1");
        reader.call("GET a");
        if command == "exec" {
            reader.call("MULTI");
            reader.call("SET b 1");
        }
        admin.call("CONFIG SET maxmemory 1");
        reader.send(framed(words));
        assert_eq!(reader.reply(), invalid(&["a"]));
        let reply = reader.reply();
        assert!(matches!(&reply, Value::Error(line) if line.starts_with(error)), "{reply:?}");
        admin.call("CONFIG SET maxmemory 0");
        assert_eq!(admin.info(&format!("errorstat_{error}")), "count=1");
        let figures = admin.info(&format!("cmdstat_{command}"));
        assert!(figures.ends_with(",failed_calls=1"), "{command}: {figures}");
    }
}

#[test]
fn keys_that_go_after_a_command_are_told_before_the_reply_to_the_next() {
    let server = start(&[("maxmemory-policy", "volatile-random"), ("maxmemory-eviction-tenacity", "100")]);
    let (mut reader, mut admin) = (tracking(&server, ""), server.client());
    reader.call("SETEX volatile 10000 x");
    reader.call("GET volatile");
    let info = admin.text("INFO memory");
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().trim().parse::<u64>().unwrap();
    admin.call(&format!("CONFIG SET maxmemory {}", used + 100 * 1024));
    assert_eq!(reader.text("SETBIT large 1600000 0"), "0");
    reader.send(request("GETBIT large 0"));
    assert_eq!(reader.reply(), invalid(&["volatile"]));
    assert_eq!(reader.reply().text(), "0");
}

#[test]
fn scripts_and_transactions_have_their_keys_tracked() {
    let server = start(&[]);
    let (mut reader, mut writer) = (tracking(&server, ""), server.client());
    reader.words(&[b"EVAL", b"return redis.call('get', KEYS[2])", b"2", b"a", b"b"]);
    reader.words(&[b"EVAL", b"return redis.call('set', KEYS[1], 1)", b"1", b"c"]);
    assert_eq!(counts(&mut writer)[1], "1", "what a script has read, and nothing else that it was called with");
    reader.words(&[b"EVAL_RO", b"return redis.call('mget', 'a', 'b')", b"0"]);
    writer.words(&[b"EVAL", b"redis.call('set', KEYS[1], 1) redis.call('set', KEYS[2], 2)", b"2", b"a", b"b"]);
    assert_eq!((reader.reply(), reader.reply()), (invalid(&["a"]), invalid(&["b"])));
    for line in ["MULTI", "GET a", "HGET h f", "EXEC"] {
        reader.call(line);
    }
    writer.call("DEL a h");
    assert_eq!(reader.reply(), invalid(&["a"]));
    reader.call("XREAD COUNT 1 STREAMS s t 0 0");
    assert_eq!(counts(&mut writer)[1], "3");
}

#[test]
fn the_table_is_bounded_and_keys_that_leave_it_are_told() {
    let server = start(&[("tracking-table-max-keys", "10")]);
    let (mut reader, mut admin) = (tracking(&server, " NOLOOP"), server.client());
    let mut told = 0;
    for key in 0..100 {
        reader.send(request(&format!("GET key{key}")));
        loop {
            match reader.reply() {
                Value::Null => break,
                other => {
                    assert_eq!(other.items()[0], bulk("invalidate"));
                    told += 1;
                }
            }
        }
    }
    assert_eq!(counts(&mut admin), ["1", "10", "10", "0"]);
    while told < 90 {
        assert_eq!(reader.reply().items()[0], bulk("invalidate"));
        told += 1;
    }
    assert!(reader.is_silent());
    admin.call("CONFIG SET tracking-table-max-keys 3");
    (0..7).for_each(|_| assert_eq!(reader.reply().items()[0], bulk("invalidate")));
    assert_eq!(counts(&mut admin)[1], "3");
}

#[test]
fn keys_that_leave_the_table_for_a_lower_limit_are_told_before_the_next_reply() {
    let server = start(&[]);
    let mut reader = tracking(&server, "");
    reader.call("MGET a b c d e");
    // In one write, so that no time passes in which they could be told.
    reader.send("CONFIG SET tracking-table-max-keys 2\r\nMULTI\r\nPING\r\n");
    assert_eq!(reader.reply(), Value::Simple("OK".into()));
    (0..3).for_each(|_| assert_eq!(reader.reply().items()[0], bulk("invalidate")));
    assert_eq!(reader.reply(), Value::Simple("OK".into()));
    assert_eq!(reader.reply(), Value::Simple("QUEUED".into()));
    assert!(reader.is_silent());
}

#[test]
fn the_memory_of_the_table_is_bounded_whatever_the_keys_are() {
    let server = start(&[("maxmemory-clients", "4mb"), ("client-output-buffer-limit", "pubsub 0 0 0")]);
    // It reads none of what it is told, so that is bounded, too.
    let (mut reader, mut admin) = (server.client(), server.client());
    assert_eq!(reader.text("CLIENT TRACKING ON"), "OK");
    for number in 0..300 {
        let key = vec![b'0' + (number % 64) as u8; 20_000 + number];
        reader.words(&[b"GET", &key]);
    }
    let bytes: u64 = admin.info("tracking_memory_bytes").parse().unwrap();
    assert!((500_000..=1 << 20).contains(&bytes), "{bytes} bytes");
    drop(reader);
    eventually("nothing is left", || admin.info("tracking_memory_bytes") == "0");
    assert_eq!(counts(&mut admin), ["0", "0", "0", "0"]);
}

#[test]
fn a_large_table_is_freed_in_steps() {
    let server = start(&[]);
    let (mut reader, mut admin) = (server.client(), server.client());
    reader.call("CLIENT TRACKING ON");
    for chunk in 0..20 {
        let line = (0..1000).map(|number| format!(" k{chunk}:{number}")).collect::<String>();
        reader.call(&format!("MGET{line}"));
    }
    assert_eq!(counts(&mut admin)[1], "20000");
    admin.call("FLUSHALL");
    assert_eq!(counts(&mut admin)[1], "0");
    eventually("its memory is free", || admin.info("tracking_memory_bytes") == "0");
}

#[test]
fn a_client_that_does_not_read_what_it_is_told_is_closed() {
    let server = start(&[("client-output-buffer-limit", "pubsub 1mb 0 0")]);
    let (mut deaf, mut writer) = (tracking(&server, " BCAST"), server.client());
    let id = deaf.call("CLIENT ID").int();
    let key = vec![b'k'; 200 << 10];
    eventually("it is closed", || {
        writer.words(&[b"SET", &key, b"x"]);
        !writer.text("CLIENT LIST").contains(&format!("id={id} "))
    });
    assert_eq!(counts(&mut writer), ["0", "0", "0", "0"]);
}
