//! Clones: servers on an image that another server made, as their clients see them, and what becomes of the image.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tempfile::TempDir;

use crate::common::{self, Client, Running, eventually, start_clone, start_in};

const IMAGE: &str = "dump.quire";
const INCREMENTAL: (&str, &str) = ("checkpoint-incremental", "yes");
const LOCAL_CONFIGS: (&str, &str) = ("enable-protected-configs", "local");

/// A server with data of which an image and, if `deltas`, two deltas are saved, and the digest of what they hold.
fn original(dir: &Path, deltas: bool) -> (Running, String) {
    let settings = if deltas { vec![INCREMENTAL] } else { Vec::new() };
    let server = start_in(dir, &settings);
    let mut client = server.client();
    client.text("DEBUG POPULATE 20000 k 300");
    for number in 0..500 {
        client.text(&format!("HSET h:{number} field {number}"));
        client.text(&format!("SADD s:{} {number}", number % 7));
    }
    assert_eq!(client.text("SAVE"), "OK");
    for round in 0..if deltas { 2 } else { 0 } {
        client.text(&format!("SET k:{round} changed"));
        client.text(&format!("DEL k:{}", 100 + round));
        assert_eq!(client.text("SAVE"), "OK");
        assert_eq!(client.info("checkpoint_chain_deltas"), (round + 1).to_string());
    }
    let digest = client.text("DEBUG DIGEST");
    (server, digest)
}

/// Names and bytes of all files there.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    paths.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

fn clone_of(dir: &Path, settings: &[(&str, &str)]) -> Running {
    start_clone(&dir.join(IMAGE), settings).expect("the clone starts")
}

fn verified(client: &mut Client) {
    eventually("the clone's image is verified", || client.info("clone_verified") == "1");
}

#[test]
fn clones_have_the_data_of_the_save_and_keep_their_writes_to_themselves() {
    for deltas in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (server, digest) = original(dir.path(), deltas);
        let mut source = server.client();
        let before = contents(dir.path());
        source.text("SET after the-save");
        let clones = [clone_of(dir.path(), &[]), clone_of(dir.path(), &[])];
        let mut clients = clones.each_ref().map(Running::client);
        for (number, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.text("DEBUG DIGEST"), digest);
            assert_eq!(client.info("restore_mode"), "clone");
            assert_eq!(
                client.info("clone_image"),
                dir.path().canonicalize().unwrap().join(IMAGE).display().to_string()
            );
            assert_eq!(client.info("clone_deltas"), if deltas { "2" } else { "0" });
            assert_eq!(client.text("SET who is"), "OK");
            assert_eq!(client.text(&format!("SET k:5 {number}")), "OK");
            client.text("DEL k:6");
            client.text(&format!("HSET h:5 field {number}"));
        }
        for (number, client) in clients.iter_mut().enumerate() {
            assert_eq!(
                (client.text("GET k:5"), client.text("HGET h:5 field")),
                (number.to_string(), number.to_string())
            );
            verified(client);
        }
        assert_eq!((source.text("GET who"), source.text("GET k:5").len()), ("(nil)".into(), 300));
        // All memory of one clone is given back and used anew: none of the image's bytes shine through.
        assert_eq!(clients[0].text("FLUSHALL"), "OK");
        eventually("memory is given back", || clients[0].info("arena_released_bytes") != "0");
        clients[0].text("DEBUG POPULATE 20000 other 500");
        assert_eq!(clients[0].text("DBSIZE"), "20000");
        let empty = common::start(&[]);
        let mut reference = empty.client();
        reference.text("DEBUG POPULATE 20000 other 500");
        assert_eq!(clients[0].text("DEBUG DIGEST"), reference.text("DEBUG DIGEST"));
        drop((clients, clones));
        assert!(contents(dir.path()) == before, "the clones have changed nothing there");
    }
}

#[test]
fn a_clone_stays_what_it_is_when_the_original_saves_again_or_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let (server, digest) = original(dir.path(), true);
    let clone = clone_of(dir.path(), &[]);
    let mut client = clone.client();
    let mut source = server.client();
    source.text("DEBUG POPULATE 20000 k 100");
    for number in 0..3000 {
        source.text(&format!("SET k:{number} overwritten"));
    }
    assert_eq!(source.text("SAVE"), "OK");
    assert_eq!(client.text("DEBUG DIGEST"), digest, "after another save");
    source.text("CONFIG SET checkpoint-incremental no");
    source.text("FLUSHALL");
    source.text("SET only this");
    assert_eq!(source.text("SAVE"), "OK");
    assert!(!dir.path().join("dump.quire.delta-1").exists());
    assert_eq!(client.text("DEBUG DIGEST"), digest, "after a full save, which removes the deltas");
    drop((source, server));
    fs::remove_file(dir.path().join(IMAGE)).unwrap();
    assert_eq!(client.text("DEBUG DIGEST"), digest, "without the file's name");
    verified(&mut client);
    assert_eq!(client.text("SET still takes"), "OK");
}

#[test]
fn a_clone_is_never_older_than_the_last_save_that_had_ended() {
    let dir = tempfile::tempdir().unwrap();
    let server = start_in(dir.path(), &[INCREMENTAL, ("checkpoint-max-deltas", "2")]);
    let mut source = server.client();
    source.text("DEBUG POPULATE 2000 k 300");
    assert_eq!(source.text("SAVE"), "OK");
    let (saved, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                let number = source.call("INCR saves").int();
                assert_eq!(source.text("SAVE"), "OK");
                saved.store(number.cast_unsigned(), Ordering::SeqCst);
            }
        });
        let mut compared = 0;
        while compared < 15 {
            let least = saved.load(Ordering::SeqCst);
            let clone = match start_clone(&dir.path().join(IMAGE), &[]) {
                Ok(clone) => clone,
                Err(reason) => {
                    stop.store(true, Ordering::SeqCst);
                    panic!("{reason}");
                }
            };
            let found: u64 = clone.client().text("GET saves").parse().unwrap_or(0);
            if found < least {
                stop.store(true, Ordering::SeqCst);
                panic!("the clone has {found} saves, {least} had ended before");
            }
            compared += 1;
        }
        stop.store(true, Ordering::SeqCst);
    });
}

/// Bytes of the mappings of files called `name` that this process holds: all, and those that are no longer the file's.
fn held_of(path: &Path) -> (u64, u64) {
    let (mut inside, mut all, mut own) = (false, 0, 0);
    for line in fs::read_to_string("/proc/self/smaps").unwrap().lines() {
        let first = line.split_ascii_whitespace().next().unwrap_or_default();
        let kib = || line.split_ascii_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        match first {
            "Rss:" if inside => all += kib(),
            "Anonymous:" if inside => own += kib(),
            _ if first.contains('-') => inside = line.ends_with(path.to_str().unwrap()),
            _ => {}
        }
    }
    (all << 10, own << 10)
}

#[test]
fn reading_everything_makes_no_page_of_a_clone_private() {
    let dir = tempfile::tempdir().unwrap();
    let (server, digest) = original(dir.path(), false);
    drop(server);
    let path = dir.path().canonicalize().unwrap().join(IMAGE);
    let clones = [clone_of(dir.path(), &[]), clone_of(dir.path(), &[("read-only", "yes")])];
    for clone in &clones {
        let mut client = clone.client();
        assert_eq!(client.text("DEBUG DIGEST"), digest);
        for number in 0..20000 {
            assert_eq!(client.text(&format!("GET k:{number}")).len(), 300);
        }
        verified(&mut client);
        for field in ["clone_private_bytes", "clone_shared_bytes"] {
            assert!(client.info(field).parse::<u64>().unwrap() > 0, "{field}");
        }
    }
    let (all, own) = held_of(&path);
    assert!(all > 2 * (20_000 * 300), "both have read everything: {all}");
    assert!(own * 20 < all, "{own} of {all} bytes are private");
    // What is written is.
    let mut client = clones[0].client();
    for number in 0..20000 {
        client.text(&format!("SETRANGE k:{number} 0 x"));
    }
    let (all, own) = held_of(&path);
    assert!(own * 3 > all, "{own} of {all} bytes are private after all was written in one of two");
}

#[test]
fn a_clone_saves_nothing_unless_it_is_told_where() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _) = original(dir.path(), false);
    let before = contents(dir.path());
    let mut clone = clone_of(dir.path(), &[LOCAL_CONFIGS]);
    let mut client = clone.client();
    client.text("SET k:1 mine");
    for command in ["BGSAVE", "BGSAVE SCHEDULE", "SAVE", "BGREWRITEAOF", "CONFIG SET appendonly yes"] {
        let reply = client.text(command);
        assert!(reply.starts_with("ERR") && reply.contains("--dir DIR"), "{command}: {reply}");
    }
    assert_eq!((client.info("rdb_last_bgsave_status").as_str(), client.info("rdb_saves").as_str()), ("ok", "0"));
    assert_eq!(client.text("CONFIG SET dbfilename other.quire"), "OK");
    assert_eq!(client.text("CONFIG SET dbfilename dump.quire"), "OK");
    let reply = client.text(&format!("CONFIG SET dir {}", dir.path().display()));
    assert!(reply.contains("must not replace"), "{reply}");
    let own = tempfile::tempdir().unwrap();
    assert_eq!(client.text(&format!("CONFIG SET dir {}", own.path().display())), "OK");
    verified(&mut client);
    let digest = client.text("DEBUG DIGEST");
    assert_eq!(client.text("BGSAVE"), "Background saving started");
    eventually("it is saved", || client.info("rdb_saves") == "1");
    client.text("SET k:2 unsaved");
    client.send(common::request("SHUTDOWN"));
    assert_eq!(client.try_reply(), None);
    assert!(clone.ended());
    drop(server);
    assert!(contents(dir.path()) == before);
    let saved = start_in(own.path(), &[]);
    assert_eq!(saved.client().text("DEBUG DIGEST"), digest);
}

#[test]
fn a_clone_with_a_directory_logs_and_saves_there() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _) = original(dir.path(), true);
    let before = contents(dir.path());
    let own = tempfile::tempdir().unwrap();
    let place = ("dir", own.path().to_str().unwrap());
    let clone = clone_of(dir.path(), &[place, ("appendonly", "yes"), ("appendfsync", "always"), INCREMENTAL]);
    let mut client = clone.client();
    client.text("SET logged write");
    assert_eq!(client.text("SAVE"), "OK");
    assert_eq!(client.info("checkpoint_chain_deltas"), "0", "only a full save looks at every page of the file");
    client.text("SET later write");
    let digest = client.text("DEBUG DIGEST");
    drop((client, clone));
    let restarted = start_in(own.path(), &[("appendonly", "yes"), INCREMENTAL]);
    assert_eq!(restarted.client().text("DEBUG DIGEST"), digest);
    drop(server);
    assert!(contents(dir.path()) == before);
}

/// Why a clone of the image in `dir` does not start.
fn refusal(path: &Path, settings: &[(&str, &str)]) -> String {
    start_clone(path, settings).err().expect("the clone does not start")
}

#[test]
fn places_where_data_would_be_replaced_and_images_that_are_none_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _) = original(dir.path(), true);
    let image = dir.path().join(IMAGE);
    let link: TempDir = tempfile::tempdir().unwrap();
    let by_link = link.path().join("way");
    std::os::unix::fs::symlink(dir.path(), &by_link).unwrap();
    for place in [dir.path(), &by_link] {
        let reason = refusal(&image, &[("dir", place.to_str().unwrap())]);
        assert!(reason.contains("must not replace") && reason.contains("--dir"), "{reason}");
    }
    let own = tempfile::tempdir().unwrap();
    let place = ("dir", own.path().to_str().unwrap());
    fs::write(own.path().join(IMAGE), b"whatever").unwrap();
    assert!(refusal(&image, &[place]).contains("is there already"));
    fs::remove_file(own.path().join(IMAGE)).unwrap();
    {
        let other = start_in(own.path(), &[("appendonly", "yes"), ("dbfilename", "other.quire")]);
        other.client().text("SET a b");
    }
    assert!(refusal(&image, &[place]).contains("log of writes"));
    assert!(refusal(&image, &[("save", "60 1")]).contains("save needs one"));
    assert!(refusal(&image, &[("appendonly", "yes")]).contains("appendonly needs one"));
    assert!(refusal(&image, &[("accept-damaged-image", "yes")]).contains("sound image"));
    assert!(refusal(&dir.path().join("dump.quire.delta-1"), &[]).contains("is a delta"));
    assert!(refusal(dir.path(), &[]).contains("name the image in it"));
    assert!(refusal(&dir.path().join("none"), &[]).contains("cannot clone"));
    let foreign = own.path().join("dump.rdb");
    fs::write(&foreign, b"REDIS0011\xfa\tredis-ver").unwrap();
    let reason = refusal(&foreign, &[]);
    assert!(reason.contains("Redis RDB file") && reason.contains("its own images"), "{reason}");
    drop(server);
}

#[test]
fn a_clone_of_a_damaged_image_ends_when_the_damage_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _) = original(dir.path(), false);
    drop(server);
    let path = dir.path().join(IMAGE);
    let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let len = file.metadata().unwrap().len();
    let mut byte = [0];
    let mut at = len - (64 << 10);
    while byte[0] == 0 {
        at -= 512;
        file.read_exact_at(&mut byte, at).unwrap();
    }
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
    let before = contents(dir.path());
    let mut clone = clone_of(dir.path(), &[]);
    let reason = clone.failure();
    assert!(reason.contains("damaged in its region") && reason.contains("save again"), "{reason}");
    assert!(contents(dir.path()) == before);
    file.write_all_at(b"x", len - 4096).unwrap();
    assert!(refusal(&path, &[]).contains("footer"));
    file.set_len(len - 8192).unwrap();
    assert!(refusal(&path, &[]).contains("bytes instead of"));
}

/// Where `needle` lies in a file.
fn place_of(path: &Path, needle: &[u8]) -> u64 {
    let bytes = fs::read(path).unwrap();
    bytes.windows(needle.len()).position(|found| found == needle).expect("the file has it") as u64
}

#[test]
fn what_changes_in_a_file_after_the_check_gets_into_no_image_of_the_clone() {
    let dir = tempfile::tempdir().unwrap();
    let server = start_in(dir.path(), &[INCREMENTAL]);
    let mut source = server.client();
    source.text("DEBUG POPULATE 5000 k 300");
    for (number, key) in ["early", "late"].into_iter().enumerate() {
        assert_eq!(source.text(&format!("SET {key} {}", format!("<{key}>").repeat(200))), "OK");
        assert_eq!(source.text("SAVE"), "OK");
        assert_eq!(source.info("checkpoint_chain_deltas"), number.to_string());
    }
    drop((source, server));
    for (name, key) in [(IMAGE, "early"), ("dump.quire.delta-1", "late")] {
        for command in ["SAVE".to_owned(), "BGSAVE".to_owned(), format!("SETRANGE {key} 0 changed")] {
            let own = tempfile::tempdir().unwrap();
            let mut clone = clone_of(dir.path(), &[("dir", own.path().to_str().unwrap())]);
            let mut client = clone.client();
            verified(&mut client);
            let path = dir.path().join(name);
            let at = place_of(&path, format!("<{key}><{key}>").as_bytes()) + 20;
            let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
            let reply = client.text(&command);
            if command == "SAVE" {
                assert!(reply.contains("whose bytes have changed"), "{name}: {reply}");
            }
            let reason = clone.failure();
            assert!(reason.contains("have changed since it was opened"), "{name}, {command}: {reason}");
            file.write_all_at(&byte, at).unwrap();
            assert_eq!(
                contents(own.path()).keys().filter(|path| path.ends_with(IMAGE)).count(),
                0,
                "{name}, {command}"
            );
        }
    }
    let own = tempfile::tempdir().unwrap();
    let clone = clone_of(dir.path(), &[("dir", own.path().to_str().unwrap())]);
    let mut client = clone.client();
    verified(&mut client);
    assert_eq!((client.text("SETRANGE early 0 x"), client.text("SAVE")), ("1400".into(), "OK".into()));
}

#[test]
fn a_copy_of_what_has_changed_in_a_file_gets_into_no_delta_of_the_clone() {
    let dir = tempfile::tempdir().unwrap();
    let server = start_in(dir.path(), &[]);
    let mut source = server.client();
    source.text("DEBUG POPULATE 5000 k 300");
    assert_eq!(source.text(&format!("SET early {}", "<early>".repeat(20_000))), "OK");
    assert_eq!(source.text("SAVE"), "OK");
    drop((source, server));
    let own = tempfile::tempdir().unwrap();
    let mut clone = clone_of(dir.path(), &[("dir", own.path().to_str().unwrap()), INCREMENTAL]);
    let mut client = clone.client();
    verified(&mut client);
    assert_eq!(client.text("SAVE"), "OK");
    let before = contents(own.path());
    let path = dir.path().join(IMAGE);
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"X", place_of(&path, b"<early><early>") + 70_000).unwrap();
    assert_eq!(client.text("COPY early late"), "1");
    let reply = client.text("SAVE");
    assert!(reply.contains("bytes have changed"), "{reply}");
    clone.failure();
    assert!(contents(own.path()) == before);
}

#[test]
fn waiting_in_a_read_only_clone_frees_nothing_that_the_original_had_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let server = start_in(dir.path(), &[]);
    let mut source = server.client();
    source.text("DEBUG POPULATE 20000 k 300");
    source.text("DEBUG PAUSE-CRON 1");
    assert_eq!((source.text("FLUSHALL"), source.text("SAVE")), ("OK".into(), "OK".into()));
    drop((source, server));
    let still = clone_of(dir.path(), &[("read-only", "yes")]);
    let mut client = still.client();
    verified(&mut client);
    let busy = clone_of(dir.path(), &[]);
    let mut other = busy.client();
    verified(&mut other);
    eventually("the other one has freed all", || other.info("lazyfree_pending_objects") == "0");
    assert_ne!(client.info("lazyfree_pending_objects"), "0");
    drop((other, busy));
    // The other clone's mapping goes when its thread that backs memory ahead has ended, which may be after the server itself.
    let path = dir.path().canonicalize().unwrap().join(IMAGE);
    eventually("the read-only clone holds no memory of its own", || held_of(&path).1 < 64 << 10);
    assert_eq!(client.text("CONFIG SET read-only no"), "OK");
    eventually("it is freed", || client.info("lazyfree_pending_objects") == "0");
}

#[test]
fn a_read_only_server_refuses_writes_and_keeps_expired_keys_out_of_sight() {
    const REFUSED: &str = "READONLY You can't write against a read only replica.";
    let dir = tempfile::tempdir().unwrap();
    let server = start_in(dir.path(), &[]);
    let mut source = server.client();
    source.text("MSET a 1 b 2");
    source.text("SET short lived PX 1");
    source.text("SET long lived PX 10000000");
    source.text("DEBUG PAUSE-CRON 1");
    assert_eq!(source.text("SAVE"), "OK");
    let clone = clone_of(dir.path(), &[("read-only", "yes")]);
    let mut client = clone.client();
    for write in ["SET a 2", "DEL a", "INCR a", "FLUSHALL", "EXPIRE a 100", "COPY a c", "GETDEL a", "GETEX a PERSIST"] {
        assert_eq!(client.text(write), REFUSED, "{write}");
    }
    assert_eq!((client.text("GET a"), client.text("GET short")), ("1".into(), "(nil)".into()));
    assert_eq!((client.text("EXISTS short long"), client.text("DBSIZE")), ("1".into(), "4".into()));
    assert_eq!(client.info("expired_keys"), "0");
    assert_eq!(client.text("MULTI"), "OK");
    assert_eq!(client.text("SET a 2"), REFUSED);
    assert!(client.text("EXEC").starts_with("EXECABORT"));
    assert_eq!(client.text("CONFIG SET read-only no"), "OK");
    assert_eq!((client.text("MULTI"), client.text("SET a 3")), ("OK".into(), "QUEUED".into()));
    assert_eq!(clone.client().text("CONFIG SET read-only yes"), "OK");
    assert_eq!(client.text("EXEC"), format!("EXECABORT Transaction discarded because of: {REFUSED}"));
    assert_eq!(client.text("GET a"), "1");
    assert_eq!(client.text("CONFIG SET read-only no"), "OK");
    assert_eq!((client.text("SET a 4"), client.text("GET short")), ("OK".into(), "(nil)".into()));
    eventually("the expired key goes", || client.text("DBSIZE") == "3");
}

#[test]
fn a_clone_that_is_led_to_its_original_s_directory_leaves_the_log_there_alone() {
    let dir = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let logs = [("appendonly", "yes"), ("appendfsync", "always")];
    let server = start_in(dir.path(), &logs);
    let mut source = server.client();
    for number in 0..50 {
        source.text(&format!("SET k:{number} old"));
    }
    assert_eq!(source.text("SAVE"), "OK");
    let place = other.path().to_str().unwrap();
    let clone = clone_of(dir.path(), &[("dir", place), ("appendonly", "yes"), LOCAL_CONFIGS]);
    let mut client = clone.client();
    verified(&mut client);
    for number in 0..40 {
        source.text(&format!("SET k:{number} new"));
        client.text(&format!("SET other:{number} x"));
    }
    let original = dir.path().to_str().unwrap();
    let refused = client.text(&format!("CONFIG SET appendonly no dir {original} dbfilename c.quire"));
    assert!(refused.contains("holds a log of writes"), "{refused}");
    assert_eq!(client.text("CONFIG SET appendonly no"), "OK");
    assert_eq!(client.text("SAVE"), "OK");
    let digest = source.text("DEBUG DIGEST");
    drop((client, clone, source, server));
    let again = start_in(dir.path(), &logs);
    assert_eq!(again.client().text("DEBUG DIGEST"), digest);
}

#[test]
fn segments_of_a_log_that_was_switched_off_are_removed_by_a_save_beside_them_only() {
    let dir = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let segments = |dir: &Path| {
        let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.contains("log") && !name.ends_with("lock")).count()
    };
    let server = start_in(dir.path(), &[("appendonly", "yes"), LOCAL_CONFIGS]);
    let mut client = server.client();
    client.text("SET a 1");
    assert_eq!(client.text("CONFIG SET appendonly no"), "OK");
    let left = segments(dir.path());
    assert!(left > 0);
    assert_eq!(client.text(&format!("CONFIG SET dir {}", other.path().display())), "OK");
    assert_eq!(client.text("SAVE"), "OK");
    assert_eq!(segments(dir.path()), left, "the image that covers them lies elsewhere");
    assert_eq!(client.text(&format!("CONFIG SET dir {}", dir.path().display())), "OK");
    assert_eq!(client.text("SAVE"), "OK");
    eventually("they are removed", || segments(dir.path()) == 0);
}

#[test]
fn a_clone_is_not_reloaded_and_a_read_only_server_not_populated() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, digest) = original(dir.path(), false);
    let clone = clone_of(dir.path(), &[("read-only", "yes")]);
    let mut client = clone.client();
    assert!(client.text("DEBUG POPULATE 10").contains("READONLY"));
    assert!(client.text("DEBUG RELOAD").contains("not possible in a clone"));
    assert_eq!(client.text("DEBUG DIGEST"), digest);
}
