//! Commands that wait for streams: what wakes them and what does not, and what the log and a restart have of it. What holds of all waiting is
//! in `blocking`.

use crate::common::{Client, Running, Value, awaited, blocked, start, start_in, wait};

/// A server, one client that looks on, and others.
fn with_clients(count: usize) -> (Running, Client, Vec<Client>) {
    let server = start(&[]);
    let admin = server.client();
    let clients = (0..count).map(|_| server.client()).collect();
    (server, admin, clients)
}

/// The IDs of the entries of the first stream in a reply.
fn ids(reply: &Value) -> Vec<String> {
    reply.items()[0].items()[1].items().iter().map(|entry| entry.items()[0].text()).collect()
}

#[test]
fn who_reads_from_the_end_gets_what_comes_after_the_request() {
    let (_server, mut admin, mut clients) = with_clients(3);
    admin.call("XADD a 1-1 f v");
    wait(&mut admin, &mut clients[0], "XREAD BLOCK 0 STREAMS none a $ $");
    wait(&mut admin, &mut clients[1], "XREAD BLOCK 0 STREAMS a 2");
    admin.call("XADD b 1-1 f v");
    admin.call("XSETID a 1-5");
    assert_eq!(blocked(&mut admin), 2, "nothing has come");
    admin.call("XADD a 1-7 f v");
    assert_eq!(ids(&clients[0].reply()), ["1-7"]);
    assert_eq!(blocked(&mut admin), 1, "the entry is not behind the other client's ID");
    admin.call("XADD a 2-1 f v");
    assert_eq!(ids(&clients[1].reply()), ["2-1"]);
    // The end of a stream that is not there yet is its beginning.
    wait(&mut admin, &mut clients[2], "XREAD BLOCK 0 COUNT 1 STREAMS c $");
    admin.call("XADD c 0-1 f v");
    assert_eq!(ids(&clients[2].reply()), ["0-1"]);
    assert_eq!(awaited(&mut admin), "0");
}

#[test]
fn consumers_of_a_group_are_served_once_each_in_their_order() {
    let (_server, mut admin, mut clients) = with_clients(3);
    admin.call("XGROUP CREATE a g $ MKSTREAM");
    for (at, name) in ["x", "y"].iter().enumerate() {
        wait(&mut admin, &mut clients[at], &format!("XREADGROUP GROUP g {name} BLOCK 0 STREAMS a >"));
    }
    wait(&mut admin, &mut clients[2], "XREAD BLOCK 0 STREAMS a $");
    admin.call("XADD a 1-1 f v");
    assert_eq!(ids(&clients[0].reply()), ["1-1"]);
    assert_eq!(ids(&clients[2].reply()), ["1-1"], "who reads without a group takes nothing away");
    assert_eq!(blocked(&mut admin), 1);
    admin.call("XADD a 2-1 f v");
    assert_eq!(ids(&clients[1].reply()), ["2-1"]);
    assert_eq!(admin.call("XPENDING a g").items()[0].text(), "2");
}

#[test]
fn the_end_of_a_group_or_of_its_stream_ends_the_waiting() {
    let (_server, mut admin, mut clients) = with_clients(1);
    let error = "NOGROUP No such key 'a' or consumer group 'g' in XREADGROUP with GROUP option";
    for line in ["XGROUP DESTROY a g", "DEL a", "UNLINK a", "FLUSHALL", "RENAME a b"] {
        admin.call("DEL a");
        admin.call("XGROUP CREATE a g $ MKSTREAM");
        wait(&mut admin, &mut clients[0], "XREADGROUP GROUP g c BLOCK 0 STREAMS a >");
        admin.call(line);
        assert_eq!(clients[0].reply(), Value::Error(error.to_owned()), "{line}");
        assert_eq!((blocked(&mut admin), awaited(&mut admin).as_str()), (0, "0"), "{line}");
    }
    admin.call("XGROUP CREATE a g $ MKSTREAM");
    wait(&mut admin, &mut clients[0], "XREADGROUP GROUP g c BLOCK 0 STREAMS a >");
    assert_eq!((awaited(&mut admin).as_str(), admin.info("total_blocking_keys_on_nokey").as_str()), ("1", "1"));
    admin.call("DEL a");
    clients[0].reply();
    // Without a group a client waits on.
    admin.call("XADD a 1-1 f v");
    wait(&mut admin, &mut clients[0], "XREAD BLOCK 0 STREAMS a $");
    assert_eq!((awaited(&mut admin).as_str(), admin.info("total_blocking_keys_on_nokey").as_str()), ("1", "0"));
    admin.call("DEL a");
    admin.call("SET a string");
    assert_eq!(blocked(&mut admin), 1);
    admin.call("DEL a");
    admin.call("XADD a 1-2 f v");
    assert_eq!(ids(&clients[0].reply()), ["1-2"]);
}

#[test]
fn time_ends_the_waiting_and_a_transaction_does_not_wait() {
    let (_server, mut admin, mut clients) = with_clients(1);
    assert_eq!(admin.call("XREAD BLOCK 20 STREAMS a $"), Value::Null);
    admin.call("MULTI");
    admin.call("XREAD BLOCK 0 STREAMS a $");
    assert_eq!(admin.call("EXEC").items()[0], Value::Null);
    wait(&mut admin, &mut clients[0], "XREAD BLOCK 0 STREAMS a $");
    admin.call("MULTI");
    admin.call("XADD a 1-1 f v");
    admin.call("XADD a 2-1 f v");
    admin.call("EXEC");
    assert_eq!(ids(&clients[0].reply()), ["1-1", "2-1"]);
}

#[test]
fn what_a_group_has_delivered_is_there_again_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let known = {
        let server = start_in(directory.path(), &[("appendonly", "yes")]);
        let (mut admin, mut client) = (server.client(), server.client());
        admin.call("XGROUP CREATE a g $ MKSTREAM");
        wait(&mut admin, &mut client, "XREADGROUP GROUP g c BLOCK 0 STREAMS a >");
        (0..250).for_each(|_| drop(admin.call("XADD a MAXLEN ~ 120 * field value")));
        assert_eq!(ids(&client.reply()).len(), 1);
        client.call("XREADGROUP GROUP g d COUNT 10 STREAMS a >");
        client.call("XREADGROUP GROUP g d NOACK COUNT 10 STREAMS a >");
        admin.call("XAUTOCLAIM a g e 0 0 COUNT 3");
        ["XINFO STREAM a", "XINFO GROUPS a", "XPENDING a g", "DEBUG DIGEST"].map(|line| admin.call(line))
    };
    let server = start_in(directory.path(), &[("appendonly", "yes")]);
    let mut admin = server.client();
    assert_eq!(
        ["XINFO STREAM a", "XINFO GROUPS a", "XPENDING a g", "DEBUG DIGEST"].map(|line| admin.call(line)),
        known
    );
}

#[test]
fn consumers_tell_when_they_have_asked_and_when_they_were_given_something() {
    let (_server, mut admin, mut clients) = with_clients(1);
    let client = &mut clients[0];
    let times = |admin: &mut Client| {
        let full = admin.call("XINFO STREAM s FULL");
        let after = |value: &Value, name: &str| {
            let items = value.items();
            let at = items.iter().step_by(2).position(|item| item.text() == name).unwrap();
            items[2 * at + 1].clone()
        };
        let consumer = after(&after(&full, "groups").items()[0], "consumers").items()[0].clone();
        ["seen-time", "active-time"].map(|name| after(&consumer, name).text().parse::<i64>().unwrap())
    };
    admin.call("XGROUP CREATE s g $ MKSTREAM");
    wait(&mut admin, client, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
    let [seen, active] = times(&mut admin);
    assert!(seen > 0 && active == -1, "nothing was given: {seen} {active}");
    admin.call("XADD s 1-1 f v");
    assert_eq!(ids(&client.reply()), ["1-1"]);
    let [seen, active] = times(&mut admin);
    assert!(seen > 0 && active == seen, "{seen} {active}");
    std::thread::sleep(std::time::Duration::from_millis(2));
    client.call("XREADGROUP GROUP g c STREAMS s >");
    let [asked, same] = times(&mut admin);
    assert!(asked > seen && same == active, "{asked} {same}");
    assert_eq!(admin.text("DEBUG RELOAD"), "OK");
    assert_eq!(times(&mut admin), [asked, same]);
    let shown = admin.call("XINFO CONSUMERS s g").items()[0].items().iter().map(Value::text).collect::<Vec<_>>();
    let names: Vec<&String> = shown.iter().step_by(2).collect();
    assert_eq!(names, ["name", "pending", "idle", "inactive"]);
}

#[test]
fn a_consumer_that_is_deleted_while_it_waits_is_made_anew_by_its_next_entry() {
    let directory = tempfile::tempdir().unwrap();
    let settings = [("appendonly", "yes")];
    let server = start_in(directory.path(), &settings);
    let (mut admin, mut client) = (server.client(), server.client());
    admin.call("XGROUP CREATE s g $ MKSTREAM");
    wait(&mut admin, &mut client, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
    assert_eq!(admin.call("XINFO CONSUMERS s g").items().len(), 1);
    admin.call("XGROUP DELCONSUMER s g c");
    assert_eq!((admin.call("XINFO CONSUMERS s g"), blocked(&mut admin)), (Value::Array(vec![]), 1));
    admin.call("XADD s 1-1 f v");
    assert_eq!(ids(&client.reply()), ["1-1"]);
    assert_eq!(admin.call("XINFO CONSUMERS s g").items()[0].items()[3], Value::Int(1), "it is pending");
    // The log says the same.
    wait(&mut admin, &mut client, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
    admin.call("XGROUP DELCONSUMER s g c");
    drop((admin, client, server));
    let server = start_in(directory.path(), &settings);
    assert_eq!(server.client().call("XINFO CONSUMERS s g"), Value::Array(vec![]));
}

#[test]
fn a_consumer_that_is_made_by_the_way_is_no_change_for_clients_that_watch_the_key() {
    let (_server, mut admin, mut clients) = with_clients(1);
    admin.call("XGROUP CREATE s g $ MKSTREAM");
    for (line, touches) in [
        ("XREADGROUP GROUP g a STREAMS s >", false),
        ("XCLAIM s g b 0 1-1", false),
        ("XAUTOCLAIM s g c 0 0", false),
        ("XADD s 1-1 f v", true),
    ] {
        clients[0].call("WATCH s");
        admin.call(line);
        clients[0].call("MULTI");
        assert_eq!(clients[0].call("EXEC") == Value::Null, touches, "{line}");
    }
    assert_eq!(admin.call("XINFO CONSUMERS s g").items().len(), 3);
}

#[test]
fn no_last_id_is_below_that_of_a_deleted_entry() {
    let (_server, mut admin, _) = with_clients(0);
    for id in ["1-1", "1-5", "2-1"] {
        admin.call(&format!("XADD s {id} f v"));
    }
    admin.call("XDEL s 1-5 2-1");
    let error = "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id";
    assert_eq!(admin.text("XSETID s 1-5"), error);
    assert_eq!(admin.text("XSETID s 2-1"), "OK");
}
