//! What the server tells of itself: COMMAND, INFO, LATENCY, SLOWLOG, DEBUG, TIME.

use quire_server::specs;

use crate::common::{self, Client, Value, eventually, start};

/// Every command that the project promises.
const PROMISED: &str = "ping echo hello auth select quit reset client command config info time dbsize flushdb flushall swapdb keys \
    scan exists del unlink type expire pexpire expireat pexpireat expiretime pexpiretime ttl pttl persist rename renamenx \
    randomkey touch copy move object memory set get getex getdel getset setnx setex psetex mset mget msetnx append strlen incr \
    decr incrby decrby incrbyfloat getrange substr setrange setbit getbit bitcount bitpos bitop lcs hset hmset hsetnx hget \
    hmget hgetall hdel hlen hexists hkeys hvals hincrby hincrbyfloat hstrlen hscan hrandfield hexpire hpexpire hexpireat \
    hpexpireat httl hpttl hexpiretime hpexpiretime hpersist multi exec discard watch unwatch \
    save bgsave lastsave shutdown debug latency slowlog";

#[test]
fn every_promised_command_is_there() {
    let server = start(&[]);
    let mut client = server.client();
    let list = client.call("COMMAND LIST");
    let names: Vec<String> = list.items().iter().map(Value::text).collect();
    for name in PROMISED.split_whitespace() {
        assert!(names.iter().any(|known| known == name), "{name}");
    }
    assert!(names.iter().any(|known| known == "client|list"), "subcommands are told, too");
    let commands = names.iter().filter(|name| !name.contains('|')).count();
    assert_eq!(client.call("COMMAND COUNT"), Value::Int(commands as i64));
    assert_eq!(client.call("COMMAND").items().len(), commands);
    let docs = client.call("COMMAND DOCS");
    assert_eq!(docs.items().len(), 2 * commands);
}

#[test]
fn every_command_is_described_in_full() {
    for spec in specs::ALL.iter().copied().flatten() {
        assert!(!spec.summary.is_empty() && spec.summary.ends_with('.'), "{}: {}", spec.name, spec.summary);
        assert!(spec.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{}", spec.name);
        for sub in spec.subcommands {
            assert!(!sub.summary.is_empty(), "{} {}", spec.name, sub.name);
        }
    }
}

#[test]
fn commands_on_clusters_say_that_there_is_none() {
    let server = start(&[]);
    let mut client = server.client();
    for line in ["CLUSTER INFO", "CLUSTER SLOTS", "CLUSTER HELP", "ASKING", "READONLY", "READWRITE"] {
        assert_eq!(client.text(line), "ERR This instance has cluster support disabled", "{line}");
    }
    assert_eq!(client.text("CLUSTER NOSUCH"), "ERR unknown subcommand 'NOSUCH'. Try CLUSTER HELP.");
    assert_eq!(client.text("CLUSTER KEYSLOT"), "ERR wrong number of arguments for 'cluster|keyslot' command");
}

#[test]
fn the_server_is_a_master_without_replicas_and_modules() {
    let server = start(&[]);
    let mut client = server.client();
    let role = Value::Array(vec![Value::Bulk(b"master".to_vec()), Value::Int(0), Value::Array(vec![])]);
    assert_eq!(client.call("ROLE"), role);
    assert_eq!(client.call("MODULE LIST"), Value::Array(vec![]));
    for (line, reply) in [
        ("REPLICAOF no one", "OK"),
        ("SLAVEOF NO ONE", "OK"),
        ("REPLICAOF 127.0.0.1 6379", "ERR there is no replication"),
        ("REPLICAOF 127.0.0.1 65536", "ERR Invalid master port"),
        ("REPLICAOF NO x", "ERR Invalid master port"),
        ("MODULE LOAD /no/such.so x", "ERR Error loading the extension. Please check the server logs."),
        ("MODULE LOADEX /no/such.so CONFIG a b", "ERR Error loading the extension. Please check the server logs."),
        ("MODULE UNLOAD x", "ERR Error unloading module: no such module with that name"),
        ("LOLWUT", "Redis ver. 7.2.6\n"),
        ("LOLWUT VERSION x", "ERR value is not an integer or out of range"),
    ] {
        assert_eq!(client.text(line), reply, "{line}");
    }
}

#[test]
fn commands_tell_their_keys() {
    let server = start(&[]);
    let mut client = server.client();
    let keys = |client: &mut Client, line: &str| {
        let reply = client.call(&format!("COMMAND GETKEYS {line}"));
        reply.items().iter().map(Value::text).collect::<Vec<_>>()
    };
    assert_eq!(keys(&mut client, "MSET a 1 b 2"), ["a", "b"]);
    assert_eq!(keys(&mut client, "RENAME a b"), ["a", "b"]);
    assert_eq!(keys(&mut client, "DEL a b c"), ["a", "b", "c"]);
    assert_eq!(keys(&mut client, "OBJECT ENCODING a"), ["a"]);
    assert_eq!(keys(&mut client, "MIGRATE h 1 a 0 9 COPY"), ["a"]);
    assert_eq!(keys(&mut client, "MIGRATE h 1  0 9 AUTH keys KEYS a b"), ["a", "b"]);
    let both = client.text("COMMAND GETKEYS MIGRATE h 1 a 0 9 KEYS b");
    assert_eq!(both, "ERR Invalid arguments specified for command");
    assert_eq!(client.text("COMMAND GETKEYS PING x"), "ERR The command has no key arguments");
    assert_eq!(client.text("COMMAND GETKEYS NOSUCH x"), "ERR Invalid command specified");
    assert_eq!(client.text("COMMAND GETKEYS GET a b"), "ERR Invalid number of arguments specified for command");
    let info = client.call("COMMAND INFO get nosuch config|get");
    let items = info.items();
    assert_eq!((items[0].items()[0].text(), items[0].items()[1].int()), ("get".into(), 2));
    assert_eq!((&items[1], items[2].items()[0].text()), (&Value::Null, "config|get".into()));
}

#[test]
fn info_has_its_sections_and_fields() {
    let server = start(&[]);
    let mut client = server.client();
    client.text("SET a 1");
    client.text("SET b 1 EX 100");
    let all = client.text("INFO everything");
    for field in "redis_version quire_version process_id run_id tcp_port uptime_in_seconds config_file connected_clients maxclients \
         blocked_clients used_memory used_memory_human used_memory_rss used_memory_peak used_memory_dataset maxmemory \
         mem_fragmentation_ratio total_system_memory loading rdb_changes_since_last_save rdb_bgsave_in_progress \
         rdb_last_save_time rdb_last_bgsave_status rdb_last_bgsave_error rdb_last_bgsave_time_sec \
         rdb_current_bgsave_time_sec rdb_saves aof_enabled last_cut_stall_us preimage_bytes_now preimage_bytes_peak \
         checkpoint_compression checkpoint_last_compression_savings_bytes writer_waits writer_wait_total_us writer_wait_longest_us dump_bytes_per_sec restore_mode restore_in_progress \
         restore_regions_loaded_first restore_first_read_us restore_full_us total_connections_received total_commands_processed \
         instantaneous_ops_per_sec total_net_input_bytes total_net_output_bytes rejected_connections expired_keys \
         evicted_keys keyspace_hits keyspace_misses latest_fork_usec role connected_slaves used_cpu_sys used_cpu_user \
         cmdstat_set cluster_enabled db0"
        .split_whitespace()
    {
        assert!(all.lines().any(|line| line.starts_with(&format!("{field}:"))), "{field}");
    }
    assert_eq!(
        client.info("db0"),
        "keys=2,expires=1,avg_ttl=".to_owned() + client.info("db0").rsplit('=').next().unwrap()
    );
    let some = client.text("INFO clients KEYSPACE");
    assert_eq!(some.lines().filter(|line| line.starts_with('#')).collect::<Vec<_>>(), ["# Clients", "# Keyspace"]);
    assert!(
        !client.text("INFO").contains("cmdstat_") && client.text("INFO commandstats").contains("cmdstat_set:calls=2")
    );
    assert_eq!(client.text("INFO nosuch"), "");
}

#[test]
fn slow_commands_are_logged() {
    // Far above what a busy machine makes of the other commands.
    let server = start(&[("slowlog-log-slower-than", "150000"), ("slowlog-max-len", "2")]);
    let mut client = server.client();
    client.text("CLIENT SETNAME sleeper");
    client.text("PING");
    for _ in 0..3 {
        client.text("DEBUG SLEEP 0.2");
    }
    assert_eq!(client.call("SLOWLOG LEN"), Value::Int(2));
    let log = client.call("SLOWLOG GET 1");
    let entry = log.items()[0].items();
    assert_eq!((entry[0].int(), entry[5].text()), (2, "sleeper".into()));
    assert!(entry[2].int() >= 200_000, "{entry:?}");
    assert_eq!(entry[3].items().iter().map(Value::text).collect::<Vec<_>>(), ["DEBUG", "SLEEP", "0.2"]);
    assert_eq!(client.text("SLOWLOG GET -2"), "ERR count should be greater than or equal to -1");
    assert_eq!(client.call("SLOWLOG GET -1").items().len(), 2);
    assert_eq!(client.text("SLOWLOG RESET"), "OK");
    assert_eq!(client.call("SLOWLOG LEN"), Value::Int(0));
    assert!(client.call("SLOWLOG HELP").items().len() > 4);
}

#[test]
fn latency_spikes_are_kept() {
    let server = start(&[("latency-monitor-threshold", "150")]);
    let mut client = server.client();
    client.text("DEBUG SLEEP 0.2");
    client.text("DEBUG SLEEP 0.3");
    let latest = client.call("LATENCY LATEST");
    let event = latest.items().iter().find(|event| event.items()[0].text() == "command").unwrap().items();
    assert!(event[3].int() >= 300, "{event:?}");
    assert!(!client.call("LATENCY HISTORY command").items().is_empty());
    assert_eq!(client.call("LATENCY HISTORY nosuch"), Value::Array(vec![]));
    let graph = client.text("LATENCY GRAPH command");
    assert!(graph.starts_with("command - high ") && graph.contains("\n---"), "{graph}");
    assert_eq!(client.text("LATENCY GRAPH nosuch"), "ERR No samples available for event 'nosuch'");
    assert!(client.text("LATENCY DOCTOR").contains("command: "));
    assert_eq!(client.call("LATENCY RESET command nosuch"), Value::Int(1));
    assert_eq!(client.call("LATENCY HISTORY command"), Value::Array(vec![]));
}

#[test]
fn durations_are_told_of_a_command_with_its_subcommands_or_of_one_of_these() {
    let server = start(&[]);
    let mut client = server.client();
    for line in ["CONFIG RESETSTAT", "CLIENT ID", "CLIENT LIST", "CLIENT ID"] {
        client.call(line);
    }
    let mut told = |line: &str| {
        let reply = client.call(line);
        reply.items().iter().step_by(2).map(Value::text).collect::<Vec<_>>()
    };
    assert_eq!(told("LATENCY HISTOGRAM client"), ["client|id", "client|list"]);
    assert_eq!(told("LATENCY HISTOGRAM Client|ID nosuch client|kill"), ["client|id"]);
    assert_eq!(told("LATENCY HISTOGRAM config|nosuch"), Vec::<String>::new());
}

#[test]
fn percentiles_of_durations_are_told_for_each_command_while_they_are_kept() {
    let server = start(&[("enable-debug-command", "yes")]);
    let mut client = server.client();
    client.text("CONFIG RESETSTAT");
    (0..9).for_each(|_| drop(client.text("DEBUG SLEEP 0")));
    client.text("DEBUG SLEEP 0.01");
    let parts = |told: String| -> Vec<(String, f64)> {
        let pair = |part: &str| part.split_once('=').map(|(name, us)| (name.to_owned(), us.parse().unwrap()));
        told.split(',').filter_map(pair).collect()
    };
    let told = parts(client.info("latency_percentiles_usec_debug"));
    assert_eq!(told.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["p50", "p99", "p99.9"]);
    assert!(told[0].1 <= told[1].1 && told[1].1 >= 10_000.0 && told[1] == ("p99".to_owned(), told[2].1), "{told:?}");
    assert_eq!(client.info("latency_percentiles_usec_get"), "", "GET has not run");

    assert_eq!(client.words(&[b"CONFIG", b"SET", b"latency-tracking-info-percentiles", b"100 0"]).text(), "OK");
    let told = parts(client.info("latency_percentiles_usec_debug"));
    assert!(told[0].0 == "p100" && told[1].0 == "p0" && told[0].1 >= told[1].1, "{told:?}");
    assert!(client.text("CONFIG SET latency-tracking-info-percentiles 101").contains("between [0.0,100.0]"));
    assert_eq!(client.call("CONFIG GET latency-tracking-info-percentiles").items()[1].text(), "100 0");

    client.text("CONFIG SET latency-tracking no");
    assert_eq!(client.info("latency_percentiles_usec_debug"), "");
    client.text("GET key");
    assert_eq!(client.call("LATENCY HISTOGRAM get").items(), []);
    client.text("DEBUG SLEEP 0");
    assert_eq!(
        client.call("LATENCY HISTOGRAM debug").items()[1].items()[1],
        Value::Int(10),
        "the eleventh run was not counted"
    );
    client.text("CONFIG SET latency-tracking yes");
    assert_eq!(client.info("latency_percentiles_usec_get"), "", "it was not counted meanwhile");
    assert!(!client.info("latency_percentiles_usec_debug").is_empty(), "what was counted before is kept");
    assert!(client.info("cmdstat_get").starts_with("calls=1,"));
    client.text("CONFIG RESETSTAT");
    assert_eq!(client.info("latency_percentiles_usec_debug"), "");
    let usual = client.text("INFO");
    assert!(!usual.contains("# Latencystats") && client.text("INFO latencystats").starts_with("# Latencystats\r\n"));
}

#[test]
fn turns_of_the_loop_are_counted_with_their_time_and_that_of_commands() {
    let server = start(&[("enable-debug-command", "yes")]);
    let mut client = server.client();
    client.text("CONFIG RESETSTAT");
    let number = |client: &mut Client, field: &str| client.info(field).parse::<u64>().unwrap();
    let before = number(&mut client, "eventloop_cycles");
    client.text("DEBUG SLEEP 0.02");
    // A script's time is not counted again for its commands, and a turn does not begin anew when a client's wait for a key ends.
    client.words(&[b"EVAL", b"for _ = 1, 50000 do redis.call('EXISTS', 'key') end", b"0"]);
    let mut waiting = server.client();
    waiting.send("BLPOP list 0\r\n");
    eventually("it waits", || client.info("blocked_clients") == "1");
    client.send("DEBUG SLEEP 0.02\r\nRPUSH list element\r\n");
    assert_eq!(waiting.reply().items()[1].text(), "element");
    assert_eq!((client.reply().text(), client.reply()), ("OK".to_owned(), Value::Int(1)));
    assert!(number(&mut client, "eventloop_cycles") > before);
    let of_commands_us = number(&mut client, "eventloop_duration_cmd_sum");
    assert!(of_commands_us >= 40_000 && of_commands_us <= number(&mut client, "eventloop_duration_sum"));
}

#[test]
fn debug_makes_keys_and_tells_of_them() {
    let server = start(&[]);
    let mut client = server.client();
    let empty = "0".repeat(40);
    assert_eq!(client.text("DEBUG DIGEST"), empty);
    assert_eq!(client.text("DEBUG POPULATE 1000 p 20"), "OK");
    assert_eq!((client.call("DBSIZE"), client.call("STRLEN p:999")), (Value::Int(1000), Value::Int(20)));
    let digest = client.text("DEBUG DIGEST");
    assert!(digest != empty && digest.len() == 40);
    client.text("SET p:1 other");
    assert_ne!(client.text("DEBUG DIGEST"), digest);
    client.text("SET a x");
    client.text("SET b x");
    let values = client.call("DEBUG DIGEST-VALUE a b none");
    assert_eq!(values.items()[0], values.items()[1]);
    assert_eq!(values.items()[2].text(), empty);
    assert!(client.text("DEBUG OBJECT a").contains("encoding:embstr"));
    assert_eq!(client.text("DEBUG OBJECT none"), "ERR no such key");
    assert!(client.text("DEBUG NOSUCH").starts_with("ERR unknown subcommand"));
}

#[test]
fn a_reload_keeps_the_data() {
    for mode in ["map", "load"] {
        let server = start(&[("restore-mode", mode)]);
        let (mut client, mut watcher) = (server.client(), server.client());
        client.text("DEBUG POPULATE 5000");
        client.text("HSET h f v");
        client.text("SET t 1 EX 1000");
        watcher.text("WATCH h");
        let digest = client.text("DEBUG DIGEST");
        assert_eq!(client.text("DEBUG RELOAD"), "OK");
        assert_eq!(client.text("DEBUG DIGEST"), digest);
        assert_eq!(client.info("restore_mode"), mode);
        common::eventually("all is restored", || client.info("restore_in_progress") == "0");
        assert_eq!((client.text("DEBUG DIGEST"), client.info("rdb_last_load_keys_loaded")), (digest, "5002".into()));
        client.text("SET after 1");
        assert_eq!(client.text("DEBUG RELOAD"), "OK");
        assert_eq!(client.text("GET after"), "1");
        watcher.text("MULTI");
        assert_eq!(watcher.call("EXEC"), Value::Null, "what was watched is gone");
    }
}

#[test]
fn expired_keys_stay_where_no_command_touches_them_while_debug_says_so() {
    let server = start(&[("hz", "100")]);
    let mut client = server.client();
    assert_eq!(client.text("DEBUG SET-ACTIVE-EXPIRE 0"), "OK");
    client.text("SET k v PX 1");
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(client.call("DBSIZE"), Value::Int(1));
    assert_eq!(client.call("GET k"), Value::Null);
    client.text("SET k v PX 1");
    assert_eq!(client.text("DEBUG SET-ACTIVE-EXPIRE 1"), "OK");
    common::eventually("the key is deleted", || client.call("DBSIZE") == Value::Int(0));
}

#[test]
fn an_expired_key_that_was_not_deleted_is_shown_by_debug_and_time_stands_still_in_scripts() {
    let server = start(&[]);
    let mut client = server.client();
    client.call("DEBUG SET-ACTIVE-EXPIRE 0");
    client.call("SET a 1 PX 1");
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert!(client.text("DEBUG OBJECT a").contains(" encoding:int "));
    assert_eq!(client.call("EXISTS a"), Value::Int(0));
    assert_eq!(client.text("DEBUG OBJECT a"), "ERR no such key");
    client.call("DEBUG SET-DISABLE-DENY-SCRIPTS 1");
    let script = b"local a = redis.call('time') redis.call('debug', 'sleep', '0.01') local b = redis.call('time') \
        return tostring(a[1] == b[1] and a[2] == b[2])";
    assert_eq!(client.words(&[b"EVAL", script, b"0"]).text(), "true");
}

#[test]
fn debug_replies_with_each_type() {
    let server = start(&[]);
    let mut client = server.client();
    assert_eq!(client.text("DEBUG PROTOCOL attrib"), "Some real reply following the attribute");
    assert_eq!(client.text("DEBUG PROTOCOL push"), "ERR RESP2 is not supported by this command");
    assert_eq!(client.text("DEBUG PROTOCOL true"), "1");
    assert_eq!(client.call("DEBUG PROTOCOL map").items().len(), 6);
    assert!(client.text("DEBUG PROTOCOL nosuch").starts_with("ERR Wrong protocol type name."));
    assert_eq!(client.call("DEBUG ERROR LOADING"), Value::Error("LOADING".into()));
    client.call("HELLO 3");
    assert_eq!(client.call("DEBUG PROTOCOL double"), Value::Double("3.141".into()));
    assert_eq!(client.call("DEBUG PROTOCOL null"), Value::Null);
    assert_eq!(client.call("DEBUG PROTOCOL set").items().len(), 3);
    client.send("DEBUG PROTOCOL attrib\r\n");
    let mut reply = [0; 128];
    let len = client.read_raw(&mut reply);
    assert!(reply[..len].starts_with(b"|1\r\n$14\r\nkey-popularity\r\n*2\r\n$7\r\nkey:123\r\n:90\r\n$39\r\n"));
}

#[test]
fn debug_is_off_unless_allowed() {
    let server = start(&[("enable-debug-command", "no")]);
    assert!(server.client().text("DEBUG SLEEP 0").starts_with("ERR DEBUG command not allowed."));
}

#[test]
fn debug_that_is_not_allowed_is_refused_before_a_transaction_queues_it() {
    let server = start(&[("enable-debug-command", "no"), ("requirepass", "secret")]);
    let mut client = server.client();
    // It is refused before a client has logged in, too, and only a request that is too short is refused for that.
    assert!(client.text("DEBUG SLEEP 0").starts_with("ERR DEBUG command not allowed."));
    assert!(client.text("DEBUG").starts_with("ERR wrong number of arguments"));
    assert_eq!(client.text("AUTH secret"), "OK");
    assert_eq!(client.text("MULTI"), "OK");
    assert_eq!(client.text("SET a 1"), "QUEUED");
    assert!(client.text("DEBUG SLEEP 0").starts_with("ERR DEBUG command not allowed."));
    assert_eq!(client.text("EXEC"), "EXECABORT Transaction discarded because of previous errors.");
    assert_eq!(client.call("GET a"), Value::Null);
    assert!(client.info("cmdstat_debug").contains("rejected_calls=3,"));
}

#[test]
fn time_has_seconds_and_microseconds() {
    let server = start(&[]);
    let time = server.client().call("TIME");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(now - time.items()[0].text().parse::<u64>().unwrap() < 60);
    assert!(time.items()[1].text().parse::<u32>().unwrap() < 1_000_000);
}
