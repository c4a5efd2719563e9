//! Eviction: what a server with `maxmemory` and a policy does when its data outgrows the limit.

use crate::common::{Client, Running, Value, eventually, framed, start, start_in};

const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

fn number(client: &mut Client, field: &str) -> u64 {
    client.info(field).parse().unwrap()
}

/// Lets the data grow by so many bytes from now on.
fn limit(client: &mut Client, more_bytes: u64) -> u64 {
    let limit_bytes = number(client, "used_memory") + more_bytes;
    assert_eq!(client.text(&format!("CONFIG SET maxmemory {limit_bytes}")), "OK");
    limit_bytes
}

/// Sets so many keys of a kilobyte; every reply.
fn fill(client: &mut Client, prefix: &str, keys: usize) -> Vec<String> {
    let value = [b'x'; 1000];
    let mut replies = Vec::new();
    // Few at once, since requests that wait count, too.
    for first in (0..keys).step_by(50) {
        let names = first..(first + 50).min(keys);
        let requests = names.clone().map(|key| framed(&[b"SET", format!("{prefix}:{key}").as_bytes(), &value]));
        client.send(requests.collect::<Vec<_>>().concat());
        replies.extend(names.map(|_| client.reply().text()));
    }
    replies
}

fn all_ok(replies: &[String]) -> bool {
    replies.iter().all(|reply| reply == "OK")
}

#[test]
fn keys_go_so_that_the_data_stays_within_the_limit_and_are_told() {
    let server = start(&[("maxmemory-policy", "allkeys-lru"), ("notify-keyspace-events", "Ee")]);
    let (mut client, mut listener) = (server.client(), server.client());
    listener.call("PSUBSCRIBE __keyevent*");
    let limit_bytes = limit(&mut client, 1 << 20);
    assert!(all_ok(&fill(&mut client, "key", 5000)));
    eventually("the data is within the limit", || number(&mut client, "used_memory") <= limit_bytes);
    let (evicted, left) = (number(&mut client, "evicted_keys"), client.call("DBSIZE").int() as u64);
    assert_eq!(evicted + left, 5000);
    assert!((500..2000).contains(&left), "{left}");
    let message = listener.reply();
    assert_eq!(message.items()[2].text(), "__keyevent@0__:evicted");
    assert!(message.items()[3].text().starts_with("key:"));
    // The last one was used last.
    assert_eq!(client.call("EXISTS key:4999"), Value::Int(1));
    client.call("CONFIG RESETSTAT");
    assert_eq!(number(&mut client, "evicted_keys"), 0);
}

#[test]
fn a_lower_limit_is_reached_with_no_command_that_needs_memory() {
    let server = start(&[("maxmemory-policy", "allkeys-random"), ("maxmemory-eviction-tenacity", "1")]);
    let mut client = server.client();
    let empty_bytes = number(&mut client, "used_memory");
    assert!(all_ok(&fill(&mut client, "key", 5000)));
    let limit_bytes = empty_bytes + (1 << 20);
    client.call(&format!("CONFIG SET maxmemory {limit_bytes}"));
    eventually("the data is within the limit", || number(&mut client, "used_memory") <= limit_bytes);
    assert!(number(&mut client, "evicted_keys") > 3000);
    eventually("the time beyond it has ended", || number(&mut client, "current_eviction_exceeded_time") == 0);
}

#[test]
fn without_a_key_that_may_go_writes_are_refused_and_reads_are_not() {
    for (policy, may_go) in [("noeviction", false), ("volatile-lru", false), ("volatile-ttl", true)] {
        let server = start(&[("maxmemory-policy", policy)]);
        let mut client = server.client();
        assert!(all_ok(&fill(&mut client, "stays", 200)));
        client.call("SET goes x EX 1000");
        limit(&mut client, 0);
        client.call("SET stays:0 larger-than-before-by-far");
        let value = "x".repeat(50_000);
        client.text(&format!("SET stays:1 {value}"));
        let reply = client.text("SET more 1");
        assert_eq!(reply, OOM, "{policy}");
        assert_eq!(client.text("GET stays:7").len(), 1000);
        assert_eq!(client.call("EXISTS goes").int() == 0, may_go || policy == "volatile-lru", "{policy}");
        let stays = (0..200).filter(|key| client.call(&format!("EXISTS stays:{key}")).int() == 1).count();
        assert_eq!(stays, 200, "{policy}");
        assert_eq!(client.call("DEL stays:1"), Value::Int(1), "what frees memory is allowed");
        eventually("there is room", || client.text("SET more 1") == "OK");
    }
}

#[test]
fn a_large_value_that_goes_holds_up_no_write() {
    let server = start(&[("maxmemory-policy", "volatile-ttl")]);
    let mut client = server.client();
    for first in (0..100_000).step_by(1000) {
        let members: Vec<String> = (first..first + 1000).map(|member| format!("member:{member}")).collect();
        client.call(&format!("SADD large {}", members.join(" ")));
    }
    client.call("EXPIRE large 10000");
    let limit_bytes = limit(&mut client, 10_000);
    assert!(all_ok(&fill(&mut client, "key", 2000)));
    assert_eq!((client.call("EXISTS large"), client.info("evicted_keys")), (Value::Int(0), "1".to_owned()));
    eventually("it is freed", || number(&mut client, "lazyfree_pending_objects") == 0);
    assert!(number(&mut client, "used_memory") <= limit_bytes);
}

#[test]
fn a_watched_key_that_is_evicted_has_changed() {
    let server = start(&[("maxmemory-policy", "volatile-random")]);
    let mut client = server.client();
    client.call("SET watched x EX 1000");
    client.call("WATCH watched");
    let mut other = server.client();
    limit(&mut other, 10_000);
    fill(&mut other, "key", 100);
    assert_eq!(other.call("EXISTS watched"), Value::Int(0));
    client.call("MULTI");
    client.call("PING");
    assert_eq!(client.call("EXEC"), Value::Null);
}

#[test]
fn objects_tell_how_often_or_how_long_ago_they_were_used_as_the_policy_goes_by_it() {
    let server = start(&[]);
    let mut client = server.client();
    client.call("SET key 1");
    let adjust = "not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some \
        time to adjust.";
    let no_lfu = format!("ERR An LFU maxmemory policy is not selected, access frequency {adjust}");
    let no_lru = format!("ERR An LFU maxmemory policy is selected, idle time {adjust}");
    assert_eq!((client.text("OBJECT FREQ key"), client.call("OBJECT IDLETIME key")), (no_lfu, Value::Int(0)));
    assert_eq!(client.text("CONFIG SET maxmemory-policy volatile-lfu lfu-log-factor 0"), "OK");
    client.call("GET key");
    client.call("OBJECT FREQ key");
    assert_eq!((client.call("OBJECT FREQ key"), client.text("OBJECT IDLETIME key")), (Value::Int(6), no_lru));
    for subcommand in ["FREQ", "IDLETIME"] {
        assert_eq!(client.call(&format!("OBJECT {subcommand} none")), Value::Null);
    }
    assert_eq!(client.info("maxmemory_policy"), "volatile-lfu");
    let refused = client.text("CONFIG SET maxmemory-policy some");
    assert!(refused.ends_with("allkeys-lru, allkeys-lfu, allkeys-random, noeviction"), "{refused}");
}

#[test]
fn what_was_evicted_is_not_brought_back_by_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let logging = |settings: &[(&str, &str)]| -> Running {
        start_in(dir.path(), &[&[("appendonly", "yes"), ("appendfsync", "no")], settings].concat())
    };
    let server = logging(&[("maxmemory-policy", "allkeys-lfu")]);
    let mut client = server.client();
    limit(&mut client, 300_000);
    assert!(all_ok(&fill(&mut client, "key", 2000)));
    eventually("it is within the limit", || client.info("current_eviction_exceeded_time") == "0");
    let (digest, evicted) = (client.text("DEBUG DIGEST"), number(&mut client, "evicted_keys"));
    assert!(evicted > 1000);
    drop(server);
    let server = logging(&[]);
    let mut client = server.client();
    assert_eq!(client.text("DEBUG DIGEST"), digest);
    assert_eq!(client.call("DBSIZE").int() as u64, 2000 - evicted);
}

#[test]
fn how_often_keys_are_used_is_counted_after_a_reload_too() {
    let settings = [("maxmemory-policy", "allkeys-lfu"), ("lfu-log-factor", "0"), ("lfu-decay-time", "0")];
    let server = start(&settings);
    let mut client = server.client();
    for key in ["a", "b"] {
        client.call(&format!("SET {key} v"));
        for _ in 0..3 {
            client.call(&format!("GET {key}"));
        }
        assert_eq!(client.text(&format!("OBJECT FREQ {key}")), "8", "{key}");
        assert_eq!(client.text("DEBUG RELOAD"), "OK");
        // Until then reads leave no mark.
        eventually("all is brought back", || client.info("restore_in_progress") == "0");
    }
}
