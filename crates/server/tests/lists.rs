//! Lists over real sockets: what is counted, what is done in steps, and what comes back after a restart.

use quire_device::MemoryDirectory;

use crate::common::{Client, Value, config_in, eventually, request, start, start_in, start_small, start_with};

/// Pushes so many elements of this length, a thousand at a time.
fn fill(client: &mut Client, key: &str, elements: usize, len: usize) {
    for first in (0..elements).step_by(1000) {
        let words: Vec<String> = (first..elements.min(first + 1000)).map(|number| format!("{number:0len$}")).collect();
        client.call(&format!("RPUSH {key} {}", words.join(" ")));
    }
}

fn changes(client: &mut Client) -> i64 {
    client.info("rdb_changes_since_last_save").parse().unwrap()
}

#[test]
fn look_ups_and_changes_are_counted_as_redis_counts_them() {
    let server = start(&[]);
    let mut client = server.client();
    client.call("RPUSH l a b c d e f g");
    client.call("CONFIG RESETSTAT");
    for command in ["LLEN l", "LINDEX l 1", "LRANGE l 0 -1", "LPOS l c", "TYPE l", "OBJECT ENCODING l", "LLEN none"] {
        client.call(command);
    }
    let stats = client.text("INFO stats");
    assert!(stats.contains("keyspace_hits:6\r\n") && stats.contains("keyspace_misses:1\r\n"), "{stats}");
    for (command, counted) in [
        ("RPUSH l h i", 2),
        ("LPUSHX none a", 0),
        ("LPOP l", 1),
        ("RPOP l 2", 2),
        ("LPOP l 0", 0),
        ("LMOVE l l LEFT RIGHT", 1),
        ("LMOVE l l LEFT LEFT", 1),
        ("RPOPLPUSH l other", 1),
        ("LMOVE other l LEFT LEFT", 1),
        ("LSET l 0 B", 1),
        ("LINSERT l AFTER B x", 1),
        ("LINSERT l AFTER none x", 0),
        ("LREM l 0 x", 1),
        ("LREM l 0 none", 0),
        ("LTRIM l 1 -2", 2),
        ("LTRIM l 0 -1", 0),
        ("LMPOP 2 none l LEFT COUNT 2", 2),
        ("LTRIM l 5 1", 2),
        ("LRANGE l 0 -1", 0),
    ] {
        let before = changes(&mut client);
        client.call(command);
        assert_eq!(changes(&mut client) - before, counted, "{command}");
    }
    assert_eq!(client.text("EXISTS l"), "0");
}

#[test]
fn a_limit_of_nodes_holds_from_the_next_change_on_and_can_be_negative() {
    let server = start(&[("list-max-ziplist-size", "3")]);
    let mut client = server.client();
    assert_eq!(client.call("CONFIG GET list-max-listpack-size").items()[1].text(), "3");
    client.call("RPUSH l a b c");
    assert_eq!(client.text("OBJECT ENCODING l"), "listpack");
    assert_eq!(client.text("CONFIG SET list-max-listpack-size -5"), "OK");
    client.call("RPUSH l d");
    assert_eq!(client.text("OBJECT ENCODING l"), "listpack");
    assert_eq!(client.text("CONFIG SET list-max-ziplist-size 2"), "OK");
    assert_eq!(client.text("OBJECT ENCODING l"), "listpack");
    client.call("RPUSH l e");
    assert_eq!(client.text("OBJECT ENCODING l"), "quicklist");
    for refused in ["CONFIG SET list-max-listpack-size x", "CONFIG SET list-max-listpack-size 99999999999"] {
        assert!(client.text(refused).starts_with("ERR"), "{refused}");
    }
}

#[test]
fn a_list_of_another_type_or_that_is_none_is_told() {
    let server = start(&[]);
    let mut client = server.client();
    for line in ["SADD set 1", "HSET hash f v", "SET string x", "RPUSH list a"] {
        client.call(line);
    }
    for key in ["set", "hash", "string"] {
        for line in
            ["LPUSH KEY a", "LLEN KEY", "LPOP KEY", "LRANGE KEY 0 -1", "LMOVE list KEY LEFT LEFT", "LMPOP 1 KEY LEFT"]
        {
            let reply = client.text(&line.replace("KEY", key));
            assert!(reply.starts_with("WRONGTYPE"), "{line} {key}: {reply}");
        }
    }
    for line in ["GET list", "SADD list a", "HGET list f", "INCR list", "SUNION list", "HSCAN list 0"] {
        assert!(client.text(line).starts_with("WRONGTYPE"), "{line}");
    }
    assert_eq!(client.text("LLEN list"), "1");
    let scanned = client.call("SCAN 0 TYPE list COUNT 100");
    assert_eq!(scanned.items()[1].items().iter().map(Value::text).collect::<Vec<_>>(), ["list"]);
    assert_eq!(client.text("SET list x"), "OK", "SET replaces a list");
}

#[test]
fn a_rank_that_has_no_opposite_is_refused() {
    let server = start(&[]);
    let mut client = server.client();
    client.call("RPUSH l a b a");
    let refused = "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";
    assert_eq!(client.text("LPOS l a RANK -9223372036854775808"), refused);
    assert_eq!(client.text("LPOS l a RANK -9223372036854775807"), "(nil)");
    assert_eq!(client.text("LREM l -9223372036854775808 a"), "2");
}

#[test]
fn a_transaction_watches_lists_and_a_copy_of_one_counts() {
    let server = start(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    client.call("RPUSH l a b");
    for (change, touches) in [
        ("LPUSHX none a", false),
        ("LPOP l 0", false),
        ("LREM l 0 none", false),
        ("LTRIM l 0 -1", false),
        ("LSET l 0 a", true),
        ("LMOVE l l LEFT RIGHT", true),
        ("LINSERT l BEFORE b x", true),
        ("RPUSH other a", false),
        ("COPY other l REPLACE", true),
        ("RENAME other l", true),
        ("LPOP l", true),
    ] {
        for line in ["WATCH l", "MULTI", "PING"] {
            client.call(line);
        }
        other.call(change);
        assert_eq!(client.call("EXEC") == Value::Null, touches, "{change}");
    }
}

#[test]
fn the_nodes_of_a_long_list_go_in_steps_whichever_command_lets_them_go() {
    for line in ["DEL l", "UNLINK l", "LTRIM l 1 0", "LTRIM l 200 300", "LPOP l 19600", "SET l x", "RENAME other l"] {
        let server = start(&[("list-max-listpack-size", "1")]);
        let mut client = server.client();
        client.call("RPUSH other a");
        let before: u64 = client.info("used_memory_dataset").parse().unwrap();
        fill(&mut client, "l", 20_000, 100);
        client.call("DEBUG PAUSE-CRON 1");
        assert!(!matches!(client.call(line), Value::Error(_)), "{line}");
        assert_eq!(client.info("lazyfree_pending_objects"), "1", "{line}");
        client.call("DEBUG PAUSE-CRON 0");
        eventually("all is freed", || client.info("lazyfree_pending_objects") == "0");
        let after: u64 = client.info("used_memory_dataset").parse().unwrap();
        assert!(after < before + 400_000, "{line}: {before} and {after} bytes");
        let left = client.call("LLEN l");
        let expected = match line {
            "LTRIM l 200 300" => Value::Int(101),
            "LPOP l 19600" => Value::Int(400),
            "RENAME other l" => Value::Int(1),
            "SET l x" => return assert!(matches!(left, Value::Error(_))),
            _ => Value::Int(0),
        };
        assert_eq!(left, expected, "{line}");
    }
}

#[test]
fn a_long_list_is_copied_in_steps_and_what_writes_it_waits() {
    for line in
        ["RPUSH l more", "LSET l 7 more", "LTRIM l 0 10", "LMOVE l l LEFT RIGHT", "LMPOP 2 none l LEFT", "DEL l"]
    {
        let server = start(&[("list-max-listpack-size", "2")]);
        let (mut client, mut copier, mut writer) = (server.client(), server.client(), server.client());
        fill(&mut client, "l", 20_000, 20);
        let expected = client.call("DEBUG DIGEST-VALUE l");
        client.call("DEBUG PAUSE-CRON 1");
        copier.send(request("COPY l copy"));
        eventually("the copy begins", || client.text("CLIENT LIST").contains("cmd=copy"));
        writer.call("CLIENT SETNAME writer");
        writer.send(request(line));
        let is_held = |entry: &str| entry.contains(" name=writer ") && !entry.contains(" qbuf=0 ");
        eventually("it is held", || client.text("CLIENT LIST").lines().any(is_held));
        assert_eq!(client.text("LLEN l"), "20000", "reads go on");
        client.call("DEBUG PAUSE-CRON 0");
        assert_eq!(copier.reply(), Value::Int(1), "{line}");
        writer.reply();
        assert_eq!(client.call("DEBUG DIGEST-VALUE copy"), expected, "{line}");
        assert_ne!(client.call("DEBUG DIGEST-VALUE l"), expected, "{line}");
    }
}

#[test]
fn elements_that_do_not_fit_are_refused_and_the_log_has_those_before_them() {
    const ARENA_BYTES: u64 = 32 << 20;
    let settings = &[("appendonly", "yes"), ("appendfsync", "no"), ("log-segment-bytes", "1mb")];
    let value = vec![b'x'; 1 << 20];
    for command in [b"RPUSH".as_slice(), b"LPUSH", b"RPUSHX"] {
        let memory = MemoryDirectory::new();
        let server = start_small(&memory, settings, ARENA_BYTES).unwrap();
        let mut client = server.client();
        client.call("RPUSH l first");
        let mut words: Vec<&[u8]> = vec![command, b"l"];
        words.extend((0..60).map(|_| value.as_slice()));
        let reply = client.words(&words);
        assert!(matches!(&reply, Value::Error(text) if text.starts_with("OOM")), "{reply:?}");
        let len = client.call("LLEN l").int();
        assert!((10..60).contains(&len), "{len}");
        // Neither does an element that is exchanged or put between others.
        let before = client.text("DEBUG DIGEST");
        let large = vec![b'y'; 8 << 20];
        let refused: [Vec<&[u8]>; 2] = [vec![b"LSET", b"l", b"0"], vec![b"LINSERT", b"l", b"AFTER", b"first"]];
        for mut words in refused {
            words.push(&large);
            let reply = client.words(&words);
            assert!(matches!(&reply, Value::Error(text) if text.starts_with("OOM")), "{reply:?}");
        }
        assert_eq!(client.text("DEBUG DIGEST"), before);
        drop(client);
        drop(server);
        for bytes in [ARENA_BYTES, 4 * ARENA_BYTES] {
            let server = start_small(&memory, settings, bytes).unwrap();
            let mut client = server.client();
            assert_eq!((client.call("LLEN l").int(), client.text("DEBUG DIGEST")), (len, before.clone()));
        }
    }
}

#[test]
fn a_write_that_is_refused_after_its_list_was_converted_for_it_is_not_in_the_log() {
    const ARENA_BYTES: u64 = 32 << 20;
    let settings = &[("appendonly", "yes"), ("appendfsync", "no"), ("log-segment-bytes", "1mb")];
    let memory = MemoryDirectory::new();
    let server = start_small(&memory, settings, ARENA_BYTES).unwrap();
    let mut client = server.client();
    // There is room for one of these, not for two.
    let bytes = vec![b'x'; 16 << 20];
    let large = bytes.as_slice();
    assert_eq!(client.words(&[b"RPUSH", b"source", large]), Value::Int(1));
    for key in ["a", "b", "c", "d", "e"] {
        client.call(&format!("RPUSH {key} first"));
    }
    let digest = client.text("DEBUG DIGEST");
    let refused: [Vec<&[u8]>; 5] = [
        vec![b"RPUSH", b"a", large],
        vec![b"LPUSHX", b"b", large],
        vec![b"LSET", b"c", b"0", large],
        vec![b"LINSERT", b"d", b"AFTER", b"first", large],
        vec![b"LMOVE", b"source", b"e", b"LEFT", b"RIGHT"],
    ];
    for words in &refused {
        let reply = client.words(words);
        assert!(matches!(&reply, Value::Error(text) if text.starts_with("OOM")), "{reply:?}");
    }
    assert_eq!(client.text("DEBUG DIGEST"), digest);
    drop(client);
    drop(server);
    // In the log they would fail again, so that the server would not start, or be done where there is more memory.
    for bytes in [ARENA_BYTES, 4 * ARENA_BYTES] {
        let server = start_small(&memory, settings, bytes).unwrap();
        assert_eq!(server.client().text("DEBUG DIGEST"), digest);
    }
}

#[test]
fn lists_come_back_from_the_log_from_an_image_and_from_its_deltas() {
    let dir = tempfile::tempdir().unwrap();
    let settings = &[
        ("appendonly", "yes"),
        ("appendfsync", "no"),
        ("checkpoint-incremental", "yes"),
        ("list-max-listpack-size", "4"),
    ];
    let mut expected = String::new();
    for round in 0..4 {
        let server = start_in(dir.path(), settings);
        let mut client = server.client();
        if round > 0 {
            assert_eq!(client.text("DEBUG DIGEST"), expected, "{round}");
        }
        fill(&mut client, "long", 3000, 30);
        for line in [
            "RPUSH short a b 3",
            "LINSERT long BEFORE 000000000000000000000000001500 between",
            "LSET long 77 other",
            "LTRIM long 100 -300",
            "LMOVE long short LEFT RIGHT",
            "LPOP long 20",
            "LREM long -2 000000000000000000000000001600",
            "PEXPIRE short 100000000",
            "COPY long copy REPLACE",
            "RENAME copy copied",
        ] {
            assert!(!matches!(client.call(line), Value::Error(_)), "{line}");
        }
        if round < 3 {
            assert_eq!(client.text("SAVE"), "OK");
        }
        // The rest only the log has.
        client.call("LPUSH long after the save");
        client.call("LTRIM copied 5 50");
        expected = client.text("DEBUG DIGEST");
    }
    let server = start_with(config_in(dir.path(), settings));
    let mut client = server.client();
    assert_eq!(client.text("DEBUG DIGEST"), expected);
    assert!(client.call("PTTL short").int() > 0);
    assert_eq!(client.text("LINDEX long 0"), "save");
}
