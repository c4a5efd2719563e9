//! COPY of a large key: other clients' commands run between its steps, none of them sees half of it, and what happens meanwhile
//! to its source, its client and the server leaves no trace of it but the copy.

use std::time::Duration;

use crate::common::{Client, Running, Value, ask_for_copy, config_in, eventually, go_on, request, start, start_with};

/// So many members take many steps to copy.
const MEMBERS: usize = 20_000;

/// Gives a key so many members.
fn fill(client: &mut Client, key: &str, members: usize) {
    for first in (0..members).step_by(1000) {
        let words: Vec<String> = (first..members.min(first + 1000)).map(|number| format!("member:{number}")).collect();
        client.call(&format!("SADD {key} {}", words.join(" ")));
    }
}

fn digest(client: &mut Client, key: &str) -> String {
    client.call(&format!("DEBUG DIGEST-VALUE {key}")).items()[0].text()
}

/// A server with a large set, and a client that has asked for a copy of it. The copy is under way, and gets no further until
/// [`go_on`].
fn copying(settings: &[(&str, &str)]) -> (Running, Client, Client) {
    let server = start(settings);
    let mut client = server.client();
    fill(&mut client, "source", MEMBERS);
    let copier = ask_for_copy(&server, &mut client, "COPY source target");
    (server, client, copier)
}

/// Sends what must wait for the copy that is under way, and waits until the server has read it.
fn send_held(client: &mut Client, sender: &mut Client, line: &str) {
    sender.call("CLIENT SETNAME sender");
    send_held_by_sender(client, sender, line);
}

/// As [`send_held`], for a client that is called so.
fn send_held_by_sender(client: &mut Client, sender: &mut Client, line: &str) {
    sender.send(request(line));
    let is_held = |entry: &str| entry.contains(" name=sender ") && !entry.contains(" qbuf=0 ");
    eventually("it is held", || client.text("CLIENT LIST").lines().any(is_held));
}

#[test]
fn other_clients_are_served_while_a_large_key_is_copied_and_see_nothing_of_it() {
    let (_server, mut client, mut copier) = copying(&[]);
    assert_eq!((client.text("EXISTS target"), client.text("DBSIZE")), ("0".into(), "1".into()));
    assert_eq!(client.text("SET other value"), "OK");
    assert_eq!(
        (client.text("SCARD source"), client.text("SISMEMBER source member:7")),
        (MEMBERS.to_string(), "1".into())
    );
    go_on(&mut client);
    assert_eq!(copier.reply(), Value::Int(1));
    assert_eq!(digest(&mut client, "target"), digest(&mut client, "source"));
    assert_eq!(client.text("SCARD target"), MEMBERS.to_string());
}

#[test]
fn requests_behind_a_copy_in_the_same_connection_wait_for_it() {
    let (_server, mut client, mut copier) = copying(&[]);
    copier
        .send([request("SCARD target"), request("COPY source target"), request("COPY source target REPLACE")].concat());
    go_on(&mut client);
    for expected in [1, MEMBERS as i64, 0, 1] {
        assert_eq!(copier.reply().int(), expected);
    }
}

#[test]
fn a_write_of_the_source_waits_for_the_copy_and_is_not_in_it() {
    for line in ["SADD source another", "DEL source", "RENAME source gone", "FLUSHALL", "SWAPDB 0 1", "MOVE source 1"] {
        let (server, mut client, mut copier) = copying(&[]);
        let mut writer = server.client();
        send_held(&mut client, &mut writer, line);
        go_on(&mut client);
        assert_eq!(copier.reply(), Value::Int(1), "{line}");
        writer.reply();
        let copied = match line {
            "FLUSHALL" | "SWAPDB 0 1" => 0,
            _ => MEMBERS as i64,
        };
        assert_eq!(client.call("SCARD target").int(), copied, "{line}");
        let left = if line.starts_with("SADD") { MEMBERS as i64 + 1 } else { 0 };
        assert_eq!(client.call("SCARD source").int(), left, "{line}");
    }
}

#[test]
fn a_new_group_of_a_stream_waits_for_the_copy_and_is_not_in_it() {
    let server = start(&[("stream-node-max-entries", "1")]);
    let (mut client, mut writer) = (server.client(), server.client());
    client.send((1..=5000).map(|number| request(&format!("XADD source {number} f v"))).collect::<Vec<_>>().concat());
    (0..5000).for_each(|_| drop(client.reply()));
    let mut copier = ask_for_copy(&server, &mut client, "COPY source target");
    send_held(&mut client, &mut writer, "XGROUP CREATE source g 0");
    go_on(&mut client);
    assert_eq!((copier.reply(), writer.reply().text()), (Value::Int(1), "OK".into()));
    let groups = |client: &mut Client, key: &str| client.call(&format!("XINFO GROUPS {key}")).items().len();
    assert_eq!((groups(&mut client, "source"), groups(&mut client, "target")), (1, 0));
    assert_eq!(client.call("XLEN target"), Value::Int(5000));
}

#[test]
fn a_transaction_that_writes_the_source_waits_for_the_copy_and_is_not_in_it() {
    let (server, mut client, mut copier) = copying(&[]);
    let mut writer = server.client();
    for line in
        ["CLIENT SETNAME sender", "MULTI", "SREM source member:1 member:2", "SCARD target", "SADD source another"]
    {
        writer.call(line);
    }
    send_held_by_sender(&mut client, &mut writer, "EXEC");
    go_on(&mut client);
    assert_eq!(copier.reply(), Value::Int(1));
    let replies: Vec<i64> = writer.reply().items().iter().map(Value::int).collect();
    assert_eq!(replies, [2, MEMBERS as i64, 1], "the copy was whole before the transaction, and not within it");
    assert_eq!(client.call("SCARD target").int(), MEMBERS as i64);
    assert_eq!(client.call("SCARD source").int(), MEMBERS as i64 - 1);
}

#[test]
fn a_transaction_beside_a_copy_runs_at_once_and_meets_no_half_of_it() {
    let (server, mut client, mut copier) = copying(&[]);
    let mut other = server.client();
    for line in ["MULTI", "SET a 1", "EXISTS target", "SCARD source", "DBSIZE", "EXEC"] {
        other.send(request(line));
    }
    (0..5).for_each(|_| drop(other.reply()));
    let replies: Vec<String> = other.reply().items().iter().map(Value::text).collect();
    assert_eq!(replies, ["OK", "0", &MEMBERS.to_string(), "2"]);
    go_on(&mut client);
    assert_eq!(copier.reply(), Value::Int(1));
    assert_eq!(digest(&mut client, "target"), digest(&mut client, "source"));
}

#[test]
fn a_copy_within_a_transaction_is_whole_before_its_next_command() {
    let server = start(&[]);
    let mut client = server.client();
    fill(&mut client, "source", 20_000);
    for line in ["MULTI", "COPY source target", "SCARD target", "DEL source", "SCARD target", "EXEC"] {
        client.send(request(line));
    }
    (0..5).for_each(|_| drop(client.reply()));
    let replies: Vec<i64> = client.reply().items().iter().map(Value::int).collect();
    assert_eq!(replies, [1, 20_000, 1, 20_000]);
}

#[test]
fn a_source_whose_time_comes_while_it_is_copied_is_not_copied() {
    let server = start(&[]);
    let mut client = server.client();
    let mut lifetime_ms = 1000;
    let mut copier = loop {
        fill(&mut client, "source", MEMBERS);
        client.call(&format!("PEXPIRE source {lifetime_ms}"));
        let mut copier = ask_for_copy(&server, &mut client, "COPY source target");
        if client.text("EXISTS source") == "1" {
            break copier;
        }
        // Its time came before the copy began, which is another case.
        go_on(&mut client);
        assert_eq!(copier.reply(), Value::Int(0));
        lifetime_ms *= 2;
    };
    eventually("its time comes", || client.text("EXISTS source") == "0");
    go_on(&mut client);
    assert_eq!(copier.reply(), Value::Int(0));
    eventually("what a half copy took is freed", || client.info("lazyfree_pending_objects") == "0");
    assert_eq!(client.text("DBSIZE"), "0");
}

#[test]
fn a_client_that_leaves_takes_its_copy_with_it() {
    let (_server, mut client, mut copier) = copying(&[]);
    assert_eq!(client.text("CLIENT KILL SKIPME yes"), "1");
    copier.closed();
    assert_eq!(client.text("SADD source another"), "1", "it can be written when the client is gone");
    go_on(&mut client);
    eventually("what it took is freed", || client.info("lazyfree_pending_objects") == "0");
    assert_eq!((client.text("EXISTS target"), client.text("DBSIZE")), ("0".into(), "1".into()));
    assert_eq!(client.text("COPY source target"), "1");
}

/// What a client has not read; `None` if there is no such client.
fn unread_bytes(asker: &mut Client, id: i64) -> Option<usize> {
    let line = asker.text(&format!("CLIENT LIST ID {id}"));
    line.split_whitespace().find_map(|pair| pair.strip_prefix("omem=")?.parse().ok())
}

#[test]
fn a_client_that_is_closed_in_the_turn_in_which_its_copy_begins_takes_that_with_it() {
    let server = start(&[]);
    let mut client = server.client();
    fill(&mut client, "source", MEMBERS);
    client.words(&[b"SET", b"big", &vec![b'x'; 16 << 20]]);
    client.words(&[b"SET", b"small", &[b'x'; 1000]]);
    // It does not read, so that the next small reply is too much to be left unread, and its copy has begun by then.
    let mut copier = server.client();
    let id = copier.call("CLIENT ID").int();
    copier.send(request("GET big"));
    let mut unread = 0;
    eventually("its socket takes no more", || {
        let before = std::mem::replace(&mut unread, unread_bytes(&mut client, id).unwrap_or_default());
        std::thread::sleep(Duration::from_millis(50));
        unread > 0 && unread == before
    });
    let limit: [&[u8]; 3] = [b"CONFIG", b"SET", b"client-output-buffer-limit"];
    client.words(&[&limit[..], &[format!("normal {} 0 0", unread + 500).as_bytes()]].concat());
    copier.send([request("GET small"), request("COPY source target")].concat());
    eventually("it is closed", || unread_bytes(&mut client, id).is_none());
    client.words(&[&limit[..], &[b"normal 0 0 0"]].concat());
    assert_eq!(client.text("SADD source another"), "1", "it can be written when the client is gone");
    assert_eq!((client.text("EXISTS target"), client.text("COPY source target")), ("0".into(), "1".into()));
}

#[test]
fn copies_in_one_connection_let_a_client_that_waits_come_between() {
    let (server, mut client, mut copier) = copying(&[]);
    let more: Vec<_> = (0..3).map(|number| request(&format!("COPY source more:{number}"))).collect();
    copier.send(more.concat());
    let mut writer = server.client();
    send_held(&mut client, &mut writer, "SADD source another");
    go_on(&mut client);
    assert_eq!(writer.reply(), Value::Int(1));
    (0..4).for_each(|_| assert_eq!(copier.reply(), Value::Int(1)));
    let members = ["target", "more:0", "more:2"].map(|key| client.call(&format!("SCARD {key}")).int() as usize);
    assert_eq!(members, [MEMBERS, MEMBERS + 1, MEMBERS + 1]);
}

#[test]
fn a_client_that_sends_no_more_still_gets_its_copy() {
    let (_server, mut client, mut copier) = copying(&[]);
    copier.end();
    go_on(&mut client);
    assert_eq!((copier.reply(), client.call("SCARD target").int()), (Value::Int(1), MEMBERS as i64));
}

#[test]
fn writes_that_are_paused_hold_a_copy_that_is_whole() {
    let (server, mut client, mut copier) = copying(&[]);
    client.call("CLIENT PAUSE 600000 WRITE");
    let mut writer = server.client();
    send_held(&mut client, &mut writer, "SADD source another");
    let used = |client: &mut Client| client.info("used_memory").parse::<u64>().unwrap();
    let before = used(&mut client);
    go_on(&mut client);
    eventually("the copy grows", || used(&mut client) > before + 300_000);
    assert_eq!(client.text("EXISTS target"), "0");
    client.call("CLIENT UNPAUSE");
    assert_eq!(copier.reply(), Value::Int(1));
    writer.reply();
    assert_eq!(client.call("SCARD target").int(), MEMBERS as i64);
}

#[test]
fn many_copies_go_one_after_the_other_and_are_counted_by_maxmemory() {
    let server = start(&[]);
    let mut client = server.client();
    fill(&mut client, "source", 50_000);
    let used: u64 = client.info("used_memory").parse().unwrap();
    // There is room for the first copy, and a little of the next.
    client.call(&format!("CONFIG SET maxmemory {}", used + used / 10));
    let mut copiers: Vec<Client> = (0..6).map(|_| server.client()).collect();
    for (number, copier) in copiers.iter_mut().enumerate() {
        copier.send(request(&format!("COPY source target:{number}")));
    }
    let replies: Vec<Value> = copiers.iter_mut().map(Client::reply).collect();
    let done = replies.iter().filter(|reply| **reply == Value::Int(1)).count();
    let refused = replies.iter().filter(|reply| matches!(reply, Value::Error(line) if line.starts_with("OOM"))).count();
    assert_eq!((done, refused), (1, 5), "{replies:?}");
    assert_eq!(client.text("DBSIZE"), "2");
}

#[test]
fn a_client_that_waits_for_a_copy_is_woken_when_it_can_go_on_and_not_by_each_that_ends() {
    const COPIERS: usize = 40;
    const WRITERS: usize = 40;
    let server = start(&[]);
    let mut client = server.client();
    fill(&mut client, "source", MEMBERS / 4);
    client.call("DEBUG PAUSE-CRON 1");
    let send = |line: String| {
        let mut sender = server.client();
        sender.send(request(&line));
        sender
    };
    let waits = |client: &mut Client, count: usize| {
        eventually("all wait", || client.info("paused_clients") == count.to_string());
    };
    let mut copiers: Vec<Client> = (0..COPIERS).map(|number| send(format!("COPY source copy:{number}"))).collect();
    waits(&mut client, COPIERS);
    let mut writers: Vec<Client> = (0..WRITERS).map(|number| send(format!("SADD source new:{number}"))).collect();
    waits(&mut client, COPIERS + WRITERS);
    let woken = |client: &mut Client| client.info("woken_clients").parse::<usize>().unwrap();
    let before = woken(&mut client);
    go_on(&mut client);
    assert!(copiers.iter_mut().chain(&mut writers).all(|waiter| waiter.reply() == Value::Int(1)));
    // A writer by the end of the copy; a copier by its turn, by its copy, and to go on behind that.
    let woken = woken(&mut client) - before;
    assert!(woken <= 3 * COPIERS + WRITERS, "{woken} times");
    // The writers waited for one copy and no other.
    let lens = (0..COPIERS).map(|number| client.text(&format!("SCARD copy:{number}")).parse::<usize>().unwrap());
    let (first, others): (Vec<usize>, Vec<usize>) = lens.partition(|&len| len == MEMBERS / 4);
    assert_eq!((first.len(), others), (1, vec![MEMBERS / 4 + WRITERS; COPIERS - 1]));
}

#[test]
fn copies_of_one_another_all_end() {
    let server = start(&[]);
    let mut client = server.client();
    for key in ["a", "b", "c"] {
        fill(&mut client, key, 30_000);
        client.call(&format!("SADD {key} {key}"));
    }
    let mut copiers: Vec<Client> = (0..6).map(|_| server.client()).collect();
    for (copier, line) in copiers.iter_mut().zip(["a b", "b a", "b c", "c b", "c a", "a c"]) {
        copier.send(request(&format!("COPY {line} REPLACE")));
    }
    for copier in &mut copiers {
        assert_eq!(copier.reply(), Value::Int(1));
    }
    for key in ["a", "b", "c"] {
        assert_eq!(client.call(&format!("SCARD {key}")).int(), 30_001);
    }
}

#[test]
fn replies_that_are_not_wanted_are_not_given_for_a_copy_either() {
    let server = start(&[]);
    let mut client = server.client();
    fill(&mut client, "source", MEMBERS);
    client.send([request("CLIENT REPLY SKIP"), request("COPY source target"), request("SCARD target")].concat());
    assert_eq!(client.reply().int(), MEMBERS as i64);
    let stats = client.text("INFO commandstats");
    assert!(stats.contains("cmdstat_copy:calls=1,"), "{stats}");
}

#[test]
fn a_server_that_ends_or_reloads_in_the_middle_of_a_copy_has_no_half_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let config = || config_in(dir.path(), &[("appendonly", "yes")]);
    let used = {
        let mut server = start_with(config());
        let mut client = server.client();
        fill(&mut client, "source", MEMBERS);
        let used: u64 = client.info("used_memory_dataset").parse().unwrap();
        let mut copier = ask_for_copy(&server, &mut client, "COPY source target");
        assert_eq!(client.text("DEBUG RELOAD"), "OK");
        go_on(&mut client);
        assert_eq!(copier.reply(), Value::Int(1), "it begins anew on what was reloaded");
        client.call("DEL target");
        let copier = ask_for_copy(&server, &mut client, "COPY source target");
        client.send(request("SHUTDOWN SAVE"));
        assert!(server.ended());
        drop(copier);
        used
    };
    let server = start_with(config());
    let mut client = server.client();
    assert_eq!((client.text("DBSIZE"), client.call("SCARD source").int()), ("1".into(), MEMBERS as i64));
    eventually("what the half copy took is freed", || client.info("lazyfree_pending_objects") == "0");
    eventually("the memory is what it was", || {
        let now: u64 = client.info("used_memory_dataset").parse().unwrap();
        now.abs_diff(used) < used / 20
    });
}

#[test]
fn the_log_has_a_copy_where_it_was_done_and_does_it_again() {
    let dir = tempfile::tempdir().unwrap();
    let config = || config_in(dir.path(), &[("appendonly", "yes")]);
    let expected = {
        let server = start_with(config());
        let mut client = server.client();
        fill(&mut client, "source", MEMBERS);
        let mut copier = ask_for_copy(&server, &mut client, "COPY source target");
        let mut writer = server.client();
        send_held(&mut client, &mut writer, "SADD source another");
        go_on(&mut client);
        assert_eq!(copier.reply(), Value::Int(1));
        writer.reply();
        (digest(&mut client, "source"), digest(&mut client, "target"))
    };
    assert_ne!(expected.0, expected.1);
    let server = start_with(config());
    let mut client = server.client();
    assert_eq!((digest(&mut client, "source"), digest(&mut client, "target")), expected);
}
