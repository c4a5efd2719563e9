//! CLIENT and its subcommands, over several connections.

use std::time::{Duration, Instant};

use crate::common::{Client, Value, eventually, framed, request, start};

fn field(line: &str, name: &str) -> String {
    let prefix = format!("{name}=");
    line.split_whitespace().find_map(|pair| pair.strip_prefix(&prefix)).unwrap_or_default().to_owned()
}

fn id(client: &mut Client) -> i64 {
    client.call("CLIENT ID").int()
}

#[test]
fn a_client_is_described() {
    let server = start(&[]);
    let mut client = server.client();
    assert_eq!(client.text("CLIENT SETNAME worker"), "OK");
    assert_eq!(client.text("CLIENT SETINFO LIB-NAME some-lib"), "OK");
    assert_eq!(client.text("CLIENT SETINFO lib-ver 1.2"), "OK");
    client.text("SELECT 3");
    client.text("MULTI");
    client.text("PING");
    client.text("DISCARD");
    let line = client.text("CLIENT INFO");
    let known = [
        ("name", "worker"),
        ("db", "3"),
        ("lib-name", "some-lib"),
        ("lib-ver", "1.2"),
        ("resp", "2"),
        ("multi", "-1"),
        ("flags", "N"),
        ("cmd", "client|info"),
        ("user", "default"),
    ];
    for (name, value) in known {
        assert_eq!(field(&line, name), value, "{name} in {line}");
    }
    assert!(field(&line, "laddr").ends_with(&format!(":{}", server.port)));
    assert!(field(&line, "addr").starts_with("127.0.0.1:"));
    let mine = id(&mut client);
    for line in ["CLIENT LIST".to_owned(), format!("CLIENT LIST ID {mine}")] {
        assert_eq!(field(&client.text(&line), "id"), mine.to_string(), "{line}");
    }
    let request_bytes = "*2\r\n$6\r\nCLIENT\r\n$4\r\nINFO\r\n".len().to_string();
    assert_eq!(field(&client.text("CLIENT INFO"), "qbuf"), request_bytes, "its own request is being read");
    assert_eq!(client.text("CLIENT LIST TYPE pubsub"), "");
    assert_eq!(client.text("CLIENT LIST TYPE normal").lines().count(), 1);
    client.call("HELLO 3");
    assert_eq!(field(&client.text("CLIENT INFO"), "resp"), "3");
}

#[test]
fn what_clients_may_not_say_is_refused() {
    let server = start(&[]);
    let mut client = server.client();
    let bad_name = "ERR Client names cannot contain spaces, newlines or special characters.";
    for name in [&b"a b"[..], b"a\n", b"\xff"] {
        assert_eq!(client.words(&[b"CLIENT", b"SETNAME", name]).text(), bad_name);
    }
    for (line, error) in [
        ("CLIENT LIST TYPE nosuch", "ERR Unknown client type 'nosuch'"),
        ("CLIENT LIST ID 0", "ERR Invalid client ID"),
        ("CLIENT LIST FOO", "ERR syntax error"),
        ("CLIENT KILL 1.2.3.4:5", "ERR No such client"),
        ("CLIENT KILL ID x", "ERR client-id should be greater than 0"),
        ("CLIENT KILL USER nosuch", "ERR No such user 'nosuch'"),
        ("CLIENT KILL ID", "ERR No such client"),
        ("CLIENT KILL ID 3 SKIPME", "ERR syntax error"),
        ("CLIENT REPLY MAYBE", "ERR syntax error"),
        ("CLIENT PAUSE -1", "ERR timeout is negative"),
        ("CLIENT PAUSE abc", "ERR timeout is not an integer or out of range"),
        ("CLIENT NO-EVICT x", "ERR syntax error"),
        ("CLIENT SETINFO FOO bar", "ERR Unrecognized option 'FOO'"),
        ("CLIENT SETINFO Lib-Name \u{e9}", "ERR Lib-Name cannot contain spaces, newlines or special characters."),
    ] {
        assert_eq!(client.text(line), error, "{line}");
    }
}

#[test]
fn clients_are_killed_by_what_they_are() {
    let server = start(&[]);
    let mut killer = server.client();
    let mine = id(&mut killer);
    let mut victims: Vec<Client> = (0..4).map(|_| server.client()).collect();
    let ids: Vec<i64> = victims.iter_mut().map(id).collect();
    assert_eq!(killer.call(&format!("CLIENT KILL ID {}", ids[0])), Value::Int(1));
    assert_eq!(victims[0].try_reply(), None);
    let address = field(&victims[1].text("CLIENT INFO"), "addr");
    assert_eq!(killer.text(&format!("CLIENT KILL {address}")), "OK");
    assert_eq!(victims[1].try_reply(), None);
    let address = field(&victims[2].text("CLIENT INFO"), "addr");
    assert_eq!(killer.call(&format!("CLIENT KILL ADDR {address} TYPE normal")), Value::Int(1));
    assert_eq!(killer.call("CLIENT KILL TYPE pubsub"), Value::Int(0));
    assert_eq!(killer.call("CLIENT KILL MAXAGE 3600"), Value::Int(0));
    for (age, reason) in [("0", "should be greater than 0"), ("-1", "should be greater than 0")] {
        assert_eq!(killer.text(&format!("CLIENT KILL MAXAGE {age}")), format!("ERR maxage {reason}"));
    }
    assert_eq!(killer.text("CLIENT KILL MAXAGE x"), "ERR maxage is not an integer or out of range");
    let here = format!("127.0.0.1:{}", server.port);
    assert_eq!(killer.call(&format!("CLIENT KILL LADDR {here}")), Value::Int(1), "all but the one that asks");
    assert_eq!(victims[3].try_reply(), None);
    assert_eq!(killer.call(&format!("CLIENT KILL ID {mine} SKIPME yes")), Value::Int(0));
    assert_eq!(killer.call(&format!("CLIENT KILL ID {mine} SKIPME no")), Value::Int(1), "told before it goes");
    assert_eq!(killer.try_reply(), None);
}

#[test]
fn replies_can_be_turned_off() {
    let server = start(&[]);
    let mut client = server.client();
    client.send("CLIENT REPLY OFF\r\nSET a 1\r\nNOSUCH\r\nGET a\r\nCLIENT REPLY ON\r\n");
    assert_eq!(client.reply().text(), "OK");
    client.send("CLIENT REPLY SKIP\r\nSET a 2\r\nGET a\r\n");
    assert_eq!(client.reply().text(), "2");
    assert!(client.is_silent());
}

#[test]
fn paused_writers_wait_and_go_on() {
    let server = start(&[]);
    let (mut boss, mut writer) = (server.client(), server.client());
    assert_eq!(boss.text("CLIENT PAUSE 600000 WRITE"), "OK");
    writer.send("GET a\r\nSET a 1\r\nGET a\r\n");
    assert_eq!(writer.reply(), Value::Null);
    assert!(writer.is_silent());
    assert_eq!((boss.info("paused_clients"), boss.info("blocked_clients")), ("1".into(), "1".into()));
    assert_eq!(boss.text("CLIENT UNPAUSE"), "OK");
    assert_eq!((writer.reply().text(), writer.reply().text()), ("OK".into(), "1".into()));
}

#[test]
fn while_clients_are_paused_expired_keys_are_hidden_and_stay() {
    let server = start(&[]);
    let mut client = server.client();
    client.text("SET kept 1");
    // On a machine that stalls, the key may expire before the pause begins.
    eventually("a pause begins before the key expires", || {
        client.send("SET a 1 PX 100\r\nCLIENT PAUSE 600000 WRITE\r\nEXISTS a\r\n");
        let [_, _, exists] = [client.reply(), client.reply(), client.reply()];
        exists == Value::Int(1) || client.text("CLIENT UNPAUSE") != "OK"
    });
    let expired = client.info("expired_keys");
    eventually("readers don't find it", || client.call("GET a") == Value::Null);
    for (command, reply) in [("EXISTS a", 0), ("TOUCH a", 0), ("TTL a", -2), ("STRLEN a", 0), ("DBSIZE", 2)] {
        assert_eq!(client.call(command), Value::Int(reply), "{command}");
    }
    assert_eq!((client.text("TYPE a"), client.text("RANDOMKEY")), ("none".into(), "kept".into()));
    // Some ticks, in which the search for expired keys would find it.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!((client.call("DBSIZE"), client.info("expired_keys")), (Value::Int(2), expired.clone()));
    client.text("CLIENT UNPAUSE");
    eventually("it goes after the pause", || client.call("DBSIZE") == Value::Int(1));
    assert_ne!(client.info("expired_keys"), expired);
}

#[test]
fn a_pause_holds_expired_keys_through_a_reload() {
    let server = start(&[("enable-debug-command", "yes")]);
    let mut client = server.client();
    eventually("a pause begins before the key expires", || {
        client.send("SET a 1 PX 100\r\nCLIENT PAUSE 600000 WRITE\r\nEXISTS a\r\n");
        let [_, _, exists] = [client.reply(), client.reply(), client.reply()];
        exists == Value::Int(1) || client.text("CLIENT UNPAUSE") != "OK"
    });
    assert_eq!(client.text("DEBUG RELOAD"), "OK");
    eventually("readers don't find it", || client.call("GET a") == Value::Null);
    // Some ticks, in which the search for expired keys would find it.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(client.call("DBSIZE"), Value::Int(1));
    client.text("CLIENT UNPAUSE");
    eventually("it goes after the pause", || client.call("DBSIZE") == Value::Int(0));
}

#[test]
fn a_pause_of_writes_holds_subcommands_that_write_and_what_counts_as_a_write() {
    let server = start(&[]);
    let mut boss = server.client();
    boss.text("XADD s 1-1 f v");
    boss.text("PFADD h a");
    boss.text("CLIENT PAUSE 600000 WRITE");
    let library = "FUNCTION|LOAD|#!lua name=l\nredis.register_function('f', function() return 1 end)";
    let held = ["XGROUP|CREATE|s|g|0", "PUBLISH|c|m", "SPUBLISH|c|m", "PFCOUNT|h", "EVAL|return 1|0", library];
    let mut writers: Vec<Client> = held
        .iter()
        .enumerate()
        .map(|(index, line)| {
            let mut writer = server.client();
            let words: Vec<&[u8]> = line.split('|').map(str::as_bytes).collect();
            writer.send(framed(&words));
            eventually("it waits", || boss.info("blocked_clients") == (index + 1).to_string());
            writer
        })
        .collect();
    boss.text("CLIENT UNPAUSE");
    for (writer, reply) in writers.iter_mut().zip(["OK", "0", "0", "1", "1", "l"]) {
        assert_eq!(writer.reply().text(), reply);
    }
}

#[test]
fn a_pause_of_writes_lets_scripts_run_that_say_that_they_do_not_write() {
    let server = start(&[]);
    let (mut boss, mut reader) = (server.client(), server.client());
    let library = "#!lua name=l\nredis.register_function{function_name='f', callback=function() return 7 end, flags={'no-writes'}}";
    assert_eq!(boss.words(&[b"FUNCTION", b"LOAD", library.as_bytes()]).text(), "l");
    let digest = boss.words(&[b"SCRIPT", b"LOAD", b"#!lua flags=no-writes\nreturn 5"]).text();
    boss.text("CLIENT PAUSE 600000 WRITE");
    let reads = b"#!lua flags=no-writes\nreturn 4";
    assert_eq!(reader.words(&[b"EVAL", reads, b"0"]), Value::Int(4));
    assert_eq!(reader.text(&format!("EVALSHA {digest} 0")), "5");
    assert_eq!((reader.text("FCALL F 0"), reader.text("EVAL_RO return(6) 0")), ("7".into(), "6".into()));
    reader.text("MULTI");
    reader.words(&[b"EVAL", reads, b"0"]);
    assert_eq!(reader.call("EXEC").items(), [Value::Int(4)]);
    let publishes = b"#!lua flags=no-writes\nreturn redis.call('publish', 'c', 'm')";
    let refused = reader.words(&[b"EVAL", publishes, b"0"]).text();
    assert!(refused.starts_with("ERR Write commands are not allowed from read-only scripts."), "{refused}");
    reader.send(framed(&[b"EVAL", b"#!lua\nreturn 1", b"0"]));
    eventually("it waits", || boss.info("blocked_clients") == "1");
}

#[test]
fn what_is_no_request_is_refused_at_once_also_while_all_are_paused() {
    let server = start(&[]);
    let (mut boss, mut client) = (server.client(), server.client());
    boss.text("CLIENT PAUSE 600000 ALL");
    for (line, error) in [
        ("SET a", "ERR wrong number of arguments for 'set' command"),
        ("NOSUCH", "ERR unknown command 'NOSUCH', with args beginning with: "),
        ("XGROUP NOSUCH a", "ERR unknown subcommand 'NOSUCH'. Try XGROUP HELP."),
        ("XGROUP", "ERR wrong number of arguments for 'xgroup' command"),
    ] {
        assert_eq!(client.text(line), error);
    }
}

#[test]
fn a_client_that_waits_for_replicas_is_told_that_there_are_none_when_its_time_is_up() {
    let server = start(&[]);
    let (mut admin, mut client) = (server.client(), server.client());
    for (line, reply) in [
        ("WAIT 0 0", "0"),
        ("WAIT -1 0", "0"),
        ("WAIT 1 20", "0"),
        ("WAIT x 0", "ERR value is not an integer or out of range"),
        ("WAIT 1 x", "ERR timeout is not an integer or out of range"),
        ("WAIT 1 -1", "ERR timeout is negative"),
        ("WAIT 1 9223372036854775807", "ERR timeout is out of range"),
    ] {
        assert_eq!(client.text(line), reply, "{line}");
    }
    let waiter = id(&mut client);
    client.send("WAIT 1 0\r\nPING\r\n");
    eventually("it waits", || admin.info("blocked_clients") == "1");
    assert_eq!(admin.call(&format!("CLIENT UNBLOCK {waiter}")), Value::Int(1));
    assert_eq!((client.reply(), client.reply().text()), (Value::Int(0), "PONG".into()));
    client.text("MULTI");
    client.text("WAIT 1 0");
    assert_eq!(client.call("EXEC").items(), [Value::Int(0)]);
}

#[test]
fn a_paused_transaction_waits_with_its_writes() {
    let server = start(&[]);
    let (mut boss, mut writer) = (server.client(), server.client());
    writer.send("MULTI\r\nSET a 1\r\n");
    assert_eq!((writer.reply().text(), writer.reply().text()), ("OK".into(), "QUEUED".into()));
    boss.text("CLIENT PAUSE 600000 WRITE");
    writer.send("EXEC\r\n");
    assert!(writer.is_silent());
    boss.text("CLIENT UNPAUSE");
    assert_eq!(writer.reply().items(), [Value::Simple("OK".into())]);
}

#[test]
fn a_pause_of_all_ends_by_itself() {
    let server = start(&[]);
    let (mut boss, mut reader) = (server.client(), server.client());
    let began = Instant::now();
    boss.text("CLIENT PAUSE 200 ALL");
    assert_eq!(reader.text("PING"), "PONG");
    // The server counts whole milliseconds.
    assert!(began.elapsed() >= Duration::from_millis(199));
}

#[test]
fn a_paused_client_can_be_killed_and_leaves_nothing() {
    let server = start(&[]);
    let (mut boss, mut writer) = (server.client(), server.client());
    let victim = id(&mut writer);
    boss.text("CLIENT PAUSE 600000 WRITE");
    writer.send("SET a 1\r\n");
    eventually("it waits", || boss.info("paused_clients") == "1");
    boss.send([request(&format!("CLIENT KILL ID {victim}")), request("CLIENT UNPAUSE")].concat());
    assert_eq!((boss.reply(), boss.reply().text()), (Value::Int(1), "OK".into()));
    assert_eq!(writer.try_reply(), None);
    assert_eq!(boss.call("EXISTS a"), Value::Int(0));
}

#[test]
fn a_pause_holds_what_stands_behind_it_in_the_pipeline() {
    let server = start(&[]);
    let (mut boss, mut writer) = (server.client(), server.client());
    writer.send("CLIENT PAUSE 600000 WRITE\r\nGET a\r\nSET a 1\r\nGET a\r\n");
    assert_eq!((writer.reply().text(), writer.reply()), ("OK".into(), Value::Null));
    eventually("it waits", || boss.info("paused_clients") == "1");
    assert_eq!((boss.call("EXISTS a"), boss.info("blocked_clients")), (Value::Int(0), "1".into()));
    assert_eq!(boss.text("CLIENT UNPAUSE"), "OK");
    assert_eq!((writer.reply().text(), writer.reply().text()), ("OK".into(), "1".into()));
    assert_eq!((boss.info("paused_clients"), boss.info("blocked_clients")), ("0".into(), "0".into()));
}

#[test]
fn a_client_that_waits_in_a_command_is_unblocked_by_another() {
    let server = start(&[]);
    let (mut boss, mut waiter) = (server.client(), server.client());
    let number = id(&mut waiter);
    // There are no replicas: it would wait for ever.
    for (reason, reply) in [
        ("", Value::Array(vec![Value::Int(0), Value::Int(0)])),
        (" TIMEOUT", Value::Array(vec![Value::Int(0), Value::Int(0)])),
        (" error", Value::Error("UNBLOCKED client unblocked via CLIENT UNBLOCK".into())),
    ] {
        waiter.send("WAITAOF 0 1 0\r\nPING\r\n");
        eventually("it waits", || boss.info("blocked_clients") == "1");
        let line = format!("CLIENT UNBLOCK {number}{reason}");
        boss.send([request(&line), request(&line)].concat());
        assert_eq!((boss.reply(), boss.reply()), (Value::Int(1), Value::Int(0)), "once is enough");
        assert_eq!((waiter.reply(), waiter.reply().text()), (reply, "PONG".into()));
    }
    assert_eq!(boss.info("blocked_clients"), "0");
    boss.text("CLIENT PAUSE 600000 WRITE");
    waiter.send("SET a 1\r\n");
    eventually("it waits", || boss.info("paused_clients") == "1");
    assert_eq!(boss.call(&format!("CLIENT UNBLOCK {number}")), Value::Int(0), "a pause is no command");
    assert_eq!(boss.call("CLIENT UNBLOCK 999"), Value::Int(0));
    assert_eq!(boss.text("CLIENT UNBLOCK x"), "ERR value is not an integer or out of range");
    assert_eq!(boss.text("CLIENT UNBLOCK 1 SOON"), "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
    boss.text("CLIENT UNPAUSE");
    assert_eq!(waiter.reply().text(), "OK");
}

#[test]
fn clients_that_wait_can_leave_be_killed_and_be_many() {
    let mut server = start(&[]);
    let mut boss = server.client();
    let mut waiters: Vec<Client> = (0..40).map(|_| server.client()).collect();
    for (index, waiter) in waiters.iter_mut().enumerate() {
        // The first ten wait for ever, and later ones have earlier deadlines.
        let timeout_ms = if index < 10 { 0 } else { 600_000 - index };
        waiter.send(format!("WAITAOF 0 1 {timeout_ms}\r\n"));
    }
    eventually("all wait", || boss.info("blocked_clients") == "40");
    assert!(waiters[0].is_silent());
    // The others may still read what they wait for.
    waiters.drain(..10);
    eventually("ten have left", || boss.info("blocked_clients") == "30");
    let number = boss.text("CLIENT LIST").lines().filter(|line| field(line, "flags") == "b").count();
    assert_eq!(number, 30);
    let killed = field(boss.text("CLIENT LIST").lines().find(|line| field(line, "flags") == "b").unwrap(), "id");
    assert_eq!(boss.call(&format!("CLIENT KILL ID {killed}")), Value::Int(1));
    eventually("one is killed", || boss.info("blocked_clients") == "29");
    boss.send("WAITAOF 0 1 30\r\nPING\r\n");
    assert_eq!((boss.reply().items().len(), boss.reply().text()), (2, "PONG".into()));
    // A client that waits for ever doesn't keep the server.
    boss.send("SHUTDOWN NOSAVE\r\n");
    assert!(server.ended());
}

#[test]
fn reset_undoes_what_the_connection_was() {
    let server = start(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    for line in
        ["HELLO 3", "CLIENT SETNAME x", "SELECT 5", "WATCH k", "CLIENT NO-EVICT ON", "CLIENT NO-TOUCH ON", "MULTI"]
    {
        client.call(line);
    }
    assert_eq!(client.text("RESET"), "RESET");
    let line = client.text("CLIENT INFO");
    assert_eq!(
        (field(&line, "db"), field(&line, "resp"), field(&line, "flags"), field(&line, "name")),
        ("0".into(), "2".into(), "N".into(), String::new())
    );
    client.text("MULTI");
    other.text("SELECT 5");
    other.text("SET k 1");
    assert_eq!(client.call("EXEC"), Value::Array(vec![]));
}

#[test]
fn quit_answers_and_leaves() {
    let server = start(&[]);
    let mut client = server.client();
    client.send("QUIT\r\nPING\r\n");
    assert_eq!(client.reply().text(), "OK");
    assert_eq!(client.try_reply(), None);
}
