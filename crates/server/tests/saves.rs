//! SAVE, BGSAVE, LASTSAVE, SHUTDOWN and restarts, as clients see them.

use std::os::unix::fs::PermissionsExt;

use std::sync::Arc;

use quire_device::{DeviceOperation, DiskDirectory, FaultInjector, FaultTrigger, InjectedFault, errno};
use quire_sys::io_priority::IoPriority;
use quire_sys::thread::ThreadId;

use crate::common::{Client, Value, eventually, request, start, start_in, start_restoring};

const STARTED: &str = "Background saving started";

fn wait_saved(client: &mut Client) {
    eventually("the save ends", || client.info("rdb_bgsave_in_progress") == "0");
}

/// The server's clock, in whole seconds since 1970.
fn unix_s(client: &mut Client) -> i64 {
    client.call("TIME").items()[0].text().parse().unwrap()
}

#[test]
fn what_is_saved_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    for mode in ["map", "load"] {
        let mut server = start_in(dir.path(), &[("restore-mode", mode)]);
        let mut client = server.client();
        client.text("FLUSHALL");
        client.text("DEBUG POPULATE 20000 k 200");
        client.text("SELECT 9");
        client.text("HSET h a 1 b 2");
        let digest = client.text("DEBUG DIGEST");
        client.send(request("SHUTDOWN SAVE"));
        assert_eq!(client.try_reply(), None);
        assert!(server.ended());
        let server = start_in(dir.path(), &[("restore-mode", mode)]);
        let mut client = server.client();
        assert_eq!(client.text("DEBUG DIGEST"), digest);
        assert_eq!(client.info("restore_mode"), mode);
        eventually("all is restored", || client.info("restore_in_progress") == "0");
        assert_ne!(client.info("restore_full_us"), "-1");
        assert_eq!(client.info("rdb_changes_since_last_save"), "0");
        assert_eq!(client.text("SAVE"), "OK");
    }
}

#[test]
fn an_image_is_what_was_there_at_the_cut() {
    let dir = tempfile::tempdir().unwrap();
    let server = start_in(dir.path(), &[]);
    let mut client = server.client();
    client.text("DEBUG POPULATE 100000 k 300");
    let digest = client.text("DEBUG DIGEST");
    let before = client.call("LASTSAVE").int();
    assert_eq!(client.text("BGSAVE"), STARTED);
    for number in 0..2000 {
        client.send(request(&format!("SET k:{number} changed")));
    }
    for _ in 0..2000 {
        assert_eq!(client.reply().text(), "OK");
    }
    wait_saved(&mut client);
    assert!(client.call("LASTSAVE").int() >= before);
    assert_eq!((client.info("rdb_last_bgsave_status"), client.info("rdb_saves")), ("ok".into(), "1".into()));
    assert_eq!(client.info("rdb_changes_since_last_save"), "2000");
    assert_ne!(client.info("last_cut_stall_us"), "0.0");
    drop(server);
    let server = start_in(dir.path(), &[]);
    assert_eq!(server.client().text("DEBUG DIGEST"), digest);
}

#[test]
fn one_save_at_a_time() {
    let server = start(&[]);
    let mut client = server.client();
    client.text("DEBUG POPULATE 200000 k 500");
    client.send(
        [request("BGSAVE"), request("BGSAVE"), request("SAVE"), request("BGSAVE CANCEL"), request("BGSAVE FOO")]
            .concat(),
    );
    assert_eq!(client.reply().text(), STARTED);
    let busy = "ERR Background save already in progress";
    assert_eq!((client.reply().text(), client.reply().text()), (busy.into(), busy.into()));
    assert_eq!(client.reply().text(), "Background saving cancelled");
    assert_eq!(client.reply().text(), "ERR syntax error");
    wait_saved(&mut client);
    assert_eq!(client.info("rdb_last_bgsave_status"), "ok", "a save that was called off has not failed");
    assert_eq!(client.text("BGSAVE CANCEL"), "ERR Background saving is currently not in progress or scheduled");
    assert_eq!(client.text("BGSAVE SCHEDULE"), STARTED);
    wait_saved(&mut client);
    client.text("MULTI");
    client.text("BGSAVE");
    assert_eq!(client.call("EXEC").items()[0].text(), "Background saving scheduled", "at the end of the transaction");
    wait_saved(&mut client);
    let left: Vec<_> = std::fs::read_dir(&server.dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(
        left.iter().filter(|name| *name != ".dump.quire.lock").collect::<Vec<_>>(),
        ["dump.quire"],
        "nothing else is left"
    );
}

#[test]
fn a_failed_save_is_told_and_stops_writes_if_there_are_rules() {
    let server = start(&[("enable-protected-configs", "yes")]);
    let mut client = server.client();
    client.text("SET a 1");
    assert_eq!(client.text("SAVE"), "OK");
    let saved = client.call("LASTSAVE").int();
    let gone = server.dir.join("gone");
    std::fs::create_dir(&gone).unwrap();
    client.text(&format!("CONFIG SET dir {}", gone.display()));
    std::fs::remove_dir_all(&gone).unwrap();
    // LASTSAVE counts seconds: a failed save in the same second would not show in it.
    eventually("another second begins", || unix_s(&mut client) > saved);
    assert!(client.text("SAVE").starts_with("ERR "));
    assert_eq!(client.call("LASTSAVE").int(), saved, "a failed SAVE is no save");
    client.text("BGSAVE");
    wait_saved(&mut client);
    assert_eq!(client.info("rdb_last_bgsave_status"), "err");
    let told = (client.call("LASTSAVE").int(), client.info("rdb_last_save_time"));
    assert_eq!(told, (saved, saved.to_string()), "a failed BGSAVE is no save");
    assert!(client.info("rdb_last_bgsave_error").contains("No such file"), "{}", client.info("rdb_last_bgsave_error"));
    // A server without rules does not rely on saves.
    assert_eq!(client.text("SET a 2"), "OK");
    client.words(&[b"CONFIG", b"SET", b"save", b"3600 1"]);
    assert!(client.text("SET a 3").starts_with("MISCONF Redis is configured to save RDB snapshots"));
    assert!(client.text("PING").starts_with("MISCONF"));
    assert_eq!(client.text("GET a"), "2");
    client.text("MULTI");
    assert!(client.text("SET a 4").starts_with("MISCONF"));
    assert!(client.text("EXEC").starts_with("EXECABORT"));
    client.text("CONFIG SET stop-writes-on-bgsave-error no");
    assert_eq!(client.text("SET a 5"), "OK");
    client.text("CONFIG SET stop-writes-on-bgsave-error yes");
    client.text(&format!("CONFIG SET dir {}", server.dir.display()));
    assert_eq!(client.text("SAVE"), "OK");
    assert_eq!((client.text("SET a 6"), client.info("rdb_last_bgsave_status")), ("OK".into(), "ok".into()));
    assert!(client.call("LASTSAVE").int() > saved);
}

#[test]
fn a_save_whose_flush_fails_is_told_and_lastsave_stands_still() {
    for operation in [DeviceOperation::Flush, DeviceOperation::SyncDirectory] {
        for incremental in ["no", "yes"] {
            let dir = tempfile::tempdir().unwrap();
            let images = Arc::new(FaultInjector::new(Arc::new(DiskDirectory::new(dir.path())), Vec::new()));
            let server = start_restoring(dir.path(), &[("checkpoint-incremental", incremental)], images.clone());
            let mut client = server.client();
            client.text("DEBUG POPULATE 5000 k 200");
            assert_eq!(client.text("SAVE"), "OK");
            let (saved, saves) = (client.call("LASTSAVE").int(), client.info("rdb_saves"));
            client.text("SET k:1 changed");
            eventually("another second begins", || unix_s(&mut client) > saved);
            images.set_rules(vec![(FaultTrigger::From(operation, 0), InjectedFault::Error(errno::EIO))]);
            let reply = client.text("SAVE");
            assert!(reply.starts_with("ERR "), "{operation:?} {incremental}: {reply}");
            client.text("BGSAVE");
            wait_saved(&mut client);
            assert_eq!(client.info("rdb_last_bgsave_status"), "err", "{operation:?} {incremental}");
            assert_ne!(client.info("rdb_last_bgsave_error"), "");
            assert_eq!((client.call("LASTSAVE").int(), client.info("rdb_saves")), (saved, saves), "{operation:?}");
            assert!(images.struck() >= 2);
            images.set_rules(Vec::new());
            assert_eq!(client.text("SAVE"), "OK");
            assert!(client.call("LASTSAVE").int() > saved);
            let digest = client.text("DEBUG DIGEST");
            drop(server);
            assert_eq!(start_in(dir.path(), &[]).client().text("DEBUG DIGEST"), digest, "{operation:?} {incremental}");
        }
    }
}

#[test]
fn shutdown_has_its_variants() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = start_in(dir.path(), &[]);
    let mut client = server.client();
    client.text("SET a 1");
    for line in ["SHUTDOWN FOO", "SHUTDOWN SAVE NOSAVE", "SHUTDOWN ABORT NOW"] {
        assert_eq!(client.text(line), "ERR syntax error", "{line}");
    }
    assert_eq!(client.text("SHUTDOWN ABORT"), "ERR No shutdown in progress.");
    client.send("PING\r\nSHUTDOWN\r\n");
    assert_eq!(client.reply().text(), "PONG");
    assert_eq!(client.try_reply(), None);
    assert!(server.ended());
    assert!(!dir.path().join("dump.quire").exists(), "without rules nothing is saved");
    let mut server = start_in(dir.path(), &[("save", "3600 1")]);
    let mut client = server.client();
    client.text("SET a 2");
    client.send("SHUTDOWN NOW FORCE\r\n");
    assert!(server.ended());
    assert_eq!(start_in(dir.path(), &[]).client().text("GET a"), "2");
}

#[test]
fn nothing_is_acknowledged_that_the_last_image_lacks() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = start_in(dir.path(), &[]);
    let mut clients: Vec<Client> = (0..6).map(|_| server.client()).collect();
    let (mut sleeper, mut ender) = (server.client(), server.client());
    // While the first command runs, the others come together for the next turn of the loop: SHUTDOWN in their middle.
    sleeper.send(request("DEBUG SLEEP 0.5"));
    for (number, client) in clients.iter_mut().enumerate() {
        if number == 3 {
            std::thread::sleep(std::time::Duration::from_millis(100));
            ender.send(request("SHUTDOWN SAVE"));
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        client.send(request(&format!("INCR c:{number}")).repeat(500));
    }
    let acknowledged: Vec<i64> =
        clients.iter_mut().map(|client| std::iter::from_fn(|| client.try_reply()).count() as i64).collect();
    assert!(server.ended());
    assert!(acknowledged[..3].iter().sum::<i64>() > 0, "what came before SHUTDOWN was done: {acknowledged:?}");
    let server = start_in(dir.path(), &[]);
    let mut client = server.client();
    for (number, count) in acknowledged.iter().enumerate() {
        let kept = client.call(&format!("INCRBY c:{number} 0")).int();
        assert!(kept >= *count, "client {number} was told of {count}, {kept} are there");
    }
}

#[test]
fn a_transaction_can_not_end_the_server() {
    let server = start(&[]);
    let mut client = server.client();
    client.text("MULTI");
    assert_eq!(client.text("SHUTDOWN SAVE"), "ERR Command not allowed inside a transaction");
    client.text("INCR a");
    assert!(client.text("EXEC").starts_with("EXECABORT"));
    assert_eq!(client.text("PING"), "PONG");
}

#[test]
fn a_server_that_cannot_save_stays_unless_forced() {
    let mut server = start(&[("enable-protected-configs", "yes")]);
    let mut client = server.client();
    let gone = server.dir.join("gone");
    std::fs::create_dir(&gone).unwrap();
    client.text(&format!("CONFIG SET dir {}", gone.display()));
    std::fs::remove_dir_all(&gone).unwrap();
    assert_eq!(client.text("SHUTDOWN SAVE"), "ERR Errors trying to SHUTDOWN. Check logs.");
    assert_eq!(client.text("SET a 1"), "OK");
    client.send(request("SHUTDOWN SAVE FORCE"));
    assert_eq!(client.try_reply(), None);
    assert!(server.ended());
}

#[test]
fn a_shutdown_during_a_save_leaves_no_half_image() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = start_in(dir.path(), &[]);
    let mut client = server.client();
    client.text("DEBUG POPULATE 200000 k 500");
    client.send([request("BGSAVE"), request("SHUTDOWN NOSAVE")].concat());
    assert_eq!(client.reply().text(), STARTED);
    assert!(server.ended());
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "dump.quire" || name == ".dump.quire.lock"), "{left:?}");
}

#[test]
fn an_image_that_others_may_not_read_stays_so() {
    let server = start(&[]);
    let mut client = server.client();
    client.text("SET a 1");
    client.text("SAVE");
    let mode = std::fs::metadata(server.dir.join("dump.quire")).unwrap().permissions().mode();
    assert_eq!(mode & 0o002, 0, "no other user may write it");
}

#[test]
fn keys_expire_without_being_asked_for() {
    let server = start(&[]);
    let mut client = server.client();
    for number in 0..3000 {
        client.send(request(&format!("SET k:{number} v PX 20")));
    }
    for _ in 0..3000 {
        client.reply();
    }
    eventually("they are gone", || client.call("DBSIZE") == Value::Int(0));
    assert_eq!(client.info("expired_keys"), "3000");
}

#[test]
fn a_background_save_keeps_to_its_rate_until_the_rate_is_changed_and_other_saves_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let server = start_in(dir.path(), &[("checkpoint-max-bytes-per-second", "1")]);
    let mut client = server.client();
    client.text("DEBUG POPULATE 40000 k 200");
    assert_eq!(client.text("SAVE"), "OK");
    assert_eq!(client.text("BGSAVE"), "Background saving started");
    eventually("the first pages are written", || client.info("current_save_pages_done") != "0");
    eventually("the time left is told", || client.info("current_save_time_left_sec") != "-1");
    assert_eq!(client.info("rdb_bgsave_in_progress"), "1");
    assert_eq!(client.text("CONFIG SET checkpoint-max-bytes-per-second 0"), "OK");
    eventually("the save ends", || client.info("rdb_bgsave_in_progress") == "0");
    assert_eq!(client.info("rdb_last_bgsave_status"), "ok");
    assert_eq!(client.info("current_save_time_left_sec"), "-1");
}

/// The I/O priority class of the thread that saves, of whatever server of this process has one.
fn io_class_of_a_saving_thread() -> Option<u32> {
    std::fs::read_dir("/proc/self/task").unwrap().flatten().find_map(|task| {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let number = task.file_name().to_str()?.parse().ok()?;
        let thread = (name.trim_end() == "quire-save").then(|| ThreadId::from_raw(number))??;
        IoPriority::of(thread).map(|priority| priority.raw() >> 13)
    })
}

#[test]
fn a_background_save_has_the_idle_io_priority_unless_the_directive_says_normal() {
    // In a process of its own: other tests save, too.
    if std::env::var_os("QUIRE_TEST_ALONE").is_none() {
        let name = "saves::a_background_save_has_the_idle_io_priority_unless_the_directive_says_normal";
        let own = std::env::current_exe().unwrap();
        let ended =
            std::process::Command::new(own).args(["--exact", name]).env("QUIRE_TEST_ALONE", "1").output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = start_in(dir.path(), &[("checkpoint-max-bytes-per-second", "1")]);
    let mut client = server.client();
    client.text("DEBUG POPULATE 40000 k 200");
    for (priority, class) in [("idle", 3), ("normal", 0)] {
        assert_eq!(client.text(&format!("CONFIG SET checkpoint-io-priority {priority}")), "OK");
        assert_eq!(client.info("save_io_priority"), priority);
        assert_eq!(client.text("BGSAVE"), "Background saving started");
        eventually("the first pages are written", || client.info("current_save_pages_done") != "0");
        let found = io_class_of_a_saving_thread().unwrap();
        assert_eq!(found == 3, class == 3, "{priority}: class {found}");
        client.text("DEBUG POPULATE 1 other 1");
        assert_eq!(client.text("CONFIG SET checkpoint-max-bytes-per-second 0"), "OK");
        eventually("the save ends", || client.info("rdb_bgsave_in_progress") == "0");
        assert_eq!(client.text("CONFIG SET checkpoint-max-bytes-per-second 1"), "OK");
    }
}
