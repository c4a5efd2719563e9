//! CONFIG while the server runs, and what settings change.

use std::sync::Arc;

use quire_device::{Directory, DiskDirectory};
use quire_server::config::Config;

use crate::common::{Client, Value, eventually, start, start_logging, start_with};

fn get(client: &mut Client, name: &str) -> String {
    let pair = client.call(&format!("CONFIG GET {name}"));
    assert_eq!(pair.items().len(), 2, "{pair:?}");
    pair.items()[1].text()
}

#[test]
fn settings_are_found_by_pattern() {
    let server = start(&[]);
    let mut client = server.client();
    let reply = client.call("CONFIG GET max* timeout MAXCLIENTS");
    let names: Vec<String> = reply.items().iter().step_by(2).map(Value::text).collect();
    assert_eq!(
        names,
        [
            "timeout",
            "maxclients",
            "maxmemory-clients",
            "maxmemory",
            "maxmemory-policy",
            "maxmemory-samples",
            "maxmemory-eviction-tenacity"
        ]
    );
    assert_eq!(client.call("CONFIG GET nosuch"), Value::Array(vec![]));
    assert_eq!(get(&mut client, "hash-max-ziplist-entries"), "128");
    for name in
        "save dir dbfilename maxclients timeout tcp-keepalive requirepass protected-mode loglevel logfile bind port \
                 unixsocket stop-writes-on-bgsave-error checkpoint-max-extra-memory"
            .split_whitespace()
    {
        get(&mut client, name);
    }
}

#[test]
fn settings_change_together_or_not_at_all() {
    let server = start(&[]);
    let mut client = server.client();
    assert_eq!(client.text("CONFIG SET timeout 7 tcp-keepalive 9"), "OK");
    assert_eq!((get(&mut client, "timeout"), get(&mut client, "tcp-keepalive")), ("7".into(), "9".into()));
    let failed =
        |name: &str, reason: &str| format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}");
    for (line, error) in [
        ("CONFIG SET timeout 8 maxclients zero", failed("maxclients", "argument couldn't be parsed into an integer")),
        ("CONFIG SET timeout 8 maxclients 0", failed("maxclients", "argument must be between 1 and 1000000 inclusive")),
        ("CONFIG SET timeout 8 protected-mode maybe", failed("protected-mode", "argument must be 'yes' or 'no'")),
        ("CONFIG SET timeout 8 timeout 9", failed("timeout", "duplicate parameter")),
        ("CONFIG SET timeout 8 port 7", failed("port", "can't set immutable config")),
        ("CONFIG SET timeout 8 dir /tmp", failed("dir", "can't set protected config")),
        ("CONFIG SET timeout 8 save abc", failed("save", "Invalid save parameters")),
        ("CONFIG SET timeout 8 maxmemory 1q", failed("maxmemory", "argument must be a memory value")),
        (
            "CONFIG SET timeout 8 maxmemory 100000gb",
            failed("maxmemory", "argument must be at most 1024gb, where an arena ends"),
        ),
        ("CONFIG SET timeout 8 nosuch 1", "ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'".into()),
        ("CONFIG SET timeout", "ERR wrong number of arguments for 'config|set' command".into()),
        ("CONFIG SET timeout 8 tcp-keepalive", "ERR syntax error".into()),
    ] {
        assert_eq!(client.text(line), error, "{line}");
    }
    assert_eq!(get(&mut client, "timeout"), "7");
}

#[test]
fn a_log_that_cannot_be_begun_takes_all_other_settings_back() {
    let dir = tempfile::tempdir().unwrap();
    let gone = tempfile::tempdir().unwrap();
    let directory: Arc<dyn Directory> = Arc::new(DiskDirectory::new(gone.path()));
    let server = start_logging(dir.path(), &[], directory);
    drop(gone);
    let mut client = server.client();
    let all = |client: &mut Client| client.call("CONFIG GET *");
    let before = all(&mut client);
    let others = "timeout 8 maxmemory 1 hash-max-listpack-entries 2 requirepass secret save 5:1".replace(':', " ");
    let words: Vec<&str> = others.split(' ').collect();
    // The settings before it and behind it; a rule of `save` is one word.
    let mut request: Vec<&[u8]> = vec![b"CONFIG", b"SET", b"appendfsync", b"always", b"appendonly", b"yes"];
    request.extend(words[..words.len() - 2].iter().map(|word| word.as_bytes()));
    request.push(b"5 1");
    let answer = client.words(&request).text();
    assert!(answer.starts_with("ERR CONFIG SET failed (possibly related to argument 'appendonly') - "), "{answer}");
    assert_eq!(all(&mut client), before);
    // Nothing of it is in force either.
    client.text("HSET h a 1 b 2 c 3");
    assert_eq!(client.text("OBJECT ENCODING h"), "listpack");
    assert_eq!(server.client().text("SET k v"), "OK");
    assert_eq!((client.info("aof_enabled"), client.info("maxmemory")), ("0".into(), "0".into()));
}

#[test]
fn a_password_may_be_any_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("quire.conf");
    std::fs::write(&file, "bind 127.0.0.1\nport 0\nsave \"\"\n").unwrap();
    let start_from_file = || {
        let mut config = Config::default();
        config.apply_file(&file).unwrap();
        config.set("dir", dir.path().to_str().unwrap()).unwrap();
        start_with(config)
    };
    for password in [&b"a\0b"[..], b"a\nport 1\n", b"\"'\\", b"\xff\x80"] {
        let server = start_from_file();
        let mut client = server.client();
        assert_eq!(client.words(&[b"CONFIG", b"SET", b"requirepass", password]).text(), "OK");
        assert_eq!(client.text("CONFIG REWRITE"), "OK");
        drop(server);
        let server = start_from_file();
        let mut client = server.client();
        assert!(client.text("GET a").starts_with("NOAUTH"));
        assert!(client.text("AUTH a").starts_with("WRONGPASS"));
        assert_eq!(client.words(&[b"AUTH", password]).text(), "OK", "{password:?}");
        let known = client.call("CONFIG GET requirepass");
        assert_eq!(known.items()[1], Value::Bulk(password.to_vec()));
        client.text("CONFIG SET requirepass none");
        client.words(&[b"CONFIG", b"SET", b"requirepass", b""]);
        client.text("CONFIG REWRITE");
    }
}

#[test]
fn settings_that_are_paths_are_text() {
    let server = start(&[("enable-protected-configs", "yes")]);
    let mut client = server.client();
    for name in [&b"dir"[..], b"dbfilename"] {
        for (value, reason) in [(&b"a\0b"[..], "must not contain a NUL byte"), (b"\xff", "must be UTF-8 text")] {
            let answer = client.words(&[b"CONFIG", b"SET", name, value]).text();
            assert!(answer.ends_with(reason), "{answer}");
        }
    }
}

#[test]
fn more_clients_than_the_system_allows_are_refused() {
    let server = start(&[]);
    let mut client = server.client();
    let reply = client.text("CONFIG SET maxclients 1000000");
    let limited =
        reply.contains("The operating system is not able to handle the specified number of clients, try with");
    assert!(reply == "OK" || limited, "{reply}");
    assert_eq!(get(&mut client, "maxclients") == "1000000", !limited);
}

#[test]
fn where_images_lie_needs_a_permission_to_change() {
    let elsewhere = tempfile::tempdir().unwrap();
    let server = start(&[("enable-protected-configs", "local")]);
    let mut client = server.client();
    client.text("SET a 1");
    assert_eq!(client.text(&format!("CONFIG SET dir {} dbfilename other.quire", elsewhere.path().display())), "OK");
    assert_eq!(client.text("SAVE"), "OK");
    assert!(elsewhere.path().join("other.quire").is_file());
    assert!(client.text("CONFIG SET dir /no/such/dir").ends_with("No such file or directory"));
    assert!(client.text("CONFIG SET dbfilename a/b").contains("can't be a path"));
    assert!(client.text("CONFIG SET dbfilename other.quire.delta-1").contains("of a delta over an image"));
    assert_eq!(client.call("CONFIG GET dbfilename").items()[1].text(), "other.quire");
}

#[test]
fn maxmemory_refuses_what_needs_more() {
    let server = start(&[]);
    let mut client = server.client();
    client.text("SET a 1");
    assert_eq!(client.text("CONFIG SET maxmemory 1"), "OK");
    assert_eq!(client.text("SET b 1"), "OOM command not allowed when used memory > 'maxmemory'.");
    assert_eq!((client.text("GET a"), client.call("DEL a")), ("1".into(), Value::Int(1)));
    client.text("CONFIG SET maxmemory 0");
    assert_eq!(client.text("SET b 1"), "OK");
    // The most that this arena can hold, and a byte more.
    let most: u64 = client.info("arena_max_bytes").parse().unwrap();
    assert!(most >= 64 << 30);
    assert_eq!(client.text(&format!("CONFIG SET maxmemory {most}")), "OK");
    let refused = client.text(&format!("CONFIG SET maxmemory {}", most + 1));
    assert!(refused.contains(&format!("the arena has at most {most} bytes")), "{refused}");
    assert!(client.text("CONFIG SET maxmemory 1025gb").ends_with("at most 1024gb, where an arena ends"));
    assert_eq!(get(&mut client, "maxmemory"), most.to_string());
}

#[test]
fn counters_start_again_at_resetstat() {
    let server = start(&[]);
    let mut client = server.client();
    for line in ["SET a 1", "GET a", "GET none", "NOSUCH", "GET"] {
        client.call(line);
    }
    assert_eq!((client.info("keyspace_hits"), client.info("keyspace_misses")), ("1".into(), "1".into()));
    assert_eq!((client.info("total_error_replies"), client.info("errorstat_ERR")), ("2".into(), "count=2".into()));
    assert!(client.info("cmdstat_get").starts_with("calls=2,usec="));
    assert!(client.info("cmdstat_get").ends_with("rejected_calls=1,failed_calls=0"));
    assert_eq!(client.text("CONFIG RESETSTAT"), "OK");
    for field in
        ["keyspace_hits", "keyspace_misses", "total_error_replies", "expired_keys", "total_connections_received"]
    {
        assert_eq!(client.info(field), "0", "{field}");
    }
    assert_eq!((client.info("cmdstat_get"), client.info("errorstat_ERR")), (String::new(), String::new()));
}

#[test]
fn the_file_is_rewritten() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("quire.conf");
    std::fs::write(&file, "# mine\nbind 127.0.0.1\nport 0\ntimeout 5 \nsave \"\"\n").unwrap();
    let mut config = Config::default();
    config.apply_file(&file).unwrap();
    config.set("dir", dir.path().to_str().unwrap()).unwrap();
    let server = start_with(config);
    let mut client = server.client();
    client.text("CONFIG SET timeout 6 requirepass s3cret");
    assert_eq!(client.text("CONFIG REWRITE"), "OK");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("# mine\nbind 127.0.0.1\nport 0\ntimeout 6\nsave \"\"\n"), "{text}");
    assert!(text.contains("requirepass s3cret\n"), "{text}");
    let mut again = Config::default();
    again.apply_file(&file).unwrap();
    assert_eq!((again.timeout_s, again.requirepass.as_slice(), again.save.len()), (6, &b"s3cret"[..], 0));
    assert_eq!(client.info("config_file"), file.display().to_string());
}

#[test]
fn without_a_file_nothing_is_rewritten() {
    let server = start(&[]);
    assert_eq!(server.client().text("CONFIG REWRITE"), "ERR The server is running without a config file");
}

#[test]
fn save_rules_set_while_running_lead_to_a_save() {
    let server = start(&[]);
    let mut client = server.client();
    assert_eq!(client.words(&[b"CONFIG", b"SET", b"save", b"1 2"]).text(), "OK");
    assert_eq!(get(&mut client, "save"), "1 2");
    client.text("MSET a 1 b 2");
    eventually("the rule is followed", || client.info("rdb_saves") == "1");
    assert_eq!(client.info("rdb_changes_since_last_save"), "0");
    assert!(server.dir.join("dump.quire").is_file());
}

#[test]
fn config_set_takes_directives_of_redis_that_change_nothing_here() {
    let server = start(&[]);
    let mut client = server.client();
    assert_eq!(client.text("CONFIG SET activerehashing no Repl-Backlog-Size 1mb timeout 20"), "OK");
    assert_eq!(get(&mut client, "timeout"), "20");
    assert_eq!(client.call("CONFIG GET activerehashing").items().len(), 0);
    for (line, error) in [
        (
            "CONFIG SET timeout 30 replicaof 127.0.0.1",
            "ERR CONFIG SET failed (possibly related to argument 'replicaof') - there is no replication",
        ),
        ("CONFIG SET timeout 30 nosuch 1", "ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'"),
    ] {
        assert_eq!(client.text(line), error);
    }
    assert_eq!(get(&mut client, "timeout"), "20");
}

#[test]
fn what_cannot_change_may_be_set_to_what_it_is() {
    let server = start(&[]);
    let mut client = server.client();
    for name in ["port", "databases", "log-segment-bytes"] {
        let value = get(&mut client, name);
        assert_eq!(client.text(&format!("CONFIG SET {name} {value} timeout 20")), "OK", "{name}");
    }
    let refused = "ERR CONFIG SET failed (possibly related to argument 'databases') - can't set immutable config";
    assert_eq!(client.text("CONFIG SET databases 7"), refused);
    assert_eq!(client.text("CONFIG SET databases x"), refused);
}
