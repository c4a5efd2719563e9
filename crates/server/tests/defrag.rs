//! Active defragmentation: what a server does with `activedefrag yes`, and that clients notice nothing but less memory.

use quire_server::config::Config;

use crate::common::{Client, Running, eventually, start, start_in, start_with};

const KEYS: usize = 40_000;
/// So much memory is reached with [`KEYS`] that it is worth it, and as much time as may be.
const EAGER: [(&str, &str); 4] = [
    ("active-defrag-ignore-bytes", "1mb"),
    ("active-defrag-threshold-lower", "5"),
    ("active-defrag-cycle-min", "75"),
    ("active-defrag-cycle-max", "99"),
];

fn number(client: &mut Client, field: &str) -> u64 {
    client.info(field).parse().unwrap()
}

/// Sets keys of some hundred bytes with values of all types among them, and deletes three of four.
fn fill_with_holes(client: &mut Client) {
    client.text(&format!("DEBUG POPULATE {KEYS} k 300"));
    for key in (0..KEYS).step_by(400) {
        client.call(&format!("EXPIRE k:{key} 100000"));
        client.call(&format!("RPUSH list:{key} a {key} {}", "x".repeat(200)));
        client.call(&format!("HSET hash:{key} a {key} b {}", "x".repeat(200)));
        client.call(&format!("SADD ints:{key} 1 2 {key}"));
        client.call(&format!("ZADD zset:{key} 1 a 2 {key}"));
    }
    for first in (0..KEYS).step_by(400) {
        let names: Vec<String> =
            (first..first + 400).filter(|key| key % 4 != 0).map(|key| format!("k:{key}")).collect();
        client.call(&format!("DEL {}", names.join(" ")));
    }
    eventually("what was deleted is freed", || number(client, "lazyfree_pending_objects") == 0);
}

fn switch_on(client: &mut Client) {
    assert_eq!(client.text("CONFIG SET activedefrag yes"), "OK");
}

/// Waits until something was moved, and nothing more is to be.
fn await_end(client: &mut Client) {
    eventually("something is moved", || number(client, "active_defrag_hits") > 0);
    eventually("nothing more is to be moved", || client.info("active_defrag_running") == "0");
}

fn start_eager(dir: &std::path::Path, settings: &[(&str, &str)]) -> Running {
    start_in(dir, &[&EAGER, settings].concat())
}

#[test]
fn memory_falls_while_all_values_and_times_to_live_stay() {
    let dir = tempfile::tempdir().unwrap();
    let logging = [("appendonly", "yes"), ("appendfsync", "no")];
    let server = start_eager(dir.path(), &logging);
    let mut client = server.client();
    fill_with_holes(&mut client);
    let (held_bytes, digest) = (number(&mut client, "allocator_resident"), client.text("DEBUG DIGEST"));
    let (logged, used_bytes) = (client.info("log_appended_record"), number(&mut client, "allocator_allocated"));
    assert!(held_bytes > 2 * used_bytes, "{held_bytes} for {used_bytes}");
    for field in ["active_defrag_running", "active_defrag_hits", "total_active_defrag_time"] {
        assert_eq!(client.info(field), "0", "{field}");
    }
    switch_on(&mut client);
    await_end(&mut client);
    let now_bytes = number(&mut client, "allocator_resident");
    assert!(now_bytes < held_bytes / 2, "{now_bytes} after {held_bytes}");
    assert!(number(&mut client, "total_active_defrag_time") > 0);
    assert_eq!((client.text("DEBUG DIGEST"), client.info("current_active_defrag_time")), (digest.clone(), "0".into()));
    assert_eq!(client.info("log_appended_record"), logged, "the log hears nothing of it");
    assert!(client.call("TTL k:0").int() > 90_000);
    client.call("CONFIG RESETSTAT");
    assert_eq!(client.info("active_defrag_hits"), "0");
    drop(server);
    let server = start_eager(dir.path(), &logging);
    assert_eq!(server.client().text("DEBUG DIGEST"), digest);
}

#[test]
fn clients_are_served_meanwhile_and_find_what_they_write() {
    let server = start(&EAGER);
    let mut client = server.client();
    fill_with_holes(&mut client);
    switch_on(&mut client);
    for key in (0..KEYS).step_by(8) {
        assert_eq!(client.text(&format!("SET k:{key} {key}")), "OK");
        assert_eq!(client.text(&format!("GET k:{key}")), key.to_string());
        assert_eq!(client.text(&format!("GET k:{}", key + 4)).len(), 300);
        assert_eq!(client.call(&format!("EXISTS k:{}", key + 1)).int(), 0);
    }
    await_end(&mut client);
    for key in (0..KEYS).step_by(8) {
        assert_eq!(client.text(&format!("GET k:{key}")), key.to_string());
        assert_eq!(client.text(&format!("GET k:{}", key + 4)).len(), 300);
    }
}

#[test]
fn nothing_is_moved_during_a_save() {
    let server = start(&EAGER);
    let mut client = server.client();
    fill_with_holes(&mut client);
    // So that it does not end by itself.
    client.call("CONFIG SET checkpoint-max-bytes-per-second 1");
    assert_eq!(client.text("BGSAVE"), "Background saving started");
    switch_on(&mut client);
    // Several ticks, in which it would begin.
    for _ in 0..100 {
        std::thread::sleep(std::time::Duration::from_millis(3));
        for field in ["active_defrag_running", "active_defrag_hits", "active_defrag_misses"] {
            assert_eq!(client.info(field), "0", "{field}");
        }
    }
    assert_eq!(client.info("rdb_bgsave_in_progress"), "1");
    client.call("CONFIG SET checkpoint-max-bytes-per-second 0");
    await_end(&mut client);
    assert_eq!(
        (client.info("rdb_bgsave_in_progress"), client.info("rdb_last_bgsave_status")),
        ("0".into(), "ok".into())
    );
}

/// Changes a byte of an image: of those in front of its table and footer the last one that is not 0.
fn damage_the_last_page(path: &std::path::Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let end = bytes.len() - (64 << 10);
    let at = bytes[..end].iter().rposition(|&byte| byte != 0).unwrap();
    bytes[at] ^= 0x10;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn nothing_is_moved_of_a_damaged_image_that_is_used_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let server = start_eager(dir.path(), &[]);
    let mut client = server.client();
    fill_with_holes(&mut client);
    // So much that MEMORY DOCTOR says something.
    client.text("DEBUG POPULATE 5000 more 1000");
    assert_eq!(client.text("SAVE"), "OK");
    drop(server);
    damage_the_last_page(&dir.path().join("dump.quire"));
    for mode in ["map", "load"] {
        let settings = [("activedefrag", "yes"), ("accept-damaged-image", "yes"), ("restore-mode", mode)];
        let server = start_eager(dir.path(), &settings);
        let mut client = server.client();
        eventually("all of it is read", || client.info("restore_in_progress") == "0");
        // Several ticks, in which it would begin.
        for _ in 0..100 {
            std::thread::sleep(std::time::Duration::from_millis(3));
            for field in ["active_defrag_running", "active_defrag_hits", "active_defrag_misses"] {
                assert_eq!(client.info(field), "0", "{mode}: {field}");
            }
        }
        assert!(client.text("MEMORY DOCTOR").contains("activedefrag moves none of it: the image"), "{mode}");
    }
}

#[test]
fn what_can_not_be_moved_keeps_no_processor_busy() {
    // Whatever is held is too much by these settings.
    let server = start(&[("active-defrag-ignore-bytes", "1"), ("active-defrag-threshold-lower", "0")]);
    let mut client = server.client();
    fill_with_holes(&mut client);
    switch_on(&mut client);
    await_end(&mut client);
    let text = client.text("INFO memory");
    let figure = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse::<u64>().unwrap();
    assert!(figure("allocator_resident:") > figure("allocator_allocated:"));
}

#[test]
fn the_settings_are_those_of_redis() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("quire.conf");
    std::fs::write(&file, "bind 127.0.0.1\nport 0\nsave \"\"\nactivedefrag no\nactive-defrag-max-scan-fields 1000\n")
        .unwrap();
    let mut config = Config::default();
    config.apply_file(&file).unwrap();
    config.set("dir", dir.path().to_str().unwrap()).unwrap();
    let server = start_with(config);
    let mut client = server.client();
    for (name, default) in [
        ("activedefrag", "no"),
        ("active-defrag-ignore-bytes", "104857600"),
        ("active-defrag-threshold-lower", "10"),
        ("active-defrag-threshold-upper", "100"),
        ("active-defrag-cycle-min", "1"),
        ("active-defrag-cycle-max", "25"),
    ] {
        assert_eq!(client.call(&format!("CONFIG GET {name}")).items()[1].text(), default, "{name}");
    }
    assert_eq!(client.text("CONFIG SET activedefrag yes active-defrag-ignore-bytes 2mb"), "OK");
    for (setting, reason) in [
        ("active-defrag-cycle-max 100", "argument must be between 1 and 99 inclusive"),
        ("active-defrag-threshold-upper 1001", "argument must be between 0 and 1000 inclusive"),
        ("activedefrag maybe", "argument must be 'yes' or 'no'"),
    ] {
        let name = setting.split(' ').next().unwrap();
        let error = format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}");
        assert_eq!(client.text(&format!("CONFIG SET {setting}")), error);
    }
    assert_eq!(client.text("CONFIG REWRITE"), "OK");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("\nactivedefrag yes\n") && text.contains("active-defrag-ignore-bytes 2"), "{text}");
    let mut again = Config::default();
    again.apply_file(&file).unwrap();
    assert_eq!((again.defrag.is_on, again.defrag.ignore_bytes), (true, 2 << 20));
}
