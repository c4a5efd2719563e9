//! Publish/subscribe and MONITOR: who receives what in which order, what a client of RESP2 may send meanwhile, and that a client that
//! does not read is bounded and one that goes leaves nothing.

use crate::common::{self, Client, Value, eventually, request, start};

fn array(words: &[&str]) -> Value {
    Value::Array(words.iter().map(|word| Value::Bulk((*word).into())).collect())
}

/// The reply to a subscription, or to its end.
fn told(word: &str, name: &str, count: i64) -> Value {
    Value::Array(vec![Value::Bulk(word.into()), Value::Bulk(name.into()), Value::Int(count)])
}

fn fields(admin: &mut Client) -> Vec<String> {
    ["pubsub_channels", "pubsub_patterns", "pubsubshard_channels"].iter().map(|name| admin.info(name)).collect()
}

#[test]
fn a_message_reaches_all_that_listen_by_name_and_by_pattern() {
    let server = start(&[]);
    let (mut first, mut second, mut sender) = (server.client(), server.client(), server.client());
    assert_eq!(first.call("SUBSCRIBE news other"), told("subscribe", "news", 1));
    assert_eq!(first.reply(), told("subscribe", "other", 2));
    assert_eq!(first.call("PSUBSCRIBE n?ws"), told("psubscribe", "n?ws", 3));
    assert_eq!(second.call("PSUBSCRIBE *"), told("psubscribe", "*", 1));
    assert_eq!(second.call("SSUBSCRIBE news"), told("ssubscribe", "news", 1));
    assert_eq!(sender.call("PUBLISH news hello"), Value::Int(3));
    assert_eq!(sender.call("SPUBLISH news shard"), Value::Int(1));
    assert_eq!(sender.call("PUBLISH none x"), Value::Int(1));
    assert_eq!(first.reply(), array(&["message", "news", "hello"]));
    assert_eq!(first.reply(), array(&["pmessage", "n?ws", "news", "hello"]));
    assert_eq!(second.reply(), array(&["pmessage", "*", "news", "hello"]));
    assert_eq!(second.reply(), array(&["smessage", "news", "shard"]));
    assert_eq!(second.reply(), array(&["pmessage", "*", "none", "x"]));
    assert_eq!(
        sender.call("PUBSUB NUMSUB news none"),
        Value::Array(vec![Value::Bulk("news".into()), Value::Int(1), Value::Bulk("none".into()), Value::Int(0)])
    );
    assert_eq!(sender.call("PUBSUB CHANNELS n*"), array(&["news"]));
    assert_eq!(sender.call("PUBSUB SHARDCHANNELS"), array(&["news"]));
    assert_eq!(
        (sender.text("PUBSUB NUMPAT"), fields(&mut sender)),
        ("2".into(), vec!["2".into(), "2".into(), "1".into()])
    );
    assert_eq!(first.call("UNSUBSCRIBE news none"), told("unsubscribe", "news", 2));
    assert_eq!(first.reply(), told("unsubscribe", "none", 2));
    assert_eq!(first.call("PUNSUBSCRIBE"), told("punsubscribe", "n?ws", 1));
    assert_eq!(first.call("UNSUBSCRIBE"), told("unsubscribe", "other", 0));
    let none = Value::Array(vec![Value::Bulk("sunsubscribe".into()), Value::Null, Value::Int(0)]);
    assert_eq!(first.call("SUNSUBSCRIBE"), none);
    assert_eq!(first.text("PING"), "PONG", "it is an ordinary client again");
}

#[test]
fn a_client_of_resp2_that_listens_may_send_little_else() {
    let server = start(&[]);
    let mut client = server.client();
    client.call("SUBSCRIBE a");
    let refused = "ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context";
    assert_eq!(client.call("GET x"), Value::Error(refused.into()));
    assert_eq!((client.call("PING"), client.call("PING hi")), (array(&["pong", ""]), array(&["pong", "hi"])));
    assert_eq!(client.text("RESET"), "RESET");
    assert_eq!(client.text("GET x"), "(nil)");
    assert_eq!(server.client().text("PUBLISH a x"), "0", "a reset ends what a client listens to");
    // RESP3 tells messages from replies.
    client.call("HELLO 3");
    client.call("SUBSCRIBE a");
    assert_eq!((client.text("GET x"), client.text("PING")), ("(nil)".into(), "PONG".into()));
}

#[test]
fn what_a_client_sends_itself_follows_the_reply() {
    let server = start(&[]);
    let mut client = server.client();
    client.call("HELLO 3");
    client.call("SUBSCRIBE a");
    assert_eq!((client.call("PUBLISH a 1"), client.reply()), (Value::Int(1), array(&["message", "a", "1"])));
    for line in ["MULTI", "PUBLISH a 2", "PUBLISH a 3"] {
        client.call(line);
    }
    assert_eq!(client.call("EXEC"), Value::Array(vec![Value::Int(1), Value::Int(1)]));
    assert_eq!((client.reply(), client.reply()), (array(&["message", "a", "2"]), array(&["message", "a", "3"])));
    client.send(request("CLIENT REPLY OFF"));
    client.send(request("PUBLISH a 4"));
    assert_eq!(client.reply(), array(&["message", "a", "4"]), "a message is no reply");
}

#[test]
fn a_client_without_replies_is_told_that_it_listens() {
    let server = start(&[]);
    for hello in ["HELLO 2", "HELLO 3"] {
        let mut client = server.client();
        client.call(hello);
        client.send(request("CLIENT REPLY OFF"));
        assert_eq!(client.call("SUBSCRIBE a").items()[0].text(), "subscribe");
        assert_eq!(client.call("PSUBSCRIBE p*").items()[0].text(), "psubscribe");
        client.send([request("PING"), request("SUBSCRIBE")].concat());
        assert_eq!(server.client().call("PUBLISH a 1"), Value::Int(1));
        assert_eq!(client.reply(), array(&["message", "a", "1"]));
        assert_eq!(client.call("UNSUBSCRIBE a").items()[0].text(), "unsubscribe");
        assert_eq!(client.call("PUNSUBSCRIBE").items()[0].text(), "punsubscribe");
        assert_eq!(client.text("CLIENT REPLY ON"), "OK");
        client.send(request("CLIENT REPLY SKIP"));
        assert_eq!(client.call("SUBSCRIBE b").items()[0].text(), "subscribe");
        assert_eq!(client.call("UNSUBSCRIBE").items()[0].text(), "unsubscribe");
    }
}

#[test]
fn subscriptions_go_with_their_client() {
    let server = start(&[]);
    let mut admin = server.client();
    for how in ["closed", "killed"] {
        let mut client = server.client();
        client.call("SUBSCRIBE a b");
        client.reply();
        client.call("PSUBSCRIBE p*");
        client.call("SSUBSCRIBE s");
        let line = admin.text("CLIENT LIST TYPE pubsub");
        assert!(line.contains(" flags=P ") && line.contains(" sub=2 psub=1 ssub=1 "), "{line}");
        assert_eq!(admin.text("CLIENT LIST TYPE normal").lines().count(), 1);
        if how == "killed" {
            assert_eq!(admin.text("CLIENT KILL TYPE pubsub"), "1");
            client.closed();
        } else {
            drop(client);
        }
        eventually("nothing is left", || fields(&mut admin) == ["0", "0", "0"]);
        assert_eq!(admin.text("PUBLISH a x"), "0", "{how}");
    }
}

#[test]
fn a_client_that_does_not_read_its_messages_is_closed_and_others_are_served() {
    let server = start(&[("client-output-buffer-limit", "pubsub 4mb 0 0")]);
    let (mut slow, mut quick, mut sender) = (server.client(), server.client(), server.client());
    slow.call("SUBSCRIBE a");
    quick.call("SUBSCRIBE a");
    let message = vec![b'x'; 1 << 20];
    for sent in 1.. {
        assert!(sent < 1000, "the client that does not read is never closed");
        let receivers = sender.words(&[b"PUBLISH", b"a", &message]).int();
        assert_eq!(quick.reply().items()[2], Value::Bulk(message.clone()));
        if receivers == 1 {
            break;
        }
    }
    assert_eq!(sender.info("client_output_buffer_limit_disconnections"), "1");
    assert_eq!(sender.info("pubsub_channels"), "1");
    // One message above the limit closes its receiver, too, also the sender.
    let mut own = server.client();
    own.call("HELLO 3");
    own.call("SUBSCRIBE b");
    own.send(common::framed(&[b"PUBLISH", b"b", &[b'x'; 5 << 20]]));
    while own.try_reply().is_some() {}
    eventually("it is closed", || sender.call("PUBSUB CHANNELS b*") == array(&[]));
}

#[test]
fn many_messages_in_one_turn_arrive_in_order() {
    let server = start(&[]);
    let (mut client, mut sender) = (server.client(), server.client());
    client.call("SUBSCRIBE a");
    let all: Vec<u8> = (0..20_000).flat_map(|number| request(&format!("PUBLISH a {number}"))).collect();
    let reader = std::thread::spawn(move || {
        for number in 0..20_000 {
            assert_eq!(client.reply().items()[2].text(), number.to_string());
        }
    });
    sender.send(&all);
    for _ in 0..20_000 {
        assert_eq!(sender.reply(), Value::Int(1));
    }
    reader.join().unwrap();
}

#[test]
fn a_monitor_sees_a_command_that_waits_on_keys_once_when_it_begins() {
    let server = start(&[]);
    let (mut monitor, mut client, mut waiter) = (server.client(), server.client(), server.client());
    assert_eq!(monitor.text("MONITOR"), "OK");
    let mut shown = || {
        let line = monitor.reply().text();
        line.split_once("] ").unwrap().1.to_owned()
    };
    waiter.send(request("BLPOP l 0"));
    assert_eq!(shown(), r#""BLPOP" "l" "0""#);
    client.call("SET l string");
    client.call("DEL l");
    client.call("RPUSH l a");
    assert_eq!(waiter.reply().items().len(), 2);
    client.call("RPUSH l b");
    waiter.call("BLPOP l 0");
    for words in
        [r#""SET" "l" "string""#, r#""DEL" "l""#, r#""RPUSH" "l" "a""#, r#""RPUSH" "l" "b""#, r#""BLPOP" "l" "0""#]
    {
        assert_eq!(shown(), words);
    }
}

#[test]
fn a_monitor_sees_commands_as_they_are_run_and_no_secrets() {
    let server = start(&[("requirepass", "secret")]);
    let (mut monitor, mut client) = (server.client(), server.client());
    monitor.call("AUTH secret");
    assert_eq!(monitor.text("MONITOR"), "OK");
    client.call("AUTH secret");
    client.words(&[b"SET", b"a b", b"\"\n\x00"]);
    for line in ["SELECT 3", "CONFIG GET port", "MULTI", "GET x", "EXEC", "NOSUCH", "GET"] {
        client.call(line);
    }
    let mut lines = || {
        let line = monitor.reply().text();
        let (time, rest) = line.split_once(" [").unwrap();
        assert!(time.parse::<f64>().unwrap() > 1e9, "{line}");
        let (db, words) = (rest.split(' ').next().unwrap().to_owned(), rest.split_once("] ").unwrap().1.to_owned());
        (db, words)
    };
    for (db, words) in [
        ("0", r#""AUTH" "(redacted)""#),
        ("0", r#""SET" "a b" "\"\n\x00""#),
        ("3", r#""SELECT" "3""#),
        ("3", r#""MULTI""#),
        ("3", r#""GET" "x""#),
        ("3", r#""EXEC""#),
    ] {
        assert_eq!(lines(), (db.into(), words.into()));
    }
    assert_eq!(client.text("PING"), "PONG");
    assert_eq!(lines().1, r#""PING""#);
    assert!(client.text("CLIENT LIST").contains(" flags=O "));
    assert_eq!(monitor.text("RESET"), "RESET");
    monitor.call("AUTH secret");
    client.call("PING");
    assert_eq!(monitor.text("ECHO end"), "end");
}

#[test]
fn a_monitor_that_leaves_much_unread_is_closed_after_the_seconds_of_the_soft_limit() {
    let server = start(&[("client-output-buffer-limit", "normal 0 0 0 pubsub 0 1mb 1")]);
    let (mut monitor, mut quick, mut client) = (server.client(), server.client(), server.client());
    assert_eq!((monitor.text("MONITOR"), quick.text("MONITOR")), ("OK".to_owned(), "OK".to_owned()));
    // More than what the kernel takes for it.
    let word = vec![b'x'; 1 << 20];
    for _ in 0..24 {
        assert_eq!(client.words(&[b"ECHO", &word]), Value::Bulk(word.clone()));
        assert!(quick.reply().text().contains("ECHO"));
    }
    eventually("it is closed", || {
        let clients = client.info("connected_clients");
        assert!(quick.reply().text().contains("INFO"));
        clients == "2"
    });
    assert_eq!(client.info("client_output_buffer_limit_disconnections"), "1");
    assert!(quick.reply().text().contains("INFO"));
    assert!(client.text("CLIENT LIST TYPE normal").contains(" flags=O "));
}

#[test]
fn the_largest_client_is_closed_for_a_message_and_not_the_one_that_is_sent_it() {
    // The sockets of those that don't read yet may take 7 MiB each of a message; the limit is passed all the same.
    const MESSAGE_BYTES: usize = 30 << 20;
    const SILENT_BYTES: usize = 60 << 20;
    let server = start(&[("maxmemory-clients", "100mb")]);
    let (mut silent, mut sender) = (server.client(), server.client());
    let id = silent.call("CLIENT ID").int();
    // A request that never becomes whole.
    silent.send(format!("*2\r\n$4\r\nECHO\r\n${}\r\n", SILENT_BYTES + 1));
    silent.send(vec![b'x'; SILENT_BYTES]);
    let unread = |line: &str| line.split(' ').find_map(|field| field.strip_prefix("qbuf=")?.parse::<usize>().ok());
    eventually("all of it is here", || unread(&sender.text(&format!("CLIENT LIST ID {id}"))) >= Some(SILENT_BYTES));
    let mut listeners: Vec<_> = (0..2).map(|_| server.client()).collect();
    for client in &mut listeners {
        client.call("SUBSCRIBE a");
    }
    assert_eq!(sender.info("evicted_clients"), "0", "all together take less than they may");
    let message = vec![b'm'; MESSAGE_BYTES];
    assert_eq!(sender.words(&[b"PUBLISH", b"a", &message]), Value::Int(2));
    silent.closed();
    for mut client in listeners {
        assert!(client.reply().items()[2] == Value::Bulk(message.clone()), "a client that reads gets its message");
    }
    assert_eq!(
        (sender.info("evicted_clients"), sender.info("client_output_buffer_limit_disconnections")),
        ("1".into(), "0".into())
    );
}

#[test]
fn a_client_that_reads_is_sent_more_in_one_turn_than_it_may_leave_unread() {
    let server = start(&[("client-output-buffer-limit", "pubsub 200kb 0 0")]);
    let (mut client, mut sender) = (server.client(), server.client());
    client.call("SUBSCRIBE a");
    let message = vec![b'm'; 80 << 10];
    sender.call("MULTI");
    for _ in 0..4 {
        sender.words(&[b"PUBLISH", b"a", &message]);
    }
    // What the socket takes is not unread, and it takes this much.
    sender.call("EXEC");
    for _ in 0..4 {
        assert_eq!(client.reply().items()[2], Value::Bulk(message.clone()));
    }
}

#[test]
fn patterns_are_bounded_and_take_no_longer_for_what_they_hold() {
    let server = start(&[]);
    let (mut client, mut sender) = (server.client(), server.client());
    let too_long = vec![b'*'; (64 << 10) + 1];
    let refusal = Value::Error("ERR a pattern may have at most 65536 bytes".into());
    for words in [
        [b"PSUBSCRIBE".as_slice(), b"a", &too_long].as_slice(),
        &[b"KEYS", &too_long],
        &[b"SCAN", b"0", b"MATCH", &too_long],
        &[b"PUBSUB", b"CHANNELS", &too_long],
        &[b"CONFIG", b"GET", &too_long],
    ] {
        assert_eq!(client.words(words), refusal);
    }
    assert_eq!(sender.info("pubsub_patterns"), "0", "all or nothing");
    let long = [b"*[".as_slice(), &vec![b'x'; 60_000], b"]!"].concat();
    client.words(&[b"PSUBSCRIBE", &long]);
    let began = std::time::Instant::now();
    let channel = vec![b'x'; 1000];
    for _ in 0..200 {
        sender.words(&[b"PUBLISH", &channel, b""]);
    }
    // Looked through for each letter the class takes twelve thousand million steps.
    assert!(began.elapsed() < std::time::Duration::from_secs(6), "{:?}", began.elapsed());
    assert_eq!(sender.words(&[b"PUBLISH", b"ax!", b""]), Value::Int(1));
}
