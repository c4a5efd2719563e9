//! Commands that change a large value in steps: a string that outgrows its place, a list that gets much shorter. Other clients are
//! served between the steps and see the value as it was; the command runs at one instant, and neither an image nor the log has
//! anything of it before.

use quire_device::{MemoryDirectory, PowerCut};

use crate::common::{Client, Running, Value, eventually, framed, go_on, request, start, start_small, start_within};

/// A string of this length takes several steps to copy.
const LEN: usize = 6 << 20;
/// A list of so many nodes takes several steps to divide.
const NODES: usize = 4000;
const LOGGING: &[(&str, &str)] = &[("appendonly", "yes"), ("appendfsync", "always")];

/// Bytes that differ from place to place.
fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
}

fn set_key(client: &mut Client) {
    assert_eq!(client.words(&[b"SET", b"key", &content(LEN)]).text(), "OK");
}

fn fill_list(client: &mut Client) {
    client.call("CONFIG SET list-max-listpack-size 1");
    for first in (0..NODES).step_by(1000) {
        let words: Vec<String> = (first..first + 1000).map(|number| number.to_string()).collect();
        client.call(&format!("RPUSH list {}", words.join(" ")));
    }
}

fn get(client: &mut Client, key: &str) -> Vec<u8> {
    match client.call(&format!("GET {key}")) {
        Value::Bulk(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

fn list(client: &mut Client) -> Vec<usize> {
    client.call("LRANGE list 0 -1").items().iter().map(|item| item.text().parse().unwrap()).collect()
}

fn data_bytes(client: &mut Client) -> usize {
    client.info("used_memory_dataset").parse().unwrap()
}

/// Has another client ask for something that is then under way, and gets no further until [`go_on`].
fn ask(server: &Running, client: &mut Client, words: &[&[u8]]) -> Client {
    client.call("DEBUG PAUSE-CRON 1");
    send_held(server, client, "asker", words)
}

/// Has a client of this name send what has to wait, and waits until the server has read it.
fn send_held(server: &Running, client: &mut Client, name: &str, words: &[&[u8]]) -> Client {
    let mut sender = server.client();
    sender.call(&format!("CLIENT SETNAME {name}"));
    sender.send(framed(words));
    let named = format!(" name={name} ");
    let is_held = |entry: &str| entry.contains(&named) && !entry.contains(" qbuf=0 ");
    eventually("it is held", || client.text("CLIENT LIST").lines().any(is_held));
    sender
}

/// What makes the string longer, the reply, and what it is then.
type Growth = (Vec<&'static [u8]>, i64, Vec<u8>);

fn growths() -> [Growth; 3] {
    let (mut appended, mut written, mut set) = (content(LEN), content(LEN), content(LEN));
    appended.extend(b"more");
    written.resize(2 * LEN, 0);
    written.extend(b"end");
    set.resize(LEN + 10_001, 0);
    set[LEN + 10_000] = 0x80;
    let bit: &'static str = (8 * (LEN + 10_000)).to_string().leak();
    let at: &'static str = (2 * LEN).to_string().leak();
    [
        (vec![b"APPEND", b"key", b"more"], LEN as i64 + 4, appended),
        (vec![b"SETRANGE", b"key", at.as_bytes(), b"end"], 2 * LEN as i64 + 3, written),
        (vec![b"SETBIT", b"key", bit.as_bytes(), b"1"], 0, set),
    ]
}

#[test]
fn other_clients_are_served_while_a_long_string_grows_and_see_the_old_one() {
    for (words, reply, expected) in growths() {
        let server = start(&[]);
        let mut client = server.client();
        set_key(&mut client);
        let before = data_bytes(&mut client);
        let mut asker = ask(&server, &mut client, &words);
        assert_eq!((client.call("STRLEN key").int(), client.text("SET other value")), (LEN as i64, "OK".into()));
        assert!(get(&mut client, "key") == content(LEN));
        assert!(data_bytes(&mut client) >= before + LEN, "the memory is counted before it is filled");
        let mut writer = send_held(&server, &mut client, "writer", &[b"SETRANGE", b"key", b"0", b"!"]);
        go_on(&mut client);
        assert_eq!(asker.reply().int(), reply);
        assert_eq!(writer.reply().int(), expected.len() as i64, "it comes afterwards");
        let found = get(&mut client, "key");
        assert!(found[0] == b'!' && found[1..] == expected[1..], "{words:?}");
    }
}

#[test]
fn other_clients_are_served_while_a_long_list_is_divided_and_see_the_whole_one() {
    for (line, kept) in [
        ("LTRIM list 1000 2999", 1000..3000),
        ("LPOP list 1500", 1500..4000),
        ("RPOP list 1500", 0..2500),
        ("LMPOP 2 none list RIGHT COUNT 1000", 0..3000),
    ] {
        let server = start(&[]);
        let mut client = server.client();
        fill_list(&mut client);
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let mut asker = ask(&server, &mut client, &words);
        assert_eq!((client.call("LLEN list").int(), client.text("SET other value")), (NODES as i64, "OK".into()));
        let mut writer = send_held(&server, &mut client, "writer", &[b"RPUSH", b"list", b"4000"]);
        assert_eq!(list(&mut client), (0..NODES).collect::<Vec<_>>());
        go_on(&mut client);
        let gone: Vec<usize> = (0..kept.start).chain((kept.end..NODES).rev()).collect();
        match asker.reply() {
            Value::Simple(ok) => assert_eq!(ok, "OK"),
            reply => {
                let popped = if line.starts_with("LMPOP") { reply.items()[1].clone() } else { reply };
                let popped: Vec<usize> = popped.items().iter().map(|item| item.text().parse().unwrap()).collect();
                assert_eq!(popped, gone, "{line}");
            }
        }
        assert_eq!(writer.reply().int(), kept.len() as i64 + 1, "{line}");
        assert_eq!(list(&mut client), kept.chain([4000]).collect::<Vec<_>>(), "{line}");
        eventually("what is gone is freed", || client.info("lazyfree_pending_objects") == "0");
    }
}

#[test]
fn appends_of_two_clients_in_pipelines_are_all_there_and_in_order() {
    const APPENDS: usize = 60;
    let server = start(LOGGING);
    let mut client = server.client();
    set_key(&mut client);
    let part = |writer: usize, number: usize| {
        let mut part = format!("[{writer}:{number}]").into_bytes();
        // Now and then as much as the reserve holds.
        part.resize(part.len() + [3, 70_000, 300_000][number % 3], b'a' + writer as u8);
        part
    };
    let send = |writer: usize| {
        let mut client = server.client();
        std::thread::spawn(move || {
            let all: Vec<u8> =
                (0..APPENDS).flat_map(|number| framed(&[b"APPEND", b"key", &part(writer, number)])).collect();
            client.send(all);
            (0..APPENDS).map(|_| client.reply().int()).collect::<Vec<i64>>()
        })
    };
    let writers = [send(0), send(1)];
    let mut ends: Vec<(i64, usize, usize)> = Vec::new();
    for (writer, thread) in writers.into_iter().enumerate() {
        let lens = thread.join().unwrap();
        assert!(lens.is_sorted(), "the replies come in the order of the requests");
        ends.extend(lens.into_iter().enumerate().map(|(number, len)| (len, writer, number)));
    }
    ends.sort_unstable();
    let mut expected = content(LEN);
    for (len, writer, number) in ends {
        expected.extend(part(writer, number));
        assert_eq!(expected.len() as i64, len, "{writer}: {number}");
    }
    assert!(get(&mut client, "key") == expected);
}

#[test]
fn of_clients_that_all_change_one_list_in_steps_one_is_woken_at_a_time() {
    const POPPERS: usize = 25;
    const POPPED: usize = 600;
    let server = start(&[]);
    let mut client = server.client();
    client.call("CONFIG SET list-max-listpack-size 1");
    for _ in 0..POPPERS {
        client.call(&format!("RPUSH list {}", vec!["x"; POPPED].join(" ")));
    }
    client.call("DEBUG PAUSE-CRON 1");
    let pop = |_| {
        let mut popper = server.client();
        popper.send(request(&format!("LPOP list {POPPED}")));
        popper
    };
    // The last one takes what is left, at once.
    let mut poppers: Vec<Client> = (0..POPPERS).map(pop).collect();
    eventually("all wait", || client.info("paused_clients") == POPPERS.to_string());
    let woken = |client: &mut Client| client.info("woken_clients").parse::<usize>().unwrap();
    let before = woken(&mut client);
    go_on(&mut client);
    assert!(poppers.iter_mut().all(|popper| popper.reply().items().len() == POPPED));
    // Each to begin, when what it needs is made, and to go on behind that.
    let woken = woken(&mut client) - before;
    assert!(woken <= 3 * POPPERS, "{woken} times");
    assert_eq!(client.text("EXISTS list"), "0");
}

#[test]
fn requests_behind_one_that_takes_steps_wait_for_it() {
    let server = start(&[]);
    let mut client = server.client();
    set_key(&mut client);
    fill_list(&mut client);
    let mut asker = ask(&server, &mut client, &[b"APPEND", b"key", b"more"]);
    asker.send([request("STRLEN key"), request("LTRIM list 1000 2999"), request("LLEN list")].concat());
    go_on(&mut client);
    let replies: Vec<Value> = (0..4).map(|_| asker.reply()).collect();
    assert_eq!([replies[0].int(), replies[1].int(), replies[3].int()], [LEN as i64 + 4, LEN as i64 + 4, 2000]);
    assert_eq!(replies[2].text(), "OK");
}

#[test]
fn within_a_transaction_it_is_one_step() {
    let server = start(&[]);
    let mut client = server.client();
    set_key(&mut client);
    fill_list(&mut client);
    client.call("DEBUG PAUSE-CRON 1");
    let bit = format!("SETBIT key {} 1", 16 * LEN);
    for line in ["MULTI", "APPEND key more", &bit, "STRLEN key", "LTRIM list 1000 2999", "LLEN list", "EXEC"] {
        client.send(request(line));
    }
    (0..6).for_each(|_| drop(client.reply()));
    let replies = client.reply();
    let ints = [0, 1, 2, 4].map(|at: usize| replies.items()[at].int());
    assert_eq!(ints, [LEN as i64 + 4, 0, 2 * LEN as i64 + 1, 2000]);
}

#[test]
fn a_client_that_leaves_takes_what_was_made_for_it_with_it() {
    for words in [&[b"APPEND" as &[u8], b"key", b"more"][..], &[b"LTRIM", b"list", b"1000", b"2999"]] {
        let server = start(&[]);
        let mut client = server.client();
        set_key(&mut client);
        fill_list(&mut client);
        let before = data_bytes(&mut client);
        let mut asker = ask(&server, &mut client, words);
        assert_eq!(client.text("CLIENT KILL SKIPME yes"), "1");
        asker.closed();
        assert_eq!(client.call("SETRANGE key 0 x").int(), LEN as i64, "it can be written when the client is gone");
        assert_eq!(client.call("RPUSH list x").int(), NODES as i64 + 1);
        go_on(&mut client);
        eventually("what it took is freed", || {
            client.info("lazyfree_pending_objects") == "0" && data_bytes(&mut client) < before + 20_000
        });
        assert_eq!((client.call("STRLEN key").int(), client.call("LLEN list").int()), (LEN as i64, NODES as i64 + 1));
    }
}

#[test]
fn what_is_gone_when_the_steps_end_is_made_anew() {
    let server = start(&[]);
    let mut client = server.client();
    set_key(&mut client);
    let mut asker = ask(&server, &mut client, &[b"APPEND", b"key", b"more"]);
    let mut other = send_held(&server, &mut client, "other", &[b"FLUSHALL"]);
    go_on(&mut client);
    assert_eq!((asker.reply().int(), other.reply().text()), (LEN as i64 + 4, "OK".into()), "the flush has waited");
    assert_eq!(client.text("DBSIZE"), "0");
    set_key(&mut client);
    let mut asker = ask(&server, &mut client, &[b"SETRANGE", b"key", b"8000000", b"x"]);
    // Only its own time to live changes a value for which steps are under way. It had none, and the reload ends all steps.
    client.call("DEBUG RELOAD");
    go_on(&mut client);
    assert_eq!(asker.reply().int(), 8_000_001);
    assert!(get(&mut client, "key")[..LEN] == content(LEN));
}

#[test]
fn growth_for_which_the_server_has_no_memory_is_refused_and_leaves_nothing() {
    let server = start_small(&MemoryDirectory::new(), &[], 16 << 20).unwrap();
    let mut client = server.client();
    set_key(&mut client);
    let (digest, before) = (client.text("DEBUG DIGEST"), data_bytes(&mut client));
    for line in ["SETRANGE key 12000000 x", "SETBIT key 96000000 1"] {
        let refused = client.call(line);
        assert!(matches!(&refused, Value::Error(line) if line.starts_with("OOM")), "{refused:?}");
        assert_eq!(client.text("DEBUG DIGEST"), digest);
        assert!(data_bytes(&mut client) < before + LEN / 2);
    }
    assert_eq!(client.call("SETRANGE key 0 x").int(), LEN as i64, "nothing is under way that holds it");
}

#[test]
fn a_limit_of_memory_that_is_lowered_meanwhile_refuses_the_growth() {
    let server = start(&[]);
    let mut client = server.client();
    set_key(&mut client);
    let before = data_bytes(&mut client);
    let mut asker = ask(&server, &mut client, &[b"APPEND", b"key", b"more"]);
    client.call("CONFIG SET maxmemory 1mb");
    go_on(&mut client);
    assert!(matches!(asker.reply(), Value::Error(line) if line.starts_with("OOM")));
    client.call("CONFIG SET maxmemory 0");
    eventually("what it took is freed", || data_bytes(&mut client) < before + LEN / 2);
    assert_eq!(client.call("APPEND key more").int(), LEN as i64 + 4);
}

/// What a server finds after the power went in `memory`: the lengths of the string and of the list.
fn found_after_power_cut(memory: &MemoryDirectory, cut: PowerCut) -> (i64, i64) {
    let server = start_within(&memory.after_power_cut(cut), LOGGING).unwrap();
    let mut client = server.client();
    (client.call("STRLEN key").int(), client.call("LLEN list").int())
}

#[test]
fn a_power_cut_finds_the_value_before_the_command_or_after_it() {
    for words in [&[b"APPEND" as &[u8], b"key", b"more"][..], &[b"LTRIM", b"list", b"1000", b"2999"]] {
        let memory = MemoryDirectory::new();
        let server = start_within(&memory, LOGGING).unwrap();
        let mut client = server.client();
        set_key(&mut client);
        fill_list(&mut client);
        let mut asker = ask(&server, &mut client, words);
        client.call("SET other value");
        let before = (LEN as i64, NODES as i64);
        for cut in [PowerCut::LoseAll, PowerCut::KeepAll] {
            assert_eq!(found_after_power_cut(&memory, cut), before, "only the log has it");
        }
        let saves = client.info("rdb_saves");
        client.call("BGSAVE");
        eventually("an image is there", || client.info("rdb_saves") != saves);
        for cut in [PowerCut::LoseAll, PowerCut::KeepAll] {
            assert_eq!(found_after_power_cut(&memory, cut), before, "the image was cut within the steps");
        }
        go_on(&mut client);
        asker.reply();
        let after = (client.call("STRLEN key").int(), client.call("LLEN list").int());
        assert!(after != before);
        for cut in [PowerCut::LoseAll, PowerCut::KeepAll] {
            assert_eq!(found_after_power_cut(&memory, cut), after, "the log has it once");
        }
    }
}
