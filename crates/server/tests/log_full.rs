//! The log of writes on a disk that is full for a while: writes are refused, nothing that was acknowledged is lost, and writes go on
//! by themselves when there is room.

#[allow(dead_code, reason = "the other tests use other parts of it")]
mod common;

use std::path::Path;
use std::sync::Arc;

use common::{Client, Running, Value, eventually, request, start_logging};
use quire_device::{
    DeviceOperation, Directory, FaultInjector, FaultTrigger, InjectedFault, IoGate, MemoryDirectory, PowerCut, errno,
};
use tempfile::TempDir;

const ALWAYS: &[(&str, &str)] = &[("appendonly", "yes"), ("appendfsync", "always"), ("log-segment-bytes", "1mb")];
const EVERYSEC: &[(&str, &str)] = &[("appendonly", "yes"), ("appendfsync", "everysec"), ("log-segment-bytes", "1mb")];
/// Bytes of a value that the file which is written to has no room for, and those of one that gets a file of its own size.
const LARGE: [usize; 2] = [700_000, 1_500_000];
/// A save rule that is never met, so that a save that fails stops writes.
const SAVES: &[(&str, &str)] =
    &[("appendonly", "yes"), ("appendfsync", "everysec"), ("log-segment-bytes", "1mb"), ("save", "100000 1000000")];
const NO_ROOM: &str = "MISCONF The log has no room to go on";

/// A server, and its log on a disk that a test fills up, and behind a gate.
struct Full {
    server: Running,
    disk: FaultInjector,
    gate: IoGate,
    memory: MemoryDirectory,
    dir: TempDir,
}

impl Full {
    /// With half a megabyte of acknowledged writes, and no room for more files.
    fn new(settings: &[(&str, &str)]) -> Self {
        let (memory, dir) = (MemoryDirectory::new(), tempfile::tempdir().unwrap());
        let disk = FaultInjector::new(Arc::new(memory.clone()), Vec::new());
        let gate = IoGate::default();
        let server = start_logging(dir.path(), settings, gate.before_all(Arc::new(disk.clone())));
        let mut client = server.client();
        for number in 0..10 {
            assert_eq!(client.text(&format!("SET k:{number} {}", "x".repeat(40_000))), "OK");
        }
        let full = Self { server, disk, gate, memory, dir };
        full.fill_up();
        full
    }

    fn fill_up(&self) {
        self.disk
            .set_rules(vec![(FaultTrigger::From(DeviceOperation::Allocate, 0), InjectedFault::Error(errno::ENOSPC))]);
    }

    fn make_room(&self) {
        self.disk.set_rules(Vec::new());
    }

    /// No image can be saved until [`Full::allow_saves`].
    fn forbid_saves(&self) {
        let image = self.dir.path().join("dump.quire");
        std::fs::rename(&image, self.dir.path().join("aside")).unwrap();
        std::fs::create_dir(&image).unwrap();
    }

    fn allow_saves(&self) {
        let image = self.dir.path().join("dump.quire");
        std::fs::remove_dir(&image).unwrap();
        std::fs::rename(self.dir.path().join("aside"), &image).unwrap();
    }

    /// Writes a value for which there is no room, and returns when the log stands still.
    fn stand_still(&self, bytes: usize) -> Client {
        let (mut writer, mut other) = (self.server.client(), self.server.client());
        writer.send(request(&format!("SET large {}", "x".repeat(bytes))));
        eventually("there is no room", || other.info("log_next_segment") == "awaited");
        writer
    }

    /// What a server finds that starts after this one has lost its power.
    fn after_power_cut(&self) -> (String, String) {
        let memory = self.memory.after_power_cut(PowerCut::LoseAll);
        let copy = tempfile::tempdir().unwrap();
        std::fs::copy(self.dir.path().join("dump.quire"), copy.path().join("dump.quire")).unwrap();
        found(copy.path(), memory)
    }
}

/// How long the last of the first values and the large one are after a restart.
fn found(dir: &Path, memory: MemoryDirectory) -> (String, String) {
    let server = start_logging(dir, ALWAYS, Arc::new(memory));
    let mut client = server.client();
    (client.text("STRLEN k:9"), client.text("STRLEN large"))
}

#[test]
fn under_always_a_write_without_room_is_replied_to_when_it_is_durable() {
    for bytes in LARGE {
        let full = Full::new(ALWAYS);
        let (mut writer, mut other) = (full.stand_still(bytes), full.server.client());
        let refused = other.text("SET b 1");
        assert!(refused.starts_with(NO_ROOM) && refused.contains("error 28"), "{refused}");
        assert!(other.text("PING").starts_with(NO_ROOM));
        assert_eq!(
            (other.text("STRLEN large"), other.info("aof_last_write_status")),
            (bytes.to_string(), "err".into())
        );
        assert!(other.info("aof_buffer_length").parse::<usize>().unwrap() > bytes);
        assert!(other.info("log_last_error").contains("error 28"));
        assert_eq!(other.info("aof_pending_bio_fsync"), "1");
        assert!(writer.is_silent());
        assert_eq!(full.after_power_cut(), ("40000".into(), "0".into()));
        full.make_room();
        assert_eq!(writer.reply().text(), "OK");
        assert_eq!(full.after_power_cut(), ("40000".into(), bytes.to_string()));
        eventually("writes are taken again", || other.text("SET b 1") == "OK");
        assert_eq!((other.info("aof_last_write_status"), other.text("PING")), ("ok".into(), "PONG".into()));
        assert_eq!(other.info("aof_buffer_length"), "0");
    }
}

#[test]
fn waitaof_says_what_is_durable_when_there_is_no_room() {
    for bytes in LARGE {
        let full = Full::new(EVERYSEC);
        let mut writer = full.stand_still(bytes);
        assert_eq!(writer.reply().text(), "OK");
        let durable = |local| Value::Array(vec![Value::Int(local), Value::Int(0)]);
        assert_eq!(writer.call("WAITAOF 1 0 20"), durable(0));
        assert_eq!(full.server.client().call("WAITAOF 1 0 0"), durable(1), "it has written nothing");
        writer.send(request("WAITAOF 1 0 0"));
        assert!(writer.is_silent());
        full.make_room();
        assert_eq!(writer.reply(), durable(1));
        assert_eq!(full.after_power_cut(), ("40000".into(), bytes.to_string()));
    }
}

#[test]
fn under_always_the_server_ends_on_a_full_disk_with_all_that_was_acknowledged() {
    for bytes in LARGE {
        let mut full = Full::new(ALWAYS);
        let (mut writer, mut admin) = (full.stand_still(bytes), full.server.client());
        admin.send(request("SHUTDOWN"));
        assert!(full.server.ended());
        assert_eq!(writer.try_reply(), None, "neither yes nor no would be true");
        assert_eq!(found(full.dir.path(), full.memory.clone()), ("40000".into(), "0".into()));
    }
}

#[test]
fn a_server_takes_an_image_before_it_ends_if_acknowledged_writes_have_no_room() {
    let mut full = Full::new(EVERYSEC);
    full.forbid_saves();
    let (mut writer, mut other) = (full.stand_still(LARGE[0]), full.server.client());
    assert_eq!(writer.reply().text(), "OK");
    eventually("an image is tried at once, in vain", || other.info("aof_last_bgrewrite_status") == "err");
    full.allow_saves();
    // It was acknowledged under the former policy.
    assert_eq!(writer.text("CONFIG SET appendfsync always"), "OK");
    writer.send(request("SHUTDOWN NOSAVE"));
    assert!(full.server.ended());
    assert_eq!(found(full.dir.path(), full.memory.clone()), ("40000".into(), LARGE[0].to_string()));
}

#[test]
fn a_server_that_can_take_no_image_stays_if_acknowledged_writes_have_no_room() {
    let mut full = Full::new(EVERYSEC);
    full.forbid_saves();
    let mut client = full.stand_still(LARGE[0]);
    assert_eq!(client.reply().text(), "OK");
    for end in ["SHUTDOWN", "SHUTDOWN NOSAVE"] {
        assert_eq!(client.text(end), "ERR Errors trying to SHUTDOWN. Check logs.");
    }
    assert_eq!(client.text("STRLEN large"), LARGE[0].to_string());
    // Where the log has everything it needs no image.
    full.make_room();
    eventually("all is durable", || client.info("aof_pending_bio_fsync") == "0");
    full.allow_saves();
    client.send(request("SHUTDOWN NOSAVE"));
    assert!(full.server.ended());
    assert_eq!(found(full.dir.path(), full.memory.clone()), ("40000".into(), LARGE[0].to_string()));
}

#[test]
fn acknowledged_writes_without_room_are_saved_without_being_asked() {
    for bytes in LARGE {
        let full = Full::new(EVERYSEC);
        let (mut writer, mut other) = (full.stand_still(bytes), full.server.client());
        assert_eq!(writer.reply().text(), "OK");
        eventually("an image has them", || other.info("aof_rewrites") == "1");
        assert_eq!(other.info("aof_last_bgrewrite_status"), "ok");
        // No record waits any more if the one that had no room fits into the segment that the image covers. The file after
        // that one is tried first.
        eventually("the disk is full", || matches!(other.info("log_next_segment").as_str(), "failed" | "awaited"));
        assert_eq!(full.after_power_cut(), ("40000".into(), bytes.to_string()));
        full.make_room();
        eventually("writes are taken again", || other.text("SET b 1") == "OK");
        assert_eq!(full.after_power_cut(), ("40000".into(), bytes.to_string()));
    }
}

#[test]
fn an_image_that_failed_on_a_full_disk_does_not_stop_writes_when_there_is_room() {
    let full = Full::new(SAVES);
    full.forbid_saves();
    let (mut writer, mut other) = (full.stand_still(LARGE[0]), full.server.client());
    assert_eq!(writer.reply().text(), "OK");
    eventually("an image is tried", || other.info("aof_last_bgrewrite_status") == "err");
    full.make_room();
    eventually("the log goes on", || other.info("log_next_segment") != "awaited");
    // No save rule asks for another one.
    full.allow_saves();
    eventually("writes are taken again", || other.text("SET b 1") == "OK");
}

#[test]
fn a_server_that_ends_looks_first_whether_the_disk_is_full() {
    for bytes in LARGE {
        let mut full = Full::new(EVERYSEC);
        let (mut client, mut probe) = (full.server.client(), full.server.client());
        full.gate.close();
        assert_eq!(client.text(&format!("SET large {}", "x".repeat(bytes))), "OK");
        assert_eq!(client.info("aof_last_write_status"), "ok");
        client.send(request("SHUTDOWN NOSAVE"));
        // The engine waits for the device.
        loop {
            probe.send(request("PING"));
            if probe.is_silent() {
                break;
            }
            assert_eq!(probe.reply().text(), "PONG");
        }
        full.gate.open();
        assert!(full.server.ended());
        assert_eq!(found(full.dir.path(), full.memory.clone()), ("40000".into(), bytes.to_string()));
    }
}

#[test]
fn a_server_whose_writes_all_have_room_needs_no_image_to_end_on_a_full_disk() {
    let mut full = Full::new(EVERYSEC);
    let mut client = full.server.client();
    // Beyond half of the file, and not to its end, so that the next file is tried.
    for number in 10..15 {
        client.text(&format!("SET k:{number} {}", "x".repeat(40_000)));
    }
    eventually("the next file can't be made", || client.info("log_next_segment") == "failed");
    std::fs::remove_file(full.dir.path().join("dump.quire")).unwrap();
    std::fs::create_dir(full.dir.path().join("dump.quire")).unwrap();
    client.send(request("SHUTDOWN NOSAVE"));
    assert!(full.server.ended());
}

#[test]
fn keys_that_expire_while_there_is_no_room_are_removed_when_there_is() {
    let full = Full::new(EVERYSEC);
    let mut client = full.server.client();
    client.text("DEBUG PAUSE-CRON 1");
    assert_eq!(client.text("SET short-lived 1 PX 300"), "OK");
    let _writer = full.stand_still(LARGE[0]);
    client.text("DEBUG PAUSE-CRON 0");
    let last = client.info("log_appended_record");
    eventually("it expires", || client.text("GET short-lived") == "(nil)");
    // Its removal would be a record more that waits in memory.
    assert_eq!((client.info("log_appended_record"), client.text("DBSIZE")), (last.clone(), "12".into()));
    full.make_room();
    eventually("it is removed", || client.text("DBSIZE") == "11");
    assert_ne!(client.info("log_appended_record"), last);
}

#[test]
fn a_save_that_frees_files_makes_writes_go_on() {
    let full = Full::new(ALWAYS);
    let mut client = full.server.client();
    full.make_room();
    let value = "x".repeat(40_000);
    // Two files become full, and of the third one so much is used that it has no room for a large value.
    for until in ["ready", "not-needed", "ready", "not-needed"] {
        while client.info("log_next_segment") != until {
            assert_eq!(client.text(&format!("SET k:9 {value}")), "OK");
        }
    }
    for _ in 0..9 {
        assert_eq!(client.text(&format!("SET k:9 {value}")), "OK");
    }
    full.fill_up();
    let mut writer = full.stand_still(LARGE[0]);
    // The log goes on in the files that the image has freed, without getting any more space.
    assert_eq!(client.text("BGSAVE"), "Background saving started");
    assert_eq!(writer.reply().text(), "OK");
    eventually("writes are taken again", || client.text("SET b 1") == "OK");
}

#[test]
fn a_server_goes_on_without_the_log_that_has_no_room() {
    let full = Full::new(ALWAYS);
    let (mut writer, mut admin) = (full.stand_still(LARGE[0]), full.server.client());
    assert_eq!(admin.text("CONFIG SET appendonly no"), "OK");
    assert_eq!(writer.try_reply(), None, "neither yes nor no would be true");
    assert_eq!((admin.text("SET b 1"), admin.text("PING")), ("OK".into(), "PONG".into()));
    full.make_room();
    assert_eq!(admin.text("CONFIG SET appendonly yes"), "OK");
    eventually("the log is in force", || admin.info("aof_pending_rewrite") == "0");
    assert_eq!(admin.text("SET c 1"), "OK");
    assert_eq!(full.after_power_cut(), ("40000".into(), LARGE[0].to_string()));
}

#[test]
fn a_client_that_ends_the_log_is_not_told_that_its_own_write_is_done() {
    for before in [None, Some("CONFIG SET appendfsync everysec"), Some("CLIENT REPLY OFF")] {
        let full = Full::new(ALWAYS);
        let mut writer = full.stand_still(LARGE[0]);
        if let Some(before) = before {
            writer.send(request(before));
        }
        assert!(writer.is_silent(), "what it is told comes after what it waits for");
        writer.send(request("CONFIG SET appendonly no"));
        assert_eq!(writer.try_reply(), None, "neither yes nor no would be true: {before:?}");
        assert_eq!(full.server.client().text("SET b 1"), "OK");
    }
}

#[test]
fn a_client_that_waits_for_the_log_is_not_idle() {
    let full = Full::new(ALWAYS);
    let mut admin = full.server.client();
    assert_eq!(admin.text("CONFIG SET timeout 1"), "OK");
    let mut writer = full.stand_still(LARGE[0]);
    // When this client, which was active later, is closed as idle, the writer would have been, too.
    let mut idle = full.server.client();
    assert!(idle.text("GET none").starts_with("(nil)"));
    assert_eq!(idle.try_reply(), None, "it is closed");
    assert!(writer.is_silent());
    full.make_room();
    assert_eq!(writer.reply().text(), "OK");
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    // The log's first file is made at the start, the second one ahead of its use.
    let full = (1..4)
        .map(|nth| (FaultTrigger::Nth(DeviceOperation::Allocate, nth), InjectedFault::Error(errno::ENOSPC)))
        .collect();
    let directory: Arc<dyn Directory> = Arc::new(FaultInjector::new(Arc::new(MemoryDirectory::new()), full));
    let server = start_logging(dir.path(), ALWAYS, directory);
    let mut client = server.client();
    let value = "x".repeat(10_000);
    assert_eq!(client.info("aof_last_write_status"), "ok");
    // Beyond half of the file, and not to its end.
    for _ in 0..60 {
        client.text(&format!("SET a {value}"));
    }
    let mut refused = String::new();
    eventually("the disk is full", || {
        // In one turn, so that what INFO says is of the same moment.
        client.send([request("SET b 1"), request("INFO persistence")].concat());
        refused = client.reply().text();
        let told = client.reply().text();
        refused != "OK" && told.contains("aof_last_write_status:err")
    });
    assert!(refused.starts_with("MISCONF The log has no room to go on") && refused.contains("error 28"), "{refused}");
    assert_eq!(client.text("GET a"), value);
    eventually("there is room", || client.text("SET a 1") == "OK");
    assert_eq!(client.info("aof_last_write_status"), "ok");
    for _ in 0..300 {
        assert_eq!(client.text(&format!("SET a {value}")), "OK");
    }
}

#[test]
fn messages_reach_a_client_whose_write_waits_for_room_and_however_many_they_are_it_stays() {
    let settings = [ALWAYS, &[("client-output-buffer-limit", "pubsub 1mb 0 0")]].concat();
    let full = Full::new(&settings);
    let (mut listener, mut sender) = (full.server.client(), full.server.client());
    listener.call("HELLO 3");
    listener.call("SUBSCRIBE early");
    let message = vec![b'm'; 300 << 10];
    listener.send(request(&format!("SET large {}", "x".repeat(LARGE[1]))));
    // Its reply waits for the log, too, and says what the client listens to from there on.
    listener.send(request("SUBSCRIBE late"));
    eventually("there is no room", || sender.info("log_next_segment") == "awaited");
    eventually("it listens", || sender.call("PUBSUB NUMSUB late").items()[1] == Value::Int(1));
    for _ in 0..10 {
        assert_eq!(sender.words(&[b"PUBLISH", b"late", &message]), Value::Int(1));
    }
    full.make_room();
    assert_eq!(listener.reply().text(), "OK", "the messages are behind the reply that announces them");
    assert_eq!(listener.reply().items()[0].text(), "subscribe");
    for _ in 0..10 {
        assert_eq!(listener.reply().items()[2], Value::Bulk(message.clone()));
    }
    drop(full);

    let full = Full::new(&settings);
    let (mut listener, mut sender) = (full.server.client(), full.server.client());
    listener.call("HELLO 3");
    listener.call("SUBSCRIBE early");
    listener.send(request(&format!("SET large {}", "x".repeat(LARGE[1]))));
    eventually("there is no room", || sender.info("log_next_segment") == "awaited");
    for _ in 0..10 {
        assert_eq!(sender.words(&[b"PUBLISH", b"early", &message]), Value::Int(1));
        assert_eq!(listener.reply().items()[2], Value::Bulk(message.clone()), "while its SET is silent");
    }
    full.make_room();
    assert_eq!(listener.reply().text(), "OK");
}
