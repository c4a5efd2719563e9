//! A server started on a damaged log: every acknowledged write is there, or the start is refused with file and offset and
//! nothing is touched. With `accept-damaged-log` it goes on with what can be read, and keeps the damaged files.

use quire_device::{Directory, MemoryDirectory};

use crate::common::{Running, start_within};

const LOGGING: &[(&str, &str)] = &[("appendonly", "yes"), ("appendfsync", "always"), ("log-segment-bytes", "1mb")];
const KEYS: u64 = 400;
const VALUE_BYTES: usize = 4000;

fn accepting() -> Vec<(&'static str, &'static str)> {
    LOGGING.iter().copied().chain([("accept-damaged-log", "yes")]).collect()
}

/// An image, and a log of two segments that holds what it lacks. The server was ended.
fn logged() -> MemoryDirectory {
    let memory = MemoryDirectory::new();
    let server = start_within(&memory, LOGGING).unwrap();
    let mut client = server.client();
    for key in 0..KEYS {
        assert_eq!(client.text(&format!("SET k{key} {}", "x".repeat(VALUE_BYTES))), "OK");
    }
    drop(client);
    drop(server);
    memory
}

fn segments(memory: &MemoryDirectory) -> Vec<String> {
    let mut names: Vec<String> = memory.list().unwrap();
    names.retain(|name| name.starts_with("quire-log-") && !name.contains('.'));
    names.sort();
    names
}

fn with_change(memory: &MemoryDirectory, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> MemoryDirectory {
    let changed = MemoryDirectory::new();
    for file in memory.list().unwrap() {
        changed.put(&file, &memory.bytes(&file).unwrap());
    }
    let mut bytes = memory.bytes(name).unwrap();
    change(&mut bytes);
    changed.put(name, &bytes);
    changed
}

fn content(memory: &MemoryDirectory) -> Vec<(String, Option<Vec<u8>>)> {
    let mut names = memory.list().unwrap();
    names.sort();
    names.into_iter().map(|name| (name.clone(), memory.bytes(&name))).collect()
}

fn keys(server: &Running) -> u64 {
    server.client().text("DBSIZE").parse().unwrap()
}

/// Why a start is refused, if it is; otherwise everything must be there.
fn refusal(memory: &MemoryDirectory) -> Option<String> {
    let before = content(memory);
    match start_within(memory, LOGGING) {
        Ok(server) => {
            assert_eq!(keys(&server), KEYS);
            None
        }
        Err(reason) => {
            assert!(content(memory) == before, "{reason}");
            Some(reason)
        }
    }
}

#[test]
fn a_start_on_a_damaged_log_is_refused_or_finds_every_write() {
    let memory = logged();
    assert_eq!(refusal(&with_change(&memory, &segments(&memory)[0], |_| ())), None);
    let segments = segments(&memory);
    assert!(segments.len() >= 2, "{segments:?}");
    let mut refused = 0;
    for name in &segments {
        for at in (0..512).step_by(37).chain([8, 72, 4096, 4104, 4112, 4116, 4120, 4124, 4140, 600_000, 1_000_000]) {
            let damaged = with_change(&memory, name, |bytes| bytes[at] ^= 1 << (at % 8));
            let reason = refusal(&damaged);
            let told = reason.as_ref().is_some_and(|reason| {
                (reason.contains(name) && reason.contains("at byte") || reason.contains("is wanted"))
                    && reason.contains("quire log verify")
                    && reason.contains("--accept-damaged-log")
            });
            assert!(reason.is_none() || told, "{name}, byte {at}: {reason:?}");
            assert!(at >= 512 || told, "{name}, byte {at} is accepted");
            refused += u32::from(told);
        }
    }
    assert!(refused > 30);
}

#[test]
fn damage_that_is_accepted_costs_what_can_not_be_read_and_nothing_else() {
    let memory = logged();
    let names = segments(&memory);
    let second = names[1].clone();
    let damage: [(usize, u64); 2] = [(20, KEYS), (4096 + 50, 0)];
    for (at, least) in damage {
        let damaged = with_change(&memory, &second, |bytes| bytes[at] ^= 1);
        let bytes = damaged.bytes(&second);
        let server = start_within(&damaged, &accepting()).unwrap();
        let found = keys(&server);
        assert!(found >= least && found > 200, "{found}");
        server.client().text("SET later 1");
        drop(server);
        let mut names = damaged.list().unwrap();
        names.retain(|name| name.starts_with(&format!("{second}.damaged-")));
        assert!(names.len() == 1 && damaged.bytes(&names[0]) == bytes, "{names:?}");
        // From here on it is a sound log again.
        let server = start_within(&damaged, LOGGING).unwrap();
        assert_eq!(keys(&server), found + 1);
        assert_eq!(server.client().text("GET later"), "1");
    }
}

#[test]
fn a_damaged_log_without_its_image_is_refused_whatever_is_accepted() {
    let memory = logged();
    for name in segments(&memory) {
        let damaged = with_change(&memory, &name, |bytes| bytes[20] ^= 1);
        for other in segments(&memory).iter().filter(|other| **other != name) {
            damaged.remove(other).unwrap();
        }
        damaged.remove("dump.quire").unwrap();
        let before = content(&damaged);
        // Its records are commands on data that is not there.
        let reason = start_within(&damaged, &accepting()).err().expect("it is refused");
        assert!(reason.contains("there is no image") && reason.contains(&name), "{reason}");
        assert!(content(&damaged) == before);
    }
}
