//! Saves, signals of rules and the end while what is served has not been verified yet, over sound and damaged images.
//!
//! Relies on a gate before the image's file, which holds the restore up for as long as a test likes.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quire_device::{DiskDirectory, IoGate};
use quire_server::net::Server;
use quire_server::saving;
use quire_server::state::ServerHooks;

use crate::common::{Client, Running, config_in, eventually, request, start_in, start_restoring};

const IMAGE: &str = "dump.quire";
const PAGE: usize = 4096;

/// Leaves an image in `dir`; returns the digest of what it holds.
fn make_image(dir: &Path) -> String {
    let server = start_in(dir, &[]);
    let mut client = server.client();
    client.text("DEBUG POPULATE 30000 k 300");
    assert_eq!(client.text("SAVE"), "OK");
    client.text("DEBUG DIGEST")
}

/// Changes a byte in the middle of the page that lies furthest back in the data.
fn damage(path: &Path) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut at = file.metadata().unwrap().len() - (64 << 10);
    let mut byte = [0];
    while byte[0] == 0 {
        at -= 512;
        file.read_exact_at(&mut byte, at).unwrap();
    }
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

/// A server that maps the image in `dir` and can't verify it before the gate is opened.
fn held_up(dir: &Path, settings: &[(&str, &str)]) -> (Running, IoGate) {
    let gate = IoGate::default();
    gate.close_for_reads();
    let server = start_restoring(dir, settings, gate.before_all(Arc::new(DiskDirectory::new(dir))));
    (server, gate)
}

/// Due a second after the first change.
const RULE: &[(&str, &str)] = &[("save", "1 1")];

/// All that leads to a save, with what has to be said before the restore goes on.
const WAYS: [(&str, &[(&str, &str)]); 7] = [
    ("BGSAVE", &[]),
    ("SAVE", &[]),
    ("DEBUG RELOAD", &[]),
    ("SHUTDOWN SAVE", &[]),
    ("INCR changes", RULE),
    ("BGREWRITEAOF", &[]),
    ("CONFIG SET appendonly yes", &[]),
];

fn files(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(IMAGE)).collect();
    names.sort();
    names
}

/// Asks for a save in one of the ways; those that wait for the restore get no reply before.
fn ask(client: &mut Client, way: &str) {
    client.send(request(way));
    if !["SAVE", "DEBUG RELOAD", "SHUTDOWN SAVE"].contains(&way) {
        let reply = client.reply().text();
        assert!(!reply.contains("started") && !reply.starts_with("ERR"), "{way}: {reply}");
    }
}

#[test]
fn no_save_replaces_an_image_that_proves_damaged_afterwards() {
    for (way, settings) in WAYS {
        let dir = tempfile::tempdir().unwrap();
        make_image(dir.path());
        let path = dir.path().join(IMAGE);
        damage(&path);
        let before = fs::read(&path).unwrap();
        let (mut server, gate) = held_up(dir.path(), settings);
        let mut client = server.client();
        assert_eq!(client.text("SET during the-restore"), "OK");
        ask(&mut client, way);
        if !["SAVE", "DEBUG RELOAD", "SHUTDOWN SAVE"].contains(&way) {
            assert_eq!(client.info("rdb_saves"), "0", "{way}");
        }
        if settings == RULE {
            std::thread::sleep(Duration::from_millis(1500));
            assert_eq!(client.info("rdb_saves"), "0", "the rule was due and had to wait");
        }
        gate.open();
        let reason = server.failure();
        assert!(reason.contains("region") && reason.contains("--accept-damaged-image"), "{way}: {reason}");
        assert!(fs::read(&path).unwrap() == before, "{way}: the damaged image stays as it was");
        assert_eq!(files(dir.path()), [IMAGE], "{way}");
    }
}

#[test]
fn saves_of_a_sound_image_wait_and_hold_what_was_written_meanwhile() {
    for (way, settings) in WAYS {
        let dir = tempfile::tempdir().unwrap();
        make_image(dir.path());
        let (mut server, gate) = held_up(dir.path(), settings);
        let mut client = server.client();
        assert_eq!(client.text("SET during the-restore"), "OK");
        let digest = client.text("DEBUG DIGEST");
        ask(&mut client, way);
        gate.open();
        if way == "SHUTDOWN SAVE" {
            assert_eq!(client.try_reply(), None);
            assert!(server.ended());
        } else {
            if ["SAVE", "DEBUG RELOAD"].contains(&way) {
                assert_eq!(client.reply().text(), "OK", "{way}");
            }
            eventually("it is saved", || {
                client.info("rdb_saves") != "0" && client.info("rdb_bgsave_in_progress") == "0"
            });
        }
        drop(server);
        let server = start_in(dir.path(), &[("restore-mode", "load")]);
        let mut client = server.client();
        assert_eq!(client.text("GET during"), "the-restore", "{way}");
        client.text("DEL changes");
        assert_eq!(client.text("DEBUG DIGEST"), digest, "{way}");
    }
}

#[test]
fn the_log_below_a_damaged_image_stays() {
    let dir = tempfile::tempdir().unwrap();
    {
        let server = start_in(dir.path(), &[("appendonly", "yes")]);
        let mut client = server.client();
        client.text("DEBUG POPULATE 30000 k 300");
        client.text("BGREWRITEAOF");
        eventually("it is saved", || {
            client.info("aof_rewrites") == "1" && client.info("rdb_bgsave_in_progress") == "0"
        });
        assert_eq!(client.text("SET last write"), "OK");
    }
    damage(&dir.path().join(IMAGE));
    let gate = IoGate::default();
    gate.close_for_reads();
    let gated = gate.before_all(Arc::new(DiskDirectory::new(dir.path())));
    let mut server = start_restoring(dir.path(), &[("appendonly", "yes")], gated);
    let mut client = server.client();
    assert_eq!(client.text("GET last"), "write", "replayed");
    assert_eq!(client.text("SET later write"), "OK");
    assert_eq!(client.text("BGREWRITEAOF"), "Background append only file rewriting scheduled");
    gate.open();
    assert!(server.failure().contains("region"));
    // What is left of the image, and the whole log on top of it.
    let server = start_in(dir.path(), &[("appendonly", "yes"), ("accept-damaged-image", "yes")]);
    let mut client = server.client();
    assert_eq!((client.text("GET last"), client.text("GET later")), ("write".into(), "write".into()));
}

/// Copies image and log of a server that has ended, with a page of the image zeroed.
fn copy_without_page(from: &Path, to: &Path, page: usize) {
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
    let image = fs::OpenOptions::new().write(true).open(to.join(IMAGE)).unwrap();
    image.write_all_at(&[0; PAGE], (page * PAGE) as u64).unwrap();
}

#[test]
fn commands_of_the_log_that_meet_damage_stop_the_start_unless_the_image_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    {
        let server = start_in(dir.path(), &[("appendonly", "yes")]);
        let mut client = server.client();
        client.text("DEBUG POPULATE 200 k 300");
        client.text("BGREWRITEAOF");
        eventually("it is saved", || {
            client.info("aof_rewrites") == "1" && client.info("rdb_bgsave_in_progress") == "0"
        });
        for key in 0..200 {
            client.text(&format!("APPEND k:{key} +"));
        }
        assert_eq!(client.text("SET last write"), "OK");
    }
    let image = fs::read(dir.path().join(IMAGE)).unwrap();
    let mut stopped = 0;
    for (page, _) in image.chunks(PAGE).enumerate().filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0)) {
        let copy = tempfile::tempdir().unwrap();
        copy_without_page(dir.path(), copy.path(), page);
        let start = |settings: &[(&str, &str)]| {
            let config = config_in(copy.path(), &[settings, &[("appendonly", "yes")]].concat());
            let (store, restored) = saving::open(&config)?;
            Server::start(config, store, restored, ServerHooks::default()).map_err(|error| error.to_string()).map(drop)
        };
        let Err(reason) = start(&[]) else { continue };
        if reason.contains("quire-log-") {
            assert!(reason.contains("the data is damaged") && reason.contains("--accept-damaged-image"), "{reason}");
            stopped += 1;
            start(&[("accept-damaged-image", "yes")]).unwrap();
        }
    }
    assert!(stopped > 0, "commands meet damaged buckets");
}
