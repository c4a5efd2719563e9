//! Commands that wait for lists: who is served, what the log and a restart have of it, and that nothing is left of a client that goes.

use crate::common::{
    Client, Running, Value, awaited, blocked, config_in, eventually, request, start, start_in, start_with, wait,
};

fn pair(key: &str, element: &str) -> Value {
    Value::Array(vec![Value::Bulk(key.into()), Value::Bulk(element.into())])
}

fn is_error(reply: &Value, start: &str) -> bool {
    matches!(reply, Value::Error(line) if line.starts_with(start))
}

/// A server with so many clients.
fn with_clients(settings: &[(&str, &str)], count: usize) -> (Running, Client, Vec<Client>) {
    let server = start(settings);
    let admin = server.client();
    let clients = (0..count).map(|_| server.client()).collect();
    (server, admin, clients)
}

#[test]
fn many_clients_are_served_in_the_order_in_which_they_came() {
    let (_server, mut admin, mut clients) = with_clients(&[], 120);
    for client in &mut clients {
        wait(&mut admin, client, "BLPOP other list 0");
    }
    assert_eq!(awaited(&mut admin), "2");
    for first in (0..120).step_by(40) {
        let words: Vec<String> = (first..first + 40).map(|number| number.to_string()).collect();
        assert_eq!(admin.text(&format!("RPUSH list {}", words.join(" "))), "40");
        assert_eq!((admin.text("EXISTS list").as_str(), blocked(&mut admin)), ("0", 80 - first as u64));
    }
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.reply(), pair("list", &number.to_string()));
        assert_eq!(client.text("PING"), "PONG");
    }
    assert_eq!(awaited(&mut admin), "0");
}

#[test]
fn a_client_that_leaves_takes_no_element_and_leaves_nothing_behind() {
    for how in ["closed", "half closed", "killed", "killed while it waits behind requests"] {
        let (_server, mut admin, mut clients) = with_clients(&[], 2);
        let mut second = clients.pop().unwrap();
        let mut first = clients.pop().unwrap();
        wait(&mut admin, &mut first, "BLMPOP 0 3 a b c LEFT");
        wait(&mut admin, &mut second, "BLPOP a 0");
        match how {
            "closed" => drop(first),
            "half closed" => {
                first.end();
                first.closed();
            }
            _ => {
                if how.ends_with("requests") {
                    first.send(request("SET x 1").repeat(1000));
                }
                let id = admin.text("CLIENT LIST").lines().find(|line| line.contains("cmd=blmpop")).unwrap().to_owned();
                let id = id.trim_start_matches("id=").split(' ').next().unwrap().to_owned();
                assert_eq!(admin.text(&format!("CLIENT KILL ID {id}")), "1");
                first.closed();
            }
        }
        eventually("it is gone", || blocked(&mut admin) == 1);
        assert_eq!(awaited(&mut admin), "1", "{how}");
        admin.call("RPUSH b for-no-client");
        admin.call("RPUSH a for-the-second");
        assert_eq!(second.reply(), pair("a", "for-the-second"));
        assert_eq!((awaited(&mut admin).as_str(), admin.text("LLEN b").as_str()), ("0", "1"), "{how}");
        assert_eq!(admin.text("EXISTS x"), "0");
    }
}

#[test]
fn a_key_that_expires_in_the_transaction_that_makes_it_is_given_to_none() {
    let (_server, mut admin, mut clients) = with_clients(&[], 1);
    wait(&mut admin, &mut clients[0], "BLPOP a 0");
    for line in ["MULTI", "RPUSH a x", "PEXPIRE a 20", "DEBUG SLEEP 0.1", "EXEC"] {
        admin.call(line);
    }
    assert_eq!(blocked(&mut admin), 1, "it has found nothing");
    admin.call("RPUSH a y");
    assert_eq!(clients[0].reply(), pair("a", "y"));
}

#[test]
fn an_element_of_a_client_that_leaves_at_once_is_given_all_the_same() {
    let (server, mut admin, mut clients) = with_clients(&[], 1);
    for last in ["PING", "QUIT", "NOSUCH"] {
        wait(&mut admin, &mut clients[0], "BLPOP a 0");
        let mut pusher = server.client();
        pusher.send([request("RPUSH a 1"), request(last)].concat());
        pusher.end();
        assert_eq!(clients[0].reply(), pair("a", "1"), "{last}");
    }
    // Without reading a reply, and with nothing behind the request.
    wait(&mut admin, &mut clients[0], "BLPOP a 0");
    let mut pusher = server.client();
    pusher.send(request("CLIENT REPLY OFF"));
    pusher.send(request("RPUSH a 1"));
    drop(pusher);
    assert_eq!(clients[0].reply(), pair("a", "1"));
}

#[test]
fn a_client_whose_time_is_up_takes_nothing_and_goes_on() {
    let (_server, mut admin, mut clients) = with_clients(&[], 1);
    let client = &mut clients[0];
    for line in ["BLPOP a b 0.05", "BLMOVE a b LEFT LEFT 0.001", "BLMPOP 0.05 1 a LEFT", "BRPOPLPUSH a b 0.05"] {
        client.send([request(line), request("PING")].concat());
        assert_eq!((client.reply(), client.reply().text()), (Value::Null, "PONG".into()), "{line}");
    }
    assert_eq!((awaited(&mut admin).as_str(), blocked(&mut admin)), ("0", 0));
    admin.call("RPUSH a 1");
    assert_eq!(admin.text("LLEN a"), "1");
}

#[test]
fn a_time_that_no_clock_can_tell_is_refused() {
    let (_server, _admin, mut clients) = with_clients(&[], 1);
    for time in ["1e300", "inf", "9223372036854775807", "9223372036854776"] {
        let reply = clients[0].call(&format!("BLPOP a {time}"));
        assert!(is_error(&reply, "ERR timeout is out of range"), "{time}: {reply:?}");
    }
}

#[test]
fn a_client_that_was_unblocked_takes_nothing_however_soon_an_element_comes() {
    let (_server, mut admin, mut clients) = with_clients(&[], 1);
    let id = clients[0].call("CLIENT ID").int();
    for (how, expected) in [("TIMEOUT", "(nil)"), ("ERROR", "UNBLOCKED client unblocked via CLIENT UNBLOCK")] {
        wait(&mut admin, &mut clients[0], "BLPOP a 0");
        admin.send([request(&format!("CLIENT UNBLOCK {id} {how}")), request("RPUSH a 1"), request("LLEN a")].concat());
        let replies = [admin.reply().int(), admin.reply().int(), admin.reply().int()];
        assert_eq!(replies, [1, 1, 1], "{how}");
        assert_eq!(clients[0].reply().text(), expected);
        admin.call("DEL a");
    }
    assert_eq!(admin.call(&format!("CLIENT UNBLOCK {id}")).int(), 0);
}

#[test]
fn the_log_has_what_was_done_and_a_restart_does_it_again() {
    let dir = tempfile::tempdir().unwrap();
    let settings = [("appendonly", "yes"), ("appendfsync", "always")];
    let expected = {
        let server = start_in(dir.path(), &settings);
        let (mut admin, mut client) = (server.client(), server.client());
        for (line, reply) in [
            ("BLPOP none a 0", 2),
            ("BRPOP a 0", 2),
            ("BLMOVE a b LEFT RIGHT 0", 0),
            ("BRPOPLPUSH a b 0", 0),
            ("BLMPOP 0 2 none a RIGHT COUNT 2", 2),
        ] {
            // Once when it has waited, and once at once.
            wait(&mut admin, &mut client, line);
            admin.call("RPUSH a 1 2 3 4 5 6 7 8 9");
            let check = |value: Value| assert!(reply == 0 || value.items().len() == reply, "{line}");
            check(client.reply());
            check(client.call(line));
            assert!(admin.call("LLEN a").int() < 9, "{line}");
            admin.call("DEL a");
        }
        wait(&mut admin, &mut client, "BLPOP a 0");
        admin.send([request("MULTI"), request("RPUSH a 1 2"), request("SET x 1"), request("EXEC")].concat());
        (0..4).for_each(|_| drop(admin.reply()));
        assert_eq!(client.reply(), pair("a", "1"));
        admin.text("DEBUG DIGEST")
    };
    let server = start_in(dir.path(), &settings);
    let mut admin = server.client();
    assert_eq!((admin.text("DEBUG DIGEST"), admin.text("LINDEX a 0")), (expected, "2".into()));
    assert_eq!(admin.text("LLEN a"), "1");
    assert_eq!(admin.text("LLEN b"), "4");
}

#[test]
fn a_reply_is_not_given_before_what_was_taken_is_durable() {
    let server = start(&[("appendonly", "yes"), ("appendfsync", "always")]);
    let (mut admin, mut client) = (server.client(), server.client());
    wait(&mut admin, &mut client, "BLPOP a 0");
    admin.call("RPUSH a 1");
    assert_eq!(client.reply(), pair("a", "1"));
    // The record of the client's own effect is what WAITAOF asks about.
    assert_eq!(client.call("WAITAOF 1 0 0").items()[0], Value::Int(1));
}

#[test]
fn paused_clients_are_served_when_the_pause_ends_in_their_order() {
    let (server, mut admin, mut clients) = with_clients(&[], 3);
    for client in &mut clients {
        wait(&mut admin, client, "BLPOP a 0");
    }
    let mut pusher = server.client();
    admin.call("CLIENT PAUSE 600000 WRITE");
    pusher.call("CLIENT SETNAME pusher");
    pusher.send(request("RPUSH a 1 2"));
    let is_held = |line: &str| line.contains(" name=pusher ") && !line.contains(" qbuf=0 ");
    eventually("it is held", || admin.text("CLIENT LIST").lines().any(is_held));
    assert_eq!(admin.text("EXISTS a"), "0");
    admin.call("CLIENT UNPAUSE");
    assert_eq!(pusher.reply(), Value::Int(2));
    assert_eq!((clients[0].reply(), clients[1].reply()), (pair("a", "1"), pair("a", "2")));
    admin.call("RPUSH a 3");
    assert_eq!(clients[2].reply(), pair("a", "3"));
}

#[test]
fn a_pause_holds_back_neither_the_end_of_time_nor_another_client_that_ends_the_waiting() {
    let (_server, mut admin, mut clients) = with_clients(&[], 3);
    let id = clients[1].call("CLIENT ID").int();
    wait(&mut admin, &mut clients[0], "BLPOP a 0.5");
    wait(&mut admin, &mut clients[1], "BLMOVE a b LEFT LEFT 0");
    wait(&mut admin, &mut clients[2], "BLPOP a 0");
    // The transaction pauses all that write, and then writes: who waits is woken and may not go on.
    admin
        .send([request("MULTI"), request("CLIENT PAUSE 600000 WRITE"), request("RPUSH a 1"), request("EXEC")].concat());
    (0..4).for_each(|_| drop(admin.reply()));
    assert_eq!(clients[0].reply(), Value::Null);
    let flags = |line: &str| line.contains(&format!("id={id} ")) && line.contains(" flags=b ");
    assert!(admin.text("CLIENT LIST").lines().any(flags), "it counts as blocked");
    assert_eq!(admin.call(&format!("CLIENT UNBLOCK {id} ERROR")).int(), 1);
    assert!(is_error(&clients[1].reply(), "UNBLOCKED"));
    assert_eq!(admin.text("LLEN a"), "1");
    admin.call("CLIENT UNPAUSE");
    assert_eq!(clients[2].reply(), pair("a", "1"));
    assert_eq!(awaited(&mut admin), "0");
}

#[test]
fn a_client_whose_waiting_ends_without_an_element_is_told_so_whatever_forbids_writes() {
    let (_server, mut admin, mut clients) = with_clients(&[], 2);
    let id = clients[0].call("CLIENT ID").int();
    wait(&mut admin, &mut clients[0], "BLMOVE a b LEFT LEFT 0");
    wait(&mut admin, &mut clients[1], "BRPOPLPUSH a b 0.5");
    admin.call("CONFIG SET maxmemory 1");
    assert_eq!(admin.call(&format!("CLIENT UNBLOCK {id}")).int(), 1);
    assert_eq!(clients[0].reply(), Value::Null);
    assert_eq!(clients[1].reply(), Value::Null);
    assert!(is_error(&clients[1].call("BRPOPLPUSH a b 0.5"), "OOM"));
}

#[test]
fn clients_that_wait_are_served_by_the_data_that_is_reloaded() {
    let (_server, mut admin, mut clients) = with_clients(&[], 1);
    wait(&mut admin, &mut clients[0], "BLPOP a 0");
    assert_eq!(admin.text("DEBUG RELOAD"), "OK");
    assert_eq!(blocked(&mut admin), 1);
    admin.call("RPUSH a 1");
    assert_eq!(clients[0].reply(), pair("a", "1"));
    assert_eq!(admin.text("EXISTS a"), "0");
}

#[test]
fn a_key_of_another_type_ends_the_waiting_when_the_request_is_run_again() {
    let (_server, mut admin, mut clients) = with_clients(&[], 2);
    wait(&mut admin, &mut clients[0], "BLPOP a b 0");
    admin.call("SET a 1");
    assert_eq!(blocked(&mut admin), 1, "a string is no list that has come");
    admin.call("RPUSH b 1");
    // As 7.2 does, which runs the request again from its first key on.
    let reply = clients[0].reply();
    assert!(is_error(&reply, "WRONGTYPE"), "{reply:?}");
    assert_eq!(admin.text("LLEN b"), "1");
    admin.call("DEL b");
    wait(&mut admin, &mut clients[0], "BLMOVE b a LEFT LEFT 0");
    wait(&mut admin, &mut clients[1], "BLPOP b 0");
    admin.call("RPUSH b 1");
    assert!(is_error(&clients[0].reply(), "WRONGTYPE"));
    assert_eq!(clients[1].reply(), pair("b", "1"), "what was refused to one client is there for the next");
}

#[test]
fn of_keys_that_came_together_the_first_in_the_order_of_the_client_is_taken() {
    let (_server, mut admin, mut clients) = with_clients(&[], 1);
    wait(&mut admin, &mut clients[0], "BLPOP b c 0");
    admin.send([request("MULTI"), request("RPUSH c 1"), request("RPUSH b 2"), request("EXEC")].concat());
    (0..4).for_each(|_| drop(admin.reply()));
    // As 7.2 does; 7.0 took from the one that was written first.
    assert_eq!(clients[0].reply(), pair("b", "2"));
    assert_eq!((admin.text("LLEN c").as_str(), admin.text("EXISTS b").as_str()), ("1", "0"));
}

#[test]
fn an_element_that_is_taken_is_a_change_for_those_who_watch() {
    let (_server, mut admin, mut clients) = with_clients(&[], 2);
    wait(&mut admin, &mut clients[0], "BLMOVE a b LEFT LEFT 0");
    let watcher = &mut clients[1];
    for line in ["WATCH b", "MULTI", "PING"] {
        watcher.call(line);
    }
    admin.call("RPUSH a 1");
    assert_eq!(watcher.call("EXEC"), Value::Null);
    assert_eq!(clients[0].reply().text(), "1");
}

#[test]
fn a_move_that_memory_forbids_is_refused_when_its_turn_comes() {
    let (_server, mut admin, mut clients) = with_clients(&[], 2);
    wait(&mut admin, &mut clients[0], "BLMOVE a b LEFT LEFT 0");
    wait(&mut admin, &mut clients[1], "BLPOP a 0");
    // RENAME needs no memory that maxmemory would refuse.
    admin.call("RPUSH source 1");
    admin.call("CONFIG SET maxmemory 1");
    admin.call("RENAME source a");
    assert!(is_error(&clients[0].reply(), "OOM"));
    assert_eq!(clients[1].reply(), pair("a", "1"));
}

#[test]
fn keys_on_which_a_client_waits_count_as_its_memory() {
    let (_server, mut admin, mut clients) = with_clients(&[("maxmemory-clients", "20mb")], 2);
    let keys: Vec<String> = (0..20_000).map(|number| format!("k{number}")).collect();
    wait(&mut admin, &mut clients[0], &format!("BLPOP {} 0", keys.join(" ")));
    assert_eq!(awaited(&mut admin), "20000");
    let line = admin.text("CLIENT LIST").lines().find(|line| line.contains("cmd=blpop")).unwrap().to_owned();
    let bytes: u64 = line.split("tot-mem=").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(bytes > 20_000 * 200, "{line}");
    // More than all clients may take closes those that take most.
    let more: Vec<String> = (0..100_000).map(|number| format!("other{number}")).collect();
    clients[1].send(request(&format!("BLPOP {} 0", more.join(" "))));
    clients[1].closed();
    eventually("its keys are gone", || awaited(&mut admin) == "20000" || awaited(&mut admin) == "0");
}

#[test]
fn a_copy_that_is_under_way_holds_a_client_that_would_take_from_its_source() {
    let (server, mut admin, mut clients) = with_clients(&[("list-max-listpack-size", "1")], 2);
    for first in (0..20_000).step_by(1000) {
        let words: Vec<String> = (first..first + 1000).map(|number: u32| number.to_string()).collect();
        admin.call(&format!("RPUSH a {}", words.join(" ")));
    }
    admin.call("DEBUG PAUSE-CRON 1");
    clients[0].send(request("COPY a b"));
    eventually("the copy begins", || admin.text("CLIENT LIST").contains("cmd=copy"));
    clients[1].call("CLIENT SETNAME popper");
    clients[1].send(request("BLPOP none a 0"));
    let is_held = |line: &str| line.contains(" name=popper ") && !line.contains(" qbuf=0 ");
    eventually("it is held", || admin.text("CLIENT LIST").lines().any(is_held));
    admin.call("DEBUG PAUSE-CRON 0");
    assert_eq!(clients[0].reply(), Value::Int(1));
    assert_eq!(clients[1].reply(), pair("a", "0"));
    assert_eq!((admin.text("LLEN a"), admin.text("LLEN b")), ("19999".into(), "20000".into()));
    drop(server);
}

#[test]
fn clients_that_move_elements_in_a_ring_leave_the_server_to_others() {
    let (_server, mut admin, mut clients) = with_clients(&[], 2);
    // Each wakes the other one, thousands of times.
    let lines = [request("BLMOVE a b LEFT RIGHT 0").repeat(3000), request("BLMOVE b a LEFT RIGHT 0").repeat(3000)];
    for (client, lines) in clients.iter_mut().zip(lines) {
        client.send(lines);
    }
    eventually("both wait", || blocked(&mut admin) == 2);
    admin.call("RPUSH a x");
    assert_eq!(admin.text("PING"), "PONG");
    for client in &mut clients {
        (0..3000).for_each(|_| assert_eq!(client.reply().text(), "x"));
    }
    assert_eq!((admin.text("LLEN a").as_str(), awaited(&mut admin).as_str()), ("1", "0"));
}

#[test]
fn replies_that_are_not_wanted_are_not_given() {
    let (_server, mut admin, mut clients) = with_clients(&[], 1);
    clients[0].send(request("CLIENT REPLY SKIP"));
    wait(&mut admin, &mut clients[0], "BLPOP a 0");
    admin.call("RPUSH a 1");
    assert_eq!(clients[0].text("ECHO next"), "next");
    let stats = admin.text("INFO commandstats");
    assert!(stats.contains("cmdstat_blpop:calls=1,"), "{stats}");
}

#[test]
fn a_server_that_ends_lets_those_go_who_wait() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = start_with(config_in(dir.path(), &[]));
    let (mut admin, mut client) = (server.client(), server.client());
    wait(&mut admin, &mut client, "BLPOP a 0");
    admin.send(request("SHUTDOWN NOSAVE"));
    assert!(server.ended());
    client.closed();
}
